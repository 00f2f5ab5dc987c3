"""``counterpoise tasks``: where the tasks of a stream application run, and why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from balancer.cli.commands import DONE, UNMET
from balancer.cli.layout import Rows
from balancer.cli.terminal import AsJson, check_outputs, out, print_json, working, write
from metrics_reporter.documents import json_text
from metrics_reporter.quantities import plural, rounded

if TYPE_CHECKING:
    from balancer.assignment import ApplicationState, TaskAssignment, TaskId

# Maximum number of tasks that a cell lists.
_SHOWN = 12

State = Annotated[
    Path,
    typer.Argument(
        metavar="STATE",
        help="State file, YAML or JSON: instances with their lags, tasks, configuration.",
        show_default=False,
    ),
]


Target = Annotated[
    str,
    typer.Option(
        metavar="kafka|PROFILE|FILE",
        help="Where tasks are to be in the end: as Kafka's assignor places them, or as goals say.",
    ),
]


def assign(
    state: State,
    target: Target = "kafka",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the assignment, JSON."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Assign tasks so that each keeps running where its state is.

    A task whose instance is to change stays until the other one has caught up; until then that
    one restores a warm-up copy. How many may do so at a time, and what counts as caught up, is
    part of the state file, under Kafka's names.

    Exits with 1 if goals give the target, and a hard one or a stated capacity is not met.

    Example: `counterpoise tasks assign state.yaml -o assignment.json`
    """
    from balancer.assignment import TaskAssignor, load_state

    check_outputs({"STATE": state, "--target": Path(target)}, {"--output": output})
    given, configs = load_state(state)
    with working("assigning"):
        found = TaskAssignor(configs, target).assign(given)
    if output is not None or json:
        text = json_text({**found.to_dict(), "reasons": _reasons(found)}, indent=1)
        if output is not None:
            write(output, text + "\n")
        if json:
            typer.echo(text)
    if not json:
        console = out()
        for line in _summary(found):
            console.print(line, markup=False)
        console.print()
        console.print(_by_instance(found))
    raise typer.Exit(UNMET if any(goal.hard for goal in found.unmet) else DONE)


def explain(
    state: State,
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="SUBTOPOLOGY_PARTITION, like 0_3.",
            show_default=False,
        ),
    ],
    target: Target = "kafka",
    json: AsJson = False,
) -> None:
    """Explain why a task runs where it does, and what each instance has of its state.

    Example: `counterpoise tasks explain state.yaml 0_3`
    """
    from balancer.assignment import (
        AssignmentError,
        Explanation,
        TaskAssignmentError,
        TaskAssignor,
        TaskId,
        load_state,
    )

    given, configs = load_state(state)
    id_ = TaskId.parse(task)
    index = next((t for t in range(given.n_tasks) if given.task(t) == id_), None)
    if index is None:
        raise TaskAssignmentError(
            f"task {task} found, one of the {plural(given.n_tasks, 'task')} in {state} expected",
            AssignmentError.UNKNOWN_TASK_ID,
        )
    with working("assigning"):
        found = TaskAssignor(configs, target).assign(given)
    reason = Explanation(found).of(index)
    if json:
        print_json({"task": task, "reason": reason, "copies": _copies(found, index)})
        return
    console = out()
    console.print(reason, markup=False)
    if given.stateful[index]:
        console.print()
        console.print(_copies_table(_copies(found, index)))


def verify(
    state: State,
    assignment: Annotated[
        Path,
        typer.Argument(
            metavar="ASSIGNMENT",
            help="Assignment file, JSON or YAML, such as one from `tasks assign -o`.",
            show_default=False,
        ),
    ],
    json: AsJson = False,
) -> None:
    """Check an assignment as Kafka checks that of a custom assignor, and more.

    Names the first error as Kafka does. Exits with 0 if there is none, else with 1.

    Example: `counterpoise tasks verify state.yaml assignment.json`
    """
    from balancer.assignment import check_assignment, load_state

    given, _ = load_state(state)
    error = check_assignment(assignment, given)
    if json:
        print_json({"valid": error is None, "error": None if error is None else str(error)})
        raise typer.Exit(DONE if error is None else UNMET)
    console = out()
    if error is not None:
        console.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(UNMET)
    console.print(f"{assignment}: valid, {plural(given.n_tasks, 'task')}", markup=False)
    raise typer.Exit(DONE)


