"""Clusters for the controller to watch, with and without metrics."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from cluster_model.errors import InputError
from cluster_model.live import ClusterModel, Observation
from cluster_model.snapshot import Floats, Snapshot
from cluster_model.trust import Distrust
from cluster_model.windows import Extrapolation
from metrics_reporter import BROKER_METRICS

log = logging.getLogger("counterpoise.controller")


class FeedError(InputError):
    """A cluster without recent data."""


class MeasuredCluster:
    """A cluster with a live model, which others keep up to date.

    Parameters
    ----------
    model
        The live model.
    metadata
        Reads the current placement from the cluster.
    placement
        Reads only where replicas are, which works even if sizes and capacities cannot be read;
        by default, the same.
    metadata_age
        Seconds since the placement in the model was read; None if it is never old.
    max_age
        Seconds after which a placement is too old to use.
    problems
        Returns the current problems of the model's data sources.

    Examples
    --------
    >>> from itertools import islice
    >>> from cluster_model import synthetic_snapshot
    >>> from cluster_model.live import simulated_source
    >>> snapshot = synthetic_snapshot(brokers=3, partitions=20, racks=3)
    >>> model = ClusterModel(snapshot)
    >>> for report in islice(simulated_source(snapshot), 11):
    ...     model.add_all(report)
    >>> MeasuredCluster(model, lambda: snapshot).snapshot()
    Snapshot(3 brokers, 3 racks, 1 topic, 20 partitions, 60 replicas)
    """

    def __init__(
        self,
        model: ClusterModel,
        metadata: Callable[[], Snapshot],
        *,
        placement: Callable[[], Snapshot] | None = None,
        metadata_age: Callable[[], float] | None = None,
        max_age: float = 600.0,
        problems: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._model = model
        self._metadata = metadata
        self._placement = placement or metadata
        self._age = metadata_age or (lambda: 0.0)
        self._max_age = max_age
        self._problems = problems
        self._seen: Observation | None = None
        self._reported_ms = -1
        self._outdated = False
        # What was said of the last usable loads.
        self._noted = set[str]()

    def snapshot(self) -> Snapshot:
        """The cluster with the loads of the complete windows.

        Raises
        ------
        InputError
            If the placement is old, or too few partitions are known; says what is wrong.
        """
        try:
            if self._is_old():
                raise FeedError(
                    f"the placement is {self._age():.0f} s old, at most {self._max_age:.0f} s "
                    "expected"
                )
            try:
                self._seen = self._model.observe()
            except InputError:
                self._seen = self._heard()
                raise
            if len(self._seen.completeness.start_ms) < 2:
                raise FeedError(
                    "metrics: 1 complete window found, at least 2 expected, to distinguish load "
                    "from noise"
                )
        except InputError as error:
            trouble = "; ".join(self._problems())
            raise FeedError(f"{error} ({trouble})" if trouble else str(error)) from None
        notes = {self._seen.left_out(self._model.metadata.resources), *self._problems()} - {""}
        for note in sorted(notes - self._noted):
            log.warning("%s", note)
        self._noted = notes
        return self._seen.snapshot

    def placement(self) -> Snapshot:
        """The cluster without measured loads."""
        outdated = self._outdated or self._is_old()
        return self._placement() if outdated else self._model.metadata

    def _is_old(self) -> bool:
        return self._age() > self._max_age

    def _heard(self) -> Observation | None:
        """What the reporters said, however few they are: enough to judge them themselves."""
        try:
            return self._model.observe(0.0)
        except InputError:
            return None

    def staleness(self) -> Mapping[int, float]:
        """Seconds since the newest valid record of each broker that ever sent one."""
        ages = self._model.staleness_ms().items()
        return {broker: age / 1000 for broker, age in ages if math.isfinite(age)}

    def distrust(self) -> Distrust:
        """Reporters that are distrusted, and loads that are unknown."""
        return Distrust() if self._seen is None else self._seen.distrust

    def signals(self) -> Mapping[str, Mapping[int, float]]:
        """Metrics of brokers in the newest complete window; empty if that isn't new."""
        if self._seen is None or not len(self._seen.broker_windows.start_ms):
            return {}
        windows, ids = self._seen.broker_windows, self._seen.snapshot.broker_ids
        newest = int(windows.start_ms[-1])
        if newest <= self._reported_ms:
            return {}
        self._reported_ms = newest
        known = windows.kind[:, -1] != Extrapolation.NO_VALID_EXTRAPOLATION
        return {
            name: dict(
                zip(
                    ids[known[:, m]].tolist(),
                    windows.value[known[:, m], -1, m].tolist(),
                    strict=True,
                )
            )
            for m, name in enumerate(BROKER_METRICS)
            if known[:, m].any()
        }

    def since(self) -> float | None:
        """Start of the oldest window."""
        if self._seen is None or not len(self._seen.completeness.start_ms):
            return None
        return float(self._seen.completeness.start_ms[0]) / 1000

    def noise(self) -> Mapping[str, float]:
        """Standard errors of brokers' mean loads, from the variation between windows."""
        return {} if self._seen is None else window_noise(self._seen)

    def refresh(self) -> None:
        """Read the placement now."""
        self._outdated = True
        self._model.update(self._metadata())
        self._outdated = False


