"""Replaying a history with one configuration, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from backtest_cases import HOUR_MS, Log, rhythm, skewed, timeline_of, windows
from balancer_cases import QUICK
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer import Balancer, Budget
from balancer.backtest.configuration import Configuration
from balancer.backtest.judge import judge
from balancer.backtest.replay import Event, Window, replay_one, statistic_of
from balancer.backtest.timeline import CurrentReplicas, Delta, ReplicaHistory, Timeline, table_of
from balancer.controller import Settings
from benchmarks.harness.world import without_topic
from cluster_model import BrokerState, Snapshot
from goals import load_goals


def lived(
    snapshot: Snapshot, hours: int, timeline: Timeline | None = None, **options: Any
) -> list[Event]:
    """All events of a configuration's life."""
    options.setdefault("balancer", Balancer("default", strategy=QUICK))
    shown = {k: options.pop(k) for k in ("missing", "amplitude") if k in options}
    configuration = Configuration("tried", **options)
    return list(
        replay_one(
            configuration,
            timeline or timeline_of((0, snapshot), hours=hours),
            windows(snapshot, hours, **shown),
            first_ms=0,
            end_ms=hours * HOUR_MS,
            window_ms=HOUR_MS,
        )
    )


def kinds(events: list[Event]) -> set[str]:
    return {e.kind for e in events}


def course(timeline: Timeline, events: list[Event]) -> ReplicaHistory:
    return ReplicaHistory(timeline, [e.delta for e in events if e.delta is not None])


@cache
def day() -> tuple[Timeline, list[Event]]:
    timeline = timeline_of((0, skewed()))
    return timeline, lived(skewed(), 24, timeline)


