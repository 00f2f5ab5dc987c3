"""Warming replicas may not lead before their copies are close enough."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import OPERATIONS, QUICK, assert_sound, examples, search_of, small
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from balancer import Balancer, Operation
from balancer.verification.checker import check_plan
from cluster_model import (
    Snapshot,
    SnapshotDocument,
    SnapshotError,
    build_snapshot,
    load_snapshot,
    save_snapshot,
)
from cluster_model.build import to_document

# A dead broker, of which there are some, cannot be added.
_OPERATIONS = [o for o in OPERATIONS if o.get("kind") != "add_brokers"]


def warming(seed: int, share: float = 0.6, **changes: Any) -> Snapshot:
    """A cluster with a share of its followers warming up, at lags from 0 to 1000."""
    s = small(seed, **{"replication_factor": 3} | changes)
    rng = np.random.default_rng(seed)
    return replace(
        s,
        warming=(rng.random(s.n_replicas) < share) & ~s.replica_is_leader,
        copy_partition=s.replica_partition[::2],
        copy_broker=s.replica_broker[::2],
        copy_lag=rng.integers(0, 1000, len(s.replica_broker[::2])).astype(np.float64),
    )


def cold(s: Snapshot, acceptable_lag: float) -> set[tuple[str, int, int]]:
    """(topic, number, broker id) of the replicas that may not lead."""
    lags = {
        (p, b): lag
        for p, b, lag in zip(
            s.copy_partition.tolist(), s.copy_broker.tolist(), s.copy_lag.tolist(), strict=True
        )
    }
    held = zip(
        s.replica_partition.tolist(), s.replica_broker.tolist(), s.warming.tolist(), strict=True
    )
    return {
        (s.topics[s.partition_topic[p]], int(s.partition_number[p]), int(s.broker_ids[b]))
        for p, b, is_ in held
        if is_ and not lags.get((p, b), np.inf) <= acceptable_lag
    }


@examples(5)
@given(
    st.integers(0, 10**6),
    st.sampled_from(_OPERATIONS),
    st.sampled_from([0.0, 300.0, 1e6]),
    st.floats(0.1, 1.0),
)
def test_no_plan_lets_a_cold_replica_lead(
    seed: int, operation: dict[str, Any], acceptable_lag: float, share: float
) -> None:
    s = warming(seed, share, dead_brokers=seed % 2, disks_per_broker=seed % 3)
    asked = Operation(**operation, acceptable_lag=acceptable_lag)
    plan = Balancer("default", seed=seed, strategy=search_of(seed)).propose(s, asked)
    assert_sound(s, plan)
    too_far = cold(s, acceptable_lag)
    for a in plan.actions:
        if a.leader:
            assert (a.topic, a.partition, a.destination) not in too_far


def test_the_end_of_a_plan_is_a_snapshot_without_warming_leaders() -> None:
    s = warming(1)
    ended = (
        Balancer("default", strategy=QUICK)
        .propose(s, Operation(acceptable_lag=1e6))
        .final_snapshot()
    )
    assert ended.warming.any()
    assert not (ended.warming & ended.replica_is_leader).any()


def test_demotion_waits_for_the_lag() -> None:
    s = warming(0, 1.0)
    asked = Operation(kind="demote_brokers", brokers=(1,))
    # every follower is cold, or its lag is unknown
    s = replace(s, copy_lag=np.full(len(s.copy_lag), 500.0))
    plan = Balancer("default", strategy=QUICK).propose(s, asked)
    assert len(plan) == 0
    (unmet,) = [u for u in plan.unmet if u.goal == "EligibleLeaders"]
    assert "the replicas that could lead are still warming up" in unmet.reason
    assert_sound(s, plan)
    later = Balancer("default", strategy=QUICK).propose(
        s, asked.model_copy(update={"acceptable_lag": 500.0})
    )
    assert any(a.kind == "leadership" for a in later.actions)
    assert_sound(s, later)


def test_the_checker_finds_a_cold_leader() -> None:
    s = warming(0, 1.0)
    s = replace(s, warming=np.empty(0, np.bool_))
    plan = Balancer("default", strategy=QUICK).propose(
        s, Operation(kind="demote_brokers", brokers=(1,))
    )
    assert any(a.kind == "leadership" for a in plan.actions)
    found = check_plan(replace(s, warming=~s.replica_is_leader), plan.document()).violations
    assert any("is still warming up" in v.text for v in found)


def test_a_wrong_acceptable_lag_is_refused() -> None:
    with pytest.raises(ValidationError, match="acceptable_lag"):
        Operation(acceptable_lag=-1)
    plan = Balancer("default", strategy=QUICK).propose(warming(0)).document()
    wrong = plan.model_copy(update={"operation": {"kind": "rebalance", "acceptable_lag": "x"}})
    (found,) = check_plan(warming(0), wrong).violations
    assert "acceptable_lag 'x' found, a number of at least 0 expected" in found.text


# --- files


@examples(8)
@given(st.integers(0, 10**6), st.sampled_from([".json", ".npz"]))
def test_files_keep_it(tmp_path_factory: pytest.TempPathFactory, seed: int, suffix: str) -> None:
    s = warming(seed)
    path: Path = tmp_path_factory.mktemp("warming") / f"cluster{suffix}"
    save_snapshot(s, path)
    again = load_snapshot(path)
    assert again == s
    assert again.digest() == s.digest()


def document(**partition: Any) -> dict[str, Any]:
    return {
        "resources": ["disk"],
        "brokers": [{"id": 7, "capacity": {"disk": 1}}, {"id": 9, "capacity": {"disk": 1}}],
        "partitions": [{"topic": "t", "partition": 0, "replicas": [7, 9]} | partition],
    }


def test_a_document_names_the_brokers() -> None:
    s = build_snapshot(SnapshotDocument.model_validate(document(leader=7, warming=[9])))
    assert s.warming.tolist() == [False, True]
    assert to_document(s)["partitions"][0]["warming"] == [9]


@pytest.mark.parametrize(
    ("partition", "says"),
    [
        ({"leader": 7, "warming": [7]}, "warming replica on broker 7 found, one of its followers"),
        ({"leader": 7, "warming": [8]}, "warming replica on broker 8 found, one of its followers"),
        ({"warming": [9]}, "warming, row 1: True found, only followers of a partition with a lead"),
    ],
)
def test_only_followers_can_be_warming(partition: dict[str, Any], says: str) -> None:
    with pytest.raises(SnapshotError, match=says):
        build_snapshot(SnapshotDocument.model_validate(document(**partition)))
