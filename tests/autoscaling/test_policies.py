"""Policies: what they add, save and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from balancer.autoscaling.baselines import Fixed, Keda, LatencyAware, Linear, violates
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.policies import POLICIES
from balancer.autoscaling.policies import policy as named
from balancer.autoscaling.policy import become, evenly
from balancer.autoscaling.repairing import RepairPolicy


def group(rate: list[float], consumer: list[int], capacity: list[float], **more: Any) -> Group:
    """A group without lag, whose new consumers process 100 events per second."""
    more = {"lag": np.zeros(len(rate)), "new_capacity": 100.0, **more}
    return Group(
        rate=np.array(rate),
        consumer=np.array(consumer, np.int64),
        capacity=np.array(capacity),
        **more,
    )


def test_what_waits_is_worked_off_within_the_target() -> None:
    state = group([3, 3, 3], [0, 0, 0], [20.0], new_capacity=20.0, lag=np.array([5000.0, 0, 0]))
    decision = RepairPolicy(AutoscalingParameters(sla=10.0)).decide(state, 0.0)
    # one consumer has nothing but the partition that waits
    assert decision.start == 1
    assert len({*decision.consumer[1:].tolist()} | {int(decision.consumer[0])}) == 2
    assert (decision.consumer[1:] != decision.consumer[0]).all()
    assert decision.reason == (
        "1 consumer will be late: consumer 0 takes 4 min 10 s for the 5,000 events that wait, and "
        "the target is 10 s"
    )


def test_consumers_are_not_saved_while_events_wait() -> None:
    rate, at = [8.0] * 4, [0, 1, 2, 3]
    policy = RepairPolicy(AutoscalingParameters(sla=5.0))
    for now in np.arange(0.0, 100.0, 10.0).tolist():
        lag = np.full(4, 500.0 - 4 * now)
        decision = policy.decide(group(rate, at, [20.0] * 4, new_capacity=20.0, lag=lag), now)
        assert not decision.moves, now
        assert not decision.stop, now
    later = [policy.decide(group(rate, at, [20.0] * 4, new_capacity=20.0), t) for t in (130, 145)]
    assert any(decision.moves for decision in later)


def test_linear_counts_and_does_not_look_at_partitions() -> None:
    # 0.9 x 100 per consumer: 200 need 3; the two fast partitions share one
    found = Linear().decide(group([90, 90, 10, 10], [0, 0, 0, 0], [100.0]), 0.0)
    assert found.start == 2
    assert found.consumer.tolist() == [0, 0, 1, 2]


def test_kedas_rule() -> None:
    lag = np.array([30.0, 5.0, 0.0])
    state = group([10, 10, 10], [0, 0, 0], [100.0], lag=lag)
    # 35 / 10 rounded up, at most one per partition
    assert Keda().decide(state, 0.0).start == 2
    assert Keda(threshold=20).decide(state, 0.0).start == 1


def test_kedas_rule_waits_before_it_removes() -> None:
    keda = Keda(stabilisation=60)
    busy = group([1, 1], [0, 1], [100.0, 100.0], lag=np.array([15.0, 0.0]))
    idle = group([1, 1], [0, 1], [100.0, 100.0])
    assert not keda.decide(busy, 0.0)
    assert not keda.decide(idle, 30.0)
    assert keda.decide(idle, 75.0).stop == (1,)


def test_algorithm_1_up_down_and_reassign() -> None:
    policy = LatencyAware(rebalance_lag=False)
    up = policy.decide(group([60, 60], [0, 0], [100.0]), 0.0)
    assert (up.start, up.stop) == (1, ())
    # 20 + 15 fit into 0.4 of a consumer
    down = policy.decide(group([20, 15], [0, 1], [100.0, 100.0]), 0.0)
    assert len(down.stop) == 1
    again = policy.decide(group([60, 60, 20, 20], [0, 0, 1, 1], [100.0, 100.0]), 0.0)
    assert (again.start, again.stop) == (0, ())
    assert not violates(group([60, 60, 20, 20], again.consumer.tolist(), [100.0] * 2), 0.5, 0.9)


def test_algorithm_2_plans_for_the_lag_of_the_rebalance() -> None:
    # the rates need 2; with the 24 x 1 s that will wait, a consumer of 0.9 x 100 x 0.5 takes one
    state = group([24] * 5, [0] * 5, [100.0], rebalance_seconds=1.0)
    assert LatencyAware(rebalance_lag=False).decide(state, 0.0).start == 1
    assert LatencyAware().decide(state, 0.0).start == 4


def test_over_provisioning_decides_once() -> None:
    highest = np.array([80.0, 80.0])
    policy = Fixed(highest, lag=np.zeros(2))
    first = policy.decide(group([0, 0], [-1, -1], []), 0.0)
    assert first.start == 2
    assert not policy.decide(group([80, 80], [0, 1], [100.0, 100.0]), 1.0)


def test_ours_adds_before_it_is_too_late() -> None:
    policy = RepairPolicy(
        AutoscalingParameters(level_seconds=0, trend_seconds=0, significance=0, lookahead=5)
    )
    assert not policy.decide(group([35, 35], [0, 0], [100.0]), 0.0)
    # 2 x 2 per second more: in 5 s it is 94 + 8 of 100
    found = policy.decide(group([37, 37], [0, 0], [100.0]), 1.0)
    assert not found
    found = policy.decide(group([40, 40], [0, 0], [100.0]), 2.0)
    assert found.start == 1
    assert found.moves == 1


def test_ours_empties_a_consumer_before_it_stops() -> None:
    parameters = AutoscalingParameters(calm=0, quiet=0, price_per_consumer=10)
    policy = RepairPolicy(parameters)
    first = policy.decide(group([20, 20], [0, 1], [100.0, 100.0]), 0.0)
    assert first.moves == 1
    assert first.stop == ()
    second = policy.decide(group([20, 20], first.consumer.tolist(), [100.0, 100.0]), 1.0)
    assert second.moves == 0
    assert len(second.stop) == 1


def test_a_consumer_is_saved_only_if_it_is_worth_the_moves() -> None:
    state = group([20, 20], [0, 1], [100.0, 100.0])
    # a consumer for a minute against an Rscore of 0.2
    for price, saves in ((0.1, False), (0.3, True)):
        parameters = AutoscalingParameters(calm=0, quiet=0, price_per_consumer=price)
        assert bool(RepairPolicy(parameters).decide(state, 0.0)) == saves


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_scale(seed: int) -> None:
    """Two consumers at 80 % with a deviation of 9 %; the first measurements tell no noise yet."""
    rng = np.random.default_rng(seed)
    policy = RepairPolicy()
    changes = 0
    for second in range(120):
        rate = rng.poisson(40, 4).astype(np.float64)
        decision = policy.decide(group(rate.tolist(), [0, 0, 1, 1], [100.0] * 2), second)
        changes += bool(decision) and second >= 10
    assert changes == 0


def test_consumers_that_differ_get_what_they_can_take() -> None:
    found = RepairPolicy().decide(group([150, 60], [0, 0], [100.0, 200.0]), 0.0)
    assert found.consumer.tolist() == [1, 0]


def test_bytes_count_too() -> None:
    state = group([10, 10], [0, 0], [100.0], speed=np.array([600.0, 600.0]), byte_capacity=1000.0)
    decision = RepairPolicy().decide(state, 0.0)
    assert decision.start == 1
    assert decision.reason == "1 consumer will have too much: consumer 0 reads 120 % of its bytes/s"


def test_the_exact_packing_can_be_asked_for() -> None:
    parameters = AutoscalingParameters(exact_partitions=10)
    found = RepairPolicy(parameters).decide(group([60, 50, 30, 40], [-1] * 4, []), 0.0)
    assert found.start == 2


def test_the_maximum_is_kept_and_what_it_costs_is_said() -> None:
    policy = RepairPolicy(AutoscalingParameters(maximum=2))
    found = policy.decide(group([80, 80, 80], [-1] * 3, []), 0.0)
    assert found.start == 2
    assert any("its maximum is 2" in warning for warning in found.warnings)


def test_a_group_at_its_maximum_that_catches_up_moves_nothing() -> None:
    """What waits asks for more consumers than there may be; moves among six would only delay it."""
    rng = np.random.default_rng(0)
    rates = np.array([40, 35, 30, 25, 20, 20, 20, 15, 15, 10, 5, 5.0])
    policy = RepairPolicy(AutoscalingParameters(sla=3, maximum=6))
    consumer = [0, 1, 2, 3, 4, 5, 4, 5, 3, 2, 1, 0]
    moves, warned = 0, 0
    for second in range(30):
        rate = np.maximum(rates + rng.normal(0, 0.5, 12), 0)
        state = group(
            rate.tolist(),
            consumer,
            [50.0] * 6,
            lag=rate * 3.4,
            new_capacity=50.0,
            rebalance_seconds=1.0,
            reaction_seconds=1.0,
            blocking=False,
        )
        found = policy.decide(state, float(second))
        consumer, moves = found.consumer.tolist(), moves + found.moves
        warned += any("its maximum is 6" in warning for warning in found.warnings)
    assert moves == 0
    assert warned > 0


def test_a_group_at_its_maximum_still_relieves_who_has_too_much() -> None:
    policy = RepairPolicy(AutoscalingParameters(sla=3, maximum=2))
    found = policy.decide(group([80, 70, 10, 10], [0, 0, 1, 1], [100.0, 100.0]), 0.0)
    load = np.bincount(found.consumer, weights=[80, 70, 10, 10])
    assert load.max() <= 95
    # nobody can have less to do
    policy = RepairPolicy(AutoscalingParameters(sla=3, maximum=2))
    for second in (0.0, 1.0, 2.0):
        state = group([120, 90, 10, 10], [0, 1, 1, 1], [100.0, 100.0])
        again = policy.decide(state, second)
        assert again.moves == 0
        assert any("its maximum is 2" in warning for warning in again.warnings)


def test_at_the_maximum_a_consumer_that_has_just_started_takes_its_part() -> None:
    """What waits needs more consumers than there may be, and the last one has nothing to do yet."""
    state = group([60, 50] * 2, [0, 0, 1, 1], [200.0] * 3, lag=np.full(4, 9000.0))
    found = RepairPolicy(AutoscalingParameters(sla=5, maximum=3)).decide(state, 0.0)
    assert set(found.consumer.tolist()) == {0, 1, 2}
    assert (found.start, found.stop) == (0, ())


def test_an_sla_below_the_rebalance_time_is_said() -> None:
    state = group([10, 10], [0, 1], [100.0] * 2, rebalance_seconds=2.0)
    found = RepairPolicy(AutoscalingParameters(calm=0, quiet=0)).decide(state, 0.0)
    assert not found
    assert found.warnings == (
        "an SLA of 0.5 s is not above the rebalance time of 2 s: only over-provisioning can keep "
        "it",
    )


def test_if_every_rebalance_is_late_one_rebalance_adds_enough() -> None:
    # the rates need 2; the 24 x 1 s that will wait need one consumer each
    state = group([24] * 5, [0] * 5, [100.0], rebalance_seconds=1.0)
    assert RepairPolicy().decide(state, 0.0).start == 4


def test_a_partition_that_no_consumer_can_process_is_said() -> None:
    found = RepairPolicy().decide(group([300, 10], [0, 0], [100.0]), 0.0)
    assert found.start == 1
    assert (
        "partition 0 receives more than a consumer can process, 300 events/s of 100"
        in found.warnings[0]
    )


@given(
    st.lists(st.integers(0, 120), min_size=1, max_size=8),
    st.lists(st.integers(50, 150), max_size=4),
    st.integers(1, 6),
    st.booleans(),
    st.data(),
)
def test_what_ours_decides_can_be_done(
    rate: list[int], capacity: list[int], maximum: int, blocking: bool, data: st.DataObject
) -> None:
    consumer = data.draw(
        st.lists(st.integers(-1, len(capacity) - 1), min_size=len(rate), max_size=len(rate))
    )
    state = group(
        [float(r) for r in rate], consumer, [float(c) for c in capacity], blocking=blocking
    )
    policy = RepairPolicy(AutoscalingParameters(maximum=maximum))
    found = policy.decide(state, 0.0)
    running = len(capacity)
    assert (found.consumer >= 0).all()
    assert (found.consumer < running + found.start).all()
    assert not set(found.consumer.tolist()) & set(found.stop)
    assert set(range(running, running + found.start)) <= set(found.consumer.tolist())
    assert running + found.start - len(found.stop) <= max(maximum, running)
    assert found.moves == (found.consumer != state.consumer).sum()


def crowded(blocking: bool) -> Group:
    """20 consumers of 5 partitions each, on average two thirds used; the first has too much."""
    rate = np.random.default_rng(0).uniform(5, 19, 100)
    rate[0] += 100 - rate[:5].sum()
    return group(
        rate.tolist(),
        np.repeat(np.arange(20), 5).tolist(),
        [100.0] * 20,
        rebalance_seconds=0.05,
        reaction_seconds=3.0,
        blocking=blocking,
    )


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("exact_partitions", [0, 20])
def test_only_what_must_moves(blocking: bool, exact_partitions: int) -> None:
    policy = RepairPolicy(AutoscalingParameters(exact_partitions=exact_partitions))
    state = group([60, 45, 20, 15], [0, 0, 1, 1], [100.0, 100.0], blocking=blocking)
    assert policy.decide(state, 0.0).moves == 1
    found = RepairPolicy().decide(crowded(blocking), 0.0)
    # those above 90 % are the first and, if all stop anyway, another one
    assert found.moves == 1 + blocking
    assert not found.start
    assert not found.stop


def test_what_grows_is_not_packed_into_fewer_consumers() -> None:
    policy = RepairPolicy()
    state = crowded(blocking=True)
    consumer = policy.decide(state, 0.0).consumer
    for second in range(1, 4):
        again = policy.decide(
            group(state.rate.tolist(), consumer.tolist(), [100.0] * 20, reaction_seconds=3.0),
            second,
        )
        assert not again


@pytest.mark.parametrize("blocking", [False, True])
def test_a_consumer_with_next_to_nothing_is_saved(blocking: bool) -> None:
    rate, consumer = [], []
    for c in range(7):
        rate += [20 + c / 2, 25, 15, 17 - c / 2]
        consumer += [c] * 4
    state = group([*rate, 1], [*consumer, 7], [100.0] * 8, blocking=blocking)
    found = RepairPolicy().decide(state, 0.0)
    assert found.moves == 1
    assert "1 consumer can be saved" in found.reason


@pytest.mark.parametrize("name", ["repair", "latency-aware", "latency-aware-1"])
@pytest.mark.parametrize(
    ("rate", "consumer", "capacity"),
    [
        ([80, 5, 15], [0, 0, 1], [50.0, 50.0]),
        ([80], [0], [50.0]),
        ([80, 20], [-1, -1], [50.0, 50.0]),
        # only the first holds what the second has
        ([120, 90, 90], [1, 0, 0], [200.0, 50.0]),
    ],
)
def test_what_a_larger_consumer_can_process_goes_there(
    name: str, rate: list[float], consumer: list[int], capacity: list[float]
) -> None:
    state = group(rate, consumer, capacity)
    found = named(name, AutoscalingParameters(sla=1.0)).decide(state, 0.0)
    count = len(capacity) + found.start
    load = state.load(found.consumer, state.rate, count)
    assert (load <= state.capacity_of(np.arange(count))).all()


@pytest.mark.parametrize("name", POLICIES)
def test_bounds_are_those_of_every_policy(name: str) -> None:
    state = group([85] * 4, [0, 1, 2, 3], [100.0] * 4, lag=np.full(4, 50.0))
    fewer = named(name, AutoscalingParameters(sla=1.0, maximum=3)).decide(state, 0.0)
    assert 4 + fewer.start - len(fewer.stop) == 3
    assert not set(fewer.consumer.tolist()) & set(fewer.stop)
    assert any("maximum is 3" in warning for warning in fewer.warnings)
    more = named(name, AutoscalingParameters(sla=1.0, minimum=6)).decide(state, 0.0)
    assert 4 + more.start - len(more.stop) == 6


def test_a_maximum_below_what_runs_moves_no_more_than_must() -> None:
    state = group([30, 20, 10, 5], [0, 1, 2, 3], [100.0] * 4)
    found = RepairPolicy(AutoscalingParameters(maximum=3)).decide(state, 0.0)
    assert found.stop == (3,)
    assert found.moves == 1
    assert found.reason == "more consumers than the maximum of 3"


def test_become_names_new_consumers_without_gaps() -> None:
    state = group([1, 1, 1], [0, 0, 1], [100.0, 100.0])
    found = become(state, np.array([0, 7, 9]), "")
    assert found.consumer.tolist() == [0, 2, 3]
    assert (found.start, found.stop) == (2, (1,))


def test_even_shares() -> None:
    assert evenly(5, np.array([3, 1])).tolist() == [3, 3, 3, 1, 1]


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (
            "capacity",
            np.array([-1.0]),
            "group, capacity of consumer 0: -1 found, a number from 1e-06 to",
        ),
        (
            "rate",
            np.array([np.nan]),
            "group, rate of partition 0: nan found, a number from 0 to",
        ),
        ("lag", np.array([1.0, 1.0]), r"group, lag: shape \(2,\) found, \(1,\) expected"),
        ("consumer", np.array([3]), "group, consumer, row 0: 3 found, a number from -1 to 0"),
        ("new_capacity", 0.0, "group, new_capacity: 0 found, a number from 1e-06 to"),
        ("rebalance_seconds", -1.0, "group, rebalance_seconds: -1.0 found, 0 or more expected"),
    ],
)
def test_a_group_without_sense_is_one_sentence(field: str, value: Any, sentence: str) -> None:
    given_ = {
        "rate": np.array([1.0]),
        "lag": np.array([0.0]),
        "consumer": np.array([0]),
        "capacity": np.array([1.0]),
        "new_capacity": 1.0,
    }
    with pytest.raises(AutoscalingError, match=sentence):
        Group(**{**given_, field: value})


def test_parameters_that_contradict_each_other() -> None:
    with pytest.raises(ValidationError, match="ascending values expected"):
        AutoscalingParameters(fill=0.5, target=0.9)
    with pytest.raises(ValidationError, match="minimum 3 found, at most the maximum of 2"):
        AutoscalingParameters(minimum=3, maximum=2)


def test_forecasts_are_of_partitions_and_not_of_rows() -> None:
    policy = RepairPolicy()

    def seen(names: tuple[str, ...], rate: list[float]) -> Group:
        return Group(
            rate=np.array(rate),
            lag=np.zeros(2),
            consumer=np.zeros(2, np.int64),
            capacity=np.array([100.0]),
            new_capacity=100.0,
            partition_names=names,
        )

    assert not policy.decide(seen(("t-0", "t-1"), [80.0, 1.0]), 0.0)
    # the first is not known any longer, and another one is
    assert not policy.decide(seen(("t-1", "t-2"), [1.0, 80.0]), 1.0)


def test_no_consumer_is_saved_right_after_other_partitions_are_read() -> None:
    policy = RepairPolicy(AutoscalingParameters(calm=0))

    def moves(rate: list[float], consumer: list[int], now: float) -> int:
        names = tuple(f"t-{n}" for n in range(len(rate)))
        return policy.decide(group(rate, consumer, [100.0] * 2, partition_names=names), now).moves

    assert not moves([90, 60, 20], [0, 1, 1], 0.0)
    # the first one is not read any longer
    assert [moves([20, 20], [0, 1], now) for now in (10.0, 20.0, 26.0)] == [0, 0, 1]


@pytest.mark.parametrize("left", [0.0, 20.0])
def test_a_load_that_has_gone_is_provided_for_twice_as_long_as_a_change_takes(
    left: float,
) -> None:
    policy = RepairPolicy(AutoscalingParameters(sla=5.0, calm=0, quiet=0))
    saved = []
    for now in range(100):
        rate = 80.0 if now < 30 else left
        state = group([rate] * 2, [0, 1], [100.0] * 2, reaction_seconds=20.0)
        saved += [now] if policy.decide(state, now).moves else []
    # for 40 s, less what events may wait
    assert 60 <= saved[0] <= 70


def test_what_waits_until_consumers_have_started_is_provided_for() -> None:
    started = [
        RepairPolicy(AutoscalingParameters(sla=5.0))
        .decide(group([30.0] * 8, [0] * 8, [100.0], reaction_seconds=seconds), 0.0)
        .start
        for seconds in (0.0, 50.0)
    ]
    assert started[0] < started[1]


def test_what_waits_once_is_no_burst_that_comes_again_and_again() -> None:
    policy = RepairPolicy(AutoscalingParameters(sla=5.0))
    assert policy.decide(group([70, 1], [-1, -1], []), 0.0)
    # it is worked off long before another consumer has started
    lag = np.array([1200.0, 0.0])
    state = group([70, 1], [0, 0], [200.0], new_capacity=200.0, lag=lag, reaction_seconds=50.0)
    assert not policy.decide(state, 50.0)


@pytest.mark.parametrize("blocking", [False, True])
def test_nobody_is_saved_while_events_wait_and_a_rebalance_that_stops_all_waits_too(
    blocking: bool,
) -> None:
    parameters = AutoscalingParameters(sla=5.0, calm=0, quiet=0)
    for used, idle in (([0, 1], False), ([0, 0], True)):
        state = group([20, 20], used, [100.0] * 2, lag=np.array([300.0, 0.0]), blocking=blocking)
        decision = RepairPolicy(parameters).decide(state, 0.0)
        assert bool(decision) == (idle and not blocking)


def test_what_was_started_for_what_waited_ends_when_that_is_worked_off() -> None:
    """Two partitions need 83 % of a consumer, more than is left to chance when one is saved."""
    policy = RepairPolicy(AutoscalingParameters(sla=5.0, calm=0, quiet=0, price_per_consumer=10))
    lag = np.full(4, 900.0)
    found = policy.decide(group([41.5] * 4, [0, 0, 1, 1], [100.0] * 2, lag=lag), 0.0)
    assert found.start
    for now in range(1, 20):
        count = found.consumer.max() + 1
        found = policy.decide(group([41.5] * 4, found.consumer.tolist(), [100.0] * count), now)
    assert len(set(found.consumer.tolist())) == 2
