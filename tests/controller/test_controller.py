"""Rounds of the controller: what it does, what it leaves alone, and what it reports."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, by_hand, long
from controller_cases import START, Applies, Ended, Progressed, Stage, Still, even, heavier, skewed
from waiting import LIMIT

from balancer import Balancer, Budget
from balancer.controller import Controller, Decision, Redactor, in_thread
from balancer.controller.cooldown import Cooldown
from balancer.controller.cost_benefit import cluster_cost, worsens
from cluster_model import BrokerState, Snapshot
from cluster_model.trust import Distrust, Doubt, frozen_partitions


def test_a_skewed_cluster_is_balanced_once_and_then_left_alone() -> None:
    stage = Stage(skewed(), goals="default")
    assert stage.rounds(1) == ["executed"]
    assert [d.kind for d in stage.controller.decisions] == ["started", "executed"]
    assert set(stage.rounds(100)) == {"balanced"}
    assert len(stage.executor.plans) == 1


def test_by_default_nothing_is_executed() -> None:
    stage = Stage(skewed(), {"execute": False})
    assert stage.rounds(3) == ["proposed", "cooling", "cooling"]
    assert not stage.executor.plans
    assert not stage.executor.recoveries
    assert "proposed" in stage.reason


def test_why_nothing_moved_is_said_as_data_and_as_a_sentence() -> None:
    stage = Stage(even())
    decision = stage.controller.step()
    assert decision.kind == "balanced"
    assert "every broker is within" in decision.reason
    worst = decision.facts["evenness"]["worst"]
    assert f"broker {worst['broker']}, {worst['column']}" in decision.reason
    assert worst["ratio"] == pytest.approx(max(decision.facts["evenness"]["ratios"].values()))


def test_why_it_moved_is_said_too() -> None:
    stage = Stage(skewed())
    stage.controller.step()
    started = stage.controller.decisions[0]
    assert started.cause == "goal_violations"
    assert "not met, worst" in started.reason
    assert started.plan is not None
    assert started.plan["replica_moves"] > 0
    assert {g["goal"] for f in started.findings for g in f.data["goals"]}


def test_decisions_survive_json() -> None:
    stage = Stage(skewed())
    stage.rounds(3)
    shown = json.loads(json.dumps(stage.controller.state()))
    assert [d["kind"] for d in shown["decisions"]] == [
        "balanced",
        "balanced",
        "executed",
        "started",
    ]
    assert shown["decisions"][2]["outcome"]["state"] == "done"


def test_a_small_violation_moves_nothing_and_says_so() -> None:
    snapshot = even()
    goals = {"goals": [{"goal": "UsageDistribution", "resource": "disk", "tier": 0}]}
    stage = Stage(snapshot, goals=goals)
    for factor in (1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.15, 1.2):
        stage.model.cluster = heavier(snapshot, 1, factor)
        kind = stage.controller.step().kind
        if kind != "balanced":
            break
    assert kind in ("trivial", "waiting")
    assert "short of content" in stage.reason
    assert not stage.executor.plans


def test_a_violation_between_trivial_and_large_counts_when_it_lasts() -> None:
    snapshot = heavier(even(), 1, 1.5)
    # whatever it is, it isn't large
    settings = {"goal_violations": {"margin": 1.0, "trivial": 0.0, "rounds": 3}}
    stage = Stage(snapshot, settings)
    assert stage.rounds(3) == ["waiting", "waiting", "executed"]


def test_a_plan_that_gains_too_little_is_dropped_with_its_figures() -> None:
    stage = Stage(skewed(), {"goal_violations": {"min_gain": 100.0}})
    # no hard goal is hurt: mending one is always worth it
    stage.model.cluster = skewed(rack_violations=0.0)
    decision = stage.controller.step()
    assert decision.kind == "insufficient_gain"
    assert "at least 1e+02 expected" in decision.reason
    assert decision.facts["gain_worst_ratio"] > 0
    assert decision.plan is not None
    assert stage.rounds(2) == ["cooling", "cooling"]


TIGHT: dict[str, Any] = {
    "goals": [
        {"goal": "RackAwareness", "tier": 0},
        {"goal": "UsageDistribution", "resource": "network_out", "tier": 1, "threshold": 1.02},
        {"goal": "UsageDistribution", "resource": "cpu", "tier": 2},
        {"goal": "ReplicaDistribution", "tier": 3},
    ]
}


def in_kilobytes(snapshot: Snapshot) -> Snapshot:
    """The snapshot with bytes of what a third of the brokers lead stated in kB."""
    leads = snapshot.replica_broker[snapshot.replica_is_leader]
    factor = np.where(leads % 3 == 0, 1e-3, 1.0)[:, None].repeat(len(snapshot.resources), 1)
    factor[:, snapshot.resource("cpu")] = 1
    leader, follower = snapshot.leader_load * factor, snapshot.follower_load * factor
    return replace(snapshot, leader_load=leader, follower_load=follower)


@pytest.mark.parametrize("seed", [1, *long(*range(2, 14))])
def test_no_plan_for_violated_goals_gives_up_more_than_it_meets(seed: int) -> None:
    balancer = Balancer(TIGHT, strategy=QUICK)
    wrong = in_kilobytes(
        balancer.propose(skewed(seed=seed, partitions=40, topics=4)).final_snapshot()
    )
    limit = Budget(cost=0.1 * cluster_cost(wrong))
    first = Balancer(TIGHT, strategy=QUICK, budget=limit).propose(wrong)
    stage = Stage(wrong, {"max_share_per_cycle": 0.1}, goals=TIGHT)
    stage.rounds(3)
    before = first.summary.balancedness_before
    for plan in stage.executor.plans:
        ended = balancer.propose(plan.final_snapshot()).summary.balancedness_before
        assert ended >= before - 1e-6
        before = ended
    told = [d.reason for d in stage.controller.decisions]
    said = re.findall(r"balancedness from ([\d.]+) to .*; as configured, it is ([\d.]+)", told[0])
    assert said or not worsens(first)
    for stated, after in said:
        # goals that are hard only in this plan weigh as they are configured
        assert float(stated) == pytest.approx(first.summary.balancedness_before, abs=0.5)
        assert float(after) >= float(stated)
        gained = 100 * stage.controller.decisions[0].facts["gain_balancedness"]
        assert gained == pytest.approx(float(after) - first.summary.balancedness_before, abs=0.5)


def test_what_hard_goals_need_is_moved_and_what_it_gives_up_is_said() -> None:
    # one copy a cycle, and two are needed: until then, both goals are not met
    on = [(0, 1), (0, 1), (2,), (2,), (3,), (3,)]
    snapshot = by_hand(on, brokers=4, racks=[0, 0, 1, 1], load=[1.0] * 6)
    usage = {"goal": "UsageDistribution", "resource": "disk", "threshold": 1.01}
    goals = {"goals": ["RackAwareness", usage]}
    stage = Stage(snapshot, {"max_share_per_cycle": 0.13}, goals=goals)
    stage.rounds(1)
    (plan,) = stage.executor.plans
    assert worsens(plan)
    started = stage.controller.decisions[0].reason
    assert "it lowers balancedness from " in started
    assert "because hard goals come first" in started


def test_what_was_moved_stays_for_a_while() -> None:
    stage = Stage(skewed(), {"goal_violations": {"cooldown": 0}})
    stage.rounds(1)
    moved = {(a.topic, a.partition) for a in stage.executor.plans[0].actions}
    stage.model.cluster = heavier(stage.model.cluster, 1, 3.0)
    stage.rounds(1)
    again = {(a.topic, a.partition) for plan in stage.executor.plans[1:] for a in plan.actions}
    assert again
    assert not moved & again
    assert stage.controller.state()["partitions_cooling"] == len(moved | again)
    stage.now += 7 * 3600
    assert stage.controller.state()["partitions_cooling"] == 0


def test_loads_are_not_judged_before_they_were_all_measured_after_the_last_move() -> None:
    stage = Stage(skewed(), {"goal_violations": {"cooldown": 0}})
    stage.rounds(1)
    ended = stage.now - 60
    # What changes is load: topics and replicas stay as they are.
    stage.model.cluster = heavier(stage.model.cluster, 1, 3.0)
    stage.model.measured_since = ended - 300
    assert stage.rounds(4) == ["cooling"] * 4
    assert "loads are judged again in 5 min, so that all of them are measured after" in stage.reason
    stage.model.measured_since = ended
    assert stage.rounds(1) == ["executed"]


def test_after_others_moved_leaders_loads_are_not_judged_either() -> None:
    snapshot = even()
    stage = Stage(snapshot)
    stage.rounds(1)
    stage.model.measured_since = stage.now - 300
    moved = replace(snapshot, leader=(snapshot.leader + 1) % 3)
    stage.model.cluster = heavier(moved, 1, 3.0)
    assert stage.rounds(1) == ["cooling"]
    stage.model.measured_since = stage.now
    assert stage.rounds(1) == ["executed"]


def test_what_may_be_noise_moves_nothing() -> None:
    stage = Stage(heavier(even(), 1, 1.5))
    stage.model.uncertain = dict.fromkeys(("cpu", "network_in", "network_out", "disk"), 0.2)
    assert set(stage.rounds(20)) == {"trivial"}
    assert "80 % of it for noise" in stage.reason
    stage.model.uncertain = {}
    assert stage.rounds(1) == ["executed"]


def test_what_a_stale_broker_holds_stays_and_the_rest_is_balanced() -> None:
    stage = Stage(skewed(partitions=240))
    stage.model.ages = dict.fromkeys(range(1, 7), 30.0) | {4: 1200.0}
    start = stage.model.cluster
    decision = stage.controller.step()
    assert decision.kind == "executed"
    (stale,) = [f for f in stage.controller.decisions[0].findings if f.kind == "stale_metrics"]
    assert "the metrics of broker 4 are 20 min old, at most 15 min expected" in stale.sentence
    frozen = frozen_partitions(start, [4])
    (plan,) = stage.executor.plans
    assert frozen.isdisjoint(f"{a.topic}-{a.partition}" for a in plan.actions)
    assert plan.summary.cost > 0
    del stage.model.ages[4]
    stage.controller.step()
    sentences = [f.sentence for f in stage.controller.decisions[-1].findings]
    assert any("broker 4 has reported no metrics" in sentence for sentence in sentences)
    reported = [e["event"] for e in stage.events]
    assert reported[0] == "finding"


def test_where_most_metrics_are_stale_nothing_is_rebalanced() -> None:
    stage = Stage(skewed())
    stage.model.ages = {1: 30.0, 2: 30.0}
    assert stage.rounds(1) == ["waiting"]
    assert "the metrics of 4 of 6 brokers are stale: broker 3 has reported no" in stage.reason
    stage.model.ages |= {3: 30.0, 4: 30.0}
    stage.model.distrusted = Distrust((Doubt(1, "totals", "it lies"), Doubt(2, "totals", "too")))
    assert stage.rounds(1) == ["waiting"]
    assert "the metrics of 4 of 6 brokers are stale or not trusted: " in stage.reason


def test_a_reporter_that_is_not_believed_freezes_what_it_holds() -> None:
    stage = Stage(skewed(partitions=240))
    start = stage.model.cluster
    doubt = Doubt(4, "totals", "broker 4 contradicts itself: 5 MB/s and 1 MB/s")
    stage.model.distrusted = Distrust((doubt,), frozenset({"t0000-0"}))
    assert stage.rounds(1) == ["started" if stage.controller.work else "executed"]
    (found,) = [
        f for f in stage.controller.decisions[0].findings if f.kind == "distrusted_reporters"
    ]
    assert found.subject == "broker 4"
    assert doubt.sentence in found.sentence
    (plan,) = stage.executor.plans
    touched = {f"{a.topic}-{a.partition}" for a in plan.actions}
    assert touched.isdisjoint(frozen_partitions(start, [4]))
    assert "t0000-0" not in touched


def test_doubt_alone_unbalances_nothing() -> None:
    """The others' fair shares are what they were."""
    stage = Stage(even())
    stage.model.distrusted = Distrust((Doubt(4, "totals", "broker 4 contradicts itself"),))
    assert set(stage.rounds(10)) == {"balanced"}


