"""Decisions are carried out within their limits, and local consumers end with their controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.replicas import (
    Count,
    LocalProcesses,
    ProcessSettings,
    Scaler,
    ScalingLimits,
)

# Appends its name and id to a file, and waits; SIGTERM has no effect on the stubborn one.
_CONSUMER = """
import os, signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "parent" in sys.argv:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(sys.argv[1], "a") as file:
    file.write(f"{os.environ['COUNTERPOISE_CONSUMER']} {os.getpid()}\\n")
    if "parent" in sys.argv:
        file.write(f"child {child.pid}\\n")
if "crash" in sys.argv:
    sys.exit(3)
time.sleep(600)
"""


class Fixed:
    """Consumers that start and end when a test says so."""

    name = "fixed"

    def __init__(self, count: int) -> None:
        self.requested = self.running = count
        self.left: tuple[str, ...] = ()

    def count(self) -> Count:
        settled = self.requested == self.running
        return Count(self.requested, self.running, self.running, settled)

    def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
        assert seen == self.count()
        self.requested, self.left = consumers, tuple(leaving)

    def settle(self) -> None:
        self.running = self.requested

    def stand_down(self) -> bool:
        return False

    def close(self) -> None:
        pass


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_fewer_consumers_wait_for_the_cooldown_and_more_do_not() -> None:
    clock, fixed = Clock(), Fixed(3)
    scaler = Scaler(fixed, ScalingLimits(down_cooldown=100.0), clock=clock)
    assert scaler.apply(2).reason == "3 -> 2 consumers: cooling down for another 100 s"
    assert scaler.apply(5).kind == "changed"
    fixed.settle()
    clock.now += 99.0
    assert scaler.apply(2).reason == "5 -> 2 consumers: cooling down for another 1 s"
    assert scaler.apply(5).reason == "5 consumers, as decided"
    clock.now += 1.0
    assert scaler.apply(2, leaving=["d", "b", "a", "c"]).kind == "changed"
    assert fixed.left == ("d", "b", "a")


def test_a_change_that_never_ends_does_not_stop_the_next_one_for_ever() -> None:
    clock, fixed = Clock(), Fixed(3)
    limits = ScalingLimits(down_cooldown=0.0, change_seconds=60.0)
    scaler = Scaler(fixed, limits, clock=clock)
    scaler.apply(5)
    clock.now += 59.0
    assert scaler.apply(6).reason.endswith("the last change is being carried out, 3 of 5 ready")
    clock.now += 1.0
    assert scaler.apply(6).kind == "changed"


def test_a_change_that_was_made_before_the_start_has_as_much_time() -> None:
    clock, fixed = Clock(), Fixed(3)
    fixed.running = 1
    scaler = Scaler(fixed, ScalingLimits(change_seconds=60.0), clock=clock)
    assert scaler.apply(4).kind == "held"
    clock.now += 60.0
    assert scaler.apply(4).kind == "changed"


def test_bounds_hold_whatever_is_decided() -> None:
    fixed = Fixed(3)
    scaler = Scaler(fixed, ScalingLimits(minimum=2, maximum=4, down_cooldown=0.0))
    assert scaler.apply(0, leaving=["a", "b", "c"]).reason == "3 -> 2 consumers, at least 2 allowed"
    assert fixed.left == ("a",)
    fixed.settle()
    assert scaler.apply(1).reason == "2 consumers, as decided, at least 2 allowed"


def test_a_number_that_someone_else_has_set_stays_for_its_cooldown() -> None:
    clock, fixed = Clock(), Fixed(3)
    scaler = Scaler(fixed, ScalingLimits(down_cooldown=100.0), clock=clock)
    assert scaler.apply(4).kind == "changed"
    clock.now += 500.0
    fixed.requested = fixed.running = 9
    reason = "someone else has set 9, cooling down for another 100 s"
    assert scaler.apply(4).reason == f"9 -> 4 consumers: {reason}"
    assert scaler.apply(12).reason == f"9 -> 12 consumers: {reason}"
    clock.now += 100.0
    assert scaler.apply(12).kind == "changed"
    fixed.settle()
    assert scaler.apply(13).kind == "changed"


def test_someone_else_pauses_with_0() -> None:
    clock, fixed = Clock(), Fixed(3)
    scaler = Scaler(fixed, ScalingLimits(), clock=clock)
    scaler.apply(4)
    fixed.requested = fixed.running = 0
    for _ in range(3):
        clock.now += 1000.0
        assert scaler.apply(4).kind == "held"
    fixed.requested = fixed.running = 1
    assert scaler.apply(4).kind == "held"
    clock.now += 1000.0
    assert scaler.apply(4).kind == "changed"


def test_a_dry_run_and_a_controller_without_the_vote_change_nothing() -> None:
    fixed = Fixed(3)
    assert Scaler(fixed, dry_run=True).apply(4).kind == "dry run"
    outcome = Scaler(fixed, may_write=lambda: False).apply(4)
    assert (outcome.kind, outcome.reason) == ("held", "3 -> 4 consumers: another controller acts")
    assert fixed.requested == 3


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"minimum": -1}, "at least -1 and at most 100 found"),
        ({"minimum": 5, "maximum": 4}, "at least 5 and at most 4 found"),
        ({"down_cooldown": -1.0}, "down_cooldown: -1.0 found, at least 0 seconds expected"),
        ({"change_seconds": float("nan")}, "change_seconds: nan found"),
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, float], sentence: str) -> None:
    with pytest.raises(AutoscalingError, match=sentence):
        ScalingLimits(**limits)  # type: ignore[arg-type]
    with pytest.raises(AutoscalingError, match="-2 consumers found"):
        Scaler(Fixed(1)).apply(-2)


# --- local processes


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    file = tmp_path / "consumer.py"
    file.write_text(_CONSUMER, encoding="utf-8")
    return [sys.executable, str(file), str(tmp_path / "started")]


@pytest.fixture
def started(tmp_path: Path) -> Callable[[], list[tuple[str, int]]]:
    def read() -> list[tuple[str, int]]:
        file = tmp_path / "started"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [(name, int(id_)) for name, id_ in (line.split() for line in lines)]

    return read


Started = Callable[[], list[tuple[str, int]]]


@pytest.fixture(autouse=True)
def _nothing_left_behind(started: Started) -> Iterator[None]:
    yield
    assert not [id_ for _, id_ in started() if alive(id_)]


def alive(id_: int) -> bool:
    try:
        state = Path(f"/proc/{id_}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_local_consumers_follow_the_number(script: list[str], started: Started) -> None:
    with LocalProcesses(script) as local:
        assert local.count() == Count(0, 0, 0, True)
        local.request(3, local.count())
        wait_for(lambda: len(started()) == 3)
        assert sorted(name for name, _ in started()) == ["consumer-0", "consumer-1", "consumer-2"]
        assert local.count() == Count(3, 3, 3, True)
        local.request(2, local.count(), leaving=["consumer-1"])
        ids = dict(started())
        wait_for(lambda: not alive(ids["consumer-1"]))
        wait_for(lambda: local.count() == Count(2, 2, 2, True))
        assert alive(ids["consumer-0"])
        assert alive(ids["consumer-2"])
        local.request(3, local.count())
        wait_for(lambda: len(started()) == 4)
        assert started()[-1][0] == "consumer-1"
        with pytest.raises(AutoscalingError, match="someone else changed it from 0 to 3"):
            local.request(1, Count(0, 0, 0, True))
    assert local.count() == Count(0, 0, 0, True)
    with pytest.raises(AutoscalingError, match="closed"):
        local.request(1, local.count())


def test_local_consumers_end_when_another_controller_starts_its_own(
    script: list[str], started: Started
) -> None:
    other: list[bool] = []
    with LocalProcesses(script) as local:
        scaler = Scaler(local, may_write=lambda: not other, overruled=lambda: bool(other))
        # one that has never acted has nothing to end
        assert not scaler.stand_down()
        assert scaler.apply(2).kind == "changed"
        wait_for(lambda: len(started()) == 2)
        assert not scaler.stand_down()
        other.append(True)
        assert scaler.stand_down()
        wait_for(lambda: not any(alive(id_) for _, id_ in started()))
        assert scaler.apply(2).kind == "held"
        assert not scaler.stand_down()
        # what it ended itself is nobody's pause once it acts again
        other.clear()
        wait_for(lambda: local.count() == Count(0, 0, 0, True))
        assert scaler.apply(2).kind == "changed"
        wait_for(lambda: len(started()) == 4)


def test_a_consumer_that_is_killed_starts_again(script: list[str], started: Started) -> None:
    settings = ProcessSettings(restart_seconds=0.05)
    with LocalProcesses(script, settings) as local:
        local.request(1, local.count())
        wait_for(lambda: len(started()) == 1)
        os.kill(started()[0][1], signal.SIGKILL)
        wait_for(lambda: len(started()) == 2)
        assert {name for name, _ in started()} == {"consumer-0"}


def test_a_consumer_that_crashes_at_once_is_started_ever_more_slowly(
    script: list[str], started: Started
) -> None:
    settings = ProcessSettings(restart_seconds=0.01, longest_restart_seconds=3600.0)
    with LocalProcesses([*script, "crash"], settings) as local:
        local.request(1, local.count())
        wait_for(lambda: len(started()) >= 3)
        assert local.count().requested == 1


def test_what_ignores_the_request_to_end_is_killed_with_its_children(
    script: list[str], started: Started
) -> None:
    with LocalProcesses(
        [*script, "stubborn", "parent"], ProcessSettings(stop_seconds=0.2)
    ) as local:
        local.request(2, local.count())
        wait_for(lambda: len(started()) == 4)
        assert all(alive(id_) for _, id_ in started())
    assert not [id_ for _, id_ in started() if alive(id_)]


# Commits for a while after SIGTERM, and says so.
_SLOW = """
import os, signal, sys, time
def end(number, frame):
    time.sleep(0.5)
    with open(sys.argv[1], "a") as file:
        file.write(f"committed {os.getpid()}\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
with open(sys.argv[1], "a") as file:
    file.write(f"consumer {os.getpid()}\\n")
time.sleep(600)
"""


@pytest.fixture
def slow(tmp_path: Path) -> str:
    file = tmp_path / "slow.py"
    file.write_text(_SLOW, encoding="utf-8")
    return f"{sys.executable} {file} {tmp_path / 'started'}"


@pytest.mark.parametrize("wrapper", ["{}; true", "setsid {} & wait"])
def test_what_a_shell_has_started_has_time_to_commit(
    wrapper: str, slow: str, started: Started
) -> None:
    with LocalProcesses(["sh", "-c", wrapper.format(slow)]) as local:
        local.request(1, local.count())
        wait_for(lambda: len(started()) == 1)
    assert [name for name, _ in started()] == ["consumer", "committed"]


@pytest.mark.parametrize("wrapper", ["{}; true", "setsid {} & wait"])
def test_a_consumer_ends_with_its_keeper_before_another_starts(
    wrapper: str, slow: str, started: Started
) -> None:
    settings = ProcessSettings(stop_seconds=1.0, restart_seconds=0.05)
    with LocalProcesses(["sh", "-c", wrapper.format(slow)], settings) as local:
        local.request(1, local.count())
        wait_for(lambda: len(started()) == 1)
        (_, first), keepers = started()[0], children(os.getpid())
        (keeper,) = [k for k in keepers if first in descendants(k) or len(keepers) == 1]
        os.kill(keeper, signal.SIGKILL)
        wait_for(lambda: len(started()) == 2)
        assert not alive(first)


def children(process: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        found += map(int, (thread / "children").read_text(encoding="utf-8").split())
    return [child for child in found if alive(child)]


def descendants(process: int) -> set[int]:
    found = set(children(process))
    return found.union(*(descendants(child) for child in found))


def test_what_cannot_be_started_is_told_and_tried_again(
    script: list[str], started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen, tries = subprocess.Popen, list[object]()

    def full(*args: Any, **options: Any) -> Any:
        tries.append(args)
        raise OSError(24, "Too many open files")

    with LocalProcesses(script, ProcessSettings(restart_seconds=0.05)) as local:
        monkeypatch.setattr(subprocess, "Popen", full)
        assert Scaler(local).apply(2).kind == "changed"
        told = Scaler(local).apply(2).reason
        assert told.endswith("; consumer-1 cannot be started: Too many open files")
        wait_for(lambda: len(tries) > 4)
        monkeypatch.setattr(subprocess, "Popen", popen)
        wait_for(lambda: len(started()) == 2)
        wait_for(lambda: local.count() == Count(2, 2, 2, True))
        # and so is what crashed
        monkeypatch.setattr(subprocess, "Popen", full)
        os.kill(started()[0][1], signal.SIGKILL)
        wait_for(lambda: "Too many open files" in local.count().problem)
        monkeypatch.setattr(subprocess, "Popen", popen)
        wait_for(lambda: len(started()) == 3)


def test_consumers_do_not_write_to_standard_output(tmp_path: Path) -> None:
    code = """
import sys, time
from balancer.autoscaling.replicas import LocalProcesses
with LocalProcesses(["sh", "-c", f"echo hello; touch {sys.argv[1]}; sleep 600"]) as local:
    local.request(1, local.count())
    import pathlib
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.05)
print("line")
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "there")],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "line\n"
    assert "hello" in found.stderr


