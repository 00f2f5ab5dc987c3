"""Finds first places for new replicas that keep hard limits: the largest first."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.disks import pick_disk
from balancer.problem.rules import Rules
from balancer.search.scorer import Scorer
from cluster_model.placement import Placement
from cluster_model.scopes import BrokerScope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Goal
from goals.capacity import Ceiling
from goals.curves import TOLERANCE


class _Limits(NamedTuple):
    """The L hard limits on brokers or groups of them, whose cells are numbered in one row.

    Parameters
    ----------
    cell : (L, B) int
        The cell of each broker.
    most : (cells,) float
        What a cell may hold.
    held : (cells,) float
        What it holds without the new replicas.
    amount : (C, L) float
        What each new replica adds.
    """

    cell: Ints
    most: Floats
    held: Floats
    amount: Floats


def fit(scorer: Scorer, rules: Rules, start: Placement, deadline: Deadline = NEVER) -> None:
    """Move new replicas to where as many of them as possible are within hard limits.

    They are where the fewest replicas are, which may exceed limits that other places keep. Then
    the largest goes first, to the broker with most room; if not all fit like that, and more do if
    it is the one with least room that still suffices, to that one. After the deadline they stay.
    """
    placement = scorer.placement
    new = np.flatnonzero((placement.replica_broker >= 0) & (start.replica_broker < 0))
    goals = [goal for goal in scorer.goals if _is_limit(goal)]
    if not (len(new) and goals):
        return
    limits = _limits(goals, placement, new)
    at = limits.cell[:, placement.replica_broker[new]].T
    with_new = limits.held + np.bincount(at.ravel(), limits.amount.ravel(), len(limits.held))
    if not (with_new > limits.most)[at].any():
        return
    packed = [_packed(placement, rules, new, limits, np.argmin, deadline)]
    if packed[0] is not None and packed[0][1]:
        packed.append(_packed(placement, rules, new, limits, np.argmax, deadline))
    done = [found for found in packed if found is not None]
    if done:
        scorer.adopt(min(done, key=itemgetter(1))[0], np.unique(new // placement.slots))


def _is_limit(goal: Goal) -> bool:
    return goal.hard and isinstance(goal, Ceiling) and isinstance(goal.scope, BrokerScope)


def _limits(goals: list[Goal], placement: Placement, new: Ints) -> _Limits:
    p = new // placement.slots
    leads = new % placement.slots == placement.leader[p]
    cells, most, held, amounts, begin = list[Ints](), list[Floats](), list[Floats](), [], 0
    for goal in goals:
        assert isinstance(goal, Ceiling)
        assert isinstance(goal.scope, BrokerScope)
        cell = goal.scope.members(placement.snapshot)
        lead, follow = placement.contribution(goal.column)
        amount = np.where(leads, lead[p], follow[p])
        load = placement.sums(goal.scope, goal.column).astype(np.float64)
        at = cell[placement.replica_broker[new]]
        load -= np.bincount(at[at >= 0], amount[at >= 0], len(load))
        # a broker of no group has no limit
        cells.append(begin + np.where(cell < 0, len(load), cell))
        most.append(np.append(goal.prepared_limit * (1 + TOLERANCE), np.inf))
        held.append(np.append(load, 0.0))
        amounts.append(amount)
        begin += len(load) + 1
    return _Limits(
        np.stack(cells), np.concatenate(most), np.concatenate(held), np.stack(amounts, axis=1)
    )


def _packed(
    placement: Placement,
    rules: Rules,
    new: Ints,
    limits: _Limits,
    best: Callable[[Floats], np.intp],
    deadline: Deadline,
) -> tuple[Placement, int] | None:
    """A placement with new replicas within limits, and how many have no room; None if too late.

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
    deadline
        When to give up.
    """
    s, placement = placement.snapshot, placement.copy()
    cell, held, most = limits.cell, limits.held.copy(), limits.most[limits.cell]
    share = np.divide(1.0, most, out=np.zeros(most.shape), where=most > 0)
    size = (limits.amount / [_mean(each) for each in most]).max(axis=1)
    own_set = s.broker_set if len(s.broker_set) else np.zeros(s.n_brokers, np.int64)
    first, homeless = placement.replica_broker[new], 0
    placement.replica_broker[new] = -1
    for row in np.argsort(-size, kind="stable").tolist():
        if deadline.passed:
            return None
        p, slot = divmod(int(new[row]), placement.slots)
        there = placement.brokers[p][placement.brokers[p] >= 0]
        able = _able(placement, rules, p, slot)
        after = held[cell] + limits.amount[row][:, None]
        has_room = able & (after <= most).all(axis=0)
        if not has_room.any():
            # where it was, if no other replica of its partition has gone there
            free = first[row] not in there
            homeless += 1
            placement.brokers[p, slot] = first[row] if free else able.argmax()
            continue
        has_room = _preferred(has_room, own_set == own_set[first[row]])
        racks = np.zeros(len(s.racks), np.bool_)
        racks[s.broker_rack[there]] = True
        has_room = _preferred(has_room, ~racks[s.broker_rack])
        brokers = np.flatnonzero(has_room)
        to = int(brokers[best((after * share).max(axis=0)[brokers])])
        placement.brokers[p, slot] = to
        held[cell[:, to]] += limits.amount[row]
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


def _preferred(able: Bools, better: Bools) -> Bools:
    """Those of the brokers that are better, if any is."""
    both: Bools = able & better
    return both if both.any() else able


def _mean(most: Floats) -> float:
    finite = most[np.isfinite(most) & (most > 0)]
    return float(finite.mean()) if len(finite) else 1.0
