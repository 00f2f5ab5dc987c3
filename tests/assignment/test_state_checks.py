"""A state made by hand that contradicts itself is an error in one sentence, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assignment_cases import application

from balancer.assignment import ApplicationState, AssignmentError, TaskAssignmentError, TaskAssignor

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
