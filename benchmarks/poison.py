"""Measures what a controller moves because of wrong reporters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from balancer import Balancer
from balancer.controller import Controller, Settings, at_once
from balancer.controller.balance import evenness
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from benchmarks.harness.forked import Beat, LostJob, forked, progress
from benchmarks.harness.world import FLUSH, HOUR, Weather, World
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import DEFAULT_RESOURCES, Snapshot, synthetic_snapshot
from cluster_model.attribution import role_weights
from cluster_model.snapshot import Bools, Floats
from metrics_reporter import BYTES_IN, BYTES_OUT, CPU, SIZE, RecordBatch
from metrics_reporter.metrics import REPLICATION_IN, REPLICATION_OUT

_CLUSTERS: dict[str, dict[str, Any]] = {
    "S": {"brokers": 12, "partitions": 480, "racks": 3},
    "M": {"brokers": 30, "partitions": 3_000, "racks": 3},
    # Few topics: each can then be even on 300 brokers.
    "L": {"brokers": 300, "partitions": 15_000, "racks": 5, "topics": 10},
}
_UTILIZATION = 0.3
_WEATHER = Weather(noise=0.1)
# Time without and with the fault; longer if a doubt is set aside after a while.
_BEFORE, _AFTER = 0.75 * HOUR, 3 * HOUR
_UNCONFIRMED_AFTER = 9 * HOUR
_ROUND = 300.0
_LEADERS, _OWN = "of partitions only", "of brokers only"
# Subject -> the metric, and which of its records are wrong ("": all).
_METRICS: dict[str, tuple[str, str]] = {
    BYTES_IN: (BYTES_IN, ""),
    f"{BYTES_IN} {_LEADERS}": (BYTES_IN, _LEADERS),
    f"{BYTES_IN} {_OWN}": (BYTES_IN, _OWN),
    BYTES_OUT: (BYTES_OUT, ""),
    f"{BYTES_OUT} {_LEADERS}": (BYTES_OUT, _LEADERS),
    SIZE: (SIZE, ""),
    CPU: (CPU, ""),
    REPLICATION_IN: (REPLICATION_IN, ""),
    REPLICATION_OUT: (REPLICATION_OUT, ""),
    FLUSH: (FLUSH, ""),
}
# Subject -> what happens to bytes_out, and the factor on cpu: the cost of such traffic, which
# cannot be distinguished from real load, or something else.
_AS_IF_REAL = f"{BYTES_OUT} with the {CPU} that it costs"
_WITH_CPU: dict[str, tuple[tuple[str, float], ...]] = {
    f"{BYTES_OUT} with other {CPU}": (("x 5", 3.0), ("x 20", 1.4)),
    _AS_IF_REAL: (("x 5", 1.4), ("x 20", 2.8)),
}
_NONE = "nothing wrong"
_REAL = "real shift"
# The load that really grows in a shift.
_SHIFTS: dict[str, tuple[str, ...]] = {
    "all": (BYTES_IN, BYTES_OUT, SIZE),
    BYTES_IN: (BYTES_IN,),
    BYTES_OUT: (BYTES_OUT,),
    SIZE: (SIZE,),
}
_SHIFT_FACTORS = (5.0, 20.0)


@dataclass(frozen=True)
class Poison:
    """A fault that some reporters apply to a metric.

    Parameters
    ----------
    metric, records
        The metric, and which of its records; ``""`` for all.
    kind
        A name of :data:`KINDS`.
    brokers
        Ids of the brokers whose reporters do it.
    cpu
        A factor on their cpu in addition.
    """

    metric: str
    records: str
    kind: str
    brokers: tuple[int, ...]
    cpu: float = 1.0

    def applied(self, batch: RecordBatch, stuck: Floats | None) -> RecordBatch:
        """The batch as the brokers report it; `stuck` are its values when it began."""
        mine = np.isin(batch.broker[batch.row], self.brokers)
        hit = mine & (batch.metric == batch.metrics.index(self.metric))
        if self.records:
            whole = batch.topic[batch.row] < 0
            hit &= whole if self.records == _OWN else ~whole
        value = batch.value.copy()
        if self.kind == "stuck" and stuck is not None and len(stuck) == len(value):
            value[hit] = stuck[hit]
        elif self.kind == "swapped":
            reporter, whole = batch.broker[batch.row], batch.topic[batch.row] < 0
            ids = np.unique(batch.broker)
            metric = batch.metric == batch.metrics.index(self.metric)
            for broker in self.brokers:
                other = ids[(np.searchsorted(ids, broker) + 1) % len(ids)]
                for part in (whole, ~whole):
                    to = np.flatnonzero(hit & part & (reporter == broker))
                    source = np.flatnonzero(metric & part & (reporter == other))
                    if len(source):
                        value[to] = np.resize(batch.value[source], len(to))
        elif self.kind in KINDS:
            value[hit] = KINDS[self.kind](value[hit])
        value[mine & (batch.metric == batch.metrics.index(CPU))] *= self.cpu
        return replace(batch, value=value)


KINDS: dict[str, Callable[[Floats], Floats]] = {
    "x 5": lambda v: v * 5,
    "x 20": lambda v: v * 20,
    "x 1000": lambda v: v * 1000,
    "1e18": lambda v: np.full(len(v), 1e18),
    "0": np.zeros_like,
    "NaN": lambda v: np.full(len(v), np.nan),
    "negative": lambda v: -v - 1,
}
_KINDS = (*KINDS, "stuck", "swapped")


class PoisonedWorld(World):
    """A world with wrong reporters, or with load that really grows."""

    poison: Poison | None = None
    _stuck: Floats | None = None

    def report(self) -> RecordBatch:
        """The brokers' reports, faults included."""
        batch = super().report()
        if self.poison is None:
            return batch
        if self._stuck is None:
            self._stuck = batch.value
        return self.poison.applied(batch, self._stuck)

    def shift(self, grows: Sequence[str], factor: float, brokers: Sequence[int]) -> None:
        """Let the load of the partitions that brokers lead grow, as all of them report it."""
        self.snapshot = shifted(self.snapshot, grows, factor, brokers)
        # Kafka reports the sizes of log directories with the metadata.
        self.model.update(self.snapshot)


