"""The benchmark of large applications measures each case."""

from __future__ import annotations

from balancer.assignment import RUNNING, AssignmentConfigs, TaskAssignor
from benchmarks.harness.task_assignors import KAFKA
from benchmarks.registry import Options, find
from benchmarks.tasks_scale import _joined, _running, _Size, _state


def test_each_case_is_measured() -> None:
    options = Options(subjects=(KAFKA,), rounds=1, log=lambda _: None)
    rows = list(find("tasks-scale", ["1000x10"]).run(["1000x10"], options))
    assert [row.metric for row in rows] == ["first", "again", "one instance more"]
    assert all(row.value > 0 for row in rows)


def test_an_application_that_runs_as_assigned_stays_so_until_an_instance_joins() -> None:
    assignor = TaskAssignor(AssignmentConfigs(num_standby_replicas=2))
    first = _state(_Size(40, 5, 2))
    assigned = assignor.assign(first)
    running = _running(first, assigned)
    assert (running.lag == RUNNING).sum() == 40
    again = assignor.assign(running)
    assert (again.active == assigned.active).all()
    assert again.movements == 0
    assert assignor.assign(_joined(running)).movements > 0
