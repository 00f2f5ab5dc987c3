"""Decides whether the gain of a plan is worth what it costs to move."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from balancer.controller.settings import GoalViolations
from balancer.planning.figures import balancedness
from balancer.planning.plan import Plan
from balancer.problem.movement_cost import copy_cost
from cluster_model.placement import Placement
from cluster_model.snapshot import Snapshot

# Two ways to add up the weights of the same goals differ by less.
_ROUNDING = 1e-6


def cluster_cost(snapshot: Snapshot) -> float:
    """The cost of copying every replica once, in the unit of plans.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> cluster_cost(synthetic_snapshot(brokers=3, partitions=9, racks=3)) > 0
    True
    """
    s = snapshot
    lead, follow = copy_cost(Placement(s))
    led = (s.leader >= 0).astype(np.int64)
    return float((lead * led + follow * (s.replication_factor - led)).sum())


def as_configured(plan: Plan, kept: Collection[str] = ()) -> tuple[float, float]:
    """Balancedness before and after a plan; goals that only this plan keeps count as soft."""
    results = plan.goal_results
    hard = [r.hard and r.goal not in kept for r in results]
    return (
        balancedness(hard, [r.met_before for r in results]),
        balancedness(hard, [r.met_after for r in results]),
    )


def gain(plan: Plan, kept: Collection[str] = ()) -> dict[str, float]:
    """The gain and the cost of a rebalance.

    Parameters
    ----------
    plan
        The plan.
    kept
        Soft goals that are hard in it only because they are met.

    Returns
    -------
    dict
        ``balancedness``: gain in hundredths of its 100. ``worst_ratio``: by how many fair
        shares the load of a column's most loaded broker falls, for the column that gains
        most. ``hard``: cells of hard goals that become content. ``cost``: what is
        copied, as a share of all replicas.
    """
    s, (before, after) = plan.summary, as_configured(plan, kept)
    ratios = [c.before.worst_ratio - c.after.worst_ratio for c in plan.columns.values()]
    mended = [g.unmet_cells_before - g.unmet_cells_after for g in plan.goal_results if g.hard]
    return {
        "balancedness": (after - before) / 100,
        "worst_ratio": max(ratios, default=0.0),
        "hard": float(max(mended, default=0)),
        "cost": s.cost / s.cost_total if s.cost_total > 0 else 0.0,
    }


def worsens(plan: Plan) -> bool:
    """Whether the goals that are met after a plan count for less than those that were before."""
    return plan.summary.balancedness_after < plan.summary.balancedness_before - _ROUNDING


def insufficient_gain(found: dict[str, float], settings: GoalViolations, unit: str) -> str | None:
    """Why the gain isn't worth its cost, which is in a unit; None if it is.

    Examples
    --------
    >>> insufficient_gain({"balancedness": 0.0, "worst_ratio": 0.01, "hard": 0.0, "cost": 0.1},
    ...     GoalViolations(), "bytes")
    'it gains 0.01 (balancedness or worst load), at least 0.02 expected for 10 % of the bytes'
    """
    best = max(found["balancedness"], found["worst_ratio"])
    needed = max(settings.min_gain, settings.min_gain_per_share * found["cost"])
    if found["hard"] > 0:
        return None
    if found["balancedness"] < -_ROUNDING:
        return f"it lowers balancedness by {-100 * found['balancedness']:.2g}"
    if best >= needed:
        return None
    return (
        f"it gains {best:.2g} (balancedness or worst load), at least {needed:.2g} expected for "
        f"{100 * found['cost']:.3g} % of the {unit}"
    )


def gain_record(found: dict[str, float]) -> dict[str, Any]:
    """The figures as facts of a decision."""
    return {f"gain_{name}" if name != "cost" else "cost": value for name, value in found.items()}
