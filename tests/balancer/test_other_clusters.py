"""Clusters that are not Kafka: brokers with names, and moves with their own costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from balancer_cases import QUICK, examples
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from balancer import Albic, Balancer, Budget, Milp, Operation
from balancer.execution.targets import read_plan
from balancer.planning.document import PlanDocument, PlanError
from balancer.planning.exports import leader_election_json, reassignment_json
from balancer.problem.budget import BudgetError
from balancer.report import html_report
from balancer.strategies import Problem, ProgressCallback, Proposal, StrategyError
from balancer.verification.checker import check_plan
from cluster_model import (
    Snapshot,
    SnapshotDocument,
    load_snapshot,
    save_snapshot,
    synthetic_snapshot,
)
from cluster_model.errors import SnapshotError
from metrics_reporter.documents import first_problem

UNIT = "records"


def named(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """The snapshot with names for ids, in the order of the numbers."""
    names = [f"node-{id_:04}" for id_ in snapshot.broker_ids.tolist()]
    return replace(snapshot, broker_ids=np.array(names), **changes)


def priced(snapshot: Snapshot, seed: int = 0) -> Snapshot:
    """The snapshot with costs of its own; some destinations are cheap, some dear."""
    rng = np.random.default_rng(seed)
    n, b = snapshot.n_partitions, snapshot.n_brokers
    size = rng.integers(1, 100, n).astype(float)
    some = np.flatnonzero(rng.random(n * b) < 0.3)
    rng.shuffle(some)
    cost = size[some // b] * rng.choice([0.0, 0.1, 3.0], len(some))
    return replace(
        snapshot,
        state_size=size,
        cost_unit=UNIT,
        move_cost_partition=some // b,
        move_cost_broker=some % b,
        move_cost=cost,
    )


def expected_cost(snapshot: Snapshot, document: PlanDocument) -> list[float]:
    """The cost of each action, from the snapshot's records."""
    row = {
        (snapshot.topics[t], n): p
        for p, (t, n) in enumerate(
            zip(snapshot.partition_topic.tolist(), snapshot.partition_number.tolist(), strict=True)
        )
    }
    index = {id_: b for b, id_ in enumerate(snapshot.broker_ids.tolist())}
    special = {
        (p, b): cost
        for p, b, cost in zip(
            snapshot.move_cost_partition.tolist(),
            snapshot.move_cost_broker.tolist(),
            snapshot.move_cost.tolist(),
            strict=True,
        )
    }
    found = []
    for a in document.actions:
        p = row[a.topic, a.partition]
        if a.kind in ("leadership", "remove") or a.destination is None:
            found.append(0.0)
        else:
            at = (p, index[a.destination])
            found.append(special.get(at, float(snapshot.state_size[p])))
    return found


@examples(4)
@given(seed=st.integers(0, 10_000), factor=st.integers(1, 3), limit=st.integers(0, 2000))
def test_costs_are_those_of_the_data_within_the_budget_and_checked(
    seed: int, factor: int, limit: int
) -> None:
    snapshot = priced(
        named(
            synthetic_snapshot(
                brokers=6, partitions=60, racks=3, replication_factor=factor, seed=seed
            )
        ),
        seed,
    )
    plan = Balancer(budget=Budget(cost=limit), strategy=QUICK).propose(snapshot)
    document = plan.document()
    assert [a.cost for a in document.actions] == expected_cost(snapshot, document)
    assert document.summary.cost == pytest.approx(sum(expected_cost(snapshot, document)))
    assert document.summary.cost <= limit
    assert document.summary.cost_unit == UNIT
    assert document.summary.cost_bound <= document.summary.cost * (1 + 1e-9) + 1e-9
    assert check_plan(snapshot, document).ok


def test_names_change_nothing_but_names() -> None:
    numbered = synthetic_snapshot(brokers=9, partitions=90, racks=3, seed=4)
    for operation in ({}, {"kind": "remove_brokers", "brokers": (2,)}):
        balancer = Balancer(strategy=QUICK)
        one = balancer.propose(numbered, Operation.model_validate(operation)).document()
        if operation:
            operation = {**operation, "brokers": ("node-0002",)}
        two = balancer.propose(named(numbered), Operation.model_validate(operation)).document()
        plain = json.loads(two.model_dump_json().replace('"node-000', '"'))
        for a in plain["actions"]:
            for end in ("source", "destination"):
                a[end] = None if a[end] is None else int(a[end])
        assert plain["actions"] == json.loads(one.model_dump_json())["actions"]
        assert two.summary == one.summary


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_files_keep_names_and_costs(tmp_path: Path, suffix: str) -> None:
    snapshot = priced(named(synthetic_snapshot(brokers=5, partitions=20, racks=2)))
    path = tmp_path / f"cluster{suffix}"
    save_snapshot(snapshot, path)
    found = load_snapshot(path)
    assert found == snapshot
    assert found.digest() == snapshot.digest()
    wide = replace(snapshot, broker_ids=snapshot.broker_ids.astype("<U300"))
    assert wide.digest() == snapshot.digest()


