"""Which reports are trusted: cross-checks, history, and what replaces the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from balancer.controller.feed import window_noise
from benchmarks.harness import world as world_module
from benchmarks.harness.world import HOUR, Weather, World
from benchmarks.poison import led_by, shifted
from cluster_model import BrokerState, Snapshot, synthetic_snapshot
from cluster_model.live import ClusterModel, Observation
from cluster_model.snapshot import Floats
from cluster_model.trust import TrustParameters, frozen_partitions
from metrics_reporter import BYTES_IN, BYTES_OUT, CPU, SIZE, Record, RecordBatch
from metrics_reporter.metrics import REPLICATION_IN

NETWORK_IN, DISK = 1, 3
LIAR = 4
Change = Callable[[Floats], Floats]


class Lying(World):
    """A world in which broker 4 changes some of its values, all or of partitions only."""

    lies: tuple[str, Change, bool] | None = None

    def report(self) -> RecordBatch:
        batch = super().report()
        if self.lies is None:
            return batch
        metric, change, totals = self.lies
        hit = (batch.metric == batch.metrics.index(metric)) & (batch.broker[batch.row] == LIAR)
        if not totals:
            hit &= batch.topic[batch.row] >= 0
        value = batch.value.copy()
        value[hit] = change(value[hit])
        return replace(batch, value=value)


@pytest.fixture(autouse=True)
def report_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times in a window, which is enough, instead of five times."""
    monkeypatch.setattr(world_module, "INTERVAL", 100.0)


def cluster(**options: int) -> Snapshot:
    sizes = {"brokers": 6, "partitions": 120, "racks": 3, "topics": 4}
    return synthetic_snapshot(**{**sizes, **options}, skew=1.0, utilization=0.2)


def lived(
    metric: str, change: Change, *, totals: bool = True, honest: float = HOUR, **options: int
) -> tuple[Lying, Observation]:
    """An honest hour that the model saw, then half an hour of lies."""
    world = Lying(cluster(**options), Weather(noise=0.1), seed=1)
    if honest:
        world.advance(honest)
        world.model.observe()
    world.lies = (metric, change, totals)
    for _ in range(6):
        world.advance(300.0)
        seen = world.model.observe()
    return world, seen


def close_to_truth(seen: Observation, world: World, resource: int) -> None:
    """The loads of all partitions together are not the liar's."""
    got, true = seen.snapshot.broker_load()[:, resource], world.true().broker_load()[:, resource]
    np.testing.assert_allclose(got.sum(), true.sum(), rtol=0.1)


@pytest.mark.parametrize("factor", [0.0, 5.0, 20.0, 1000.0])
def test_totals_contradict_partitions(factor: float) -> None:
    world, seen = lived(BYTES_IN, lambda v: v * factor, totals=False, honest=0.0)
    (doubt,) = seen.distrust.doubts
    assert (doubt.broker, doubt.check, doubt.proven) == (LIAR, "totals", True)
    assert "MB/s" in doubt.sentence
    assert not world.moved


@pytest.mark.parametrize("factor", [5.0, 20.0, 1000.0])
def test_followers_contradict_a_leader_that_agrees_with_itself(factor: float) -> None:
    # From the first window on: no history helps.
    _, seen = lived(BYTES_IN, lambda v: v * factor, honest=0.0)
    (doubt,) = seen.distrust.doubts
    assert (doubt.broker, doubt.check, doubt.proven) == (LIAR, "followers", True)


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("factor", "honest"), [(1e-300, 0.0), (1e-310, 0.0), (1e-310, HOUR), (1e-30, 0.0)]
)
def test_next_to_nothing_is_compared_without_a_warning(factor: float, honest: float) -> None:
    _, seen = lived(BYTES_IN, lambda v: v * factor, honest=honest)
    assert LIAR in {d.broker for d in seen.distrust.doubts}