def test_healing_gives_replicas_to_brokers_whose_metrics_are_not_believed() -> None:
    # Two of three brokers of each rack would otherwise have nowhere to go.
    stage = Stage(even(), {"dead_brokers": {"heal_after": 0}})
    doubts = tuple(Doubt(b, "totals", f"broker {b}") for b in (1, 3, 4, 5, 6))
    stage.model.distrusted = Distrust(doubts)
    stage.model.with_states(dead=[2])
    assert stage.rounds(1) == ["executed"]
    assert not (stage.model.cluster.replica_broker == 1).any()


@pytest.mark.parametrize(
    ("known", "age", "why"),
    [
        (0.5, 30.0, "metrics of 50% of partitions found"),
        (1.0, 7200.0, "the metrics of 6 of 6 brokers are stale"),
    ],
)
def test_too_few_metrics_hold_back_goals_but_not_racks_and_healing(
    known: float, age: float, why: str
) -> None:
    stage = Stage(skewed(), {"dead_brokers": {"heal_after": 0}})
    stage.model.known, stage.model.ages = known, dict.fromkeys(range(1, 7), age)
    assert set(stage.rounds(30)) == {"waiting"}
    assert f"it waits for loads for 1 min: {why}" in stage.reason
    assert stage.rounds(1) == ["executed"]
    (plan,) = stage.executor.plans
    assert all(r.hard for r in plan.goal_results)
    assert plan.snapshot.resources == ("disk",)
    assert stage.rounds(1) == ["waiting"]
    assert why in stage.reason
    assert stage.controller.state()["loads_unknown"] == stage.reason
    assert stage.controller.state()["balancedness"] is None
    text = stage.controller.metrics.text()
    assert not {"counterpoise_balancedness", "counterpoise_violations"} & {*text.split()}
    stage.model.with_states(dead=[2])
    assert stage.rounds(1) == ["executed"]
    assert not (stage.model.cluster.replica_broker == 1).any()


