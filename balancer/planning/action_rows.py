"""The steps of a plan as rows, and the prefix of them that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from balancer.planning.document import ActionKind
from balancer.planning.ordering import Steps
from balancer.planning.plan import ActionRows
from balancer.problem.budget import Budget
from balancer.problem.movement_cost import cost_at
from balancer.problem.rules import Rules
from balancer.search.arrays import first_of
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints, Snapshot
from goals import (
    Goal,
)
from goals.curves import TOLERANCE


def action_rows(
    start: Placement,
    walked: Placement,
    added: Ints,
    steps: Steps,
    goals: list[Goal],
    rules: Rules,
) -> ActionRows:
    s = start.snapshot
    removed = np.flatnonzero((start.replica_broker >= 0) & (walked.replica_broker < 0))
    none = np.full(len(removed) + len(added), -1, np.int64)
    flat = np.concatenate([removed, added])
    # the first replica of a partition leads it
    leads = np.zeros(len(flat), np.bool_)
    leads[len(removed) :] = added % start.slots == walked.leader[added // start.slots]
    arrives = cost_of_new(start, walked, added)
    kind_names: dict[int, ActionKind] = {MOVE: "move", LEAD: "leadership"}
    names: list[ActionKind] = ["remove" for _ in removed]
    names += ["add" for _ in added]
    names += [kind_names.get(k, "move_disk") for k in steps.batch.kind.tolist()]
    disks = len(start.replica_disk) > 0
    source_disk = (
        np.concatenate([start.replica_disk[removed], none[: len(added)]]) if disks else none
    )
    target_disk = (
        np.concatenate([none[: len(removed)], walked.replica_disk[added]]) if disks else none
    )
    return ActionRows(
        kind=tuple(names),
        partition=np.concatenate([flat // start.slots, steps.batch.partition]),
        source=np.concatenate([start.replica_broker[removed], none[: len(added)], steps.source]),
        target=np.concatenate(
            [none[: len(removed)], walked.replica_broker[added], steps.batch.target]
        ),
        source_disk=np.concatenate([source_disk, steps.source_disk]),
        target_disk=np.concatenate([target_disk, steps.batch.disk]),
        leads=np.concatenate([leads, steps.leads]),
        cost=np.concatenate([np.zeros(len(removed)), arrives, steps.cost]),
        diff=np.concatenate([np.zeros((len(flat), len(goals))), steps.diff[:, : len(goals)]]),
        names=tuple(g.name for g in goals),
        demoted=~rules.leads & (s.broker_state != BrokerState.DEAD),
        group=np.concatenate([none, steps.group]),
    )


def cost_of_new(start: Placement, walked: Placement, added: Ints) -> Floats:
    """(K,) what it costs to create each new replica, given by flat slot."""
    new, s = added // start.slots, start.snapshot
    leads = added % start.slots == walked.leader[new]
    cost: Floats = cost_at(start, new, leads, walked.replica_broker[added])
    # what is created from nothing copies nothing
    return np.where(s.creatable[new], 0.0, cost) if len(s.creatable) else cost


def affordable_first(start: Placement, walked: Placement, added: Ints, budget: Budget) -> Ints:
    """New replicas in another order: the cheapest ones that the budget allows come first.

    The replicas of a partition keep their order. A limited plan ends where the others begin.
    """
    if not budget.limits_moves or not len(added):
        return added
    cost, partition = cost_of_new(start, walked, added), (added // start.slots).tolist()
    most = dict[int, float]()
    for p, price in zip(partition, cost.tolist(), strict=True):
        most[p] = max(price, most.get(p, 0.0))
    order = np.argsort([most[p] for p in partition], kind="stable")
    moves = math.inf if budget.moves is None else float(budget.moves)
    left = math.inf if budget.cost is None else budget.cost * (1 + TOLERANCE)
    groups = [
        (group[walked.replica_broker[added]], limit)
        for limit, group in budget.per_group(start.snapshot)
    ]
    room = [np.full(int(cell.max()) + 1, limit) for cell, limit in groups]
    taken, closed = np.zeros(len(added), np.bool_), set[int]()
    for row in order.tolist():
        if moves < 1:
            break
        places = [(free, cell[row]) for free, (cell, _) in zip(room, groups, strict=True)]
        fits = cost[row] <= left and all(free[at] >= 1 for free, at in places)
        if not fits or partition[row] in closed:
            closed.add(partition[row])
            continue
        taken[row], moves, left = True, moves - 1, left - float(cost[row])
        for free, at in places:
            free[at] -= 1
    found: Ints = added[np.concatenate([order[taken[order]], order[~taken[order]]])]
    return found


def within(rows: ActionRows, budget: Budget, snapshot: Snapshot) -> int:
    """How many leading actions fit the budget: any prefix of a plan is itself a plan."""
    kinds = np.array(rows.kind)
    fits = np.ones(len(kinds), np.bool_)
    if budget.moves is not None:
        fits &= np.cumsum(np.isin(kinds, ("move", "move_disk", "add"))) <= budget.moves
    if budget.cost is not None:
        fits &= np.cumsum(rows.cost) <= budget.cost * (1 + TOLERANCE)
    moved = np.isin(kinds, ("move", "add"))
    for limit, group in budget.per_group(snapshot):
        fits &= _count_of_each(group, rows.source, moved & (rows.source >= 0)) <= limit
        arrives = moved | (kinds == "move_disk")
        fits &= _count_of_each(group, rows.target, arrives) <= limit
    if fits.all():
        return len(fits)
    kept = int(np.argmin(fits))
    # a group is kept or dropped as a whole
    cut = rows.group[kept]
    return kept if cut < 0 else int(np.argmax(rows.group == cut))


def _count_of_each(group: Ints, broker: Ints, counted: Bools) -> Ints:
    """(A,) how many rows up to each one count for its broker's group; 0 for rows that don't."""
    found = np.zeros(len(broker), np.int64)
    rows = np.flatnonzero(counted)
    cell = group[broker[rows]]
    order = np.argsort(cell, kind="stable")
    first = np.searchsorted(cell[order], cell[order])
    found[rows[order]] = np.arange(len(rows)) - first + 1
    return found


def in_turns(batch: Batch) -> Iterator[Batch]:
    """The actions in order, in parts of distinct partitions: those of one follow one another."""
    while len(batch):
        first = first_of(batch.partition)
        yield batch[first]
        rest = np.ones(len(batch), np.bool_)
        rest[first] = False
        batch = batch[rest]


def truncated(
    rows: ActionRows, n: int, start: Placement, walked: Placement, steps: Steps
) -> tuple[ActionRows, Placement]:
    ended = start.copy()
    changes = len(rows.kind) - len(steps.batch)
    for p, a, b in zip(
        rows.partition[: min(n, changes)].tolist(),
        rows.source[:changes].tolist(),
        rows.target[:changes].tolist(),
        strict=False,
    ):
        held = ended.brokers[p] if b < 0 else walked.brokers[p]
        at = p * ended.slots + int(np.flatnonzero(held == (a if b < 0 else b))[0])
        ended.replica_broker[at] = b
        if len(ended.replica_disk):
            ended.replica_disk[at] = -1 if b < 0 else walked.replica_disk[at]
    ended.invalidate_sums()
    for turn in in_turns(steps.batch[: max(n - changes, 0)]):
        ended.apply(turn)
    cut = slice(n)
    return (
        ActionRows(
            rows.kind[:n],
            rows.partition[cut],
            rows.source[cut],
            rows.target[cut],
            rows.source_disk[cut],
            rows.target_disk[cut],
            rows.leads[cut],
            rows.cost[cut],
            rows.diff[cut],
            rows.names,
            rows.demoted,
            rows.group[cut],
        ),
        ended,
    )
