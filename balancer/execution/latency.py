"""Compares local request times with their limits to detect brokers that suffer.

The local part of a request's time is the broker's own work. The total also includes the wait
of a fetch for data and of a produce for its replicas, which says little.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from balancer.execution.limits import Limits
from cluster_model.live import ClusterModel
from cluster_model.snapshot import Bools
from cluster_model.windows import Extrapolation, LoadWindows
from metrics_reporter import BROKER_METRICS
from metrics_reporter.metrics import (
    FETCH_LOCAL_MEAN,
    FETCH_LOCAL_P999,
    FOLLOWER_LOCAL_MEAN,
    FOLLOWER_LOCAL_P999,
    PRODUCE_LOCAL_MEAN,
    PRODUCE_LOCAL_P999,
)


def over_limits(windows: LoadWindows, limits: Limits) -> tuple[Bools, Bools]:
    """Brokers with local times measured in the newest window, and those over a limit.

    A broker's p999 counts, or its mean if that is all it reports.

    Parameters
    ----------
    windows
        Complete windows of the :data:`metrics_reporter.BROKER_METRICS` of B brokers.
    limits
        ``produce_local_ms``, ``consumer_fetch_local_ms`` and ``follower_fetch_local_ms``.

    Returns
    -------
    measured, over
        (B,) bool.
    """
    measured = np.zeros(len(windows.value), np.bool_)
    over = measured.copy()
    if not len(windows.start_ms):
        return measured, over
    value = windows.value[:, -1]
    known = windows.kind[:, -1] != Extrapolation.NO_VALID_EXTRAPOLATION
    for limit, p999, mean in (
        (limits.produce_local_ms, PRODUCE_LOCAL_P999, PRODUCE_LOCAL_MEAN),
        (limits.consumer_fetch_local_ms, FETCH_LOCAL_P999, FETCH_LOCAL_MEAN),
        (limits.follower_fetch_local_ms, FOLLOWER_LOCAL_P999, FOLLOWER_LOCAL_MEAN),
    ):
        if limit is None:
            continue
        high, middle = BROKER_METRICS.index(p999), BROKER_METRICS.index(mean)
        found = np.where(known[:, high], value[:, high], value[:, middle])
        reported = known[:, high] | known[:, middle]
        measured |= reported
        over |= reported & (found > limit)
    return measured, over


class LocalTimes:
    """Detects for an :class:`Executor` whether brokers suffer, from a live model's measurements.

    Only the newest complete window counts, and only while it is fresh: if metrics stop
    arriving, nothing is known and nothing is reported.

    Parameters
    ----------
    model
        The live model, which others keep up to date.
    limits
        The limits, and how many brokers must be over one.
    clock
        The current time in ms since 1970.

    Attributes
    ----------
    limits
        As above; may be replaced at any time.

    Examples
    --------
    ::

        slow = LocalTimes(follower.model, limits)
        Executor("localhost:9092", journal=path, limits=limits, slow=slow).execute(plan)
    """

    def __init__(
        self,
        model: ClusterModel,
        limits: Limits,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._model, self.limits, self._clock = model, limits, clock

    def __call__(self) -> bool:
        """Whether enough brokers are over a limit; if fewer are measured, all of them."""
        measured, over = self._counts()
        return 0 < over >= min(self.limits.slow_brokers, measured)

    @property
    def brokers(self) -> int | None:
        """How many brokers are over a limit; None if none is measured."""
        measured, over = self._counts()
        return over if measured else None

    def _counts(self) -> tuple[int, int]:
        windows, length = self._model.broker_windows(), self._model.window_ms
        if not len(windows.start_ms):
            return 0, 0
        if self._clock() > windows.start_ms[-1] + (1 + self.limits.fresh_windows) * length:
            return 0, 0
        measured, over = over_limits(windows, self.limits)
        return int(measured.sum()), int(over.sum())
