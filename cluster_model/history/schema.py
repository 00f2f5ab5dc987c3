"""Schemas of the history's tables, and the meaning of their columns."""

from __future__ import annotations

from pyspark.sql import types as t

from metrics_reporter.metrics import METRIC_IDS

CLUSTER, DAY = "cluster", "day"
# The name of a cluster without a given name.
DEFAULT_CLUSTER = "default"


def _field(name: str, kind: t.DataType) -> t.StructField:
    return t.StructField(name, kind, nullable=True)


# A message of a metrics topic, not yet decoded.
MESSAGES = t.StructType(
    [
        _field(CLUSTER, t.StringType()),
        # Messages with equal numbers arrived at once; later ones have larger numbers. Null if
        # only their times of arrival are known.
        _field("batch", t.LongType()),
        # Time of arrival, ms since 1970, and position in the topic.
        _field("arrived_ms", t.LongType()),
        _field("source_partition", t.IntegerType()),
        _field("source_offset", t.LongType()),
        _field("value", t.BinaryType()),
    ]
)

# A record: the columns of :class:`metrics_reporter.Record`, one for each metric that has an
# id in the wire format, and a map of the others.
RECORDS = t.StructType(
    [
        *(f for f in MESSAGES.fields if f.name != "value"),
        _field("time_ms", t.LongType()),
        _field("broker", t.LongType()),
        _field("topic", t.StringType()),
        _field("partition", t.LongType()),
        _field("underscored", t.BooleanType()),
        *(_field(name, t.DoubleType()) for name in METRIC_IDS),
        _field("other", t.MapType(t.StringType(), t.DoubleType(), valueContainsNull=False)),
    ]
)

# A decoded message: the columns of a record, or for any other message the reason and its bytes.
DECODED = t.StructType(
    [
        *RECORDS.fields,
        # Null, "malformed", or "skipped": of an unknown kind or metric.
        _field("problem", t.StringType()),
        _field("value", t.BinaryType()),
    ]
)

# Validity of metadata, from inclusive and to exclusive, ms since 1970.
_VALID = [_field("valid_from_ms", t.LongType()), _field("valid_to_ms", t.LongType())]

# Replicas of a partition over time; brokers are ids, the leader is -1 for none.
PLACEMENTS = t.StructType(
    [
        _field(CLUSTER, t.StringType()),
        _field("topic", t.StringType()),
        _field("partition", t.LongType()),
        *_VALID,
        _field("replicas", t.ArrayType(t.LongType(), containsNull=False)),
        _field("leader", t.LongType()),
        # The log directory of each replica, null if unknown; null if none is known.
        _field("disks", t.ArrayType(t.StringType())),
    ]
)

# State of a broker over time; `state` is a value of cluster_model.BrokerState.
BROKERS = t.StructType(
    [
        _field(CLUSTER, t.StringType()),
        _field("broker", t.LongType()),
        *_VALID,
        _field("rack", t.StringType()),
        _field("state", t.LongType()),
        _field("capacity", t.MapType(t.StringType(), t.DoubleType(), valueContainsNull=False)),
    ]
)

# Topics over time, including those without partitions.
TOPICS = t.StructType([_field(CLUSTER, t.StringType()), _field("topic", t.StringType()), *_VALID])

# A window of one partition or broker starts at a multiple of its length.
_START = _field("start_ms", t.LongType())
_PARTITION = [
    _field(CLUSTER, t.StringType()),
    _field("topic", t.StringType()),
    _field("partition", t.LongType()),
]
_BROKER = [_field(CLUSTER, t.StringType()), _field("broker", t.LongType())]

