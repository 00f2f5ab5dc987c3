"""Months of records through Spark into a snapshot: rows per second, memory, plan quality.

python -m benchmarks.history WHAT SIZE SEED SCRATCH ANSWER.json [PYTHON_WITH_DUCKDB]
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.environments import PeerMissing
from benchmarks.harness.processes import run_apart
from benchmarks.history_days import add_days
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from benchmarks.subjects import duckdb_history
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import Bools

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# One cluster over increasing periods: values per report, and reports.
_CLUSTER: dict[str, Any] = {"brokers": 20, "partitions": 300, "racks": 5, "topics": 30}
_VALUES = {"S": 1e6, "M": 1e7, "L": 1e8}
_INTERVAL_MS = 60_000
_DAY_MS = 24 * 3_600_000
_MEMORY = "1g"
_SAMPLE_SECONDS = 0.5
# The cluster with daily peaks: windows of an hour, a week to learn from, a day to live.
_PEAKS: dict[str, Any] = {
    "brokers": 12, "partitions": 240, "racks": 3, "topics": 40, "utilization": 0.21, "skew": 1.5,
    "rack_violations": 0.0,
}  # fmt: skip
_LEARNED_DAYS = 7
_SHARPNESS = 4.0
_ONE_PEAKS_OF = 3
# Peaks of topics lie within a tenth of a day, since most users are in one time zone.
_SPREAD = 0.1
# Limit as a share of a capacity; a cpu queues from 0.7 on, and Cruise Control's goals keep it
# below.
_LIMIT, _BUSY = 0.8, 0.7
# Days whose hours are replayed, and the clusters.
_LIVES: dict[str, tuple[int, dict[str, Any]]] = {
    "S": (7, {"brokers": 20, "partitions": 600, "racks": 5}),
    "M": (30, {"brokers": 100, "partitions": 3_000, "racks": 10}),
    "L": (30, {"brokers": 1_000, "partitions": 30_000, "racks": 10}),
}
_HOUR_MS = 3_600_000
_SUBJECTS = ("snapshot", "duckdb", "p95 against mean", "backtest", "day")
_ROOT = Path(__file__).parents[1]


@benchmark("history", sizes=tuple(_VALUES))
def history(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Records on disk to a p95 snapshot, and whether a plan from p95 beats one from the mean.

    Records of 20 brokers and 300 partitions, one report per minute, over as many days as needed;
    they are cleaned, summed over windows, and read as a snapshot. Memory is that of the driver
    and all its workers together, with shared pages counted once. Exponents are those of times
    in the number of values, from one size to the next; processor seconds are the most reliable
    measure on a busy machine.

    DuckDB makes the same loads of the same Parquet, in a process of its own, and the answers are
    compared; its processor seconds are those of that process, from its start on, ours those from
    a session that is up.

    The third subject has flat topics and topics that peak at about the same time of the day.
    Both plans are made from the same week; the following day judges them. The fourth
    replays hours of synthetic loads against two configurations (20, 100 and 1,000 brokers),
    and draws with ``--pictures``. The fifth adds days to a prepared week and to a prepared year (60
    days in size S) of the same cluster.
    """
    for name in options.subjects:
        if name not in _SUBJECTS:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(_SUBJECTS)}")
    requested = options.subjects or _SUBJECTS
    before: dict[str, float] = {}
    peer = _peer(options) if "duckdb" in requested else None
    for size in sizes if "snapshot" in requested or peer is not None else ():
        options.log(f"history {size}: {_VALUES[size]:.0e} values")
        found = _apart("snapshot", size, options.seed, peer=peer)
        for metric, value, unit in found:
            name, of_peer, own = metric.partition("duckdb: ")
            yield Row("history", size, *(("duckdb", own) if of_peer else ("snapshot", name)),
                      value, unit)  # fmt: skip
        reported = {metric: value for metric, value, _ in found}
        if before:
            grown = math.log(reported["values"] / before["values"])
            for name in ("seconds", "processor seconds"):
                exponent = math.log(reported[name] / before[name]) / grown
                yield Row("history", size, "snapshot", f"exponent of {name}", exponent, "ratio")
        before = reported
    for size in sizes if "backtest" in requested else ():
        options.log(f"history {size}: backtest")
        for metric, value, unit in _apart("backtest", size, options.seed, options.pictures):
            yield Row("history", size, "backtest", metric, value, unit)
    for size in sizes if "day" in requested else ():
        options.log(f"history {size}: a day added to a week and to a year")
        for metric, value, unit in _apart("day", size, options.seed):
            yield Row("history", size, "day", metric, value, unit)
    if "p95 against mean" in requested:
        options.log("history: p95 against mean")
        for metric, value, unit in _apart("peaks", sizes[0], options.seed):
            yield Row("history", sizes[0], "p95 against mean", metric, value, unit)