def test_unknown_sizes_cost_replicas_and_never_bytes() -> None:
    s = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    bare = replace(
        s,
        resources=("cpu",),
        capacity=s.capacity[:, :1],
        leader_load=s.leader_load[:, :1],
        follower_load=s.follower_load[:, :1],
    )
    plan = Balancer("default").propose(bare)
    moved = plan.summary.replica_moves
    assert moved
    assert (plan.summary.cost, plan.summary.cost_unit) == (moved, "replicas")
    assert f"{moved} replicas" in repr(plan)
    page = html_report(plan)
    assert f"{moved} replicas" in page
    assert check_plan(bare, plan.document()).ok
    with pytest.raises(BudgetError, match="a limit of cost in replicas expected"):
        Balancer("default", budget=Budget(bytes=5.0)).propose(bare)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_size": np.empty(0), "move_cost": []}, "cost_unit: given without state_size"),
        ({"cost_unit": None}, "move_cost: given together with a resource 'disk'"),
        ({"cost_unit": 5}, "cost_unit: 5 found, a name expected"),
        ({"cost_unit": ""}, "cost_unit: '' found, a name expected"),
    ],
)
def test_costs_that_contradict_are_one_sentence(changes: dict[str, Any], message: str) -> None:
    s = priced(synthetic_snapshot(brokers=5, partitions=20, racks=2))
    if "move_cost" in changes:
        none: list[int] = []
        changes = changes | {"move_cost_partition": none, "move_cost_broker": none}
    with pytest.raises(SnapshotError, match=message):
        replace(s, **changes)


def test_a_destination_has_one_cost() -> None:
    s = priced(synthetic_snapshot(brokers=5, partitions=20, racks=2))
    twice: dict[str, Any] = {
        name: np.concatenate([getattr(s, name)[:1], getattr(s, name)])
        for name in ("move_cost_partition", "move_cost_broker", "move_cost")
    }
    with pytest.raises(SnapshotError, match="each broker once per partition"):
        replace(s, **twice)


def test_kafka_never_sees_a_name() -> None:
    plan = Balancer(strategy=QUICK).propose(
        named(synthetic_snapshot(brokers=6, partitions=60, racks=3))
    )
    for export in (reassignment_json, leader_election_json):
        with pytest.raises(PlanError, match="broker 'node-0001' found, a number expected"):
            export(plan)
    with pytest.raises(PlanError, match="only plans for Kafka"):
        read_plan(plan.document(), None)  # type: ignore[arg-type]


def test_either_spelling_of_an_id_is_the_broker() -> None:
    s = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    assert s.broker_index(["3", 4]).tolist() == s.broker_index([3, 4]).tolist()
    s = synthetic_snapshot(brokers=9, partitions=90, racks=3)
    text = replace(s, broker_ids=s.broker_ids.astype(np.str_))
    plan = Balancer(strategy=QUICK).propose(text, Operation(kind="remove_brokers", brokers=(3,)))
    assert plan.operation["brokers"] == ["3"]
    assert plan.verdict is not None
    assert plan.verdict.fulfilled
    assert check_plan(text, plan.document()).ok
    for unknown in ("03", "-1", "x", "9" * 400, 1.5):
        with pytest.raises(SnapshotError, match="no broker"):
            s.broker_index([unknown])  # type: ignore[list-item]


def test_the_command_line_takes_names_and_costs(tmp_path: Path) -> None:
    snapshot = priced(named(synthetic_snapshot(brokers=9, partitions=90, racks=3)))
    cluster, plan = tmp_path / "cluster.json", tmp_path / "plan.json"
    save_snapshot(snapshot, cluster)
    done = invoke(
        [
            "propose",
            cluster,
            "--strategy-option",
            "passes=1",
            "--remove-brokers",
            "node-0002",
            "--max-cost",
            "100000",
            "-o",
            plan,
            "--report",
            tmp_path / "r.html",
        ]
    )
    assert done.exit_code in (0, 1), done.output
    assert done.stdout.startswith("Broker node-0002 ")
    assert UNIT in done.stdout
    assert "costs" in done.stdout
    assert UNIT in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert invoke(["verify", cluster, plan]).exit_code == 0
    shown = invoke(["explain", plan, "--broker", "node-0002"])
    assert shown.exit_code == 0
    assert "moves from it" in shown.stdout
    refused = invoke(["propose", cluster, "--max-bytes", "5GB"])
    assert refused.exit_code == 2
    assert "a limit of cost in records expected" in refused.output


