"""Finds places for new replicas that overfill nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from balancer.planning.parameters import PlanningParameters
from balancer.problem.disks import pick_disk
from balancer.problem.rules import Rules
from balancer.search.arrays import first_of
from balancer.search.safety import Fill
from balancer.search.scorer import EPSILON, Scorer
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from cluster_model.columns import Column
from cluster_model.placement import MOVE, Batch, Placement
from cluster_model.scopes import Scope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Goal

# new replicas whose destinations are compared at once, and the slots of all of them
CHUNK, SLOTS = 4096, 1 << 22


def admit(
    scorer: Scorer,
    requested: Ints,
    final: Placement,
    rules: Rules,
    parameters: PlanningParameters | None = None,
) -> Ints:
    """Add the new replicas that overfill no broker, host or disk; skip the others.

    Each goes where `final` has it. If a hard goal's cell would become less content there,
    it goes to the receiver with the fewest replicas that can take it, preferably in a new rack.

    Parameters
    ----------
    scorer
        Its placement has the removals done and the new replicas not yet added.
    requested : (C,) int
        Flat slots that need a new replica.
    final
        Where the search ended.
    rules
        Which brokers may receive which replicas.
    parameters
        How much effort to spend; None for the defaults.

    Returns
    -------
    (K,) int
        The slots that got their replica, in order of addition.
    """
    placement, f = scorer.placement, scorer.placement.slots
    disks = len(placement.replica_disk) > 0
    added, rest, fill = [np.empty(0, np.int64)], requested, Fill(scorer)
    while len(rest):
        disk = final.replica_disk[rest] if disks else None
        batch = Batch.of(MOVE, rest // f, rest % f, final.replica_broker[rest], disk)
        batch = batch[first_of(batch.partition)]
        done = _add_what_fits(
            scorer, fill, batch[~np.logical_or.reduce(misplaced(scorer, batch, rules))]
        )
        if not len(done):
            break
        added.append(done)
        rest = rest[~np.isin(rest, done)]
    most = (parameters or PlanningParameters()).futile_additions
    # small ones are the easiest to place
    vain, size = 0, placement.contribution(f"load.{placement.snapshot.resources[-1]}")[1]
    for slot in rest[np.argsort(size[rest // f], kind="stable")].tolist():
        if placement.brokers[slot // f].max() < 0 and slot % f != placement.leader[slot // f]:
            # a partition without its first replica, which leads, gets no other
            continue
        done = _add_what_fits(scorer, fill, _elsewhere(scorer, fill, slot, final, rules)[:1])
        added.append(done)
        vain = 0 if len(done) else vain + 1
        if vain > most:
            break
    return np.concatenate(added)


def _add_what_fits(scorer: Scorer, fill: Fill, batch: Batch) -> Ints:
    """Add those of the new replicas (of distinct partitions) that fit; returns their slots."""
    while len(batch):
        series = _AdditionSeries(scorer.cluster, batch)
        bearable = _acceptable(scorer, fill, series)
        if bearable.all():
            series.apply()
            scorer.refresh(series)
            break
        batch = batch[bearable]
    return batch.partition * scorer.placement.slots + batch.slot


def _elsewhere(scorer: Scorer, fill: Fill, slot: int, final: Placement, rules: Rules) -> Batch:
    """Destinations for a new replica that no hard goal forbids, best first."""
    placement, f = scorer.placement, scorer.placement.slots
    held = placement.brokers[slot // f]
    # another disk of the intended broker may have room
    others = np.delete(final.brokers[slot // f], slot % f)
    receives = np.flatnonzero(rules.takers(placement, slot // f))
    free, disk = destinations(
        placement, receives[~np.isin(receives, np.concatenate([held, others]))]
    )
    at = np.full(len(free), slot)
    batch = Batch.of(MOVE, at // f, at % f, free, disk)
    fits = _acceptable(scorer, fill, Additions(scorer.cluster, batch))
    fits &= ~np.logical_or.reduce(misplaced(scorer, batch, rules))
    crowded = np.isin(
        placement.snapshot.broker_rack[free], placement.snapshot.broker_rack[held[held >= 0]]
    )
    fuller = disk != pick_disk(placement, free)
    best = np.lexsort((fuller, placement.sums("broker", "replica_count")[free], crowded))
    return batch[best[fits[best]]]


def destinations(placement: Placement, brokers: Ints) -> tuple[Ints, Ints]:
    """Possible destinations on some brokers: their open disks, or -1 on those without disks."""
    s = placement.snapshot
    disks = np.flatnonzero(s.disk_open & np.isin(s.disk_broker, brokers))
    bare = np.setdiff1d(brokers, s.disk_broker)
    return (
        np.concatenate([bare, s.disk_broker[disks]]),
        np.concatenate([np.full(len(bare), -1), disks]),
    )


def misplaced(scorer: Scorer, batch: Batch, rules: Rules) -> Bools:
    """(G, C) whether each goal would prefer another destination for a new replica.

    Covers the goals of :func:`partition_goals`. They distinguish brokers by rack and broker
    set only, so one destination of every rack and broker set is compared, among those that
    may hold the partition's topic.
    """
    s = scorer.placement.snapshot
    kind = s.broker_rack * (len(s.broker_sets) + 1)
    kind = kind + s.broker_set + 1 if len(s.broker_set) else kind
    if (batch.slot == scorer.placement.leader[batch.partition]).any():
        kind = 2 * kind + scorer.cluster.leader_eligible
    receives = np.flatnonzero(rules.receives)
    homes = receives[first_of(kind[receives])][None]
    home_of = np.zeros(s.n_partitions, np.int64)
    if rules.permitted is not None:
        homes, home_of = (
            _homes_by_topic(kind[receives], receives, rules.permitted),
            s.partition_topic,
        )
    goals = partition_goals(scorer)
    wrong = np.zeros((len(goals), len(batch)), np.bool_)
    size = max(1, min(CHUNK, SLOTS // max(1, homes.shape[1] * scorer.placement.slots)))
    for begin in range(0, len(batch), size):
        part = batch[begin : begin + size]
        ((_, here),) = Additions(scorer.cluster, part).partition_states()
        score = [np.asarray(g.score(here)) for g in goals]
        rows = np.flatnonzero(np.any([x < 1 for x in score], axis=0))
        if not len(rows):
            continue
        home = homes[home_of[part.partition[rows]]]
        there = replace(part[np.repeat(rows, home.shape[1])], target=np.maximum(home, 0).ravel())
        ((_, elsewhere),) = Additions(scorer.cluster, there).partition_states()
        for k, goal in enumerate(goals):
            there_score = np.asarray(goal.score(elsewhere)).reshape(home.shape)
            best = np.where(home >= 0, there_score, 0.0).max(1, initial=0.0)
            wrong[k, begin + rows] = score[k][rows] < best - EPSILON
    return wrong


def _homes_by_topic(kind: Ints, receives: Ints, permitted: Bools) -> Ints:
    """(T, K) a receiver of each kind that may hold each topic, -1 for none."""
    kinds = np.unique(kind)
    homes = np.full((len(permitted), len(kinds)), -1)
    for k, one in enumerate(kinds.tolist()):
        members = receives[kind == one]
        may = permitted[:, members]
        homes[:, k] = np.where(may.any(1), members[may.argmax(1)], -1)
    return homes


def partition_goals(scorer: Scorer) -> list[Goal]:
    """The hard goals that judge partitions."""
    return [g for g in scorer.goals if g.hard and g.scope.of_partitions]


class Additions(Transition):
    """New replicas, each scored as if it came alone: their cells are the destination's.

    The first replica of a partition leads it, the others follow.
    """

    def _keys(self, scope: Scope, b: Batch) -> list[Ints]:
        return [self.placement.keys(scope, b.partition, b.target, b.disk)]

    def signed_delta(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        """(k, 1, C) what each replica adds to its cell; (k, K, C) if it has several."""
        if self._is_gathered(scope):
            return super().signed_delta(scope, columns)
        return np.stack([self._adds(column) for column in columns])[:, None]

    def _added(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        if scope.inner is not None:
            return super()._added(scope, columns)
        return self._per_row(scope, columns, [np.stack([self._adds(c) for c in columns])])

    def _adds(self, column: Column) -> Floats:
        """(C,) what each replica adds to a column."""
        placement, b = self.placement, self.batch
        if column.is_former:
            _, (returned,) = placement.former_changes(b, (column,))
            less: Floats = -returned
            return less
        lead, follow = placement.summand(column)
        leads = b.slot == placement.leader[b.partition]
        if column.is_local and leads.any():
            gained = placement.local_changes(b, column, self._in_turn())[1]
            return np.where(leads, gained, 0.0)
        return np.where(leads, lead[b.partition], follow[b.partition])

    def apply(self) -> None:
        """Put the replicas in their places."""
        placement, b = self.placement, self.batch
        at = b.partition * placement.slots + b.slot
        for scope in {scope for scope, _, _ in placement.kept_sums()}:
            if self._is_gathered(scope):
                placement.forget(scope)
        amounts = {column: self._adds(column) for _, column, _ in placement.kept_sums()}
        placement.replica_broker[at] = b.target
        if len(placement.replica_disk):
            placement.replica_disk[at] = b.disk
        for scope, column, kept in placement.kept_sums():
            key = self.cells(scope)[0]
            real = key >= 0
            np.add.at(kept, key[real], amounts[column][real])


class _AdditionSeries(Additions, SequentialTransition):
    """New replicas, added one after the other."""


def _acceptable(scorer: Scorer, fill: Fill, additions: Additions) -> Bools:
    """(C,) whether no broker, host, disk or topic becomes less content with a hard goal."""
    ok = fill.kept(additions)
    for i, goal in enumerate(scorer.goals):
        if goal.hard and not goal.scope.of_partitions:
            ok &= ~scorer.diff(i, additions)[1]
    return ok
