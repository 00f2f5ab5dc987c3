"""Further resources appear identically in the history and in the live model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from frames import Arrived, records_frame
from pyspark.sql import SparkSession

from cluster_model import Snapshot, load_snapshot, save_snapshot, synthetic_snapshot
from cluster_model.history.errors import HistoryError
from cluster_model.history.history import History
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.prepare import prepare
from cluster_model.history.screening import MetadataTables
from cluster_model.live import ClusterModel
from metrics_reporter import Record

WINDOW, START = 300_000, 1_700_000_100_000 // 300_000 * 300_000
# A name that is no name of a column.
SHARES = {"requests/s (all)": 0.25, "tokens": 1.0}


def _cluster() -> Snapshot:
    s = synthetic_snapshot(brokers=4, partitions=12, racks=2, topics=2, replication_factor=2)
    more = np.full((2, s.n_partitions, len(SHARES)), 7.0)
    return replace(
        s,
        resources=(*s.resources, *SHARES),
        capacity=np.column_stack([s.capacity, np.full((s.n_brokers, len(SHARES)), 1e4)]),
        leader_load=np.column_stack([s.leader_load, more[0]]),
        follower_load=np.column_stack([s.follower_load, more[1]]),
    )


def _dirty(cluster: Snapshot, rng: np.random.Generator) -> list[Arrived]:
    """Reports of a quarter of an hour: some missing, repeated, late, invalid, of followers."""
    s = cluster
    batches: list[Arrived] = []
    ids = s.broker_ids[s.replica_broker].reshape(s.n_partitions, 2)
    for n in range(22):
        now = START + n * 50_000
        reported = [Record(now, int(b), {"cpu": 50.0}) for b in s.broker_ids]
        for p in range(s.n_partitions):
            topic, number = s.topics[s.partition_topic[p]], int(s.partition_number[p])
            lead = int(ids[p, s.leader[p]])
            metrics = {"bytes_in": 100.0 + p, "bytes_out": 10.0, "size": 1e6}
            metrics |= {name: float(rng.integers(1, 100)) for name in SHARES if rng.random() < 0.8}
            record = Record(now, lead, metrics, topic, number)
            reported.append(record)
            if rng.random() < 0.2:
                reported.append(record)
            if rng.random() < 0.2:
                reported.append(record._replace(time_ms=now + 1, metrics={"tokens": -1.0}))
            if rng.random() < 0.2:
                reported.append(record._replace(time_ms=now + 2, metrics={"tokens": 1e16}))
            if rng.random() < 0.2:
                reported.append(record._replace(time_ms=now + 3, metrics={"others": 5.0}))
            if rng.random() < 0.2:
                reported.append(record._replace(time_ms=now + 4, metrics={"tokens": 3.0}))
            follower = int(ids[p, 1 - s.leader[p]])
            if rng.random() < 0.3:
                reported.append(record._replace(broker=follower, metrics={"tokens": 1e6}))
            if rng.random() < 0.1:
                reported.append(record._replace(partition=-1, metrics={"tokens": 5.0}))
            if rng.random() < 0.1:
                reported.append(record._replace(time_ms=now - 4_000_000))
        batches.append(("default", n, [now] * len(reported), reported))
    return batches


@pytest.fixture(scope="module")
def batches() -> list[Arrived]:
    return _dirty(_cluster(), np.random.default_rng(5))


def _live(batches: list[Arrived]) -> ClusterModel:
    now = [0]
    model = ClusterModel(_cluster(), measured=SHARES, clock=lambda: now[0])
    for _, _, arrived, records in batches:
        now[0] = arrived[0]
        model.add_all(records)
    return model


def test_the_mean_and_the_outcomes_are_the_live_ones(
    spark: SparkSession, batches: list[Arrived]
) -> None:
    cluster, live = _cluster(), _live(batches)
    history = History.of_records(records_frame(spark, batches), cluster, measured=SHARES)
    ours, theirs = history.snapshot(min_ratio=0.9), live.snapshot(0.9)
    for name in ("leader_load", "follower_load"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9)
    assert not np.isclose(ours.leader_load[:, -1], 7.0).all()
    reported = Counter(r.reason for r in history.quarantine().collect())
    counted = {k: n for k, n in live.counters.items() if n and k not in ("added", "split")}
    assert dict(reported) == counted
    assert counted.keys() >= {"duplicate", "late", "invalid", "follower", "unknown"}


@pytest.mark.soak
def test_other_statistics_and_a_prepared_history(
    spark: SparkSession, batches: list[Arrived], tmp_path: Path
) -> None:
    log = MetadataLog.of(_cluster())
    records = records_frame(spark, batches)
    prepare(
        records,
        MetadataTables.of(spark, [log]),
        tmp_path,
        window_ms=WINDOW,
        further=[*SHARES],
    )
    history = History.open(spark, tmp_path, log, measured=SHARES)
    mean, peak = history.snapshot(), history.snapshot(statistic="peak")
    assert (peak.leader_load[:, 4:] >= mean.leader_load[:, 4:] - 1e-9).all()
    assert (peak.leader_load[:, 4:] > mean.leader_load[:, 4:] + 1e-9).any()
    np.testing.assert_allclose(peak.follower_load[:, 4], 0.25 * peak.leader_load[:, 4])
    np.testing.assert_allclose(peak.follower_load[:, 5], peak.leader_load[:, 5])
    # What is not said to be measured keeps the loads of the metadata.
    plain = History.open(spark, tmp_path, log).snapshot()
    assert (plain.leader_load[:, 4:] == 7.0).all()
    bare = [
        (name, n, at[: len(kept)], kept)
        for name, n, at, reported in batches
        for kept in [[r for r in reported if "tokens" not in r.metrics]]
    ]
    untold = History.of_records(records_frame(spark, bare), log, measured=SHARES)
    with pytest.raises(HistoryError, match=r"tokens of 0\.0% of partitions found"):
        untold.snapshot(min_ratio=0.1)


@pytest.mark.soak
def test_the_capacity_file_says_what_is_measured(
    spark: SparkSession, batches: list[Arrived], tmp_path: Path
) -> None:
    lines = [
        {**record._asdict(), "arrived_ms": at, "batch": n}
        for _, n, arrived, records in batches
        for at, record in zip(arrived, records, strict=True)
    ]
    (tmp_path / "records.json").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "capacity.json").write_text(
        json.dumps({"measured": {name: {"follower_share": s} for name, s in SHARES.items()}})
    )
    save_snapshot(_cluster(), tmp_path / "cluster.json")
    prepared, out = str(tmp_path / "prepared"), tmp_path / "measured.npz"
    same = ["--metadata", str(tmp_path / "cluster.json")]
    same += ["--capacity", str(tmp_path / "capacity.json")]
    for words in (
        ["prepare", str(tmp_path / "records.json"), "--format", "json", *same, "-o", prepared],
        ["snapshot", prepared, *same, "-o", str(out), "--min-ratio", "0.9"],
    ):
        done = invoke(["history", *words])
        assert done.exit_code == 0, done.output
    found, live = load_snapshot(out), _live(batches).snapshot(0.9)
    np.testing.assert_allclose(found.leader_load[:, 4:], live.leader_load[:, 4:], rtol=0.2)
    assert not np.isclose(found.leader_load[:, 4:], 7.0).all()
