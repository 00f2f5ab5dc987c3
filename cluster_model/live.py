"""The live model of a running cluster: takes metadata and records, makes snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster_model.attribution import (
    CostParameters,
    attribute_cpu,
    attributed,
    cpu_capacity,
    hardware_cost,
    learnt_cost,
    mean_by_group,
    with_estimates,
)
from cluster_model.build import SnapshotDocument, build_snapshot
from cluster_model.completeness import Completeness, ModelState, completeness_of
from cluster_model.cross_checks import (
    CheckResult,
    Evidence,
    believe,
    broker_weight,
    evidence,
    judge,
    leading_broker,
    log_dir_sizes,
    usual_cpu,
)
from cluster_model.errors import InputError
from cluster_model.index import AMBIGUOUS, SnapshotIndex
from cluster_model.last_value import LastValue, rows_of
from cluster_model.snapshot import DEFAULT_RESOURCES, Bools, BrokerState, Floats, Ints, Snapshot
from cluster_model.trust import Distrust, Reference, TrustParameters, partition_names
from cluster_model.windows import Aggregation, LoadWindows, RecordOutcome, Windows
from metrics_reporter import (
    BROKER_METRICS,
    BYTES_IN,
    BYTES_OUT,
    CPU,
    CPU_RATIO,
    SIZE,
    Record,
    RecordBatch,
    SimulatedSource,
)
from metrics_reporter.coverage import Coverage
from metrics_reporter.documents import shown

_BATCH = 50_000
# Samples that topics' rates are split into per batch.
_SPLITS = 1_000_000
_RATES = (BYTES_IN, BYTES_OUT)
_RATE_COLUMNS = [BROKER_METRICS.index(name) for name in _RATES]
# Factor between the reads of a partition's followers and what a snapshot takes for each.
_MOST_UNEVEN = 4.0
_NOT_HEARD = (RecordOutcome.INVALID, RecordOutcome.FUTURE, RecordOutcome.UNKNOWN)
# Capacity of a broker that states none: cpu in percent.
_WHOLE_CPU = 100.0


class ModelError(InputError):
    """A model that lacks the data requested of it."""


@dataclass(frozen=True, eq=False)
class Observation:
    """The state of a model at one moment.

    Parameters
    ----------
    snapshot
        The cluster with measured loads.
    completeness
        How much of it was measured, and which brokers are stale.
    partition_windows
        Windows of ``bytes_in`` and ``bytes_out`` of the P partitions.
    broker_windows
        Windows of the :data:`metrics_reporter.BROKER_METRICS` of the B brokers.
    distrust
        Brokers whose reports are not trusted, and partitions whose loads are unknown;
        nothing may be planned on their loads.
    further
        Windows of each further resource of the P partitions, by its name.
    """

    snapshot: Snapshot
    completeness: Completeness
    partition_windows: LoadWindows
    broker_windows: LoadWindows
    distrust: Distrust = field(default_factory=Distrust)
    further: Mapping[str, LoadWindows] = field(default_factory=dict)

    def left_out(self, resources: Iterable[str]) -> str:
        """A sentence on those of the resources that the snapshot lacks; empty if it has all."""
        lacking = ", ".join(r for r in resources if r not in self.snapshot.resources)
        return f"{lacking}: left out, because at least half of the brokers send none" * bool(
            lacking
        )


class ClusterModel:
    """Metadata and metrics of a cluster over the last few windows.

    Any method may be called from any thread: readers see the state between two
    updates, never a partial one.

    Parameters
    ----------
    metadata
        Brokers, capacities and placement; its loads in other than the default
        resources are kept unless `measured` names them, the others are replaced by
        measured ones.
    window_ms, windows, min_samples, aggregation
        For the load windows: their length, how many complete ones to keep, how many
        samples each needs, and how it aggregates them. See
        :class:`cluster_model.windows.Windows`.
    broker_windows
        Complete windows of brokers to keep, for readers of their history; the same
        number as for partitions by default.
    max_extrapolations
        Windows of a partition or broker that may be extrapolated.
    stale_ms
        A broker is stale if its newest valid record is older.
    trust
        Tolerances beyond which reports are not trusted, and limits of valid values.
    measured
        Further resources of the metadata that are measured, by the partition metric of their
        name: resource to a follower's load as a share of the leader's.
    clock
        The current time in ms since 1970; records more than a window ahead are rejected.

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
        aggregation: Aggregation = "mean",
        broker_windows: int | None = None,
        max_extrapolations: int = 5,
        stale_ms: int = 300_000,
        trust: TrustParameters | None = None,
        measured: Mapping[str, float] | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        base = _arrays(metadata)
        kept: dict[str, Any] = {
            "window_ms": window_ms,
            "min_samples": min_samples,
            "aggregation": aggregation,
        }
        self._shares = dict(measured or {})
        for name, share in self._shares.items():
            if name not in base.resources or name in DEFAULT_RESOURCES:
                further = [r for r in base.resources if r not in DEFAULT_RESOURCES]
                raise ModelError(
                    f"cluster model, measured: {shown(name)} found, one of the further resources "
                    f"{', '.join(further) or '(there are none)'} expected"
                )
            if not 0 <= share <= 1:
                raise ModelError(
                    f"cluster model, measured: follower share {share} of {name} found, 0 to 1 "
                    "expected"
                )
        self._metrics = (*_RATES, *self._shares)
        self._rates = Windows(base.n_partitions, len(self._metrics), windows=windows, **kept)
        self._brokers = Windows(
            base.n_brokers, len(BROKER_METRICS), windows=broker_windows or windows, **kept
        )
        self._max_extrapolations = max_extrapolations
        self._stale_ms = stale_ms
        self._clock = clock
        self._outcomes = np.zeros(len(RecordOutcome), np.int64)
        self._sizes = LastValue(base.n_replicas)
        # Made with the first report of a follower that consumers read from: most send none.
        self._reads: Windows | None = None
        self._heard = np.full(base.n_brokers, -1, np.int64)
        self._lock = Lock()
        self._trust = trust or TrustParameters()
        self._limits = np.array(list(self._trust.limits.values()))
        self._reference = Reference(base, len(self._shares))
        self._doubted: frozenset[int] = frozenset()
        self._moved_ms = np.full(base.n_brokers, -1, np.int64)
        self._base, self._index = base, SnapshotIndex(base)

    @property
    def metadata(self) -> Snapshot:
        """The metadata in use."""
        return self._base

    @property
    def trust(self) -> TrustParameters:
        """Parameters for judging reports; may be replaced at any time, from any thread."""
        return self._trust

    @trust.setter
    def trust(self, parameters: TrustParameters) -> None:
        self._limits = np.array(list(parameters.limits.values()))
        self._trust = parameters

    @property
    def window_ms(self) -> int:
        """Length of a window."""
        return self._rates.window_ms

    @property
    def counters(self) -> dict[str, int]:
        """Records by outcome.

        ``added``; ``late``, older than the windows kept; ``future``, ahead of the clock;
        ``duplicate``, seen before; ``unknown``, of a broker, replica or metrics that the
        model does not have; ``invalid``, with a negative, infinite or absurdly large value
        or a negative time; ``follower``, rates of a partition that another broker leads, of
        which only those count that consumers read from the follower;
        ``split``, a topic's rates that were split over partitions; ``superseded``, the
        same where all partitions report their own; ``ambiguous``, of a topic whose name
        equals another topic's once dots are underscores; ``surplus``, more samples
        than a window takes.
        """
        return {o.name.lower(): int(n) for o, n in zip(RecordOutcome, self._outcomes, strict=True)}

    @property
    def oldest_ms(self) -> int:
        """Time of the oldest record that the current windows accept, ms since 1970."""
        length = self._rates.window_ms
        kept = max(self._rates.windows, self._brokers.windows)
        return (self._clock() // length - kept) * length

    def add(self, record: Record) -> None:
        """Add one record; :meth:`add_all` is much faster for many."""
        self.add_all((record,))

    def add_all(self, records: Iterable[Record]) -> None:
        """Add records in any order; those that do not fit are counted, never raised.

        :meth:`add_batch` is much faster for records from a topic.
        """
        records = iter(records)
        while batch := list(islice(records, _BATCH)):
            self.add_batch(RecordBatch.of(batch))

    def add_batch(self, batch: RecordBatch) -> None:
        """Add records as columns, in any order; rejected ones are counted, never raised."""
        with self._lock:
            limit = self._clock() + self._rates.window_ms
            topic = self._index.topics(batch.topics, batch.underscored)
            # The last entry is for records without a topic.
            topic = np.append(topic, -1)[batch.topic]
            broker = self._index.brokers(batch.broker)
            whole = batch.topic < 0
            summed = ~whole & (batch.partition == -1)
            for chosen, add in (
                (whole, self._add_brokers),
                (~whole & ~summed, self._add_partitions),
                (summed, self._add_topics),
            ):
                if chosen.any():
                    outcome = add(batch, chosen, topic[chosen], broker[chosen], limit)
                    self._outcomes += np.bincount(outcome, minlength=len(RecordOutcome))
                    # Invalid records do not show that a broker is alive.
                    heard = (broker[chosen] >= 0) & ~np.isin(outcome, _NOT_HEARD)
                    at, time_ms = broker[chosen][heard], batch.time_ms[chosen][heard]
                    np.maximum.at(self._heard, at, time_ms)

    def update(self, metadata: Snapshot | SnapshotDocument) -> None:
        """Take new metadata, and keep the data of everything that still exists."""
        base = _arrays(metadata)
        with self._lock:
            old = self._index
            topic = old.topics(base.topics, [False] * len(base.topics))
            partition = old.partitions(topic[base.partition_topic], base.partition_number)
            broker = old.brokers(base.broker_ids)
            replica = old.replicas(partition[base.replica_partition], broker[base.replica_broker])
            # Reports of an untrusted broker on a partition are dropped once it no longer leads.
            measured = np.where(self._outlived(base, partition), -1, partition)
            rates, brokers, sizes, reads = self._rates, self._brokers, self._sizes, self._reads
            if not _unchanged(measured, self._base.n_partitions):
                rates = rates.reindexed(measured)
            if not _unchanged(broker, self._base.n_brokers):
                brokers = brokers.reindexed(broker)
            if not _unchanged(replica, self._base.n_replicas):
                sizes = sizes.reindexed(replica)
                reads = None if reads is None else reads.reindexed(replica)
            moved = np.append(self._moved(base, partition, replica), self._bereft(partition))
            reference = self._reference.reindexed(base, partition, replica, broker)
            heard, moved_ms = (rows_of(rows, broker, -1) for rows in (self._heard, self._moved_ms))
            moved_ms[np.isin(base.broker_ids, moved)] = self._clock()
            index = SnapshotIndex(base)
            # All at once: rows of different metadata would not fit together again.
            self._rates, self._brokers, self._sizes, self._reads = rates, brokers, sizes, reads
            self._heard, self._moved_ms, self._reference = heard, moved_ms, reference
            self._base, self._index = base, index

    def completeness(self) -> Completeness:
        """How much is known, and in which windows."""
        return self._completeness(self._state())

    def staleness_ms(self) -> dict[int, float]:
        """Age of the newest record of each broker, by id; inf if there never was one."""
        with self._lock:
            return dict(zip(self._base.broker_ids.tolist(), self._age_ms().tolist(), strict=True))

    def broker_windows(self) -> LoadWindows:
        """Complete windows of the :data:`metrics_reporter.BROKER_METRICS` of the brokers."""
        with self._lock:
            return self._brokers.aggregate()

    def snapshot(self, min_ratio: float = 0.95, *, aggregation: Aggregation = "mean") -> Snapshot:
        """The cluster with the loads of the complete windows.

        Per partition, with means over windows and r replicas: the leader's
        ``network_in`` is bytes_in, its ``network_out`` bytes_out + bytes_in·(r − 1); a
        follower's ``network_in`` is bytes_in, its ``network_out`` what consumers read from the
        partition's followers, on average, as far as these report it. ``disk`` is the
        newest size reported, and where followers report theirs, their mean. ``cpu`` is
        the broker's, attributed to its replicas by :func:`attribute_cpu`. A further resource
        is what the leader reports, and a follower has its share of that.

        Cpu is left out where at least half of the brokers send none: not every source has it.

        A load that is unknown or not trusted is never taken as 0. It has its last trusted
        value; else, for sizes, that of other replicas or of log directories; else
        the mean of its topic, or of all partitions. :attr:`Observation.distrust` lists it.

        Parameters
        ----------
        min_ratio
            Share of partitions whose rates must be known, among those led by brokers that
            report and are trusted. With 0, any number of brokers may be silent.
        aggregation
            How to aggregate windows: their mean, their maximum, or the latest.

        Raises
        ------
        ModelError
            If there is no complete window yet, too few partitions are known (in their rates, or
            in a further resource), or too many brokers do not report or are not trusted.
        """
        return self.observe(min_ratio, aggregation=aggregation).snapshot

    def observe(self, min_ratio: float = 0.95, *, aggregation: Aggregation = "mean") -> Observation:
        """The snapshot, its completeness, and the windows it was made from.

        Parameters and errors are those of :meth:`snapshot`.
        """
        state = self._state()
        # In the first window measuring may only have begun, which is no gap.
        rated = state.rates.since_complete(self._trust.whole_share)
        state = state._replace(rates=rated, further=state.further.last(len(rated.start_ms)))
        done = self._completeness(state)
        if not len(done.start_ms):
            raise ModelError(
                f"cluster model: no complete window of metrics found, at least 1 of "
                f"{self._rates.window_ms / 1000:g} s expected (the newest window is not complete; "
                f"{_covered(done)})"
            )
        base, trust = state.base, self._trust
        facts = evidence(
            base, state.rates, state.brokers, state.sizes, state.reference, state.moved_ms, trust,
            state.reads,
        )  # fmt: skip
        verdict = judge(facts)
        with self._lock:
            if base is self._base:
                believe(self._reference, facts, verdict)
                self._doubted = frozenset(d.broker for d in verdict.doubts)
        self._require_known(facts, verdict, done, min_ratio)
        further, further_known = self._further(state, facts, verdict, min_ratio, aggregation)
        rates = state.rates.over(aggregation)
        known = ~np.isnan(rates)
        unbelieved = np.append(verdict.unbelieved, np.ones((1, 3), np.bool_), axis=0)
        rates[unbelieved[facts.leader, : len(_RATES)]] = np.nan
        rates = np.where(np.isnan(rates), state.reference.rates, rates)
        bytes_in, bytes_out = (with_estimates(base, rates[:, m]) for m in range(len(_RATES)))
        hidden = verdict.doubted[base.replica_broker] | verdict.wrong_sizes
        sizes = np.where(hidden | np.isnan(state.sizes), state.reference.sizes, state.sizes)
        leader_disk, follower_disk = disk_by_role(base, sizes)
        network_out = bytes_out + bytes_in * (base.replication_factor - 1)
        # Only of the windows that were compared.
        cpu = facts.brokers.of(slice(0, 1)).over(aggregation)[:, 0]
        both = np.stack([bytes_in, bytes_out], axis=1)
        weight = broker_weight(base, both, facts.followed.mean(axis=1))
        usual = usual_cpu(state.reference, weight, trust)
        cpu = np.where(verdict.unbelieved[:, -1] | np.isnan(cpu), usual, cpu)
        cost = self._cost(state, hardware_cost(base, bytes_in, network_out, cpu))
        leader_cpu, follower_cpu = attribute_cpu(base, bytes_in, network_out, cpu / cost)
        reads = facts.reads.over(aggregation)[:, 0]
        reads[unbelieved[base.replica_broker, 1]] = np.nan
        read = _per_follower(base, np.where(np.isnan(reads), state.reference.reads, reads))
        leader = (leader_cpu, bytes_in, network_out, leader_disk)
        follower = (follower_cpu, bytes_in, read, follower_disk)
        leader_load, follower_load = base.leader_load.copy(), base.follower_load.copy()
        for name, lead, follow in zip(DEFAULT_RESOURCES, leader, follower, strict=True):
            if name in base.resources:
                leader_load[:, base.resource(name)] = lead
                follower_load[:, base.resource(name)] = follow
        for (name, share), lead in zip(self._shares.items(), further.T, strict=True):
            leader_load[:, base.resource(name)] = lead
            follower_load[:, base.resource(name)] = share * lead
        capacity = cpu_capacity(base, cost)
        measured = replace(
            base, capacity=capacity, leader_load=leader_load, follower_load=follower_load
        )
        unknown = np.logical_not(known.all(axis=1) & further_known)
        unknown[base.replica_partition[verdict.wrong_sizes]] = True
        distrust = Distrust(verdict.doubts, partition_names(base, np.flatnonzero(unknown)))
        by_name = {n: state.further.of(slice(i, i + 1)) for i, n in enumerate(self._shares)}
        measured = measured.with_resources({*base.resources} - _unmeasured(state))
        return Observation(measured, done, state.rates, state.brokers, distrust, by_name)

    def _further(
        self,
        state: ModelState,
        facts: Evidence,
        verdict: CheckResult,
        min_ratio: float,
        aggregation: Aggregation,
    ) -> tuple[Floats, Bools]:
        """(P, K) loads of leaders in further resources, and (P,) whether all are measured.

        Nothing else measures them, so what a broker reports is used as long as the broker itself
        is trusted. An unknown load has its last trusted value, or else an estimate.

        Raises
        ------
        ModelError
            If too few partitions report one of them.
        """
        base, found = state.base, state.further.over(aggregation)
        if not self._shares:
            return found, np.ones(base.n_partitions, np.bool_)
        known = ~np.isnan(found)
        trusted = np.append(~verdict.doubted, False)[facts.leader]
        asked = int(trusted.sum())
        for name, has in zip(self._shares, known.T, strict=True):
            ratio = (has & trusted).sum() / asked if asked else 1.0
            if ratio < min_ratio:
                missing = int(np.flatnonzero(trusted & ~has)[0])
                raise ModelError(
                    f"cluster model: {name} of {ratio:.1%} of partitions found, at least "
                    f"{min_ratio:.1%} expected; {(trusted & ~has).sum()} are missing, for example "
                    f"{base.topics[base.partition_topic[missing]]}-"
                    f"{base.partition_number[missing]}"
                )
        found[~trusted] = np.nan
        with self._lock:
            if base is self._base:
                new = ~np.isnan(found)
                self._reference.further[new] = found[new]
        found = np.where(np.isnan(found), state.reference.further, found)
        whole: Bools = np.logical_and.reduce(known, axis=1)
        return with_estimates(base, found), whole

    def _cost(self, state: ModelState, now: Floats) -> Floats:
        """(B,) costs of brokers, learnt from the current estimates.

        Changes slowly after the first estimate: a single one is mostly noise.
        """
        newest, parameters = int(state.rates.start_ms[-1]), CostParameters()
        with self._lock:
            known = self._reference
            if state.base is not self._base or newest <= known.cost_ms:
                return np.where(np.isnan(state.reference.cost), now, state.reference.cost)
            learning = known.cost_ms >= 0
            seconds = (newest - known.cost_ms) / 1000 if learning else 0.0
            before = known.cost if learning else np.full(len(now), np.nan)
            known.cost = learnt_cost(before, now, seconds, parameters.half_life)
            enough = min(parameters.windows, state.windows)
            if learning or len(state.rates.start_ms) >= enough:
                known.cost_ms = newest
            return known.cost

    def _require_known(
        self, facts: Evidence, verdict: CheckResult, done: Completeness, min_ratio: float
    ) -> None:
        base = facts.base
        if min_ratio <= 0:
            return
        living = base.broker_state != BrokerState.DEAD
        doubted = int((verdict.doubted & living).sum())
        covered = _covered(done)
        if doubted > self._trust.max_share * living.sum():
            raise ModelError(
                f"cluster model: {doubted} of {living.sum()} brokers do not report, or report what "
                f"cannot be trusted, at most {self._trust.max_share:.0%} expected; for example: "
                f"{next(d for d in verdict.doubts if not d.set_aside).sentence} ({covered})"
            )
        asked = np.append(~verdict.doubted, False)[facts.leader]
        known = done.partitions & asked
        ratio = known.sum() / asked.sum() if asked.any() else 1.0
        if ratio < min_ratio:
            missing = int(np.flatnonzero(asked & ~known)[0])
            raise ModelError(
                f"cluster model: metrics of {ratio:.1%} of partitions found, at least "
                f"{min_ratio:.1%} expected; {(asked & ~known).sum()} are missing, for example "
                f"{base.topics[base.partition_topic[missing]]}-{base.partition_number[missing]} "
                f"({covered})"
            )

    def _state(self) -> ModelState:
        """The data of one moment, copied so that the rest runs outside the lock."""
        with self._lock:
            measured = self._rates.aggregate()
            return ModelState(
                self._base,
                measured.of(slice(0, len(_RATES))),
                self._rates.estimated(),
                self._brokers.aggregate(),
                self._rates.windows,
                self._sizes.value.copy(),
                self._age_ms(),
                self._reference,
                self._moved_ms.copy(),
                measured.of(slice(len(_RATES), None)),
                _no_reads(self._base) if self._reads is None else self._reads.aggregate(),
            )

    def _outlived(self, base: Snapshot, partition: Ints) -> Bools:
        """(P,) bool: partitions of new metadata that a doubted broker no longer leads."""
        if not self._doubted:
            return np.zeros(len(partition), np.bool_)
        none = -1
        before = np.append(self._base.broker_ids, none)[leading_broker(self._base)]
        now = np.append(base.broker_ids, none)[leading_broker(base)]
        led = np.append(before, none)[partition]
        outlived: Bools = np.isin(led, list(self._doubted)) & (led != now)
        return outlived

    def _moved(self, base: Snapshot, partition: Ints, replica: Ints) -> Ints:
        """Ids of brokers that gained or lost a replica or the lead of a partition."""
        old = self._base
        before = np.append(old.broker_ids, -1)[leading_broker(old)]
        now = np.append(base.broker_ids, -1)[leading_broker(base)]
        led = np.append(before, -1)[partition]
        other = (partition >= 0) & (led != now)
        gained = (replica < 0) & (partition >= 0)[base.replica_partition]
        stays = np.isin(np.arange(old.n_partitions), partition)[old.replica_partition]
        lost = stays & ~np.isin(np.arange(old.n_replicas), replica)
        return np.concatenate(
            [
                led[other],
                now[other],
                base.broker_ids[base.replica_broker[gained]],
                old.broker_ids[old.replica_broker[lost]],
            ]
        )

    def _bereft(self, partition: Ints) -> Ints:
        """Ids of brokers whose totals include much traffic of partitions deleted since."""
        old, rates = self._base, self._reference.rates
        gone = ~np.isin(np.arange(old.n_partitions), partition)
        found = np.zeros(old.n_brokers, np.bool_)
        leader = leading_broker(old)
        held = (old.replica_partition, old.replica_broker)
        has = leader < old.n_brokers
        led = (np.flatnonzero(has), leader[has])
        for rate, (p, b) in zip(rates.T, (held, led), strict=True):
            known = np.where(np.isnan(rate), 0.0, rate)[p]
            unknown = np.bincount(b, gone[p] & np.isnan(rate)[p], old.n_brokers) > 0
            lost = np.bincount(b, gone[p] * known, old.n_brokers)
            found |= unknown | (lost > self._trust.floor * np.bincount(b, known, old.n_brokers))
        return old.broker_ids[found]

    def _age_ms(self) -> Floats:
        heard = np.where(self._heard >= 0, self._heard, -np.inf)
        age: Floats = np.maximum(self._clock() - heard, 0.0)
        return age

    def _completeness(self, state: ModelState) -> Completeness:
        return completeness_of(state, self._max_extrapolations, self._stale_ms)

    def _add_brokers(
        self, batch: RecordBatch, chosen: Bools, _topic: Ints, broker: Ints, limit: int
    ) -> npt.NDArray[np.int8]:
        values = _dense(batch, chosen, (*BROKER_METRICS, CPU_RATIO))
        times = batch.time_ms[chosen]
        outcome = _screen(times, broker, values, limit, self._limits[:-1])
        base = self._base
        whole = base.capacity[:, base.resource(CPU)] if CPU in base.resources else _WHOLE_CPU
        measured = np.broadcast_to(whole, base.n_brokers)[broker] * values[:, -1]
        values[:, 0] = np.where(np.isnan(values[:, 0]), measured, values[:, 0])
        good = outcome == RecordOutcome.ADDED
        outcome[good] = self._brokers.add(broker[good], times[good], values[good, :-1])
        return outcome

    def _add_partitions(
        self, batch: RecordBatch, chosen: Bools, topic: Ints, broker: Ints, limit: int
    ) -> npt.NDArray[np.int8]:
        row = self._index.partitions(topic, batch.partition[chosen])
        replica = self._index.replicas(row, broker)
        values = _dense(batch, chosen, (*self._metrics, SIZE))
        times = batch.time_ms[chosen]
        further = [self._trust.max_value] * len(self._shares)
        most = np.concatenate([self._limits[_RATE_COLUMNS], further, self._limits[-1:]])
        outcome = _screen(times, replica, values, limit, most, topic)
        rates, size = values[:, :-1], values[:, -1]
        # A follower's incoming bytes are not the producers' bytes to the partition, and what it
        # sends to consumers is not what the leader sends.
        follows = ~self._base.replica_is_leader[replica]
        read = np.where(follows, rates[:, _RATES.index(BYTES_OUT)], np.nan)
        rates[follows] = np.nan
        self._add_reads(replica, times, np.where(outcome == RecordOutcome.ADDED, read, np.nan))
        outcome[(outcome == RecordOutcome.ADDED) & np.isnan(values).all(axis=1)] = (
            RecordOutcome.FOLLOWER
        )
        good = outcome == RecordOutcome.ADDED
        sized = good & ~np.isnan(size)
        self._sizes.add(replica[sized], times[sized], size[sized])
        # A size is a level, not a sample: the newest counts, and repeating it does no harm.
        rated = good & ~np.isnan(rates).all(axis=1)
        outcome[rated] = self._rates.add(row[rated], times[rated], rates[rated])
        return outcome

    def _add_reads(self, replica: Ints, times: Ints, read: Floats) -> None:
        """Add what followers send to consumers; nan if a record tells nothing of it."""
        sent = ~np.isnan(read)
        if not sent.any():
            return
        if self._reads is None:
            like = self._rates
            self._reads = Windows(
                self._base.n_replicas,
                1,
                window_ms=like.window_ms,
                windows=like.windows,
                min_samples=like.min_samples,
                aggregation=like.aggregation,
            )
        self._reads.add(replica[sent], times[sent], read[sent, None])

    def _add_topics(
        self, batch: RecordBatch, chosen: Bools, topic: Ints, broker: Ints, limit: int
    ) -> npt.NDArray[np.int8]:
        # Only rates are split: of what else a topic's sum counts, nothing is known.
        values, times = _dense(batch, chosen, _RATES), batch.time_ms[chosen]
        # Most values reported for topics are not rates, and looking up leaders is slow.
        rated = ~np.isnan(values).all(axis=1)
        first, count = np.zeros(len(topic), np.int64), np.zeros(len(topic), np.int64)
        first[rated], end = self._index.led(topic[rated], broker[rated])
        count[rated] = end - first[rated]
        most = self._limits[_RATE_COLUMNS]
        outcome = _screen(times, np.where(count > 0, first, -1), values, limit, most, topic)
        good = np.flatnonzero(outcome == RecordOutcome.ADDED)
        share = values[good] / count[good, None]
        part = np.cumsum(count[good]) // _SPLITS
        for these in np.split(np.arange(len(good)), np.flatnonzero(np.diff(part)) + 1):
            n = count[good[these]]
            of = np.repeat(these, n)
            within = np.arange(len(of)) - np.repeat(np.cumsum(n) - n, n)
            row = self._index.by_leader[first[good[of]] + within]
            split = np.full((len(of), len(self._metrics)), np.nan)
            split[:, : len(_RATES)] = share[of]
            became = self._rates.add(row, times[good[of]], split, estimated=True)
            # A record has the best outcome of its shares.
            for kind, tells in (
                (RecordOutcome.LATE, RecordOutcome.LATE),
                (RecordOutcome.SUPERSEDED, RecordOutcome.SUPERSEDED),
                (RecordOutcome.SURPLUS, RecordOutcome.SURPLUS),
                (RecordOutcome.DUPLICATE, RecordOutcome.DUPLICATE),
                (RecordOutcome.ADDED, RecordOutcome.SPLIT),
            ):
                outcome[good[of[became == kind]]] = tells
        return outcome


def simulated_source(snapshot: Snapshot, **options: Any) -> SimulatedSource:
    """A source that reports the loads of a snapshot with the default resources.

    If a leader's ``network_out`` is less than replication alone would take, there are
    no consumers. Brokers report the cpu they carry in the snapshot; dead ones report nothing.

    Parameters
    ----------
    snapshot
        The cluster to simulate.
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


def _unchanged(row: Ints, n: int) -> bool:
    return len(row) == n and bool((row == np.arange(n)).all())


def _covered(done: Completeness) -> str:
    """How much is known, and if rates are missing, what tells why."""
    rates, sizes = int(done.partitions.sum()), int(done.sizes.sum())
    found = str(Coverage(len(done.partitions), rates, sizes))
    lacking = rates < len(done.partitions)
    remedy = "; `counterpoise report-metrics --once` names what exporters lack"
    return found + (remedy if lacking else "")


def _unmeasured(state: ModelState) -> set[str]:
    """Resources whose loads nobody knows: cpu, where at least half of the brokers send none."""
    living = state.base.broker_state != BrokerState.DEAD
    silent = living & np.isnan(state.cpu.mean[:, 0])
    return {CPU} if silent.any() and 2 * silent.sum() >= living.sum() else set()


def _no_reads(base: Snapshot) -> LoadWindows:
    shape = (base.n_replicas, 0, 1)
    return LoadWindows(np.zeros(0, np.int64), np.zeros(shape), np.zeros(shape, np.int8))


def _per_follower(base: Snapshot, reads: Floats) -> Floats:
    """(P,) what each follower sends, of the (N,) reads that are known.

    The followers of a partition have one load in a snapshot; these add up on each broker.
    """
    sent = np.nan_to_num(reads)
    if not sent.any():
        return np.zeros(base.n_partitions)
    of = np.bincount(base.replica_partition, sent, base.n_partitions).astype(np.float64)
    total = np.bincount(base.replica_broker, sent, base.n_brokers).astype(np.float64)
    return attributed(base, np.zeros(base.n_partitions), of, total, _MOST_UNEVEN)[1]


def disk_by_role(base: Snapshot, size: Floats) -> tuple[Floats, Floats]:
    """(P,), (P,) float: bytes of the leader, and of a follower on average.

    If no size of a partition is known, that of the metadata's log directories, or else an
    estimate of :func:`with_estimates`.
    """
    partition, leads = base.replica_partition, base.replica_is_leader
    known = ~np.isnan(size)
    anyone = mean_by_group(partition, size, known, base.n_partitions)
    leader = mean_by_group(partition, size, known & leads, base.n_partitions)
    leader = np.where(np.isnan(leader), anyone, leader)
    own = np.where(known, size, leader[partition])
    follower = mean_by_group(partition, own, ~leads, base.n_partitions)
    follower = np.where(np.isnan(follower), leader, follower)
    unknown = np.isnan(anyone)
    for role, dirs in zip((leader, follower), log_dir_sizes(base).T, strict=True):
        role[unknown] = dirs[unknown]
    return with_estimates(base, leader), with_estimates(base, follower)


def _dense(batch: RecordBatch, chosen: Bools, names: Sequence[str]) -> Floats:
    """(n, M) float: the values of these metrics in the chosen records; nan if missing."""
    column_of = {name: i for i, name in enumerate(names)}
    column = np.array([column_of.get(name, -1) for name in batch.metrics], np.int64)[batch.metric]
    kept = (column >= 0) & chosen[batch.row]
    values = np.full((int(chosen.sum()), len(names)), np.nan)
    values[(np.cumsum(chosen) - 1)[batch.row[kept]], column[kept]] = batch.value[kept]
    return values


def _screen(
    times: Ints,
    row: Ints,
    values: Floats,
    limit: int,
    most: Floats,
    topic: Ints | None = None,
) -> npt.NDArray[np.int8]:
    """The outcomes that can be decided without windows."""
    outcome = np.full(len(times), RecordOutcome.ADDED, np.int8)
    outcome[times > limit] = RecordOutcome.FUTURE
    outcome[(row < 0) | np.isnan(values).all(axis=1)] = RecordOutcome.UNKNOWN
    if topic is not None:
        outcome[topic == AMBIGUOUS] = RecordOutcome.AMBIGUOUS
    outcome[(times < 0) | (values > most).any(axis=1) | (values < 0).any(axis=1)] = (
        RecordOutcome.INVALID
    )
    return outcome
