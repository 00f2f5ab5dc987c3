"""What one client may not do to others: fill the queue, lift a hold, end plans, hide a failure."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from server_cases import Served, after, served
from waiting import LIMIT, wait_for

from balancer.inspection.load import ClusterLoad
from balancer.server import server, service
from balancer.server.settings import Role

# Each has a token like their name.
PEOPLE: dict[str, Role] = {
    "vi": "viewer",
    "vo": "viewer",
    "ola": "operator",
    "olf": "operator",
    "ada": "admin",
}
TOKENS = {
    name: {"sha256": hashlib.sha256(name.encode()).hexdigest(), "role": role}
    for name, role in PEOPLE.items()
}
# that anyio has for requests
THREADS = 40
ACCESS: dict[str, Any] = {"tokens": TOKENS, "rates": {"changes": 1000}}


class People:
    """Sends requests under several names."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def ask(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        """One request of somebody."""
        headers = {"Authorization": f"Bearer {who}"}
        return self._client.request(method, path, headers=headers, **more)


@contextmanager
def people(directory: Path, **access: Any) -> Iterator[tuple[Served, People]]:
    """A server that knows some people."""
    with (
        served(directory, access={**ACCESS, **access}, run=False) as found,
        found.client() as client,
    ):
        yield found, People(client)


@contextmanager
def planning_held(found: Served) -> Iterator[None]:
    """Hold every plan back."""
    may_end, plan = threading.Event(), found.service._plan

    def slow(*arguments: Any) -> Any:
        may_end.wait(300.0)
        return plan(*arguments)

    found.service._plan = slow  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        may_end.set()


def test_a_client_cannot_fill_the_queue_of_plans(tmp_path: Path) -> None:
    with people(tmp_path, plans_per_client=2) as (found, asked), planning_held(found):
        for path in ("what-if", "why-not"):
            body = {} if path == "what-if" else {"partition": "topic-0-0", "broker": 1}
            made = asked.ask("vi", "POST", f"/api/v1/{path}", json=body)
            assert made.status_code == 202, made.text
        for path in ("/api/v1/what-if", "/kafkacruisecontrol/rebalance?json=true"):
            refused = asked.ask("vi", "POST", path, json={})
            assert refused.status_code == 429, refused.text
            assert "2 plans of yours" in refused.text
        # Others are served, and so is who ends one of their own.
        assert asked.ask("vo", "POST", "/api/v1/what-if", json={}).status_code == 202
        ended = asked.ask("vi", "DELETE", f"/api/v1/jobs/{made.json()['id']}")
        assert ended.status_code == 200, ended.text
        again = asked.ask("vi", "POST", "/api/v1/what-if", json={"brokers": False})
        assert again.status_code == 202, again.text


def test_a_plan_is_ended_by_who_asked_or_by_an_operator(tmp_path: Path) -> None:
    with people(tmp_path) as (found, asked), planning_held(found):
        for who, others, expected in (("vi", "vo", 403), ("vi", "vi", 200), ("vi", "ola", 200)):
            job = asked.ask(who, "POST", "/api/v1/what-if", json={}).json()["id"]
            answer = asked.ask(others, "DELETE", f"/api/v1/jobs/{job}")
            assert answer.status_code == expected, answer.text
            if expected == 403:
                assert "operator needed" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "request_"),
    [("proposals", {}), ("what-if", {}), ("why-not", {"partition": "t0-0", "broker": 1})],
)
def test_a_plan_that_is_cancelled_while_it_is_made_leaves_nothing(
    tmp_path: Path, path: str, request_: dict[str, Any]
) -> None:
    with people(tmp_path) as (found, anyone):
        before = found.service.proposals()
        searching, propose = threading.Event(), found.service.balancer.propose

        def searched(*arguments: Any, stop: threading.Event, **more: Any) -> Any:
            searching.set()
            assert stop.wait(30.0)
            # The best that was found until then.
            return propose(*arguments, **more)

        found.service.balancer.propose = searched  # type: ignore[assignment, method-assign]
        job = anyone.ask("ola", "POST", f"/api/v1/{path}", json=request_).json()
        assert searching.wait(30.0)
        for _ in range(2):
            assert anyone.ask("ola", "DELETE", f"/api/v1/jobs/{job['id']}").status_code == 200
        ended = anyone.ask("ola", "GET", f"/api/v1/jobs/{job['id']}?wait=60").json()
        assert (ended["state"], ended["proposal"], ended["result"]) == ("cancelled", None, None)
        assert found.service.proposals() == before
        assert anyone.ask("ola", "DELETE", f"/api/v1/jobs/{job['id']}").json() == ended


def test_a_plan_that_is_cancelled_too_late_is_not_said_to_be_cancelled(tmp_path: Path) -> None:
    with people(tmp_path) as (found, anyone):
        keeps, go_on, keep = threading.Event(), threading.Event(), found.service._keep

        def slow(*arguments: Any) -> Any:
            keeps.set()
            assert go_on.wait(30.0)
            return keep(*arguments)

        found.service._keep = slow  # type: ignore[assignment, method-assign]
        job = anyone.ask("ola", "POST", "/api/v1/proposals", json={}).json()
        assert keeps.wait(30.0)
        assert anyone.ask("ola", "DELETE", f"/api/v1/jobs/{job['id']}").status_code == 200
        go_on.set()
        ended = anyone.ask("ola", "GET", f"/api/v1/jobs/{job['id']}?wait=60").json()
        assert ended["state"] == "done"
        assert ended["proposal"] in [p.id for p in found.service.proposals()]


def test_only_who_holds_the_controller_or_an_admin_releases_it(tmp_path: Path) -> None:
    with people(tmp_path) as (found, asked):

        def change(who: str, what: str) -> httpx.Response:
            return asked.ask(who, "POST", f"/api/v1/controller/{what}", json={"why": "a test"})

        assert change("ola", "hold").status_code == 200
        refused = change("olf", "release")
        assert refused.status_code == 403
        assert "ola" in refused.json()["error"]
        assert "admin" in refused.json()["error"]
        assert found.controller.held
        state = asked.ask("vi", "GET", "/api/v1/state").json()
        assert (state["held"], state["held_by"]) == (True, ["ola"])
        assert change("ola", "release").status_code == 200
        assert not found.controller.held
        for who in ("ola", "olf"):
            change(who, "hold")
        # Each has a hold of their own.
        assert change("ola", "release").status_code == 403
        assert change("ada", "release").status_code == 200
        assert not found.controller.held
        assert asked.ask("vi", "GET", "/api/v1/state").json()["held_by"] == []


def test_an_admin_reads_who_changed_what(tmp_path: Path) -> None:
    with people(tmp_path) as (_, asked):
        for n in range(3):
            asked.ask("ola", "POST", "/api/v1/controller/hold", json={"why": f"reason {n}"})
        assert asked.ask("ola", "GET", "/api/v1/audit").status_code == 403
        with (tmp_path / "audit.log").open("ab") as file:
            file.write(b"not json\n")
        found = asked.ask("ada", "GET", "/api/v1/audit?limit=3")
        assert found.status_code == 200, found.text
        spoilt, *entries = found.json()
        assert "unreadable" in spoilt
        assert [(e["who"], e["action"], e["why"]) for e in entries] == [
            ("ola", "hold", "reason 2"),
            ("ola", "hold", "reason 1"),
        ]
    with people(tmp_path, audit=None) as (_, asked):
        refused = asked.ask("ada", "GET", "/api/v1/audit")
        assert refused.status_code == 409
        assert "audit" in refused.json()["error"]


def test_the_audit_log_is_read_from_its_end(tmp_path: Path) -> None:
    lines = [json.dumps({"who": "ann", "action": "hold", "n": n}) for n in range(20_000)]
    (tmp_path / "audit.log").write_text("\n".join(lines) + "\n")
    with people(tmp_path) as (_, asked):
        entries = asked.ask("ada", "GET", "/api/v1/audit?limit=10000").json()
        numbers = [e["n"] for e in entries]
        assert numbers[:3] == [19_999, 19_998, 19_997]
        assert len(numbers) > 1000
        assert not [e for e in entries if "unreadable" in e]


def test_a_failing_progress_thread_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_PROGRESS_SECONDS", 0.05)
    with served(tmp_path, run=False) as found, found.client() as client:
        execution = found.service.execution
        broken = threading.Event()
        broken.set()

        def sometimes() -> Any:
            if broken.is_set():
                raise ValueError("a broken progress")
            return {"tasks": 3}

        found.service.execution = sometimes  # type: ignore[method-assign]
        with client.stream("GET", "/api/v1/events") as stream:
            lines = stream.iter_lines()
            ready = wait_for(
                lambda: (
                    (r := httpx.get(f"{found.server.url}/health/ready").json()).get("failing") and r
                )
            )
            assert ready["status"] == "ready"
            assert ready["failing"] == ["progress of executions"]
            text = httpx.get(f"{found.server.url}/metrics").text
            (line,) = [
                x for x in text.splitlines() if x.startswith("counterpoise_server_errors_total{")
            ]
            assert 'part="progress of executions"' in line
            assert float(line.split()[-1]) >= 1
            logged = [r for r in caplog.records if "progress of executions" in r.getMessage()]
            # Once, not each time.
            assert len(logged) == 1
            assert "a broken progress" in str(logged[0].exc_text or logged[0].exc_info)
            broken.clear()
            assert any("event: execution" in x for x in lines)
        found.service.execution = execution  # type: ignore[method-assign]
        wait_for(lambda: "failing" not in httpx.get(f"{found.server.url}/health/ready").json())


def test_the_list_of_brokers_is_made_once_for_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    brokers = ClusterLoad.brokers

    def counted(load: ClusterLoad, **options: Any) -> Any:
        made.append(options)
        return brokers(load, **options)

    monkeypatch.setattr(ClusterLoad, "brokers", counted)
    with served(tmp_path, run=False) as found, found.client() as client:

        def ask(query: str = "") -> Any:
            return client.get(f"/api/v1/cluster/brokers{query}").json()

        first = ask()
        assert ask() == first
        assert len(made) == 1
        assert [b["broker"] for b in ask("?limit=2")] == [b["broker"] for b in first[:2]]
        for limit in range(3, 30):
            ask(f"?limit={limit}")
        assert len(found.service._brokers) == 8
        s = found.model.cluster
        found.model.cluster = replace(s, leader_load=2 * s.leader_load)
        found.controller.step()
        assert ask()[0]["figures"] != first[0]["figures"]
        assert len(found.service._brokers) == 1


def test_a_plan_is_compared_with_a_look_once_for_all_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for name in ("changes_since", "traffic"):
        compare = getattr(service, name)

        def counted(*given: Any, name: str = name, compare: Any = compare) -> Any:
            made.append(name)
            return compare(*given)

        monkeypatch.setattr(service, name, counted)
    with served(tmp_path, run=False) as found, found.client() as client:
        path = f"/api/v1/proposals/{client.get('/api/v1/proposals').json()[0]['id']}"
        for _ in range(2):
            assert client.get(f"{path}/changes").json() == []
            assert client.get(f"{path}/traffic").json()["brokers"]
        assert sorted(made) == ["changes_since", "traffic"]
        assert client.get("/api/v1/proposals/none/changes").status_code == 404
        plan = found.service.document(path.rpartition("/")[2])
        found.model.cluster = after(plan, found.model.cluster)
        found.controller.step()
        assert client.get(f"{path}/changes").json() != []


def test_more_connections_than_are_served_do_not_take_all_files(tmp_path: Path) -> None:
    with (
        served(tmp_path, access={"connections": 5, "idle_timeout": 60}, run=False) as found,
        ExitStack() as opened,
    ):
        place = (urlsplit(found.server.url).hostname, urlsplit(found.server.url).port)
        sockets = [opened.enter_context(socket.create_connection(place)) for _ in range(130)]
        for each in sockets:
            each.setblocking(False)
        wait_for(lambda: sum(map(_is_open, sockets)) <= 105)
        for each in sockets:
            each.close()
        with found.client() as client:
            wait_for(lambda: _status(client) == 200)


def test_one_address_does_not_take_all_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        served(tmp_path, access={"connections_per_address": 20}, run=False) as found,
        ExitStack() as opened,
    ):
        port = urlsplit(found.server.url).port

        def connect(address: str) -> socket.socket:
            made = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
            made.setblocking(False)
            return opened.enter_context(made)

        idle = [connect("127.0.0.2") for _ in range(50)]
        wait_for(lambda: sum(map(_is_open, idle)) <= 20)
        assert caplog.text.count("connections from 127.0.0.2 are closed") == 1
        with found.client() as client:
            assert client.get("/health/live").status_code == 200


def test_the_addresses_of_a_proxy_may_have_all_connections(tmp_path: Path) -> None:
    access = {"connections_per_address": 2, "proxy": {"addresses": ["127.0.0.0/8"]}}
    with served(tmp_path, access=access, run=False) as found, ExitStack() as opened:
        place = (urlsplit(found.server.url).hostname, urlsplit(found.server.url).port)
        for _ in range(10):
            opened.enter_context(socket.create_connection(place))
        with found.client() as client:
            assert client.get("/health/live").status_code == 200


def _is_open(connection: socket.socket) -> bool:
    """Whether the server has not closed a connection, which says nothing by itself."""
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def _status(client: httpx.Client) -> int | None:
    try:
        return client.get("/health/live").status_code
    except httpx.TransportError:
        return None


# of the threads that answer, or more than there are
@pytest.mark.parametrize(("query", "at_once"), [("", 8), ("?wait=1", 8), ("", 60)])
def test_heavy_reads_of_one_viewer_hold_up_neither_health_nor_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, at_once: int
) -> None:
    held, arrived, rates = threading.Event(), threading.Semaphore(0), {"at_once": at_once}
    with people(tmp_path, rates=rates) as (found, them), ThreadPoolExecutor(60) as pool:
        brokers = found.service.brokers

        def slow(*asked: Any) -> Any:
            arrived.release()
            held.wait(LIMIT)
            return brokers(*asked)

        monkeypatch.setattr(found.service, "brokers", slow)
        path = f"/api/v1/cluster/brokers{query}"
        reads = [pool.submit(them.ask, "vi", "GET", path) for _ in range(60)]
        try:
            for _ in range(min(at_once, THREADS)):
                assert arrived.acquire(timeout=LIMIT)
            assert them.ask("vo", "GET", "/health/live").json() == {"status": "live"}
            assert them.ask("vo", "GET", "/health/ready").status_code == 200
            assert "counterpoise_" in them.ask("vo", "GET", "/metrics").text
            if at_once < THREADS:
                assert them.ask("vo", "GET", "/api/v1/cluster").status_code == 200
            assert not arrived.acquire(blocking=False)
        finally:
            held.set()
        assert {read.result().status_code for read in reads} == {200}


@pytest.mark.parametrize(
    "path",
    [
        *(f"/api/v1/cluster/partitions?limit={n}" for n in ("10000", "%2B10000", "10_000")),
        "/kafkacruisecontrol/partition_load?ENTRIES=10000",
    ],
)
def test_lists_count_by_what_is_asked_for(tmp_path: Path, path: str) -> None:
    rates = {"requests": 0.001, "burst": 40_000}
    with people(tmp_path, rates=rates) as (_, them):
        answers = [them.ask("vi", "GET", path).status_code for _ in range(5)]
        assert answers == [200, 200, 200, 429, 429]
        assert them.ask("vo", "GET", path).status_code == 200


def test_one_viewer_has_so_many_event_streams(tmp_path: Path) -> None:
    with people(tmp_path, listeners_per_client=2) as (found, _), ExitStack() as streams:
        url, as_vi = "/api/v1/events", {"Authorization": "Bearer vi"}
        client = streams.enter_context(found.client())
        for _ in range(2):
            streams.enter_context(client.stream("GET", url, headers=as_vi))
        with client.stream("GET", url, headers=as_vi) as refused:
            assert refused.status_code == 429
            error = json.loads(refused.read())["error"]
            assert error.startswith("2 streams of this client are open already")
        other = {"Authorization": "Bearer vo"}
        with client.stream("GET", url, headers=other) as answer:
            assert answer.status_code == 200
