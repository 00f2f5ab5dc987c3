"""Local times of requests: judged by the newest window, and used to slow an execution down."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from execution_cases import FakeCluster, move, plan_of

from balancer.execution import Executor, Limits, LocalTimes
from balancer.execution.cluster import Key
from cluster_model import synthetic_snapshot
from cluster_model.live import ClusterModel
from metrics_reporter import Record
from metrics_reporter.metrics import (
    FETCH_LOCAL_P999,
    FOLLOWER_LOCAL_P999,
    PRODUCE_LOCAL_MEAN,
    PRODUCE_LOCAL_P999,
)

WINDOW = 60_000


class Measured:
    """A model of four brokers, and a clock that is turned a window at a time."""

    def __init__(self, **limits: Any) -> None:
        self.now = 1_700_000_040_000
        self.limits = Limits(**limits)
        cluster = synthetic_snapshot(brokers=4, partitions=8, racks=2)
        self.brokers = cluster.broker_ids.tolist()
        self.model = ClusterModel(
            cluster, window_ms=WINDOW, windows=3, min_samples=2, clock=lambda: self.now
        )
        self.slow = LocalTimes(self.model, self.limits, clock=lambda: self.now)

    def window(self, *reported: Mapping[str, float]) -> None:
        """A window in which the first brokers tell this; the next then begins."""
        for _ in range(3):
            for broker, metrics in zip(self.brokers, reported, strict=False):
                self.model.add(Record(self.now, broker, {"cpu": 1.0, **metrics}))
            self.now += WINDOW // 3
        self.model.add(Record(self.now, self.brokers[0], {"cpu": 1.0}))


def test_nothing_is_slow_before_anything_is_measured() -> None:
    measured = Measured()
    assert not measured.slow()
    measured.window({}, {}, {}, {})
    assert (measured.slow(), measured.slow.brokers) == (False, None)


@pytest.mark.parametrize(
    ("name", "fine", "bad"),
    [
        (PRODUCE_LOCAL_P999, 1000.0, 1001.0),
        (PRODUCE_LOCAL_MEAN, 1000.0, 1001.0),
        (FETCH_LOCAL_P999, 500.0, 501.0),
        (FOLLOWER_LOCAL_P999, 500.0, 501.0),
    ],
)
def test_enough_brokers_over_a_limit_are_slow(name: str, fine: float, bad: float) -> None:
    for brokers, slow in ((0, False), (1, False), (2, True), (4, True)):
        measured = Measured()
        measured.window(*({name: bad if b < brokers else fine} for b in range(4)))
        assert (measured.slow(), measured.slow.brokers) == (slow, brokers)


def test_where_few_are_measured_all_of_them_are_enough() -> None:
    measured = Measured(slow_brokers=3)
    measured.window({FETCH_LOCAL_P999: 900.0}, {})
    assert measured.slow()


def test_the_mean_counts_only_where_there_is_no_p999() -> None:
    measured = Measured()
    measured.window(*[{PRODUCE_LOCAL_P999: 900.0, PRODUCE_LOCAL_MEAN: 2000.0}] * 4)
    assert not measured.slow()


def test_limits_are_what_they_are_set_to() -> None:
    times = [{FETCH_LOCAL_P999: 900.0, PRODUCE_LOCAL_P999: 80.0}] * 4
    for limits, slow in (
        ({}, True),
        ({"consumer_fetch_local_ms": 1000.0}, False),
        ({"consumer_fetch_local_ms": None}, False),
        ({"consumer_fetch_local_ms": None, "produce_local_ms": 50.0}, True),
        ({"slow_brokers": 9}, True),
    ):
        measured = Measured(**limits)
        measured.window(*times)
        assert measured.slow() == slow


def test_only_the_newest_window_counts() -> None:
    measured = Measured()
    measured.window(*[{PRODUCE_LOCAL_P999: 5000.0}] * 4)
    assert measured.slow()
    # It is over, or is not told of any more: what was is not what is.
    measured.window(*[{PRODUCE_LOCAL_P999: 5.0}] * 4)
    assert not measured.slow()
    measured.window(*[{PRODUCE_LOCAL_P999: 5000.0}] * 4)
    measured.window({}, {}, {}, {})
    assert not measured.slow()


def test_a_window_after_which_nothing_came_is_not_believed_for_long() -> None:
    measured = Measured()
    measured.window(*[{PRODUCE_LOCAL_P999: 5000.0}] * 4)
    measured.now += 2 * WINDOW
    assert measured.slow()
    measured.now += 1
    assert (measured.slow(), measured.slow.brokers) == (False, None)


def test_how_many_windows_it_is_believed_for_is_a_limit() -> None:
    measured = Measured(fresh_windows=5)
    measured.window(*[{PRODUCE_LOCAL_P999: 5000.0}] * 4)
    measured.now += 5 * WINDOW
    assert measured.slow()
    measured.now += 1
    assert not measured.slow()


def test_rising_local_times_halve_what_is_under_way_and_health_raises_it_again(
    tmp_path: Path,
) -> None:
    # Every move reads from broker 0, so that its share bounds them all.
    keys = [Key("a", n) for n in range(60)]
    kafka = FakeCluster({key: (0, 1 + n % 2) for n, key in enumerate(keys)}, looks=2)
    measured = Measured(
        concurrent_moves_per_broker=8, adaptive_interval=1e-9, progress_interval=0.001
    )
    measured.window(*[{PRODUCE_LOCAL_P999: 5.0}] * 4)
    looks, at_once = 0, list[int]()

    def look(cluster: FakeCluster) -> None:
        nonlocal looks
        looks += 1
        if looks in (6, 16):
            bad = looks == 6
            measured.window(*[{PRODUCE_LOCAL_P999: 5000.0 if bad else 5.0}] * 4)
        at_once.append(len(cluster.ongoing))

    kafka.on_view = look
    running = Executor(
        "nowhere:1",
        journal=tmp_path / "journal",
        limits=measured.limits,
        slow=measured.slow,
        connect=lambda: kafka,
    )
    outcome = running.execute(plan_of(*(move("a", n, 0, 3) for n in range(60))))
    assert outcome.state == "done"
    assert max(at_once[:6]) == 8
    # The same window is seen at every look, and counts once.
    assert max(at_once[9:16]) == 4
    assert max(at_once[16:]) == 8
