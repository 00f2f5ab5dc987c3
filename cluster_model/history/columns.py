"""Reads records from any table or query of Spark, by a description of its columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from py4j.protocol import Py4JJavaError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from cluster_model.history.decode import MALFORMED
from cluster_model.history.errors import HistoryError
from cluster_model.history.read import reason
from cluster_model.history.schema import CLUSTER, DECODED, DEFAULT_CLUSTER
from metrics_reporter.documents import WholeKey, as_model, load_mapping
from metrics_reporter.metrics import METRIC_IDS, METRIC_TABLE
from metrics_reporter.quantities import WithDuration
from metrics_reporter.suggestions import hint, listed

TableFormat = Literal["table", "query", "delta", "iceberg", "parquet", "csv", "jdbc"]
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
TimeUnit = Literal["s", "ms", "us", "ns", "timestamp"]

# Ms in one of each, as decimal numbers: a double has too few digits for nanoseconds since 1970.
_TIME_UNITS = {"s": "1000", "ms": "1", "us": "0.001", "ns": "0.000001"}
_BYTES = {
    "B": 1.0,
    **{f"{p}B": 1000.0**i for i, p in enumerate("kMGT", 1)},
    **{f"{p}iB": 1024.0**i for i, p in enumerate("KMGT", 1)},
    "bit": 0.125,
    **{f"{p}bit": 1000.0**i / 8 for i, p in enumerate("kMGT", 1)},
}
_PER = {"s": 1.0, "min": 60.0, "h": 3600.0}
# Unit of a metric to the units in which a table may hold it, with their factors.
UNITS: dict[str, dict[str, float]] = {
    "B": _BYTES,
    "B/s": {f"{unit}/{p}": of / s for unit, of in _BYTES.items() for p, s in _PER.items()},
    "1": {"1": 1.0},
    "1/s": {f"1/{p}": 1 / s for p, s in _PER.items()},
    "ms": {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3},
    "ratio": {"ratio": 1.0, "percent": 0.01},
    "requests": {"requests": 1.0},
}
_UNIT_OF = {metric.name: metric.unit for metric in METRIC_TABLE}
_NUMBERS = (t.NumericType,)
_TIMES = (t.TimestampType, t.TimestampNTZType, t.DateType)
# Kafka's own names cannot have these, so that they cannot clash with columns that a table has.
_HELD = "counterpoise_"


def _named(value: Any) -> Any:
    """The short form of a description, the name alone, as the long one."""
    return {"column": value} if isinstance(value, str) else value


def _sourced(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TimeColumn(_Part):
    """A column with times.

    Parameters
    ----------
    column
        Its name.
    unit
        ``timestamp`` for timestamps, and their ISO 8601 text in a CSV file; otherwise numbers
        since 1970 (UTC) in this unit.
    """

    column: str
    unit: TimeUnit = "timestamp"


class BrokerColumn(_Part):
    """The column with the broker that measured.

    Parameters
    ----------
    column
        Its name.
    pattern
        Regular expression of the whole text, whose one group is the id, if the column is not
        the id itself.
    ids
        Broker ids by text, for texts without the id.
    """

    column: str
    pattern: str | None = None
    ids: dict[str, WholeKey] | None = None

    @model_validator(mode="after")
    def _is_one_form(self) -> BrokerColumn:
        if self.pattern is not None:
            try:
                groups = re.compile(self.pattern).groups
            except re.error as error:
                raise ValueError(f"a regular expression expected ({error})") from None
            if groups != 1:
                raise ValueError("a regular expression with one group expected")
            if self.ids is not None:
                raise ValueError("either a pattern or ids expected")
        return self


class MetricSource(_Part):
    """Where a metric is, and what its values count.

    Parameters
    ----------
    source
        Name of its column, or in the long form its name in the column `names`; by default the
        metric's own.
    unit
        Unit of the values, such as ``KiB/s``; by default that of the metric.
    factor
        Instead of `unit`, what to multiply values with.
    cumulative
        Whether values only grow, until their process restarts: a counter. Its rate is the growth
        since the value before, per second; where it fell, the rate is unknown.
    """

    source: str | None = None
    unit: str | None = None
    factor: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] | None = None
    cumulative: bool = False


class ColumnMapping(_Part):
    """Which column of a table is what, as a file of columns states it.

    Parameters
    ----------
    time
        When the values were measured.
    broker
        Who measured them.
    metrics
        Source of each metric, by its name in :mod:`metrics_reporter.metrics`; other names are
        passed through.
    topic, partition
        Columns with the topic and the partition that a row is about; without a partition, or where
        it is null, the row is about all that the broker leads of the topic, without a topic about
        the broker.
    cluster
        Column with the name of the cluster; one cluster by default.
    arrived
        When the row arrived; by default at its time.
    underscored
        Whether names of topics have ``_`` for ``.``, as in Cruise Control's reports.
    names, values
        Columns with the name and the value of a metric, if a row has one value (the long form);
        otherwise there is a column for each metric. Rows with other names are not read.
    max_gap
        The longest time, in seconds or like ``30m``, between two values of a counter that have a
        rate.
    options
        Options of Spark's reader, such as ``dbtable`` and ``user`` of a database.
    """

    time: Annotated[TimeColumn, BeforeValidator(_named)]
    broker: Annotated[BrokerColumn, BeforeValidator(_named)]
    metrics: dict[str, Annotated[MetricSource, BeforeValidator(_sourced)]] = Field(min_length=1)
    topic: str | None = None
    partition: str | None = None
    cluster: str | None = None
    arrived: Annotated[TimeColumn, BeforeValidator(_named)] | None = None
    underscored: bool = False
    names: str | None = None
    values: str | None = None
    max_gap: Annotated[float, WithDuration, Field(gt=0, allow_inf_nan=False)] = 3600.0
    options: dict[str, str | int | bool] = Field(default={}, repr=False)

    @model_validator(mode="after")
    def _fits_together(self) -> ColumnMapping:
        if (self.names is None) != (self.values is None):
            raise ValueError("names and values together expected")
        if self.partition is not None and self.topic is None:
            raise ValueError("partition together with topic expected")
        for name, of in self.metrics.items():
            if not 0 < len(name) <= 255:
                raise ValueError("names of metrics with 1 to 255 letters expected")
            if of.unit is not None and of.factor is not None:
                raise ValueError(f"{name}: either a unit or a factor expected")
            factor_of(name, of)
        return self

    def source_of(self, metric: str) -> str:
        """Name of the metric's column, or in the long form its name in the table."""
        return self.metrics[metric].source or metric


