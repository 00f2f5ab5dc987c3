"""Adaptive concurrency: fewer moves when the cluster suffers, one more when it is healthy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.execution import ExecutionError, Limits
from balancer.execution.cluster import ClusterView, Key, PartitionView
from balancer.execution.concurrency import AdaptiveConcurrency, Health, health

A, B, C, D = (Key("a", n) for n in range(4))
NONE: frozenset[Key] = frozenset()
WELL = Health(NONE, NONE, NONE)


def test_health_tells_our_own_moves_from_what_is_wrong() -> None:
    view = ClusterView(
        frozenset({0, 1, 2}),
        {
            A: PartitionView((0, 1, 2), 0, isr=(0, 1), adding=(2,)),
            B: PartitionView((0, 1), 0, isr=(0,)),
            C: PartitionView((0, 3), 0, isr=(0,), offline=(3,)),
            D: PartitionView((0, 1), 0, isr=(0, 1)),
        },
    )
    found = health(view, {"a": 2}, {A})
    assert found.under_min_isr == {B, C}
    assert found.lagging == {B}
    assert found.under_replicated == {B, C}


def test_a_topic_that_asks_for_more_replicas_than_it_has_is_no_emergency() -> None:
    view = ClusterView(frozenset({0}), {A: PartitionView((0,), 0, isr=(0,))})
    assert health(view, {"a": 2}, set()) == WELL


def test_half_when_it_suffers_one_more_when_it_is_well() -> None:
    pace = AdaptiveConcurrency(
        Limits(concurrent_moves_per_broker=8, concurrent_moves=80, adaptive_interval=10)
    )
    pace.look(WELL, 0)
    assert (pace.per_broker, pace.cluster) == (8, 80)
    pace.look(Health(frozenset({A}), NONE, NONE), 1)
    assert (pace.per_broker, pace.cluster, pace.held) == (4, 40, False)
    pace.look(Health(NONE, NONE, frozenset({A})), 2)
    assert pace.per_broker == 2
    # It lacks no more than before.
    pace.look(Health(NONE, NONE, frozenset({A})), 3)
    assert pace.per_broker == 2
    pace.look(WELL, 12)
    assert pace.per_broker == 3
    pace.look(WELL, 13)
    assert pace.per_broker == 3


def test_slower_when_others_tell_that_it_suffers() -> None:
    pace = AdaptiveConcurrency(Limits(concurrent_moves_per_broker=4))
    pace.look(WELL, 0, slow=True)
    assert (pace.per_broker, pace.held) == (2, False)


def test_nothing_new_while_a_partition_is_strained() -> None:
    pace = AdaptiveConcurrency(Limits())
    pace.look(Health(frozenset({A}), frozenset({A}), NONE), 0)
    assert pace.held
    pace.look(WELL, 1)
    assert not pace.held


@given(st.lists(st.sampled_from([NONE, frozenset({A}), frozenset({A, B})])), st.integers(1, 9))
def test_it_stays_within_its_limits(looks: list[frozenset[Key]], most: int) -> None:
    pace = AdaptiveConcurrency(Limits(concurrent_moves_per_broker=most, adaptive_interval=1))
    for now, suffering in enumerate(looks):
        pace.look(Health(suffering, NONE, NONE), now)
        assert 1 <= pace.per_broker <= most
        assert 1 <= pace.cluster <= 100


def test_not_adaptive_is_not() -> None:
    pace = AdaptiveConcurrency(Limits(adaptive=False))
    pace.look(Health(frozenset({A}), frozenset({A}), NONE), 0)
    assert (pace.per_broker, pace.held) == (5, False)


def test_a_limit_that_makes_no_sense_is_reported_in_a_sentence() -> None:
    with pytest.raises(ExecutionError, match="limit concurrent_moves: 0 found"):
        Limits.of(concurrent_moves=0)
    with pytest.raises(ExecutionError, match=r"limit order\.0: 'fastest' found"):
        Limits.of(order=("fastest",))
