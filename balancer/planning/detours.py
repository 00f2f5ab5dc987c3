"""Chooses what leaves a full broker for a while, to make room for a blocked action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.planning.parameters import PlanningParameters
from balancer.problem.disks import pick_disk
from balancer.problem.rules import Rules
from balancer.search.arrays import first_of
from balancer.search.safety import Safety
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.scopes import Scope
from cluster_model.snapshot import Bools, Floats, Ints

# Shortages below this are rounding.
_NOTHING = 1e-12


@dataclass(frozen=True)
class _Block:
    """Cells of a hard goal that an action would overfill, and the contentment they need."""

    goal: int
    scope: Scope
    cells: Ints
    least: Floats
    missing: float


def best_detour(
    safety: Safety,
    rules: Rules,
    action: Batch,
    pending: Batch,
    parameters: PlanningParameters,
) -> Batch | None:
    """The step that makes most room for an action per cost; None if no safe one makes any.

    A replica of the destination goes to a broker with room, or to another disk, or hands over
    its leadership, which costs nothing. If one such step is enough, the cheapest that is. What
    is not pending anyway counts twice, because it returns.

    Parameters
    ----------
    safety, rules
        What is safe now, and what is legal.
    action
        One blocked action.
    pending
        All actions still to do.
    parameters
        How many replicas and brokers to consider.
    """
    blocks = _blocks(safety, action)
    if not blocks:
        return None
    placement = safety.scorer.placement
    waiting = np.isin(
        np.arange(len(placement.replica_broker)),
        (pending.partition * placement.slots + pending.slot)[pending.kind != LEAD],
    )
    way = _ways(safety, rules, action, pending, waiting, parameters)
    if not len(way):
        return None
    missing = _missing(safety, blocks, way, action)
    cost = safety.scorer.relative_cost(way)
    planned = waiting[way.partition * placement.slots + way.slot] & (way.kind != LEAD)
    cost = np.where(planned, cost, 2 * cost)
    enough = np.flatnonzero(missing <= _NOTHING)
    if len(enough):
        best = int(enough[np.argmin(cost[enough])])
    else:
        rate = (sum(b.missing for b in blocks) - missing) / cost
        best = int(np.argmax(rate))
        if rate[best] <= _NOTHING:
            return None
    return way[np.array([best])]


def _blocks(safety: Safety, action: Batch) -> list[_Block]:
    """What stops an action; empty if it is something that no detour changes."""
    scorer, found = safety.scorer, []
    transition = Transition(scorer.cluster, action)
    for i, goal in enumerate(scorer.goals):
        if not goal.hard:
            continue
        worse = safety.worsened(i, transition)[:, 0]
        if not worse.any():
            continue
        if goal.scope.of_partitions:
            return []
        cells = transition.cells(goal.scope)[worse, 0]
        least = safety.least(i, cells)
        missing = float((least - transition.scored[i][1][worse, 0]).clip(0).sum())
        found.append(_Block(i, goal.scope, cells, least, missing))
    return found


def _missing(safety: Safety, blocks: list[_Block], way: Batch, action: Batch) -> Floats:
    """(C,) contentment that the blocked cells lack if a detour and the action are done."""
    n = len(way)
    row = np.arange(2 * n)
    repeated = action[np.zeros(n, np.int64)]
    both = Batch.concatenate([way, repeated])[row % 2 * n + row // 2]
    transition = Transition(safety.scorer.cluster, both, unit=row // 2)
    total = np.zeros(n)
    for block in blocks:
        safety.scorer.diff(block.goal, transition)
        after, cells = transition.scored[block.goal][1], transition.cells(block.scope)
        for cell, least in zip(block.cells.tolist(), block.least.tolist(), strict=True):
            total += np.where(cells == cell, (least - after).clip(0), 0.0).sum(0)
    return total


def _ways(
    safety: Safety,
    rules: Rules,
    action: Batch,
    pending: Batch,
    waiting: Bools,
    parameters: PlanningParameters,
) -> Batch:
    """Safe steps that take load from the broker that an action goes to, one way per replica."""
    scorer = safety.scorer
    placement, f, broker = scorer.placement, scorer.placement.slots, int(action.target[0])
    at = np.flatnonzero(placement.replica_broker == broker)
    at = at[rules.movable[at // f] & (at // f != action.partition[0])]
    at = at[waiting[at] | _returns(placement, rules, at, broker)]
    at = _some(scorer.relative_cost(_stay(placement, at)), waiting[at], at, parameters)
    ways = [
        _leaderships(placement, at, rules.leads[broker]),
        _between_disks(placement, at),
        _elsewhere(placement, rules, at, pending, parameters),
    ]
    way = Batch.concatenate(ways)
    way = way[rules.legal(placement, way)]
    way = way[safety.safe(Transition(scorer.cluster, way))]
    return way[first_of((way.partition * f + way.slot) * 3 + way.kind)]


def _stay(placement: Placement, at: Ints) -> Batch:
    return Batch.of(MOVE, at // placement.slots, at % placement.slots, placement.replica_broker[at])


def _some(cost: Floats, waiting: Bools, at: Ints, parameters: PlanningParameters) -> Ints:
    """The replicas to consider: pending ones first, then of all costs."""
    most = parameters.detour_replicas
    order = np.lexsort((cost, ~waiting))
    if len(at) > most:
        first = min(int(waiting.sum()), most)
        rest = order[first:]
        spread = np.linspace(0, len(rest) - 1, most - first).astype(np.int64)
        order = np.concatenate([order[:first], rest[spread]])
    return at[order]


def _returns(placement: Placement, rules: Rules, at: Ints, broker: int) -> Bools:
    """(R,) whether a replica that leaves a broker may come back."""
    s, p = placement.snapshot, at // placement.slots
    leads = placement.leader[p] == at % placement.slots
    back: Bools = np.full(len(at), bool(rules.receives[broker]))
    back &= ~leads | rules.leads[broker]
    if rules.permitted is not None:
        back &= rules.permitted[s.partition_topic[p], broker]
    if len(placement.replica_disk):
        back &= np.append(s.disk_open, True)[placement.replica_disk[at]]
    return back


def _leaderships(placement: Placement, at: Ints, returns: bool) -> Batch:
    """Transfers of leadership to every other replica of the partitions that these lead."""
    f = placement.slots
    led = (at // f)[placement.leader[at // f] == at % f]
    p, slot = np.repeat(led, f), np.tile(np.arange(f), len(led))
    target = placement.replica_broker[p * f + slot]
    rows = np.flatnonzero((target >= 0) & (slot != placement.leader[p]) & returns)
    return Batch.of(LEAD, p[rows], slot[rows], target[rows])


def _between_disks(placement: Placement, at: Ints) -> Batch:
    """Moves to the emptiest disk of the same broker."""
    f, broker = placement.slots, placement.replica_broker[at]
    if not len(placement.replica_disk):
        return Batch.of(MOVE_DISK, at[:0], at[:0], at[:0])
    disk = pick_disk(placement, broker)
    rows = np.flatnonzero((disk >= 0) & (disk != placement.replica_disk[at]))
    at = at[rows]
    return Batch.of(MOVE_DISK, at // f, at % f, broker[rows], disk[rows])


def _elsewhere(
    placement: Placement, rules: Rules, at: Ints, pending: Batch, parameters: PlanningParameters
) -> Batch:
    """Moves to the brokers with most room, except where another replica of the partition goes."""
    f, n = placement.slots, placement.snapshot.n_brokers
    receivers = np.flatnonzero(rules.receives)
    room = receivers[np.argsort(_fullness(placement)[receivers], kind="stable")]
    room = room[: parameters.detour_brokers]
    row, target = np.repeat(at, len(room)), np.tile(room, len(at))
    way = Batch.of(MOVE, row // f, row % f, target, pick_disk(placement, target))
    going = np.unique(pending.partition * n + pending.target)
    return way[~np.isin(way.partition * n + target, going)]


def _fullness(placement: Placement) -> Floats:
    """(B,) the largest used share of any capacity."""
    s = placement.snapshot
    load = np.stack([placement.sums("broker", f"load.{r}") for r in s.resources], 1)
    share: Floats = np.divide(
        load, s.capacity, out=np.where(load > 0, np.inf, 0.0), where=s.capacity > 0
    ).max(1)
    return share
