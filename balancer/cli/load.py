"""``counterpoise load``: what is where now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from balancer.cli.layout import Rows, Widest
from balancer.cli.plugins import SnapshotOption
from balancer.cli.snapshot import (
    AttributesFile,
    Bootstrap,
    CapacityFile,
    CommandConfig,
    MetricsTopic,
    PartialView,
    Timeout,
    read_cluster,
    warn,
)
from balancer.cli.terminal import CommandError, out, print_json, working
from cluster_model.units import COUNTS, column_title, quantity
from metrics_reporter.quantities import amount, percent, plural, times

if TYPE_CHECKING:
    from balancer.inspection.load import (
        BrokerLoad,
        DiskLoad,
        Figure,
        PartitionLoad,
        RackLoad,
        TopicLoad,
        Totals,
    )

VIEW = "What to show"
# A figure that nobody measured.
_UNKNOWN = "–"


def load(
    snapshot: Annotated[
        Path | None,
        typer.Argument(
            help="Snapshot file: .json, .npz, or a format of an installed reader; - for stdin.",
            show_default=False,
        ),
    ] = None,
    snapshot_option: SnapshotOption = None,
    bootstrap_server: Bootstrap = None,
    capacity: CapacityFile = None,
    attributes: AttributesFile = None,
    command_config: CommandConfig = None,
    metrics_topic: MetricsTopic = None,
    partial_view: PartialView = False,
    timeout: Timeout = 10.0,
    topics: Annotated[
        bool, typer.Option("--topics", rich_help_panel=VIEW, help="The busiest topics.")
    ] = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", rich_help_panel=VIEW, help="The busiest partitions.")
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="ID", rich_help_panel=VIEW, help="One broker: its disks, topics, partitions."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=VIEW, help="The partitions of one topic."),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=VIEW,
            help="One resource in detail: amounts, capacities, shares.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=VIEW,
            help="Fullest first, by a resource, replicas or leaders. Default: brokers by rack; "
            "topics and partitions by --resource, or the first resource.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            rich_help_panel=VIEW,
            help="Maximum number of rows. Default: 40 brokers, 10 topics and partitions.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", rich_help_panel=VIEW, help="Print all figures as JSON.")
    ] = False,
) -> None:
    """Show what is where now: the load of brokers, racks, disks, topics and partitions.

    Each figure is an amount, a share of capacity, and a multiple of the fair share, which is
    what a broker would carry in a perfectly balanced cluster, given its capacity.

    Example: `counterpoise load cluster.json`

    Example: `counterpoise load --bootstrap-server localhost:9092 --resource disk --sort disk`

    Example: `counterpoise load cluster.json --broker 3 --limit 20`
    """
    from balancer.composition.proposal import concerns
    from balancer.inspection.load import ClusterLoad

    given = [
        name
        for name, value in (
            ("--topics", topics),
            ("--partitions", partitions),
            ("--broker", broker is not None),
            ("--topic", topic is not None),
        )
        if value
    ]
    if len(given) > 1:
        raise CommandError(f"{' and '.join(given)} given, at most one of them expected")
    cluster, distrust = read_cluster(
        snapshot,
        bootstrap_server,
        capacity=capacity,
        attributes=attributes,
        command_config=command_config,
        metrics_topic=metrics_topic,
        partial_view=partial_view,
        timeout=timeout,
        snapshot_option=snapshot_option,
    )
    with working("adding up"):
        found = ClusterLoad(cluster, distrust)
        shown = (found.known(resource),) if resource is not None else found.columns
        order = sort or resource
    if order is not None:
        order = found.known(order)
    totals = found.totals()
    content: dict[str, Any] = {"cluster": totals}
    parts: list[RenderableType] = []
    # on one broker or topic the ten busiest are a summary, and all of them are asked for by name
    few = 10 if limit is None else limit
    if topics:
        rows = found.topics(sort=order, limit=few if not json else limit)
        content["topics"] = rows
        parts = [_topics(rows, shown, f"of {totals.topics:,}")]
    elif partitions or topic is not None:
        part = found.partitions(sort=order, limit=few if not json else limit, topic=topic)
        content["partitions"] = part
        of = f"of {topic if topic is not None else format(totals.partitions, ',')}"
        parts = [_partitions(part, shown, of)]
    elif broker is not None:
        (one,) = found.brokers(only=(broker,))
        disks = found.disks(broker)
        held = found.topics(sort=order, limit=few if not json else limit, broker=broker)
        busy = found.partitions(sort=order, limit=few if not json else limit, broker=broker)
        content |= {"broker": one, "disks": disks, "topics": held, "partitions": busy}
        parts = [_broker(one, shown)]
        if disks:
            parts += ["", _disks(disks)]
        parts += ["", _topics(held, shown, f"on broker {broker}")]
        parts += ["", _partitions(busy, shown, f"on broker {broker}")]
    else:
        most = limit if limit is not None else None if json else 40
        brokers = found.brokers(sort=order if sort is not None else None, limit=most)
        racks, disks = found.racks(), found.disks()
        content |= {"racks": racks, "brokers": brokers, "disks": disks}
        parts = [_totals(totals, shown), "", _racks(racks, shown), "", _brokers(brokers, shown)]
        if len(brokers) < totals.brokers:
            left = totals.brokers - len(brokers)
            parts.append(f"and {plural(left, 'more broker', 'more brokers')}: --limit N, --sort")
    if json:
        print_json(_plain(content))
        return
    for text in concerns(cluster):
        warn(text)
    out().print(Group(_head(totals), "", *parts))


def _plain(value: Any) -> Any:
    """Rows as JSON's types."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.model_dump(mode="json")


