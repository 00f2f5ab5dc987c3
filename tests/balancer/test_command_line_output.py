"""Each command that prints a result has ``--json``, and its tables fit into narrow terminals."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from rich.console import RenderableType
from rich.progress import Progress, TimeElapsedColumn
from typer.testing import Result

from balancer import Balancer
from balancer.backtest import BacktestResult
from balancer.cli.app import COMMANDS, app
from balancer.cli.history_backtest import table
from balancer.cli.history_snapshot import costs, errors
from balancer.cli.terminal import Console, TimeLeft, progress_columns
from cluster_model import save_snapshot, synthetic_snapshot
from cluster_model.history.cpu import CpuClass, CpuModel
from cluster_model.history.forecast import ForecastError

# Commands without a result that JSON could hold -> why.
WITHOUT_JSON = {
    "demo": "its results are files, among them the plan as JSON",
    "history export": "the copy is its result",
    "report-metrics": "runs until a signal; the records are its result",
    "server hash-password": "one word",
    "server new-token": "an entry for a settings file",
    "server openapi": "prints JSON anyway",
    "snapshot kafka": "the snapshot is its result, and -o - prints it as JSON",
    "snapshot flink": "the snapshot is its result, and -o - prints it as JSON",
    "snapshot kafka-streams": "the snapshot is its result, and -o - prints it as JSON",
    "snapshot synthetic": "the snapshot is its result, and -o - prints it as JSON",
    "autoscale monitor": "runs until a signal; the messages are its result",
    "word-count load": "runs until it is over; the lines are its result",
    "word-count run": "runs until a signal",
}
GROUP = """
group: orders
capacity: 200
consumers: [{name: consumer-of-orders-in-the-north-1}, {name: b}]
partitions:
  - {topic: orders-of-the-north, partition: 0, rate: 110, lag: 40, consumer: b}
  - {topic: orders-of-the-north, partition: 1, rate: 195, lag: 60, consumer: b}
  - {topic: orders-of-the-north, partition: 2, rate: 20}
"""
STATE = """
instances:
  - {id: instance-of-the-north-1, active: [0_0, 0_2], standby: [0_1], lags: {0_0: running}}
  - {id: B, active: [0_1], lags: {0_0: 40, 0_1: running, 0_2: 50000}}
  - {id: C}
tasks:
  - {id: 0_0, end_offset: 500000}
  - {id: 0_1, end_offset: 500000}
  - {id: 0_2, end_offset: 500000}
