"""Looks at the cluster once a round: loads where they can be judged, else where replicas are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from balancer.controller.finding import View
from balancer.controller.protocols import Model
from cluster_model.errors import InputError
from cluster_model.snapshot import Snapshot


class BlindError(InputError):
    """Loads that cannot be judged."""


class Observation:
    """Looks at a model of the cluster.

    Parameters
    ----------
    model
        The cluster.
    trace
        Logs the exception in hand.

    Attributes
    ----------
    changed
        Whether replicas were moved since the last look, so that the placement is read again.
    """

    def __init__(self, model: Model, trace: Callable[[], None]) -> None:
        self.changed = False
        self._model = model
        self._trace = trace

    def look(self, now: float, epoch: float) -> View:
        """The cluster as it is now.

        Parameters
        ----------
        now
            Seconds of the steady clock.
        epoch
            When the steady clock was 0, in seconds since 1970.
        """
        incomplete = None
        try:
            if self.changed:
                # What was moved must not be planned for once more.
                self._model.refresh()
                self.changed = False
            snapshot = _summed(self._model.snapshot())
        except Exception as error:
            snapshot, incomplete = self._placement(error), sentence(error)
        try:
            since = self._model.since()
            return View(
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
            return View(snapshot=snapshot, now=now, incomplete=incomplete or sentence(error))

    def _placement(self, error: Exception) -> Snapshot:
        """Enough to heal by: where replicas are is known even where loads are not."""
        self._trace()
        if not self.changed:
            try:
                return _summed(self._model.snapshot(0.0))
            except Exception:
                self._trace()
        try:
            placement = self._model.placement()
        except Exception:
            self._trace()
            raise error from None
        return placement if _is_summable(placement) else without_loads(placement)


def sentence(error: Exception) -> str:
    """What an error says; with its type where it is not one of ours."""
    known = isinstance(error, InputError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _is_summable(snapshot: Snapshot) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(snapshot.broker_load().sum()))


def _summed(snapshot: Snapshot) -> Snapshot:
    """The snapshot, if its loads can be added up.

    Raises
    ------
    BlindError
        If their sum is more than a number can hold.
    """
    if not _is_summable(snapshot):
        raise BlindError("the loads cannot be judged: their sum is more than a number can hold")
    return snapshot


def without_loads(snapshot: Snapshot) -> Snapshot:
    """The snapshot with no load anywhere: enough to heal by."""
    return replace(
        snapshot,
        leader_load=np.zeros_like(snapshot.leader_load),
        follower_load=np.zeros_like(snapshot.follower_load),
    )
