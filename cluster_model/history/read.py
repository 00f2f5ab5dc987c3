"""Reads records from other places than our archive: JSON lines, raw messages, a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from cluster_model.history.decode import MALFORMED, decode
from cluster_model.history.errors import HistoryError, sentence
from cluster_model.history.schema import CLUSTER, DECODED, DEFAULT_CLUSTER, MESSAGES
from cluster_model.history.session import CONNECTOR
from metrics_reporter import Format
from metrics_reporter.foreign import TOPIC_FORMATS
from metrics_reporter.metrics import METRIC_IDS

Paths = str | Path | Sequence[str | Path]

_BROKEN = "_broken"
_LINE = t.StructType(
    [
        t.StructField("time_ms", t.LongType()),
        t.StructField("broker", t.LongType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.LongType()),
        t.StructField("underscored", t.BooleanType()),
        t.StructField("metrics", t.MapType(t.StringType(), t.DoubleType())),
        t.StructField("arrived_ms", t.LongType()),
        t.StructField("batch", t.LongType()),
        t.StructField(CLUSTER, t.StringType()),
        t.StructField(_BROKEN, t.StringType()),
    ]
)


def read_json_lines(
    spark: SparkSession, paths: Paths, *, cluster: str = DEFAULT_CLUSTER
) -> DataFrame:
    """Read records kept as one JSON object per line.

    A line has the fields of :class:`metrics_reporter.Record`: ``time_ms``, ``broker`` and
    ``metrics``, and ``topic``, ``partition`` and ``underscored`` where needed. Optional
    are ``arrived_ms`` (time of arrival; by default its time), ``batch`` (lines with
    equal numbers arrived at once) and ``cluster``.

    Parameters
    ----------
    paths
        Files or directories; compressed files by suffix (``.gz`` ...).
    cluster
        Cluster of lines without one.

    Returns
    -------
    DataFrame
        The table DECODED; a line that is not a record is ``malformed``. Lines that arrived
        at once are ordered by their content, so the order is reproducible.

    Raises
    ------
    HistoryError
        For a path that does not exist.
    """
    with _sentences("JSON lines", paths):
        lines = spark.read.text(_listed(paths))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    # Spark reads the first value of a text, whatever follows. As one of two in an array, a line
    # that is not exactly one value gives another number of them.
    every = f.from_json(f.concat(f.lit("["), "value", f.lit(", 0]")), t.ArrayType(t.StringType()))
    read = lines.where(f.trim("value") != "").select(
        f.from_json("value", _LINE, options).alias("r"), "value", f.size(every).alias("values")
    )
    r = f.col("r")
    metrics = f.map_filter(r.metrics, lambda _, v: v.isNotNull())
    values = f.map_values(metrics)
    wrong = (
        r[_BROKEN].isNotNull()
        | f.col("values").isNull()
        | (f.col("values") != 2)
        | r.time_ms.isNull()
        | r.broker.isNull()
        | (r.broker < 0)
        | r.metrics.isNull()
        | f.exists(values, lambda v: f.isnan(v) | (f.abs(v) == float("inf")))
        | (r.topic == "")
        | (r.topic.isNull() & (f.coalesce(r.partition, f.lit(-1)) != -1))
        | (r.partition < -1)
    )
    good = ~f.coalesce(wrong, f.lit(False))
    arrived = f.coalesce(r.arrived_ms, r.time_ms)

    def of_record(column: Column) -> Column:
        return f.when(good, column)

    unnamed = f.map_filter(metrics, lambda name, _: ~name.isin(*METRIC_IDS))
    # There are no nulls left, but Spark recognises that only with this.
    other = f.transform_values(unnamed, lambda _, v: f.coalesce(v, f.lit(0.0)))
    columns = {
        CLUSTER: f.coalesce(r[CLUSTER], f.lit(cluster)),
        "batch": r.batch,
        "arrived_ms": arrived,
        "source_partition": f.lit(0),
        "source_offset": f.xxhash64("value"),
        "time_ms": of_record(r.time_ms),
        "broker": of_record(r.broker),
        "topic": of_record(r.topic),
        "partition": of_record(f.coalesce(r.partition, f.lit(-1))),
        "underscored": of_record(f.coalesce(r.underscored, f.lit(False))),
        **{name: of_record(metrics[name]) for name in METRIC_IDS},
        "other": of_record(f.when(f.size(other) > 0, other)),
        "problem": f.when(~good, f.lit(MALFORMED)),
        "value": f.when(~good, f.col("value").cast("binary")),
    }
    return read.select(*(columns[k.name].cast(k.dataType).alias(k.name) for k in DECODED.fields))


def read_messages(
    spark: SparkSession,
    paths: Paths,
    *,
    cluster: str = DEFAULT_CLUSTER,
    format: Format | None = None,
) -> DataFrame:
    """Read messages of a metrics topic stored unchanged in Parquet, in any of the wire formats.

    The files have the columns of the table MESSAGES, or those of Spark's Kafka source:
    ``value``, ``timestamp``, and, to order messages of the same time, ``partition`` and
    ``offset``.

    Parameters
    ----------
    paths
        Files or directories.
    cluster
        Cluster if the files do not name one.
    format
        Format of the messages; None to detect each.

    Returns
    -------
    DataFrame
        The table DECODED.

    Raises
    ------
    HistoryError
        For a path that does not exist or holds no Parquet, or files without these columns.
    """
    with _sentences("messages", paths):
        kept = spark.read.parquet(*_listed(paths))
    return decode(as_messages(kept, cluster, f"messages {_named(paths)}"), format)


def read_topic(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    cluster: str = DEFAULT_CLUSTER,
    format: Format | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    client: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read the current records of a metrics topic, on all executors.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    topic
        The metrics topic.
    cluster
        Name of the cluster.
    format
        Format of the messages; by default known for other balancers' topics, and detected
        per message elsewhere.
    since_ms, until_ms
        Range of message timestamps, the first included, the second excluded, ms since 1970.
    client
        Properties of Kafka's (Java) consumer.

    Returns
    -------
    DataFrame
        The table DECODED.

    Raises
    ------
    HistoryError
        If the session has no Kafka connector, or the topic does not exist.
    """
    reader = spark.read.format("kafka").options(**topic_options(bootstrap, topic, client))
    for name, ms in (("starting", since_ms), ("ending", until_ms)):
        if ms is not None:
            reader = reader.option(f"{name}Timestamp", ms)
    reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    with kafka_sentences(bootstrap, topic):
        kept = reader.load()
        rows = as_messages(kept, cluster, f"topic {topic}")
    return decode(rows, format or TOPIC_FORMATS.get(topic))