def _peer(options: Options) -> Path | None:
    """The interpreter with DuckDB; None if there can be none and it was not asked for by name."""
    try:
        return duckdb_history.prepare(options)
    except PeerMissing as error:
        if "duckdb" in options.subjects:
            raise
        options.log(f"duckdb left out: {error}")
        return None


def _apart(
    what: str,
    size: str,
    seed: int,
    pictures: Path | None = None,
    peer: Path | None = None,
) -> list[tuple[str, float, str]]:
    """Measure in a separate process and Spark; keep its picture if one is requested."""
    with tempfile.TemporaryDirectory(prefix="history-") as scratch:
        answer = Path(scratch) / "answer.json"
        command: list[str | Path] = [
            sys.executable,
            "-m",
            __name__,
            what,
            size,
            str(seed),
            scratch,
            answer,
            *([] if peer is None else [peer]),
        ]
        run_apart(command, f"history {size}", cwd=_ROOT)
        drawn = answer.with_suffix(".svg")
        for found, name in ((drawn, what), (_of_brokers(drawn), f"{what}-brokers")):
            if pictures is not None and found.exists():
                pictures.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, pictures / f"history-{name}-{size}.svg")
        return [(m, v, u) for m, v, u in json.loads(answer.read_text())]


def _of_brokers(picture: Path) -> Path:
    """The heat map beside a picture."""
    return picture.with_stem(f"{picture.stem}-brokers")


def measure(
    size: str, seed: int, scratch: Path, peer: Path | None = None
) -> list[tuple[str, float, str]]:
    """Write records of a size, and make a snapshot of them, and with DuckDB the same loads."""
    from pyspark.sql import functions as f

    from cluster_model.history.history import History
    from cluster_model.history.schema import RECORDS
    from cluster_model.history.synthetic import TrafficPattern, synthetic_records
    from metrics_reporter.metrics import METRIC_IDS

    cluster = synthetic_snapshot(**_CLUSTER, seed=seed)
    replicas, leaders = cluster.n_replicas, cluster.n_partitions
    # Sizes of all replicas, rates of leaders, and cpu and four rates of brokers.
    values = replicas + 2 * leaders + 5 * cluster.n_brokers
    spark = _session(scratch)
    path = str(scratch / "records")
    began = time.perf_counter()
    synthetic_records(
        spark,
        cluster,
        intervals=max(1, round(_VALUES[size] / values)),
        interval_ms=_INTERVAL_MS,
        traffic=TrafficPattern(noise=0.1),
        dirt=0.01,
        disorder=0.01,
        cluster="default",
        seed=seed,
    ).write.parquet(path)
    generated = time.perf_counter() - began
    records = spark.read.schema(RECORDS).parquet(path)
    reported = [f.count(name) for name in METRIC_IDS]
    rows, *counts = records.agg(f.count("*"), *reported).collect()[0]
    began, worked = time.perf_counter(), processor_seconds()
    with peak_memory() as memory:
        found = History.of_records(records, cluster).snapshot(statistic="p95")
    seconds, worked = time.perf_counter() - began, processor_seconds() - worked
    # Holds for any length of history: at the quietest time of the day rates are 0.29 of their mean.
    if not (found.leader_load[:, 1] > 0.2 * cluster.leader_load[:, 1]).all():
        raise BenchmarkError("the p95 of a partition came out far below its mean rate")
    beside: list[tuple[str, float, str]] = []
    if peer is not None:
        spent, differs = duckdb_history.measure(peer, scratch / "records", cluster, found, scratch)
        beside = [
            ("processor seconds / DuckDB's", worked / spent, "ratio"),
            ("duckdb: processor seconds", spent, "seconds"),
            ("duckdb: largest difference", differs, "ratio"),
        ]
    return [
        ("values", float(sum(counts)), "values"),
        ("rows", float(rows), "rows"),
        ("bytes on disk", float(_size(scratch / "records")), "bytes"),
        ("seconds of generating", generated, "seconds"),
        ("seconds", seconds, "seconds"),
        ("processor seconds", worked, "seconds"),
        ("rows per second", rows / seconds, "rows/s"),
        ("values per second", sum(counts) / seconds, "values/s"),
        ("peak memory", float(memory[0]), "bytes"),
        *beside,
    ]


