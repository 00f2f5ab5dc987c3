"""The operation ``right_size``: how few brokers meet all hard goals, or how many to add."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, assert_sound, small

from balancer import Balancer, Budget, Operation, OperationError, Plan
from balancer.planning.document import Sizing
from balancer.planning.parameters import PlanningParameters
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from goals import Goal, RackAwareness, ReplicaCapacity, ReplicaDistribution, ResourceCapacity

HARD: list[Goal] = [
    RackAwareness(),
    ReplicaCapacity(limit=4),
    ResourceCapacity(resource="disk"),
    ResourceCapacity(resource="cpu"),
]


def sized(
    snapshot: Snapshot,
    goals: list[Goal] | str = "default",
    strategy: Any = QUICK,
    **options: Any,
) -> Plan:
    """The plan for the right size of a cluster, found sound by the checker."""
    operation = Operation(kind="right_size", options=options)
    plan = Balancer(goals, strategy=strategy).propose(snapshot, operation)
    assert plan.sizing is not None
    assert_sound(plan.snapshot, plan)
    return plan


def stated(plan: Plan) -> Sizing:
    assert plan.sizing is not None
    return plan.sizing


def fits(s: Snapshot, kept: tuple[int, ...]) -> bool:
    """Whether some placement on the kept brokers alone meets the hard goals: all are looked at."""
    r = [s.resources.index(name) for name in ("disk", "cpu")]
    limit = s.capacity[:, r] * np.array([0.8, 0.7]) * (1 + 1e-9)
    rack = s.broker_rack.tolist()
    factor = s.replication_factor.tolist()
    load = np.zeros((s.n_brokers, len(r)))
    count = [0] * s.n_brokers
    order = sorted(range(s.n_partitions), key=lambda p: -float(s.leader_load[p, r[1]]))

    def place(at: int) -> bool:
        if at == len(order):
            return True
        p = order[at]
        for leader, rest in product(kept, combinations(kept, factor[p] - 1)):
            chosen = (leader, *rest)
            if len({rack[b] for b in chosen}) < factor[p] or len({*chosen}) < factor[p]:
                continue
            loads = [s.leader_load[p, r], *[s.follower_load[p, r]] * len(rest)]
            if any(count[b] >= 4 for b in chosen) or any(
                (load[b] + x > limit[b]).any() for b, x in zip(chosen, loads, strict=True)
            ):
                continue
            for b, x in zip(chosen, loads, strict=True):
                load[b] += x
                count[b] += 1
            found = place(at + 1)
            for b, x in zip(chosen, loads, strict=True):
                load[b] -= x
                count[b] -= 1
            if found:
                return True
        return False

    return place(0)


def fewest(s: Snapshot) -> int | None:
    """The fewest brokers on which some placement meets the hard goals; None if all are too few."""
    sets = (kept for k in range(1, s.n_brokers + 1) for kept in combinations(range(s.n_brokers), k))
    return next((len(kept) for kept in sets if fits(s, kept)), None)


@pytest.mark.parametrize("seed", range(24))
def test_the_number_is_the_one_that_enumeration_finds(seed: int) -> None:
    draw = np.random.default_rng(seed)
    s = synthetic_snapshot(
        brokers=int(draw.integers(3, 6)),
        partitions=int(draw.integers(3, 6)),
        racks=int(draw.integers(1, 4)),
        replication_factor=int(draw.integers(1, 3)),
        topics=2,
        utilization=float(draw.uniform(0.1, 0.8)),
        heterogeneity=float(draw.choice([0.0, 0.5])),
        seed=seed,
    )
    best = fewest(s)
    # of two the best number needs a thorough search
    strategy = "goals" if seed in (11, 17) else QUICK
    found = stated(sized(s, [*HARD, ReplicaDistribution(tier=1)], strategy))
    if best is None:
        # a plan for a larger cluster, or none: the certificate must not be above what exists
        assert not found.met or found.added
        return
    assert found.least <= best
    assert (found.met, found.brokers) == (True, best)


@cache
def usual() -> Plan:
    return sized(small())


def test_the_other_brokers_end_empty() -> None:
    plan = usual()
    found = stated(plan)
    assert found.brokers == 6 - len(found.emptied) == 3
    gone = np.isin(plan.snapshot.broker_ids, found.emptied)
    assert not gone[plan.placement.replica_broker].any()
    assert plan.verdict is not None
    assert plan.verdict.fulfilled
    assert found.proof == "certificate"
    assert "fewer cannot" in found.text


def test_brokers_are_added_in_the_snapshot_of_the_plan_where_all_are_too_few() -> None:
    snapshot = small(utilization=0.95)
    plan = sized(snapshot)
    found = stated(plan)
    assert found.added == (7, 8, 9)
    assert plan.snapshot.n_brokers == found.brokers == 9
    assert snapshot.n_brokers == found.brokers_before == 6
    assert all(g.met_after for g in plan.goal_results if g.hard)
    # two more are too few: nothing else than the certificate says so
    less = stated(sized(snapshot, max_brokers=8))
    assert not less.met
    assert less.proof == "none"


def test_brokers_that_a_missing_rack_needs_are_not_said_to_be_left_unsearched() -> None:
    goals: list[Goal] = [RackAwareness(), ResourceCapacity(resource="disk")]
    found = stated(sized(small(racks=2, replication_factor=3, partitions=12), goals))
    assert (found.brokers, found.added, found.met) == (7, (7,), True)
    # with the six there are, a plan was tried
    assert (found.proof, found.fewer_tried) == ("search", 1)
    assert "no plan was found for 1 choice" in found.text


def test_headroom_lowers_each_hard_limit() -> None:
    plan = sized(small(), headroom=0.2)
    assert stated(plan).brokers == 4
    limits = {g["name"]: g.get("threshold") for g in plan.goals}
    assert limits["ResourceCapacity[disk]"] == pytest.approx(0.64)
    assert limits["ResourceCapacity[cpu]"] == pytest.approx(0.56)
    assert {g["name"]: g for g in plan.goals}["ReplicaCapacity"]["limit"] == 8000


def test_the_number_stays_within_what_the_request_asks_for() -> None:
    found = stated(sized(small(), min_brokers=5))
    assert (found.brokers, found.proof) == (5, "minimum")
    found = stated(sized(small(), max_brokers=4))
    assert found.brokers == 3
    # more brokers than there are, although fewer would do
    found = stated(sized(small(), min_brokers=8))
    assert (found.brokers, len(found.added)) == (8, 2)


def test_what_no_number_of_brokers_helps_is_said() -> None:
    # a single replica is larger than a broker
    snapshot = small(partitions=6, utilization=1.5, racks=1)
    plan = sized(snapshot, [ResourceCapacity(resource="disk", threshold=0.05)])
    assert not stated(plan).met
    assert stated(plan).text.startswith("no number of brokers meets all hard goals: Resource")
    assert "of a single replica" in stated(plan).text


def test_brokers_that_may_not_receive_stay() -> None:
    operation = Operation(kind="right_size", destinations=(1, 2, 3, 4))
    plan = Balancer("default", strategy=QUICK).propose(small(), operation)
    assert_sound(plan.snapshot, plan)
    assert not {5, 6} & {*stated(plan).emptied}


def test_a_limit_on_moves_ends_the_plan_and_not_the_search() -> None:
    operation = Operation(kind="right_size")
    plan = Balancer(budget=Budget(moves=5), strategy=QUICK).propose(small(), operation)
    assert stated(plan).brokers == 3
    assert plan.summary.exhausted == "budget"
    assert plan.summary.replica_moves == 5
    assert_sound(plan.snapshot, plan)


def test_named_brokers_are_emptied_without_a_search() -> None:
    operation = Operation(kind="right_size", brokers=(2,))
    plan = Balancer("default").propose(small(), operation)
    assert plan.sizing is None
    assert plan.verdict is not None
    assert plan.verdict.sentence == "broker 2 is empty"
    assert_sound(plan.snapshot, plan)


def test_the_search_ends_where_its_parameters_say() -> None:
    snapshot = synthetic_snapshot(
        brokers=9, partitions=30, racks=3, replication_factor=3, utilization=0.6, heterogeneity=0.5,
        seed=2,
    )  # fmt: skip
    tried = []
    for planning in (PlanningParameters(), PlanningParameters(sized_choices=1)):
        balancer = Balancer(planning=planning, strategy=QUICK)
        plan = balancer.propose(snapshot, Operation(kind="right_size"))
        tried.append(stated(plan).fewer_tried)
    assert tried == [2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_brokers": 0}, "min_brokers"),
        ({"headroom": 1}, "headroom"),
        ({"min_brokers": 4, "max_brokers": 3}, "min_brokers 4 is more than max_brokers 3"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OperationError, match=message):
        Balancer("default").propose(small(), Operation(kind="right_size", options=options))


@pytest.mark.parametrize(
    "changes",
    [
        {"brokers": 2},
        {"brokers_before": 7},
        {"emptied": (1,)},
        {"added": (77,)},
        {"met": False},
        {"least": 4},
        {"proof": "search"},
        {"fewer_tried": 3},
    ],
)
def test_a_forged_size_is_found(changes: dict[str, Any]) -> None:
    document = usual().document()
    assert document.sizing is not None
    forged = document.model_copy(update={"sizing": document.sizing.model_copy(update=changes)})
    found = check_plan(small(), forged)
    assert any("sizing" in str(fault) for fault in found.mismatches)
