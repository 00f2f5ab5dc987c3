"""From records to snapshots: the same as the live model's, and what only the history has."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from command_line import invoke
from frames import Arrived, records_frame
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from cluster_model import (
    BrokerRecord,
    PartitionRecord,
    Snapshot,
    SnapshotDocument,
    build_snapshot,
    load_snapshot,
    synthetic_snapshot,
)
from cluster_model.history.errors import HistoryError
from cluster_model.history.history import History
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.synthetic import (
    HOUR_MS,
    START_MS,
    TrafficPattern,
    default_cpu_cost,
    synthetic_records,
)
from cluster_model.live import ClusterModel
from metrics_reporter import Record
from metrics_reporter.metrics import METRIC_IDS

WINDOW = 300_000
CPU, IN, OUT, DISK = range(4)


class Told(NamedTuple):
    snapshot: Snapshot
    history: History
    live: ClusterModel


def replayed(records: DataFrame, snapshot: Snapshot) -> ClusterModel:
    """A live model after all of the records."""
    now = [0]
    live = ClusterModel(snapshot, clock=lambda: now[0])
    rows = records.orderBy("batch", "source_partition", "source_offset").collect()
    for _, batch in groupby(rows, key=lambda r: r.batch):
        arrived = list(batch)
        now[0] = max(r.arrived_ms for r in arrived)
        live.add_all(
            Record(
                r.time_ms,
                r.broker,
                {name: r[name] for name in METRIC_IDS if r[name] is not None},
                r.topic,
                r.partition,
            )
            for r in arrived
        )
    return live


@pytest.fixture(scope="module")
def reported(spark: SparkSession) -> Told:
    """Half an hour of a dirty stream, of brokers of two sizes."""
    snapshot = synthetic_snapshot(
        brokers=4, partitions=16, topics=3, racks=2, replication_factor=2, utilization=0.3
    )
    capacity = snapshot.capacity.copy()
    capacity[:2] *= 2
    snapshot = dataclasses.replace(
        snapshot,
        capacity=capacity,
        traffic_from=np.array([0, 0, 3]),
        traffic_to=np.array([1, 2, 4]),
        traffic_rate=np.array([10.0, 20.0, 30.0]),
    )
    records = synthetic_records(
        spark,
        snapshot,
        intervals=32,
        start_ms=START_MS + 8 * HOUR_MS,
        traffic=TrafficPattern(noise=0.4),
        dirt=0.03,
        disorder=0.1,
    ).cache()
    return Told(snapshot, History.of_records(records, snapshot), replayed(records, snapshot))


def test_the_mean_snapshot_is_the_live_one(reported: Told) -> None:
    found = reported.history.snapshot(horizon_ms=5 * WINDOW)
    live = reported.live.snapshot()
    np.testing.assert_allclose(found.leader_load, live.leader_load, rtol=1e-12)
    np.testing.assert_allclose(found.follower_load, live.follower_load, rtol=1e-12)
    assert np.array_equal(found.replica_broker, live.replica_broker)
    assert found.traffic_from.tolist() == [0, 0, 3]
    assert found.traffic_to.tolist() == [1, 2, 4]
    # A partition tells its whole traffic with one rhythm.
    np.testing.assert_allclose(found.traffic_rate[1], 2 * found.traffic_rate[0])
    share = found.traffic_rate[0] / reported.snapshot.traffic_rate[0]
    np.testing.assert_allclose(
        share, found.leader_load[0, IN] / reported.snapshot.leader_load[0, IN]
    )


@pytest.mark.soak
def test_a_slow_broker_has_the_same_cost_in_both(spark: SparkSession) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=120, racks=3, utilization=0.3)
    records = synthetic_records(
        spark, snapshot, intervals=32, start_ms=START_MS, traffic=TrafficPattern(noise=0.1)
    )
    slow = int(snapshot.broker_ids[3])
    records = records.withColumn(
        "cpu", f.when(f.col("broker") == slow, 2.5 * f.col("cpu")).otherwise(f.col("cpu"))
    ).cache()
    found = History.of_records(records, snapshot).snapshot(horizon_ms=5 * WINDOW)
    live = replayed(records, snapshot).snapshot()
    np.testing.assert_allclose(found.capacity, live.capacity, rtol=1e-12)
    np.testing.assert_allclose(found.leader_load, live.leader_load, rtol=1e-12)
    cost = snapshot.capacity[:, CPU] / found.capacity[:, CPU]
    assert cost[3] == pytest.approx(2.5, rel=0.35)
    assert (np.delete(cost, 3) == 1).all()


def test_what_does_not_count_is_quarantined_with_the_live_reasons(reported: Told) -> None:
    rows = reported.history.quarantine().cache()
    counted = Counter({r.reason: r["count"] for r in _counts(rows, "reason")})
    # The live model takes a size of any age.
    old = rows.where("reason = 'late' AND map_keys(metrics) = array('size')").count()
    assert old
    counted["late"] -= old
    dirty = {k: n for k, n in reported.live.counters.items() if n and k != "added"}
    assert counted == dirty
    assert set(dirty) == {"late", "future", "duplicate", "unknown", "invalid"}


@pytest.mark.soak
def test_loads_and_what_is_made_of_them(reported: Told) -> None:
    history, snapshot = reported.history, reported.snapshot
    first, end = history.range()
    assert (end - first) // WINDOW == 6
    rows = history.loads().toArrow().to_pandas()
    assert len(rows) == 6 * snapshot.n_partitions
    names = [snapshot.topics[t] for t in snapshot.partition_topic.tolist()]
    series = {
        key: (np.stack(of["leader"]), np.stack(of["follower"]))
        for key, of in rows.sort_values("start_ms").groupby(["topic", "partition"])
    }
    keys = list(zip(names, snapshot.partition_number.tolist(), strict=True))
    leader, follower = (np.stack([series[key][role] for key in keys]) for role in (0, 1))
    # Followers take in what leaders do, and leaders send it to each of them.
    np.testing.assert_allclose(follower[..., IN], leader[..., IN])
    assert not follower[..., OUT].any()
    assert (leader[..., OUT] >= leader[..., IN]).all()
    np.testing.assert_allclose(leader[:, :, DISK], snapshot.leader_load[:, None, DISK].repeat(6, 1))

    # The cpu of a byte is what it was when the records were invented, on both classes.
    model = history.cpu_model()
    assert sorted(c.brokers for c in model.classes) == [(1, 2), (3, 4)]
    for of in model.classes:
        np.testing.assert_allclose(of.coefficients, default_cpu_cost(snapshot)[1:], rtol=1e-3)
        assert of.held_out_r2 > 0.999
        assert of.windows == 12
    costs = np.array(default_cpu_cost(snapshot)[1:])
    np.testing.assert_allclose(leader[..., CPU], leader[..., [IN, OUT]] @ costs[:2], rtol=1e-3)
    np.testing.assert_allclose(follower[..., CPU], follower[..., IN] * costs[2], rtol=1e-3)

    p95 = history.snapshot(statistic="p95")
    np.testing.assert_allclose(p95.leader_load, np.percentile(leader, 95, axis=1))
    np.testing.assert_allclose(p95.follower_load, np.percentile(follower, 95, axis=1))
    late = history.snapshot(at_ms=end - WINDOW, horizon_ms=2 * WINDOW, statistic="peak")
    np.testing.assert_allclose(
        late.leader_load[:, IN:], leader[:, 3:5, IN:].max(axis=1), rtol=1e-12
    )
    regressed = history.snapshot(cpu="regression")
    np.testing.assert_allclose(regressed.leader_load, leader.mean(axis=1), rtol=1e-9)
    # Of an hour's history the mean is all that a forecast knows.
    ahead = history.snapshot(statistic="forecast", horizon_ms=HOUR_MS)
    np.testing.assert_allclose(ahead.leader_load, leader.mean(axis=1), rtol=1e-9)

    statistics = history.statistics().where("resource = 'network_in' and role = 'leader'")
    for row in statistics.toArrow().to_pandas().itertuples():
        x = leader[keys.index((row.topic, row.partition)), :, IN]
        np.testing.assert_allclose([row.p50, row.peak], [np.median(x), x.max()])


def test_what_is_not_known_is_never_zero(spark: SparkSession) -> None:
    """Of a-1 neither bytes out nor the leader's size are told, and of a-2 nothing at all."""
    capacity = {"cpu": 800.0, "network_in": 1e9, "network_out": 1e9, "disk": 1e12, "gpu": 1.0}
    names = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    snapshot = build_snapshot(
        SnapshotDocument(
            resources=tuple(capacity),
            brokers=tuple(BrokerRecord(id=i, capacity=capacity) for i in (1, 2)),
            partitions=tuple(
                PartitionRecord(
                    topic=t, partition=n, replicas=(1, 2), leader=1, leader_load={"gpu": 0.5}
                )
                for t, n in names
            ),
        )
    )
    batches = []
    for time_ms in range(1_000_000, 3_000_000, 100_000):
        reported = [
            Record(time_ms, 1, {"bytes_in": 10.0, "bytes_out": 20.0, "size": 100.0}, "a", 0),
            Record(time_ms, 1, {"bytes_in": 30.0}, "a", 1),
            Record(time_ms, 1, {"bytes_in": 1.0, "bytes_out": 2.0, "size": 50.0}, "b", 0),
            Record(time_ms, 1, {"bytes_in": 1.0, "bytes_out": 2.0, "size": 50.0}, "b", 1),
            # What a follower takes in is not what producers send, and what is absurd is no news.
            Record(time_ms, 2, {"bytes_in": 9e5, "size": 80.0}, "a", 0),
            Record(time_ms, 2, {"bytes_in": 9e5, "size": 60.0}, "a", 1),
            Record(time_ms, 2, {"bytes_in": 9e5}, "a", 2),
            Record(time_ms, 1, {"bytes_in": 1e18, "bytes_out": 1e18}, "a", 2),
            *(Record(time_ms, broker, {"cpu": 10.0}) for broker in (1, 2)),
        ]
        batches.append(("default", time_ms, [time_ms] * len(reported), reported))
    records = records_frame(spark, batches).cache()
    history = History.of_records(records, snapshot)
    counted = {r.reason: r["count"] for r in _counts(history.quarantine(), "reason")}
    assert counted == {"follower": 20, "invalid": 20}

    rows = {(r.topic, r.partition): r for r in history.loads().collect()}
    assert rows.keys() == {*names} - {("a", 2)}
    assert rows["a", 1].leader[1:] == [30.0, None, 60.0, 0.5]
    assert rows["a", 1].leader[0] is None

    mean = history.snapshot(min_ratio=0.5)
    live = replayed(records, snapshot).snapshot(0.0)
    np.testing.assert_allclose(mean.leader_load, live.leader_load, rtol=1e-12)
    np.testing.assert_allclose(mean.follower_load, live.follower_load, rtol=1e-12)
    np.testing.assert_allclose(mean.leader_load[:3, IN], [10.0, 30.0, 20.0])
    np.testing.assert_allclose(mean.leader_load[:3, OUT], [30.0, 50.0, 40.0])
    others = [
        history.snapshot(statistic=statistic, min_ratio=0.5) for statistic in ("p95", "forecast")
    ]
    for found in (mean, *others):
        np.testing.assert_allclose(found.leader_load[:3, IN], [10.0, 30.0, 20.0])
        np.testing.assert_allclose(found.follower_load[:3, IN], [10.0, 30.0, 20.0])
        np.testing.assert_allclose(found.leader_load[:3, DISK], [100.0, 60.0, 80.0])
        np.testing.assert_allclose(found.follower_load[:3, DISK], [80.0, 60.0, 70.0])
        assert found.leader_load[:, 4].tolist() == [0.5] * 5
        assert (found.leader_load > 0).all()
    for found in others:
        # What followers copy is known, though what consumers read of a-1 is not.
        np.testing.assert_allclose(found.leader_load[:3, OUT], [30.0, 50.0, 40.0])


