"""``counterpoise execute``: a plan carried out on a running Kafka."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar

from balancer import load_plan
from balancer.cli.options import byte_count, client_properties
from balancer.cli.snapshot import CommandConfig, Timeout
from balancer.cli.terminal import DONE, UNMET, CommandError, amount, out, plural, say, working
from balancer.execution import Executor, Limits, Outcome, Preview, Progress

PACE, SAFETY = "Pace", "Safety"
PHASES = {"move": "moving", "log_dir": "moving between disks", "leadership": "electing leaders"}


def execute(
    bootstrap_server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Ask these brokers.")],
    plan: Annotated[
        Path | None,
        typer.Argument(help="A plan, from `counterpoise propose -o`.", show_default=False),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without, only tell what would be done.")
    ] = False,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover", help="End what an execution that died left behind; takes no plan."
        ),
    ] = False,
    journal: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the execution is written down.")
    ] = Path("counterpoise-execution.journal"),
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            rich_help_panel=PACE,
            help="Most a broker may send and receive for it, like 50MB/s; taken off at the end.",
        ),
    ] = None,
    log_dir_throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", rich_help_panel=PACE, help="Most a broker may copy between its disks."
        ),
    ] = None,
    moves_per_broker: Annotated[
        int, typer.Option(min=1, rich_help_panel=PACE, help="Moves a broker takes part in at once.")
    ] = 5,
    moves: Annotated[
        int, typer.Option(min=1, rich_help_panel=PACE, help="Moves in the cluster at once.")
    ] = 100,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=PACE,
            help="What goes first: plan-order, smallest-first, largest-first, "
            "under-min-isr-first, postpone-under-replicated; repeatable.",
        ),
    ] = None,
    one_replica_at_a_time: Annotated[
        bool,
        typer.Option(
            "--one-replica-at-a-time",
            rich_help_panel=PACE,
            help="Move a partition's replicas one after the other.",
        ),
    ] = False,
    adaptive: Annotated[
        bool, typer.Option(rich_help_panel=PACE, help="Start less while the cluster suffers.")
    ] = True,
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback",
            rich_help_panel=SAFETY,
            help="When stopped with Ctrl-C, also move back what was moved.",
        ),
    ] = False,
    others: Annotated[
        str,
        typer.Option(
            metavar="wait|skip",
            rich_help_panel=SAFETY,
            help="What to do with partitions that others are reassigning.",
        ),
    ] = "wait",
    task_timeout: Annotated[
        float,
        typer.Option(
            min=1, rich_help_panel=SAFETY, help="Seconds without progress until a task is given up."
        ),
    ] = 600.0,
    broker_grace: Annotated[
        float,
        typer.Option(
            min=0, rich_help_panel=SAFETY, help="Seconds a broker may be away that is to get data."
        ),
    ] = 30.0,
    command_config: CommandConfig = None,
    timeout: Timeout = 10.0,
) -> None:
    """Carry a plan out: move replicas, then data between disks, then leadership.

    Ctrl-C stops it, and cancels what is under way. If it dies, `--recover` brings it to its
    end. Throttles are set before and taken off afterwards, whatever happens. Exits with 0
    where all is done, with 1 where it is not.

    Example: `counterpoise execute plan.json --bootstrap-server localhost:9092 --throttle 50MB/s
    --yes`
    """
    if recover == (plan is not None):
        given = "both" if recover else "neither"
        raise CommandError(f"a plan or --recover expected, {given} of them given")
    executor = Executor(
        bootstrap_server,
        journal=journal,
        limits=Limits.of(
            concurrent_moves_per_broker=moves_per_broker,
            concurrent_moves=moves,
            strategies=tuple(s.replace("-", "_") for s in strategy or ()),
            one_replica_at_a_time=one_replica_at_a_time,
            adaptive=adaptive,
            throttle=_rate("--throttle", throttle),
            log_dir_throttle=_rate("--log-dir-throttle", log_dir_throttle),
            others=others,
            task_timeout=task_timeout,
            broker_grace=broker_grace,
            timeout=timeout,
        ),
        client=client_properties(command_config),
    )
    if plan is None:
        outcome = _watched(executor, lambda show: executor.recover(progress=show), rollback)
        if outcome is None:
            out().print(f"{journal}: nothing is left to recover", markup=False)
            raise typer.Exit(DONE)
        raise typer.Exit(_told(outcome))
    document = load_plan(plan)
    if not yes:
        with working("asking Kafka"):
            preview = executor.preview(document)
        _show(preview, throttle)
        raise typer.Exit(DONE)
    outcome = _watched(executor, lambda show: executor.execute(document, progress=show), rollback)
    assert outcome is not None
    raise typer.Exit(_told(outcome))


def _rate(option: str, text: str | None) -> float | None:
    return None if text is None else byte_count(option, text.strip().removesuffix("/s"))


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
    say("Nothing was changed; with --yes it is done.")


def _watched(
    executor: Executor,
    work: Callable[[Callable[[Progress], None]], Outcome | None],
    rollback: bool,
) -> Outcome | None:
    """Work in a thread of its own, so that Ctrl-C can stop it in good order."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with (
        _interruptible(),
        ThreadPoolExecutor(1) as pool,
        Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("asking Kafka", total=None, left="")

        def show(p: Progress) -> None:
            over = p.completed + p.failed + p.cancelled
            copied = f", {amount(p.bytes_moved)} of {amount(p.bytes_total)}" * bool(p.bytes_total)
            # Bytes tell how far it is while there are any to copy.
            done, total = (p.bytes_moved, p.bytes_total) if p.phase == "move" else (over, p.total)
            bar.update(
                task,
                description=f"{PHASES[p.phase]}: {over} of {p.total} tasks, {p.running} running"
                f"{copied}",
                completed=done,
                total=total,
                left="" if p.seconds_left is None else f"{p.seconds_left:.0f} s left",
            )

        future = pool.submit(work, show)
        while True:
            try:
                return future.result(0.2)
            except NotYet:
                if future.done():
                    raise
            except KeyboardInterrupt:
                executor.stop(rollback=rollback)
                say("Stopping" + (" and moving back" if rollback else "") + " ...")


class _interruptible:
    """Treat SIGTERM as Ctrl-C for as long as this lasts."""

    def __enter__(self) -> None:
        self._before: Any = signal.signal(signal.SIGTERM, self._interrupt)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    @staticmethod
    def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt


def _told(outcome: Outcome) -> int:
    console = out()
    for problem in outcome.problems:
        console.print(f"[yellow]problem[/]     {escape(problem)}", soft_wrap=True)
    for difference in outcome.differences:
        console.print(f"[yellow]difference[/]  {escape(difference)}", soft_wrap=True)
    console.print(
        f"{outcome.state}: {plural(outcome.completed, 'task')} completed, {outcome.failed} failed, "
        f"{outcome.cancelled} cancelled; {amount(outcome.bytes_moved)} copied in "
        f"{outcome.seconds:.1f} s",
        markup=False,
    )
    return DONE if outcome.state == "done" and not outcome.differences else UNMET
