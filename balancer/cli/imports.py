"""``counterpoise import``: turns configurations of other balancers into files of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding

from balancer.cli.terminal import CommandError, Console, out, say, write, writing
from balancer.composition.yaml_text import yaml_text
from metrics_reporter.documents import json_text, shown_name
from metrics_reporter.quantities import plural

if TYPE_CHECKING:
    from balancer.composition.cruise_control.conversion import Imported


def cruise_control(
    path: Annotated[
        Path,
        typer.Argument(help="cruisecontrol.properties, or the directory that it is in."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Directory for the files; without it, nothing is written.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there already.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Convert a configuration of Cruise Control, and say what became of each of its keys.

    Example: `counterpoise import cruise-control cruise-control/config -o counterpoise`
    """
    from balancer.composition.cruise_control.conversion import (
        CONFIGURATION,
        CONTROLLER_GOALS,
        import_cruise_control,
    )

    found = import_cruise_control(path)
    files = [] if output is None else _write(found, output, overwrite)
    if json:
        typer.echo(json_text(_record(found, files)))
    else:
        _show(found)
    if output is None:
        say(f"Nothing is written; -o DIR writes {', '.join(found.documents)}.")
    else:
        say(f"Written: {', '.join(map(str, files))}")
        say(f"Next:    counterpoise propose --config {output / CONFIGURATION}")
        if CONTROLLER_GOALS in found.documents:
            goals = f" --goals {output / CONTROLLER_GOALS}"
            say(f"         counterpoise run --config {output / CONFIGURATION}{goals}")


def _write(found: Imported, directory: Path, overwrite: bool) -> list[Path]:
    files = [directory / name for name in found.documents]
    there = [str(file) for file in files if file.exists()]
    if there and not overwrite:
        raise CommandError(f"{', '.join(there)} found, nothing written; --overwrite replaces them")
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    for file in files:
        title = f"From {shown_name(found.read[0].name)} of Cruise Control: counterpoise import."
        write(file, yaml_text(found.documents[file.name], title))
    return files


def _record(found: Imported, files: list[Path]) -> dict[str, Any]:
    return {
        "read": [str(path) for path in found.read],
        "written": [str(path) for path in files],
        "taken": [row._asdict() for row in found.taken],
        "without_counterpart": [row._asdict() for row in found.left],
        "unknown": [row._asdict() for row in found.unknown],
        "goals": [row._asdict() for row in found.goals],
        "implied": found.implied,
    }


def _show(found: Imported) -> None:
    console = out()
    console.print(
        f"{plural(len(found.keys), 'key')} of {' and '.join(map(str, found.read))}: "
        f"{len(found.taken)} taken, {len(found.left)} without a counterpart, "
        f"{len(found.unknown)} unknown",
        markup=False,
        soft_wrap=True,
    )
    console.print("\n[bold]Taken[/]")
    for row in found.taken:
        _entry(console, row.key, row.ours, row.note)
    console.print("\n[bold]Goals, by priority[/]")
    for goal in found.goals:
        _entry(console, goal.goal, ", ".join(goal.ours) or "none", goal.note)
    if found.implied:
        console.print("\n[bold]Written without a key, as Cruise Control's default[/]")
        for line in found.implied:
            console.print(Padding(escape(line), (0, 0, 0, 2), expand=False))
    console.print("\n[bold]Without a counterpart: why, or what to do instead[/]")
    reasons: dict[str, list[str]] = {}
    for left in found.left:
        reasons.setdefault(left.why, []).append(left.key)
    for why, keys in reasons.items():
        for key in keys:
            console.print(f"  {key}", markup=False, soft_wrap=True)
        console.print(Padding(escape(why), (0, 0, 0, 6), expand=False))
    if found.unknown:
        console.print("\n[bold]Unknown to Cruise Control[/]")
        for unknown in found.unknown:
            meant = "" if unknown.meant is None else f", did you mean {unknown.meant}?"
            line = f"  {unknown.key}, line {unknown.line}{meant}"
            console.print(line, markup=False, soft_wrap=True)


def _entry(console: Console, name: str, *lines: str) -> None:
    """A name, which is never broken, and what belongs to it in further lines."""
    console.print(f"  {name}", markup=False, soft_wrap=True)
    for line in lines:
        if line:
            console.print(Padding(escape(line), (0, 0, 0, 6), expand=False))
