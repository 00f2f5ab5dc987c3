"""``tasks assign``, ``tasks explain`` and ``tasks verify``: what they print, and bad input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from assignment_cases import application, configs
from command_line import invoke
from typer.testing import Result

from balancer.assignment import Explanation, TaskAssignor

STATE: dict[str, Any] = {
    "instances": [
        {
            "id": "A",
            "active": ["0_0", "0_2"],
            "standby": ["0_1"],
            "lags": {"0_0": "running", "0_1": 12, "0_2": "running"},
        },
        {"id": "B", "active": ["0_1"], "lags": {"0_0": 40, "0_1": "running", "0_2": 50_000}},
        {"id": "C"},
    ],
    "tasks": [
        *({"id": id_, "end_offset": 500_000} for id_ in ("0_0", "0_1", "0_2")),
        {"id": "1_0", "stateful": False},
    ],
    "configs": {"num_standby_replicas": 1, "max_warmup_replicas": 1},
}


def run(*args: object, code: int = 0) -> Result:
    result = invoke(["tasks", *args])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return written(tmp_path, STATE)


def written(folder: Path, content: object, name: str = "state.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def changed(**fields: Any) -> dict[str, Any]:
    """The state with other fields of instance A."""
    return {**STATE, "instances": [{**STATE["instances"][0], **fields}, *STATE["instances"][1:]]}


def test_an_assignment_is_shown_by_instance_and_written_with_reasons(state: Path) -> None:
    output = state.with_name("assignment.json")
    shown = run("assign", state, "-o", output).stdout
    assert "4 tasks on 3 instances" in shown
    assert "look again in 600 s" in shown
    found = json.loads(output.read_text())
    assert found["instances"] == {
        "A": {"active": ["0_0", "0_2"], "standby": ["0_1"], "warmup": []},
        "B": {"active": ["0_1"], "standby": ["0_0", "0_2"], "warmup": []},
        "C": {"active": ["1_0"], "standby": [], "warmup": ["0_2"]},
    }
    assert (found["probing_rebalance"], found["followup_rebalance_ms"]) == (True, 600_000)
    assert found == json.loads(run("assign", state, "--json").stdout)
    run("verify", state, output)


def test_each_task_is_explained_in_one_sentence(state: Path) -> None:
    reasons = json.loads(run("assign", state, "--json").stdout)["reasons"]
    assert reasons == {
        "0_0": "0_0 runs on A (running it now), its target; there is a standby on B (40 records "
        "behind).",
        "0_1": "0_1 runs on B (running it now), its target; there is a standby on A (12 records "
        "behind).",
        "0_2": "0_2 runs on A (running it now) until its target C (without state, 500,000 records "
        "behind) has caught up, which restores a warm-up; there is a standby on B (50,000 records "
        "behind).",
        "1_0": "1_0 runs on C, its target: it has no state to wait for.",
    }
    # Lines are broken to the width of the terminal.
    shown = " ".join(run("explain", state, "0_2").stdout.split())
    assert reasons["0_2"] in shown
    assert "C warm-up 500,000 (no state)" in shown


def test_a_task_that_waits_for_a_warm_up_says_so() -> None:
    state = application("00 01 02 03", {"P1": {"lags": 0}, "P2": {}}, end_offset=70_000)
    explanation = Explanation(TaskAssignor(configs(100, 1, 0)).assign(state))
    assert explanation.of(3) == (
        "0_3 runs on P1 (0 records behind) until its target P2 (without state, 70,000 records "
        "behind) has caught up, which waits, as max_warmup_replicas is 1."
    )


def test_the_closest_instance_runs_a_task_that_none_has_caught_up_with() -> None:
    state = application("00", {"P1": {}, "P2": {"lags": 500}}, end_offset=70_000)
    explanation = Explanation(TaskAssignor(configs(100, 1, 0)).assign(state))
    assert explanation.of(0) == (
        "0_0 runs on P2 (500 records behind), the closest, until its target P1 (without state, "
        "70,000 records behind) has caught up, which restores a warm-up."
    )


def test_an_unknown_lag_that_counts_as_caught_up_is_not_called_the_closest() -> None:
    given: dict[str, dict[str, object]] = {"P1": {"lags": "unknown"}, "P2": {"lags": 5}}
    state = application("00", given, end_offset=70_000)
    asked = configs(0, 1, 0).model_copy(update={"unknown_lag_is_caught_up": True})
    explanation = Explanation(TaskAssignor(asked).assign(state))
    assert explanation.of(0) == (
        "0_0 runs on P1 (lag unknown), its target, as an unknown lag counts as caught up."
    )


def test_goals_may_give_the_target(state: Path) -> None:
    run("assign", state, "--target", "stateful-tasks")
    assert "0_1 runs on" in run("explain", state, "0_1", "--target", "stateful-tasks").stdout


def over_capacity(folder: Path) -> Path:
    """A state file with tasks of more load than the instances can carry."""
    tasks = [{"id": f"0_{t}", "end_offset": 50_000, "load": {"cpu": 2}} for t in range(11)]
    ids = [task["id"] for task in tasks]
    running = {"active": ids, "lags": dict.fromkeys(ids, "running")}
    instances = [
        {"id": "A", **running, "resources": {"cpu": 7}},
        {"id": "B", "resources": {"cpu": 7}},
    ]
    return written(folder, {"instances": instances, "tasks": tasks})


def test_unmet_goals_and_exceeded_capacities_are_told(tmp_path: Path) -> None:
    state = over_capacity(tmp_path)
    output = tmp_path / "assignment.json"
    shown = run("assign", state, "--target", "stateful-tasks", "-o", output, code=1).stdout
    assert "hard goal not met: capacity of cpu: instance 'A' is to carry 16, 7 stated" in shown
    assert "\ngoal not met: UsageDistribution[load]: 2 brokers not content" in shown
    unmet = json.loads(output.read_text())["unmet"]
    assert [goal["goal"] for goal in unmet if goal["hard"]] == ["capacity of cpu"]
    run("verify", state, output)
    goals = {"goals": [{"goal": "ReplicaCapacity", "limit": 4}]}
    target = written(tmp_path, goals, "goals.yaml")
    shown = run("assign", state, "--target", target, code=1).stdout
    assert "hard goal not met: ReplicaCapacity: replicas: 11 needed, 8 within limits" in shown


def test_the_goals_are_not_overwritten(state: Path) -> None:
    target = written(state.parent, {"goals": [{"goal": "ReplicaDistribution"}]}, "goals.yaml")
    before = target.read_text()
    (line,) = run("assign", state, "--target", target, "-o", target, code=2).stderr.splitlines()
    assert "which --target names too" in line
    assert target.read_text() == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "No such file or directory"),
        ("{", "Expecting"),
        ('{"instances": {"A": {"actives": []}}}', "actives"),
        ("[]", "a mapping with instances expected"),
    ],
)
def test_a_file_that_is_no_assignment_is_bad_input(
    state: Path, text: str | None, expected: str
) -> None:
    path = state.with_name("assignment.json")
    if text is not None:
        path.write_text(text)
    result = run("verify", state, path, code=2)
    (line,) = result.stderr.splitlines()
    assert result.stdout == ""
    assert f"assignment file {path}: " in line
    assert expected in line


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            changed(active=["0_9"]),
            "UNKNOWN_TASK_ID: state file {}: instance 'A': active: task 0_9 found, one of the 4 "
            "tasks listed expected",
        ),
        (
            changed(lags={"7_7": 3}),
            "UNKNOWN_TASK_ID: state file {}: instance 'A': lags: task 7_7 found, one of the 4 "
            "tasks listed expected",
        ),
        (
            changed(active=["0_1"], standby=[]),
            "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES: state file {}: instance 'B': task 0_1 is active "
            "here and on 'A'",
        ),
        (
            changed(standby=["1_0"]),
            "INVALID_STANDBY_TASK: state file {}: instance 'A': standby 1_0 found, a stateful "
            "task expected",
        ),
        (
            changed(lags={"0_0": 1, "0_00": 2}),
            "instance 'A': lags: task 0_0 is listed twice",
        ),
        (changed(lags={"0_0": -7}), "0 or more records, 'running' or 'unknown' expected"),
        (changed(capacity=0), "instances.0.capacity: 0 found"),
        (
            changed(tags={f"k{n}": "v" for n in range(6)}),
            "instances.0.tags: {{'k0': 'v', 'k1': 'v', 'k2': 'v', 'k3': 'v', ...}} found, at most "
            "5 tags expected",
        ),
        (
            changed(tags={"k" * 21: "v"}),
            "'kkkkkkkkkkkkkkkkkkkkk' found, a tag of 1 to 20 characters expected",
        ),
        (changed(tags={"k": "v" * 31}), "found, at most 30 characters expected"),
        (
            {**STATE, "configs": {"rack_aware_assignment_tags": [*"abcdef"]}},
            "found, at most 5 tags expected",
        ),
        ({**STATE, "instances": []}, "instances: [] found, at least one expected"),
        (changed(resources={"busy": 1e300}), "instances.0.resources.busy: 1e+300 found"),
        ([], "a mapping with instances and tasks expected"),
        (
            {**STATE, "configs": {"probing_rebalance_interval_ms": 5}},
            "configs.probing_rebalance_interval_ms: 5 found",
        ),
        (
            {**STATE, "configs": {"max_warmup_replicas": 0}},
            "configs.max_warmup_replicas: 0 found",
        ),
        (
            {**STATE, "configs": {"rack_aware_assignment_traffic_cost": 2**31}},
            "configs.rack_aware_assignment_traffic_cost: 2147483648 found",
        ),
        (
            {**STATE, "configs": {"rack_aware_assignment_non_overlap_cost": 2**40}},
            "configs.rack_aware_assignment_non_overlap_cost: 1099511627776 found",
        ),
        (
            {**STATE, "configs": {"unknown_lag_is_caught_up": "yes"}},
            "configs.unknown_lag_is_caught_up: 'yes' found",
        ),
        (
            {**STATE, "configs": {"rack_aware_assignment_tags": ["a", "a"]}},
            "tag 'a' found twice in rack_aware_assignment_tags, once expected",
        ),
    ],
)
def test_a_state_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, content: object, expected: str
) -> None:
    path = written(tmp_path, content)
    for command in (("assign", path), ("explain", path, "0_0"), ("verify", path, path)):
        result = run(*command, code=2)
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert expected.format(path) in line


def test_an_unknown_task_is_one_sentence(state: Path) -> None:
    for name in ("0_9", "orders"):
        (line,) = run("explain", state, name, code=2).stderr.splitlines()
        assert line.startswith("counterpoise: UNKNOWN_TASK_ID: task ")


def roles(active: str = "", standby: str = "") -> Mapping[str, Any]:
    return {"active": active.split(), "standby": standby.split()}


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ({"A": roles("9_9")}, "UNKNOWN_TASK_ID: "),
        (
            {"A": roles("0_0"), "B": roles("0_0")},
            "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES: ",
        ),
        ({"A": roles("0_0 0_0")}, "instance 'A': task 0_0 is active here twice"),
        ({"A": roles("9" * 5000 + "_0")}, "task '9999999"),
        ({"A": roles("", "1_0")}, "INVALID_STANDBY_TASK: "),
        ({"A": roles(), "B": roles()}, "MISSING_PROCESS_ID: "),
        ({"A": roles(), "B": roles(), "C": roles(), "D": roles()}, "UNKNOWN_PROCESS_ID: "),
        ({"A": roles("0_0", "0_0"), "B": roles(), "C": roles()}, "two copies of task 0_0"),
        ({"A": roles("0_0 0_1 0_2"), "B": roles(), "C": roles()}, "1_0 is active nowhere"),
        # Kafka's order: tasks come before instances, standbys before missing instances.
        ({"D": roles("", "1_0"), "A": roles("9_9")}, "UNKNOWN_TASK_ID: "),
        ({"D": roles("", "1_0")}, "INVALID_STANDBY_TASK: "),
        ({"D": roles()}, "MISSING_PROCESS_ID: "),
    ],
)
def test_an_assignment_is_checked_in_kafkas_order(
    state: Path, instances: Mapping[str, Any], expected: str
) -> None:
    path = written(state.parent, {"instances": instances}, "assignment.json")
    result = run("verify", state, path, code=1)
    (line,) = result.stdout.splitlines()
    assert expected in line
    assert len(line) < 400
