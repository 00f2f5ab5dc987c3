"""Capacities of log directories: other data, shared file systems, cordons, unknown sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer
from balancer.composition.proposal import concerns
from balancer.controller.finding import View
from balancer.controller.lost_partitions import LostPartitionDetector, lost_partitions
from balancer.controller.settings import DeadBrokers
from balancer.verification.checker import check_plan
from cluster_model.build import build_snapshot
from cluster_model.capacities import Capacities
from cluster_model.kafka import as_document, before, settled
from cluster_model.log_dirs import Sharing, file_systems, room_of

TB = 10**12


def log_dir(
    path: str, total: int = -1, usable: int = -1, held: Mapping[int, int] | None = None, **more: Any
) -> dict[str, Any]:
    """A directory with these bytes of partitions of topic t."""
    partitions = [
        {"partition_index": n, "partition_size": size, "is_future_key": False}
        for n, size in (held or {}).items()
    ]
    return {
        "error_code": 0,
        "log_dir": path,
        "topics": [{"name": "t", "partitions": partitions}],
        "total_bytes": total,
        "usable_bytes": usable,
        **more,
    }


def groups(*dirs: dict[str, Any], sharing: Sharing | None = None) -> list[tuple[str, ...]]:
    return [system.paths for system in file_systems(dirs, sharing)]


# --- file systems


def test_directories_of_equal_size_and_free_bytes_share_a_file_system() -> None:
    a, b = log_dir("/a", TB, TB // 2), log_dir("/b", TB, TB // 2)
    assert groups(a, b) == [("/a", "/b")]
    assert groups(a, b, log_dir("/c", 2 * TB, TB // 2)) == [("/a", "/b"), ("/c",)]
    # Written to between the two measurements.
    assert groups(a, log_dir("/b", TB, TB // 2 - 8192)) == [("/b", "/a")]
    assert groups(a, log_dir("/b", TB, TB // 3)) == [("/b",), ("/a",)]


def test_directories_that_hold_more_than_is_used_are_apart() -> None:
    half = {0: TB // 2 - 10**9}
    a = log_dir("/a", TB, TB // 2, half)
    assert groups(a, log_dir("/b", TB, TB // 2 - 8192, half)) == [("/b",), ("/a",)]


def test_it_can_be_stated_either_way() -> None:
    a, b = log_dir("/a", TB, TB), log_dir("/b", TB, TB)
    assert groups(a, b, sharing="separate") == [("/a",), ("/b",)]
    far = log_dir("/b", TB, TB // 3)
    assert groups(a, far, sharing="shared") == [("/b", "/a")]
    capacities = Capacities.model_validate({"log_dirs": {"default": "shared", 7: "separate"}})
    assert [capacities.sharing_of(b) for b in (1, 7)] == ["shared", "separate"]
    assert Capacities.model_validate({"log_dirs": "separate"}).sharing_of(3) == "separate"
    assert Capacities().sharing_of(3) is None


# --- room


def test_other_data_is_no_room() -> None:
    d = log_dir("/a", total=1000, usable=300, held={0: 200, 5: 100})
    room = room_of([d], own={("t", 0)})
    # 400 bytes are other programs', and the 100 of a partition that is not this broker's.
    assert room.capacity == 500
    assert [disk.capacity for disk in room.disks] == [500]


def test_what_is_free_on_a_shared_file_system_counts_once() -> None:
    GB = 10**9
    held = {"/a": {0: 100 * GB}, "/b": {1: 200 * GB}}
    dirs = [log_dir(path, TB, 600 * GB, sizes) for path, sizes in held.items()]
    own = {("t", 0), ("t", 1)}
    shared, apart = room_of(dirs, own), room_of(dirs, own, "separate")
    assert (shared.capacity, shared.shared) == (900 * GB, ("/a", "/b"))
    assert (apart.capacity, apart.shared) == (1500 * GB, ())
    assert [d.capacity for d in shared.disks] == [pytest.approx(300 * GB), pytest.approx(600 * GB)]
    assert [d.capacity for d in apart.disks] == [700 * GB, 800 * GB]
    # What leaves a cordoned directory may go to the other one.
    dirs[0]["is_cordoned"] = True
    assert [d.capacity for d in room_of(dirs, own).disks] == [700 * GB, 800 * GB]


def test_directories_that_may_be_disks_of_their_own_have_equal_parts() -> None:
    dirs = [log_dir("/a", 1000, 600, {0: 100}), log_dir("/b", 1000, 600)]
    room = room_of(dirs, {("t", 0)})
    assert (room.capacity, [d.capacity for d in room.disks]) == (700, [350, 350])


@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_nothing_is_moved_between_directories_of_one_file_system(sharing: str) -> None:
    brokers = [{"broker_id": b, "rack": None, "host": f"h{b}"} for b in (1, 2)]
    partitions = [
        {"partition_index": i, "leader_id": b, "replica_nodes": [b]}
        for i, b in enumerate((1, 1, 1, 1, 2, 2, 2, 2))
    ]
    # /a holds seven times what /b does, and both are one file system of 100 GB.
    sizes = {
        b: {4 * (b - 1) + i: size * 10**9 for i, size in enumerate((7, 7, 7, 3))} for b in (1, 2)
    }
    dirs = {
        b: [
            log_dir("/a", 10**11, 76 * 10**9, {i: n for i, n in held.items() if i % 4 < 3}),
            log_dir("/b", 10**11, 76 * 10**9, {i: n for i, n in held.items() if i % 4 == 3}),
        ]
        for b, held in sizes.items()
    }
    document = as_document(
        brokers,
        [{"name": "t", "error_code": 0, "partitions": partitions}],
        dirs,
        Capacities.model_validate({"log_dirs": sharing}),
        {},
        ("disk",),
    )
    plan = Balancer({"goals": ["DiskCapacity", "DiskUsageDistribution"]}).propose(
        build_snapshot(document)
    )
    assert (plan.summary.disk_moves == 0) == (sharing == "shared")
    assert plan.ok or sharing == "separate"


def test_unknown_sizes_stay_unknown() -> None:
    old = [log_dir("/a"), log_dir("/b", total=500)]
    room = room_of(old, set(), stated=80.0)
    assert room.capacity is None
    assert [d.capacity for d in room.disks] == [40, 500]
    assert room_of(old[1:], set()).capacity == 500


def test_an_offline_directory_holds_nothing_and_a_cordoned_one_is_marked() -> None:
    offline = {"error_code": 56, "log_dir": "/b", "topics": [], "total_bytes": -1}
    room = room_of([log_dir("/a", 1000, 600, is_cordoned=True), offline], set())
    assert room.capacity == 600
    assert [(d.alive, d.cordoned, d.capacity) for d in room.disks] == [
        (True, True, 600),
        (False, False, 0),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500)), min_size=1, max_size=5),
    st.sampled_from([None, "shared", "separate"]),
)
def test_capacity_never_exceeds_what_separate_disks_would_have(
    found: list[tuple[int, int]], sharing: Sharing | None
) -> None:
    dirs = [
        log_dir(f"/{i}", 10**9 * (size + 1), 1000 + free, {i: 7})
        for i, (size, free) in enumerate(found)
    ]
    own = {("t", i) for i in range(len(dirs))}
    room = room_of(dirs, own, sharing)
    apart = room_of(dirs, own, "separate")
    assert room.capacity is not None
    assert apart.capacity is not None
    assert apart.capacity == sum(d["usable_bytes"] + 7 for d in dirs)
    assert 0 < room.capacity <= apart.capacity
    assert sorted(p for s in file_systems(dirs, sharing) for p in s.paths) == sorted(
        d["log_dir"] for d in dirs
    )


# --- a reassignment under way


def answered(
    replicas: list[int],
    leader: int,
    ongoing: dict[str, Any],
    sizes: Mapping[int, int],
    offline: Sequence[int] = (),
) -> Any:
    brokers = [{"broker_id": b, "rack": None, "host": f"h{b}"} for b in sizes]
    partition = {
        "partition_index": 0,
        "leader_id": leader,
        "replica_nodes": replicas,
        "offline_replicas": list(offline),
    }
    return as_document(
        brokers,
        [{"name": "t", "error_code": 0, "partitions": [partition]}],
        {b: [log_dir("/d", 1000, 500, {0: size})] for b, size in sizes.items()},
        Capacities(),
        {},
        ("disk",),
        reassignments={("t", 0): ongoing} if ongoing else {},
    )


def test_a_partition_that_is_reassigned_is_where_it_will_be() -> None:
    ongoing = {"replicas": [3, 2, 1], "adding_replicas": [3], "removing_replicas": [1]}
    document = answered([3, 2, 1], 1, ongoing, {1: 90, 2: 80, 3: 5})
    (p,) = document.partitions
    assert (p.replicas, p.leader, p.reassigning) == ((3, 2), 3, True)
    # As large as what is copied, not as the copy that is begun.
    assert (p.leader_load, p.follower_load) == ({"disk": 90}, {"disk": 80})
    assert [b.id for b in document.brokers] == [1, 2, 3]
    # Bytes that the reassignment frees, and those that it has copied, are Kafka's own.
    assert [b.capacity["disk"] for b in document.brokers] == [590, 580, 505]


def test_a_single_replica_that_moves_keeps_its_size() -> None:
    ongoing = {"replicas": [2, 1], "adding_replicas": [2], "removing_replicas": [1]}
    (p,) = answered([2, 1], 1, ongoing, {1: 90, 2: 5}).partitions
    assert (p.replicas, p.leader) == ((2,), 2)
    assert (p.leader_load, p.follower_load) == ({"disk": 90}, {"disk": 90})


def test_what_is_not_reassigned_is_as_it_was() -> None:
    (p,) = answered([2, 1], 2, {}, {1: 90, 2: 5}).partitions
    assert (p.replicas, p.leader, p.reassigning) == ((2, 1), 2, False)


@pytest.mark.parametrize(
    ("replicas", "leader", "offline", "origin"),
    [
        # The only source is dead, and the new copy is not in sync.
        ([2, 1], -1, [1], [1]),
        # The metadata still names a leader that is offline.
        ([2, 1], 1, [1], [1]),
        # What is left of the sources was not in sync.
        ([3, 1, 2], -1, [1], [1, 2]),
        # The only copy in sync was the new one, and its broker died.
        ([3, 1, 2], -1, [3], [1, 2]),
    ],
)
def test_a_reassignment_that_cannot_finish_shows_what_was_before(
    replicas: list[int], leader: int, offline: list[int], origin: list[int]
) -> None:
    adding, removing = replicas[:1], replicas[1:2]
    ongoing = {"replicas": replicas, "adding_replicas": adding, "removing_replicas": removing}
    alive = {b: 90 for b in (1, 2, 3, 4) if b not in offline}
    document = answered(replicas, leader, ongoing, alive, offline)
    (p,) = document.partitions
    assert (list(p.replicas), p.leader, p.reassigning) == (origin, None, True)
    s = build_snapshot(document)
    assert lost_partitions(s).tolist() == [True]
    (finding,) = LostPartitionDetector(DeadBrokers(alert_after=0)).look(View(s, now=1.0))
    assert "t-0) cannot be healed" in finding.sentence
    assert finding.alert
    plan = Balancer().propose(s)
    assert not plan.ok
    assert not len(plan)
    unmet = {u.goal for u in plan.unmet}
    assert "EligibleLeaders" in unmet
    assert ("OnlineReplicas" in unmet) == bool({*origin} & {*offline})
    (warning,) = (c for c in concerns(s) if "reassign" in c)
    assert "cannot finish" in warning
    assert "t-0" in warning
    assert check_plan(s, plan.document()).ok


def test_a_reassignment_goes_on_from_a_new_copy_in_sync() -> None:
    ongoing = {"replicas": [2, 3, 1], "adding_replicas": [2, 3], "removing_replicas": [1]}
    (p,) = answered([2, 3, 1], 2, ongoing, {2: 90, 3: 5}, [1]).partitions
    assert (p.replicas, p.leader, p.reassigning) == ((2, 3), 2, True)


def test_before() -> None:
    assert before([4, 2, 1], {"adding_replicas": [4]}) == [2, 1]
    assert before([4, 2], {"adding_replicas": [4, 2]}) == [4, 2]


@pytest.mark.parametrize(
    ("replicas", "adding", "removing", "expected"),
    [
        ([4, 2, 1, 3], [4], [1, 3], [4, 2]),
        ([4, 2], [4], [1, 3], [4, 2]),  # ended since
        ([1, 2, 3], [4], [1, 3], [1, 2, 3]),  # cancelled since
        ([1, 2, 3], [], [3], [1, 2]),
        ([1, 2, 3], [3], [], [1, 2, 3]),
        ([1], [], [1], [1]),
    ],
)
def test_settled(
    replicas: list[int], adding: list[int], removing: list[int], expected: list[int]
) -> None:
    ongoing = {"adding_replicas": adding, "removing_replicas": removing}
    assert settled(replicas, ongoing) == expected