def test_a_step_of_the_wall_clock_shifts_no_grace_and_no_cooldown() -> None:
    began = 1_000.0
    steady = [began]
    stage = Stage(even(), {"dead_brokers": {"heal_after": 1800}}, steady=lambda: steady[0])
    stage.model.with_states(dead=[3])

    def rounds(count: int) -> list[str]:
        kinds = []
        for _ in range(count):
            kinds += stage.rounds(1)
            steady[0] += 60.0
        return kinds

    assert set(rounds(10)) == {"waiting"}
    for step in (7200.0, -86_400.0):
        stage.now += step
        assert set(rounds(10)) == {"waiting"}
        latest = stage.controller.decisions[-1]
        # What is shown is the time of the wall clock.
        assert latest.time == stage.now - 60.0
        assert latest.findings[0].since == pytest.approx(latest.time - (steady[0] - 60.0 - began))
    assert rounds(1) == ["executed"]


def test_loads_are_judged_by_when_they_were_measured_whatever_the_wall_clock_does() -> None:
    stage: Stage = Stage(skewed(), steady=lambda: stage.now - START)
    assert stage.rounds(1) == ["executed"]
    stage.model.measured_since = stage.now - 600.0
    stage.model.cluster = skewed()
    assert stage.rounds(1) == ["cooling"]


