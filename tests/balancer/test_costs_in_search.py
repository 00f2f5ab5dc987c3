"""Goals that read the start, or add up: exact for every kind of action, and in plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, examples, long
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Operation
from balancer.problem.resolution import resolve
from balancer.search.candidates import Candidates
from balancer.search.scorer import Scorer
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from goals import (
    BalanceCost,
    Cluster,
    Goal,
    LoadCost,
    MoveCost,
    Price,
    RackFailureCapacity,
    ReplicaDistribution,
    TransientCapacity,
    UsageDistribution,
)

GOALS: list[Goal] = [
    RackFailureCapacity(resource="disk", limit=0.6),
    TransientCapacity(resource="disk", limit=0.4),
    TransientCapacity(resource="cpu", limit=0.3),
    LoadCost(resource="disk", above=0.2),
    LoadCost(resource="cpu", above="safe"),
    BalanceCost(resource="cpu", other="network_in", ratio=1e6),
    Price(attribute="price"),
    MoveCost(),
    MoveCost(cost="replica", by="broker attribute zone", factors={"a": {"b": 3.0}}),
    MoveCost(cost="topic attribute size"),
]


def attributed(seed: int, **changes: Any) -> Snapshot:
    size = {"brokers": 7, "partitions": 60, "topics": 5, "racks": 7, "replication_factor": 3}
    s = synthetic_snapshot(**{**size, "utilization": 0.4, "seed": seed, **changes})
    n, cpu = s.n_brokers, s.capacity[:, s.resource("cpu")]
    return replace(
        s,
        broker_attributes={
            "price": [1.0 + b % 3 for b in range(n)],
            "zone": [("a", "b", None)[b % 3] for b in range(n)],
            "safe": (cpu * np.linspace(0.1, 0.5, n)).tolist(),
        },
        topic_attributes={"size": [1.0 + t for t in range(len(s.topics))]},
    )


def random_batch(placement: Placement, rng: np.random.Generator, n: int) -> Batch:
    """Legal actions of all kinds on distinct partitions; every third move goes home if it can."""
    s, rows = placement.snapshot, []
    for p in rng.permutation(s.n_partitions)[:n].tolist():
        held = placement.brokers[p]
        slot = int(rng.choice(np.flatnonzero(held >= 0)))
        kind, disk = int(rng.choice([MOVE, MOVE, LEAD, *([MOVE_DISK] if s.n_disks else [])])), -1
        target = int(held[slot])
        if kind == MOVE:
            free = np.setdiff1d(np.arange(s.n_brokers), held)
            home = np.intersect1d(free, placement.start[p])
            target = int(rng.choice(home if len(home) and rng.random() < 0.4 else free))
        if kind == LEAD and slot == placement.leader[p]:
            continue
        if kind != LEAD and s.n_disks:
            disk = int(rng.choice(np.flatnonzero(s.disk_broker == target)))
        rows.append((kind, p, slot, target, disk))
    kinds, *columns = np.array(rows, np.int64).reshape(-1, 5).T
    return Batch(kinds.astype(np.int8), *columns)


def swaps(placement: Placement, rng: np.random.Generator) -> tuple[Batch, Batch]:
    """Moves and, for each, one of another partition that goes the opposite way."""
    moves = random_batch(placement, rng, 25)
    moves = moves[moves.kind == MOVE]
    source, rows, partner = placement.source(moves), [], []
    taken = set(moves.partition.tolist())
    for i in range(len(moves)):
        for q in rng.permutation(placement.snapshot.n_partitions).tolist():
            held = placement.brokers[q].tolist()
            if q not in taken and int(moves.target[i]) in held and int(source[i]) not in held:
                rows.append(i)
                disk = int(placement.source_disk(moves[i : i + 1])[0])
                partner.append((q, held.index(int(moves.target[i])), int(source[i]), disk))
                taken.add(q)
                break
    return moves[np.array(rows, np.int64)], Batch.of(
        MOVE, *np.array(partner, np.int64).reshape(-1, 4).T
    )


def fresh(scorer: Scorer) -> list[np.ndarray]:
    """The scores of all goals from sums that are added up again."""
    placement = scorer.placement.copy()
    placement.invalidate_sums()
    return Scorer(Cluster(placement), scorer.goals).scores


def found_and_true(
    scorer: Scorer, transition: Transition, units: list[tuple[Batch, Batch | None]], sequence: bool
) -> None:
    """Compare the difference of each unit with what carrying it out gives."""
    diffs = [scorer.diff(i, transition)[0] for i in range(len(scorer.goals))]
    mark = scorer.mark()
    for row, (batch, partner) in enumerate(units):
        before = fresh(scorer)
        scorer.commit(batch, partner)
        after = fresh(scorer)
        for i, goal in enumerate(scorer.goals):
            np.testing.assert_allclose(scorer.scores[i], after[i], atol=1e-9)
            if goal.aggregate == "sum" and not (sequence and goal.scope.of_partitions):
                expected = (after[i] - before[i]).sum()
                assert diffs[i][row] == pytest.approx(expected, abs=1e-9), goal.name
        if not sequence:
            scorer.restore(mark)


@examples(2)
@given(st.integers(0, 10**6), st.booleans())
def test_a_difference_is_what_carrying_it_out_gives(seed: int, disks: bool) -> None:
    rng = np.random.default_rng(seed)
    s = attributed(seed % 50, disks_per_broker=2 * disks)
    cluster = Cluster(Placement(s))
    scorer = Scorer(cluster, [goal.prepared(cluster) for goal in GOALS])
    for _ in range(2):
        # some have left by then, and may return
        scorer.commit(random_batch(scorer.placement, rng, 20))
    batch = random_batch(scorer.placement, rng, 24)
    alone: list[tuple[Batch, Batch | None]] = [(batch[i : i + 1], None) for i in range(len(batch))]
    found_and_true(scorer, Transition(cluster, batch), alone, sequence=False)
    unit = np.arange(len(batch)) // 3
    groups: list[tuple[Batch, Batch | None]] = [
        (batch[unit == k], None) for k in range(int(unit[-1]) + 1)
    ]
    found_and_true(scorer, Transition(cluster, batch, unit=unit), groups, sequence=False)
    one, two = swaps(scorer.placement, rng)
    pairs: list[tuple[Batch, Batch | None]] = [
        (one[i : i + 1], two[i : i + 1]) for i in range(len(one))
    ]
    found_and_true(scorer, Transition(cluster, one, two), pairs, sequence=False)
    mark = scorer.mark()
    for transition, units in (
        (SequentialTransition(cluster, batch), alone),
        (SequentialTransition(cluster, batch, unit=unit), groups),
        (SequentialTransition(cluster, one, two), pairs),
    ):
        found_and_true(scorer, transition, units, sequence=True)
        scorer.restore(mark)


@examples(6)
@given(st.integers(0, 10**6))
def test_transient_uses_are_exact_for_sequences_and_departures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = Cluster(Placement(attributed(seed % 50)))
    goals = [goal.prepared(cluster) for goal in GOALS[1:3]]
    scorer = Scorer(cluster, goals)
    scorer.commit(random_batch(scorer.placement, rng, 30))
    batch = random_batch(scorer.placement, rng, 20)
    series = SequentialTransition(cluster, batch)
    found = [goal.score(series.after_state(goal.scope)) for goal in goals]
    alone = Transition(cluster, batch)
    departed = alone.departed_state(goals[0].scope)
    before = scorer.placement.recompute("broker", "former_load.disk")
    for row in np.flatnonzero(batch.kind == MOVE).tolist():
        p, source = batch.partition[row], scorer.placement.source(batch)[row]
        stays = source in scorer.placement.start[p]
        s = cluster.snapshot
        led = scorer.placement.start[p, max(int(s.leader[p]), 0)] == source
        load = (s.leader_load if led else s.follower_load)[p, s.resource("disk")]
        expected = before[source] + (load if stays else 0.0)
        assert departed.former_load("disk")[row] == pytest.approx(expected, rel=1e-9)
    cells = series.cells(goals[0].scope)
    for row in range(len(batch)):
        scorer.commit(batch[row : row + 1])
        for i, score in enumerate(fresh(scorer)):
            assert found[i][:, row] == pytest.approx(score[cells[:, row]], abs=1e-9)


ALONE = [goal for goal in GOALS if goal.aggregate == "sum" and not isinstance(goal, MoveCost)]


@pytest.mark.parametrize("hard", [False, *long(True)])
@pytest.mark.parametrize("goal", ALONE, ids=lambda goal: goal.name)
def test_a_plan_lowers_a_cost_and_is_confirmed(goal: Goal, hard: bool) -> None:
    s = attributed(3, heterogeneity=0.5, replication_factor=2)
    plan = Balancer([goal.model_copy(update={"hard": hard})]).propose(s)
    (result,) = (r for r in plan.goal_results if r.goal == goal.name)
    assert result.contentment_after > result.contentment_before
    # what the steps state adds up to what the plan states
    steps = plan.document().actions
    gained = sum(a.helped.get(goal.name, 0.0) - a.hurt.get(goal.name, 0.0) for a in steps)
    mean = gained / s.n_brokers
    assert mean == pytest.approx(result.contentment_after - result.contentment_before, abs=1e-6)
    assert check_plan(s, plan.document()).ok


@pytest.mark.parametrize(
    "operation",
    [
        Operation(),
        Operation(kind="remove_brokers", brokers=(2,)),
        Operation(kind="change_replication_factor", replication_factor={".*": 2}),
        Operation(kind="change_replication_factor", replication_factor={".*": 4}),
    ],
    ids=lambda o: f"{o.kind} {o.replication_factor or ''}",
)
def test_plans_with_every_goal_are_confirmed(operation: Operation) -> None:
    s = attributed(4, heterogeneity=0.4, dead_brokers=1)
    goals = [*GOALS, UsageDistribution(resource="disk"), ReplicaDistribution()]
    plan = Balancer(goals, strategy=QUICK).propose(s, operation)
    assert check_plan(s, plan.document()).ok


def test_what_moved_is_tried_back_home() -> None:
    rng = np.random.default_rng(0)
    s = attributed(1, brokers=40)
    cluster = Cluster(Placement(s))
    scorer = Scorer(cluster, [MoveCost().prepared(cluster)])
    scorer.commit(random_batch(scorer.placement, rng, 30))
    rules = resolve(s, Operation()).rules
    drawn = Candidates(scorer, rules, rng).draw(scorer.tiers[0], np.arange(s.n_brokers), 4000)
    gain = scorer.diff(0, Transition(cluster, drawn))[0]
    placement, home = scorer.placement, set[int]()
    for row in np.flatnonzero(gain > 0).tolist():
        assert drawn.target[row] in placement.start[drawn.partition[row]]
        home.add(int(drawn.partition[row]))
    moved = np.flatnonzero(scorer.scores[0] < 1)
    assert len(moved)
    assert home == set(moved.tolist())


@pytest.mark.parametrize("hard", [False, True])
def test_a_plan_keeps_room_for_the_failure_of_a_rack(hard: bool) -> None:
    s = attributed(5, racks=3, brokers=9, replication_factor=2, partitions=200)
    goal = RackFailureCapacity(resource="disk", limit=0.8, hard=hard)
    plan = Balancer([goal]).propose(s)
    (result,) = (r for r in plan.goal_results if r.goal == goal.name)
    assert (result.met_before, result.met_after) == (False, True)
    assert check_plan(s, plan.document()).ok


def test_a_transient_limit_is_kept_at_every_step() -> None:
    s = attributed(2, replication_factor=2, utilization=0.5, brokers=8)
    r = s.resource("disk")
    most = 1.01 * float((s.broker_load()[:, r] / s.capacity[:, r]).max())
    limit = TransientCapacity(resource="disk", limit=most)
    spread = [UsageDistribution(resource=x, threshold=1.02, tier=1) for x in s.resources]
    free, kept = (
        Balancer(goals, strategy=QUICK).propose(s) for goals in (spread, [limit, *spread])
    )
    capacity = s.capacity[:, r]

    def most_used(plan: Any) -> float:
        start, worst = Placement(s).start, 0.0
        index = {b: i for i, b in enumerate(s.broker_ids.tolist())}
        number = {
            (s.topics[t], int(n)): p
            for p, (t, n) in enumerate(zip(s.partition_topic, s.partition_number, strict=True))
        }
        use = s.broker_load()[:, r]
        for a in plan.document().actions:
            p = number[a.topic, a.partition]
            if a.kind == "move" and index[a.destination] not in start[p]:
                # what leaves is given back only when the plan is done
                use[index[a.destination]] += s.leader_load[p, r]
            worst = max(worst, float((use / capacity).max()))
        return worst

    assert most_used(free) > most
    assert most_used(kept) <= most * (1 + 1e-9)
    (result,) = (g for g in kept.goal_results if g.goal == limit.name)
    assert result.met_before
    assert result.met_after
    assert check_plan(s, kept.document()).ok


def test_a_dearer_move_is_made_less_often() -> None:
    s = attributed(6, replication_factor=1, utilization=0.5, partitions=60)
    scale = 1e16
    moved = []
    for weight in (1e-6, 0.5, 1e3):
        load = LoadCost(resource="disk", above=0.45, scale=scale, tier=0)
        move = MoveCost(scale=scale, weight=weight, tier=0)
        plan = Balancer([load, move]).propose(s)
        assert check_plan(s, plan.document()).ok
        moved.append(sum(a.cost for a in plan.document().actions))
        of_goal = {r.goal: r for r in plan.goal_results}
        # the cost that the goal measures is the cost that the plan states
        measured = scale * s.n_partitions * (1 - of_goal[move.name].contentment_after)
        assert measured == pytest.approx(moved[-1], rel=1e-3, abs=scale * 1e-9)
    assert moved[0] > moved[1] > moved[2] == 0
