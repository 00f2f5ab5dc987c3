"""Reads and writes snapshots: JSON for people and small clusters, npz for a million replicas."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import ValidationError

from cluster_model.build import SnapshotDocument, build_snapshot, to_document
from cluster_model.errors import SnapshotError
from cluster_model.snapshot import ATTRIBUTES, Snapshot
from cluster_model.snapshot_readers import READERS, read_snapshot, reader_of
from metrics_reporter.documents import (
    LIMITS,
    DocumentError,
    clipped,
    first_problem,
    read_document,
    shown,
    shown_name,
)

SCHEMA_VERSION = 1
_LOOK_SECONDS = 0.05

# Fields that files of earlier releases lack, and that may be unknown.
_LATER = {
    "reassigning",
    "disk_cordoned",
    "creatable",
    "target_replicas",
    "warming",
    "copy_partition",
    "copy_broker",
    "copy_lag",
    "may_hold",
    "cluster_id",
    "taken_ms",
    "metadata_version",
    "cost_unit",
    "move_cost_partition",
    "move_cost_broker",
    "move_cost",
    *ATTRIBUTES,
}
# Each attribute is a separate array, named after the field and the attribute.
_ATTRIBUTE_FILES = tuple(f"{field}." for field in ATTRIBUTES)


def save_snapshot(snapshot: Snapshot, path: str | Path) -> None:
    """Write a snapshot, atomically; the suffix (``.json`` or ``.npz``) chooses the format.

    Raises
    ------
    SnapshotError
        For any other suffix.
    """
    path = Path(path)
    check_suffix(path)
    if path.suffix == ".json":
        document = {"schema_version": SCHEMA_VERSION, **to_document(snapshot)}
        write_atomically(
            path, lambda f: f.write(json.dumps(document, indent=1, allow_nan=False).encode())
        )
    else:
        arrays: dict[str, Any] = {
            f.name: np.asarray(value)
            for f in fields(snapshot)
            if f.name not in ATTRIBUTES and (value := getattr(snapshot, f.name)) is not None
        }
        for name, array in arrays.items():
            if array.size == 0 and isinstance(getattr(snapshot, name), tuple):
                arrays[name] = np.empty(0, np.str_)
        for field in ATTRIBUTES:
            arrays |= {f"{field}.{k}": value for k, value in getattr(snapshot, field).items()}
        write_atomically(
            path, lambda f: np.savez_compressed(f, schema_version=SCHEMA_VERSION, **arrays)
        )


def check_suffix(path: Path) -> None:
    """Raise SnapshotError unless the file's suffix is that of a snapshot."""
    if path.suffix not in (".json", ".npz"):
        raise SnapshotError(f"snapshot file {path}: suffix .json or .npz expected")


class JsonReader:
    """A JSON document, as :func:`save_snapshot` writes it or written by hand."""

    def read(self, source: str) -> Snapshot:
        """The snapshot in a file."""
        return _load_json(Path(source))


class NpzReader:
    """Arrays of numpy, as :func:`save_snapshot` writes them for large clusters."""

    def read(self, source: str) -> Snapshot:
        """The snapshot in a file."""
        return _load_npz(Path(source))


def load_snapshot(path: str | Path, options: Mapping[str, Any] | None = None) -> Snapshot:
    """Read a snapshot written by :func:`save_snapshot`, or a JSON document written by hand.

    Readers of other packages (``counterpoise readers list``) are chosen by the suffix of a
    file, or the scheme of an address.

    Parameters
    ----------
    path
        A file, or an address like ``s3://bucket/cluster``.
    options
        Options of the reader; those of JSON and npz take none.

    Raises
    ------
    SnapshotError
        For a missing or unreadable file, an unknown schema version, or content that
        contradicts itself, in one sentence with the place.
    """
    name, source = reader_of(path)
    # Installed packages are looked for only if need be: that takes longer than a small file.
    if name not in READERS.built_in:
        known = READERS.names()
        if name in known:
            return read_snapshot(name, source, options or {})
        others = [other for other in known if other not in READERS.built_in]
        more = f" (or one of the installed readers {', '.join(others)})" if others else ""
        raise SnapshotError(f"snapshot file {path}: suffix .json or .npz expected{more}")
    reader = READERS.make(name, options or {})
    try:
        found: Snapshot = reader.read(source)
    except OSError as error:
        raise SnapshotError(f"snapshot file {path}: {error.strerror or error}") from None
    except SnapshotError as error:
        raise SnapshotError(f"snapshot file {path}: {clipped(str(error))}") from None
    return found


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Let `write` fill a temporary file in the same directory, then replace `path` with it.

    A new file is readable by its owner only, since a cluster's layout is confidential. An
    existing one keeps its mode, and its owner if permitted. A symbolic link stays, and its
    target is replaced; a device or a pipe is written to directly. If the disk is full, the
    old file stays, and no other file is left.

    Raises
    ------
    OSError
        If it cannot be written, as for a directory, a missing parent directory, or a pipe
        without a reader.
    """
    try:
        before = os.stat(path)
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):
        # Some writers seek back, which a pipe does not allow.
        whole = io.BytesIO()
        write(whole)
        with os.fdopen(_opened(path, before), "wb") as f:
            f.write(whole.getvalue())
        return
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as f:
            if before is not None:
                _keep(f.fileno(), before)
            write(f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _opened(path: Path, found: os.stat_result) -> int:
    """Open a device or a pipe for writing; a pipe's reader has some seconds to appear."""
    if not stat.S_ISFIFO(found.st_mode):
        return os.open(path, os.O_WRONLY)
    deadline = time.monotonic() + LIMITS.reader_seconds
    while True:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > deadline:
                raise OSError(errno.ENXIO, "no process reads from this pipe") from None
            time.sleep(_LOOK_SECONDS)
        else:
            os.set_blocking(handle, True)
            return handle


