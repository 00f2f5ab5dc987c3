"""Makes rows of the table DECODED of records that Python reads on the executors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from cluster_model.history.decode import MALFORMED
from cluster_model.history.schema import CLUSTER, DECODED
from metrics_reporter import Record
from metrics_reporter.metrics import METRIC_IDS

# Rows of a batch on their way to Spark.
AT_ONCE = 20_000


def row_of(record: Record, cluster: str) -> dict[str, Any]:
    """A record, which arrived at its time."""
    other = [(name, value) for name, value in record.metrics.items() if name not in METRIC_IDS]
    known = {name: value for name, value in record.metrics.items() if name in METRIC_IDS}
    return {
        CLUSTER: cluster,
        "arrived_ms": record.time_ms,
        "time_ms": record.time_ms,
        "broker": record.broker,
        "topic": record.topic,
        "partition": record.partition,
        "underscored": record.underscored,
        **known,
        "other": other or None,
    }


def row_of_problem(value: str, time_ms: int | None, cluster: str) -> dict[str, Any]:
    """Something that is not a record."""
    return {
        CLUSTER: cluster,
        "arrived_ms": time_ms or 0,
        "problem": MALFORMED,
        "value": value.encode(errors="replace"),
    }


def batches_of(rows: Iterable[dict[str, Any]]) -> Iterable[pa.RecordBatch]:
    """The rows as batches of the table DECODED."""
    schema = to_arrow_schema(DECODED)
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == AT_ONCE:
            yield pa.RecordBatch.from_pylist(some, schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema)


def identified(rows: DataFrame, source: int = 0) -> DataFrame:
    """The rows with a place in their source, which follows from their content."""
    said = ("time_ms", "broker", "topic", "partition", *METRIC_IDS, "value")
    return rows.withColumns(
        {"source_partition": f.lit(source), "source_offset": f.xxhash64(*said)}
    ).select(*DECODED.names)
