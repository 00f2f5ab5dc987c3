"""Kafka's public interface for assignors: its views, its checks in their order, its utilities."""

from __future__ import annotations

import pytest
from assignment_cases import configs

from balancer.assignment import (
    AssignmentConfigs,
    AssignmentError,
    StateDocument,
    TaskAssignmentError,
    TaskId,
    build_state,
)
from balancer.assignment.application_state import (
    Application,
    AssignedTask,
    Assignments,
    KafkaStreamsAssignment,
    RackAwareOptimizationParams,
    TaskType,
    default_standby_task_assignment,
    identity_assignment,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
    run_assignor,
    validate_task_assignment,
)

DOCUMENT = {
    "instances": [
        {"id": "P1", "rack": "r0", "tags": {"zone": "a"}, "active": ["0_0", "0_1", "1_0"],
         "lags": {"0_0": -2, "0_1": "running"}},
        {"id": "P2", "capacity": 2, "rack": "r1", "tags": {"zone": "b"}, "standby": ["0_1"],
         "lags": {"0_1": 7}},
        {"id": "P3", "rack": "r2", "tags": {"zone": "c"}},
    ],
    "tasks": [
        {"id": "0_0", "end_offset": 50, "sources": [["r1"]], "changelogs": [["r2"]]},
        {"id": "0_1", "end_offset": 90, "sources": [["r0"]], "changelogs": [["r1"]]},
        {"id": "1_0", "stateful": False, "sources": [["r0", "r1"]], "changelogs": []},
    ],
}  # fmt: skip
T00, T01, T10 = TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)


def application(given: AssignmentConfigs | None = None) -> Application:
    return Application(
        build_state(StateDocument.model_validate(DOCUMENT)), given or configs(0, 1, 0)
    )


def assignments(**held: str) -> Assignments:
    """Assignments in short: ``P1="a00 s01"``."""
    kinds = {"a": TaskType.ACTIVE, "s": TaskType.STANDBY}
    return {
        i: KafkaStreamsAssignment.of(
            i, [AssignedTask(TaskId(int(t[1]), int(t[2])), kinds[t[0]]) for t in own.split()]
        )
        for i, own in held.items()
    }


def short(found: Assignments) -> dict[str, str]:
    return {
        i: " ".join(
            f"{t.type[0].lower()}{t.id.subtopology}{t.id.partition}"
            for t in sorted(a.tasks.values(), key=lambda t: t.id)
        )
        for i, a in found.items()
    }


def test_an_assignor_sees_instances_and_tasks_under_kafkas_names() -> None:
    one, two, three = application().kafka_streams_states().values()
    assert (two.process_id, two.num_processing_threads, two.rack_id) == ("P2", 2, "r1")
    assert two.client_tags == {"zone": "b"}
    assert one.previous_active_tasks == (T00, T01, T10)
    assert two.previous_standby_tasks == (T01,)
    assert [i.lag_for(T01) for i in (one, two, three)] == [-2, 7, 90]
    assert two.stateful_tasks_to_lag_sums == {T00: 50, T01: 7}
    assert one.prev_tasks_by_lag() == [T00, T01]
    with pytest.raises(TaskAssignmentError, match=r"^UNKNOWN_TASK_ID: lag of task 1_0 asked for"):
        one.lag_for(T10)
    tasks = application().all_tasks()
    assert [t.is_stateful for t in tasks.values()] == [True, True, False]
    assert tasks[T10].source_racks == (frozenset({"r0", "r1"}),)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"P1": "a00 a01 a10", "P2": "s01", "P3": ""}, AssignmentError.NONE),
        # Kafka does not miss active tasks.
        ({"P1": "", "P2": "", "P3": ""}, AssignmentError.NONE),
        ({"P1": "a22 a00", "P2": "a00 s10"}, AssignmentError.UNKNOWN_TASK_ID),
        ({"P1": "a00", "P2": "a00 s10"}, AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES),
        ({"P1": "a00", "P2": "s10"}, AssignmentError.INVALID_STANDBY_TASK),
        ({"P1": "a00", "P4": ""}, AssignmentError.MISSING_PROCESS_ID),
        ({"P1": "a00", "P2": "", "P3": "", "P4": ""}, AssignmentError.UNKNOWN_PROCESS_ID),
    ],
)
def test_the_first_error_is_the_one_that_kafka_reports(
    given: dict[str, str], error: AssignmentError
) -> None:
    assert validate_task_assignment(application(), assignments(**given)) is error