def shifted(s: Snapshot, grows: Sequence[str], factor: float, brokers: Sequence[int]) -> Snapshot:
    """The snapshot with grown loads, and the cpu that goes with them."""
    mine = led_by(s, brokers)
    cpu, network_in, network_out, disk = (s.resource(r) for r in DEFAULT_RESOURCES)
    leader, follower = s.leader_load.copy(), s.follower_load.copy()
    copies = s.replication_factor - 1
    consumed = np.maximum(leader[:, network_out] - leader[:, network_in] * copies, 0.0)
    before = role_weights(leader[:, network_in], leader[:, network_out])
    if BYTES_IN in grows:
        leader[mine, network_in] *= factor
        follower[mine, network_in] *= factor
    if BYTES_OUT in grows:
        consumed[mine] *= factor
    if SIZE in grows:
        leader[mine, disk] *= factor
        follower[mine, disk] *= factor
    leader[mine, network_out] = (consumed + leader[:, network_in] * copies)[mine]
    after = role_weights(leader[:, network_in], leader[:, network_out])
    for load, was, now in zip((leader, follower), before, after, strict=True):
        more = np.divide(now, was, out=np.ones_like(now), where=was > 0)
        load[mine, cpu] *= more[mine]
    return replace(s, leader_load=leader, follower_load=follower)


def led_by(s: Snapshot, brokers: Sequence[int]) -> Bools:
    """(P,) bool: partitions that one of the brokers leads."""
    leads = s.replica_is_leader
    here = leads & np.isin(s.broker_ids[s.replica_broker], list(brokers))
    mine: Bools = np.bincount(s.replica_partition[here], minlength=s.n_partitions) > 0
    return mine


