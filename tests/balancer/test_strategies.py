from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, examples, long
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st

import balancer
from balancer import Albic, Balancer, Budget, Milp, Operation, Plan, load_plan
from balancer.planning.exports import reassignment_json
from balancer.report import html_report
from balancer.search.scorer import Scorer
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from balancer.strategies import StrategyError
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.errors import InputError
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from goals import Cluster, CollocationGoal, Goal, ResourceCapacity, UsageDistribution, load_goals
from goals.testing import example_snapshots

STRATEGIES: tuple[Any, ...] = (QUICK, Milp(rounds=20), Albic(rounds=20))


def stream(seed: int = 0, brokers: int = 6, operators: int = 3, keys: int = 12) -> Snapshot:
    """A job whose key groups talk to the one of the same number, and a little to all others."""
    rng = np.random.default_rng(seed)
    s = synthetic_snapshot(
        brokers=brokers,
        partitions=operators * keys,
        topics=operators,
        replication_factor=1,
        racks=2,
        utilization=0.3,
        load_sigma=0.3,
        seed=seed,
    )
    ends = [
        (one, two, 5.0 if s.partition_number[one] == s.partition_number[two] else 0.01)
        for one in range(s.n_partitions)
        for two in range(s.n_partitions)
        if s.partition_topic[two] == s.partition_topic[one] + 1
    ]
    source, target, rate = np.array(ends).T
    return replace(
        s,
        traffic_from=source.astype(int),
        traffic_to=target.astype(int),
        traffic_rate=rate * rng.uniform(1, 2, len(rate)),
    )


def together(s: Snapshot) -> Snapshot:
    """The same with key groups of the same number on one of the first two brokers."""
    return replace(s, replica_broker=s.partition_number % 2)


def requested(hard: bool = False) -> list[Goal]:
    of = ("cpu", "network_in", "network_out", "disk")
    return [
        *(ResourceCapacity(resource=r, threshold=1.0, tier=0) for r in of),
        CollocationGoal(hard=hard, tier=1),
        UsageDistribution(resource="cpu", tier=2),
    ]


@cache
def planned(number: int, moves: int | None = None) -> Plan:
    """The plan of a strategy for the job."""
    return Balancer(requested(), budget=Budget(moves=moves), strategy=STRATEGIES[number]).propose(
        stream()
    )


@cache
def kept(hard: bool = False) -> Plan:
    """The plan for the job whose groups are together."""
    return Balancer(requested(hard), strategy=QUICK).propose(together(stream()))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize(
    ("operation", "moves"),
    [
        (None, None),
        (Operation(kind="remove_brokers", brokers=(2,)), None),
        (Operation(excluded_topics=("topic-0",)), 7),
    ],
)
def test_every_strategy_makes_the_same_kind_of_plan(
    strategy: Any, operation: Operation | None, moves: int | None
) -> None:
    s = stream(keys=6)
    plan = Balancer(requested(), budget=Budget(moves=moves), strategy=strategy).propose(
        s, operation
    )
    document = plan.document()
    report = check_plan(s, document)
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]
    assert moves is None or document.summary.replica_moves <= moves
    assert (document.allocation is None) == (strategy is QUICK)
    if document.allocation is not None:
        assert document.allocation.strategy == strategy.name
    assert [g.goal for g in document.goal_results][2:] == [g.name for g in requested()]
    assert all(a.helped or a.hurt for a in document.actions[:1])
    if moves is not None:
        assert document.summary.exhausted == "budget"
        limit = ("the limit on moves was reached", "limited by moves")
        assert all(any(x in u.reason for x in limit) for u in document.unmet if not u.proven)


@pytest.mark.parametrize("number", [1, 2])
def test_the_load_distance_is_reported_with_its_bound(number: int) -> None:
    result = planned(number, moves=4).allocation
    assert result is not None
    assert result.strategy == STRATEGIES[number].name
    assert result.distance_bound <= result.distance_after < result.distance_before


def test_albic_brings_together_what_milp_leaves_apart() -> None:
    milp, strategy = planned(1).allocation, Albic(rounds=20, pairs=12)
    albic = Balancer(requested(), strategy=strategy).propose(stream()).allocation
    assert milp is not None
    assert albic is not None
    assert albic.local_after > milp.local_after


