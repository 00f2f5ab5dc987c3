"""Records every change that somebody makes through the server: who, what, when and why."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from balancer.server.access import Actor
from balancer.server.errors import RequestError
from metrics_reporter.documents import json_text

log = logging.getLogger("counterpoise.audit")
# Bytes at the end of the file that are read back.
_READ = 1_000_000


class AuditLog:
    """Appends records to a file and to the log.

    Parameters
    ----------
    path
        The file, one JSON object a line; None for the log only.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def record(self, actor: Actor, action: str, subject: str, why: str = "", **facts: Any) -> None:
        """Record a change; it is on disk before this returns.

        Parameters
        ----------
        actor
            Who.
        action, subject
            What is done to what: ``approve``, ``proposal 1a2b``.
        why
            The reason that they gave.
        facts
            More about it; no secrets.

        Raises
        ------
        RequestError
            If it cannot be written: then the change must not be made.
        """
        entry = {
            "time": time.time(),
            "who": actor.name,
            "role": actor.role,
            "action": action,
            "subject": subject,
            "why": why,
            **facts,
        }
        line = json_text(entry)
        log.info("%s", line)
        if self._path is None:
            return
        try:
            with self._lock:
                _append(self._path, line)
        except OSError as error:
            log.error("the audit log %s cannot be written: %s", self._path, error)
            raise RequestError(
                "nothing was changed, since the audit log cannot be written: "
                f"{error.strerror or type(error).__name__}",
                503,
            ) from None

    def last(self, most: int) -> list[dict[str, Any]]:
        """The last records, the newest first; of a long file, those near its end.

        Raises
        ------
        RequestError
            If there is no file, or it cannot be read.
        """
        if self._path is None:
            raise RequestError("changes are not kept in a file (setting audit)", 409)
        try:
            with self._path.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - _READ)
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise RequestError(f"the audit log cannot be read: {why}", 503) from None
        # The first line is not whole if the file is longer.
        lines = data.decode("utf-8", "replace").split("\n")[1 if start else 0 :]
        return [_record(line) for line in reversed(lines) if line][:most]


def _record(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": line[:200]}


def _append(path: Path, line: str) -> None:
    data = (line + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        before = os.fstat(descriptor).st_size
        if os.write(descriptor, data) < len(data):
            # A part of a line would spoil the next one.
            os.ftruncate(descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
