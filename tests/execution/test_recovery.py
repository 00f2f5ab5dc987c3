"""An executor dies on another machine: the next one finishes what it left, by its marks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from execution_cases import FakeCluster, Killed, alive, executor, lead, move, plan_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancer.execution import Executor, Progress
from balancer.execution.cluster import ConfigResource, Key
from balancer.execution.journal import read_journal
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    marked,
)

A, B, C, D = (Key("a", n) for n in range(4))
OTHER = Key("other", 0)
START = {A: (0, 1), B: (0, 1), C: (1, 2), D: (2, 0), OTHER: (0, 1)}
PLAN = plan_of(
    move("a", 0, 0, 3), move("a", 1, 1, 4), move("a", 2, 2, 5), lead("a", 3, 2, 0),
    move("other", 0, 0, 2),
)  # fmt: skip
TOPIC = ConfigResource("topic", "a")


class Machines:
    """Machines with a directory each, and one cluster."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.path = path
        self.kafka = FakeCluster(dict(START), **changes)

    def machine(self, name: str, *, owner: str | None = "group", **limits: Any) -> Executor:
        directory = self.path / name
        directory.mkdir(exist_ok=True)
        return executor(self.kafka, directory, owner=owner, **{"throttle": 51200.0, **limits})

    def die(self, name: str, after: int, **options: Any) -> bool:
        """Let a machine carry the plan out, and die; returns whether it got so far."""
        self.kafka.dies_after = self.kafka.calls + after
        try:
            self.machine(name, **options).execute(PLAN)
        except Killed:
            return True
        finally:
            self.kafka = alive(self.kafka)
        return False

    def die_moving(self, name: str, **options: Any) -> None:
        """Let a machine die as soon as something moves."""

        def kill(cluster: FakeCluster) -> None:
            if cluster.ongoing:
                raise Killed

        self.kafka.on_view = kill
        with pytest.raises(Killed):
            self.machine(name, **options).execute(PLAN)
        self.kafka.on_view = lambda cluster: None


