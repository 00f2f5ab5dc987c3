"""What cannot be fixed blocks nothing else, and healing needs no loads."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from controller_cases import Failing, Stage, even, heavier, skewed
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer import Balancer, Operation
from balancer.controller import MeasuredCluster, PlainCluster
from balancer.controller.cost_benefit import cluster_cost
from balancer.controller.feed import FeedError
from balancer.controller.lost_partitions import lost_partitions, partition_names
from cluster_model import Snapshot, SnapshotError, synthetic_snapshot
from cluster_model.live import ClusterModel
from goals import Goal, RackAwareness, State

AT_ONCE: dict[str, Any] = {
    "dead_brokers": {"heal_after": "1m", "alert_after": "1m", "cooldown": "5m"},
    "goal_violations": {"cooldown": "5m"},
}


def _single(snapshot: Snapshot, partitions: list[int], broker: int) -> Snapshot:
    """The snapshot with only one copy of these partitions, on that broker (id)."""
    s = snapshot
    keep = np.ones(s.n_replicas, np.bool_)
    leader, at = s.leader.copy(), s.replica_broker.copy()
    (row,) = s.broker_index([broker]).tolist()
    for p in partitions:
        first = s.replica_offset[p]
        keep[first + 1 : s.replica_offset[p + 1]] = False
        at[first], leader[p] = row, 0
    count = np.bincount(s.replica_partition[keep], minlength=s.n_partitions)
    disks: dict[str, Any] = {"replica_disk": s.replica_disk[keep]} if s.n_disks else {}
    return replace(
        s,
        replica_broker=at[keep],
        replica_offset=np.concatenate([[0], np.cumsum(count)]),
        leader=leader,
        **disks,
    )


def _of(stage: Stage, broker: int) -> int:
    s = stage.model.cluster
    return int((s.replica_broker == s.broker_index([broker])[0]).sum())


@pytest.mark.slow
def test_a_partition_with_its_only_copy_on_a_dead_broker_stops_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    settings = {**AT_ONCE, "moved_cooldown": 0, "missing_replicas": {"act": False}}
    stage = Stage(_single(even(racks=6), [5, 9], 3), settings)
    stage.model.with_states(dead=[3])
    # The grace, healing, and then the goals of the rest.
    kinds = stage.rounds(3)
    assert kinds[0] == "waiting"
    assert "executed" in kinds
    assert _of(stage, 3) == 2
    stage.rounds(1)
    (finding,) = (f for f in stage.controller.decisions[-1].findings if f.kind == "lost_partitions")
    names = partition_names(stage.model.cluster, lost_partitions(stage.model.cluster))
    assert finding.data["named"] == list(names)
    assert f"2 partitions ({names[0]} and {names[1]}) cannot be healed" in finding.sentence
    stage.rounds(20)
    stage.model.cluster = heavier(stage.model.cluster, 1, 3.0)
    before = len(stage.executor.plans)
    assert "executed" in stage.rounds(10)
    for plan in stage.executor.plans[before:]:
        assert plan.operation["kind"] == "rebalance"
        assert {f"{a.topic}-{a.partition}" for a in plan.actions}.isdisjoint(names)
    # It is told once, however long it lasts, and again when it changes.
    stage.rounds(20)
    reported = [e for e in stage.events if e.get("finding", {}).get("kind") == "lost_partitions"]
    assert len(reported) == 1
    assert caplog.text.count("cannot be healed") == 1
    lines = len(caplog.records)
    stage.rounds(20)
    assert len(caplog.records) == lines
    stage.model.cluster = _single(stage.model.cluster, [20], 3)
    stage.rounds(3)
    reported = [e for e in stage.events if e.get("finding", {}).get("kind") == "lost_partitions"]
    assert [e["finding"]["data"]["partitions"] for e in reported] == [2, 3]
    assert "3 partitions set aside" in stage.reason
    assert "counterpoise_lost_partitions 3" in stage.controller.metrics.text()


def test_an_exclusion_that_matches_nothing_keeps_nobody_from_healing_and_balancing() -> None:
    settings = {**AT_ONCE, "excluded_topics": ["tpoic-*"], "missing_replicas": {"act": False}}
    stage = Stage(even(racks=6), settings)
    stage.model.with_states(dead=[3])
    assert "executed" in stage.rounds(3)
    assert _of(stage, 3) == 0
    assert stage.executor.plans[0].operation["excluded_topics"] == ["tpoic-*"]
    (said,) = (
        f.sentence
        for f in stage.controller.decisions[-1].findings
        if f.kind == "unmatched_settings"
    )
    assert "a regular expression like 'tpoic-.*' is expected" in said
    skew = Stage(skewed(), {**settings, "goal_violations": {"cooldown": 0, "rounds": 1}})
    assert "executed" in skew.rounds(3)


def test_a_partition_whose_copies_in_sync_are_all_dead_is_not_moved() -> None:
    snapshot = even()
    p = int(snapshot.replica_partition[snapshot.replica_broker == 2][0])
    stage = Stage(snapshot, AT_ONCE)
    stage.model.with_states(dead=[3])
    leader = stage.model.cluster.leader.copy()
    # Copies on other brokers are alive and too old: Kafka has no leader for it.
    leader[p] = -1
    stage.model.cluster = replace(stage.model.cluster, leader=leader)
    assert "executed" in stage.rounds(3)
    assert _of(stage, 3) == 1
    assert all(
        (a.topic, a.partition)
        != (
            snapshot.topics[snapshot.partition_topic[p]],
            snapshot.partition_number[p],
        )
        for plan in stage.executor.plans
        for a in plan.actions
    )
    assert set(stage.rounds(4)) == {"cooling"}
    stage.model.cluster = heavier(stage.model.cluster, 1, 3.0)
    assert "executed" in stage.rounds(2)


def test_a_dead_broker_that_no_plan_helps_stops_nothing_else() -> None:
    # As many copies as brokers: there is nowhere to heal to.
    snapshot = synthetic_snapshot(brokers=4, partitions=60, racks=4, utilization=0.1)
    extra = replace(snapshot, broker_rack=snapshot.broker_rack)
    stage = Stage(extra, {**AT_ONCE, "excluded_topics": []}, goals="default")
    full = Balancer("default").propose(
        extra, Operation(kind="change_replication_factor", replication_factor={".*": 4})
    )
    stage.model.cluster = full.final_snapshot()
    stage.model.with_states(dead=[3])
    kinds = stage.rounds(4)
    assert "nothing_helps" in kinds
    goals = [n for n in stage.controller.decisions if "that waits" in n.reason]
    assert all(d.time < stage.now - 120 for d in goals)
    # Leaders can be balanced, though no replica can.
    assert "that waits" not in stage.reason


def test_what_waits_for_a_dead_broker_says_its_sentence_once() -> None:
    stage = Stage(skewed(), {"dead_brokers": {"heal_after": 600}})
    stage.model.with_states(dead=[3])
    assert stage.rounds(1) == ["waiting"]
    assert "that waits because of broker 3" in stage.reason
    assert stage.reason.count("broker 3 has been dead for") == 1


def test_the_reason_of_many_dead_brokers_stays_short() -> None:
    snapshot = synthetic_snapshot(brokers=40, partitions=200, racks=4, utilization=0.1)
    stage = Stage(snapshot, {"dead_brokers": {"heal_after": 600}})
    stage.model.with_states(dead=[*range(1, 31)])
    assert stage.rounds(1) == ["unfixable"]
    assert stage.reason.count("has been dead for") == 3
    assert "27 more findings of dead_brokers" in stage.reason
    # Nothing is lost: the findings themselves are complete.
    kinds = [f.kind for f in stage.controller.decisions[-1].findings]
    assert kinds.count("dead_brokers") == 30


def test_healing_that_fails_altogether_stops_nothing_else() -> None:
    executor = Failing()
    stage = Stage(skewed(partitions=40), {**AT_ONCE, "settle": 0}, executor=executor)
    stage.model.with_states(dead=[3])
    stage.rounds(3)
    assert executor.kinds[:2] == ["fix_offline_replicas", "rebalance"]


def test_too_many_dead_brokers_hold_the_others_back_no_longer_than_their_grace() -> None:
    stage = Stage(skewed(), {"dead_brokers": {"heal_after": "5m", "max_failed": 0}})
    stage.model.with_states(dead=[3])
    assert set(stage.rounds(5)) == {"unfixable"}
    assert not stage.executor.plans
    stage.rounds(1)
    (plan,) = stage.executor.plans
    assert plan.operation["kind"] == "rebalance"
    # Nothing that has a copy on it is touched: it may come back, or a person heals it.
    assert _of(stage, 3) == int((skewed().replica_broker == 2).sum())
    assert 3 not in {a.source for a in plan.actions} | {a.destination for a in plan.actions}


def test_settings_that_cannot_be_planned_for_stop_nothing_else() -> None:
    impossible = {"topics": {".*": 9}, "rounds": 1}
    stage = Stage(skewed(), {"missing_replicas": impossible})
    assert stage.rounds(1) == ["executed"]
    assert stage.executor.plans[0].operation["kind"] == "rebalance"
    assert stage.rounds(1) == ["cooling"]
    assert "no plan can be made: replication factor 9 asked" in stage.reason


def _broken(stage: Stage, how: str) -> None:
    """Make the loads of the stage's model useless in some way."""
    s = stage.model.cluster
    if how == "raises":

        def snapshot() -> Snapshot:
            raise SnapshotError("snapshot field leader_load, row 3: inf found")

        stage.model.snapshot = snapshot  # type: ignore[method-assign]
    elif how == "fails":

        def fails() -> Snapshot:
            raise OverflowError("cannot convert float infinity to integer")

        stage.model.snapshot = fails  # type: ignore[method-assign]
    elif how == "overflow":

        def overflows() -> Snapshot:
            return replace(stage.model.cluster, leader_load=np.full_like(s.leader_load, 1e308))

        stage.model.snapshot = overflows  # type: ignore[method-assign]
    elif how == "signals":

        def signals() -> Any:
            raise ZeroDivisionError

        stage.model.signals = signals  # type: ignore[method-assign]
    else:

        def noise() -> Any:
            return {"disk": "much"}

        stage.model.noise = noise  # type: ignore[method-assign]


