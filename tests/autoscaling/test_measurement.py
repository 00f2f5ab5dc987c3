"""What consumers process and how long rebalances take is measured; what is not known is not 0."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.autoscaling.assigned import AssignedConsumer, ConsumerSettings
from balancer.autoscaling.assigned import consumer as consumer_module
from balancer.autoscaling.assigned.member import Member
from balancer.autoscaling.assigned.messages import Assignment, Heartbeat, Partition, by_topic
from balancer.autoscaling.assigned.meter import ProcessingMeter
from balancer.autoscaling.assigned.pauses import Pauses
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.measurement import (
    ConsumptionEstimator,
    MeasurementSettings,
    RebalanceTimes,
)

P, Q = ("orders", 0), ("orders", 1)
COMMITS = MeasurementSettings.commits


class Backlog:
    """A consumer that processes one partition, commits now and then, and is looked at."""

    def __init__(self, capacity: float, commit_seconds: float, rate: float, waiting: int) -> None:
        self.capacity, self.commit_seconds, self.rate = capacity, commit_seconds, rate
        self.end, self.done, self.now, self.next_commit = float(waiting), 0.0, 0.0, 0.0
        self.committed = 0
        self.estimator = ConsumptionEstimator()

    def run(self, seconds: float, step: float = 0.05) -> None:
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now += step
            self.end += self.rate * step
            self.done = min(self.end, self.done + self.capacity * step)
            if self.now >= self.next_commit:
                self.committed = int(self.done)
                self.next_commit = self.now + self.commit_seconds

    def look(self) -> dict[str, float]:
        self.estimator.look(self.now, {"a": [P]}, {P: self.committed}, {P: 0}, {P: int(self.end)})
        return self.estimator.capacities()


@given(
    capacity=st.floats(20, 500),
    commit_seconds=st.sampled_from((0.1, 1.0, 5.0, 14.0)),
    interval=st.sampled_from((1.0, 4.0, 10.0)),
)
def test_a_consumer_with_lag_is_measured_whenever_it_commits(
    capacity: float, commit_seconds: float, interval: float
) -> None:
    world = Backlog(capacity, commit_seconds, rate=capacity / 2, waiting=10**6)
    seconds = 2 * (COMMITS + 2) * (commit_seconds + interval)
    while world.now < seconds:
        world.run(interval)
        found = world.look().get("a")
        assert found is None or found <= capacity * 1.001 + 1
    assert found is not None
    assert found >= capacity * COMMITS / (COMMITS + 1) * 0.97 - 1


def test_a_consumer_that_keeps_up_is_not_measured() -> None:
    # what is not committed yet at a look is no lag
    world = Backlog(200.0, 5.0, rate=100.0, waiting=0)
    for _ in range(60):
        world.run(4.0)
        assert world.look() == {}


def test_one_that_hangs_is_unknown_and_measured_anew_afterwards() -> None:
    world = Backlog(0.0, 1.0, rate=10.0, waiting=100_000)
    for _ in range(30):
        world.run(5.0)
        assert world.look() == {}
    world.capacity = 50.0
    for _ in range(COMMITS + 2):
        world.run(5.0)
        found = world.look()
    assert found["a"] == pytest.approx(50 * COMMITS / (COMMITS + 1), rel=0.05)


@pytest.mark.parametrize(("commit_seconds", "interval"), [(150.0, 10.0), (1.0, 90.0)])
def test_a_consumer_that_commits_or_is_looked_at_rarely_is_measured(
    commit_seconds: float, interval: float
) -> None:
    world = Backlog(100.0, commit_seconds, rate=50.0, waiting=10**7)
    while world.now < (COMMITS + 3) * max(commit_seconds, interval):
        world.run(interval, step=0.5)
        found = world.look()
    assert 100 * COMMITS / (COMMITS + 1) * 0.97 <= found["a"] <= 100.1


def looks(
    estimator: ConsumptionEstimator,
    steps: int,
    committed: Callable[[int], dict[Partition, int]],
    start: Callable[[int], int] = lambda _: 0,
    reads: Callable[[int], list[Partition]] = lambda _: [P],
) -> dict[str, float]:
    for k in range(steps):
        estimator.look(
            float(k), {"a": reads(k)}, committed(k), dict.fromkeys((P, Q), start(k)),
            dict.fromkeys((P, Q), 10**9),
        )  # fmt: skip
    return estimator.capacities()


def test_what_a_consumer_skips_or_is_set_back_to_is_not_processed() -> None:
    assert looks(ConsumptionEstimator(), 12, lambda k: {P: 100 * k})["a"] == pytest.approx(
        100 * COMMITS / (COMMITS + 1)
    )
    # the log's start overtakes it, and it goes on from there
    skips = looks(
        ConsumptionEstimator(),
        12,
        lambda k: {P: 100 * k + 10**6 * (k > 4)},
        lambda k: (10**6 + 400) * (k > 4),
    )
    assert skips["a"] <= 100
    # set back every few looks: never a whole window
    assert looks(ConsumptionEstimator(), 40, lambda k: {P: 100 * (k % 5)}) == {}


def test_a_window_is_that_of_the_same_partitions() -> None:
    moves = looks(
        ConsumptionEstimator(), 40, lambda k: {P: 100 * k, Q: 7 * k},
        reads=lambda k: [P, Q] if k % 6 < 3 else [P],
    )  # fmt: skip
    assert moves == {}
    # never committed: not counted, and of those that are nothing is lost
    assert (
        looks(ConsumptionEstimator(), 12, lambda k: {P: 100 * k}, reads=lambda _: [P, Q])["a"] > 0
    )
    assert looks(ConsumptionEstimator(), 12, lambda k: {}) == {}


def test_consumers_that_are_gone_are_forgotten() -> None:
    estimator = ConsumptionEstimator()
    assert looks(estimator, 12, lambda k: {P: 100 * k})
    estimator.look(12.0, {}, {}, {}, {})
    assert estimator.capacities() == {}


def test_one_that_has_read_nothing_for_long_can_be_given_something_again() -> None:
    estimator = ConsumptionEstimator(MeasurementSettings(remembered_seconds=100.0))
    slow = looks(estimator, 12, lambda k: {P: k})
    for at in (50.0, 111.0):
        estimator.look(at, {"a": []}, {P: 11}, {P: 0}, {P: 10**9})
        assert estimator.capacities() == slow
    estimator.look(112.0, {"a": []}, {P: 11}, {P: 0}, {P: 10**9})
    assert estimator.capacities() == {}


def test_partitions_that_are_deleted_and_made_again_are_no_events() -> None:
    estimator = ConsumptionEstimator()
    for k in range(40):
        # from the 20th look on another topic of the same name, which is far ahead
        committed = {P: 10 * k if k < 20 else 10**9 + 10 * k}
        end = dict.fromkeys(() if k == 19 else (P,), 10**12)
        estimator.look(float(k), {"a": [P]}, committed, {P: 0}, end)
        assert all(rate <= 10.0 for rate in estimator.capacities().values())
    assert estimator.capacities()["a"] == pytest.approx(10 * COMMITS / (COMMITS + 1))


def test_what_was_measured_long_ago_gives_way_to_what_is_measured_now() -> None:
    settings = MeasurementSettings(remembered_seconds=20.0)
    estimator = ConsumptionEstimator(settings)
    slower = looks(estimator, 60, lambda k: {P: 100 * k if k < 20 else 1600 + 20 * k})
    assert slower["a"] == pytest.approx(20 * COMMITS / (COMMITS + 1))


def test_a_clock_that_stands_still_or_goes_back_measures_nothing() -> None:
    estimator = ConsumptionEstimator()
    for k in range(30):
        for at in (5.0, 5.0 - k, float("nan")):
            estimator.look(at, {"a": [P]}, {P: 100 * k}, {P: 0}, {P: 10**9})
    assert estimator.capacities() == {}


def test_offsets_that_leap_were_skipped() -> None:
    usual = looks(ConsumptionEstimator(), 12, lambda k: {P: 100 * k})["a"]
    # once by a reset, or by a gap that compaction has left; the end is far away
    leaps = looks(ConsumptionEstimator(), 30, lambda k: {P: 100 * k + 10**8 * (k > 15)})
    assert usual <= leaps["a"] <= usual * (COMMITS + 1) / COMMITS
    # a single look in which nearly all happens, after a long silence, is no window
    rests = looks(ConsumptionEstimator(), 30, lambda k: {P: 100 * min(k, 3) + 10**6 * (k > 25)})
    assert rests == {}


def test_slow_answers_do_not_make_a_consumer_faster() -> None:
    estimator = ConsumptionEstimator()
    for k in range(8):
        # the first answers came after 5 s
        took = 5.0 if k < 2 else 0.0
        estimator.look(
            10.0 * k + took, {"a": [P]}, {P: 1000 * k}, {P: 0}, {P: 10**9}, took=took
        )  # fmt: skip
    for k in range(8, 16):
        estimator.look(10.0 * k, {"a": [P]}, {P: 1000 * k}, {P: 0}, {P: 10**9})
        assert all(rate <= 100.0 for rate in estimator.capacities().values())
    assert estimator.capacities()["a"] > 80.0


def test_offsets_that_may_be_no_events_are_not_counted() -> None:
    estimator = ConsumptionEstimator()
    for k in range(40):
        # half of the offsets below 10,000 are gone
        done = 1000 * k if k < 10 else 10_000 + 100 * (k - 10)
        estimator.look(
            float(k), {"a": [P, Q]}, {P: done, Q: k}, {P: 0, Q: 0},
            {P: 10**9, Q: 10**9}, gaps={P: 10_000},
        )  # fmt: skip
        assert k > 15 or estimator.capacities() == {}
    assert estimator.capacities()["a"] == pytest.approx(101 * COMMITS / (COMMITS + 1))


def test_a_paused_partition_is_no_lag_that_keeps_a_consumer_busy() -> None:
    found = ConsumptionEstimator()
    for k in range(60):
        # P waits with its lag; Q is read as it arrives
        found.look(
            float(k), {"a": [P, Q]}, {P: 5, Q: 10 * k}, {P: 0, Q: 0}, {P: 10**6, Q: 10 * k}
        )  # fmt: skip
    assert found.capacities() == {}


def test_one_that_keeps_up_with_more_than_was_measured_can_process_more() -> None:
    estimator = ConsumptionEstimator()
    for k in range(12):
        estimator.look(float(k), {"a": [P]}, {P: 50 * k}, {P: 0}, {P: 600})
    slow = estimator.capacities()["a"]
    assert slow < 50
    for k in range(12, 40):
        done = 600 + 200 * (k - 12)
        estimator.look(float(k), {"a": [P]}, {P: done}, {P: 0}, {P: done})
    assert estimator.capacities()["a"] == pytest.approx(200 * COMMITS / (COMMITS + 1))
    # and one that keeps up with less can process no less
    for k in range(40, 80):
        done = 6000 + 10 * (k - 39)
        estimator.look(float(k), {"a": [P]}, {P: done}, {P: 0}, {P: done})
    assert estimator.capacities()["a"] == pytest.approx(200 * COMMITS / (COMMITS + 1))


def test_what_was_read_before_a_rebalance_was_perhaps_read_by_another() -> None:
    estimator = ConsumptionEstimator()
    for k in range(40):
        estimator.look(float(k), {"a": [P]}, {P: 100 * k}, {P: 0}, {P: 10**9})
        if k % 5 == 4:
            estimator.interrupt()
    assert estimator.capacities() == {}


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=True, allow_infinity=True),
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**63 - 1),
        ),
        max_size=40,
    )
)
def test_absurd_looks_give_a_number_above_0_or_none(
    found: list[tuple[float, int, int, int]],
) -> None:
    estimator = ConsumptionEstimator(MeasurementSettings(commits=1))
    for at, committed, start, end in found:
        estimator.look(at, {"a": [P]}, {P: committed}, {P: start}, {P: end})
        assert all(0 < rate < float("inf") for rate in estimator.capacities().values())


def test_a_rebalance_counts_if_the_group_was_stable_before() -> None:
    times = RebalanceTimes()
    # the start of a group
    for at, stable in ((0.0, None), (1.0, False), (9.0, True)):
        times.look(at, stable)
    assert times.median is None
    for at, stable in ((20.0, False), (21.0, False), (22.5, True), (30.0, True)):
        times.look(at, stable)
    assert times.median == 2.5
    # all consumers ended meanwhile
    for at, stable in ((40.0, False), (45.0, None), (50.0, False), (59.0, True)):
        times.look(at, stable)
    assert times.median == 2.5
    # an outage
    for at, stable in ((100.0, False), (1000.0, True)):
        times.look(at, stable)
    assert times.median == 2.5


def test_a_rebalance_takes_no_time_that_is_absurd() -> None:
    times = RebalanceTimes()
    for seconds in (-1.0, float("nan"), float("inf"), 61.0):
        times.add(seconds)
    # the clock went back, or stood still
    for at, stable in ((5.0, True), (6.0, False), (1.0, True), (7.0, False), (7.0, True)):
        times.look(at, stable)
    assert times.median is None


def test_a_long_rebalance_beside_a_short_one_does_not_count() -> None:
    times = RebalanceTimes()
    for seconds in (1.0, 55.0):
        times.add(seconds)
    assert times.median == 1.0


def test_settings_are_above_0() -> None:
    with pytest.raises(AutoscalingError, match="commits: 0 found, a whole number above 0 expected"):
        MeasurementSettings(commits=0)
    wrong: Any
    for wrong in (2.5, True, "10", None):
        with pytest.raises(AutoscalingError, match=f"rebalances: {wrong} found, a whole number"):
            MeasurementSettings(rebalances=wrong)
    with pytest.raises(AutoscalingError, match="silent_seconds: nan found, seconds above 0"):
        MeasurementSettings(silent_seconds=float("nan"))


# --- consumers with assigned partitions


def test_the_meter_counts_time_of_processing_only() -> None:
    meter = ProcessingMeter(seconds=10.0, least=1.0)
    for _ in range(199):
        meter.note(0.005)
    assert meter.rate is None
    meter.note(0.005)
    assert meter.rate == pytest.approx(200)
    # what is older than the window no longer counts
    for _ in range(400):
        meter.note(0.05)
    assert meter.rate == pytest.approx(20)


def test_an_event_in_which_the_machine_slept_counts_no_longer_than_it_may_take() -> None:
    meter = ProcessingMeter(seconds=10.0, least=1.0, longest=1.0)
    for k in range(1000):
        meter.note(3600.0 if k == 500 else 0.005)
    assert meter.rate is not None
    assert 150 < meter.rate < 200


def beat(name: str, number: int, reads: str, unread: str = "", **more: Any) -> Heartbeat:
    held = [("t", int(n)) for n in reads + unread]
    return Heartbeat(
        consumer=name, id=more.pop("id", f"{name}/1"), address=1, number=number, epoch=1, seen=1,
        partitions=by_topic(held), unread=by_topic([("t", int(n)) for n in unread]), **more,
    )  # fmt: skip


def test_a_pause_is_from_stop_to_start() -> None:
    pauses = Pauses()
    pauses.heard(beat("a", 1, "012"), 0.0)
    pauses.heard(beat("b", 1, ""), 0.0)
    assert pauses.times.median is None
    # it holds them until they are committed, but reads them no longer
    pauses.heard(beat("a", 2, "2", unread="01"), 10.0)
    pauses.heard(beat("a", 3, "2"), 10.2)
    pauses.heard(beat("b", 2, "", unread="01"), 10.3)
    assert pauses.times.median is None
    # the last one counts, of those that start at a time
    pauses.heard(beat("b", 3, "01"), 10.5)
    assert pauses.times.median == 0.5
    # an old message changes nothing
    pauses.heard(beat("a", 2, "", unread="012"), 11.0)
    pauses.heard(beat("b", 4, "012"), 12.0)
    assert pauses.times.median == 0.5


def test_what_nobody_moved_is_no_pause() -> None:
    pauses = Pauses()
    pauses.heard(beat("a", 1, "0"), 0.0)
    pauses.heard(beat("b", 1, ""), 0.0)
    # stopped by its lease, and started again
    pauses.heard(beat("a", 2, ""), 1.0)
    pauses.heard(beat("a", 3, "0"), 5.0)
    # killed
    pauses.heard(beat("b", 2, "0"), 30.0)
    # ended before another was there
    pauses.heard(beat("b", 3, "", unread="0"), 31.0)
    pauses.heard(beat("b", 4, "", leaving=True), 31.1)
    pauses.heard(beat("c", 1, ""), 50.0)
    pauses.heard(beat("c", 2, "0"), 51.0)
    # one that does not say what it reads
    pauses.heard(beat("c", 3, "0").model_copy(update={"unread": None}), 52.0)
    pauses.heard(beat("a", 4, "0"), 53.0)
    assert pauses.times.median is None


def test_a_pause_ends_when_anybody_reads() -> None:
    pauses = Pauses()
    pauses.heard(beat("a", 1, "0"), 0.0)
    pauses.heard(beat("b", 1, ""), 0.0)
    pauses.heard(beat("a", 2, ""), 10.0)
    # the first that is heard of c, which is killed later
    pauses.heard(beat("c", 1, "0"), 10.5)
    pauses.heard(beat("b", 2, "0"), 40.0)
    assert pauses.times.median is None


def test_what_another_controller_gives_away_was_not_moved() -> None:
    pauses = Pauses()
    for name, reads in (("a", "0"), ("b", "")):
        pauses.heard(beat(name, 1, reads), 0.0)
    # its lease is over as the controller has died
    pauses.heard(beat("a", 2, ""), 10.0)
    pauses.heard(beat("b", 2, "0").model_copy(update={"epoch": 2}), 25.0)
    assert pauses.times.median is None


def test_messages_that_arrive_together_say_nothing_of_the_time_between() -> None:
    pauses = Pauses()
    for name, reads in (("a", "0"), ("b", "")):
        pauses.heard(beat(name, 1, reads), 0.0)
    pauses.heard(beat("a", 2, ""), 10.0)
    pauses.heard(beat("b", 2, "0"), 10.0)
    assert pauses.times.median is None


def test_a_topic_that_is_made_again_and_consumers_that_are_gone_are_forgotten() -> None:
    pauses = Pauses(MeasurementSettings(longest_rebalance_seconds=5.0))
    pauses.heard(beat("b", 1, ""), 0.0)
    for n in range(100):
        pauses.heard(beat(f"pod-{n}", 1, "0"), float(n))
        pauses.heard(beat(f"pod-{n}", 2, ""), n + 0.5)
        pauses.heard(beat("b", n + 2, ""), n + 0.6)
    assert len(pauses._readers) < 15
    pauses.heard(beat("b", 1000, "0"), 200.0)
    assert pauses.times.median is None


def test_heartbeats_of_an_older_version_are_read() -> None:
    old = Member("a", "a/1", 1).heartbeat(0.0).model_dump(exclude={"capacity", "unread"})
    found = Heartbeat.model_validate(old)
    assert Heartbeat.decode(found.encode()) == found
    assert (found.capacity, found.reads) == (None, None)
    for capacity in (b"0", b"-1", b'"x"', b"NaN", b"Infinity"):
        value = found.encode().replace(b'"capacity":null', b'"capacity":' + capacity)
        assert Heartbeat.decode(value) is None


def test_a_member_says_what_it_does_not_read_yet_or_any_longer() -> None:
    member = Member("a", "a/1", 1)
    first = member.heartbeat(0.0)
    told = Assignment(
        id="a/1", epoch=1, number=1, heartbeat=first.number, lease_seconds=6.0,
        partitions=by_topic([P, Q]),
    )  # fmt: skip
    assert member.receive(told, 0.0)
    found = member.heartbeat(0.1, reads=frozenset([P]), capacity=200.0)
    assert found.held == {P, Q}
    assert found.reads == frozenset([P])
    assert found.capacity == 200.0
    many = by_topic([("orders", n) for n in range(5000)])
    member.receive(told.model_copy(update={"number": 2, "partitions": many}), 0.2)
    # too many to be listed
    assert member.heartbeat(0.3, reads=frozenset()).reads is None


class Wire:
    """Clients of a consumer that has all records at hand, and a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.offset, self.sent = 1000.0, 0, list[Heartbeat]()
        self.assigned = frozenset([P])
        self._lock = threading.Lock()
        monkeypatch.setattr(consumer_module, "boot_clock", lambda: self.now)
        monkeypatch.setattr(consumer_module, "Channel", lambda *_: self)
        monkeypatch.setattr(consumer_module, "create", self._create)
        place = lambda topic, number, offset=-1001: SimpleNamespace(  # noqa: E731
            topic=topic, partition=number, offset=offset, error=None
        )
        fake = SimpleNamespace(
            OFFSET_BEGINNING=-2, OFFSET_END=-1, TopicPartition=place, KafkaException=RuntimeError
        )
        monkeypatch.setattr(consumer_module, "kafka", lambda: fake)

    def _create(self, kind: str, given: dict[str, Any]) -> Wire:
        self._on_commit = given["on_commit"]
        return self

    # the control topic
    def partitions(self, timeout: float) -> int:
        return 2

    def read(self, partition: int) -> None:
        pass

    def send(self, place: int, value: bytes) -> None:
        found = Heartbeat.decode(value)
        assert found is not None
        with self._lock:
            self.sent.append(found)

    def receive(self, timeout: float) -> list[bytes]:
        time.sleep(0.005)
        if not self.sent:
            return []
        last = self.sent[-1]
        answer = Assignment(
            id=last.id, epoch=1, number=last.number, heartbeat=last.number, lease_seconds=10.0,
            partitions=by_topic(self.assigned),
        )  # fmt: skip
        return [answer.encode()]

    def close(self) -> None:
        pass

    # the records
    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        return places

    def incremental_assign(self, places: list[Any]) -> None:
        pass

    def incremental_unassign(self, places: list[Any]) -> None:
        pass

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        self._on_commit(None, offsets)

    def consume(self, count: int, timeout: float) -> list[Any]:
        time.sleep(0.005)
        first, self.offset = self.offset, self.offset + count
        return [
            SimpleNamespace(
                topic=lambda: P[0], partition=lambda: P[1], error=lambda: None, offset=lambda n=n: n
            )
            for n in range(first, first + count)
        ]


