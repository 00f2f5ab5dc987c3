"""Plans of small clusters, compared with all placements and all safe orders of steps."""

from __future__ import annotations

from functools import cache

import pytest
from balancer_cases import by_hand, long

from balancer import Balancer, Budget, Plan
from balancer.planning.infeasibility import NO_ORDER
from balancer.verification.checker import check_plan
from benchmarks.small import Judgement, judged
from goals import RackAwareness, ResourceCapacity, UsageDistribution


def faults(one: Judgement) -> dict[str, object]:
    """What is wrong with a plan."""
    found = {
        "missed": one.missed,
        "not told apart": one.silent,
        "wrongly said": one.wrong,
        "again": one.again,
        "findings": one.faults,
    }
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize(
    "seed",
    [
        # the way to a placement that meets more leads through worse ones
        *(98, *long(41, 133, 144)),
        # a detour over a broker that is not the emptiest
        *long(113),
        # no safe steps lead to the best placement, but to another one that meets as much
        226,
        # no safe steps lead to any placement that meets as much
        *long(13),
        # the search found more where it started again
        *(55, *long(42, 197)),
        # a dead broker's replicas would take the room of what exceeds a limit
        *long(369, 537, 797),
        # and here no placement keeps the limit
        *long(601, 615, 856, 943),
        # nor one that is raised as little as possible all of them
        *long(581),
    ],
)
def test_a_small_cluster_reaches_what_a_safe_order_can(seed: int) -> None:
    assert faults(judged(seed)) == {}


@pytest.mark.parametrize("seed", [22, *long(20, 21, *range(23, 60))])
def test_small_clusters(seed: int) -> None:
    assert faults(judged(seed)) == {}


@cache
def blocked() -> Plan:
    """The two replicas of t-0 share a rack, and no broker has room while one changes places."""
    snapshot = by_hand(
        [(0, 1), (2,), (1,)],
        brokers=3,
        racks=(0, 0, 1),
        load=[50.0, 60.0, 20.0],
        capacity=100.0,
    )
    return Balancer([RackAwareness(), ResourceCapacity(resource="disk")]).propose(snapshot)


def test_what_no_safe_order_reaches_is_told_apart() -> None:
    plan = blocked()
    (unmet,) = plan.unmet
    assert unmet.reason.startswith(
        f"1 partition not content (t-0): {NO_ORDER} (t-1, broker 2 to 0: broker 0 would carry "
        "110 B, and ResourceCapacity[disk] allows 80 B); 2 allowed single actions would help, and "
        "all are stopped: 2 by ResourceCapacity[disk] (hard)"
    )
    assert "allow more where the steps are blocked" in unmet.remedy
    # what the statement is checked against
    assert 2 in plan.unreached["t-0"]
    assert plan.unreached["t-1"] != (2,)
    assert check_plan(plan.snapshot, plan.document()).ok


@pytest.mark.parametrize(
    "unreached",
    [
        # t-0 is still twice in a rack
        {"t-0": (1, 0), "t-1": (1,)},
        # one replica less, a broker twice, unknown brokers and partitions
        {"t-0": (0,)},
        {"t-0": (2, 2)},
        {"t-0": (0, 7)},
        {"t-0": (0, 2), "t-9": (1,)},
        {"nothing": (1,)},
        {},
    ],
)
def test_a_placement_that_is_stated_is_checked(unreached: dict[str, tuple[int, ...]]) -> None:
    plan = blocked()
    forged = plan.document().model_copy(update={"unreached": unreached})
    forged = forged.model_copy(update={"digest": forged.content_digest})
    kinds = {fault.kind for fault in check_plan(plan.snapshot, forged).mismatches}
    assert kinds & {"unmet", "unreached"}


def test_a_placement_that_no_reason_refers_to_is_a_fault() -> None:
    snapshot = by_hand([(0,), (0,)], brokers=2)
    document = Balancer([RackAwareness()]).propose(snapshot).document()
    forged = document.model_copy(update={"unreached": {"t-0": (1,)}})
    assert "unreached" in {f.kind for f in check_plan(snapshot, forged).mismatches}


@pytest.mark.parametrize(
    ("exhausted", "former"),
    [
        ("budget", "the limit on moves or cost was reached"),
        ("seconds", "the limit on seconds was reached"),
    ],
)
def test_reasons_of_earlier_versions_are_accepted(exhausted: str, former: str) -> None:
    snapshot = by_hand([(0,), (0,), (0,), (0,)], brokers=2, load=[10.0] * 4)
    goal = UsageDistribution(resource="disk")
    plan = Balancer([goal], budget=Budget(moves=1)).propose(snapshot)
    document = plan.document()
    (unmet,) = document.unmet
    what = unmet.reason.partition(":")[0]
    former_plan = document.model_copy(
        update={
            "unmet": (unmet.model_copy(update={"reason": f"{what}: {former}"}),),
            "summary": document.summary.model_copy(update={"exhausted": exhausted}),
        }
    )
    former_plan = former_plan.model_copy(update={"digest": former_plan.content_digest})
    assert check_plan(snapshot, former_plan).ok
    other = former_plan.summary.model_copy(update={"exhausted": "stopped"})
    assert not check_plan(snapshot, former_plan.model_copy(update={"summary": other})).ok
