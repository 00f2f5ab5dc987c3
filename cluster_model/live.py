"""The model that follows a running cluster: metadata and records in, snapshots out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster_model.attribution import attribute_cpu, mean_by_group
from cluster_model.build import SnapshotDocument, build_snapshot
from cluster_model.errors import InputError
from cluster_model.snapshot import DEFAULT_RESOURCES, Bools, BrokerState, Floats, Ints, Snapshot
from cluster_model.windows import Extrapolation, LoadWindows, Newest, Outcome, Windows
from metrics_reporter import BYTES_IN, BYTES_OUT, CPU, SIZE, Record, SimulatedSource

_BATCH = 50_000
# What a 64-bit clock can show.
_LAST = 2**63 - 1


class ModelError(InputError):
    """A model that lacks what is asked of it."""


@dataclass(frozen=True, eq=False)
class Completeness:
    """How much of the cluster the complete windows know.

    Parameters
    ----------
    start_ms : (W,) int
        Start of each complete window, ms since 1970.
    window_ratio : (W,) float
        Share of partitions with rates in the window, extrapolated or not.
    partitions : (P,) bool
        Whether the rates of the partition are known in all windows, extrapolated in
        few enough.
    sizes : (P,) bool
        Whether the size of a replica of the partition was ever reported.
    brokers : (B,) bool
        Whether the broker's cpu is known, in the same sense as `partitions`.
    topic_ratio
        Share of topics with all partitions known.
    extrapolations
        Number of windows of partitions by kind of extrapolation (the worst of its metrics).
    """

    start_ms: Ints
    window_ratio: Floats
    partitions: Bools
    sizes: Bools
    brokers: Bools
    topic_ratio: float
    extrapolations: dict[str, int]

    @property
    def ratio(self) -> float:
        """Share of partitions whose rates are known; 1 of none."""
        return float(self.partitions.mean()) if len(self.partitions) else 1.0


class ClusterModel:
    """Metadata of a cluster and the metrics of it, of the last few windows.

    Parameters
    ----------
    metadata
        Brokers, capacities and placement; its loads in other than the default
        resources are kept, the others replaced by measured ones.
    window_ms, windows, min_samples
        Of the load windows: their length, how many complete ones to keep, and how many
        samples each needs. See :class:`cluster_model.windows.Windows`.
    max_extrapolations
        Windows of a partition or broker that may be extrapolated.
    clock
        The present in ms since 1970; records more than a window ahead of it are refused.

    Examples
    --------
    >>> from itertools import islice
    >>> from cluster_model.synthetic import synthetic_snapshot
    >>> cluster = synthetic_snapshot(brokers=3, partitions=20, racks=3)
    >>> model = ClusterModel(cluster)
    >>> for report in islice(simulated_source(cluster), 11):
    ...     model.add_all(report)
    >>> model.completeness().ratio
    1.0
    >>> bool(np.allclose(model.snapshot().leader_load[:, 3], cluster.leader_load[:, 3]))
    True
    """

    def __init__(
        self,
        metadata: Snapshot | SnapshotDocument,
        *,
        window_ms: int = 300_000,
        windows: int = 5,
        min_samples: int = 3,
        max_extrapolations: int = 5,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        base = _arrays(metadata)
        kept: dict[str, Any] = {
            "window_ms": window_ms,
            "windows": windows,
            "min_samples": min_samples,
        }
        self._rates = Windows(base.n_partitions, 2, **kept)
        self._cpu = Windows(base.n_brokers, 1, **kept)
        self._max_extrapolations = max_extrapolations
        self._clock = clock
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._sizes = Newest(base.n_replicas)
        self._hold(base)

    @property
    def counters(self) -> dict[str, int]:
        """Records by what became of them.

        ``added``; ``late``, older than the windows kept; ``future``, ahead of the clock;
        ``duplicate``, seen before; ``unknown``, of a broker, replica or metrics that the
        model does not have; ``invalid``, with a negative or infinite value or time.
        """
        return {o.name.lower(): int(n) for o, n in zip(Outcome, self._outcomes, strict=True)}

    def add(self, record: Record) -> None:
        """Add one record; :meth:`add_all` is much faster for many."""
        self.add_all((record,))

    def add_all(self, records: Iterable[Record]) -> None:
        """Add records in any order; what does not fit is counted, never raised."""
        records = iter(records)
        while batch := list(islice(records, _BATCH)):
            limit = self._clock() + self._rates.window_ms
            self._add_brokers([r for r in batch if r.topic is None], limit)
            self._add_partitions([r for r in batch if r.topic is not None], limit)

    def update(self, metadata: Snapshot | SnapshotDocument) -> None:
        """Take new metadata, and keep what is known of everything that is still there."""
        base = _arrays(metadata)
        old_partition, old_broker = self._partition_row, self._broker_row
        partition = _rows(_partition_names(base), old_partition)
        broker = _rows(base.broker_ids.tolist(), old_broker)
        replica = self._replica(partition[base.replica_partition], broker[base.replica_broker])
        self._rates = self._rates.reindexed(partition)
        self._cpu = self._cpu.reindexed(broker)
        self._sizes = self._sizes.reindexed(replica)
        self._hold(base)

    def completeness(self) -> Completeness:
        """How much is known, and in which windows."""
        return self._completeness(self._rates.aggregate())

    def snapshot(self, min_ratio: float = 0.95) -> Snapshot:
        """The cluster with the loads of the complete windows.

        Per partition, with means over windows and r replicas: the leader's
        ``network_in`` is bytes_in, its ``network_out`` bytes_out + bytes_in·(r − 1); a
        follower's ``network_in`` is bytes_in, its ``network_out`` 0. ``disk`` is the
        newest size reported, and where followers report theirs, their mean. ``cpu`` is
        that of the broker, attributed to its replicas by :func:`attribute_cpu`. What is
        not known is 0.

        Parameters
        ----------
        min_ratio
            Share of partitions whose rates must be known.

        Raises
        ------
        ModelError
            If there is no complete window yet, or too few partitions are known.
        """
        rates = self._rates.aggregate()
        done = self._completeness(rates)
        if not len(done.start_ms):
            raise ModelError(
                f"cluster model: no complete window of metrics found, at least 1 of "
                f"{self._rates.window_ms / 1000:g} s expected (the newest window is not complete)"
            )
        if done.ratio < min_ratio:
            missing = int(np.argmin(done.partitions))
            raise ModelError(
                f"cluster model: metrics of {done.ratio:.1%} of partitions found, at least "
                f"{min_ratio:.1%} expected; {(~done.partitions).sum()} are missing, for example "
                "{}-{}".format(*_partition_names(self._base)[missing])
            )
        base = self._base
        bytes_in, bytes_out = np.nan_to_num(rates.mean).T
        leader_disk, follower_disk = self._disk()
        network_out = bytes_out + bytes_in * (base.replication_factor - 1)
        leader_cpu, follower_cpu = attribute_cpu(
            base, bytes_in, network_out, self._cpu.aggregate().mean[:, 0]
        )
        none = np.zeros(base.n_partitions)
        leader = (leader_cpu, bytes_in, network_out, leader_disk)
        follower = (follower_cpu, bytes_in, none, follower_disk)
        leader_load, follower_load = base.leader_load.copy(), base.follower_load.copy()
        for name, lead, follow in zip(DEFAULT_RESOURCES, leader, follower, strict=True):
            if name in base.resources:
                leader_load[:, base.resource(name)] = lead
                follower_load[:, base.resource(name)] = follow
        return replace(base, leader_load=leader_load, follower_load=follower_load)

    def _hold(self, base: Snapshot) -> None:
        self._base = base
        self._partition_row = {name: p for p, name in enumerate(_partition_names(base))}
        self._broker_row = {b: i for i, b in enumerate(base.broker_ids.tolist())}
        held = base.replica_partition * base.n_brokers + base.replica_broker
        self._replica_order = np.argsort(held)
        self._held = held[self._replica_order]

    def _replica(self, partition: Ints, broker: Ints) -> Ints:
        """(n,) int: the replica of a partition on a broker; -1 if there is none."""
        key = np.where(
            (partition >= 0) & (broker >= 0), partition * self._base.n_brokers + broker, -1
        )
        at = np.searchsorted(self._held, key)
        found = at < len(self._held)
        found[found] = self._held[at[found]] == key[found]
        replica = np.full(len(key), -1)
        replica[found] = self._replica_order[at[found]]
        return replica

    def _add_brokers(self, records: list[Record], limit: int) -> None:
        nan = np.nan
        row = _rows([r.broker for r in records], self._broker_row)
        values = np.array([r.metrics.get(CPU, nan) for r in records]).reshape(-1, 1)
        times, outcome = _screen(records, row, values, limit)
        good = outcome == Outcome.ADDED
        outcome[good] = self._cpu.add(row[good], times[good], values[good])
        self._outcomes += np.bincount(outcome, minlength=len(Outcome))

    def _add_partitions(self, records: list[Record], limit: int) -> None:
        nan = np.nan
        row = _rows([(r.topic, r.partition) for r in records], self._partition_row)
        broker = _rows([r.broker for r in records], self._broker_row)
        replica = self._replica(row, broker)
        values = np.array(
            [(r.metrics.get(BYTES_IN, nan), r.metrics.get(BYTES_OUT, nan)) for r in records]
        ).reshape(-1, 2)
        size = np.array([r.metrics.get(SIZE, nan) for r in records])
        times, outcome = _screen(records, replica, np.column_stack([values, size]), limit)
        good = outcome == Outcome.ADDED
        sized = good & ~np.isnan(size)
        self._sizes.add(replica[sized], times[sized], size[sized])
        # A size is a level, not a sample: the newest counts, and telling it again does no harm.
        rated = good & ~np.isnan(values).all(axis=1)
        outcome[rated] = self._rates.add(row[rated], times[rated], values[rated])
        self._outcomes += np.bincount(outcome, minlength=len(Outcome))

    def _completeness(self, rates: LoadWindows) -> Completeness:
        base = self._base
        partitions = rates.valid(self._max_extrapolations)
        known = np.ones(len(base.topics), np.bool_)
        known[base.partition_topic[~partitions]] = False
        kinds = np.bincount(rates.kind.max(axis=2).ravel(), minlength=len(Extrapolation))
        sized = ~np.isnan(self._sizes.value)
        return Completeness(
            start_ms=rates.start_ms,
            window_ratio=rates.covered.sum(axis=0) / max(base.n_partitions, 1),
            partitions=partitions,
            sizes=np.bincount(base.replica_partition, sized, base.n_partitions) > 0,
            brokers=self._cpu.aggregate().valid(self._max_extrapolations),
            topic_ratio=float(known.mean()) if len(known) else 1.0,
            extrapolations={e.name: int(n) for e, n in zip(Extrapolation, kinds, strict=True)},
        )

    def _disk(self) -> tuple[Floats, Floats]:
        """(P,), (P,) float: bytes of the leader, and of a follower on average."""
        base, size = self._base, self._sizes.value
        partition, leads = base.replica_partition, base.replica_is_leader
        known = ~np.isnan(size)
        leader = mean_by_group(partition, size, known & leads, base.n_partitions)
        anyone = mean_by_group(partition, size, known, base.n_partitions)
        leader = np.where(np.isnan(leader), np.nan_to_num(anyone), leader)
        own = np.where(known, size, leader[partition])
        follower = mean_by_group(partition, own, ~leads, base.n_partitions)
        return leader, np.where(np.isnan(follower), leader, follower)


def simulated_source(snapshot: Snapshot, **options: Any) -> SimulatedSource:
    """A source that measures the loads of a snapshot with the default resources.

    Where a leader's ``network_out`` is less than replication alone would take, nobody
    consumes. Brokers report the cpu they carry in the snapshot; dead ones report nothing.

    Parameters
    ----------
    snapshot
        The cluster to pretend to be.
    options
        ``noise``, ``start_ms``, ``interval_ms``, ``seed`` of
        :class:`metrics_reporter.SimulatedSource`.

    Raises
    ------
    SnapshotError
        If a default resource is missing.
    """
    cpu, network_in, network_out, disk = (snapshot.resource(r) for r in DEFAULT_RESOURCES)
    bytes_in = snapshot.leader_load[:, network_in]
    replicated = bytes_in * (snapshot.replication_factor - 1)
    leads = snapshot.replica_is_leader
    partition = snapshot.replica_partition
    alive = snapshot.broker_state != BrokerState.DEAD
    return SimulatedSource(
        partitions=_partition_names(snapshot),
        replica_broker=snapshot.broker_ids[snapshot.replica_broker],
        replica_offset=snapshot.replica_offset,
        leader=snapshot.leader,
        bytes_in=bytes_in,
        bytes_out=np.maximum(snapshot.leader_load[:, network_out] - replicated, 0.0),
        size=snapshot.leader_load[:, disk],
        replica_size=np.where(
            leads, snapshot.leader_load[partition, disk], snapshot.follower_load[partition, disk]
        ),
        cpu=dict(
            zip(
                snapshot.broker_ids[alive].tolist(),
                snapshot.broker_load()[alive, cpu].tolist(),
                strict=True,
            )
        ),
        **options,
    )


def _arrays(metadata: Snapshot | SnapshotDocument) -> Snapshot:
    return metadata if isinstance(metadata, Snapshot) else build_snapshot(metadata)


def _partition_names(snapshot: Snapshot) -> list[tuple[str, int]]:
    topic, number = snapshot.partition_topic.tolist(), snapshot.partition_number.tolist()
    return [(snapshot.topics[t], n) for t, n in zip(topic, number, strict=True)]


def _rows(names: Iterable[Any], row: dict[Any, int]) -> Ints:
    return np.array([row.get(name, -1) for name in names], np.int64)


def _screen(
    records: list[Record], row: Ints, values: Floats, limit: int
) -> tuple[Ints, npt.NDArray[np.int8]]:
    """Times of the records, and an outcome for each that needs no windows to be known."""
    times = np.array([max(-1, min(r.time_ms, _LAST)) for r in records], np.int64)
    outcome = np.full(len(records), Outcome.ADDED, np.int8)
    outcome[times > limit] = Outcome.FUTURE
    outcome[(row < 0) | np.isnan(values).all(axis=1)] = Outcome.UNKNOWN
    outcome[(times < 0) | np.isinf(values).any(axis=1) | (values < 0).any(axis=1)] = Outcome.INVALID
    return times, outcome