def _head(totals: Totals) -> Text:
    name = "" if totals.cluster_id is None else f"cluster {totals.cluster_id}, "
    taken = ""
    if totals.taken_ms is not None:
        at = datetime.fromtimestamp(totals.taken_ms / 1000, UTC)
        taken = f", as of {at:%Y-%m-%d %H:%M:%S} UTC"
    wrong = [
        plural(count, noun, nouns)
        for count, noun, nouns in (
            (totals.brokers_not_alive, "broker down", "brokers down"),
            (totals.disks_offline, "disk offline", "disks offline"),
            (totals.replicas_offline, "replica offline", "replicas offline"),
            (
                totals.partitions_without_leader,
                "partition without leader",
                "partitions without leader",
            ),
            (
                totals.partitions_reassigning,
                "partition under reassignment",
                "partitions under reassignment",
            ),
        )
        if count
    ]
    text = Text(
        f"{name}{plural(totals.brokers, 'broker')}, {plural(totals.racks, 'rack')}, "
        f"{plural(totals.topics, 'topic')}, {plural(totals.partitions, 'partition')}, "
        f"{plural(totals.replicas, 'replica')}{taken}"
    )
    if wrong:
        text.append(f"\n{', '.join(wrong)}", style="bold red")
    return text


def _totals(totals: Totals, shown: tuple[str, ...]) -> Rows:
    table = Rows(
        "resource", "total>", "of capacity>", "fullest broker", "carries>", "of capacity>",
        "× fair share>", title="The cluster",
    )  # fmt: skip
    for name in shown:
        total = totals.figures[name]
        table.add(
            escape(column_title(name)),
            quantity(name, total.amount),
            _share(total.of_capacity),
            escape(str(total.fullest_broker)),
            quantity(name, total.fullest.amount),
            _share(total.fullest.of_capacity),
            _times(total.fullest),
        )
    return table


def _racks(rows: list[RackLoad], shown: tuple[str, ...]) -> Widest:
    return Widest(*(_rack_table(rows, shown, amounts) for amounts in (True, False)))


def _rack_table(rows: list[RackLoad], shown: tuple[str, ...], amounts: bool) -> Rows:
    table = Rows("rack", "brokers>", *_headers(shown), title="Racks")
    for row in rows:
        brokers = f"{row.brokers:,}" + (f" ({row.not_alive} down)" if row.not_alive else "")
        table.add(escape(row.rack), brokers, *_cells(row.figures, shown, amounts))
    return table


def _brokers(rows: list[BrokerLoad], shown: tuple[str, ...]) -> Widest:
    return Widest(*(_broker_table(rows, shown, amounts) for amounts in (True, False)))


