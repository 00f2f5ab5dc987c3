"""Finds first places for new replicas that keep hard limits: the largest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from balancer.problem.disks import pick_disk
from balancer.problem.rules import Rules
from balancer.search.scorer import Scorer
from cluster_model.placement import Placement
from cluster_model.scopes import BrokerScope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Goal
from goals.capacity import Ceiling
from goals.curves import TOLERANCE


class _Limit(NamedTuple):
    """A hard limit on brokers or groups of them.

    Parameters
    ----------
    cell : (B,) int
        The cell of each broker.
    most, held : (cells,) float
        What a cell may hold, and what it holds without the new replicas.
    amount : (C,) float
        What each new replica adds.
    """

    cell: Ints
    most: Floats
    held: Floats
    amount: Floats


def fit(scorer: Scorer, rules: Rules, start: Placement) -> None:
    """Move new replicas to where as many of them as possible are within hard limits.

    They are where the fewest replicas are, which may exceed limits that other places keep. Then
    the largest goes first, to the broker with most room; if not all fit like that, and more do if
    it is the one with least room that still suffices, to that one.
    """
    placement = scorer.placement
    new = np.flatnonzero((placement.replica_broker >= 0) & (start.replica_broker < 0))
    limits = [_limit(goal, placement, new) for goal in scorer.goals if _is_limit(goal)]
    if not any(_exceeded(limit, placement.replica_broker[new]) for limit in limits):
        return
    found, left = _packed(placement, rules, new, limits, np.argmin)
    if left:
        other, fewer = _packed(placement, rules, new, limits, np.argmax)
        found = other if fewer < left else found
    scorer.adopt(found, np.unique(new // placement.slots))


def _is_limit(goal: Goal) -> bool:
    return goal.hard and isinstance(goal, Ceiling) and isinstance(goal.scope, BrokerScope)


def _limit(goal: Goal, placement: Placement, new: Ints) -> _Limit:
    assert isinstance(goal, Ceiling)
    cell = goal.scope.members(placement.snapshot)
    lead, follow = placement.contribution(goal.column)
    p = new // placement.slots
    amount = np.where(new % placement.slots == placement.leader[p], lead[p], follow[p])
    held = placement.sums(goal.scope, goal.column).astype(np.float64)
    at = cell[placement.replica_broker[new]]
    held -= np.bincount(at[at >= 0], amount[at >= 0], len(held))
    most = goal.prepared_limit * (1 + TOLERANCE)
    # a broker of no group has no limit
    return _Limit(
        np.where(cell < 0, len(held), cell), np.append(most, np.inf), np.append(held, 0.0), amount
    )


def _exceeded(limit: _Limit, brokers: Ints) -> bool:
    """Whether new replicas on these brokers exceed a limit."""
    at = limit.cell[brokers]
    with_new = limit.held + np.bincount(at, limit.amount, len(limit.held))
    return bool((with_new > limit.most)[at].any())


def _packed(
    placement: Placement,
    rules: Rules,
    new: Ints,
    limits: list[_Limit],
    best: Callable[[Floats], np.intp],
) -> tuple[Placement, int]:
    """A placement with new replicas within limits, and how many have no room within them.

    Parameters
    ----------
    placement
        Where they are now.
    rules
        Which brokers may receive and lead what.
    new : (C,) int
        Flat slots of the new replicas.
    limits
        What they keep.
    best
        Which of the brokers that have room, by how full they are then, takes a replica.
    """
    s, placement = placement.snapshot, placement.copy()
    size = np.max([limit.amount / _mean(limit.most) for limit in limits], axis=0)
    held = [limit.held.copy() for limit in limits]
    own_set = s.broker_set if len(s.broker_set) else np.zeros(s.n_brokers, np.int64)
    first, homeless = placement.replica_broker[new], 0
    placement.replica_broker[new] = -1
    for row in np.argsort(-size, kind="stable").tolist():
        p, slot = divmod(int(new[row]), placement.slots)
        there = placement.brokers[p][placement.brokers[p] >= 0]
        able = _able(placement, rules, p, slot)
        has_room, full = _room(limits, held, row)
        has_room &= able
        if not has_room.any():
            # where it was, if no other replica of its partition has gone there
            free = first[row] not in there
            homeless += 1
            placement.brokers[p, slot] = first[row] if free else able.argmax()
            continue
        has_room = _preferred(has_room, own_set == own_set[first[row]])
        has_room = _preferred(has_room, ~np.isin(s.broker_rack, s.broker_rack[there]))
        brokers = np.flatnonzero(has_room)
        to = int(brokers[best(full[brokers])])
        placement.brokers[p, slot] = to
        for limit, load in zip(limits, held, strict=True):
            load[limit.cell[to]] += limit.amount[row]
    if len(placement.replica_disk):
        placement.replica_disk[new] = pick_disk(placement, placement.replica_broker[new])
    placement.invalidate_sums()
    return placement, homeless


def _able(placement: Placement, rules: Rules, partition: int, slot: int) -> Bools:
    """(B,) brokers that may take a replica; where it leads, those that may lead if any can."""
    held = placement.brokers[partition]
    able = rules.takers(placement, partition).copy()
    able[held[held >= 0]] = False
    return _preferred(able, rules.leads) if slot == placement.leader[partition] else able


def _room(limits: list[_Limit], held: list[Floats], row: int) -> tuple[Bools, Floats]:
    """(B,), (B,) brokers with room for a new replica, and how full each is with it."""
    fits, full = list[Bools](), list[Floats]()
    for limit, load in zip(limits, held, strict=True):
        after, most = (load + limit.amount[row])[limit.cell], limit.most[limit.cell]
        fits.append(after <= most)
        full.append(np.divide(after, most, out=np.zeros(len(after)), where=most > 0))
    return np.all(fits, axis=0), np.max(full, axis=0)


def _preferred(able: Bools, better: Bools) -> Bools:
    """Those of the brokers that are better, if any is."""
    both: Bools = able & better
    return both if both.any() else able


def _mean(most: Floats) -> float:
    finite = most[np.isfinite(most) & (most > 0)]
    return float(finite.mean()) if len(finite) else 1.0