@pytest.mark.parametrize(
    ("metric", "resource", "change"),
    [
        (BYTES_IN, NETWORK_IN, lambda v: v * 20),
        (BYTES_IN, NETWORK_IN, lambda v: v * 0),
        (BYTES_IN, NETWORK_IN, lambda v: v * np.nan),
        (BYTES_IN, NETWORK_IN, lambda v: v * 0 + 1e18),
        (BYTES_IN, NETWORK_IN, lambda v: -v - 1),
        (SIZE, DISK, lambda v: v * 20),
        (SIZE, DISK, lambda v: v * 0),
        (BYTES_OUT, 2, lambda v: v * 20),
        (CPU, 0, lambda v: v * 5),
        (CPU, 0, lambda v: v * 0),
    ],
)
def test_what_is_not_believed_has_its_last_value(
    metric: str, resource: int, change: Change
) -> None:
    world, seen = lived(metric, change)
    assert seen.distrust.brokers == {LIAR}
    close_to_truth(seen, world, resource)


def test_a_follower_that_lies_of_what_it_copied_is_no_witness_against_leaders() -> None:
    for change in (lambda v: v * 20, lambda v: v * 0):
        _, seen = lived(REPLICATION_IN, change, honest=0.0)
        assert not seen.distrust.doubts


def test_sizes_contradict_other_replicas_and_log_directories() -> None:
    _, seen = lived(SIZE, lambda v: v * 5, honest=0.0)
    (doubt,) = seen.distrust.doubts
    assert (doubt.broker, doubt.check) == (LIAR, "sizes")
    assert "GB" in doubt.sentence
    # Without log directories, other replicas are enough.
    base = cluster()
    none = np.zeros_like(base.leader_load)
    world = Lying(base, Weather())
    world.model = ClusterModel(
        replace(base, leader_load=none, follower_load=none),
        windows=3,
        min_samples=2,
        clock=lambda: int(world.now * 1000),
    )
    world.lies = (SIZE, lambda v: v * 5, True)
    world.advance(1200.0)
    (doubt,) = world.model.observe().distrust.doubts
    assert (doubt.broker, doubt.check) == (LIAR, "sizes")


def test_a_real_shift_that_others_confirm_is_believed_at_once() -> None:
    for grows in ((BYTES_IN,), (BYTES_IN, BYTES_OUT, SIZE), (SIZE,), (BYTES_OUT,)):
        world = World(cluster(), Weather(noise=0.1), seed=1)
        world.advance(HOUR)
        world.model.observe()
        world.snapshot = shifted(world.snapshot, grows, 5.0, [LIAR])
        world.model.update(world.snapshot)
        for _ in range(6):
            world.advance(300.0)
            seen = world.model.observe()
        assert not seen.distrust.doubts, grows
        mine = led_by(world.snapshot, [LIAR])
        for resource in (NETWORK_IN, DISK):
            got = seen.snapshot.leader_load[mine, resource].sum()
            true = world.snapshot.leader_load[mine, resource].sum()
            assert got == pytest.approx(true, rel=0.1)


UNCONFIRMED: list[tuple[str, int, Change, int]] = [
    (CPU, 0, lambda v: v * 5, 3),
    (CPU, 0, lambda v: v * 0, 3),
    (BYTES_OUT, 2, lambda v: v * 5, 3),
    (BYTES_IN, NETWORK_IN, lambda v: v * 5, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "resource", "change", "replicas"), UNCONFIRMED)
def test_a_jump_that_nobody_confirms_is_never_believed(
    metric: str, resource: int, change: Change, replicas: int
) -> None:
    world, seen = lived(metric, change, replication_factor=replicas)
    (doubt,) = seen.distrust.doubts
    assert (doubt.broker, doubt.check, doubt.proven) == (LIAR, "history", False)
    assert not doubt.set_aside
    began = world.now
    while world.now < began + 9 * HOUR:
        world.advance(900.0)
        seen = world.model.observe()
        assert [d.broker for d in seen.distrust.doubts] == [LIAR]
        close_to_truth(seen, world, resource)
    # What it holds can be balanced again by all that is known.
    assert seen.distrust.doubts[0].set_aside
    assert not seen.distrust.brokers


