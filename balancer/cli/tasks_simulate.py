"""``counterpoise tasks simulate``: plays a scenario of instances that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from balancer.cli.layout import Rows
from balancer.cli.tasks import Target
from balancer.cli.terminal import AsJson, check_outputs, out, print_json, working, write
from metrics_reporter.quantities import amount, percent, plural, rounded

if TYPE_CHECKING:
    from balancer.assignment.simulation import Simulation, Status

_ROUNDS = 40


def simulate(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO",
            help="Scenario file, YAML or JSON: a state file with rates and changes.",
            show_default=False,
        ),
    ],
    target: Target = "kafka",
    worst: Annotated[
        int, typer.Option(min=0, help="How many of the least available tasks to show.")
    ] = 10,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw what happened into this file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Simulate instances that join, leave, crash and come back.

    Shows for how long tasks are not processed and why, how many rebalances it takes until the
    application is balanced again, and how many records are restored for it.

    Example: `counterpoise tasks simulate scenario.yaml --picture scenario.svg`
    """
    from balancer.assignment import TaskAssignor, simulation
    from balancer.assignment.scenario import load_scenario

    check_outputs({"SCENARIO": scenario, "--target": Path(target)}, {"--picture": picture})
    given = load_scenario(scenario)
    assignor = TaskAssignor(given.configs, target=target)
    changes = len(given.changes)
    with working("simulating") as report:
        found = simulation.simulate(
            given,
            assignor,
            lambda done, rebalances: report(
                plural(rebalances, "rebalance"), done, changes, steady=False
            ),
        )
    if picture is not None:
        from balancer.report.tasks import simulation_svg

        write(picture, simulation_svg(found))
    if json:
        print_json(_record(found, worst))
        return
    console = out()
    for line in summary(found):
        console.print(escape(line))
    for table in (_rebalances(found), _tasks(found, worst)):
        if len(table):
            console.print()
            console.print(table)
    if (more := len(found.rebalances) - _ROUNDS) > 0:
        console.print(f"and {plural(more, 'more rebalance', 'more rebalances')}: --json")


def _record(found: Simulation, worst: int) -> dict[str, Any]:
    """All rebalances, and the least available tasks, as JSON's types."""
    from balancer.assignment.simulation import Status

    return {
        "seconds": float(found.time[-1]),
        "settled": found.settled,
        "restored_records": float(found.restored.sum()),
        "followed_records": float(found.followed.sum()),
        "task_seconds": {
            status.name.lower(): float(found.seconds[:, status].sum()) for status in Status
        },
        "rebalances": [
            {
                "at": r.at,
                "probing": r.probing,
                "moved": int(r.moved),
                "cold": int(r.cold),
                "warmups": int(r.warmups),
                "movements": int(r.movements),
            }
            for r in found.rebalances
        ],
        "least_available": [
            {
                "task": str(found.scenario.state.task(t)),
                "availability": float(found.availability[t]),
                "restored_records": float(found.restored[t]),
            }
            for t in _least_available(found, worst)
        ],
    }


def _least_available(found: Simulation, worst: int) -> list[int]:
    import numpy as np

    from balancer.assignment.simulation import Status

    lost = found.seconds.sum(axis=1) - found.seconds[:, Status.PROCESSING]
    return [t for t in np.argsort(-lost, kind="stable")[:worst].tolist() if lost[t] > 0]


def summary(found: Simulation) -> list[str]:
    """What happened, in a few sentences."""
    from balancer.assignment.simulation import Status

    total, seconds = found.seconds.sum(), found.seconds.sum(axis=0)
    read = amount(float(found.restored.sum()), "")
    changes = len(found.scenario.changes)
    lines = [
        f"{_time(float(found.time[-1]))}: {plural(changes, 'change')} of the membership, "
        f"{plural(len(found.rebalances), 'rebalance')}, at most {found.rounds} after one change"
        + ("" if found.settled else "; it did not come to rest"),
        f"{read} records restored; {amount(float(found.followed.sum()), '')} more read by copies "
        "that were current",
    ]
    if total > 0:
        lines.append(
            f"tasks were processed {percent(seconds[Status.PROCESSING] / total)} of the time"
        )
    lines += [
        f"  {words}: {rounded(seconds[status], 6)} task-seconds"
        for status, words in _causes()
        if seconds[status] > 0
    ]
    if found.avoidable.sum() > 0:
        lines.append(
            "  of which a member was within the acceptable lag for "
            f"{rounded(found.avoidable.sum(), 6)} task-seconds"
        )
    return lines


def _rebalances(found: Simulation) -> Rows:
    shown = Rows(
        "at",
        "why",
        "tasks moved>",
        "copies to restore>",
        "warm-ups>",
        "left to move>",
        title="Rebalances",
    )
    for n, r in enumerate(found.rebalances[:_ROUNDS]):
        why = "probing" if r.probing else "start" if n == 0 and r.at == 0 else "membership"
        shown.add(_time(r.at), why, *(f"{v:,}" for v in (r.moved, r.cold, r.warmups, r.movements)))
    return shown


def _tasks(found: Simulation, worst: int) -> Rows:
    causes = [(status, words) for status, words in _causes() if found.seconds[:, status].any()]
    headers = ("processed>", *(f"{words}>" for _, words in causes), "records restored>")
    shown = Rows("task", *headers, title="Least available tasks")
    for t in _least_available(found, worst):
        shown.add(
            str(found.scenario.state.task(t)),
            percent(float(found.availability[t])),
            *(f"{rounded(found.seconds[t, status], 6)} s" for status, _ in causes),
            amount(float(found.restored[t]), ""),
        )
    return shown


def _time(seconds: float) -> str:
    """A time in hours, minutes and seconds.

    Examples
    --------
    >>> _time(0.25), _time(3661)
    ('0:00:00.25', '1:01:01')
    """
    hours, rest = divmod(round(seconds, 3), 3600)
    minutes, left = divmod(rest, 60)
    whole, part = divmod(round(left, 3), 1)
    fraction = f"{part:.3g}"[1:] if part else ""
    return f"{int(hours)}:{int(minutes):02}:{int(whole):02}{fraction}"


def _causes() -> Sequence[tuple[Status, str]]:
    """In the order of a task's life: what it is called, and what it stands for."""
    from balancer.assignment.simulation import Status

    return (
        (Status.UNASSIGNED, "no instance"),
        (Status.UNNOTICED, "crash not noticed yet"),
        (Status.HANDOVER, "handed over"),
        (Status.RESTORING, "restoring"),
        (Status.CATCHING_UP, "restoring the last records"),
    )
