"""A Flink job: what is measured is in the snapshot, and what is unknown is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream_job_cases import COUNT, JOB, flink_answers, served
from typer.testing import CliRunner

from balancer.cli.app import app
from cluster_model import Snapshot, SnapshotError, load_snapshot
from cluster_model.flink import read_flink, shares
from metrics_reporter import ReporterError

SUBTASKS = f"/jobs/{JOB}/vertices/{COUNT}"
METRICS = f"{SUBTASKS}/metrics"


def read(answers: dict[str, Any], **options: Any) -> tuple[Snapshot, list[str]]:
    """The snapshot, and what is said about it."""
    said: list[str] = []
    with served(answers) as url:
        return read_flink(url, JOB, warn=said.append, **options), said


def rates(s: Snapshot) -> dict[tuple[str, str], float]:
    """Traffic by the names of its two subtasks."""
    name = [
        f"{s.topics[t]}-{n}" for t, n in zip(s.partition_topic, s.partition_number, strict=True)
    ]
    return {
        (name[a], name[b]): rate
        for a, b, rate in zip(s.traffic_from, s.traffic_to, s.traffic_rate.tolist(), strict=True)
    }


def value(answers: dict[str, Any], metric: str, found: object) -> None:
    """Change a measured value of the vertex ``count``."""
    (entry,) = (m for m in answers[METRICS] if m["id"] == metric)
    entry["value"] = found


def test_the_sample_becomes_a_snapshot() -> None:
    s, said = read(flink_answers())
    assert said == []
    assert s.topics == ("Sink: totals", "Source: clicks", "count -> Filter", "enrich")
    assert s.broker_ids.tolist() == [
        "10.0.0.11:42113-a1b2c3",
        "10.0.0.12:40907-d4e5f6",
        "10.0.0.13:33781-0718ab",
    ]
    assert s.hosts == ("10.0.0.11", "10.0.0.12", "10.0.0.13")
    assert s.capacity.tolist() == [[200.0], [200.0], [200.0]]
    count = s.partition_topic == s.topics.index("count -> Filter")
    assert s.leader_load[count, 0].tolist() == [64.5, 21.0, 18.8, 40.2]
    assert s.replica_broker[count].tolist() == [2, 0, 1, 2]
    assert s.creatable.all()
    assert not len(s.state_size)
    assert s.taken_ms is not None


def test_traffic_is_estimated_from_the_plan_and_agrees_with_what_is_measured() -> None:
    s, _ = read(flink_answers())
    found = rates(s)
    # FORWARD: subtask to subtask, as measured.
    forward = {pair: rate for pair, rate in found.items() if pair[1].startswith("enrich")}
    assert forward == {
        (f"Source: clicks-{i}", f"enrich-{i}"): pytest.approx(rate)
        for i, rate in enumerate([1200, 1100, 1350, 1150])
    }
    # HASH: from each to each; what a receiver gets in total is measured.
    hashed = {pair: rate for pair, rate in found.items() if pair[0].startswith("enrich")}
    assert len(hashed) == 16
    assert hashed["enrich-2", "count -> Filter-0"] == pytest.approx(2400 * 1350 / 4800)
    into = [sum(r for (_, to), r in hashed.items() if to[-1] == str(j)) for j in range(4)]
    assert into == pytest.approx([2400, 720, 600, 1080])
    # RESCALE: 0 and 1 to the first, 2 and 3 to the second.
    rescaled = {pair: rate for pair, rate in found.items() if pair[1].startswith("Sink")}
    assert {(a[-1], b[-1]) for a, b in rescaled} == {("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")}


@pytest.mark.parametrize("senders", [1, 2, 3, 6])
@pytest.mark.parametrize("receivers", [1, 2, 4])
@pytest.mark.parametrize("strategy", ["FORWARD", "RESCALE", "HASH[k]", "REBALANCE", "GLOBAL", "?"])
def test_every_record_arrives_once(strategy: str, senders: int, receivers: int) -> None:
    part = shares(strategy, senders, receivers)
    assert part.shape == (senders, receivers)
    np.testing.assert_allclose(part.sum(1), 1)
    if strategy == "RESCALE":
        # Flink connects every receiver to neighbouring senders.
        assert (part.sum(0) > 0).all()


def test_a_broadcast_record_arrives_everywhere_and_uneven_neighbours_are_those_of_flink() -> None:
    assert (shares("BROADCAST", 2, 3) == 1).all()
    assert (shares("RESCALE", 3, 2) > 0).tolist() == [[True, False], [False, True], [False, True]]
    assert (shares("RESCALE", 2, 3) > 0).tolist() == [[True, True, False], [False, False, True]]


@pytest.mark.parametrize("found", ["NaN", None, "much", "-1"])
def test_an_unknown_load_is_not_zero(found: object) -> None:
    answers = flink_answers()
    value(answers, "1.busyTimeMsPerSecond", found)
    s, said = read(answers)
    assert s.n_partitions == 13
    assert not any("count -> Filter-1" in pair for pair in rates(s))
    assert "1 of 14 subtasks (such as count -> Filter-1) have no busy time" in said[0]
    if found == "NaN":
        assert len(said) == 1
    else:
        assert said[1].startswith("1 malformed metric skipped, such as 1.busyTimeMsPerSecond of")


def test_a_missing_rate_is_unknown_traffic() -> None:
    answers = flink_answers()
    answers[METRICS] = [m for m in answers[METRICS] if m["id"] != "3.numRecordsOutPerSecond"]
    s, said = read(answers)
    assert s.n_partitions == 14
    (sentence,) = said
    assert "1 subtask (such as of count -> Filter) without a rate of records out" in sentence
    found = rates(s)
    assert ("count -> Filter-3", "Sink: totals-1") not in found
    # The other sender's own rate, and not all that the receiver measures.
    assert found["count -> Filter-2", "Sink: totals-1"] == pytest.approx(80)


def test_subtasks_that_do_not_run_are_left_out() -> None:
    answers = flink_answers()
    first, second, *_ = answers[SUBTASKS]["subtasks"]
    first["status"], first["taskmanager-id"] = "SCHEDULED", "(unassigned)"
    second["taskmanager-id"] = "10.0.0.99:1-gone"
    s, said = read(answers)
    assert s.n_partitions == 12
    assert said == [
        "2 of 14 subtasks (such as count -> Filter-0) do not run on one of the task managers; "
        "they are left out"
    ]


def test_fields_may_be_null() -> None:
    answers = flink_answers()
    for node in answers[f"/jobs/{JOB}/plan"]["plan"]["nodes"]:
        node.setdefault("inputs", None)
    for manager in answers["/taskmanagers"]["taskmanagers"]:
        manager["path"] = None
    s, said = read(answers)
    assert said == []
    assert len(s.traffic_rate) == 4 + 16 + 4
    assert s.hosts == tuple(s.broker_ids.tolist())


def test_vertices_of_one_name_stay_apart() -> None:
    answers = flink_answers()
    for vertex in answers[f"/jobs/{JOB}"]["vertices"]:
        vertex["name"] = "map"
    s, _ = read(answers)
    assert len(s.topics) == 4
    assert all(name.startswith("map (") for name in s.topics)


def test_a_wide_vertex_is_asked_for_in_parts() -> None:
    answers = flink_answers()
    wide = 130
    for vertex in answers[f"/jobs/{JOB}"]["vertices"]:
        if vertex["id"] == COUNT:
            vertex["parallelism"] = wide
    subtask = answers[SUBTASKS]["subtasks"][0]
    answers[SUBTASKS]["subtasks"] = [{**subtask, "subtask": i} for i in range(wide)]
    answers[METRICS] = [{"id": f"{i}.busyTimeMsPerSecond", "value": str(i)} for i in range(wide)]
    s, _ = read(answers)
    count = s.partition_topic == s.topics.index("count -> Filter")
    np.testing.assert_allclose(s.leader_load[count, 0], np.arange(wide) / 10)


@pytest.mark.parametrize(
    ("path", "answer", "sentence"),
    [
        ("/taskmanagers", "<html>", "not JSON"),
        ("/taskmanagers", {"taskmanagers": 3}, "taskmanagers: 3 found, a list expected"),
        (f"/jobs/{JOB}/plan", {"plan": {}}, "plan.nodes: field required"),
        (METRICS, ["x"], "metrics"),
        (SUBTASKS, {"subtasks": [{"subtask": -1}]}, "subtasks.0.subtask: -1 found"),
    ],
)
def test_answers_of_another_shape_are_one_sentence(path: str, answer: Any, sentence: str) -> None:
    with pytest.raises(SnapshotError) as reported:
        read({**flink_answers(), path: answer})
    assert path in str(reported.value)
    assert sentence in str(reported.value)


def test_a_job_without_measurements_or_without_work_is_an_error() -> None:
    answers = flink_answers()
    answers[f"/jobs/{JOB}"]["state"] = "FINISHED"
    with pytest.raises(SnapshotError, match="state 'FINISHED' found, RUNNING expected"):
        read(answers)
    nothing = {p: [] if p.endswith("/metrics") else a for p, a in flink_answers().items()}
    with pytest.raises(SnapshotError, match="no subtask with a busy time"):
        read(nothing)


def test_an_unknown_job_and_a_slow_server_are_errors() -> None:
    with served({}) as url, pytest.raises(ReporterError, match="HTTP status 404 found"):
        read_flink(url, "no/such")
    with (
        served(flink_answers(), 5.0) as url,
        pytest.raises(ReporterError, match=r"timed out|not read completely"),
    ):
        read_flink(url, JOB, timeout=0.2)
    with pytest.raises(SnapshotError, match="one like http://jobmanager:8081 expected"):
        read_flink("jobmanager:8081", JOB)


def run(*args: object) -> Any:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_from_the_job_to_an_assignment(tmp_path: Path) -> None:
    snapshot, file = tmp_path / "job.json", tmp_path / "assignments.json"
    with served(flink_answers()) as url:
        assert run("snapshot", "flink", url, "--job", JOB, "-o", snapshot).exit_code == 0
    before = load_snapshot(snapshot)
    found = run(
        *("propose", snapshot, "--strategy", "albic", "--max-moves", 6),
        *("--strategy-option", "pairs=3", "--assignments-json", file),
    )
    assert found.exit_code in (0, 1), found.output
    assigned = json.loads(file.read_text())
    assert {name: len(units) for name, units in assigned.items()} == {
        "Sink: totals": 2,
        "Source: clicks": 4,
        "count -> Filter": 4,
        "enrich": 4,
    }
    at = dict(zip(before.broker_ids.tolist(), range(3), strict=True))
    node = [
        at[assigned[before.topics[topic]][str(number)]]
        for topic, number in zip(before.partition_topic, before.partition_number, strict=True)
    ]
    moved = int((np.array(node) != before.replica_broker).sum())
    assert 0 < moved <= 6


def test_bad_input_of_the_command_is_one_sentence(tmp_path: Path) -> None:
    with served({}) as url:
        found = run("snapshot", "flink", url, "--job", JOB, "-o", tmp_path / "job.json")
    assert found.exit_code == 2
    assert found.stderr.startswith("counterpoise: ")
    assert len(found.stderr.splitlines()) == 1
    assert run("snapshot", "flink", "http://a", "-o", "x.json").exit_code == 2
