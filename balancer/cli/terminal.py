"""Shared by all commands: consoles, one-sentence errors, progress."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Column
from rich.text import Text
from typer.core import TyperCommand

from balancer.cli import narrow_help
from balancer.cli.configuration import config_option, origins, prefer_snapshot
from cluster_model import InputError
from metrics_reporter.documents import json_text, printable, shown
from metrics_reporter.quantities import period

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
# Maximum seconds that an option accepts, a month: longer waits count as endless.
LONGEST = 30 * 86_400.0
# Characters of a terminal from which a line of progress has a bar.
_WIDTH_WITH_BAR = 120
# Seconds of a phase before its speed tells anything.
_TELLING = 0.5


class CommandError(InputError):
    """Invalid options, or a file that cannot be written."""


class Command(TyperCommand):
    """A command with checked numbers: none is infinite, NaN or beyond 64 bits.

    Options with a variable ``COUNTERPOISE_...`` may also come from a configuration file.
    """

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        option = config_option(self.params)
        if option is not None:
            self.params.append(option)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; a snapshot as an argument replaces a cluster that is configured."""
        rest = super().parse_args(ctx, args)
        prefer_snapshot(ctx, self.params)
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; in a narrow terminal with options above their text."""
        narrow_help.print_help(self, TyperCommand, narrow_help.WIDE, ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run it, after saying which options are not from the command line."""
        said = origins(ctx, self.params)
        if said is not None:
            say(said)
        for name, value in ctx.params.items():
            if isinstance(value, float) and not isfinite(value):
                raise CommandError(f"{_option(name)}: {value} found, a finite number expected")
            if isinstance(value, int) and abs(value) >= 2**63:
                raise CommandError(
                    f"{_option(name)}: {shown(value)} found, a number below 2**63 expected"
                )
        return super().invoke(ctx)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class Console(RichConsole):
    """A console that removes control characters from its output."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """Render the output, segment by segment."""
        for piece in super().render(renderable, options):
            text = printable(piece.text)
            yield piece if piece.control or text == piece.text else Segment(text, piece.style)


def out() -> Console:
    """The console for results; in a pipe as wide as ``COLUMNS`` says, by default 120."""
    return Console(highlight=False, width=narrow_help.fixed_width())


def print_json(value: Any) -> None:
    """Print a result as JSON: all that a command says on stdout with ``--json``."""
    typer.echo(json_text(value, indent=1))


def say(line: str) -> None:
    """Print a line on stderr, so that stdout holds only the result."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(escape(line))


class ReportProgress(Protocol):
    """Tells how far work is; ``steady`` if all of the `total` takes about equally long."""

    def __call__(self, phase: str, done: int, total: int, *, steady: bool = True) -> None:
        """Show the phase, and the part of it that is done."""
        ...


