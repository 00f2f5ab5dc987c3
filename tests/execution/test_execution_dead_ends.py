"""Moves that can neither continue nor be cancelled: whatever Kafka answers, an execution ends."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from execution_cases import FakeCluster, Killed, alive, executor, lead, move, plan_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancer.execution import Limits, Progress
from balancer.execution.cluster import ConfigResource, Key
from balancer.execution.journal import read_journal
from balancer.execution.throttle import FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS, marked

# The only replica of A is on broker 3, which dies; B and C have nothing to do with it.
A, B, C = Key("a", 0), Key("a", 1), Key("b", 0)
START = {A: (3,), B: (0, 1), C: (1, 2)}
PLAN = plan_of(move("a", 0, 3, 4), move("a", 1, 1, 5), move("b", 0, 2, 5))
THROTTLE: dict[str, Any] = {"throttle": 51200.0}


def dying(**changes: Any) -> FakeCluster:
    """A cluster whose broker 3 dies as soon as A moves."""

    def kill(cluster: FakeCluster) -> None:
        if A in cluster.ongoing:
            cluster.brokers.discard(3)

    return FakeCluster(dict(START), looks=4, on_view=kill, **changes)


@pytest.mark.parametrize("owner", [None, "me"])
def test_a_cancel_that_is_refused_is_final(tmp_path: Path, owner: str | None) -> None:
    kafka = dying()
    outcome = executor(kafka, tmp_path, owner=owner, **THROTTLE).execute(PLAN)
    assert (outcome.state, outcome.completed, outcome.failed) == ("failed", 2, 1)
    assert any("refuses to cancel it: invalid replica" in p for p in outcome.problems)
    assert any(
        "a-0" in p and "continues in Kafka" in p and "broker 3" in p for p in outcome.problems
    )
    assert (kafka.replicas[B], kafka.replicas[C]) == ((0, 5), (1, 5))
    # Kafka goes on with it, and so does its throttle; nothing else is throttled.
    assert kafka.ongoing.keys() == {A}
    left = kafka.throttles()
    lists = left[ConfigResource("topic", "a")]
    if owner is None:
        assert lists == {LEADER_REPLICAS: "0:3", FOLLOWER_REPLICAS: "0:4"}
    else:
        marks = [marked(lists[key], owner) for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
        assert [m.replicas for m in marks if m] == [{(0, 3)}, {(0, 4)}]
    assert left.keys() == {
        ConfigResource("topic", "a"),
        *(ConfigResource("broker", b) for b in "34"),
    }
    # It is asked once to cancel it.
    assert kafka.asked.count((A, None)) == 1


@pytest.mark.parametrize(("owner", "place"), [(None, ""), ("me", ""), ("me", "elsewhere")])
def test_a_recovery_of_a_dead_end_ends_and_so_does_the_next(
    tmp_path: Path, owner: str | None, place: str
) -> None:
    kafka = dying()
    executor(kafka, tmp_path, owner=owner, **THROTTLE).execute(PLAN)
    throttled = kafka.throttles()
    # With the journal, or on another machine with the marks alone.
    there = tmp_path / place
    there.mkdir(exist_ok=True)
    for _ in range(3):
        outcome = executor(kafka, there, owner=owner).recover()
        assert outcome is not None
        assert (outcome.state, outcome.failed) == ("failed", 1)
        assert any("a-0" in p and "continues in Kafka" in p for p in outcome.problems)
        assert kafka.throttles() == throttled
    # The broker is back: the move ends, and then nothing is left.
    kafka.on_view = lambda c: None
    kafka.brokers.add(3)
    outcome = executor(kafka, there, owner=owner).recover()
    assert outcome is not None
    # The marks tell of no other moves; the journal does, and of A's election after it.
    assert (outcome.state, outcome.completed) == ("done", 1 if place else 4)
    assert kafka.replicas[A] == (4,)
    assert kafka.throttles() == {}
    assert executor(kafka, there, owner=owner).recover() is None


@pytest.mark.parametrize("owner", [None, "me"])
def test_a_look_at_what_is_left_waits_for_nothing_and_tidies_up(
    tmp_path: Path, owner: str | None
) -> None:
    kafka = dying()
    running = executor(kafka, tmp_path, owner=owner, broker_grace=0.0, **THROTTLE)
    assert running.left() == ()
    running.execute(PLAN)
    throttled, asked = kafka.throttles(), list(kafka.asked)
    journal = tmp_path / "journal"
    before = journal.read_bytes()
    for _ in range(3):
        (said,) = running.left() or ()
        assert "a-0" in said
        assert "continues in Kafka, and so does its throttle, until broker 3 serves again" in said
    # Nothing was asked of Kafka, nothing was written down again.
    assert (kafka.throttles(), kafka.asked, journal.read_bytes()) == (throttled, asked, before)
    kafka.on_view = lambda c: None
    kafka.brokers.add(3)
    while running.left():
        assert kafka.ongoing
    assert kafka.replicas[A] == (4,)
    assert kafka.throttles() == {}
    assert running.left() == ()
    assert running.recover() is None


def test_a_throttle_that_cannot_be_removed_is_left_too(tmp_path: Path) -> None:
    kafka = dying()
    running = executor(kafka, tmp_path, **THROTTLE)
    running.execute(PLAN)
    kafka.delete("a")
    assert running.left() == ("throttles are still set on broker 3",)
    kafka.brokers.add(3)
    kafka.on_view = lambda c: None
    assert running.left() == ()
    assert kafka.throttles() == {}


def test_what_has_not_ended_is_not_tidied_up_but_recovered(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), dies_after=20, looks=10_000)
    with pytest.raises(Killed):
        executor(kafka, tmp_path, **THROTTLE).execute(PLAN)
    kafka = alive(kafka)
    throttled = kafka.throttles()
    assert throttled
    assert executor(kafka, tmp_path).left() is None
    assert kafka.throttles() == throttled
    (tmp_path / "journal").write_bytes(b"\0" * 64)
    assert executor(kafka, tmp_path).left() is None


def test_other_limits_reach_the_deadline_of_the_next_stop(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), looks=10_000, deaf=True)
    running = executor(kafka, tmp_path, stop_timeout=3600.0, cancel_timeout=3600.0)
    running.configure(Limits(stop_timeout=0.2, cancel_timeout=3600.0, progress_interval=0.001))
    kafka.on_view = lambda c: running.stop() if c.ongoing else None
    outcome = running.execute(PLAN)
    assert any("3 tasks were not cancelled within 0.2 s" in p for p in outcome.problems)


@pytest.mark.parametrize("throttled", [True, False])
def test_the_next_execution_does_not_forget_it(tmp_path: Path, throttled: bool) -> None:
    kafka = dying()
    limits = THROTTLE if throttled else {}
    executor(kafka, tmp_path, **limits).execute(PLAN)
    before = kafka.throttles()
    outcome = executor(kafka, tmp_path, **limits).execute(plan_of(move("b", 0, 5, 0)))
    assert (outcome.completed, outcome.failed) == (1, 0)
    assert kafka.throttles() == before
    recorded = read_journal(tmp_path / "journal")
    assert recorded is not None
    assert [t.key for t in recorded.left] == [A]
    assert not recorded.closed
    kafka.delete("a")
    recovered = executor(kafka, tmp_path).recover()
    assert recovered is not None
    # Broker 3 is still away, with its rate.
    assert kafka.throttles().keys() <= {ConfigResource("broker", "3")}
    kafka.brokers.add(3)
    executor(kafka, tmp_path).recover()
    assert kafka.throttles() == {}
    assert executor(kafka, tmp_path).recover() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=3),
    st.integers(1, 40),
    st.sampled_from([None, "me"]),
    st.booleans(),
    st.booleans(),
)
def test_however_often_it_is_killed_in_a_dead_end_it_ends_and_leaves_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[int],
    death: int,
    owner: str | None,
    stopped: bool,
    rollback: bool,
) -> None:
    path = tmp_path_factory.mktemp("dead")
    kafka = FakeCluster(dict(START), looks=3)
    journal = path / "journal"
    calls = 0

    def die(cluster: FakeCluster) -> None:
        nonlocal calls
        calls += 1
        if calls >= death:
            cluster.brokers.discard(3)
            if stopped:
                running.stop(rollback=rollback)

    for life in [*lives, 10_000, 10_000]:
        kafka = alive(kafka)
        kafka.dies_after, kafka.on_view = life, die
        running = executor(kafka, path, owner=owner, **THROTTLE)
        try:
            if journal.exists():
                running.recover()
            else:
                running.execute(PLAN)
        except Killed:
            continue
    # Whatever is throttled still moves, or is on the broker that is away.
    moving = {ConfigResource("topic", k.topic) for k in kafka.ongoing}
    assert {r for r in kafka.throttles() if r.kind == "topic"} <= moving
    assert set(kafka.ongoing) <= {A}
    kafka = alive(kafka)
    kafka.on_view = lambda c: None
    kafka.brokers.add(3)
    executor(kafka, path, owner=owner).recover()
    assert not kafka.ongoing
    assert kafka.throttles() == {}
    assert executor(kafka, path, owner=owner).recover() is None


def test_stopped_in_a_dead_end_it_ends(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), looks=10_000)
    running = executor(kafka, tmp_path, broker_grace=3600.0, **THROTTLE)

    def die(cluster: FakeCluster) -> None:
        if A in cluster.ongoing:
            cluster.brokers.discard(3)
            running.stop()

    kafka.on_view = die
    outcome = running.execute(PLAN)
    assert (outcome.state, outcome.failed) == ("stopped", 1)
    assert kafka.ongoing.keys() == {A}
    assert (kafka.replicas[B], kafka.replicas[C]) == (START[B], START[C])
    assert ConfigResource("topic", "b") not in kafka.throttles()
    recovered = executor(kafka, tmp_path).recover()
    assert recovered is not None
    assert kafka.ongoing.keys() == {A}


def test_a_cancel_that_kafka_does_not_carry_out_has_an_end(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), looks=10_000, deaf=True)
    running = executor(kafka, tmp_path, cancel_timeout=0.05, **THROTTLE)
    kafka.on_view = lambda c: running.stop() if c.ongoing else None
    outcome = running.execute(PLAN)
    assert (outcome.state, outcome.failed) == ("stopped", 3)
    assert any("did not cancel it in 0.05 s" in p for p in outcome.problems)
    assert kafka.throttles().keys() >= {ConfigResource("topic", "a"), ConfigResource("topic", "b")}


def test_a_stop_has_a_deadline_whatever_kafka_does(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), looks=10_000, deaf=True)
    running = executor(kafka, tmp_path, stop_timeout=0.2, cancel_timeout=3600.0, **THROTTLE)
    kafka.on_view = lambda c: running.stop() if c.ongoing else None
    outcome = running.execute(PLAN)
    assert outcome.state == "failed"
    assert any("3 tasks were not cancelled within 0.2 s" in p for p in outcome.problems)
    recorded = read_journal(tmp_path / "journal")
    assert recorded is not None
    assert list(recorded.states.values()).count("cancelling") == 3
    # A recovery goes on with what was begun: it cancels.
    kafka.deaf = False
    kafka.on_view = lambda c: None
    recovered = executor(kafka, tmp_path).recover()
    assert recovered is not None
    assert (recovered.state, recovered.failed) == ("stopped", 0)
    assert kafka.replicas == START
    assert kafka.throttles() == {}


def test_a_way_back_that_is_stopped_is_left_to_a_recovery(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START))
    running = executor(kafka, tmp_path, **THROTTLE)
    back: list[Key] = []

    def stop(cluster: FakeCluster) -> None:
        if cluster.replicas[B] == (0, 5):
            running.stop(rollback=True)
            back.extend(k for k in cluster.ongoing if cluster.replicas[k] != START[k])
        if back:
            cluster.looks = 10_000
            running.stop()

    kafka.on_view = stop
    outcome = running.execute(PLAN)
    assert outcome.state == "failed"
    assert any("the rollback was stopped" in p for p in outcome.problems)
    kafka = alive(kafka)
    kafka.on_view, kafka.looks = lambda c: None, 2
    kafka.ongoing = {k: (target, 2) for k, (target, _) in kafka.ongoing.items()}
    recovered = executor(kafka, tmp_path).recover()
    assert recovered is not None
    assert (recovered.state, recovered.differences) == ("rolled back", ())
    assert kafka.replicas == START
    assert kafka.throttles() == {}


def test_what_is_dead_from_the_start_is_not_begun_and_holds_up_nothing(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), brokers={0, 1, 2, 4, 5})
    outcome = executor(kafka, tmp_path).execute(PLAN)
    assert (outcome.state, outcome.completed, outcome.cancelled) == ("failed", 2, 1)
    assert any("a-0" in p and "it has no leader" in p for p in outcome.problems)
    assert not kafka.ongoing


def test_others_dead_ends_are_not_waited_for(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), brokers={0, 1, 2, 4, 5}, ongoing={A: ((3, 1), 10_000)})
    outcome = executor(kafka, tmp_path).execute(PLAN)
    assert (outcome.completed, outcome.cancelled) == (2, 1)
    assert kafka.ongoing.keys() == {A}
    assert all(key != A for key, _ in kafka.asked)


def test_a_copy_that_never_catches_up_has_a_deadline(tmp_path: Path) -> None:
    """It is written to faster than its throttle lets it be copied."""
    started = time.monotonic()

    class Growing(FakeCluster):
        def advance(self) -> None:
            pass

        def held(self, replicas: Any) -> Any:
            grown = (time.monotonic() - started) * 1e6
            return {place: h._replace(size=grown) for place, h in super().held(replicas).items()}

    kafka = Growing(dict(START))
    outcome = executor(kafka, tmp_path, task_deadline=0.3).execute(plan_of(move("a", 1, 1, 5)))
    assert (outcome.state, outcome.failed) == ("failed", 1)
    assert any("not complete after 0.3 s" in p for p in outcome.problems)
    assert not kafka.ongoing


@pytest.mark.parametrize("stopped", [True, False])
def test_a_copy_between_disks_whose_broker_says_nothing_has_an_end(
    tmp_path: Path, stopped: bool
) -> None:
    kafka = FakeCluster(dict(START))
    plan = plan_of(
        move("a", 1, 1, 5).model_copy(
            update={"kind": "move_disk", "destination": 1, "destination_disk": "/b"}
        )
    )
    limits: dict[str, Any] = {
        "task_timeout": 0.05,
        "cancel_timeout": 0.05,
        "log_dir_throttle": 5000.0,
    }
    running = executor(kafka, tmp_path, **limits)

    def silence(cluster: FakeCluster) -> None:
        if cluster.futures:
            cluster.futures = {place: (d, 10_000) for place, (d, _) in cluster.futures.items()}
            cluster.held = lambda replicas: {}  # type: ignore[method-assign]
            if stopped:
                running.stop()

    kafka.on_view = silence
    outcome = running.execute(plan)
    assert (outcome.state, outcome.failed) == ("stopped" if stopped else "failed", 1)


def test_a_plan_none_of_whose_steps_apply_is_not_done(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START))
    for plan in (
        plan_of(move("theirs", 0, 3, 4), move("theirs", 1, 0, 2)),
        plan_of(move("a", 0, 0, 1), move("theirs", 1, 0, 2)),
    ):
        outcome = executor(kafka, tmp_path).execute(plan)
        assert (outcome.state, outcome.cancelled) == ("failed", 2)
        assert "no step of the plan applies" in outcome.problems[0]
    assert executor(kafka, tmp_path).execute(plan_of()).state == "done"
    assert kafka.replicas == START


@pytest.mark.parametrize("one_at_a_time", [False, True])
@pytest.mark.parametrize("rollback", [False, True])
def test_what_is_cancelled_keeps_its_preference_order_and_leader(
    tmp_path: Path, one_at_a_time: bool, rollback: bool
) -> None:
    start = {A: (0, 1, 2), B: (2, 1, 0), C: (1, 0)}
    kafka = FakeCluster(dict(start), looks=10_000)
    running = executor(kafka, tmp_path, one_replica_at_a_time=one_at_a_time)
    kafka.on_view = lambda c: running.stop(rollback=rollback) if len(c.ongoing) == 3 else None
    outcome = running.execute(
        plan_of(move("a", 0, 0, 4), move("a", 1, 1, 5), move("a", 0, 1, 3), move("b", 0, 1, 5))
    )
    assert outcome.state == ("rolled back" if rollback else "stopped")
    assert kafka.replicas == start
    assert kafka.leaders == {A: 0, B: 2, C: 1}


def test_an_election_that_fails_leaves_the_preference_order_as_it_was(tmp_path: Path) -> None:
    kafka = FakeCluster({B: (0, 1)})
    kafka.elect = lambda partitions: dict.fromkeys(partitions, "not now")  # type: ignore[method-assign]
    outcome = executor(kafka, tmp_path, leadership_timeout=0.05).execute(
        plan_of(lead("a", 1, 0, 1))
    )
    assert (outcome.state, outcome.failed) == ("failed", 1)
    assert kafka.replicas == {B: (0, 1)}


def test_a_topic_deleted_while_throttled_leaves_nothing_open(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START), looks=10_000)
    kafka.on_view = lambda c: c.delete("b") if C in c.ongoing else None
    outcome = executor(kafka, tmp_path, **THROTTLE).execute(plan_of(move("b", 0, 2, 5)))
    assert outcome.state == "done"
    assert not any("throttle" in p for p in outcome.problems)
    assert kafka.throttles() == {}
    recorded = read_journal(tmp_path / "journal")
    assert recorded is not None
    assert recorded.closed


def test_one_that_refuses_keeps_only_its_own_throttle(tmp_path: Path) -> None:
    kafka = FakeCluster(dict(START))
    removing = kafka.set_configs

    def refuse(values: Any) -> Any:
        mine = {r: v for r, v in values.items() if r.name == "b" and None in v.values()}
        return {
            **removing({r: v for r, v in values.items() if r not in mine}),
            **dict.fromkeys(mine, "policy violation"),
        }

    kafka.set_configs = refuse  # type: ignore[method-assign]
    outcome = executor(kafka, tmp_path, **THROTTLE).execute(PLAN)
    assert (outcome.state, outcome.failed) == ("done", 0)
    assert kafka.throttles().keys() == {ConfigResource("topic", "b")}
    recorded = read_journal(tmp_path / "journal")
    assert recorded is not None
    assert {s.resource for s in recorded.throttles} == {ConfigResource("topic", "b")}
    assert any("policy violation" in p for p in outcome.problems)
    assert all(LEADER_RATE not in v for v in kafka.throttles().values())


def test_a_recovery_after_a_dead_end_says_done_only_if_all_is(tmp_path: Path) -> None:
    kafka = dying(refuses={C: "policy violation"})
    assert executor(kafka, tmp_path).execute(PLAN).failed == 2
    kafka.on_view = lambda c: None
    kafka.brokers.add(3)
    outcome = executor(kafka, tmp_path).recover()
    assert outcome is not None
    assert kafka.replicas[A] == (4,)
    assert kafka.replicas[C] == START[C]
    assert (outcome.state, outcome.failed) == ("failed", 1)


def test_a_way_back_that_leaves_a_move_behind_is_no_rollback_once_it_completes(
    tmp_path: Path,
) -> None:
    kafka = dying()
    running = executor(kafka, tmp_path)

    def stop(progress: Progress) -> None:
        if kafka.replicas[B] != START[B]:
            running.stop(rollback=True)

    assert running.execute(PLAN, progress=stop).state == "failed"
    assert kafka.replicas[B] == START[B]
    assert A in kafka.ongoing
    # It is back, and the move ends before it can be cancelled.
    kafka.on_view = lambda c: None
    kafka.brokers.add(3)
    while kafka.ongoing:
        kafka.advance()
    running.left()
    outcome = executor(kafka, tmp_path).recover()
    assert outcome is None or outcome.state == "failed"


def test_a_move_left_to_kafka_is_known_wherever_its_journal_is_torn(tmp_path: Path) -> None:
    executor(dying(), tmp_path, **THROTTLE).execute(PLAN)
    journal = tmp_path / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    dead = 0
    for end in range(1, len(lines)):
        journal.write_bytes(b"".join(lines[:end]))
        recorded = read_journal(journal)
        assert recorded is not None
        for i, task in recorded.tasks.items():
            if recorded.states[i] == "dead":
                dead += 1
                assert task in recorded.left
                assert not recorded.closed
    assert dead


@pytest.mark.parametrize("calls", [6, 12, 20, 24])
def test_whatever_a_journal_lost_at_its_end_no_throttle_stays(tmp_path: Path, calls: int) -> None:
    """A disk may lose what was written last; the marks in Kafka tell whose the throttles are."""
    plan = plan_of(move("a", 0, 1, 3), move("a", 1, 2, 4), lead("b", 0, 0, 1))
    kafka = FakeCluster({A: (0, 1), B: (1, 2), C: (0, 1)}, looks=4, dies_after=calls)
    with pytest.raises(Killed):
        executor(kafka, tmp_path, owner="me", **THROTTLE).execute(plan)
    lines = (tmp_path / "journal").read_bytes().splitlines(keepends=True)
    assert kafka.throttles()
    for kept in range(1, len(lines) + 1):
        there = tmp_path / str(kept)
        there.mkdir()
        (there / "journal").write_bytes(b"".join(lines[:kept]))
        found = deepcopy(alive(kafka))
        executor(found, there, owner="me", **THROTTLE).recover()
        assert not found.throttles()
        assert not found.ongoing
