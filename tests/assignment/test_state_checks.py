"""A state made by hand that contradicts itself is an error in one sentence, by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assignment_cases import application

from balancer.assignment import (
    ApplicationState,
    AssignmentConfigs,
    AssignmentError,
    StateDocument,
    TaskAssignmentError,
    TaskAssignor,
    build_state,
    load_state,
)
from balancer.assignment.scenario import load_scenario
from balancer.assignment.state import TaskId

GOOD = application("00 01", {"P1": {"lags": 0, "active": ["0_0"]}, "P2": {"lags": {"00": 5}}})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"capacity": np.array([1, 0])}, "instance 'P2': capacity 0 found"),
        ({"capacity": np.array([1])}, "capacity: 1 values found, 2 expected"),
        ({"instances": ("P2", "P1")}, "instance 'P1' found after 'P2'"),
        ({"instances": ("P1", "P1")}, "instance 'P1' found after 'P1'"),
        ({"partition": np.array([1, 0])}, "task 0_0 found after 0_1"),
        ({"partition": np.array([1, 1])}, "task 0_1 found after 0_1"),
        ({"end_offset": np.array([5, -1])}, "task 0_1: end offset -1 found"),
        ({"lag": np.array([0, -1, 0])}, "instance 'P2': lag -1 of task 0_0 found"),
        ({"lag": np.array([0, 0, -9])}, "instance 'P1': lag -9 of task 0_1 found"),
        ({"lag_offset": np.array([0, 2, 4])}, "lag_offset: from 0 to 3"),
        ({"lag_instance": np.array([1, 0, 0])}, "task 0_0: lag of instance 'P1' found after"),
        ({"lag_instance": np.array([0, 2, 0])}, "UNKNOWN_PROCESS_ID: lag_instance: 2 found"),
        ({"previous_task": np.array([2])}, "UNKNOWN_TASK_ID: previous_task: 2 found"),
        (
            {
                "previous_task": np.array([0, 0]),
                "previous_instance": np.array([0, 1]),
                "previous_active": np.array([True, True]),
            },
            "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES: task 0_0 is active on 'P1' and on 'P2'",
        ),
    ],
)
def test_a_contradiction_is_named(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(TaskAssignmentError) as raised:
        replace(GOOD, **fields)
    assert str(raised.value).startswith(expected)
    assert "\n" not in str(raised.value)


def test_an_error_has_kafkas_name() -> None:
    with pytest.raises(TaskAssignmentError) as raised:
        replace(GOOD, previous_instance=np.array([-1]))
    assert raised.value.error is AssignmentError.UNKNOWN_PROCESS_ID


def test_without_instances_nothing_can_be_assigned() -> None:
    none = np.zeros(0, np.int64)
    nobody = ApplicationState(
        instances=(),
        capacity=none,
        subtopology=none,
        partition=none,
        stateful=none.astype(np.bool_),
        end_offset=none,
        lag_offset=np.zeros(1, np.int64),
    )
    with pytest.raises(TaskAssignmentError, match="no instance found"):
        TaskAssignor().assign(nobody)


@pytest.mark.parametrize("load", [load_state, load_scenario])
def test_a_task_that_runs_on_two_instances_has_kafkas_name(load: Any, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    instances = [{"id": i, "lags": {"0_0": "running"}} for i in ("P2", "P1")]
    path.write_text(json.dumps({"instances": instances, "tasks": [{"id": "0_0"}]}))
    with pytest.raises(TaskAssignmentError) as raised:
        load(path)
    assert raised.value.error is AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
    assert raised.value.sentence.endswith("instance 'P2': task 0_0 is running here and on 'P1'")


def described(*instances: dict[str, Any]) -> ApplicationState:
    records = [{"id": f"P{i}", **given} for i, given in enumerate(instances)]
    tasks = [{"id": f"0_{p}", "end_offset": 1000} for p in range(4)]
    return build_state(StateDocument.model_validate({"instances": records, "tasks": tasks}))


def test_an_attribute_has_one_type() -> None:
    with pytest.raises(TaskAssignmentError) as raised:
        described({"attributes": {"disk": "ssd"}}, {}, {"attributes": {"disk": 3}})
    assert str(raised.value) == (
        "instance 'P2': attribute 'disk': 3.0 found, text as on 'P0' expected"
    )


def test_goals_know_tags_by_names_they_can_state() -> None:
    zones = [{"tags": {"topology/zone": zone}} for zone in "aabb"]
    configs = AssignmentConfigs(
        num_standby_replicas=1, rack_aware_assignment_tags=("topology/zone",)
    )
    found = TaskAssignor(configs, "stateful-tasks").assign(described(*zones))
    zone = found.active // 2, found.standby_instance // 2
    assert (zone[0][found.standby_task] != zone[1]).all()

    twice = [{"tags": {"a/b": "x", "a b": "y"}}, {}]
    with pytest.raises(TaskAssignmentError, match=r"'a b' and 'a/b' found.*as 'a_b'"):
        TaskAssignor(target="stateful-tasks").assign(described(*twice))


@pytest.mark.parametrize(
    "name", ["\u0661_\u0662", "0_", "_1", "0-1", "0_1_2", "+0_1", "0_1000000000"]
)
def test_a_task_is_two_numbers_in_plain_digits(name: str) -> None:
    with pytest.raises(TaskAssignmentError, match="SUBTOPOLOGY_PARTITION like 0_3 expected"):
        TaskId.parse(name)