@pytest.mark.parametrize("how", ["raises", "fails", "overflow", "signals", "noise"])
def test_dead_brokers_are_healed_whatever_is_wrong_with_loads(how: str) -> None:
    stage = Stage(even(), AT_ONCE)
    _broken(stage, how)
    stage.model.with_states(dead=[3])
    assert stage.rounds(2) == ["waiting", "executed"]
    assert _of(stage, 3) == 0
    assert stage.controller.decisions[-1].cause == "dead_brokers"
    # And nothing else is moved on such loads.
    stage.rounds(50)
    assert {p.operation["kind"] for p in stage.executor.plans} == {"fix_offline_replicas"} or (
        how == "noise"
    )


def test_healing_by_placement_alone_says_that_limits_of_bytes_do_not_apply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(even(), AT_ONCE | {"max_bytes": 1})
    stage.model.with_states(dead=[3])
    propose = Balancer.propose

    def fails(self: Balancer, snapshot: Snapshot, *given: Any, **options: Any) -> Any:
        if snapshot.resources:
            raise ZeroDivisionError
        return propose(self, snapshot, *given, **options)

    monkeypatch.setattr(Balancer, "propose", fails)
    stage.rounds(2)
    assert _of(stage, 3) == 0
    (started,) = (d for d in stage.controller.decisions if d.kind == "started")
    assert "by placement alone, and limits of bytes do not apply" in started.reason