def test_questions_that_have_no_answer(reported: Told) -> None:
    history = reported.history
    first, end = history.range()
    with pytest.raises(HistoryError, match="'median' found, one of mean, p95, peak, forecast"):
        history.snapshot(statistic="median")  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match="cpu: 'attribution' found, one of regression"):
        history.snapshot(statistic="p95", cpu="attribution")
    with pytest.raises(HistoryError, match="at least one window of 300 s expected"):
        history.loads(end, first)
    with pytest.raises(HistoryError, match=f"no window of rates between {end + WINDOW}"):
        history.snapshot(at_ms=end + 3 * WINDOW, horizon_ms=2 * WINDOW)
    with pytest.raises(HistoryError, match=r"rates of 100.0% of .* at least 110.0% expected"):
        history.snapshot(min_ratio=1.1)


def test_a_small_history_by_hand(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leader 1 tells 10 B/s, and from the middle of the second window leader 2 tells 30 B/s."""
    capacity = {"cpu": 800.0, "network_in": 1e9, "network_out": 1e9, "disk": 1e12, "gpu": 1.0}

    def led_by(leader: int) -> Snapshot:
        return build_snapshot(
            SnapshotDocument(
                resources=tuple(capacity),
                brokers=tuple(BrokerRecord(id=i, capacity=capacity) for i in (1, 2)),
                partitions=(
                    PartitionRecord(
                        topic="a",
                        partition=0,
                        replicas=(1, 2),
                        leader=leader,
                        leader_load={"gpu": 0.5},
                        follower_load={"gpu": 0.25},
                    ),
                ),
            )
        )

    log = MetadataLog(tmp_path / "metadata")
    log.append(0, led_by(1))
    log.append(1_500_000, led_by(2))
    batches = []
    for time_ms in range(1_000_000, 2_400_000, 100_000):
        leader, rate = (1, 10.0) if time_ms < 1_500_000 else (2, 30.0)
        reported = [
            Record(
                time_ms, leader, {"bytes_in": rate, "bytes_out": 1.0, "size": time_ms / 1e5}, "a", 0
            ),
            Record(time_ms, 3 - leader, {"size": 7.0}, "a", 0),
            Record(time_ms, leader, {"cpu": 2 * (rate + 1.0 + rate)}),
            Record(time_ms, 3 - leader, {"cpu": 3 * rate}),
        ]
        batches.append((log.cluster, time_ms, [time_ms] * 4, reported))
    history = History.of_records(records_frame(spark, batches), log, window_ms=400_000)
    assert history.range() == (800_000, 2_000_000)
    rows = sorted(history.loads().collect())
    assert [r.start_ms for r in rows] == [800_000, 1_200_000, 1_600_000]
    # In the second window 3 samples of 10 and 1 of 30.
    cases = zip(rows, (10.0, 15.0, 30.0), (11.0, 15.0, 19.0), strict=True)
    for row, rate, size in cases:
        np.testing.assert_allclose(row.leader[IN:], [rate, 1 + rate, size, 0.5])
        np.testing.assert_allclose(row.follower[IN:], [rate, 0.0, 7.0, 0.25])
    after = history.snapshot()
    assert after.leader.tolist() == [1]
    mean = (10 + 15 + 30) / 3
    np.testing.assert_allclose(after.leader_load[0, IN:], [mean, 1 + mean, 19.0, 0.5])
    # Broker 2 followed for 5 samples at 30 and then led at 122, broker 1 the other way about;
    # windows count alike.
    cpu_2 = np.mean([30.0, (30.0 * 3 + 122.0) / 4, 122.0])
    cpu_1 = np.mean([42.0, (42.0 * 3 + 90.0) / 4, 90.0])
    np.testing.assert_allclose(after.leader_load[0, CPU], cpu_2)
    np.testing.assert_allclose(after.follower_load[0, CPU], cpu_1)

    # Of a prepared history the sums are the same.
    monkeypatch.setattr(History, "open", lambda *_, **__: history)
    written = tmp_path / "cluster.json"
    asked: list[str | Path] = [
        "--metadata",
        tmp_path / "metadata",
        "--at",
        "1970-01-01T00:33:20",
        "-o",
        written,
    ]
    forecast = ["--horizon", "2h", "--statistic", "forecast"]
    said = _run("snapshot", tmp_path / "prepared", *asked, *forecast)
    ahead = load_snapshot(written)
    np.testing.assert_allclose(ahead.leader_load[0, IN:], [mean, 1 + mean, 15.0, 0.5])
    assert "cpu for 1 MB/s" in said
    assert "error of forecasts" in said
    assert "2 brokers" in said


def _two_topics(*names: str) -> Snapshot:
    """A partition of each topic on broker 1."""
    capacity = {"network_in": 1e9, "network_out": 1e9, "disk": 1e12}
    return build_snapshot(
        SnapshotDocument(
            resources=tuple(capacity),
            brokers=(BrokerRecord(id=1, capacity=capacity),),
            partitions=tuple(
                PartitionRecord(topic=name, partition=0, replicas=(1,), leader=1) for name in names
            ),
        )
    )


def _steady(rates: Mapping[str, Callable[[int], float | None]], minutes: int) -> list[Arrived]:
    """Reports once a minute: the rate of each topic by minute, None where it is silent."""
    batches: list[Arrived] = []
    for minute in range(minutes):
        now = 60_000 * minute
        reported = [
            Record(now, 1, {"bytes_in": rate, "bytes_out": rate, "size": rate}, topic, 0)
            for topic, of in rates.items()
            if (rate := of(minute)) is not None
        ]
        batches.append(("default", minute, [now] * len(reported), reported))
    return batches


@pytest.mark.soak
def test_a_topic_counts_from_its_creation(spark: SparkSession, tmp_path: Path) -> None:
    log = MetadataLog(tmp_path / "log")
    log.append(0, _two_topics("a", "b"))
    log.append(75 * 60_000, _two_topics("a", "b", "new"))
    rates = {
        "a": lambda minute: 1.0,
        "b": lambda minute: 2.0,
        "new": lambda minute: 3.0 if minute >= 75 else None,
    }
    records = records_frame(spark, _steady(rates, 100)).cache()
    for metadata in (MetadataLog(tmp_path / "log"), MetadataLog.of(log.at(10**9))):
        history = History.of_records(records, metadata)
        found = history.snapshot(min_ratio=1.0)
        np.testing.assert_allclose(found.leader_load[:, 0], [1.0, 2.0, 3.0])
    silent = {**rates, "new": lambda minute: 3.0 if minute >= 90 else None}
    history = History.of_records(records_frame(spark, _steady(silent, 100)), log)
    with pytest.raises(HistoryError, match="least are known of new-0"):
        history.snapshot(min_ratio=0.95)


@pytest.mark.soak
def test_a_topic_that_is_created_again_is_another(spark: SparkSession, tmp_path: Path) -> None:
    def rates(pause: range) -> dict[str, Callable[[int], float | None]]:
        def again(minute: int) -> float | None:
            return None if minute in pause else 1000.0 if minute < 50 else 4.0

        return {"a": lambda minute: 1.0, "b": again}

    # Seen to be away for five minutes, or known by its id to be another.
    log = MetadataLog(tmp_path / "log")
    log.append(0, _two_topics("a", "b"), {"a": "A", "b": "B"})
    log.append(45 * 60_000, _two_topics("a"), {"a": "A"})
    log.append(50 * 60_000, _two_topics("a", "b"), {"a": "A", "b": "B2"})
    named = MetadataLog(tmp_path / "named")
    named.append(0, _two_topics("a", "b"), {"a": "A", "b": "B"})
    assert not named.append(40 * 60_000, _two_topics("a", "b"), {"a": "A", "b": "B"})
    assert named.append(50 * 60_000, _two_topics("a", "b"), {"a": "A", "b": "B2"})
    for metadata, pause in ((log, range(45, 50)), (MetadataLog(tmp_path / "named"), range(0))):
        records = records_frame(spark, _steady(rates(pause), 100))
        history = History.of_records(records, metadata)
        found = [history.snapshot()]
        if metadata is log:
            found += [history.snapshot(statistic="p95"), history.snapshot(statistic="forecast")]
        for snapshot in found:
            np.testing.assert_allclose(snapshot.leader_load, [[1.0] * 3, [4.0] * 3])
        # The one before is still known of its time.
        before = history.snapshot(at_ms=40 * 60_000)
        np.testing.assert_allclose(before.leader_load[1], [1000.0] * 3)


@pytest.mark.parametrize(("option", "value"), [("--at", "noon"), ("--horizon", "soon")])
def test_times_that_are_none(option: str, value: str) -> None:
    reported = _run("snapshot", "x", "--metadata", "y", "-o", "z.json", option, value, code=2)
    assert f"{option}: '{value}' found, a time like" in reported


def _run(*words: str | Path, code: int = 0) -> str:
    result = invoke(["history", *words])
    assert result.exit_code == code, result.output
    return result.output


def _counts(table: DataFrame, name: str) -> list[Row]:
    return table.groupBy(name).count().collect()
