"""Imports records of past days from a Prometheus server into an archive, on all executors."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cluster_model.history.archive import replace_range
from cluster_model.history.days import DAY_MS
from cluster_model.history.errors import HistoryError, sentence
from cluster_model.history.rows import batches_of, identified, row_of, row_of_problem
from cluster_model.history.schema import DECODED, DEFAULT_CLUSTER
from metrics_reporter.documents import shown as quoted
from metrics_reporter.errors import ReporterError
from metrics_reporter.exposition import shown
from metrics_reporter.growth import Growth
from metrics_reporter.prometheus_query import (
    MOST_POINTS,
    PrometheusServer,
    Query,
    QueryOptions,
)

# Steps whose rates are compared with the growth of sizes.
_COMPARED = 10


class Imported(NamedTuple):
    """What an import has written: days, records, what was not a record, and what cannot be right.

    `contradiction` is a sentence about rates that the growth of sizes contradicts, or None.
    """

    days: int
    records: int
    malformed: int
    contradiction: str | None = None


class _Plan(NamedTuple):
    """What is asked of a server: queries, and times of a page."""

    queries: list[Query]
    page_s: int


def read_prometheus(
    spark: SparkSession,
    url: str,
    options: QueryOptions,
    *,
    first_ms: int,
    end_ms: int,
    cluster: str = DEFAULT_CLUSTER,
    parallel: int = 4,
) -> DataFrame:
    """Read records from a server; each action reads them again.

    Parameters
    ----------
    url, options
        The server, and how to query it.
    first_ms, end_ms
        Range of times, ms since 1970, its end excluded.
    cluster
        Name of the cluster.
    parallel
        How many requests the server gets at once.

    Returns
    -------
    DataFrame
        The table DECODED. What has no broker or is no number is ``malformed``.

    Raises
    ------
    HistoryError
        If the server does not answer, or has no known metric in that time.
    """
    plan = _plan(url, options, first_ms, end_ms)
    return _read(spark, url, options, plan, first_ms, end_ms, cluster, parallel)


def _read(
    spark: SparkSession,
    url: str,
    options: QueryOptions,
    plan: _Plan,
    first_ms: int,
    end_ms: int,
    cluster: str,
    parallel: int,
) -> DataFrame:
    """The records of a range, a page per request; see :func:`read_prometheus`."""
    first, end = _steps(options, first_ms, end_ms)

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        server = PrometheusServer(url, options)

        def rows() -> Iterator[dict[str, Any]]:
            for batch in batches:
                for begin in batch.column(0).to_pylist():
                    found = server.read(plan.queries, begin, min(begin + plan.page_s, end))
                    for record in found.records:
                        yield row_of(record, cluster)
                    label = options.broker.label
                    for name in sorted(found.unnamed):
                        told = f"series with {label}={quoted(name)}, which names no broker"
                        yield row_of_problem(told, 1000 * begin, cluster)
                    if found.malformed:
                        told = f"{found.malformed} values that are no numbers"
                        yield row_of_problem(told, 1000 * begin, cluster)

        yield from batches_of(rows())

    pages = max(1, -(-(end - first) // plan.page_s))
    begins = spark.range(first, end, plan.page_s, numPartitions=min(pages, parallel))
    return identified(begins.mapInArrow(read, DECODED), _source(url))


def import_prometheus(
    spark: SparkSession,
    url: str,
    options: QueryOptions,
    path: str | Path,
    *,
    first_ms: int,
    end_ms: int,
    cluster: str = DEFAULT_CLUSTER,
    parallel: int = 4,
    report: Callable[[int, int], None] = lambda done, days: None,
) -> Imported:
    """Import records from a server into an archive, day by day, each in one transaction.

    What was imported before from the same server, for the same times, is replaced: a repeated
    import gives the same archive, and an interrupted one has whole days. A day without records
    replaces nothing.

    Parameters
    ----------
    path
        The archive; created if missing.
    report
        Receives the numbers of days done and in all.

    Raises
    ------
    HistoryError
        See :func:`read_prometheus`; also if no record was found.
    """
    plan = _plan(url, options, first_ms, end_ms)
    contradiction = _contradiction(url, options, plan, first_ms, end_ms)
    begins = [first_ms, *range(first_ms // DAY_MS * DAY_MS + DAY_MS, end_ms, DAY_MS)]
    records = malformed = 0
    told = "no series"
    for done, begin in enumerate(begins):
        report(done, len(begins))
        until = min((begin // DAY_MS + 1) * DAY_MS, end_ms)
        rows = _read(spark, url, options, plan, begin, until, cluster, parallel).persist()
        try:
            some = 0
            for problem, count, value in (
                rows.groupBy("problem").agg(f.count("*"), f.max("value")).collect()
            ):
                some += count if problem is None else 0
                malformed += 0 if problem is None else count
                told = told if value is None else bytes(value).decode()
            # The server may have deleted the day since, or the mapping may be wrong.
            if some:
                replace_range(rows, path, cluster, _source(url), begin, until)
            records += some
        except PySparkException as error:
            raise HistoryError(_of_workers(error)) from None
        finally:
            rows.unpersist()
    report(len(begins), len(begins))
    if records == 0:
        raise HistoryError(
            f"{shown(url)}: no records found from {first_ms} to {end_ms} "
            f"(ms since 1970), but {told}"
        )
    return Imported(len(begins), records, malformed, contradiction)


def _contradiction(
    url: str, options: QueryOptions, plan: _Plan, first_ms: int, end_ms: int
) -> str | None:
    """What the last steps of the range say of the rates; see :class:`Growth`."""
    first, end = _steps(options, first_ms, end_ms)
    begin = max(first, end - _COMPARED * int(options.step))
    try:
        records = PrometheusServer(url, options).read(plan.queries, begin, end).records
    except ReporterError as error:
        raise HistoryError(str(error)) from None
    growth = Growth()
    for _, of_time in groupby(records, key=lambda record: record.time_ms):
        growth.add(of_time)
    return growth.contradiction()


def _steps(options: QueryOptions, first_ms: int, end_ms: int) -> tuple[int, int]:
    """The range in s since 1970, to multiples of a step."""
    step = int(options.step)
    return -(-first_ms // (1000 * step)) * step, -(-end_ms // (1000 * step)) * step


def _source(url: str) -> int:
    """Number of a server as ``source_partition``: negative, as no partition of a topic is."""
    return -1 - zlib.crc32(url.rpartition("@")[2].encode()) % 10**9


def _plan(url: str, options: QueryOptions, first_ms: int, end_ms: int) -> _Plan:
    """The queries, and as many steps for a page as keep it small."""
    step = int(options.step)
    first, end = _steps(options, first_ms, end_ms)
    if first >= end:
        raise HistoryError(
            f"Prometheus server: a range from {first_ms} to {end_ms} (ms since 1970) found, one "
            f"with at least one multiple of {step} s expected"
        )
    try:
        server = PrometheusServer(url, options)
        queries = server.queries(first, end)
        moments = {first, (first + end) // 2, end - step}
        series = max(server.series(queries, at) for at in sorted(moments))
    except ReporterError as error:
        raise HistoryError(str(error)) from None
    steps = max(1, min(MOST_POINTS, options.values_at_once // max(1, series)))
    return _Plan(queries, steps * step)


def _of_workers(error: PySparkException) -> str:
    """What a worker's :class:`ReporterError` says, or the first line of another error."""
    found = re.findall(r"(?m)^(?:[\w.]*\.)?(?:ReporterError|HttpStatusError): (.*)$", str(error))
    return str(found[-1]) if found else sentence(error)
