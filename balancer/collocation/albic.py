"""ALBIC: balances load under a budget while collocating communicating key groups.

Autonomic Load Balancing with Integrated Collocation (Madsen et al., ICDE 2017; seed 001,
Section 4.3.2, Algorithm 2). What the seed calls a partition is a group here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import networkx as nx
import numpy as np
import pymetis

from balancer.allocation.bound import lower_bound
from balancer.allocation.errors import AllocationError
from balancer.allocation.problem import Allocation, Solution
from balancer.allocation.solver import GOOD, solve
from balancer.allocation.units import Units, fold, totals
from balancer.collocation.locality_refinement import Communication, refine_locality
from balancer.collocation.outlook import aim, refine_towards, whole_numbers
from balancer.collocation.parameters import CollocationParameters
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Bools, Floats, Ints
from cluster_model.traffic import above_average

_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Collocation:
    """The result of ALBIC.

    Parameters
    ----------
    solution
        The allocation of key groups. Its bound is that of the problem without collocation.
    group : (U,) int
        The group that each key group migrated with.
    pairs
        The pairs of key groups that were brought together.
    max_group_load
        The final maxPL.
    attempts
        How many times the problem was solved.
    """

    solution: Solution
    group: Ints
    pairs: tuple[tuple[int, int], ...]
    max_group_load: float
    attempts: int


def albic(
    units: Units,
    *,
    max_distance: float = GOOD,
    max_group_load: float = 25.0,
    step: float = 5.0,
    score_factor: float = 1.5,
    pairs: int = 1,
    rounds: int = 10_000,
    deadline: Deadline = NEVER,
    seed: int = 0,
    parameters: CollocationParameters | None = None,
) -> Collocation:
    """Balance load, keep collocated pairs together, and collocate one more pair.

    Beyond the seed's algorithm: once the load distance is below `fine_share` of maxLD, it is not
    reduced further while the rest of the budget can keep more of the communication local
    (:func:`balancer.collocation.locality_refinement.refine_locality`).

    Parameters
    ----------
    units
        Key groups, and the traffic between them.
    max_distance
        maxLD: collocation does not raise the load distance above this.
    max_group_load
        maxPL: greatest load of a group, in percentage points; with 0, nothing is collocated.
    step
        stepPL: reduction of maxPL while the load distance is exceeded.
    score_factor
        sF: a pair is worth collocating if its traffic is more than this many times the average that
        the first sends to each key group downstream.
    pairs
        Maximum number of pairs to bring together; one in the seed's ALBIC.
    rounds, deadline, seed
        See :func:`balancer.allocation.solver.solve`; the deadline is for all attempts.
    parameters
        Further numbers; None for the defaults.

    Raises
    ------
    AllocationError
        If options are out of range.

    Examples
    --------
    >>> problem = Allocation(load=np.full(4, 10.0), cost=np.ones(4), node=np.array([0, 1, 0, 1]),
    ...     weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=2)
    >>> talk = Units(problem=problem, operator=np.array([0, 0, 1, 1]), source=np.array([0, 1]),
    ...     target=np.array([3, 2]), rate=np.array([5.0, 6.0]))
    >>> found = albic(talk)
    >>> found.pairs, found.solution.distance, talk.local(found.solution.node)
    (((1, 2),), 0.0, 1.0)
    """
    for name, value, ok, expected in (
        ("max_distance", max_distance, max_distance >= 0, "at least 0"),
        (
            "max_group_load",
            max_group_load,
            0 <= max_group_load < np.inf,
            "a finite number of at least 0",
        ),
        ("step", step, step > 0, "more than 0"),
        ("score_factor", score_factor, score_factor >= 0, "at least 0"),
        ("pairs", pairs, pairs >= 0, "at least 0"),
    ):
        if not ok:
            raise AllocationError(f"albic, {name}: {value} found, {expected} expected")
    own, problem, rng = (
        parameters or CollocationParameters(),
        units.problem,
        np.random.default_rng(seed),
    )
    attempts = 0
    bound = lower_bound(problem, own.bound_steps)
    candidate = scores(units, score_factor)
    fine = own.fine_share * max_distance if own.additions and len(units.rate) else 0.0
    talk = Communication.of(len(problem.load), units.source, units.target, units.rate)
    # As even as any allocation is enough. In the seed, every attempt but the last then fails.
    enough = max(max_distance, bound) if own.additions else max_distance
    limit = max_group_load if bound <= enough + _TINY else 0.0
    fallback: tuple[Solution, Ints] | None = None
    # Groups, and where a cut of the whole graph has their key groups.
    ahead: tuple[Ints, Ints] | None = None

    def allocated(p: Allocation, group: Ints, fine: float, until: Deadline) -> Solution:
        """Balance sets; the rest of the budget brings communicating key groups closer."""

        def balanced(reach: float, share: float) -> Solution:
            found = solve(
                p,
                good=max_distance if own.additions else 0.0,
                enough=reach,
                rounds=rounds,
                deadline=until.within(share),
                seed=seed,
                parameters=own,
            )
            # A bound of sets, or with pairs required, is none of what is asked.
            return _solution(problem, found.node[group], found.bound if p is problem else bound)

        if not fine > 0:
            return balanced(0.0, 1.0)
        found = balanced(fine, 0.5)
        node = nearer(replace(problem, fixed=p.fixed[group]), group, found.node, fine, until)
        if (node == found.node).all() and not until.passed:
            # Nothing else comes closer: even out what does not come apart by it.
            even = balanced(0.0, 1.0)
            return found if more_local(found, even) else even
        return _solution(problem, node, found.bound)

    def nearer(p: Allocation, group: Ints, node: Ints, fine: float, until: Deadline) -> Ints:
        """Bring communicating key groups closer, towards a cut of the whole graph if that helps."""
        nonlocal ahead
        if 0 < len(units.rate) <= own.outlook_pairs and own.outlook > 0:
            if ahead is None or ahead[0] is not group:
                ahead = group, aim(units, group)
            if units.local(ahead[1]) > units.local(node) + _TINY:
                found = refine_towards(units, p, node, ahead[1], fine, until, own)
                if units.local(found) > units.local(node) + _TINY:
                    return found
        return refine_locality(p, talk, node, fine, until, own)

    def more_local(one: Solution, other: Solution) -> bool:
        return units.local(one.node) > units.local(other.node) + _TINY

    def attempted(p: Allocation, group: Ints) -> Solution | None:
        """An allocation that is even enough; None if there is none, or none was found."""
        nonlocal attempts, fallback
        hopeless = lower_bound(p, own.bound_steps) > enough + _TINY
        if hopeless and (not own.additions or fallback is not None):
            return None
        attempts += 1
        found = allocated(p, group, fine, deadline.within(own.attempt_share))
        if found.distance <= enough + _TINY:
            return found
        if fallback is None or found.distance < fallback[0].distance - _TINY:
            fallback = found, group
        return None

    while limit > 0 and not deadline.passed:
        group = groups(units, candidate, limit, rng)
        sets = fold(problem, group)
        most = _Together(enough, limit) if own.additions else _Together(np.inf, np.inf)
        found, rows, left = None, np.empty(0, np.int64), candidate.copy()
        for _ in range(own.pair_tries if own.additions else 1):
            together, rows = _collocate_pairs(units, left, group, sets, most, pairs, rng)
            if not len(rows):
                break
            found = attempted(together, group)
            if found is not None or deadline.passed:
                break
            left[rows] = False
        if not len(rows) and len(sets.load) == len(problem.load):
            break
        if own.additions or not len(rows):
            # The same budget may do more without another pair.
            without = attempted(sets, group)
            if found is None or (without is not None and more_local(without, found)):
                found, rows = without, rows[:0]
        if found is not None:
            ends = zip(units.source[rows].tolist(), units.target[rows].tolist(), strict=True)
            return Collocation(found, _split(group, found.node), tuple(ends), limit, attempts)
        # With the same groups it would fail again.
        heaviest = sets.load[np.bincount(group, minlength=len(sets.load)) > 1].max(initial=0.0)
        limit -= step * max(1, (limit - float(heaviest)) // step + 1)
    each = np.arange(len(problem.load))
    alone = allocated(problem, each, fine if max_group_load > 0 else 0.0, deadline)
    if own.additions and fallback is not None:
        # Sets are not torn for nothing.
        found, group = fallback
        if found.distance <= alone.distance + _TINY:
            return Collocation(found, _split(group, found.node), (), max(limit, 0.0), attempts + 1)
    return Collocation(alone, each, (), max(limit, 0.0), attempts + 1)


def _solution(problem: Allocation, node: Ints, bound: float) -> Solution:
    over, under = problem.sides(node)
    return Solution(
        node, over, under, bound, int((node != problem.node).sum()), problem.spent(node)
    )


def _split(group: Ints, node: Ints) -> Ints:
    """(U,) int: sets without the key groups that leave them."""
    _, label = np.unique(np.stack([group, node]), axis=1, return_inverse=True)
    return _numbered(label)


def scores(units: Units, factor: float = 1.5) -> Bools:
    """(E,) bool: the pairs that are worth collocating (step 1).

    Those with more traffic than `factor` times the average that the first sends to each key group
    of the operators downstream, which are those that its own operator sends to.

    Examples
    --------
    >>> problem = Allocation(load=np.ones(4), cost=np.ones(4), node=np.zeros(4, np.int64),
    ...     weight=np.ones(1), removed=np.zeros(1, np.bool_), budget=0)
    >>> units = Units(problem=problem, operator=np.array([0, 1, 1, 1]),
    ...     source=np.zeros(2, np.int64), target=np.array([1, 2]), rate=np.array([3.0, 2.0]))
    >>> scores(units).tolist()
    [True, False]
    """
    return above_average(units.operator, units.source, units.target, units.rate, factor)


def groups(units: Units, candidate: Bools, max_load: float, rng: np.random.Generator) -> Ints:
    """(U,) int: the group that each key group migrates with (step 2).

    Pairs that are worth collocating, and are collocated, form sets; a set that exceeds
    `max_load`, or costs more to migrate than the budget, is cut into groups that do not,
    with little traffic between them. A single key group that exceeds the limits stays alone.
    Groups are numbered in the order of their first key group.

    Parameters
    ----------
    units
        Key groups.
    candidate : (E,) bool
        See :func:`scores`.
    max_load
        In percentage points, greater than 0.
    rng
        For random choices.
    """
    p = units.problem
    label = _sets(units, candidate)
    sets = int(label.max(initial=-1)) + 1
    limits = _Limits(p, max_load)
    pieces = limits.pieces(totals(label, p.load, sets), totals(label, p.cost, sets))
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(sets + 1))
    inside = np.flatnonzero(label[units.source] == label[units.target])
    inside = inside[pieces[label[units.source[inside]]] > 1]
    inside = inside[np.argsort(label[units.source[inside]], kind="stable")]
    edge = np.searchsorted(label[units.source[inside]], np.arange(sets + 1))
    fresh = sets
    for cut in np.flatnonzero(pieces > 1).tolist():
        members = order[first[cut] : first[cut + 1]]
        for part in limits.cut(units, members, inside[edge[cut] : edge[cut + 1]], rng):
            label[part] = fresh
            fresh += 1
    return _numbered(label)


def _sets(units: Units, candidate: Bools) -> Ints:
    """(U,) int: sets as the union of all pairs that share a member; from 0 without gaps."""
    together = candidate & (units.problem.node[units.source] == units.problem.node[units.target])
    graph = nx.Graph()
    graph.add_edges_from(
        zip(units.source[together].tolist(), units.target[together].tolist(), strict=True)
    )
    label = np.arange(len(units.operator))
    for members in nx.connected_components(graph):
        label[list(members)] = min(members)
    return _numbered(label)


@dataclass(frozen=True)
class _Limits:
    """The limits of a group's load and migration cost."""

    problem: Allocation
    load: float

    def pieces(self, load: Floats, cost: Floats) -> Ints:
        """Least number of groups for sets of that load and cost, p1 or p2; 0 for no limit."""
        most = max(self.problem.budget, _TINY)
        requested = np.ceil(np.maximum(load / self.load, cost / most) - _TINY)
        pieces: Ints = np.minimum(requested, 2**31).astype(np.int64)
        return pieces

    def cut(self, units: Units, members: Ints, edges: Ints, rng: np.random.Generator) -> list[Ints]:
        """Cut members, with the pairs among them, until every part is within the limits."""
        p = self.problem
        load, cost = p.load[members], p.cost[members]
        requested = int(self.pieces(load.sum(), cost.sum()))
        if requested <= 1 or len(members) == 1:
            return [members]
        if requested >= len(members):
            return list(members[:, None])
        of_load, of_cost = load.sum() / self.load, cost.sum() / max(p.budget, _TINY)
        by_cost = of_cost > of_load or (of_cost == of_load and rng.random() < 0.5)
        at = (
            np.searchsorted(members, units.source[edges]),
            np.searchsorted(members, units.target[edges]),
        )
        part = _balanced_cut(
            cost if by_cost else load, at[0], at[1], units.rate[edges], requested, rng
        )
        parts = []
        for number in np.unique(part).tolist():
            mine = part == number
            own = edges[mine[at[0]] & mine[at[1]]]
            parts += self.cut(units, members[mine], own, rng)
        return parts