@dataclass(frozen=True)
class CaseResult:
    """Result of a case.

    Parameters
    ----------
    moved
        Bytes moved, as a share of the bytes of the cluster.
    acted
        Rounds until the first execution; inf for none.
    before, after
        Largest true load of a broker, in shares, when it began and at the end.
    findings
        Kinds of all findings that a run without faults does not have.
    """

    moved: float
    acted: float
    before: float
    after: float
    findings: tuple[str, ...]


@benchmark("poison", sizes=tuple(_CLUSTERS))
def poison(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Share of the bytes moved because reporters are wrong, and because load really shifts.

    A balanced cluster with default settings, whose plans are executed. After three quarters of an
    hour one reporter, or a tenth of them, goes wrong in one metric: for three hours, or for nine if
    nothing contradicts it. The benchmark fails if one reporter of loads causes any byte to move,
    unless its values cannot be distinguished from a real shift, or if a real shift is not acted on.
    """
    subjects = (_NONE, *_METRICS, *_WITH_CPU, *(f"{_REAL}, {name}" for name in _SHIFTS))
    for name in options.subjects:
        if name not in subjects:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(subjects)}")
    chosen = [name for name in subjects if not options.subjects or name in options.subjects]
    failures: list[str] = []
    for size in sizes:
        began = time.monotonic()
        skewed = synthetic_snapshot(**_CLUSTERS[size], utilization=_UTILIZATION, seed=options.seed)
        even = balanced(skewed)
        world, controller = warmed_up(even, options.seed)
        cases = [
            (subject, case) for subject in chosen for case in _cases(even, subject, options.rounds)
        ]

        def live(job: tuple[str, PoisonCase], beat: Beat) -> CaseResult:
            # Each case runs in its own process, with its own copy of the world.
            return run_case(world, controller, job[1])  # noqa: B023 -- used up before the next size

        with progress(f"poison {size}", len(cases), "cases", options.log) as advance:
            for (subject, case), reported in zip(cases, forked(live, cases), strict=True):
                advance(1)
                if isinstance(reported, LostJob):
                    failures.append(f"{size}, {subject}, {case.name}: {reported.reason}")
                    continue
                yield from _rows(size, subject, case, reported)
                # A latency is not a load: a slow broker loses its leaders, as intended.
                loads = subject not in (FLUSH, _AS_IF_REAL)
                if case.shift is not None and not reported.moved:
                    failures.append(f"{size}, {subject}, {case.name}: nothing moved")
                elif case.shift is None and len(case.brokers) < 2 and reported.moved and loads:
                    failures.append(f"{size}, {subject}, {case.name}: {reported.moved:.1%} moved")
        yield Row("poison", size, _NONE, "seconds", time.monotonic() - began, "seconds")
    if failures:
        raise BenchmarkError("; ".join(failures))


@dataclass(frozen=True)
class PoisonCase:
    """A fault, or a shift, at some brokers."""

    name: str
    brokers: tuple[int, ...] = ()
    poison: Poison | None = None
    shift: tuple[tuple[str, ...], float] | None = None


def _cases(even: Snapshot, subject: str, most: int | None) -> Iterator[PoisonCase]:
    """All cases of a subject, or the first of them."""
    yield from list(_all_cases(even, subject))[:most]


def _all_cases(even: Snapshot, subject: str) -> Iterator[PoisonCase]:
    if subject == _NONE:
        yield PoisonCase(_NONE)
        return
    ids = even.broker_ids.tolist()
    few = (ids[7 % len(ids)],)
    tenth = tuple(ids[7 % len(ids) :: 10])
    for brokers in (few,) if len(tenth) < 2 else (few, tenth):
        who = f"{len(brokers)} of {len(ids)}"
        if subject.startswith(_REAL):
            grows = _SHIFTS[subject.removeprefix(f"{_REAL}, ")]
            for factor in _SHIFT_FACTORS:
                yield PoisonCase(f"x {factor:g}, {who}", brokers, shift=(grows, factor))
        elif subject in _WITH_CPU:
            for kind, cpu in _WITH_CPU[subject]:
                poison = Poison(BYTES_OUT, "", kind, brokers, cpu)
                yield PoisonCase(f"{kind}, {CPU} x {cpu:g}, {who}", brokers, poison=poison)
        else:
            metric, records = _METRICS[subject]
            for kind in _KINDS:
                yield PoisonCase(
                    f"{kind}, {who}", brokers, poison=Poison(metric, records, kind, brokers)
                )


def balanced(skewed: Snapshot) -> Snapshot:
    """The cluster after as many plans as it takes until another one is empty."""
    network_in, network_out = (skewed.resource(r) for r in DEFAULT_RESOURCES[1:3])
    leader = skewed.leader_load.copy()
    # Leaders send at least what their followers copy, or the model would see another cluster.
    copies = leader[:, network_in] * (skewed.replication_factor - 1)
    leader[:, network_out] = np.maximum(leader[:, network_out], copies)
    skewed = replace(skewed, leader_load=leader)
    balancer = Balancer("default")
    for _ in range(5):
        plan = balancer.propose(skewed)
        if not len(plan):
            break
        skewed = plan.final_snapshot()
    return skewed


def warmed_up(even: Snapshot, seed: int) -> tuple[PoisonedWorld, Controller]:
    """A warmed-up world without faults, and a controller with default settings."""
    world = PoisonedWorld(even, _WEATHER, seed)
    controller = Controller(
        world.measured,
        Balancer("default"),
        world,
        Settings.model_validate({"execute": True, "decisions": 100_000}),
        clock=world.clock,
        spawn=at_once,
    )
    _rounds(controller, world, _BEFORE)
    if any(d.kind == "executed" for d in controller.decisions):
        raise BenchmarkError("poison: a balanced cluster was not left alone before the case began")
    return world, controller


def run_case(world: PoisonedWorld, controller: Controller, case: PoisonCase) -> CaseResult:
    """Run a case with a warmed-up controller; world and controller cannot be reused."""
    quiet, size = len(controller.decisions), _bytes(world.snapshot)
    if case.poison is not None:
        world.poison = case.poison
    if case.shift is not None:
        world.shift(*case.shift, case.brokers)
    before = _worst(world)
    began = world.now
    _rounds(controller, world, _AFTER)
    if any(not doubt.proven for doubt in world.measured.distrust().doubts):
        _rounds(controller, world, _UNCONFIRMED_AFTER - _AFTER)
    decisions = controller.decisions[quiet:]
    acts = [d.time for d in decisions if d.kind == "started"]
    kinds = {f.kind for d in decisions for f in d.findings} - {"goal_violations"}
    return CaseResult(
        moved=controller.metrics.bytes_moved / size,
        acted=(acts[0] - began) / _ROUND if acts else float("inf"),
        before=before,
        after=_worst(world),
        findings=tuple(sorted(kinds)),
    )


def _rounds(controller: Controller, world: World, seconds: float) -> None:
    end = world.now + seconds
    while world.now < end:
        controller.step()
        world.advance(_ROUND)


def _worst(world: World) -> float:
    ratios = evenness(resolve(world.true(), Operation()).cluster)["ratios"]
    return float(max(ratios[resource] for resource in DEFAULT_RESOURCES))


def _bytes(s: Snapshot) -> float:
    """Bytes of all replicas."""
    disk = s.resource(DEFAULT_RESOURCES[3])
    partition = s.replica_partition
    sizes = np.where(
        s.replica_is_leader, s.leader_load[partition, disk], s.follower_load[partition, disk]
    )
    return float(sizes.sum())


def _rows(size: str, subject: str, case: PoisonCase, reported: CaseResult) -> Iterator[Row]:
    def row(metric: str, value: float, unit: str) -> Row:
        return Row("poison", size, subject, f"{case.name}: {metric}", value, unit)

    yield row("bytes moved", reported.moved, "ratio")
    for kind in reported.findings:
        yield row(f"finding {kind}", 1, "findings")
    if case.shift is not None:
        yield row("worst load / share before", reported.before, "ratio")
        yield row("worst load / share after", reported.after, "ratio")
        yield row("rounds until it acts", reported.acted, "rounds")
