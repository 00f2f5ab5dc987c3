"""Brokers that may hold only some topics: plans respect it, and the checker enforces it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import OPERATIONS, QUICK, assert_sound, examples, search_of, small
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Operation, OperationError
from balancer.allocation.errors import AllocationError
from balancer.planning.remedies import RemedyLimits
from balancer.problem.resolution import resolve
from balancer.search.candidates import Candidates
from balancer.search.scorer import Scorer
from balancer.verification.checker import check_plan
from cluster_model import (
    Snapshot,
    SnapshotDocument,
    SnapshotError,
    build_snapshot,
    load_snapshot,
    save_snapshot,
    synthetic_snapshot,
)
from cluster_model.build import to_document
from cluster_model.placement import Placement


def limited(seed: int, share: float = 0.6, **changes: Any) -> Snapshot:
    """A cluster in which a broker may hold a random share of the topics."""
    s = small(seed, **{"brokers": 8, "partitions": 96, "topics": 4} | changes)
    rng = np.random.default_rng(seed)
    may_hold = rng.random((len(s.topics), s.n_brokers)) < share
    return replace(s, may_hold=may_hold)


def held(s: Snapshot) -> set[tuple[int, int]]:
    """Pairs (topic, broker) with a replica."""
    topic = s.partition_topic[s.replica_partition]
    return set(zip(topic.tolist(), s.replica_broker.tolist(), strict=True))


@examples(6)
@given(st.integers(0, 10**6), st.sampled_from(OPERATIONS), st.floats(0.3, 1.0), st.booleans())
def test_no_plan_places_a_replica_where_it_may_not_be(
    seed: int, operation: dict[str, Any], share: float, dead: bool
) -> None:
    s = limited(seed, share, dead_brokers=int(dead))
    try:
        balancer = Balancer("default", seed=seed, strategy=search_of(seed))
        plan = balancer.propose(s, Operation(**operation))
    except OperationError:
        return  # a topic that may be on too few brokers, or an added broker that is dead
    assert_sound(s, plan)
    ids = dict(zip(s.broker_ids.tolist(), range(s.n_brokers), strict=True))
    may_hold = s.may_hold if s.may_hold.size else np.ones((len(s.topics), s.n_brokers), np.bool_)
    for a in plan.actions:
        if a.kind in ("move", "add"):
            assert may_hold[s.topics.index(a.topic), ids[a.destination]]
    assert held(plan.final_snapshot()) - held(s) <= set(zip(*np.nonzero(may_hold), strict=True))


def test_replicas_leave_brokers_that_may_not_hold_them() -> None:
    s = limited(3)
    before = {at for at in held(s) if not s.may_hold[at]}
    plan = Balancer("default", strategy=QUICK).propose(s)
    after = {at for at in held(plan.final_snapshot()) if not s.may_hold[at]}
    assert before
    assert not after
    assert all(u.goal != "OnlineReplicas" for u in plan.unmet)


def test_they_leave_with_an_operation_that_moves_nothing_else() -> None:
    s = limited(3)
    plan = Balancer("default", strategy=QUICK).propose(s, Operation(kind="fix_offline_replicas"))
    moves = [a for a in plan.actions if a.kind == "move"]
    ids = dict(zip(s.broker_ids.tolist(), range(s.n_brokers), strict=True))
    assert moves
    assert all(not s.may_hold[s.topics.index(a.topic), ids[a.source]] for a in moves)
    assert_sound(s, plan)


def test_an_impossible_topic_is_named_with_its_brokers() -> None:
    s = limited(0)
    may_hold = np.ones_like(s.may_hold)
    may_hold[1] = False
    may_hold[1, 4] = True
    s = replace(s, may_hold=may_hold)
    plan = Balancer("default", strategy=QUICK).propose(s)
    (unmet,) = [u for u in plan.unmet if u.goal == "OnlineReplicas"]
    assert unmet.proven
    assert f"2 replicas, and topic {s.topics[1]} may be on broker 5 only" in unmet.reason
    assert unmet.brokers_to_add == 1
    assert_sound(s, plan)
    none = may_hold.copy()
    none[1] = False
    plan = Balancer("default", strategy=QUICK).propose(replace(s, may_hold=none))
    (unmet,) = [u for u in plan.unmet if u.goal == "OnlineReplicas"]
    assert f"no broker that may receive replicas of topic {s.topics[1]}" in unmet.reason


def test_a_remedy_adds_brokers_that_may_hold_everything() -> None:
    s = limited(0)
    may_hold = np.ones_like(s.may_hold)
    may_hold[1] = np.arange(s.n_brokers) < 1
    s = replace(s, may_hold=may_hold)
    limits = RemedyLimits(trials=3)
    plan = Balancer([], remedies=limits).propose(s)
    assert plan.remedy is not None
    assert plan.remedy.tried
    assert plan.remedy.brokers == 1


def test_a_higher_replication_factor_than_brokers_is_refused() -> None:
    s = limited(0)
    may_hold = np.ones_like(s.may_hold)
    may_hold[0] = np.arange(s.n_brokers) < 2
    s = replace(s, may_hold=may_hold)
    operation = Operation(kind="change_replication_factor", replication_factor={s.topics[0]: 3})
    with pytest.raises(OperationError, match=r"no further broker may receive replicas of it"):
        Balancer("default").propose(s, operation)


def test_new_replicas_may_share_a_rack_if_their_brokers_do() -> None:
    s = limited(0)
    may_hold = np.zeros_like(s.may_hold)
    one_rack = s.broker_rack == s.broker_rack[0]
    may_hold[:, one_rack] = True
    s = replace(s, may_hold=may_hold)
    assert one_rack.sum() >= 3
    plan = Balancer("default", strategy=QUICK).propose(
        s, Operation(kind="change_replication_factor", replication_factor={".*": 3})
    )
    assert any(a.kind == "add" for a in plan.actions)
    assert_sound(s, plan)


def test_few_draws_are_wasted_on_brokers_that_may_not_hold_the_topic() -> None:
    # every topic may be on 2 of 24 brokers: blind draws would be legal one time in twelve
    s = synthetic_snapshot(brokers=24, partitions=480, replication_factor=1, racks=3, topics=12)
    may_hold = np.arange(s.n_brokers)[None] // 2 == np.arange(len(s.topics))[:, None]
    s = replace(s, may_hold=may_hold)
    resolved = resolve(s, Operation())
    scorer = Scorer(resolved.cluster, [])
    candidates = Candidates(scorer, resolved.rules, np.random.default_rng(0))
    at = np.arange(s.n_partitions)
    batch = candidates.spread(at, candidates.receivers, 4)
    assert s.may_hold[s.partition_topic[batch.partition], batch.target].all()


def test_the_checker_finds_a_replica_where_it_may_not_be() -> None:
    s = synthetic_snapshot(brokers=6, partitions=60, replication_factor=2, racks=3, topics=3)
    plan = Balancer("default", strategy=QUICK).propose(s).document()
    moved = next(a for a in plan.actions if a.kind == "move")
    may_hold = np.ones((3, 6), np.bool_)
    may_hold[s.topics.index(moved.topic), s.broker_ids.tolist().index(moved.destination)] = False
    found = check_plan(replace(s, may_hold=may_hold), plan).violations
    assert any(f"may not hold replicas of topic {moved.topic}" in v.text for v in found)


def test_an_allocation_refuses_limited_brokers() -> None:
    s = limited(1, replication_factor=1)
    with pytest.raises(AllocationError, match=r"may hold some topics only \(may_hold\)"):
        Balancer([], strategy="milp").propose(s)


# --- files


def document(**broker: Any) -> dict[str, Any]:
    return {
        "resources": ["disk"],
        "brokers": [
            {"id": 1, "capacity": {"disk": 10}} | broker,
            {"id": 2, "capacity": {"disk": 10}},
        ],
        "topics": ["payments"],
        "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}],
    }


def test_a_document_names_the_topics_of_a_broker() -> None:
    s = build_snapshot(SnapshotDocument.model_validate(document(may_hold=["payments"])))
    assert s.topics == ("orders", "payments")
    assert s.may_hold.tolist() == [[False, True], [True, True]]
    again = to_document(s)
    assert [b.get("may_hold") for b in again["brokers"]] == [["payments"], None]
    assert build_snapshot(SnapshotDocument.model_validate(again)) == s


def test_a_broker_may_hold_nothing() -> None:
    s = build_snapshot(SnapshotDocument.model_validate(document(may_hold=[])))
    assert s.may_hold.tolist() == [[False, True], [False, True]]


def test_a_broker_that_may_hold_every_topic_is_not_limited() -> None:
    s = build_snapshot(SnapshotDocument.model_validate(document(may_hold=["orders", "payments"])))
    assert not s.may_hold.size
    free = build_snapshot(SnapshotDocument.model_validate(document()))
    assert s == free
    assert s.digest() == free.digest()


def test_an_unknown_topic_is_an_error() -> None:
    with pytest.raises(SnapshotError, match=r"broker 1 may_hold: topic 'order' found"):
        build_snapshot(SnapshotDocument.model_validate(document(may_hold=["order"])))


def test_the_shape_is_checked() -> None:
    s = synthetic_snapshot(brokers=4, partitions=12, topics=3)
    with pytest.raises(SnapshotError, match=r"may_hold: an array of shape \(2, 4\) found"):
        replace(s, may_hold=np.zeros((2, 4), np.bool_))


@examples(8)
@given(st.integers(0, 10**6), st.sampled_from([".json", ".npz"]), st.floats(0.0, 1.0))
def test_files_keep_it(
    tmp_path_factory: pytest.TempPathFactory, seed: int, suffix: str, share: float
) -> None:
    s = limited(seed, share)
    path: Path = tmp_path_factory.mktemp("limited") / f"cluster{suffix}"
    save_snapshot(s, path)
    again = load_snapshot(path)
    assert again == s
    assert again.digest() == s.digest()
    assert again.may_hold.shape == s.may_hold.shape


def test_sums_do_not_depend_on_it() -> None:
    s = limited(5)
    free = replace(s, may_hold=np.empty((0, 0), np.bool_))
    one, two = Placement(s), Placement(free)
    assert np.array_equal(one.sums("broker", "load.disk"), two.sums("broker", "load.disk"))
    assert s != free
    assert s.digest() != free.digest()
