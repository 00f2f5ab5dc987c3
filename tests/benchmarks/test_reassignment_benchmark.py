from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import reassignment as module
from benchmarks.harness.environments import PeerMissing
from benchmarks.harness.machines import Reassignment, Shape, costs, generate, violations
from benchmarks.registry import BenchmarkError, Options, Row
from benchmarks.subjects import annealing
from cluster_model.placement import MOVE, Batch, Placement
from cluster_model.snapshot import Ints
from goals import Cluster
from goals.costs import Cost

_TINY = Shape(6, 40, 3, 1, locations=3, neighborhoods=2, balances=2, dependencies=10)


def quiet(**changes: Any) -> Options:
    return Options(log=lambda sentence: None, **changes)


def drawn(seed: int) -> tuple[Reassignment, Ints]:
    """A tiny problem and an assignment in which about a third of the processes moved."""
    problem = generate(_TINY, seed)
    rng = np.random.default_rng(seed)
    other = rng.integers(0, 6, len(problem.start))
    return problem, np.where(rng.random(len(other)) < 0.3, other, problem.start)


def naive_cost(problem: Reassignment, machine: Ints) -> float:
    total, load = 0.0, [[0.0] * 3 for _ in range(6)]
    for p, m in enumerate(machine.tolist()):
        for r in range(3):
            load[m][r] += problem.requirement[p, r]
        if m != problem.start[p]:
            total += problem.process_cost[p]
            total += problem.machine_cost[problem.location[problem.start[p]], problem.location[m]]
    for m in range(6):
        for r in range(3):
            total += problem.load_weight[r] * max(0.0, load[m][r] - problem.safety[m, r])
        for (i, j, ratio), weight in zip(
            problem.balance.tolist(), problem.balance_weight, strict=True
        ):
            one = problem.capacity[m, int(i)] - load[m][int(i)]
            two = problem.capacity[m, int(j)] - load[m][int(j)]
            total += weight * max(0.0, ratio * one - two)
    return total


def naive_violations(problem: Reassignment, machine: Ints) -> dict[str, int]:
    found = dict.fromkeys(("capacity", "conflict", "spread", "dependency"), 0)
    for m in range(6):
        for r in range(3):
            there = machine == m
            if problem.transient[r]:
                there |= problem.start == m
            found["capacity"] += problem.requirement[there, r].sum() > problem.capacity[m, r]
    for s, least in enumerate(problem.spread.tolist()):
        own = machine[problem.service == s].tolist()
        found["conflict"] += len(own) - len(set(own))
        found["spread"] += len({problem.location[m] for m in own}) < least
    for one, two in problem.needs.tolist():
        near = {problem.neighborhood[m] for m in machine[problem.service == two]}
        held = {problem.neighborhood[m] for m in machine[problem.service == one]}
        found["dependency"] += len(held - near)
    return found


def test_the_evaluator_finds_what_the_definition_says() -> None:
    broken = set()
    for seed in range(20):
        problem, machine = drawn(seed)
        assert sum(costs(problem, machine).values()) == pytest.approx(naive_cost(problem, machine))
        found = violations(problem, machine)
        assert found == naive_violations(problem, machine)
        broken |= {name for name, number in found.items() if number}
    assert broken == {"capacity", "conflict", "spread", "dependency"}


def test_the_start_is_feasible_and_has_something_to_gain() -> None:
    for seed in range(10):
        problem = generate(_TINY, seed)
        assert not any(violations(problem, problem.start).values())
        assert sum(costs(problem, problem.start).values()) > 0
        again = generate(_TINY, seed)
        assert all(
            np.array_equal(a, b) for a, b in zip(*map(_fields, (problem, again)), strict=True)
        )


def _fields(problem: Reassignment) -> list[Any]:
    return list(vars(problem).values())


