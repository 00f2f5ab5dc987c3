"""Measures how even a cluster gets within a limit on moves: ours, a greedy, a peer, a bound."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from balancer import Balancer, Budget
from balancer.planning.action_rows import within
from balancer.planning.plan import Plan
from benchmarks.harness.answers import Answer
from benchmarks.harness.environments import PeerMissing
from benchmarks.harness.judge import balance_metrics, move_metrics, placed
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from benchmarks.subjects import counterpoise, rebalancer
from benchmarks.subjects.greedy import greedy, usage
from cluster_model import InputError, Snapshot, synthetic_snapshot

_NAME = "budget"
# Limits, as shares of the moves of a plan without a limit.
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 1.0)
# Relief below this many times the mean counts for nothing: there the goals are met.
_TARGET = 1.1
_CUT, _GREEDY, _BOUND = "counterpoise, cut", "greedy", "bound"
_SUBJECTS = (counterpoise.NAME, _CUT, _GREEDY, rebalancer.NAME, _BOUND)


@dataclass(frozen=True)
class Case:
    """A cluster and what is asked of it.

    Parameters
    ----------
    brokers, partitions, racks
        Size of the cluster.
    goals
        Configuration of our goals.
    only_usage
        Resources whose even usage is all that counts, with one replica of each partition on
        brokers chosen with lognormal odds; by default every resource, replicas and leaders, with
        three replicas.
    compared
        Replicas of the hottest broker that Rebalancer compares before each move: more than its
        default of 1, which serves it badly under a limit, and few enough for some moves a second.
    """

    brokers: int
    partitions: int
    racks: int
    goals: str | Mapping[str, Any]
    only_usage: tuple[str, ...] = ()
    compared: int = 10


_CASES = {
    "S": Case(20, 2_000, 5, "default"),
    "M": Case(
        50,
        20_000,
        5,
        {"goals": [{"goal": "UsageDistribution", "resource": "network_in", "threshold": _TARGET}]},
        only_usage=("network_in",),
        compared=100,
    ),
    "L": Case(100, 20_000, 10, "default"),
}


@benchmark(_NAME, sizes=tuple(_CASES))
def budget(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Evenness within 1, 2, 5, 10, 20 and 100 % of the moves of a plan without a limit.

    S and L have three replicas per partition and the goals of `default`; M has one replica and
    one goal, for which the bound is proven.
    """
    for name in options.subjects:
        if name not in _SUBJECTS:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(_SUBJECTS)}")
    for size in sizes:
        case = _CASES[size]
        snapshot = cluster(case, options.seed)
        for metric, value, unit in _evenness(case, snapshot):
            yield Row(_NAME, size, "before", metric, value, unit)
        full = Balancer(case.goals).propose(snapshot)
        moves = full.summary.replica_moves
        yield Row(_NAME, size, "before", "moves of a full plan", float(moves), "replicas")
        limits = {share: max(1, round(share * moves)) for share in _SHARES}
        yield from _within_limits(size, case, full, limits, options)


def _within_limits(
    size: str, case: Case, full: Plan, limits: Mapping[float, int], options: Options
) -> Iterator[Row]:
    """Rows of all subjects at each limit; raises for subjects that failed, at the end."""
    snapshot, failures = full.snapshot, dict[str, str]()
    subjects = list(options.subjects or _SUBJECTS)
    relieved: dict[int, Answer] = {}
    if _GREEDY in subjects:
        options.log(f"{_NAME} {size}: {_GREEDY}")
        relieved = greedy(snapshot, tuple(limits.values()), case.only_usage)
    answers: dict[str, Callable[[int], Answer]] = {
        counterpoise.NAME: lambda limit: _planned(case, snapshot, limit),
        _CUT: lambda limit: cut(full, limit),
        _GREEDY: relieved.__getitem__,
        rebalancer.NAME: lambda limit: _peer(case, snapshot, limit, options),
    }
    for share, limit in limits.items():
        title = f"{size}, {share:.0%} of the moves: {limit:,}"
        rows: list[Row] = []
        for subject in subjects:
            if subject not in answers or subject in failures:
                continue
            options.log(f"{_NAME} {title}: {subject}")
            try:
                answer = answers[subject](limit)
            except PeerMissing as error:
                options.log(f"{subject} left out: {error}")
                failures[subject] = ""
                continue
            except InputError as error:
                failures[subject] = f"size {size}: {error}"
                options.log(f"{subject} failed: {error}")
                continue
            found = _metrics(case, snapshot, answer)
            rows += [Row(_NAME, title, subject, *metric) for metric in found]
        if _BOUND in subjects and len(case.only_usage) == 1:
            level = bound(snapshot, case.only_usage[0], limit)
            rows.append(Row(_NAME, title, _BOUND, "worst / mean", level, "ratio"))
        yield from rows
        yield from _compared(rows)
    if any(failures.values()):
        raise BenchmarkError("; ".join(filter(None, failures.values())))