def test_records_that_overflow_do_not_switch_off_healing() -> None:
    cluster = even()
    stage = Stage(cluster, AT_ONCE)
    stage.model.with_states(dead=[3])
    dead = stage.model.cluster
    model = ClusterModel(dead)
    measured = MeasuredCluster(model, lambda: dead)

    def observe() -> Any:
        return replace(cluster, leader_load=np.full_like(cluster.leader_load, 1e308))

    model.observe = observe  # type: ignore[method-assign,assignment]
    for name in ("snapshot", "placement"):
        setattr(stage.model, name, getattr(measured, name))
    assert stage.rounds(2) == ["waiting", "executed"]
    (plan,) = stage.executor.plans
    assert not (plan.final_snapshot().replica_broker == 2).any()


def test_where_sizes_and_capacities_cannot_be_read_the_placement_is_healed() -> None:
    cluster = even()
    stage = Stage(cluster, AT_ONCE)
    stage.model.with_states(dead=[3])
    s = stage.model.cluster
    bare = replace(
        s,
        resources=("disk",),
        capacity=np.full((s.n_brokers, 1), 1e18),
        leader_load=s.leader_load[:, 3:],
        follower_load=s.follower_load[:, 3:],
    )

    def read() -> Snapshot:
        raise FeedError("capacity of broker 9: no value for resource 'cpu'")

    plain = PlainCluster(read, lambda: bare)
    for name in ("snapshot", "placement"):
        setattr(stage.model, name, getattr(plain, name))
    assert stage.rounds(2) == ["waiting", "executed"]
    (plan,) = stage.executor.plans
    assert not (plan.final_snapshot().replica_broker == 2).any()


