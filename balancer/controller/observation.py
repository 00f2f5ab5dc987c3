"""Reads the cluster once a round: with loads if they are reliable, else without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from balancer.controller.detect import StaleMetricsError, without_stale_metrics
from balancer.controller.finding import View
from balancer.controller.protocols import LiveCluster
from balancer.controller.settings import StaleMetrics
from cluster_model.errors import InputError
from cluster_model.snapshot import Snapshot


class UnusableLoadsError(InputError):
    """Loads that cannot be used."""


class Observer:
    """Looks at a model of the cluster.

    Parameters
    ----------
    model
        The cluster.
    trace
        Logs the current exception.
    age
        Returns when metrics are too old.

    Attributes
    ----------
    changed
        Whether replicas moved since the last look, so that the placement must be read again.
    """

    def __init__(
        self, model: LiveCluster, trace: Callable[[], None], age: Callable[[], StaleMetrics]
    ) -> None:
        self.changed = False
        self._model = model
        self._trace = trace
        self._age = age

    def look(self, now: float, epoch: float) -> View:
        """The current cluster.

        Parameters
        ----------
        now
            Seconds on the steady clock.
        epoch
            Seconds since 1970 when the steady clock was 0.
        """
        incomplete = None
        try:
            if self.changed:
                # Replicas that were moved must not be planned for again.
                self._model.refresh()
                self.changed = False
            snapshot = _summed(self._model.snapshot())
        except Exception as error:
            snapshot, incomplete = self._known(error), sentence(error)
        try:
            since = self._model.since()
            view = View(
                snapshot=snapshot,
                now=now,
                staleness=self._model.staleness(),
                signals=self._model.signals(),
                since=None if since is None else since - epoch,
                noise=self._model.noise(),
                distrust=self._model.distrust(),
                incomplete=incomplete,
            )
        except Exception as error:
            self._trace()
            if incomplete is None:
                snapshot, incomplete = self._known(error), sentence(error)
            return View(snapshot=snapshot, now=now, incomplete=incomplete)
        limit = self._age()
        if incomplete is not None or not limit.enabled:
            return view
        try:
            return without_stale_metrics(view, limit.max_age)
        except StaleMetricsError as error:
            return replace(view, snapshot=self._known(error), incomplete=str(error))

    def _known(self, error: Exception) -> Snapshot:
        """Where replicas are, and their sizes if they can be summed: other loads are measured."""
        self._trace()
        try:
            found = self._model.placement()
        except Exception:
            self._trace()
            raise error from None
        sized = found.with_resources(("disk",))
        return sized if _is_summable(sized) else found.with_resources(())


def sentence(error: Exception) -> str:
    """The text of an error, with its type if it is not one of ours."""
    known = isinstance(error, InputError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _is_summable(snapshot: Snapshot) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(snapshot.broker_load().sum()))


def _summed(snapshot: Snapshot) -> Snapshot:
    """The snapshot, if its loads can be summed.

    Raises
    ------
    UnusableLoadsError
        If their sum overflows.
    """
    if not _is_summable(snapshot):
        raise UnusableLoadsError("the loads cannot be judged: their sum is too large for a number")
    return snapshot
