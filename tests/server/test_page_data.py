"""What the page asks the API for: short answers, at any size of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server_cases import Served, planned, served

from balancer.planning.traffic import traffic
from balancer.problem.operation import Operation
from cluster_model import synthetic_snapshot


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, httpx.Client]]:
    directory: Path = tmp_path_factory.mktemp("served")
    with served(directory, run=False) as found, found.client() as client:
        yield found, client


def test_a_column_has_the_figures_of_the_brokers(running: tuple[Served, httpx.Client]) -> None:
    _, client = running
    column = client.get("/api/v1/cluster/columns/disk").json()
    for row in client.get("/api/v1/cluster/brokers").json():
        at = column["broker"].index(row["broker"])
        assert column["racks"][column["rack"][at]] == row["rack"]
        figure = row["figures"]["disk"]
        names = ("amount", "of_capacity", "fair_shares")
        assert {name: column[name][at] for name in names} == figure
    assert column["states"] == {}
    assert client.get("/api/v1/cluster/columns/disks").status_code == 404


def test_one_broker_is_that_of_the_list(running: tuple[Served, httpx.Client]) -> None:
    _, client = running
    third = next(b for b in client.get("/api/v1/cluster/brokers").json() if b["broker"] == 3)
    assert client.get("/api/v1/cluster/brokers/3").json() == third
    assert client.get("/api/v1/cluster/brokers/33").status_code == 404


def test_a_broker_that_is_dead_is_said_to_be(tmp_path: Path) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, dead_brokers=1)
    with served(tmp_path, snapshot=snapshot, run=False) as found, found.client() as client:
        states = client.get("/api/v1/cluster/columns/cpu").json()["states"]
    assert list(states.values()) == ["dead"]


def test_decisions_without_detail_are_short(running: tuple[Served, httpx.Client]) -> None:
    _, client = running
    whole, short = (
        client.get(f"/api/v1/decisions?detail={detail}").json()[0] for detail in ("true", "false")
    )
    assert {*whole} - {*short} == {"findings", "facts", "plan"}
    assert short["reason"] == whole["reason"]


def test_proposals_are_listed_by_state(running: tuple[Served, httpx.Client]) -> None:
    _, client = running
    assert [p["state"] for p in client.get("/api/v1/proposals?state=open").json()] == ["open"]
    assert client.get("/api/v1/proposals?state=executed").json() == []
    assert client.get("/api/v1/proposals?state=no").status_code == 422


def test_the_traffic_of_a_proposal_is_that_of_its_moves(
    running: tuple[Served, httpx.Client],
) -> None:
    _, client = running
    path = f"/api/v1/proposals/{client.get('/api/v1/proposals').json()[0]['id']}"
    found = client.get(f"{path}/traffic").json()
    moves = [
        a for a in client.get(f"{path}/actions?limit=1000").json()["actions"] if a["kind"] == "move"
    ]
    arriving: Counter[int] = Counter()
    for move in moves:
        arriving[move["destination"]] += move["cost"]
    received = {b["broker"]: b["received"] for b in found["brokers"] if b["received"]}
    assert received == pytest.approx(dict(arriving))
    assert sum(b["sent"] for b in found["brokers"]) == pytest.approx(found["amount"])
    assert sum(b["copies_sent"] for b in found["brokers"]) == len(moves)
    assert found["busiest"] == max(max(b["received"], b["sent"]) for b in found["brokers"])
    assert client.get(f"{path}/traffic?limit=2").json()["brokers"] == found["brokers"][:2]


def test_new_copies_are_sent_by_the_leader_and_not_by_a_dead_broker(
    running: tuple[Served, httpx.Client],
) -> None:
    found, _ = running
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, dead_brokers=1)
    dead = int(snapshot.broker_ids[snapshot.broker_state.argmax()])
    operation = Operation(kind="fix_offline_replicas")
    plan = found.service.balancer.propose(snapshot, operation).document()
    assert {a.source for a in plan.actions if a.kind == "move"} == {dead}
    senders = {b.broker for b in traffic(plan, snapshot).brokers if b.sent}
    assert senders
    assert dead not in senders


def test_a_what_if_may_leave_out_the_brokers(running: tuple[Served, httpx.Client]) -> None:
    _, client = running
    asked = {"hypothesis": {"add_brokers": 1}, "brokers": False}
    result = planned(client, "/api/v1/what-if", asked)["result"]
    assert result["before"] == result["after"] == []
    assert result["columns"]["cpu"]["after"]["worst_ratio"] > 0
    assert result["cluster"] == "with 1 more broker in rack rack-0"


def test_the_first_event_is_short(running: tuple[Served, httpx.Client]) -> None:
    _, client = running
    with client.stream("GET", "/api/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: state"
        assert '"decisions"' not in next(lines)
