"""``counterpoise history import``: copies the past of a Prometheus server into an archive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from balancer.cli.history_backtest import moment
from balancer.cli.history_options import Archive, Cluster, Master, Properties, start_spark
from balancer.cli.spark_progress import spark_working
from balancer.cli.terminal import AsJson, CommandError, check_outputs, out, print_json, say
from metrics_reporter.exposition import shown
from metrics_reporter.quantities import plural


def import_(
    server: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Address of a server with Prometheus' API (Prometheus, Mimir, Thanos), without "
            "/api/v1.",
            show_default=False,
        ),
    ],
    archive: Archive,
    queries: Annotated[
        Path,
        typer.Option(
            "--map",
            metavar="FILE",
            help="Which broker a series is of, and how to query the server (YAML).",
        ),
    ],
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start, such as 2025-03-01 (UTC unless the time has a zone).",
        ),
    ],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="End, which is excluded.")],
    parallel: Annotated[
        int, typer.Option(min=1, max=256, help="Requests that the server gets at once.")
    ] = 4,
    cluster: Cluster = "default",
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Import past metrics from a server with Prometheus' API into an archive, day by day.

    What was imported from this server before, for the same times, is replaced: to repeat an import
    changes nothing, and one that was interrupted has whole days.

    Example: `counterpoise history import http://prometheus:9090 metrics-archive --map queries.yaml
    --from 2025-03-01 --to 2025-04-01`
    """
    from metrics_reporter.prometheus_query import load_query_options

    check_outputs({"--map": queries}, {"ARCHIVE": Path(archive)})
    options = load_query_options(queries)
    first_ms, end_ms = moment("--from", since), moment("--to", until)
    if first_ms is None or end_ms is None or not 0 <= first_ms < end_ms:
        raise CommandError(f"--to: {until} found, a time after {since} (--from) expected")
    if end_ms > time.time_ns() // 1_000_000:
        raise CommandError(f"--to: {until} found, a time that has passed expected")
    spark = start_spark(master, conf, delta=True)
    from cluster_model.history.prometheus import import_prometheus

    with spark_working("importing", spark) as progress:
        done = import_prometheus(
            spark,
            server,
            options,
            archive,
            first_ms=first_ms,
            end_ms=end_ms,
            cluster=cluster,
            parallel=parallel,
            report=lambda days, total: progress("days", days, total),
        )
    if done.contradiction is not None:
        say(f"warning: {done.contradiction}")
    if json:
        print_json({"archive": str(archive), **done._asdict()})
        return
    rest = f", {plural(done.malformed, 'malformed value')}" if done.malformed else ""
    out().print(
        f"{plural(done.records, 'record')} of {plural(done.days, 'day')} imported from "
        f"{shown(server)} to {archive}{rest}",
        markup=False,
    )
