"""``counterpoise history prepare``: validates records and aggregates them over windows."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from balancer.cli.history_options import (
    Cluster,
    Master,
    MeasuredCapacities,
    MetadataPath,
    Properties,
    start_spark,
)
from balancer.cli.history_records import (
    ColumnsFile,
    Records,
    RecordsFormat,
    open_records,
    record_format,
)
from balancer.cli.layout import Rows
from balancer.cli.spark_progress import spark_working
from balancer.cli.terminal import (
    AsJson,
    CommandError,
    check_outputs,
    out,
    print_json,
    say,
)
from metrics_reporter.quantities import plural

# Limits on windows whose product is a time that Spark can hold.
YEAR, MOST_WINDOWS = 366 * 86_400, 1_000_000
# Directories of an archive.
ARCHIVED = ("messages", "records", "checkpoints")


def prepare(
    records: Records,
    metadata: MetadataPath,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="DIR", help="Directory of the prepared history."),
    ],
    cluster: Cluster = "default",
    format: RecordsFormat = None,
    columns: ColumnsFile = None,
    window: Annotated[
        int, typer.Option(min=1, max=YEAR, metavar="SECONDS", help="Length of a window.")
    ] = 300,
    windows: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_WINDOWS,
            help="Records that are this many windows late, or more, are left out.",
        ),
    ] = 5,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DAY",
            help="First day of arrival (UTC) to prepare, such as 2025-03-01; by default the first "
            "that is new or has changed.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", help="Last day of arrival to prepare."),
    ] = None,
    capacity: MeasuredCapacities = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Also replace what cannot be prepared again: days whose messages have expired, "
            "and other clusters.",
        ),
    ] = False,
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Validate the records of a cluster and sum them over windows, for the other commands.

    Of archives it prepares the days on which messages arrived that are new or have changed, and
    may be interrupted and repeated; records of another format replace all that was prepared.

    Rejected records (duplicate, late, future, invalid, unknown, malformed ...) are counted,
    and go to the table `quarantine` with the reason.

    Example: `counterpoise history prepare metrics-archive --metadata metadata-log -o prepared`
    """
    from cluster_model.capacities import as_capacities

    format = record_format(records, format, columns)
    inputs = {**{f"RECORDS {name}": Path(name) for name in records}, "--metadata": metadata}
    if columns is not None:
        inputs["--map"] = columns
    if capacity is not None:
        inputs["--capacity"] = capacity
    check_outputs(inputs, {"--output": Path(output)})
    for name, path in inputs.items():
        # Existing output may be replaced as a whole.
        if Path(output).resolve() in path.resolve().parents:
            raise CommandError(f"--output: {output} found, which holds {name}, another expected")
    for name in records if format == "archive" else ():
        # Where tables of the archive are, their maintenance deletes what it does not know.
        if {Path(name, table).resolve() for table in ARCHIVED} & {*Path(output).resolve().parents}:
            raise CommandError(f"--output: {output} found, which is in {name}, another expected")
    further = [*as_capacities(capacity).follower_shares]
    first, last = _day("--from", since), _day("--to", until)
    if first is not None and last is not None and first > last:
        raise CommandError(f"--to: {until} found, {since} (--from) or a later day expected")
    if format != "archive" and not first == last is None:
        raise CommandError(f"--from and --to found with --format {format}, an archive expected")
    spark = start_spark(master, conf, delta=True)
    from cluster_model.history import prepare as preparing
    from cluster_model.history.metadata import load_metadata
    from cluster_model.history.screening import MetadataTables

    log = load_metadata(metadata, cluster=cluster)
    with spark_working("preparing", spark) as report:
        if format == "archive":
            done = preparing.prepare_archives(
                spark,
                records,
                log,
                output,
                window_ms=1000 * window,
                windows=windows,
                further=further,
                first_day=first,
                last_day=last,
                replace=replace,
                report=report,
                say=say,
            )
        else:
            counts = preparing.prepare(
                open_records(spark, records, format, columns, cluster),
                MetadataTables.of(spark, [log]),
                output,
                window_ms=1000 * window,
                windows=windows,
                further=further,
                replace=replace,
            ).get(cluster, {})
            done = preparing.Preparation(None, counts, counts, 0)
    if json:
        days = None if done.days is None else {"from": done.days[0], "to": done.days[1]}
        print_json(
            {
                "records": sum(done.counts.values()),
                "outcomes": done.counts,
                "days": days,
                "pending_days": done.pending,
                "total": done.total,
            }
        )
        return
    left = f"{plural(done.pending, 'day')} left for another run"
    if format == "archive" and done.days is None:
        of_before = f"{plural(sum(done.total.values()), 'record')} prepared before"
        told = f"nothing new in this range, {left}" if done.pending else "nothing new"
        out().print(f"{told}: {of_before}", markup=False)
        return
    title = plural(sum(done.counts.values()), "record")
    if done.days is not None:
        title += f" judged for arrivals of {' to '.join(dict.fromkeys(done.days))}"
    table = Rows("outcome", "records>", title=title)
    for outcome, count in sorted(done.counts.items(), key=lambda item: -item[1]):
        table.add(escape(outcome), f"{count:,}")
    out().print(table)
    if done.pending:
        out().print(left, markup=False)


def _day(option: str, text: str | None) -> int | None:
    """The number of a day since 1970."""
    if text is None:
        return None
    try:
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    except ValueError:
        raise CommandError(f"{option}: {text!r} found, a day like 2025-03-01 expected") from None
