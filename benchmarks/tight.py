"""Orders the steps of plans for clusters close to their limits, and counts what is left out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from balancer import Balancer, Budget, Plan
from balancer.planning.parameters import PlanningParameters
from balancer.problem.problem import Problem
from balancer.strategies.strategy import ProgressCallback, Proposal
from balancer.verification.checker import check_plan
from benchmarks.harness.judge import move_metrics
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from cluster_model.snapshot import Floats, Ints
from goals import Goal, RackAwareness, ResourceCapacity

_CLUSTERS = {"S": 20, "M": 200}
# Mean use as a share of the hard limits: of clusters that are balanced, and of those that go from
# one random placement to another.
_BALANCED, _EXCHANGED = (0.75, 0.85), (0.88, 0.93)
# Limits of the profiles as shares of the capacity, by resource.
_LIMITS = {"cpu": 0.7, "network_in": 0.8, "network_out": 0.8, "disk": 0.8}
# Random changes per replica: until a placement is random and within the limits, and from there to
# the next one.
_MIXED, _EXCHANGES = 60, 8
# The share of the changes that are moves, and not exchanges.
_MOVES = 0.4
_WAITING = PlanningParameters(refill=False, detour_rounds=0)


@benchmark("tight", sizes=tuple(_CLUSTERS))
def tight(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Clusters close to their limits: actions left out for want of a safe order, cost of detours.

    Subject ``balanced``: plans for small clusters with large replicas, used to 75 to 85 % of their
    hard limits on average. Subject ``exchanged``: from one random placement within the limits to
    another one, used to 88 to 93 %. Each also where blocked actions only wait for others. Every
    plan is judged by the independent checker; a fault is a failure of the benchmark.
    """
    cases: dict[str, Callable[[int, PlanningParameters], Plan | None]] = {
        "balanced": balanced,
        "exchanged": exchanged,
    }
    for name in options.subjects:
        if name not in cases:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(cases)}")
    for size in sizes:
        for name, case in cases.items():
            if options.subjects and name not in options.subjects:
                continue
            seeds = range(options.seed, options.seed + _CLUSTERS[size])
            for subject, parameters in (
                (f"{name}, waiting only", _WAITING),
                (name, PlanningParameters()),
            ):
                options.log(f"tight {size}: {subject}")
                for metric, value, unit in _measured(case, seeds, parameters):
                    yield Row("tight", size, subject, metric, value, unit)


def _measured(
    case: Callable[[int, PlanningParameters], Plan | None],
    seeds: Sequence[int],
    parameters: PlanningParameters,
) -> Iterator[tuple[str, float, str]]:
    found, began = Counter[str](), time.perf_counter()
    cost = direct = 0.0
    for seed in seeds:
        plan = case(seed, parameters)
        if plan is None:
            continue
        report = check_plan(plan.snapshot, plan.document())
        if not report.ok:
            fault = [*report.violations, *report.mismatches][0]
            raise BenchmarkError(f"tight, seed {seed}: {fault.text}")
        out = plan.summary.left_out
        found.update(clusters=1, actions=len(plan), left=out, affected=int(out > 0))
        cost += plan.summary.cost
        moved = {m: v for m, v, _ in move_metrics(plan.snapshot, plan.final_snapshot())}
        direct += moved["bytes moved"]
    yield "clusters", float(found["clusters"]), "clusters"
    yield "actions", float(found["actions"]), "actions"
    yield "left out", float(found["left"]), "actions"
    yield "clusters with actions left out", float(found["affected"]), "clusters"
    yield "cost of detours", 100 * (cost / direct - 1) if direct else 0.0, "percent"
    yield "seconds", time.perf_counter() - began, "seconds"


def balanced(seed: int, parameters: PlanningParameters, strategy: Any = "goals") -> Plan:
    """A plan of one of two profiles for a random cluster close to its limits."""
    profile = ("default", "cruise-control")[seed % 2]
    balancer = Balancer(profile, planning=parameters, strategy=strategy)
    return balancer.propose(tight_snapshot(seed, *_BALANCED))


def exchanged(seed: int, parameters: PlanningParameters) -> Plan | None:
    """A plan from one random placement within the limits to another; None if there is none."""
    case = exchange(seed)
    if case is None:
        return None
    snapshot, target = case
    limits: list[Goal] = [ResourceCapacity(resource=r) for r in snapshot.resources]
    balancer = Balancer(
        [RackAwareness(), *limits], strategy=GivenTarget(target), planning=parameters
    )
    return balancer.propose(snapshot)