@pytest.mark.slow
def test_cpu_beyond_its_capacity_is_contradicted_outright() -> None:
    world, _ = lived(CPU, lambda v: v * 1000)
    for _ in range(8 * 4):
        world.advance(900.0)
        (doubt,) = world.model.observe().distrust.doubts
        assert (doubt.broker, doubt.check, doubt.proven) == (LIAR, "capacity", True)
        assert re.search(r" uses [\d,]+,\d00 of cpu by its report, and has ", doubt.sentence)


@pytest.mark.slow
def test_cpu_confirms_bytes_only_if_they_explain_it() -> None:
    class Both(Lying):
        def report(self) -> RecordBatch:
            batch = super().report()
            if self.lies is None:
                return batch
            used = batch.metric == batch.metrics.index(CPU)
            factor = np.where(used & (batch.broker[batch.row] == LIAR), 3.0, 1.0)
            return replace(batch, value=batch.value * factor)

    world = Both(cluster(), Weather(noise=0.1), seed=1)
    world.advance(HOUR)
    world.model.observe()
    world.lies = (BYTES_OUT, lambda v: v * 5, True)
    for _ in range(9 * 4):
        world.advance(900.0)
        seen = world.model.observe()
        assert [d.broker for d in seen.distrust.doubts] == [LIAR]
        close_to_truth(seen, world, 2)


@pytest.mark.parametrize(("metric", "resource"), [(CPU, 0), (BYTES_OUT, 2)])
def test_without_a_history_others_tell_what_is_usual(metric: str, resource: int) -> None:
    """A controller that was restarted has none."""
    world, seen = lived(metric, lambda v: v * 6, honest=0.0)
    (doubt,) = seen.distrust.doubts
    assert (doubt.broker, doubt.check, doubt.proven) == (LIAR, "peers", False)
    close_to_truth(seen, world, resource)


def test_cpu_that_cannot_be_compared_is_not_planned_on() -> None:
    world = Lying(cluster(), Weather(noise=0.1), seed=1)
    world.advance(HOUR)
    world.model.observe()
    world.lies = (CPU, lambda v: v * 20, True)
    s = world.snapshot
    row = int(np.flatnonzero(led_by(s, [LIAR]))[0])
    for _ in range(12):
        # Its leaders change in every window.
        leader = world.snapshot.leader.copy()
        leader[row] = (leader[row] + 1) % s.replication_factor[row]
        world.snapshot = replace(world.snapshot, leader=leader)
        world.model.update(world.snapshot)
        world.advance(150.0)
        close_to_truth(world.model.observe(), world, 0)


def test_a_lie_hides_no_noise_of_others() -> None:
    _, honest = lived(CPU, lambda v: v)
    _, lied = lived(CPU, lambda v: v * 1000)
    assert window_noise(lied)["cpu"] == pytest.approx(window_noise(honest)["cpu"], rel=0.5)


@pytest.mark.parametrize("totals", [True, False])
def test_a_doubt_outlives_a_change_of_leaders(totals: bool) -> None:
    world, seen = lived(BYTES_OUT, lambda v: v * 5, totals=totals)
    s = world.snapshot
    # Half of what it leads goes to others, who report what is true, and others' comes to it.
    mine = np.flatnonzero(led_by(s, [LIAR]))[::2]
    held = s.replica_broker[s.replica_offset[:-1]] == np.flatnonzero(s.broker_ids == LIAR)[0]
    theirs = np.flatnonzero(held & ~led_by(s, [LIAR]))
    leader = s.leader.copy()
    leader[mine], leader[theirs] = (leader[mine] + 1) % s.replication_factor[mine], 0
    world.snapshot = replace(s, leader=leader)
    world.model.update(world.snapshot)
    for _ in range(12):
        world.advance(300.0)
        seen = world.model.observe(0.5)
        assert [d.broker for d in seen.distrust.doubts] == [LIAR]
        close_to_truth(seen, world, 2)


