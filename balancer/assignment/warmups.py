"""The copies that may be made only so that tasks can move."""

from __future__ import annotations

import numpy as np

from balancer.assignment.lags import Lags
from balancer.assignment.state import ApplicationState
from cluster_model.snapshot import Floats


class Warmups:
    """How many more copies may be made only so that tasks can move.

    Parameters
    ----------
    state
        The application.
    lags
        What such copies have to restore.
    replicas
        How many there may be.
    max_bytes
        Bytes that they may restore, except that the first may always exceed it; None for no limit.

    Attributes
    ----------
    left : int
        How many more there may be.
    used, limit : float
        Bytes that those made restore, and may; infinite without a limit.
    """

    def __init__(
        self, state: ApplicationState, lags: Lags, replicas: int, max_bytes: int | None = None
    ) -> None:
        self._lags = lags
        self._state = state
        self.left = replicas
        self.limit = np.inf if max_bytes is None or not len(state.state_bytes) else float(max_bytes)
        self.used = 0.0

    def take(self, task: int, instance: int) -> bool:
        """Whether there may be one more; then it counts."""
        if self.left <= 0:
            return False
        if self.limit < np.inf:
            size = self._to_restore(task, instance)
            if self.used and self.used + size > self.limit:
                return False
            self.used += size
        self.left -= 1
        return True

    @property
    def sizes(self) -> Floats:
        """(T,) bytes of each task's state; empty if bytes are not limited."""
        limited = self.limit < np.inf
        return np.ascontiguousarray(self._state.state_bytes if limited else (), np.float64)

    def _to_restore(self, task: int, instance: int) -> float:
        """Bytes of a task's state that an instance lacks; 0 if its size is unknown."""
        size, end = float(self._state.state_bytes[task]), int(self._state.end_offset[task])
        if not size > 0 or end == 0:
            return 0.0
        lag = int(self._lags.of(np.array([task]), np.array([instance]))[0])
        return size * min(max(lag, 0) / end, 1.0)
