"""Period after period: what comes together, what stays, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import long
from collocation_cases import ROUNDS, streams

from balancer import Balancer, Budget
from balancer.allocation.problem import Allocation
from balancer.allocation.units import Units
from balancer.collocation.albic import albic
from balancer.collocation.parameters import CollocationParameters
from cluster_model.snapshot import BrokerState, Floats, Ints, Snapshot

MAX_DISTANCE = 10.0


def pairs(load: list[float], rate: list[float], nodes: int, budget: float) -> Units:
    """One-to-one pairs of two operators, both ends with the same load, on different nodes."""
    many, n = len(load), np.arange(len(load))
    problem = Allocation(
        load=np.array([*load, *load]),
        cost=np.ones(2 * many),
        node=np.concatenate([n % nodes, (n + 1) % nodes]),
        weight=np.ones(nodes),
        removed=np.zeros(nodes, np.bool_),
        budget=budget,
    )
    return Units(
        problem=problem,
        operator=np.repeat([0, 1], many),
        source=n,
        target=n + many,
        rate=np.array(rate),
    )


def lived(units: Units, periods: int) -> tuple[Ints, list[int]]:
    """Where all units end, and the migrations of each period, with a load that stays the same."""
    node, migrations = units.problem.node, []
    for period in range(periods):
        now = replace(units, problem=replace(units.problem, node=node))
        after = albic(now, rounds=ROUNDS, seed=period).solution.node
        migrations.append(int((after != node).sum()))
        node = after
    return node, migrations


def together(units: Units, node: Ints) -> list[bool]:
    return [*(node[units.source] == node[units.target]).tolist()]


def test_a_pair_too_heavy_for_any_node_keeps_no_other_apart() -> None:
    # 12 pairs of 12 points and one of 90, which no node has room for; the mean is 58.5.
    units = pairs([45.0] + [6.0] * 12, [100.0] + [10.0] * 12, nodes=4, budget=3)
    node, _ = lived(units, 7)
    assert together(units, node)[1:] == [True] * 12
    assert units.problem.distance(node) <= MAX_DISTANCE


def test_pairs_heavier_than_a_set_may_be_stay_where_they_are_once_together() -> None:
    # Pairs of 28 are cut, since maxPL is 25: what balance need not part stays together.
    units = pairs([14.0] * 12, [10.0] * 12, nodes=6, budget=6)
    node, migrations = lived(units, 12)
    assert sum(migrations[6:]) == 0
    assert sum(together(units, node)) >= 10


def _community(seed: int) -> Units:
    rng = np.random.default_rng(seed)
    many, nodes = 150, 10
    label, operator = rng.integers(0, 15, many), np.arange(many) % 5
    source, target = list[int](), list[int]()
    for unit in np.flatnonzero(operator < 4).tolist():
        down = np.flatnonzero(operator == operator[unit] + 1)
        own = down[label[down] == label[unit]]
        near = rng.random(5) < 0.8 if len(own) else np.zeros(5, np.bool_)
        source += [unit] * 5
        target += np.where(
            near, rng.choice(own if len(own) else down, 5), rng.choice(down, 5)
        ).tolist()
    load: Floats = rng.uniform(0.5, 1.5, many)
    problem = Allocation(
        load=load * 60 * nodes / load.sum(),
        cost=np.ones(many),
        node=rng.integers(0, nodes, many),
        weight=np.ones(nodes),
        removed=np.zeros(nodes, np.bool_),
        budget=10,
    )
    rate = rng.uniform(0.5, 1.5, len(source))
    return Units(
        problem=problem,
        operator=operator,
        source=np.array(source),
        target=np.array(target),
        rate=rate,
    )


def _by_hand(units: Units) -> Ints:
    """Within maxLD, the single migration that brings most together, again and again."""
    p, node = units.problem, units.problem.node.copy()
    for _ in range(int(p.budget)):
        off, gain = p.deviation(node), np.zeros((len(node), len(p.weight)))
        for a, b in ((units.source, units.target), (units.target, units.source)):
            np.add.at(gain, (a, node[b]), units.rate)
        gain -= gain[np.arange(len(node)), node][:, None]
        fits = off + p.load[:, None] <= max(MAX_DISTANCE, float(off.max()))
        fits &= (off[node] - p.load >= -MAX_DISTANCE)[:, None]
        if p.distance(node) > MAX_DISTANCE:
            # from the fullest node, or to the emptiest
            high, low = int(np.argmax(off)), int(np.argmin(off))
            if off[high] >= -off[low]:
                fits = (node == high)[:, None] & (off + p.load[:, None] < off[high])
            else:
                fits = np.arange(len(off)) == low
                fits = fits & (off[node] - p.load > off[low])[:, None] & (node != low)[:, None]
            gain += 1000
        best = int(np.argmax(np.where(fits & (p.node == node)[:, None], gain, 0.0)))
        unit, to = divmod(best, len(off))
        if gain[unit, to] <= 0:
            break
        node[unit] = to
    return node


@pytest.mark.parametrize("seed", [0, *long(1, 2)])
def test_while_pairs_are_apart_the_budget_goes_to_them(seed: int) -> None:
    units = _community(seed)
    greedy = units.problem.node
    for _ in range(12):
        now = replace(units, problem=replace(units.problem, node=greedy))
        greedy = _by_hand(now)
    node, _ = lived(units, 12)
    assert units.problem.distance(node) <= MAX_DISTANCE
    assert units.local(node) >= 0.95 * units.local(greedy)


def test_without_additions_it_is_the_seeds_rule() -> None:
    # The heaviest pair is picked after each reduction of maxPL, until nothing may be together.
    units = pairs([45.0] + [6.0] * 12, [100.0] + [10.0] * 12, nodes=4, budget=3)
    own = CollocationParameters(additions=False)
    found = albic(units, rounds=ROUNDS, parameters=own)
    assert (found.pairs, found.max_group_load) == ((), 0.0)


def test_a_job_without_leaders_has_none_missing_after_a_plan() -> None:
    n = np.arange(12)
    snapshot = streams(
        {"a": [4.0] * 12, "b": [4.0] * 12},
        {"a": [1 + i % 4 for i in n.tolist()], "b": [1 + (i + 1) % 4 for i in n.tolist()]},
        ids=(1, 2, 3, 4),
        traffic=[(i, 12 + i, 5.0 + i) for i in n.tolist()],
    )
    unknown = replace(snapshot, leader=np.full(24, -1))
    planner = Balancer(strategy={"strategy": "albic", "rounds": ROUNDS}, budget=Budget(moves=4))
    plan = planner.propose(unknown)
    assert 0 < len(plan) < 24
    after = planner.propose(plan.final_snapshot())
    assert "EligibleLeaders" not in [u.goal for u in after.unmet]


@pytest.mark.parametrize("restored", [False, True])
def test_key_groups_of_a_dead_node_are_restored_where_the_engine_can(restored: bool) -> None:
    n = np.arange(12)
    alive = streams({"a": [4.0] * 12}, {"a": [1 + i % 4 for i in n.tolist()]}, ids=(1, 2, 3, 4))
    state = np.where(alive.broker_ids == 2, BrokerState.DEAD, BrokerState.ALIVE)
    dead = replace(alive, broker_state=state, creatable=np.full(12, restored))
    plan = Balancer(strategy={"strategy": "albic", "rounds": ROUNDS}).propose(dead)
    left = plan.final_snapshot().replica_broker == 1
    assert left.sum() == (0 if restored else 3)


def busy(seed: int, percent: float) -> Snapshot:
    """Pairs of popular key groups that are anywhere, on ten nodes that are used so much."""
    rng, many, nodes = np.random.default_rng(seed), 60, 10
    popular = np.minimum(rng.pareto(1.5, many) + 0.3, 8.0)
    load = (percent * nodes / (2 * popular.sum()) * popular).tolist()
    where = rng.integers(1, nodes + 1, (2, many))
    return streams(
        {"a": load, "b": load},
        {"a": where[0].tolist(), "b": where[1].tolist()},
        ids=range(1, nodes + 1),
        traffic=[(i, many + i, float(popular[i])) for i in range(many)],
    )


@pytest.mark.parametrize(
    ("seed", "percent", "periods", "least"),
    [
        (0, 92, 9, 0.55),
        *(pytest.param(seed, 85, 8, 0.6, marks=pytest.mark.soak) for seed in range(3)),
    ],
)
def test_a_limit_on_moves_ends_no_plan_within_a_detour(
    seed: int, percent: float, periods: int, least: float
) -> None:
    # Nodes are so full that some steps need a detour, for which the limit has to leave moves.
    job = busy(seed, percent)
    strategy = {"strategy": "albic", "rounds": 500}
    planner = Balancer("stream-jobs", strategy=strategy, budget=Budget(moves=8))
    local = 0.0
    for _ in range(periods):
        plan = planner.propose(job)
        found, ended = plan.allocation, plan.final_snapshot()
        assert found is not None
        assert found.distance_after <= max(found.distance_before, MAX_DISTANCE) + 1e-9
        # Nothing goes away and comes back for nothing.
        assert not plan.actions or (ended.replica_broker != job.replica_broker).any()
        local, job = found.local_after, ended
    assert local > least


def test_default_goals_let_a_job_above_their_limit_be_relieved() -> None:
    # Nodes are used to 85 % on average, and a hard goal of the default profile ends at 70 %.
    strategy = {"strategy": "albic", "rounds": ROUNDS}
    plan = Balancer(strategy=strategy, budget=Budget(moves=8)).propose(busy(1, 85))
    found = plan.allocation
    assert found is not None
    assert found.distance_before > 40
    assert found.distance_after <= MAX_DISTANCE


def test_every_migration_of_a_large_job_joins_a_pair() -> None:
    # 300 pairs are apart, on nodes that are uneven, but within maxLD.
    load = 4.0 * np.random.default_rng(0).lognormal(0.0, 0.15, 300)
    rate = 10.0 + np.arange(300) / 300
    units = pairs(load.tolist(), rate.tolist(), nodes=50, budget=40)
    assert 4.0 < units.problem.distance(units.problem.node) < MAX_DISTANCE
    found = albic(units, rounds=500).solution
    assert found.migrations <= 40
    assert sum(together(units, found.node)) >= 38
