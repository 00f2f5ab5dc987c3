"""Brokers that need different amounts of cpu for the same bytes."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.attribution import (
    attribute_cpu,
    cpu_capacity,
    hardware_cost,
    learnt_cost,
    replica_weights,
)
from cluster_model.live import ClusterModel, simulated_source
from cluster_model.snapshot import Floats
from metrics_reporter import CPU


def cluster(seed: int, **options: int) -> Snapshot:
    sizes = {"brokers": 8, "partitions": 400, "racks": 4, "topics": 20, "seed": seed}
    return synthetic_snapshot(**{**sizes, **options})


def rates(seed: int, n: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    bytes_in = rng.lognormal(0, 0.7, n)
    return bytes_in, bytes_in * 3.0


def used(snapshot: Snapshot, weight: Floats, cost: Floats) -> Floats:
    carried: Floats = np.bincount(snapshot.replica_broker, weight, snapshot.n_brokers) * cost
    return carried


@given(st.integers(0, 1000), st.sampled_from([0.5, 2.0, 2.5]), st.floats(0.0, 0.3))
def test_slow_and_fast_brokers_are_found(seed: int, factor: float, spread: float) -> None:
    s = cluster(seed)
    bytes_in, out = rates(seed, s.n_partitions)
    rng = np.random.default_rng(seed + 1)
    each = rng.lognormal(0, spread, s.n_partitions)[s.replica_partition]
    true = np.ones(s.n_brokers)
    true[[2, 5]] = factor
    weight = replica_weights(s, bytes_in, out) * each
    cost = hardware_cost(s, bytes_in, out, used(s, weight, true))
    carried = used(s, weight, np.ones(s.n_brokers))
    busy = carried > np.median(carried) / 2
    np.testing.assert_allclose(cost[busy], true[busy], rtol=0.35)
    assert (np.abs(np.log(cost / true)) <= abs(np.log(factor))).all()


@given(st.integers(0, 1000), st.floats(0.0, 0.2))
def test_partitions_that_differ_are_no_hardware(seed: int, spread: float) -> None:
    s = cluster(seed)
    bytes_in, out = rates(seed, s.n_partitions)
    each = np.random.default_rng(seed).lognormal(0, spread, s.n_partitions)[s.replica_partition]
    cpu = used(s, replica_weights(s, bytes_in, out) * each, np.full(s.n_brokers, 7.0))
    cost = hardware_cost(s, bytes_in, out, cpu)
    # The synthetic placement has brokers with little on them.
    assert (cost == 1).sum() >= 7
    assert (np.abs(np.log(cost)) < np.log(1.5)).all()


def test_a_topic_that_is_expensive_is_shared_between_its_brokers_and_itself() -> None:
    s = cluster(3, topics=2, partitions=160, replication_factor=1)
    bytes_in, out = rates(3, s.n_partitions)
    first = s.partition_topic == 0
    # Only two brokers have traffic of the first topic, and that takes four times the cpu.
    idle = first & ~np.isin(s.replica_broker, [0, 1])
    bytes_in, out = np.where(idle, 0.0, bytes_in), np.where(idle, 0.0, out)
    cpu = used(s, replica_weights(s, bytes_in, out) * np.where(first, 4, 1), np.ones(8))
    cost = hardware_cost(s, bytes_in, out, cpu)
    price = cpu / used(s, replica_weights(s, bytes_in, out), np.ones(8))
    assert (cost[:2] < 0.75 * price[:2] / np.median(price)).all()


def test_brokers_of_which_nothing_is_known_cost_as_much_as_others() -> None:
    s = cluster(1)
    bytes_in, out = rates(1, s.n_partitions)
    cpu = used(s, replica_weights(s, bytes_in, out), np.where(np.arange(8) == 3, 2.0, 1.0))
    for unknown in (np.nan, 0.0):
        one = hardware_cost(s, bytes_in, out, np.where(np.arange(8) == 4, unknown, cpu))
        assert one[4] == 1
        assert one[3] == pytest.approx(2, rel=0.25)
    assert (hardware_cost(s, bytes_in, out, np.full(8, np.nan)) == 1).all()
    assert (hardware_cost(s, np.zeros(400), np.zeros(400), cpu) == 1).all()


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
def test_next_to_no_bytes_say_nothing() -> None:
    s = cluster(1, replication_factor=1)
    bytes_in, _ = rates(1, s.n_partitions)
    bytes_in = np.where(s.replica_broker == 4, 1e-310, bytes_in)
    cost = hardware_cost(s, bytes_in, bytes_in, np.where(np.arange(8) == 3, 1e9, 1.0))
    assert np.isfinite(cost).all()
    assert cost[4] == 1


def test_an_idle_broker_says_little_of_its_hardware() -> None:
    s = cluster(2)
    bytes_in, out = rates(2, s.n_partitions)
    led = np.bincount(s.replica_partition, s.replica_broker == 6, s.n_partitions) > 0
    bytes_in, out = np.where(led, bytes_in * 0.01, bytes_in), np.where(led, out * 0.01, out)
    cpu = used(s, replica_weights(s, bytes_in, out), np.ones(8))
    cpu[6] *= 3
    assert hardware_cost(s, bytes_in, out, cpu)[6] < 1.5


def test_a_move_has_the_effect_that_the_live_model_foresees() -> None:
    s = cluster(5)
    cpu = s.resource(CPU)
    true = np.where(np.isin(np.arange(8), [1, 6]), 2.0, 1.0)
    model = ClusterModel(s)
    for report in islice(simulated_source(s), 11):
        model.add_all(
            r._replace(metrics={CPU: r.metrics[CPU] * true[s.broker_index([r.broker])[0]]})
            if CPU in r.metrics and r.topic is None
            else r
            for r in report
        )
    seen = model.snapshot()
    measured = s.broker_load()[:, cpu] * true
    # Where replicas are now, each broker is as busy as it said.
    busy = seen.broker_load()[:, cpu] / seen.capacity[:, cpu]
    np.testing.assert_allclose(busy, measured / s.capacity[:, cpu], rtol=1e-6)
    np.testing.assert_allclose(
        seen.capacity, cpu_capacity(s, s.capacity[:, cpu] / seen.capacity[:, cpu])
    )
    # A partition of a slow broker is no more expensive elsewhere than others' partitions.
    leader = s.replica_broker[s.replica_is_leader]
    ratio = seen.leader_load[:, cpu] / s.leader_load[:, cpu]
    slow = np.isin(leader, [1, 6])
    assert np.median(ratio[slow]) == pytest.approx(np.median(ratio[~slow]), rel=0.3)
    bytes_in = seen.leader_load[:, s.resource("network_in")]
    out = seen.leader_load[:, s.resource("network_out")]
    blind, _ = attribute_cpu(s, bytes_in, out, measured)
    assert np.median(blind[slow] / s.leader_load[slow, cpu]) > 1.5


def test_a_cost_is_learnt_slowly() -> None:
    known = np.array([1.0, 2.0, np.nan])
    now = np.array([4.0, 2.0, 3.0])
    np.testing.assert_allclose(learnt_cost(known, now, 0.0, 60.0), [1, 2, 3])
    np.testing.assert_allclose(learnt_cost(known, now, 60.0, 60.0), [2, 2, 3])
    np.testing.assert_allclose(learnt_cost(known, now, 6000.0, 60.0), [4, 2, 3])


@pytest.mark.slow
def test_the_noise_of_the_first_window_is_forgotten_with_the_second() -> None:
    s = cluster(6, partitions=24)
    cpu, broker = s.resource(CPU), int(s.broker_ids[3])
    model = ClusterModel(s, clock=lambda: 10**9)
    capacity = []
    for minute, report in enumerate(islice(simulated_source(s, start_ms=0), 26)):
        for r in report:
            of_broker = CPU in r.metrics and r.topic is None and r.broker == broker
            high = of_broker and minute < 5
            model.add(r._replace(metrics={CPU: r.metrics[CPU] * 1.6}) if high else r)
        if minute in (5, 10, 15, 20, 25):
            capacity.append(float(model.snapshot().capacity[3, cpu]))
    assert capacity[0] < 0.9 * s.capacity[3, cpu]
    assert capacity[-1] == s.capacity[3, cpu]


def test_a_broker_that_uses_more_cpu_from_one_hour_to_the_next_is_no_other_machine() -> None:
    s, now = cluster(6, partitions=80), [0]
    cpu = s.resource(CPU)
    model = ClusterModel(s, clock=lambda: now[0])
    for i, report in enumerate(islice(simulated_source(s, start_ms=0), 75)):
        records = list(report)
        now[0] = max(r.time_ms for r in records)
        model.add_all(
            r._replace(metrics={CPU: r.metrics[CPU] * 2.5})
            if CPU in r.metrics and r.topic is None and r.broker == s.broker_ids[3] and i > 15
            else r
            for r in records
        )
        if i > 10:
            capacity = model.snapshot().capacity[:, cpu]
    assert capacity[3] == pytest.approx(s.capacity[3, cpu], rel=0.05)
