"""``counterpoise history backtest``: errors are reported before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import invoke

from balancer.backtest import BacktestResult, WindowFigures
from balancer.backtest.replay import Event
from balancer.backtest.result import DecidedRound, JudgedWindow
from balancer.cli.history_backtest import table
from balancer.cli.terminal import out

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "soon"], "--from: 'soon' found, a time like 2025-03-01T12:00 expected"),
        (["--to", "25:00"], "--to: '25:00' found"),
        (["--goals", "nowhere"], "'nowhere' found, a file or a profile"),
        (["--configurations", "none.yaml"], "configurations file none.yaml: No such file"),
    ],
)
def test_wrong_options_are_one_sentence(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["history", "backtest", "prepared", "--metadata", "cluster.json", *options]
    result = invoke(words)
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.strip().splitlines()) == 1


def figures(worst: float, overloaded: int) -> WindowFigures:
    return WindowFigures(1.0, 2, 1, 5, 80.0, worst, 7, "disk", 1.5, overloaded)


def test_the_table_says_what_was_found() -> None:
    found = BacktestResult(
        configurations=("history", "tried"),
        first_ms=0,
        end_ms=2 * HOUR_MS,
        window_ms=HOUR_MS,
        limit=0.8,
        price=2.0,
        windows=tuple(
            JudgedWindow(name, hour * HOUR_MS, figures(0.5 + hour / 4, n))
            for name, n in (("history", 3), ("tried", 1))
            for hour in (0, 1)
        ),
        rounds=(
            DecidedRound("tried", Event(HOUR_MS, "started", "because", actions=4)),
            DecidedRound("tried", Event(2 * HOUR_MS, "executed", "done", 0, 6e9, 3e9)),
        ),
    )
    console = out()
    with console.capture() as shown:
        console.print(table(found))
    text = shown.get()
    assert "1970-01-01 00:00 to 1970-01-01 02:00 UTC" in text
    reported = {
        name: line.removeprefix(name).split()
        for line in text.splitlines()
        for name in ("plans", "actions", "broker-hours above 80 %", "cost a day")
        if line.startswith(name)
    }
    assert reported["plans"] == ["0", "1"]
    assert reported["actions"] == ["0", "4"]
    assert reported["broker-hours above 80 %"] == ["6", "2"]
    # 6 GB in two hours are 72 a day.
    assert reported["cost a day"] == ["0.00", "144.00"]
    assert "50 %" in text
    tally = found.totals[1]
    assert (tally.thrash, tally.worst, tally.worst_ms) == (0.5, 0.75, HOUR_MS)
