"""A cut of the whole graph: where it has units, and how it draws them there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from collocation_cases import ROUNDS, allocation, examples, jobs, streams, talking
from hypothesis import given
from hypothesis import strategies as st

from balancer.allocation.units import Units, units_of
from balancer.collocation.albic import albic
from balancer.collocation.outlook import aim, refine_towards, whole_numbers
from balancer.collocation.parameters import CollocationParameters
from balancer.problem.deadline import NEVER
from balancer.problem.operation import Operation


def ring(budget: float, removed: tuple[int, ...] = ()) -> Units:
    """Four circles of six that communicate, on nodes in turn: none of them is where it belongs."""
    p = allocation([2.0] * 24, [i % 4 for i in range(24)], 4, removed=removed, budget=budget)
    sent = {(6 * c + i, 6 * c + (i + 1) % 6): 5.0 for c in range(4) for i in range(6)}
    return talking(p, range(24), sent)


def test_a_cut_has_each_circle_on_a_node_of_its_own() -> None:
    units = ring(24)
    node = aim(units, np.arange(24))
    assert units.local(node) == 1.0
    assert np.bincount(node).tolist() == [6, 6, 6, 6]


def test_groups_stay_together_in_a_cut() -> None:
    units = ring(24)
    group = np.arange(24) // 2
    node = aim(units, group)
    assert (node[::2] == node[1::2]).all()


@pytest.mark.parametrize("removed", [(1,), (0, 1, 2)])
def test_a_cut_uses_only_nodes_that_stay(removed: tuple[int, ...]) -> None:
    node = aim(ring(24, removed), np.arange(24))
    assert not np.isin(node, removed).any()


def test_a_part_comes_to_the_node_that_has_most_of_it() -> None:
    units = ring(24)
    circle = np.repeat([3, 1, 2, 0], 6)
    swapped = replace(units, problem=replace(units.problem, node=circle))
    assert aim(swapped, np.arange(24)).tolist() == circle.tolist()


@pytest.mark.parametrize("weight", [[0.5, 1.0, 1.0, 2.0], [2.0, 1.0, 0.5, 1.0]])
def test_a_cut_has_more_on_nodes_of_more_capacity(weight: list[float]) -> None:
    # Chains, which can be cut anywhere.
    n = np.arange(90)
    p = replace(allocation([1.0] * 90, [i % 4 for i in range(90)], 4), weight=np.array(weight))
    node = aim(talking(p, range(90), {(i, i + 1): 5.0 for i in n[:-1].tolist()}), n)
    # 40 units on the largest node, 20, 20 and 10.
    assert p.distance(node) <= 4.0
    assert np.argmax(np.bincount(node)) == np.argmin(weight)


def test_what_is_fixed_is_aimed_at_its_node() -> None:
    units = ring(24)
    fixed = np.where(np.arange(24) % 6 == 0, units.problem.node, -1)
    node = aim(replace(units, problem=replace(units.problem, fixed=fixed)), np.arange(24))
    assert (node[fixed >= 0] == fixed[fixed >= 0]).all()
    few = replace(ring(24, (1,)), problem=replace(ring(24, (1,)).problem, fixed=fixed))
    assert (aim(few, np.arange(24) % 4)[fixed >= 0] == fixed[fixed >= 0]).all()


@pytest.mark.parametrize("small", [1e6, 40.0, 12.0])
def test_nodes_too_small_for_several_groups_are_not_aimed_at(
    small: float, capfd: pytest.CaptureFixture[str]
) -> None:
    # METIS reports on the standard output that it cannot fill a part.
    units = ring(24)
    weight = np.array([1.0, small, 1.0, small])
    assert set(
        aim(replace(units, problem=replace(units.problem, weight=weight)), np.arange(24))
    ) == {
        0,
        2,
    }
    found = capfd.readouterr()
    assert (found.out, found.err) == ("", "")


@given(jobs(), st.sampled_from([0.0, 10.0]), st.sampled_from([0.0, 0.2, 10.0]))
@examples
def test_being_drawn_keeps_every_limit(units: Units, limit: float, outlook: float) -> None:
    p = units.problem
    target = aim(units, np.arange(len(p.load)))
    assert not p.removed[target].any()
    own = CollocationParameters(outlook=outlook)
    start = np.where(p.fixed >= 0, p.fixed, p.node)
    if p.spent(start) > p.budget or not p.within_ceilings(start):
        return
    node = refine_towards(units, p, start, target, limit, NEVER, own)
    assert p.spent(node) <= p.budget + 1e-6
    assert not p.removed[node[node != start]].any()
    assert (node[p.fixed >= 0] == p.fixed[p.fixed >= 0]).all()
    assert p.within_ceilings(node)
    assert p.distance(node) <= max(limit, p.distance(start)) + 1e-6


def test_looking_ahead_gathers_circles_in_fewer_periods() -> None:
    needed = {}
    for outlook in (0.0, 0.2):
        units, own = ring(4), CollocationParameters(outlook=outlook)
        for period in range(1, 9):
            before = units.local(units.problem.node)
            node = albic(units, rounds=ROUNDS, parameters=own).solution.node
            assert units.local(node) >= before
            units = replace(units, problem=replace(units.problem, node=node))
            if units.local(node) == 1.0:
                needed[outlook] = period
                break
    assert needed.get(0.2, 9) <= needed.get(0.0, 9)


def test_where_all_is_local_nothing_moves_for_a_cut() -> None:
    units = ring(24)
    circle = np.repeat([3, 1, 2, 0], 6)
    together = replace(units, problem=replace(units.problem, node=circle))
    assert albic(together, rounds=ROUNDS).solution.migrations == 0


@pytest.mark.parametrize("nodes", [2, 9, 24])
def test_a_cut_of_few_groups_prints_nothing(nodes: int, capfd: pytest.CaptureFixture[str]) -> None:
    # METIS reports on the standard output that it cannot fill a part.
    p = allocation([5.0] * 8, [0, 1] * 4, nodes, budget=4)
    units = talking(p, [0] * 4 + [1] * 4, {(i, 7 - i): 3.0 for i in range(4)})
    assert aim(units, np.arange(8)).shape == (8,)
    assert albic(units, rounds=ROUNDS).solution.migrations <= 4
    found = capfd.readouterr()
    assert (found.out, found.err) == ("", "")


def test_a_cut_with_groups_heavier_than_a_part_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    # METIS reports on the standard output that it cannot fill a part.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        load = rng.pareto(0.3, 40).tolist()
        p = allocation(load, rng.integers(0, 8, 40).tolist(), 8, budget=4)
        aim(talking(p, range(40), {(i, (7 * i + 1) % 40): 3.0 for i in range(39)}), np.arange(40))
    found = capfd.readouterr()
    assert (found.out, found.err) == ("", "")


def test_rates_near_the_greatest_number_are_weights() -> None:
    assert whole_numbers(np.array([1e308, 1e308, 0.0])) == [50_000_000, 50_000_000, 1]
    assert whole_numbers(np.zeros(2)) == [1, 1]


@pytest.mark.parametrize(
    ("operation", "takers"),
    [
        (Operation(excluded_brokers_for_replicas=(1, 4)), {2, 3, 5, 6}),
        (Operation(destinations=(2, 3)), {2, 3}),
        (Operation(kind="remove_brokers", brokers=(6,), destinations=(1, 2)), {1, 2}),
        (Operation(kind="add_brokers", brokers=(5,)), {5}),
    ],
)
def test_nothing_is_aimed_at_a_node_that_may_receive_nothing(
    operation: Operation, takers: set[int]
) -> None:
    circle, place = np.divmod(np.arange(60), 10)
    snapshot = streams(
        {"circle": [2.0] * 60},
        {"circle": ((circle + place) % 6 + 1).tolist()},
        ids=range(1, 7),
        traffic=[(10 * c + i, 10 * c + (i + 1) % 10, 5.0) for c in range(6) for i in range(10)],
    )
    units = units_of(snapshot, operation, budget=60)
    node = aim(units, np.arange(60))
    p = units.problem
    went = snapshot.broker_ids[node[node != p.node]]
    assert set(went.tolist()) <= takers
    assert not p.removed[node].any()
    if len(takers) > 2:
        assert set(went.tolist()) == takers
        # The others are spread evenly over the nodes that take something.
        assert p.distance(node) <= p.distance(p.node) + 5.0


@pytest.mark.parametrize("seed", range(2))
def test_being_drawn_does_not_hurt_where_capacities_differ(seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity, load = rng.choice([0.5, 1.0, 2.0], 8), rng.uniform(1, 3, 120)
    p = replace(
        allocation((load * 480 / load.sum()).tolist(), rng.integers(0, 8, 120).tolist(), 8),
        weight=capacity.mean() / capacity,
        budget=10,
    )
    # Fifteen communities of eight; one pair in three is between neighbouring ones.
    one, two = rng.integers(0, 15, 360), rng.integers(0, 8, (2, 360))
    next_to = (one + (rng.random(360) < 1 / 3)) % 15
    kept = dict[float, float]()
    for outlook in (0.0, 0.2):
        units = Units(
            problem=p,
            operator=np.arange(120),
            source=8 * one + two[0],
            target=8 * next_to + two[1],
            rate=np.full(360, 5.0),
        )
        own = CollocationParameters(outlook=outlook, proof_size=0)
        for period in range(12):
            found = albic(units, rounds=ROUNDS, seed=period, parameters=own).solution
            units = replace(units, problem=replace(units.problem, node=found.node))
        assert found.distance <= 10 + 1e-6
        kept[outlook] = units.local(found.node)
    assert kept[0.2] >= 0.95 * kept[0.0]
