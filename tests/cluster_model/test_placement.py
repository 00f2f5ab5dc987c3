from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import examples
from hypothesis import given
from hypothesis import strategies as st

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.columns import COUNT, LOAD, Column
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.scopes import BROKER, Grouping, PerTopic, Scope, scope_of

ZONE = Grouping("zone")
COLUMNS: list[tuple[Scope | str, str]] = [
    ("broker", "load.cpu"),
    ("broker", "load.disk"),
    ("broker", "replica_count"),
    ("broker", "leader_count"),
    ("broker", "leader_load.network_in"),
    ("broker", "potential_load.network_out"),
    ("broker", "former_load.cpu"),
    ("broker", "former_load.disk"),
    ("host", "load.network_in"),
    ("topic", "replica_count"),
    ("topic", "leader_count"),
    ("topic_rack", "replica_count"),
    ("rack", "load.cpu"),
    (ZONE, "load.cpu"),
    (ZONE, "leader_count"),
    (PerTopic(ZONE), "replica_count"),
]
ON_DISKS: list[tuple[Scope | str, str]] = [("disk", "load.disk"), ("disk", "replica_count")]

seeds = st.integers(0, 2**32 - 1)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    brokers = draw(st.integers(1, 8))
    dead = draw(st.integers(0, brokers - 1))
    snapshot = synthetic_snapshot(
        brokers=brokers,
        partitions=draw(st.integers(1, 40)),
        replication_factor=draw(st.integers(1, brokers)),
        racks=draw(st.integers(1, brokers)),
        disks_per_broker=draw(st.integers(0, 3)),
        dead_brokers=dead,
        seed=draw(st.integers(0, 50)),
    )
    # at least one broker has a zone: without any there is no such attribute
    zones = st.lists(st.sampled_from(["a", "b", None]), min_size=brokers - 1, max_size=brokers - 1)
    return replace(snapshot, broker_attributes={"zone": ["a", *draw(zones)]})


def watched(snapshot: Snapshot, slots: int | None = None) -> Placement:
    """A placement that keeps every kind of sum."""
    placement = Placement(snapshot, slots)
    for scope, column in COLUMNS + ON_DISKS:
        if scope_of(scope).lacks(snapshot) is None:
            placement.sums(scope, column)
    return placement


def draw_batch(placement: Placement, rng: np.random.Generator, kind: int) -> Batch:
    """Possible actions of a kind, on distinct partitions."""
    s, rows = placement.snapshot, []
    chosen = rng.permutation(s.n_partitions)[: rng.integers(1, s.n_partitions + 1)]
    for p in chosen.tolist():
        held = placement.brokers[p]
        slot = int(rng.choice(np.flatnonzero(held >= 0)))
        target, disk = int(held[slot]), -1
        if kind == MOVE:
            free = np.setdiff1d(np.arange(s.n_brokers), held)
            if not len(free):
                continue
            target = int(rng.choice(free))
        if kind == LEAD and slot == placement.leader[p]:
            continue
        if s.n_disks and kind != LEAD:
            disk = int(rng.choice(np.flatnonzero(s.disk_broker == target)))
        rows.append((p, slot, target, disk))
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return Batch.of(kind, *columns)


def kinds(snapshot: Snapshot) -> list[int]:
    return [MOVE, LEAD, MOVE_DISK] if snapshot.n_disks else [MOVE, LEAD]


@examples(10)
@given(snapshots(), seeds)
def test_sums_stay_what_a_recomputation_gives(snapshot: Snapshot, seed: int) -> None:
    rng = np.random.default_rng(seed)
    placement = watched(snapshot)
    for _ in range(12):
        placement.apply(draw_batch(placement, rng, int(rng.choice(kinds(snapshot)))))
        placement.check()
    for row in placement.brokers:
        held = row[row >= 0]
        assert len(set(held.tolist())) == len(held)