def load_columns(path: str | Path) -> ColumnMapping:
    """Read a :class:`ColumnMapping` from a YAML or JSON file.

    Raises
    ------
    HistoryError
        If the file cannot be read, or for its first invalid entry, by name.
    """
    where = f"columns file {path}"
    content = load_mapping(path, where, HistoryError, expected="a mapping of columns")
    expected = {"missing": "none found, a column"}
    return as_model(ColumnMapping, content, where, HistoryError, expected, hide=["options"])


def factor_of(metric: str, source: MetricSource) -> float:
    """What a value in a source's unit is multiplied with.

    Raises
    ------
    ValueError
        For a unit that is unknown, or none of the metric's.

    Examples
    --------
    >>> factor_of("bytes_in", MetricSource(unit="KiB/s"))
    1024.0
    >>> factor_of("bytes_in", MetricSource(unit="kB", cumulative=True))
    1000.0
    """
    if source.unit is None:
        return source.factor or 1.0
    unit = _UNIT_OF.get(metric)
    if source.cumulative and unit is not None:
        unit = unit.removesuffix("/s")
    known = UNITS.get(unit or "")
    if known is None:
        raise ValueError(f"{metric}: unit {source.unit!r} found, a factor expected")
    if source.unit not in known:
        raise ValueError(
            f"{metric}: unit {source.unit!r} found, one of {listed(list(known))} expected"
            f"{hint(source.unit, known)}"
        )
    return known[source.unit]


def format_of_table(source: str) -> TableFormat:
    """The format that a source has by default.

    Examples
    --------
    >>> [format_of_table(s) for s in ("jdbc:h2:mem:a", "SELECT 1", "a.csv.gz", "s3a://b/c", "x.y")]
    ['jdbc', 'query', 'csv', 'delta', 'table']
    """
    text = source.strip().lower()
    if text.startswith("jdbc:"):
        return "jdbc"
    if re.match(r"(select|with)\s", text):
        return "query"
    if re.search(r"\.csv(\.\w+)?$", text):
        return "csv"
    if text.endswith(".parquet"):
        return "parquet"
    return "delta" if "/" in text else "table"