def test_no_picture_at_all_is_said() -> None:
    stage = Stage(skewed())
    stage.model.known = -1.0
    assert stage.rounds(2) == ["waiting", "waiting"]
    assert "the cluster cannot be read: metrics of" in stage.reason


def test_a_dead_broker_is_reported_after_one_grace_and_healed_after_another() -> None:
    stage = Stage(even())
    stage.model.with_states(dead=[3])
    assert set(stage.rounds(15)) == {"waiting"}
    assert not stage.events
    assert set(stage.rounds(15)) == {"waiting"}
    assert [e["event"] for e in stage.events] == ["finding"]
    assert "it is healed after 30 min" in stage.events[0]["text"]
    assert stage.rounds(1) == ["executed"]
    assert not (stage.model.cluster.replica_broker == 2).any()
    assert "dead_brokers" in {d.cause for d in stage.controller.decisions}


def test_a_broker_that_comes_back_in_time_is_left_alone() -> None:
    stage = Stage(even())
    before = stage.model.cluster
    stage.model.with_states(dead=[3])
    stage.rounds(20)
    stage.model.cluster = before
    assert stage.rounds(1) == ["balanced"]
    stage.model.with_states(dead=[3])
    # the grace starts over
    assert set(stage.rounds(29)) == {"waiting"}
    assert not stage.executor.plans


