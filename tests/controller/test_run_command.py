"""``counterpoise run``: messages about wrong options, without a Kafka."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from controller_cases import Applies, Ended, Still, even, skewed
from waiting import LIMIT

from balancer import Balancer
from balancer.composition.controller import (
    execution_limits,
    is_left_to_do,
    run_once,
    warn_of_goals,
)
from balancer.composition.source import KafkaSource, Notices
from balancer.controller import Controller, ControllerError, Decision, Settings
from balancer.execution import Limits
from balancer.execution.errors import ExecutionError
from cluster_model import Snapshot
from cluster_model.follow import follow_kafka


def _run(*arguments: str) -> tuple[int, str]:
    done = invoke(["run", "--timeout", "1", *arguments])
    return done.exit_code, done.stderr.strip()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{probe.getsockname()[1]}"


def test_wrong_options_are_reported_in_one_sentence(tmp_path: Path, nobody: str) -> None:
    wrong = tmp_path / "settings.yaml"
    wrong.write_text("dead_brokers: {heal_after: never}\n")
    limits = tmp_path / "limits.yaml"
    limits.write_text("execution: {throttle: 3}\n")
    hook = tmp_path / "hook.yaml"
    hook.write_text("webhooks: [{url: 'http://[sesame'}]\n")
    for arguments, said in (
        (["--settings", str(wrong)], "dead_brokers.heal_after: 'never' found"),
        (["--settings", str(tmp_path / "none.yaml")], "No such file"),
        (["--goals", "nonsense"], "nonsense"),
        (["--listen", "9464"], "HOST:PORT expected"),
        (["--capacity", str(tmp_path / "none.yaml")], "none.yaml"),
        (["--execute", "--settings", str(limits)], "execution.throttle: 3 found"),
        (["--settings", str(hook)], "webhooks.0.url: an address with a host"),
        ([], "Kafka at"),
        (["--metrics-topic", "metrics"], "Kafka at"),
        (["--execute", "--journal", str(tmp_path / "journal")], "Kafka at"),
    ):
        code, reported = _run("--bootstrap-server", nobody, *arguments)
        assert code == 2, reported
        assert said in reported
        assert reported.startswith("counterpoise: ")
        assert "sesame" not in reported
        assert "\n" not in reported


def test_what_a_window_tells_counts_once_unless_set_otherwise() -> None:
    assert execution_limits(Settings(), Settings()) == Limits()
    one = Settings.model_validate({"model": {"window": "1m"}})
    assert execution_limits(one, one).slow_interval == 60
    # What holds is the window of the model in use.
    assert execution_limits(one, Settings()).slow_interval == 300
    other = one.model_copy(update={"execution": {"slow_interval": 5, "produce_local_ms": None}})
    found = execution_limits(other, other)
    assert (found.slow_interval, found.produce_local_ms) == (5, None)


def test_the_limits_of_the_guide_are_the_execution_limits() -> None:
    page = (Path(__file__).parents[2] / "docs" / "controller.md").read_text()
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \| (\d+) \|", page))
    rows |= dict(re.findall(r"`(\w+)`(?: seconds)? \((\d+)\)", page))
    assert {"produce_local_ms", "slow_brokers", "adaptive_interval"} <= rows.keys()
    assert {name: float(value) for name, value in rows.items()} == {
        name: getattr(Limits(), name) for name in rows
    }
    assert Limits().resume_within == 3600


_HANGS = """
import logging, os, signal, sys, time
from balancer.cli.daemon import ended_by_signals
from balancer.cli.run import Shutdown
logging.basicConfig()
ending = Shutdown(lambda: 0.5)
with ended_by_signals(ending.ask):
    os.kill(os.getpid(), signal.SIGTERM)
    assert ending.asked.is_set()
    {rest}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rest", "code"),
    [("time.sleep(600)", 1), ("ending.over.set(); time.sleep(1); sys.exit(0)", 0)],
)
def test_the_process_ends_in_time_whatever_hangs(rest: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HANGS.format(rest=rest)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == code
    assert ("with something still open" in done.stderr) == bool(code)


class _Busy:
    """A controller with an execution that ends, or not."""

    def __init__(self, ends: bool) -> None:
        self.finished = 0
        self.supervised = 0
        self._ends = ends
        self.decisions = ["the last"]

    def wait(self, timeout: float | None = None) -> bool:
        return self._ends

    def supervise(self) -> None:
        self.supervised += 1

    def stop(self) -> None:
        """Nothing is planned here."""

    def finish(self) -> bool:
        self.finished += 1
        return False

    def step(self) -> Decision:
        return Decision(0.0, "started", "it began")


@pytest.mark.parametrize("ends", [True, False])
def test_one_round_that_is_reported_to_end_stops_what_it_began(ends: bool) -> None:
    asked, controller = threading.Event(), _Busy(ends)
    asked.set()
    assert run_once(controller, 1.0, asked) == "the last"  # type: ignore[arg-type, comparison-overlap]
    assert controller.finished == (not ends)


def _controller(executor: object, model: Still | None = None, **settings: object) -> Controller:
    return Controller(
        model or Still(skewed()),
        Balancer("default"),
        executor,  # type: ignore[arg-type]
        Settings.model_validate({"execute": True, "interval": 0.05, **settings}),
    )


class _Hangs:
    """An executor that recovers nothing after a while, and whose executions hang."""

    def __init__(self, recovers: bool) -> None:
        self.recovers = recovers
        self.release = threading.Event()
        self.recoveries = 0

    def execute(self, plan: object, *, progress: object = None) -> None:
        self.release.wait(LIMIT)
        raise ExecutionError("released")

    def recover(self, *, progress: object = None) -> None:
        self.recoveries += 1
        if self.recovers:
            return
        time.sleep(1)
        raise ExecutionError("the journal is of another cluster")

    def left(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> None: ...


def test_one_round_ends_where_the_recovery_fails() -> None:
    executor = _Hangs(recovers=False)
    found = run_once(_controller(executor), 1.0, threading.Event())
    assert found.kind == "error"
    assert "the journal is of another cluster" in found.reason
    assert executor.recoveries == 1


def test_one_round_ends_where_an_execution_hangs() -> None:
    executor = _Hangs(recovers=True)
    controller = _controller(executor, silence_timeout=0.2, stop_timeout=0.2)
    try:
        with pytest.raises(ControllerError, match="was asked to stop"):
            run_once(controller, 1.0, threading.Event())
    finally:
        executor.release.set()
        controller.wait(LIMIT)


def test_one_round_ends_where_nothing_is_known() -> None:
    controller = _controller(_Hangs(recovers=True))
    controller._observer._model.known = -1  # type: ignore[attr-defined]
    found = run_once(controller, 0.1, threading.Event())
    assert found.kind == "waiting"
    assert "the cluster cannot be read" in found.reason


class _Ends:
    """An executor whose executions end as given, and change nothing."""

    def __init__(self, outcome: Ended) -> None:
        self.outcome = outcome

    def execute(self, plan: object, *, progress: object = None) -> Ended:
        return self.outcome

    def recover(self, *, progress: object = None) -> None:
        return None

    def left(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> None: ...


@pytest.mark.parametrize(
    "outcome",
    [
        Ended(state="failed", completed=0, failed=7),
        Ended(state="vote lost"),
        Ended(state="stopped"),
        Ended(state="rolled back"),
        Ended(differences=("a-0: replicas 0, 2 planned, 0, 1 found",)),
    ],
)
def test_one_round_whose_execution_did_not_do_its_plan_leaves_something(outcome: Ended) -> None:
    found = run_once(_controller(_Ends(outcome)), 1.0, threading.Event())
    assert found.kind == "executed"
    assert is_left_to_do(found)


def test_one_round_whose_plan_was_cut_leaves_something() -> None:
    def ended(**settings: object) -> Decision:
        model = Still(skewed())
        controller = _controller(Applies(model), model, settle=0, **settings)
        return run_once(controller, 1.0, threading.Event())

    whole = ended(max_share_per_cycle=1.0)
    assert whole.kind == "executed"
    assert not is_left_to_do(whole)
    cut = ended(max_share_per_cycle=0.1)
    assert is_left_to_do(cut)
    assert "its plan was cut at 10 % of the cluster's bytes" in cut.reason
    assert is_left_to_do(ended(max_share_per_cycle=1.0, max_moves=1))


@pytest.mark.parametrize("kind", ["recovered", "error", "proposed", "waiting", "standby"])
def test_one_round_that_did_not_come_to_its_end_leaves_something(kind: Any) -> None:
    assert is_left_to_do(Decision(0.0, kind, ""))


def test_what_is_to_be_known_of_disks_is_said_once_and_again_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sentences = ["log directories of 1 of 3 brokers have the same size"]

    def read(*arguments: object, notice: Callable[[str], None], **options: object) -> Snapshot:
        for sentence in sentences:
            notice(sentence)
        return even()

    monkeypatch.setattr("cluster_model.kafka.read_cluster", read)
    printed: list[str] = []
    notices = Notices(printed.append)
    source = KafkaSource("localhost:1", None, {}, None, 1.0, notices)
    source.read()
    source.read()
    assert printed == ["log directories of 1 of 3 brokers have the same size"]
    logged: list[str] = []
    notices.notify = logged.append
    stated = (
        "broker 1: a disk capacity of 4 TB is stated, but its replicas and free space add up to"
    )
    for free in ("3.25 TB", "3.251 TB", "3.252 TB"):
        sentences[:] = [f"{stated} {free}"]
        source.read()
    assert logged == [f"{stated} 3.25 TB"]
    sentences[:] = ["log directories of 2 of 3 brokers have the same size"]
    source.read()
    assert logged[1:] == sentences


def test_the_follower_of_metrics_tells_of_disks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: object, notice: Callable[[str], None], **options: object) -> Snapshot:
        notice("something")
        return even()

    monkeypatch.setattr("cluster_model.follow.read_cluster", read)
    monkeypatch.setattr("cluster_model.follow.read_records", lambda *a, **o: None)
    reported: list[str] = []
    with follow_kafka("localhost:1", "metrics", notice=reported.append, retry=60.0):
        assert reported == ["something"]


def test_goals_of_a_file_that_do_not_apply_are_named_at_the_start() -> None:
    said: list[str] = []
    goals = {"goals": [{"goal": "RackAwareness"}, {"goal": "UsageDistribution", "resource": "dsk"}]}
    warn_of_goals(Balancer(goals), even(), said.append)
    (sentence,) = said
    assert sentence.startswith("goal UsageDistribution[dsk]")
    assert "nothing is rebalanced until this is fixed" in sentence
    # A profile leaves out what does not apply.
    warn_of_goals(Balancer("default"), even(), said.append)
    assert said == [sentence]
