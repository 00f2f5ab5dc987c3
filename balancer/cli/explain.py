"""``counterpoise explain``: the reasons behind a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from balancer.cli.files import plan_from, snapshot_from
from balancer.cli.plugins import SnapshotOption
from balancer.cli.terminal import AsJson, CommandError, out, print_json, working
from metrics_reporter.quantities import cost_amount, plural
from metrics_reporter.suggestions import hint

if TYPE_CHECKING:
    from balancer import Action, PlanDocument

# Maximum number of names in a message.
_SHOWN = 10


def explain(
    plan: Annotated[
        Path, typer.Argument(help="A plan, from `counterpoise propose -o`; - for stdin.")
    ],
    partition: Annotated[
        str | None, typer.Option(metavar="TOPIC-N", help="Show only the actions of this partition.")
    ] = None,
    broker: Annotated[
        str | None, typer.Option(metavar="ID", help="Show only the actions to or from this broker.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Number of actions to show.")] = 10,
    why_not: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="TOPIC-N ID",
            help="Answer why this partition is not on this broker at the end of the plan.",
        ),
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option(help="The snapshot that the plan was made from.")
    ] = None,
    snapshot_option: SnapshotOption = None,
    json: AsJson = False,
) -> None:
    """Explain a plan: what each goal gains, the load of brokers, and why goals stay unmet.

    The number after a goal is the rise, on a scale of 100, of the lowest contentment among
    the brokers that the action touches.

    Example: `counterpoise explain plan.json --partition orders-3`
    """
    from balancer.cli import tables

    if why_not is None and (snapshot is not None or snapshot_option):
        raise CommandError("--snapshot: goes with --why-not PARTITION BROKER, which is not given")
    with working("reading the plan"):
        found = plan_from(plan)
    if why_not is not None:
        _why_not(found, why_not, snapshot, snapshot_option, json)
        return
    numbered = list(enumerate(found.actions, 1))
    console, unit = out(), found.summary.cost_unit
    if partition is None and broker is None:
        best = sorted(numbered, key=lambda item: -sum(item[1].helped.values()))[:top]
        if json:
            document = found.model_dump(mode="json", exclude={"actions", "replicas"})
            print_json({**document, "actions": _records(best)})
            return
        console.print(tables.report(found))
        if best:
            console.print()
            console.print(tables.actions(best, unit, "Actions that help most"))
        return
    if partition is not None:
        topic, number = _partition(partition)
        _check_partition(found, partition, (topic, number))
        numbered = [(i, a) for i, a in numbered if (a.topic, a.partition) == (topic, number)]
    if broker is not None:
        id_ = _broker_of(found, broker)
        numbered = [(i, a) for i, a in numbered if id_ in (a.source, a.destination)]
    if json:
        shown = numbered if partition is not None else numbered[:top]
        print_json({"found": len(numbered), "actions": _records(shown)})
        return
    if broker is not None:
        console.print(_copies([a for _, a in numbered], unit, id_, partition), markup=False)
    what = " of ".join(filter(None, [partition, None if broker is None else f"broker {broker}"]))
    if not numbered:
        console.print(f"The plan does nothing with {what}.", markup=False)
        return
    shown = numbered if partition is not None else numbered[:top]
    title = f"{plural(len(numbered), 'action')} with {what}"
    if len(shown) < len(numbered):
        title += f", the first {len(shown)} of them"
    console.print(tables.actions(shown, unit, title, all_goals=partition is not None))


def _records(numbered: Sequence[tuple[int, Action]]) -> list[dict[str, Any]]:
    """Actions with their place in the plan, as JSON's types."""
    return [{"step": step, **action.model_dump(mode="json")} for step, action in numbered]


def _why_not(
    plan: PlanDocument,
    asked: tuple[str, str],
    snapshot: Path | None,
    options: Sequence[str] | None,
    json: bool,
) -> None:
    """Answer why a partition is not on a broker."""
    from balancer.cli import tables
    from balancer.planning.why_not import end_of, why_not
    from balancer.verification.identity import identity_faults

    name, broker = asked
    _partition(name, "--why-not")
    if snapshot is None:
        raise CommandError(
            "--why-not: needs the snapshot that the plan was made from, --snapshot FILE"
        )
    with working("reading the snapshot"):
        cluster = snapshot_from(snapshot, options)
    for fault in identity_faults(cluster, plan):
        raise CommandError(f"--snapshot: {snapshot}: {fault.text}")
    ids = {str(id_): id_ for id_ in cluster.broker_ids.tolist()}
    if broker not in ids:
        known = ", ".join([*ids][:_SHOWN]) + (", …" if len(ids) > _SHOWN else "")
        raise CommandError(
            f"--why-not: broker {broker} found, one of {known} expected{hint(broker, ids)}"
        )
    answers = why_not(end_of(cluster, plan), name, ids[broker])
    if json:
        print_json({"partition": name, "broker": ids[broker], "answers": [*map(asdict, answers)]})
        return
    console = out()
    if not answers:
        console.print(f"Broker {broker} leads {name} at the end of the plan.", markup=False)
        return
    console.print(tables.why_not(answers))


def _copies(actions: Sequence[Action], unit: str, broker: int | str, partition: str | None) -> str:
    """What a broker receives, sends, and moves between its disks, as a sentence."""
    within = sum(a.cost for a in actions if a.source == a.destination == broker)
    comes = sum(a.cost for a in actions if a.source != broker == a.destination)
    leaves = sum(a.cost for a in actions if a.kind == "move" and a.source == broker)
    of = "" if partition is None else f" of {partition}"
    if unit != "bytes":
        return (
            f"Broker {broker}: moves{of} to it cost {cost_amount(comes, unit)}, moves from it "
            f"{cost_amount(leaves, unit)}."
        )
    disks = f", {cost_amount(within, unit)} are copied between its disks" if within else ""
    return (
        f"Broker {broker}: {cost_amount(comes, unit)}{of} are copied to it, "
        f"{cost_amount(leaves, unit)} leave it{disks}."
    )


def _partition(name: str, option: str = "--partition") -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    if not topic or not number.isdecimal():
        raise CommandError(f"{option}: {name!r} found, TOPIC-NUMBER like orders-3 expected")
    return topic, int(number)


def _broker_of(plan: PlanDocument, given: str) -> int | str:
    """The id of a broker that the plan names."""
    requested = ("brokers", "destinations", "excluded_brokers_for_replicas")
    named: set[int | str] = {
        *(b for a in plan.actions for b in (a.source, a.destination) if b is not None),
        *(b for brokers in plan.replicas.values() for b in brokers),
        *(b for name in requested for b in plan.operation.get(name) or ()),
        *plan.operation.get("excluded_brokers_for_leadership", ()),
    }
    found = {str(b): b for b in sorted(named)}
    if given not in found:
        raise _not_in_the_plan("--broker", given, list(found))
    return found[given]


def _check_partition(plan: PlanDocument, name: str, partition: tuple[str, int]) -> None:
    named = sorted({(a.topic, a.partition) for a in plan.actions})
    if partition not in named:
        raise _not_in_the_plan("--partition", repr(name), [f"{t}-{n}" for t, n in named])


def _not_in_the_plan(option: str, found: str, named: Sequence[str]) -> CommandError:
    """The error for something the plan does not name; it may still exist in the cluster."""
    some = ", ".join(named[:_SHOWN]) or "none"
    more = f" and {len(named) - _SHOWN:,} more" if len(named) > _SHOWN else ""
    return CommandError(
        f"{option}: {found} found, which the plan does not name; it names {some}{more}, and "
        "leaves all others alone" + hint(found.strip("'"), named)
    )
