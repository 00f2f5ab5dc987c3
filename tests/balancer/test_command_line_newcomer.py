"""The command line as a newcomer meets it: narrow terminals, pipes, and wrong names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from typer.testing import Result

from balancer import load_plan
from balancer.cli.app import app
from balancer.cli.commands import LazyCommand
from cluster_model import load_snapshot, save_snapshot, synthetic_snapshot
from metrics_reporter.suggestions import meant


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("newcomer")
    cluster = synthetic_snapshot(brokers=6, partitions=90, racks=3, topics=2, utilization=0.2)
    save_snapshot(cluster, directory / "cluster.json")
    save_snapshot(cluster, directory / "cluster.npz")
    run("propose", directory / "cluster.json", "-o", directory / "plan.json")
    return directory


def run(*args: object, code: int = 0, stdin: bytes | None = None, width: int = 120) -> Result:
    result = invoke(args, env={"COLUMNS": str(width)}, input=stdin)
    assert result.exit_code == code, result.output
    return result


def said(*args: object, stdin: bytes | None = None) -> str:
    return run(*args, code=2, stdin=stdin).stderr


def test_names_stay_whole_in_80_columns(files: Path) -> None:
    plan = load_plan(files / "plan.json")
    text = run("explain", files / "plan.json", width=80).stdout
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for goal in plan.goal_results:
        assert goal.goal in text
    for command in ("goals list", "operations list", "strategies show milp", "goals show default"):
        found = run(*command.split(), width=80).stdout
        assert max(len(line.rstrip()) for line in found.splitlines()) <= 80


def test_help_cuts_no_name() -> None:
    def commands(found: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield path, found
        for name, command in getattr(found, "commands", {}).items():
            whole = command.load() if isinstance(command, LazyCommand) else command
            yield from commands(whole, *path, name)

    for path, command in commands(app):
        text = run(*path, "--help", width=40).stdout
        assert "…" not in text, path
        assert max(map(len, text.splitlines())) <= 40, path
        for option in command.params:
            if not option.hidden:
                variables = [option.envvar] if isinstance(option.envvar, str) else []
                whole = [n for n in (*option.opts, *variables) if "-" in n or "_" in n]
                assert all(name in text for name in whole), (path, option.name)


def test_a_narrow_terminal_gets_a_block_for_each_row(files: Path) -> None:
    text = run("explain", files / "plan.json", "--top", 2, width=40).stdout
    assert "goal UsageDistribution[network_out]" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 40


def test_every_option_is_in_lower_case() -> None:
    for command in ("word-count load", "history archive"):
        text = run(*command.split(), "--help").stdout
        assert "--help" in text
        options = [word for word in text.split() if word.startswith("--")]
        assert options == [word.lower() for word in options]


@pytest.mark.parametrize(
    ("args", "nearest"),
    [
        (("propose", "cluster.json", "--goals", "defalt"), "default"),
        (("goals", "show", "UsageDistributon"), "UsageDistribution"),
        (("goals", "show", "cruise_control"), "cruise-control"),
        (("strategies", "show", "mlip"), "milp"),
        (("propose", "cluster.json", "--operation", "remove-broker"), "remove_brokers"),
        (("explain", "plan.json", "--partition", "topc-1-2"), "topic-1-"),
        (
            ("explain", "plan.json", "--why-not", "topc-0-3", "5", "--snapshot", "cluster.json"),
            "topic-0-",
        ),
        (("load", "cluster.json", "--resource", "dsk"), "disk"),
        (("propose", "cluster.json", "--goals", "goals.yaml"), "threshold"),
        (("run", "--bootstrap-server", "localhost:1", "--settings", "settings.yaml"), "interval"),
    ],
)  # fmt: skip
def test_a_wrong_name_gets_the_nearest(
    files: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], nearest: str
) -> None:
    monkeypatch.chdir(files)
    Path("goals.yaml").write_text("goals: [{goal: ReplicaDistribution, treshold: 1.1}]\n")
    Path("settings.yaml").write_text("intervall: 5m\nexecute: false\n")
    text = " ".join(said(*args).split())
    assert "did you mean '" + nearest in text


def test_suggestions_among_very_many_names() -> None:
    many = [f"topic-{t}-{n}" for t in range(2000) for n in range(10)]
    assert meant("topic-77-33", many) in many
    assert meant("entirely-different", many) is None


def test_a_file_of_the_other_kind_is_told_which_command_takes_it(files: Path) -> None:
    plan, cluster = files / "plan.json", files / "cluster.json"
    assert "a plan found, a snapshot expected; explain, verify and execute" in said("load", plan)
    assert "a plan found, a snapshot expected; explain" in said("verify", plan, cluster)
    assert "a snapshot found, a plan expected; load and propose" in said("explain", cluster)


@pytest.mark.parametrize("name", ["cluster.json", "cluster.npz"])
def test_snapshots_and_plans_come_from_stdin_and_go_to_stdout(files: Path, name: str) -> None:
    data = (files / name).read_bytes()
    found = run("propose", "-", "-o", "-", stdin=data).stdout
    assert found == (files / "plan.json").read_text()
    assert "balancedness" in run("explain", "-", stdin=found.encode()).stdout
    assert "sound" in run("verify", files / name, "-", stdin=found.encode()).stdout
    assert run("load", "-", "--json", stdin=data).stdout == (
        run("load", files / name, "--json").stdout
    )
    assert "both on stdin" in said("verify", "-", "-", stdin=data)
    assert "--json: the plan on stdout" in said("propose", "-", "--json", "-o", "-", stdin=data)
    assert "snapshot file -: " in said("load", "-", stdin=b"{")


def test_a_synthetic_snapshot_goes_to_stdout(tmp_path: Path) -> None:
    found = run("snapshot", "synthetic", "--brokers", 3, "--partitions", 9, "-o", "-")
    (tmp_path / "cluster.json").write_text(found.stdout)
    assert load_snapshot(tmp_path / "cluster.json").n_brokers == 3
    assert json.loads(found.stdout)["schema_version"] == 1
    assert "9 partitions" in found.stderr


def test_tiers_of_a_profile_are_those_of_a_plan(files: Path) -> None:
    plan = load_plan(files / "plan.json")
    shown = run("goals", "show", "default").stdout
    for goal in plan.goal_results:
        (line,) = (one for one in shown.splitlines() if one.endswith(f"  {goal.goal}"))
        assert line.startswith(f"tier {goal.tier} ")


@pytest.mark.parametrize(
    ("variable", "value", "times"),
    [("COLUMNS", "0", "×"), ("COLUMNS", "", "×"), ("PYTHONIOENCODING", "ascii", "x")],
)
def test_a_result_is_printed_on_any_terminal(
    files: Path, variable: str, value: str, times: str
) -> None:
    """One without a width, one whose encoding has no sign of multiplication."""
    code = "from balancer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "load", str(files / "cluster.json")],
        env={**os.environ, "PYTHONIOENCODING": "utf-8", variable: value},
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{times} fair share" in done.stdout
