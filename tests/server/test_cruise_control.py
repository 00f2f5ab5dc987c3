"""Cruise Control's API, with its own Python client and with plain requests."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from cruisecontrolclient.client import cccli
from server_cases import Served, served
from waiting import LIMIT, wait_for

from balancer.server.access import Actor
from balancer.server.cruise_control import router
from balancer.server.cruise_control.goals import chosen_goals
from balancer.server.errors import RequestError
from balancer.server.jobs import Job
from cluster_model import Snapshot, synthetic_snapshot
from goals import load_goals

BASE = "/kafkacruisecontrol"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, httpx.Client]]:
    """A server that executes nothing until it is asked."""
    access = {"rates": {"changes": 100}}
    with (
        served(tmp_path_factory.mktemp("server"), access=access) as found,
        found.client() as client,
    ):
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        yield found, client


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Served, httpx.Client]]:
    """The same for a test that changes the cluster."""
    with served(tmp_path) as found, found.client() as client:
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        yield found, client


def cccli_prints(
    server: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *words: str,
) -> str:
    """What Cruise Control's client prints."""
    address = server.server.url.removeprefix("http://")
    monkeypatch.setattr(sys, "argv", ["cccli", "-a", address, *words])
    capsys.readouterr()
    cccli.main()
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["add_broker", "1", "--dry-run"], "summary"),
        (["demote_broker", "1", "--dry-run"], "summary"),
        (["fix_offline_replicas", "--dry-run"], "summary"),
        (["kafka_cluster_state"], "KafkaBrokerState"),
        (["load"], "brokers"),
        (["partition_load", "--resource", "disk"], "records"),
        (["proposals"], "summary"),
        (["rebalance", "--dry-run"], "summary"),
        (["remove_broker", "1", "--dry-run"], "summary"),
        (["rightsize"], "provisionerState"),
        (["review_board"], "RequestInfo"),
        (["state"], "ExecutorState"),
        (["stop_proposal_execution"], "message"),
        (
            ["topic_configuration", "--topic", ".*0", "--replication-factor", "2", "--dry-run"],
            "summary",
        ),
        (["user_tasks"], "userTasks"),
        (["admin", "--concurrency", "3"], "errorMessage"),
        (["bootstrap"], "errorMessage"),
        (["pause_sampling"], "errorMessage"),
        (["resume_sampling"], "errorMessage"),
        (["review", "--approve", "5"], "errorMessage"),
        (["train"], "errorMessage"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_each_sub_command_of_the_client(
    running: tuple[Served, httpx.Client],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    key: str,
) -> None:
    printed = cccli_prints(running[0], monkeypatch, capsys, *words, "--json", "true")
    answer = json.loads(printed)
    assert key in answer, answer
    assert answer["version"] == 1
    if key == "errorMessage":
        assert answer["stackTrace"] == ""
        assert len(answer["errorMessage"]) > 40
    text = cccli_prints(running[0], monkeypatch, capsys, *words)
    assert text.strip()
    assert not text.startswith("{"), text
    assert not running[0].executor.executed


def test_rebalance_with_dry_run_off_moves_replicas(
    own: tuple[Served, httpx.Client],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, client = own
    before = found.model.cluster
    # without --dry-run the client asks to execute
    words = ("rebalance", "--json", "true", "--verbose", "true")
    answer = json.loads(cccli_prints(found, monkeypatch, capsys, *words))
    assert "is executed exactly as it is" in answer["message"]
    wait_for(lambda: found.model.cluster is not before)
    (plan,) = found.executor.executed
    assert answer["summary"]["numReplicaMovements"] == plan.summary.replica_moves > 0
    after = found.model.cluster
    held = brokers_of(after)
    for change in answer["proposals"]:
        where = (change["topicPartition"]["topic"], change["topicPartition"]["partition"])
        assert sorted(held[where]) == sorted(change["newReplicas"])
        assert sorted(brokers_of(before)[where]) == sorted(change["oldReplicas"])
    url = f"{BASE}/user_tasks?json=true&fetch_completed_task=true&endpoints=rebalance"

    def completed() -> Any:
        (task,) = client.get(url).json()["userTasks"]
        return task["Status"] == "Completed" and task

    original = json.loads(wait_for(completed)["originalResponse"])
    assert original["summary"] == answer["summary"]
    reviews = client.get(f"{BASE}/review_board?json=true").json()["RequestInfo"]
    assert "SUBMITTED" in [r["Status"] for r in reviews]


def brokers_of(snapshot: Snapshot) -> dict[tuple[str, int], list[int]]:
    return {
        (snapshot.topics[t], n): snapshot.broker_ids[snapshot.replica_broker[a:b]].tolist()
        for t, n, a, b in zip(
            snapshot.partition_topic.tolist(),
            snapshot.partition_number.tolist(),
            snapshot.replica_offset[:-1].tolist(),
            snapshot.replica_offset[1:].tolist(),
            strict=True,
        )
    }


def test_dry_run_is_the_default_and_changes_nothing(running: tuple[Served, httpx.Client]) -> None:
    found, client = running
    before = found.model.cluster
    kept = client.get("/api/v1/proposals").json()
    answer = client.post(f"{BASE}/rebalance?json=true")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cruise-Control-Version"] == "3.0.4"
    assert "message" not in answer.json()
    assert [p for p in client.get("/api/v1/proposals").json() if p["by"] != "controller"] == [
        p for p in kept if p["by"] != "controller"
    ]
    assert found.model.cluster is before


def test_the_plan_of_the_dry_run_is_the_one_that_is_executed(
    own: tuple[Served, httpx.Client],
) -> None:
    found, client = own
    asked = f"{BASE}/rebalance?json=true&verbose=true&excluded_topics=none"
    seen = client.post(asked).json()
    s = found.model.cluster
    # other loads give another plan, but the one that was seen still applies
    found.model.cluster = replace(s, leader_load=s.leader_load[::-1].copy())
    client.post("/api/v1/controller/look")
    wait_for(lambda: found.service.view().snapshot is found.model.cluster)
    again = client.get(f"{BASE}/proposals?json=true&verbose=true&excluded_topics=none").json()
    assert again["proposals"] != seen["proposals"]
    done = client.post(f"{asked}&dryrun=false").json()
    assert done["proposals"] == seen["proposals"]
    assert done["summary"] == seen["summary"]
    wait_for(lambda: found.executor.executed)


def test_an_exclusion_that_matches_nothing_is_planned_as_there_and_said(
    running: tuple[Served, httpx.Client],
) -> None:
    answer = running[1].get(f"{BASE}/proposals?json=true&excluded_topics=none").json()
    assert "excluded_topics: 'none' matches none of the snapshot's topics." in answer["message"]
    assert answer["summary"]["excludedTopics"] == []


def test_a_dry_run_that_no_longer_applies_is_planned_anew(
    own: tuple[Served, httpx.Client],
) -> None:
    found, client = own
    asked = f"{BASE}/rebalance?json=true&verbose=true"
    change = client.post(asked).json()["proposals"][0]
    s = found.model.cluster
    where = change["topicPartition"]
    row = list(brokers_of(s)).index((where["topic"], where["partition"]))
    start, end = s.replica_offset[row : row + 2]
    brokers = s.replica_broker.copy()
    brokers[end - 1] = next(b for b in range(6) if b not in brokers[start:end])
    found.model.cluster = replace(s, replica_broker=brokers)
    client.post("/api/v1/controller/look")
    wait_for(lambda: found.service.view().snapshot is found.model.cluster)
    done = client.post(f"{asked}&dryrun=false").json()
    assert "The plan of the dry run no longer applies" in done["message"]
    assert "is executed exactly as it is" in done["message"]
    wait_for(lambda: found.executor.executed)


def test_what_strimzi_reads_is_there(running: tuple[Served, httpx.Client]) -> None:
    answer = running[1].post(f"{BASE}/rebalance?json=true&verbose=true&dryrun=true").json()
    assert set(answer) == {
        "summary",
        "goalSummary",
        "loadBeforeOptimization",
        "loadAfterOptimization",
        "proposals",
        "version",
    }
    figures = answer["summary"]
    assert set(figures) == {
        "numReplicaMovements",
        "dataToMoveMB",
        "numIntraBrokerReplicaMovements",
        "intraBrokerDataToMoveMB",
        "numLeaderMovements",
        "recentWindows",
        "monitoredPartitionsPercentage",
        "excludedTopics",
        "excludedBrokersForReplicaMove",
        "excludedBrokersForLeadership",
        "onDemandBalancednessScoreBefore",
        "onDemandBalancednessScoreAfter",
        "provisionStatus",
        "provisionRecommendation",
    }
    assert figures["dataToMoveMB"] > 0
    for part in ("loadBeforeOptimization", "loadAfterOptimization"):
        for broker in answer[part]["brokers"]:
            assert {
                "Broker",
                "DiskMB",
                "DiskPct",
                "CpuPct",
                "LeaderNwInRate",
                "FollowerNwInRate",
                "NwOutRate",
                "PnwOutRate",
                "Leaders",
                "Replicas",
            } <= set(broker)
    assert {g["status"] for g in answer["goalSummary"]} <= {"VIOLATED", "FIXED", "NO-ACTION"}
    assert "RackAwareGoal" in [g["goal"] for g in answer["goalSummary"]]


def test_loads_are_in_the_units_of_cruise_control(running: tuple[Served, httpx.Client]) -> None:
    found, client = running
    s = found.model.cluster
    answer = client.get(f"{BASE}/load?json=true&populate_disk_info=true").json()
    ours = {b.broker: b for b in found.service.load().brokers()}
    for broker in answer["brokers"]:
        like = ours[broker["Broker"]]
        assert broker["Rack"] == like.rack
        assert broker["DiskMB"] == pytest.approx(like.figures["disk"].amount / 2**20)
        assert broker["DiskCapacityMB"] == pytest.approx(like.capacity["disk"] / 2**20)
        assert broker["CpuPct"] == pytest.approx(100 * (like.figures["cpu"].of_capacity or 0))
        rate = broker["LeaderNwInRate"] + broker["FollowerNwInRate"]
        assert rate == pytest.approx(like.figures["network_in"].amount / 1024)
        assert broker["NwOutRate"] == pytest.approx(like.figures["network_out"].amount / 1024)
        assert broker["PnwOutRate"] >= broker["NwOutRate"]
        assert broker["Replicas"] == like.figures["replica_count"].amount
    leaders = sum(b["Leaders"] for b in answer["brokers"])
    assert leaders == sum(h["Leaders"] for h in answer["hosts"]) == s.n_partitions
    only = client.get(f"{BASE}/load?json=true&capacity_only=true").json()["brokers"][0]
    assert "DiskMB" not in only
    assert "NumCore" in only
    most = client.get(f"{BASE}/partition_load?json=true&entries=3").json()["records"]
    assert [r["disk"] for r in most] == sorted((r["disk"] for r in most), reverse=True)
    assert len(most) == 3


def test_goals_have_both_names_and_hard_ones_may_not_be_left_out(
    running: tuple[Served, httpx.Client],
) -> None:
    client = running[1]
    package = "com.linkedin.kafka.cruisecontrol.analyzer.goals."
    refused = client.post(f"{BASE}/rebalance?json=true&goals=ReplicaDistributionGoal")
    assert refused.status_code == 400
    assert "Missing hard goals" in refused.json()["errorMessage"]
    for goals in ("ReplicaDistributionGoal,CpuCapacityGoal", f"{package}RackAwareGoal"):
        url = f"{BASE}/rebalance?json=true&skip_hard_goal_check=true&goals={goals}"
        answer = client.post(url).json()
        asked = [name.removeprefix(package) for name in goals.split(",")]
        found = [g["goal"] for g in answer["goalSummary"]]
        assert [name for name in asked if name not in found] == []


def test_the_hard_goals_that_cruise_control_has_by_default_suffice(
    running: tuple[Served, httpx.Client],
) -> None:
    found, client = running
    # DEFAULT_HARD_GOALS of its AnalyzerConfig
    asked = (
        "RackAwareGoal,MinTopicLeadersPerBrokerGoal,ReplicaCapacityGoal,DiskCapacityGoal,"
        "NetworkInboundCapacityGoal,NetworkOutboundCapacityGoal,CpuCapacityGoal"
    )
    names = {g.name for g in found.service.balancer.goals if g.hard}
    assert "BrokerSetAwareness" in names
    answer = client.get(f"{BASE}/proposals?json=true&goals={asked}")
    assert answer.status_code == 200, answer.text
    assert {*asked.split(",")} <= {g["goal"] for g in answer.json()["goalSummary"]}
    few = asked.removesuffix(",CpuCapacityGoal")
    refused = client.get(f"{BASE}/proposals?json=true&goals={few}")
    assert "Missing hard goals ['CpuCapacityGoal']" in refused.json()["errorMessage"]


def test_hard_goals_of_broker_sets_are_needed_where_there_are_sets() -> None:
    plain = synthetic_snapshot(brokers=6, partitions=30, racks=3)
    sets = replace(plain, broker_sets=("a", "b"), broker_set=np.arange(6) % 2)
    goals = load_goals({"goals": [{"goal": "BrokerSetAwareness"}, {"goal": "ReplicaCapacity"}]})
    (chosen,) = chosen_goals(["ReplicaCapacityGoal"], goals, plain, skip_hard_check=False)
    assert chosen.name == "ReplicaCapacity"
    with pytest.raises(RequestError, match="BrokerSetAwareGoal"):
        chosen_goals(["ReplicaCapacityGoal"], goals, sets, skip_hard_check=False)


def test_a_long_request_is_answered_with_its_progress(
    own: tuple[Served, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, client = own
    may_go_on = threading.Event()
    found.service.jobs.submit(
        Job("wait", Actor("test", "viewer"), lambda stop, said: may_go_on.wait(LIMIT))
    )
    monkeypatch.setattr(router, "_BLOCKS", 0.1)
    url = f"{BASE}/rebalance?json=true&reason=slowly"
    first = client.post(url)
    assert first.status_code == 202
    assert first.json()["progress"][0]["operation"] == "rebalance"
    identity = first.headers["User-Task-ID"]
    again = client.post(url)
    assert (again.status_code, again.headers["User-Task-ID"]) == (202, identity)
    active = client.get(f"{BASE}/user_tasks?json=true&types=active").json()["userTasks"]
    assert [t["UserTaskId"] for t in active] == [identity]
    may_go_on.set()
    stated = {"User-Task-ID": identity}
    wait_for(lambda: client.post(url, headers=stated).status_code == 200)
    assert "summary" in client.post(url, headers=stated).json()
    other = client.post(url)
    assert other.headers["User-Task-ID"] != identity
    wrong = client.post(f"{BASE}/rebalance?json=true", headers={"User-Task-ID": "none"})
    assert wrong.status_code == 400


def test_with_two_reviewers_it_waits_on_the_review_board(tmp_path: Path) -> None:
    settings = {"approval": {"mode": "manual", "reviewers": 2}}
    tokens = {name: {"role": "operator"} for name in "abc"}
    for name, token in tokens.items():
        token["sha256"] = hashlib.sha256(name.encode()).hexdigest()
    tokens["v"] = {"role": "viewer", "sha256": hashlib.sha256(b"v").hexdigest()}
    with (
        served(tmp_path, settings=settings, access={"tokens": tokens}) as found,
        found.client() as client,
    ):
        wait_for(lambda: client.get("/health/ready").status_code == 200)

        def ask(who: str, method: str, path: str) -> httpx.Response:
            return client.request(
                method, f"{BASE}/{path}", headers={"Authorization": f"Bearer {who}"}
            )

        refused = ask("v", "POST", "rebalance?json=true&dryrun=false")
        assert refused.status_code == 403
        assert "operator needed" in refused.json()["errorMessage"]
        assert ask("v", "GET", "permissions?json=true").json() == ["VIEWER"]
        asked = ask("a", "POST", "rebalance?json=true&dryrun=false&excluded_topics=none")
        assert "review board" in asked.json()["message"]
        (task,) = ask("a", "GET", "user_tasks?json=true").json()["userTasks"]
        assert task["Status"] == "Active"

        def board() -> list[Any]:
            found = ask("a", "GET", "review_board?json=true").json()["RequestInfo"]
            return [r for r in found if r["SubmitterAddress"] == "a"]

        (review,) = board()
        assert review["Status"] == "PENDING_REVIEW"
        again = ask("a", "POST", f"rebalance?json=true&dryrun=false&review_id={review['Id']}")
        assert again.json()["RequestInfo"] == [review]
        for who in "bc":
            done = ask(who, "POST", f"review?json=true&approve={review['Id']}")
            assert done.status_code == 200, done.text
        wait_for(lambda: found.executor.executed)
        wait_for(lambda: board()[0]["Status"] == "SUBMITTED")


def test_outside_of_windows_the_answer_says_so(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    window = {
        "start": f"{now + timedelta(hours=5):%H:%M}",
        "end": f"{now + timedelta(hours=6):%H:%M}",
    }
    settings = {"approval": {"mode": "manual", "windows": [window]}}
    with served(tmp_path, settings=settings) as found, found.client() as client:
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        answer = client.post(f"{BASE}/rebalance?json=true&dryrun=false").json()
        assert "waits for a maintenance window" in answer["message"]
        assert not found.executor.executed


def test_an_execution_is_shown_adjusted_and_stopped(own: tuple[Served, httpx.Client]) -> None:
    found, client = own
    found.executor.may_end.clear()
    client.post(f"{BASE}/rebalance?json=true&dryrun=false")

    def executor() -> Any:
        return client.get(f"{BASE}/state?json=true&substates=executor").json()["ExecutorState"]

    wait_for(lambda: executor()["state"].startswith("INTER_BROKER_REPLICA_MOVEMENT"))
    assert wait_for(lambda: executor().get("totalDataToMove")) > 0
    (task,) = client.get(f"{BASE}/user_tasks?json=true").json()["userTasks"]
    assert (task["Status"], task["UserTaskId"]) == (
        "InExecution",
        executor()["triggeredUserTaskId"],
    )
    second = client.post(f"{BASE}/rebalance?json=true&dryrun=false&reason=again")
    assert second.status_code == 500
    assert "ongoing execution" in second.json()["errorMessage"]
    done = client.post(f"{BASE}/admin?json=true&concurrent_partition_movements_per_broker=3")
    assert "set to 3" in done.json()["ongoingConcurrencyChangeRequest"]
    assert executor()["maximumConcurrentPartitionMovementsPerBroker"] == 3
    client.post(f"{BASE}/stop_proposal_execution?json=true")
    wait_for(lambda: executor()["state"] == "NO_TASK_IN_PROGRESS")
    (task,) = client.get(f"{BASE}/user_tasks?json=true").json()["userTasks"]
    assert task["Status"] == "CompletedWithError"


def test_a_recovery_is_not_taken_for_an_election_of_leaders(
    running: tuple[Served, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, client = running
    work: dict[str, object] = {"cause": "recovery", "plan": {}, "proposal": None, "progress": None}
    limits = {"concurrent_moves_per_broker": 5, "leadership_batch": 100}
    monkeypatch.setattr(found.service, "execution", lambda: {**work, "limits": limits})
    answer = client.get(f"{BASE}/state?json=true&substates=executor").json()
    assert answer["ExecutorState"]["state"] == "STARTING_EXECUTION"


def test_what_waits_for_approval_does_not_heal_itself(
    running: tuple[Served, httpx.Client],
) -> None:
    url = f"{BASE}/state?json=true&substates=anomaly_detector"
    found = running[1].get(url).json()["AnomalyDetectorState"]
    assert sorted(found["selfHealingEnabled"]) == ["BROKER_FAILURE", "DISK_FAILURE"]
    assert {"GOAL_VIOLATION", "TOPIC_ANOMALY"} <= set(found["selfHealingDisabled"])


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "nothing", 404, "Unrecognized endpoint"),
        ("GET", "rebalance", 405, "POST expected"),
        ("POST", "rebalance?bogus=1", 400, "Unrecognized endpoint parameters"),
        ("POST", "rebalance?dryrun=maybe", 400, "true or false expected"),
        ("POST", "rebalance?dryrun=true&DryRun=false", 400, "two values found"),
        ("POST", "rebalance?goals=BestGoal", 400, "one of RackAwareGoal"),
        ("POST", "rebalance?replication_throttle=5", 400, "/api/v1/execution/limits"),
        ("POST", "rebalance?kafka_assigner=true", 400, "RackAwareGoal"),
        ("POST", "rebalance?excluded_topics=(", 400, "a regular expression expected"),
        (
            "POST",
            "rebalance?excluded_topics=topic-*",
            400,
            "expression like 'topic-.*' is expected",
        ),
        ("POST", "remove_broker?brokerid=99", 500, "IllegalArgumentException: Broker 99 does not"),
        ("POST", "remove_broker", 400, "brokerid"),
        ("POST", "topic_configuration?topic=t", 400, "replication_factor"),
        ("POST", "remove_disks?brokerid_and_logdirs=1-/a", 501, "remove_broker"),
        ("POST", "rightsize?num_brokers_to_add=2", 501, "not created here"),
        ("POST", "admin?enable_self_healing_for=goal_violation", 501, "settings file"),
        ("POST", "rebalance?doAs=root", 400, "Unrecognized endpoint parameters"),
        ("POST", "rebalance?dryrun=false&review_id=7", 400, "not found on the review board"),
        ("GET", "load?start=5", 400, "history"),
        ("GET", "partition_load?resource=gpu", 400, "one of cpu"),
        ("GET", "partition_load?entries=-1", 400, "a number expected"),
        ("GET", "state?substates=all", 400, "Unsupported substates"),
        ("GET", "permissions", 400, "unsecure connection"),
        ("POST", "review", 400, "approve or discard"),
        ("POST", "review?discard=1", 400, "not found on the review board"),
    ],
)
def test_errors_have_cruise_controls_shape(
    running: tuple[Served, httpx.Client], method: str, path: str, status: int, said: str
) -> None:
    joint = "&" if "?" in path else "?"
    answer = running[1].request(method, f"{BASE}/{path}{joint}json=true")
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"errorMessage", "stackTrace", "version"}
    assert said in answer.json()["errorMessage"]
    text = running[1].request(method, f"{BASE}/{path}")
    assert text.headers["content-type"].startswith("text/plain")
    assert said in text.text


def test_a_response_states_its_schema_if_asked(running: tuple[Served, httpx.Client]) -> None:
    client = running[1]
    answer = client.get(f"{BASE}/state?json=true&get_response_schema=true")
    schema = json.loads(answer.headers["Cruise-Control-JSON-Schema"])
    assert set(schema["properties"]) == set(answer.json())
    assert "Cruise-Control-JSON-Schema" not in client.get(f"{BASE}/state?json=true").headers
