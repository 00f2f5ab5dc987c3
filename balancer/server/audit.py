"""Records every change that somebody makes through the server: who, what, when and why."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from balancer.server.access import Actor
from metrics_reporter.documents import json_text

log = logging.getLogger("counterpoise.audit")


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
        OSError
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
        with self._lock:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, (line + "\n").encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
