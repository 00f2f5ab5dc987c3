"""The same records give the same history, however they were fetched, ordered or repeated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.history.archive import read_archive, write_batch
from cluster_model.history.clean import judge
from cluster_model.history.decode import decode
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.schema import MESSAGES
from cluster_model.history.screening import MetadataTables
from cluster_model.history.traffic import traffic_sums
from cluster_model.history.window_sums import broker_sums, partition_sums, sizes
from metrics_reporter import Record, encode
from metrics_reporter.metrics import bytes_to

WINDOW, WINDOWS = 300_000, 5
T = 1_700_000_100_000 // WINDOW * WINDOW
SEEDS, HOURS = range(3), 0.75

# A message: time of arrival and content; its place in the list is its offset.
Message = tuple[int, bytes]


def cluster() -> Snapshot:
    return synthetic_snapshot(brokers=3, partitions=6, racks=3, topics=2, replication_factor=2)


def reported(seed: int, hours: float) -> list[Message]:
    """Reports of every leader once a minute, each after up to a minute."""
    s, rng = cluster(), np.random.default_rng(seed)
    holders = s.broker_ids[s.replica_broker]
    found: list[Message] = []

    def send(record: Record) -> None:
        found.append((record.time_ms + int(rng.integers(0, 60_000)), encode(record)))

    for now in range(T, T + int(hours * 3_600_000), 60_000):
        for broker in s.broker_ids.tolist():
            send(Record(now, broker, {"cpu": float(rng.uniform(1, 90))}))
        for p in range(s.n_partitions):
            topic, number = s.topics[s.partition_topic[p]], int(s.partition_number[p])
            lead = int(holders[s.replica_offset[p] + s.leader[p]])
            other = s.topics[s.partition_topic[(p + 1) % s.n_partitions]]
            metrics = {name: float(rng.uniform(0, 1e6)) for name in ("bytes_in", "bytes_out")}
            metrics |= {"size": float(rng.uniform(0, 1e9)), bytes_to(other, 0): 5.0}
            send(Record(now + p, lead, metrics, topic, number))
            if p % 3 == 0:
                # An estimate, discarded in favour of the measurements.
                send(Record(now + 100, lead, {"bytes_in": 7.0}, topic))
    return sorted(found, key=lambda message: message[0])


def disordered(messages: Sequence[Message], seed: int) -> list[Message]:
    """Each up to three windows later, and so in another order."""
    rng = np.random.default_rng(seed)
    late = [(at + int(rng.integers(0, 3 * WINDOW)), value) for at, value in messages]
    return sorted(late, key=lambda message: message[0])


def repeated(messages: Sequence[Message], seed: int) -> list[Message]:
    """A third of them sent again: at once, a window later, or much later."""
    rng = np.random.default_rng(seed)
    again = [
        (at + int(rng.choice([0, WINDOW, 20 * WINDOW])), value)
        for at, value in messages
        if rng.random() < 1 / 3
    ]
    return sorted([*messages, *again], key=lambda message: message[0])


def decoded(spark: SparkSession, clusters: Mapping[str, Sequence[Message]]) -> DataFrame:
    """The messages of clusters, each in a topic of three partitions."""
    rows = [
        (name, None, at, i % 3, i, value)
        for name, messages in clusters.items()
        for i, (at, value) in enumerate(messages)
    ]
    schema = to_arrow_schema(MESSAGES)
    columns = [
        pa.array(column, kind.type)
        for column, kind in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    arrow = pa.Table.from_arrays(columns, schema=schema)
    return decode(spark.createDataFrame(arrow, schema=MESSAGES)).persist()


def histories(
    spark: SparkSession, records: DataFrame, names: Iterable[str]
) -> dict[str, dict[str, list[str]]]:
    """By name of a cluster the rows of its tables of sums, in order."""
    names = [*names]
    # One log serves all clusters, which differ only in how their records arrived.
    log = MetadataLog.of(cluster())
    every = spark.createDataFrame([(name,) for name in names], "cluster string")
    metadata = MetadataTables(
        *(
            every.crossJoin(t.drop("cluster")).select(*t.columns)
            for t in (log.placements(spark), log.brokers(spark), log.topics(spark))
        )
    )
    judged = judge(records, metadata, window_ms=WINDOW, windows=WINDOWS).persist()
    # The newest window is kept for each interval of arrival, not for each message.
    assert judged.arrivals.count() * 5 < records.count()
    tables = {
        "rates": partition_sums(judged.rated),
        "brokers": broker_sums(judged.brokers),
        "sizes": sizes(judged.partitions),
        "traffic": traffic_sums(records, judged.rated, WINDOW),
    }
    found: dict[str, dict[str, list[str]]] = {n: {t: [] for t in tables} for n in names}
    for name, table in tables.items():
        for row in table.toArrow().to_pylist():
            found[row.pop("cluster")][name].append(repr(sorted(row.items())))
    judged.unpersist()
    return {n: {t: sorted(rows) for t, rows in of.items()} for n, of in found.items()}


def samples(history: Mapping[str, Sequence[str]]) -> int:
    return sum(int(n) for row in history["rates"] for n in re.findall(r"in_count', (\d+)", row))


@pytest.mark.soak
def test_order_repetition_and_archives_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    variants: dict[str, list[Message]] = {}
    for seed in SEEDS:
        messages = reported(seed, HOURS)
        variants[f"{seed}"] = messages
        variants[f"{seed} disordered"] = disordered(messages, seed)
        variants[f"{seed} repeated"] = repeated(messages, seed)
        variants[f"{seed} both"] = repeated(disordered(messages, seed + 1), seed + 1)
    archives = {"0 archived at once": 1, "0 archived in parts": 3}
    rows = decoded(spark, variants | dict.fromkeys(archives, variants["0"]))
    found = [rows.where(~f.col("cluster").isin(*archives))]
    for name, count in archives.items():
        size = -(-len(variants["0"]) // count)
        for n in range(count):
            own = f.col("source_offset").between(n * size, (n + 1) * size - 1)
            batch = rows.where((f.col("cluster") == name) & own)
            batch = batch.withColumn("batch", f.lit(n).cast("long"))
            # The last one again, by a restart that finds the batch complete.
            for _ in range(1 + (n == 2)):
                write_batch(batch, str(tmp_path / name), n)
        found.append(read_archive(spark, tmp_path / name))
    records = reduce(DataFrame.unionByName, found)
    history = histories(spark, records, [*variants, *archives])
    for name, tables in history.items():
        assert tables == history[name.split()[0]], name
    # Of six partitions, once a minute.
    assert samples(history["0"]) == HOURS * 60 * 6
    assert all(history["0"].values())
