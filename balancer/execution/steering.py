"""Changes to an execution in progress, from any thread: pause, resume, other speed limits."""

from __future__ import annotations

import threading
import time
from typing import Any

from balancer.execution.errors import ExecutionError
from balancer.execution.limits import Limits

ADJUSTABLE = (
    "throttle",
    "concurrent_moves_per_broker",
    "concurrent_moves",
    "concurrent_log_dir_moves_per_broker",
    "leadership_batch",
)


class Steering:
    """What an operator asks of the execution in progress.

    Examples
    --------
    >>> steering = Steering()
    >>> steering.adjust(Limits(), concurrent_moves=7)
    >>> steering.applied(Limits()).concurrent_moves
    7
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: dict[str, Any] = {}
        self._paused_since: float | None = None

    @property
    def paused(self) -> bool:
        """Whether nothing may start."""
        return self._paused_since is not None

    def paused_for(self) -> float:
        """Seconds since the pause began; 0 if there is none."""
        since = self._paused_since
        return 0.0 if since is None else time.monotonic() - since

    def pause(self) -> None:
        """Start no further task; running ones end."""
        with self._lock:
            if self._paused_since is None:
                self._paused_since = time.monotonic()

    def resume(self) -> None:
        """Start tasks again."""
        with self._lock:
            self._paused_since = None

    def adjust(self, limits: Limits, **changes: Any) -> None:
        """Use other values of some limits until the execution ends.

        Parameters
        ----------
        limits
            The limits of the execution.
        changes
            Values by the name of a limit, of those in ``ADJUSTABLE``. A throttle can be changed,
            not removed: what is throttled stays so until the end.

        Raises
        ------
        ExecutionError
            Naming the limit, the value found and what was expected.
        """
        for name, value in changes.items():
            if name not in ADJUSTABLE:
                raise ExecutionError(
                    f"limit {name}: cannot be changed while an execution runs; one of "
                    f"{', '.join(ADJUSTABLE)} expected"
                )
            if name == "throttle" and value is None:
                raise ExecutionError(
                    "limit throttle: none found, bytes/s expected; a throttle can be raised but "
                    "not removed while an execution runs"
                )
        with self._lock:
            changed = {**self._changes, **changes}
            Limits.of(**{**limits.model_dump(), **changed})
            self._changes = changed

    def applied(self, limits: Limits) -> Limits:
        """The limits with the changes."""
        with self._lock:
            return (
                Limits.of(**{**limits.model_dump(), **self._changes}) if self._changes else limits
            )

    def clear(self) -> None:
        """Withdraw everything, for the next execution."""
        with self._lock:
            self._changes, self._paused_since = {}, None
