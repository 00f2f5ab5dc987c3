"""What every command shares: consoles, errors in one sentence, progress, units for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from cluster_model import InputError
from metrics_reporter.errors import ReporterError

DONE, UNMET, BAD_INPUT = 0, 1, 2


class CommandError(InputError):
    """Options that cannot be used, or a file that cannot be written."""


class Commands(TyperGroup):
    """Commands that tell a person's mistake in one sentence on stderr, and exit with 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (InputError, ReporterError) as error:
            typer.echo(f"counterpoise: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(BAD_INPUT) from None


def out() -> Console:
    """Where answers go; as wide as they need where nobody watches."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


def say(line: str) -> None:
    """Tell something on stderr, so that stdout holds nothing but the answer."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(escape(line))


Report = Callable[[str, int, int], None]


@contextmanager
def working(what: str) -> Iterator[Report]:
    """Show that something is under way; yields a function of (phase, done, of all).

    Nothing is shown where stderr is not a terminal, and nothing stays when it ends.
    """
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)

        def report(phase: str, done: int, total: int) -> None:
            bar.update(task, description=f"{what}: {phase}", completed=done, total=total or None)

        yield report


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell in one sentence why a file could not be written."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from None


def write(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    from cluster_model.files import write_atomically

    with writing(path):
        write_atomically(path, lambda f: f.write(text.encode()))


def amount(value: float, unit: str = "B") -> str:
    """A number with a decimal prefix.

    Examples
    --------
    >>> amount(0), amount(1_500_000), amount(2e13, "B/s")
    ('0 B', '1.5 MB', '20 TB/s')
    """
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5 or prefix == "P":
            break
        value /= 1000
    return f"{value:.3g} {prefix}{unit}"


def quantity(column: str, value: float) -> str:
    """A value of a column of a plan (a resource or a count) with its unit.

    Examples
    --------
    >>> quantity("cpu", 250.0), quantity("disk", 3e9), quantity("leader_count", 7.0)
    ('250 %', '3 GB', '7')
    """
    if column == "disk":
        return amount(value)
    if column.startswith("network"):
        return amount(value, "B/s")
    return f"{value:.4g} %" if column == "cpu" else f"{value:.4g}"


def percent(share: float) -> str:
    """A share as a percentage, never rounded to 100 or 0 from below or above.

    Examples
    --------
    >>> percent(1.0), percent(0.99999), percent(1.075)
    ('100 %', '99.9 %', '107.5 %')
    """
    shown = round(100 * share, 1)
    if shown == 100 and share < 1:
        shown = 99.9
    return f"{shown:g} %"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1, "move"), plural(1200, "move")
    ('1 move', '1,200 moves')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
