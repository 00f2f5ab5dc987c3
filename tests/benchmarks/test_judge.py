from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.harness.judge import balance_metrics, move_metrics, placed, rack_violations
from cluster_model import Snapshot, SnapshotDocument, SnapshotError, build_snapshot
from cluster_model import synthetic_snapshot as invented


def four_brokers() -> Snapshot:
    """Two racks of two brokers; both partitions live on brokers 1 and 2, of one rack."""
    broker = {"capacity": {"disk": 100.0}}
    partition = {
        "topic": "t",
        "replicas": [1, 2],
        "leader": 1,
        "leader_load": {"disk": 30.0},
        "follower_load": {"disk": 30.0},
    }
    return build_snapshot(
        SnapshotDocument.model_validate(
            {
                "resources": ["disk"],
                "brokers": [{"id": i, "rack": "ab"[(i - 1) // 2], **broker} for i in range(1, 5)],
                "partitions": [{"partition": i, **partition} for i in range(2)],
            }
        )
    )


def test_evenness_and_violations_of_a_small_cluster() -> None:
    reported = {metric: value for metric, value, _ in balance_metrics(four_brokers())}
    assert reported == {
        "worst / mean disk": 2.0,
        "worst / mean replicas": 2.0,
        "worst / mean leaders": 4.0,
        "rack violations": 2.0,
        "capacity violations": 0.0,
    }


def test_moves_are_reported_by_what_a_broker_newly_holds() -> None:
    before = four_brokers()
    after = placed(before, np.array([0, 2, 1, 0]), np.array([0, 0]))
    reported = {metric: value for metric, value, _ in move_metrics(before, after)}
    # Partition 0 goes from broker 2 to 3; partition 1 stays and is led by broker 2.
    assert reported["moves"] == 1
    assert reported["leadership moves"] == 1
    assert reported["bytes moved"] == 30.0
    assert reported["bytes moved / all bytes"] == 0.25
    assert rack_violations(after) == 1


def test_the_order_of_replicas_is_no_move() -> None:
    before = four_brokers()
    after = placed(before, np.array([1, 0, 1, 0]), np.array([1, 1]))
    assert all(value == 0 for _, value, _ in move_metrics(before, after))


def test_two_replicas_on_one_broker_are_refused() -> None:
    with pytest.raises(SnapshotError, match="replica_broker"):
        placed(four_brokers(), np.array([0, 0, 0, 1]), np.array([0, 0]))


@given(st.integers(0, 30))
@settings(max_examples=10)
def test_bytes_are_those_of_the_replicas_that_changed_place(seed: int) -> None:
    before = invented(brokers=8, partitions=60, racks=4, seed=seed)
    rng = np.random.default_rng(seed)
    brokers = before.replica_broker.reshape(-1, 3).copy()
    for row in rng.choice(60, 10, replace=False):
        brokers[row, 2] = rng.choice(np.setdiff1d(np.arange(8), brokers[row]))
    after = placed(before, brokers.ravel(), before.leader)
    reported = {metric: value for metric, value, _ in move_metrics(before, after)}
    changed = brokers[:, 2] != before.replica_broker.reshape(-1, 3)[:, 2]
    size = before.follower_load[changed, before.resource("disk")].sum()
    assert reported["moves"] == 10
    assert reported["leadership moves"] == 0
    assert reported["bytes moved"] == pytest.approx(size)