def _reasons(found: TaskAssignment) -> dict[str, str]:
    from balancer.assignment import Explanation

    explanation = Explanation(found)
    return {str(found.state.task(t)): explanation.of(t) for t in range(found.state.n_tasks)}


def _summary(found: TaskAssignment) -> Iterable[str]:
    s = found.state
    yield (
        f"{plural(s.n_tasks, 'task')} on {plural(s.n_instances, 'instance')}: "
        f"{plural(int((found.active == found.target).sum()), 'task runs', 'tasks run')} where "
        f"they are to, {plural(int(found.warmup.sum()), 'warm-up')}"
    )
    wait = found.followup_rebalance_ms
    if not s.offsets_known:
        yield "end offsets are not known: active tasks stay where they were"
    if wait is None:
        yield "no further rebalance needed"
    else:
        yield (
            f"look again in {rounded(wait / 1000, 6)} s: "
            f"{plural(found.movements, 'copy', 'copies')} not yet where they are to be"
        )
    if found.awaited:
        yield (
            f"{plural(found.awaited, 'copy', 'copies')} of instances that are away not made again "
            f"before standby_recovery_delay_ms, {found.configs.standby_recovery_delay_ms}"
        )
    for goal in found.unmet:
        yield f"{'hard goal' if goal.hard else 'goal'} not met: {goal.goal}: {goal.reason}"


def _by_instance(found: TaskAssignment) -> Rows:
    table = Rows("instance", "threads>", "active~", "standby~", "warm-up~")
    threads = found.state.capacity.tolist()
    for (id_, of), capacity in zip(found.tasks_by_instance().items(), threads, strict=True):
        cells = (_listed(of[role]) for role in ("active", "standby", "warmup"))
        table.add(escape(id_), str(capacity), *cells)
    return table


def _listed(of: list[TaskId]) -> str:
    some = " ".join(str(t) for t in of[:_SHOWN])
    return some if len(of) <= _SHOWN else f"{some} and {len(of) - _SHOWN:,} more"


def _copies_table(copies: list[dict[str, Any]]) -> Rows:
    table = Rows("instance", "copy", "lag>", "before", "copies per thread>")
    for row in copies:
        table.add(
            escape(row["instance"]),
            row["copy"],
            row["lag"],
            row["before"],
            f"{row['copies_per_thread']:,.3g}",
        )
    return table


def _copies(found: TaskAssignment, task: int) -> list[dict[str, Any]]:
    """What each instance has of a task, the instances without anything left out."""
    state = found.state
    roles = {int(found.active[task]): "active"}
    for at in (found.standby_task == task).nonzero()[0]:
        roles[int(found.standby_instance[at])] = "warm-up" if found.warmup[at] else "standby"
    lags = _lags(state, task)
    before = {
        int(state.previous_instance[at]): "active" if state.previous_active[at] else "standby"
        for at in (state.previous_task == task).nonzero()[0]
    }
    load = found.copies_per_thread()
    return [
        {
            "instance": state.instances[i],
            "copy": roles.get(i, ""),
            "lag": lags.get(i, f"{state.end_offset[task]:,} (no state)"),
            "before": before.get(i, ""),
            "copies_per_thread": float(load[i]),
        }
        for i in sorted({*roles, *lags, *before})
    ]


def _lags(state: ApplicationState, task: int) -> dict[int, str]:
    from balancer.assignment import RUNNING, UNKNOWN

    first, last = state.lag_offset[task : task + 2]
    codes = {RUNNING: "running", UNKNOWN: "unknown"}
    return {
        int(i): codes.get(int(lag), f"{lag:,}")
        for i, lag in zip(state.lag_instance[first:last], state.lag[first:last], strict=True)
    }
