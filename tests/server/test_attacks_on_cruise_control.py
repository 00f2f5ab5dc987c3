"""Cruise Control's API as somebody uses it who wants to break it, or by mistake."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from server_cases import Served, planned, served
from waiting import LIMIT

from balancer.server.cruise_control import loads
from cluster_model import synthetic_snapshot

BASE = "/kafkacruisecontrol"
ERROR = {"errorMessage", "stackTrace", "version"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, httpx.Client]]:
    """A server with small limits, whose cluster has a name that is slow to match."""
    cluster = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    slow = replace(cluster, topics=("a" * 40, *cluster.topics[1:]))
    access = {"rates": {"requests": 1e4, "changes": 1e4}, "max_body": 10_000, "idle_timeout": 1}
    with (
        served(
            tmp_path_factory.mktemp("attacked"),
            snapshot=slow,
            access=access,
            run=False,
        ) as found,
        found.client() as client,
    ):
        yield found, client


@pytest.mark.parametrize("path", ["LOAD", "Load", "PARTITION_LOAD", "State", "Kafka_Cluster_State"])
def test_names_of_endpoints_are_not_case_sensitive(
    attacked: tuple[Served, httpx.Client], path: str
) -> None:
    client = attacked[1]
    asked, same = (
        client.get(f"{BASE}/{path}?json=true"),
        client.get(f"{BASE}/{path.lower()}?json=true"),
    )
    assert asked.status_code == 200, asked.text
    assert asked.json() == same.json()


def test_a_task_is_fetched_with_the_request_that_made_it_only(
    attacked: tuple[Served, httpx.Client],
) -> None:
    client = attacked[1]
    url = f"{BASE}/rebalance?json=true&excluded_topics=none"
    made = client.post(url)
    stated = {"User-Task-ID": made.headers["User-Task-ID"]}
    assert client.post(url, headers=stated).json() == made.json()
    # Parameters in another order, or in a form, are the same request.
    turned = f"{BASE}/REBALANCE?excluded_topics=none&JSON=true"
    assert client.post(turned, headers=stated).json() == made.json()
    # A client must not take the answer of a dry run for that of an execution.
    for other in (f"{url}&dryrun=false", f"{BASE}/rebalance?json=true"):
        refused = client.post(other, headers=stated)
        assert refused.status_code == 400, refused.text
        assert "another request" in refused.json()["errorMessage"]
    assert not attacked[0].executor.executed


def test_a_form_that_is_too_large_or_too_slow_is_no_internal_error(
    attacked: tuple[Served, httpx.Client],
) -> None:
    client = attacked[1]

    def large() -> Iterator[bytes]:
        for _ in range(30):
            yield b"x" * 1000

    for content, status in ((large(), 413), (b"x" * 20_000, 413)):
        answer = client.post(f"{BASE}/rebalance?json=true", content=content, headers=FORM)
        assert answer.status_code == status, answer.text
        assert set(answer.json()) == ERROR


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "load", 405),
        ("DELETE", "rebalance", 405),
        ("GET", "load/more", 404),
        ("GET", "", 404),
        ("POST", "rebalance", 403),
        ("GET", "load", 421),
        ("GET", "load", 400),
    ],
)
def test_refusals_before_the_endpoint_have_cruise_controls_shape(
    attacked: tuple[Served, httpx.Client], method: str, path: str, status: int
) -> None:
    headers = {
        403: {"Origin": "https://evil.example"},
        421: {"Host": "evil.example"},
        400: {"Host": "a@b"},
    }.get(status, {})
    client = attacked[1]
    answer = client.request(method, f"{BASE}/{path}?json=true", headers=headers)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == ERROR
    assert answer.headers["Cruise-Control-Version"]
    text = client.request(method, f"{BASE}/{path}", headers=headers)
    assert text.headers["content-type"].startswith("text/plain")
    assert not text.text.startswith("{")


@pytest.mark.parametrize("factor", [7, 10**15 - 1])
def test_a_huge_replication_factor_is_refused_before_memory_is_taken(
    attacked: tuple[Served, httpx.Client], factor: int
) -> None:
    client = attacked[1]
    answer = client.post(
        f"{BASE}/topic_configuration?json=true&topic=.*&replication_factor={factor}"
    )
    said = answer.json()["errorMessage"]
    assert "6 brokers" in said, said
    assert "Error:" not in said
    operation = {"kind": "change_replication_factor", "replication_factor": {".*": factor}}
    job = planned(client, "/api/v1/what-if", {"operation": operation})
    assert job["state"] == "failed"
    assert "6 brokers" in job["error"]


def test_slow_patterns_do_not_take_all_processors(
    attacked: tuple[Served, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, client = attacked
    at_once, most, lock, run = 0, 0, threading.Lock(), subprocess.run

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        try:
            return run(*arguments, **options)
        finally:
            with lock:
                at_once -= 1

    monkeypatch.setattr(subprocess, "run", counted)
    url = f"{found.server.url}{BASE}/partition_load?json=true&topic=(a%2B)%2Bb"
    answers: list[httpx.Response] = []

    def ask(number: int) -> None:
        answers.append(httpx.get(f"{url}{number}", timeout=LIMIT, verify=False))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    assert client.get(f"{BASE}/state?json=true").status_code == 200
    for thread in threads:
        thread.join()
    assert {a.status_code for a in answers} == {400, 429}, [a.text for a in answers]
    assert most == 1
    late = [a.json()["errorMessage"] for a in answers if a.status_code == 400]
    assert all("not matched within" in said for said in late)


def test_a_review_that_contradicts_itself_decides_nothing(tmp_path: Path) -> None:
    with (
        served(
            tmp_path, settings={"approval": {"mode": "manual", "reviewers": 2}}, run=False
        ) as found,
        found.client() as client,
    ):
        asked = client.post(f"{BASE}/rebalance?json=true&dryrun=false&excluded_topics=none")
        assert "review board" in asked.json()["message"], asked.text
        board = client.get(f"{BASE}/review_board?json=true").json()["RequestInfo"]
        first = board[0]["Id"]
        for query in (f"approve={first}&discard={first}", f"discard={first}&approve=1"):
            refused = client.post(f"{BASE}/review?json=true&{query}")
            assert refused.status_code == 400, refused.text
        after = client.get(f"{BASE}/review_board?json=true").json()["RequestInfo"]
        assert after == board


@pytest.mark.parametrize(
    "path",
    [
        "admin?concurrent_leader_movements=3",
        "review?approve=1",
        "stop_proposal_execution?",
        "proposals?ignore_proposal_cache=true",
    ],
)
def test_a_reason_of_any_length_is_no_internal_error(
    attacked: tuple[Served, httpx.Client], path: str
) -> None:
    client, method = attacked[1], "GET" if path.startswith("proposals") else "POST"
    asked, same = (
        client.request(method, f"{BASE}/{path}&json=true&reason={reason}")
        for reason in ("x" * 1001, "x")
    )
    assert "internal error" not in asked.text
    assert asked.status_code == same.status_code


@pytest.mark.parametrize("name", ["max_load", "avg_load"])
def test_loads_of_the_past_are_not_silently_replaced(
    attacked: tuple[Served, httpx.Client], name: str
) -> None:
    client = attacked[1]
    url = f"{BASE}/partition_load?json=true&entries=1&{name}="
    assert client.get(f"{url}false").status_code == 200
    answer = client.get(f"{url}true")
    if name == "max_load":
        assert answer.status_code == 400
        assert "only the load now" in answer.json()["errorMessage"]
    else:
        assert answer.status_code == 200


def test_all_partitions_are_sent_in_parts(
    attacked: tuple[Served, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = attacked[1]
    url = f"{BASE}/partition_load?get_response_schema=true"
    whole, text = client.get(f"{url}&json=true"), client.get(url)
    monkeypatch.setattr(loads, "_PART", 7)
    parts = client.get(f"{url}&json=true")
    assert "content-length" not in parts.headers
    assert parts.json() == whole.json()
    assert len(parts.json()["records"]) == 60
    schema = "Cruise-Control-JSON-Schema"
    assert parts.headers[schema] == whole.headers[schema]
    assert client.get(url).text == text.text
    lines = text.text.splitlines()
    assert len(lines) == 61
    assert len({len(line) for line in lines}) == 1
    assert client.get(f"{url}&json=true&entries=0").json() == {"records": [], "version": 1}
    leaderless = replace(attacked[0].model.cluster, leader=np.full(60, -1, np.int64))
    answer = loads.partition_load(
        leaderless, resource="disk", entries=1, topic=None, partition=None, brokers=()
    )
    ((record,),) = answer.parts()
    assert record["leader"] is None
    assert len(record["followers"]) == 3