def compare(seed: int, scratch: Path) -> list[tuple[str, float, str]]:
    """Plans of the mean and of the 95th percentile of a week, judged by the next day."""
    from balancer import Balancer
    from balancer.backtest import judge_placements
    from cluster_model.history.history import History
    from cluster_model.history.schema import RECORDS
    from cluster_model.history.synthetic import START_MS

    cluster = synthetic_snapshot(**_PEAKS, seed=seed)
    spark = _session(scratch)
    path = str(scratch / "records")
    _records_with_peaks(spark, cluster, seed).write.parquet(path)
    records = spark.read.schema(RECORDS).parquet(path)
    known = History.of_records(records, cluster, window_ms=3_600_000)
    now_ms = START_MS + _LEARNED_DAYS * _DAY_MS
    ends = {}
    rows: list[tuple[str, float, str]] = []
    for statistic in ("mean", "p95"):
        learned = known.snapshot(
            now_ms,
            _LEARNED_DAYS * _DAY_MS,
            statistic,
            cpu="regression",
        )
        plan = Balancer("default", seed=seed).propose(learned)
        ends[statistic] = plan.final_snapshot()
        rows.append((f"bytes moved, {statistic}", plan.summary.cost, "bytes"))
    lived = judge_placements(known, ends, first_ms=now_ms, end_ms=now_ms + _DAY_MS, limit=_BUSY)
    for tally in lived.totals:
        what = "nothing moved" if tally.configuration == "history" else tally.configuration
        rows += [
            (f"overloaded broker-hours, {what}", tally.overloaded_hours, "hours"),
            (f"worst load / capacity, {what}", tally.worst, "ratio"),
        ]
    return rows


class InventedLoads:
    """Loads with a daily rhythm, generated by Spark window by window.

    Parameters
    ----------
    spark, snapshot
        The session that generates them, and the placement with mean loads.
    seed
        Seed of the topics' peaks.
    """

    window_ms = _HOUR_MS

    def __init__(self, spark: SparkSession, snapshot: Snapshot, seed: int) -> None:
        from cluster_model.history.metadata import MetadataLog

        self._spark, self._snapshot, self._seed = spark, snapshot, seed
        self.metadata = MetadataLog.of(snapshot)

    def loads(self, first_ms: int, end_ms: int) -> DataFrame:
        """The rows that :func:`balancer.backtest.backtest` reads."""
        import pyarrow as pa

        from cluster_model.history.synthetic import TrafficPattern, phases

        s, traffic = self._snapshot, TrafficPattern(growth=0.005)
        phase = phases(s, traffic, self._seed)
        rates = np.array([name != "disk" for name in s.resources])

        def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            names = pa.array(s.topics).take(pa.array(s.partition_topic))
            ends = np.arange(s.n_partitions + 1, dtype=np.int32) * len(s.resources)
            for start_ms in (at for batch in batches for at in batch.column(0).to_pylist()):
                grown = traffic.grown(start_ms, first_ms)
                rate = traffic.factor(start_ms, phase, first_ms)
                factor = np.where(rates, rate[:, None], grown)
                loads = (
                    pa.ListArray.from_arrays(pa.array(ends), pa.array((load * factor).ravel()))
                    for load in (s.leader_load, s.follower_load)
                )
                starts = pa.array(np.full(s.n_partitions, start_ms))
                numbers = pa.array(s.partition_number)
                yield pa.RecordBatch.from_arrays(
                    [starts, names, numbers, *loads],
                    names=["start_ms", "topic", "partition", "leader", "follower"],
                )

        return self._spark.range(first_ms, end_ms, self.window_ms).mapInArrow(
            made,
            "start_ms long, topic string, partition long, leader array<double>, "
            "follower array<double>",
        )


def replay(
    size: str, seed: int, scratch: Path, picture: Path | None = None
) -> list[tuple[str, float, str]]:
    """Two configurations over days of synthetic loads."""
    from balancer import Balancer
    from balancer.backtest import Configuration, backtest, draw, draw_brokers
    from balancer.controller import Settings
    from cluster_model.history.synthetic import START_MS

    days, shape = _LIVES[size]
    cluster = synthetic_snapshot(**shape, utilization=0.35, seed=seed)
    tried = [
        Configuration("default", Balancer("default", seed=seed)),
        Configuration("at most 100 moves", Balancer("default", seed=seed), Settings(max_moves=100)),
    ]
    loads = InventedLoads(_session(scratch), cluster, seed)
    began, worked = time.perf_counter(), processor_seconds()
    with peak_memory() as memory:
        found = backtest(
            loads, tried, first_ms=START_MS, end_ms=START_MS + days * _DAY_MS, limit=_LIMIT
        )
    seconds, worked = time.perf_counter() - began, processor_seconds() - worked
    if picture is not None:
        draw(found, picture)
        draw_brokers(found, _of_brokers(picture))
    rows = [
        ("windows judged", float(len(found.windows)), "windows"),
        ("seconds", seconds, "seconds"),
        ("processor seconds", worked, "seconds"),
        ("peak memory", float(memory[0]), "bytes"),
    ]
    for tally in found.totals:
        rows += [
            (f"goals violated, mean, {tally.configuration}", tally.goals_violated, "goals"),
            (f"worst load / capacity, {tally.configuration}", tally.worst, "ratio"),
            (f"overloaded broker-hours, {tally.configuration}", tally.overloaded_hours, "hours"),
            (f"plans, {tally.configuration}", float(tally.plans), "plans"),
            (f"bytes moved, {tally.configuration}", tally.bytes_moved, "bytes"),
            (f"thrash, {tally.configuration}", tally.thrash, "ratio"),
        ]
    return rows


