"""Opens the records that ``counterpoise history`` reads, in any of their formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from balancer.cli.terminal import CommandError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RecordFormat = Literal[
    "archive",
    "json",
    "messages",
    "cruise-control-samples",
    "exposition",
    "table",
    "query",
    "delta",
    "iceberg",
    "parquet",
    "csv",
    "jdbc",
]
# Formats whose columns, or pages, a file describes.
DESCRIBED = ("exposition", "table", "query", "delta", "iceberg", "parquet", "csv", "jdbc")
SEVERAL = ("archive", "json", "messages", "cruise-control-samples", "exposition", "parquet", "csv")

Records = Annotated[
    list[str],
    typer.Argument(
        metavar="RECORDS...",
        help="An archive; or files and directories of another --format, the name of a table, a "
        "query or the address of a database.",
        show_default=False,
    ),
]
RecordsFormat = Annotated[
    RecordFormat | None,
    typer.Option(
        help="Format of the records: an archive (the default without --map), JSON lines, raw "
        "messages in Parquet, those of Cruise Control's sample store, pages of Prometheus "
        "exporters; or with --map a table. By default the one that RECORDS look like: jdbc:..., "
        "SELECT ..., .csv, .parquet, a directory of Delta Lake, or the name of a table.",
    ),
]
ColumnsFile = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help="Which column of a table is what (YAML), or how to read the pages of exporters.",
    ),
]


def record_format(
    records: Sequence[str], format: RecordFormat | None, columns: Path | None
) -> RecordFormat:
    """The format that these options mean.

    Raises
    ------
    CommandError
        For options that do not fit together.
    """
    if format is None:
        if columns is None:
            return "archive"
        from cluster_model.history.columns import format_of_table

        format = format_of_table(records[0])
    if format in DESCRIBED and columns is None:
        raise CommandError(f"--format {format} found, together with --map FILE expected")
    if format not in DESCRIBED and columns is not None:
        raise CommandError(
            f"--map {columns} found with --format {format}, one of {', '.join(DESCRIBED)} expected"
        )
    if format not in SEVERAL and len(records) > 1:
        raise CommandError(f"history prepare: {len(records)} of {format} found, one expected")
    return format


def open_records(
    spark: SparkSession,
    records: Sequence[str],
    format: RecordFormat,
    columns: Path | None,
    cluster: str,
) -> DataFrame:
    """The records of a cluster that are not in an archive, as the table DECODED.

    Raises
    ------
    HistoryError
        For records that are missing, or not as described.
    """
    from pyspark.sql import functions as F

    from cluster_model.history.columns import load_columns, read_table
    from cluster_model.history.exposition import load_pages, read_pages
    from cluster_model.history.read import read_json_lines, read_messages
    from cluster_model.history.schema import CLUSTER

    assert format != "archive", "archives are prepared day by day"
    if format == "json":
        found = read_json_lines(spark, records, cluster=cluster)
    elif format == "messages":
        found = read_messages(spark, records, cluster=cluster)
    elif format == "cruise-control-samples":
        found = read_messages(spark, records, cluster=cluster, format=format)
    elif format == "exposition":
        assert columns is not None
        found = read_pages(spark, records, load_pages(columns), cluster=cluster)
    else:
        assert columns is not None
        found = read_table(spark, records, load_columns(columns), format=format, cluster=cluster)
    return found.where(F.col(CLUSTER) == cluster)
