"""From where a search ended to the steps that lead there, safe one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.arrays import first_of
from balancer.candidates import action_bytes, action_cost
from balancer.scoring import Scorer, Series, Transition
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools, Floats, Ints


@dataclass(frozen=True)
class Steps:
    """Ordered steps of a plan; A rows, and G goals.

    Parameters
    ----------
    batch
        The actions, in order; slots are those of the start.
    source, source_disk : (A,) int
        What each action takes from, -1 for none.
    bytes : (A,) float
        What each action copies.
    leads : (A,) bool
        Whether the action moves the partition's leadership.
    diff : (A, G) float
        Score difference each action makes, per goal, when its turn comes.
    left_out : int
        Actions dropped because no order of steps would have been safe.
    """

    batch: Batch
    source: Ints
    source_disk: Ints
    bytes: Floats
    leads: Bools
    diff: Floats
    left_out: int


def align(start: Placement, final: Placement) -> None:
    """Permute the slots of `final` so that a broker that keeps a replica keeps its slot.

    Replicas of one partition are alike: A to B and B to C become A to C. The leader's
    slot is paired with the new leader's broker where both change.
    """
    rows = np.flatnonzero((start.brokers != final.brokers).any(1))
    if not len(rows):
        return
    f = start.slots
    then, now = start.brokers[rows], final.brokers[rows]
    same = (then[:, :, None] == now[:, None, :]) & (then >= 0)[:, :, None]
    kept, stays = same.any(2), same.any(1)
    # source column of each slot: its own broker's, else the next newcomer (or empty slot)
    origin = np.where(kept, same.argmax(2), -1)
    taken = stays | (now < 0)
    rack = np.append(start.snapshot.broker_rack, -1)
    here, there = rack[then], np.where(now < 0, -2, rack[now])
    alike = here[:, :, None] == there[:, None, :]
    leading = (np.arange(f) == start.leader[rows][:, None])[:, :, None] & (
        np.arange(f) == final.leader[rows][:, None]
    )[:, None, :]
    anything = np.ones_like(alike)
    # within a rack first: then no step crowds a rack that a later one relieves
    for wanted in (
        alike,
        leading & (then >= 0)[:, :, None],
        (then >= 0)[:, :, None] & anything,
        anything,
    ):
        for slot in range(f):
            for new in range(f):
                fits = (origin[:, slot] < 0) & ~taken[:, new] & wanted[:, slot, new]
                origin[fits, slot] = new
                taken[fits, new] = True
    # what is left over on both sides is empty
    empty = np.argsort(now >= 0, axis=1, kind="stable")
    origin = np.where(origin < 0, empty[:, :1], origin)
    final.brokers[rows] = np.take_along_axis(now, origin, 1)
    if len(final.replica_disk):
        disks = final.replica_disk.reshape(-1, f)
        disks[rows] = np.take_along_axis(disks[rows], origin, 1)
    final.leader[rows] = (origin == final.leader[rows][:, None]).argmax(1)


def steps_between(start: Placement, final: Placement) -> Batch:
    """The actions from one placement to an aligned other, each partition's in order.

    Leadership to a replica that stays goes first: the old leader then moves as a follower.
    """
    f = start.slots
    here, there = start.replica_broker, final.replica_broker
    at = np.flatnonzero((here != there) & (here >= 0) & (there >= 0))
    disk = final.replica_disk[at] if len(final.replica_disk) else None
    moves = Batch.of(MOVE, at // f, at % f, there[at], disk)
    rows = np.flatnonzero(start.leader != final.leader)
    slot = final.leader[rows]
    leads = Batch.of(LEAD, rows, slot, there[rows * f + slot])
    stays = here[rows * f + slot] == there[rows * f + slot]
    parts = [leads[stays], moves, leads[~stays]]
    if len(final.replica_disk):
        differ = (here == there) & (here >= 0) & (start.replica_disk != final.replica_disk)
        at = np.flatnonzero(differ)
        parts.append(Batch.of(MOVE_DISK, at // f, at % f, there[at], final.replica_disk[at]))
    return Batch.concatenate(parts)


def order(scorer: Scorer, batch: Batch) -> Steps:
    """Put actions into an order in which no step makes any hard goal's cell worse.

    The scorer's placement is where the steps start, and afterwards where they end.
    Each pass takes the first open action of every partition, most urgent first, and
    keeps those that are safe once all before them are done.
    """
    taken: list[Batch] = []
    facts: list[tuple[Ints, Ints, Floats, Bools, Floats]] = []
    idle = 0
    while len(batch) and idle <= scorer.placement.slots:
        ready = np.flatnonzero(~_waiting(scorer.placement, batch))
        first = ready[first_of(batch.partition[ready])]
        turn = first[scorer.harmless(Transition(scorer.cluster, batch[first]), hard_only=True)]
        turn = turn[_urgency(scorer, batch[turn])]
        while len(turn):
            series = Series(scorer.cluster, batch[turn])
            safe = scorer.harmless(series, hard_only=True)
            if safe.all():
                break
            turn = turn[safe]
        if not len(turn):
            # let another action of each partition try
            later = np.zeros(len(batch), np.bool_)
            later[first] = True
            batch = Batch.concatenate([batch[~later], batch[later]])
            idle += 1
            continue
        idle = 0
        now = batch[turn]
        placement = scorer.placement
        diffs = [scorer.diff(i, series)[0] for i in range(len(scorer.goals))]
        leads = (now.kind == LEAD) | (
            (now.kind == MOVE) & (now.slot == placement.leader[now.partition])
        )
        facts.append(
            (
                placement.source(now),
                placement.source_disk(now),
                action_bytes(placement, now),
                leads,
                np.stack(diffs, 1) if diffs else np.zeros((len(now), 0)),
            )
        )
        taken.append(now)
        scorer.commit(now)
        done, tried = np.zeros(len(batch), np.bool_), np.zeros(len(batch), np.bool_)
        done[turn], tried[first] = True, True
        batch = Batch.concatenate([batch[~tried], batch[tried & ~done]])
    if not taken:
        none = np.empty(0, np.int64)
        empty = np.empty(0)
        width = len(scorer.goals)
        return Steps(
            batch[:0], none, none, empty, np.empty(0, np.bool_), np.empty((0, width)), len(batch)
        )
    source, disk, size, leads, diff = (np.concatenate(x) for x in zip(*facts, strict=True))
    return Steps(Batch.concatenate(taken), source, disk, size, leads, diff, len(batch))


def _waiting(placement: Placement, batch: Batch) -> Bools:
    """(C,) whether an action elects a replica that has yet to move to its broker."""
    at = batch.partition * placement.slots + batch.slot
    waiting: Bools = (batch.kind == LEAD) & np.isin(at, at[batch.kind == MOVE])
    return waiting


def _urgency(scorer: Scorer, batch: Batch) -> Ints:
    """Order of a batch: what serves the first tier most per byte, then the next tier, …"""
    transition = Transition(scorer.cluster, batch)
    cost = action_cost(scorer.placement, batch)
    keys = [-np.round(scorer.gain(tier, transition) / cost, 12) for tier in scorer.tiers]
    return np.lexsort([np.arange(len(batch)), *reversed(keys)])
