"""``counterpoise history``: archives months of metrics with Spark and turns them into loads."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balancer.cli.configuration import on_command_line, variable
from balancer.cli.daemon import ended_by_signals, redacted
from balancer.cli.history_options import (
    Archive,
    Cluster,
    Clusters,
    Master,
    Properties,
    start_spark,
)
from balancer.cli.options import byte_count
from balancer.cli.snapshot import KAFKA, BootstrapServer, CapacityFile, CommandConfig, Timeout, warn
from balancer.cli.spark_progress import spark_working
from balancer.cli.terminal import (
    LONGEST,
    AsJson,
    CommandError,
    check_outputs,
    out,
    print_json,
    say,
)
from balancer.composition.client import client_properties, java_properties
from balancer.controller import Redactor
from metrics_reporter.quantities import plural

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from balancer.composition.source import KafkaSource

LOOK_SECONDS = 1
DAY_MS = 86_400_000


def archive(
    context: typer.Context,
    archive: Archive,
    bootstrap_server: BootstrapServer,
    topic: Annotated[
        str,
        typer.Option(
            "--metrics-topic",
            "--topic",
            envvar=variable("--metrics-topic"),
            rich_help_panel=KAFKA,
            help="The topic to archive.",
        ),
    ],
    cluster: Cluster = "default",
    metadata: Annotated[
        Path | None,
        typer.Option(
            "--metadata",
            metavar="DIR",
            rich_help_panel=KAFKA,
            help="Also log brokers and placement here when they change; the history must know "
            "which broker led a partition when.",
        ),
    ] = None,
    capacity: CapacityFile = None,
    refresh: Annotated[
        float,
        typer.Option(
            min=1.0,
            max=LONGEST,
            metavar="SECONDS",
            rich_help_panel=KAFKA,
            help="Interval between metadata reads.",
        ),
    ] = 60.0,
    command_config: CommandConfig = None,
    timeout: Timeout = 10.0,
    every: Annotated[
        float,
        typer.Option(min=0.0, max=LONGEST, metavar="SECONDS", help="Interval between batches."),
    ] = 60.0,
    once: Annotated[
        bool, typer.Option("--once", help="Archive the current messages, and exit.")
    ] = False,
    max_messages: Annotated[
        int, typer.Option(min=1, help="Maximum messages per batch.")
    ] = 1_000_000,
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps",
            help="Continue if Kafka deleted messages before they were archived, instead of "
            "stopping.",
        ),
    ] = False,
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Archive a metrics topic to a Delta table, each message exactly once, even across crashes.

    It continues where the last run ended. SIGTERM or Ctrl-C ends it.

    Example: `counterpoise history archive metrics-archive --bootstrap-server localhost:9092
    --metrics-topic metrics --metadata metadata-log --once`
    """
    from balancer.composition.source import KafkaSource

    if metadata is None and capacity is not None and on_command_line(context, "capacity"):
        raise CommandError("--capacity found, together with --metadata expected")
    if master is not None and master.startswith("sc://"):
        raise CommandError(
            f"--master: {master} found; archiving needs a driver of its own: local[*], "
            "spark://..., yarn or k8s://... expected"
        )
    check_outputs(
        {"--capacity": capacity, "--command-config": command_config},
        {"ARCHIVE": Path(archive), "--metadata": metadata},
    )
    properties = java_properties(command_config)
    hide = Redactor(properties, [])
    with redacted(hide):
        known = client_properties(command_config)
        look = _metadata(
            metadata,
            cluster,
            KafkaSource(bootstrap_server, capacity, known, None, timeout, warn),
        )
        look()
        spark = start_spark(master, conf, kafka=True, delta=True)
        from cluster_model.history.archive import archive_topic
        from cluster_model.history.read import kafka_sentences

        query = archive_topic(
            spark,
            bootstrap_server,
            topic,
            archive,
            cluster=cluster,
            client=properties,
            every=None if once else every,
            max_messages=max_messages,
            allow_gaps=allow_gaps,
        )
        # what runs on has no share that is done
        shown = spark_working("archiving", spark) if once else nullcontext()
        with shown, kafka_sentences(bootstrap_server, topic):
            reported = archive_until_stopped(query, look, refresh)
    if json:
        print_json({"topic": topic, "archive": str(archive), "messages": reported})
        return
    out().print(f"{plural(reported, 'message')} of {topic} archived to {archive}", markup=False)