def tight_snapshot(seed: int, least: float, most: float, disks: bool = True) -> Snapshot:
    """A small, unbalanced cluster with large replicas.

    Parameters
    ----------
    seed
        Decides on everything.
    least, most
        Mean use of each resource as a share of the hard limits of the profiles; each is drawn
        from between.
    disks
        Whether one cluster in four has two disks per broker.
    """
    rng = np.random.default_rng([seed, 11])
    brokers = int(rng.integers(4, 17))
    s = synthetic_snapshot(
        brokers=brokers,
        racks=int(rng.integers(3, min(brokers, 6) + 1)),
        partitions=int(brokers * rng.integers(4, 16)),
        replication_factor=int(rng.integers(1, 4)),
        skew=float(rng.uniform(1.1, 2.0)),
        load_sigma=float(rng.uniform(0.3, 1.5)),
        largest_partition=float(rng.uniform(0.1, 0.4)),
        rack_violations=float(rng.choice([0.0, 0.05])),
        heterogeneity=float(rng.choice([0.0, 0.3, 1.0])),
        disks_per_broker=2 * int(rng.random() < 0.25) if disks else 0,
        utilization=1.0,
        seed=seed,
    )
    share = rng.uniform(least, most, len(s.resources)) * [_LIMITS[r] for r in s.resources]
    return replace(s, leader_load=s.leader_load * share, follower_load=s.follower_load * share)


def exchange(seed: int, most: float = _EXCHANGED[1]) -> tuple[Snapshot, Ints] | None:
    """A random placement within the limits, and the (P, F) brokers of another one.

    None if random changes did not bring the cluster within its limits.
    """
    s = tight_snapshot(seed, min(_EXCHANGED[0], most), most, disks=False)
    rng = np.random.default_rng([seed, 5])
    factor = s.n_replicas // s.n_partitions
    start = s.replica_broker.reshape(-1, factor).copy()
    within = _Shuffle(s, start).run(rng, _MIXED * s.n_replicas)
    target = start.copy()
    if not within or not _Shuffle(s, target).run(rng, _EXCHANGES * s.n_replicas):
        return None
    leader = np.zeros(s.n_partitions, np.int64)
    return replace(s, replica_broker=start.ravel(), leader=leader), target


class _Shuffle:
    """Random moves and exchanges of replicas that bring no broker further above its limits.

    Lists of numbers, because steps look at few of them at a time.
    """

    def __init__(self, s: Snapshot, brokers: Ints) -> None:
        self.placed, self.brokers = brokers, brokers.tolist()
        self.rack = s.broker_rack.tolist()
        follow = [s.follower_load] * (brokers.shape[1] - 1)
        weight: Floats = np.stack([s.leader_load, *follow], 1)
        limit: Floats = s.capacity * [_LIMITS[r] for r in s.resources]
        load = np.zeros_like(limit)
        np.add.at(load, brokers, weight)
        self.weight: list[list[list[float]]] = weight.tolist()
        self.limit: list[list[float]] = limit.tolist()
        self.load: list[list[float]] = load.tolist()

    def run(self, rng: np.random.Generator, steps: int) -> bool:
        """Try so many changes; whether every broker ends within its limits."""
        partitions, factor = self.placed.shape
        for _ in range(steps):
            p, q = rng.integers(0, partitions, 2).tolist()
            f, g = rng.integers(0, factor, 2).tolist()
            x, y = self.brokers[p][f], self.brokers[q][g]
            weight = self.weight[p][f]
            if rng.random() < _MOVES:
                y = int(rng.integers(0, len(self.load)))
                if self._fits(p, f, y) and self._lighter(x, y, weight):
                    self.brokers[p][f] = y
            elif self._fits(p, f, y) and self._fits(q, g, x):
                more = [a - b for a, b in zip(weight, self.weight[q][g], strict=True)]
                if self._lighter(x, y, more):
                    self.brokers[p][f], self.brokers[q][g] = y, x
        self.placed[:] = self.brokers
        pairs = zip(self.load, self.limit, strict=True)
        return all(v <= most * (1 + 1e-12) for b in pairs for v, most in zip(*b, strict=True))

    def _fits(self, p: int, f: int, broker: int) -> bool:
        """Whether no other replica of the partition is on the broker or in its rack."""
        row, rack = self.brokers[p], self.rack
        return broker not in row and all(
            rack[b] != rack[broker] for i, b in enumerate(row) if i != f
        )

    def _lighter(self, x: int, y: int, weight: list[float]) -> bool:
        """Carry a load from x to y, unless one of them is further above its limits then."""
        fewer = [v - w for v, w in zip(self.load[x], weight, strict=True)]
        more = [v + w for v, w in zip(self.load[y], weight, strict=True)]
        over = self._over(x, fewer) + self._over(y, more)
        if over > 0 and over >= self._over(x, self.load[x]) + self._over(y, self.load[y]):
            return False
        self.load[x], self.load[y] = fewer, more
        return True

    def _over(self, broker: int, load: list[float]) -> float:
        """By which shares of its limits the broker would be above them, added up.

        In pairs: another rounding would make other clusters of some seeds.
        """
        a, b, c, d = (max(v / m - 1, 0.0) for v, m in zip(load, self.limit[broker], strict=True))
        return (a + b) + (c + d)


class GivenTarget:
    """A strategy that proposes a given placement.

    Parameters
    ----------
    brokers : (P, F) int
        The broker of each replica, leaders first.
    """

    name = "given"

    def __init__(self, brokers: Ints) -> None:
        self._brokers = brokers

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        """The placement."""
        final = problem.cluster.placement
        final.brokers[:] = self._brokers
        final.leader[:] = 0
        final.invalidate_sums()
        return _Reached(placement=final)


class _Reached(Proposal):
    """Worth every step that can be carried out."""

    def improves(self, ended: Placement) -> bool | None:
        """Always."""
        return True
