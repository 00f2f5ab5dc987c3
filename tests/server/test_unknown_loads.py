"""While loads are not known, no figure shows them, and nothing that needs them is done."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
from balancer_cases import QUICK
from server_cases import Served, ended, planned, served
from waiting import wait_for

from balancer import Balancer
from balancer.approval.approvals import REQUEST
from balancer.controller.finding import View
from balancer.controller.proposals import why_waits
from balancer.inspection.load import ClusterLoad
from balancer.problem.operations import OPERATIONS
from balancer.server.cruise_control.loads import broker_stats
from balancer.server.cruise_control.router import ENDPOINTS
from balancer.server.service import supposed
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.trust import Distrust, Doubt, frozen_partitions, partition_names
from goals import RackAwareness, State

BASE = "/kafkacruisecontrol"
MEASURED = ("cpu", "network_in", "network_out")
# How Cruise Control calls what is measured.
FIGURES = re.compile(
    rf'"({"|".join(MEASURED)})":|resource="({"|".join(MEASURED)})"|CpuPct|Nw(In|Out)Rate'
    r"|balancednessScore|counterpoise_(balancedness|violations)[ {]"
)
LOADS = "loads are not known (metrics of 0.0% of partitions found)"
WHY = "loads are not known: metrics of 0.0% of partitions found"


@pytest.fixture(scope="module")
def unmeasured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, httpx.Client]]:
    """A server whose metrics topic is empty, with two partitions that break rack awareness."""
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, rack_violations=0.05, seed=2)
    directory = tmp_path_factory.mktemp("server")
    access = {"rates": {"changes": 1000}}
    with (
        served(directory, snapshot=snapshot, access=access, run=False, measured=False) as found,
        found.client() as client,
    ):
        yield found, client


def _paths(client: httpx.Client, method: str) -> list[str]:
    described = client.get("/api/v1/openapi.json").json()["paths"]
    values = {"broker": "1", "name": "disk"}
    found = []
    for path, methods in described.items():
        named = re.findall(r"\{(\w+)\}", path)
        if method in methods and all(name in values for name in named):
            found.append(path.format(**values))
    return found


def test_no_answer_shows_what_nobody_measured(unmeasured: tuple[Served, httpx.Client]) -> None:
    _, client = unmeasured
    paths = [p for p in _paths(client, "get") if "events" not in p]
    paths += ["/metrics", *(f"{BASE}/{name}" for name, e in ENDPOINTS.items() if e.method == "GET")]
    for path in paths:
        text = client.get(path, params={"json": "true", "sort": "disk"}).text
        assert not FIGURES.search(text), (path, FIGURES.search(text), text[:2000])
    state = client.get("/api/v1/state").json()
    assert state["balancedness"] is None
    assert state["loads_unknown"] == "metrics of 0.0% of partitions found"
    for goal in client.get("/api/v1/goals").json():
        needs = any(f"[{resource}]" in goal["goal"] for resource in MEASURED)
        assert not needs or (goal["met"] is None and goal["left_out"].endswith(WHY[21:])), goal


def test_a_plan_says_what_it_cannot_judge_and_without_sizes_no_disk_is_empty(
    tmp_path: Path,
) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, disks_per_broker=2)
    emptied = {"operation": {"kind": "remove_brokers", "brokers": [1]}}
    with (
        served(tmp_path, snapshot=snapshot, run=False, measured=False) as found,
        found.client() as client,
    ):
        found.model.placement = lambda: snapshot.with_resources(())  # type: ignore[method-assign]
        found.controller.step()
        assert {d["used"] for d in client.get("/api/v1/cluster/disks").json()} == {None}
        assert "DiskMB" not in broker_stats(found.service.view().snapshot, disks=True).text
        job = planned(client, "/api/v1/proposals", emptied)
        kept = client.get(f"/api/v1/proposals/{job['proposal']}").json()
        said = planned(client, "/api/v1/what-if", emptied)["result"]["verdict"]
        for sentence in (kept["reason"], said):
            assert f"; {LOADS}: only goals that need none count, and limits of bytes" in sentence
        plan = client.get(f"/api/v1/proposals/{kept['id']}/plan").json()
        assert "ResourceCapacity[cpu]" in plan["goals_left_out"]


def test_loads_that_become_unknown_while_a_question_waits_are_not_multiplied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, ask = threading.Event(), supposed

    def held(*given: Any) -> Any:
        assert waits.wait(60)
        return ask(*given)

    monkeypatch.setattr("balancer.server.service.supposed", held)
    with served(tmp_path, run=False) as found, found.client() as client:
        body: dict[str, Any] = {"operation": {"kind": "remove_brokers", "brokers": [1]}}
        first = client.post("/api/v1/what-if", json=body).json()
        body["hypothesis"] = {"scale_load": 3.0}
        second = client.post("/api/v1/what-if", json=body).json()
        found.model.measured = False
        found.controller.step()
        waits.set()
        assert ended(client, first)["state"] == "done"
        assert ended(client, second)["error"].startswith(WHY)


@pytest.mark.parametrize("way", ["proposals", "what-if"])
@pytest.mark.parametrize("kind", sorted(OPERATIONS.built_in))
def test_only_operations_that_need_no_loads_are_planned(
    unmeasured: tuple[Served, httpx.Client], way: str, kind: str
) -> None:
    _, client = unmeasured
    operation: dict[str, Any] = {"kind": kind}
    if kind == "change_replication_factor":
        operation["replication_factor"] = {".*": 2}
    elif kind not in ("rebalance", "right_size", "fix_offline_replicas"):
        operation["brokers"] = [1]
    answer = client.post(f"/api/v1/{way}", json={"operation": operation})
    if OPERATIONS.get(kind).needs_loads:
        assert (answer.status_code, answer.json()["error"][: len(WHY)]) == (503, WHY)
        return
    job = planned(client, f"/api/v1/{way}", {"operation": operation})
    assert not FIGURES.search(json.dumps(job)), job
    if way == "proposals":
        plan = client.get(f"/api/v1/proposals/{job['proposal']}/plan").text
        assert not FIGURES.search(plan)
        assert set(json.loads(plan)["columns"]) == {"disk", "replica_count", "leader_count"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("proposals", {"only": ["RackAwareness", "ResourceCapacity[cpu]"]}),
        ("proposals", {"only": ["LeaderBytesInDistribution"]}),
        ("proposals", {"operation": {"kind": "remove_brokers", "brokers": [1]},
                       "only": ["ResourceCapacity[cpu]"]}),
        ("what-if", {"hypothesis": {"scale_load": 2.0}}),
        ("what-if", {"operation": {"kind": "remove_brokers", "brokers": [1]},
                     "hypothesis": {"scale_load": 2.0}}),
        ("why-not", {"partition": "topic-0-0", "broker": 1}),
    ],
)  # fmt: skip
def test_goals_that_read_loads_are_refused_by_name(
    unmeasured: tuple[Served, httpx.Client], path: str, body: dict[str, Any]
) -> None:
    answer = unmeasured[1].post(f"/api/v1/{path}", json=body)
    assert (answer.status_code, answer.json()["error"][: len(WHY)]) == (503, WHY)


def test_a_goal_that_cruise_controls_client_names_is_not_left_out_in_silence(
    tmp_path: Path,
) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3).with_resources(("disk",))
    with served(tmp_path, snapshot=snapshot, run=False) as found, found.client() as client:
        named = "goals=RackAwareGoal,CpuCapacityGoal&skip_hard_goal_check=true&json=true"
        answer = client.post(f"{BASE}/rebalance?{named}").json()
        assert answer["goalSummary"][-1]["goal"] == "RackAwareGoal"
        assert "ResourceCapacity[cpu]: the snapshot has no resource 'cpu'" in answer["message"]


@pytest.mark.parametrize(
    "request_",
    ["GET proposals", "GET load", "GET partition_load", "POST rebalance?dryrun=true",
     "POST rebalance?dryrun=false", "POST add_broker?brokerid=1", "POST rightsize",
     "POST rebalance?goals=RackAwareGoal,CpuCapacityGoal&skip_hard_goal_check=true"],
)  # fmt: skip
def test_cruise_controls_clients_are_told_to_ask_again(
    unmeasured: tuple[Served, httpx.Client], request_: str
) -> None:
    found, client = unmeasured
    method, _, path = request_.partition(" ")
    answer = client.request(method, f"{BASE}/{path}")
    assert answer.status_code == 500, answer.text
    assert "NotEnoughValidWindowsException" in answer.text
    assert not found.executor.executed


def test_racks_are_put_right_and_a_broker_is_emptied(tmp_path: Path) -> None:
    snapshot = synthetic_snapshot(
        brokers=6, partitions=60, racks=3, rack_violations=0.05, utilization=0.3
    )
    with (
        served(tmp_path, snapshot=snapshot, measured=False) as found,
        found.client() as client,
    ):
        wait_for(lambda: client.get("/health/ready").status_code == 200)
        for body in (
            {"only": ["RackAwareness"]},
            {"operation": {"kind": "remove_brokers", "brokers": [1]}},
        ):
            path = _approved(client, body)
            wait_for(partial(_is_executed, client, path))
            # the next proposal is for the cluster that this one has left
            found.controller.look_now()
            wait_for(partial(_looks_at, found, found.model.cluster))
        assert not (found.model.cluster.replica_broker == 0).any()


@pytest.mark.parametrize("unknown", ["all", "broker", "cpu"])
def test_an_approved_rebalance_waits_until_loads_are_known_again(
    tmp_path: Path, unknown: str
) -> None:
    with served(tmp_path, run=False) as found, found.client() as client:
        path, whole = _approved(client, {}), found.model.cluster
        doubts = (Doubt(1, "missing", "broker 1 does not report"),) if unknown == "broker" else ()
        found.model.distrust = lambda: Distrust(doubts)  # type: ignore[method-assign]
        found.model.measured = unknown != "all"
        if unknown == "cpu":
            found.model.cluster = whole.with_resources({*whole.resources} - {"cpu"})
        decision = found.controller.step()
        assert found.controller.work is None
        assert "1 approved proposal waits: " in decision.reason
        state = client.get(path).json()["state"]
        assert (state, found.executor.executed) == ("approved", [])
        if unknown == "cpu":
            answer = client.post("/api/v1/proposals", json={"only": ["ResourceCapacity[cpu]"]})
            assert (answer.status_code, "has no resource 'cpu'" in answer.text) == (400, True)
        found.model.measured, found.model.cluster, doubts = True, whole, ()
        found.controller.step()
        wait_for(lambda: len(found.executor.executed) == 1)


def test_metrics_that_have_become_old_are_no_loads(tmp_path: Path) -> None:
    with served(tmp_path, run=False) as found, found.client() as client:
        path = _approved(client, {})
        ids = found.model.cluster.broker_ids.tolist()
        found.model.staleness = lambda: dict.fromkeys(ids, 7200.0)  # type: ignore[method-assign,assignment]
        decision = found.controller.step()
        assert [f.kind for f in decision.findings].count("stale_metrics") == len(ids)
        why = client.get("/api/v1/state").json()["loads_unknown"]
        assert why.startswith("the metrics of 6 of 6 brokers are stale: ")
        for name in ("/metrics", "/api/v1/cluster/brokers", "/api/v1/state"):
            assert not FIGURES.search(client.get(name).text)
        assert client.post("/api/v1/proposals", json={}).status_code == 503
        answer = client.post(f"{BASE}/rebalance?dryrun=false")
        assert "NotEnoughValidWindowsException" in answer.text
        state = client.get(path).json()["state"]
        assert (state, found.executor.executed) == ("approved", [])


def _approved(client: httpx.Client, body: Mapping[str, Any]) -> str:
    """The path of a proposal that was asked for and approved."""
    job = planned(client, "/api/v1/proposals", body)
    kept = client.get(f"/api/v1/proposals/{job['proposal']}").json()
    path = f"/api/v1/proposals/{kept['id']}"
    client.post(f"{path}/approve", json={"digest": kept["digest"]})
    return path


def _is_executed(client: httpx.Client, path: str) -> bool:
    return bool(client.get(path).json()["state"] == "executed")


def _looks_at(found: Served, cluster: Snapshot) -> bool:
    held = found.service.view().snapshot.replica_broker
    return np.array_equal(held, cluster.replica_broker)


def test_partitions_whose_loads_are_estimates_show_none(tmp_path: Path) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    silent = Doubt(1, "missing", "broker 1 does not report")
    with served(tmp_path, snapshot=snapshot, run=False) as found, found.client() as client:
        unknown = frozenset({"topic-0-3"})
        found.model.distrust = lambda: Distrust((silent,), unknown)  # type: ignore[method-assign]
        found.controller.step()
        rows = client.get("/api/v1/cluster/partitions?limit=100").json()
        known = {p["partition"] for p in rows if p["partition"] not in unknown and p["leader"] != 1}
        assert 0 < len(known) < 59
        for row in rows:
            assert ("cpu" in row["leader_amounts"]) == (row["partition"] in known)
            assert "disk" in row["follower_amounts"]
        records = client.get(f"{BASE}/partition_load?json=true").json()["records"]
        assert {f"{r['topic']}-{r['partition']}" for r in records} == known


def test_what_an_untrusted_broker_carries_is_no_figure(tmp_path: Path) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    fullest = ClusterLoad(snapshot).totals().figures["cpu"].fullest_broker
    assert isinstance(fullest, int)
    silent = Doubt(fullest, "missing", "it does not report")
    with served(tmp_path, snapshot=snapshot, run=False) as found, found.client() as client:
        found.model.distrust = lambda: Distrust((silent,))  # type: ignore[method-assign]
        found.controller.step()
        column = client.get("/api/v1/cluster/columns/cpu").json()
        unknown = [b for b, v in zip(column["broker"], column["amount"], strict=True) if v is None]
        sizes = client.get("/api/v1/cluster/columns/disk").json()["amount"]
        assert (unknown, None in sizes) == ([fullest], False)
        rows = client.get("/api/v1/cluster/brokers?sort=cpu").json()
        assert [r["broker"] for r in rows if "cpu" not in r["figures"]] == [fullest]
        assert rows[-1]["broker"] == fullest
        assert client.get("/api/v1/cluster").json()["figures"]["cpu"]["fullest_broker"] != fullest
        even = client.get("/api/v1/state").json()["evenness"]
        assert (even["unknown"], even["worst"]["broker"] != fullest) == ([fullest], True)
        metrics = client.get("/metrics").text
        assert not re.search(rf'broker_load\w*{{broker="{fullest}",.*resource="cpu"', metrics)
        load = client.get(f"{BASE}/load?json=true").json()["brokers"]
        assert [b["Broker"] for b in load if not FIGURES.search(json.dumps(b))] == [fullest]


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("way", ["proposals", "what-if", "rebalance"])
def test_what_is_not_known_or_trusted_stays_whoever_asks(
    tmp_path: Path, way: str, old: bool
) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    unknown = partition_names(snapshot, np.arange(0, 60, 10))
    silent = Doubt(1, "missing", "broker 1 does not report")
    stay = unknown | frozen_partitions(snapshot, [1])
    with served(tmp_path, snapshot=snapshot, run=False) as found, found.client() as client:
        ages = {**dict.fromkeys(snapshot.broker_ids.tolist(), 30.0), 1: 7200.0 if old else 30.0}
        found.model.staleness = lambda: ages  # type: ignore[method-assign,assignment]
        doubts = () if old else (silent,)
        found.model.distrust = lambda: Distrust(doubts, unknown)  # type: ignore[method-assign]
        found.controller.step()
        if way == "rebalance":
            answer = client.post(f"{BASE}/rebalance?dryrun=false")
            assert answer.status_code in (200, 202), answer.text
        else:
            job = planned(client, f"/api/v1/{way}", {})
        if way == "what-if":
            assert f"; {len(stay)} partitions stay, because" in job["result"]["verdict"]
            assert job["result"]["plan"]["operation"]["partitions_excluded"] == len(stay)
            return

        def asked() -> list[dict[str, Any]]:
            kept = client.get("/api/v1/proposals").json()
            return [each for each in kept if each["cause"] == REQUEST]

        wait_for(lambda: bool(asked()))
        (kept,) = asked()
        assert f"; {len(stay)} partitions stay, because not all loads" in kept["reason"]
        plan = client.get(f"/api/v1/proposals/{kept['id']}/plan").json()
        assert plan["actions"]
        assert stay.isdisjoint(f"{a['topic']}-{a['partition']}" for a in plan["actions"])
        assert 1 not in {a["destination"] for a in plan["actions"]}


def test_a_goal_that_cannot_be_judged_hides_no_other(tmp_path: Path) -> None:
    class Hot(RackAwareness):
        scope: ClassVar = "broker"

        def score(self, state: State) -> Any:
            return np.minimum(state.load("cpu"), 1.0)

    with served(tmp_path, run=False, measured=False) as found, found.client() as client:
        found.service.balancer.goals = [RackAwareness(), Hot()]
        (hot,) = [g for g in client.get("/api/v1/goals").json() if g["goal"] == "Hot"]
        assert (hot["met"], "no resource 'cpu'" in hot["left_out"]) == (None, True)
        assert 'counterpoise_goal_met{goal="RackAwareness"' in client.get("/metrics").text


def test_an_approved_plan_of_an_operation_that_is_gone_waits_and_stops_no_round() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    plan = Balancer("default", strategy=QUICK).propose(snapshot).document()
    gone = plan.model_copy(update={"operation": {**plan.operation, "kind": "gone"}})
    for why in (None, "metrics of 0.0% of partitions found"):
        known = snapshot.resources if why is None else ("disk",)
        view = View(snapshot=snapshot.with_resources(known), now=0.0, incomplete=why)
        assert (why_waits(view, gone) is None) == (why is None)
