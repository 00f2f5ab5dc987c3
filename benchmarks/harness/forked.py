"""Runs many short jobs in forked processes, none of which can stop or hang the rest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawValue
from typing import Any, Generic, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Job = TypeVar("Job")
Result = TypeVar("Result")
# A job calls it with any number to show that it is alive.
Beat = Callable[[int], None]
_FORK = get_context("fork")
_POLL = 1.0
_REPORTED_EVERY = 60.0


@dataclass(frozen=True)
class LostJob:
    """A job that ended without a result.

    Parameters
    ----------
    reason
        The reason: its process died, was silent for too long, or raised an exception.
    beat
        The last number that the job gave; -1 for none.
    """

    reason: str
    beat: int


@dataclass
class _Running(Generic[Job]):
    index: int
    process: BaseProcess
    answers: Connection
    mark: Any
    seen: int
    since: float


def forked(
    work: Callable[[Job, Beat], Result],
    jobs: Sequence[Job],
    *,
    processes: int | None = None,
    silence: float = float("inf"),
) -> Iterator[Result | LostJob]:
    """Run each job in a process forked from this one; results in the order of the jobs.

    A job starts from all that this process holds in memory and leaves it unchanged.

    Parameters
    ----------
    work
        Does a job; its result must be picklable.
    jobs
        The jobs.
    processes
        How many jobs run at a time; None for one per core.
    silence
        Seconds without a beat or a result after which a job is killed.
    """
    most = processes or os.cpu_count() or 1
    running: list[_Running[Job]] = []
    done: dict[int, Result | LostJob] = {}
    started = given = 0
    try:
        while given < len(jobs):
            while started < len(jobs) and len(running) < most:
                running.append(_start(work, jobs[started], started))
                started += 1
            wait([one.answers for one in running], _POLL)
            for one in list(running):
                answer = _answer(one, silence)
                if answer is not None:
                    running.remove(one)
                    done[one.index] = answer
            while given in done:
                yield done.pop(given)
                given += 1
    finally:
        for one in running:
            one.process.kill()
            one.process.join()


def _start(work: Callable[[Job, Beat], Result], job: Job, index: int) -> _Running[Job]:
    answers, answer = _FORK.Pipe(duplex=False)
    mark = RawValue("q", -1)

    def beat(number: int) -> None:
        mark.value = number

    def run() -> None:
        # Ctrl-C reaches all processes of a terminal; the first of them ends the others.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            answer.send(work(job, beat))
        except Exception as error:
            answer.send(LostJob(f"{type(error).__name__}: {error}"[:500], mark.value))

    process = _FORK.Process(target=run, daemon=True)
    process.start()
    answer.close()
    return _Running(index, process, answers, mark, -1, time.monotonic())


def _answer(one: _Running[Job], silence: float) -> Any:
    """Result of a job; None while it runs."""
    now = time.monotonic()
    if one.answers.poll():
        try:
            answer = one.answers.recv()
        except EOFError:
            one.process.join()
            answer = LostJob(f"its process ended with code {one.process.exitcode}", one.mark.value)
    elif one.mark.value != one.seen:
        one.seen, one.since = one.mark.value, now
        return None
    elif now - one.since > silence:
        one.process.kill()
        answer = LostJob(f"not done in {silence:g} s", one.mark.value)
    else:
        return None
    one.process.join()
    one.answers.close()
    return answer


@contextmanager
def progress(
    what: str, total: int, unit: str, log: Callable[[str], None]
) -> Iterator[Callable[[int], None]]:
    """Show how much of a total is done and when the rest will be, as a bar or once a minute.

    Yields a function to call with the number of things that are done.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"{unit}, remaining"),
            TimeRemainingColumn(),
        )
        # Refreshed by hand: a thread could hold a lock at the moment of a fork.
        with Progress(*columns, console=console, auto_refresh=False) as bar:
            task = bar.add_task(what, total=total)

            def advance(n: int) -> None:
                bar.update(task, advance=n, refresh=True)

            yield advance
        return
    began = reported = time.monotonic()
    done = 0

    def count(n: int) -> None:
        nonlocal done, reported
        done += n
        now = time.monotonic()
        if done and now - reported > _REPORTED_EVERY:
            reported = now
            left = (now - began) / done * (total - done)
            log(f"{what}: {done:,} of {total:,} {unit}, {left / 60:.0f} min left")

    yield count
