"""Handwritten tables of the history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from cluster_model.history.schema import RECORDS
from metrics_reporter import Record
from metrics_reporter.metrics import METRIC_IDS

Arrived = tuple[str, int, Sequence[int], Sequence[Record]]


def records_frame(spark: SparkSession, batches: Iterable[Arrived]) -> DataFrame:
    """The table RECORDS of batches: a cluster, a number, times of arrival and records each."""
    rows = []
    for cluster, number, arrived, records in batches:
        for i, (at, record) in enumerate(zip(arrived, records, strict=True)):
            other = {k: v for k, v in record.metrics.items() if k not in METRIC_IDS}
            rows.append(
                {
                    "cluster": cluster,
                    "batch": number,
                    "arrived_ms": at,
                    "source_partition": 0,
                    "source_offset": i,
                    **{name: getattr(record, name) for name in ("time_ms", "broker", "topic")},
                    "partition": record.partition,
                    "underscored": record.underscored,
                    **{k: v for k, v in record.metrics.items() if k in METRIC_IDS},
                    "other": list(other.items()) or None,
                }
            )
    table = pa.Table.from_pylist(rows, schema=to_arrow_schema(RECORDS))
    return spark.createDataFrame(table, schema=RECORDS)
