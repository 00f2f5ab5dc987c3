"""New replicas go where the search puts them, elsewhere if that would overfill, or nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import by_hand

from balancer import Operation
from balancer.planning.additions import admit
from balancer.planning.parameters import PlanningParameters
from balancer.problem.resolution import resolve
from balancer.search.scorer import Scorer
from cluster_model import Snapshot
from cluster_model.placement import Placement
from goals import Cluster, Goal, RackAwareness, ResourceCapacity

# Of a capacity of 10, in the clusters below.
ROOM = ResourceCapacity(resource="disk", threshold=0.8)


def added(
    snapshot: Snapshot,
    intended: Mapping[int, int],
    goals: Sequence[Goal] = (ROOM,),
    parameters: PlanningParameters | None = None,
) -> dict[int, int]:
    """Partition -> the broker that got its second replica, of those that were intended.

    In order of addition.
    """
    placement = Placement(snapshot, 2)
    final = placement.copy()
    for partition, broker in intended.items():
        final.brokers[partition, 1] = broker
    cluster = Cluster(placement)
    scorer = Scorer(cluster, [goal.prepared(cluster) for goal in goals])
    before = placement.brokers.copy()
    placement.sums("broker", "load.disk")
    slots = admit(
        scorer,
        np.array([2 * partition + 1 for partition in intended]),
        final,
        resolve(snapshot, Operation()).rules,
        parameters,
    )
    found = {slot // 2: int(placement.replica_broker[slot]) for slot in slots.tolist()}
    # Nothing else changed, and the sums that the scorer reads are those of the placement.
    for partition, broker in found.items():
        before[partition, 1] = broker
    assert np.array_equal(placement.brokers, before)
    assert placement.sums("broker", "load.disk") == pytest.approx(
        placement.recompute("broker", "load.disk")
    )
    return found


def test_each_goes_where_the_search_has_it() -> None:
    assert added(by_hand([[0], [1]], brokers=4, capacity=10), {0: 2, 1: 3}) == {0: 2, 1: 3}


def test_one_that_would_overfill_goes_to_the_broker_with_the_fewest_replicas() -> None:
    s = by_hand([[0], [1], [3]], brokers=4, load=[5, 5, 1], capacity=10)
    assert added(s, {0: 1}) == {0: 2}


def test_a_new_rack_is_preferred() -> None:
    s = by_hand([[0], [1], [3]], brokers=4, load=[5, 5, 1], capacity=10, racks=[0, 1, 0, 3])
    assert added(s, {0: 1}) == {0: 3}


def test_one_that_fits_nowhere_is_skipped() -> None:
    s = by_hand([[0], [1], [2]], brokers=3, load=[5, 5, 5], capacity=10)
    assert added(s, {0: 1}) == {}


def test_those_that_arrive_together_do_not_overfill_together() -> None:
    s = by_hand([[0], [1]], brokers=3, load=[5, 5], capacity=10)
    assert added(s, {0: 2, 1: 2}) == {0: 2}


def test_the_smallest_gets_the_last_room() -> None:
    s = by_hand([[0], [0], [1], [2]], brokers=3, load=[3, 2, 8, 5], capacity=10)
    assert added(s, {0: 1, 1: 1}) == {1: 2}


def test_a_goal_that_judges_partitions_is_obeyed() -> None:
    s = by_hand([[0]], brokers=3, racks=[0, 1, 0])
    assert added(s, {0: 2}, [RackAwareness()]) == {0: 1}
    # No rack is free: the goal prefers no other destination.
    crowded = by_hand([[0]], brokers=2, racks=[0, 0])
    assert added(crowded, {0: 1}, [RackAwareness()]) == {0: 1}


def test_a_soft_goal_moves_none() -> None:
    s = by_hand([[0], [1]], brokers=3, load=[5, 5], capacity=10)
    soft = ResourceCapacity(resource="disk", threshold=0.8, hard=False)
    assert added(s, {0: 1}, [soft]) == {0: 1}


def test_brokers_that_may_not_hold_the_topic_get_none() -> None:
    s = by_hand([[0], [1], [3]], brokers=4, load=[5, 5, 1], capacity=10)
    s = replace(s, may_hold=np.array([[True, True, False, True]]))
    assert added(s, {0: 1}) == {0: 3}


def test_after_so_many_in_vain_no_more_are_tried() -> None:
    # The smaller one may be on a full broker only, the other one has room elsewhere.
    s = by_hand([[0], [0], [1]], brokers=3, load=[1, 2, 8], capacity=10, topics=["a", "b", "b"])
    s = replace(s, may_hold=np.array([[True, True, False], [True, True, True]]))
    assert added(s, {0: 1, 1: 1}) == {1: 2}
    assert added(s, {0: 1, 1: 1}, parameters=PlanningParameters(futile_additions=0)) == {}
