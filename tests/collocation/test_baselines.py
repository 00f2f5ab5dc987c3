"""COLA and PoTC: these implementations have the properties that the papers state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.allocation.problem import Allocation
from benchmarks.subjects.cola import cola
from benchmarks.subjects.potc import potc
from cluster_model.snapshot import Floats, Ints


def _pairs(pairs: int, nodes: int) -> tuple[Allocation, Ints, Ints, Floats]:
    """Pairs that talk, each on two nodes, one load after another the same."""
    units = 2 * pairs
    problem = Allocation(
        load=np.ones(units),
        cost=np.ones(units),
        node=np.arange(units) % nodes,
        weight=np.ones(nodes),
        removed=np.zeros(nodes, np.bool_),
        budget=0,
    )
    first = np.arange(pairs)
    return problem, first, first + pairs, np.full(pairs, 5.0)


def test_cola_brings_together_what_talks_and_balances() -> None:
    problem, source, target, rate = _pairs(24, 4)
    node = cola(problem, source, target, rate, enough=2.0)
    assert np.mean(node[source] == node[target]) >= 0.8
    assert problem.distance(node) <= 2.0


def test_cola_splits_no_further_than_it_has_to() -> None:
    problem, source, target, rate = _pairs(8, 2)
    chain = np.arange(15), np.arange(1, 16), np.ones(15)
    node = cola(problem, *chain, enough=2.0)
    assert np.sum(node[:-1] != node[1:]) == 1
    assert (cola(problem, source, target, rate, enough=100.0) == 0).all()


def test_cola_plans_from_scratch() -> None:
    problem, source, target, rate = _pairs(12, 3)
    elsewhere = replace(problem, node=(problem.node + 1) % 3)
    plans = [cola(p, source, target, rate, enough=1.0) for p in (problem, elsewhere, problem)]
    assert (plans[0] == plans[1]).all()
    assert (plans[0] == plans[2]).all()


def test_cola_minds_capacity_and_removal() -> None:
    problem, source, target, rate = _pairs(30, 3)
    weight, removed = np.array([0.5, 1.0, 1.0]), np.array([False, False, True])
    p = replace(problem, weight=weight, removed=removed)
    node = cola(p, source, target, rate, enough=1.5)
    assert set(node.tolist()) == {0, 1}
    assert p.distance(node) <= 1.5


@pytest.mark.parametrize("load", [[50.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
def test_cola_ends_where_nothing_can_be_even(load: list[float]) -> None:
    p = Allocation(
        load=np.array(load),
        cost=np.ones(3),
        node=np.zeros(3, np.int64),
        weight=np.ones(2),
        removed=np.zeros(2, np.bool_),
        budget=0,
    )
    node = cola(p, np.array([0, 1]), np.array([1, 1]), np.ones(2), enough=0.0)
    # The best there is: the large one alone.
    assert p.distance(node) == pytest.approx(24.0 if load[0] else 0.0)


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 40), st.integers(0, 2**31))
def test_cola_allocates_everything(units: int, nodes: int, edges: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    removed = np.arange(nodes) > rng.integers(nodes)
    p = Allocation(
        load=rng.lognormal(0, 1, units),
        cost=np.ones(units),
        node=rng.integers(nodes, size=units),
        weight=np.ones(nodes),
        removed=removed,
        budget=0,
    )
    source, target = rng.integers(units, size=(2, edges))
    node = cola(p, source, target, rng.random(edges), enough=0.5)
    assert node.shape == (units,)
    assert not removed[node].any()


@given(st.integers(0, 60), st.integers(1, 8), st.integers(0, 2**31))
def test_potc_loses_no_load(keys: int, nodes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    load, merge = rng.lognormal(0, 1, keys), rng.random(keys)
    loads = potc(load, merge, nodes, seed=seed)
    assert loads.shape == (nodes,)
    assert loads.sum() == pytest.approx(load.sum() + merge.sum())
    assert (loads == potc(load, merge, nodes, seed=seed)).all()


def test_potc_splits_a_key_over_two_nodes() -> None:
    loads = potc(np.array([8.0]), np.zeros(1), 5, sources=1)
    assert sorted(loads.tolist()) == pytest.approx([0.0, 0.0, 0.0, 4.0, 4.0])


def test_potc_balances_what_it_chooses_and_not_what_is_merged() -> None:
    def distance(loads: Floats) -> float:
        return float(np.abs(loads - loads.mean()).max())

    load = np.random.default_rng(1).lognormal(0, 0.5, 400)
    chosen, merged = potc(load, np.zeros(400), 10), potc(np.zeros(400), load, 10)
    assert distance(chosen) < distance(merged) / 4
