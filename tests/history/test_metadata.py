"""A metadata log returns for every time what was appended, and stores only changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cluster_model import SnapshotDocument, build_snapshot, save_snapshot, synthetic_snapshot
from cluster_model.history import metadata
from cluster_model.history.errors import HistoryError
from cluster_model.history.metadata import ALWAYS_MS, NEVER_MS, MetadataLog
from cluster_model.snapshot import Snapshot

PATHS = ("/a", "/b")


@st.composite
def clusters(draw: st.DrawFn, disks: bool = False) -> Snapshot:
    """Small clusters over few names, so that successive ones share much."""
    ids = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True))
    names = draw(
        st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 2)), max_size=4, unique=True)
    )
    partitions = []
    for topic, number in names:
        replicas = draw(st.permutations(ids).map(lambda r: r[:2]))
        record: dict[str, Any] = {"topic": topic, "partition": number, "replicas": replicas}
        record["leader"] = draw(st.sampled_from([*replicas, None]))
        if disks:
            where = st.sampled_from([*PATHS, None])
            record["log_dirs"] = draw(st.tuples(*[where] * len(replicas)))
        partitions.append(record)
    brokers = [
        {
            "id": i,
            "capacity": {"cpu": draw(st.sampled_from([100.0, 200.0]))},
            "rack": draw(st.sampled_from("xy")),
            "disks": [{"path": p, "capacity": 9.0} for p in PATHS] if disks else [],
        }
        for i in ids
    ]
    empty = draw(st.sets(st.sampled_from("vw")))
    return build_snapshot(
        SnapshotDocument.model_validate(
            {
                "resources": ["cpu"],
                "brokers": brokers,
                "partitions": partitions,
                "topics": sorted(empty),
            }
        )
    )


histories = st.booleans().flatmap(lambda d: st.lists(clusters(d), min_size=1, max_size=5))


@given(histories)
def test_every_time_has_what_was_appended_then(history: list[Snapshot]) -> None:
    log = MetadataLog()
    for at, snapshot in enumerate(history):
        changed = log.append(10 * at, snapshot)
        assert changed == (at == 0 or snapshot != history[at - 1])
        assert log.append(10 * at + 1, snapshot) is False
    for at, snapshot in enumerate(history):
        assert log.at(10 * at) == snapshot
        assert log.at(10 * at + 9) == snapshot
    assert log.at(-1) == history[0]


@given(histories)
def test_states_in_order_are_those_of_each_time(history: list[Snapshot]) -> None:
    log = MetadataLog()
    for at, snapshot in enumerate(history):
        log.append(10 * at, snapshot)
    for first in (-1, 0, 15):
        times = [first, *(t for t in log.times_ms if first < t <= 30)]
        expected = [(at, metadata._without_disks(log.at(at))) for at in times]
        assert [*log.states(first, 30)] == expected


def test_states_in_order_are_each_made_from_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    log, joined, parts = MetadataLog(), metadata._joined, list[int]()
    for at in range(50):
        log.append(at, small(4, lead=at % 2))

    def counted(of: list[Snapshot]) -> Snapshot:
        parts.append(len(of))
        return joined(of)

    monkeypatch.setattr(metadata, "_joined", counted)
    assert len([*log.states(0, 100)]) == 50
    assert parts == [2] * 49


def test_a_log_on_disk_is_the_same_when_read_again(tmp_path: Path) -> None:
    history = [small(4), small(3, lead=1), small(2, brokers=2)]
    log = MetadataLog(tmp_path / "log")
    for at, snapshot in enumerate(history):
        assert log.append(at, snapshot)
    again = MetadataLog(tmp_path / "log")
    assert again.times_ms == (0, 1, 2)
    assert [again.at(at) for at in range(3)] == history
    assert again.append(3, history[1])
    assert MetadataLog(tmp_path / "log").at(5) == history[1]


def small(partitions: int, lead: int = 0, brokers: int = 3) -> Snapshot:
    """Partitions of two replicas on the first brokers, of which one is moved by `lead`."""
    replicas = [[p % brokers, (p + 1) % brokers] for p in range(partitions)]
    return build_snapshot(
        SnapshotDocument.model_validate(
            {
                "resources": ["cpu"],
                "brokers": [
                    {"id": i, "capacity": {"cpu": 100.0}, "rack": "r"} for i in range(brokers)
                ],
                "partitions": [
                    {
                        "topic": "t",
                        "partition": p,
                        "replicas": r,
                        "leader": r[lead if p == 0 else 0],
                    }
                    for p, r in enumerate(replicas)
                ],
            }
        )
    )


def test_only_what_changed_is_kept(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path)
    log.append(0, small(100))
    log.append(1, small(100, lead=1))
    loads = small(100, lead=1)
    assert not log.append(2, loads)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.npz", "1.npz"]
    from cluster_model import load_snapshot

    assert load_snapshot(tmp_path / "1.npz").n_partitions == 1


def test_tables_say_what_the_snapshots_say(spark: SparkSession) -> None:
    log = MetadataLog(cluster="c")
    for at, snapshot in ((100, small(2)), (200, small(2, lead=1)), (300, small(1, brokers=2))):
        log.append(at, snapshot)
    rows = [tuple(r) for r in log.placements(spark).orderBy("partition", "valid_from_ms").collect()]
    assert rows == [
        ("c", "t", 0, ALWAYS_MS, 200, [0, 1], 0, None),
        ("c", "t", 0, 200, 300, [0, 1], 1, None),
        ("c", "t", 0, 300, NEVER_MS, [0, 1], 0, None),
        ("c", "t", 1, ALWAYS_MS, 300, [1, 2], 1, None),
    ]
    found = log.brokers(spark).orderBy("broker").collect()
    assert [tuple(r) for r in found] == [
        ("c", 0, ALWAYS_MS, NEVER_MS, "r", 0, {"cpu": 100.0}),
        ("c", 1, ALWAYS_MS, NEVER_MS, "r", 0, {"cpu": 100.0}),
        ("c", 2, ALWAYS_MS, 300, "r", 0, {"cpu": 100.0}),
    ]
    assert [tuple(r) for r in log.topics(spark).collect()] == [("c", "t", ALWAYS_MS, NEVER_MS)]


def test_disks_are_reported_by_path(spark: SparkSession) -> None:
    document = {
        "resources": ["cpu"],
        "brokers": [
            {"id": 7, "capacity": {"cpu": 1.0}, "disks": [{"path": "/a", "capacity": 1.0}]},
            {"id": 9, "capacity": {"cpu": 1.0}},
        ],
        "partitions": [
            {"topic": "t", "partition": 0, "replicas": [9, 7], "log_dirs": [None, "/a"]}
        ],
    }
    log = MetadataLog.of(build_snapshot(SnapshotDocument.model_validate(document)))
    (row,) = log.placements(spark).collect()
    assert (row.replicas, row.leader, row.disks) == ([9, 7], -1, [None, "/a"])


def test_errors_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="nothing logged found"):
        MetadataLog(tmp_path / "new").at(0)
    log = MetadataLog.of(small(2))
    log.append(10, small(3))
    with pytest.raises(HistoryError, match="a change at 5 found, one after the last"):
        log.append(5, small(2))
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="a file found, a directory expected"):
        MetadataLog(tmp_path / "file")
    (tmp_path / "x.npz").write_text("")
    with pytest.raises(HistoryError, match=r"x\.npz found"):
        MetadataLog(tmp_path)


def test_loads_are_of_when_the_placement_changed() -> None:
    one, two = small(2), small(2, lead=1)
    object.__setattr__(two, "leader_load", np.array([[5.0], [6.0]]))
    log = MetadataLog.of(one)
    log.append(1, two)
    assert log.at(1).leader_load.tolist() == [[5.0], [0.0]]


def test_changes_that_only_remove_hide_no_later_ones(spark: SparkSession) -> None:
    log = MetadataLog.of(small(2))
    log.append(10, small(1))
    log.append(20, small(2))
    found = sorted((r.partition, r.valid_from_ms) for r in log.placements(spark).collect())
    assert found == [(0, ALWAYS_MS), (1, ALWAYS_MS), (1, 20)]
    assert log.created_ms(9).tolist() == [ALWAYS_MS] * 2
    assert log.created_ms(20).tolist() == [ALWAYS_MS, 20]


def test_ids_of_topics_tell_one_from_the_next(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path)
    log.append(0, small(2))
    # Ids that become known are no other topics.
    assert log.append(10, small(2), {"t": "1"})
    assert not log.append(20, small(2), {"t": "1"})
    assert log.append(30, small(2), {"t": "2"})
    for same in (log, MetadataLog(tmp_path)):
        assert same.created_ms(29).tolist() == [ALWAYS_MS] * 2
        assert same.created_ms(30).tolist() == [30] * 2
        assert same.at(40) == small(2)
    assert not MetadataLog(tmp_path).append(40, small(2), {"t": "2"})


@pytest.mark.parametrize("name", ["--5", "9" * 20, "1e3", "٣"])
def test_a_file_that_names_no_time_is_one_sentence(tmp_path: Path, name: str) -> None:
    cluster = synthetic_snapshot(brokers=3, partitions=2, racks=3)
    MetadataLog(tmp_path).append(5, cluster)
    save_snapshot(cluster, tmp_path / f"{name}.npz")
    with pytest.raises(HistoryError, match=r"names like 1700000000000\.npz expected"):
        MetadataLog(tmp_path)


@pytest.mark.parametrize(
    "text", ["[1]", "null", '[["a"]]', '[["a", -1]]', f'[["a", {"9" * 30}]]', '[["a", "1"]]']
)
def test_what_is_no_removed_partition_is_one_sentence(tmp_path: Path, text: str) -> None:
    MetadataLog(tmp_path).append(5, synthetic_snapshot(brokers=3, partitions=2, racks=3))
    (tmp_path / "5.removed.json").write_text(text)
    with pytest.raises(HistoryError, match=r"5\.removed\.json: .* found, pairs of a topic"):
        MetadataLog(tmp_path)