def test_bytes_of_state_are_what_a_migration_costs() -> None:
    s = stream(keys=4)
    size = np.random.default_rng(1).uniform(1, 9, s.n_partitions)
    s = replace(
        s,
        resources=("cpu",),
        capacity=s.capacity[:, :1],
        leader_load=s.leader_load[:, :1],
        follower_load=s.follower_load[:, :1],
        state_size=size,
    )
    goals = [UsageDistribution(resource="cpu")]
    for strategy in STRATEGIES:
        plan = Balancer(goals, budget=Budget(bytes=25), strategy=strategy).propose(s)
        moved = {(a.topic, a.partition) for a in plan.actions}
        names = [
            (s.topics[t], n) for t, n in zip(s.partition_topic, s.partition_number, strict=True)
        ]
        paid = sum(size[p] for p, name in enumerate(names) if name in moved)
        assert plan.summary.cost == pytest.approx(paid)
        assert 0 < paid <= 25
        assert check_plan(s, plan.document()).ok


@pytest.mark.slow
def test_without_communication_albic_is_the_milp() -> None:
    s = stream(keys=6)
    none = np.empty(0, np.int64)
    s = replace(s, traffic_from=none, traffic_to=none, traffic_rate=np.empty(0))
    goals = [UsageDistribution(resource="cpu")]
    milp, albic = (
        Balancer(goals, budget=Budget(moves=9), strategy=strategy).propose(s)
        for strategy in STRATEGIES[1:]
    )
    assert milp.actions == albic.actions


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_equal_seeds_give_equal_plans(strategy: Any) -> None:
    s, op = stream(3, operators=2, keys=4), Operation(kind="remove_brokers", brokers=(1,))
    first, second = (
        Balancer(requested(), seed=5, strategy=strategy).propose(s, op).to_json() for _ in range(2)
    )
    assert first == second


def test_a_program_keeps_limits_on_moves_and_cost_and_reports_before_and_after_it() -> None:
    s, seen = stream(keys=4), list[tuple[str, int]]()
    free = Balancer(requested(), strategy=STRATEGIES[1]).propose(
        s, progress=lambda phase, met, of, actions: seen.append((phase, actions))
    )
    assert seen[0] == ("program", 0)
    assert ("program", free.summary.replica_moves) in seen
    half, tenth = free.summary.replica_moves // 2, free.summary.cost / 10
    for moves, cost in ((half, free.summary.cost), (free.summary.replica_moves, tenth)):
        plan = Balancer(
            requested(), budget=Budget(moves=moves, bytes=cost), strategy=STRATEGIES[1]
        ).propose(s)
        assert 0 < plan.summary.replica_moves <= moves
        assert plan.summary.cost <= cost * (1 + 1e-9)


def test_what_cannot_be_is_one_sentence() -> None:
    s = stream()
    with pytest.raises(StrategyError, match="'luck' found, one of albic, goals, milp expected"):
        Balancer(strategy="luck")
    several = synthetic_snapshot(brokers=6, partitions=20, racks=3)
    with pytest.raises(InputError, match="3 replicas found, 1 expected"):
        Balancer(strategy="milp").propose(several)
    with pytest.raises(InputError, match="operation demote_brokers"):
        Balancer(requested(), strategy="albic").propose(
            s, Operation(kind="demote_brokers", brokers=(1,))
        )