@examples(10)
@given(snapshots(), seeds)
def test_a_move_inside_a_group_changes_none_of_its_sums(snapshot: Snapshot, seed: int) -> None:
    rng = np.random.default_rng(seed)
    placement, (group, _) = watched(snapshot), snapshot.attributes("broker").groups("zone")
    sums = {column: placement.sums(ZONE, column).copy() for column in ("load.cpu", "leader_count")}
    per_topic = placement.sums(PerTopic(ZONE), "replica_count").copy()
    for _ in range(6):
        batch = draw_batch(placement, rng, MOVE)
        placement.apply(batch[group[placement.source(batch)] == group[batch.target]])
    for column, before in sums.items():
        assert placement.sums(ZONE, column) == pytest.approx(before)
        assert placement.recompute(ZONE, column) == pytest.approx(before)
    assert np.array_equal(placement.sums(PerTopic(ZONE), "replica_count"), per_topic)


@examples(10)
@given(snapshots(), seeds)
def test_undoing_restores_everything(snapshot: Snapshot, seed: int) -> None:
    rng = np.random.default_rng(seed)
    placement = watched(snapshot)
    start, sums = placement.copy(), {k: v.copy() for k, v in placement._sums.items()}
    undo = [
        placement.apply(draw_batch(placement, rng, int(rng.choice(kinds(snapshot)))))
        for _ in range(12)
    ]
    for batch in reversed(undo):
        placement.apply(batch)
        placement.check()
    assert np.array_equal(placement.replica_broker, start.replica_broker)
    assert np.array_equal(placement.replica_disk, start.replica_disk)
    assert np.array_equal(placement.leader, start.leader)
    for (scope, column), before in sums.items():
        after = placement.sums(scope, column)
        if column.measure == COUNT:
            assert np.array_equal(after, before)
        else:
            # a former load that is 0 again may keep a residue of what had left
            load = column._replace(measure=LOAD) if column.is_former else column
            most = max(float(start.recompute(scope, load).max()), 1.0)
            assert after == pytest.approx(before, rel=1e-9, abs=1e-9 * most)


@examples(10)
@given(snapshots(), seeds)
def test_mixed_batches_equal_their_actions_one_by_one(snapshot: Snapshot, seed: int) -> None:
    rng = np.random.default_rng(seed)
    at_once = watched(snapshot)
    parts = [draw_batch(at_once, rng, kind) for kind in kinds(snapshot)]
    batch = Batch.concatenate(parts)
    batch = batch[np.unique(batch.partition, return_index=True)[1]]
    one_by_one = at_once.copy()
    at_once.apply(batch)
    for i in range(len(batch)):
        one_by_one.apply(batch[i : i + 1])
    assert np.array_equal(at_once.replica_broker, one_by_one.replica_broker)
    assert np.array_equal(at_once.leader, one_by_one.leader)
    at_once.check()
    one_by_one.check()


@pytest.mark.slow
@examples(10)
@given(snapshots(), seeds)
def test_delta_is_what_the_sums_change_by(snapshot: Snapshot, seed: int) -> None:
    rng = np.random.default_rng(seed)
    placement = watched(snapshot)
    for kind in (MOVE, LEAD):
        batch = draw_batch(placement, rng, kind)
        for i in range(len(batch)):
            one = batch[i : i + 1]
            source, target = int(placement.source(one)[0]), int(one.target[0])
            for column in ("load.cpu", "replica_count", "leader_load.network_in"):
                before = placement.recompute("broker", column)
                moved = placement.delta(one, column)[0]
                undo = placement.apply(one)
                change = placement.recompute("broker", column) - before
                placement.apply(undo)
                size = 1e-9 * max(float(before.max()), 1.0)
                assert change[source] == pytest.approx(-moved, abs=size)
                assert change[target] == pytest.approx(moved, abs=size)
                others = np.setdiff1d(np.arange(snapshot.n_brokers), [source, target])
                assert change[others] == pytest.approx(0, abs=size)


@given(snapshots(), st.integers(0, 3))
def test_a_fresh_placement_is_the_snapshot(snapshot: Snapshot, spare: int) -> None:
    slots = int(snapshot.replication_factor.max()) + spare
    placement = watched(snapshot, slots)
    assert placement.slots == slots
    kept = placement.brokers >= 0
    assert np.array_equal(placement.brokers[kept], snapshot.replica_broker)
    assert np.array_equal(kept.sum(1), snapshot.replication_factor)
    if (snapshot.leader >= 0).all():
        for r, name in enumerate(snapshot.resources):
            assert placement.sums("broker", f"load.{name}") == pytest.approx(
                snapshot.broker_load()[:, r]
            )
    if snapshot.n_disks:
        assert np.array_equal(placement.replica_disk[kept.ravel()], snapshot.replica_disk)


