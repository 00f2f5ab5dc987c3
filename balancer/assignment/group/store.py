"""The local state of a task: keys and values in SQLite, with the offsets they stand for."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# Changes whose values are None delete their keys.
Changes = Mapping[bytes, bytes | None]


class StateStore:
    """State of one task, as of an offset of its changelog.

    Values and offsets are written in one transaction, so that the state is never ahead of the
    offset it reports, nor behind, whenever the process ends. State that cannot be read is
    deleted: the changelog has it.

    Parameters
    ----------
    path
        The folder of the task; it is made if it is missing.

    Attributes
    ----------
    position : int
        Offset of the changelog up to which the state is complete.
    input_offset : int
        Offset of the input up to which the state has counted it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._open()
        except sqlite3.DatabaseError:
            shutil.rmtree(path)
            self._open()

    def _open(self) -> None:
        self._path.mkdir(exist_ok=True)
        self._database = sqlite3.connect(
            self._path / "state.sqlite", isolation_level=None, check_same_thread=False
        )
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = NORMAL",
            "CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID",
            "CREATE TABLE IF NOT EXISTS offsets (position INTEGER, input_offset INTEGER)",
        ):
            self._database.execute(statement)
        row = self._database.execute("SELECT position, input_offset FROM offsets").fetchone()
        if row is None:
            row = (0, 0)
            self._database.execute("INSERT INTO offsets VALUES (?, ?)", row)
        self.position, self.input_offset = row

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if it has none."""
        found = self._database.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values, by key."""
        yield from self._database.execute("SELECT key, value FROM state ORDER BY key")

    def apply(self, changes: Changes, position: int, input_offset: int | None = None) -> None:
        """Write changes and the offsets they lead to, all or nothing."""
        input_offset = self.input_offset if input_offset is None else input_offset
        put = [(k, v) for k, v in changes.items() if v is not None]
        gone = [(k,) for k, v in changes.items() if v is None]
        with self._moving_to(position, input_offset) as database:
            database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", put)
            database.executemany("DELETE FROM state WHERE key = ?", gone)

    def clear(self) -> None:
        """Forget everything: the state is of another changelog."""
        with self._moving_to(0, 0) as database:
            database.execute("DELETE FROM state")

    @contextmanager
    def _moving_to(self, position: int, input_offset: int) -> Iterator[sqlite3.Connection]:
        """A transaction that ends with these offsets."""
        database = self._database
        database.execute("BEGIN")
        try:
            yield database
            database.execute(
                "UPDATE offsets SET position = ?, input_offset = ?", (position, input_offset)
            )
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise
        self.position, self.input_offset = position, input_offset

    def close(self) -> None:
        """Close the files; the state stays."""
        self._database.close()