def test_a_second_dead_broker_in_its_grace_keeps_its_replicas() -> None:
    stage = Stage(even())
    stage.model.with_states(dead=[3])
    stage.rounds(25)
    stage.model.with_states(dead=[5])
    stage.rounds(6)
    (plan,) = stage.executor.plans
    assert {a.source for a in plan.actions if a.kind == "move"} == {3}
    assert not {a.destination for a in plan.actions} & {3, 5}
    stage.rounds(30)
    assert {a.source for a in stage.executor.plans[1].actions if a.kind == "move"} == {5}


def test_too_many_dead_brokers_are_not_healed() -> None:
    stage = Stage(even(), {"dead_brokers": {"heal_after": 0}})
    stage.model.with_states(dead=[1, 2, 3])
    assert stage.rounds(2) == ["unfixable", "unfixable"]
    assert "3 of 6 brokers are dead, at most 2" in stage.reason
    assert not stage.executor.plans
    assert len([e for e in stage.events if e["event"] == "finding"]) == 3


def test_goals_wait_for_healing() -> None:
    stage = Stage(skewed())
    stage.model.with_states(dead=[3])
    assert stage.rounds(1) == ["waiting"]
    assert not stage.executor.plans


def test_a_dead_disk_is_emptied_after_its_grace() -> None:
    snapshot = even(disks_per_broker=2)
    stage = Stage(snapshot, {"dead_disks": {"heal_after": "2m"}})
    stage.model.with_states(bad_disks=[1])
    disks = stage.model.cluster.disk_alive.copy()
    disks[0] = False
    stage.model.cluster = replace(stage.model.cluster, disk_alive=disks)
    assert stage.rounds(3) == ["waiting", "waiting", "executed"]
    assert not (stage.model.cluster.replica_disk == 0).any()
    # Kafka cannot copy from a dead disk: other brokers hold other replicas to copy from.
    assert {a.kind for a in stage.executor.plans[0].actions} <= {"move", "leadership"}


def test_drained_brokers_are_emptied_and_stay_empty() -> None:
    stage = Stage(even(), {"drained_brokers": {"brokers": [2]}})
    assert stage.rounds(1) == ["executed"]
    stage.rounds(60)
    assert not (stage.model.cluster.replica_broker == 1).any()


def test_an_empty_broker_is_given_its_share() -> None:
    fresh = skewed(new_brokers=1)
    stage = Stage(fresh)
    stage.rounds(1)
    added = fresh.broker_ids[fresh.broker_state == BrokerState.NEW][0]
    held = np.bincount(stage.model.cluster.replica_broker, minlength=6)
    assert held[stage.model.cluster.broker_index([added])[0]] > 0


def test_missing_replicas_are_added() -> None:
    s = even()
    keep = np.ones(s.n_replicas, np.bool_)
    keep[s.replica_offset[0] + (s.leader[0] + 1) % 3] = False
    factor = s.replication_factor
    factor[0] -= 1
    leader = s.leader.copy()
    kept = s.replica_broker[keep]
    first = s.replica_broker[s.replica_offset[0] + s.leader[0]]
    leader[0] = int(np.flatnonzero(kept[: factor[0]] == first)[0])
    short = replace(
        s,
        replica_offset=np.concatenate([[0], np.cumsum(factor)]),
        replica_broker=kept,
        leader=leader,
    )
    stage = Stage(short, {"missing_replicas": {"rounds": 3}})
    assert stage.rounds(3) == ["waiting", "waiting", "executed"]
    assert (stage.model.cluster.replication_factor == 3).all()
    assert "1 partition of topic" in stage.controller.decisions[0].reason


@pytest.mark.parametrize("detector", ["goal_violations", "dead_brokers"])
def test_detectors_can_be_switched_off_or_only_tell(detector: str) -> None:
    for settings, kinds in (
        ({"enabled": False}, {"balanced", "waiting"}),
        ({"act": False}, {"reported", "waiting"}),
    ):
        stage = Stage(skewed(), {detector: {**settings}})
        if detector == "dead_brokers":
            stage.model.with_states(dead=[3])
            # it waits for the dead broker as long as it is seen
            if settings == {"enabled": False}:
                continue
        stage.rounds(29)
        assert not stage.executor.plans
        assert {d.kind for d in stage.controller.decisions} <= kinds