def keep_from_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed cleans nothing up."""
    monkeypatch.setattr("balancer.execution.run.Run._cancel_after_error", lambda run: None)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 60), st.integers(1, 2), st.booleans())
def test_whenever_it_dies_nothing_of_it_is_left(
    tmp_path_factory: pytest.TempPathFactory, life: int, at_once: int, no_throttle: bool
) -> None:
    world = Machines(tmp_path_factory.mktemp("machines"))
    world.die("first", life, concurrent_moves=at_once)
    limits = {"throttle": None} if no_throttle else {}
    world.machine("second", **limits).recover()
    assert world.kafka.throttles() == {}
    assert not world.kafka.ongoing
    assert world.machine("second").recover() is None
    # Its plan is of a cluster that was: once another took over, it begins nothing more.
    journal = world.path / "first" / "journal"
    recorded = read_journal(journal) if journal.exists() else None
    begun = len(world.kafka.asked)
    world.machine("first").recover()
    if recorded is not None and recorded.throttles:
        assert len(world.kafka.asked) == begun
    assert world.kafka.throttles() == {}
    assert not world.kafka.ongoing
    found = read_journal(journal) if journal.exists() else None
    assert found is None or found.closed


def test_moves_under_way_are_waited_for_and_stay_throttled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_from_cleaning(monkeypatch)
    world = Machines(tmp_path, looks=5)
    world.die_moving("first", concurrent_moves=2)
    moving, throttled = dict(world.kafka.ongoing), list[bool]()
    assert moving
    world.kafka.on_view = lambda c: throttled.append(bool(c.throttles()) or not c.ongoing)
    outcome = world.machine("second").recover()
    assert outcome is not None
    assert (outcome.state, outcome.completed) == ("done", len(moving))
    assert any("journal is out of reach" in p for p in outcome.problems)
    assert len(throttled) >= 4
    assert all(throttled)
    assert world.kafka.throttles() == {}
    assert {k: world.kafka.replicas[k] for k in moving} == {k: t for k, (t, _) in moving.items()}
    # What it had not begun is not begun.
    assert {k: r for k, r in world.kafka.replicas.items() if k not in moving} == {
        k: r for k, r in START.items() if k not in moving
    }


def test_what_another_or_nobody_marked_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_from_cleaning(monkeypatch)
    for name, owner in (("unmarked", None), ("theirs", "another group")):
        world = Machines(tmp_path)
        world.die_moving(name, owner=owner)
        before = {r: dict(v) for r, v in world.kafka.throttles().items()}
        assert TOPIC in before
        assert world.machine(f"after {name}").recover() is None
        assert world.kafka.throttles() == before


def test_what_stood_there_before_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_from_cleaning(monkeypatch)
    before = {
        TOPIC: {FOLLOWER_REPLICAS: "9:4,7:2"},
        ConfigResource("topic", "other"): {LEADER_REPLICAS: "*"},
        ConfigResource("broker", "5"): {LEADER_RATE: "777"},
        ConfigResource("broker", "9"): {FOLLOWER_RATE: "51200"},
    }
    world = Machines(
        tmp_path,
        values={r: dict(v) for r, v in before.items()},
        brokers={*range(6), 9},
    )
    world.die_moving("first")
    found = marked(world.kafka.values[TOPIC][FOLLOWER_REPLICAS], "group")
    assert found is not None
    assert (found.found, found.rate) == ("9:4,7:2", 51200)
    assert found.replicas == {(0, 3), (1, 4), (2, 5)}
    world.machine("second").recover()
    # But for the rate of a broker that had one: the mark does not tell it.
    del before[ConfigResource("broker", "5")]
    assert world.kafka.throttles() == before


def test_a_move_that_its_beginner_cancels_is_not_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_from_cleaning(monkeypatch)
    world = Machines(tmp_path, looks=10_000)
    world.die_moving("first")
    begun, looks = len(world.kafka.asked), list[int]()

    def cancel(cluster: FakeCluster) -> None:
        looks.append(1)
        if len(looks) == 5:
            cluster.ongoing.clear()

    world.kafka.on_view = cancel
    outcome = world.machine("second").recover()
    assert outcome is not None
    assert outcome.cancelled > 0
    assert len(world.kafka.asked) == begun
    assert world.kafka.replicas == START
    assert world.kafka.throttles() == {}


def test_a_broker_that_is_away_is_looked_after_once_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_from_cleaning(monkeypatch)
    world = Machines(tmp_path)
    world.die_moving("first")
    world.kafka.brokers.discard(4)
    outcome = world.machine("second").recover()
    assert outcome is not None
    assert not world.kafka.ongoing
    assert world.kafka.throttles().keys() == {ConfigResource("broker", "4")}
    world.kafka.brokers.add(4)
    world.machine("second").recover()
    assert world.kafka.throttles() == {}


def test_the_successor_may_die_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_from_cleaning(monkeypatch)
    world = Machines(tmp_path, looks=10)
    world.die_moving("first")
    world.kafka.dies_after = world.kafka.calls + 12
    with pytest.raises(Killed):
        world.machine("second").recover()
    world.kafka = alive(world.kafka)
    assert world.kafka.throttles()
    # The third does what the second could not, and the second finds nothing left to do.
    assert world.machine("third").recover() is not None
    assert world.kafka.throttles() == {}
    begun = len(world.kafka.asked)
    world.machine("second").recover()
    assert len(world.kafka.asked) == begun
    assert world.kafka.throttles() == {}


def test_a_journal_of_its_own_and_the_marks_of_another_are_both_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_from_cleaning(monkeypatch)
    world = Machines(tmp_path, looks=3)
    world.die_moving("first", concurrent_moves=1)
    world.machine("second").recover()
    world.die_moving("second", concurrent_moves=3)
    moving = dict(world.kafka.ongoing)
    assert moving
    outcome = world.machine("first").recover()
    assert outcome is not None
    assert world.kafka.throttles() == {}
    assert not world.kafka.ongoing


# A day old, or written before the clock was set back by a day: who knows when.
@pytest.mark.parametrize("day", [86400, -86400])
@pytest.mark.parametrize(("owner", "begins"), [("group", False), (None, True)])
def test_an_old_journal_of_ones_own_is_ended_and_not_carried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str | None, begins: bool, day: int
) -> None:
    keep_from_cleaning(monkeypatch)
    world = Machines(tmp_path)
    options: dict[str, Any] = {"owner": owner, "throttle": None, "concurrent_moves": 1}
    world.die_moving("first", **options)
    moving = dict(world.kafka.ongoing)
    journal = tmp_path / "first" / "journal"
    written = journal.stat().st_mtime - day
    os.utime(journal, (written, written))
    outcome = world.machine("first", **options).recover()
    assert outcome is not None
    assert outcome.state == ("done" if begins else "stopped")
    moved = {k for k, r in world.kafka.replicas.items() if set(r) != set(START[k])}
    assert moving.keys() <= moved
    assert (moved != moving.keys()) == begins
    assert world.machine("first", **options).recover() is None


def test_one_without_an_owner_marks_nothing(tmp_path: Path) -> None:
    world = Machines(tmp_path)
    seen: list[str] = []
    world.kafka.on_view = lambda c: seen.extend(c.values.get(TOPIC, {}).values())
    world.machine("cli", owner=None, throttle=5000.0).execute(PLAN)
    assert seen
    assert not any(int(e.split(":")[0]) > 9 for value in seen for e in value.split(","))


class Holder:
    """The vote of one process; each has the next epoch."""

    def __init__(self, epoch: int) -> None:
        self.acting, self.epoch, self.previous = True, epoch, epoch - 1

    def prove(self, within: float) -> int | None:
        return self.epoch


@pytest.mark.slow
@pytest.mark.parametrize(
    "successor", ["itself", "itself, after an epoch without a word", "another"]
)
@pytest.mark.parametrize("wish", ["go on", "roll back"])
def test_an_outcome_is_true_whenever_it_died_and_whoever_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, successor: str, wish: str
) -> None:
    keep_from_cleaning(monkeypatch)
    home = {k: set(r) for k, r in START.items()}
    world = Machines(tmp_path / "whole")
    world.path.mkdir()
    world.machine("first").execute(PLAN)
    target, ends = {k: set(r) for k, r in world.kafka.replicas.items()}, set()
    for life in range(1, 70):
        world = Machines(tmp_path / str(life), looks=3)
        world.path.mkdir()
        first = world.machine("first", vote=Holder(5), concurrent_moves=2)

        def turn(progress: Progress, first: Executor = first) -> None:
            if wish == "roll back" and progress.completed:
                first.stop(rollback=True)

        world.kafka.dies_after = life
        try:
            first.execute(PLAN, progress=turn)
        except Killed:
            pass
        else:
            break
        world.kafka = alive(world.kafka)
        if successor == "another":
            world.machine("second", vote=Holder(6)).recover()
        # One that got the vote and died before it wrote anything down has used an epoch up.
        epoch = 6 if successor == "itself" else 7
        outcome = world.machine("first", vote=Holder(epoch)).recover()
        found = {k: set(r) for k, r in world.kafka.replicas.items()}
        assert not world.kafka.ongoing
        assert world.kafka.throttles() == {}
        if outcome is None:
            continue
        ends.add(outcome.state)
        assert outcome.state != "done" or found == target, life
        assert outcome.state != "rolled back" or found == home, life
        assert outcome.state in ("done", "rolled back") or outcome.problems, life
    else:
        pytest.fail("it never came to its end")
    assert ends