def test_a_broker_that_was_idle_is_compared_with_its_peers() -> None:
    base = cluster()
    # Broker 4 gives away all it has, and gets it back after an hour.
    others = np.flatnonzero(base.broker_ids != LIAR)
    own = int(np.flatnonzero(base.broker_ids == LIAR)[0])
    mine = base.replica_broker == own
    moved = base.replica_broker.copy()
    for r in np.flatnonzero(mine):
        held = base.replica_broker[base.replica_partition == base.replica_partition[r]]
        moved[r] = next(b for b in np.roll(others, r) if b not in held)
    empty = replace(base, replica_broker=moved)
    for factor in (1.0, 8.0):
        world = Lying(empty, Weather(noise=0.1), seed=1)
        for _ in range(12):
            world.advance(300.0)
            assert not world.model.observe().distrust.doubts
        world.snapshot = replace(base)
        world.model.update(world.snapshot)
        world.lies = (CPU, partial(np.multiply, factor), True)
        for _ in range(8):
            world.advance(300.0)
            seen = world.model.observe()
            assert not seen.distrust.doubts or factor > 1
            close_to_truth(seen, world, 0)
        assert [d.broker for d in seen.distrust.doubts] == ([LIAR] if factor > 1 else [])


@pytest.mark.parametrize("factor", [0.55, 1.9])
@pytest.mark.parametrize("seed", range(2))
def test_a_small_lie_makes_nobody_else_a_liar(factor: float, seed: int) -> None:
    world = Lying(cluster(brokers=12), Weather(noise=0.1), seed=seed)
    world.lies = (BYTES_IN, lambda v: v * factor, True)
    for _ in range(12):
        world.advance(300.0)
        seen = world.model.observe(0.0)
        assert {d.broker for d in seen.distrust.doubts} <= {LIAR}


