"""The run of an execution: success, failure, and no progress at all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from execution_cases import SIZE, FakeCluster, Killed, alive, executor, lead, move, plan_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancer import Action
from balancer.execution import Outcome, Progress
from balancer.execution.availability import Availability
from balancer.execution.cluster import ClusterView, ConfigResource, Key
from balancer.execution.journal import read_journal
from balancer.execution.tasks import Task
from cluster_model.kafka import KafkaSourceError

A, B, C, D = (Key("a", n) for n in range(4))
START = {A: (0, 1), B: (0, 1), C: (1, 2), D: (2, 0)}
ACTIONS = (
    lead("a", 0, 0, 1),
    move("a", 0, 0, 3),
    move("a", 1, 1, 4),
    move("a", 2, 2, 5, "/b"),
    Action(
        kind="move_disk", topic="a", partition=2, source=1, destination=1, destination_disk="/b"
    ),
    lead("a", 3, 2, 0),
    Action(kind="add", topic="a", partition=3, source=None, destination=4),
)
END = {A: (1, 3), B: (0, 4), C: (1, 5), D: (0, 2, 4)}
LEADERS = {A: 1, B: 0, C: 1, D: 0}
THROTTLED: dict[str, Any] = {"throttle": 1e6, "log_dir_throttle": 1e6}


def cluster(**changes: Any) -> FakeCluster:
    return FakeCluster(dict(START), **changes)


def assert_as_planned(found: FakeCluster) -> None:
    assert found.replicas == END
    assert found.leaders == LEADERS
    assert found.dirs == {(C, 1): "/b", (C, 5): "/b"}
    assert not found.ongoing
    assert found.throttles() == {}


def test_a_plan_is_carried_out_and_no_throttle_is_left(tmp_path: Path) -> None:
    kafka, seen = cluster(), list[Progress]()
    busy: list[bool] = []
    kafka.on_view = lambda c: busy.append(bool(c.throttles()) or not c.ongoing)
    outcome = executor(kafka, tmp_path, **THROTTLED).execute(
        plan_of(*ACTIONS), progress=seen.append
    )
    assert outcome.state == "done"
    assert (outcome.failed, outcome.cancelled) == (0, 0)
    assert (outcome.problems, outcome.differences) == ((), ())
    assert outcome.bytes_moved == 5 * SIZE
    assert_as_planned(kafka)
    # Nothing ever moves unthrottled.
    assert all(busy)
    assert [p.phase for p in seen] == sorted(
        (p.phase for p in seen), key=["move", "log_dir", "leadership"].index
    )
    assert seen[-1].completed == seen[-1].total == outcome.completed


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
)
def test_however_often_it_is_killed_it_ends_as_planned(
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[int],
    one_at_a_time: bool,
    at_once: int,
    torn: bool,
) -> None:
    path = tmp_path_factory.mktemp("killed")
    limits = {"concurrent_moves": at_once, "one_replica_at_a_time": one_at_a_time, **THROTTLED}
    kafka, begun = cluster(), False
    journal = path / "journal"
    for life in [*lives, 10_000]:
        kafka = alive(kafka)
        kafka.dies_after = life
        try:
            if begun:
                outcome = executor(kafka, path, **limits).recover()
            else:
                outcome = executor(kafka, path, **limits).execute(plan_of(*ACTIONS))
        except Killed:
            begun = journal.exists()
            if torn and begun:
                journal.write_bytes(journal.read_bytes() + b'{"record":"sta')
            continue
        begun = True
        assert outcome is None or (outcome.state, outcome.problems) == ("done", ())
    assert kafka.most <= at_once
    assert_as_planned(kafka)
    found = read_journal(journal)
    assert found is not None
    assert found.closed
    assert set(found.states.values()) == {"completed"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 25), st.integers(0, 30), st.booleans())
def test_stopped_at_any_moment_with_rollback_all_is_as_before(
    tmp_path_factory: pytest.TempPathFactory, after: int, life: int, killed: bool
) -> None:
    path = tmp_path_factory.mktemp("stopped")
    kafka = cluster(dies_after=after + life if killed else None)
    started = executor(kafka, path, concurrent_moves=2, **THROTTLED)

    def stop(c: FakeCluster) -> None:
        if c.calls >= after:
            started.stop(rollback=True)

    kafka.on_view = stop
    outcome: Outcome | None
    try:
        outcome = started.execute(plan_of(*ACTIONS))
    except Killed:
        kafka = alive(kafka)
        again = executor(kafka, path, concurrent_moves=2, **THROTTLED)
        kafka.on_view = lambda c: again.stop(rollback=True)
        outcome = again.recover() if (path / "journal").exists() else None
    assert not kafka.ongoing
    assert kafka.throttles() == {}
    if outcome is None or outcome.state != "done":
        assert {k: set(r) for k, r in kafka.replicas.items()} == {
            k: set(r) for k, r in START.items()
        }
        assert kafka.dirs.get((C, 1), "/a") == "/a"
    if outcome is not None:
        assert outcome.state in ("rolled back", "done")
        assert outcome.differences == ()


def test_stopped_it_cancels_what_is_under_way(tmp_path: Path) -> None:
    kafka = cluster(looks=10_000)
    running = executor(kafka, tmp_path, **THROTTLED)
    kafka.on_view = lambda c: running.stop() if c.ongoing else None
    outcome = running.execute(plan_of(*ACTIONS))
    assert outcome.state == "stopped"
    assert outcome.completed == 0
    assert kafka.replicas == START
    assert not kafka.ongoing
    assert kafka.throttles() == {}
    assert outcome.problems == ()
    assert any("planned" in d for d in outcome.differences)


def test_a_broker_that_dies_costs_its_tasks_only(tmp_path: Path) -> None:
    kafka = cluster()
    kafka.on_view = lambda c: c.brokers.discard(4) if c.ongoing else None
    outcome = executor(kafka, tmp_path, **THROTTLED).execute(plan_of(*ACTIONS))
    assert outcome.state == "failed"
    assert outcome.failed == 2
    assert kafka.replicas == {**END, B: START[B], D: START[D]}
    assert not kafka.ongoing
    assert any("a-1" in p and "broker 4 is gone" in p for p in outcome.problems)
    # It cannot be reached: its throttle waits for it.
    assert kafka.throttles().keys() == {ConfigResource("broker", "4")}
    kafka.brokers.add(4)
    recovered = executor(kafka, tmp_path).recover()
    assert recovered is not None
    assert kafka.throttles() == {}
    assert executor(kafka, tmp_path).recover() is None


def test_a_broker_that_is_away_from_the_start_is_reported(tmp_path: Path) -> None:
    kafka = cluster()
    kafka.brokers.discard(4)
    outcome = executor(kafka, tmp_path).execute(plan_of(*ACTIONS))
    assert (outcome.state, outcome.failed) == ("failed", 0)
    assert outcome.cancelled >= 2
    assert kafka.replicas == {**END, B: START[B], D: START[D]}


def test_what_others_reassign_is_not_touched(tmp_path: Path) -> None:
    theirs = ((2, 3), 10_000)
    kafka = cluster(ongoing={B: theirs})
    actions = (move("a", 0, 0, 3), move("a", 1, 1, 4))
    outcome = executor(kafka, tmp_path, others="skip").execute(plan_of(*actions))
    assert kafka.replicas[A] == (3, 1)
    assert kafka.ongoing[B][0] == theirs[0]
    assert all(key == A for key, _ in kafka.asked)
    assert (outcome.state, outcome.cancelled) == ("failed", 1)
    assert any("a-1" in p for p in outcome.problems)


def test_what_others_reassign_is_waited_for(tmp_path: Path) -> None:
    # They bring it from 0, 1 to 1, 5; then its replica on 1 may move to 4.
    kafka = cluster(ongoing={B: ((1, 5), 8)})
    outcome = executor(kafka, tmp_path).execute(plan_of(move("a", 1, 1, 4)))
    assert outcome.state == "done", outcome
    assert set(kafka.replicas[B]) == {4, 5}


@pytest.mark.parametrize(
    ("action", "end"), [(move("a", 1, 1, 4), {4, 5}), (lead("a", 1, 1, 5), {1, 5})]
)
def test_a_broker_that_is_behind_is_asked_again(
    tmp_path: Path, action: Action, end: set[int]
) -> None:
    # The controller tells that others are done; replicas a broker tells, a little later.
    lag = iter(range(2))

    class Behind(FakeCluster):
        def advance(self) -> None:
            super().advance()
            if B not in self.ongoing and self.replicas[B] in ((1, 5), (1, 5, 0)):
                self.replicas[B] = (1, 5) if next(lag, None) is None else (1, 5, 0)

    kafka = Behind(dict(START), ongoing={B: ((1, 5), 4)}, leaders={B: 1})
    outcome = executor(kafka, tmp_path).execute(plan_of(action))
    assert outcome.state == "done", outcome
    assert set(kafka.replicas[B]) == end


def test_another_who_takes_a_partition_over_keeps_it(tmp_path: Path) -> None:
    kafka = cluster(looks=5)

    def take_over(c: FakeCluster) -> None:
        if B in c.ongoing and 4 in c.ongoing[B][0]:
            c.ongoing[B] = ((2, 3), 10_000)

    kafka.on_view = take_over
    outcome = executor(kafka, tmp_path).execute(
        plan_of(move("a", 0, 0, 3), move("a", 1, 1, 4), lead("a", 1, 0, 4))
    )
    assert kafka.ongoing[B][0] == (2, 3)
    assert kafka.replicas[A] == (3, 1)
    assert outcome.state == "failed"
    assert any("another reassignment to 2, 3" in p for p in outcome.problems)


def test_a_reassignment_that_gets_lost_is_asked_for_again(tmp_path: Path) -> None:
    kafka = cluster(looks=5)
    lost: list[Any] = []

    def lose(c: FakeCluster) -> None:
        if A in c.ongoing and not lost:
            lost.append(c.ongoing.pop(A))

    kafka.on_view = lose
    outcome = executor(kafka, tmp_path).execute(plan_of(*ACTIONS))
    assert outcome.state == "done"
    assert lost
    assert_as_planned(kafka)


@pytest.mark.parametrize(("attempts", "said"), [(1, "1 time"), (3, "3 times")])
def test_a_task_that_kafka_always_drops_is_given_up(
    tmp_path: Path, attempts: int, said: str
) -> None:
    kafka = cluster(looks=5)
    dropped: list[Any] = []

    def lose(c: FakeCluster) -> None:
        if A in c.ongoing:
            dropped.append(c.ongoing.pop(A))

    kafka.on_view = lose
    outcome = executor(kafka, tmp_path, task_attempts=attempts, confirming_looks=1).execute(
        plan_of(*ACTIONS)
    )
    assert outcome.state == "failed"
    assert len(dropped) == attempts
    assert any(f"Kafka was asked for it {said}, and dropped it" in p for p in outcome.problems)


@pytest.mark.parametrize("looks", [1, 4])
def test_a_partition_counts_as_deleted_after_enough_looks(looks: int) -> None:
    availability = Availability(0.0, looks)
    task = Task(id=0, phase="move", topic="a", partition=0, origin=(0,), target=(1,))
    empty = ClusterView(brokers=frozenset(), partitions={})
    for look in range(1, looks + 1):
        availability.look(empty, [task], now=0.0)
        assert availability.deleted(task.key) == (look == looks)


def test_a_deleted_topic_counts_as_done(tmp_path: Path) -> None:
    other = Key("other", 0)
    kafka = cluster(looks=5)
    kafka.replicas[other], kafka.leaders[other] = (0, 1), 0

    def delete(c: FakeCluster) -> None:
        if other in c.ongoing:
            c.delete("other")

    kafka.on_view = delete
    outcome = executor(kafka, tmp_path, **THROTTLED).execute(
        plan_of(move("other", 0, 0, 3), move("gone", 0, 0, 3), *ACTIONS)
    )
    assert outcome.state == "done"
    assert any("other-0" in p and "deleted" in p for p in outcome.problems)
    assert any("gone-0" in p for p in outcome.problems)
    assert_as_planned(kafka)


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_topic_that_is_not_listed_for_a_while_is_not_deleted(
    tmp_path: Path, adaptive: bool
) -> None:
    """A broker that has just started may not know a topic that Kafka goes on moving."""
    other = Key("other", 0)
    kafka = cluster(looks=20)
    kafka.replicas[other], kafka.leaders[other] = (0, 1), 0
    view, looks = kafka.view, []

    def without(topics: Sequence[str] | None) -> ClusterView:
        found = view(topics)
        if other in kafka.ongoing:
            looks.append(topics)
        if not 0 < len(looks) < 12:
            return found
        rest = {key: p for key, p in found.partitions.items() if key != other}
        return replace(found, partitions=rest)

    kafka.view = without  # type: ignore[method-assign]
    outcome = executor(kafka, tmp_path, adaptive=adaptive, **THROTTLED).execute(
        plan_of(move("other", 0, 0, 3), *ACTIONS)
    )
    assert len(looks) >= 12
    assert (outcome.state, outcome.problems) == ("done", ())
    assert set(kafka.replicas[other]) == {1, 3}
    assert not kafka.ongoing
    assert not kafka.throttles()


def test_a_topic_that_is_hidden_from_the_list_of_all_is_asked_for_by_name(tmp_path: Path) -> None:
    other = Key("other", 0)
    kafka = cluster(looks=5)
    kafka.replicas[other], kafka.leaders[other] = (0, 1), 0
    view = kafka.view

    def hidden(topics: Sequence[str] | None) -> ClusterView:
        found = view(topics)
        if topics is not None:
            return found
        return replace(found, partitions={k: p for k, p in found.partitions.items() if k != other})

    kafka.view = hidden  # type: ignore[method-assign]
    outcome = executor(kafka, tmp_path, adaptive=True, **THROTTLED).execute(
        plan_of(move("other", 0, 0, 3), *ACTIONS)
    )
    assert (outcome.state, outcome.problems) == ("done", ())
    assert set(kafka.replicas[other]) == {1, 3}


def test_what_kafka_refuses_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    kafka = cluster(refuses={B: "invalid replica assignment"})
    outcome = executor(kafka, tmp_path).execute(plan_of(*ACTIONS))
    assert (outcome.state, outcome.failed) == ("failed", 1)
    assert kafka.replicas == {**END, B: START[B]}
    assert any("a-1" in p and "invalid replica assignment" in p for p in outcome.problems)
    assert any(d.startswith("a-1: replicas 0, 4 planned, 0, 1 found") for d in outcome.differences)


def test_a_move_without_progress_is_given_up(tmp_path: Path) -> None:
    kafka = cluster()
    kafka.advance = lambda: None  # type: ignore[method-assign]
    outcome = executor(kafka, tmp_path, task_timeout=0.05, leadership_timeout=0.05).execute(
        plan_of(move("a", 0, 0, 3))
    )
    assert (outcome.state, outcome.failed) == ("failed", 1)
    assert any("no byte was copied" in p for p in outcome.problems)
    assert not kafka.ongoing


def test_nothing_begins_while_a_partition_is_strained(tmp_path: Path) -> None:
    kafka = cluster(min_isr_of={"a": 2}, out_of_sync={D: {0}})
    outcome = executor(kafka, tmp_path, task_timeout=0.05).execute(plan_of(move("a", 0, 0, 3)))
    assert outcome.completed == 0
    assert kafka.asked == []
    assert any("min ISR" in p for p in outcome.problems)


def test_an_election_that_never_succeeds_is_given_up(tmp_path: Path) -> None:
    kafka = cluster()
    kafka.elect = lambda partitions: dict.fromkeys(partitions, "not now")  # type: ignore[method-assign]
    outcome = executor(kafka, tmp_path, leadership_timeout=0.05).execute(
        plan_of(lead("a", 0, 0, 1))
    )
    assert (outcome.state, outcome.failed) == ("failed", 1)
    assert any("not now" in p for p in outcome.problems)


def test_a_kafka_out_of_reach_leaves_an_execution_to_recover(tmp_path: Path) -> None:
    kafka = cluster()

    def fail(c: FakeCluster) -> None:
        if c.ongoing:
            raise KafkaSourceError("Kafka at nowhere:1 did not answer")

    kafka.on_view = fail
    outcome = executor(kafka, tmp_path, **THROTTLED).execute(plan_of(*ACTIONS))
    assert outcome.state == "failed"
    assert any("recover once it answers" in p for p in outcome.problems)
    kafka.on_view = lambda c: None
    recovered = executor(kafka, tmp_path, **THROTTLED).recover()
    assert recovered is not None
    assert recovered.state == "done"
    assert_as_planned(kafka)


def test_it_can_be_stopped_from_another_thread(tmp_path: Path) -> None:
    kafka = cluster(looks=10_000)
    started = threading.Event()
    kafka.on_view = lambda c: started.set() if c.ongoing else None
    running = executor(kafka, tmp_path, progress_interval=60.0)

    def stop() -> None:
        started.wait()
        running.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    outcome = running.execute(plan_of(*ACTIONS))
    thread.join()
    assert outcome.state == "stopped"


def test_no_secret_is_written_down(tmp_path: Path) -> None:
    running = executor(cluster(), tmp_path, **THROTTLED)
    running.execute(plan_of(*ACTIONS))
    assert "nowhere" not in (tmp_path / "journal").read_text()


def test_a_stale_plan_does_not_lower_the_replication_factor(tmp_path: Path) -> None:
    a = Key("a", 0)
    remove = Action(kind="remove", topic="a", partition=0, source=3, destination=None)
    plan = plan_of(remove, move("b", 0, 0, 1)).model_copy(update={"replicas": {"a-0": (1, 2, 3)}})
    cluster = FakeCluster({a: (3, 4), Key("b", 0): (0,)})
    outcome = executor(cluster, tmp_path).execute(plan)
    assert cluster.replicas == {a: (3, 4), Key("b", 0): (1,)}
    assert (outcome.state, outcome.completed, outcome.cancelled) == ("failed", 2, 1)
    assert any("a-0" in p and "made for replicas on 1, 2, 3" in p for p in outcome.problems)


def test_a_recovery_does_not_forget_the_steps_that_were_left_out(tmp_path: Path) -> None:
    plan = plan_of(move("a", 0, 9, 4), move("a", 1, 1, 4))
    cluster = FakeCluster(dict(START), dies_after=8)
    with pytest.raises(Killed):
        executor(cluster, tmp_path).execute(plan)
    cluster = alive(cluster)
    outcome = executor(cluster, tmp_path).recover()
    assert outcome is not None
    assert cluster.replicas[B] == (0, 4)
    assert (outcome.state, outcome.cancelled) == ("failed", 1)
    assert any("a-0 left as it is" in p for p in outcome.problems)


def test_progress_never_tells_more_moved_than_there_is(tmp_path: Path) -> None:
    reported: list[Progress] = []
    # Stopped moves have copied something that is no part of the plan any more.
    cluster = FakeCluster(dict(START), looks=5)
    running = executor(cluster, tmp_path)

    def stop(progress: Progress) -> None:
        reported.append(progress)
        if progress.bytes_moved:
            running.stop()

    running.execute(plan_of(*ACTIONS), progress=stop)
    assert any(p.bytes_moved for p in reported)
    assert all(p.bytes_moved <= p.bytes_total for p in reported)
