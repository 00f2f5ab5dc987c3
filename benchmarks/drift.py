"""Plans a round at a time while loads change, with and without a budget."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from balancer import Balancer, Budget
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from balancer.search.scorer import Scorer
from benchmarks.harness.judge import Metric, balance_metrics, held, move_metrics
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import Bools, Floats
from goals import applicable, load_goals

_NAME = "drift"
_GOALS = "default"
_ROUNDS = 20
_BASELINE = "nothing moved"
# Bytes that a round may copy, as a share of all bytes; None for no limit.
_SUBJECTS = {"no limit": None, "0.5 % of the bytes": 0.005, "0.1 % of the bytes": 0.001}


@dataclass(frozen=True)
class Case:
    """A cluster and how its loads change.

    Parameters
    ----------
    brokers, partitions, racks, topics
        Size of the cluster.
    topic_change, partition_change
        Standard deviation of the change of the logarithm of a topic's load, and of that of a
        partition in addition, in each round.
    kept
        Share of the distance from the first load that remains after each round: loads return.
    disk_exponent
        Disk use changes by this power of the factor of the other resources.
    """

    brokers: int
    partitions: int
    racks: int
    topics: int
    topic_change: float = 0.4
    partition_change: float = 0.3
    kept: float = 0.9
    disk_exponent: float = 0.5


_CASES = {"S": Case(20, 2_000, 5, 40), "M": Case(100, 20_000, 10, 200)}


@benchmark(_NAME, sizes=tuple(_CASES))
def drift(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """20 rounds of changing load: unmet goals, bytes a round, replicas that go back.

    Every subject starts from the same even placement and sees the same loads; each round has one
    plan, which is carried out in full before the next. After it, the placement is judged alone.
    """
    known = (_BASELINE, *_SUBJECTS)
    for name in options.subjects:
        if name not in known:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(known)}")
    for size in sizes:
        case = _CASES[size]
        start = balanced(case, options.seed)
        loads = factors(case, start, _ROUNDS if options.rounds is None else options.rounds)
        for name in options.subjects or known:
            options.log(f"{_NAME} {size}: {name}")
            for metric, value, unit in _followed(name, start, loads, case):
                yield Row(_NAME, size, name, metric, value, unit)


def balanced(case: Case, seed: int) -> Snapshot:
    """The cluster of a case, after a plan without a limit."""
    snapshot = synthetic_snapshot(
        brokers=case.brokers,
        partitions=case.partitions,
        racks=case.racks,
        topics=case.topics,
        utilization=0.4,
        seed=seed,
    )
    return Balancer(_GOALS).propose(snapshot).final_snapshot()


def factors(case: Case, snapshot: Snapshot, rounds: int) -> list[Floats]:
    """(P,) by round: load of each partition as a multiple of that at the start."""
    rng = np.random.default_rng(snapshot.n_partitions)
    topic, partition = np.zeros(len(snapshot.topics)), np.zeros(snapshot.n_partitions)
    found = []
    for _ in range(rounds):
        topic = case.kept * topic + rng.normal(0, case.topic_change, len(topic))
        partition = case.kept * partition + rng.normal(0, case.partition_change, len(partition))
        found.append(np.exp(topic[snapshot.partition_topic] + partition))
    return found


def changed(snapshot: Snapshot, start: Snapshot, factor: Floats, disk_exponent: float) -> Snapshot:
    """A placement with the loads of the start times a factor; each resource's total is kept."""
    power = np.ones(len(start.resources))
    power[start.resource("disk")] = disk_exponent
    scale = factor[:, None] ** power
    size = np.bincount(start.replica_partition, minlength=start.n_partitions)[:, None] - 1
    whole = start.leader_load + size * start.follower_load
    scale *= whole.sum(0) / (whole * scale).sum(0)
    return replace(
        snapshot,
        leader_load=start.leader_load * scale,
        follower_load=start.follower_load * scale,
    )


def unmet(snapshot: Snapshot) -> int:
    """How many goals a placement leaves unmet."""
    cluster = resolve(snapshot, Operation()).cluster
    goals = [g.prepared(cluster) for g in applicable(load_goals(_GOALS), snapshot, strict=False)]
    scorer = Scorer(cluster, goals)
    return sum(not scorer.met(i) for i in range(len(goals)))


@dataclass
class Returns:
    """Counts replicas that come to a broker that the same partition has left before."""

    placements: int
    count: int = 0
    _left: Bools = field(init=False)

    def __post_init__(self) -> None:
        self._left = np.zeros(self.placements, np.bool_)

    def follow(self, before: Snapshot, after: Snapshot) -> None:
        """Take note of one round."""
        was, now = held(before), held(after)
        self.count += int(self._left[np.setdiff1d(now, was)].sum())
        self._left[np.setdiff1d(was, now)] = True


def _followed(name: str, start: Snapshot, loads: Sequence[Floats], case: Case) -> Iterator[Metric]:
    """Rows of one subject over all rounds."""
    share = _SUBJECTS.get(name)
    returns = Returns(start.n_partitions * start.n_brokers)
    before, after, worst = [], [], []
    moves, copied, seconds = [], [], []
    placement = start
    for factor in loads:
        seen = changed(placement, start, factor, case.disk_exponent)
        placement = seen
        if name != _BASELINE:
            total = float(seen.broker_load()[:, seen.resource("disk")].sum())
            budget = Budget(bytes=None if share is None else share * total)
            began = time.process_time()
            placement = Balancer(_GOALS, budget=budget).propose(seen).final_snapshot()
            seconds.append(time.process_time() - began)
        returns.follow(seen, placement)
        figures = {metric: value for metric, value, _ in move_metrics(seen, placement)}
        before.append(unmet(seen))
        after.append(unmet(placement))
        worst.append(
            max(v for m, v, _ in balance_metrics(placement) if m.startswith("worst / mean"))
        )
        moves.append(figures["moves"])
        copied.append(figures["bytes moved / all bytes"])
    rounds = max(len(loads), 1)
    yield "unmet goals before the plans, all rounds", float(sum(before)), "goals"
    yield "unmet goals after them, all rounds", float(sum(after)), "goals"
    yield "rounds with unmet goals", float(np.count_nonzero(after)), "rounds"
    yield "worst / mean, mean of the rounds", sum(worst) / rounds, "ratio"
    yield "worst / mean, largest", max(worst, default=0.0), "ratio"
    yield "bytes moved a round / all bytes", sum(copied) / rounds, "ratio"
    yield "bytes moved / all bytes, largest", max(copied, default=0.0), "ratio"
    yield "moves, all rounds", sum(moves), "replicas"
    yield "returns", float(returns.count), "replicas"
    yield "returns / moves", returns.count / max(sum(moves), 1.0), "ratio"
    if seconds:
        yield "processor seconds a round", sum(seconds) / rounds, "seconds"