def compact(
    archive: Archive,
    cluster: Clusters = None,
    file_size: Annotated[
        str, typer.Option(metavar="BYTES", help="Approximate size of a file, such as 128MiB.")
    ] = "128MiB",
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Merge the small files of each day of an archive into a few large ones.

    May run while the topic is being archived, and be interrupted. The small files stay for a week,
    for commands that are reading them.

    Example: `counterpoise history compact metrics-archive`
    """
    size = max(1, int(byte_count("--file-size", file_size)))
    spark = start_spark(master, conf, delta=True)
    from cluster_model.history import archive as archives

    with spark_working("compacting", spark):
        done = archives.compact(spark, archive, clusters=cluster, file_bytes=size)
    if json:
        print_json(
            {
                "days": done.days,
                "files_before": done.files_before,
                "files_after": done.files_after,
            }
        )
        return
    out().print(
        f"{plural(done.days, 'day')} compacted, {plural(done.files_before, 'file')} "
        f"into {done.files_after:,}",
        markup=False,
    )


def expire(
    archive: Archive,
    keep_days: Annotated[int, typer.Option(min=1, help="Days to keep, not counting today.")],
    cluster: Clusters = None,
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Remove the days of an archive that are older than the given number of days.

    Their space is free after another week, at the next removal.

    Example: `counterpoise history expire metrics-archive --keep-days 90`
    """
    spark = start_spark(master, conf, delta=True)
    from cluster_model.history import archive as archives

    before_ms = time.time_ns() // 1_000_000 - keep_days * DAY_MS
    with spark_working("removing", spark):
        gone = archives.expire(spark, archive, before_ms=before_ms, clusters=cluster)
    if json:
        print_json({"removed": list(gone)})
        return
    for day in gone:
        out().print(day, markup=False, soft_wrap=True)
    out().print(f"{plural(len(gone), 'day')} removed", markup=False)


def export(
    archive: Archive,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory to write; a new one.")
    ],
    cluster: Clusters = None,
    master: Master = None,
    conf: Properties = None,
) -> None:
    """Copy an archive to plain Parquet, by cluster and day, for other tools.

    The copy is an archive too, without transactions.

    Example: `counterpoise history export metrics-archive -o metrics-parquet`
    """
    spark = start_spark(master, conf, delta=True)
    from cluster_model.history import archive as archives

    with spark_working("exporting", spark):
        days = archives.export(spark, archive, output, clusters=cluster)
    out().print(f"{plural(days, 'day')} exported to {output}", markup=False)


def _metadata(path: Path | None, cluster: str, source: KafkaSource) -> Callable[[], None]:
    """A function that reads the cluster and logs what changed."""
    if path is None:
        return lambda: None
    from cluster_model.history.metadata import MetadataLog

    log = MetadataLog(path, cluster=cluster)

    def look() -> None:
        seen, ids = source.read(), source.topic_ids()
        log.append(time.time_ns() // 1_000_000, seen, ids)

    return look


def archive_until_stopped(query: StreamingQuery, look: Callable[[], None], refresh: float) -> int:
    """Wait until the query ends or is interrupted; returns how many messages it archived."""
    looked = time.monotonic()
    messages: dict[int, int] = {}
    asked: list[int] = []
    with ended_by_signals(asked.append):
        over = False
        while not over:
            over = bool(query.awaitTermination(LOOK_SECONDS))
            if asked and not over:
                query.stop()
                over = True
            for progress in query.recentProgress:
                messages[progress.batchId] = progress.numInputRows
            if not over and time.monotonic() - looked > refresh:
                looked = time.monotonic()
                try:
                    look()
                # The archive continues even if metadata cannot be read; they change seldom.
                except ValueError as error:
                    say(f"metadata not logged: {error}")
    return sum(messages.values())