class PlainCluster:
    """A cluster without metrics: placement, and the loads from its metadata.

    Parameters
    ----------
    metadata
        Reads the cluster; called at each look.
    placement
        Reads only where replicas are, which works even if sizes and capacities cannot be read;
        by default, the same.
    """

    def __init__(
        self,
        metadata: Callable[[], Snapshot],
        placement: Callable[[], Snapshot] | None = None,
    ) -> None:
        self._metadata = metadata
        self._placement = placement or metadata

    def snapshot(self) -> Snapshot:
        """The current cluster."""
        return self._metadata()

    def placement(self) -> Snapshot:
        """Where replicas are now."""
        return self._placement()

    def staleness(self) -> None:
        """No records are expected."""

    def signals(self) -> Mapping[str, Mapping[int, float]]:
        """No further metrics are known."""
        return {}

    def since(self) -> None:
        """None: the loads are always current."""

    def noise(self) -> Mapping[str, float]:
        """Empty: sizes and counts are exact."""
        return {}

    def distrust(self) -> Distrust:
        """No distrust: there are no reporters."""
        return Distrust()

    def refresh(self) -> None:
        """Do nothing: the data is never old."""


def window_noise(seen: Observation) -> dict[str, float]:
    """How uncertain the loads of brokers are, from their variation between windows.

    Variation common to all brokers (the rhythm of the day) is no noise: only a broker's share
    of the cluster's load counts.

    Returns
    -------
    dict
        Resource to the standard error of a broker's mean over the windows, as a fraction of the
        mean broker's load, pooled over the trusted brokers. Sizes are levels, without noise.
    """
    s, rates = seen.snapshot, seen.partition_windows
    leads = s.replica_is_leader
    broker = np.full(s.n_partitions, -1)
    broker[s.replica_partition[leads]] = s.replica_broker[leads]
    led = broker >= 0
    windows = rates.value.shape[1]
    measured = np.concatenate([rates.value, *(f.value for f in seen.further.values())], axis=2)
    by_broker = np.zeros((measured.shape[2], s.n_brokers, windows))
    for w in range(windows):
        for metric in range(measured.shape[2]):
            by_broker[metric, :, w] = np.bincount(
                broker[led], measured[led, w, metric], s.n_brokers
            )
    last = seen.broker_windows.last(windows)
    known = (last.kind[:, :, 0] != Extrapolation.NO_VALID_EXTRAPOLATION).all(axis=1)
    # An outlier of any size would make all others look the same from window to window.
    believed = ~np.isin(s.broker_ids, [d.broker for d in seen.distrust.doubts])
    samples = {
        "cpu": last.value[known & believed, :, 0],
        "network_in": by_broker[0, believed],
        "network_out": by_broker[1, believed],
        **{name: by_broker[2 + i, believed] for i, name in enumerate(seen.further)},
    }
    return {r: standard_error(v) for r, v in samples.items() if r in s.resources}


def standard_error(load: Floats) -> float:
    """Standard error of a row's mean for loads (B, W), as a fraction of the mean row, pooled."""
    if min(load.shape) < 2 or not ((mean := load.mean(axis=0)) > 0).all():
        return 0.0
    share = load / mean
    pooled = float(share.var(axis=1, ddof=1).mean())
    return math.sqrt(pooled / load.shape[1])