def read_table(
    spark: SparkSession,
    sources: Sequence[str],
    mapping: ColumnMapping,
    *,
    format: TableFormat | None = None,
    cluster: str = DEFAULT_CLUSTER,
) -> DataFrame:
    """Read records from a table, a query, files or a database.

    Parameters
    ----------
    sources
        The name of a table in a catalog, a query, or the address of a database, one of them; or
        directories, and of Parquet and CSV also files.
    mapping
        Which column is what, with the options of Spark's reader. A CSV file has a header unless
        they say otherwise.
    format
        The format; by default that of :func:`format_of_table`.
    cluster
        Cluster of rows without a column for it.

    Returns
    -------
    DataFrame
        The table DECODED; a row that is not a record is ``malformed``.

    Raises
    ------
    HistoryError
        If there is no such table, or not as described.
    """
    kind = format or format_of_table(sources[0])
    if kind not in ("parquet", "csv") and len(sources) > 1:
        raise HistoryError(f"{kind}: {len(sources)} sources found, one expected")
    where = f"{kind} {_shown(', '.join(sources))}"
    options: dict[str, Any] = {name: _option(value) for name, value in mapping.options.items()}
    read = spark.read.options(**options)
    # Spark logs the mistake in a query with its own stack, besides raising it.
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    disabled, log.disabled = log.disabled, True
    try:
        if kind == "table":
            table = read.table(sources[0])
        elif kind == "query":
            table = spark.sql(sources[0])
        elif kind == "jdbc":
            table = read.format("jdbc").option("url", sources[0]).load()
        elif kind == "csv":
            table = spark.read.options(**{"header": "true", **options}).csv(list(sources))
        elif kind == "parquet":
            table = read.parquet(*sources)
        else:
            table = read.format(kind).load(sources[0])
        found = read_columns(table, mapping, where, cluster=cluster, texts=kind == "csv")
        _ = found.schema
    except (PySparkException, Py4JJavaError) as error:
        raise HistoryError(f"{where}: {reason(error)}") from None
    finally:
        log.disabled = disabled
    return found


def read_columns(
    table: DataFrame,
    mapping: ColumnMapping,
    where: str = "table",
    *,
    cluster: str = DEFAULT_CLUSTER,
    texts: bool = False,
) -> DataFrame:
    """Read the rows of a table as records.

    Parameters
    ----------
    table
        The table.
    mapping
        Which column is what.
    where
        Beginning of messages.
    cluster
        Cluster of rows without a column for it.
    texts
        Whether numbers and times may be texts, as in a CSV file.

    Returns
    -------
    DataFrame
        The table DECODED; a row that is not a record is ``malformed``, with its columns as JSON. A
        row without a value, such as the first of a counter, is left out.

    Raises
    ------
    HistoryError
        For a column that is missing or of another type, by name.
    """
    of = _Columns(table, where, texts)
    broker, wrong_broker = _broker(of, mapping.broker)
    partition, wrong_partition = f.lit(None).cast("long"), f.lit(False)
    if mapping.partition is not None:
        partition, wrong_partition = of.whole("partition", mapping.partition)
    topic = f.lit(None).cast("string")
    if mapping.topic is not None:
        topic = of.text("topic", mapping.topic)
    time = _time(of, "time", mapping.time)
    arrived = time if mapping.arrived is None else _time(of, "arrived", mapping.arrived)
    named = f.lit(cluster) if mapping.cluster is None else of.text("cluster", mapping.cluster)
    values, wrong_value = _values(of, mapping)
    wrong = (
        *(time.isNull(), broker.isNull(), broker < 0, wrong_broker, wrong_partition, wrong_value),
        *(partition < -1, topic == "", topic.isNull() & (f.coalesce(partition, f.lit(-1)) != -1)),
    )
    good = f.lit(True)
    for one in wrong:
        good = good & ~f.coalesce(one, f.lit(False))
    columns = {
        "good": good,
        CLUSTER: f.coalesce(named, f.lit(cluster)),
        "arrived_ms": f.coalesce(arrived, time, f.lit(0)),
        "source_offset": f.xxhash64(*map(of.column, of.used)),
        "time_ms": time,
        "broker": broker,
        "topic": topic,
        "partition": f.coalesce(partition, f.lit(-1)),
        "value": f.when(~good, f.to_json(f.struct(*map(of.column, of.used))).cast("binary")),
    }
    rows = table
    if mapping.names is not None:
        sources = [mapping.source_of(metric) for metric in mapping.metrics]
        rows = table.where(of.column(mapping.names).isin(*sources))
    numbered = list(mapping.metrics)
    rows = rows.select(
        *(column.alias(_HELD + name) for name, column in columns.items()),
        *(values[metric].alias(f"{_HELD}metric_{i}") for i, metric in enumerate(numbered)),
    )
    held = {name: f.col(_HELD + name) for name in columns}
    kept = f.col(_HELD + "good")
    reported = {m: f.when(kept, f.col(f"{_HELD}metric_{i}")) for i, m in enumerate(numbered)}
    rows, reported = _rates(rows, reported, mapping)
    rows = rows.where(~kept | f.coalesce(*reported.values()).isNotNull())
    return _decoded(rows, held, kept, reported, mapping.underscored)


