"""Simulates a day of a cluster with the live model and the controller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from balancer import Balancer
from balancer.controller import Controller, Settings, at_once
from balancer.controller.balance import evenness
from balancer.controller.finding import View
from balancer.controller.violations import GoalViolationDetector
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from benchmarks.harness.world import DAY, HOUR, START, Weather, World, thrash
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import DEFAULT_RESOURCES, Snapshot, synthetic_snapshot
from goals import load_goals

_CLUSTERS: dict[str, dict[str, Any]] = {
    "S": {"brokers": 12, "partitions": 600, "racks": 3},
    "M": {"brokers": 40, "partitions": 4_000, "racks": 4},
}
_UTILIZATION = 0.3
_ALL = Weather(rhythm=0.4, growth=0.3, noise=0.1, hot=5.0, slow=12.0)
# Subject -> weather, whether the cluster is even at the start, whether plans are executed.
_SUBJECTS: dict[str, tuple[Weather, bool, bool]] = {
    "day": (_ALL, False, True),
    "day, nothing moved": (_ALL, False, False),
    "constant load": (Weather(), False, True),
    "noise only": (Weather(noise=0.3), True, True),
    "quantised only": (Weather(quantum=0.1), True, True),
}
_ROUND = 120.0
_BIN = 3 * HOUR
_THRASH_WINDOW = 12 * HOUR
# Interval at which the true state is sampled for the rows.
_LOOK = 600.0


@dataclass
class _Observations:
    """Observations of a day."""

    violated: dict[int, list[int]] = field(default_factory=dict)
    balancedness: list[float] = field(default_factory=list)
    worst: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0


@benchmark("simulate", sizes=tuple(_CLUSTERS))
def simulate(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """A day with rhythm, growth, a hot topic and a slow broker; and days with noise only.

    Records go through the live model's windows, the controller makes its rounds, and plans
    are applied after the time that copying takes. Violations and worst loads are those of
    the true loads; a broker that was demoted for being slow leads nothing, which the goals
    count against it until it is back. Thrash is the share of the moved load that belongs to
    partitions that were moved again within half a day. Any move that noise or quantised metrics
    cause, and any thrash on constant load, is a failure of the benchmark.
    """
    for name in options.subjects:
        if name not in _SUBJECTS:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(_SUBJECTS)}")
    failures: list[str] = []
    for size in sizes:
        skewed = synthetic_snapshot(**_CLUSTERS[size], utilization=_UTILIZATION, seed=options.seed)
        for subject, (weather, even, execute) in _SUBJECTS.items():
            if options.subjects and subject not in options.subjects:
                continue
            options.log(f"simulate {size}: {subject}")
            start = Balancer("default").propose(skewed).final_snapshot() if even else skewed
            world = World(start, weather, options.seed)
            controller, reported = run_controller(world, execute=execute)
            rows = list(_rows(world, controller, reported))
            for metric, value, unit in rows:
                yield Row("simulate", size, subject, metric, value, unit)
            failures += _failures(size, subject, world)
    if failures:
        raise BenchmarkError("; ".join(failures))


def run_controller(
    world: World, *, execute: bool, seconds: float = DAY, settings: dict[str, Any] | None = None
) -> tuple[Controller, _Observations]:
    """Run the controller's rounds for a time; returns it with the observations."""
    requested = {"execute": execute, "decisions": 100_000, **(settings or {})}
    controller = Controller(
        world.measured,
        Balancer("default"),
        world,
        Settings.model_validate(requested),
        clock=world.clock,
        spawn=at_once,
    )
    reported, goals, looked = _Observations(), load_goals("default"), float("-inf")
    started = time.monotonic()
    while world.now < START + seconds:
        controller.step()
        world.advance(_ROUND)
        if world.now - looked >= _LOOK:
            looked = world.now
            _look(world.true(), goals, reported, world.now - START)
    reported.seconds = time.monotonic() - started
    return controller, reported


def _look(true: Snapshot, goals: Sequence[Any], reported: _Observations, elapsed: float) -> None:
    detector = GoalViolationDetector(Settings().goal_violations, goals)
    found = detector.look(View(true, 0.0))
    short = found[0].data["goals"] if found else ()
    beyond = sum(v["shortfall"] > Settings().goal_violations.margin for v in short)
    reported.violated.setdefault(int(elapsed // _BIN), []).append(beyond)
    assert detector.balancedness is not None
    reported.balancedness.append(detector.balancedness)
    ratios = evenness(resolve(true, Operation()).cluster)["ratios"]
    for resource in DEFAULT_RESOURCES:
        reported.worst.setdefault(resource, []).append(ratios[resource])


def _rows(
    world: World, controller: Controller, reported: _Observations
) -> Iterator[tuple[str, float, str]]:
    for at, counts in sorted(reported.violated.items()):
        hours = f"{at * _BIN / HOUR:02.0f}-{(at + 1) * _BIN / HOUR:02.0f} h"
        yield f"goals clearly violated, {hours}", sum(counts) / len(counts), "ratio"
    yield "balancedness, mean", _mean(reported.balancedness), "ratio"
    for resource, ratios in reported.worst.items():
        yield f"worst load / share, mean, {resource}", _mean(ratios), "ratio"
    decisions = Counter(d.kind for d in controller.decisions)
    yield "executions", decisions["executed"], "executions"
    yield "actions", len(world.moved), "actions"
    yield "bytes moved", controller.metrics.bytes_moved, "bytes"
    shares = thrash(world.moved, _THRASH_WINDOW)
    for resource in DEFAULT_RESOURCES:
        yield f"thrash, {resource}", shares.get(resource, 0.0), "ratio"
    for kind in sorted(decisions):
        yield f"decisions: {kind}", decisions[kind], "decisions"
    causes = Counter(d.cause for d in controller.decisions if d.kind == "executed")
    for cause, count in sorted(causes.items()):
        yield f"executions because of {cause}", count, "executions"
    yield "rounds", controller.metrics.rounds, "rounds"
    yield "records", world.model.counters["added"], "records"
    yield "seconds", reported.seconds, "seconds"


def _failures(size: str, subject: str, world: World) -> Iterator[str]:
    if subject in ("noise only", "quantised only") and world.moved:
        yield f"simulate {size}, {subject}: {len(world.moved)} actions, none expected"
    worst = max(thrash(world.moved, DAY).values(), default=0.0)
    if subject == "constant load" and worst > 0:
        yield f"simulate {size}, {subject}: thrash {worst:.2%}, none expected"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
