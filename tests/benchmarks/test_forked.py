"""Jobs in forked processes: in order, from the same start; a failing one does not stop the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing import active_children

import pytest
from rich.console import Console

from benchmarks.harness import forked as module
from benchmarks.harness.forked import Beat, LostJob, forked, progress
from benchmarks.harness.report import print_rows
from benchmarks.registry import Row


def test_results_are_in_the_order_of_jobs_and_each_starts_afresh() -> None:
    seen: list[int] = []

    def work(job: int, beat: Beat) -> tuple[int, list[int]]:
        time.sleep(0.2 if job == 0 else 0.0)
        seen.append(job)
        return job, seen

    assert list(forked(work, range(5), processes=3)) == [(job, [job]) for job in range(5)]
    assert seen == []


def _raise() -> None:
    raise KeyError("x")


def _exit() -> None:
    os._exit(3)


def _hang() -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_raise, "KeyError: 'x'"),
        (_exit, "its process ended with code 3"),
        (_hang, "not done in 6 s"),
    ],
)
def test_a_job_that_fails_is_one_lost_result(harm: Callable[[], None], reason: str) -> None:
    def work(job: int, beat: Beat) -> int:
        beat(10 * job)
        if job == 1:
            harm()
        return job

    assert list(forked(work, range(3), processes=2, silence=6.0)) == [0, LostJob(reason, 10), 2]


@pytest.mark.soak  # it waits for longer than silence is allowed
def test_a_job_that_shows_it_is_alive_may_take_its_time() -> None:
    def work(job: int, beat: Beat) -> int:
        for number in range(80):
            beat(number)
            time.sleep(0.1)
        return job

    assert list(forked(work, [7], silence=6.0)) == [7]


def test_jobs_end_with_the_one_who_asked() -> None:
    def work(job: int, beat: Beat) -> int:
        if job:
            time.sleep(600)
        return os.getpid()

    before = set(active_children())
    results = forked(work, range(3), processes=3)
    next(results)
    assert len(set(active_children()) - before) == 2
    results.close()  # type: ignore[attr-defined]
    assert set(active_children()) == before


def test_progress_is_reported_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REPORTED_EVERY", -1.0)
    reported: list[str] = []
    with progress("fuzz S", 2_000, "inputs", reported.append) as advance:
        advance(500)
        advance(1_500)
    assert [line.rpartition(",")[0] for line in reported] == [
        "fuzz S: 500 of 2,000 inputs",
        "fuzz S: 2,000 of 2,000 inputs",
    ]
    assert reported[1].endswith("0 min left")


def test_progress_is_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        module, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=100)
    )
    reported: list[str] = []
    with progress("fuzz S", 20, "inputs", reported.append) as advance:
        advance(5)
    assert reported == []
    assert "5/20" in capsys.readouterr().err


def test_many_subjects_are_below_each_other() -> None:
    rows = [Row("b", "S", f"subject {i}", what, i, "n") for i in range(12) for what in "xy"]
    console = Console(width=100)
    with console.capture() as captured:
        print_rows(rows, console)
    lines = [line.split() for line in captured.get().replace("│", " ").splitlines()]
    assert ["subject", "11", "11", "11"] in lines