def test_the_goals_state_exactly_the_cost_and_the_constraints() -> None:
    for seed in range(10):
        problem, machine = drawn(seed)
        snapshot = module.snapshot_of(problem)
        cluster = Cluster(Placement(snapshot))
        goals = [goal.prepared(cluster) for goal in module.goals_of(problem)]
        moved = np.flatnonzero(machine != problem.start)
        zeros = np.zeros(len(moved), np.int64)
        cluster.placement.apply(Batch.of(MOVE, moved, zeros, machine[moved]))
        total, met = 0.0, True
        for goal in goals:
            scope = goal.scope
            state = cluster.partition_state() if scope.of_partitions else cluster.state(scope)
            score = goal.score(state)
            if goal.hard:
                met &= bool((score >= 1).all())
            else:
                assert isinstance(goal, Cost)
                assert goal.scale is not None
                total += goal.weight * goal.scale * (1 - score).sum()
        assert total == pytest.approx(sum(costs(problem, machine).values()))
        assert met == (not any(violations(problem, machine).values()))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHAPES", {"S": _TINY})

    def missing(*_: Any, **__: Any) -> Any:
        raise PeerMissing("no Python")

    monkeypatch.setattr(annealing, "measure", missing)


def values(rows: list[Row], metric: str) -> dict[str, float]:
    return {row.subject: row.value for row in rows if row.metric == metric}


def test_answers_are_judged_alike_and_none_is_below_the_bound(tiny: None) -> None:
    pytest.importorskip("highspy")
    rows = list(module.reassignment(["S"], quiet(peer_timeout=2)))
    assert values(rows, "feasible") == {"counterpoise": 1.0, "highs": 1.0}
    cost = values(rows, "cost")
    bound = values(rows, "proven bound")["highs"]
    for subject in ("counterpoise", "highs"):
        assert bound * (1 - 1e-6) <= cost[subject] <= cost["before"]
    assert values(rows, "candidates per second")["counterpoise"] > 0


def test_all_is_compiled_before_the_first_measurement(
    tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    from balancer.search import compiled

    # a clock that jumps stands for a first use that compiles for seconds
    clock, done = [0.0], set()
    names = ("anneal", "approach", "detour", "shorten", "total_cost")

    def slow(name: str, function: Any) -> Any:
        def called(*arguments: Any) -> Any:
            done.add(name)
            return function(*arguments)

        return called

    for name in names:
        monkeypatch.setattr(compiled, name, slow(name, getattr(compiled, name)))

    def late() -> float:
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr("time.monotonic", late)
    module._warmed_up.cache_clear()
    module._warmed_up()
    assert done == set(names)


def test_the_gap_is_to_the_kept_cost(
    tiny: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "best.json"
    monkeypatch.setattr(module, "_BEST", kept)
    kept.write_text(json.dumps({"S, seed 3": {"cost": 100.0}}))
    rows = list(
        module.reassignment(["S"], quiet(seed=3, peer_timeout=1, subjects=("counterpoise",)))
    )
    cost = values(rows, "cost")["counterpoise"]
    assert values(rows, "gap to the best known")["counterpoise"] == pytest.approx(cost - 100)


def test_the_best_known_costs_are_of_sizes_that_exist() -> None:
    kept = json.loads(module._BEST.read_text())
    for name, found in kept.items():
        size, seed = name.split(", seed ")
        assert size in module._SHAPES
        assert module.best_known(size, int(seed)) == found["cost"]
        assert found["command"].startswith("python -m benchmarks run reassignment")


def test_an_unknown_subject_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="no subject 'theirs'; there are counterpoise"):
        list(module.reassignment(["S"], quiet(subjects=("theirs",))))


@pytest.mark.peer
def test_annealing_is_feasible_and_helps() -> None:
    for seed in range(3):
        problem = generate(_TINY, seed)
        with tempfile.TemporaryDirectory() as scratch:
            found = annealing.measure(problem, 0.5, Path(scratch), quiet(seed=seed))
        assert not any(violations(problem, found.machine).values())
        assert sum(costs(problem, found.machine).values()) < naive_cost(problem, problem.start)
        assert found.candidates > 0
