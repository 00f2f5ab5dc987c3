"""Properties of every plan, on generated clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from balancer_cases import QUICK, examples
from hypothesis import assume, given
from hypothesis import strategies as st

from balancer import Balancer, Budget, Operation, OperationError, Plan
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import BrokerState
from goals import Goal, applicable, load_goals

KINDS = (
    "rebalance",
    "add_brokers",
    "remove_brokers",
    "demote_brokers",
    "fix_offline_replicas",
    "change_replication_factor",
)
PROFILES = ("default", "cruise-control", "autobalancer")
MORE: list[Goal] = load_goals(
    {
        "goals": [
            "RackAwareDistribution",
            "TopicLeaderDistribution",
            "TopicRackDistribution",
            "PreferredLeader",
            "DiskCapacity",
            "DiskUsageDistribution",
            {"goal": "MinTopicLeaders", "topics": "topic-0"},
        ]
    }
)


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a synthetic snapshot."""
    brokers = draw(st.integers(3, 9), "brokers")
    new = draw(st.integers(0, brokers // 3), "new")
    factor = draw(st.integers(1, min(3, brokers - new)), "factor")
    partitions = draw(st.integers(3, 50), "partitions")
    return {
        "brokers": brokers,
        "partitions": partitions,
        "replication_factor": factor,
        "racks": draw(st.integers(1, brokers), "racks"),
        "topics": draw(st.integers(1, min(4, partitions)), "topics"),
        "skew": draw(st.sampled_from([1.0, 2.0, 4.0]), "skew"),
        "load_sigma": draw(st.sampled_from([0.0, 1.0, 2.0]), "sigma"),
        "largest_partition": draw(st.sampled_from([0.05, 0.5]), "largest"),
        "utilization": draw(st.sampled_from([0.2, 0.5, 0.75, 0.9]), "utilization"),
        "rack_violations": draw(st.sampled_from([0.0, 0.3]), "violations"),
        "heterogeneity": draw(st.sampled_from([0.0, 1.0]), "heterogeneity"),
        "disks_per_broker": draw(st.sampled_from([0, 0, 3]), "disks"),
        "dead_brokers": draw(st.integers(0, min(2, brokers - new)), "dead"),
        "new_brokers": new,
        "seed": draw(st.integers(0, 1000), "seed"),
    }


@st.composite
def operations(draw: st.DrawFn, s: Snapshot, kinds: tuple[str, ...] = KINDS) -> Operation:
    living = s.broker_ids[s.broker_state != BrokerState.DEAD].tolist()
    assume(living)
    some = st.lists(st.sampled_from(living), min_size=1, max_size=2, unique=True).map(tuple)
    rarely = st.integers(0, 7).map(lambda n: n == 0)
    kind = draw(st.sampled_from(kinds), "kind")
    arguments: dict[str, object] = {"kind": kind}
    if kind in ("add_brokers", "remove_brokers", "demote_brokers"):
        arguments["brokers"] = draw(some, "brokers")
    if kind == "change_replication_factor":
        pattern = draw(st.sampled_from([".*", s.topics[0]]), "pattern")
        arguments["replication_factor"] = {pattern: draw(st.integers(1, 3), "factor")}
    if draw(rarely, "topics excluded"):
        arguments["excluded_topics"] = (draw(st.sampled_from(s.topics), "topic"),)
    for name in ("excluded_brokers_for_replicas", "excluded_brokers_for_leadership"):
        if draw(rarely, name):
            arguments[name] = draw(some, name)
    return Operation.model_validate(arguments)


@st.composite
def goal_lists(draw: st.DrawFn, s: Snapshot) -> list[Goal]:
    goals = load_goals(draw(st.sampled_from(PROFILES), "profile"))
    if draw(st.booleans(), "some goals only"):
        every = applicable([*goals, *(g for g in MORE if _is_new(g, goals))], s, strict=False)
        chosen = draw(st.sets(st.sampled_from(range(len(every))), min_size=1), "goals")
        goals = [every[i] for i in sorted(chosen)]
    return applicable(goals, s, strict=False)


def _is_new(goal: Goal, goals: list[Goal]) -> bool:
    return goal.name not in {g.name for g in goals}


class Case:
    """A plan to be made; written down as what makes it again."""

    def __init__(
        self, arguments: dict[str, Any], goals: list[Goal], operation: Operation, budget: Budget
    ) -> None:
        self.arguments, self.goals, self.operation, self.budget = (
            arguments,
            goals,
            operation,
            budget,
        )
        self.snapshot = synthetic_snapshot(**arguments)

    def __repr__(self) -> str:
        goals = [(type(g).__name__, g.model_dump(exclude_defaults=True)) for g in self.goals]
        return f"Case({self.arguments}, {goals}, {self.operation!r}, {self.budget!r})"

    def propose(self) -> Plan:
        try:
            strategy: Any = QUICK if self.arguments["seed"] % 4 else "goals"
            return Balancer(self.goals, budget=self.budget, strategy=strategy).propose(
                self.snapshot, self.operation
            )
        except OperationError:
            assume(False)
            raise


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> Case:
    arguments = draw(clusters())
    s = synthetic_snapshot(**arguments)
    budget = Budget()
    if draw(st.booleans(), "a budget"):
        size = float(s.broker_load()[:, 3].sum())
        budget = draw(
            st.sampled_from(
                [Budget(moves=0), Budget(moves=5), Budget(bytes=0.0), Budget(bytes=0.02 * size)]
            ),
            "budget",
        )
    return Case(arguments, draw(goal_lists(s)), draw(operations(s, kinds)), budget)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_plan_is_sound_keeps_its_budget_and_is_made_again(kind: str) -> None:
    @examples(2)
    @given(cases((kind,)))
    def check(case: Case) -> None:
        before = replace(case.snapshot)
        plan = case.propose()
        report = check_plan(case.snapshot, plan.document())
        assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)][:10]
        plan.placement.check()
        final = plan.final_snapshot()  # validates itself
        load = plan.placement.recompute("broker", "load.disk")
        assert final.broker_load()[:, 3] == pytest.approx(load)
        s = plan.summary
        if case.budget.moves is not None:
            assert s.replica_moves + s.disk_moves + s.replicas_added <= case.budget.moves
        if case.budget.bytes is not None:
            assert s.cost <= case.budget.bytes
        if case.arguments["seed"] % 2:
            assert case.propose().to_json() == plan.to_json()
        assert case.snapshot == before

    check()


@pytest.mark.slow
@examples(2)
@given(st.integers(4, 9), st.sampled_from([0.2, 0.4]), st.integers(0, 1000))
def test_what_is_balanced_is_left_alone(brokers: int, utilization: float, seed: int) -> None:
    snapshot = synthetic_snapshot(
        brokers=brokers,
        partitions=10 * brokers,
        racks=brokers,
        load_sigma=0.5,
        utilization=utilization,
        seed=seed,
    )
    for profile in PROFILES:
        balancer = Balancer(profile)
        plan = balancer.propose(snapshot)
        if plan.ok:
            assert len(balancer.propose(plan.final_snapshot())) == 0
