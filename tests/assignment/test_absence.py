"""Copies of an instance that is away are waited for before others are made in their place."""

from __future__ import annotations

from typing import Any

import pytest

from balancer.assignment import (
    AssignmentConfigs,
    StateDocument,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
    build_state,
)
from balancer.assignment.scenario import ScenarioDocument, build_scenario
from balancer.assignment.simulation import simulate

TASKS = [f"0_{t}" for t in range(6)]
END = 1_000_000


def instance(name: str, active: str, standby: str, **more: Any) -> dict[str, Any]:
    """An instance that runs some tasks, and has caught up with others."""
    runs, stands_by = ([f"0_{n}" for n in text] for text in (active, standby))
    lags = dict.fromkeys(runs, "running") | dict.fromkeys(stands_by, 0)
    return {"id": name, "active": runs, "standby": stands_by, "lags": lags, **more}


A, B = instance("A", "01", "23"), instance("B", "23", "45")


def gone(ms: int | None) -> dict[str, Any]:
    return instance("C", "45", "01", absent_ms=ms)


def assigned(
    *instances: dict[str, Any], target: str = "stateful-tasks", standbys: int = 1, **configs: Any
) -> TaskAssignment:
    tasks = [{"id": t, "end_offset": END} for t in TASKS]
    state = build_state(StateDocument.model_validate({"instances": instances, "tasks": tasks}))
    numbers = AssignmentConfigs(num_standby_replicas=standbys, **configs)
    return TaskAssignor(numbers, target=target).assign(state)


def copies(found: TaskAssignment) -> dict[str, int]:
    """Number of copies of each task."""
    of = found.tasks_by_instance().values()
    return {t: sum(t in map(str, tasks) for i in of for tasks in i.values()) for t in TASKS}


def test_an_instance_that_is_away_is_waited_for() -> None:
    found = assigned(A, B, gone(200_000))
    # 0_2 and 0_3 have both their copies. The others run, and their second copies may come back.
    assert copies(found) == {t: 2 if t in ("0_2", "0_3") else 1 for t in TASKS}
    assert found.awaited == 4
    assert found.probing_rebalance
    assert found.followup_rebalance_ms == 400_000


@pytest.mark.parametrize("more", [{}, {"standby_recovery_delay_ms": 0}])
def test_after_a_while_it_is_not(more: dict[str, Any]) -> None:
    found = assigned(A, B, gone(0 if more else 600_000), **more)
    assert set(copies(found).values()) == {2}
    assert found.awaited == 0
    assert found.followup_ms is None


def test_kafkas_target_does_not_wait() -> None:
    found = assigned(A, B, gone(0), target="kafka", max_warmup_replicas=10)
    assert min(copies(found).values()) == 2
    assert (found.awaited, found.followup_ms) == (0, None)


def test_what_was_nowhere_else_is_restored() -> None:
    found = assigned(instance("A", "01", ""), instance("B", "23", ""), gone(0), standbys=0)
    assert set(copies(found).values()) == {1}


def test_no_current_copy_is_given_up_while_one_is_waited_for() -> None:
    # All tasks still have two copies without the one that had a third of some.
    both = assigned(instance("A", "012", "345"), instance("B", "345", "012"), gone(0))
    assert set(copies(both).values()) == {2}


def test_who_comes_back_has_its_copies_again() -> None:
    here = {**gone(None), "active": [], "standby": [], "lags": dict.fromkeys(["0_0", "0_1"], 50)}
    here["lags"] |= {"0_4": 70, "0_5": 70}
    found = assigned(instance("A", "01", "23"), instance("B", "2345", ""), here)
    assert set(copies(found).values()) == {2}
    # Nothing is restored but what it missed.
    restores = found.state.lag_of(found.standby_task, found.standby_instance)
    assert restores.max() <= 70


def restart(delay_ms: int, away: float) -> tuple[float, int]:
    """Records restored, and rebalances, where one of three instances restarts."""
    document = {
        "instances": [{"id": name} for name in "ABC"],
        "tasks": [{"id": t, "end_offset": END, "write_rate": 10} for t in TASKS],
        "configs": {"num_standby_replicas": 1, "standby_recovery_delay_ms": delay_ms},
        "changes": [{"at": 100, "leave": "C"}, {"at": 100 + away, "join": "C"}],
    }
    scenario = build_scenario(ScenarioDocument.model_validate(document))
    found = simulate(scenario, TaskAssignor(scenario.configs, "stateful-tasks"))
    assert found.settled
    assert found.without_active.sum() == 0
    return float(found.restored.sum()), len(found.rebalances)


def test_a_restart_restores_only_what_was_missed() -> None:
    waited, _ = restart(600_000, 300.0)
    # Four copies miss 3,000 records each, and what is written while they are read.
    assert waited == pytest.approx(4 * 3_000 / (1 - 4 * 10 / 50_000), rel=1e-3)
    at_once, _ = restart(0, 300.0)
    assert at_once >= 4 * END


def test_who_stays_away_is_replaced_after_the_delay() -> None:
    restored, rebalances = restart(60_000, 1_000.0)
    assert restored >= 4 * END
    assert rebalances >= 4


@pytest.mark.parametrize(
    ("gone_", "expected"),
    [
        ({"standby": ["0_9"]}, "UNKNOWN_TASK_ID: instance 'C': copies: task 0_9 found"),
        ({"active": ["zero"]}, "UNKNOWN_TASK_ID: instance 'C': copies: task 'zero' found"),
    ],
)
def test_an_absent_instance_is_checked(gone_: dict[str, Any], expected: str) -> None:
    with pytest.raises(TaskAssignmentError) as raised:
        assigned(A, B, {"id": "C", "absent_ms": 0, **gone_})
    assert str(raised.value).startswith(expected)


def test_a_scenario_states_absence_as_changes() -> None:
    document = {"instances": [A, gone(5)], "tasks": [{"id": t, "end_offset": END} for t in TASKS]}
    with pytest.raises(TaskAssignmentError, match="instance 'C': absent_ms found, changes"):
        build_scenario(ScenarioDocument.model_validate(document))
