"""Machine reassignment, a cost under hard constraints: ours, annealing, HiGHS, the best known."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from balancer import Balancer, Budget
from balancer.search import annealing as tiers
from balancer.search.scorer import Scorer
from benchmarks.harness.environments import PeerMissing
from benchmarks.harness.figures import chosen
from benchmarks.harness.machines import Reassignment, Shape, costs, generate, violations
from benchmarks.registry import Options, Row, benchmark
from benchmarks.subjects import annealing, counterpoise
from cluster_model import Snapshot
from cluster_model.snapshot import Ints
from goals import (
    Apart,
    BalanceCost,
    Goal,
    LoadCost,
    MoveCost,
    Near,
    ResourceCapacity,
    SpreadAcross,
    TransientCapacity,
)

_NAME = "reassignment"
_SHAPES = {
    "S": Shape(4, 100, 2, 1, locations=2, neighborhoods=1),
    "M": Shape(100, 1_000, 4, 1, locations=20, neighborhoods=5, balances=2, dependencies=200),
    "L": Shape(100, 5_000, 12, 4, locations=20, neighborhoods=5, balances=3, dependencies=1_000),
    "XL": Shape(500, 20_000, 6, 2, locations=50, neighborhoods=10, balances=2, dependencies=3_000),
}
# Seconds that each subject has: of the clock for HiGHS, of the processor for the others.
_SECONDS = (10.0, 60.0)
_HIGHS = "highs"
_SUBJECTS = (counterpoise.NAME, annealing.NAME, _HIGHS)
# All of --peer-timeout, only for those that are named: for the costs that are kept.
_LONG = (f"long {annealing.NAME}", f"long {counterpoise.NAME}")
# The program for more processes has at least 100,000 binary columns.
_MOST_FOR_HIGHS = 200
# What a long run found, by size, with its command.
_BEST = Path(__file__).with_name("reassignment_best.json")


@dataclass(frozen=True)
class _Answer:
    """An assignment, and what it took; a candidate is a change whose cost was computed."""

    machine: Ints
    seconds: float
    candidates: int = 0
    bound: float | None = None
    clock: float | None = None


@benchmark(_NAME, sizes=tuple(_SHAPES))
def reassignment(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """The cost of reassigning processes to machines in 10 and 60 s (ROADEF/EURO 2012).

    Times above ``--peer-timeout`` are left out; if it is shorter than all, it is the time.
    ``--subject "long annealing"`` and ``"long counterpoise"`` have all of that time.
    """
    named = chosen(options, (*_SUBJECTS, *_LONG))
    subjects = [name for name in _SUBJECTS if name in named]
    times = [t for t in _SECONDS if t <= options.peer_timeout] or [options.peer_timeout]
    for size in sizes:
        problem = generate(_SHAPES[size], options.seed)
        start = sum(costs(problem, problem.start).values())
        yield Row(_NAME, size, "before", "cost", start, "cost")
        for seconds in times:
            yield from _compared(size, problem, seconds, subjects, options)
        long = [name for name in _LONG if name in options.subjects]
        yield from _compared(size, problem, options.peer_timeout, long, options)


def _compared(
    size: str, problem: Reassignment, seconds: float, subjects: Sequence[str], options: Options
) -> Iterator[Row]:
    """Rows of all subjects for a time."""
    run: dict[str, Callable[[], _Answer]] = {
        counterpoise.NAME: lambda: planned(problem, seconds, options.seed),
        annealing.NAME: lambda: _annealed(problem, seconds, options),
        _HIGHS: lambda: _solved(problem, seconds),
        _LONG[0]: lambda: _annealed(problem, seconds, options),
        _LONG[1]: lambda: planned(problem, seconds, options.seed),
    }
    title, best = f"{size}, {seconds:g} s", best_known(size, options.seed)
    for subject in subjects:
        if subject == _HIGHS and len(problem.start) > _MOST_FOR_HIGHS:
            continue
        options.log(f"{_NAME} {title}: {subject}")
        try:
            answer = run[subject]()
        except PeerMissing as error:
            options.log(f"{subject} left out: {error}")
            continue
        for metric, value, unit in _metrics(problem, answer, best):
            yield Row(_NAME, title, subject, metric, value, unit)


def _metrics(
    problem: Reassignment, answer: _Answer, best: float | None
) -> Iterator[tuple[str, float, str]]:
    """What the evaluator finds, and the effort."""
    parts, broken = costs(problem, answer.machine), violations(problem, answer.machine)
    cost = sum(parts.values())
    yield "cost", cost, "cost"
    for name, part in parts.items():
        yield f"cost of {name}", part, "cost"
    yield "feasible", float(not any(broken.values())), "yes"
    if best is not None:
        yield "gap to the best known", 100 * (cost / best - 1), "percent"
    if answer.bound is not None:
        yield "proven bound", answer.bound, "cost"
    yield "moves", float((answer.machine != problem.start).sum()), "processes"
    yield "processor seconds", answer.seconds, "seconds"
    if answer.clock is not None:
        yield "seconds", answer.clock, "seconds"
    if answer.candidates:
        yield "candidates per second", answer.candidates / answer.seconds, "candidates"


def planned(problem: Reassignment, seconds: float, seed: int) -> _Answer:
    """Our plan for some seconds of the processor, from the snapshot to the final assignment."""
    _warmed_up()
    scored, gain, annealed = 0, Scorer.gain, tiers.annealed

    def counted(scorer: Scorer, tier: Any, transition: Any) -> Any:
        nonlocal scored
        scored += len(transition)
        return gain(scorer, tier, transition)

    def tallied(*arguments: Any) -> Any:
        nonlocal scored
        found = annealed(*arguments)
        scored += found.scored
        return found

    balancer = Balancer(goals_of(problem), budget=Budget(seconds=seconds), seed=seed)
    snapshot = snapshot_of(problem)
    began, clock = time.process_time(), time.perf_counter()
    # limits of time are of the clock: other work on the machine would shorten the search
    with (
        patch.object(Scorer, "gain", counted),
        patch.object(tiers, "annealed", tallied),
        patch.object(time, "monotonic", time.process_time),
    ):
        plan = balancer.propose(snapshot)
    took, clock = time.process_time() - began, time.perf_counter() - clock
    return _Answer(plan.final_snapshot().replica_broker, took, scored, clock=clock)


@cache
def _warmed_up() -> None:
    """Compile what is compiled when it is first used, however long that takes."""
    problem = generate(_SHAPES["S"], 0)
    few = {"strategy": "goals", "annealing_steps": 1, "least_annealing_steps": 1}
    Balancer(goals_of(problem), strategy=few).propose(snapshot_of(problem))


def _annealed(problem: Reassignment, seconds: float, options: Options) -> _Answer:
    with tempfile.TemporaryDirectory(prefix="reassignment-") as scratch:
        return _Answer(*annealing.measure(problem, seconds, Path(scratch), options))


def _solved(problem: Reassignment, seconds: float) -> _Answer:
    try:
        from benchmarks.subjects import highs
    except ImportError:
        raise PeerMissing("highspy is missing: pip install highspy") from None
    return _Answer(*highs.measure(problem, seconds))


def best_known(size: str, seed: int) -> float | None:
    """The lowest cost that a long run found, if there was one for the seed."""
    kept: Mapping[str, Any] = json.loads(_BEST.read_text())
    found = kept.get(f"{size}, seed {seed}")
    return None if found is None else float(found["cost"])


def snapshot_of(problem: Reassignment) -> Snapshot:
    """The problem as a cluster: brokers are machines, topics services, partitions processes.

    Racks are locations; what a copy costs is the cost of moving the process.
    """
    p, m = len(problem.start), len(problem.capacity)
    width = len(str(len(problem.spread)))
    topics = tuple(f"service-{s:0{width}}" for s in range(len(problem.spread)))
    needs: dict[int, list[str]] = {}
    for one, two in problem.needs.tolist():
        needs.setdefault(one, []).append(topics[two])
    first = np.searchsorted(problem.service, problem.service)
    names = _resources(problem)
    return Snapshot(
        resources=names,
        broker_ids=np.arange(m),
        racks=tuple(f"location-{k:03}" for k in range(len(problem.machine_cost))),
        broker_rack=problem.location,
        hosts=tuple(f"machine-{k:05}" for k in range(m)),
        broker_host=np.arange(m),
        broker_state=np.zeros(m, np.int64),
        capacity=problem.capacity,
        topics=topics,
        partition_topic=problem.service,
        partition_number=np.arange(p) - first,
        leader_load=problem.requirement,
        follower_load=problem.requirement,
        replica_offset=np.arange(p + 1),
        replica_broker=problem.start,
        leader=np.zeros(p, np.int64),
        state_size=problem.process_cost,
        cost_unit="cost",
        broker_attributes={
            "neighborhood": [f"neighborhood-{k:03}" for k in problem.neighborhood],
            **{f"safe.{name}": problem.safety[:, r] for r, name in enumerate(names)},
        },
        topic_attributes={
            "spread": problem.spread.astype(float),
            "needs": [",".join(needs[s]) if s in needs else None for s in range(len(topics))],
        },
    )


def goals_of(problem: Reassignment) -> list[Goal]:
    """The problem in goals that are built in: constraints are hard, all costs are in one tier.

    With one scale for all costs, the weight of each is what a unit of it is worth.
    """
    names, every = _resources(problem), problem.requirement.sum(0)
    balances = [(int(i), int(j), float(x)) for i, j, x in problem.balance]
    most = [problem.process_cost.max(), problem.machine_cost.max(), every.max()]
    most += [every[j] + x * problem.capacity[:, i].max() for i, j, x in balances]
    cost: dict[str, Any] = {"scale": float(max(most)), "tier": 1}
    hard: dict[str, Any] = {"hard": True, "tier": 0}
    racks = [f"location-{k:03}" for k in range(len(problem.machine_cost))]
    factors = {
        one: dict(zip(racks, row, strict=True))
        for one, row in zip(racks, problem.machine_cost.tolist(), strict=True)
    }
    found: list[Goal] = [
        TransientCapacity(resource=name, limit=1.0, **hard)
        if problem.transient[r]
        else ResourceCapacity(resource=name, threshold=1.0, **hard)
        for r, name in enumerate(names)
    ]
    found += [Apart(by="topic", **hard), SpreadAcross(attribute="rack", at_least="spread", **hard)]
    if len(problem.needs):
        found.append(Near(attribute="neighborhood", **hard))
    found += [
        LoadCost(resource=name, above=f"safe.{name}", weight=problem.load_weight[r], **cost)
        for r, name in enumerate(names)
    ]
    found += [
        BalanceCost(resource=names[i], other=names[j], ratio=x, weight=weight, **cost)
        for (i, j, x), weight in zip(balances, problem.balance_weight.tolist(), strict=True)
    ]
    found.append(MoveCost(**cost))
    found.append(MoveCost(cost="replica", by="rack", factors=factors, **cost))
    return found


def _resources(problem: Reassignment) -> tuple[str, ...]:
    return tuple(f"resource-{r:02}" for r in range(len(problem.transient)))
