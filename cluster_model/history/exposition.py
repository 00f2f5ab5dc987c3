"""Reads records from saved pages of Prometheus exporters, such as dumps of the JMX exporter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

from py4j.protocol import Py4JJavaError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from cluster_model.history.errors import HistoryError
from cluster_model.history.read import reason
from cluster_model.history.rows import batches_of, identified, row_of, row_of_problem
from cluster_model.history.schema import DECODED, DEFAULT_CLUSTER
from metrics_reporter.documents import as_model, load_mapping, shown
from metrics_reporter.exposition import parse
from metrics_reporter.prometheus import Reading, Rulebook, in_order, records_of, restarted
from metrics_reporter.prometheus_query import BrokerLabel
from metrics_reporter.quantities import WithDuration
from metrics_reporter.rule_packs import PackName
from metrics_reporter.rules import Rule

_SECONDS = {"s": 1.0, "ms": 0.001}
# A line with its value and the time after it; what follows a # is an exemplar.
_TIMED = r"^[^{\s]+(?:\{.*\})?[ \t]+\S+[ \t]+(-?[0-9.]+)[ \t]*$"
_AFTER = r"[ \t]+-?[0-9.]+[ \t]*$"
_EXEMPLAR = r"[ \t]+#[ \t]+\{.*$"


class FromPath(BaseModel):
    """What the path of a file tells.

    Parameters
    ----------
    path
        Regular expression of a part of the path, whose one group is it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str

    @model_validator(mode="after")
    def _has_a_group(self) -> FromPath:
        try:
            groups = re.compile(self.path).groups
        except re.error as error:
            raise ValueError(f"a regular expression expected ({error})") from None
        if groups != 1:
            raise ValueError("a regular expression with one group expected")
        return self


class TimeOfPage(BaseModel):
    """When a page was read.

    Parameters
    ----------
    path
        Regular expression of a part of the path, whose one group is the time; by default each
        line ends with its time.
    unit
        ``s`` or ``ms`` since 1970 (UTC); by default seconds in paths and ms in lines. In the
        OpenMetrics format lines have seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    unit: Literal["s", "ms"] | None = None

    @model_validator(mode="after")
    def _has_a_group(self) -> TimeOfPage:
        if self.path is not None:
            FromPath(path=self.path)
        return self

    @property
    def seconds(self) -> float:
        """Seconds in one of its unit."""
        return _SECONDS[self.unit or ("ms" if self.path is None else "s")]


def _labelled(value: Any) -> Any:
    return {"label": value} if isinstance(value, str) else value


class PageOptions(BaseModel):
    """How to read saved pages, as a file states it.

    Parameters
    ----------
    broker
        Which broker a page is of, by the path of its file or by a label of each line.
    time
        When it was read.
    rules
        Name of a product whose names of metrics are known.
    metrics
        Rules that take precedence over those and
        :data:`metrics_reporter.prometheus.DEFAULT_RULES`.
    topic_label, partition_label
        Labels that name a topic and a partition.
    max_gap
        The longest time between two pages of a broker from which rates are computed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: Annotated[FromPath | BrokerLabel, BeforeValidator(_labelled)]
    time: TimeOfPage = TimeOfPage()
    rules: PackName | None = None
    metrics: tuple[Rule, ...] = ()
    topic_label: str = "topic"
    partition_label: str = "partition"
    max_gap: Annotated[float, WithDuration, Field(gt=0, allow_inf_nan=False)] = 3600.0


def load_pages(path: str | Path) -> PageOptions:
    """Read :class:`PageOptions` from a YAML or JSON file.

    Raises
    ------
    HistoryError
        If the file cannot be read, or for its first invalid entry, by name.
    """
    where = f"file of pages {path}"
    content = load_mapping(path, where, HistoryError, expected="a mapping with broker")
    return as_model(PageOptions, content, where, HistoryError, {"missing": "none found, a value"})


