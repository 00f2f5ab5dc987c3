"""What a plan asks of each partition, however the cluster has changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from execution_cases import FakeCluster, executor, lead, move, plan_of

from balancer import Action, Balancer, Operation, Plan, load_plan
from balancer.execution.cluster import ClusterView, Key, PartitionView
from balancer.execution.targets import PlanReading, differences, read_plan, rollback_targets
from balancer.execution.tasks import make_tasks
from balancer.planning.document import PlanError, Sizing
from cluster_model import Snapshot, synthetic_snapshot


def view_of(s: Snapshot) -> ClusterView:
    """The snapshot as Kafka would report it."""
    partitions = {}
    at, ids = s.replica_offset, s.broker_ids
    for p, (t, number) in enumerate(zip(s.partition_topic, s.partition_number, strict=True)):
        brokers = tuple(ids[s.replica_broker[at[p] : at[p + 1]]].tolist())
        leader = None if s.leader[p] < 0 else brokers[s.leader[p]]
        partitions[Key(s.topics[t], int(number))] = PartitionView(brokers, leader, isr=brokers)
    return ClusterView(frozenset(ids.tolist()), partitions)


OPERATIONS = {
    "rebalance": Operation(),
    "remove": Operation(kind="remove_brokers", brokers=(2,)),
    "demote": Operation(kind="demote_brokers", brokers=(2,)),
    "more": Operation(kind="change_replication_factor", replication_factor={".*": 4}),
    "fewer": Operation(kind="change_replication_factor", replication_factor={".*": 2}),
}


@pytest.fixture(scope="module", params=OPERATIONS)
def plan(request: pytest.FixtureRequest) -> Plan:
    cluster = synthetic_snapshot(
        brokers=8, partitions=80, racks=4, disks_per_broker=2, utilization=0.2, seed=1
    )
    found = Balancer("default").propose(cluster, OPERATIONS[request.param])
    assert len(found)
    return found


def test_it_leads_to_the_end_of_the_plan(plan: Plan) -> None:
    view, end = view_of(plan.snapshot), view_of(plan.final_snapshot())
    reading = read_plan(plan, view)
    assert not reading.problems
    after = {k: p.replicas for k, p in view.partitions.items()}
    after |= {w.key: w.target for w in reading.targets}
    assert after == {k: p.replicas for k, p in end.partitions.items()}
    for w in reading.targets:
        assert w.leader in (None, end.partitions[w.key].leader)
    assert differences(reading.targets, end, {}) == []


def test_a_plan_from_its_file_wants_the_same(plan: Plan, tmp_path: Path) -> None:
    view = view_of(plan.snapshot)
    plan.save(tmp_path / "plan.json")
    assert read_plan(load_plan(tmp_path / "plan.json"), view) == read_plan(plan, view)


def test_one_replica_at_a_time_goes_the_same_way_in_small_steps(plan: Plan) -> None:
    requested = read_plan(plan, view_of(plan.snapshot)).targets
    whole = [t for t in make_tasks(requested) if t.phase == "move"]
    steps = [t for t in make_tasks(requested, one_at_a_time=True) if t.phase == "move"]
    at = {w.key: w.origin for w in requested}
    last: dict[Key, int] = {}
    for t in steps:
        assert t.origin == at[t.key]
        assert len(t.added) <= 1
        assert len(set(t.origin) - set(t.target)) <= 1
        assert t.after == last.get(t.key)
        at[t.key], last[t.key] = t.target, t.id
    assert {t.key: t.target for t in whole} == {k: at[k] for k in last}


def test_the_way_back_leads_back(plan: Plan) -> None:
    start = view_of(plan.snapshot)
    requested = read_plan(plan, start).targets
    for w in rollback_targets(requested, view_of(plan.final_snapshot())):
        assert w.target == start.partitions[w.key].replicas
        assert not w.steps or w.steps[-1][1] == w.target


A = Key("a", 0)


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (move("a", 0, 4, 5), "moves a replica from 4 to 5, but its replicas are on 0, 1, 2"),
        (lead("a", 0, 0, 5), "lets 5 lead, but its replicas are on 0, 1, 2"),
        (
            Action(kind="move_disk", topic="a", partition=0, source=4, destination=4),
            "between disks of 4, but its replicas are on 0, 1, 2",
        ),
    ],
)
def test_a_plan_that_no_longer_fits_is_reported(action: Action, why: str) -> None:
    reading = read_plan(plan_of(action), ClusterView(frozenset(), {A: PartitionView((0, 1, 2), 0)}))
    assert reading.targets == []
    (problem,) = reading.problems
    assert problem.startswith("a-0 left as it is: step 1 ")
    assert why in problem


def add(broker: int) -> Action:
    return Action(kind="add", topic="a", partition=0, source=None, destination=broker)


def remove(broker: int) -> Action:
    return Action(kind="remove", topic="a", partition=0, source=broker, destination=None)


def read_at(
    found: tuple[int, ...], made_for: tuple[int, ...] | None, *actions: Action
) -> PlanReading:
    plan = plan_of(*actions)
    if made_for is not None:
        plan = plan.model_copy(update={"replicas": {"a-0": made_for}})
    return read_plan(plan, ClusterView(frozenset(), {A: PartitionView(found, found[0])}))


STALE: dict[str, tuple[tuple[int, ...], tuple[int, ...], Action]] = {
    "would lose a replica too many": ((1, 2, 3), (3, 4), remove(3)),
    "would gain a replica too many": ((1, 2), (4, 5, 6), add(3)),
    "the other replica went elsewhere": ((1, 2), (1, 5), move("a", 0, 1, 4)),
    "was given another replica": ((1, 2), (1, 2, 3), move("a", 0, 1, 4)),
    "leads on other replicas": ((1, 2), (2, 3), lead("a", 0, 1, 2)),
}


@pytest.mark.parametrize("case", STALE)
def test_a_partition_whose_replicas_changed_since_the_plan_is_left_out(case: str) -> None:
    made_for, found, action = STALE[case]
    reading = read_at(found, made_for, action)
    assert reading.targets == []
    (problem,) = reading.problems
    here, there = (", ".join(map(str, r)) for r in (made_for, found))
    assert problem == (
        f"a-0 left as it is: the plan was made for replicas on {here}, but they are on {there}"
    )


def test_another_order_of_the_same_replicas_is_no_reason_to_leave_a_partition_out() -> None:
    reading = read_at((2, 1), (1, 2), move("a", 0, 1, 4))
    assert [w.target for w in reading.targets] == [(2, 4)]


DETOUR = (move("a", 0, 2, 3), move("a", 0, 1, 4), move("a", 0, 3, 5), remove(5))


@pytest.mark.parametrize("found", [(1, 2), (1, 3), (4, 3), (4, 5), (4,)])
@pytest.mark.parametrize("made_for", [(1, 2), None])
def test_a_plan_carried_out_again_goes_on_from_where_it_was_stopped(
    made_for: tuple[int, ...] | None, found: tuple[int, ...]
) -> None:
    reading = read_at(found, made_for, *DETOUR)
    assert not reading.problems
    assert [w.target for w in reading.targets] == [(4,)]


def test_a_leader_moved_along_is_still_elected_when_the_move_was_done_before() -> None:
    action = move("a", 0, 1, 4).model_copy(update={"leader": True})
    for made_for in ((1, 2), None):
        (requested,) = read_at((2, 4), made_for, action).targets
        assert (requested.target, requested.leader) == ((4, 2), 4)


@pytest.mark.parametrize(
    ("found", "actions"),
    [
        ((1, 4), (add(3), add(4))),
        ((1, 2), (remove(3), remove(2))),
        ((2, 3), (remove(1), add(3), remove(3), add(1))),
    ],
)
def test_a_plan_without_replicas_keeps_its_own_arithmetic(
    found: tuple[int, ...], actions: tuple[Action, ...]
) -> None:
    reading = read_at(found, None, *actions)
    change = sum({"add": 1, "remove": -1}[a.kind] for a in actions)
    for w in reading.targets:
        assert len(w.target) - len(w.origin) in range(min(change, 0), max(change, 0) + 1)
    assert reading.targets or "left as it is: step" in reading.problems[0]


def test_a_plan_states_the_replicas_of_every_partition_it_changes(plan: Plan) -> None:
    view = view_of(plan.snapshot)
    stated = plan.document().replicas
    assert stated == {
        str(key): view.partitions[key].replicas
        for key in {Key(a.topic, a.partition) for a in plan.actions}
    }


def test_what_is_done_already_is_requested_as_it_is() -> None:
    reading = read_plan(
        plan_of(move("a", 0, 4, 2)), ClusterView(frozenset(), {A: PartitionView((0, 1, 2), 0)})
    )
    assert make_tasks(reading.targets) == []


def test_a_preview_changes_nothing(tmp_path: Path) -> None:
    cluster = FakeCluster({A: (0, 1, 2)})
    preview = executor(cluster, tmp_path).preview(
        plan_of(move("a", 0, 2, 3), move("gone", 0, 1, 2), move("a", 0, 9, 4))
    )
    assert preview.tasks == []
    assert len(preview.problems) == 2
    assert cluster.asked == []
    assert list(tmp_path.iterdir()) == []


def test_a_plan_on_brokers_that_it_proposes_to_add_is_refused_until_they_are_up() -> None:
    sizing = Sizing(
        brokers_before=3, brokers=4, added=(4,), met=True, least=4, reason="", fewer_tried=0,
        proof="certificate", text="4 brokers",
    )  # fmt: skip
    plan = plan_of(move("t", 0, 1, 4)).model_copy(update={"sizing": sizing})
    held = {Key("t", 0): PartitionView((1, 2), 1, isr=(1, 2))}
    with pytest.raises(PlanError, match="broker 4 is one that the plan proposes to add"):
        read_plan(plan, ClusterView(frozenset({1, 2, 3}), held))
    reading = read_plan(plan, ClusterView(frozenset({1, 2, 3, 4}), held))
    assert [target.target for target in reading.targets] == [(4, 2)]