def cluster(case: Case, seed: int) -> Snapshot:
    """The cluster of a case."""
    size: dict[str, Any] = {
        "brokers": case.brokers,
        "partitions": case.partitions,
        "racks": case.racks,
        "seed": seed,
    }
    if not case.only_usage:
        return synthetic_snapshot(**size)
    topics = max(1, case.partitions // 400)
    s = synthetic_snapshot(**size, topics=topics, replication_factor=1, skew=1.0, utilization=0.3)
    rng = np.random.default_rng(seed)
    odds = rng.lognormal(0.0, 1.0, case.brokers)
    return replace(s, replica_broker=rng.choice(case.brokers, case.partitions, p=odds / odds.sum()))


def cut(plan: Plan, moves: int) -> Answer:
    """The state after the first actions of a plan, as many as a limit on moves allows."""
    s, rows = plan.snapshot, plan.rows
    held = s.replica_broker.copy()
    lead = s.leader.copy()
    first = s.replica_offset.tolist()
    for at in range(within(rows, Budget(moves=moves), s)):
        p, a, b = int(rows.partition[at]), int(rows.source[at]), int(rows.target[at])
        own = held[first[p] : first[p + 1]]
        if rows.kind[at] == "leadership":
            lead[p] = int(np.flatnonzero(own == b)[0])
        else:
            own[np.flatnonzero(own == a)[0]] = b
    return Answer(held, lead, seconds=0.0)


def bound(snapshot: Snapshot, resource: str, moves: int) -> float:
    """A worst / mean usage that no placement within `moves` moves is below, for one replica each.

    A broker above a level gets below it only if it sheds load; fewest moves do that if each takes
    its largest remaining partition. The level for which all brokers together need more than
    `moves` is out of reach, wherever the partitions go.

    Examples
    --------
    Two brokers of load 8 and 0, partitions of load 4, 2, 2:

    >>> import numpy as np
    >>> from cluster_model import synthetic_snapshot
    >>> from dataclasses import replace
    >>> s = synthetic_snapshot(brokers=2, partitions=3, replication_factor=1, racks=1)
    >>> load = np.array([4.0, 2.0, 2.0])[:, None] * np.ones(4)
    >>> s = replace(s, replica_broker=np.zeros(3, int), leader_load=load,
    ...     capacity=np.full((2, 4), 100.0))
    >>> [bound(s, "disk", moves) for moves in (0, 1)]
    [2.0, 1.0]
    """
    r = snapshot.resource(resource)
    at, load = snapshot.replica_broker, snapshot.leader_load[:, r]
    capacity = snapshot.capacity[:, r]
    used = np.bincount(at, load, snapshot.n_brokers) / capacity
    shed = [
        np.concatenate([[0.0], np.cumsum(np.sort(load[at == b])[::-1])]) / capacity[b]
        for b in range(snapshot.n_brokers)
    ]
    mean = float(load.sum() / capacity.sum())
    # What a broker has after one more move; between two such levels nothing changes.
    levels = np.concatenate([total - own for total, own in zip(used, shed, strict=True)])
    levels = np.append(np.unique(levels[levels > mean]), mean)
    levels.sort()
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        level = levels[middle] * (1 + 1e-12)
        needed = sum(
            int(np.searchsorted(own, total - level))
            for own, total in zip(shed, used, strict=True)
            if total > level
        )
        low, high = (low, middle) if needed <= moves else (middle + 1, high)
    return float(levels[low] / mean)


def _planned(case: Case, snapshot: Snapshot, moves: int) -> Answer:
    """Our plan for a limit."""
    balancer = Balancer(case.goals, budget=Budget(moves=moves))
    began = time.perf_counter()
    plan = balancer.propose(snapshot)
    seconds = time.perf_counter() - began
    final = plan.final_snapshot()
    return Answer(final.replica_broker, final.leader, seconds)


def _peer(case: Case, snapshot: Snapshot, moves: int, options: Options) -> Answer:
    with tempfile.TemporaryDirectory(prefix="budget-") as scratch:
        limits = (moves, case.compared)
        answer, _ = rebalancer.measure(
            snapshot, Path(scratch), options, only_usage=case.only_usage, limits=limits
        )
    return answer


def _evenness(case: Case, snapshot: Snapshot) -> Iterator[tuple[str, float, str]]:
    """What the goals measure, its worst, and what lies above the target."""
    used = usage(snapshot, case.only_usage)
    yield "worst / mean", float(used.max()), "ratio"
    yield "above the target", float(np.maximum(used - _TARGET, 0.0).sum()), "ratio"
    names = {f"worst / mean {name}" for name in case.only_usage}
    for metric, value, unit in balance_metrics(snapshot):
        if not names or metric in names:
            yield metric, value, unit


def _metrics(case: Case, snapshot: Snapshot, answer: Answer) -> list[tuple[str, float, str]]:
    after = placed(snapshot, answer.replica_broker, answer.leader)
    found = [*_evenness(case, after), *move_metrics(snapshot, after)]
    if answer.seconds:
        found.append(("seconds", answer.seconds, "seconds"))
    return [*found, ("finished", float(answer.finished), "yes")]


def _compared(rows: Sequence[Row]) -> Iterator[Row]:
    """The worst / mean of each subject over the best one's; below the target all are equal."""
    worst = [row for row in rows if row.metric == "worst / mean"]
    best = min((max(row.value, _TARGET) for row in worst), default=math.nan)
    for row in worst:
        ratio = max(row.value, _TARGET) / best
        yield row._replace(metric="worst / mean, over the best", value=ratio)