@pytest.mark.parametrize("cores", [1.0, 33.37])
def test_cpu_in_whole_percent_may_repeat(cores: float) -> None:
    """Of one core, or of all that the broker has."""
    base = cluster()
    cpu = base.resource(CPU)
    scale = np.ones(len(base.resources))
    if cores > 1:
        scale[cpu] = 100 * cores / base.capacity[0, cpu]
    base = replace(
        base,
        capacity=base.capacity * scale,
        leader_load=base.leader_load * scale,
        follower_load=base.follower_load * scale,
    )
    percent = round(float(base.broker_load()[base.broker_ids == LIAR, cpu][0]) / cores) * cores
    world = Lying(base, Weather(noise=0.1), seed=1)
    world.lies = (CPU, lambda v: v * 0 + percent, True)
    world.advance(1200.0)
    for _ in range(6):
        world.advance(300.0)
        assert not world.model.observe().distrust.doubts


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("factor", [0.05, 5.0])
def test_a_real_change_of_all_bytes_is_believed(
    factor: float, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a single window shows is compared here.
    monkeypatch.setattr(world_module, "INTERVAL", 60.0)
    world = World(cluster(replication_factor=replicas), Weather(noise=0.1), seed=1)
    world.advance(HOUR)
    world.model.observe()
    world.snapshot = shifted(world.snapshot, (BYTES_IN, BYTES_OUT), factor, [LIAR])
    world.model.update(world.snapshot)
    for _ in range(6):
        world.advance(300.0)
        seen = world.model.observe()
    assert not seen.distrust.doubts
    close_to_truth(seen, world, NETWORK_IN)


@pytest.mark.parametrize("topics", [2, 4])
def test_a_topic_that_is_deleted_makes_nobody_a_liar(topics: int) -> None:
    """The totals of brokers had its traffic until then, and no partition has it now."""
    world = World(cluster(topics=topics), Weather(noise=0.1), seed=1)
    world.advance(HOUR)
    world.model.observe()
    s = world.snapshot
    world.delete(int(np.bincount(s.partition_topic, s.leader_load[:, NETWORK_IN]).argmax()))
    for _ in range(12):
        world.advance(300.0)
        assert not world.model.observe().distrust.doubts


def test_consumers_of_all_brokers_confirm_each_other() -> None:
    """Who reads a topic more often reads it from all who lead it."""
    world = World(cluster(), Weather(noise=0.1), seed=1)
    world.advance(HOUR)
    world.model.observe()
    s = world.snapshot
    leader_load = s.leader_load.copy()
    leader_load[s.partition_topic == 0, 2] += 12 * leader_load[s.partition_topic == 0, 1]
    # Sent from the page cache, without any cpu.
    world.snapshot = replace(s, leader_load=leader_load)
    for _ in range(6):
        world.advance(300.0)
        seen = world.model.observe()
    assert not seen.distrust.doubts


@pytest.mark.parametrize(("share", "doubted"), [(1e-3, set()), (1.0, {LIAR})])
def test_a_jump_counts_only_where_its_bytes_do(share: float, doubted: set[int]) -> None:
    """Where almost nothing is read, one reader more is five times as much."""
    world = Lying(cluster(), Weather(noise=0.1), seed=1)
    sent = world.snapshot.leader_load.copy()
    sent[:, 2] = (2 + share) * sent[:, NETWORK_IN]  # two followers copy it all
    world.snapshot = replace(world.snapshot, leader_load=sent)
    world.model.update(world.snapshot)
    world.advance(HOUR)
    world.model.observe()
    world.lies = (BYTES_OUT, lambda v: v * 5, True)
    for _ in range(6):
        world.advance(300.0)
        seen = world.model.observe()
    assert {d.broker for d in seen.distrust.doubts} == doubted


def test_an_operator_may_confirm_a_broker() -> None:
    world = Lying(cluster(), Weather(), seed=1)
    world.model = ClusterModel(
        world.snapshot,
        windows=3,
        min_samples=2,
        clock=lambda: int(world.now * 1000),
        trust=TrustParameters(believed=(LIAR,)),
    )
    world.lies = (BYTES_IN, lambda v: v * 5, True)
    world.advance(1200.0)
    assert not world.model.observe().distrust.doubts


def test_an_operator_may_confirm_a_broker_at_run_time() -> None:
    world, seen = lived(BYTES_IN, lambda v: v * 5, replication_factor=1)
    assert seen.distrust.brokers == {LIAR}
    world.model.trust = TrustParameters(believed=(LIAR,))
    assert not world.model.observe().distrust.doubts
    # What was confirmed is what it is judged by after that.
    world.advance(300.0)
    assert not world.model.observe().distrust.doubts


def test_the_time_until_a_value_is_set_aside_may_change_at_run_time() -> None:
    world, seen = lived(BYTES_IN, lambda v: v * 5, replication_factor=1)
    assert seen.distrust.brokers == {LIAR}
    world.model.trust = TrustParameters(set_aside_after=60.0)
    seen = world.model.observe()
    assert not seen.distrust.brokers
    assert [d.set_aside for d in seen.distrust.doubts] == [True]


def test_a_reporter_that_repeats_itself_while_others_vary() -> None:
    first: list[Floats] = []

    def repeated(value: Floats) -> Floats:
        first.append(value)
        return first[0]

    _, seen = lived(BYTES_OUT, repeated, honest=0.0)
    assert [(d.broker, d.check) for d in seen.distrust.doubts] == [(LIAR, "stuck")]


def test_only_valid_records_are_a_sign_of_life() -> None:
    world = Lying(cluster(), Weather())
    world.advance(600.0)
    for metric in (BYTES_IN, BYTES_OUT, SIZE, CPU):
        world.model.add_all(
            Record(int(world.now * 1000) + 60_000 + i, LIAR, {metric: -1.0}) for i in range(112)
        )
    world.now += 900.0
    world.model.add(Record(int(world.now * 1000), 5, {CPU: 1.0}))
    age = world.model.staleness_ms()
    assert age[LIAR] >= 900_000.0
    assert age[5] == 0.0
    assert world.model.counters["invalid"] == 3 * 112


def test_values_whose_sums_overflow_are_invalid() -> None:
    world = Lying(cluster(), Weather())
    world.lies = (BYTES_IN, lambda v: np.full(len(v), 1.7e308), True)
    world.advance(1200.0)
    seen = world.model.observe()
    assert np.isfinite(seen.snapshot.leader_load).all()
    assert seen.distrust.brokers == {LIAR}
    assert world.model.counters["invalid"] > 0


def test_what_followers_take_in_is_not_the_partitions() -> None:
    base = cluster()
    world = World(base, Weather())
    world.advance(1200.0)
    before = world.model.snapshot()
    follower = base.replica_broker[~base.replica_is_leader][0]
    row = base.replica_partition[~base.replica_is_leader][0]
    name, number = base.topics[base.partition_topic[row]], int(base.partition_number[row])
    identity = int(base.broker_ids[follower])
    for i in range(10):
        time_ms = int(world.now * 1000) - 600_000 + i
        world.model.add(Record(time_ms, identity, {BYTES_IN: 1e9}, name, number))
    assert world.model.snapshot() == before
    assert world.model.counters["follower"] == 10


@pytest.mark.parametrize("believed", [(), (LIAR,)])
def test_a_broker_without_reports_leaves_the_others_known(believed: tuple[int, ...]) -> None:
    """Also where an operator has confirmed what it reports: it reports nothing now."""
    world = Lying(cluster(), Weather())
    world.advance(HOUR)
    world.model.observe()
    silent = Lying(cluster(), Weather(noise=0.1))
    silent.model = ClusterModel(
        silent.snapshot,
        windows=3,
        min_samples=2,
        clock=lambda: int(silent.now * 1000),
        trust=TrustParameters(believed=believed),
    )
    for _ in range(25):
        silent.now += 60.0
        batch = silent.report()
        value = np.where(batch.broker[batch.row] == LIAR, np.nan, batch.value)
        silent.model.add_batch(replace(batch, value=value))
    seen = silent.model.observe()
    (doubt,) = seen.distrust.doubts
    assert (doubt.broker, doubt.check) == (LIAR, "missing")
    # Never heard: each of its partitions counts as the mean of its topic.
    s = seen.snapshot
    mine = led_by(s, [LIAR])
    assert (s.leader_load[mine, NETWORK_IN] > 0).all()
    assert (s.leader_load[mine, DISK] > 0).all()
    assert len(frozen_partitions(s, [LIAR])) > mine.sum()


def test_where_most_brokers_do_not_report_there_are_no_loads() -> None:
    world = World(cluster(brokers=8), Weather())
    for _ in range(25):
        world.now += 60.0
        batch = world.report()
        value = np.where(batch.broker[batch.row] > 3, np.nan, batch.value)
        world.model.add_batch(replace(batch, value=value))
    with pytest.raises(ValueError, match="5 of 8 brokers do not report"):
        world.model.observe()
    # To heal, placement is enough.
    assert world.measured.placement().n_brokers == 8


def test_without_any_records_there_is_a_placement_to_heal_by() -> None:
    world = World(cluster(), Weather())
    dead = np.where(world.snapshot.broker_ids == 2, BrokerState.DEAD, BrokerState.ALIVE)
    world.model.update(replace(world.snapshot, broker_state=dead.astype(np.int64)))
    assert world.measured.placement().broker_state.tolist().count(BrokerState.DEAD) == 1


def test_moves_make_nobody_a_liar() -> None:
    """Broker totals of windows before a move are no match for what is led after it."""
    world = World(cluster(), Weather(noise=0.1))
    world.advance(HOUR)
    world.model.observe()
    s = world.snapshot
    # Broker 1 hands the lead of all its partitions with followers to the next replica.
    mine = led_by(s, [1])
    leader = np.where(mine, (s.leader + 1) % s.replication_factor, s.leader)
    world.snapshot = replace(s, leader=leader)
    world.model.update(world.snapshot)
    for _ in range(8):
        world.advance(300.0)
        assert not world.model.observe().distrust.doubts