def test_plans_are_made_and_hold_from_the_end_of_their_copying_on() -> None:
    s, (timeline, events) = skewed(), day()
    started = next(e for e in events if e.kind == "started")
    executed = next(e for e in events if e.kind == "executed")
    # As fast as it may be copied: three of six brokers send at a time.
    plan_ms = executed.bytes_moved / (50e6 * 3) * 1000
    assert executed.at_ms == started.at_ms + -(-plan_ms // HOUR_MS) * HOUR_MS
    assert executed.delta is not None
    assert executed.delta.from_ms == executed.at_ms
    between = [e.kind for e in events if started.at_ms < e.at_ms < executed.at_ms]
    assert set(between) <= {"executing"}
    lives = course(timeline, events)
    before, _ = table_of(s, timeline.slots)
    assert (lives.at(executed.at_ms - HOUR_MS).replicas == before).all()
    assert (lives.at(executed.at_ms).replicas != before).any()
    assert sum(e.actions for e in events) > 0


def test_it_is_better_afterwards() -> None:
    s = skewed()
    timeline, events = day()
    lives = course(timeline, events)
    goals = load_goals("default")
    loads = rhythm(s, 23)
    was = judge(CurrentReplicas(timeline).snapshot(0, *loads), goals, 0.8)
    now = judge(lives.at(23 * HOUR_MS).snapshot(0, *loads), goals, 0.8)
    assert now.violated < was.violated
    assert now.worst < was.worst
    assert now.balancedness > was.balancedness


@cache
def balanced() -> Snapshot:
    return Balancer("default").propose(skewed()).final_snapshot()


def test_a_balanced_cluster_with_constant_load_is_left_alone() -> None:
    events = lived(balanced(), 24, amplitude=0.0)
    assert kinds(events) <= {"balanced", "trivial"}
    assert len(events) == 24


def test_partitions_that_fall_silent_keep_their_last_loads() -> None:
    even = balanced()
    # The busiest of all partitions, as many as may be unknown.
    silent = np.argsort(even.leader_load[:, even.resource("network_in")])[-3:]

    def reported() -> Iterator[Window]:
        for window in windows(even, 24, amplitude=0.0):
            kept = np.flatnonzero(~np.isin(window.row, silent) | (window.start_ms < 3 * HOUR_MS))
            yield Window(
                window.start_ms, window.row[kept], window.leader[kept], window.follower[kept]
            )

    events = list(
        replay_one(
            Configuration("tried"), timeline_of((0, even)), reported(),
            first_ms=0, end_ms=24 * HOUR_MS, window_ms=HOUR_MS,
        )
    )  # fmt: skip
    assert kinds(events) <= {"balanced", "trivial"}
    assert len(events) == 24


@pytest.mark.parametrize("resource", ["network_in", "network_out"])
def test_nothing_is_planned_on_loads_that_are_not_known(resource: str) -> None:
    s = skewed()
    unknown = np.array([3, 30])

    def reported() -> Iterator[Window]:
        for window in windows(s, 12):
            leader, follower = window.leader.copy(), window.follower.copy()
            leader[unknown, s.resource(resource)] = np.nan
            yield Window(window.start_ms, window.row, leader, follower)

    timeline = timeline_of((0, s))
    events = list(
        replay_one(
            Configuration("tried", Balancer("default", strategy=QUICK)), timeline, reported(),
            first_ms=0, end_ms=12 * HOUR_MS, window_ms=HOUR_MS,
        )
    )  # fmt: skip
    changed = np.concatenate([e.delta.row for e in events if e.delta is not None])
    assert len(changed) > 0
    assert not np.isin(unknown, changed).any()


@pytest.mark.slow
def test_what_is_not_worth_its_bytes_is_not_done() -> None:
    requested = {"goal_violations": {"min_gain": 1e9, "min_gain_per_share": 1e9}}
    even = {"goals": [{"goal": "UsageDistribution", "resource": "network_in"}]}
    soft = Balancer(even, strategy=QUICK)
    events = lived(skewed(), 6, balancer=soft, settings=Settings.model_validate(requested))
    assert "insufficient_gain" in kinds(events)
    assert not {"started", "executed"} & kinds(events)


@pytest.mark.slow
def test_limits_and_looks_are_those_of_the_settings() -> None:
    free = lived(skewed(), 4)
    held = lived(skewed(), 4, settings=Settings(max_moves=3))
    assert next(e for e in free if e.actions).actions > 3
    # A limit is one of moves; leadership comes on top.
    moves = [re.search(r"(\d+) replica move", e.reason) for e in held if e.kind == "started"]
    assert max(int(found[1]) for found in moves if found) == 3
    rare = lived(skewed(), 12, settings=Settings(interval=6 * 3600.0))
    # An execution ends when it ends; all else is seen at a look.
    looks = {e.at_ms // HOUR_MS for e in rare if e.kind != "executed"}
    assert looks == {6, 12}


def test_the_clock_of_the_machine_limits_nothing() -> None:
    balancer = Balancer("default", budget=Budget(moves=5, seconds=1e-6))
    engine = Configuration("tried", balancer, Settings(max_moves=9, max_bytes=1e12)).engine()
    assert engine.budget == Budget(moves=5, bytes=1e12)
    assert balancer.budget.seconds == 1e-6


def test_windows_without_loads_are_waited_for() -> None:
    events = lived(skewed(), 12, missing=tuple(range(1, 12)))
    by_hour = {e.at_ms // HOUR_MS: e.kind for e in events}
    assert by_hour[1] != "waiting"
    # Nothing was measured after the first: plans under way end, others are not made.
    assert set(list(by_hour.values())[2:]) <= {"waiting", "executing", "executed"}


def test_windows_out_of_order_are_no_history() -> None:
    s = skewed()
    backwards = list(windows(s, 3))[::-1]
    lives = replay_one(
        Configuration("tried"), timeline_of((0, s)), backwards,
        first_ms=0, end_ms=3 * HOUR_MS, window_ms=HOUR_MS,
    )  # fmt: skip
    with pytest.raises(ValueError, match="found after"):
        list(lives)


def test_thrash_is_what_was_moved_not_long_before() -> None:
    s = skewed(topics=8)
    eager = Settings.model_validate(
        {
            "moved_cooldown": 0,
            "settle": 0,
            "goal_violations": {"cooldown": 0, "min_gain": 0, "min_gain_per_share": 0,
                                "margin": 0.001, "trivial": 0.0005, "noise_factor": 0},
        }
    )  # fmt: skip
    # Copying takes no time, so that there is much to do.
    events = lived(s, 20, settings=eager, amplitude=0.95, copy_rate=1e15)
    assert sum(e.bytes_again for e in events) > 0
    assert all(e.bytes_again <= e.bytes_moved for e in events)
    assert all(e.bytes_again == 0 for e in events[:4])


@pytest.mark.slow
def test_the_history_may_lose_a_broker_and_the_controller_mends_it() -> None:
    s = skewed()
    state = s.broker_state.copy()
    state[2] = BrokerState.DEAD
    died = replace(s, broker_state=state)
    timeline = timeline_of((0, s), (5 * HOUR_MS, died), hours=24)
    events = lived(s, 24, timeline)
    healed = [e for e in events if e.kind == "executed" and "dead brokers" in e.reason]
    assert healed
    lives = course(timeline, events)
    assert (lives.at(6 * HOUR_MS).replicas == s.broker_ids[2]).any()
    assert not (lives.at(23 * HOUR_MS).replicas == s.broker_ids[2]).any()
    assert not (lives.at(6 * HOUR_MS).snapshot(1).leader == -1).any()


@pytest.mark.slow
def test_topics_come_and_go_as_they_did() -> None:
    s = skewed(topics=4)
    less, more = without_topic(s, 1), s
    timeline = timeline_of((0, less), (4 * HOUR_MS, more), (14 * HOUR_MS, less), hours=20)
    assert len(timeline.names) == s.n_partitions
    events = lived(s, 20, timeline)
    adopted = [e for e in events if e.kind == "adopted"]
    assert [e.at_ms // HOUR_MS for e in adopted] == [4, 14]
    lives = course(timeline, events)
    assert lives.at(3 * HOUR_MS).snapshot(0).topics == less.topics
    assert lives.at(13 * HOUR_MS).snapshot(1).n_partitions == s.n_partitions
    rows = np.flatnonzero(s.partition_topic == 1)
    assert (lives.at(19 * HOUR_MS).replicas[rows] == -1).all()
    # From the end to the beginning too.
    assert (lives.at(0).replicas[rows] == -1).all()


@pytest.mark.slow
def test_a_broker_that_is_removed_takes_its_replicas_out_of_the_plans() -> None:
    s = skewed()
    fewer = Balancer("default", strategy=QUICK).propose(s, _removal(1)).final_snapshot()
    gone = _without_broker(fewer, 0)
    timeline = timeline_of((0, s), (12 * HOUR_MS, gone), hours=20)
    lives = course(timeline, lived(s, 20, timeline))
    replicas = lives.at(19 * HOUR_MS).replicas
    assert not (replicas == 1).any()
    lives.at(19 * HOUR_MS).snapshot(timeline.at(19 * HOUR_MS))


def test_replicas_that_are_missing_are_added_and_stay() -> None:
    s = skewed(replication_factor=2, utilization=0.2)
    requested = {"missing_replicas": {"topics": {".*": 3}, "rounds": 1}, "goal_violations": {
        "enabled": False}}  # fmt: skip
    timeline = timeline_of((0, s), slots=3)
    lives = course(timeline, lived(s, 24, timeline, settings=Settings.model_validate(requested)))
    assert (lives.at(23 * HOUR_MS).replicas >= 0).all()


def _removal(broker: int) -> Any:
    from balancer import Operation

    return Operation(kind="remove_brokers", brokers=(broker,))


def _without_broker(s: Snapshot, index: int) -> Snapshot:
    keep = np.arange(s.n_brokers) != index
    return replace(
        s,
        broker_ids=s.broker_ids[keep],
        broker_rack=s.broker_rack[keep],
        broker_host=s.broker_host[keep],
        broker_state=s.broker_state[keep],
        capacity=s.capacity[keep],
        replica_broker=s.replica_broker - (s.replica_broker > index),
    )


# --- which loads plans are made for


@given(
    st.integers(1, 8),
    st.sampled_from(["mean", "p95", "peak"]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_statistics_are_those_of_numpy(count: int, statistic: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    loads = [np.where(rng.random((5, 2)) < 0.3, np.nan, rng.random((5, 2))) for _ in range(count)]
    found = statistic_of(loads, statistic)
    stacked = np.stack(loads)
    for cell in np.ndindex(5, 2):
        known = stacked[(slice(None), *cell)]
        known = known[~np.isnan(known)]
        if not len(known):
            assert np.isnan(found[cell])
            continue
        expected = {
            "mean": known.mean(),
            "p95": np.percentile(known, 95),
            "peak": known.max(),
        }[statistic]
        assert found[cell] == pytest.approx(expected)


# --- timelines


def test_what_the_history_moved_itself_is_no_other_cluster() -> None:
    s = skewed()
    later = balanced()
    timeline = timeline_of((0, s), (7 * HOUR_MS, later))
    assert len(timeline.casts) == 1
    (moved,) = timeline.recorded
    assert moved.from_ms == 7 * HOUR_MS
    recorded = ReplicaHistory(timeline, timeline.recorded)
    assert np.array_equal(recorded.at(6 * HOUR_MS).snapshot(0).replica_broker, s.replica_broker)
    now = recorded.at(7 * HOUR_MS).snapshot(0)
    assert np.array_equal(now.replica_broker, later.replica_broker)
    assert np.array_equal(now.leader, later.leader)


def test_a_course_is_the_same_in_any_order_of_asking() -> None:
    s = skewed()
    timeline = timeline_of((0, s))
    rng = np.random.default_rng(0)
    table, leader = table_of(s, timeline.slots)
    deltas = []
    for at in range(1, 20):
        row = np.sort(rng.choice(len(table), 5, replace=False))
        deltas.append(Delta(at, row, rng.permutation(table[row], axis=0), leader[row]))
    forwards = ReplicaHistory(timeline, deltas)
    expected = {at: forwards.at(at).replicas.copy() for at in range(21)}
    other = ReplicaHistory(timeline, deltas)
    for at in rng.permutation(21).tolist():
        assert np.array_equal(other.at(at).replicas, expected[at])


def test_what_comes_after_the_range_is_not_looked_at() -> None:
    s = skewed()
    log = Log({0: s, 10 * HOUR_MS: without_topic(skewed(topics=3), 1)})
    assert len(Timeline.of(log, 0, 9 * HOUR_MS).casts) == 1
    assert len(Timeline.of(log, 0, 10 * HOUR_MS).casts) == 2