def test_goals_alone_need_none_of_the_packages() -> None:
    code = (
        "import sys\n"
        "for name in ('networkx', 'pymetis', 'highspy'): sys.modules[name] = None\n"
        "from balancer import Balancer\n"
        "from cluster_model import synthetic_snapshot\n"
        "s = synthetic_snapshot(brokers=3, partitions=6, racks=2, replication_factor=1)\n"
        "assert Balancer().propose(s)\n"
        "from balancer.strategies import STRATEGIES, load_strategy\n"
        "assert STRATEGIES.names() == ['albic', 'goals', 'milp']\n"
        "assert 'balancer.collocation' not in sys.modules\n"
        "assert load_strategy('albic').name == 'albic'\n"
        "try: Balancer(strategy='albic').propose(s)\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("strategy albic: the package ")
    assert "counterpoise[collocation]" in done.stdout


# --- groups


@pytest.mark.parametrize("hard", [False, True])
def test_groups_move_as_a_whole(hard: bool) -> None:
    plan = kept(hard)
    before_after = {g.goal: (g.contentment_before, g.contentment_after) for g in plan.goal_results}
    assert before_after["CollocationGoal"] == (1, 1)
    assert before_after["UsageDistribution[cpu]"][1] > before_after["UsageDistribution[cpu]"][0]
    assert plan.summary.group_moves > 3
    report = check_plan(plan.snapshot, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]
    groups: dict[int, list[Any]] = {}
    for step, a in enumerate(plan.actions):
        if a.group is not None:
            groups.setdefault(a.group, []).append((step, a))
    assert sorted(groups) == list(range(plan.summary.group_moves))
    for members in groups.values():
        steps = [step for step, _ in members]
        assert len(members) > 1
        assert steps == list(range(steps[0], steps[0] + len(steps)))
        assert len({(a.source, a.destination) for _, a in members}) == 1
        assert len({json.dumps([a.helped, a.hurt]) for _, a in members}) == 1
        assert not any("CollocationGoal" in a.hurt for _, a in members)
    moved = {
        (p["topic"], p["partition"]) for p in json.loads(reassignment_json(plan))["partitions"]
    }
    assert moved == {(a.topic, a.partition) for a in plan.actions}


def test_a_hard_goal_keeps_together_what_balance_alone_would_part() -> None:
    s = together(stream())
    alone = Balancer([UsageDistribution(resource="cpu")], strategy=QUICK).propose(s)
    assert alone.summary.group_moves == 0
    assert all(a.group is None for a in alone.actions)
    traffic = Placement(s).traffic(CollocationGoal().factor)
    ends = alone.placement.location
    assert (ends[traffic.one] != ends[traffic.two]).any()
    ends = kept(hard=True).placement.location
    assert (ends[traffic.one] == ends[traffic.two]).all()


def test_what_is_apart_comes_together() -> None:
    plan = Balancer(requested(), strategy=QUICK).propose(stream(4, keys=6))
    (collocation,) = (g for g in plan.goal_results if g.goal == "CollocationGoal")
    assert not collocation.met_before
    assert collocation.met_after


@pytest.mark.slow
@pytest.mark.parametrize("moves", [1, 4, *long(5)])
def test_a_budget_cuts_no_group_in_two(moves: int) -> None:
    s = together(stream())
    plan = Balancer(requested(), budget=Budget(moves=moves), strategy=QUICK).propose(s)
    assert len(plan) <= moves
    traffic = Placement(s).traffic(CollocationGoal().factor)
    ends = plan.placement.location
    assert (ends[traffic.one] == ends[traffic.two]).all()
    assert check_plan(s, plan.document()).ok


def test_the_checker_finds_a_group_that_is_none() -> None:
    s, document = kept().snapshot, kept().document().model_copy(update={"digest": None})
    last = next(i for i, a in enumerate(document.actions) if a.group == 1) - 1
    swapped = [*document.actions]
    swapped[last], swapped[last + 1] = swapped[last + 1], swapped[last]
    found = check_plan(s, document.model_copy(update={"actions": tuple(swapped)}))
    assert {f.kind for f in found.violations} == {"group"}
    fewer = [a.model_copy(update={"group": None}) for a in document.actions]
    found = check_plan(s, document.model_copy(update={"actions": tuple(fewer)}))
    assert {f.kind for f in found.mismatches} == {"group_moves", "reasons", "relief"}


def test_the_checker_works_out_the_allocation() -> None:
    s, document = stream(), planned(1).document().model_copy(update={"digest": None})
    assert document.allocation is not None
    for name in ("distance_before", "distance_after", "local_before", "local_after"):
        wrong = document.allocation.model_copy(
            update={name: getattr(document.allocation, name) + 1}
        )
        report = check_plan(s, document.model_copy(update={"allocation": wrong}))
        assert report.mismatches, name
    wrong = document.allocation.model_copy(update={"resource": "luck"})
    report = check_plan(s, document.model_copy(update={"allocation": wrong}))
    assert {f.kind for f in report.mismatches} == {"resource"}
    wrong = document.allocation.model_copy(update={"resource": "disk"})
    assert document.allocation.resource != "disk"
    report = check_plan(s, document.model_copy(update={"allocation": wrong}))
    assert {f.kind for f in report.mismatches} == {"distance_before", "distance_after"}


def test_the_report_tells_load_distance_and_what_is_kept_local() -> None:
    plan = planned(2)
    a = plan.allocation
    assert a is not None
    page = html_report(plan)
    assert f"points of {a.resource}; {a.distance_before:.3g} before" in page
    assert f"<dt>Kept local</dt><dd><b>{100 * a.local_after:.0f} %</b>" in page
    groups = f"<dt>Groups moved as one</dt><dd><b>{kept().summary.group_moves}</b>"
    assert groups in html_report(kept())


def test_plans_are_read_as_they_are_written(tmp_path: Path) -> None:
    for plan in (kept(), planned(1), planned(2)):
        plan.save(tmp_path / "plan.json")
        assert load_plan(tmp_path / "plan.json") == plan.document()


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path) -> None:
    s = stream()
    s_file, goals, plan = (str(tmp_path / x) for x in ("s.npz", "goals.yaml", "plan.json"))
    from cluster_model import save_snapshot

    save_snapshot(s, s_file)
    (tmp_path / "goals.yaml").write_text("goals: [CollocationGoal]\n")
    words = ["propose", s_file, "--goals", goals, "-o", plan, "--strategy"]
    done = invoke([*words, "albic", "--max-moves", "9"])
    assert done.exit_code == 1, done.output
    assert "albic: load distance of network_in 30" in done.output
    assert invoke(["verify", s_file, plan]).exit_code == 0
    done = invoke([*words, "goals"])
    assert done.exit_code == 0, done.output
    assert invoke(["explain", plan]).exit_code == 0
    done = invoke([*words, "luck"])
    assert done.exit_code == 2
    assert "one of albic, goals, milp expected" in done.output