def test_a_cycle_moves_its_share_and_the_next_one_goes_on() -> None:
    stage = Stage(
        skewed(),
        {"max_share_per_cycle": 0.12, "goal_violations": {"cooldown": "10d"}, "settle": 30},
    )
    total = Balancer("default").propose(skewed()).summary.cost
    stage.rounds(60)
    shares = [p.summary.cost / p.summary.cost_total for p in stage.executor.plans]
    assert len(shares) > 1
    assert max(shares) <= 0.12
    assert sum(p.summary.cost for p in stage.executor.plans) > 0.5 * total
    first = next(d for d in stage.controller.decisions if d.kind == "started")
    assert "cut at 12 % of the cluster's bytes (max_share_per_cycle), the next cycle continues" in (
        first.reason
    )
    assert first.facts["cap"]["share"] == 0.12
    last = [d for d in stage.controller.decisions if d.kind == "started"][-1]
    assert "max_share_per_cycle" not in last.reason


def test_by_default_a_cycle_moves_a_tenth() -> None:
    stage = Stage(skewed())
    stage.controller.configure(
        stage.controller.settings.model_copy(update={"max_share_per_cycle": 0.1})
    )
    assert type(stage.controller.settings)().max_share_per_cycle == 0.1
    stage.rounds(1)
    (plan,) = stage.executor.plans
    assert 0 < plan.summary.cost <= 0.1 * plan.summary.cost_total


def test_healing_is_not_cut() -> None:
    stage = Stage(even(), {**AT_ONCE, "max_share_per_cycle": 0.001})
    stage.model.with_states(dead=[3])
    assert "executed" in stage.rounds(2)
    assert _of(stage, 3) == 0


def test_where_all_partitions_are_larger_than_a_cycle_may_move_the_setting_is_named() -> None:
    # leadership is free, but no transfer changes what a broker stores
    goals = {"goals": [{"goal": "UsageDistribution", "resource": "disk"}]}
    stage = Stage(skewed(), {"max_share_per_cycle": 1e-9}, goals=goals)
    assert stage.rounds(1) == ["nothing_helps"]
    assert "without the 120 partitions" in stage.reason
    assert "one copy is more than one cycle may move (1e-07 % of the cluster's bytes)" in (
        stage.reason
    )
    assert "raise max_share_per_cycle" in stage.reason


def _huge(share: float) -> tuple[Snapshot, str]:
    """A skewed cluster with a partition of which one copy is that share of all bytes."""
    s = skewed()
    disk = s.resource("disk")
    p = int(s.replica_partition[s.replica_broker == 0][0])
    leader, follower = s.leader_load.copy(), s.follower_load.copy()
    copies = int(s.replication_factor[p])
    others = cluster_cost(s) - copies * leader[p, disk]
    leader[p, disk] = follower[p, disk] = share * others / (1 - copies * share)
    capacity = s.capacity.copy()
    capacity[:, disk] *= 20
    name = f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}"
    return replace(s, leader_load=leader, follower_load=follower, capacity=capacity), name


def test_a_partition_larger_than_a_cycle_may_move_does_not_keep_the_others_from_it() -> None:
    snapshot, name = _huge(0.2)
    stage = Stage(snapshot, {"max_share_per_cycle": 0.1, "settle": 0})
    stage.rounds(40)
    assert stage.executor.plans
    for plan in stage.executor.plans:
        assert plan.summary.cost <= 0.1 * plan.summary.cost_total
        assert name not in {
            f"{a.topic}-{a.partition}" for a in plan.actions if a.kind != "leadership"
        }


