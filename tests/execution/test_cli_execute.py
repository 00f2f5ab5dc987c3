"""``counterpoise execute``: its output, its exit codes, and a sentence for every mistake."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from execution_cases import FakeCluster, Killed, WonElection, move, plan_of
from typer.testing import Result
from waiting import LIMIT

from balancer import load_plan
from balancer.execution import Executor, Limits
from balancer.execution.cluster import Key


def run(*args: object, code: int) -> Result:
    """Run the command; it must end with the code, and never with a traceback."""
    result = invoke(["execute", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(plan_of(move("a", 0, 1, 2), move("a", 1, 1, 2)).model_dump_json())
    return path


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """What the command carries plans out on."""
    found = FakeCluster({Key("a", n): (0, 1) for n in range(2)})

    def connected(*args: Any, limits: Limits, **options: Any) -> Executor:
        # A cluster in memory completes moves by looks, not by time.
        limits = limits.model_copy(update={"progress_interval": 0.05})
        return Executor(*args, limits=limits, **options, connect=lambda: found)

    monkeypatch.setattr(execute_module(), "Executor", connected)
    monkeypatch.setattr(execute_module(), "Election", WonElection)
    return found


def execute_module() -> Any:
    import importlib

    return importlib.import_module("balancer.composition.execution")


def test_without_yes_it_only_tells(cluster: FakeCluster, plan: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    result = run(plan, "--bootstrap-server", "x:1", "--journal", journal, code=0)
    assert "a-0: replicas 0,1 to 0,2, 100 B" in result.stdout
    assert "2 tasks, 200 B to copy, not throttled" in result.stdout
    assert "--yes" in result.stderr
    assert cluster.asked == []
    assert not journal.exists()


def test_with_yes_it_does(cluster: FakeCluster, plan: Path, tmp_path: Path) -> None:
    options = ["--bootstrap-server", "x:1", "--journal", tmp_path / "journal"]
    result = run(plan, *options, "--yes", "--throttle", "1MB/s", code=0)
    assert result.stdout.startswith("done: 2 tasks completed, 0 failed, 0 cancelled; 200 B copied")
    assert set(cluster.replicas.values()) == {(0, 2)}
    assert "nothing is left to recover" in run("--recover", *options, code=0).stdout


def die_moving(cluster: FakeCluster, plan: Path, journal: Path, **limits: Any) -> None:
    """Let an execution of the plan be killed as soon as something moves."""

    def kill(c: FakeCluster) -> None:
        if c.ongoing:
            raise Killed

    cluster.on_view = kill
    dying = Executor(
        "x:1",
        journal=journal,
        limits=Limits.of(**limits),
        owner="counterpoise-controller",
        connect=lambda: cluster,
    )
    with pytest.raises(Killed):
        dying.execute(load_plan(plan))
    cluster.on_view = lambda c: None


def test_a_preview_is_refused_where_an_execution_did_not_end(
    cluster: FakeCluster, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancer.execution.run.Run._cancel_after_error", lambda run: None)
    journal = tmp_path / "journal"
    options = [plan, "--bootstrap-server", "x:1", "--journal", journal]
    die_moving(cluster, plan, journal)
    for damaged in (False, True):
        if damaged:
            journal.write_bytes(b"\0" * 300)
        before = journal.read_bytes()
        preview = run(*options, code=2)
        assert "recover it first (counterpoise execute --recover)" in preview.stderr
        assert preview.stderr == run(*options, "--yes", code=2).stderr
        assert journal.read_bytes() == before


def test_a_recovery_without_a_journal_does_not_say_that_all_is_well(
    cluster: FakeCluster, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancer.execution.run.Run._cancel_after_error", lambda run: None)
    cluster.looks = 50
    die_moving(cluster, plan, tmp_path / "journal")
    recover = ["--recover", "--bootstrap-server", "x:1", "--journal"]
    said = run(*recover, tmp_path / "jurnal", code=1).stdout
    assert "jurnal: no such journal, and no marks of group counterpoise-controller" in said
    assert "an execution without a throttle carries none" in said
    assert cluster.ongoing
    assert "2 tasks completed" in run(*recover, tmp_path / "journal", code=0).stdout
    assert "nothing is left to recover" in run(*recover, tmp_path / "journal", code=0).stdout


def test_a_recovery_by_marks_alone_says_to_carry_the_plan_out_again(
    cluster: FakeCluster, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancer.execution.run.Run._cancel_after_error", lambda run: None)
    die_moving(cluster, plan, tmp_path / "journal", throttle=1e6, concurrent_moves=1)
    options = ["--bootstrap-server", "x:1", "--journal", tmp_path / "elsewhere"]
    said = run("--recover", *options, code=0).stdout
    assert "what it had not started is not known: execute its plan again" in said
    assert sorted(cluster.replicas.values()) == [(0, 1), (0, 2)]


def test_a_recovery_is_for_the_cluster_that_is_stated(
    cluster: FakeCluster, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancer.execution.run.Run._cancel_after_error", lambda run: None)
    die_moving(cluster, plan, tmp_path / "journal")
    options = ["--recover", "--bootstrap-server", "x:1", "--journal", tmp_path / "journal"]
    said = run(*options, "--cluster-id", "nonsense", code=2).stderr
    assert "cluster nonsense stated, but the brokers belong to cluster fake" in said
    assert cluster.ongoing
    assert "2 tasks completed" in run(*options, "--cluster-id", "fake", code=0).stdout


def test_what_is_not_done_is_reported_and_exits_with_1(
    cluster: FakeCluster, plan: Path, tmp_path: Path
) -> None:
    cluster.refuses[Key("a", 0)] = "policy violation"
    result = run(plan, "--bootstrap-server", "x:1", "--journal", tmp_path / "j", "--yes", code=1)
    assert "Kafka refused it: policy violation" in result.stdout
    assert "a-0: replicas 0, 2 planned, 0, 1 found" in result.stdout
    assert "failed: 1 task completed, 1 failed" in result.stdout


def test_who_does_not_get_the_vote_is_reported_who_has_it(
    cluster: FakeCluster, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Theirs(WonElection):
        epoch, holder = None, "counterpoise run, process 7 on db1"  # type: ignore[assignment]

    monkeypatch.setattr(execute_module(), "Election", Theirs)
    monkeypatch.setattr(execute_module(), "_JOIN_SECONDS", 0.0)
    options = ["--bootstrap-server", "x:1", "--journal", tmp_path / "journal", "--session", "0.2"]
    for what in ([plan, "--yes", "--throttle", "1MB/s"], ["--recover"]):
        result = run(*what, *options, code=2)
        first, last = result.stderr.splitlines()
        assert first.startswith("Waiting for the vote of group counterpoise-controller")
        assert last.startswith("counterpoise: counterpoise run, process 7 on db1 acts on this")
        assert "`execute: false`" in last
    assert cluster.asked == []
    assert cluster.throttles() == {}
    assert not (tmp_path / "journal").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "a plan or --recover expected, neither of them given"),
        (["PLAN", "--recover"], "a plan or --recover expected, both of them given"),
        (["PLAN", "--throttle", "fast"], "--throttle: 'fast' found"),
        (["PLAN", "--throttle", "10"], "limit throttle: 10.0 found"),
        (["PLAN", "--order", "fastest"], "limit order.0: 'fastest' found"),
        (["PLAN", "--others", "kill"], "limit others: 'kill' found"),
        (["nowhere.json"], "plan file nowhere.json: No such file"),
        (["PLAN"], "did not answer"),
        (["PLAN", "--yes"], "did not answer"),
        (["PLAN", "--yes", "--journal", "/nowhere/journal"], "cannot be written"),
        (["--recover", "--journal", "PLAN"], "no record of an execution found"),
    ],
)
def test_bad_input_is_one_sentence(plan: Path, options: list[str], said: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        given = [str(plan) if o == "PLAN" else o for o in options]
        result = run("--bootstrap-server", where, "--timeout", 0.5, *given, code=2)
    (line,) = result.stderr.splitlines()
    assert line.startswith("counterpoise: ")
    assert said in line


def test_a_plan_none_of_whose_steps_apply_exits_with_1(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(plan_of(move("theirs", 0, 1, 2)).model_dump_json())
    options = ["--bootstrap-server", "x:1", "--journal", tmp_path / "j"]
    reported = run(path, *options, code=0).stderr
    assert "no step of the plan applies" in reported
    assert "--yes" not in reported
    options.append("--yes")
    result = run(path, *options, code=1)
    assert "no step of the plan applies" in result.stdout
    assert "done" not in result.stdout
    path.write_text(plan_of().model_dump_json())
    assert "done: 0 tasks" in run(path, *options, code=0).stdout


def test_many_differences_are_counted_and_a_few_are_shown(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    for n in range(300):
        cluster.replicas[Key("b", n)], cluster.leaders[Key("b", n)] = (0, 1), 0
        cluster.refuses[Key("b", n)] = "policy violation"
    path = tmp_path / "plan.json"
    path.write_text(plan_of(*(move("b", n, 1, 2) for n in range(300))).model_dump_json())
    result = run(path, "--bootstrap-server", "x:1", "--journal", tmp_path / "j", "--yes", code=1)
    lines = result.stdout.splitlines()
    assert len(lines) < 30
    assert sum(line.startswith("difference") for line in lines) == 11
    assert any(line.startswith("difference") and "290 more, 300 in all" in line for line in lines)
    assert any(line.startswith("problem") and "290 more, 300 in all" in line for line in lines)


def test_what_is_found_and_done_is_printed_as_json(
    cluster: FakeCluster, plan: Path, tmp_path: Path
) -> None:
    options = ["--bootstrap-server", "x:1", "--journal", tmp_path / "j", "--json"]

    def said(*words: object, code: int = 0) -> Any:
        return json.loads(run(*words, *options, code=code).stdout)

    preview = said(plan)
    assert [(t["topic"], t["partition"], t["bytes"]) for t in preview["tasks"]] == [
        ("a", 0, 100.0), ("a", 1, 100.0),
    ]  # fmt: skip
    assert preview["problems"] == []
    unknown = said("--recover", code=1)
    assert unknown["state"] == "unknown"
    assert "no such journal" in unknown["problems"][0]
    done = said(plan, "--yes")
    assert (done["state"], done["completed"], done["bytes_moved"]) == ("done", 2, 200.0)
    assert said("--recover") == {"state": "done", "problems": []}


def test_in_a_log_progress_is_lines(cluster: FakeCluster, plan: Path, tmp_path: Path) -> None:
    result = run(plan, "--bootstrap-server", "x:1", "--journal", tmp_path / "j", "--yes", code=0)
    first, *rest = result.stderr.splitlines()
    assert first.startswith("moving: 0 of 2 tasks, 2 running")
    # Not one for each look at the cluster.
    assert len(rest) <= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_it_says_how_to_go_on(
    cluster: FakeCluster, plan: Path, tmp_path: Path, number: int
) -> None:
    cluster.looks = 10_000
    cluster.on_view = lambda c: os.kill(os.getpid(), number) if c.ongoing else None
    options = ["--bootstrap-server", "x:1", "--journal", tmp_path / "j", "--yes"]
    result = run(plan, *options, code=1)
    assert "Stopping" in result.stderr
    assert "stopped: " in result.stdout
    assert "execute the same plan again" in result.stderr
    # That is true.
    cluster.looks, cluster.on_view = 2, lambda c: None
    assert "done: 2 tasks" in run(plan, *options, code=0).stdout


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_way_back_ends_at_the_second_signal(
    cluster: FakeCluster, plan: Path, tmp_path: Path, second: int
) -> None:
    sent: list[int] = []

    def send(c: FakeCluster) -> None:
        if any(2 in r for r in c.replicas.values()) and not sent:
            sent.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            # nothing ends before the signal is heard
            c.looks = 10_000
            c.ongoing = {k: (target, c.looks) for k, (target, _) in c.ongoing.items()}
        elif sent == [signal.SIGINT] and any(1 in target for target, _ in c.ongoing.values()):
            sent.append(second)
            os.kill(os.getpid(), second)

    cluster.on_view = send
    options = ["--bootstrap-server", "x:1", "--journal", tmp_path / "j"]
    result = run(plan, *options, "--yes", "--rollback", "--moves", 1, code=1)
    assert "moving back" in result.stderr
    assert "the rollback was stopped" in result.stdout
    cluster.looks, cluster.on_view = 2, lambda c: None
    cluster.ongoing = {k: (target, 1) for k, (target, _) in cluster.ongoing.items()}
    run("--recover", *options, code=1)
    assert set(cluster.replicas.values()) == {(0, 1)}


def test_a_signal_ends_the_process_even_where_the_execution_hangs(
    plan: Path, tmp_path: Path
) -> None:
    code = (
        "import importlib, sys, time\n"
        "command = importlib.import_module('balancer.composition.execution')\n"
        "class Hanging(command.Executor):\n"
        "    def execute(self, plan, **options):\n"
        "        print('hangs', flush=True)\n"
        "        time.sleep(600)\n"
        "command.Executor = Hanging\n"
        "from balancer.cli import main\n"
        "main()\n"
    )
    options = ["execute", str(plan), "--bootstrap-server", "x:1", "--yes"]
    options += ["--journal", str(tmp_path / "journal")]
    with subprocess.Popen(
        [sys.executable, "-c", code, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGTERM)
        try:
            reported, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "did not end in time" in reported