# --- what groups are scored by


def random_units(placement: Placement, rng: np.random.Generator, series: bool) -> tuple[Any, ...]:
    """Moves of several leaders from one broker to another, in units; each partition once."""
    s = placement.snapshot
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    taken: set[int] = set()
    for number in range(8):
        source, target = rng.choice(s.n_brokers, 2, replace=False)
        free = [
            p
            for p in np.flatnonzero(placement.location == source).tolist()
            if target not in placement.brokers[p] and not (series and p in taken)
        ]
        chosen = rng.permutation(free)[: int(rng.integers(1, 5))].astype(int).tolist()
        taken.update(chosen)
        rows += [(p, placement.leader[p], target) for p in chosen]
        numbers += [number] * len(chosen)
    _, unit = np.unique(numbers, return_inverse=True)
    p, slot, target = np.array(rows).T
    disk = np.full(len(p), -1)
    if s.n_disks:
        disk = np.searchsorted(s.disk_broker, target)
    return Batch.of(MOVE, p, slot, target, disk), unit


def all_goals() -> list[Goal]:
    names = [
        "RackAwareness",
        "TopicRackDistribution",
        "ReplicaDistribution",
        "TopicReplicaDistribution",
        "MinTopicLeaders",
        "DiskUsageDistribution",
        "CollocationGoal",
        "OnlineReplicas",
    ]
    of = [{"goal": g, "resource": "cpu"} for g in ("HostCapacity", "UsageDistribution")]
    return load_goals({"goals": [*names, *of]})


@pytest.mark.slow
@examples(4)
@given(st.integers(0, 10**6))
def test_groups_are_scored_as_what_they_come_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    snapshot = example_snapshots(seed % 5)[seed % 4]
    if not len(snapshot.traffic_rate):
        ends = rng.integers(0, snapshot.n_partitions, (2, 90))
        snapshot = replace(
            snapshot, traffic_from=ends[0], traffic_to=ends[1], traffic_rate=rng.uniform(1, 9, 90)
        )
    from goals import applicable

    cluster = Cluster(Placement(snapshot))
    goals = [g.prepared(cluster) for g in applicable(all_goals(), snapshot, strict=False)]
    scorer = Scorer(cluster, goals)
    for kind in (Transition, SequentialTransition):
        batch, unit = random_units(cluster.placement, rng, series=kind is SequentialTransition)
        transition = kind(cluster, batch, unit=unit)
        found = [scorer.diff(i, transition) for i in range(len(goals))]
        walked = Scorer(Cluster(cluster.placement.copy()), goals)
        for row in range(len(transition)):
            members = batch[unit == row]
            before = [scores.copy() for scores in walked.scores]
            mark = walked.mark()
            walked.commit(members)
            walked.placement.check()
            for i, goal in enumerate(goals):
                if kind is SequentialTransition and goal.scope.of_partitions:
                    continue
                after = Scorer(walked.cluster, goals).scores[i]
                np.testing.assert_allclose(walked.scores[i], after, atol=1e-9)
                # a goal is asked about the cells that are touched, whether they change or not
                cells = touched(goal, walked.placement, mark[0], members)
                want = after[cells].min() - before[i][cells].min()
                assert found[i][0][row] == pytest.approx(want, abs=1e-9), goal.name
                assert found[i][1][row] == (after[cells] < before[i][cells] - 1e-12).any()
            if kind is Transition:
                walked.restore(mark)


