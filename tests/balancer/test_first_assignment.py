"""Partitions without replicas: who may create them, and how plans assign them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

import numpy as np
import pytest
from balancer_cases import OPERATIONS, QUICK, assert_sound, examples, long, small
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Budget, Operation, OperationError, PlanError
from balancer.allocation.errors import AllocationError
from balancer.planning.exports import reassignment_json
from balancer.report import html_report
from balancer.strategies import local_search
from balancer.verification.checker import check_plan
from cluster_model import (
    BrokerState,
    Snapshot,
    SnapshotDocument,
    SnapshotError,
    build_snapshot,
    load_snapshot,
    save_snapshot,
    synthetic_snapshot,
)
from cluster_model.build import to_document
from goals import Goal, ResourceCapacity


def unassigned(s: Snapshot, without: Any, **changes: Any) -> Snapshot:
    """The cluster with all partitions creatable, and the marked ones without replicas."""
    without = np.asarray(without, np.bool_)
    kept = ~without[s.replica_partition]
    factor = np.where(without, 0, s.replication_factor)
    disks = {"replica_disk": s.replica_disk[kept]} if s.n_disks else {}
    fields: dict[str, Any] = {
        "replica_offset": np.concatenate([[0], np.cumsum(factor)]),
        "replica_broker": s.replica_broker[kept],
        "leader": np.where(without, -1, s.leader),
        "creatable": np.ones(s.n_partitions, np.bool_),
    }
    return replace(s, **fields | disks | changes)


@examples(4)
@given(
    st.integers(0, 10**6),
    st.sampled_from(OPERATIONS),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from(["default", "cruise-control", "autobalancer"]),
    st.integers(0, 3),
    st.booleans(),
)
def test_every_plan_with_unassigned_partitions_is_sound(
    seed: int, operation: dict[str, Any], share: float, profile: str, target: int, limited: bool
) -> None:
    rng = np.random.default_rng(seed)
    s = small(seed, disks_per_broker=seed % 3, dead_brokers=seed % 2)
    s = unassigned(s, rng.random(s.n_partitions) < share)
    s = replace(s, target_replicas=rng.integers(0, target + 1, s.n_partitions))
    if limited:
        s = replace(s, may_hold=rng.random((len(s.topics), s.n_brokers)) < 0.8)
    budget = Budget(moves=20) if seed % 5 == 0 else None
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            balancer = Balancer(profile, seed=seed, budget=budget, strategy=QUICK)
            plan = balancer.propose(s, Operation(**operation))
        except OperationError:
            return  # an added broker that is dead, or too few brokers for three replicas
        assert_sound(s, plan)
    assert plan.final_snapshot().n_partitions == s.n_partitions


def test_a_rebalance_assigns_every_partition_with_a_leader() -> None:
    s = unassigned(small(), np.ones(60))
    assert s.n_replicas == 0
    plan = Balancer("default", strategy=QUICK).propose(s)
    ended = plan.final_snapshot()
    assert (ended.replication_factor == 1).all()
    assert (ended.leader == 0).all()
    assert {a.kind for a in plan.actions} == {"add"}
    assert all(a.leader and a.source is None for a in plan.actions)
    assert np.ptp(np.bincount(ended.replica_broker, minlength=6)) <= 3
    assert_sound(s, plan)


def test_a_target_gives_more_replicas_and_leaves_racks_apart() -> None:
    s = unassigned(small(partitions=30), np.ones(30), target_replicas=np.full(30, 2))
    plan = Balancer("default", strategy=QUICK).propose(s)
    ended = plan.final_snapshot()
    assert (ended.replication_factor == 2).all()
    racks = ended.broker_rack[ended.replica_broker].reshape(-1, 2)
    assert (racks[:, 0] != racks[:, 1]).all()
    firsts = [a for a in plan.actions if a.leader]
    assert len(firsts) == 30
    seen: set[tuple[str, int]] = set()
    for a in plan.actions:
        assert a.leader == ((a.topic, a.partition) not in seen)
        seen.add((a.topic, a.partition))
    assert_sound(s, plan)


def test_a_target_adds_to_what_is_there() -> None:
    s = replace(small(), target_replicas=np.where(np.arange(60) < 5, 3, 0))
    plan = Balancer("default", strategy=QUICK).propose(s)
    added = [a for a in plan.actions if a.kind == "add"]
    assert len(added) == 5
    assert not any(a.leader for a in added)
    assert_sound(s, plan)


def test_the_leader_is_on_a_broker_that_may_lead() -> None:
    s = unassigned(small(partitions=30), np.ones(30), target_replicas=np.full(30, 3))
    state = np.where(np.arange(6) < 4, BrokerState.DEMOTED, BrokerState.ALIVE)
    s = replace(s, broker_state=state)
    plan = Balancer("default", strategy=QUICK).propose(s)
    assert {a.destination for a in plan.actions if a.leader} <= {5, 6}
    assert_sound(s, plan)


def test_demoting_assigns_nothing() -> None:
    s = unassigned(small(), np.arange(60) < 10)
    plan = Balancer("default", strategy=QUICK).propose(
        s, Operation(kind="demote_brokers", brokers=(1,))
    )
    assert not any(a.kind == "add" for a in plan.actions)
    assert "EligibleLeaders" in {u.goal for u in plan.unmet}
    assert_sound(s, plan)


def test_frozen_partitions_stay_unassigned() -> None:
    s = unassigned(small(), np.arange(60) < 10)
    name = f"{s.topics[s.partition_topic[0]]}-{s.partition_number[0]}"
    plan = Balancer("default", strategy=QUICK).propose(s, Operation(frozen_partitions=(name,)))
    assert sum(a.kind == "add" for a in plan.actions) == 9
    assert_sound(s, plan)


def test_no_room_is_said() -> None:
    s = unassigned(small(), np.arange(60) < 10)
    s = replace(s, capacity=s.broker_load() * 1.0001 + 1e-9)
    plan = Balancer("default", strategy=QUICK).propose(s)
    (unmet,) = [u for u in plan.unmet if u.goal == "ReplicationFactor"]
    assert "none of the 6 brokers that may receive replicas can take one more" in unmet.reason
    assert_sound(s, plan)


def pods(seed: int, resources: int, fill: float, brokers: int = 10) -> tuple[Snapshot, list[Goal]]:
    """Equal brokers and 13 units each of very different sizes without a place; hard capacities."""
    rng, units = np.random.default_rng([seed, resources]), 13 * brokers
    size = rng.choice([0.25, 0.5, 1, 2, 4], (units, resources), p=[0.3, 0.3, 0.2, 0.15, 0.05])
    load = size * rng.uniform(0.8, 1.2, size.shape)
    names = ("cpu", "memory")[:resources]
    s = synthetic_snapshot(brokers=brokers, partitions=units, replication_factor=1, topics=1)
    room = np.tile(load.sum(0) / brokers / fill, (brokers, 1))
    s = replace(s, resources=names, capacity=room, leader_load=load, follower_load=load.copy())
    goals: list[Goal] = [ResourceCapacity(resource=name, threshold=1.0) for name in names]
    return unassigned(s, np.ones(units)), goals


@pytest.mark.parametrize("seed", [1, 2, *long(*range(3, 20))])
@pytest.mark.parametrize(("resources", "fill"), [(1, 0.98), (2, 0.92)])
def test_every_unit_finds_a_place_where_there_is_little_room(
    seed: int, resources: int, fill: float
) -> None:
    s, goals = pods(seed, resources, fill, brokers=40)
    plan = Balancer(goals, strategy=QUICK).propose(s)
    assert plan.ok
    assert plan.final_snapshot().n_replicas == 520
    assert_sound(s, plan)


def test_first_places_are_no_longer_looked_for_once_a_plan_is_to_stop() -> None:
    s, goals = pods(1, 1, 0.98)
    stop = Event()
    stop.set()
    kept = Balancer(goals, strategy=QUICK).propose(s, stop=stop)
    assert kept.summary.exhausted == "stopped"
    with mock.patch.object(local_search, "fit") as fit:
        without = Balancer(goals, strategy=QUICK).propose(s, stop=stop)
    fit.assert_called_once()
    assert kept.final_snapshot().digest() == without.final_snapshot().digest()


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        ({}, ""),
        ({"kind": "fix_offline_replicas"}, "every replica is on a living broker and disk; "),
        ({"kind": "remove_brokers", "brokers": (3,)}, "broker 3 is empty; "),
    ],
)
def test_what_is_larger_than_any_broker_is_proven_to_have_no_place(
    operation: dict[str, Any], says: str
) -> None:
    s, goals = pods(0, 1, 0.7)
    load = s.leader_load.copy()
    load[[7, 9]] = s.capacity[0] * [[1.5], [1.2]]
    s = replace(s, leader_load=load, follower_load=load.copy())
    plan = Balancer(goals, strategy=QUICK).propose(s, Operation(**operation))
    assert plan.verdict is not None
    assert not plan.verdict.fulfilled
    assert plan.verdict.remaining == 2
    assert plan.verdict.sentence == f"{says}2 partitions have fewer replicas than asked for"
    (unmet,) = [u for u in plan.unmet if u.goal == "ReplicationFactor"]
    assert unmet.proven
    assert unmet.reason.startswith("topic-0-7 and 1 more: load (cpu) of a single replica is ")
    assert_sound(s, plan)
    document = plan.document()
    forged = tuple(u.model_copy(update={"proven": False}) for u in document.unmet)
    found = check_plan(s, document.model_copy(update={"unmet": forged, "digest": None}))
    assert "proven" in {fault.kind for fault in found.mismatches}


def test_partitions_with_dead_replicas_are_created_again_if_they_may_be() -> None:
    s = small(dead_brokers=2, replication_factor=1)
    lost = np.isin(s.replica_broker, np.flatnonzero(s.broker_state == BrokerState.DEAD))
    assert lost.any()
    kept = Balancer("default", strategy=QUICK).propose(s)
    assert "OnlineReplicas" in {u.goal for u in kept.unmet}
    s = replace(s, creatable=np.ones(s.n_partitions, np.bool_))
    plan = Balancer("default", strategy=QUICK).propose(s)
    ended = plan.final_snapshot()
    assert (ended.broker_state[ended.replica_broker] != BrokerState.DEAD).all()
    assert not {"OnlineReplicas", "EligibleLeaders"} & {u.goal for u in plan.unmet}
    assert_sound(s, plan)


def test_the_checker_does_not_let_anything_else_be_created() -> None:
    s = replace(small(dead_brokers=2, replication_factor=1), creatable=np.ones(60, np.bool_))
    plan = Balancer("default", strategy=QUICK).propose(s).document()
    found = check_plan(replace(s, creatable=np.empty(0, np.bool_)), plan).violations
    assert "lost" in {v.kind for v in found}


def test_the_checker_finds_a_first_replica_that_does_not_lead() -> None:
    s = unassigned(small(), np.arange(60) < 1)
    plan = Balancer("default", strategy=QUICK).propose(s).document()
    actions = tuple(
        a.model_copy(update={"leader": False}) if a.kind == "add" else a for a in plan.actions
    )
    found = check_plan(s, plan.model_copy(update={"actions": actions})).violations
    assert any("leads, as the first" in v.text for v in found)


def test_kafka_cannot_create_replicas() -> None:
    s = unassigned(small(), np.arange(60) < 1)
    plan = Balancer("default", strategy=QUICK).propose(s)
    with pytest.raises(PlanError, match=r"partition topic-\d+-\d+: no living replica found"):
        reassignment_json(plan)


def test_an_allocation_refuses_unassigned_partitions() -> None:
    s = unassigned(small(replication_factor=1), np.arange(60) < 1)
    with pytest.raises(AllocationError, match="0 replicas found, 1 expected of a key group"):
        Balancer([], strategy="milp").propose(s)


def test_the_report_and_the_command_line_show_it(tmp_path: Path) -> None:
    s = unassigned(small(), np.arange(60) < 5)
    path = tmp_path / "cluster.json"
    save_snapshot(s, path)
    result = invoke(["propose", path, "-o", tmp_path / "plan.json"])
    assert result.exit_code in (0, 1), result.output
    checked = invoke(["verify", path, tmp_path / "plan.json"])
    assert checked.exit_code == 0, checked.output
    assert "<html" in html_report(Balancer("default", strategy=QUICK).propose(s))


# --- files


def document(**partition: Any) -> dict[str, Any]:
    return {
        "resources": ["disk"],
        "brokers": [{"id": 1, "capacity": {"disk": 10}}, {"id": 2, "capacity": {"disk": 10}}],
        "partitions": [{"topic": "orders", "partition": 0} | partition],
    }


def built(**partition: Any) -> Snapshot:
    return build_snapshot(SnapshotDocument.model_validate(document(**partition)))


def test_a_document_states_what_may_be_created() -> None:
    s = built(creatable=True, replication_factor=2)
    assert s.replication_factor.tolist() == [0]
    assert s.target_replication_factor.tolist() == [2]
    assert s.creatable.tolist() == [True]
    assert build_snapshot(SnapshotDocument.model_validate(to_document(s))) == s
    whole = build_snapshot(SnapshotDocument.model_validate(document() | {"creatable": True}))
    assert whole.creatable.tolist() == [True]


def test_a_partition_without_replicas_must_be_creatable() -> None:
    with pytest.raises(SnapshotError, match=r"partition orders-0: no replicas found, at least one"):
        built()
    with pytest.raises(SnapshotError, match=r"replica_offset, row 0: 0 found, at least one"):
        replace(built(creatable=True), creatable=np.empty(0, np.bool_))
    with pytest.raises(SnapshotError, match="leader 1 is not among replicas"):
        built(creatable=True, leader=1)


@examples(8)
@given(st.integers(0, 10**6), st.sampled_from([".json", ".npz"]))
def test_files_keep_it(tmp_path_factory: pytest.TempPathFactory, seed: int, suffix: str) -> None:
    rng = np.random.default_rng(seed)
    s = small(seed % 10, disks_per_broker=seed % 3)
    s = unassigned(s, rng.random(60) < 0.4, target_replicas=rng.integers(0, 3, 60))
    path = tmp_path_factory.mktemp("unassigned") / f"cluster{suffix}"
    save_snapshot(s, path)
    again = load_snapshot(path)
    assert again == s
    assert again.digest() == s.digest()