class _Columns:
    """The columns of a table by name, checked for existence and type."""

    def __init__(self, table: DataFrame, where: str, texts: bool) -> None:
        self._kinds = {field.name: field.dataType for field in table.schema.fields}
        self._where = where
        self._texts = texts
        self.used: list[str] = []

    def column(self, name: str) -> Column:
        return f.col("`" + name.replace("`", "``") + "`")

    def kind(self, what: str, name: str) -> t.DataType:
        """The type of a column that must exist."""
        if name not in self._kinds:
            raise HistoryError(
                f"{self._where}, {what}: column {name!r} not found, one of "
                f"{listed(list(self._kinds))} expected{hint(name, self._kinds)}"
            )
        if name not in self.used:
            self.used.append(name)
        return self._kinds[name]

    def fails(self, what: str, name: str, expected: str) -> HistoryError:
        return HistoryError(
            f"{self._where}, {what}: column {name!r} of type {self._kinds[name].simpleString()} "
            f"found, {expected} expected"
        )

    def is_number(self, what: str, name: str) -> bool:
        """Whether the column has numbers; otherwise texts, if they may be numbers."""
        kind = self.kind(what, name)
        if isinstance(kind, _NUMBERS):
            return True
        if self._texts and isinstance(kind, t.StringType):
            return False
        raise self.fails(what, name, "numbers")

    def whole(self, what: str, name: str) -> tuple[Column, Column]:
        """Whole numbers, null for anything else, and whether that is wrong."""
        self.is_number(what, name)
        exact = self.column(name).try_cast("decimal(38,9)")
        found = f.when(exact == f.floor(exact), exact.try_cast("long"))
        return found, self.column(name).isNotNull() & found.isNull()

    def number(self, what: str, name: str) -> tuple[Column, Column]:
        """Finite numbers, null for anything else, and whether that is wrong."""
        self.is_number(what, name)
        number = self.column(name).try_cast("double")
        found = f.when(~f.isnan(number) & (f.abs(number) != float("inf")), number)
        return found, self.column(name).isNotNull() & found.isNull()

    def text(self, what: str, name: str) -> Column:
        if not isinstance(self.kind(what, name), t.StringType | t.VarcharType | t.CharType):
            raise self.fails(what, name, "text")
        return self.column(name).cast("string")

    def time(self, what: str, name: str) -> Column:
        """Ms since 1970 of a timestamp."""
        kind = self.kind(what, name)
        if self._texts and isinstance(kind, t.StringType):
            return f.unix_millis(f.try_to_timestamp(self.column(name)))
        if not isinstance(kind, _TIMES):
            raise self.fails(
                what, name, f"timestamps, or a unit ({', '.join(_TIME_UNITS)}) with numbers"
            )
        return f.unix_millis(self.column(name).cast("timestamp"))


def _time(of: _Columns, what: str, column: TimeColumn) -> Column:
    if column.unit == "timestamp":
        return of.time(what, column.column)
    of.is_number(what, column.column)
    # Neither overflows: what is too large for one of the types is null.
    exact = of.column(column.column).try_cast("decimal(28,9)")
    factor = f.lit(_TIME_UNITS[column.unit]).cast("decimal(10,6)")
    return f.floor(exact * factor).try_cast("long")