_CONTROLLER = """
import signal, sys, time
# a process in the background may have been started with interrupts ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
from balancer.autoscaling.replicas import LocalProcesses, ProcessSettings
local = LocalProcesses(sys.argv[1:], ProcessSettings(stop_seconds=0.5))
local.request(2, local.count())
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_consumers_end_with_a_controller_that_is_killed(
    number: signal.Signals, script: list[str], started: Started
) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLER, *script, "parent"],
        env={"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(started()) == 4)
    finally:
        controller.send_signal(number)
        controller.wait(60.0)
    wait_for(lambda: not any(alive(id_) for _, id_ in started()))


def test_a_consumer_ends_with_its_controller_and_its_keeper(
    script: list[str], started: Started
) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLER, *script, "stubborn"],
        env={"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(started()) == 2)
        keepers = children(controller.pid)
        # so that none of them can end a consumer
        for keeper in keepers:
            os.kill(keeper, signal.SIGSTOP)
    finally:
        controller.kill()
        controller.wait(60.0)
    for keeper in keepers:
        os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not any(alive(id_) for _, id_ in started()))


def test_what_is_started_when_its_keeper_has_just_ended_ends_too() -> None:
    code = (
        "from balancer.autoscaling.replicas.keeper import _end_with; _end_with({}); print('runs')"
    )
    for parent, found in ((os.getpid(), (0, "runs\n")), (os.getppid(), (-signal.SIGKILL, ""))):
        done = subprocess.run(
            [sys.executable, "-c", code.format(parent)],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == found, done.stderr


def test_a_command_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(AutoscalingError, match=r"command: '?no-such-program'? found, a program"):
        LocalProcesses(["no-such-program"])
    with pytest.raises(AutoscalingError, match="command"):
        LocalProcesses([])