def test_a_partition_that_is_too_large_stays_while_others_help() -> None:
    snapshot, name = _huge(0.2)
    goals = {"goals": [{"goal": "UsageDistribution", "resource": "disk"}]}
    calm = {"settle": 0, "goal_violations": {"cooldown": 0}}
    stage = Stage(snapshot, {"max_share_per_cycle": 0.1, **calm}, goals=goals)
    kinds = stage.rounds(8)
    assert len(stage.executor.plans) > 1
    moved = {
        f"{a.topic}-{a.partition}"
        for plan in stage.executor.plans
        for a in plan.actions
        if a.kind != "leadership"
    }
    assert name not in moved
    # the others have helped as far as they can
    assert kinds[-1] == "nothing_helps"
    assert f"{name}: load (disk) of a single replica is" in stage.reason


@settings(max_examples=4)
@given(share=st.floats(0.001, 1), seed=st.integers(0, 50))
def test_no_cycle_moves_more_than_its_share(share: float, seed: int) -> None:
    stage = Stage(
        skewed(brokers=4, partitions=60, seed=seed), {"max_share_per_cycle": share, "settle": 0}
    )
    stage.rounds(4)
    for plan in stage.executor.plans:
        assert plan.summary.cost <= share * plan.summary.cost_total * (1 + 1e-9)


@pytest.mark.parametrize("resources", [(), ("disk",)])
def test_nor_while_loads_or_even_sizes_are_not_known(resources: tuple[str, ...]) -> None:
    stage = Stage(
        skewed(rack_violations=0.9).with_resources(resources),
        {"max_share_per_cycle": 0.1, "settle": 0},
    )
    stage.model.known = 0.0
    stage.rounds(31)
    (plan,) = stage.executor.plans
    assert 0 < plan.summary.cost <= 0.1 * plan.summary.cost_total * (1 + 1e-9)
    assert "cut at 10 % of the cluster's" in stage.controller.decisions[-2].reason


def test_frozen_partitions_are_touched_by_no_operation() -> None:
    stage = Stage(skewed())
    stage.model.with_states(dead=[3])
    s = stage.model.cluster
    names = partition_names(s, np.arange(s.n_partitions) % 2 == 0)
    for operation in (
        Operation(frozen_partitions=names),
        Operation(kind="fix_offline_replicas", frozen_partitions=names),
        Operation(kind="remove_brokers", brokers=(2,), frozen_partitions=names),
        Operation(kind="demote_brokers", brokers=(2,), frozen_partitions=names),
        Operation(
            kind="change_replication_factor",
            replication_factor={".*": 4},
            frozen_partitions=names,
        ),
    ):
        plan = stage.balancer.propose(s, operation)
        assert len(plan)
        assert {f"{a.topic}-{a.partition}" for a in plan.actions}.isdisjoint(names)


STRICT: dict[str, Any] = {
    "goals": [
        {"goal": "RackAwareness"},
        {"goal": "UsageDistribution", "resource": "dsk"},
    ]
}


def test_a_goal_that_does_not_apply_keeps_nobody_from_healing() -> None:
    stage = Stage(even(), AT_ONCE, goals=STRICT)
    stage.model.with_states(dead=[3])
    assert stage.rounds(2) == ["waiting", "executed"]
    assert _of(stage, 3) == 0
    (begun,) = (d for d in stage.controller.decisions if d.kind == "started")
    assert "goals that do not apply are left out: goal UsageDistribution[dsk]" in begun.reason
    assert [*begun.facts["goals_left_out"]] == ["UsageDistribution[dsk]"]
    stage.rounds(10)
    # Nothing else is moved by half of the goals, and that is no matter of too little.
    assert {p.operation["kind"] for p in stage.executor.plans} == {"fix_offline_replicas"}
    assert stage.controller.decisions[-1].kind == "waiting"
    assert "nothing is rebalanced until this is fixed" in stage.reason


def test_replicas_that_are_missing_are_added_whatever_goals_apply() -> None:
    stage = Stage(even(), {"missing_replicas": {"rounds": 1, "topics": {".*": 4}}}, goals=STRICT)
    assert stage.rounds(1) == ["executed"]
    assert (stage.model.cluster.replication_factor == 4).all()


