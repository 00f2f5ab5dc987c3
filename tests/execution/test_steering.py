"""Executions that are paused, sped up or slowed down while they run, and exact ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from execution_cases import FakeCluster, executor, lead, move, plan_of

from balancer.execution import ChangedClusterError, ExecutionError, Executor, Progress
from balancer.execution.cluster import Key
from balancer.execution.steering import ADJUSTABLE, Steering

KEYS = [Key("a", n) for n in range(6)]
PLAN = plan_of(*(move("a", n, 0, 2) for n in range(6))).model_copy(
    update={"replicas": {str(key): (0, 1) for key in KEYS}}
)


def cluster(**changes: Any) -> FakeCluster:
    return FakeCluster(dict.fromkeys(KEYS, (0, 1)), **changes)


def moved(kafka: FakeCluster) -> int:
    return sum(2 in replicas for replicas in kafka.replicas.values())


def test_a_pause_starts_nothing_and_a_resume_goes_on(tmp_path: Path) -> None:
    kafka = cluster()
    found = executor(kafka, tmp_path, concurrent_moves=1, concurrent_moves_per_broker=1)
    seen: list[Progress] = []
    asked_at_pause: list[int] = []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if moved(kafka) == 2 and not asked_at_pause:
            found.steering.pause()
            asked_at_pause.append(len(kafka.asked))
        if found.steering.paused:
            # What runs ends; nothing else starts.
            assert len(kafka.asked) == asked_at_pause[0]
            asked_at_pause.append(asked_at_pause[0])
            if len(asked_at_pause) > 10:
                found.steering.resume()

    outcome = found.execute(PLAN, progress=watch)
    assert outcome.state == "done"
    assert moved(kafka) == 6
    assert len(asked_at_pause) > 10


def test_a_pause_ends_after_its_time_and_what_is_done_stays(tmp_path: Path) -> None:
    kafka = cluster()
    found = executor(kafka, tmp_path, concurrent_moves=1, pause_timeout=0.05, throttle=1e6)

    def watch(progress: Progress) -> None:
        if moved(kafka) == 2:
            found.steering.pause()

    outcome = found.execute(PLAN, progress=watch)
    assert outcome.state == "stopped"
    assert any("pause_timeout" in p for p in outcome.problems)
    assert 2 <= moved(kafka) < 6
    assert not kafka.ongoing
    assert not kafka.throttles()
    # The next execution is not paused.
    assert found.execute_exactly(plan_of(lead("a", 5, 0, 1))).state == "done"


def test_a_stop_during_a_pause_ends_at_once(tmp_path: Path) -> None:
    kafka = cluster()
    found = executor(kafka, tmp_path, concurrent_moves=1)

    def watch(progress: Progress) -> None:
        if found.steering.paused:
            found.stop()
        found.steering.pause()

    assert found.execute(PLAN, progress=watch).state == "stopped"
    assert not kafka.ongoing


@pytest.mark.parametrize("before", [1e6, None])
def test_a_throttle_changes_while_moves_run_and_none_is_left(
    tmp_path: Path, before: float | None
) -> None:
    kafka = cluster(looks=3)
    found = executor(kafka, tmp_path, concurrent_moves=2, throttle=before)
    seen: list[set[str]] = []

    def watch(progress: Progress) -> None:
        rates = {
            value
            for values in kafka.throttles().values()
            for name, value in values.items()
            if name.endswith("rate")
        }
        seen.append(rates)
        if moved(kafka) == 2:
            found.adjust(throttle="5MB/s")

    assert found.execute(PLAN, progress=watch).state == "done"
    assert {"5000000"} in seen
    assert (set() if before is None else {"1000000"}) in seen
    assert not kafka.throttles()
    # For this execution only.
    assert found.limits.throttle == before


def test_more_moves_at_once(tmp_path: Path) -> None:
    kafka = cluster(looks=3)
    found = executor(
        kafka, tmp_path, concurrent_moves=1, concurrent_moves_per_broker=1, adaptive=False
    )
    most: list[int] = []

    def watch(progress: Progress) -> None:
        if not most:
            most.append(kafka.most)
            found.adjust(concurrent_moves=3, concurrent_moves_per_broker=3)

    assert found.execute(PLAN, progress=watch).state == "done"
    assert (most, kafka.most) == ([1], 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"throttle": None},
        {"throttle": 1},
        {"throttle": "fast"},
        {"throttle": float("nan")},
        {"concurrent_moves": 0},
        {"concurrent_moves": "many"},
        {"task_timeout": 1},
        {"nothing": 1},
        {"concurrent_moves": 5, "leadership_batch": -1},
    ],
)
def test_a_refused_change_changes_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = executor(cluster(), tmp_path)
    before = found.limits
    with pytest.raises(ExecutionError, match=list(changes)[-1]):
        found.adjust(**changes)
    assert found.limits == before
    assert len(ADJUSTABLE) == 5


def test_a_recovery_starts_without_an_earlier_pause(tmp_path: Path) -> None:
    kafka = cluster()
    found = executor(kafka, tmp_path)
    assert found.execute(plan_of(move("a", 0, 0, 2))).state == "done"
    found.steering.pause()
    found.recover()
    assert not found.steering.paused


def test_exactly_or_not_at_all(tmp_path: Path) -> None:
    changes: list[Any] = [
        lambda c: c.replicas.update({KEYS[3]: (1, 4)}),
        lambda c: c.delete("a"),
        lambda c: c.replicas.pop(KEYS[5]),
        lambda c: c.replicas.update({KEYS[3]: (2, 1)}),
        lambda c: c.brokers.discard(2),
        lambda c: c.ongoing.update({KEYS[0]: ((4, 1), 1000)}),
    ]
    for number, change in enumerate(changes):
        kafka = cluster()
        change(kafka)
        where = tmp_path / str(number)
        where.mkdir()
        found = executor(kafka, where)
        before, asked = dict(kafka.replicas), len(kafka.asked)
        with pytest.raises(ChangedClusterError) as caught:
            found.execute_exactly(PLAN)
        assert caught.value.changes, number
        assert (kafka.replicas, len(kafka.asked)) == (before, asked), number
        assert not kafka.throttles()
        assert not (where / "journal").exists() or found.recover() is None


def test_exactly_what_is_planned(tmp_path: Path) -> None:
    kafka = cluster()
    found: Executor = executor(kafka, tmp_path)
    assert found.execute_exactly(PLAN).state == "done"
    assert moved(kafka) == 6
    # Once: now the plan does not apply, though nothing would be left to do.
    with pytest.raises(ChangedClusterError):
        found.execute_exactly(PLAN)


def test_pauses_are_counted_from_the_first() -> None:
    steering = Steering()
    assert steering.paused_for() == 0.0
    steering.pause()
    first = steering.paused_for()
    steering.pause()
    assert steering.paused_for() >= first
    steering.resume()
    assert steering.paused_for() == 0.0
