"""A limit of seconds: every part of the work looks at it, and planning has its share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_strategies import requested, stream

from balancer import Albic, Balancer, Budget, Milp
from balancer.allocation.drain import revert_unnecessary
from balancer.allocation.flux import flux
from balancer.allocation.problem import Allocation
from balancer.planning.parameters import PlanningParameters
from balancer.problem.deadline import Deadline
from balancer.strategies import Problem, Proposal
from balancer.verification.checker import check_plan

_PAST = Deadline(at=0.0)


def allocation() -> Allocation:
    """Units of which all but one are on the first node."""
    return Allocation(
        load=np.ones(12),
        cost=np.ones(12),
        node=np.zeros(12, np.int64),
        weight=np.ones(3),
        removed=np.zeros(3, np.bool_),
        budget=np.inf,
    )


def test_flux_and_the_way_back_end_in_time() -> None:
    p = allocation()
    assert (flux(p, _PAST) == p.node).all()
    assert (flux(p) != p.node).any()
    moved = np.arange(12) % 3
    assert (revert_unnecessary(p, moved, np.inf, deadline=_PAST) == moved).all()
    assert (revert_unnecessary(p, moved, np.inf) == p.node).all()


@pytest.mark.parametrize("strategy", ["goals", Milp(rounds=10**6), Albic(rounds=10**6)], ids=str)
def test_a_plan_says_that_the_seconds_ended_its_search(strategy: Any) -> None:
    s = stream()
    plan = Balancer(requested(), strategy=strategy, budget=Budget(seconds=1e-9)).propose(s)
    assert plan.summary.exhausted == "seconds"
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


@pytest.mark.parametrize(
    ("scorings", "checks", "share"), [(0.0, 0.0, 1.0), (1e6, 0.0, 0.5), (0.0, 1e6, 0.5)]
)
def test_every_strategy_leaves_time_for_planning(
    scorings: float, checks: float, share: float
) -> None:
    given = list[float | None]()

    class Idle:
        name = "idle"

        def propose(self, problem: Problem, limits: Budget, *_: Any) -> Proposal:
            given.append(limits.seconds)
            return Proposal(placement=problem.start.copy())

    planning = PlanningParameters(reserved_scorings=scorings, reserved_checks=checks)
    budget = Budget(seconds=100.0)
    Balancer("default", strategy=Idle(), budget=budget, planning=planning).propose(stream())
    assert given[0] is not None
    assert given[0] <= share * 100
    # less than half of it is kept only where planning takes little
    assert (given[0] > 50) == (share == 1)