def _records_with_peaks(spark: SparkSession, cluster: Snapshot, seed: int) -> DataFrame:
    """Reports of flat topics and of topics with a daily peak, with the sums of each broker."""
    from pyspark.sql import functions as f

    from cluster_model.history.synthetic import TrafficPattern, synthetic_records
    from metrics_reporter.metrics import BROKER_METRICS

    peaks = np.arange(len(cluster.topics)) % _ONE_PEAKS_OF == 0
    parts = [
        synthetic_records(
            spark,
            _of_topics(cluster, chosen),
            intervals=(_LEARNED_DAYS + 1) * 96 + 1,
            interval_ms=_DAY_MS // 96,
            traffic=TrafficPattern(sharpness=sharpness, spread=_SPREAD, noise=0.05),
            cluster="default",
            seed=seed,
        )
        for chosen, sharpness in ((peaks, _SHARPNESS), (~peaks, 0.0))
    ]
    both = reduce(lambda a, b: a.unionByName(b), parts)
    whole = both.where(f.col("topic").isNull())
    reported = [name for name in BROKER_METRICS if name in both.columns]
    keys = [c for c in both.columns if c not in reported and c != "source_offset"]
    of = ("batch", "arrived_ms", "time_ms", "broker")
    added = whole.groupBy(*of).agg(
        f.min("source_offset").alias("source_offset"),
        *(
            f.first(c).alias(c)
            for c in keys
            if c not in ("batch", "arrived_ms", "time_ms", "broker")
        ),
        *(f.sum(name).alias(name) for name in reported),
    )
    return both.where(f.col("topic").isNotNull()).unionByName(added.select(both.columns))


def _of_topics(s: Snapshot, chosen: Bools) -> Snapshot:
    """The cluster with the partitions of some of its topics."""
    keep = chosen[s.partition_topic]
    replicas = keep[s.replica_partition]
    return replace(
        s,
        partition_topic=s.partition_topic[keep],
        partition_number=s.partition_number[keep],
        leader_load=s.leader_load[keep],
        follower_load=s.follower_load[keep],
        replica_offset=np.concatenate([[0], np.cumsum(s.replication_factor[keep])]),
        replica_broker=s.replica_broker[replicas],
        leader=s.leader[keep],
    )


def _session(scratch: Path, *, delta: bool = False) -> SparkSession:
    """The session that a user gets, with the memory that is measured."""
    from cluster_model.history.session import spark_session

    return spark_session(
        "local[*]",
        delta=delta,
        config={
            "spark.driver.memory": _MEMORY,
            "spark.local.dir": str(scratch),
        },
    )


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Peak memory of this process and its descendants while the context is open."""
    peak, over = [0], threading.Event()

    def look() -> None:
        while not over.is_set():
            peak[0] = max(peak[0], sum(_held(pid) for pid in _family(os.getpid())))
            over.wait(_SAMPLE_SECONDS)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


def _family(root: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            # The name, in brackets, may contain any character.
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    family, at = [root], 0
    while at < len(family):
        family += parents.get(family[at], [])
        at += 1
    return family


def processor_seconds() -> float:
    """Processor time of this process and its descendants, including ended ones."""
    ticks = 0
    for pid in _family(os.getpid()):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        ticks += sum(int(x) for x in stat.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _held(pid: int) -> int:
    """Bytes of memory of a process, with its part of shared pages."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return reduce(add, (1024 * int(x.split()[1]) for x in lines if x.startswith("Pss:")), 0)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def main(
    what: str, size: str, seed: str, scratch: str, answer: str, peer: str | None = None
) -> None:
    """Measure one thing, and write the rows to a file."""
    folder = Path(scratch) / what
    folder.mkdir()
    if what == "peaks":
        rows = compare(int(seed), folder)
    elif what == "day":
        session = _session(folder, delta=True)
        rows = add_days(size, int(seed), folder, session, processor_seconds)
    elif what == "backtest":
        rows = replay(size, int(seed), folder, Path(answer).with_suffix(".svg"))
    else:
        rows = measure(size, int(seed), folder, None if peer is None else Path(peer))
    Path(answer).write_text(json.dumps(rows))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
