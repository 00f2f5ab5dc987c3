"""The latency models of the papers, by hand and by looking at every assignment."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer.allocation.packing.least_loaded import least_loaded
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.latency import (
    TwoQueues,
    fewest_consumers,
    together,
    usable_capacity,
)
from benchmarks import pack_latency


def group(rate: list[float], lag: list[float], capacity: float = 10.0) -> Group:
    """A group that nobody reads yet."""
    return Group(
        rate=np.array(rate),
        lag=np.array(lag),
        consumer=np.full(len(rate), -1, np.int64),
        capacity=np.zeros(0),
        new_capacity=capacity,
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=5))
def test_the_program_finds_the_fewest_consumers(partitions: list[tuple[int, int]]) -> None:
    rate, lag = (np.array(column, np.float64) for column in zip(*partitions, strict=True))
    count = len(partitions)
    fewest = min(
        len(set(chosen))
        for chosen in product(range(count), repeat=count)
        if all(
            rate[np.array(chosen) == c].sum() <= 10 and lag[np.array(chosen) == c].sum() <= 5
            for c in set(chosen)
        )
    )
    state = group(rate.tolist(), lag.tolist())
    found = fewest_consumers(state, sla=0.5)
    assert found.consumers == found.bound == fewest
    assert len(np.unique(least_loaded(state.packing(0.5, 1.0)))) >= fewest


def test_two_queues_by_hand() -> None:
    # one consumer of 10 with 4 that stay and 2 that moved: for 5 s the 2 are not read, then at
    # 10 - 4 = 6; the data of second s is read at 5 + s / 3, so that latency is 5 - 2 s / 3 and 0
    # from 7.5 s on: 15 of the 60
    queues = TwoQueues(10.0, 30.0, 5.0)
    speed = np.array([4.0, 2.0])
    found = queues.follow(speed, np.array([0, 1]), np.array([0, 0]))
    assert found.amount.sum() == 180
    assert found.above(0.0) == pytest.approx(15)
    assert found.above(4.0) == pytest.approx(3)
    assert found.percentile(0.9, late_only=True) == pytest.approx(4.5)


def test_what_is_behind_is_carried_over() -> None:
    # 20 into a consumer of 10: after 30 s the last data is 30 s late, and later data later still
    queues = TwoQueues(10.0, 30.0, 5.0)
    speed, owner = np.array([20.0]), np.zeros(1, np.int64)
    first = queues.follow(speed, owner, owner)
    second = queues.follow(speed, owner, owner)
    assert first.last.tolist() == [pytest.approx(30)]
    assert second.first.tolist() == [pytest.approx(30)]
    assert second.last.tolist() == [pytest.approx(60)]


def test_five_sixths_are_usable() -> None:
    assert usable_capacity(6.0, 30.0, 5.0) == pytest.approx(5.0)


def test_bins_of_the_usable_capacity_need_fewer_consumers_that_still_catch_up() -> None:
    stream = pack_latency.published_stream()[:30]
    bins = pack_latency.followed(pack_latency.subject("mwf"), stream)
    larger = pack_latency.followed(pack_latency.subject("mwf, usable capacity"), stream)
    assert larger.consumers < bins.consumers
    # nobody is later than the rebalance, or carries anything over to the next interval
    assert larger.latency.above(5.0) == 0
    packed = pack_latency.subject("mwf")(stream[2], np.full(stream.shape[1], -1, np.int64))
    few = pack_latency.fewest(stream[2], seconds=10.0)
    assert few.bound <= few.consumers <= len(np.unique(packed))


@pytest.mark.parametrize(
    ("capacity", "interval", "rebalance", "sentence"),
    [
        (-1.0, 30.0, 5.0, "capacity: -1 found, a number above 0 expected"),
        (1.0, 5.0, 5.0, "rebalance time: 5 s found, 0 to less than the interval of 5 s expected"),
    ],
)
def test_no_capacity_is_usable(
    capacity: float, interval: float, rebalance: float, sentence: str
) -> None:
    with pytest.raises(AutoscalingError, match=sentence):
        usable_capacity(capacity, interval, rebalance)


def test_ours_is_later_less_often_than_mwf_with_no_more_consumers() -> None:
    stream = pack_latency.published_stream()
    mwf = pack_latency.followed(pack_latency.subject("mwf"), stream)
    ours = pack_latency.followed(pack_latency.subject("repair, a consumer worth 1"), stream)
    assert mwf.consumers == pytest.approx(15, abs=0.5)
    assert mwf.latency.percentile(0.9, late_only=True) == pytest.approx(4.52, abs=0.05)
    assert ours.consumers <= mwf.consumers
    assert ours.latency.percentile(0.99) < mwf.latency.percentile(0.99)
    assert ours.latency.above(0.0) < mwf.latency.above(0.0)


@given(st.data())
def test_late_data_has_the_same_percentiles_whoever_moves(data: st.DataObject) -> None:
    # 12 of these are read per second, so that 10 catch up with a rebalance of 5 s in 30 s
    queues = TwoQueues(12.0, 30.0, 5.0)
    count = data.draw(st.integers(1, 6))
    before = np.full(count, -1, np.int64)
    stretches = []
    for _ in range(data.draw(st.integers(1, 4))):
        speed = np.array(data.draw(st.lists(st.integers(0, 10), min_size=count, max_size=count)))
        after = np.zeros(count, np.int64)
        load = [0] * count
        for p, s in enumerate(speed.tolist()):
            able = [c for c in range(count) if load[c] + s <= 10]
            assume(able)
            after[p] = data.draw(st.sampled_from(able))
            load[after[p]] += s
        stretches.append(queues.follow(speed.astype(np.float64), before, after))
        before = after
    latency = together(stretches)
    if latency.above(0.0) > 0:
        for share in (0.5, 0.9, 0.99):
            assert latency.percentile(share, late_only=True) == pytest.approx(5.0 * share)
