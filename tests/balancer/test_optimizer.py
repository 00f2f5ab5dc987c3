"""Properties of every plan: determinism, honesty, safe steps, no needless work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, by_hand, examples, leaders, lists, replay
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Budget, Operation, Plan, PlanError, load_plan
from balancer.planning.parameters import PlanningParameters
from balancer.problem.resolution import resolve
from balancer.search.local_search import Search
from balancer.search.scorer import Scorer
from cluster_model import InputError, Snapshot, synthetic_snapshot
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from goals import Cluster, Goal, ReplicaCapacity, UsageDistribution, goals_for

# shrinking a whole cluster takes minutes
profiles = st.sampled_from(["default", "cruise-control", "autobalancer"])
# what any plan keeps to is found out by short searches too
searches = st.sampled_from([QUICK, QUICK, QUICK, "goals"])


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    brokers = draw(st.integers(3, 12))
    return synthetic_snapshot(
        brokers=brokers,
        partitions=draw(st.integers(1, 90)),
        replication_factor=draw(st.integers(1, 3)),
        racks=draw(st.integers(1, brokers)),
        utilization=draw(st.floats(0.05, 0.8)),
        skew=draw(st.floats(1, 3)),
        rack_violations=draw(st.sampled_from([0.0, 0.2])),
        heterogeneity=draw(st.sampled_from([0.0, 0.5])),
        disks_per_broker=draw(st.sampled_from([0, 0, 2])),
        seed=draw(st.integers(0, 1000)),
    )


def prepared(snapshot: Snapshot, profile: str) -> list[Goal]:
    cluster = Cluster(Placement(snapshot))
    return [goal.prepared(cluster) for goal in goals_for(snapshot, profile)]


def scores(placement: Placement, goals: list[Goal]) -> list[np.ndarray]:
    cluster = Cluster(placement)
    return [
        np.asarray(
            g.score(cluster.partition_state() if g.scope.of_partitions else cluster.state(g.scope))
        )
        for g in goals
    ]


@pytest.mark.slow
@examples(6)
@given(clusters(), profiles, searches)
def test_plans_can_be_carried_out_and_end_where_they_say(
    snapshot: Snapshot, profile: str, search: Any
) -> None:
    plan = Balancer(profile, seed=4, strategy=search).propose(snapshot)
    if search is QUICK:
        again = Balancer(profile, seed=4, strategy=search).propose(snapshot)
        assert again.to_json() == plan.to_json()
    replay(plan)
    end = plan.final_snapshot()
    goals = prepared(snapshot, profile)
    results = {g.goal: g for g in plan.goal_results}
    for goal, before, after in zip(
        goals,
        scores(Placement(snapshot), goals),
        scores(Placement(end, plan.placement.slots), goals),
        strict=True,
    ):
        said = results[goal.name]
        assert said.met_before == (before >= 1).all()
        assert said.met_after == (after >= 1).all(), goal.name
        assert said.contentment_after == pytest.approx(after.mean())
    assert plan.summary.cost == pytest.approx(sum(a.cost for a in plan.actions))
    kinds = [a.kind for a in plan.actions]
    assert plan.summary.replica_moves == kinds.count("move")
    assert plan.summary.leadership_moves == kinds.count("leadership")
    assert plan.summary.disk_moves == kinds.count("move_disk")
    assert {u.goal for u in plan.unmet} == {g.goal for g in plan.goal_results if not g.met_after}
    assert plan.summary.cost >= plan.summary.cost_bound * (1 - 1e-9)
    for name, column in plan.columns.items():
        assert column.after.worst_ratio >= column.worst_ratio_bound * (1 - 1e-9), name


@pytest.mark.slow
@examples(4)
@given(clusters(), profiles, searches, st.booleans())
def test_no_step_makes_a_hard_goal_worse_or_overfills_a_broker(
    snapshot: Snapshot, profile: str, search: Any, refill: bool
) -> None:
    plan = Balancer(profile, planning=PlanningParameters(refill=refill), strategy=search).propose(
        snapshot
    )
    used = {g.goal: g.relaxed for g in plan.goal_results if g.relaxed is not None}
    placement = Placement(snapshot)
    goals = [
        # a limit that no placement keeps is replaced
        g.model_copy(update={used[g.name].parameter: used[g.name].used}).prepared(
            Cluster(Placement(snapshot))
        )
        if g.name in used
        else g
        for g in prepared(snapshot, profile)
        if g.hard
    ]
    start = before = scores(placement, goals)
    held = loads(placement) if refill else 0.0
    steps = plan.rows
    for i, kind in enumerate(steps.kind):
        p, source, target = int(steps.partition[i]), steps.source[i], int(steps.target[i])
        load = loads(placement)
        row = placement.brokers[p]
        if kind == "leadership":
            slot, code = int(np.flatnonzero(row == target)[0]), LEAD
        elif kind == "move":
            slot, code = int(np.flatnonzero(row == source)[0]), MOVE
        else:
            continue
        disk = int(steps.target_disk[i]) if snapshot.n_disks else -1
        placement.apply(
            Batch.of(code, np.array([p]), np.array([slot]), np.array([target]), np.array([disk]))
        )
        after = scores(placement, goals)
        for goal, first, old, new in zip(goals, start, before, after, strict=True):
            # what is above a limit at the start may be filled again, up to what it held then
            least = np.minimum(first, old) if refill else old
            assert (new >= least - 1e-9).all(), f"step {i}: {goal.name}"
        limit = np.maximum(np.maximum(load, held), snapshot.capacity)
        assert (loads(placement) <= limit * (1 + 1e-9)).all(), f"step {i}: capacity"
        before = after


def loads(placement: Placement) -> np.ndarray:
    resources = placement.snapshot.resources
    return np.stack([placement.recompute("broker", f"load.{r}") for r in resources], 1)


@pytest.mark.slow
@examples(4)
@given(clusters(), profiles, searches)
def test_proposals_do_not_go_on_for_ever(snapshot: Snapshot, profile: str, search: Any) -> None:
    """Whoever carries plans out and asks again comes to an end, and to no cluster twice."""
    seen: list[Any] = []
    for _ in range(12):
        plan = Balancer(profile, strategy=search).propose(snapshot)
        snapshot = plan.final_snapshot()
        if not len(plan):
            return
        where = (
            {name: set(on) for name, on in lists(snapshot).items()},
            leaders(snapshot),
            snapshot.replica_disk.tolist(),
        )
        assert where not in seen
        seen.append(where)
    raise AssertionError(f"still {len(plan)} actions after twelve plans")


def test_a_balanced_cluster_is_left_alone() -> None:
    snapshot = by_hand([(b, (b + 1) % 4) for b in range(4)] * 3, brokers=4)
    plan = Balancer("cruise-control").propose(snapshot)
    assert plan.ok
    assert len(plan) == 0
    assert plan.summary.cost == 0
    assert plan.summary.balancedness_after == 100


def test_a_cluster_without_partitions_is_balanced() -> None:
    plan = Balancer().propose(by_hand([], brokers=3))
    assert plan.ok
    assert len(plan) == 0


def test_leaders_are_evened_out_without_copying_anything() -> None:
    snapshot = by_hand([(0, 1)] * 10, brokers=2)
    plan = Balancer({"goals": ["LeaderReplicaDistribution"]}).propose(snapshot)
    assert plan.ok
    assert plan.summary.cost == 0
    # 5 each, and 4 to 6 is even enough
    assert plan.summary.leadership_moves == 4


def test_the_smallest_of_equal_moves_is_taken() -> None:
    # any of broker 0's partitions makes the counts even; one of them is small
    loads = [100.0, 100.0, 1.0, 100.0, 100.0]
    snapshot = by_hand([(0,), (0,), (0,), (0,), (1,)], brokers=2, load=loads)
    goals = {"goals": [{"goal": "ReplicaDistribution", "threshold": 1.2}]}
    plan = Balancer(goals).propose(snapshot)
    assert plan.ok
    assert plan.summary.cost == 1


def test_a_swap_that_no_order_of_steps_makes_safe_is_left_out() -> None:
    # both brokers are full by count, and one holds all that is large: each replica of a
    # swap would have to leave before the other comes
    loads = [90.0, 80.0, 70.0, 10.0, 20.0, 30.0]
    snapshot = by_hand([(0,)] * 3 + [(1,)] * 3, brokers=2, load=loads)
    goals: list[Goal] = [
        ReplicaCapacity(limit=3, tier=0),
        UsageDistribution(resource="disk", tier=1, threshold=1.2),
    ]
    plan = Balancer(goals).propose(snapshot)
    replay(plan)
    assert len(plan) == 0
    assert {u.goal for u in plan.unmet} == {"UsageDistribution[disk]"}


def test_a_swap_is_made_where_every_move_alone_is_worse() -> None:
    # 100+60 | 80+40: of one replica's move the best is 60/220; a swap of 100 and 80 is 140/140
    snapshot = by_hand([(0,), (0,), (1,), (1,)], brokers=2, load=[100.0, 60.0, 80.0, 40.0])
    plan = Balancer([UsageDistribution(resource="disk", tier=0)]).propose(snapshot)
    assert plan.final_snapshot().broker_load()[:, 0].tolist() == [140.0, 140.0]
    assert plan.ok
    replay(plan)


def test_a_lower_tier_never_costs_a_higher_one() -> None:
    snapshot = synthetic_snapshot(brokers=8, partitions=80, racks=4, topics=4, seed=5)
    first: dict[str, Any] = {"goal": "UsageDistribution", "resource": "disk"}
    alone = Balancer({"goals": [first]}).propose(snapshot)
    assert alone.ok
    both = Balancer(
        {"goals": [first, {"goal": "UsageDistribution", "resource": "network_in"}]}
    ).propose(snapshot)
    assert "UsageDistribution[disk]" not in {u.goal for u in both.unmet}


def test_every_action_names_a_goal_it_serves_or_makes_room_for_one() -> None:
    snapshot = synthetic_snapshot(brokers=8, partitions=120, racks=4, topics=4)
    plan = Balancer().propose(snapshot)
    reasons = {goal for a in plan.actions for goal in a.helped}
    assert reasons <= {g.goal for g in plan.goal_results}
    assert sum(bool(a.helped) for a in plan.actions) >= 0.8 * len(plan)
    hard = {g.goal for g in plan.goal_results if g.hard}
    assert not any(hard & a.hurt.keys() for a in plan.actions)


def test_progress_is_reported_and_changes_nothing() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    reported: list[tuple[str, int, int, int]] = []
    watched = Balancer().propose(snapshot, progress=lambda *facts: reported.append(facts))
    assert reported
    assert all(0 <= met <= all_ for phase, met, all_, _ in reported if all_)
    assert watched.to_json() == Balancer().propose(snapshot).to_json()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"goals": None}, "goals: NoneType found"),
        ({"budget": {"moves": 3}}, "budget: dict found, Budget or None expected"),
        ({"remedies": 1}, "remedies: int found, RemedyLimits or None expected"),
        ({"planning": {}}, "planning: dict found, PlanningParameters or None expected"),
        ({"seed": "7"}, "seed: str found, int or integer expected"),
        ({"seed": -1}, "seed: -1 found, 0 or more expected"),
        ({"snapshot": "cluster.json"}, "snapshot: str found, Snapshot expected"),
        ({"operation": "rebalance"}, "operation: str found, Operation or None expected"),
        ({"operation": Budget(moves=3)}, "limits are those of Balancer\\(budget=...\\)"),
        ({"progress": 3}, "progress: int found, Callable or None expected"),
        ({"stop": True}, "stop: bool found, Event or None expected"),
    ],
)
def test_an_argument_of_another_type_is_one_sentence(given: dict[str, Any], said: str) -> None:
    s = synthetic_snapshot(brokers=3, partitions=6, racks=3)
    asked = {"snapshot": s} | {
        name: given.pop(name)
        for name in ("snapshot", "operation", "progress", "stop")
        if name in given
    }
    with pytest.raises(InputError, match=said):
        Balancer(**given).propose(**asked)


def test_plans_are_written_and_read_back(tmp_path: Path) -> None:
    plan = Balancer().propose(
        synthetic_snapshot(brokers=6, partitions=60, racks=3, disks_per_broker=2),
        Operation(excluded_topics=("topic-0",)),
    )
    plan.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan.document()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", "schema_version None found"),
        ('{"schema_version": 99}', "99 found, 2 expected"),
        ('{"schema_version": 2}', "operation"),
    ],
)
def test_files_that_are_no_plans(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanError, match=says) as error:
        load_plan(path)
    assert "plan.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_final_snapshot_of_an_empty_plan_is_the_snapshot() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=40, racks=3, disks_per_broker=2)
    plan: Plan = Balancer({"goals": ["ReplicaCapacity"]}).propose(snapshot)
    assert len(plan) == 0
    assert plan.final_snapshot() == snapshot
    assert lists(plan.final_snapshot()) == lists(snapshot)


def test_final_snapshot_of_an_empty_plan_makes_nobody_a_leader() -> None:
    snapshot = replace(
        by_hand([(0,), (0,)], brokers=2, states={0: "dead"}), leader=np.array([-1, -1])
    )
    plan = Balancer({"goals": ["ReplicaCapacity"]}).propose(snapshot)
    assert len(plan) == 0
    assert plan.final_snapshot() == snapshot


@pytest.mark.parametrize("partition", [3, "t-00", "t-1 ", "t", None])
def test_another_partition_is_not_answered_for(partition: Any) -> None:
    plan = Balancer({"goals": ["ReplicaCapacity"]}).propose(by_hand([(0,), (0,)], brokers=2))
    with pytest.raises(InputError, match="partition") as refused:
        plan.why_not(partition, 1)
    assert "\n" not in str(refused.value)


def test_what_no_goal_needs_returns_to_a_broker_that_receives_nothing() -> None:
    start = by_hand([(0,), (1,)], brokers=3)
    resolved = resolve(start, Operation(kind="add_brokers", brokers=(2,)))
    placement = resolved.cluster.placement
    placement.apply(Batch.of(MOVE, *(np.array([x]) for x in (0, 0, 2))))
    search = Search(
        Scorer(resolved.cluster, [ReplicaCapacity().prepared(resolved.cluster)]), resolved.rules
    )
    assert search.reduce(resolved.start) == 1
    assert placement.brokers.tolist() == [[0], [1]]


@pytest.mark.soak
@pytest.mark.parametrize("seed", [12, 32])
def test_nothing_is_proposed_on_the_result_where_limits_are_infeasible(seed: int) -> None:
    """Of more than 50 replicas; the first had proposed 12, 4 and 0 actions more, the second 1."""
    s = synthetic_snapshot(
        brokers=10, partitions=120, seed=seed, utilization=0.8, heterogeneity=0.6
    )
    plan = Balancer("default").propose(s)
    assert not all(result.met_after for result in plan.goal_results)
    assert not len(Balancer("default").propose(plan.final_snapshot()))