def test_one_stale_broker_does_not_read_as_if_nothing_was_moved() -> None:
    stage = Stage(even())
    stage.model.ages = {**dict.fromkeys(range(1, 7), 10.0), 3: 10_000.0}
    assert stage.rounds(1) == ["stale"]
    assert "nothing would be moved" not in stage.reason
    assert "broker 3 are 2.8 h old" in stage.reason
    assert (
        "nothing to do, by the last known loads: every broker whose loads are known is within"
        in (stage.reason)
    )
    stage.model.cluster = heavier(stage.model.cluster, 1, 4.0)
    assert stage.rounds(1) == ["executed"]
    stage = Stage(skewed())
    stage.model.ages = {**dict.fromkeys(range(1, 5), 10_000.0), 5: 1.0, 6: 1.0}
    assert stage.rounds(1) == ["waiting"]
    assert "it waits for loads for 30 min: the metrics of 4 of 6 brokers are stale" in stage.reason


@pytest.mark.parametrize("detector", ["dead_brokers", "dead_disks"])
def test_what_is_left_to_a_person_is_not_said_to_be_healed(detector: str) -> None:
    snapshot = even(disks_per_broker=2)
    stage = Stage(snapshot, {detector: {"act": False, "heal_after": "5m"}})
    if detector == "dead_brokers":
        stage.model.with_states(dead=[3])
    else:
        alive = np.ones(snapshot.n_disks, np.bool_)
        alive[0] = False
        stage.model.cluster = replace(snapshot, disk_alive=alive)
    stage.rounds(8)
    findings = [f for d in stage.controller.decisions for f in d.findings if f.kind == detector]
    assert {f.state for f in findings} == {"waiting", "ripe"}
    for found in findings:
        assert "healing it is left to a person" in found.sentence
        assert "healed after" not in found.sentence
        assert "re-created" not in found.sentence


def test_a_plan_that_was_begun_is_not_said_to_be_carried_out() -> None:
    stage = Stage(skewed(), {"settle": 0}, executor=Failing())
    stage.rounds(3)
    cooling = [d.reason for d in stage.controller.decisions if d.kind == "cooling"]
    assert cooling
    assert all("carried out" not in reason for reason in cooling)
    assert any("ago: started: " in reason for reason in cooling)


def test_other_clusters_hear_of_their_own_unit() -> None:
    s = skewed()
    states = replace(s, state_size=s.leader_load[:, s.resource("disk")], cost_unit="records")
    goals = {"goals": [{"goal": "UsageDistribution", "resource": "disk"}]}
    stage = Stage(states, {"max_share_per_cycle": 1e-9}, goals=goals)
    assert stage.rounds(1) == ["nothing_helps"]
    assert "(1e-07 % of the cluster's records)" in stage.reason
    assert "execute" not in stage.reason
    assert "bytes" not in stage.reason
    stage = Stage(states, {"max_share_per_cycle": 0.1})
    stage.rounds(3)
    said = [d.reason for d in stage.controller.decisions]
    assert any("cut at 10 % of the cluster's records (max_share_per_cycle)" in r for r in said)
    assert any("records moved" in r for r in said)
    assert not any("bytes" in r or " GB" in r or " TB" in r for r in said)
    cuts = [d.facts["cap"] for d in stage.controller.decisions if "cap" in d.facts]
    assert cuts[0]["cost_unit"] == "records"
    assert "bytes" not in cuts[0]


class Hot(Goal):
    """A goal of another package that does not say that it reads cpu."""

    scope: ClassVar = "broker"

    def score(self, state: State) -> Any:
        """1 if a broker uses little cpu."""
        return np.where(state.load("cpu") > 1e9, 0.0, 1.0)


@pytest.mark.parametrize("hard", [False, True])
def test_a_goal_that_reads_unknown_loads_unannounced_stops_no_healing_and_no_racks(
    hard: bool,
) -> None:
    snapshot = synthetic_snapshot(
        brokers=6, partitions=60, racks=3, rack_violations=0.1, utilization=0.2
    )
    stage = Stage(snapshot, AT_ONCE, goals=[RackAwareness(hard=True), Hot(hard=hard)])
    stage.model.known = 0.0
    assert stage.rounds(31)[-1] == "executed"
    stage.model.with_states(dead=[3])
    assert stage.rounds(2)[-1] == "executed"
    healed = next(d for d in reversed(stage.controller.decisions) if d.kind == "started")
    assert "no resource 'cpu'" in healed.reason
    assert "so it is left out" in healed.reason
    assert _of(stage, 3) == 0
