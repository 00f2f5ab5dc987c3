"""``counterpoise history prepare``: validates records and aggregates them over windows."""

from __future__ import annotations

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
    DELTA,
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
)
from cluster_model.capacities import as_capacities
from metrics_reporter.quantities import plural

# Limits on windows whose product is a time that Spark can hold.
YEAR, MOST_WINDOWS = 366 * 86_400, 1_000_000


def prepare(
    records: Records,
    metadata: MetadataPath,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory to write or to replace.")
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
    capacity: MeasuredCapacities = None,
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Validate the records of a cluster and sum them over windows, for the other commands.

    Rejected records (duplicate, late, future, invalid, unknown, malformed ...) are counted,
    and go to the table `quarantine` with the reason.

    Example: `counterpoise history prepare metrics-archive --metadata metadata-log -o prepared`
    """
    format = record_format(records, format, columns)
    inputs = {**{f"RECORDS {name}": Path(name) for name in records}, "--metadata": metadata}
    if columns is not None:
        inputs["--map"] = columns
    if capacity is not None:
        inputs["--capacity"] = capacity
    check_outputs(inputs, {"--output": Path(output)})
    for name, path in inputs.items():
        # Existing output is replaced as a whole.
        if Path(output).resolve() in path.resolve().parents:
            raise CommandError(f"--output: {output} found, which holds {name}, another expected")
    further = [*as_capacities(capacity).follower_shares]
    spark = start_spark(master, conf, delta=format in DELTA)
    from cluster_model.history import prepare as preparing
    from cluster_model.history.clean import MetadataTables
    from cluster_model.history.metadata import load_metadata

    log = load_metadata(metadata, cluster=cluster)
    found = open_records(spark, records, format, columns, cluster)
    with spark_working("preparing", spark):
        counts = preparing.prepare(
            found,
            MetadataTables.of(spark, [log]),
            output,
            window_ms=1000 * window,
            windows=windows,
            further=further,
        ).get(cluster, {})
    if json:
        print_json({"records": sum(counts.values()), "outcomes": counts})
        return
    table = Rows("outcome", "records>", title=f"{plural(sum(counts.values()), 'record')}")
    for outcome, count in sorted(counts.items(), key=lambda item: -item[1]):
        table.add(escape(outcome), f"{count:,}")
    out().print(table)