def test_on_standby_it_says_who_acts() -> None:
    class Vote:
        acting = False
        holder: str | None = None

    vote = Vote()
    stage = Stage(skewed(), vote=vote)
    assert stage.rounds(1) == ["standby"]
    assert "whether another one acts is not known" in stage.reason
    vote.holder = "counterpoise run, process 7 on kafka-1"
    assert stage.rounds(1) == ["standby"]
    assert "counterpoise run, process 7 on kafka-1 acts, or did last" in stage.reason


def test_on_standby_nothing_is_planned_and_the_next_to_act_cleans_up_first() -> None:
    class Vote:
        acting = False

    vote = Vote()
    stage = Stage(skewed(), vote=vote)
    stage.executor.found = Ended(state="rolled back")
    assert stage.rounds(3) == ["standby"] * 3
    assert stage.executor.recoveries == 0
    vote.acting = True
    stage.rounds(1)
    assert stage.executor.recoveries == 1
    assert [d.kind for d in stage.controller.decisions][3:] == ["recovered", "cooling"]


def test_on_standby_it_remembers_as_if_it_acted() -> None:
    """A grace that ran before the other one died does not start over."""

    class Vote:
        acting = False

    vote = Vote()
    stage = Stage(even(), {"dead_brokers": {"heal_after": "30m"}}, vote=vote)
    stage.model.with_states(dead=[3])
    assert set(stage.rounds(31)) == {"standby"}
    vote.acting = True
    assert stage.rounds(1) == ["executed"]
    assert stage.controller.decisions[-1].cause == "dead_brokers"


def test_an_execution_stops_when_it_is_not_certain_who_acts() -> None:
    class Vote:
        acting = True

    class Blocks:
        def __init__(self) -> None:
            self.stopped = threading.Event()

        def execute(self, plan: object, *, progress: Progressed = None) -> Ended:
            assert self.stopped.wait(LIMIT)
            return Ended(state="stopped")

        def recover(self, *, progress: Progressed = None) -> None:
            return None

        def left(self) -> tuple[str, ...]:
            return ()

        def stop(self) -> None:
            self.stopped.set()

    vote, executor = Vote(), Blocks()
    stage = Stage(skewed(), vote=vote, executor=executor, spawn=in_thread)
    stage.begin()
    assert stage.controller.step().kind == "executing"
    vote.acting = False
    assert stage.controller.wait(LIMIT)
    assert stage.controller.decisions[-1].kind == "executed"
    assert "stopped" in stage.reason


def test_an_executor_that_proves_the_vote_itself_goes_on_when_it_lapses_for_a_moment() -> None:
    class Vote:
        acting = True

    class Proves(Applies):
        def __init__(self) -> None:
            super().__init__(Still(skewed()))
            self.vote, self.over = Vote(), threading.Event()

        def execute(self, plan: object, *, progress: Progressed = None) -> Ended:
            assert self.over.wait(LIMIT)
            return Ended(state="stopped" if self.stops else "done")

    executor = Proves()
    stage = Stage(skewed(), vote=executor.vote, executor=executor, spawn=in_thread)
    stage.begin()
    executor.vote.acting = False
    assert stage.rounds(3) == ["standby"] * 3
    assert not stage.controller.wait(0.5)
    executor.vote.acting = True
    assert stage.controller.step().kind == "executing"
    executor.over.set()
    assert stage.controller.wait(LIMIT)
    assert stage.controller.decisions[-1].kind == "executed"
    assert executor.stops == 0


def test_healing_interrupts_a_rebalance() -> None:
    class Blocks:
        def __init__(self) -> None:
            self.stopped = threading.Event()
            self.plans: list[object] = []

        def execute(self, plan: object, *, progress: Progressed = None) -> Ended:
            self.plans.append(plan)
            if len(self.plans) == 1:
                assert self.stopped.wait(LIMIT)
                return Ended(state="stopped")
            return Ended()

        def recover(self, *, progress: Progressed = None) -> None:
            return None

        def left(self) -> tuple[str, ...]:
            return ()

        def stop(self) -> None:
            self.stopped.set()

    executor = Blocks()
    stage = Stage(
        skewed(), {"dead_brokers": {"heal_after": "1m"}}, executor=executor, spawn=in_thread
    )
    stage.begin()
    stage.model.with_states(dead=[3])
    assert stage.rounds(1) == ["executing"]
    assert stage.controller.step().kind == "stopping"
    # the execution may have ended by now, and said so
    said = [d.reason for d in stage.controller.decisions if d.kind == "stopping"]
    assert "it is stopped, because broker 3 has been dead" in said[-1]
    assert stage.controller.wait(LIMIT)
    stage.controller.step()
    assert stage.controller.wait(LIMIT)
    assert len(executor.plans) == 2
    assert executor.plans[1].operation["kind"] == "fix_offline_replicas"  # type: ignore[attr-defined]