@pytest.mark.parametrize("creatable", [False, True])
@pytest.mark.parametrize("kind", ["fix_offline_replicas", "rebalance"])
@pytest.mark.parametrize("strategy", [Milp(rounds=30), Albic(rounds=30)], ids=str)
def test_an_allocation_around_a_dead_broker_is_checked_as_it_was_made(
    strategy: Milp | Albic, kind: str, creatable: bool
) -> None:
    numbers = np.arange(12)
    snapshot = Snapshot(
        resources=("cpu",),
        broker_ids=np.arange(4),
        racks=("r",),
        broker_rack=np.zeros(4, np.int64),
        hosts=("h",),
        broker_host=np.zeros(4, np.int64),
        broker_state=np.array([0, 0, 0, 2]),
        capacity=np.full((4, 1), 100.0),
        topics=("t",),
        partition_topic=np.zeros(12, np.int64),
        partition_number=numbers,
        leader_load=np.ones((12, 1)),
        follower_load=np.zeros((12, 1)),
        replica_offset=np.arange(13),
        replica_broker=np.array([0] * 8 + [1] * 2 + [3] * 2),
        leader=np.array([0] * 10 + [-1] * 2),
        traffic_from=np.array([0, 8]),
        traffic_to=np.array([1, 10]),
        traffic_rate=np.ones(2),
        creatable=np.full(12, creatable),
    )
    plan = Balancer("default", strategy=strategy).propose(snapshot, Operation(kind=kind))
    report = check_plan(snapshot, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


@pytest.mark.parametrize("id_", [7.0, "", True, -1, None, 2**63])
def test_an_id_is_a_whole_number_or_a_name(id_: object) -> None:
    broker = {"id": id_, "capacity": {"cpu": 1.0}}
    with pytest.raises(ValidationError) as caught:
        SnapshotDocument.model_validate({"resources": ["cpu"], "brokers": [broker]})
    said = first_problem(caught.value)
    assert said == f"brokers.0.id: {id_!r} found, a whole number of at least 0, or a name, expected"


class _Wrong(BaseModel):
    """A strategy whose placement no plan may lead to."""

    how: str
    name: ClassVar[str] = "wrong"

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        final = problem.cluster.placement
        brokers = final.brokers
        if self.how == "drops":
            brokers[:, 1] = -1
        elif self.how == "doubles":
            brokers[:, 1] = brokers[:, 0]
        elif self.how == "unknown":
            brokers[0, 0] = 99
        elif self.how == "leaderless":
            final.leader[:] = 7
        else:
            at = np.flatnonzero((brokers != 2).all(1))[0]
            brokers[at, 0] = 2
        final.invalidate_sums()
        return Proposal(placement=final)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("drops", "another number of replicas: topic-0-0 and"),
        ("doubles", "two replicas on one broker: topic-0-0 and"),
        ("unknown", "broker index 99 found"),
        ("leaderless", "no replica for its leader: topic-0-0 and"),
        ("excluded", "a replica on a broker that may not receive it"),
    ],
)
def test_no_plan_is_made_of_a_placement_that_breaks_the_request(how: str, message: str) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    operation = Operation(excluded_brokers_for_replicas=(3,))
    with pytest.raises(StrategyError, match=f"strategy wrong.*{message}"):
        Balancer(strategy=_Wrong(how=how)).propose(snapshot, operation)


def test_a_plan_without_the_replicas_that_it_was_to_add_changes_no_figure() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, replication_factor=1)
    more = Operation(kind="change_replication_factor", replication_factor={".*": 3})
    plan = Balancer(budget=Budget(moves=0)).propose(snapshot, more)
    assert not plan.actions
    for column in plan.columns.values():
        assert column.after == column.before
    assert check_plan(snapshot, plan.document()).ok


def test_a_bound_of_nothing_is_no_divisor() -> None:
    s = synthetic_snapshot(brokers=3, partitions=9, racks=3, replication_factor=1)
    on_last = s.replica_broker == 2
    snapshot = replace(
        s,
        broker_state=np.array([0, 0, 2]),
        leader=np.where(on_last, -1, 0),
        leader_load=np.where(on_last[:, None], s.leader_load, 0.0),
    )
    plan = Balancer(strategy=QUICK).propose(snapshot)
    assert any(column.worst_ratio_bound == 0 for column in plan.columns.values())
    assert "After / bound" in html_report(plan)
