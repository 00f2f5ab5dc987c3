"""Options shared by the history commands: where Spark runs, and its properties."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from balancer.cli.terminal import CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cluster_model.history.tables import OutputFormat, TableWriter

SPARK, TABLES = "Spark", "Tables"

Archive = Annotated[
    str,
    typer.Argument(
        metavar="ARCHIVE",
        help="Directory of the archive, on any file system that Spark knows.",
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        rich_help_panel=SPARK,
        help="Where Spark runs: local[*] (all of this machine, unless Spark's own "
        "configuration says otherwise), local[4], spark://..., yarn, k8s://...; or a server of "
        "Spark Connect, sc://HOST:PORT.",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        rich_help_panel=SPARK,
        help="A property of Spark, such as spark.driver.memory=4g; repeatable.",
    ),
]
Cluster = Annotated[
    str, typer.Option("--cluster", metavar="NAME", help="Name of the cluster in the archive.")
]
Clusters = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster", metavar="NAME", help="Only this cluster; repeatable. All by default."
    ),
]
MetadataPath = Annotated[
    Path,
    typer.Option(
        "--metadata",
        metavar="PATH",
        help="Brokers and placement: the log that `history archive` wrote, or a snapshot "
        "(.json, .npz).",
    ),
]
MeasuredCapacities = Annotated[
    Path | None,
    typer.Option(
        "--capacity",
        metavar="FILE",
        help="Capacity file that names further resources as `measured`.",
    ),
]
Tables = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="PLACE",
        rich_help_panel=TABLES,
        help="Also write tables for other tools: below this directory (with a /), or in this "
        "schema of a catalog. A run with the same arguments replaces its rows.",
    ),
]
TableFormat = Annotated[
    Literal["delta", "parquet"],
    typer.Option(rich_help_panel=TABLES, help="Format of the tables."),
]


def tables_in(spark: SparkSession, place: str | None, format: OutputFormat) -> TableWriter | None:
    """Where tables go, if anywhere."""
    if place is None:
        return None
    from cluster_model.history.tables import TableWriter

    return TableWriter(spark, place, format)


def start_spark(
    master: str | None,
    properties: Sequence[str] | None,
    *,
    kafka: bool = False,
    delta: bool = False,
) -> SparkSession:
    """Start the Spark session that the options describe.

    Raises
    ------
    CommandError
        If a property has no value.
    HistoryError
        If Spark, Java, the connector or Delta Lake is missing.
    """
    config = {}
    for text in properties or ():
        name, equals, value = text.partition("=")
        if not (equals and name.strip()):
            raise CommandError(
                f"--conf: {text!r} found, NAME=VALUE like spark.driver.memory=4g expected"
            )
        config[name.strip()] = value.strip()
    from cluster_model.history.session import spark_session

    return spark_session(master, kafka=kafka, delta=delta, config=config)