def _keep(handle: int, before: os.stat_result) -> None:
    """Give a file the mode of the one it replaces, and its owner if permitted."""
    mode = stat.S_IMODE(before.st_mode)
    try:
        os.fchown(handle, before.st_uid, before.st_gid)
    except OSError:
        # Set-id bits must not pass to another owner or group.
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
    os.fchmod(handle, mode)


def _load_json(path: Path) -> Snapshot:
    try:
        document = read_document(path, "a snapshot", format="json")
    except DocumentError as error:
        raise SnapshotError(str(error)) from None
    if not isinstance(document, dict):
        raise SnapshotError("a JSON object expected at the top")
    _check_version(document.pop("schema_version", None))
    return build_snapshot(_validated(document))


def _validated(document: dict[str, Any]) -> SnapshotDocument:
    try:
        return SnapshotDocument.model_validate(document)
    except ValidationError as error:
        raise SnapshotError(first_problem(error)) from None


def _load_npz(path: Path) -> Snapshot:
    try:
        values = _read_npz(path, ["schema_version", *(f.name for f in fields(Snapshot))])
    except (OSError, SnapshotError) as error:
        # zipfile raises an OSError without a number for a wrong offset in the archive.
        if isinstance(error, SnapshotError) or error.errno not in (None, errno.EINVAL):
            raise
        raise SnapshotError(f"not an npz archive: {error}") from None
    except MemoryError:
        raise SnapshotError("more found than the memory of this machine holds") from None
    # zipfile, zlib, struct and numpy raise more on a damaged archive than they document.
    except Exception as error:
        said = " ".join(str(error).split())
        raise SnapshotError(f"not an npz archive: {shown_name(said or repr(error))}") from None
    version = values.pop("schema_version", np.empty(0))
    # Text is read as strings, everything else as an array.
    whole = isinstance(version, np.ndarray) and version.shape == () and version.dtype.kind in "iu"
    _check_version(version.item() if whole else None)
    needed = {f.name for f in fields(Snapshot)} - values.keys() - _LATER
    if needed:
        raise SnapshotError(f"field {min(needed)} is missing")
    for f in fields(Snapshot):
        text = isinstance(values.get(f.name), list)
        if f.name in ATTRIBUTES:
            start = f"{f.name}."
            of = [name for name in values if name.startswith(start)]
            values[f.name] = {name.removeprefix(start): values.pop(name) for name in of}
        elif (
            f.name in values and f.name != "broker_ids" and text != str(f.type).startswith("tuple")
        ):
            raise SnapshotError(f"field {f.name}: values of the wrong type found")
    return Snapshot(**values)


def _read_npz(path: Path, names: list[str]) -> dict[str, Any]:
    """Arrays of an archive by name; sizes are checked before anything is inflated."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        once = {m.filename: m for m in members}
        if len(once) < len(members):
            raise SnapshotError("a field found twice, each once expected")
        names += [name.removesuffix(".npy") for name in once if name.startswith(_ATTRIBUTE_FILES)]
        found = {name: once[f"{name}.npy"] for name in names if f"{name}.npy" in once}
        total = sum(m.file_size for m in found.values())
        if total > LIMITS.npz_bytes:
            raise SnapshotError(
                f"{_mib(total)} of arrays found, at most {_mib(LIMITS.npz_bytes)} expected"
            )
        return {name: _read_array(archive, member) for name, member in found.items()}


def _mib(size: int) -> str:
    """Bytes rounded up, so that a size beyond a limit never reads as the limit."""
    return f"{-(-size // (1 << 20)):,} MiB"


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """One array; numpy reads it only if its header agrees with the member's size."""
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise SnapshotError(f"field {name}: an array in a format of numpy's 1.0 expected")
        read = np.lib.format.read_array_header_1_0
        shape, fortran, dtype = (
            np.lib.format.read_array_header_2_0 if version == (2, 0) else read
        )(file)
        size = math.prod(shape) * dtype.itemsize
        left = member.file_size - file.tell()
        if dtype.kind == "U" and size > LIMITS.npz_text_bytes:
            most = _mib(LIMITS.npz_text_bytes)
            raise SnapshotError(
                f"field {name}: {_mib(size)} of text found, at most {most} expected"
            )
        if dtype.kind not in "biufU" or min(shape, default=0) < 0 or size != left:
            raise SnapshotError(
                f"field {name}: {left} bytes found for an array of type {shown_name(str(dtype))} "
                f"and shape {shown(shape)}"
            )
        data = file.read(size)
    if len(data) != size:
        raise SnapshotError(f"field {name}: {len(data)} bytes found, {size} expected")
    array = np.frombuffer(data, dtype) if size else np.empty(math.prod(shape), dtype)
    array = array.reshape(shape, order="F" if fortran else "C")
    # Converting to text reveals invalid characters.
    return array if dtype.kind != "U" else _texts(name, array)


def _texts(name: str, array: np.ndarray[Any, np.dtype[Any]]) -> str | list[str]:
    if array.ndim == 0:
        return str(array)
    if array.ndim != 1:
        raise SnapshotError(f"field {name}: {array.ndim} dimensions found, 1 expected")
    return [str(text) for text in array.tolist()]


def _check_version(version: object) -> None:
    if type(version) is not int or version != SCHEMA_VERSION:
        raise SnapshotError(
            f"schema_version {shown(version)} found, {SCHEMA_VERSION} expected by this release"
        )
