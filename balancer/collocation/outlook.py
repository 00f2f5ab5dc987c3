"""Looks ahead of one period's budget: draws units to where a cut of the whole graph has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pymetis

from balancer.allocation.problem import Allocation
from balancer.allocation.units import Units, totals
from balancer.collocation.locality_refinement import Communication, refine_locality
from balancer.collocation.parameters import CollocationParameters
from balancer.problem.deadline import Deadline
from cluster_model.snapshot import Bools, Floats, Ints

# METIS uses integer weights; the weights of a graph are scaled to this sum.
_WHOLE = 1e8
# With fewer groups for each node, METIS may leave parts empty, and prints that it did.
_GROUPS_A_NODE = 2.5
# A part goes to a node whose capacity differs by at most this share from that it was cut for.
_ALIKE = 0.1
# The cut of one period is that of the next, unless traffic, loads or sets change.
_SEED = 0


def whole_numbers(weights: Floats) -> list[int]:
    """Weights as METIS takes them: integers of at least 1, in proportion."""
    most = float(weights.max(initial=0.0))
    # A sum of large numbers could be infinite.
    shares = weights / most if most > 0 else weights
    scale = _WHOLE / max(float(shares.sum()), 1.0)
    return [max(int(w), 1) for w in np.rint(shares * scale).tolist()]


def aim(units: Units, group: Ints) -> Ints:
    """(U,) int: the node that a balanced cut of the whole graph gives to each unit.

    METIS cuts the graph of groups into one part for each node that stays, of its share of the
    capacity, with little traffic between them. The part that shares most load with a node takes it,
    then the next. A node that is too small for a few groups, or has room for no unit of another
    node, has no part; units on the latter are given their node. With few groups a node, there is
    little to cut, and each unit is given the node that it is on, or one that stays. What is fixed
    is given its node.

    Parameters
    ----------
    units
        Units and their traffic.
    group : (U,) int
        Units that stay together, from 0 without gaps.

    Examples
    --------
    >>> p = Allocation(load=np.ones(6), cost=np.ones(6), node=np.array([0, 1, 0, 1, 0, 1]),
    ...     weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=1)
    >>> rows = Units(problem=p, operator=np.array([0, 1, 2, 0, 1, 2]),
    ...     source=np.array([0, 1, 3, 4]), target=np.array([1, 2, 4, 5]), rate=np.full(4, 5.0))
    >>> node = aim(rows, np.arange(6))
    >>> node[0] == node[1] == node[2] != node[3] == node[4] == node[5]
    np.True_
    """
    p = units.problem
    stays = ~p.removed
    takes = stays & _open(p)
    keeps = stays[p.node] & ~takes[p.node]
    given = np.full(int(group.max(initial=-1)) + 1, -1)
    for known, node in ((keeps, p.node), (p.fixed >= 0, p.fixed)):
        given[group[known]] = node[known]
    able = np.flatnonzero(takes if takes.any() else stays)
    many = len(np.unique(group[~keeps]))
    able = able[_shares(p, able) * many >= _GROUPS_A_NODE]
    if len(able):
        # What stays on nodes without a part is not for the parts.
        load = np.where(keeps, 0.0, p.load)
        cut = _nodes_of_parts(p, able, _parts(units, group, load, _shares(p, able)))
    else:
        cut = np.where(stays[p.node], p.node, np.argmax(takes if takes.any() else stays))
    return np.where(given[group] >= 0, given[group], cut)


def _open(problem: Allocation) -> Bools:
    """(N,) bool: whether a unit of another node uses no further resource of which there is none."""
    p = problem
    if not p.further.size:
        return np.ones(len(p.weight), np.bool_)
    # Few kinds of units differ in which resources they use at all.
    kinds, kind = np.unique(p.further > 0, axis=0, return_inverse=True)
    held = np.zeros((len(kinds), len(p.weight)), np.bool_)
    held[kind, p.node] = True
    elsewhere = held.sum(axis=1, keepdims=True) > held
    barred = kinds.astype(np.int64) @ (p.ceiling <= 0).T.astype(np.int64) > 0
    found: Bools = (elsewhere & ~barred).any(axis=0)
    return found


def _shares(problem: Allocation, nodes: Ints) -> Floats:
    """(n,) float: the shares of nodes in their capacity."""
    # A sum of large numbers could be infinite.
    capacity = float(problem.weight[nodes].min()) / problem.weight[nodes]
    return capacity / float(capacity.sum())


def _parts(units: Units, group: Ints, load: Floats, share: Floats) -> Ints:
    """(U,) int: the part of each unit in a cut by METIS into parts of these shares of the load."""
    size = int(group.max()) + 1
    ends = group[units.source], group[units.target]
    apart = ends[0] != ends[1]
    one, two, rate = ends[0][apart], ends[1][apart], units.rate[apart]
    key, which = np.unique(
        np.concatenate([one * size + two, two * size + one]), return_inverse=True
    )
    between = totals(which, np.concatenate([rate, rate]), len(key))
    first = np.searchsorted(key // size, np.arange(size))
    _, found = pymetis.part_graph(
        len(share),
        adjacency=[to.tolist() for to in np.split(key % size, first[1:])],
        vweights=whole_numbers(_at_most_a_part(totals(group, load, size), share)),
        eweights=whole_numbers(between),
        tpwgts=share.tolist(),
        options=pymetis.Options(seed=_SEED),
    )
    return np.array(found, np.int64)[group]


def _at_most_a_part(load: Floats, share: Floats) -> Floats:
    """(G,) float: loads of groups, of which none is more than the smallest part has.

    METIS leaves parts empty, and prints that it did, where one group weighs more than a part.
    """
    most = float(share.min())
    relative = load / max(float(load.max(initial=0.0)), np.finfo(np.float64).tiny)
    order, cut = np.sort(relative)[::-1], 0
    while True:
        # With so many reduced to a part, what one part of the whole then has.
        part = most * float(order[cut:].sum()) / (1 - most * cut)
        if order[cut] <= part or most * (cut + 1) >= 1:
            return np.minimum(relative, part)
        cut += 1


def _nodes_of_parts(problem: Allocation, stays: Ints, part: Ints) -> Ints:
    """(U,) int: the node of each unit's part, the one with the greatest overlap first.

    Part i was cut for the capacity of node i of those that stay, and is given to one like it.
    """
    p, nodes = problem, len(problem.weight)
    key, which = np.unique(part * nodes + p.node, return_inverse=True)
    shared = totals(which, p.load, len(key))
    of, free = np.full(len(stays), -1), np.isin(np.arange(nodes), stays)
    for at in np.argsort(-shared, kind="stable").tolist():
        number, node = divmod(int(key[at]), nodes)
        alike = abs(p.weight[node] / p.weight[stays[number]] - 1) <= _ALIKE
        if of[number] < 0 and free[node] and alike:
            of[number], free[node] = node, False
    # The largest of the others to the largest node.
    rest, left = np.flatnonzero(of < 0), np.flatnonzero(free)
    rest = rest[np.argsort(p.weight[stays[rest]], kind="stable")]
    of[rest] = left[np.argsort(p.weight[left], kind="stable")]
    return of[part]


def refine_towards(
    units: Units,
    problem: Allocation,
    node: Ints,
    target: Ints,
    limit: float,
    deadline: Deadline,
    parameters: CollocationParameters,
) -> Ints:
    """(U,) int: an allocation that keeps more traffic local, and is closer to a target.

    Like :func:`~balancer.collocation.locality_refinement.refine_locality`, but being where the
    target has it counts for a unit as much as `outlook` times its traffic that is local there.

    Parameters
    ----------
    units
        Units and their traffic.
    problem
        The problem of the units, with what is fixed.
    node : (U,) int
        An allocation within the budget.
    target : (U,) int
        See :func:`aim`.
    limit, deadline, parameters
        As in the refinement.
    """
    p, many, nodes = problem, len(problem.load), len(problem.weight)
    local = target[units.source] == target[units.target]
    drawn = totals(units.source[local], units.rate[local], many)
    drawn += totals(units.target[local], units.rate[local], many)
    # An anchor on each node, without load, which stays and communicates with what is drawn there.
    every = np.arange(nodes)
    anchored = replace(
        p,
        load=np.append(p.load, np.zeros(nodes)),
        cost=np.append(p.cost, np.zeros(nodes)),
        node=np.append(p.node, every),
        fixed=np.append(p.fixed, every),
        further=np.vstack([p.further, np.zeros((nodes, p.further.shape[1]))]),
    )
    talk = Communication.of(
        many + nodes,
        np.append(units.source, np.arange(many)),
        np.append(units.target, many + target),
        np.append(units.rate, parameters.outlook * drawn),
    )
    found = refine_locality(anchored, talk, np.append(node, every), limit, deadline, parameters)
    return found[:many]
