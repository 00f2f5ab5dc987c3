"""The API: look, propose, approve, execute exactly what was approved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_cases import Served, ended, planned, served
from waiting import wait_for

from balancer.server.app import description


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Served, httpx.Client]]:
    with served(tmp_path) as found, found.client() as client:
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        yield found, client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server for those who change nothing."""
    access = {"rates": {"requests": 1e6, "changes": 1e6}}
    with (
        served(tmp_path_factory.mktemp("shared"), access=access, run=False) as found,
        found.client() as client,
    ):
        yield client


def test_what_is_approved_is_executed(running: tuple[Served, httpx.Client], tmp_path: Path) -> None:
    found, client = running
    own = wait_for(lambda: client.get("/api/v1/proposals").json())
    assert own[0]["by"] == "controller"
    assert not found.executor.executed
    job = planned(client, "/api/v1/proposals", {"reason": "tonight"})
    assert job["state"] == "done", job
    path = f"/api/v1/proposals/{job['proposal']}"
    kept = client.get(path).json()
    assert kept["state"] == "open"
    assert client.get(f"{path}/changes").json() == []
    plan = client.get(f"{path}/plan").json()
    assert plan["digest"] == kept["digest"]
    actions = client.get(f"{path}/actions?limit=5").json()
    assert actions["total"] == len(plan["actions"])
    refused = client.post(f"{path}/approve", json={"digest": "0" * 64})
    assert refused.status_code == 409
    assert "what was looked at is not this plan" in refused.json()["error"]
    approved = client.post(f"{path}/approve", json={"digest": kept["digest"], "why": "go"})
    assert approved.json()["state"] in ("approved", "executing", "executed")
    wait_for(lambda: client.get(path).json()["state"] == "executed")
    assert [p.digest for p in found.executor.executed] == [kept["digest"]]
    audited = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [(a["who"], a["action"]) for a in audited] == [
        ("anonymous", "propose"),
        ("anonymous", "approve"),
        ("anonymous", "approve"),
    ]


def test_an_exclusion_that_matches_nothing_is_refused_unless_it_is_allowed(
    shared: httpx.Client,
) -> None:
    for path in ("proposals", "what-if"):
        asked: dict[str, Any] = {"excluded_topics": ["topic-0", "topic-*"]}
        refused = shared.post(f"/api/v1/{path}", json={"operation": asked})
        assert refused.status_code == 400
        assert refused.json()["error"] == (
            "excluded_topics: 'topic-*' matches no topic, where a regular expression like "
            "'topic-.*' is expected; --allow-unmatched (allow_unmatched) is for topics that do "
            "not exist yet"
        )
        invalid = shared.post(f"/api/v1/{path}", json={"operation": {"excluded_topics": ["("]}})
        assert invalid.status_code == 400
        asked["allow_unmatched"] = True
        assert planned(shared, f"/api/v1/{path}", {"operation": asked})["state"] == "done"


def test_exclusions_of_the_settings_that_match_nothing_refuse_no_request(
    running: tuple[Served, httpx.Client],
) -> None:
    found, client = running
    settings = found.service.controller.settings
    found.service.controller.configure(settings.model_copy(update={"excluded_topics": ("gone",)}))
    asked = {"operation": {"excluded_topics": ["topic-0"]}}
    assert planned(client, "/api/v1/proposals", asked)["state"] == "done"


def test_a_changed_cluster_executes_nothing(running: tuple[Served, httpx.Client]) -> None:
    found, client = running
    job = planned(client, "/api/v1/proposals", {})
    path = f"/api/v1/proposals/{job['proposal']}"
    kept = client.get(path).json()
    action = client.get(f"{path}/actions?limit=1").json()["actions"][0]
    cluster = found.model.cluster
    topic = cluster.topics.index(action["topic"])
    row = int(
        next(
            p
            for p in range(cluster.n_partitions)
            if (cluster.partition_topic[p], cluster.partition_number[p])
            == (topic, action["partition"])
        )
    )
    start, end = cluster.replica_offset[row : row + 2]
    brokers = cluster.replica_broker.copy()
    brokers[start] = next(b for b in range(6) if b not in brokers[start:end])
    found.model.cluster = replace(cluster, replica_broker=brokers)
    client.post("/api/v1/controller/look")
    changes = wait_for(lambda: client.get(f"{path}/changes").json())
    assert f"{action['topic']}-{action['partition']}" in changes[0]
    client.post(f"{path}/approve", json={"digest": kept["digest"]})
    wait_for(lambda: client.get(path).json()["state"] == "stale")
    assert not found.executor.executed


def test_an_execution_is_paused_adjusted_resumed_and_stopped(
    running: tuple[Served, httpx.Client],
) -> None:
    found, client = running
    found.executor.may_end.clear()
    job = planned(client, "/api/v1/proposals", {})
    path = f"/api/v1/proposals/{job['proposal']}"
    kept = client.get(path).json()
    client.post(f"{path}/approve", json={"digest": kept["digest"]})
    wait_for(lambda: client.get("/api/v1/execution").json())
    assert client.post("/api/v1/execution/pause", json={"why": "noon"}).json()["paused"]
    changed = client.patch("/api/v1/execution/limits", json={"throttle": "20MB/s"})
    assert changed.json()["limits"]["throttle"] == 20e6
    assert client.patch("/api/v1/execution/limits", json={"throttle": 1}).status_code == 400
    assert not client.post("/api/v1/execution/resume", json={}).json()["paused"]
    client.post("/api/v1/execution/stop", json={"why": "enough"})
    wait_for(lambda: client.get(path).json()["state"] == "failed")
    assert client.post("/api/v1/execution/stop", json={}).status_code == 409


