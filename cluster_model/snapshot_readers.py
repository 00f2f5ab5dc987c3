"""Finds readers of snapshots by the suffix of a file or the scheme of an address.

Another package adds its own as an entry point of the group ``counterpoise.snapshots``, named
like the suffix without its dot (``csv``) or the scheme (``s3``): a class with a method ``read``.
Options are the fields of a pydantic model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cluster_model.errors import InputError, SnapshotError
from metrics_reporter.documents import clipped
from metrics_reporter.plugins import Plugins, fault_of

if TYPE_CHECKING:
    from cluster_model.snapshot import Snapshot

# A path keeps only one of the slashes of an address.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(?=[^/])(.*)", re.S)


class SnapshotReader(Protocol):
    """What another package implements: it reads a snapshot from a file or an address."""

    def read(self, source: str) -> Snapshot:
        """The snapshot; an :class:`InputError` with one sentence if it cannot be read."""


READERS: Plugins[type[Any]] = Plugins(
    group="counterpoise.snapshots",
    noun="snapshot reader",
    built_in={"json": "cluster_model.files:JsonReader", "npz": "cluster_model.files:NpzReader"},
    accepts=lambda found: isinstance(found, type) and callable(getattr(found, "read", None)),
    expected="a class with a method read",
    error=SnapshotError,
)


def reader_of(path: str | Path) -> tuple[str, str]:
    """The name of the reader for a file or an address, and what it reads.

    Examples
    --------
    >>> reader_of("rooms.csv"), reader_of(Path("s3://bucket/cluster.json"))
    (('csv', 'rooms.csv'), ('s3', 's3://bucket/cluster.json'))
    """
    address = _ADDRESS.fullmatch(str(path))
    if address is not None:
        return address[1], f"{address[1]}://{address[2]}"
    return Path(path).suffix.removeprefix("."), str(path)


def read_snapshot(name: str, source: str, options: Mapping[str, Any]) -> Snapshot:
    """Read a snapshot with a reader of another package.

    Raises
    ------
    SnapshotError
        For wrong options, or whatever the reader raises or returns instead of a snapshot.
    """
    from cluster_model.snapshot import Snapshot

    reader = READERS.make(name, options)
    with fault_of(f"snapshot {source}: snapshot reader {name} failed", SnapshotError):
        try:
            found = reader.read(source)
        except OSError as error:
            raise SnapshotError(f"snapshot {source}: {error.strerror or error}") from None
        except InputError as error:
            raise SnapshotError(f"snapshot {source}: {clipped(str(error))}") from None
    if not isinstance(found, Snapshot):
        raise SnapshotError(
            f"snapshot {source}: snapshot reader {name} returned {type(found).__name__}, a "
            "Snapshot expected"
        )
    return found
