"""Simulates instances that join, leave and crash: what stands still, and what is restored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from balancer.assignment.scenario import Scenario, ScenarioDocument, build_scenario
from balancer.assignment.simulation import Simulation, Status, simulate
from balancer.report.tasks import simulation_svg
from benchmarks.harness.task_assignors import (
    GOALS,
    JVM,
    KAFKA,
    STICKY,
    chosen_subjects,
    task_assignors,
)
from benchmarks.registry import Options, Row, benchmark
from cluster_model.files import write_atomically
from cluster_model.snapshot import Floats

_TASKS, _INSTANCES, _SEEDS = 200, 10, 5
# Records of the largest state, and records/s that an instance restores and all tasks write.
_LARGEST, _RESTORE, _WRITE = 20_000_000, 100_000.0, 20_000.0
_LOAD = "records"
# Seconds until the first change, and that an instance that restarts is away.
_AT, _AWAY = 3600.0, 300.0
# An instance may be this much fuller than what the heaviest task and the mean allow.
_EVEN = 1.05
_SUBJECTS = (JVM, KAFKA, GOALS, STICKY)


@dataclass(frozen=True)
class _Case:
    """Standbys of each task, what two of the ten instances do, and how long after each other."""

    standbys: int
    change: str
    apart: float = 0.0
    back: bool = False


_CASES = {
    "scale-out": _Case(0, "join"),
    "scale-in": _Case(0, "leave"),
    "scale-out-standby": _Case(1, "join"),
    "scale-in-standby": _Case(1, "leave", 3600.0),
    "crash-standby": _Case(1, "crash", 3600.0),
    "restart-standby": _Case(1, "leave", 3600.0, back=True),
}


@benchmark("tasks-downtime", sizes=tuple(_CASES))
def tasks_downtime(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Stateful tasks while two of ten instances join, leave, crash or restart, simulated.

    200 tasks have state sizes by Zipf's law and loads that grow with them. Each subject starts
    from where its own target has put all tasks.
    """
    names = chosen_subjects(_SUBJECTS, options.subjects)
    seeds = options.rounds or _SEEDS
    with task_assignors(names, options.log) as makers:
        for size in sizes:
            for name, make in makers.items():
                options.log(f"tasks-downtime {size}: {name}, {seeds} seeds")
                found = [
                    simulate(case, make(case.configs))
                    for case in (
                        scenario(_CASES[size], seed)
                        for seed in range(options.seed, options.seed + seeds)
                    )
                ]
                values = [list(_figures(each)) for each in found]
                for k, (metric, _, unit) in enumerate(values[0]):
                    yield Row(
                        "tasks-downtime",
                        size,
                        name,
                        metric,
                        float(np.mean([v[k][1] for v in values])),
                        unit,
                    )
                if options.pictures is not None:
                    short = "".join(c if c.isalnum() else "-" for c in name)
                    _draw(found[0], options.pictures / f"tasks-downtime-{size}-{short}.svg")


def _draw(found: Simulation, path: Path) -> None:
    write_atomically(path, lambda file: file.write(simulation_svg(found).encode()))


def scenario(case: _Case, seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = np.random.default_rng(seed)
    size = _LARGEST / rng.permutation(np.arange(1, _TASKS + 1))
    load = np.sqrt(size) * rng.lognormal(0.0, 0.3, _TASKS)
    load /= load.sum()
    names = [f"i{i:02}" for i in range(_INSTANCES)]
    changes: list[dict[str, object]] = []
    for k, name in enumerate(names[-2:]):
        at = _AT + k * case.apart
        changes.append({"at": at, case.change: name})
        if case.back:
            changes.append({"at": at + _AWAY, "join": name})
    document = ScenarioDocument.model_validate(
        {
            "instances": [{"id": name, "resources": {_LOAD: _WRITE / 5}} for name in names],
            "tasks": [
                {
                    "id": f"0_{t}",
                    "end_offset": round(size[t]),
                    "state_bytes": 100.0 * round(size[t]),
                    "write_rate": _WRITE * load[t],
                    "load": {_LOAD: _WRITE * load[t]},
                }
                for t in range(_TASKS)
            ],
            "configs": {"num_standby_replicas": case.standbys},
            "changes": changes,
            "restore_rate": _RESTORE,
            "handover": 1.0,
            "horizon": 7 * 86_400.0,
        }
    )
    return build_scenario(document)


def _figures(found: Simulation) -> Iterator[tuple[str, float, str]]:
    """The rows of one simulation, counted from the first change on."""
    seconds = found.seconds.sum(axis=0)
    after = [r for r in found.rebalances if r.at >= _AT]
    changed, end = found.scenario.changes[-1].at, float(found.time[-1])
    allowed = _allowed(found)
    excess = found.imbalance(_LOAD) / allowed
    uneven = int((excess > _EVEN).nonzero()[0].max(initial=-1)) + 1
    balanced = max(changed, float(found.time[uneven])) if uneven < len(excess) else math.inf
    yield "task-seconds without an active", float(found.without_active.sum()), "task-seconds"
    yield "while a copy was within the lag", float(found.avoidable.sum()), "task-seconds"
    yield "restoring the last records", seconds[Status.CATCHING_UP], "task-seconds"
    yield "handed over", seconds[Status.HANDOVER], "task-seconds"
    yield "records restored", float(found.restored.sum()), "records"
    yield "copies restored", sum(r.cold for r in after), "copies"
    yield "rebalances", len(after), "rebalances"
    yield "hours until at rest", (end - changed) / 3600, "ratio"
    yield "hours until even in load", (balanced - changed) / 3600, "ratio"
    yield "fullest instance over what tasks allow, at last", float(excess[-1]), "ratio"
    yield "came to rest", float(found.settled), "yes"


def _allowed(found: Simulation) -> Floats:
    """(N,) the least that the fullest member's load over the mean can be."""
    load = found.scenario.state.load[:, 0]
    mean = load.sum() / found.member.sum(axis=1)
    allowed: Floats = np.maximum(1.0, load.max() / mean)
    return allowed