@examples(10)
@given(snapshots(), seeds)
def test_a_former_load_is_what_has_left_since_the_start(snapshot: Snapshot, seed: int) -> None:
    rng = np.random.default_rng(seed)
    placement = watched(snapshot, int(snapshot.replication_factor.max()) + 1)
    for _ in range(6):
        placement.apply(draw_batch(placement, rng, int(rng.choice(kinds(snapshot)))))
    expected = np.zeros(snapshot.n_brokers)
    leads = snapshot.replica_is_leader
    for row, (p, b) in enumerate(
        zip(snapshot.replica_partition, snapshot.replica_broker, strict=True)
    ):
        if b not in placement.brokers[p]:
            first = leads[row] or (snapshot.leader[p] < 0 and row == snapshot.replica_offset[p])
            loads = snapshot.leader_load if first else snapshot.follower_load
            expected[b] += loads[p, snapshot.resource("disk")]
    size = 1e-9 * max(float(snapshot.broker_load().max()), 1.0)
    for found in (placement.sums, placement.stated().sums, placement.recompute):
        assert found("broker", "former_load.disk") == pytest.approx(expected, abs=size)
    for back in (placement.copy(), Placement(snapshot, placement.slots)):
        assert np.array_equal(back.start[back.start >= 0], snapshot.replica_broker)


def test_a_former_load_is_of_brokers() -> None:
    placement = Placement(synthetic_snapshot(brokers=3))
    with pytest.raises(ValueError, match=r"former_load\.disk is of scope 'broker', 'rack' found"):
        placement.sums("rack", Column.of("former_load.disk"))


def test_a_copy_is_independent() -> None:
    snapshot = synthetic_snapshot(brokers=5, partitions=20, racks=5, disks_per_broker=2)
    placement = watched(snapshot)
    copy = placement.copy()
    before = placement.sums("broker", "replica_count").copy()
    copy.apply(draw_batch(copy, np.random.default_rng(0), MOVE))
    assert np.array_equal(placement.sums("broker", "replica_count"), before)
    assert not np.array_equal(copy.replica_broker, placement.replica_broker)
    placement.check()
    copy.check()


def test_a_partition_without_leader_is_led_by_its_preferred_replica() -> None:
    snapshot = synthetic_snapshot(
        brokers=2, partitions=10, racks=2, replication_factor=1, dead_brokers=1
    )
    assert (snapshot.leader < 0).any()
    assert (Placement(snapshot).leader == 0).all()


def test_a_sum_that_has_drifted_is_found() -> None:
    placement = watched(synthetic_snapshot(brokers=5, partitions=20, racks=5))
    for scope, column, kept in placement.kept_sums():
        if (scope, column) == (BROKER, Column.of("load.disk")):
            kept[3] += 1e9
    with pytest.raises(AssertionError, match=r"load\.disk per broker has drifted"):
        placement.check()


def test_a_replica_without_a_known_disk_counts_on_its_broker_only() -> None:
    snapshot = synthetic_snapshot(
        brokers=3, partitions=1, replication_factor=1, racks=3, disks_per_broker=1
    )
    placement = watched(snapshot)
    (home,) = placement.replica_broker.tolist()
    zero, away = np.array([0]), np.array([(home + 1) % 3])
    placement.apply(Batch.of(MOVE, zero, zero, away, np.array([-1])))
    placement.check()
    assert placement.sums("disk", "replica_count").sum() == 0
    assert placement.sums("broker", "replica_count").sum() == 1


def test_sums_are_added_up_again_after_they_were_invalidated() -> None:
    placement = Placement(
        synthetic_snapshot(brokers=3, partitions=9, replication_factor=1, racks=1)
    )
    before = placement.sums("broker", "replica_count").copy()
    placement.replica_broker[:] = 0
    assert np.array_equal(placement.sums("broker", "replica_count"), before)
    placement.invalidate_sums()
    assert placement.sums("broker", "replica_count").tolist() == [9, 0, 0]
    placement.check()
