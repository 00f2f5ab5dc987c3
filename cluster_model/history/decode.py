"""Decodes the messages of a metrics topic into records, in batches on every executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from cluster_model.history.schema import DECODED, MESSAGES
from metrics_reporter import Format, RecordBatch
from metrics_reporter import batch as messages
from metrics_reporter.metrics import METRIC_IDS

MALFORMED, SKIPPED = "malformed", "skipped"

_PROBLEM = np.array([""] * 3, np.object_)
_PROBLEM[[messages.MALFORMED, messages.DECODED, messages.SKIPPED]] = [MALFORMED, None, SKIPPED]
# Messages decoded at once, which take a few hundred bytes each.
_AT_ONCE = 20_000


def decode(rows: DataFrame, format: Format | None = None) -> DataFrame:
    """Decode messages; each becomes one row, even if it is not a record.

    Parameters
    ----------
    rows
        With the columns of the table MESSAGES.
    format
        Format of all messages; None to detect each.

    Returns
    -------
    DataFrame
        The table DECODED: a record's columns, and for any other message its ``problem``
        (``malformed`` or ``skipped``) and its bytes.
    """
    schema = to_arrow_schema(DECODED)

    def decoded(batches: Iterable[Any]) -> Iterator[Any]:
        for whole in batches:
            for start in range(0, whole.num_rows, _AT_ONCE):
                yield decode_rows(whole.slice(start, _AT_ONCE), format, schema)

    return rows.select(*MESSAGES.names).mapInArrow(decoded, DECODED)


def decode_rows(rows: pa.RecordBatch, format: Format | None, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows of the table MESSAGES to rows of DECODED, in the same order."""
    value = rows.column(rows.schema.get_field_index("value"))
    batch, state = messages.decode_messages(value.to_pylist(), format)
    at = np.flatnonzero(state == messages.DECODED)
    bad = state != messages.DECODED
    n = len(state)

    def spread(column: Any, kind: Any = np.int64, missing: Any = None) -> pa.Array:
        """A column of the records, extended to all messages."""
        full = np.zeros(n, kind)
        full[at] = column
        absent = bad.copy()
        if missing is not None:
            absent[at] |= missing
        return pa.array(full, mask=absent)

    topics = np.array([*batch.topics, None], np.object_)[batch.topic]
    underscored = np.array([*batch.underscored, False], np.bool_)[batch.topic]
    columns = {
        "time_ms": spread(batch.time_ms),
        "broker": spread(batch.broker),
        "topic": spread(topics, np.object_, batch.topic < 0),
        "partition": spread(batch.partition),
        "underscored": spread(underscored, np.bool_),
        **_metrics(batch, at, n),
        "problem": pa.array(_PROBLEM[state], pa.string()),
        "value": pa.array(
            [None if good else v for good, v in zip(~bad, value.to_pylist(), strict=True)],
            pa.binary(),
        ),
    }
    given = {name: rows.column(i) for i, name in enumerate(rows.schema.names) if name != "value"}
    arrays = [{**given, **columns}[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _metrics(batch: RecordBatch, at: Any, n: int) -> dict[str, pa.Array]:
    """A column for each metric with an id, and a map of the others, for all messages."""
    row = at[batch.row]
    column_of = np.array([METRIC_IDS.get(name, 0) for name in batch.metrics], np.int64)
    column = column_of[batch.metric]
    values = np.zeros((len(METRIC_IDS), n))
    absent = np.ones((len(METRIC_IDS), n), np.bool_)
    known = column > 0
    values[column[known] - 1, row[known]] = batch.value[known]
    absent[column[known] - 1, row[known]] = False
    count = np.bincount(row[~known], minlength=n)
    offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
    names = np.array(batch.metrics, np.object_)[batch.metric[~known]]
    other = pa.MapArray.from_arrays(
        pa.array(offsets, mask=np.append(count == 0, False)),
        pa.array(names, pa.string()),
        pa.array(batch.value[~known]),
    )
    dense = {name: pa.array(values[i - 1], mask=absent[i - 1]) for name, i in METRIC_IDS.items()}
    return {**dense, "other": other}
