"""The search finds single moves that empty a disk, whichever broker and disk have room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import assert_sound, by_hand

from balancer import Balancer
from goals import DiskCapacity, Goal, OnlineReplicas, ResourceCapacity


def test_a_replica_leaves_its_disk_for_another_broker() -> None:
    # the other disks of its broker are full, with larger replicas
    loads = [*[9.9] * 9, *[0.6] * 16, 0.3]
    snapshot = by_hand(
        [(0,)] * 53,
        brokers=3,
        load=[*loads, *loads, 1.5],
        capacity=300.0,
        disks={"/a": 100.0, "/b": 100.0, "/c": 100.0},
        log_dirs=[*[("/a",)] * 26, *[("/b",)] * 26, ("/c",)],
    )
    sizes = snapshot.disk_capacity.copy()
    sizes[2] = 0.0
    snapshot = replace(snapshot, disk_capacity=sizes)
    goals: list[Goal] = [
        DiskCapacity(threshold=1.0, tier=0),
        ResourceCapacity(resource="disk", threshold=1.0, tier=0),
    ]
    plan = Balancer(goals).propose(snapshot)
    assert plan.ok
    assert len(plan.actions) == 1
    assert_sound(snapshot, plan)


@pytest.mark.parametrize(
    ("goal", "state"),
    [
        (DiskCapacity(threshold=1.0), "alive"),
        (ResourceCapacity(resource="disk", threshold=1.0), "alive"),
        (OnlineReplicas(), "dead"),
    ],
)
def test_what_the_emptiest_disk_has_no_room_for_goes_to_a_larger_one(
    goal: Goal, state: str
) -> None:
    snapshot = by_hand(
        [(0, 2), (1,)],
        brokers=3,
        load=[200.0, 400.0],
        capacity=1100.0,
        states={0: state},
        disks={"/a": 100.0, "/b": 1000.0},
        log_dirs=[("/a", "/b"), ("/b",)],
    )
    # broker 0 has no room for its replica, broker 1 has it on the fuller disk, 2 holds the other
    snapshot = replace(
        snapshot,
        capacity=np.array([[150.0], [1100.0], [1100.0]]),
        disk_capacity=np.array([100.0, 50.0, 100.0, 1000.0, 100.0, 1000.0]),
    )
    plan = Balancer([goal]).propose(snapshot)
    moves = [a for a in plan.actions if a.kind != "leadership"]
    assert [(a.source, a.destination, a.destination_disk) for a in moves] == [(0, 1, "/b")]
    assert_sound(snapshot, plan)
