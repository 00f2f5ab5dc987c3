"""A short simulated day: nothing moves needlessly, and what moved stays."""

from __future__ import annotations

import pytest

from balancer import Balancer
from benchmarks.harness.world import HOUR, MovedReplica, Weather, World, thrash
from benchmarks.simulate import run_controller
from cluster_model import Snapshot, synthetic_snapshot


def _skewed() -> Snapshot:
    return synthetic_snapshot(brokers=6, partitions=60, topics=6, racks=3, utilization=0.2)


def test_on_constant_load_it_moves_once_and_nothing_twice() -> None:
    world = World(_skewed(), Weather())
    settings = {"max_share_per_cycle": 1.0}
    controller, _ = run_controller(world, execute=True, seconds=3 * HOUR, settings=settings)
    assert controller.metrics.bytes_moved > 0
    assert set(thrash(world.moved, 24 * HOUR).values()) == {0.0}


@pytest.mark.soak
def test_the_cycles_of_one_plan_do_not_move_what_the_ones_before_them_moved() -> None:
    world = World(_skewed(), Weather())
    controller, _ = run_controller(world, execute=True, seconds=3 * HOUR)
    cycles = [d.plan for d in controller.decisions if d.kind == "started"]
    assert len(cycles) > 1
    assert all(p is not None and p["cost"] <= 0.1 * p["cost_total"] for p in cycles)
    # What a cut left breaking a hard goal moves on; nothing else does.
    assert max(thrash(world.moved, 24 * HOUR).values()) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    "weather", [Weather(noise=0.3), pytest.param(Weather(quantum=0.1), marks=pytest.mark.soak)]
)
def test_noise_and_quantised_metrics_alone_move_nothing(weather: Weather) -> None:
    even = Balancer("default").propose(_skewed()).final_snapshot()
    world = World(even, weather, seed=3)
    controller, _ = run_controller(world, execute=True, seconds=3 * HOUR)
    assert not world.moved
    assert {d.kind for d in controller.decisions} <= {"balanced", "trivial", "waiting"}


@pytest.mark.soak
def test_a_hot_topic_is_seen_and_spread() -> None:
    even = Balancer("default").propose(_skewed()).final_snapshot()
    world = World(even, Weather(hot=8.0))
    # It is hot from the tenth hour on.
    world.now += 9 * HOUR
    controller, _ = run_controller(world, execute=True, seconds=12 * HOUR)
    executed = [d for d in controller.decisions if d.kind == "executed"]
    assert executed
    assert all(d.cause == "goal_violations" for d in executed)


def test_thrash_is_the_share_of_what_moved_again_in_time() -> None:
    load = {"disk": 10.0}
    moved = [
        MovedReplica(0.0, ("a", 0), load),
        # Another step of the same execution.
        MovedReplica(0.0, ("a", 0), load),
        MovedReplica(0.0, ("b", 0), load),
        MovedReplica(50.0, ("a", 0), load),
        MovedReplica(200.0, ("b", 0), load),
    ]
    assert thrash(moved, 100.0) == {"disk": 0.2}
    assert thrash(moved, 300.0) == {"disk": 0.4}
    assert thrash([], 100.0) == {}
