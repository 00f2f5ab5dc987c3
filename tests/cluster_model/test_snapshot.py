from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster_model import (
    BrokerState,
    InputError,
    Snapshot,
    SnapshotDocument,
    SnapshotError,
    build_snapshot,
    load_snapshot,
    save_snapshot,
    synthetic_snapshot,
)
from cluster_model.build import to_document

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def labels(least: int, most: int = 6) -> st.SearchStrategy[tuple[str, ...]]:
    """Names in any script and any order; some will be used by nothing."""
    return st.lists(TEXT, min_size=least, max_size=most, unique=True).map(tuple)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Synthetic clusters, with everything a snapshot may carry."""
    brokers = draw(st.integers(1, 7))
    s = synthetic_snapshot(
        brokers=brokers,
        partitions=draw(st.integers(1, 25)),
        replication_factor=draw(st.integers(1, brokers)),
        racks=draw(st.integers(1, brokers)),
        topics=1,
        disks_per_broker=draw(st.integers(0, 3)),
        dead_brokers=draw(st.integers(0, brokers - 1)),
        seed=draw(st.integers(0, 99)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    changes: dict[str, Any] = {}
    for names, row in (("racks", "broker_rack"), ("hosts", "broker_host")):
        if draw(st.booleans()):
            changes[names] = draw(labels(1))
            changes[row] = rng.integers(0, len(changes[names]), brokers)
    if draw(st.booleans()):
        changes["broker_sets"] = draw(labels(0))
        changes["broker_set"] = rng.integers(-1, len(changes["broker_sets"]), brokers)
    if draw(st.booleans()):
        topics = sorted(draw(labels(1)))
        changes["topics"] = topics
        changes["partition_topic"] = np.sort(rng.integers(0, len(topics), s.n_partitions))
    if draw(st.booleans()):
        changes["resources"] = draw(labels(4, 4))
    if draw(st.booleans()):
        e = draw(st.integers(1, 10))
        changes |= {
            "traffic_from": rng.integers(0, s.n_partitions, e),
            "traffic_to": rng.integers(0, s.n_partitions, e),
            "traffic_rate": rng.exponential(1e6, e),
        }
    if draw(st.booleans()):
        changes["lag"] = rng.exponential(100.0, s.n_partitions)
    if draw(st.booleans()):
        changes["state_size"] = rng.exponential(1e9, s.n_partitions)
    if s.n_disks and draw(st.booleans()):
        disk = s.replica_disk.copy()
        disk[rng.random(len(disk)) < 0.3] = -1
        changes |= {"replica_disk": disk, "disk_alive": rng.random(s.n_disks) < 0.8}
        changes["disk_cordoned"] = rng.random(s.n_disks) < 0.3
    if draw(st.booleans()):
        changes["reassigning"] = rng.random(s.n_partitions) < 0.3
    if draw(st.booleans()):
        changes |= {"cluster_id": "a1-b2_c3", "taken_ms": 1_700_000_000_000, "metadata_version": 30}
    s = replace(s, **changes)
    for field, length in (("broker_attributes", s.n_brokers), ("topic_attributes", len(s.topics))):
        if draw(st.booleans()):
            column = st.one_of(
                st.lists(st.one_of(st.none(), TEXT), min_size=length, max_size=length),
                st.lists(
                    st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=length, max_size=length
                ),
            )
            changes = {field: {name: draw(column) for name in ("zone", "retention.ms")}}
            s = replace(s, **changes)
    return s


def small() -> Snapshot:
    return synthetic_snapshot(
        brokers=4, partitions=6, racks=2, replication_factor=2, disks_per_broker=2
    )


# --- round trips


@given(snapshots())
def test_a_document_gives_equal_arrays_back(snapshot: Snapshot) -> None:
    document = json.loads(json.dumps(to_document(snapshot)))
    assert build_snapshot(SnapshotDocument.model_validate(document)) == snapshot


@given(snapshots(), st.sampled_from([".json", ".npz"]))
def test_files_are_lossless(
    tmp_path_factory: pytest.TempPathFactory, snapshot: Snapshot, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("snapshot") / f"cluster{suffix}"
    save_snapshot(snapshot, path)
    again = load_snapshot(path)
    assert again == snapshot
    assert again.digest() == snapshot.digest()
    for f in fields(Snapshot):
        one, two = getattr(snapshot, f.name), getattr(again, f.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == two.dtype, f.name
            assert one.shape == two.shape, f.name
        else:
            assert one == two, f.name
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing is left behind


@given(snapshots(), st.randoms(use_true_random=False))
def test_records_may_come_in_any_order(snapshot: Snapshot, random: Any) -> None:
    document = to_document(snapshot)
    for part in ("partitions", "brokers", "topics"):
        random.shuffle(document[part])
    assert build_snapshot(SnapshotDocument.model_validate(document)) == snapshot


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_names_in_any_script_and_empty_clusters_survive(tmp_path: Path, suffix: str) -> None:
    document = {
        "resources": ["cpu"],
        "brokers": [{"id": 3, "capacity": {"cpu": 1.5}, "rack": "étage-β", "host": "主机"}],
        "topics": ["a topic without partitions", "日志"],
    }
    snapshot = build_snapshot(SnapshotDocument.model_validate(document))
    path = tmp_path / f"cluster{suffix}"
    save_snapshot(snapshot, path)
    assert load_snapshot(path) == snapshot


def test_a_document_carries_its_schema_version(tmp_path: Path) -> None:
    save_snapshot(small(), tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["schema_version"] == 1


def test_a_missing_rack_is_the_host_and_a_missing_host_the_broker() -> None:
    brokers = [
        {"id": 0, "capacity": {"cpu": 1}},
        {"id": 1, "capacity": {"cpu": 1}, "host": "h"},
        {"id": 2, "capacity": {"cpu": 1}, "host": "h", "rack": "r"},
    ]
    s = build_snapshot(SnapshotDocument.model_validate({"resources": ["cpu"], "brokers": brokers}))
    assert [s.racks[r] for r in s.broker_rack] == ["broker-0", "h", "r"]
    assert [s.hosts[h] for h in s.broker_host] == ["broker-0", "h", "h"]


# --- files that cannot be read


def sentence(error: pytest.ExceptionInfo[SnapshotError]) -> str:
    assert isinstance(error.value, InputError)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["missing.json", "missing.npz"])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(SnapshotError, match="No such file") as error:
        load_snapshot(tmp_path / name)
    assert name in sentence(error)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("content", [b"", b"{", b"\x00\xff\xfe garbage", b"[1, 2]", b"PK\x03\x04"])
def test_a_corrupt_file(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"cluster{suffix}"
    path.write_bytes(content)
    with pytest.raises(SnapshotError) as error:
        load_snapshot(path)
    assert path.name in sentence(error)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_truncated_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cluster{suffix}"
    save_snapshot(small(), path)
    whole = path.read_bytes()
    for share in (0.3, 0.7, 0.95):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(SnapshotError) as error:
            load_snapshot(path)
        assert path.name in sentence(error)


def test_an_archive_damaged_inside(tmp_path: Path) -> None:
    path = tmp_path / "cluster.npz"
    save_snapshot(small(), path)
    whole = bytearray(path.read_bytes())
    at = len(whole) // 3
    whole[at : at + 40] = bytes(40)
    path.write_bytes(bytes(whole))
    with pytest.raises(SnapshotError) as error:
        load_snapshot(path)
    assert path.name in sentence(error)


def test_a_directory_is_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(SnapshotError, match="directory"):
        load_snapshot(tmp_path / "cluster.json")


@pytest.mark.parametrize("use", [load_snapshot, lambda path: save_snapshot(small(), path)])
def test_other_suffixes(tmp_path: Path, use: Callable[[Path], Any]) -> None:
    with pytest.raises(SnapshotError, match=r"cluster\.csv: suffix \.json or \.npz expected"):
        use(tmp_path / "cluster.csv")


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_another_schema_version_of_json(tmp_path: Path, version: object) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"schema_version": version, **to_document(small())}))
    with pytest.raises(SnapshotError, match=r"schema_version .* found, 1 expected") as error:
        load_snapshot(path)
    assert repr(version) in sentence(error)


def test_another_schema_version_of_npz(tmp_path: Path) -> None:
    path = tmp_path / "cluster.npz"
    np.savez(path, schema_version=7)
    with pytest.raises(SnapshotError, match="schema_version 7 found, 1 expected"):
        load_snapshot(path)
    np.savez(path, broker_ids=np.arange(3))
    with pytest.raises(SnapshotError, match="schema_version None found"):
        load_snapshot(path)


def test_an_archive_without_a_field_names_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.npz"
    save_snapshot(small(), path)
    with np.load(path) as data:
        rest = {name: data[name] for name in data.files if name != "leader_load"}
    np.savez(path, **rest)
    with pytest.raises(SnapshotError, match="field leader_load is missing"):
        load_snapshot(path)


# --- identity


def test_files_of_earlier_releases_still_load(tmp_path: Path) -> None:
    later = {"reassigning", "disk_cordoned", "cluster_id", "taken_ms", "metadata_version"}
    path = tmp_path / "cluster.npz"
    save_snapshot(small(), path)
    with np.load(path) as data:
        rest = {name: data[name] for name in data.files if name not in later}
    np.savez(path, **rest)
    old = load_snapshot(path)
    assert old == small()
    assert (old.cluster_id, old.taken_ms, old.metadata_version) == (None, None, None)
    assert old.partition_settled.all()
    assert old.disk_open.all()
    assert old.broker_open.all()


def test_the_digest_is_of_all_that_a_plan_depends_on() -> None:
    s = synthetic_snapshot(
        brokers=4, partitions=6, racks=2, replication_factor=2, disks_per_broker=2
    )
    load, capacity = s.leader_load.copy(), s.capacity.copy()
    load[3, 1] += 1
    capacity[1, 0] *= 2
    changes: list[dict[str, Any]] = [
        {"leader_load": load},
        {"capacity": capacity},
        {"leader": np.where(np.arange(6) == 2, 1 - s.leader, s.leader)},
        {"broker_state": [0, 0, 0, 2]},
        {"disk_alive": [True] * 7 + [False]},
        {"disk_cordoned": [False] * 7 + [True]},
        {"reassigning": [True] + [False] * 5},
        {"topics": tuple(f"{t}x" for t in s.topics)},
        {"lag": [0.0] * 6},
        {"state_size": [0.0] * 6},
    ]
    digests = [replace(s, **change).digest() for change in changes]
    assert len({s.digest(), *digests}) == len(changes) + 1
    same = replace(s, cluster_id="x", taken_ms=5, metadata_version=30)
    assert same.digest() == s.digest()
    assert (
        replace(s, leader_load=s.leader_load * -0.0).digest()
        == replace(s, leader_load=s.leader_load * 0.0).digest()
    )


def test_equality_asks_of_which_cluster_and_not_when() -> None:
    s = replace(small(), cluster_id="one", taken_ms=5)
    assert s == replace(s, taken_ms=6)
    assert s != replace(s, cluster_id="two")


def test_a_broker_is_closed_where_every_disk_is_cordoned_or_dead() -> None:
    cordoned = np.array([True, True, True, False, True, False, False, False])
    alive = np.array([True, True, True, True, True, False, True, False])
    s = replace(small(), disk_cordoned=cordoned, disk_alive=alive)
    assert s.disk_open.tolist() == [False, False, False, True, False, False, True, False]
    assert s.broker_open.tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("field", "value"),
    [("cluster_id", ""), ("cluster_id", 7), ("taken_ms", -1), ("taken_ms", "now"),
     ("taken_ms", True), ("metadata_version", 2**63), ("taken_ms", np.arange(2))],
)  # fmt: skip
def test_a_wrong_identity_is_named(field: str, value: Any) -> None:
    with pytest.raises(SnapshotError, match=f"snapshot field {field}: .* found, a .* expected"):
        replace(small(), **{field: value})


# --- documents that contradict themselves


def document() -> dict[str, Any]:
    return {
        "resources": ["cpu", "disk"],
        "brokers": [
            {
                "id": 1,
                "capacity": {"cpu": 100, "disk": 1000},
                "disks": [{"path": "/a", "capacity": 500}, {"path": "/b", "capacity": 500}],
            },
            {
                "id": 2,
                "capacity": {"cpu": 100, "disk": 1000},
                "disks": [{"path": "/a", "capacity": 1000}],
            },
        ],
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "replicas": [1, 2],
                "leader": 1,
                "leader_load": {"cpu": 1.0, "disk": 10.0},
                "log_dirs": ["/a", "/a"],
            },
            {"topic": "orders", "partition": 1, "replicas": [2], "leader": 2},
        ],
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    whole = document()
    *steps, last = path.split(".")
    place: Any = whole
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    place[int(last) if last.isdigit() else last] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("brokers.0.id", -4, r"brokers\.0\.id.*-4 found"),
        ("brokers.0.capacity", {"cpu": 1}, r"broker 1 capacity: no value for resource 'disk'"),
        ("brokers.0.capacity.gpu", 3, r"broker 1 capacity: resource 'gpu' found.*cpu, disk"),
        ("brokers.0.capacity.cpu", -3, r"broker 1 capacity, cpu: -3\.0 found"),
        ("brokers.0.state", "asleep", r"brokers\.0\.state.*'asleep' found"),
        ("brokers.0.disks.1.path", "/a", "same path"),
        ("brokers.0.attributes", {"zone": True}, r"brokers\.0\.attributes\.zone.*True found"),
        ("brokers.0.attributes", {"a zone": 1}, r"brokers\.0\.attributes.*a name of letters"),
        ("topic_attributes", {"nowhere": {}}, r"topic_attributes: topic nowhere is not in topics"),
        ("brokers.0.colour", "red", r"brokers\.0\.colour.*'red' found"),
        ("partitions.0.replicas", [1, 9], r"partition orders-0: replica on broker 9"),
        ("partitions.0.replicas", [1, 1], r"replica_broker, row 1"),
        ("partitions.0.replicas", [], r"partition orders-0: no replicas found, at least one"),
        ("partitions.1.leader", 1, r"partition orders-1: leader 1 is not among replicas"),
        ("partitions.0.leader_load.cpu", -1, r"partition orders-0 leader_load, cpu: -1\.0 found"),
        ("partitions.0.leader_load.gpu", 1, r"partition orders-0 leader_load: resource 'gpu'"),
        ("partitions.0.follower_load", {"gpu": 1}, r"orders-0 follower_load: resource 'gpu'"),
        ("partitions.0.log_dirs", ["/a"], r"partition orders-0: 1 log_dirs found, 2"),
        ("partitions.0.log_dirs", ["/a", "/b"], r"partition orders-0: broker 2 has no disk '/b'"),
        ("partitions.1.partition", 0, r"partition_number, row 1: 0 found, unique partitions"),
        ("partitions.1.partition", "x", r"partitions\.1\.partition.*'x' found"),
        ("partitions.0.lag", 3.0, r"lag: given for 1 of 2 partitions only"),
        ("brokers", [], "brokers"),
        ("resources", [], "resource 'cpu' found, one of none expected"),
        ("traffic", [{"source": ["orders", 0], "target": ["orders", 7], "rate": 1}],
         r"traffic: partition orders-7 is not in partitions"),
        ("traffic", [{"source": ["orders", 0], "target": ["orders", 1], "rate": -1}],
         r"traffic\.0\.rate"),
    ],
)  # fmt: skip
def test_a_document_that_contradicts_itself(
    tmp_path: Path, path: str, value: Any, says: str
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"schema_version": 1, **changed(path, value)}))
    with pytest.raises(SnapshotError, match=says) as error:
        load_snapshot(file)
    assert "cluster.json" in sentence(error)


def test_attributes_are_those_that_were_given() -> None:
    whole = document()
    whole["brokers"][0]["attributes"] = {"zone": "a", "age": 3}
    whole["topic_attributes"] = {"orders": {"tenant": "shop"}}
    snapshot = build_snapshot(SnapshotDocument.model_validate(whole))
    brokers, topics = snapshot.attributes("broker"), snapshot.attributes("topic")
    assert list(brokers) == ["age", "zone"]
    assert brokers["zone"].tolist()[0] == "a"
    assert brokers["age"][0] == 3
    assert np.isnan(brokers["age"][1])
    assert topics["tenant"].tolist() == ["shop"]
    with pytest.raises(SnapshotError, match="no topic attribute 'zone'; it has tenant"):
        topics.named("zone")
    with pytest.raises(ValueError, match="read-only"):
        brokers["age"][0] = 4


def test_only_attributes_that_exist_are_in_the_digest() -> None:
    plain = small()
    nothing = replace(plain, broker_attributes={"zone": [None] * 4})
    assert nothing.digest() == plain.digest()
    assert nothing == plain
    zones = replace(plain, broker_attributes={"zone": ["a", "b", None, "b"]})
    others = replace(plain, broker_attributes={"zone": ["a", "b", None, "a"]})
    assert len({plain.digest(), zones.digest(), others.digest()}) == 3
    assert zones != others


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"zone": ["a"]}, r"broker attribute 'zone': 1 values found, 4 expected"),
        ({"zone": "abcd"}, r"broker attribute 'zone': 'abcd' found, a list of values"),
        ({"zone": ["a", 1, None, None]}, r"row 1: 1 found, text as in earlier rows expected"),
        ({"zone": [None, 1.0, "a", 2]}, r"row 2: 'a' found, a number as in earlier rows"),
        ({"zone": [True] * 4}, r"row 0: True found, text or a finite number expected"),
        ({"zone": [float("inf")] * 4}, r"row 0: inf found, text or a finite number expected"),
        ({"a/b": ["a"] * 4}, r"broker attribute 'a/b': a name of letters, digits"),
    ],
)
def test_attributes_that_are_no_attributes(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SnapshotError, match=says):
        replace(small(), broker_attributes=given)


def test_a_broker_that_is_listed_twice() -> None:
    whole = document()
    whole["brokers"].append({"id": 1, "capacity": {"cpu": 1, "disk": 1}})
    with pytest.raises(SnapshotError, match=r"^brokers: broker 1 is listed twice$"):
        build_snapshot(SnapshotDocument.model_validate(whole))


def test_disks_named_by_partitions_only() -> None:
    whole = document()
    for broker in whole["brokers"]:
        broker["disks"] = []
    with pytest.raises(SnapshotError, match="orders-0: log_dirs given, but no broker lists"):
        build_snapshot(SnapshotDocument.model_validate(whole))


# --- arrays that contradict themselves


def with_row(name: str, row: Any, value: Any) -> dict[str, Any]:
    array = getattr(small(), name).copy()
    array[row] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (with_row("broker_ids", 2, -1), "broker_ids, row 2: -1 found"),
        (with_row("broker_ids", 1, 1), "broker_ids, row 1: 1 found, strictly ascending"),
        (with_row("broker_rack", 3, 2), "broker_rack, row 3: 2 found, an index of racks"),
        (with_row("broker_host", 0, -1), "broker_host, row 0: -1 found"),
        (with_row("broker_state", 1, 9), "broker_state, row 1: 9 found"),
        (with_row("capacity", (2, 3), np.nan), "capacity, row 2, 3: nan found"),
        (with_row("capacity", (0, 1), -5.0), "capacity, row 0, 1: -5.0 found"),
        (with_row("leader_load", (4, 0), np.inf), "leader_load, row 4, 0: inf found"),
        (with_row("follower_load", (1, 2), -1.0), "follower_load, row 1, 2: -1.0 found"),
        (with_row("partition_topic", 5, 8), "partition_topic, row 5: 8 found"),
        (with_row("partition_number", 3, 2), "partition_number, row 3: 2 found, unique"),
        (with_row("partition_number", 0, -2), "partition_number, row 0: -2 found"),
        (with_row("replica_broker", 7, 4), "replica_broker, row 7: 4 found, an index of brokers"),
        (with_row("leader", 2, 2), "leader, row 2: 2 found, a position"),
        (with_row("leader", 2, -2), "leader, row 2: -2 found"),
        (with_row("disk_capacity", 6, -1.0), "disk_capacity, row 6: -1.0 found"),
        (with_row("disk_broker", 0, 99), "disk_broker, row 0: 99 found"),
        (with_row("replica_disk", 3, 99), "replica_disk, row 3: 99 found"),
        ({"capacity": np.ones((4, 3))}, r"capacity: an array of shape \(4, 3\) found, \(4, 4\)"),
        ({"leader": np.zeros(5, np.int64)}, r"leader: an array of shape \(5,\) found, \(6,\)"),
        ({"replica_offset": np.arange(7)}, "replica_offset: 0 to 6 found, 0 to 12"),
        ({"broker_ids": np.empty(0)}, "broker_ids: none found"),
        ({"resources": ("cpu", "cpu", "x", "y")}, "resources, row 1: 'cpu' found twice"),
        ({"topics": ("b", "a")}, "topics: names in ascending order"),
        ({"disk_path": ("/a",)}, "disk_path: 1 found, 8 expected"),
        ({"lag": np.full(6, -1.0)}, "lag, row 0: -1.0 found"),
        ({"state_size": np.ones(3)}, "state_size: an array of shape"),
        ({"traffic_rate": np.ones(1), "traffic_from": [0], "traffic_to": [6]},
         "traffic_to, row 0: 6 found, an index of partitions"),
        ({"broker_sets": ("a",), "broker_set": [0, 0, 0, 1]}, "broker_set, row 3: 1 found"),
        ({"broker_ids": ["b", "a", "c", "d"]}, "broker_ids, row 1: a found, strictly ascending"),
        ({"broker_ids": ["", "a", "c", "d"]}, "broker_ids, row 0:  found, a name"),
        ({"racks": ("a\0", "b")}, r"racks, row 0: 'a\\x00' found, Unicode text without NUL"),
        ({"resources": ("a", "b", "\ud800", "c")}, "resources, row 2: .* Unicode text"),
        ({"disk_broker": [3, 3, 2, 2, 1, 1, 0, 0]}, "disk_broker, row 2: 2 found, disks in the"),
    ],
)  # fmt: skip
def test_messages_name_field_row_and_value(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SnapshotError, match=says) as error:
        replace(small(), **changes)
    sentence(error)


def test_traffic_needs_partitions() -> None:
    nothing = build_snapshot(
        SnapshotDocument.model_validate(
            {"resources": ["cpu"], "brokers": [{"id": 0, "capacity": {"cpu": 1}}]}
        )
    )
    with pytest.raises(SnapshotError, match="traffic_from, row 0: 0 found"):
        replace(
            nothing,
            traffic_rate=np.ones(1),
            traffic_from=np.zeros(1, int),
            traffic_to=np.zeros(1, int),
        )


def test_a_broker_holds_one_replica_of_a_partition() -> None:
    s = small()
    twice = s.replica_broker.copy()
    twice[5] = twice[4]
    with pytest.raises(SnapshotError, match=r"replica_broker, row 5: .* on another broker"):
        replace(s, replica_broker=twice, replica_disk=np.full(12, -1))


def test_a_replica_is_on_a_disk_of_its_own_broker() -> None:
    s = small()
    disk = s.replica_disk.copy()
    disk[4] = (disk[4] + 2) % s.n_disks
    with pytest.raises(SnapshotError, match=r"replica_disk, row 4: .* own broker"):
        replace(s, replica_disk=disk)


# --- what a snapshot offers


def test_arrays_are_frozen_and_independent_of_their_source() -> None:
    ids = np.arange(1, 5)
    s = replace(small(), broker_ids=ids)
    ids[0] = 99
    assert s.broker_ids[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        s.capacity[0, 0] = 1


def test_racks_hosts_and_broker_sets_are_kept_in_order_and_in_use() -> None:
    s = replace(
        small(),
        racks=("west", "nobody's", "east"),
        broker_rack=np.array([0, 2, 0, 2]),
        broker_sets=("empty", "full"),
        broker_set=np.array([1, -1, 1, -1]),
    )
    assert s.racks == ("east", "west")
    assert s.broker_rack.tolist() == [1, 0, 1, 0]
    assert s.broker_sets == ("full",)
    assert s.broker_set.tolist() == [0, -1, 0, -1]
    undivided = replace(s, broker_set=np.full(4, -1))
    assert undivided.broker_sets == ()
    assert not len(undivided.broker_set)
    with pytest.raises(ValueError, match="read-only"):
        s.broker_rack[0] = 0


def test_equality_is_by_content() -> None:
    assert small() == small()
    assert small() != replace(small(), broker_state=np.array([0, 0, 0, BrokerState.DEMOTED]))
    assert small() != "a snapshot"
    with pytest.raises(TypeError):
        hash(small())


def test_brokers_and_resources_are_found_by_name() -> None:
    s = small()
    assert s.broker_index([3, 1]).tolist() == [2, 0]
    assert s.broker_index([]).tolist() == []
    assert s.resource("disk") == 3
    with pytest.raises(SnapshotError, match="no broker 17 in the snapshot; it has 1, 2, 3, 4"):
        s.broker_index([1, 17])
    with pytest.raises(SnapshotError, match="no resource 'gpu'; it has cpu, network_in"):
        s.resource("gpu")


@given(snapshots())
def test_broker_load_is_the_sum_of_what_its_replicas_carry(snapshot: Snapshot) -> None:
    s = snapshot
    total = np.zeros((s.n_brokers, len(s.resources)))
    for p in range(s.n_partitions):
        for place, n in enumerate(range(s.replica_offset[p], s.replica_offset[p + 1])):
            load = s.leader_load if place == s.leader[p] else s.follower_load
            total[s.replica_broker[n]] += load[p]
    assert s.broker_load() == pytest.approx(total)


def test_a_file_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    save_snapshot(synthetic_snapshot(brokers=3, partitions=3, racks=3), path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["cluster.json"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("taken_ms",), True),
        (("metadata_version",), -0.0),
        (("partitions", 0, "reassigning"), 1),
        (("partitions", 0, "reassigning"), "yes"),
        (("brokers", 0, "disks", 0, "alive"), 1),
        (("brokers", 0, "disks", 0, "cordoned"), "no"),
    ],
)
def test_a_document_has_values_of_the_types_it_says(
    tmp_path: Path, place: tuple[Any, ...], value: object
) -> None:
    path = tmp_path / "cluster.json"
    save_snapshot(synthetic_snapshot(brokers=3, partitions=6, racks=3, disks_per_broker=2), path)
    document = within = json.loads(path.read_text())
    for step in place[:-1]:
        within = within[step]
    within[place[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(SnapshotError, match=rf"{place[-1]}: {value!r} found"):
        load_snapshot(path)


def test_of_many_wrong_entries_one_is_reported_and_the_others_are_not_kept() -> None:
    with pytest.raises(ValidationError) as error:
        SnapshotDocument.model_validate(
            {
                "resources": ["disk"],
                "brokers": [{"id": 0, "capacity": {"disk": 1}}],
                "partitions": [0] * 10_000,
            }
        )
    assert error.value.error_count() == 1
