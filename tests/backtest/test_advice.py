"""Advice: the growth that was generated is found, and configurations are ranked as documented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backtest_cases import HOUR_MS, Handmade, Log, skewed
from command_line import invoke
from pyspark.sql import SparkSession

from balancer.backtest import (
    Advice,
    AdviceParameters,
    BacktestError,
    BacktestResult,
    advise,
    candidates,
    date_of,
    sentences,
)
from balancer.backtest.advice import ranked, sized
from balancer.backtest.growth import ResourceGrowth, capacity_of, daily_peaks, growth_of
from balancer.backtest.judge import WindowFigures
from balancer.backtest.replay import Event
from balancer.backtest.result import DecidedRound, JudgedWindow
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from goals.distribution import Band

END_MS = 1_767_225_600_000  # 2026-01-01
CAPACITY = np.array([1000.0])


def days_of(
    count: int = 56, *, slope: float = 5.0, noise: float = 0.0, seed: int = 0
) -> tuple[Ints, Floats]:
    """Busiest hours of days that grow from 100, weekends at half."""
    days = np.arange(20_000, 20_000 + count, dtype=np.int64)
    peaks = (100 + slope * np.arange(count)) * np.where(days % 7 < 2, 0.5, 1.0)
    rng = np.random.default_rng(seed)
    drawn = peaks * np.exp(rng.normal(0, noise, count))
    return days, np.asarray(drawn[:, None], np.float64)


def test_a_line_under_weekends_is_found() -> None:
    days, peaks = days_of()
    (found,) = growth_of(days, peaks, ("disk",), CAPACITY, limit=0.8)
    assert found.growth == pytest.approx(5.0)
    assert found.load == pytest.approx(100 + 5 * 55, rel=0.02)
    assert found.days == pytest.approx((800 - 375) / 5, rel=0.05)
    assert found.load_ahead == pytest.approx(375 + 5 * 91, rel=0.02)


def test_the_interval_of_the_date_holds_the_truth_as_often_as_it_says() -> None:
    held = []
    for seed in range(40):
        days, peaks = days_of(noise=0.05, seed=seed)
        (found,) = growth_of(days, peaks, ("disk",), CAPACITY, limit=0.8)
        assert found.days_low is not None
        assert found.days is not None
        assert found.days_low <= found.days <= (found.days_high or np.inf)
        held.append(found.days_low <= 85 <= (found.days_high or np.inf))
    assert 0.6 < np.mean(held) <= 0.95


def test_from_two_weeks_on_weekends_are_told_from_growth() -> None:
    (found,) = growth_of(*days_of(15, noise=0.01), ("disk",), CAPACITY)
    assert found.growth == pytest.approx(5.0, rel=0.2)
    assert found.growth_high < 8.0


@pytest.mark.parametrize(("slope", "days"), [(0.0, None), (-1.0, None), (0.01, None), (40.0, 0.0)])
def test_what_does_not_grow_never_runs_out(slope: float, days: float | None) -> None:
    (found,) = growth_of(*days_of(slope=slope), ("disk",), CAPACITY)
    assert found.days == found.days_low == found.days_high == days


def test_only_the_last_days_count() -> None:
    days, peaks = days_of(120, slope=1.0)
    peaks[:-56] = 5000.0
    (found,) = growth_of(days, peaks, ("disk",), CAPACITY)
    assert found.growth == pytest.approx(1.0)


def test_days_are_counted_from_now_also_if_a_load_is_unknown_since_some_time() -> None:
    days = np.arange(30)
    grows = np.where(days < 12, 5.0 * days, np.nan)
    (found, _) = growth_of(
        days, np.column_stack([grows, np.ones(30)]), ("disk", "cpu"), np.array([200.0, 100.0])
    )
    # 145 on the last day, and 160 are the limit
    assert (found.load, found.days) == pytest.approx((145.0, 3.0))


def test_too_few_days_are_said() -> None:
    with pytest.raises(BacktestError, match="7 whole days found, at least 8 expected"):
        growth_of(*days_of(7), ("disk",), CAPACITY)
    with pytest.raises(BacktestError, match="0 whole days found"):
        growth_of(np.array([], np.int64), np.empty((0, 1)), ("disk",), CAPACITY)


def result(**of: tuple[int, float]) -> BacktestResult:
    """Configurations with their overloaded hours and bytes."""
    windows = [
        JudgedWindow(name, 0, WindowFigures(1.0, 0, 0, 0, 100.0, 0.5, 1, "cpu", 1.0, hours))
        for name, (hours, _) in of.items()
    ]
    rounds = [
        DecidedRound(name, Event(HOUR_MS, "executed", "done", 0, copied))
        for name, (_, copied) in of.items()
    ]
    runs = {name: (name,) for name in of if name != "history"}
    return BacktestResult(
        tuple(of), 0, HOUR_MS, HOUR_MS, 0.8, 0.0, tuple(windows), tuple(rounds), runs=runs
    )


def test_of_those_that_avoid_nearly_the_most_the_cheapest_is_recommended() -> None:
    found = result(history=(100, 0.0), a=(0, 9e12), b=(4, 2e12), c=(50, 1e12))
    tried, recommended = ranked(found, 0.95)
    assert recommended == "b"
    assert [t.configuration for t in tried] == ["a", "b", "c", "history"]
    assert tried[1].avoided_per_tb == pytest.approx(48.0)
    assert tried[3].avoided_per_tb is None
    assert ranked(found, 0.5)[1] == "c"
    assert ranked(result(history=(3, 0.0), a=(3, 1e12), b=(5, 1e9)), 0.95)[1] == "history"


def test_candidates_are_goal_lists_with_thresholds() -> None:
    cluster = skewed()
    found = candidates(["default", "cruise-control"], [1.3, 2.0], cluster)
    assert [c.name for c in found] == [
        "default", "default, threshold 1.3", "default, threshold 2",
        "cruise-control", "cruise-control, threshold 1.3", "cruise-control, threshold 2",
    ]  # fmt: skip
    for own, wider in zip(found[0].balancer.goals, found[1].balancer.goals, strict=True):
        assert (own.name, own.tier) == (wider.name, wider.tier)
        if isinstance(wider, Band):
            assert wider.threshold == 1.3
    with pytest.raises(BacktestError, match="a number above 1 expected"):
        candidates(["default"], [1.0], cluster)


def grown(resource: str, load: float, high: float) -> ResourceGrowth:
    return ResourceGrowth(resource, 1.0, load, 0.0, 0.0, 0.0, load, high, None, None, None)


def test_brokers_are_enough_for_the_loss_of_a_rack() -> None:
    now = skewed(partitions=30, utilization=0.2, skew=1.2)
    total = now.broker_load().sum(axis=0)
    disk = now.resource("disk")
    growth = [grown("disk", 3.5 * total[disk], 5.0 * total[disk])]
    goals = {"goals": ["RackAwareness", {"goal": "ResourceCapacity", "resource": "disk"}]}
    expected = sized(now, growth, goals)
    high = sized(now, growth, goals, high=True)
    assert expected.headroom == pytest.approx(1 / 3)
    assert expected.brokers is not None
    assert high.brokers is not None
    # what two thirds of the brokers can hold
    full = now.capacity[0, disk] * (1 - expected.headroom)
    assert expected.brokers >= 3.5 * total[disk] / full
    assert high.brokers > expected.brokers
    alone = replace(now, racks=("a",), broker_rack=np.zeros(6, np.int64))
    assert sized(alone, ()).headroom == 0.0


@pytest.mark.parametrize(
    ("racks", "load", "brokers", "share"),
    [
        # six of twelve are enough for a quarter, but their largest rack has a third
        (4, 4.45, 7, 2 / 7),
        # four would need half, five two fifths: six, with a third, are not needed
        (3, 2.6, 5, 2 / 5),
        (3, 3.9, 6, 1 / 3),
    ],
)
def test_the_reserve_is_that_of_the_brokers_that_are_counted(
    racks: int, load: float, brokers: int, share: float
) -> None:
    now = skewed(
        brokers=12, racks=racks, partitions=240, replication_factor=1, utilization=0.1, skew=1.2
    )
    disk = now.resource("disk")
    goals = {"goals": [{"goal": "ResourceCapacity", "resource": "disk", "threshold": 1.0}]}
    growth = [grown("disk", load * now.capacity[0, disk], 0.0)]
    found = sized(now, growth, goals)
    assert found.brokers == brokers
    assert found.headroom == pytest.approx(share)
    # what is left without the largest rack holds everything
    assert load <= brokers * (1 - found.headroom)


def test_the_words_name_dates_and_numbers() -> None:
    growth = growth_of(*days_of(), ("disk",), CAPACITY)
    found = result(history=(100, 0.0), a=(0, 9e12))
    tried, recommended = ranked(found, 0.95)
    advice = Advice(found, tried, recommended, END_MS, growth, (), ())
    first, second = sentences(advice)
    assert first == ("a is recommended: 0 broker-hours above 80 % instead of 100, for 9 TB copied")
    assert growth[0].days is not None
    assert f"on {date_of(END_MS, growth[0].days)} at today's growth" in second
    (growth,) = advice.document()["growth"]
    assert growth["date"] == date_of(END_MS, growth["days"])
    assert date_of(END_MS, 31.5) == "2026-02-01"
    full = replace(advice, growth=growth_of(*days_of(), ("disk",), CAPACITY / 9))
    assert sentences(full)[1] == "disk: above 80 % of the capacity already"


def test_all_advice_from_a_history(spark: SparkSession) -> None:
    s = skewed(topics=4, utilization=0.5)
    history = Handmade(spark, s, Log({0: s}), 46)
    found = advise(
        history,
        candidates(["default"], [], s),
        first_ms=0,
        end_ms=46 * HOUR_MS,
        parameters=AdviceParameters(fewest_days=2, seconds=None),
    )
    assert [t.configuration for t in found.tried] == ["default", "history"]
    assert found.recommended == "default"
    # no day is busier than the other
    for of, capacity in zip(found.growth, capacity_of(s), strict=True):
        assert of.growth == pytest.approx(0.0, abs=1e-6 * of.load)
        assert of.capacity == capacity
        # each topic has its own peak
        i = s.resource(of.resource)
        mean = s.broker_load()[:, i].sum()
        assert mean * 0.999 <= of.load <= 1.6 * mean
    assert [size.loads for size in found.sizes] == ["expected", "high"]
    assert not found.notes

    short = advise(history, candidates(["default"], [], s), first_ms=0, end_ms=3 * HOUR_MS)
    assert not short.growth
    assert "0 whole days found, at least 8 expected" in short.notes[0]


@pytest.mark.parametrize("hours", [0.25, 1, 6])
def test_the_busiest_hour_of_each_whole_day(spark: SparkSession, hours: float) -> None:
    s = skewed(topics=1, partitions=3, replication_factor=3, racks=3)
    r = len(s.resources)
    window_ms = round(hours * HOUR_MS)
    rows = [
        (at, s.topics[0], number, [float(number + at // (24 * HOUR_MS))] * r, [0.5] * r)
        # the last day is not whole
        for at in range(0, 60 * HOUR_MS, window_ms)
        for number in s.partition_number.tolist()
    ]
    fields = "start_ms long, topic string, partition long, leader array<double>, "
    loads = spark.createDataFrame(rows, fields + "follower array<double>")
    days, peaks = daily_peaks(loads, Log({0: s}), r, window_ms)
    assert days.tolist() == [0, 1]
    # leaders of three partitions, and two followers of each
    leaders = s.partition_number.sum()
    np.testing.assert_allclose(peaks, [[leaders + 3.0] * r, [leaders + 6.0] * r])


def test_a_topic_that_replaces_another_is_no_growth_and_unknown_loads_are_not_zero(
    spark: SparkSession,
) -> None:
    old = skewed(topics=2, partitions=20)
    of_topic = old.partition_topic
    before, after = (_only(old, of_topic == t) for t in (0, 1))
    # in the end without followers
    number = after.n_partitions
    alone = replace(
        after,
        replica_offset=np.arange(number + 1),
        replica_broker=after.replica_broker[after.replica_offset[:-1] + after.leader],
        leader=np.zeros(number, np.int64),
    )
    r = len(old.resources)
    rows = [
        (at * HOUR_MS, s.topics[0], int(n), [10.0] * r, [5.0] * r)
        for at in range(12 * 24)
        for s in ((before if at < 6 * 24 else after),)
        for n in s.partition_number
        # half of the first day is not known, and one partition never
        if n != 3 and not (at < 24 and n % 2)
    ]
    fields = "start_ms long, topic string, partition long, leader array<double>, "
    loads = spark.createDataFrame(rows, fields + "follower array<double>")
    log = Log({0: before, 6 * 24 * HOUR_MS: after, 9 * 24 * HOUR_MS: alone})
    days, peaks = daily_peaks(loads, log, r, HOUR_MS, AdviceParameters(known_share=0.8))
    assert days.tolist() == [*range(1, 12)]
    counts = np.where(days < 6, before.n_partitions, number)
    followers = np.where(days < 9, before.replication_factor[0] - 1, 0)
    np.testing.assert_allclose(peaks[:, 0], counts * (10.0 + 5.0 * followers))


def _only(s: Snapshot, chosen: Bools) -> Snapshot:
    """The snapshot with some of its partitions."""
    held = chosen[s.replica_partition]
    return replace(
        s,
        topics=tuple(s.topics[t] for t in np.unique(s.partition_topic[chosen])),
        partition_topic=np.unique(s.partition_topic[chosen], return_inverse=True)[1],
        partition_number=s.partition_number[chosen],
        leader_load=s.leader_load[chosen],
        follower_load=s.follower_load[chosen],
        replica_offset=np.append(0, np.cumsum(s.replication_factor[chosen])),
        replica_broker=s.replica_broker[held],
        leader=s.leader[chosen],
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "soon"], "--from: 'soon' found, a time like 2025-03-01T12:00 expected"),
        (["--goals", "nowhere"], "'nowhere' found, a file or a profile"),
        (["--ahead", "x"], "--ahead: 'x' found, a time up to ten years like 91d expected"),
        (["--ahead", "9999d"], "--ahead: '9999d' found"),
        (["--configurations", "c.yaml", "--goals", "default"], "one way expected"),
        (["--configurations", "none.yaml"], "configurations file none.yaml: No such file"),
    ],
)
def test_wrong_options_are_one_sentence(
    options: list[str], said: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["history", "advise", "prepared", "--metadata", "cluster.json", *options]
    found = invoke(words)
    assert found.exit_code == 2
    assert said in found.output
    assert len(found.output.strip().splitlines()) == 1