# The samples of a partition's window that one broker measured: the sum and count of each
# rate, and whether they are estimates (shares of a whole topic's rates).
PARTITION_SUMS = t.StructType(
    [
        *_PARTITION,
        _field("broker", t.LongType()),
        _START,
        _field("bytes_in_sum", t.DoubleType()),
        _field("bytes_in_count", t.LongType()),
        _field("bytes_in_guess", t.BooleanType()),
        _field("bytes_out_sum", t.DoubleType()),
        _field("bytes_out_count", t.LongType()),
        _field("bytes_out_guess", t.BooleanType()),
    ]
)

# The same for a metric of a broker, one of metrics_reporter.BROKER_METRICS.
BROKER_SUMS = t.StructType(
    [
        *_BROKER,
        _START,
        _field("metric", t.StringType()),
        _field("value_sum", t.DoubleType()),
        _field("value_count", t.LongType()),
    ]
)

# The same for a further metric of a partition, such as requests, from its leaders.
FURTHER_SUMS = t.StructType(
    [
        *_PARTITION,
        _START,
        _field("metric", t.StringType()),
        _field("value_sum", t.DoubleType()),
        _field("value_count", t.LongType()),
    ]
)

# The newest size that a broker reported of its replica in a window, and its time.
SIZES = t.StructType(
    [
        *_PARTITION,
        _field("broker", t.LongType()),
        _START,
        _field("time_ms", t.LongType()),
        _field("size", t.DoubleType()),
    ]
)

# Windows of partitions in which a rate is known; kinds are those of
# cluster_model.windows.Extrapolation, and a value without a valid one is 0.
WINDOWS = t.StructType(
    [
        *_PARTITION,
        _START,
        _field("bytes_in", t.DoubleType()),
        _field("bytes_in_kind", t.ByteType()),
        _field("bytes_out", t.DoubleType()),
        _field("bytes_out_kind", t.ByteType()),
    ]
)

BROKER_WINDOWS = t.StructType(
    [
        *_BROKER,
        _START,
        _field("metric", t.StringType()),
        _field("value", t.DoubleType()),
        _field("kind", t.ByteType()),
    ]
)

FURTHER_WINDOWS = t.StructType(
    [
        *_PARTITION,
        _START,
        _field("metric", t.StringType()),
        _field("value", t.DoubleType()),
        _field("kind", t.ByteType()),
    ]
)

# A partition's windows divided among the brokers that led it at the time: over the brokers
# of a window these add up to its rates.
LED = t.StructType(
    [
        *_PARTITION,
        _field("broker", t.LongType()),
        _START,
        _field("bytes_in", t.DoubleType()),
        _field("bytes_out", t.DoubleType()),
    ]
)

# A message or record that does not count, and the reason: a cluster_model.windows.RecordOutcome
# in lower case, malformed or skipped. `metrics` are those the model uses, `value` the bytes
# of a message that is not a record.
QUARANTINE = t.StructType(
    [
        *(f for f in MESSAGES.fields if f.name != "value"),
        _field("time_ms", t.LongType()),
        _field("broker", t.LongType()),
        _field("topic", t.StringType()),
        _field("partition", t.LongType()),
        _field("underscored", t.BooleanType()),
        _field("metrics", t.MapType(t.StringType(), t.DoubleType(), valueContainsNull=True)),
        _field("value", t.BinaryType()),
        _field("reason", t.StringType()),
    ]
)

# Samples of a partition's rate to another one, summed over a window.
TRAFFIC = t.StructType(
    [
        *_PARTITION,
        _field("to_topic", t.StringType()),
        _field("to_partition", t.LongType()),
        _START,
        _field("bytes_sum", t.DoubleType()),
        _field("bytes_count", t.LongType()),
    ]
)

# The newest window in a batch of arrivals, null if it has no valid rates; a batch is an interval
# as long as a window, and its phases are records of brokers (0), of partitions (1) and of topics.
ARRIVALS = t.StructType(
    [
        _field(CLUSTER, t.StringType()),
        _field("batch", t.LongType()),
        _field("phase", t.IntegerType()),
        _field("newest_ms", t.LongType()),
    ]
)