def _broker(of: _Columns, column: BrokerColumn) -> tuple[Column, Column]:
    if column.pattern is None and column.ids is None:
        return of.whole("broker", column.column)
    text = of.text("broker", column.column)
    if column.ids is not None:
        pairs = [f.lit(part) for pair in column.ids.items() for part in pair]
        found = f.create_map(*pairs)[text].cast("long")
    else:
        found = f.regexp_extract(text, f"^(?:{column.pattern})$", 1).try_cast("long")
    return found, found.isNull()


def _values(of: _Columns, mapping: ColumnMapping) -> tuple[dict[str, Column], Column]:
    """The values of each metric in the table's unit, and whether any is no number."""
    if mapping.names is None or mapping.values is None:
        found = {m: of.number(m, mapping.source_of(m)) for m in mapping.metrics}
        wrong = f.lit(False)
        for _, one in found.values():
            wrong = wrong | one
        return {m: value for m, (value, _) in found.items()}, wrong
    name = of.text("names", mapping.names)
    value, wrong = of.number("values", mapping.values)
    return {m: f.when(name == mapping.source_of(m), value) for m in mapping.metrics}, wrong


def _rates(
    rows: DataFrame, values: Mapping[str, Column], mapping: ColumnMapping
) -> tuple[DataFrame, dict[str, Column]]:
    """The values in the metrics' units; those of counters as growth per second."""
    time = f.col(_HELD + "time_ms")
    subject = (_HELD + name for name in (CLUSTER, "broker", "topic", "partition"))
    before = (
        Window.partitionBy(*subject)
        .orderBy(time, _HELD + "source_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    found: dict[str, Column] = {}
    last: dict[str, Column] = {}
    for i, (metric, source) in enumerate(mapping.metrics.items()):
        value = values[metric]
        if source.cumulative:
            both = f.struct(time.alias("time"), value.alias("value"))
            last[f"{_HELD}last_{i}"] = f.last(f.when(value.isNotNull(), both), True).over(before)
            then = f.col(f"{_HELD}last_{i}")
            elapsed = (time - then["time"]) / 1000
            steady = (elapsed > 0) & (elapsed <= mapping.max_gap) & (value >= then["value"])
            value = f.when(steady, (value - then["value"]) / elapsed)
        found[metric] = value * factor_of(metric, source)
    return (rows.withColumns(last) if last else rows), found


def _decoded(
    rows: DataFrame,
    held: Mapping[str, Column],
    good: Column,
    metrics: Mapping[str, Column],
    underscored: bool,
) -> DataFrame:
    """Rows as in the table DECODED."""
    others = [f.struct(f.lit(m), v) for m, v in metrics.items() if m not in METRIC_IDS]
    other = f.lit(None)
    if others:
        given = f.filter(f.array(*others), lambda pair: pair["col2"].isNotNull())
        # There are no nulls left, but Spark recognises that only with this.
        entries = f.transform(
            given, lambda pair: f.struct(pair["col1"], f.coalesce(pair["col2"], f.lit(0.0)))
        )
        other = f.when(f.size(given) > 0, f.map_from_entries(entries))

    def of_record(column: Column) -> Column:
        return f.when(good, column)

    columns = {
        CLUSTER: held[CLUSTER],
        "batch": f.lit(None),
        "arrived_ms": held["arrived_ms"],
        "source_partition": f.lit(0),
        "source_offset": held["source_offset"],
        **{name: of_record(held[name]) for name in ("time_ms", "broker", "topic", "partition")},
        "underscored": of_record(f.lit(underscored)),
        **{name: metrics.get(name, f.lit(None)) for name in METRIC_IDS},
        "other": of_record(other),
        "problem": f.when(~good, f.lit(MALFORMED)),
        "value": held["value"],
    }
    return rows.select(*(columns[k.name].cast(k.dataType).alias(k.name) for k in DECODED.fields))


def _option(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(source: str) -> str:
    """A source without what may be a password in the address of a database."""
    return re.split("[?;]", source)[0] if source.lower().startswith("jdbc:") else source
