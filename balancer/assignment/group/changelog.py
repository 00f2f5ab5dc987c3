"""Records of the changelog: changes of state, and how far the input has been counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

# The first byte of a key tells the two kinds apart.
_STATE, _INPUT = b"s", b"i"

INPUT_KEY = _INPUT
# Header of a record of progress: the process that wrote it.
PROCESS_HEADER = "process"


def state_key(key: bytes) -> bytes:
    """The key in the changelog of a key of the state."""
    return _STATE + key


def input_value(offset: int) -> bytes:
    """The value in the changelog of an offset of the input."""
    return str(offset).encode()


@dataclass
class Replay:
    """Changes read from a changelog, until they are written to a store."""

    changes: dict[bytes, bytes | None] = field(default_factory=dict)
    input_offset: int | None = None

    def add(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take records in their order; those of neither kind are passed over."""
        for key, value in records:
            if key is None:
                continue
            if key[:1] == _STATE:
                self.changes[key[1:]] = value
            elif key == _INPUT and value is not None and value.isdigit():
                self.input_offset = int(value)
