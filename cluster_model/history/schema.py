"""The tables of the history: records as rows, and what stands in their columns."""

from __future__ import annotations

from pyspark.sql import types as t

from metrics_reporter.metrics import METRIC_IDS

CLUSTER, DAY = "cluster", "day"
# The name of a cluster that nobody named.
DEFAULT_CLUSTER = "default"


def _field(name: str, kind: t.DataType) -> t.StructField:
    return t.StructField(name, kind, nullable=True)


# A message of a metrics topic, not yet looked into.
MESSAGES = t.StructType(
    [
        _field(CLUSTER, t.StringType()),
        # Messages with equal numbers arrived at once; later ones have larger numbers.
        _field("batch", t.LongType()),
        # When it arrived, ms since 1970, and its place in the topic.
        _field("arrived_ms", t.LongType()),
        _field("source_partition", t.IntegerType()),
        _field("source_offset", t.LongType()),
        _field("value", t.BinaryType()),
    ]
)

# A record: the columns of :class:`metrics_reporter.Record`, one for each metric that has an
# id on the wire, and a map of the others.
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

# A message after decoding: of a record its columns, of another why it is none and its bytes.
DECODED = t.StructType(
    [
        *RECORDS.fields,
        # Null, "malformed", or "skipped": of a kind or metric not known here.
        _field("problem", t.StringType()),
        _field("value", t.BinaryType()),
    ]
)

# From inclusive and to exclusive, ms since 1970: what the metadata say of that time.
_VALID = [_field("valid_from_ms", t.LongType()), _field("valid_to_ms", t.LongType())]

# Where the replicas of a partition were; brokers are ids, the leader -1 for none.
PLACEMENTS = t.StructType(
    [
        _field(CLUSTER, t.StringType()),
        _field("topic", t.StringType()),
        _field("partition", t.LongType()),
        *_VALID,
        _field("replicas", t.ArrayType(t.LongType(), containsNull=False)),
        _field("leader", t.LongType()),
        # The log directory of each replica, null where not known; null where nothing is.
        _field("disks", t.ArrayType(t.StringType())),
    ]
)

# What a broker was; `state` is a value of cluster_model.BrokerState.
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

# Which topics there were, also those without partitions.
TOPICS = t.StructType([_field(CLUSTER, t.StringType()), _field("topic", t.StringType()), *_VALID])

# A window of a length, of one partition or broker, starts at a multiple of that length.
_START = _field("start_ms", t.LongType())
_PARTITION = [
    _field(CLUSTER, t.StringType()),
    _field("topic", t.StringType()),
    _field("partition", t.LongType()),
]
_BROKER = [_field(CLUSTER, t.StringType()), _field("broker", t.LongType())]

# The samples of a window of a partition that one broker measured: of each rate their sum
# and count, and whether they are guesses (shares of what was told of the whole topic).
CELLS = t.StructType(
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

# The same of a metric of a broker, one of metrics_reporter.BROKER_METRICS.
BROKER_CELLS = t.StructType(
    [
        *_BROKER,
        _START,
        _field("metric", t.StringType()),
        _field("value_sum", t.DoubleType()),
        _field("value_count", t.LongType()),
    ]
)

# The newest size that a broker told of its replica in a window, and when.
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
# cluster_model.windows.Extrapolation, a value without a valid one is 0.
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

# What a partition's windows owe to the brokers that led it then: over the brokers of a
# window these add up to its rates.
LED = t.StructType(
    [
        *_PARTITION,
        _field("broker", t.LongType()),
        _START,
        _field("bytes_in", t.DoubleType()),
        _field("bytes_out", t.DoubleType()),
    ]
)

# A message or record that does not count, and why: a cluster_model.windows.Outcome in lower
# case, malformed or skipped. `metrics` are those the model looks at, `value` the bytes of
# what is no record.
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

# Samples of what a partition sends on to another one, summed over a window.
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
