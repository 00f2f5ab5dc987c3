"""The reasons of a plan for unmet goals without a proof are true of every single action."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from balancer_cases import by_hand

from balancer import Balancer, Budget, Operation, Plan
from balancer.planning.parameters import PlanningParameters
from balancer.problem.problem import Problem
from balancer.search.parameters import SearchParameters
from balancer.strategies import ProgressCallback, Proposal
from balancer.strategies.local_search import _longer as longer_
from balancer.verification.checker import check_plan
from cluster_model import Snapshot
from goals import (
    DiskCapacity,
    Goal,
    PotentialNetworkOut,
    ReplicaCapacity,
    ReplicaDistribution,
    ResourceCapacity,
    UsageDistribution,
)


def reason(
    goals: Sequence[Goal],
    snapshot: Snapshot,
    operation: Operation | None = None,
    *,
    of: str,
    planning: PlanningParameters | None = None,
) -> str:
    plan: Plan = Balancer(goals, planning=planning).propose(snapshot, operation)
    assert check_plan(snapshot, plan.document()).ok
    (found,) = [u for u in plan.unmet if u.goal == of]
    assert not found.proven
    return found.reason


def excluded(movable: int, held: int = 1001) -> Snapshot:
    """Broker 0 is too full; one of its partitions may leave, to a broker with as many others."""
    topics = ["x"] * held
    topics[movable] = "y"
    order = sorted(range(held), key=lambda p: topics[p])
    return by_hand(
        [(0,)] * held + [(1,)] * held,
        brokers=2,
        load=[1.0] * held + [0.001] * held,
        topics=[*(topics[p] for p in order), *["z"] * held],
        capacity=held - 1.0,
    )


@pytest.mark.parametrize(
    "planning", [None, PlanningParameters(examined_actions=4, sampled_actions=4)]
)
def test_one_of_a_thousand_that_may_be_moved_is_seen(planning: PlanningParameters | None) -> None:
    goals = [ResourceCapacity(resource="disk"), ReplicaCapacity(limit=1001)]
    found = reason(
        goals,
        excluded(500),
        Operation(excluded_topics=("x", "z")),
        of="ResourceCapacity[disk]",
        planning=planning,
    )
    assert (
        "1 allowed single action would help, and it is stopped: 1 by ReplicaCapacity (hard); the "
        "best, moving y-0 from broker 0 to broker 1, because it would make ReplicaCapacity (hard) "
        "worse"
    ) in found


def test_where_nothing_may_be_moved_no_action_helps() -> None:
    goals = [ResourceCapacity(resource="disk"), ReplicaCapacity(limit=1001)]
    found = reason(
        goals, excluded(500), Operation(excluded_topics=(".*",)), of="ResourceCapacity[disk]"
    )
    assert "no allowed single action helps" in found


@pytest.mark.parametrize(("most", "said"), [(10, "of [0-9]+"), (3002, "of 7[0-9]{2}")])
def test_of_very_many_actions_only_what_was_looked_at_is_said(most: int, said: str) -> None:
    goals = [ResourceCapacity(resource="disk"), ReplicaCapacity(limit=3001)]
    found = reason(
        goals,
        excluded(500, 3001),
        Operation(excluded_topics=("z",)),
        of="ResourceCapacity[disk]",
        planning=PlanningParameters(examined_actions=most, sampled_actions=most),
    )
    assert re.search(
        f"{said} allowed single actions examined would help, and (it is|all are) stopped: ", found
    )


def test_a_move_between_disks_of_a_broker_is_an_action() -> None:
    snapshot = by_hand(
        [(0,), (0,), (0,)],
        brokers=1,
        load=[450.0, 450.0, 400.0],
        capacity=2000.0,
        disks={"/a": 1000.0, "/b": 1000.0},
        log_dirs=[("/a",), ("/a",), ("/b",)],
    )
    found = reason([DiskCapacity()], snapshot, of="DiskCapacity")
    assert "moving t-2 on broker 0 from /b to /a" in found or "on broker 0 from /a to /b" in found
    assert "it would make DiskCapacity (hard) worse" in found


def test_a_broker_that_has_too_little_may_be_given_more() -> None:
    # brokers 0 and 1 hold 105 each, 2 holds 90 of at least 91, in ten replicas
    snapshot = by_hand(
        [(0,), (0,), (0,), (1,), (1,), (1,)] + [(2,)] * 10,
        brokers=3,
        load=[50.0, 50.0, 5.0] * 2 + [9.0] * 10,
    )
    goals = [UsageDistribution(resource="disk", hard=True), ReplicaCapacity(limit=10)]
    operation = Operation(excluded_brokers_for_replicas=())
    found = reason(goals, snapshot, operation, of="UsageDistribution[disk]")
    assert re.search("to broker 2, because it would make ReplicaCapacity .hard. worse", found)


def test_a_goal_that_no_placement_meets_is_named_where_it_stops_lower_tiers() -> None:
    # both brokers carry more than their limit, and four of the five replicas are on broker 0
    snapshot = by_hand(
        [(0,), (0,), (0,), (0,), (1,)],
        brokers=2,
        resource="network_out",
        load=[100.0, 100.0, 100.0, 100.0, 400.0],
        capacity=300.0,
    )
    goals = [PotentialNetworkOut(tier=0), ReplicaDistribution(tier=1)]
    plan = Balancer(goals).propose(snapshot)
    *impossible, unmet = plan.unmet
    assert all(u.proven for u in impossible)
    assert re.search("4 by PotentialNetworkOut .tier 1, no placement meets it", unmet.reason)
    assert "it would make PotentialNetworkOut (tier 1) worse" in unmet.reason


def test_the_receivers_of_an_operation_are_named() -> None:
    snapshot = by_hand([(0,)] * 12 + [(1,)] * 2 + [(2,)] * 2, brokers=3, load=[1.0] * 16)
    operation = Operation(kind="add_brokers", brokers=(2,), excluded_topics=(".*",))
    found = reason([ReplicaDistribution(hard=True)], snapshot, operation, of="ReplicaDistribution")
    assert "only rules forbid them: " in found
    assert "by add_brokers, which lets no other brokers receive replicas" in found
    assert "because topic t is excluded" in found


@pytest.mark.parametrize("held", [500.0, 600.0])
def test_a_new_replica_is_tried_on_every_disk(held: float) -> None:
    # the emptiest disk is too small for 300; the other has room beside 500, not beside 600
    snapshot = by_hand(
        [(0,), (1,)],
        brokers=2,
        load=[300.0, held],
        topics=["a", "b"],
        capacity=3000.0,
        disks={"/a": 300.0, "/b": 1000.0},
        log_dirs=[("/b",), ("/b",)],
    )
    operation = Operation(kind="change_replication_factor", replication_factor={"a": 2})
    plan = Balancer([DiskCapacity()]).propose(snapshot, operation)
    assert check_plan(snapshot, plan.document()).ok
    assert [a.destination_disk for a in plan.actions] == (["/b"] if held == 500 else [])
    assert plan.ok or "can take one more within DiskCapacity" in plan.unmet[0].reason


TIME = "plan with a limit of time, which the search uses to try more"
LONGER = "plan with a longer limit of time, which the search uses to try more"
UNLIMITED = (
    "plan with a limit of time and none on what is moved: the search then uses the time to try more"
)
ROUNDS = "plan with more improvement_rounds"
FREE = "plan without limits on what is moved: the search then makes improvement_rounds"


@pytest.mark.parametrize(
    ("limits", "rounds", "improved", "remedy"),
    [
        ({}, 0, None, TIME),
        ({"seconds": 1}, 0, "seconds", LONGER),
        # it has tried in vain: more time would be no use
        ({"seconds": 1}, 0, "nothing left", ""),
        ({}, 2, "rounds", ROUNDS),
        ({"seconds": 1}, 2, "seconds", LONGER),
        ({"seconds": 1, "moves": 9}, 0, None, UNLIMITED),
        ({"moves": 9}, 2, None, FREE),
    ],
)
def test_the_remedy_of_a_search_is_what_it_would_use(
    limits: dict[str, Any], rounds: int, improved: Any, remedy: str
) -> None:
    def search(aggregate: str) -> Any:
        return SimpleNamespace(
            serve=1,
            parameters=SearchParameters(improvement_rounds=rounds),
            scorer=SimpleNamespace(
                tiers=[SimpleNamespace(goals=[0])],
                goals=[SimpleNamespace(aggregate=aggregate)],
                met=lambda i: False,
            ),
        )

    assert longer_(search("min"), Budget(**limits), improved) == remedy
    assert longer_(search("sum"), Budget(**limits), improved) == ""


class EndsAtOnce:
    """A strategy that misses every action, and what would make it try more."""

    name = "ends at once"

    def __init__(self, longer: str) -> None:
        self.longer = longer

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        return Proposal(placement=problem.start.copy(), longer=self.longer)


@pytest.mark.parametrize(
    ("limits", "wrong"),
    [
        ({}, (LONGER, UNLIMITED, FREE)),
        ({"seconds": 1}, (TIME, UNLIMITED, FREE)),
        ({"moves": 9}, (TIME, LONGER, ROUNDS)),
    ],
)
def test_a_remedy_that_contradicts_the_limits_of_the_plan_is_a_fault(
    limits: dict[str, Any], wrong: Sequence[str]
) -> None:
    snapshot = by_hand([(0,)] * 6 + [(1,)], brokers=2, load=[1.0] * 7, capacity=20.0)
    for longer in ("", "ask again", TIME, LONGER, UNLIMITED, ROUNDS, FREE):
        strategy = EndsAtOnce(longer)
        goals = [UsageDistribution(resource="disk")]
        plan = Balancer(goals, strategy=strategy, budget=Budget(**limits)).propose(snapshot)
        (unmet,) = plan.unmet
        assert "nothing stops" in unmet.reason
        assert unmet.remedy == longer
        found = check_plan(snapshot, plan.document()).mismatches
        assert [fault.kind for fault in found] == ["unmet"] * (longer in wrong)
        assert all(f"remedy {longer!r} stated" in fault.text for fault in found)
