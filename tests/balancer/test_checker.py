from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK

from balancer import Action, Balancer, Budget, Operation, PlanDocument
from balancer.verification.checker import check_plan
from balancer.verification.report import CheckReport
from cluster_model import BrokerState, Snapshot, synthetic_snapshot

# six brokers with ids 1 to 6 in three racks
SNAPSHOT = synthetic_snapshot(brokers=6, partitions=60, racks=3, disks_per_broker=2)
DOCUMENT = Balancer("autobalancer", strategy=QUICK).propose(SNAPSHOT).document()


def with_actions(actions: list[Action], **changes: Any) -> PlanDocument:
    return DOCUMENT.model_copy(update={"actions": tuple(actions), **changes})


def kinds(report: CheckReport) -> set[str]:
    return {f.kind for f in (*report.violations, *report.mismatches)}


def held(partition: int, s: Snapshot = SNAPSHOT) -> list[int]:
    first, last = s.replica_offset[partition : partition + 2]
    return [*s.broker_ids[s.replica_broker[first:last]].tolist()]


def action(p: int, kind: str, s: Snapshot = SNAPSHOT, **changes: Any) -> Action:
    """A first action that is in order: the last replica goes to a broker without one."""
    row = int(s.replica_offset[p + 1]) - 1
    follower = kind in ("move", "remove")
    source = held(p, s)[-1 if follower else 0]
    free = sorted(set(s.broker_ids.tolist()) - set(held(p, s)))[0]
    disk = s.disk_path[0] if s.n_disks else None
    own = s.replica_disk[row if follower else s.replica_offset[p]] if s.n_disks else -1
    values: dict[str, Any] = {
        "kind": kind,
        "topic": s.topics[s.partition_topic[p]],
        "partition": int(s.partition_number[p]),
        "source": None if kind == "add" else source,
        "destination": {"move": free, "add": free, "leadership": held(p, s)[1]}.get(kind),
        "source_disk": s.disk_path[own] if s.n_disks and kind != "add" else None,
        "destination_disk": disk if kind in ("move", "add") else None,
        "leader": kind == "leadership",
        "cost": float(s.follower_load[p, 3]) if kind in ("move", "add") else 0.0,
    }
    return Action(**values | changes)


def violations(
    *actions: Action, s: Snapshot = SNAPSHOT, goals: Any = (), **operation: Any
) -> set[str]:
    plan = with_actions(
        list(actions),
        operation={"kind": "rebalance"} | operation,
        goals=tuple(goals),
    )
    return {f.kind for f in check_plan(s, plan).violations}


