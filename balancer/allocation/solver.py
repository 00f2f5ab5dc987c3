"""Solves the seed's MILP: a start, local search, neighbourhoods for HiGHS, a proof."""

from __future__ import annotations

import numpy as np

from balancer.allocation.bound import lower_bound
from balancer.allocation.drain import empty_removed_nodes, revert_unnecessary
from balancer.allocation.errors import AllocationError
from balancer.allocation.flux import flux
from balancer.allocation.greedy import greedy
from balancer.allocation.milp import improve
from balancer.allocation.parameters import AllocationParameters
from balancer.allocation.problem import Allocation, Solution
from balancer.allocation.search import Narrow, search
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Ints

# A good enough load distance, in percentage points: the limit that ALBIC keeps (maxLD).
GOOD = 10.0
_TINY = 1e-9
# The last local searches, the final two for one side of the band each; with the share of the time
# by which each ends.
_FINISH: tuple[tuple[float, Narrow], ...] = ((0.9, "both"), (0.95, "under"), (1.0, "over"))


def solve(
    problem: Allocation,
    *,
    good: float = GOOD,
    enough: float = 0.0,
    rounds: int = 10_000,
    deadline: Deadline = NEVER,
    seed: int = 0,
    parameters: AllocationParameters | None = None,
) -> Solution:
    """Minimise the load distance, then the sum of both sides, then the load on removed nodes.

    Seed 001, Section 4.3.1. No unit goes to a node marked for removal (Lemma 1). While such
    a node carries load, a `good` load distance is not improved at the expense of emptying
    it: urgent balance comes first, then the removal, then finer balance.

    Parameters
    ----------
    problem
        The problem to solve.
    good
        In percentage points: by default ALBIC's maxLD. With 0 the distance is always made as
        small as possible.
    enough
        In percentage points: a load distance below which no migration is worthwhile.
    rounds
        Effort: exchanges that the local search tries. The same rounds and seed give the
        same solution.
    deadline
        When to stop, with the best result so far.
    seed
        Seed of random choices.
    parameters
        Numbers of the searches and programs; None for the defaults.

    Returns
    -------
    Solution
        Never worse than the start, if nothing is fixed, nor, given the time for it, than the result
        of Flux; while nodes are emptied, unless these are `good` already.

    Raises
    ------
    AllocationError
        If the cost of the fixed units exceeds the budget.

    Examples
    --------
    >>> import numpy as np
    >>> three = Allocation(load=np.array([4.0, 2.0, 2.0]), cost=np.ones(3),
    ...     node=np.zeros(3, np.int64), weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=1)
    >>> found = solve(three)
    >>> found.node.tolist(), found.distance, found.bound
    ([1, 0, 0], 0.0, 0.0)
    """
    p, own = problem, parameters or AllocationParameters()
    seconds, enough = deadline.left, max(enough, own.trivial_distance)

    def until(share: float) -> Deadline:
        return deadline.earlier((1 - own.search_share * share) * seconds)

    start = p.node.copy()
    start[p.fixed >= 0] = p.fixed[p.fixed >= 0]
    if p.spent(start) > p.budget + _TINY:
        raise AllocationError(
            f"allocation, fixed: units cost {p.spent(start):g} to move to their required nodes, at "
            f"most the budget of {p.budget:g} expected"
        )
    if not p.within_ceilings(start):
        raise AllocationError(
            "allocation, fixed: units exceed a ceiling of a further resource on their required "
            "nodes, all within the ceilings expected"
        )
    bound = lower_bound(p, own.bound_steps)
    goal = max(bound, enough)
    found_at_once = (start, flux(p, until(1.0)), greedy(p, until(1.0)))
    starts = [a for a in found_at_once if p.within_ceilings(a)]
    best = min(starts, key=lambda a: max(p.distance(a), goal))
    left, part, first = rounds, own.start_share / own.starts, best
    for turn in range(own.starts):
        # The result of a search depends on chance.
        found = search(
            p,
            first,
            rounds=int(rounds * part),
            deadline=until((turn + 1) * part),
            seed=seed + turn,
            enough=goal,
            parameters=own,
        )
        left -= found.rounds
        best = min(best, found.node, key=p.distance)
        if turn + 1 >= own.binding_starts and _binding(p.distance(best), bound, own):
            break
    if p.distance(best) > enough + _TINY:
        best, bound = _neighbourhoods(p, best, bound, until(own.program_share), own)
    for share, narrow in _FINISH:
        if p.distance(best) <= enough + _TINY:
            break
        found = search(
            p,
            best,
            rounds=left // len(_FINISH),
            deadline=until(share),
            # other choices than those of the first searches, which may have led nowhere
            seed=seed + own.starts,
            enough=goal if narrow == "both" else own.trivial_distance,
            narrow=narrow,
            parameters=own,
        )
        best = found.node
    distance = p.distance(best)
    if distance > enough:
        best = revert_unnecessary(p, best, distance, sum(p.sides(best)), deadline=deadline)
    else:
        best = revert_unnecessary(p, best, enough, deadline=deadline)
    best = empty_removed_nodes(p, best, max(distance, good))
    over, under = p.sides(best)
    migrated = best != p.node
    return Solution(best, over, under, bound, int(migrated.sum()), p.spent(best))


def _binding(reached: float, bound: float, own: AllocationParameters) -> bool:
    """Whether the budget limits the load distance, so that programs improve it most."""
    close = bound * (1 + own.close_share) + _TINY >= reached
    return not close and bound >= own.loose_share * reached


def _neighbourhoods(
    problem: Allocation, node: Ints, bound: float, deadline: Deadline, own: AllocationParameters
) -> tuple[Ints, float]:
    """Let HiGHS reallocate the units of the nodes farthest off: few nodes, then more.

    A small problem is given to it whole, so that the bound is as tight as possible.
    """
    p = problem
    nodes, units = len(p.weight), len(p.load)
    if nodes * units <= own.proof_size:
        whole = np.ones(nodes, np.bool_)
        proven = improve(p, node, whole, nodes=own.tree_nodes, deadline=deadline)
        return proven.node, max(bound, proven.bound)
    size = own.first_nodes
    while size < 2 * nodes and not deadline.passed:
        reached = p.distance(node)
        if not _binding(reached, bound, own):
            break
        chosen = np.zeros(nodes, np.bool_)
        chosen[np.argsort(-np.abs(p.deviation(node)), kind="stable")[:size]] = True
        if int(chosen[node].sum()) * int(chosen.sum()) > own.program_size:
            break
        found = improve(p, node, chosen, nodes=own.tree_nodes, deadline=deadline, downhill=True)
        improved = found.node
        size = size if p.distance(improved) < reached - _TINY else 2 * size
        node = improved
    return node, bound