def test_events_follow_decisions_and_proposals(running: tuple[Served, httpx.Client]) -> None:
    _, client = running
    kinds = []
    with client.stream("GET", "/api/v1/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
            if {"state", "decision"} <= {*kinds}:
                break
    assert kinds[0] == "state"


def _events(found: Served, client: httpx.Client, last: str | None, until: str) -> list[str]:
    """Lines that a follower gets until one has a text."""
    lines = []
    headers = {} if last is None else {"Last-Event-ID": last}
    with client.stream("GET", "/api/v1/events", headers=headers) as stream:
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        found.server.events.publish("test", {"at": until})
        for line in stream.iter_lines():
            lines.append(line)
            if until in line:
                return lines
    raise AssertionError("the stream ended")


def test_who_comes_back_gets_the_events_that_were_missed(tmp_path: Path) -> None:
    with served(tmp_path, run=False) as found, found.client() as client:
        lines = _events(found, client, None, "first")
        assert lines[0] == "event: state"
        last = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
        for number in range(3):
            found.server.events.publish("test", {"missed": number})
        lines = _events(found, client, last, "second")
        told = [line for line in lines if line.startswith("data: ")]
        assert ["missed" in line for line in told] == [True, True, True, False]
        for number in range(200):
            found.server.events.publish("test", {"missed": number})
        run, _, at = last.partition("-")
        for odd in (last, "", "7", f"other-{at}", f"{run}-{'9' * 30}", f"{run}-999999", f"{run}-x"):
            assert _events(found, client, odd, "third")[0] == "event: state", odd


def test_what_if_and_why_not(running: tuple[Served, httpx.Client]) -> None:
    found, client = running
    asked = {"hypothesis": {"add_brokers": 2}, "operation": {"kind": "rebalance"}}
    job = planned(client, "/api/v1/what-if", asked)
    assert len(job["result"]["after"]) == 8
    lost = planned(client, "/api/v1/what-if", {"hypothesis": {"lose_racks": ["nowhere"]}})
    assert "rack" in lost["error"]
    topic = found.model.cluster.topics[0]
    answer = planned(client, "/api/v1/why-not", {"partition": f"{topic}-0", "broker": 1})
    assert answer["state"] == "done", answer


@pytest.mark.parametrize(
    "path",
    [
        "state",
        "cluster",
        "cluster/brokers",
        "cluster/brokers?sort=disk",
        "cluster/racks",
        "cluster/disks",
        "cluster/topics",
        "cluster/partitions?broker=1",
        "goals",
        "findings",
        "decisions",
        "settings",
        "operations",
        "profiles",
        "execution",
        "proposals",
        "openapi.json",
    ],
)
def test_every_view_answers(shared: httpx.Client, path: str) -> None:
    answer = shared.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.text
    answer.json()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/v1/proposals/none", None, 404),
        ("GET", "/api/v1/nothing", None, 404),
        ("GET", "/api/v1/cluster/brokers?sort=dist", None, 400),
        ("GET", "/api/v1/cluster/partitions?broker=99", None, 400),
        ("GET", "/api/v1/cluster/brokers/99", None, 404),
        ("GET", "/api/v1/cluster/brokers/99/proposals", None, 404),
        ("GET", "/api/v1/cluster/columns/dist", None, 404),
        ("DELETE", "/api/v1/cluster", None, 405),
        ("POST", "/api/v1/proposals", {"budget": {"moves": False}}, 422),
        ("POST", "/api/v1/proposals", {"operation": {"brokers": [True]}}, 422),
        ("POST", "/api/v1/proposals", {"operation": {"replication_factor": {"a": True}}}, 422),
        ("POST", "/api/v1/what-if", {"hypothesis": {"add_brokers": True}}, 422),
        ("POST", "/api/v1/what-if", {"hypothesis": {"lose_brokers": [True]}}, 422),
        ("POST", "/api/v1/why-not", {"partition": "a-0", "broker": False}, 422),
        ("PATCH", "/api/v1/execution/limits", {"throttle": True}, 422),
        ("POST", "/api/v1/proposals", {"operation": {"kind": "no"}}, 202),
        ("POST", "/api/v1/proposals", {"goals": "/etc/passwd"}, 400),
        ("POST", "/api/v1/proposals", {"bogus": 1}, 422),
        ("POST", "/api/v1/execution/pause", {}, 409),
    ],
)
def test_bad_requests_get_one_sentence(
    shared: httpx.Client, method: str, path: str, body: Any, status: int
) -> None:
    answer = shared.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    if status == 202:
        job = ended(shared, answer.json())
        assert job["state"] == "failed"
        assert job["error"]
    else:
        assert set(answer.json()) == {"error"}


def test_a_method_that_is_not_allowed_names_the_others(
    shared: httpx.Client,
) -> None:
    for path, methods in (
        ("/api/v1/cluster", "GET"),
        ("/health/live", "GET"),
        ("/metrics", "GET"),
        ("/api/v1/proposals", "GET, POST"),
        ("/api/v1/jobs/1", "DELETE, GET"),
    ):
        answer = shared.put(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_every_refusal_is_described_as_it_is() -> None:
    """A client made from the description reads the sentence of a refusal."""
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            refusals = {
                status: answer["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
                for status, answer in operation["responses"].items()
                if not status.startswith("2")
            }
            assert set(refusals.values()) == {"Refusal"}, (method, path)
            assert {"400", "401", "403", "404", "409", "422", "429", "503"} <= set(refusals)


@pytest.mark.soak
def test_the_description_is_valid_openapi() -> None:
    from openapi_spec_validator import validate

    validate(description())