class TimeLeft:
    """Says how long work may still take, in words; nothing where that is unknown.

    Parameters
    ----------
    limit
        Seconds after which work that is not steady is ended; None for no such limit.
    clock
        Seconds since any moment.
    """

    def __init__(
        self, limit: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._deadline = None if limit is None else clock() + limit
        self._steady: bool | None = None
        self._began = 0.0
        self._first = self._last = 0

    def said(self, done: int, total: int, *, steady: bool) -> str:
        """The time left, from the speed since the phase began, or from the limit."""
        now = self._clock()
        if steady != self._steady or done < self._last:
            self._steady, self._began, self._first = steady, now, done
        self._last = done
        if not steady:
            left = None if self._deadline is None else self._deadline - now
            return "" if left is None or left <= 0 else f"at most {period(left)} left"
        passed, made = now - self._began, done - self._first
        if made <= 0 or passed < _TELLING or done >= total:
            return ""
        return f"about {period(passed * (total - done) / made)} left"


class _Description(TextColumn):
    """What is done; cut off where a terminal is too narrow, so that the times are not."""

    def render(self, task: Task) -> Text:
        """The description of a task, in one line."""
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


def progress_columns(console: RichConsole, *times: ProgressColumn) -> list[ProgressColumn]:
    """What a line of progress shows; the time left is the field ``left`` of its task.

    Parameters
    ----------
    console
        Where it is shown: a narrow one has no room for a bar.
    times
        Columns before the time left.
    """
    # Only columns that may wrap are made narrower.
    description = _Description("{task.description}", markup=False, table_column=Column())
    bar = [BarColumn()] if console.width >= _WIDTH_WITH_BAR else []
    left = TextColumn("{task.fields[left]}", markup=False)
    return [SpinnerColumn(), description, *bar, *times, left]


@contextmanager
def working(
    what: str, limit: float | None = None, every: float | None = None
) -> Iterator[ReportProgress]:
    """Show that work is in progress, its time, and the time left where that is known.

    In a terminal nothing remains when it ends.

    Parameters
    ----------
    what
        The work, in a few words.
    limit
        Seconds after which work that is not steady is ended.
    every
        Seconds between the lines that are written if stderr is not a terminal, as in logs; None
        for no lines.
    """
    console = Console(stderr=True)
    columns = progress_columns(console, TimeElapsedColumn())
    time_left = TimeLeft(limit)
    logged = time.monotonic()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None, left="")

        def report(phase: str, done: int, total: int, *, steady: bool = True) -> None:
            left = time_left.said(done, total, steady=steady)
            described = f"{what}: {phase}"
            nonlocal logged
            quiet = console.is_terminal or every is None
            if not quiet and time.monotonic() - logged >= (every or 0.0):
                logged = time.monotonic()
                share = f"{done:,} of {total:,} ({done / total:.0%})" if total else f"{done:,}"
                say(", ".join(part for part in (f"{described}: {share}", left) if part))
            bar.update(task, description=described, completed=done, total=total or None, left=left)

        yield report


@contextmanager
def stopped_by_interrupt(answer: str) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets; a second one ends the command.

    Parameters
    ----------
    answer
        What the first one says on stderr.
    """
    stop, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)
        # buffered output must not be entered again from a handler
        os.write(2, f"{answer}\n".encode())

    handled = callable(before) and threading.current_thread() is threading.main_thread()
    if handled:
        signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        if handled:
            signal.signal(signal.SIGINT, before)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report in one sentence why a file could not be written."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from None


def write(path: Path, text: str) -> None:
    """Write a text file, atomically; ``-`` is stdout."""
    if str(path) == "-":
        typer.echo(text, nl=not text.endswith("\n"))
        return
    from cluster_model.files import write_atomically

    with writing(path):
        write_atomically(path, lambda f: f.write(text.encode()))


def check_outputs(
    inputs: Mapping[str, Path | None],
    outputs: Mapping[str, Path | None],
    *,
    stdout: bool = False,
) -> None:
    """Check before any work that no file is both read and written, or written twice.

    Parameters
    ----------
    inputs, outputs
        Option or argument -> the file given for it.
    stdout
        Whether an output may be ``-``, which is stdout.

    Raises
    ------
    CommandError
        Naming both options and the file.
    """
    seen = {
        _identity(path): name
        for name, path in inputs.items()
        if path is not None and str(path) != "-"
    }
    for name, path in outputs.items():
        if path is None:
            continue
        if str(path) == "-" and not stdout:
            raise CommandError(f"{name}: - found, a file expected (/dev/stdout is one)")
        # a pipe or a device may be written to twice
        if path.exists() and not (path.is_file() or path.is_dir()):
            continue
        other = seen.setdefault(_identity(path), name)
        if other != name:
            raise CommandError(f"{name}: {path} found, which {other} names too, another expected")


def _identity(path: Path) -> object:
    """Equal for all names of one file, including links."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return os.path.realpath(path)
    return found.st_dev, found.st_ino