configs: {num_standby_replicas: 1, max_warmup_replicas: 1}
"""
SCENARIO = """
instances: [{id: a}, {id: instance-of-the-north-1}, {id: c}]
tasks: [{id: 0_1, end_offset: 40000, write_rate: 10}, {id: 0_0, end_offset: 100000}]
restore_rate: 1000
session_timeout: 30s
changes: [{at: 10m, join: c}, {at: 1h, crash: [a]}]
"""
PRINTING = {
    "explain plan.json": "goals, goal_results, actions",
    "explain plan.json --broker 3": "actions",
    "explain plan.json --why-not topic-0-3 5 --snapshot cluster.json": "answers",
    "goals list": "goals",
    "goals show default": "goals",
    "goals show UsageDistribution": "fields",
    "goals check ReplicaDistribution": "ok",
    "strategies list": "strategies",
    "operations show right_size": "fields",
    "detectors show dead_brokers": "fields",
    "sources list": "sources",
    "notifiers test log": "log",
    "tasks assign state.yaml": "instances, reasons",
    "tasks explain state.yaml 0_2": "copies",
    "tasks verify state.yaml assignment.json": "valid",
    "tasks simulate scenario.yaml": "rebalances",
    "autoscale decide group.yaml": "assignment",
    "autoscale simulate trace.csv --policy keda --policy repair": "policies",
    "load cluster.json": "brokers",
    "verify cluster.json plan.json": "violations",
}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each command by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command.load()


@pytest.mark.parametrize("words", COMMANDS)
def test_a_group_shows_the_first_line_of_a_command(words: str) -> None:
    summary = dict(commands(app))[words].help.partition("\n\n")[0]
    assert COMMANDS[words][1] == " ".join(summary.split())


def test_every_command_has_json_or_a_reason() -> None:
    every = dict(commands(app))
    with_json = {
        name
        for name, command in every.items()
        if any("--json" in option.opts for option in command.params)
    }
    assert {*every} - with_json == {*WITHOUT_JSON}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("output")
    cluster = synthetic_snapshot(brokers=6, partitions=90, racks=3, topics=2, utilization=0.2)
    save_snapshot(cluster, folder / "cluster.json")
    (folder / "group.yaml").write_text(GROUP)
    (folder / "state.yaml").write_text(STATE)
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "trace.csv").write_text("seconds,rate\n0,50\n20,150\n40,300\n60,0\n")
    for words in (
        ["propose", str(folder / "cluster.json"), "-o", str(folder / "plan.json")],
        ["tasks", "assign", str(folder / "state.yaml"), "-o", str(folder / "assignment.json")],
    ):
        assert invoke(words).exit_code == 0
    return folder


def run(*words: str, width: int = 120) -> Result:
    result = invoke(words, env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("command", PRINTING)
def test_json_is_all_that_stdout_holds(
    files: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(files)
    found = json.loads(run(*command.split(), "--json").stdout)
    for key in PRINTING[command].split(", "):
        assert key in found


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize(
    "command",
    [c for c in PRINTING if c.startswith(("tasks", "autoscale", "load", "goals list"))],
)
def test_tables_fit_and_names_are_whole(
    files: Path, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    monkeypatch.chdir(files)
    text = run(*command.split(), width=width).stdout
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    if command in ("tasks assign state.yaml", "tasks explain state.yaml 0_2"):
        assert "instance-of-the-north-1" in text
    if command.startswith("autoscale decide"):
        assert "consumer-of-orders-in-the-north-1" in text
        assert "orders-of-the-north-1" in text


def history_tables() -> dict[str, RenderableType]:
    result = BacktestResult(
        configurations=("history", "careful-with-a-long-name", "default"),
        first_ms=0,
        end_ms=7_200_000,
        window_ms=3_600_000,
        limit=0.8,
        price=2.0,
        windows=(),
        rounds=(),
    )
    model = CpuModel((CpuClass((1, 2), 1e-6, 2e-6, 3e-6, 90, 30, 0.99, 1.5, 0.98, 1.6),))
    return {
        "careful-with-a-long-name": table(result),
        "1 and 1 other": costs(model),
        "network_out": errors(
            (
                ForecastError(
                    "network_out",
                    24,
                    0.1,
                    0.2,
                    {"mean": 0.3, "yesterday's peak": 0.4},
                    {"mean": 0.3, "yesterday's peak": 0.4},
                    {"daily": "daily, week"},
                ),
            )
        ),
    }


@pytest.mark.parametrize("width", [80, 40])
def test_tables_of_history_fit_and_names_are_whole(width: int) -> None:
    for name, shown in history_tables().items():
        file = io.StringIO()
        Console(file=file, width=width).print(shown)
        assert name in file.getvalue()
        assert max(len(line.rstrip()) for line in file.getvalue().splitlines()) <= width


def test_the_time_left_is_told_only_where_it_is_known() -> None:
    now = [0.0]
    left = TimeLeft(clock=lambda: now[0])
    assert left.said(3, 16, steady=False) == ""
    assert left.said(0, 400, steady=True) == ""
    now[0] = 10.0
    assert left.said(100, 400, steady=True) == "about 30 s left"
    # a total that grows on the way counts; another phase starts over
    assert left.said(100, 500, steady=True) == "about 40 s left"
    assert left.said(0, 50, steady=True) == ""
    now[0] = 12.0
    assert left.said(40, 50, steady=True) == "about 1 s left"
    assert left.said(50, 50, steady=True) == ""


def test_the_limit_of_a_search_is_the_most_it_takes() -> None:
    now = [0.0]
    left = TimeLeft(90.0, clock=lambda: now[0])
    assert left.said(3, 16, steady=False) == "at most 1 min 30 s left"
    now[0] = 80.0
    assert left.said(15, 16, steady=False) == "at most 10 s left"
    now[0] = 95.0
    assert left.said(15, 16, steady=False) == ""


def test_the_order_of_a_plan_reports_how_many_actions_have_their_place() -> None:
    reported: list[tuple[int, int]] = []

    def tell(phase: str, done: int, of: int, actions: int) -> None:
        if phase == "order":
            reported.append((done, of))

    cluster = synthetic_snapshot(brokers=12, partitions=600, racks=3)
    plan = Balancer().propose(cluster, progress=tell)
    assert len(reported) > 2
    assert reported[0][0] == 0
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    assert reported[-1] == (len(plan), len(plan))


@pytest.mark.parametrize("width", [60, 80, 119, 120, 200])
def test_times_of_a_line_of_progress_are_whole(width: int) -> None:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    bar = Progress(*progress_columns(console, TimeElapsedColumn()), console=console)
    what = "balancing: tier 1, best so far 8 of 16 goals met, 19,903 actions"
    bar.add_task(what, total=10, completed=4, left="about 12 s left")
    with console.capture() as shown:
        console.print(bar.get_renderable())
    (line,) = shown.get().rstrip().splitlines()
    assert line.endswith("0:00:00 about 12 s left")
    assert "balancing: tier 1, best so far" in line
