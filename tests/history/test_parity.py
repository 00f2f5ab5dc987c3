"""The history and the live model agree on the same random, dirty and disordered streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from frames import records_frame
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cluster_model import BrokerRecord, PartitionRecord, Snapshot, SnapshotDocument
from cluster_model.build import build_snapshot
from cluster_model.history.clean import judge
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.schema import BROKERS, PLACEMENTS, TOPICS
from cluster_model.history.screening import MetadataTables
from cluster_model.history.window_sums import broker_sums, partition_sums, sizes
from cluster_model.history.windows import (
    broker_windows,
    completeness,
    led,
    newest_sizes,
    valid_partitions,
    windows,
)
from cluster_model.live import ClusterModel
from cluster_model.windows import Extrapolation, LoadWindows
from metrics_reporter import BROKER_METRICS, Record, RecordBatch

IN, OUT, DISK = 1, 2, 3
# Streams judged in one go, each as a cluster of its own: most of a job's time is its start.
STREAMS = 40
# Further examples, each of which takes a while: none but where examples roam.
ROAMED = settings().max_examples // 25 - 1
NAMES = ("a", "b.c", "b_c", "d.e", "f")


class Batch(NamedTuple):
    clock_ms: int
    arrived_ms: list[int]
    records: list[Record]


class Stream(NamedTuple):
    snapshot: Snapshot
    batches: list[Batch]


def cluster(rng: np.random.Generator) -> Snapshot:
    """Up to four brokers, and topics of which two are alike once dots are underscores."""
    brokers = rng.choice(50, rng.integers(2, 5), replace=False).tolist()
    capacity = {"network_in": 1e9, "network_out": 1e9, "disk": 1e12}
    if rng.random() < 0.7:
        capacity["cpu"] = 800.0
    partitions: list[PartitionRecord] = []
    for topic in rng.choice(NAMES, rng.integers(2, len(NAMES) + 1), replace=False).tolist():
        for number in rng.choice(9, rng.integers(1, 4), replace=False).tolist():
            replicas = rng.choice(brokers, rng.integers(1, len(brokers) + 1), replace=False)
            # Some partition has a leader, whose record ends the stream.
            leader = None if partitions and rng.random() < 0.1 else int(rng.choice(replicas))
            partitions.append(
                PartitionRecord(
                    topic=topic,
                    partition=number,
                    replicas=tuple(replicas.tolist()),
                    leader=leader,
                )
            )
    return build_snapshot(
        SnapshotDocument(
            resources=tuple(capacity),
            brokers=tuple(BrokerRecord(id=i, capacity=capacity) for i in brokers),
            partitions=tuple(partitions),
        )
    )


def record(rng: np.random.Generator, s: Snapshot, time_ms: int, dirt: float) -> Record:
    """Mostly what a broker would tell, sometimes what none could."""

    def odd() -> bool:
        return bool(rng.random() < dirt)

    def values(names: tuple[str, ...], share: float) -> dict[str, float]:
        reported = {
            n: float(rng.uniform(0, 1.0 if n == "cpu_ratio" else 1e6))
            for n in names
            if rng.random() < share
        }
        for name in reported:
            if rng.random() < dirt / 10:
                reported[name] = float(rng.choice([-1.0, 1e18, np.inf, -np.inf, np.nan]))
        return reported

    broker = 99 if odd() else int(rng.choice(s.broker_ids))
    kind = rng.random()
    if kind < 0.2:
        return Record(time_ms, broker, values((*BROKER_METRICS[:4], "cpu_ratio", "size"), 0.6))
    row = int(rng.integers(s.n_partitions))
    name = "nobody" if odd() else s.topics[s.partition_topic[row]]
    underscored = bool(rng.random() < 0.2)
    name = name.replace(".", "_") if underscored else name
    reported = values(("bytes_in", "bytes_out", "size", "other_thing"), 0.75)
    if kind < 0.45:
        return Record(time_ms, broker, reported, name, -1, underscored)
    held = s.replica_broker[s.replica_offset[row] : s.replica_offset[row + 1]]
    broker = broker if odd() else int(s.broker_ids[rng.choice(held)])
    number = int(rng.choice([-2, 77])) if odd() else int(s.partition_number[row])
    return Record(time_ms, broker, reported, name, number, underscored)


def stream(seed: int, window_ms: int, dirt: float, disorder: float, end_ms: int) -> Stream:
    """Batches until a moment, after which nothing newer can come than what came last."""
    rng = np.random.default_rng(seed)
    s = cluster(rng)
    batches: list[Batch] = []
    sent: list[Record] = []
    n = int(rng.integers(3, 12))
    clocks = np.sort(rng.integers(end_ms - 8 * window_ms, end_ms - window_ms, n))
    for clock in clocks.tolist():
        records = []
        for _ in range(int(rng.integers(1, 40))):
            if sent and rng.random() < dirt:
                records.append(sent[int(rng.integers(len(sent)))])
                continue
            # Coarse, so that different records are of one time.
            away = rng.normal(0, disorder) if rng.random() < 0.8 else rng.uniform(-8, 2.5)
            at = int((clock + away * window_ms) // 97 * 97)
            if rng.random() < dirt / 10:
                # Not 0: for the history, what is from days before its arrival is late.
                at = int(rng.choice([-1, -(2**63), 2**63 - 1]))
            records.append(record(rng, s, at, dirt))
        sent += records
        batches.append(Batch(clock, [clock] * len(records), records))
    # The newest there can be: all streams end with the same window.
    row = int(np.flatnonzero(s.leader >= 0)[0])
    broker = int(s.broker_ids[s.replica_broker[s.replica_offset[row] + s.leader[row]]])
    topic = s.topics[s.partition_topic[row]]
    last = [
        Record(end_ms, broker, {"cpu": 1.0}),
        Record(end_ms, broker, {"bytes_in": 1.0}, topic, int(s.partition_number[row])),
    ]
    clock = end_ms - window_ms
    return Stream(s, [*batches, Batch(clock, [clock] * len(last), last)])


class Clock:
    """Milliseconds that a test sets."""

    ms = 0

    def __call__(self) -> int:
        return self.ms


def known(found: LoadWindows, names: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], Any]:
    """By entity and start each window in which something is known: values and kinds."""
    some = (found.kind < Extrapolation.NO_VALID_EXTRAPOLATION).any(axis=2)
    return {
        (*names[e], int(found.start_ms[w])): (found.value[e, w], found.kind[e, w].tolist())
        for e, w in np.argwhere(some).tolist()
    }


def assert_same(got: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
    assert got.keys() == expected.keys()
    for key, (value, kind) in expected.items():
        np.testing.assert_allclose(got[key][0], value, rtol=1e-12, err_msg=str(key))
        assert got[key][1] == kind, key


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


class Tables:
    """Takes the place of a session where the tables themselves are wanted."""

    createDataFrame = staticmethod(lambda table, schema: table)


def metadata_of(spark: SparkSession, snapshots: dict[str, Snapshot]) -> MetadataTables:
    """As Metadata.of, in one table for all clusters, which plans much faster."""
    logs = [MetadataLog.of(s, cluster=name) for name, s in snapshots.items()]
    return MetadataTables(
        *(
            spark.createDataFrame(
                pa.concat_tables(getattr(log, name)(Tables) for log in logs), schema
            )
            for name, schema in (
                ("placements", PLACEMENTS),
                ("brokers", BROKERS),
                ("topics", TOPICS),
            )
        )
    )


@settings(
    max_examples=max(1, ROAMED),
    phases=[Phase.explicit, *[Phase.generate] * min(1, ROAMED)],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(seed=2, window_ms=997, kept=4, min_samples=2, dirt=0.2)
@given(
    seed=st.integers(0, 2**32),
    window_ms=st.sampled_from([1000, 997, 60_000]),
    kept=st.integers(1, 6),
    min_samples=st.integers(1, 4),
    dirt=st.floats(0, 0.3),
)
def test_live_and_history_tell_the_same(
    spark: SparkSession, seed: int, window_ms: int, kept: int, min_samples: int, dirt: float
) -> None:
    end_ms = 1_700_000_000_000 // window_ms * window_ms
    rng = np.random.default_rng(seed)
    streams = {
        f"c{i}": stream(seed + i, window_ms, dirt, float(rng.uniform(0.1, 3)), end_ms)
        for i in range(STREAMS)
    }
    models: dict[str, ClusterModel] = {}
    outcomes: Counter[tuple[str, int, str]] = Counter()
    for name, (snapshot, batches) in streams.items():
        now = Clock()
        model = models[name] = ClusterModel(
            snapshot,
            window_ms=window_ms,
            windows=kept,
            min_samples=min_samples,
            clock=now,
        )
        for number, batch in enumerate(batches):
            before, now.ms = model.counters, batch.clock_ms
            model.add_batch(RecordBatch.of(batch.records))
            for outcome, count in model.counters.items():
                outcomes[name, number, outcome] += count - before[outcome]

    metadata = metadata_of(spark, {name: s.snapshot for name, s in streams.items()})
    records = records_frame(
        spark,
        [
            (name, number, batch.arrived_ms, batch.records)
            for name, s in streams.items()
            for number, batch in enumerate(s.batches)
        ],
    )
    judged = judge(records, metadata, window_ms=window_ms, windows=kept).persist()
    counted = judged.outcomes.groupBy("cluster", "batch", "reason").count()
    got = {(c, b, r): n for c, b, r, n in collected(counted)}
    assert got == {key: n for key, n in outcomes.items() if n}
    assert {"added", "split", "follower"} <= {outcome for _, _, outcome in got}

    span = {
        "window_ms": window_ms,
        "min_samples": min_samples,
        "first_ms": end_ms - kept * window_ms,
        "end_ms": end_ms,
    }
    table = windows(partition_sums(judged.rated), **span).persist()
    reported = {(c, t, p, s): ((i, o), [ik, ok]) for c, t, p, s, i, ik, o, ok in collected(table)}
    of_brokers: dict[tuple[Any, ...], tuple[np.ndarray, list[int]]] = {}
    for c, b, s, m, v, k in collected(broker_windows(broker_sums(judged.brokers), **span)):
        empty = np.zeros(len(BROKER_METRICS)), [4] * len(BROKER_METRICS)
        value, kind = of_brokers.setdefault((c, b, s), empty)
        value[BROKER_METRICS.index(m)], kind[BROKER_METRICS.index(m)] = v, k
    newest = collected(newest_sizes(sizes(judged.partitions)))
    whole = collected(completeness(table, metadata.placements, window_ms=window_ms, end_ms=end_ms))
    valid = set(
        collected(valid_partitions(table, window_ms=window_ms, end_ms=end_ms, max_extrapolations=2))
    )
    by_broker = led(partition_sums(judged.rated), **span).groupBy(
        "cluster", "topic", "partition", "start_ms"
    )
    parts = {
        (c, t, p, s): (i, o)
        for c, t, p, s, i, o in collected(by_broker.agg(F.sum("bytes_in"), F.sum("bytes_out")))
    }
    judged.unpersist()
    table.unpersist()

    expected: dict[tuple[Any, ...], Any] = {}
    expected_brokers: dict[tuple[Any, ...], Any] = {}
    for name, model in models.items():
        seen = model._state()
        s = seen.base
        partitions = [
            (name, s.topics[t], int(n))
            for t, n in zip(s.partition_topic, s.partition_number, strict=True)
        ]
        expected |= known(seen.rates, partitions)
        expected_brokers |= known(seen.brokers, [(name, int(b)) for b in s.broker_ids])
        done = model.completeness()
        ratio = {start: r for c, start, _, _, r in whole if c == name}
        assert sorted(ratio) == done.start_ms.tolist()
        assert [ratio[start] for start in sorted(ratio)] == done.window_ratio.tolist()
        sized = {
            (c, t, p, int(s.broker_ids[b])): v
            for (c, t, p), replicas in zip(
                partitions, np.split(np.arange(s.n_replicas), s.replica_offset[1:-1]), strict=True
            )
            for b, v in zip(s.replica_broker[replicas], seen.sizes[replicas], strict=True)
            if not np.isnan(v)
        }
        assert {(c, t, p, b): v for c, t, p, b, _, v in newest if c == name} == sized
        expected_valid = {p for p, ok in zip(partitions, seen.rates.valid(2), strict=True) if ok}
        assert {p for p in valid if p[0] == name} == expected_valid
    assert_same(reported, expected)
    assert_same(of_brokers, expected_brokers)
    # What is owed to the brokers is all there is.
    assert parts.keys() == reported.keys()
    for key, (rates, _) in reported.items():
        np.testing.assert_allclose(parts[key], rates, rtol=1e-9)