def topic_options(bootstrap: str, topic: str, client: Mapping[str, str] | None) -> dict[str, str]:
    """Options of Spark's Kafka source."""
    return {
        **{f"kafka.{name}": value for name, value in (client or {}).items()},
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def as_messages(kept: DataFrame, cluster: str, what: str) -> DataFrame:
    """Convert rows with the columns of MESSAGES, or of Spark's Kafka source, to the former.

    Raises
    ------
    HistoryError
        For a missing column, or one of another type, by name.
    """
    require_columns(kept, {"value": t.BinaryType()}, what)
    names = kept.columns
    if "arrived_ms" not in names:
        require_columns(kept, {"timestamp": t.TimestampType()}, what)

    def first(*requested: str, otherwise: Column) -> Column:
        return next((f.col(name) for name in requested if name in names), otherwise)

    arrived = first("arrived_ms", otherwise=f.unix_millis("timestamp"))
    found = {
        CLUSTER: first(CLUSTER, otherwise=f.lit(cluster)),
        "batch": first("batch", otherwise=f.lit(None)),
        "arrived_ms": arrived,
        "source_partition": first("source_partition", "partition", otherwise=f.lit(0)),
        "source_offset": first("source_offset", "offset", otherwise=f.xxhash64("value")),
        "value": f.col("value"),
    }
    return kept.select(*(found[k.name].cast(k.dataType).alias(k.name) for k in MESSAGES.fields))


def require_columns(found: DataFrame, needed: Mapping[str, t.DataType], what: str) -> None:
    """Check that these columns exist with these types.

    Raises
    ------
    HistoryError
        For an invalid column: its name, what was found and what is expected.
    """
    kinds = {k.name: k.dataType for k in found.schema.fields}
    for name, kind in needed.items():
        if name not in kinds:
            raise HistoryError(
                f"{what}: no column {name!r} found among {', '.join(kinds) or 'none'}, one of "
                f"type {kind.simpleString()} expected"
            )
        if kinds[name] != kind:
            raise HistoryError(
                f"{what}, column {name!r}: type {kinds[name].simpleString()} found, "
                f"{kind.simpleString()} expected"
            )


@contextmanager
def kafka_sentences(bootstrap: str, topic: str) -> Iterator[None]:
    """Report a failure to read a topic in one sentence."""
    where = f"metrics topic {topic!r} at {bootstrap}"
    try:
        yield
    except AnalysisException as error:
        if "kafka" not in str(error).lower() or "find" not in str(error).lower():
            raise HistoryError(f"{where}: {sentence(error)}") from None
        raise HistoryError(
            f"{where}: the session has no Kafka connector; spark_session(kafka=True), or "
            f"spark.jars.packages={CONNECTOR} expected"
        ) from None
    except PySparkException as error:
        raise HistoryError(f"{where}: {sentence(error)}") from None


def _listed(paths: Paths) -> list[str]:
    many = [paths] if isinstance(paths, str | Path) else paths
    return [str(path) for path in many]


def _named(paths: Paths) -> str:
    return ", ".join(_listed(paths))


@contextmanager
def sentences(where: str) -> Iterator[None]:
    """Report a failure of Spark in one sentence, such as a file that is not whole."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise HistoryError(f"{where}: {sentence(error)}") from None


@contextmanager
def _sentences(what: str, paths: Paths) -> Iterator[None]:
    """Report an unusable path in one sentence."""
    if not _listed(paths):
        raise HistoryError(f"{what}: no path found, at least one expected")
    where = f"{what} {_named(paths)}"
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise HistoryError(f"{where}: {reason(error)}") from None


def reason(error: PySparkException | Py4JJavaError) -> str:
    """Why something cannot be read, in one sentence."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    reported = {
        "PATH_NOT_FOUND": "no such file or directory",
        "UNABLE_TO_INFER_SCHEMA": "no Parquet file found, at least one expected",
    }.get(condition or "")
    return reported or sentence(error)