@pytest.mark.parametrize("profile", ["autobalancer", "cruise-control"])
def test_a_good_plan_passes(profile: str) -> None:
    plan = Balancer(profile, strategy=QUICK).propose(SNAPSHOT)
    assert len(plan)
    report = check_plan(SNAPSHOT, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


def test_steps_that_are_in_order_pass() -> None:
    assert not violations(action(0, "move"), action(1, "leadership"))


@pytest.mark.parametrize(
    ("kind", "changes", "found"),
    [
        ("move", {"topic": "no-such"}, "unknown partition"),
        ("move", {"partition": 10_000}, "unknown partition"),
        ("move", {"destination": 77}, "unknown broker"),
        ("move", {"source": 77}, "unknown broker"),
        ("move", {"destination": None}, "no destination"),
        ("move", {"source": None}, "wrong source"),
        ("move", {"destination": held(0)[0]}, "already there"),
        ("move", {"destination": held(0)[-1]}, "already there"),
        ("move", {"destination_disk": "/nowhere"}, "wrong destination disk"),
        ("move", {"destination_disk": None}, "wrong destination disk"),
        ("move", {"source_disk": "/nowhere"}, "wrong source disk"),
        ("move", {"cost": 1.0}, "wrong cost"),
        ("move", {"leader": True}, "wrong leader flag"),
        ("leadership", {"leader": False}, "wrong leader flag"),
        ("leadership", {"source": held(0)[1]}, "wrong source"),
        ("leadership", {"destination": held(0)[0]}, "already there"),
        (
            "leadership",
            {"destination": next(b for b in range(1, 7) if b not in held(0))},
            "no replica to lead",
        ),
        ("remove", {}, "promise"),
        ("add", {}, "promise"),
        ("remove", {"source": held(0)[0], "source_disk": None}, "leader removed"),
    ],
)
def test_a_wrong_step_is_found(kind: str, changes: dict[str, Any], found: str) -> None:
    assert found in violations(action(0, kind, **changes))


def test_a_step_done_twice_is_found() -> None:
    assert "wrong source" in violations(action(0, "move"), action(0, "move"))


def test_the_step_is_named() -> None:
    plan = with_actions([action(0, "move"), action(1, "move", cost=1.0)], goals=())
    (finding,) = (f for f in check_plan(SNAPSHOT, plan).violations)
    assert finding.step == 1
    assert str(finding).startswith("step 1: move topic")


@pytest.mark.parametrize(
    ("kind", "operation", "found"),
    [
        ("move", {"kind": "demote_brokers", "brokers": [1]}, "promise"),
        ("move", {"kind": "fix_offline_replicas"}, "promise"),
        ("leadership", {"kind": "fix_offline_replicas"}, "promise"),
        ("move", {"excluded_topics": ["topic-.*"]}, "excluded topic"),
        ("leadership", {"excluded_topics": ["topic-.*"]}, "excluded topic"),
        ("move", {"destinations": held(0)[:1]}, "wrong destination"),
        ("move", {"kind": "add_brokers", "brokers": held(0)[:1]}, "wrong destination"),
        (
            "move",
            {"excluded_brokers_for_replicas": [action(0, "move").destination]},
            "wrong destination",
        ),
        ("leadership", {"excluded_brokers_for_leadership": [held(0)[1]]}, "wrong leader"),
        (
            "move",
            {"kind": "change_replication_factor", "replication_factor": {".*": 3}},
            "promise",
        ),
    ],
)
def test_what_the_operation_forbids_is_found(
    kind: str, operation: dict[str, Any], found: str
) -> None:
    assert found in violations(action(0, kind), **operation)


@pytest.mark.parametrize(
    "operation",
    [
        {"kind": "remove_brokers", "brokers": [1]},
        {"kind": "demote_brokers", "brokers": [1]},
        {"kind": "change_replication_factor", "replication_factor": {".*": 2}},
    ],
)
def test_a_promise_not_kept_is_found(operation: dict[str, Any]) -> None:
    assert violations(**operation) == {"promise"}


def test_a_dead_destination_is_found() -> None:
    state = SNAPSHOT.broker_state.copy()
    step = action(0, "move")
    state[SNAPSHOT.broker_ids == step.destination] = 2
    assert "wrong destination" in violations(step, s=replace(SNAPSHOT, broker_state=state))


@pytest.mark.parametrize("kind", ["move", "add"])
def test_a_copy_of_what_is_lost_is_found(kind: str) -> None:
    state = SNAPSHOT.broker_state.copy()
    state[SNAPSHOT.broker_index(held(0))] = BrokerState.DEAD
    s = replace(SNAPSHOT, broker_state=state)
    assert "lost" in violations(action(0, kind, s), s=s)


def test_a_dead_disk_is_found() -> None:
    dead = replace(SNAPSHOT, disk_alive=np.zeros(SNAPSHOT.n_disks, np.bool_))
    assert "wrong destination disk" in violations(action(0, "move"), s=dead)


@pytest.mark.parametrize("room", [0.5, 1.5])
def test_a_step_that_overfills_a_broker_is_found(room: float) -> None:
    step = action(0, "move")
    capacity = SNAPSHOT.capacity.copy()
    target = int(np.flatnonzero(SNAPSHOT.broker_ids == step.destination)[0])
    capacity[target, 3] = SNAPSHOT.broker_load()[target, 3] + room * step.cost
    found = violations(step, s=replace(SNAPSHOT, capacity=capacity))
    assert found == ({"over capacity"} if room < 1 else set())


def test_room_made_too_late_is_found() -> None:
    """Each step is looked at when its turn comes: the end alone would be in order."""
    step = action(0, "move")
    away = next(
        action(p, "move", destination=step.source)
        for p in range(1, 60)
        if held(p)[-1] == step.destination and step.source not in held(p)
    )
    capacity = SNAPSHOT.capacity.copy()
    target = int(np.flatnonzero(SNAPSHOT.broker_ids == step.destination)[0])
    load = SNAPSHOT.broker_load()[target, 3]
    capacity[target, 3] = load + step.cost - 0.5 * min(away.cost, step.cost)
    tight = replace(SNAPSHOT, capacity=capacity)
    assert "over capacity" in violations(step, away, s=tight)
    assert "over capacity" not in violations(away, step, s=tight)


HARD: list[tuple[dict[str, Any], str]] = [
    ({"goal": "ResourceCapacity", "resource": "disk", "threshold": 1e-6}, "over capacity"),
    ({"goal": "HostCapacity", "resource": "network_in", "threshold": 1e-6}, "over capacity"),
    ({"goal": "ReplicaCapacity", "limit": 1}, "over capacity"),
    ({"goal": "DiskCapacity", "threshold": 1e-6}, "over capacity"),
]


@pytest.mark.parametrize(("goal", "found"), HARD)
@pytest.mark.parametrize("hard", [True, False])
def test_only_hard_goals_forbid(goal: dict[str, Any], found: str, hard: bool) -> None:
    stated = {**goal, "name": goal["goal"], "hard": hard}
    assert violations(action(0, "move"), goals=[stated]) == ({found} if hard else set())


@pytest.mark.parametrize("goal", ["RackAwareness", "RackAwareDistribution"])
def test_a_rack_taken_twice_is_found(goal: str) -> None:
    rack = dict(zip(SNAPSHOT.broker_ids.tolist(), SNAPSHOT.broker_rack.tolist(), strict=True))
    p = next(p for p in range(60) if len({rack[b] for b in held(p)}) == 3)
    twin = next(b for b in rack if rack[b] == rack[held(p)[0]] and b not in held(p))
    stated = {"goal": goal, "name": goal, "hard": True}
    assert violations(action(p, "move", destination=twin), goals=[stated]) == {"racks"}


def test_a_topic_short_of_leaders_is_found() -> None:
    stated = {"goal": "MinTopicLeaders", "name": "", "hard": True, "topics": ".*", "minimum": 60}
    assert violations(action(0, "leadership"), goals=[stated]) == {"leaders"}


def test_a_replica_out_of_its_broker_set_is_found() -> None:
    step = action(0, "move")
    inside = np.isin(SNAPSHOT.broker_ids, [*held(0)])
    sets = replace(SNAPSHOT, broker_sets=("in", "out"), broker_set=np.where(inside, 0, 1))
    stated = {
        "goal": "BrokerSetAwareness",
        "name": "",
        "hard": True,
        "sets": {".*": "in"},
        "exempt": "",
    }
    assert violations(step, s=sets, goals=[stated]) == {"broker sets"}
    assert not violations(step, s=sets, goals=[{**stated, "exempt": ".*"}])


def _summary(**changes: Any) -> Callable[[PlanDocument], PlanDocument]:
    return lambda d: d.model_copy(update={"summary": d.summary.model_copy(update=changes)})


def _column(place: str, figure: str) -> Callable[[PlanDocument], PlanDocument]:
    def corrupt(d: PlanDocument) -> PlanDocument:
        column = d.columns["disk"]
        spread = getattr(column, place)
        worse = spread.model_copy(update={figure: getattr(spread, figure) * 1.01 + 1})
        columns = d.columns | {"disk": column.model_copy(update={place: worse})}
        return d.model_copy(update={"columns": columns})

    return corrupt


def _bound(d: PlanDocument) -> PlanDocument:
    disk = d.columns["disk"].model_copy(update={"worst_ratio_bound": 99.0})
    return d.model_copy(update={"columns": d.columns | {"disk": disk}})


def _result(**changes: Any) -> Callable[[PlanDocument], PlanDocument]:
    def corrupt(d: PlanDocument) -> PlanDocument:
        first = next(g for g in d.goal_results if g.goal == "NetworkInUsageDistribution")
        rest = tuple(g.model_copy(update=changes) if g is first else g for g in d.goal_results)
        return d.model_copy(update={"goal_results": rest})

    return corrupt


def _reasons(d: PlanDocument) -> PlanDocument:
    first = d.actions[0].model_copy(update={"helped": {"NoGoal": 0.5}})
    return d.model_copy(update={"actions": (first, *d.actions[1:])})


@pytest.mark.parametrize(
    ("corrupt", "found"),
    [
        (_summary(replica_moves=0), "summary:"),
        (_summary(leadership_moves=999), "summary:"),
        (_summary(disk_moves=999), "summary:"),
        (_summary(replicas_added=999), "summary:"),
        (_summary(replicas_removed=999), "summary:"),
        (_summary(cost=1.0), "cost"),
        (_summary(cost_total=1.0), "cost_total"),
        (_summary(cost_bound=1e300), "cost_bound"),
        (_summary(balancedness_before=1.0), "balancedness_before"),
        (_summary(balancedness_after=1.0), "balancedness_after"),
        *[
            (_column(place, figure), "columns:")
            for place in ("before", "after")
            for figure in ("mean", "max", "min", "std", "worst_ratio")
        ],
        (_bound, "worst_ratio_bound"),
        (_result(unmet_cells_before=999), "goal NetworkInUsageDistribution"),
        (_result(unmet_cells_after=999), "goal NetworkInUsageDistribution"),
        (_result(met_before=True, met_after=False), "met"),
        (_result(contentment_after=7.0), "contentment"),
        (_reasons, "reasons"),
        (lambda d: d.model_copy(update={"goal_results": ()}), "goal_results"),
        (lambda d: d.model_copy(update={"columns": {}}), "columns"),
    ],
)
def test_a_wrong_figure_is_found(
    corrupt: Callable[[PlanDocument], PlanDocument], found: str
) -> None:
    report = check_plan(SNAPSHOT, corrupt(DOCUMENT))
    assert not report.violations
    assert found in kinds(report)


def test_an_unmet_goal_kept_quiet_is_found() -> None:
    scarce = synthetic_snapshot(brokers=4, partitions=20, racks=2)
    document = Balancer("cruise-control", strategy=QUICK).propose(scarce).document()
    assert {u.goal for u in document.unmet} >= {"RackAwareness"}
    quiet = document.model_copy(update={"unmet": ()})
    assert "unmet" in kinds(check_plan(scarce, quiet))


def test_lists_read_back_from_json_are_the_same() -> None:
    operation = Operation(kind="remove_brokers", brokers=(2,))
    plan = Balancer("autobalancer", strategy=QUICK).propose(SNAPSHOT, operation)
    read = PlanDocument.model_validate_json(plan.to_json())
    assert check_plan(SNAPSHOT, read) == check_plan(SNAPSHOT, plan.document())


def test_a_goal_may_be_hard_for_one_resource_and_soft_for_another() -> None:
    s = synthetic_snapshot(brokers=6, partitions=60, racks=3, seed=1)
    goals = [
        {"goal": "UsageDistribution", "resource": "disk", "hard": True},
        {"goal": "UsageDistribution", "resource": "cpu", "threshold": 1.000001},
    ]
    plan = Balancer({"goals": goals}).propose(s)
    assert [u.goal for u in plan.unmet] == ["UsageDistribution[cpu]"]
    report = check_plan(s, plan.document())
    assert report.ok, [*report.violations, *report.mismatches]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_plans_that_add_replicas_to_broker_sets_pass(seed: int) -> None:
    """New replicas count in the set of their topic, and end in another where sets are not kept."""
    rng = np.random.default_rng(seed)
    snapshot = synthetic_snapshot(
        brokers=8, partitions=24, replication_factor=1, racks=2, topics=3, utilization=0.3,
        heterogeneity=0.4, seed=seed,
    )  # fmt: skip
    snapshot = replace(
        snapshot, broker_sets=("first", "second"), broker_set=rng.permutation(np.arange(8) % 2)
    )
    goals: list[dict[str, Any]] = [
        {"goal": "TopicReplicaDistribution"},
        {"goal": "ReplicaDistribution"},
        {"goal": "UsageDistribution", "resource": "disk"},
        {"goal": "LeaderReplicaDistribution"},
    ]
    if seed % 2:
        goals.append({"goal": "BrokerSetAwareness", "hard": seed % 4 == 1, "tier": 9})
    operation = Operation(kind="change_replication_factor", replication_factor={".*": 3})
    plan = Balancer({"goals": goals}, seed=seed, strategy=QUICK).propose(snapshot, operation)
    assert any(a.kind == "add" for a in plan.actions)
    report = check_plan(snapshot, plan.document())
    assert report.ok, [*report.violations, *report.mismatches]


def test_a_plan_beyond_its_budget_is_found() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    plan = (
        Balancer("default", budget=Budget(moves=2, cost=1e15), strategy=QUICK)
        .propose(snapshot)
        .document()
    )
    assert plan.budget == Budget(moves=2, cost=1e15)
    assert plan.summary.replica_moves == 2
    for budget in (Budget(moves=1), Budget(cost=1.0)):
        forged = plan.model_copy(update={"budget": budget, "digest": None})
        assert "budget" in kinds(check_plan(snapshot, forged))


def test_a_plan_without_a_budget_keeps_its_digest() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    plan = Balancer("default", strategy=QUICK).propose(snapshot).document()
    record = plan.model_dump(mode="json")
    del record["budget"]
    assert PlanDocument.model_validate(record).content_digest == plan.digest
