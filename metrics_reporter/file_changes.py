"""Notices that a file has changed, for processes that read it again while they run."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int] | None


class FileChanges:
    """Whether a file has changed since it was read; to be polled.

    Parameters
    ----------
    path
        The file, which is read after this; None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        # Before the file is read, or a change made meanwhile would be missed.
        self._read = self._seen = _stamp(path)

    def due(self) -> bool:
        """Whether it is to be read again: it has changed, and is the same as at the last look.

        So a half-written file is not taken for a complete one. True once for each change.
        """
        now = _stamp(self._path)
        rests, self._seen = now == self._seen, now
        if now == self._read or not rests:
            return False
        self._read = now
        return True


def _stamp(path: Path | None) -> Stamp:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