def test_a_failed_execution_is_reported_and_the_rounds_go_on() -> None:
    class Fails:
        def execute(self, plan: object, *, progress: Progressed = None) -> Ended:
            raise RuntimeError("no way to ssl.key.password=hunter2")

        def recover(self, *, progress: Progressed = None) -> None:
            return None

        def left(self) -> tuple[str, ...]:
            return ()

        def stop(self) -> None: ...

    stage = Stage(skewed(), executor=Fails(), redactor=Redactor({"ssl.key.password": "hunter2"}))
    assert stage.rounds(2) == ["error", "cooling"]
    assert stage.controller.decisions[1].kind == "error"
    everything = repr(stage.controller.decisions) + repr(stage.events)
    assert "hunter2" not in everything
    assert "no way to" in everything


def test_what_a_failed_execution_left_is_cleaned_up_before_the_next() -> None:
    class Left:
        """Loses Kafka in the middle, and takes no plan before it has recovered."""

        def __init__(self) -> None:
            self.open = False
            self.reachable = True
            self.calls: list[str] = []

        def execute(self, plan: object, *, progress: Progressed = None) -> Ended:
            self.calls.append("execute")
            if self.open:
                raise RuntimeError("the journal holds an execution that did not end")
            self.open = not self.reachable
            return Ended(state="failed" if self.open else "done")

        def recover(self, *, progress: Progressed = None) -> Ended | None:
            self.calls.append("recover")
            if not self.open:
                return None
            self.open = not self.reachable
            return Ended(state="failed" if self.open else "done")

        def left(self) -> tuple[str, ...]:
            return ()

        def stop(self) -> None: ...

    executor = Left()
    cooldowns = {"goal_violations": {"cooldown": 0}, "moved_cooldown": 0, "settle": 0}
    stage = Stage(skewed(), cooldowns, executor=executor)
    executor.reachable = False
    stage.rounds(1)
    assert executor.calls == ["recover", "execute"]
    # It does not recover for ever, but whenever it would be in the way.
    stage.rounds(1)
    assert executor.calls == ["recover", "execute", "recover", "execute"]
    executor.reachable = True
    stage.rounds(2)
    assert executor.calls[4:6] == ["recover", "execute"]
    assert not executor.open


def test_run_goes_on_after_a_round_that_fails_and_stops_when_reported() -> None:
    stage = Stage(skewed(), {"interval": 0.001})
    controller: Controller = stage.controller
    failing = stage.model.snapshot
    calls: list[int] = []

    def snapshot() -> object:
        calls.append(1)
        if len(calls) <= 2:
            raise RuntimeError("a bug")
        if len(calls) > 4:
            controller.stop()
        return failing()

    def placement() -> object:
        raise RuntimeError("a bug too")

    stage.model.snapshot = snapshot  # type: ignore[assignment,method-assign]
    stage.model.placement = placement  # type: ignore[assignment,method-assign]
    controller.run()
    kinds = [d.kind for d in controller.decisions]
    assert kinds[0] == "error"
    assert "RuntimeError: a bug" in controller.decisions[0].reason
    assert "executed" in kinds


def test_a_hard_goal_that_is_broken_outweighs_the_cool_down_of_partitions() -> None:
    stage = Stage(skewed(), {"goal_violations": {"cooldown": 0}, "settle": 0})
    stage.rounds(1)
    moved = {(a.topic, a.partition) for a in stage.executor.plans[0].actions}
    stage.model.cluster = heavier(stage.model.cluster, 1, 20.0)
    stage.rounds(1)
    assert "ResourceCapacity" in stage.controller.decisions[-2].reason
    assert moved & {(a.topic, a.partition) for a in stage.executor.plans[-1].actions}


