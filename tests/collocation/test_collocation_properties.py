"""Properties of every allocation."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from collocation_cases import ROUNDS, allocation, examples, jobs, problems
from hypothesis import given
from hypothesis import strategies as st

from balancer.allocation.drain import drain, empty_removed_nodes
from balancer.allocation.flux import flux
from balancer.allocation.problem import Allocation
from balancer.allocation.solver import GOOD, solve
from balancer.allocation.units import Units
from balancer.collocation.albic import albic, groups, scores
from balancer.collocation.locality_refinement import Communication, refine_locality
from cluster_model.snapshot import Ints

LIMITS = st.sampled_from([0.0, 4.0, 12.0, 25.0])
DISTANCES = st.sampled_from([0.0, 3.0, 10.0, 100.0])


def sound(problem: Allocation, node: Ints) -> None:
    p = problem
    assert node.shape == p.node.shape
    assert ((node >= 0) & (node < len(p.weight))).all()
    assert p.cost[node != p.node].sum() <= p.budget + 1e-6
    assert not p.removed[node[node != p.node]].any()
    assert (node[p.fixed >= 0] == p.fixed[p.fixed >= 0]).all()
    assert p.within_ceilings(node)


@pytest.mark.slow
@given(jobs(), LIMITS, DISTANCES, st.integers(0, 3))
@examples
def test_every_key_group_is_on_one_node_within_budget_and_none_goes_where_it_may_not(
    units: Units, limit: float, distance: float, pairs: int
) -> None:
    found = albic(
        units, max_group_load=limit, max_distance=distance, pairs=pairs, rounds=ROUNDS, seed=3
    )
    p, node = units.problem, found.solution.node
    sound(p, node)
    assert found.solution.migrations == (node != p.node).sum()
    assert found.solution.cost == pytest.approx(p.spent(node))
    assert found.solution.distance == pytest.approx(p.distance(node))
    assert found.solution.bound <= found.solution.distance + 1e-6
    for i, j in found.pairs:
        assert node[i] == node[j]
        assert p.node[i] != p.node[j]
    for group in np.unique(found.group):
        assert len(set(node[found.group == group].tolist())) == 1
    # for the sake of collocation it goes as far as is allowed, and no farther
    if found.pairs or len(set(found.group.tolist())) < len(node):
        assert found.solution.distance <= distance + 1e-6


@given(jobs(), LIMITS, st.integers(0, 100))
@examples
def test_the_same_seed_gives_the_same_plan(units: Units, limit: float, seed: int) -> None:
    one, two = (albic(units, max_group_load=limit, rounds=ROUNDS, seed=seed) for _ in range(2))
    assert one.solution.node.tolist() == two.solution.node.tolist()
    assert one.group.tolist() == two.group.tolist()
    assert one.pairs == two.pairs


@pytest.mark.slow
@given(problems(), DISTANCES, st.integers(0, 100))
@examples
def test_without_communication_the_plan_is_that_of_the_milp(
    problem: Allocation, distance: float, seed: int
) -> None:
    units = Units(problem=problem, operator=np.zeros(len(problem.load), np.int64))
    found = albic(units, max_distance=distance, rounds=ROUNDS, seed=seed)
    plain = solve(problem, rounds=ROUNDS, seed=seed)
    assert found.solution.node.tolist() == plain.node.tolist()
    assert found.solution.bound == plain.bound


@pytest.mark.slow
@given(jobs(), st.integers(0, 100))
@examples
def test_with_groups_of_no_load_the_plan_is_that_of_the_milp(units: Units, seed: int) -> None:
    found = albic(units, max_group_load=0, rounds=ROUNDS, seed=seed)
    plain = solve(units.problem, rounds=ROUNDS, seed=seed)
    assert found.solution.node.tolist() == plain.node.tolist()
    assert (np.bincount(found.group, minlength=1) <= 1).all()


@given(jobs(), st.sampled_from([0.5, 4.0, 12.0, 25.0, 1000.0]), st.integers(0, 100))
@examples
def test_groups_are_within_their_limits(units: Units, limit: float, seed: int) -> None:
    p, worth = units.problem, scores(units)
    group = groups(units, worth, limit, np.random.default_rng(seed))
    assert sorted(set(group.tolist())) == list(range(group.max(initial=-1) + 1))
    for number in range(group.max(initial=-1) + 1):
        members = np.flatnonzero(group == number)
        assert len(set(p.node[members].tolist())) == 1
        if len(members) > 1:
            assert p.load[members].sum() <= limit + 1e-6
            assert p.cost[members].sum() <= p.budget + 1e-6


@given(jobs())
@examples
def test_without_limits_groups_are_what_pairs_in_one_place_connect(units: Units) -> None:
    node, worth = units.problem.node, scores(units)
    free = Units(
        problem=allocation(units.problem.load.tolist(), node.tolist(), 6),
        operator=units.operator,
        source=units.source,
        target=units.target,
        rate=units.rate,
    )
    group = groups(free, worth, np.inf, np.random.default_rng(0))
    kept = worth & (node[units.source] == node[units.target])
    assert (group[units.source[kept]] == group[units.target[kept]]).all()
    # as many groups as a forest of the pairs leaves trees
    label = list(range(len(node)))
    for a, b in zip(units.source[kept].tolist(), units.target[kept].tolist(), strict=True):
        label = [label[a] if x == label[b] else x for x in label]
    assert len(set(group.tolist())) == len(set(label))


@pytest.mark.slow
@given(problems(), st.integers(0, 100))
@examples
def test_the_solver_is_sound_and_never_worse_than_flux_or_its_bound(
    problem: Allocation, seed: int
) -> None:
    found = solve(problem, rounds=ROUNDS, seed=seed)
    sound(problem, found.node)
    assert found.bound <= found.distance + 1e-6
    by_flux = flux(problem)
    if problem.within_ceilings(by_flux):
        # While nodes are emptied, what is good is good enough.
        enough = GOOD if problem.removed.any() else 0.0
        assert found.distance <= max(problem.distance(by_flux), enough) + 1e-9
        strict = solve(problem, good=0.0, rounds=ROUNDS, seed=seed)
        assert strict.distance <= problem.distance(by_flux) + 1e-9


@given(problems(), st.integers(0, 100))
@examples
def test_lemma_1_nothing_goes_to_a_node_marked_for_removal(problem: Allocation, seed: int) -> None:
    """Not even from another such node, which would be cost for nothing."""
    node = solve(problem, rounds=ROUNDS, seed=seed).node
    arrived = node[node != problem.node]
    assert not problem.removed[arrived].any()


@given(problems(), st.integers(0, 100))
@examples
def test_lemma_2_what_stays_on_nodes_marked_for_removal_is_lacking_elsewhere(
    problem: Allocation, seed: int
) -> None:
    """The bound that the lemma is proved with: d is at least L_B / |A|."""
    p = problem
    node = solve(p, rounds=ROUNDS, seed=seed).node
    left = p.load[p.removed[node]].sum()
    assert p.distance(node) >= left / (1 / p.weight[~p.removed]).sum() - 1e-6


@pytest.mark.parametrize("seed", range(2))
def test_lemma_2_load_in_small_pieces_leaves_nodes_marked_for_removal_altogether(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    load, node = rng.uniform(0.2, 1.0, 60), np.arange(60) % 5
    found = solve(allocation(load.tolist(), node.tolist(), 5, removed=(1, 4)), rounds=400)
    assert not np.isin(found.node, (1, 4)).any()
    assert found.distance < 0.1


def test_lemma_2_holds_for_the_best_of_all_allocations() -> None:
    """Tried one by one, where pieces are alike and can be spread evenly."""
    p = allocation([2.0] * 6, [0, 0, 1, 1, 2, 2], 3, removed=(2,))
    every = [np.array(node) for node in product(range(3), repeat=6)]
    least = min(p.distance(node) for node in every)
    assert all(2 not in node for node in every if p.distance(node) == least)
    assert solve(p, rounds=ROUNDS).distance == least


@pytest.mark.slow
@given(jobs(), st.sampled_from([0.0, 1.5, GOOD]), st.integers(0, 100))
@examples
def test_bringing_nearer_is_sound_and_keeps_more_local(
    units: Units, limit: float, seed: int
) -> None:
    p = units.problem
    before = solve(p, rounds=ROUNDS, seed=seed).node
    talk = Communication.of(len(p.load), units.source, units.target, units.rate)
    after = refine_locality(p, talk, before, limit)
    sound(p, after)
    assert units.local(after) >= units.local(before) - 1e-12
    assert p.distance(after) <= max(limit, p.distance(before)) + 1e-9


def test_pairs_that_are_crossed_change_places() -> None:
    # Alone, none of them may move.
    crossed = allocation([5.0] * 4, [0, 0, 1, 1], 2, budget=2)
    talk = Communication.of(4, np.array([0, 1]), np.array([2, 3]), np.array([1.0, 2.0]))
    node = refine_locality(crossed, talk, crossed.node, 1.0)
    assert node[0] == node[2]
    assert node[1] == node[3]
    too_dear = replace(crossed, budget=1)
    assert (refine_locality(too_dear, talk, crossed.node, 1.0) == crossed.node).all()


@pytest.mark.slow
@given(problems(), st.sampled_from([0.0, 3.0, GOOD]), st.integers(0, 100))
@examples
def test_emptying_is_sound_and_keeps_a_good_balance_good(
    problem: Allocation, limit: float, seed: int
) -> None:
    p = problem
    before = solve(p, good=0.0, rounds=ROUNDS, seed=seed).node
    limit = max(limit, p.distance(before))
    after = empty_removed_nodes(p, before, limit)
    sound(p, after)
    assert p.distance(after) <= limit + 1e-9
    assert p.load[p.removed[after]].sum() <= p.load[p.removed[before]].sum() + 1e-9


@pytest.mark.slow
def test_a_good_balance_is_not_made_better_before_nodes_are_empty() -> None:
    # Two nodes carry 14, three 12, and the one that leaves 6; three units may migrate.
    load = [*[2.0] * 30, 1.0, 1.0, 1.0, 1.0, *[1.0] * 6]
    node = [*(i % 5 for i in range(30)), 0, 0, 1, 1, *[5] * 6]
    p = allocation(load, node, 6, removed=(5,), budget=3)
    assert (solve(p, rounds=ROUNDS).node[-6:] == 5).sum() == 3
    # Overload is urgent.
    hot = allocation([*[5.0] * 8, *load], [*[0] * 8, *node], 6, removed=(5,), budget=3)
    assert (solve(hot, rounds=ROUNDS).node[-6:] == 5).all()


@given(problems())
@examples
def test_draining_is_sound_and_moves_nothing_else(problem: Allocation) -> None:
    node = drain(problem, problem.node)
    sound(problem, node)
    assert problem.removed[problem.node[node != problem.node]].all()
    free = not problem.further.shape[1] and problem.budget == np.inf
    assert not (free and problem.removed[node].any())
