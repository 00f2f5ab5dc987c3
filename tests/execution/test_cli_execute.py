"""``counterpoise execute``: what it shows, how it ends, and a sentence for every mistake."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from execution_cases import FakeCluster, move, plan_of
from typer.testing import CliRunner, Result

from balancer.cli import app
from balancer.execution import Executor
from balancer.execution.cluster import Key


def run(*args: object, code: int) -> Result:
    """Run the command; it must end with the code, and never with a traceback."""
    result = CliRunner().invoke(app, ["execute", *(str(a) for a in args)])
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

    def connected(*args: Any, **options: Any) -> Executor:
        return Executor(*args, **options, connect=lambda: found)

    monkeypatch.setattr(execute_module(), "Executor", connected)
    return found


def execute_module() -> Any:
    import importlib

    return importlib.import_module("balancer.cli.execute")


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


def test_what_is_not_done_is_told_and_exits_with_1(
    cluster: FakeCluster, plan: Path, tmp_path: Path
) -> None:
    cluster.refuses[Key("a", 0)] = "policy violation"
    result = run(plan, "--bootstrap-server", "x:1", "--journal", tmp_path / "j", "--yes", code=1)
    assert "Kafka refused it: policy violation" in result.stdout
    assert "a-0: replicas 0, 2 planned, 0, 1 found" in result.stdout
    assert "failed: 1 task completed, 1 failed" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "a plan or --recover expected, neither of them given"),
        (["PLAN", "--recover"], "a plan or --recover expected, both of them given"),
        (["PLAN", "--throttle", "fast"], "--throttle: 'fast' found"),
        (["PLAN", "--throttle", "10"], "limit throttle: 10.0 found"),
        (["PLAN", "--strategy", "fastest"], "limit strategies.0: 'fastest' found"),
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