def read_pages(
    spark: SparkSession,
    paths: Sequence[str],
    options: PageOptions,
    *,
    cluster: str = DEFAULT_CLUSTER,
) -> DataFrame:
    """Read records from saved pages: those that :class:`PrometheusSource` would have reported.

    Parameters
    ----------
    paths
        Files and directories with all that is in them; compressed files by suffix (``.gz`` ...).
        A file holds one page, or lines with their times.
    options
        How to read them.
    cluster
        Their cluster.

    Returns
    -------
    DataFrame
        The table DECODED. Lines that are not samples, or of no broker or time, are ``malformed``,
        and so is a page that has a series twice.

    Raises
    ------
    HistoryError
        For a path that does not exist.
    """
    try:
        read = spark.read.option("recursiveFileLookup", "true").text(list(paths))
        lines = read.select("value", f.col("_metadata.file_path").alias("path"))
        _ = lines.schema
    except (PySparkException, Py4JJavaError) as error:
        raise HistoryError(f"pages {', '.join(paths)}: {reason(error)}") from None
    text = f.regexp_replace(f.trim("value"), _EXEMPLAR, "")
    time = _time(options, text)
    if options.time.path is None:
        # The time has been read, and is not a part of a sample in all formats.
        text = f.when(time.isNotNull(), f.regexp_replace(text, _AFTER, "")).otherwise(text)
    # A type has no time of its own: only where the path tells it, it is known of which page it is.
    comment = f.trim("value").startswith("#")
    if options.time.path is not None and isinstance(options.broker, FromPath):
        comment &= ~f.trim("value").rlike(r"^#\s+TYPE\s")
    lines = lines.where((f.trim("value") != "") & ~comment).select(
        text.alias("text"), _broker(options, text).alias("of"), time.alias("at")
    )
    known = (f.col("of") != "") & f.col("at").isNotNull()
    pages = (
        lines.where(known)
        .groupBy("of", "at")
        .agg(f.array_join(f.sort_array(f.collect_list("text")), "\n").alias("page"))
    )
    order = Window.partitionBy("of").orderBy("at")
    pages = pages.withColumns(
        {"before": f.lag("page").over(order), "before_at": f.lag("at").over(order)}
    ).select("of", "at", "page", "before", "before_at")
    strays = lines.where(~f.coalesce(known, f.lit(False)) & ~f.col("text").startswith("#"))

    def of_pages(batches: Iterable[Any]) -> Iterator[Any]:
        rules = in_order(options.metrics, options.rules)
        book = Rulebook(rules, options.topic_label, options.partition_label)
        rows = (
            row
            for batch in batches
            for page in batch.to_pylist()
            for row in _rows(page, book, options, cluster)
        )
        yield from batches_of(rows)

    def of_strays(batches: Iterable[Any]) -> Iterator[Any]:
        texts = (text for batch in batches for text in batch.column("text").to_pylist())
        yield from batches_of(row_of_problem(text, None, cluster) for text in texts)

    found = (pages.mapInArrow(of_pages, DECODED), strays.mapInArrow(of_strays, DECODED))
    return identified(reduce(DataFrame.unionByName, found))


def _broker(options: PageOptions, text: Column) -> Column:
    """The text that names the broker; empty if there is none."""
    if isinstance(options.broker, FromPath):
        return f.regexp_extract("path", options.broker.path, 1)
    return f.regexp_extract(text, rf'[{{,][ \t]*{options.broker.label}[ \t]*=[ \t]*"([^"]*)"', 1)


def _time(options: PageOptions, text: Column) -> Column:
    """Ms since 1970, or null."""
    if options.time.path is not None:
        found = f.regexp_extract("path", options.time.path, 1)
    else:
        found = f.regexp_extract(text, _TIMED, 1)
    factor = f.lit(str(1000 * options.time.seconds)).cast("decimal(5,0)")
    return f.floor(found.try_cast("decimal(28,9)") * factor).try_cast("long")


def _rows(
    page: dict[str, Any], book: Rulebook, options: PageOptions, cluster: str
) -> Iterator[dict[str, Any]]:
    """Rows of a page, whose rates follow from it and the one before."""
    at = page["at"]
    broker = _broker_id(options, page["of"])
    if broker is None:
        told = f"page of {shown(page['of'])}, which names no broker"
        yield row_of_problem(told, at, cluster)
        return
    reading, problems = _reading(book, at, page["page"])
    for problem in problems:
        yield row_of_problem(problem, at, cluster)
    before = None
    if page["before"] is not None and at - page["before_at"] <= 1000 * options.max_gap:
        before, _ = _reading(book, page["before_at"], page["before"])
        if before is not None and reading is not None and restarted(before, reading):
            before = None
    if reading is not None:
        for record in records_of(broker, at, before, reading):
            yield row_of(record, cluster)


def _broker_id(options: PageOptions, text: str) -> int | None:
    of = options.broker if isinstance(options.broker, BrokerLabel) else BrokerLabel(label="path")
    return of.id_of(text)


def _reading(book: Rulebook, at_ms: int, page: str) -> tuple[Reading | None, list[str]]:
    """What a page says, and its lines that say nothing."""
    samples, malformed = parse(page)
    problems = [line for line in page.split("\n") if parse(line)[1]] if malformed else []
    series = {(sample.name, *sorted(sample.labels.items())) for sample in samples}
    if len(series) < len(samples):
        # Two pages as one would have sums of their counters.
        return None, [*problems, f"a page of {len(samples)} samples with {len(series)} series"]
    return book.read(at_ms / 1000, samples), problems
