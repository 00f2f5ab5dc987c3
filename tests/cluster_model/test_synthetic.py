from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_model import BrokerState, Snapshot, SnapshotError, synthetic_snapshot
from cluster_model.snapshot import Ints


def rows_by_partition(snapshot: Snapshot) -> Ints:
    return snapshot.replica_broker.reshape(snapshot.n_partitions, -1)


def breaks_rack_rule(snapshot: Snapshot) -> Ints:
    rack = np.sort(snapshot.broker_rack[rows_by_partition(snapshot)], axis=1)
    doubled: Ints = (rack[:, 1:] == rack[:, :-1]).sum(axis=1)
    return doubled


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    brokers = draw(st.integers(1, 12))
    new = draw(st.integers(0, brokers - 1))
    holders = brokers - new
    partitions = draw(st.integers(1, 60))
    return {
        "brokers": brokers,
        "partitions": partitions,
        "replication_factor": draw(st.integers(1, min(holders, 4))),
        "racks": draw(st.integers(1, brokers)),
        "topics": draw(st.none() | st.integers(1, partitions)),
        "skew": draw(st.floats(1, 8)),
        "load_sigma": draw(st.floats(0, 10)),
        "largest_partition": draw(st.floats(1e-3, 2)),
        "rack_violations": draw(st.floats(0, 1)),
        "heterogeneity": draw(st.floats(0, 3)),
        "disks_per_broker": draw(st.integers(0, 3)),
        "dead_brokers": draw(st.integers(0, min(holders, brokers - 1))),
        "new_brokers": new,
        "seed": draw(st.integers(0, 99)),
    }


@given(arguments())
def test_any_sizes_make_a_lawful_snapshot(given_arguments: dict[str, Any]) -> None:
    # The snapshot's own validation says that brokers are distinct and disks owned.
    s = synthetic_snapshot(**given_arguments)
    assert s == synthetic_snapshot(**given_arguments)
    factor = given_arguments["replication_factor"]
    assert s.n_replicas == given_arguments["partitions"] * factor
    assert np.bincount(s.partition_topic, minlength=len(s.topics)).min() >= 1
    holds = np.bincount(s.replica_broker, minlength=s.n_brokers) > 0
    assert not (holds & (s.broker_state == BrokerState.NEW)).any()
    assert (s.broker_state == BrokerState.DEAD).sum() == given_arguments["dead_brokers"]
    doubled = breaks_rack_rule(s)
    usable = np.unique(s.broker_rack[s.broker_state != BrokerState.NEW])
    if len(usable) >= factor:
        assert doubled.max(initial=0) <= 1
        share = given_arguments["rack_violations"]
        assert (doubled > 0).sum() <= round(share * s.n_partitions)


@given(st.integers(0, 50))
@settings(max_examples=8)
def test_the_cluster_is_as_skewed_and_as_full_as_asked(seed: int) -> None:
    s = synthetic_snapshot(brokers=40, partitions=4000, racks=8, rack_violations=0.1, seed=seed)
    assert (breaks_rack_rule(s) > 0).mean() == pytest.approx(0.1)
    load = s.broker_load()
    assert np.allclose(load.sum(axis=0), 0.5 * s.capacity.sum(axis=0))
    leaders = rows_by_partition(s)[:, 0]
    counts = [np.bincount(b, minlength=s.n_brokers) for b in (s.replica_broker, leaders)]
    for held in (*load.T, *counts):
        assert 1.5 < held.max() / held.mean() < 2.6


def test_no_partition_carries_more_than_its_share_of_a_broker() -> None:
    s = synthetic_snapshot(load_sigma=3.0, largest_partition=0.05, replication_factor=3)
    fair = s.broker_load().mean(axis=0)
    assert (s.leader_load.max(axis=0) <= 0.05 * fair * (1 + 1e-9)).all()


def test_followers_take_what_is_written_and_serve_nobody() -> None:
    s = synthetic_snapshot()
    for same in ("network_in", "disk"):
        r = s.resource(same)
        assert np.array_equal(s.follower_load[:, r], s.leader_load[:, r])
    assert not s.follower_load[:, s.resource("network_out")].any()
    cpu = s.resource("cpu")
    assert (s.follower_load[:, cpu] < s.leader_load[:, cpu]).all()


def test_an_even_cluster_can_be_had() -> None:
    s = synthetic_snapshot(skew=1.0, load_sigma=0.0, rack_violations=0.0, partitions=20_000)
    load = s.broker_load()
    assert (load.max(axis=0) < 1.15 * load.mean(axis=0)).all()
    assert not breaks_rack_rule(s).any()


def test_fewer_racks_than_replicas_breaks_the_rule_everywhere() -> None:
    s = synthetic_snapshot(racks=2, replication_factor=3)
    assert (breaks_rack_rule(s) > 0).all()


def test_dead_brokers_do_not_lead_and_new_ones_are_empty() -> None:
    s = synthetic_snapshot(brokers=12, dead_brokers=3, new_brokers=2, utilization=0.4)
    leader = rows_by_partition(s)[np.arange(s.n_partitions), s.leader][s.leader >= 0]
    assert not (s.broker_state[leader] == BrokerState.DEAD).any()
    assert (s.broker_state[s.replica_broker] == BrokerState.DEAD).any()
    left = s.capacity[s.broker_state != BrokerState.DEAD].sum(axis=0)
    assert np.allclose(s.broker_load().sum(axis=0), 0.4 * left)


def test_capacities_differ_where_brokers_do() -> None:
    s = synthetic_snapshot(heterogeneity=1.0)
    assert s.capacity[:, 0].max() > 1.5 * s.capacity[:, 0].min()
    assert np.unique(synthetic_snapshot().capacity, axis=0).shape == (1, 4)


def test_disks_share_the_capacity_of_their_broker() -> None:
    s = synthetic_snapshot(disks_per_broker=4)
    assert s.n_disks == 4 * s.n_brokers
    assert np.allclose(
        np.bincount(s.disk_broker, s.disk_capacity), s.capacity[:, s.resource("disk")]
    )
    assert (s.replica_disk >= 0).all()


def test_few_brokers_have_fewer_racks_and_replicas_unless_given() -> None:
    s = synthetic_snapshot(brokers=2, partitions=10)
    assert (len(s.racks), s.n_replicas) == (2, 20)
    s = synthetic_snapshot()
    assert (len(s.racks), s.n_replicas) == (5, 6000)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"brokers": 0}, "brokers: 0 found, at least 1"),
        ({"partitions": 0}, "partitions: 0 found, at least 1"),
        ({"racks": 21}, "racks: 21 found, 1 to 20"),
        ({"topics": 3000}, "topics: 3000 found, 1 to 2000"),
        ({"skew": 0.5}, "skew: 0.5 found"),
        ({"load_sigma": float("nan")}, "load_sigma: nan found"),
        ({"largest_partition": 0.0}, "largest_partition: 0.0 found"),
        ({"utilization": 0.0}, "utilization: 0.0 found"),
        ({"rack_violations": 1.5}, "rack_violations: 1.5 found, a share of 0 to 1"),
        ({"heterogeneity": -1.0}, "heterogeneity: -1.0 found"),
        ({"disks_per_broker": -1}, "disks_per_broker: -1 found"),
        ({"new_brokers": 20}, "new_brokers: 20 found, 0 to 19"),
        ({"dead_brokers": 20}, "dead_brokers: 20 found, 0 to 19"),
        ({"replication_factor": 4, "brokers": 5, "new_brokers": 2, "racks": 1}, "1 to 3"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(
    wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(SnapshotError, match=words):
        synthetic_snapshot(**wrong)
