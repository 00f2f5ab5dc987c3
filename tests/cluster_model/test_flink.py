"""A recorded Flink job: what is measured is in the snapshot, and what is unknown is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from stream_job_cases import FLINK, JOB, flink_answers, served, vertex

from cluster_model import Snapshot, SnapshotError, load_snapshot
from cluster_model.flink import BUSY, RECEIVED, SENT, FlinkParameters, read_flink, shares
from metrics_reporter import ReporterError

CLICKS, RULES, ENRICH, COUNT, AUDIT, TOTALS = (
    "Source: clicks -> stamp clicks",
    "Source: rules -> stamp rules",
    "enrich",
    "count -> some",
    "audit -> archive: Writer",
    "totals -> totals sink: Writer",
)
PARALLELISM = {CLICKS: 4, RULES: 1, ENRICH: 4, COUNT: 4, AUDIT: 3, TOTALS: 2}
SUBTASKS = vertex(COUNT)
METRICS = f"{SUBTASKS}/metrics"
QUICK = FlinkParameters(refresh_seconds=0.05, poll_seconds=0.01)


def read(answers: dict[str, Any], **options: Any) -> tuple[Snapshot, list[str]]:
    """The snapshot, and what is said about it."""
    said: list[str] = []
    with served(answers) as url:
        return read_flink(url, JOB, warn=said.append, parameters=QUICK, **options), said


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


def recorded(name: str, metric: str) -> list[float]:
    """A recorded metric of each subtask of a vertex."""
    by_id = {m["id"]: float(m["value"]) for m in FLINK[f"{vertex(name)}/metrics"]}
    return [by_id[f"{i}.{metric}"] for i in range(PARALLELISM[name])]


def recorded_rates() -> dict[tuple[str, str], float]:
    """Traffic by the names of its two subtasks, as the job itself measured it."""
    senders = {"clicks": CLICKS, "rules": RULES, "enrich": ENRICH, "count": COUNT}
    found = {}
    for name in PARALLELISM:
        for metric in FLINK[f"{vertex(name)}/metrics"]:
            if parts := re.fullmatch(r"(\d+)\..*from_(\w+)_(\d+)", metric["id"]):
                pair = f"{senders[parts[2]]}-{parts[3]}", f"{name}-{parts[1]}"
                found[pair] = float(metric["value"])
    return found


def test_every_subtask_has_its_node_and_its_measured_load() -> None:
    s, said = read(flink_answers())
    assert said == []
    managers = [manager["id"] for manager in FLINK["/taskmanagers"]["taskmanagers"]]
    assert len(managers) == 3
    assert s.broker_ids.tolist() == sorted(managers)
    assert s.capacity.tolist() == [[200.0]] * 3
    assert dict(zip(s.topics, np.bincount(s.partition_topic), strict=True)) == PARALLELISM
    for name in PARALLELISM:
        at = s.partition_topic == s.topics.index(name)
        assert s.leader_load[at, 0].tolist() == pytest.approx(np.array(recorded(name, BUSY)) / 10)
        nodes = [task["taskmanager-id"] for task in FLINK[vertex(name)]["subtasks"]]
        assert s.broker_ids[s.replica_broker[at]].tolist() == nodes
    assert (s.leader_load > 0).all()
    assert s.creatable.all()
    assert not len(s.state_size)
    assert s.taken_ms is not None


def test_estimated_traffic_is_that_which_the_job_measured() -> None:
    s, _ = read(flink_answers())
    found, measured = rates(s), recorded_rates()
    assert len(found) == len(s.traffic_rate)
    assert found.keys() == measured.keys()
    assert len(found) == 4 + 4 + 16 + 12 + 4
    for pair, rate in measured.items():
        # The keys of each sender are not spread evenly either.
        assert found[pair] == pytest.approx(rate, rel=0.06), pair


def test_traffic_adds_up_to_what_senders_and_receivers_count() -> None:
    found = rates(read(flink_answers())[0])

    def total(end: int, name: str) -> list[float]:
        wanted = [f"{name}-{i}" for i in range(PARALLELISM[name])]
        return [sum(rate for pair, rate in found.items() if pair[end] == w) for w in wanted]

    for name in (ENRICH, COUNT, AUDIT, TOTALS):
        assert total(1, name) == pytest.approx(recorded(name, RECEIVED), rel=0.002)
    for name in (CLICKS, COUNT):
        assert total(0, name) == pytest.approx(recorded(name, SENT), rel=0.002)
    # A record to all is sent once and received four times.
    assert total(0, RULES) == pytest.approx([4 * recorded(RULES, SENT)[0]])
    # Records to several outputs are counted together: not all of them go to each output.
    to_count = [rate for (a, b), rate in found.items() if a.startswith(ENRICH) and COUNT in b]
    assert sum(to_count) == pytest.approx(sum(recorded(ENRICH, RECEIVED)), rel=0.01)
    assert sum(to_count) < 0.6 * sum(recorded(ENRICH, SENT))


def test_a_sender_with_one_output_sends_to_it_all_that_it_measures() -> None:
    answers = flink_answers()
    for node in answers[f"/jobs/{JOB}/plan"]["plan"]["nodes"]:
        for edge in node.get("inputs", ()):
            if edge["ship_strategy"] == "BROADCAST":
                edge["ship_strategy"] = "REBALANCE"
    found = rates(read(answers)[0])
    into = [sum(rate for (_, to), rate in found.items() if to == f"{COUNT}-{i}") for i in range(4)]
    assert into == pytest.approx(recorded(COUNT, RECEIVED))
    of_rules = sum(rate for (sender, _), rate in found.items() if sender == f"{RULES}-0")
    assert of_rules == pytest.approx(recorded(RULES, SENT)[0], rel=0.001)


def fetched(answers: dict[str, Any], path: str, old: Any, looks: int) -> None:
    """Answer as Flink does: with what is old until `looks` requests for processor times later."""
    new, asked = answers[path], [0]

    def answer_of(tick: Callable[[], Any]) -> Callable[[], Any]:
        first = tick()

        def answer() -> Any:
            asked[0] += 1
            return first if asked[0] <= looks else tick()

        return answer

    for manager in FLINK["/taskmanagers"]["taskmanagers"]:
        processor_time = f"/taskmanagers/{manager['id']}/metrics"
        answers[processor_time] = answer_of(answers[processor_time])
    answers[path] = lambda: old if asked[0] <= looks else new


@pytest.mark.parametrize("old", [[], [{"id": f"{i}.{BUSY}", "value": "0.0"} for i in range(4)]])
def test_what_flink_measured_before_it_was_asked_is_not_read(old: list[dict[str, str]]) -> None:
    answers = flink_answers()
    fetched(answers, METRICS, old, 4)
    s, said = read(answers)
    assert said == []
    count = s.partition_topic == s.topics.index(COUNT)
    assert s.leader_load[count, 0].tolist() == pytest.approx(np.array(recorded(COUNT, BUSY)) / 10)


def test_measurements_that_do_not_change_are_said() -> None:
    answers = flink_answers()
    fetched(answers, METRICS, answers[METRICS], 10**6)
    s, said = read(answers)
    assert s.n_partitions == 18
    manager = FLINK["/taskmanagers"]["taskmanagers"][0]["id"]
    assert said == [
        f"no new measurements of task manager {manager} came in 0.05 s; loads and traffic may be "
        "old"
    ]


def test_rates_of_the_first_minute_are_said_to_be_too_low() -> None:
    answers = flink_answers()
    answers[f"/jobs/{JOB}"]["vertices"][2]["duration"] = 45_059
    _, said = read(answers)
    name = answers[f"/jobs/{JOB}"]["vertices"][2]["name"]
    assert said == [
        f"{name} has run for 45 s; Flink's rates are over 60 s, so the traffic is too low"
    ]


def test_the_host_is_that_of_the_address() -> None:
    answers = flink_answers()
    ids = [manager["id"] for manager in answers["/taskmanagers"]["taskmanagers"]]
    # Task managers in one process have no address; the name in it is not that of a host.
    assert read(answers)[0].hosts == tuple(sorted(ids))
    for number, manager in enumerate(answers["/taskmanagers"]["taskmanagers"]):
        manager["path"] = f"pekko.tcp://flink@10.0.0.{number}:42113/user/rpc/taskmanager_0"
    s, _ = read(answers)
    hosts = dict(zip(s.broker_ids, (s.hosts[host] for host in s.broker_host), strict=True))
    assert hosts == {id_: f"10.0.0.{number}" for number, id_ in enumerate(ids)}


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
    assert s.n_partitions == 17
    assert not any(f"{COUNT}-1" in pair for pair in rates(s))
    assert f"1 of 18 subtasks (such as {COUNT}-1) have no busy time" in said[0]
    if found == "NaN":
        assert len(said) == 1
    else:
        assert said[1].startswith("1 malformed metric skipped, such as 1.busyTimeMsPerSecond of")


def test_a_missing_rate_is_unknown_traffic() -> None:
    answers = flink_answers()
    answers[METRICS] = [m for m in answers[METRICS] if m["id"] != "3.numRecordsOutPerSecond"]
    s, said = read(answers)
    assert s.n_partitions == 18
    (sentence,) = said
    assert f"1 subtask (such as of {COUNT}) without a rate of records out" in sentence
    found = rates(s)
    assert (f"{COUNT}-3", f"{TOTALS}-1") not in found
    # The other sender's own rate, and not all that the receiver measures.
    assert found[f"{COUNT}-2", f"{TOTALS}-1"] == pytest.approx(recorded(COUNT, SENT)[2])


def test_subtasks_that_do_not_run_are_left_out() -> None:
    answers = flink_answers()
    first, second, *_ = answers[SUBTASKS]["subtasks"]
    first["status"], first["taskmanager-id"] = "SCHEDULED", "(unassigned)"
    second["taskmanager-id"] = "10.0.0.99:1-gone"
    s, said = read(answers)
    assert s.n_partitions == 16
    assert said == [
        f"2 of 18 subtasks (such as {COUNT}-0) do not run on one of the task managers; "
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
    assert len(s.traffic_rate) == 4 + 4 + 16 + 12 + 4
    assert s.hosts == tuple(s.broker_ids.tolist())


def test_vertices_of_one_name_stay_apart() -> None:
    answers = flink_answers()
    for found in answers[f"/jobs/{JOB}"]["vertices"]:
        found["name"] = "map"
    s, _ = read(answers)
    assert len(s.topics) == 6
    assert all(name.startswith("map (") for name in s.topics)


def test_a_wide_vertex_is_asked_for_in_parts() -> None:
    answers = flink_answers()
    wide = 130
    for found in answers[f"/jobs/{JOB}"]["vertices"]:
        if found["name"] == COUNT:
            found["parallelism"] = wide
    subtask = answers[SUBTASKS]["subtasks"][0]
    answers[SUBTASKS]["subtasks"] = [{**subtask, "subtask": i} for i in range(wide)]
    answers[METRICS] = [{"id": f"{i}.busyTimeMsPerSecond", "value": str(i)} for i in range(wide)]
    s, _ = read(answers)
    count = s.partition_topic == s.topics.index(COUNT)
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
    nothing = {
        p: [] if "/vertices/" in p and p.endswith("/metrics") else a
        for p, a in flink_answers().items()
    }
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
    result = invoke(args)
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
    assert {name: len(units) for name, units in assigned.items()} == PARALLELISM
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