class Fixed:
    """An assignor that returns what it was given."""

    def __init__(self, **held: str) -> None:
        self.held = held
        self.reported: list[AssignmentError] = []

    def assign(self, application: Application) -> Assignments:
        found = assignments(**self.held)
        next(iter(found.values())).followup_rebalance_ms = 5_000
        return found

    def on_assignment_computed(self, found: Assignments, error: AssignmentError) -> None:
        self.reported.append(error)


def test_an_assignor_of_ones_own_is_run_and_told_what_became_of_its_assignment() -> None:
    assignor = Fixed(P1="a00", P2="a01 s00", P3="a10")
    found = run_assignor(assignor, application())
    assert found.active.tolist() == [0, 1, 2]
    assert (found.standby_task.tolist(), found.standby_instance.tolist()) == ([0], [1])
    assert (found.probing_rebalance, found.followup_rebalance_ms) == (True, 5_000)
    assert assignor.reported == [AssignmentError.NONE]


def test_a_wrong_assignment_is_refused() -> None:
    assignor = Fixed(P1="a00 s10", P2="a01", P3="a10")
    with pytest.raises(TaskAssignmentError, match=r"^INVALID_STANDBY_TASK: .*1_0"):
        run_assignor(assignor, application())
    assert assignor.reported == [AssignmentError.INVALID_STANDBY_TASK]
    lacking = Fixed(P1="a00", P2="a01", P3="")
    with pytest.raises(TaskAssignmentError, match="task 1_0 is active nowhere"):
        run_assignor(lacking, application())
    assert lacking.reported == []


def test_the_identity_is_the_previous_assignment() -> None:
    found = identity_assignment(application())
    assert short(found) == {"P1": "a00 a01 a10", "P2": "s01", "P3": ""}


def test_an_instance_has_one_copy_of_a_task() -> None:
    with pytest.raises(TaskAssignmentError, match="two copies of task 0_0 found"):
        assignments(P1="a00 s00")


@pytest.mark.parametrize("tags", [(), ("zone",)])
def test_default_standbys(tags: tuple[str, ...]) -> None:
    given = application(configs(0, 1, 2, rack_aware_assignment_tags=tags))
    found = assignments(P1="a00", P2="a01")
    default_standby_task_assignment(given, found)
    assert short(found) == {"P1": "a00 s01", "P2": "s00 a01", "P3": "s00 s01"}


def params(**costs: int) -> RackAwareOptimizationParams:
    return RackAwareOptimizationParams(
        application(configs(0, 1, 1, rack_aware_assignment_strategy="min_traffic", **costs))
    )


COSTS = {
    "rack_aware_assignment_traffic_cost": 10,
    "rack_aware_assignment_non_overlap_cost": 1,
}


def test_rack_aware_utilities_exchange_tasks() -> None:
    found = assignments(P1="a00", P2="a01", P3="a10")
    optimize_rack_aware_active_tasks(params(**COSTS).for_stateful_tasks(), found)
    assert short(found) == {"P1": "a01", "P2": "a00", "P3": "a10"}
    # A standby of 0_0 reads its changelog from r2, one of 0_1 from r1.
    found = assignments(P1="a00 a01 a10", P2="s00", P3="s01")
    optimize_rack_aware_standby_tasks(params(**COSTS), found)
    assert short(found) == {"P1": "a00 a01 a10", "P2": "s01", "P3": "s00"}


def test_they_do_nothing_without_costs() -> None:
    found = assignments(P1="a00", P2="a01", P3="a10")
    optimize_rack_aware_active_tasks(params(), found)
    assert short(found) == {"P1": "a00", "P2": "a01", "P3": "a10"}
    optimize_rack_aware_active_tasks(params(**COSTS), found)
    assert short(found) == {"P1": "a01", "P2": "a00", "P3": "a10"}