def test_where_nothing_helps_because_partitions_were_just_moved_that_is_said() -> None:
    stage = Stage(skewed(), {"goal_violations": {"cooldown": 0}, "settle": 0})
    stage.rounds(1)
    s = stage.model.cluster
    everything = [
        f"{s.topics[t]}-{n}" for t, n in zip(s.partition_topic, s.partition_number, strict=True)
    ]
    stage.controller._cooldown.moved(everything, stage.now)
    stage.model.cluster = heavier(s, 1, 1.5)
    assert stage.rounds(1) == ["nothing_helps"]
    assert "120 partitions stay, because they were moved recently" in stage.reason


def test_on_standby_people_are_not_reported_twice() -> None:
    class Vote:
        acting = False

    vote = Vote()
    stage = Stage(even(), {"dead_brokers": {"alert_after": 0}}, vote=vote)
    stage.model.with_states(dead=[3])
    stage.rounds(3)
    assert not stage.events
    assert stage.controller.decisions[-1].findings
    # Who takes over tells what lasts: it may have arisen while nobody acted.
    vote.acting = True
    stage.rounds(3)
    assert [e["event"] for e in stage.events].count("finding") == 1


def test_who_listens_to_decisions_and_fails_stops_nothing() -> None:
    def full(decision: Decision) -> None:
        raise OSError(28, "No space left on device")

    stage = Stage(skewed(), witness=full)
    kinds = stage.rounds(4)
    assert "started" in [d.kind for d in stage.controller.decisions] + kinds
    assert "error" not in kinds


@pytest.mark.slow
def test_what_is_moved_again_and_again_rests_ever_longer() -> None:
    snapshot = skewed(partitions=60, rack_violations=0.0)
    goals = {"goals": [{"goal": "UsageDistribution", "resource": "disk"}]}
    stage = Stage(snapshot, {"max_share_per_cycle": 0.1}, goals=goals)
    last: dict[tuple[str, int], list[float]] = {}
    for _ in range(30):
        before = len(stage.executor.plans)
        stage.rounds(1, 5 * 3600.0)
        for plan in stage.executor.plans[before:]:
            for named in {(a.topic, a.partition) for a in plan.actions}:
                last.setdefault(named, []).append(stage.now)
        # Whatever is moved, it is as if it had not been.
        stage.model.cluster = snapshot
    gaps = [np.diff(times) / 3600 for times in last.values()]
    often = [g for g in gaps if len(g) >= 3]
    assert often
    for g in often:
        assert (g[:3] >= [6, 24, 96]).all()
    assert max(map(len, gaps)) <= 4


def test_what_has_rested_for_long_counts_as_never_moved() -> None:
    cooldown = Cooldown()
    for now in (0.0, 10.0):
        cooldown.moved(["a-0"], now)
    assert cooldown.cooling(40.0, 10.0, 100.0, 4.0) == {"a-0"}
    assert not cooldown.cooling(60.0, 10.0, 100.0, 4.0)
    cooldown.moved(["a-0"], 60.0)
    assert cooldown.cooling(159.0, 10.0, 100.0, 4.0) == {"a-0"}
    assert not cooldown.cooling(161.0, 10.0, 100.0, 4.0)
    cooldown.moved(["a-0"], 161.0)
    assert not cooldown.cooling(172.0, 10.0, 100.0, 4.0)


def test_an_approved_proposal_waits_if_the_vote_is_lost_while_the_cluster_is_read() -> None:
    class Vote:
        acting = True

    vote = Vote()
    stage = Stage(skewed(), {"approval": {"mode": "manual"}}, vote=vote)
    assert stage.rounds(1) == ["proposed"]
    approvals = stage.controller.approvals
    [kept] = approvals.store.all()
    approvals.approve(kept.id, kept.digest, by="ann")
    look = stage.model.snapshot

    def loses(*arguments: Any, **more: Any) -> Any:
        vote.acting = False
        return look(*arguments, **more)

    stage.model.snapshot = loses  # type: ignore[method-assign]
    assert stage.rounds(1) == ["standby"]
    assert approvals.store.get(kept.id).state == "approved"
