"""Without end offsets tasks stay where they were, and a later rebalance looks again."""

from __future__ import annotations

from typing import Any

import pytest
from assignment_cases import shown
from hypothesis import given
from hypothesis import strategies as st

from balancer.assignment import (
    AssignmentConfigs,
    Explanation,
    StateDocument,
    TaskAssignment,
    TaskAssignor,
    build_state,
)

Records = list[dict[str, Any]]


def assigned(
    instances: Records,
    tasks: Records,
    standbys: int = 0,
    target: str = "kafka",
) -> TaskAssignment:
    document = {"instances": instances, "tasks": tasks, "offsets_known": False}
    state = build_state(StateDocument.model_validate(document))
    return TaskAssignor(AssignmentConfigs(num_standby_replicas=standbys), target).assign(state)


FOUR: Records = [{"id": f"0_{p}"} for p in range(4)]


@pytest.mark.parametrize("target", ["kafka", "stateful-tasks"])
def test_tasks_stay_however_unbalanced(target: str) -> None:
    before: Records = [{"id": "P1", "active": ["0_0", "0_1", "0_2", "0_3"]}, {"id": "P2"}]
    found = assigned(before, FOUR, target=target)
    assert shown(found) == "P1 A{00,01,02,03}"
    assert found.probing_rebalance
    assert Explanation(found).of(0) == (
        "0_0 runs on P1: end offsets are not known, and it ran there before."
    )


def test_a_task_that_ran_nowhere_goes_where_its_state_is() -> None:
    before: Records = [
        {"id": "P1", "active": ["0_0"]},
        {"id": "P2", "standby": ["0_1"]},
        {"id": "P3", "lags": {"0_2": "unknown"}},
    ]
    found = assigned(before, FOUR)
    assert shown(found) == "P1 A{00,03}; P2 A{01}; P3 A{02}"
    reasons = [Explanation(found).of(t).partition(", and ")[2] for t in range(4)]
    assert reasons == [
        "it ran there before.",
        "that instance had a standby of it.",
        "that instance has state of it on disk.",
        "no instance is known to have state of it.",
    ]


def test_standbys_stay_too_and_new_ones_go_to_the_least_loaded() -> None:
    before: Records = [
        {"id": "P1", "active": ["0_0", "0_1"]},
        {"id": "P2", "standby": ["0_0"]},
        {"id": "P3"},
    ]
    found = assigned(before, FOUR[:2], standbys=1)
    assert shown(found) == "P1 A{00,01}; P2 S{00}; P3 S{01}"


@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 3), st.data())
def test_all_tasks_are_placed_once_with_their_standbys(
    instances: int, tasks: int, standbys: int, data: st.DataObject
) -> None:
    records: Records = [
        {"id": f"P{i}", "active": [], "standby": [], "lags": {}} for i in range(instances)
    ]
    kinds = [data.draw(st.booleans()) for _ in range(tasks)]
    for task, stateful in enumerate(kinds):
        roles = ["active", "standby", "lags"] if stateful else ["active"]
        order = data.draw(st.permutations(records))
        drawn = data.draw(st.lists(st.sampled_from(roles), unique=True))
        for role, record in zip(drawn, order, strict=False):
            if role == "lags":
                record["lags"][f"0_{task}"] = "unknown"
            else:
                record[role].append(f"0_{task}")
    listed = [{"id": f"0_{t}", "stateful": kind} for t, kind in enumerate(kinds)]
    found = assigned(records, listed, standbys)
    for record in records:
        for name in record["active"]:
            at = int(name[2:])
            assert found.state.instances[found.active[at]] == record["id"]
    copies: list[set[int]] = [set() for _ in range(tasks)]
    for t, i in zip(found.standby_task.tolist(), found.standby_instance.tolist(), strict=True):
        assert i not in copies[t]
        copies[t].add(i)
    for t, stateful in enumerate(kinds):
        assert found.active[t] >= 0
        assert int(found.active[t]) not in copies[t]
        assert len(copies[t]) == (min(standbys, instances - 1) if stateful else 0)