def _broker_table(rows: list[BrokerLoad], shown: tuple[str, ...], amounts: bool) -> Rows:
    states = any(row.state != "alive" for row in rows)
    table = Rows(
        "broker", "rack", *(["state"] if states else []), *_headers(shown), title="Brokers"
    )
    for row in rows:
        state = "" if row.state == "alive" else f"[red]{row.state}[/]"
        table.add(
            escape(str(row.broker)),
            escape(row.rack),
            *([state] if states else []),
            *_cells(row.figures, shown, amounts),
        )
    return table


def _headers(shown: tuple[str, ...]) -> list[str]:
    """The columns of figures: of one resource each figure has its own."""
    if len(shown) == 1:
        return [f"{column_title(shown[0])}>", "of capacity>", "× fair share>"]
    return [f"{column_title(name)}>" for name in shown]


def _cells(figures: Mapping[str, Figure], shown: tuple[str, ...], amounts: bool) -> list[str]:
    if len(shown) == 1:
        if (figure := figures.get(shown[0])) is None:
            return [_UNKNOWN, "", ""]
        return [quantity(shown[0], figure.amount), _share(figure.of_capacity), _times(figure)]
    return [_cell(name, figures[name], amounts) if name in figures else _UNKNOWN for name in shown]


def _cell(name: str, figure: Figure, amounts: bool) -> str:
    """The amount of a count, the share of capacity of a resource; and the fair shares."""
    parts = [quantity(name, figure.amount)]
    if name not in COUNTS and figure.of_capacity is not None:
        parts = [*(parts if amounts else []), f"{100 * figure.of_capacity:.0f} %"]
    return "  ".join([*parts, _times(figure)])


def _broker(row: BrokerLoad, shown: tuple[str, ...]) -> RenderableType:
    table = Rows("resource", "carries>", "capacity>", "of capacity>", "× fair share>")
    for name in shown:
        size = row.capacity.get(name)
        carried, *shares = _cells(row.figures, (name,), True)
        room = "" if size is None else quantity(name, size)
        table.add(escape(column_title(name)), carried, room, *shares)
    host = "" if row.host == row.rack else f", host {row.host}"
    return Group(
        Text(f"Broker {row.broker}, rack {row.rack}{host}, {row.state}", style="bold"), table
    )


def _disks(rows: list[DiskLoad]) -> Rows:
    table = Rows("disk", "state", "replicas>", "used>", "capacity>", "of capacity>", title="Disks")
    for row in rows:
        share = row.used / row.capacity if row.used is not None and row.capacity else None
        state = row.state if row.state == "alive" else f"[red]{row.state}[/]"
        table.add(
            escape(row.path), state, f"{row.replicas:,}",
            "" if row.used is None else amount(row.used), amount(row.capacity), _share(share),
        )  # fmt: skip
    return table


def _topics(rows: list[TopicLoad], shown: tuple[str, ...], of: str) -> Rows:
    sums = [name for name in shown if name not in COUNTS]
    table = Rows(
        "topic", "partitions>", "replicas>", *(f"{column_title(name)}>" for name in sums),
        title=f"Busiest topics {of}: what they carry, and of the cluster",
    )  # fmt: skip
    for row in rows:
        table.add(
            escape(row.topic),
            f"{row.partitions:,}",
            f"{row.replicas:,}",
            *(
                f"{quantity(n, row.amounts[n])}  {percent(row.of_cluster[n])}"
                if n in row.amounts
                else _UNKNOWN
                for n in sums
            ),
        )
    return table


def _partitions(rows: list[PartitionLoad], shown: tuple[str, ...], of: str) -> Rows:
    sums = [name for name in shown if name not in COUNTS]
    table = Rows(
        "partition", "leader", "brokers", *(f"{column_title(name)}>" for name in sums),
        title=f"Busiest partitions {of}: what their leader carries",
    )  # fmt: skip
    for row in rows:
        table.add(
            escape(row.partition),
            "[red]none[/]" if row.leader is None else escape(str(row.leader)),
            escape(",".join(map(str, row.replicas))),
            *(
                quantity(n, row.leader_amounts[n]) if n in row.leader_amounts else _UNKNOWN
                for n in sums
            ),
        )
    return table


def _share(share: float | None) -> str:
    return "" if share is None else percent(share)


def _times(figure: Figure) -> str:
    return "–" if figure.fair_shares is None else times(figure.fair_shares)
