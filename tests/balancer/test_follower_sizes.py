"""Plans hold where followers are smaller or larger than their leaders, as on a live cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, examples
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer import Balancer, Operation, OperationError
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import BrokerState

OPERATIONS: dict[str, dict[str, Any]] = {
    "rebalance": {},
    "add_brokers": {"brokers": True},
    "remove_brokers": {"brokers": True},
    "demote_brokers": {"brokers": True},
    "fix_offline_replicas": {},
    "change_replication_factor": {"replication_factor": True},
}


def unlike_leaders(s: Snapshot, low: float, high: float, seed: int) -> Snapshot:
    """The snapshot with each partition's followers at `low` to `high` of their leader's load."""
    factor = np.random.default_rng(seed).uniform(low, high, s.leader_load.shape)
    return replace(s, follower_load=s.leader_load * factor)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    brokers = draw(st.integers(3, 7), "brokers")
    partitions = draw(st.integers(3, 40), "partitions")
    s = synthetic_snapshot(
        brokers=brokers,
        partitions=partitions,
        replication_factor=draw(st.integers(1, 3), "factor"),
        racks=draw(st.integers(1, brokers), "racks"),
        topics=draw(st.integers(1, min(3, partitions)), "topics"),
        utilization=draw(st.sampled_from([0.2, 0.5, 0.75]), "utilization"),
        disks_per_broker=draw(st.sampled_from([0, 0, 2]), "disks"),
        dead_brokers=draw(st.integers(0, 1), "dead"),
        rack_violations=draw(st.sampled_from([0.0, 0.3]), "violations"),
        seed=draw(st.integers(0, 1000), "seed"),
    )
    low, high = draw(
        st.sampled_from([(0.0, 0.0), (0.1, 0.9), (0.9, 1.1), (1.1, 3.0), (0.0, 3.0)]), "sizes"
    )
    return unlike_leaders(s, low, high, draw(st.integers(0, 1000), "sizes' seed"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPERATIONS)
def test_a_plan_passes_its_check_whatever_the_size_of_followers(kind: str) -> None:
    @examples(5)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        s = data.draw(snapshots())
        living = s.broker_ids[s.broker_state != BrokerState.DEAD].tolist()
        arguments: dict[str, Any] = {"kind": kind}
        if "brokers" in OPERATIONS[kind]:
            arguments["brokers"] = (data.draw(st.sampled_from(living), "broker"),)
        if "replication_factor" in OPERATIONS[kind]:
            arguments["replication_factor"] = {".*": data.draw(st.integers(1, 3), "factor")}
        profile = data.draw(st.sampled_from(["default", "cruise-control", "autobalancer"]))
        try:
            plan = Balancer(profile, strategy=QUICK).propose(s, Operation(**arguments))
        except OperationError:
            assume(False)
            raise
        report = check_plan(s, plan.document())
        assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)][:10]

    check()


def test_all_bytes_count_followers_at_their_own_size() -> None:
    s = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    s = replace(s, follower_load=0.5 * s.leader_load)
    disk = s.resource("disk")
    leaders, followers = s.leader_load[:, disk].sum(), 2 * s.follower_load[:, disk].sum()
    assert Balancer().propose(s).summary.cost_total == pytest.approx(leaders + followers)