def test_a_consumer_says_what_it_can_process(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch)
    settings = ConsumerSettings(batch=100, answer_seconds=0.1)
    with AssignedConsumer("k:1", "orders", "a", settings=settings) as consumer:
        processed = 0
        while processed < 300:
            for _ in consumer.poll(5.0):
                wire.now += 0.005
                processed += 1
            # a wait, which is no processing
            wire.now += 0.3
        assert wire.sent[0].capacity is None
        assert list(consumer.poll(0.0)) == []
        before, deadline = len(wire.sent), time.monotonic() + 30
        while len(wire.sent) == before and time.monotonic() < deadline:
            wire.now += 0.1
            time.sleep(0.01)
        assert wire.sent[-1].capacity == pytest.approx(200)
        assert wire.sent[-1].reads == frozenset([P])
    assert wire.sent[-1].leaving


def test_a_consumer_without_partitions_does_not_know_for_ever_what_it_can_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    settings = ConsumerSettings(batch=100, answer_seconds=0.1, remembered_seconds=10.0)
    with AssignedConsumer("k:1", "orders", "a", settings=settings) as consumer:

        def knows_after(seconds: float) -> bool:
            until, deadline = wire.now + seconds, time.monotonic() + 30
            while wire.now < until:
                wire.now += 0.2
                assert list(consumer.poll(0.0)) == []
                time.sleep(0.01)
            before = len(wire.sent)
            while len(wire.sent) < before + 2 and time.monotonic() < deadline:
                wire.now += 0.1
                time.sleep(0.01)
            return wire.sent[-1].capacity is not None

        processed = 0
        while processed < 300:
            for _ in consumer.poll(5.0):
                wire.now += 0.005
                processed += 1
        wire.assigned = frozenset()
        assert knows_after(5.0)
        assert consumer.partitions == frozenset()
        assert not knows_after(8.0)
