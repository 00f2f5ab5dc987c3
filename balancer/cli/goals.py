"""``counterpoise goals``: lists and shows the available goals, and tests a custom one."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.markup import escape

from balancer.cli.commands import DONE, UNMET
from balancer.cli.layout import Rows
from balancer.cli.plugins import fields, fields_of, fields_table, plain
from balancer.cli.terminal import AsJson, out, print_json, working
from metrics_reporter.documents import first_problem
from metrics_reporter.plugins import fault_of
from metrics_reporter.quantities import plural
from metrics_reporter.suggestions import hint

if TYPE_CHECKING:
    from goals import Goal


def list_all(json: AsJson = False) -> None:
    """List goals and the profiles that combine them.

    Example: `counterpoise goals list`
    """
    from goals import profiles
    from goals.registry import PLUGINS

    table = Rows("goal", "judges each", "kind", "content if~")
    found, wrong = PLUGINS.loadable()
    if json:
        goals = [
            {
                "goal": name,
                "scope": kind.scope.name,
                "hard": kind.model_fields["hard"].default,
                "content_if": _first_line(kind),
            }
            for name, kind in found.items()
        ]
        print_json({"goals": goals, "not_loadable": wrong, "profiles": list(profiles())})
        return
    for name, kind in found.items():
        hard = "hard" if kind.model_fields["hard"].default else "soft"
        table.add(name, kind.scope.name.replace("_", " in "), hard, escape(_first_line(kind)))
    for name, problem in wrong.items():
        table.add(escape(name), "", "", f"[red]{escape(problem)}[/]")
    console = out()
    console.print(table)
    console.print(f"\nProfiles: {', '.join(profiles())}. Look inside: counterpoise goals show NAME")


def show(
    name: Annotated[str, typer.Argument(help="A goal or a profile.")], json: AsJson = False
) -> None:
    """Show the meaning and fields of a goal, or the goals of a profile.

    Example: `counterpoise goals show UsageDistribution`
    """
    from balancer.problem.tiers import with_availability
    from goals import GoalError, load_goals, profiles
    from goals.registry import PLUGINS

    console = out()
    if name in profiles():
        # the tiers of a plan: availability comes first
        tiers = with_availability(load_goals(name))
        if json:
            columns = ("name", "hard", "tier", "weight")
            print_json(
                {
                    "profile": name,
                    "goals": [{field: getattr(goal, field) for field in columns} for goal in tiers],
                }
            )
            return
        for goal in tiers:
            kind = "hard" if goal.hard else "soft"
            console.print(
                f"tier {goal.tier}  {kind}  weight {goal.weight:g}  {goal.name}", markup=False
            )
        return
    if name not in PLUGINS.names():
        known = [*PLUGINS.names(), *profiles()]
        raise GoalError(
            f"goal {name!r} found, one of {', '.join(known)} expected{hint(name, known)}"
        )
    found = PLUGINS.get(name)
    if json:
        print_json(
            {"goal": name, "about": plain(inspect.getdoc(found) or ""), "fields": fields(found)}
        )
        return
    console.print(f"{name}\n\n{plain(inspect.getdoc(found) or '')}\n", markup=False)
    console.print(fields_table(found))


def check(
    name: Annotated[str, typer.Argument(help="A goal, or module:Class for a goal of your own.")],
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="FIELD=VALUE", help="A field of the goal; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the clusters and actions.")] = 0,
    json: AsJson = False,
) -> None:
    """Test on small clusters whether a goal behaves as the optimiser requires.

    Exits with 0 if it does, with 1 if it breaks a requirement.

    Example: `counterpoise goals check my_goals:FewReplicas --field limit=10`
    """
    from goals.testing import check_goal

    goal = _goal(name, field or [])
    with working(f"trying {goal.name}"):
        report = check_goal(goal, seed=seed)
    if json:
        print_json({"ok": report.ok, **asdict(report)})
        raise typer.Exit(DONE if report.ok else UNMET)
    console = out()
    for problem in report.problems:
        console.print(f"[red]broken[/]  {escape(problem)}")
    for note in report.notes:
        console.print(f"[yellow]note[/]    {escape(note)}")
    console.print(
        f"{report.goal} {'conforms' if report.ok else 'does not conform'}: "
        f"{plural(report.clusters, 'cluster')}, {plural(report.scores, 'score')}, "
        f"{plural(report.actions, 'action')}",
        markup=False,
    )
    raise typer.Exit(DONE if report.ok else UNMET)


def _goal(name: str, given: list[str]) -> Goal:
    from goals import GoalError, load_goals
    from goals.registry import PLUGINS

    kind = PLUGINS.get(name) if ":" not in name else _own(name)
    fields = fields_of("--field", given, kind)
    if "goal" in fields and "goal" not in kind.model_fields:
        raise GoalError("--field goal: a field of the goal expected; the argument names the goal")
    if ":" not in name:
        (goal,) = load_goals({"goals": [{"goal": name, **fields}]})
        return goal
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise GoalError(f"goal {name}, field {first_problem(error)}") from None


def _own(name: str) -> type[Goal]:
    from goals import Goal, GoalError

    module, _, attribute = name.partition(":")
    # The module is expected in the current directory.
    sys.path.insert(0, os.getcwd())
    try:
        with fault_of(f"goal {name} cannot be loaded", GoalError):
            found = getattr(importlib.import_module(module), attribute)
    finally:
        sys.path.pop(0)
    if not (inspect.isclass(found) and issubclass(found, Goal)):
        raise GoalError(f"goal {name}: {found!r} found, a subclass of goals.Goal expected")
    return found


def _first_line(kind: type[Goal]) -> str:
    return plain(inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
