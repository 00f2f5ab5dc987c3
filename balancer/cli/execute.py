"""``counterpoise execute``: executes a plan on a running Kafka."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import Progress as Bar

from balancer.cli.commands import DONE, UNMET
from balancer.cli.files import plan_from
from balancer.cli.options import byte_rate
from balancer.cli.snapshot import BootstrapServer, CommandConfig, Timeout
from balancer.cli.terminal import (
    LONGEST,
    AsJson,
    CommandError,
    Console,
    check_outputs,
    out,
    print_json,
    progress_columns,
    say,
    working,
)
from balancer.composition.client import client_properties
from metrics_reporter.quantities import amount, plural

if TYPE_CHECKING:
    from balancer.execution import Executor, Outcome, Preview, Progress

SPEED, SAFETY = "Speed", "Safety"
# Seconds between two lines of progress without a terminal.
_LINE_SECONDS = 30.0
# Differences and problems that are printed individually.
_SHOWN = 10
# Seconds after its deadline that an execution may take to return before the process exits.
_GRACE = 1.5
PHASES = {"move": "moving", "log_dir": "moving between disks", "leadership": "electing leaders"}


def execute(
    bootstrap_server: BootstrapServer,
    plan: Annotated[
        Path | None,
        typer.Argument(help="A plan, from `counterpoise propose -o`.", show_default=False),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Execute the plan. Without this option, only print a preview."),
    ] = False,
    recover: Annotated[
        bool,
        typer.Option("--recover", help="Finish an interrupted execution. Takes no plan."),
    ] = False,
    journal: Annotated[
        Path, typer.Option(metavar="FILE", help="Journal of the execution, for --recover.")
    ] = Path("counterpoise-execution.journal"),
    cluster_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            rich_help_panel=SAFETY,
            help="The cluster to execute on; required for a plan that names none.",
        ),
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            rich_help_panel=SPEED,
            help="Maximum replication rate per broker, e.g. 50MB/s. Removed at the end.",
        ),
    ] = None,
    log_dir_throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            rich_help_panel=SPEED,
            help="Maximum copy rate between the disks of one broker.",
        ),
    ] = None,
    moves_per_broker: Annotated[
        int, typer.Option(min=1, rich_help_panel=SPEED, help="Maximum concurrent moves per broker.")
    ] = 5,
    moves: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=SPEED, help="Maximum concurrent moves in the cluster."),
    ] = 100,
    order: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SPEED,
            help="Order in which tasks start: plan-order, smallest-first, largest-first, "
            "under-min-isr-first, postpone-under-replicated; repeatable.",
        ),
    ] = None,
    one_replica_at_a_time: Annotated[
        bool,
        typer.Option(
            "--one-replica-at-a-time",
            rich_help_panel=SPEED,
            help="Move a partition's replicas one after the other.",
        ),
    ] = False,
    adaptive: Annotated[
        bool,
        typer.Option(
            rich_help_panel=SPEED, help="Reduce concurrency while the cluster is under stress."
        ),
    ] = True,
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback",
            rich_help_panel=SAFETY,
            help="On Ctrl-C, also move everything back.",
        ),
    ] = False,
    others: Annotated[
        str,
        typer.Option(
            metavar="wait|skip",
            rich_help_panel=SAFETY,
            help="Wait for partitions that others are reassigning, or skip them.",
        ),
    ] = "wait",
    task_timeout: Annotated[
        float,
        typer.Option(
            min=1,
            max=LONGEST,
            rich_help_panel=SAFETY,
            help="Seconds without progress after which a task is given up.",
        ),
    ] = 600.0,
    broker_grace: Annotated[
        float,
        typer.Option(
            min=0,
            max=LONGEST,
            rich_help_panel=SAFETY,
            help="Seconds a destination broker may be offline before its moves are cancelled.",
        ),
    ] = 30.0,
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SAFETY,
            help="Only one controller or execution in this group acts at a time.",
        ),
    ] = "counterpoise-controller",
    session: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=SAFETY,
            help="Time without a heartbeat after which another process may take over.",
        ),
    ] = 10.0,
    command_config: CommandConfig = None,
    timeout: Timeout = 10.0,
    json: AsJson = False,
) -> None:
    """Execute a plan: move replicas, then data between disks, then leadership.

    Ctrl-C stops it and cancels running tasks; the same plan can be resumed later. With
    `--rollback`, a second Ctrl-C, or SIGTERM, also ends the rollback. If the command dies or is
    killed, `--recover` finishes the execution. Throttles are set before the moves and removed
    afterwards. Exits with 0 if everything is done, with 1 if it is not or if the outcome is
    unknown, and with 2 if another execution or a controller is active.

    Example: `counterpoise execute plan.json --bootstrap-server localhost:9092 --throttle 50MB/s
    --yes`
    """
    from balancer.composition.execution import single_execution
    from balancer.execution import Limits
    from balancer.execution.identity import age_warning

    if recover == (plan is not None):
        given = "both" if recover else "neither"
        raise CommandError(f"a plan or --recover expected, {given} of them given")
    check_outputs({"PLAN": plan, "--command-config": command_config}, {"--journal": journal})
    properties = client_properties(command_config)
    limits = Limits.of(
        concurrent_moves_per_broker=moves_per_broker,
        concurrent_moves=moves,
        order=tuple(s.replace("-", "_") for s in order or ()),
        one_replica_at_a_time=one_replica_at_a_time,
        adaptive=adaptive,
        throttle=byte_rate("--throttle", throttle),
        log_dir_throttle=byte_rate("--log-dir-throttle", log_dir_throttle),
        others=others,
        task_timeout=task_timeout,
        broker_grace=broker_grace,
        timeout=timeout,
        resume_within=None,
    )
    executor, election = single_execution(
        bootstrap_server,
        journal=journal,
        limits=limits,
        properties=properties,
        group=group,
        session=session,
        name="counterpoise execute",
        notice=say,
    )
    if plan is None:
        there = journal.exists()
        with _LastResort(limits.stop_timeout + _GRACE) as last_resort, closing(election):
            outcome = _watched(
                executor,
                lambda show: executor.recover(cluster_id=cluster_id, progress=show),
                rollback,
                last_resort,
            )
            # Leaving the election may take a while, and the outcome is known already.
            code = last_resort.code = (
                _nothing_found(journal, there, group, json)
                if outcome is None
                else _reported(outcome, json)
            )
        raise typer.Exit(code)
    document = plan_from(plan)
    if warning := age_warning(document, time.time(), limits.plan_age):
        say(f"warning: {warning}")
    if not yes:
        with working("asking Kafka"):
            preview = executor.preview(document, cluster_id=cluster_id)
        if json:
            tasks = [task.model_dump(mode="json") for task in preview.tasks]
            print_json({"tasks": tasks, "problems": preview.problems})
        else:
            _show(preview, throttle)
        raise typer.Exit(DONE)

    def work(show: Callable[[Progress], None]) -> Outcome:
        return executor.execute(document, cluster_id=cluster_id, progress=show)

    with _LastResort(limits.stop_timeout + _GRACE) as last_resort, closing(election):
        outcome = _watched(executor, work, rollback, last_resort)
        assert outcome is not None
        code = last_resort.code = _reported(outcome, json)
    raise typer.Exit(code)


def _show(preview: Preview, throttle: str | None) -> None:
    console = out()
    for task in preview.tasks:
        size = f", {amount(task.bytes)}" if task.bytes else ""
        console.print(f"{task}{size}", markup=False, soft_wrap=True)
    for problem in preview.problems:
        console.print(f"[yellow]left out[/]  {escape(problem)}", soft_wrap=True)
    copied = sum(task.bytes for task in preview.tasks)
    limit = f" at {throttle.removesuffix('/s')}/s and broker" if throttle else ", not throttled"
    console.print(
        f"{plural(len(preview.tasks), 'task')}, {amount(copied)} to copy{limit}", markup=False
    )
    if preview.tasks:
        say("Nothing was changed; add --yes to execute the plan.")
    elif preview.problems:
        say("Nothing was changed: no step of the plan applies to this cluster as it is now.")
    else:
        say("Nothing was changed: nothing is left to do.")


def _watched(
    executor: Executor,
    work: Callable[[Callable[[Progress], None]], Outcome | None],
    rollback: bool,
    last_resort: _LastResort,
) -> Outcome | None:
    """Work in a separate thread, so that a signal can stop it cleanly."""
    console = Console(stderr=True)
    lines = _Lines()
    columns = progress_columns(console)
    with (
        _signals() as signals,
        ThreadPoolExecutor(1) as pool,
        Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("asking Kafka", total=None, left="")

        def show(p: Progress) -> None:
            if not console.is_terminal:
                lines.show(p)
            over = p.completed + p.failed + p.cancelled
            # Bytes show the progress as long as there are any to copy.
            done, total = (p.bytes_moved, p.bytes_total) if p.phase == "move" else (over, p.total)
            described, left = progress_texts(p)
            bar.update(task, description=described, completed=done, total=total, left=left)

        future = pool.submit(work, show)
        way_back = False
        while True:
            try:
                return future.result(0.2)
            except NotYet:
                if future.done():
                    raise
            for number in signals():
                # A rollback may take hours: a second signal, or SIGTERM, does not wait for it.
                first = not way_back and not last_resort.armed
                way_back = rollback and first and number == signal.SIGINT
                if not way_back:
                    last_resort.arm()
                say("Stopping" + (" and moving back" if way_back else "") + " ...")
            if way_back or last_resort.armed:
                # Repeated: an execution that is just starting may miss the first request.
                executor.stop(rollback=way_back)


class _LastResort:
    """Exits the process a number of seconds after it is armed, if the guarded code still runs.

    Nothing is lost by that: the journal holds what a recovery needs.

    Attributes
    ----------
    armed
        Whether the timer is running.
    code
        The exit code of the command, once its result is known and printed.
    """

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self.armed = False
        self.code: int | None = None

    def arm(self) -> None:
        """Start the timer; only the first call counts."""
        if not self.armed:
            self.armed = True
            self._timer.start()

    def __enter__(self) -> _LastResort:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        if self.code is None:
            say(
                "The command did not end in time: recover what its journal still holds (--recover)."
            )
        sys.stdout.flush()
        os._exit(UNMET if self.code is None else self.code)


def progress_texts(p: Progress) -> tuple[str, str]:
    """The progress, and the remaining time."""
    over = p.completed + p.failed + p.cancelled
    copied = f", {amount(p.bytes_moved)} of {amount(p.bytes_total)}" * bool(p.bytes_total)
    waits = f", {p.waiting} waiting for {p.waits_for}" if p.waiting else ""
    rate = f", {amount(p.bytes_moved / p.seconds, 'B/s')}" if p.bytes_moved and p.seconds else ""
    return (
        f"{PHASES[p.phase]}: {over:,} of {plural(p.total, 'task')}, {p.running} running"
        f"{copied}{rate}{waits}",
        "" if p.seconds_left is None else f"{_span(p.seconds_left)} left",
    )


def _span(seconds: float) -> str:
    """A duration in a suitable unit.

    Examples
    --------
    >>> _span(45.2), _span(600), _span(9000)
    ('45 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class _Lines:
    """Progress as log lines: one at the start of each phase, then at intervals."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._shown = 0.0

    def show(self, p: Progress) -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if p.phase == self._phase and now - self._shown < _LINE_SECONDS:
            return
        self._phase, self._shown = p.phase, now
        say(", ".join(part for part in progress_texts(p) if part))


@contextmanager
def _signals() -> Iterator[Callable[[], list[int]]]:
    """Collect Ctrl-C and SIGTERM; yields a function that returns those since its last call."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)

    def latest() -> list[int]:
        found = received[:]
        del received[: len(found)]
        return found

    before = [signal.signal(n, lambda number, frame: received.append(number)) for n in numbers]
    try:
        yield latest
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _nothing_found(journal: Path, there: bool, group: str, json: bool) -> int:
    """Report that there was nothing to recover, or that this is uncertain without a journal."""
    said = f"{journal}: nothing is left to recover"
    if not there:
        said = (
            f"{journal}: no such journal, and no marks of group {group} are in Kafka; an execution "
            "without a throttle carries none, so its moves may continue: name its journal "
            "(--journal), or check for moves with kafka-reassign-partitions --list"
        )
    if json:
        print_json({"state": "done" if there else "unknown", "problems": [] if there else [said]})
    else:
        out().print(said, markup=False, soft_wrap=True)
    return DONE if there else UNMET


def _reported(outcome: Outcome, json: bool) -> int:
    if json:
        print_json(asdict(outcome))
    else:
        _few("problem", outcome.problems)
        _few("difference", outcome.differences)
        out().print(
            f"{outcome.state}: {plural(outcome.completed, 'task')} completed, {outcome.failed} "
            f"failed, {outcome.cancelled} cancelled; {amount(outcome.bytes_moved)} copied in "
            f"{outcome.seconds:.1f} s",
            markup=False,
        )
    if outcome.state == "stopped":
        say("To continue, execute the same plan again.")
    return DONE if outcome.state == "done" and not outcome.differences else UNMET


def _few(word: str, lines: Sequence[str]) -> None:
    """Print the first lines, and the number of the others."""
    console = out()
    for line in lines[:_SHOWN]:
        console.print(f"[yellow]{word:<10}[/]  {escape(line)}", soft_wrap=True)
    if len(lines) > _SHOWN:
        more = len(lines) - _SHOWN
        console.print(f"[yellow]{word:<10}[/]  and {more:,} more, {len(lines):,} in all")