def touched(goal: Goal, now: Placement, then: Placement, batch: Batch) -> np.ndarray:
    if goal.scope.of_partitions:
        return batch.partition
    ends = [(then.source(batch), then.source_disk(batch)), (batch.target, batch.disk)]
    cells = np.concatenate([now.keys(goal.scope, batch.partition, b, d) for b, d in ends])
    return np.unique(cells[cells >= 0])


@examples(4)
@given(st.integers(0, 10**6))
def test_swaps_know_of_what_is_exchanged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = example_snapshots(seed % 7)[0]
    cluster = Cluster(Placement(s))
    goals = [CollocationGoal(factor=float(rng.choice([0.0, 1.5]))).prepared(cluster)]
    scorer, placement = Scorer(cluster, goals), cluster.placement
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for p, q in rng.integers(0, s.n_partitions, (200, 2)).tolist():
        a, b = (placement.location[x] for x in (p, q))
        if a != b and not {p, q} & taken:
            if a in placement.brokers[q] or b in placement.brokers[p]:
                continue
            taken |= {p, q}
            pairs.append((p, q))
    one, two = np.array(pairs).T
    where, slot = placement.location, placement.leader
    batch = Batch.of(MOVE, one, slot[one], where[two])
    partner = Batch.of(MOVE, two, slot[two], where[one])
    for kind in (Transition, SequentialTransition):
        transition = kind(cluster, batch, partner)
        diff, worse = scorer.diff(0, transition)
        walked = Scorer(Cluster(placement.copy()), goals)
        for row in range(len(batch)):
            before, mark = walked.scores[0].copy(), walked.mark()
            walked.commit(batch[row : row + 1], partner[row : row + 1])
            walked.placement.check()
            cells = [where[one[row]], where[two[row]]]
            after = walked.scores[0]
            want = after[cells].min() - before[cells].min()
            assert diff[row] == pytest.approx(want, abs=1e-9)
            assert worse[row] == (after[cells] < before[cells] - 1e-12).any()
            if kind is Transition:
                walked.restore(mark)


@examples(4)
@given(st.integers(0, 10**6))
def test_local_traffic_is_kept_up_to_date_and_undone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = example_snapshots(seed % 7)[0]
    placement = Placement(s)
    names = [f"{name}.{factor!r}" for name in ("traffic", "local_traffic") for factor in (0.0, 1.5)]
    before = {name: placement.sums("broker", name).copy() for name in names}
    undone = []
    for _ in range(20):
        rows = []
        for p in rng.permutation(s.n_partitions)[:12].tolist():
            slot = int(rng.integers(placement.slots))
            if rng.random() < 0.4:
                rows.append((LEAD, p, slot, placement.brokers[p, slot]))
            else:
                free = np.setdiff1d(np.arange(s.n_brokers), placement.brokers[p])
                rows.append((MOVE, p, slot, rng.choice(free)))
        kind, p, slot, target = np.array(rows).T
        batch = Batch(kind.astype(np.int8), p, slot, target, np.full(len(p), -1))
        undone.append(placement.apply(batch))
        placement.check()
    for batch in reversed(undone):
        placement.apply(batch)
    for name, value in before.items():
        np.testing.assert_allclose(placement.sums("broker", name), value, atol=1e-6)


def test_every_name_of_the_package_is_loaded_when_it_is_used() -> None:
    assert [getattr(balancer, name).__name__ for name in balancer.__all__] == balancer.__all__
    assert set(balancer.__all__) <= set(dir(balancer))
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        balancer.Unknown  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("seed", range(2))
def test_milp_within_a_limit_on_moves_ends_at_its_own_bound(seed: int) -> None:
    s = synthetic_snapshot(brokers=12, partitions=300, replication_factor=1, skew=3.0, seed=seed)
    goals = [UsageDistribution(resource="network_in")]
    strategy = Milp(resource="network_in", rounds=50)
    plan = Balancer(goals, budget=Budget(moves=30), strategy=strategy).propose(s)
    found = plan.allocation
    assert found is not None
    assert plan.summary.replica_moves == 30
    assert found.distance_before > 2 * found.distance_after
    assert found.distance_after <= 1.02 * found.distance_bound
