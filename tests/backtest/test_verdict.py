"""A configuration is better only if it is with every seed; progress arrives at the driver."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from backtest_cases import skewed

from balancer.backtest import BacktestResult, WindowFigures, compared, judge, verdicts
from balancer.backtest.progress import Reporter, listening
from balancer.backtest.replay import Event
from balancer.backtest.result import DecidedRound, JudgedWindow

HOUR_MS = 3_600_000


def result(**overloaded: tuple[tuple[int, float], ...]) -> BacktestResult:
    """Configurations, each with the overloaded brokers and the bytes of each seed."""
    runs = {
        name: tuple(f"{name}{i or ''}" for i in range(len(of))) for name, of in overloaded.items()
    }
    windows, rounds = [], []
    for name, of in overloaded.items():
        for run, (brokers, copied) in zip(runs[name], of, strict=True):
            figures = WindowFigures(1.0, 0, 0, 0, 100.0, 0.5, 1, "cpu", 1.0, brokers)
            windows.append(JudgedWindow(run, 0, figures))
            rounds.append(DecidedRound(run, Event(HOUR_MS, "executed", "done", 0, copied)))
    names = tuple(run for of in runs.values() for run in of)
    return BacktestResult(
        names, 0, HOUR_MS, HOUR_MS, 0.8, 0.0, tuple(windows), tuple(rounds), runs=runs
    )


def test_the_first_figure_without_overlap_decides() -> None:
    found = compared(result(a=((3, 9e9), (5, 8e9)), b=((1, 5e9), (2, 6e9))), "a", "b")
    assert (found.better, found.other, found.figure) == ("b", "a", "overloaded_hours")
    assert found.text == (
        "b is better than a: 1.5 (1 to 2) broker-hours above 80 % and 5.5 GB (5 GB to 6 GB) "
        "copied, not 4 (3 to 5) broker-hours above 80 % and 8.5 GB (8 GB to 9 GB) copied"
    )
    found = compared(result(a=((3, 9e9), (5, 8e9)), b=((4, 5e9), (4, 6e9))), "a", "b")
    assert (found.better, found.figure) == ("b", "bytes_moved")


def test_what_seeds_change_as_much_is_no_difference() -> None:
    found = compared(result(a=((3, 1e9), (5, 3e9)), b=((4, 2e9), (4, 2e9))), "a", "b")
    assert found.figure is None
    assert found.text == "neither a nor b is better beyond its seeds"


def test_the_best_is_compared_with_each_other_one() -> None:
    found = verdicts(result(a=((3, 1.0),), b=((1, 1.0),), c=((2, 1.0),)))
    assert [(v.better, v.other) for v in found] == [("b", "a"), ("b", "c")]


# a is better than b in bytes, b than c in overload; a and c overlap in both, or c copies less.
FIRST, SECOND = ((2, 2e9), (4, 2e9)), ((1, 3e9), (2, 3e9))


def test_the_best_does_not_lose_to_another_one() -> None:
    found = verdicts(result(c=((3, 1e9), (3, 9e9)), a=FIRST, b=SECOND))
    assert [(v.better, v.other) for v in found] == [("a", "c"), ("a", "b")]


def test_where_each_is_worse_than_another_all_pairs_are_compared() -> None:
    found = verdicts(result(a=FIRST, b=SECOND, c=((3, 1e9), (3, 1e9))))
    assert [(v.better, v.other) for v in found] == [("a", "b"), ("c", "a"), ("b", "c")]


def test_copying_counts_for_brokers_and_not_for_goals() -> None:
    cluster = skewed()
    copying = np.zeros((cluster.n_brokers, 2))
    copying[2] = 9e9, 1e6
    was = judge(cluster, [], 0.8)
    found = judge(cluster, [], 0.8, copying=copying)
    assert (found.worst_broker, found.worst_resource) == (3, "network_in")
    assert found.worst > 9
    assert found.copying == 9e9
    assert found.overloaded >= was.overloaded
    assert found.balancedness == was.balancedness


def driver(host: str | None) -> Any:
    conf = SimpleNamespace(get=lambda name: host)
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


def test_reports_of_tasks_add_up() -> None:
    said: list[tuple[str, int, int]] = []
    with listening(driver("127.0.0.1"), {"replaying": 20}, lambda *of: said.append(of)) as reporter:
        # of another program
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for junk in (b"{", b"[]", b'["x", "replaying", 1, 5]'):
                out.sendto(junk, ("127.0.0.1", reporter.port))
        for part, done in ((0, 1), (0, 4), (1, 2), (1, 1), (2, 99)):
            reporter.report("replaying", part, done)
        until = time.monotonic() + 10
        while len(said) < 5 and time.monotonic() < until:
            time.sleep(0.01)
    assert [done for _, done, _ in said] == [1, 4, 6, 6, 20]


@pytest.mark.parametrize("host", [None, "192.0.2.1"])
def test_without_an_address_nothing_is_told(host: str | None) -> None:
    with listening(driver(host), {"replaying": 20}, lambda *of: None) as reporter:
        assert reporter == Reporter()
        reporter.report("replaying", 0, 1)
    with listening(cast(Any, object()), {"replaying": 20}, lambda *of: None) as reporter:
        assert reporter == Reporter()
