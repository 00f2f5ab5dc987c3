"""Measures how much of a cluster its metrics cover, and which brokers are stale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_model.snapshot import Bools, BrokerState, Floats, Ints, Snapshot
from cluster_model.trust import Reference
from cluster_model.windows import Extrapolation, LoadWindows


class ModelState(NamedTuple):
    """The data of a live model at one moment.

    Parameters
    ----------
    base
        The metadata: B brokers, P partitions, N replicas.
    rates
        Windows of the rates of partitions.
    split : (P,) bool
        Whether rates of the partition are shares of its topic's.
    brokers
        Windows of the metrics of brokers, cpu first; they may reach further back than
        those of rates.
    windows
        How many windows of rates are kept.
    sizes : (N,) float
        Newest size of each replica; nan if never reported.
    age_ms : (B,) float
        Age of the newest valid record of each broker; inf if there never was one.
    reference
        The last trusted values.
    moved_ms : (B,) int
        When replicas or leaders last moved to or from each broker; -1 for never.
    further
        Windows of the further resources of partitions, as long as those of rates.
    reads
        Windows of bytes_out of replicas, reported while they were followers.
    """

    base: Snapshot
    rates: LoadWindows
    split: Bools
    brokers: LoadWindows
    windows: int
    sizes: Floats
    age_ms: Floats
    reference: Reference
    moved_ms: Ints
    further: LoadWindows
    reads: LoadWindows

    @property
    def cpu(self) -> LoadWindows:
        """Windows of cpu, from no earlier than those of rates."""
        return self.brokers.last(self.windows).of(slice(0, 1))


@dataclass(frozen=True, eq=False)
class Completeness:
    """How much of the cluster the complete windows cover.

    Parameters
    ----------
    start_ms : (W,) int
        Start of each complete window, ms since 1970.
    window_ratio : (W,) float
        Share of partitions with rates in the window, extrapolated or not.
    partitions : (P,) bool
        Whether the rates of the partition are known in all windows, extrapolated in
        few enough.
    split : (P,) bool
        Whether rates of the partition are a topic's, split evenly over its leaders on
        the broker, because the partition's own were not reported.
    sizes : (P,) bool
        Whether the size of a replica of the partition was ever reported.
    brokers : (B,) bool
        Whether the broker's cpu is known, in the same sense as `partitions`.
    age_ms : (B,) float
        Age of the newest record of each broker; inf if there never was one.
    stale_brokers
        Ids of living brokers whose newest record is too old.
    topic_ratio
        Share of topics with all partitions known.
    extrapolations
        Number of windows of partitions by kind of extrapolation (the worst of its metrics).
    """

    start_ms: Ints
    window_ratio: Floats
    partitions: Bools
    split: Bools
    sizes: Bools
    brokers: Bools
    age_ms: Floats
    stale_brokers: tuple[int, ...]
    topic_ratio: float
    extrapolations: dict[str, int]

    @property
    def ratio(self) -> float:
        """Share of partitions whose rates are known; 1 if there are no partitions."""
        return float(self.partitions.mean()) if len(self.partitions) else 1.0


def completeness_of(state: ModelState, max_extrapolations: int, stale_ms: int) -> Completeness:
    """Compute how much of the cluster is known.

    Parameters
    ----------
    state
        The data of the model.
    max_extrapolations
        Windows of a partition or broker that may be extrapolated.
    stale_ms
        A broker is stale if its newest record is older.
    """
    base, rates = state.base, state.rates
    partitions = rates.valid(max_extrapolations)
    known = np.ones(len(base.topics), np.bool_)
    known[base.partition_topic[~partitions]] = False
    kinds = np.bincount(rates.kind.max(axis=2).ravel(), minlength=len(Extrapolation))
    sized = ~np.isnan(state.sizes)
    stale = (state.age_ms > stale_ms) & (base.broker_state != BrokerState.DEAD)
    return Completeness(
        start_ms=rates.start_ms,
        window_ratio=rates.covered.sum(axis=0) / max(base.n_partitions, 1),
        partitions=partitions,
        split=state.split,
        sizes=np.bincount(base.replica_partition, sized, base.n_partitions) > 0,
        brokers=state.cpu.valid(max_extrapolations),
        age_ms=state.age_ms,
        stale_brokers=tuple(base.broker_ids[stale].tolist()),
        topic_ratio=float(known.mean()) if len(known) else 1.0,
        extrapolations={e.name: int(n) for e, n in zip(Extrapolation, kinds, strict=True)},
    )