def _balanced_cut(
    weight: Floats, source: Ints, target: Ints, rate: Floats, parts: int, rng: np.random.Generator
) -> Ints:
    """(V,) int: the part of each vertex; at least two parts, by METIS if it finds them."""
    size = len(weight)
    graph_from = np.concatenate([source, target])
    graph_to = np.concatenate([target, source])
    ends, which = np.unique(graph_from * size + graph_to, return_inverse=True)
    between = totals(which, np.concatenate([rate, rate]), len(ends))
    first = np.searchsorted(ends // size, np.arange(size))
    _, found = pymetis.part_graph(
        parts,
        adjacency=[to.tolist() for to in np.split(ends % size, first[1:])],
        vweights=whole_numbers(weight),
        eweights=whole_numbers(between),
        options=pymetis.Options(seed=int(rng.integers(2**31 - 1))),
    )
    part = np.array(found, np.int64)
    if len(part) and (part != part[0]).any():
        return part
    halves = np.zeros(size, np.int64)
    held = [0.0, 0.0]
    for vertex in np.argsort(-weight, kind="stable").tolist():
        lighter = int(held[1] < held[0])
        halves[vertex], held[lighter] = lighter, held[lighter] + weight[vertex] + _TINY
    return halves


class _Together(NamedTuple):
    """How far from the mean a node may be that carries a pair's groups alone, and their load."""

    distance: float
    load: float


def _collocate_pairs(
    units: Units,
    candidate: Bools,
    group: Ints,
    sets: Allocation,
    limit: _Together,
    most: int,
    rng: np.random.Generator,
) -> tuple[Allocation, Ints]:
    """Require the groups of the pairs with the most traffic to share a node (step 3).

    Returns the problem with this requirement, and the rows of the pairs.
    """
    p, node = sets, units.problem.node
    apart = node[units.source] != node[units.target]
    in_sets = np.zeros(len(node), np.bool_)
    kept = np.flatnonzero(candidate & ~apart)
    in_sets[units.source[kept]] = in_sets[units.target[kept]] = True
    fixed, chosen = p.fixed.copy(), list[int]()
    at = np.where(fixed >= 0, fixed, p.node)
    held, room = p.carried(at), np.maximum(p.carried(p.node), p.ceiling) + _TINY
    load, left = p.deviation(at), p.budget - p.spent(at) + _TINY
    least = float(p.cost.min(initial=np.inf))
    # A random pair among those of the greatest value; the next if that is not possible.
    rows = np.flatnonzero(candidate & apart)
    as_one = p.load[group[units.source[rows]]] + p.load[group[units.target[rows]]]
    rows = rows[as_one <= limit.load + _TINY]
    order = np.lexsort((rng.random(len(rows)), -units.rate[rows]))
    for row in rows[order].tolist():
        if len(chosen) == most or left < least:
            break
        i, j = int(units.source[row]), int(units.target[row])
        both = group[[i, j]]
        if (fixed[both] >= 0).all():
            continue
        for to in _choices(p, at[both].tolist(), in_sets[[i, j]].tolist(), load):
            come = both[at[both] != to]
            cost, more = float(p.cost[come].sum()), p.further[come].sum(axis=0)
            above = float(p.load[both].sum()) * p.weight[to] - p.mean
            if (
                (fixed[come] < 0).all()
                and cost <= left
                and above <= limit.distance + _TINY
                and (held[to] + more <= room[to]).all()
            ):
                for unit in come.tolist():
                    load[at[unit]] -= p.load[unit] * p.weight[at[unit]]
                    load[to] += p.load[unit] * p.weight[to]
                    held[at[unit]] -= p.further[unit]
                held[to] += more
                left -= cost
                at[both] = fixed[both] = to
                chosen.append(row)
                break
    return replace(p, fixed=fixed), np.array(chosen, np.int64)


def _choices(p: Allocation, at: list[int], in_sets: list[bool], load: Floats) -> list[int]:
    """The nodes for a pair: that of the case in the seed, then the other.

    Excludes nodes marked for removal; if both are marked, the least loaded node.
    """
    alike = in_sets[0] == in_sets[1]
    first = load[at[0]] <= load[at[1]] if alike else in_sets[0]
    stay = [n for n in (at if first else at[::-1]) if not p.removed[n]]
    return stay or [int(np.argmin(np.where(p.removed, np.inf, load)))]


def _numbered(label: Ints) -> Ints:
    """Labels from 0 without gaps, in order of first occurrence."""
    _, first, which = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    numbered: Ints = rank[which]
    return numbered
