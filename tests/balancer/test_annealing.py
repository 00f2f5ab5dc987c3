"""Tiers whose costs add up are annealed: the terms are the goals, and every plan holds."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest
from balancer_cases import examples, long
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Budget, Operation
from balancer.problem.resolution import resolve
from balancer.search import annealing
from balancer.search.scorer import Scorer
from balancer.verification.checker import check_plan
from benchmarks.harness.machines import Reassignment, Shape, costs, generate, violations
from benchmarks.reassignment import goals_of, snapshot_of
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import MOVE, Batch, Placement
from goals import Cluster, Goal, LoadCost, MoveCost, State
from goals.terms import Excess, Moved

SHAPE = Shape(8, 60, 3, 1, locations=4, neighborhoods=2, balances=1, dependencies=8)


def problem(seed: int = 0) -> Reassignment:
    return generate(SHAPE, seed)


def cost(p: Reassignment, snapshot: Snapshot) -> float:
    assert not any(violations(p, snapshot.replica_broker).values())
    return sum(costs(p, snapshot.replica_broker).values())


def lacking(term: Excess | Moved, placement: Placement) -> float:
    """What a term takes from the scores of all cells, from its definition."""
    s, at, home = placement.snapshot, placement.replica_broker, placement.start[:, 0]
    if isinstance(term, Excess):
        load = np.zeros_like(s.capacity)
        np.add.at(load, at, s.leader_load)
        total = sum(factor * load[:, s.resource(name)] for name, factor in term.factors.items())
        return float(term.rate * np.maximum(total - term.above, 0.0).sum())
    each = term.cost.copy()
    if term.group is not None and term.factors is not None:
        each *= term.factors[term.group[home], term.group[at]]
    return float(each[at != home].sum())


@examples(6)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_what_a_cost_lacks_is_the_sum_of_its_terms(seed: int, draw: int) -> None:
    p = problem(seed)
    cluster = Cluster(Placement(snapshot_of(p)))
    goals = [g.prepared(cluster) for g in goals_of(p)]
    scorer = Scorer(cluster, goals)
    rng = np.random.default_rng(draw)
    moved = np.flatnonzero(rng.random(len(p.start)) < 0.4)
    target = rng.integers(0, SHAPE.machines, len(moved))
    moved, target = (x[target != p.start[moved]] for x in (moved, target))
    scorer.commit(Batch.of(MOVE, moved, np.zeros(len(moved), np.int64), target))
    checked = 0
    for goal, scores in zip(goals, scorer.scores, strict=True):
        if goal.aggregate == "sum":
            terms = [t for t in goal.terms(cluster) or () if isinstance(t, Excess | Moved)]
            assert terms
            total = sum(lacking(term, scorer.placement) for term in terms)
            assert (1 - scores).sum() == pytest.approx(total, rel=1e-9, abs=1e-9), goal.name
            checked += 1
    assert checked == SHAPE.resources + SHAPE.balances + 2


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, *long(3)])
def test_annealing_costs_less_than_rounds_and_its_plans_hold(
    seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    annealed, by_rounds = [], []
    for seed in range(seeds):
        p = problem(seed)
        s, balancer = snapshot_of(p), Balancer(goals_of(p))
        plan = balancer.propose(s)
        report = check_plan(s, plan.document())
        assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]
        if seed == 0:
            assert plan.to_json() == balancer.propose(s).to_json()
        annealed.append(cost(p, plan.final_snapshot()))
        assert annealed[-1] < cost(p, s)
        with monkeypatch.context() as without:
            without.setattr(annealing, "compiles", lambda: False)
            by_rounds.append(cost(p, balancer.propose(s).final_snapshot()))
    assert sum(annealed) < sum(by_rounds)


@pytest.mark.slow
@examples(2)
@given(st.data())
def test_what_may_not_move_stays(data: st.DataObject) -> None:
    p = problem(data.draw(st.integers(0, 100), "seed"))
    s = snapshot_of(p)
    brokers = st.lists(st.integers(0, SHAPE.machines - 1), unique=True, max_size=3)
    excluded, topics = data.draw(brokers, "excluded"), data.draw(st.integers(0, 5), "topics")
    operation = Operation(
        excluded_brokers_for_replicas=tuple(excluded),
        excluded_topics=tuple(f"{name}" for name in s.topics[:topics]),
    )
    plan = Balancer(goals_of(p)).propose(s, operation)
    assert not {a.destination for a in plan.actions} & set(excluded)
    assert not {a.topic for a in plan.actions} & set(s.topics[:topics])
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


@pytest.mark.parametrize(
    "operation",
    [
        Operation(excluded_topics=(".*",)),
        Operation(excluded_brokers_for_replicas=tuple(range(SHAPE.machines))),
        Operation(kind="fix_offline_replicas"),
    ],
    ids=["nothing may move", "nothing may receive", "nothing to repair"],
)
def test_where_nothing_can_move_nothing_does(operation: Operation) -> None:
    p = problem()
    assert len(Balancer(goals_of(p)).propose(snapshot_of(p), operation)) == 0


@pytest.mark.parametrize("budget", [Budget(), Budget(seconds=600.0), Budget(moves=100)], ids=str)
def test_what_a_few_moves_mend_takes_few_moves(budget: Budget) -> None:
    s = synthetic_snapshot(
        brokers=12, partitions=600, racks=3, replication_factor=1, skew=2.0, utilization=0.5
    )
    plan = Balancer([LoadCost(resource="disk", above=0.8)], budget=budget).propose(s)
    assert not plan.unmet
    assert 0 < len(plan) < 20
    assert plan.summary.exhausted is None


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
def test_brokers_without_any_capacity_are_no_overflow() -> None:
    s = synthetic_snapshot(
        brokers=6, partitions=60, racks=3, replication_factor=1, skew=2.0, utilization=0.5
    )
    s = replace(s, capacity=0 * s.capacity)
    plan = Balancer([LoadCost(resource="disk", above=0.5), MoveCost()]).propose(s)
    assert {u.goal for u in plan.unmet} == {"LoadCost[disk]"}
    assert check_plan(s, plan.document()).ok


def test_a_time_that_is_over_leaves_a_plan() -> None:
    p = problem()
    for seconds in (1e-6, 0.05, 0.3):
        plan = Balancer(goals_of(p), budget=Budget(seconds=seconds)).propose(snapshot_of(p))
        assert check_plan(snapshot_of(p), plan.document()).ok


def test_all_is_compiled_before_time_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from balancer.search import compiled

    clock, done = [0.0], set()

    def slow_at_first(name: str, function: Any) -> Any:
        def called(*arguments: Any) -> Any:
            if name not in done:
                done.add(name)
                clock[0] += 2.0
            clock[0] += 0.01
            return function(*arguments)

        return called

    names = ("anneal", "approach", "detour", "shorten", "total_cost")
    for name in names:
        monkeypatch.setattr(compiled, name, slow_at_first(name, getattr(compiled, name)))
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    shares: list[float] = []
    run = annealing._Walk.run

    def watched(walk: Any, *arguments: Any, **named: Any) -> Any:
        shares.append(walk._share())
        return run(walk, *arguments, **named)

    monkeypatch.setattr(annealing._Walk, "run", watched)
    p = problem()
    plan = Balancer(goals_of(p), budget=Budget(seconds=15)).propose(snapshot_of(p))
    assert done == set(names)
    assert plan.summary.replica_moves > 0
    # of the five seconds that are left, nearly all are still to be used
    assert shares[0] < 0.05
    assert clock[0] < 15.5


def test_partitions_without_a_leader_load_their_broker_as_goals_say() -> None:
    p = problem()
    s = snapshot_of(p)
    nobody = replace(s, leader=np.full(s.n_partitions, -1), follower_load=0 * s.leader_load)
    assert moves(served(p, lambda goal: goal, nobody)) == moves(served(p, lambda goal: goal))


def test_a_fraction_of_a_group_is_one_more() -> None:
    p = problem()
    s = snapshot_of(p)
    spread = s.topic_attributes["spread"]
    fractions = np.where(np.asarray(spread) > 1, np.asarray(spread, float) - 0.5, spread)
    changed = replace(s, topic_attributes={**s.topic_attributes, "spread": fractions})
    assert moves(served(p, lambda goal: goal, changed)) == moves(served(p, lambda goal: goal))


class Ceiled(LoadCost):
    """A cost of its own, with the terms of another."""

    def costs(self, state: State) -> Any:
        return np.zeros_like(super().costs(state))


def moves(batch: Batch | None) -> list[tuple[int, int]]:
    """Partition and destination of each step."""
    assert batch is not None
    return list(zip(batch.partition.tolist(), batch.target.tolist(), strict=True))


def served(p: Reassignment, change: Any, snapshot: Snapshot | None = None) -> Batch | None:
    """What annealing the costs of a problem returns, with some goals changed."""
    s = snapshot_of(p) if snapshot is None else snapshot
    resolved = resolve(s, Operation())
    goals: list[Goal] = [change(g) for g in goals_of(p)]
    scorer = Scorer(resolved.cluster, [g.prepared(resolved.cluster) for g in goals])
    return annealing.anneal(scorer, resolved.rules, 1, 0)


def test_only_what_states_its_own_terms_is_annealed() -> None:
    def other(goal: Goal) -> Goal:
        return Ceiled(**goal.model_dump()) if isinstance(goal, LoadCost) else goal

    assert served(problem(), lambda goal: goal)
    assert served(problem(), other) is None


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (8, 64)])
def test_sums_that_are_kept_are_those_of_the_placement(rows: int, columns: int, safe: bool) -> None:
    from balancer.search import compiled

    p = problem()
    s = snapshot_of(p)
    resolved = resolve(s, Operation())
    scorer = Scorer(resolved.cluster, [g.prepared(resolved.cluster) for g in goals_of(p)])
    terms = annealing.stated(scorer, 1)
    assert terms is not None
    mobile, arrays, now = annealing._arrays(scorer, resolved.rules, terms)
    before = compiled.total_cost(arrays, now)
    assert before == pytest.approx(scorer.penalty(scorer.tiers[1]))
    start = now.at.copy()
    desk, state = compiled.new_desk(arrays, s.n_brokers), np.ones(1, np.uint64)
    risen, tried, *_ = compiled.anneal(
        arrays, now, desk, state, 100_000, before / 10, 0.9, 0.5, rows, columns, safe
    )
    assert 100_000 <= tried < 101_000
    for m, (begin, number) in enumerate(zip(desk.begin, desk.number, strict=False)):
        listed = desk.replica[begin : begin + number]
        assert sorted(listed) == np.flatnonzero(now.at == m).tolist()
        assert (now.at[listed] == m).all()
    away = np.flatnonzero(now.at != start)
    assert len(away) > 5
    scorer.commit(Batch.of(MOVE, mobile[away], 0 * away, now.at[away].astype(np.int64)))
    _, _, again = annealing._arrays(scorer, resolved.rules, terms)
    for name, kept, found in zip(now._fields, now, again, strict=True):
        assert kept == pytest.approx(found, rel=1e-9, abs=1e-12), name
    after = scorer.penalty(scorer.tiers[1])
    assert before + risen == pytest.approx(after)
    assert compiled.total_cost(arrays, now) == pytest.approx(after)


def test_every_step_is_safe_and_some_replicas_stop_on_the_way() -> None:
    stops = 0
    for seed in range(4):
        p = problem(seed)
        steps = moves(served(p, lambda goal: goal))
        machine = p.start.copy()
        for process, target in steps:
            assert machine[process] != target
            machine[process] = target
            assert not any(violations(p, machine).values())
        stops += len(steps) - len({process for process, _ in steps})
        assert sum(costs(p, machine).values()) < 0.9 * sum(costs(p, p.start).values())
    assert stops > 0


@pytest.mark.parametrize("load", [(60.0, 50.0, 45.0), (60.0, 60.0, 60.0)], ids=["one", "none"])
def test_a_stop_is_made_where_there_is_room_and_only_if_it_is_needed(
    load: tuple[float, float, float],
) -> None:
    from balancer.search import compiled

    # two replicas that exchange their brokers; the third broker has room for the smaller one
    at = np.arange(3, dtype=np.int32)
    given, now = unrelated(np.array(load), at, capacity=100.0)
    way, start = compiled.new_way(3, 3, 20), compiled.Now(*(x.copy() for x in now))
    target, state = at[[1, 0, 2]].copy(), np.ones(1, np.uint64)
    made = compiled.approach(given, now, target, False, 9, way, 0)
    assert made == 0
    assert compiled.detour(given, now, target, state, 1_000, 0, way, made) == (0, 2)
    made, waiting = compiled.detour(given, now, target, state, 1_000, 10_000, way, made)
    if load[0] == load[2]:
        assert (made, waiting) == (0, 2)
        return
    assert waiting == 0
    # back and forth, which is left out
    for replica, source, broker in ((2, 2, 0), (2, 0, 2)) * 2:
        way.steps[made] = replica, source, broker
        made += 1
    # with no looks, all stops remain
    unchanged, there = way.steps[:made].tolist(), compiled.Now(*(x.copy() for x in start))
    assert compiled.shorten(given, there, way, made, 0) == made
    assert way.steps[:made].tolist() == unchanged
    assert there.at.tolist() == [1, 0, 2]
    made = compiled.shorten(given, start, way, made, 1_000)
    assert way.steps[:made].tolist() == [[1, 1, 2], [0, 0, 1], [1, 2, 0]]
    assert start.at.tolist() == [1, 0, 2]


@pytest.mark.parametrize(("passes", "moves"), [(1, [2]), (2, [2, 1]), (9, [2, 1, 0])])
def test_each_pass_looks_at_all_replicas_once(passes: int, moves: list[int]) -> None:
    from balancer.search import compiled

    # each waits for the next one, and the last for nobody
    at = np.arange(4, dtype=np.int32)
    given, now = unrelated(np.array([60.0, 60.0, 60.0, 0.0]), at, capacity=100.0)
    way, target = compiled.new_way(4, 4, 20), np.array([1, 2, 3, 3], np.int32)
    assert compiled.approach(given, now, target, False, passes, way, 0) == len(moves)
    assert way.steps[: len(moves), 0].tolist() == moves


@pytest.mark.parametrize("looks", [1, 40])
def test_tries_of_a_detour_count_even_where_nothing_can_go(looks: int) -> None:
    from balancer.search import compiled

    at = np.arange(3, dtype=np.int32)
    given, now = unrelated(np.full(3, 60.0), at, capacity=100.0)
    way, target, state = compiled.new_way(3, 3, 20), at[[1, 0, 2]].copy(), np.ones(1, np.uint64)
    drawn = np.ones(1, np.uint64)
    for _ in range(2 * looks):
        compiled._drawn(drawn)
    assert compiled.detour(given, now, target, state, 10**6, looks, way, 0) == (0, 2)
    assert state == drawn


def test_a_stop_ends_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, settled = Event(), list[float]()
    settle = annealing._Walk.settle

    def stopping(walk: Any) -> float:
        found = settle(walk)
        settled.append(found)
        if len(settled) == 3:
            stop.set()
        return found

    monkeypatch.setattr(annealing._Walk, "settle", stopping)
    few = {"strategy": "goals", "annealing_thorough": 100, "least_annealing_steps": 10_000}
    p = problem()
    plan = Balancer(goals_of(p), strategy=few).propose(snapshot_of(p), stop=stop)
    assert plan.summary.exhausted == "stopped"
    assert len(settled) == 3


def unrelated(load: Any, at: Any, capacity: float) -> tuple[Any, Any]:
    """Replicas of one topic each, on brokers with one limit, at no cost."""
    from balancer.search import compiled

    n, m, none = len(load), int(at.max()) + 1, np.zeros(0, np.int64)
    room = np.full((m, 1), capacity)
    np.subtract.at(room[:, 0], at, load)
    given = compiled.Given(
        home=at.copy(),
        receivers=np.arange(m, dtype=np.int32),
        topic=np.zeros(n, np.int32),
        may=np.ones((1, m), np.bool_),
        family=np.arange(n, dtype=np.int32),
        members_begin=np.arange(n + 1),
        members=np.arange(n, dtype=np.int32),
        worth=np.zeros((n, 0)),
        need=load[:, None].copy(),
        former=0,
        fixed=np.zeros(n),
        scaled=np.zeros((n, 0)),
        place=np.zeros((0, m), np.int32),
        between=np.zeros((0, 1, 1)),
        kind=np.zeros((n, 0), np.int32),
        group=np.zeros((0, m), np.int32),
        crowd=none.astype(np.int32),
        first=none,
        width=none,
        kinds=none,
        least=np.zeros(0),
        needs_begin=np.zeros(1, np.int32),
        needs=none.astype(np.int32),
        needed_begin=np.zeros(1, np.int32),
        needed=none.astype(np.int32),
    )
    now = compiled.Now(
        at=at.copy(),
        excess=np.zeros((m, 0)),
        room=room,
        cost=np.zeros(m),
        count=none.astype(np.int32),
        reached=none.astype(np.int32),
    )
    return given, now


def test_a_cost_that_falls_as_load_rises_is_not_annealed(monkeypatch: pytest.MonkeyPatch) -> None:
    s = snapshot_of(problem())
    gain = Excess({s.resources[0]: 1.0}, np.zeros(s.n_brokers), -1.0)
    monkeypatch.setattr(LoadCost, "terms", lambda goal, cluster: (gain,))
    assert served(problem(), lambda goal: goal) is None


def test_terms_that_are_not_the_score_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadCost, "terms", _more_is_better)
    p = problem()
    s = snapshot_of(p)
    resolved = resolve(s, Operation())
    scorer = Scorer(resolved.cluster, [g.prepared(resolved.cluster) for g in goals_of(p)])
    before = [x.copy() for x in scorer.scores]
    assert annealing.anneal(scorer, resolved.rules, 1, 0) is None
    assert all((x == y).all() for x, y in zip(before, scorer.scores, strict=True))


def _more_is_better(goal: LoadCost, cluster: Cluster) -> tuple[Excess, ...]:
    """Terms that fall as the load of some brokers rises."""
    n = cluster.snapshot.n_brokers
    above = np.where(np.arange(n) < n // 2, -1e9, np.inf)
    return (Excess({goal.resource: -1.0}, above, 1.0),)


def test_replicated_partitions_are_served_by_rounds() -> None:
    s = snapshot_of(problem())
    both = np.stack([s.replica_broker, (s.replica_broker + 1) % s.n_brokers], 1)
    offset = np.arange(s.n_partitions + 1) * 2
    doubled = replace(s, replica_offset=offset, replica_broker=both.ravel())
    resolved = resolve(doubled, Operation())
    goals = [g.prepared(resolved.cluster) for g in (LoadCost(resource=s.resources[0], above=0.5),)]
    scorer = Scorer(resolved.cluster, goals)
    assert annealing.stated(scorer, 0) is None
