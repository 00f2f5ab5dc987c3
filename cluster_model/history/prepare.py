"""Judges records, sums them over windows and stores the result, about a thousandth of the size."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cluster_model.history.archive import among, read_archive
from cluster_model.history.archive_days import archive_version, read_days
from cluster_model.history.changed_days import Changes, find_changes
from cluster_model.history.clean import JudgedRecords, decide
from cluster_model.history.days import DAY_MS, LAST_DAY, Reach, day_name, day_number, day_text
from cluster_model.history.delta import TableVersion, delta_sentences, read_version, vacuum
from cluster_model.history.errors import HistoryError
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.prepared import (
    JUDGED,
    KIND,
    TABLE,
    Held,
    Judgement,
    PreparedCluster,
    check_removal,
    of_kind,
    open_output,
    replace_rows,
)
from cluster_model.history.read import sentences
from cluster_model.history.schema import ARRIVALS, CLUSTER, DAY
from cluster_model.history.screening import MetadataTables, newest_windows, screen
from cluster_model.history.store import Store
from cluster_model.history.traffic import traffic_sums
from cluster_model.history.window_sums import broker_sums, further_sums, partition_sums, sizes

Counts = dict[str, int]
# More than a topic has partitions: each topic numbers its own from 0.
_PARTITIONS = 1_000_000


@dataclass(frozen=True)
class PrepareParameters:
    """How days are prepared.

    Parameters
    ----------
    days_at_once
        Days of arrival that are prepared together, and kept if a later one fails: beside the
        history there has to be room for the judged records of as many days.

    vacuum_every
        Transactions after which files that are not needed any more are deleted, a week after
        they were replaced.
    """

    days_at_once: int = 7
    vacuum_every: int = 20


class Preparation(NamedTuple):
    """What a run has prepared.

    Parameters
    ----------
    days
        Names of the first and the last day of arrival; None if nothing was new.
    counts
        Number of records with each outcome, of the days that were judged again.
    total
        The same of all days.
    pending
        Number of days of arrival that are left for another run.
    """

    days: tuple[str, str] | None
    counts: Counts
    total: Counts
    pending: int


def prepare(
    records: DataFrame,
    metadata: MetadataTables,
    path: str | Path,
    *,
    window_ms: int = 300_000,
    windows: int = 5,
    further: Sequence[str] = (),
    replace: bool = False,
) -> dict[str, Counts]:
    """Judge records, sum them over windows, and store the result as a table of Delta Lake.

    Replaces all that was prepared there before, in one transaction. Of two runs at once the one
    that ends first counts.

    Parameters
    ----------
    records, metadata, window_ms, windows, further
        As in :func:`cluster_model.history.clean.judge`.
    path
        Directory to write, on any file system that Spark knows.
    replace
        Whether to replace also other clusters, and days whose messages are in no archive any more.

    Returns
    -------
    dict
        The number of records with each outcome, by cluster.

    Raises
    ------
    HistoryError
        For a number below 1, a directory that holds something else, what only `replace` allows, or
        if another run ended meanwhile.
    """
    spark = records.sparkSession
    store, held, unfinished = open_output(spark, path)
    judgement = Judgement(window_ms=window_ms, windows=windows, further=tuple(further))
    options = {"window_ms": window_ms, "windows": windows}
    screened = screen(records, metadata, **options, further=further)
    clusters = {}
    with _kept_beside(spark, store) as keep:
        newest = keep("newest", newest_windows(screened))
        judged = _kept(decide(screened, newest, **options), keep)
        for cluster, counts in _counted(judged, judgement).items():
            clusters[cluster] = PreparedCluster(counts=counts)
        if held is not None and not replace:
            before = held.state.clusters.items()
            expired = (own.expired for name, own in before if name in clusters)
            check_removal(store, held, clusters, frozenset[int]().union(*expired))
        tables = _tables(judged, records, judgement)
        replace_rows(spark, store, held, tables, judgement, clusters, None)
    _remove_replaced(spark, store, unfinished, old_files=held is not None)
    return {cluster: _summed(own.counts.values()) for cluster, own in clusters.items()}


def prepare_archives(
    spark: SparkSession,
    archives: Sequence[str | Path],
    metadata: MetadataLog,
    path: str | Path,
    *,
    window_ms: int = 300_000,
    windows: int = 5,
    further: Sequence[str] = (),
    first_day: int | None = None,
    last_day: int | None = None,
    replace: bool = False,
    parameters: PrepareParameters | None = None,
    report: Callable[[str, int, int], None] = lambda phase, done, total: None,
    say: Callable[[str], None] = lambda text: None,
) -> Preparation:
    """Prepare the days of archives that have changed since the last run.

    Days of arrival are prepared oldest first, some at once, each time in one transaction. What is
    not finished is done by the next run. All is prepared in one transaction, in place of what was
    there, if it was prepared from other archives or with other parameters, if an archive has
    plain Parquet, or if a day is no multiple of a window.

    Parameters
    ----------
    spark, archives
        The session and the archives, which are read as they are now.
    metadata
        Metadata of the cluster, whose name selects the records.
    path, window_ms, windows, further, replace
        As for :func:`prepare`.
    first_day, last_day
        Days of arrival to prepare, by number since 1970, both included; others are left for
        another run.
    parameters
        How many days are prepared at once.
    report
        Takes a phase, the number of days that are done, and of all.
    say
        Takes sentences about what is prepared, and why.

    Raises
    ------
    HistoryError
        As for :func:`prepare`, and for an archive that is missing or has no such cluster.
    """
    judgement = Judgement(window_ms=window_ms, windows=windows, further=tuple(further))
    for name, number in (("window_ms", window_ms), ("windows", windows)):
        if number < 1:
            raise HistoryError(f"history, {name}: {number} found, 1 or more expected")
    store, held, unfinished = open_output(spark, path)
    restricted = first_day is not None or last_day is not None
    versions = [archive_version(spark, archive) for archive in archives]
    by_day = [version for version in versions if version is not None]
    if DAY_MS % window_ms or len(by_day) < len(versions):
        if restricted:
            raise HistoryError(
                f"prepared history {path}: a range of days found, with windows of "
                f"{window_ms / 1000:g} s and {', '.join(map(str, archives))}; windows that divide "
                "a day and archives without plain Parquet expected"
            )
        return _whole(spark, archives, metadata, path, judgement, replace)
    # In an order that does not depend on the one in which they are given.
    sources = sorted(zip(map(str, archives), by_day, strict=True), key=lambda of: of[1].identity)
    run = _Run(spark, store, sources, metadata, judgement, MetadataTables.of(spark, [metadata]))
    own = None if held is None else held.state.clusters.get(metadata.cluster)
    identities = [version.identity for _, version in sources]
    same = own is not None and [archive.identity for archive in own.archives] == identities
    everything = held is not None and (held.state.judgement != judgement or bool(own and not same))
    if everything:
        if restricted:
            raise HistoryError(
                f"prepared history {path}: one with other windows, resources or records found, "
                "all of which this run replaces; no range of days expected"
            )
        say("prepared with other windows, resources or records: everything is prepared again")
    changes = find_changes(spark, sources, metadata, own if same else None, run.reach)
    if held is not None and everything:
        if not replace:
            kept = held.state.clusters if held.state.judgement == judgement else ()
            gone = changes.known.expired
            if own is not None and not same:
                gone = own.expired | (own.days.keys() - changes.present)
            check_removal(store, held, {metadata.cluster, *kept}, gone)
        changes = changes.of_everything()
    if changes.log_is_gone:
        say("the archive's log no longer states what has changed: every day is prepared again")
    first, last = first_day or 0, LAST_DAY if last_day is None else last_day
    days = [day for day in changes.changed if first <= day <= last]
    parameters = parameters or PrepareParameters()
    chunks = [days] if everything else [*_chunks(days, parameters.days_at_once)]
    counted: dict[int, Counts] = {}
    own = changes.known
    for i, chunk in enumerate(chunks):
        done = sum(map(len, chunks[:i]))
        if len(chunks) > 1:
            report(f"day {day_name(chunk[0])}, {done + 1} of {len(days)}", done, len(days))
        held, own, counts = run.add(held, own, chunk, changes, everything)
        counted |= counts
    if chunks and held is not None:
        turn = held.state.run % max(1, parameters.vacuum_every) < len(chunks)
        _remove_replaced(spark, store, unfinished, old_files=everything or turn)
    return Preparation(
        (day_name(days[0]), day_name(days[-1])) if days else None,
        _summed(counted.values()),
        _summed(own.counts.values()),
        len(changes.changed) - len(days),
    )


class _Run(NamedTuple):
    """What is the same for all days of a run."""

    spark: SparkSession
    store: Store
    sources: Sequence[tuple[str, TableVersion]]
    metadata: MetadataLog
    judgement: Judgement
    tables: MetadataTables

    @property
    def reach(self) -> Reach:
        return Reach.of(self.judgement.window_ms, self.judgement.windows)

    def add(
        self,
        held: Held | None,
        own: PreparedCluster,
        chunk: Sequence[int],
        changes: Changes,
        everything: bool,
    ) -> tuple[Held, PreparedCluster, dict[int, Counts]]:
        """Prepare days of arrival; returns what is there then, and the outcomes by day."""
        cluster, judgement = self.metadata.cluster, self.judgement
        options = {"window_ms": judgement.window_ms, "windows": judgement.windows}
        now = set(chunk)
        prepared = ({*own.days} | now) & changes.present
        later = {day for day in own.days if day not in changes.changed}
        homes = _homes(now, prepared & later, own.expired, self.reach)
        near = {*homes, *now}
        first, last = min(near) - self.reach.after, max(near) + self.reach.before
        read = {day for day in prepared if first <= day <= last}
        here = self.reach.home("time_ms", "arrived_ms").isin(sorted(homes))
        arrived_now = day_number("arrived_ms").isin(sorted(now))
        records = self._read(read).where(arrived_now | here)
        tables = self.tables.between(
            (first - self.reach.before) * DAY_MS, (last + self.reach.after + 1) * DAY_MS
        )
        screened = screen(records, tables, **options, further=judgement.further)
        arrival = day_number(f.col("batch") * judgement.window_ms)
        with _kept_beside(self.spark, self.store) as keep:
            newest = newest_windows(screened).where(arrival.isin(sorted(now)))
            newest = arrivals = keep("newest", newest)
            if held is not None and not everything:
                # What arrived earlier than this cannot make a record late that is within reach.
                before = range(max(0, first - self.reach.before - 1), min(last, LAST_DAY) + 1)
                arrivals = newest.unionByName(self._arrivals(held, {*before} - now))
            judged = _kept(decide(screened.where(here), arrivals, **options), keep)
            counts = _counted(judged, judgement).get(cluster, {})
            counts = {day: counts.get(day, {}) for day in homes}
            digests = {day: changes.digests[day] for day in now}
            done = own.model_copy(
                update={
                    "days": {d: x for d, x in own.days.items() if d not in now} | digests,
                    "pending": own.pending - now,
                    "counts": {d: n for d, n in (own.counts | counts).items() if n},
                }
            )
            rows = _tables(judged, records, judgement)
            rows.append(of_kind("arrivals", newest, day_text(arrival)))
            clusters = {} if held is None else dict(held.state.clusters)
            if held is not None and held.state.judgement != judgement:
                clusters = {}
            after = replace_rows(
                self.spark,
                self.store,
                held,
                rows,
                judgement,
                clusters | {cluster: done},
                self._replaced(held, homes, now, everything),
            )
        return after, done, counts

    def _read(self, days: Iterable[int]) -> DataFrame:
        """Messages that arrived on these days, in all archives."""
        found = [
            read_days(self.spark, path, version.version, self.metadata.cluster, days)
            for path, version in self.sources
        ]
        return _numbered(found)

    def _arrivals(self, held: Held, days: Collection[int]) -> DataFrame:
        """The newest windows of batches that arrived on these days, as prepared earlier."""
        names = [day_name(day) for day in days]
        with sentences(f"prepared history {self.store.root}"):
            table = read_version(self.spark, self.store.at(TABLE), held.version)
            return table.where(
                (f.col(KIND) == "arrivals")
                & (f.col(CLUSTER) == self.metadata.cluster)
                & f.col(DAY).isin(names)
            ).select(*ARRIVALS.names)

    def _replaced(
        self, held: Held | None, homes: Collection[int], now: Collection[int], everything: bool
    ) -> str | None:
        """A condition in SQL: the rows that are computed again; None for all there are."""
        if held is not None and held.state.judgement != self.judgement:
            return None
        own = among([self.metadata.cluster])
        if everything:
            return own
        written = f"{KIND} <> 'arrivals' AND {DAY} IN ({_listed(homes)})"
        return f"{own} AND ({written} OR {KIND} = 'arrivals' AND {DAY} IN ({_listed(now)}))"


def _whole(
    spark: SparkSession,
    archives: Sequence[str | Path],
    metadata: MetadataLog,
    path: str | Path,
    judgement: Judgement,
    replace: bool,
) -> Preparation:
    """Prepare all that is in archives."""
    cluster = metadata.cluster
    records = _numbered([read_archive(spark, archive, clusters=[cluster]) for archive in archives])
    counts = prepare(
        records,
        MetadataTables.of(spark, [metadata]),
        path,
        window_ms=judgement.window_ms,
        windows=judgement.windows,
        further=judgement.further,
        replace=replace,
    ).get(cluster, {})
    arrival = day_number("arrived_ms")
    first, last = records.agg(f.min(arrival), f.max(arrival)).collect()[0]
    days = None if first is None else (day_name(first), day_name(last))
    return Preparation(days, counts, counts, 0)


def _remove_replaced(
    spark: SparkSession, store: Store, unfinished: Iterable[str], *, old_files: bool
) -> None:
    """Remove what runs left that were not completed, and if asked, files that are not needed."""
    for name in unfinished:
        store.delete(name)
    if old_files:
        with delta_sentences(f"prepared history {store.root}"):
            vacuum(spark, store, TABLE)


def _numbered(archives: Iterable[DataFrame]) -> DataFrame:
    """Records of several archives, whose topics each number their partitions from 0."""
    place = f.col("source_partition")
    return reduce(
        DataFrame.unionByName,
        (
            rows.withColumn("source_partition", place + f.lit(i * _PARTITIONS))
            for i, rows in enumerate(archives)
        ),
    )


def _chunks(days: Sequence[int], at_once: int) -> Iterator[list[int]]:
    """Runs of consecutive days, of limited length."""
    chunk: list[int] = []
    for day in days:
        if chunk and (len(chunk) == at_once or day > chunk[-1] + 1):
            yield chunk
            chunk = []
        chunk.append(day)
    if chunk:
        yield chunk


def _homes(
    now: Collection[int], unchanged: Collection[int], expired: Collection[int], reach: Reach
) -> set[int]:
    """The days of records whose outcome, or number, days of arrival can change.

    Parameters
    ----------
    now
        The days of arrival.
    unchanged
        Other days of arrival that are prepared and stay as they are: on these, records may be
        late or not by what arrived before.
    expired
        Days of arrival whose records are gone: what is prepared of these days stays, and of those
        whose records may have arrived on them, unless more arrived on such a day itself.
    reach
        How far a record may be from its arrival.
    """
    after = {p for p in unchanged if any(p - reach.before - 1 <= day < p for day in now)}
    touched = (
        range(day - reach.before, day + reach.after + 1) for day in sorted(now) + sorted(after)
    )
    found = {home for homes in touched for home in homes if 0 <= home <= LAST_DAY}
    gone = {*expired}

    def lost(home: int) -> bool:
        # What arrived on an expired day before, by a clock ahead, counts less than the day itself.
        first = home if home in now else home - reach.after
        return bool({*range(first, home + reach.before + 1)} & gone)

    return {home for home in found if not lost(home)}


def _tables(judged: JudgedRecords, records: DataFrame, judgement: Judgement) -> list[DataFrame]:
    """The rows of a prepared history."""
    reach = Reach.of(judgement.window_ms, judgement.windows)
    sums = {
        "cells": partition_sums(judged.rated),
        "broker_cells": broker_sums(judged.brokers),
        "sizes": sizes(judged.partitions),
        "traffic": traffic_sums(records, judged.rated, judgement.window_ms),
    }
    if judged.further:
        sums["further"] = further_sums(judged)
    start = day_text(day_number("start_ms"))
    home = day_text(reach.home("time_ms", "arrived_ms"))
    return [
        *(of_kind(name, rows, start) for name, rows in sums.items()),
        of_kind("quarantine", judged.quarantine, home),
    ]


def _counted(judged: JudgedRecords, judgement: Judgement) -> dict[str, dict[int, Counts]]:
    """The number of records with each outcome, by cluster and day."""
    home = Reach.of(judgement.window_ms, judgement.windows).home("time_ms", "arrived_ms")
    rows = judged.outcomes.groupBy(CLUSTER, home.alias(DAY), "reason").count()
    found: dict[str, dict[int, Counts]] = {}
    for cluster, day, outcome, count in sorted(rows.collect()):
        found.setdefault(cluster, {}).setdefault(day, {})[outcome] = count
    return found


def _summed(counts: Iterable[Counts]) -> Counts:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(sorted(found.items()))


def _listed(days: Iterable[int]) -> str:
    """Dates in SQL; there is at least one, which no row has."""
    return ", ".join(f"'{name}'" for name in ("", *map(day_name, sorted(days))))


@contextmanager
def _kept_beside(
    spark: SparkSession, store: Store
) -> Iterator[Callable[[str, DataFrame], DataFrame]]:
    """Stores tables beside the history for a while, and reports failures by sentences.

    Each is computed once, and what is based on it is planned without the plan that made it.
    """
    place = f"{JUDGED}{uuid.uuid4().hex}"

    def keep(name: str, table: DataFrame) -> DataFrame:
        path = store.at(f"{place}/{name}")
        table.write.parquet(path)
        return spark.read.schema(table.schema).parquet(path)

    try:
        with sentences(f"prepared history {store.root}"):
            yield keep
    finally:
        store.delete(place)


def _kept(judged: JudgedRecords, keep: Callable[[str, DataFrame], DataFrame]) -> JudgedRecords:
    """Judged records as tables that are computed."""
    problems = judged.problems
    return dataclasses.replace(
        judged,
        rated=keep("rated", judged.rated),
        settled=keep("settled", judged.settled),
        brokers=keep("brokers", judged.brokers),
        problems=None if problems is None else keep("problems", problems),
    )
