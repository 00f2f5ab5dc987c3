"""The seed's mixed-integer linear program for HiGHS: as printed, and in neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from balancer.allocation.bound import lower_bound
from balancer.allocation.errors import AllocationError
from balancer.allocation.problem import Allocation, Solution
from balancer.allocation.program import Program, run_program
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Bools, Ints

# w1 and w2: the load distance weighs much more than the tightness of both sides.
_DISTANCE, _TIGHTNESS = 1000.0, 1.0
_TINY = 1e-9


@dataclass(frozen=True)
class MilpResult:
    """The result of a program: an allocation, and a bound on the load distance of all of them."""

    node: Ints
    bound: float
    proven: bool


def plain(problem: Allocation, *, deadline: Deadline) -> Solution:
    """Solve the program as printed, with plain HiGHS, for comparison (Section 4.3.1).

    There is no start solution; if HiGHS finds nothing in time, nothing moves.

    Parameters
    ----------
    problem
        The problem to solve.
    deadline
        When HiGHS stops at the latest.

    Raises
    ------
    AllocationError
        If HiGHS fails.
    """
    p = problem
    everything = np.ones(len(p.weight), np.bool_)
    found = _solve(
        p,
        p.node,
        everything,
        deadline=deadline,
        nodes=None,
        start=False,
    )
    over, under = p.sides(found.node)
    migrated = int((found.node != p.node).sum())
    return Solution(found.node, over, under, found.bound, migrated, p.spent(found.node))


def improve(
    problem: Allocation,
    node: Ints,
    chosen: Bools,
    *,
    nodes: int,
    deadline: Deadline = NEVER,
    downhill: bool = False,
) -> MilpResult:
    """Solve the program for the units on some of the nodes, which stay on those nodes.

    Parameters
    ----------
    problem
        The problem to solve.
    node : (U,) int
        An allocation within the budget.
    chosen : (N,) bool
        The nodes of the neighbourhood; if all, the bound applies to every allocation.
    nodes
        Maximum number of branch-and-bound nodes: the same number gives the same answer.
    deadline
        When to stop at the latest.
    downhill
        Consider only migrations from nodes above the mean to nodes below it at first: much
        smaller, but gives no bound.

    Returns
    -------
    MilpResult
        The unchanged allocation if none is better.
    """
    try:
        found = _solve(
            problem,
            node,
            chosen,
            deadline=deadline,
            nodes=nodes,
            start=True,
            downhill=downhill,
        )
    except AllocationError:
        # HiGHS takes no number of 1e15 or more.
        return MilpResult(node, 0.0, proven=False)
    before, after = problem.sides(node), problem.sides(found.node)
    if (max(after), sum(after)) < (max(before) - _TINY, np.inf):
        return found
    better = max(after) <= max(before) + _TINY and sum(after) < sum(before) - _TINY
    return found if better else MilpResult(node, found.bound, found.proven)


def _solve(
    problem: Allocation,
    node: Ints,
    chosen: Bools,
    *,
    deadline: Deadline,
    nodes: int | None,
    start: bool,
    downhill: bool = False,
) -> MilpResult:
    p = problem
    places = np.flatnonzero(chosen)
    units = np.flatnonzero(chosen[node])
    place_of = np.full(len(p.weight), -1)
    place_of[places] = np.arange(len(places))
    # x[k, i] for every unit and each of its possible places; d, d_u and d_l follow.
    k, i = (a.ravel() for a in np.meshgrid(units, places, indexing="ij"))
    may = ((p.fixed[k] < 0) | (p.fixed[k] == i)) & (~p.removed[i] | (p.node[k] == i))
    if downhill:
        # Migrations other than from overload to underload rarely help.
        at_first = p.deviation(p.node)
        may &= ((at_first[p.node[k]] > 0) & (at_first[i] < 0)) | (p.node[k] == i) | (node[k] == i)
    k, i = k[may], i[may]
    n = len(k)
    off = p.deviation(node)[~chosen]
    outside_over = float(off.max(initial=0.0))
    outside_under = float((-off[~p.removed[~chosen]]).max(initial=0.0))
    least = max(outside_over, outside_under, 0.0)
    left = p.budget - float(p.cost[(node != p.node) & ~chosen[node]].sum())

    unit_row = np.searchsorted(units, k)
    place = place_of[i]
    u, m, r = len(units), len(places), p.further.shape[1]
    # Rows: one place each, the budget, upper limits, lower limits, ceilings of each resource.
    rows = [unit_row, np.full(n, u), u + 1 + place, u + 1 + m + place]
    values = [np.ones(n), np.where(p.node[k] == i, 0.0, p.cost[k]), p.load[k] * p.weight[i]]
    values.append(values[-1])
    for resource in range(r):
        rows.append(u + 1 + (2 + resource) * m + place)
        values.append(p.further[k, resource])
    columns = [np.arange(n)] * len(rows)
    d, up, low = n, n + 1, n + 2
    every = np.arange(m)
    for row, column, sign in (
        (u + 1 + every, d, -1.0),
        (u + 1 + every, up, 1.0),
        (u + 1 + m + every, d, 1.0),
        (u + 1 + m + every, low, -1.0),
    ):
        rows.append(row)
        columns.append(np.full(m, column))
        values.append(np.full(m, sign))
    mean, endless = p.mean, highspy.kHighsInf
    beyond = p.ceiling[places].T.ravel()
    held = p.carried(p.node)
    lower = [np.ones(u), np.array([-endless]), np.full(m, -endless)]
    lower += [np.where(p.removed[places], -endless, mean), np.full(r * m, -endless)]
    upper = [np.ones(u), np.array([left]), np.full(m, mean), np.full(m, endless)]
    upper += [np.maximum(beyond, held[places].T.ravel())]
    # d - d_u is the overload and d - d_l the underload; other nodes may already have more.
    sides = (max(outside_over, 0.0), max(outside_under, 0.0))
    for at, (column, side) in enumerate(((up, sides[0]), (low, sides[1]))):
        row = u + 1 + (2 + r) * m + at
        rows.append(np.array([row, row]))
        columns.append(np.array([d, column]))
        values.append(np.array([1.0, -1.0]))
        lower.append(np.array([side]))
        upper.append(np.array([endless]))
    costs = np.zeros(n + 3)
    costs[[d, up, low]] = _DISTANCE, -_TIGHTNESS, -_TIGHTNESS
    most = np.ones(n + 3)
    most[n:] = max(p.distance(node), least)
    least_of = np.zeros(n + 3)
    least_of[d] = least

    x = None
    if start:
        x = np.zeros(n + 3)
        x[:n] = node[k] == i
        over, under = p.sides(node)
        x[n:] = max(over, under), max(over, under) - over, max(over, under) - under
    found = run_program(
        Program(
            row=np.concatenate(rows),
            column=np.concatenate(columns),
            value=np.concatenate(values),
            cost=costs,
            lower=least_of,
            upper=most,
            whole=np.arange(n + 3) < n,
            row_lower=np.concatenate(lower),
            row_upper=np.concatenate(upper),
        ),
        start=x,
        nodes=nodes,
        deadline=deadline,
    )
    if found.ended is not None and not start:
        raise AllocationError(f"HiGHS: it ended with {found.ended}, a solution or a limit expected")
    if found.ended is not None:
        # By rounding, the program may have lost the start, which is a solution.
        return MilpResult(node, least, proven=False)
    result = node.copy()
    if found.x is not None:
        taken = found.x[:n] > 0.5
        result[k[taken]] = i[taken]
    # The objective is at least w1 d - 2 w2 d, for any two sides.
    bound = max(least, found.bound / _DISTANCE)
    whole = bool(chosen.all())
    return MilpResult(result, max(bound, lower_bound(p)) if whole else bound, found.proven)
