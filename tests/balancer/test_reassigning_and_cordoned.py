"""Plans do not touch what Kafka is reassigning, and place nothing new on cordoned disks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import OPERATIONS, QUICK, examples, small
from command_line import invoke
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer import Balancer, Operation, OperationError, Plan
from balancer.controller.detect import MissingReplicasDetector
from balancer.controller.finding import View
from balancer.controller.settings import MissingReplicas
from balancer.verification.checker import check_plan
from cluster_model import BrokerState, Snapshot, save_snapshot, synthetic_snapshot


def cluster(seed: int = 0, **changes: Any) -> Snapshot:
    return replace(small(seed, disks_per_broker=2, dead_brokers=1), **changes)


def touched(plan: Plan) -> set[tuple[str, int]]:
    return {(a.topic, a.partition) for a in plan.actions}


@pytest.mark.slow
@examples(4)
@given(st.integers(0, 10**6), st.sampled_from(OPERATIONS), st.floats(0.05, 0.5), st.floats(0, 0.6))
def test_no_plan_touches_them(
    seed: int, operation: dict[str, Any], moving: float, cordoned: float
) -> None:
    rng = np.random.default_rng(seed)
    s = cluster(seed % 20)
    dead = s.broker_ids[s.broker_state == BrokerState.DEAD]
    assume(operation.get("kind") != "add_brokers" or 5 not in dead)
    s = replace(
        s,
        reassigning=rng.random(s.n_partitions) < moving,
        # Three living brokers at least can take replicas.
        disk_cordoned=(rng.random(s.n_disks) < cordoned) & (s.broker_ids[s.disk_broker] <= 2),
    )
    plan = Balancer(strategy=QUICK).propose(s, Operation(**operation))
    report = check_plan(s, plan.document())
    assert report.ok, [*report.violations, *report.mismatches]
    named = [(s.topics[t], n) for t, n in zip(s.partition_topic, s.partition_number, strict=True)]
    busy = {name for name, settled in zip(named, s.partition_settled, strict=True) if not settled}
    assert not touched(plan) & busy
    places = zip(s.broker_ids[s.disk_broker].tolist(), s.disk_path, strict=True)
    shut = {place for place, free in zip(places, s.disk_open, strict=True) if not free}
    assert not {(a.destination, a.destination_disk) for a in plan.actions} & shut


def test_replicas_may_leave_cordoned_disks_and_stay_there() -> None:
    s = cluster()
    s = replace(s, disk_cordoned=s.broker_ids[s.disk_broker] == 1)
    emptied = Balancer(strategy=QUICK).propose(s, Operation(kind="remove_brokers", brokers=(1,)))
    assert not (emptied.final_snapshot().replica_broker == 0).any()
    mended = Balancer(strategy=QUICK).propose(s, Operation(kind="fix_offline_replicas"))
    assert (mended.final_snapshot().replica_broker == 0).sum() == (s.replica_broker == 0).sum()
    assert 1 not in {a.destination for a in mended.actions if a.kind == "move"}


def test_a_wholly_cordoned_broker_cannot_be_added() -> None:
    s = cluster()
    s = replace(s, disk_cordoned=s.broker_ids[s.disk_broker] == 3)
    with pytest.raises(OperationError, match="every log directory of broker 3 is cordoned"):
        Balancer(strategy=QUICK).propose(s, Operation(kind="add_brokers", brokers=(3,)))


def test_what_is_unmet_for_a_reassignment_says_so() -> None:
    s = cluster()
    dead = np.flatnonzero(s.broker_state == BrokerState.DEAD)
    held = np.zeros(s.n_partitions, np.bool_)
    held[s.replica_partition[np.isin(s.replica_broker, dead)]] = True
    plan = Balancer(strategy=QUICK).propose(
        replace(s, reassigning=held), Operation(kind="fix_offline_replicas")
    )
    assert len(plan) == 0
    (unmet,) = [u for u in plan.unmet if u.goal == "OnlineReplicas"]
    assert "Kafka is reassigning all of them" in unmet.reason
    assert not unmet.proven


def test_the_checker_finds_steps_that_touch_them() -> None:
    s = cluster()
    plan = Balancer(strategy=QUICK).propose(s).document()
    moved = next(a for a in plan.actions if a.kind == "move")
    named = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
    here = np.array([(s.topics[t], n) == (moved.topic, moved.partition) for t, n in named])
    found = check_plan(replace(s, reassigning=here), plan).violations
    assert {v.kind for v in found} == {"reassigning"}
    places = zip(s.broker_ids[s.disk_broker].tolist(), s.disk_path, strict=True)
    shut = np.array([place == (moved.destination, moved.destination_disk) for place in places])
    found = check_plan(replace(s, disk_cordoned=shut), plan).violations
    assert {v.kind for v in found} == {"wrong destination disk"}
    assert "a cordoned disk" in str(found[0])


def test_propose_says_what_is_down_and_what_moves(tmp_path: Path) -> None:
    s = cluster()
    alive = s.disk_alive.copy()
    alive[0] = False
    reassigning = np.arange(s.n_partitions) < 7
    save_snapshot(replace(s, disk_alive=alive, reassigning=reassigning), tmp_path / "c.json")
    result = invoke(["propose", tmp_path / "c.json"])
    down, disk, moving, *_ = result.stderr.splitlines()
    assert down == "warning: 1 broker is down: 4"
    assert disk.startswith("warning: 1 disk is offline: ")
    assert disk.endswith(" of broker 1")
    first = ", ".join(f"topic-0-{n}" for n in range(5))
    assert f"Kafka is reassigning 7 partitions ({first} and 2 more)" in moving
    save_snapshot(synthetic_snapshot(brokers=3, racks=3), tmp_path / "c.json")
    quiet = invoke(["propose", tmp_path / "c.json"])
    assert "warning" not in quiet.stderr


def test_a_reassignment_is_no_missing_replica() -> None:
    s = cluster()
    short = np.zeros(s.n_partitions, np.bool_)
    short[[3, 4]] = True
    row = np.repeat(np.arange(s.n_partitions), s.replication_factor)
    keep = ~(short[row] & np.append(row[1:] == row[:-1], False))
    fewer = replace(
        s,
        replica_broker=s.replica_broker[keep],
        replica_disk=s.replica_disk[keep],
        replica_offset=np.concatenate([[0], np.cumsum(s.replication_factor - short)]),
        leader=np.zeros(s.n_partitions, np.int64),
    )
    found = MissingReplicasDetector(MissingReplicas()).look(View(fewer, 0.0))
    assert [f.data["partitions"] for f in found] == [2]
    moving = replace(fewer, reassigning=short)
    assert MissingReplicasDetector(MissingReplicas()).look(View(moving, 0.0)) == []


@pytest.mark.slow
def test_a_replica_on_an_unknown_disk_is_swapped_to_a_known_one() -> None:
    """Kafka may state no directory for a replica; what goes to a broker with disks names one."""
    for seed in range(2):
        s = synthetic_snapshot(brokers=6, partitions=60, racks=3, disks_per_broker=2, seed=seed)
        unknown = np.random.default_rng(seed).random(s.n_replicas) < 0.1
        s = replace(s, replica_disk=np.where(unknown, -1, s.replica_disk))
        plan = Balancer(strategy=QUICK).propose(s)
        report = check_plan(s, plan.document())
        assert report.ok, [*report.violations, *report.mismatches]
        moves = [a for a in plan.actions if a.kind in ("move", "move_disk")]
        assert all(a.destination_disk is not None for a in moves)
