"""What an application writes: a function of one record and the state of its task."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from balancer.assignment.group.store import StateStore


class Record(NamedTuple):
    """A record of the input."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


class State:
    """State of a task while a batch is processed: what is stored, and changes not yet committed.

    Parameters
    ----------
    store
        The state as of the last transaction.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if it has none."""
        return self.changes[key] if key in self.changes else self._store.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        """Forget a key."""
        self.changes[key] = None


class Processor(Protocol):
    """Processes records; everything that it must remember is in the state."""

    def process(self, record: Record, state: State) -> None:
        """Process one record. It may be called again for a record whose transaction failed."""
