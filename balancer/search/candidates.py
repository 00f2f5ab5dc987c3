"""Draws the actions worth scoring, from cells that are not content.

Goals only judge, so nothing here knows what a goal is about. For a discontented cell, actions push
load away, pull load in or change leaders, and the scores decide which action helps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from balancer.problem.disks import emptiest_with, pick_disk
from balancer.problem.rules import Rules
from balancer.search.arrays import descending, stable_order
from balancer.search.scorer import Scorer, Tier
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.scopes import BROKER, HOST, BrokerScope, Divided, PerTopic, Scope
from cluster_model.snapshot import Bools, Floats, Ints
from cluster_model.traffic import connected
from goals import Cluster, Groups, Pairs, pairs_of


class ReplicaIndex:
    """Replicas by broker, and within a broker in partition order, and so by topic.

    It follows the placement: what has moved since the last call is taken out and put in again.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._where: Ints = np.empty(0, np.int64)
        # broker * slots of the cluster + flat position, in ascending order
        self._keys: Ints = np.empty(0, np.int64)

    def update(self) -> None:
        """Take over what has changed in the placement."""
        where = self._placement.replica_broker
        n, changed = len(where), np.arange(0)
        if len(self._where):
            changed = np.flatnonzero(where != self._where)
        if not len(self._where) or len(changed) > n // 8:
            held = np.flatnonzero(where >= 0)
            own = where.take(held)
            held = held.take(stable_order(own))
            self._keys, self._where = where.take(held) * n + held, where.copy()
        elif len(changed):
            gone, came = (_keys(table.take(changed), changed, n) for table in (self._where, where))
            keys = np.delete(self._keys, np.searchsorted(self._keys, gone))
            came.sort()
            self._keys = np.insert(keys, np.searchsorted(keys, came), came)
            self._where[changed] = where.take(changed)

    def sample(self, brokers: Ints, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Up to `n` replicas of each broker, spread evenly from a random start.

        Returns their flat positions and, for each, the row of `brokers` it belongs to.
        """
        every = np.arange(self._placement.snapshot.n_brokers + 1) * len(self._where)
        begin = np.searchsorted(self._keys, every)
        start, count = begin[brokers], np.diff(begin)[brokers]
        take = np.minimum(count, n)
        row = np.repeat(np.arange(len(brokers)), take)
        rank = np.arange(len(row)) - np.repeat(np.cumsum(take) - take, take)
        shift = rng.random(len(brokers))[row]
        offset = ((rank + shift) * (count[row] / take[row])).astype(np.int64)
        return self.at(start[row] + offset), row

    def between(self, brokers: Ints, low: Ints | int, high: Ints | int) -> tuple[Ints, Ints]:
        """Where the replicas of brokers from a flat position to another begin, and how many."""
        base = brokers * len(self._where)
        begin = np.searchsorted(self._keys, base + low)
        return begin, np.searchsorted(self._keys, base + high) - begin

    def at(self, rows: Ints) -> Ints:
        """Flat positions of replicas by their places in the index."""
        keys = self._keys.take(rows)
        found: Ints = keys - keys // len(self._where) * len(self._where)
        return found


def _keys(brokers: Ints, at: Ints, n: int) -> Ints:
    """Keys of replicas on brokers, without those on none."""
    held = brokers >= 0
    return brokers[held] * n + at[held]


class Candidates:
    """Draws candidate actions for a tier; deterministic for a given generator."""

    def __init__(self, scorer: Scorer, rules: Rules, rng: np.random.Generator) -> None:
        self.scorer, self.rules, self.rng = scorer, rules, rng
        self.parameters = scorer.parameters
        self.cluster: Cluster = scorer.cluster
        self.placement: Placement = scorer.placement
        self._index = ReplicaIndex(self.placement)
        self.receivers: Ints = np.flatnonzero(rules.receives)
        self.pairs: Pairs | None = pairs_of(scorer.goals, self.cluster)
        # What an action costs, for the choice among those of equal gain.
        self.price: Callable[[Batch], Floats] = self.scorer.relative_cost
        # Whether to draw more replicas and fewer destinations, because most replicas find one.
        self.fruitful = False
        # Whether to draw many replicas for few destinations, rather than the reverse.
        self.deep = False
        # Whether to draw only transfers of leadership, which cost nothing.
        self.leads_only = False
        # Partitions that may still move once limits are used up; None for all.
        self.movable: Ints | None = None
        # Cells below these scores are worked on; by default all that are not content.
        self.levels: list[float] = [1.0] * len(scorer.goals)

    def draw(self, tier: Tier, destinations: Ints, budget: int) -> Batch:
        """About `budget` candidate actions for the discontented cells of a tier's goals."""
        index = self._index
        index.update()
        found: list[Batch] = []
        brokers: Bools = np.zeros(self.placement.snapshot.n_brokers, np.bool_)
        slots: list[Ints] = []
        for i in tier.goals:
            scope, score = self.scorer.goals[i].scope, self.scorer.scores[i]
            low = score < self.levels[i]
            unmet = np.flatnonzero(low)
            if not len(unmet):
                continue
            if isinstance(scope, BrokerScope):
                brokers |= self._members(scope, low)
            elif isinstance(scope, PerTopic):
                found += self._topic_actions(scope.of, unmet, index, destinations, budget)
            elif isinstance(scope.inner or scope, Divided):
                found += self._related_actions(scope, score < 1, destinations, budget)
            elif scope.of_partitions:
                slots.append(self._some(unmet, budget // 8))
                if self.scorer.goals[i].aggregate == "sum":
                    found.append(self._home(slots[-1]))
            else:
                found.append(self._disk_moves(unmet, budget))
                if self.scorer.goals[i].hard:
                    found += self._off_disks(low, destinations, budget)
        if slots:
            found += self._partition_actions(np.unique(np.concatenate(slots)), destinations)
        if brokers.any():
            found += self._broker_actions(
                tier, np.flatnonzero(brokers), index, destinations, budget
            )
        batch = Batch.concatenate(found) if found else nothing()
        if self.leads_only:
            batch = batch[batch.kind == LEAD]
        batch = emptiest_with(self.placement, batch)
        return batch[self.rules.legal(self.placement, batch)]

    def swaps(self, tier: Tier, budget: int) -> tuple[Batch, Batch]:
        """About `budget` swaps between what is discontented and others.

        Of brokers, topics on brokers, and replicas of kinds of topics.
        """
        index = self._index
        index.update()
        if len(self.receivers) < 2:
            return nothing(), nothing()
        found = [self._topic_swaps(tier, index, budget)]
        brokers = np.flatnonzero(self._discontented_brokers(tier) & self.rules.receives)
        related = self._related_replicas(tier)
        if len(brokers) + len(related):
            share = max(budget // max(len(brokers), 1), self.parameters.least_swaps_per_broker)
            each = max(round(share ** (1 / 3)), 4)
            mine, _ = index.sample(brokers, 2 * each, self.rng)
            mine = np.concatenate([mine, self._some(related, max(2 * budget // each**2, 1))])
            others = self._targets(mine, self.receivers, each)
            theirs, pair = index.sample(others, max(each // 2, 2), self.rng)
            found.append((mine[pair // each], theirs))
        mine, theirs = (np.concatenate(column) for column in zip(*found, strict=True))
        return self.exchanged(mine, theirs)

    def _topic_swaps(self, tier: Tier, index: ReplicaIndex, budget: int) -> tuple[Ints, Ints]:
        """About `budget` pairs of replicas, one of a topic with too many or too few on a broker.

        Moves alone do not help where the broker, or another one, may not hold fewer or more
        replicas in total.
        """
        share, width = self.parameters.least_per_cell, self.parameters.least_destinations
        none = np.empty(0, np.int64)
        found = [(none, none)]
        for i in tier.goals:
            scope = self.scorer.goals[i].scope
            cells = np.flatnonzero(self.scorer.scores[i] < self.levels[i])
            if not isinstance(scope, PerTopic) or scope.of != BROKER or not len(cells):
                continue
            topic, broker, at, row = self._of_topics(BROKER, cells, budget // width)
            own = np.repeat(self._held(topic, broker, index, share // 4), width)
            theirs, pair = index.sample(self._targets(own, self.receivers, 1), 1, self.rng)
            found.append((own[pair], theirs))
            theirs, pair = index.sample(broker[row], 1, self.rng)
            found.append((at[pair], theirs))
        mine, theirs = (np.concatenate(column) for column in zip(*found, strict=True))
        return mine, theirs

    def exchanged(self, mine: Ints, theirs: Ints) -> tuple[Batch, Batch]:
        """The legal ones among swaps of replicas, which are given by flat position."""
        placement = self.placement
        here, there = placement.replica_broker[mine], placement.replica_broker[theirs]
        p, q = self._split(mine)[0], self._split(theirs)[0]
        keep = (here != there) & (p != q)
        mine, theirs, here, there = mine[keep], theirs[keep], here[keep], there[keep]
        disks = len(placement.replica_disk) > 0
        batch, partner = (
            Batch.of(MOVE, *self._split(at), to, placement.replica_disk[other] if disks else None)
            for at, to, other in ((mine, there, theirs), (theirs, here, mine))
        )
        legal = self.rules.legal(placement, batch) & self.rules.legal(placement, partner)
        return batch[legal], partner[legal]

    def groups(self, tier: Tier, destinations: Ints, budget: int) -> tuple[Batch, Ints]:
        """About `budget` moves of whole groups, and of partitions that should join their group.

        Returns their actions and, in ascending order, the number of the move that each
        belongs to. Partitions of a group on one broker move as a whole, to brokers with other
        partitions of the group, and from and to discontented brokers; a partition whose mate is
        on another broker moves there alone.
        """
        discontented = self._discontented_brokers(tier) | self._apart(tier)
        if self.pairs is None or not discontented.any():
            return nothing(), np.empty(0, np.int64)
        one, two = self.pairs
        where, n = self.placement.location, self.placement.snapshot.n_partitions
        local = where[one] == where[two]
        label = connected(n, one[local], two[local])
        size = np.bincount(label, minlength=n)
        each = self.parameters.group_destinations
        moves = [self._to_join(discontented, where, local, budget // 4)]
        away = np.flatnonzero((size > 1) & (size <= self.parameters.group_members))
        for group, ends in (
            (away[discontented[where[away]]], destinations),
            (away, self._taking(tier, np.flatnonzero(discontented & self.rules.receives))),
        ):
            if len(ends):
                group = np.repeat(self._some(group, budget // (4 * each)), each)
                moves.append((group, self.rng.choice(ends, len(group))))
        p, to = (np.concatenate(column) for column in zip(*moves, strict=True))
        whole = size[label[p]] <= self.parameters.group_members
        batch, unit = self._whole(label, label[p[whole]], to[whole])
        p, to = moves[0]
        member = size[label[p]] > 1
        single = self._leaders_to(p[member], to[member])
        numbers = int(whole.sum()) + np.arange(len(single))
        return Batch.concatenate([batch, single]), np.concatenate([unit, numbers])

    def _to_join(self, discontented: Bools, where: Ints, local: Bools, n: int) -> tuple[Ints, Ints]:
        """Up to `n` partitions whose mate is on another broker, and that broker."""
        assert self.pairs is not None
        one, two = self.pairs.one[~local], self.pairs.two[~local]
        ends, others = np.concatenate([one, two]), np.concatenate([two, one])
        rows = self._some(np.flatnonzero(discontented[where[ends]]), n)
        return ends[rows], where[others[rows]]

    def _whole(self, label: Ints, group: Ints, target: Ints) -> tuple[Batch, Ints]:
        """Moves of all members of each group to the group's target."""
        members = np.argsort(label, kind="stable")
        begin = np.searchsorted(label[members], group)
        size = np.searchsorted(label[members], group, side="right") - begin
        unit = np.repeat(np.arange(len(group)), size)
        rank = np.arange(len(unit)) - np.repeat(np.cumsum(size) - size, size)
        return self._leaders_to(members[begin[unit] + rank], target[unit]), unit

    def _leaders_to(self, partition: Ints, target: Ints) -> Batch:
        slot, disk = self.placement.leader[partition], pick_disk(self.placement, target)
        return Batch.of(MOVE, partition, slot, target, disk)

    def _discontented_brokers(self, tier: Tier) -> Bools:
        """(B,) brokers that are not content with some goal of the tier."""
        discontented: Bools = np.zeros(self.placement.snapshot.n_brokers, np.bool_)
        for i in tier.goals:
            scope = self.scorer.goals[i].scope
            # a host cell says nothing about which of its brokers is too full: broker goals do
            if isinstance(scope, BrokerScope) and scope != HOST:
                discontented |= self._members(scope, self.scorer.scores[i] < self.levels[i])
        return discontented

    def _apart(self, tier: Tier) -> Bools:
        """(B,) brokers with leaders in a cell that is not content with a goal that offers groups.

        Goals with the scope broker are those of :meth:`_discontented_brokers`.
        """
        placement = self.placement
        s, where = placement.snapshot, placement.location
        apart: Bools = np.zeros(s.n_brokers, np.bool_)
        led = np.flatnonzero(placement.leader >= 0)
        slot = led * placement.slots + placement.leader[led]
        disk = (
            placement.replica_disk[slot] if len(placement.replica_disk) else np.full(len(led), -1)
        )
        for i in tier.goals:
            goal, unmet = self.scorer.goals[i], self.scorer.scores[i] < 1
            if not isinstance(goal, Groups) or goal.scope == BROKER:
                continue
            cell = led if goal.scope.of_partitions else goal.scope.keys(s, led, where[led], disk)
            inside = np.atleast_2d(np.append(unmet, False)[cell]).any(axis=0)
            apart[where[led[np.asarray(inside)]]] = True
        return apart

    def _members(self, scope: BrokerScope, cells: Bools) -> Bools:
        """(B,) the brokers of some cells."""
        own = scope.members(self.placement.snapshot)
        found: Bools = np.append(cells, False)[own]
        return found

    @property
    def few(self) -> bool:
        """Whether there are no more moves than a round draws, on a small cluster without groups."""
        replicas, own = self.placement.snapshot.n_replicas, self.parameters
        # a move between the disks of a broker needs no receiver
        disks = len(self.placement.replica_disk)
        small = replicas <= own.perturbed_replicas and self.pairs is None and not disks
        return small and replicas * len(self.receivers) <= own.least_candidates

    def all_actions(self) -> Batch:
        """Every legal move and transfer of leadership: few, on small clusters."""
        at = np.flatnonzero(self.placement.replica_broker >= 0)
        n = len(self.receivers)
        partition, slot = self._split(np.repeat(at, n))
        target = np.tile(self.receivers, len(at))
        moves = Batch.of(MOVE, partition, slot, target, pick_disk(self.placement, target))
        batch = Batch.concatenate([moves, self._leads(at)])
        return batch[self.rules.legal(self.placement, batch)]

    def all_swaps(self) -> tuple[Batch, Batch]:
        """Every legal swap of two replicas: few, on small clusters."""
        at = np.flatnonzero(self.placement.replica_broker >= 0)
        one, two = np.triu_indices(len(at), 1)
        return self.exchanged(at[one], at[two])

    def random_actions(self, n: int) -> Batch:
        """The legal ones among `n` moves and `n` leadership transfers drawn at random."""
        held = np.flatnonzero(self.placement.replica_broker >= 0)
        if not len(held):
            return nothing()
        at = self.rng.choice(held, n)
        moves, leads = self.spread(at, self.receivers, 1), self._leads(at)
        batch = Batch.concatenate([moves, leads])
        batch = batch[self.rules.legal(self.placement, batch)]
        return batch[self.rng.permutation(len(batch))]

    def receptive(self, number: int) -> Ints:
        """The brokers with the most room for the load that tier `number` needs to move.

        These could take a parcel of load without becoming less content. The parcel is the largest
        one that leaves enough brokers to choose from.
        """
        parcels = self.parameters.destination_parcels
        keys = np.tile(np.arange(self.placement.snapshot.n_brokers), (len(parcels), 1))
        counted = {i for i, goal in enumerate(self.scorer.goals) if goal.hard}
        counted.update(*(tier.goals for tier in self.scorer.tiers[: max(number + 1, 2)]))
        state = self.cluster.shifted(np.array(parcels)[:, None], keys)
        unhurt = np.ones(keys.shape, np.bool_)
        for i, score in self.scorer.judge(BROKER, counted, state):
            unhurt &= score >= self.scorer.scores[i]
        room = unhurt[:, self.receivers]
        enough = max(8, len(self.receivers) // self.parameters.receptive_one_in)
        count = room.sum(1)
        level = int(np.argmax(count >= enough)) if (count >= enough).any() else len(parcels)
        return self.receivers if level == len(parcels) else self.receivers[room[level]]

    def _taking(self, tier: Tier, brokers: Ints) -> Ints:
        """Those of some brokers that would become more content with a little more load."""
        state = self.cluster.shifted(self.parameters.destination_parcels[-1], brokers)
        gain = np.zeros(len(brokers))
        weight = dict(zip(tier.goals, tier.weights, strict=True))
        for i, score in self.scorer.judge(BROKER, set(weight), state):
            gain += weight[i] * (score - self.scorer.scores[i][brokers])
        return brokers[gain > 0]

    def _some(self, rows: Ints, n: int) -> Ints:
        if len(rows) <= max(n, 1):
            return rows
        return np.sort(self.rng.choice(rows, max(n, 1), replace=False))

    def _split(self, at: Ints) -> tuple[Ints, Ints]:
        partition = at // self.placement.slots
        return partition, at - partition * self.placement.slots

    def spread(self, at: Ints, destinations: Ints, n: int) -> Batch:
        """Each replica to `n` of the destinations, or to all if there are no more."""
        if not len(destinations) or not len(at):
            return nothing()
        if len(destinations) <= n and self.rules.permitted is None:
            target = np.tile(destinations, len(at))
            n = len(destinations)
        else:
            target = self._targets(at, destinations, n)
        partition, slot = self._split(np.repeat(at, n))
        return Batch.of(MOVE, partition, slot, target, pick_disk(self.placement, target))

    def _targets(self, at: Ints, destinations: Ints, n: int) -> Ints:
        """`n` random destinations of each replica, replica by replica.

        If brokers are limited to certain topics: among the destinations that may hold the
        replica's topic or, if none may, among all receivers that may.
        """
        permitted = self.rules.permitted
        if permitted is None:
            return destinations[self.rng.integers(0, len(destinations), len(at) * n)]
        topics, row = np.unique(
            self.placement.snapshot.partition_topic[at // self.placement.slots],
            return_inverse=True,
        )
        # each topic's own destinations, then all receivers; what it may not use comes last
        choices = np.concatenate([destinations, self.receivers])
        allowed = permitted[np.ix_(topics, choices)]
        near = allowed[:, : len(destinations)].sum(1)
        allowed[near > 0, len(destinations) :] = False
        ranked = np.argsort(~allowed, axis=1, kind="stable")
        count = np.maximum(allowed.sum(1), 1)[row]
        drawn = (self.rng.random((n, len(at))) * count).astype(np.int64).T
        target: Ints = choices[ranked[row[:, None], drawn]].ravel()
        return target

    def _leads(self, at: Ints) -> Batch:
        """Leadership from each leader to every follower, and to each follower drawn."""
        partition, slot = self._split(at)
        leading = slot == self.placement.leader[partition]
        p = np.repeat(partition[leading], self.placement.slots)
        s = np.tile(np.arange(self.placement.slots), int(leading.sum()))
        led = np.zeros(self.placement.snapshot.n_partitions, np.bool_)
        led[p] = True
        others = ~leading & ~led[partition]
        p, s = np.concatenate([p, partition[others]]), np.concatenate([s, slot[others]])
        keep = self.placement.replica_broker[p * self.placement.slots + s] >= 0
        p, s = p[keep], s[keep]
        return Batch.of(LEAD, p, s, self.placement.replica_broker[p * self.placement.slots + s])

    def _broker_actions(
        self, tier: Tier, brokers: Ints, index: ReplicaIndex, destinations: Ints, budget: int
    ) -> list[Batch]:
        own = self.parameters
        share = max(budget // len(brokers), own.least_per_cell)
        sample = max(share // 4, own.least_sampled)
        width = (
            own.least_destinations if self.fruitful else max(share // 16, own.least_destinations)
        )
        width = min(width, max(len(destinations), 1))
        if self.deep:
            sample, width = 8 * share, min(own.least_destinations, max(len(destinations), 1))
        if self.movable is not None:
            return self._again(tier, brokers, index, destinations, budget)
        at, row = index.sample(brokers, sample, self.rng)
        if self.leads_only:
            return [self._leads(at)]
        keep = max(share // (2 * width), 4)
        chosen = self._most_relief(tier, at, row, keep)
        if self.deep:
            at, sample = index.sample(brokers, share, self.rng)[0], share
        found = [self.spread(chosen, destinations, width), self._leads(at)]
        pulling = self._taking(tier, brokers[self.rules.receives[brokers]])
        if len(pulling) and len(self._held_slots):
            pulled, target = self._pulled(pulling, sample)
            partition, slot = self._split(pulled)
            found.append(Batch.of(MOVE, partition, slot, target, pick_disk(self.placement, target)))
        return found

    def _again(
        self, tier: Tier, brokers: Ints, index: ReplicaIndex, destinations: Ints, budget: int
    ) -> list[Batch]:
        """Other places for partitions that have moved, where the limits leave no further move.

        Their replicas on these brokers go elsewhere, others come to those with room, and one may
        take the place that another has left.
        """
        assert self.movable is not None
        own, f, placement = self.parameters, self.placement.slots, self.placement
        at = (self.movable[:, None] * f + np.arange(f)).ravel()
        at = at[placement.replica_broker[at] >= 0]
        share = max(budget // len(brokers), own.least_per_cell)
        width = min(own.least_destinations, max(len(destinations), 1))
        mine = at[np.isin(placement.replica_broker[at], brokers)]
        found = [
            self.spread(self._some(mine, budget // width), destinations, width),
            self._left(self.movable),
            self._leads(index.sample(brokers, share, self.rng)[0]),
        ]
        pulling = self._taking(tier, brokers[self.rules.receives[brokers]])
        if len(pulling) and len(at):
            target = np.repeat(pulling, share)
            found.append(self._moves(self.rng.choice(at, len(target)), target))
        return found

    def _left(self, partitions: Ints) -> Batch:
        """Moves of replicas to brokers that others of their partition have left."""
        now, then = self.placement.brokers[partitions], self.placement.start[partitions]
        gone = (then >= 0) & ~(then[:, :, None] == now[:, None, :]).any(2)
        row, slot, home = np.nonzero((now >= 0)[:, :, None] & gone[:, None, :])
        target = then[row, home]
        return Batch.of(MOVE, partitions[row], slot, target, pick_disk(self.placement, target))

    @cached_property
    def _held_slots(self) -> Ints:
        """Flat positions of all replicas; an action changes their brokers, not their slots."""
        return np.flatnonzero(self.placement.replica_broker >= 0)

    def _pulled(self, brokers: Ints, n: int) -> tuple[Ints, Ints]:
        """`n` random replicas for each broker that may hold them, and their brokers.

        Where every broker may hold all, they are spread evenly over the topics.
        """
        permitted, held = self.rules.permitted, self._held_slots
        if permitted is None:
            place = (np.arange(n) + self.rng.random(len(brokers))[:, None]) * (len(held) / n)
            return held.take(place.astype(np.int64).ravel()), np.repeat(brokers, n)
        topic = self.placement.snapshot.partition_topic[held // self.placement.slots]
        pools = [held[permitted[topic, b]] for b in brokers.tolist()]
        drawn = [self.rng.choice(pool, n if len(pool) else 0) for pool in pools]
        found = np.concatenate(drawn).astype(np.int64)
        return found, np.repeat(brokers, [len(x) for x in drawn])

    def _most_relief(self, tier: Tier, at: Ints, row: Ints, keep: int) -> Ints:
        """The `keep` replicas of each broker whose removal helps it most per byte."""
        partition, slot = self._split(at)
        target = self.placement.replica_broker[at]
        leaving = Transition(
            self.cluster, Batch.of(MOVE, partition, slot, target, np.full(len(at), -1))
        )
        relief = self.scorer.relief(tier, leaving)
        efficiency = relief / self.price(leaving.batch)
        order = descending(efficiency)
        order = order[stable_order(row[order])]
        first = np.concatenate([[0], np.cumsum(np.bincount(row))])
        rank = np.arange(len(at)) - first[row[order]]
        chosen = order[(rank < keep) & (relief[order] > 0)]
        kept: Ints = at[np.sort(chosen)]
        return kept

    def _partition_actions(self, partitions: Ints, destinations: Ints) -> list[Batch]:
        f = self.placement.slots
        at = (partitions[:, None] * f + np.arange(f)).ravel()
        at = at[self.placement.replica_broker[at] >= 0]
        return [self.spread(at, destinations, 8), self._leads(at)]

    def _home(self, partitions: Ints) -> Batch:
        """Moves of replicas of partitions back to the brokers of the start that hold none."""
        left = self._left(partitions)
        held = self.placement.brokers[left.partition, left.slot]
        away = ~(self.placement.start[left.partition] == held[:, None]).any(1)
        return left[away]

    def _disk_moves(self, disks: Ints, budget: int) -> Batch:
        """Replicas of discontented disks to the other disks of their broker, and the reverse."""
        s, placement = self.placement.snapshot, self.placement
        unmet = np.zeros(s.n_disks, np.bool_)
        unmet[disks] = True
        hot = np.zeros(s.n_brokers, np.bool_)
        hot[s.disk_broker[disks]] = True
        at = np.flatnonzero((placement.replica_broker >= 0) & hot[placement.replica_broker])
        at = at[placement.replica_disk[at] >= 0]
        per = np.bincount(s.disk_broker, minlength=s.n_brokers)
        width = int(per.max())
        at = self._some(at, budget // max(width, 1))
        first = np.searchsorted(s.disk_broker, placement.replica_broker[at])
        target = (first[:, None] + np.arange(width)).ravel()
        source = np.repeat(at, width)
        inside = target < s.n_disks
        target = np.minimum(target, s.n_disks - 1)
        broker = placement.replica_broker[source]
        own = placement.replica_disk[source]
        keep = inside & (s.disk_broker[target] == broker) & (target != own) & s.disk_open[target]
        keep &= unmet[target] | unmet[own]
        partition, slot = self._split(source[keep])
        return Batch.of(MOVE_DISK, partition, slot, broker[keep], target[keep])

    def _off_disks(self, disks: Bools, destinations: Ints, budget: int) -> list[Batch]:
        """Replicas of discontented disks to other brokers, and to other roles."""
        width = self.parameters.least_destinations
        at = np.flatnonzero(np.append(disks, False)[self.placement.replica_disk])
        at = self._some(at, budget // width)
        return [self.spread(at, destinations, width), self._leads(at)]

    def _topic_actions(
        self, of: BrokerScope, cells: Ints, index: ReplicaIndex, destinations: Ints, budget: int
    ) -> list[Batch]:
        """Actions for cells (topic, cell of brokers): push away, pull in, or change leaders."""
        topic, broker, at, row = self._of_topics(of, cells, budget)
        if not len(topic):
            return []
        target = broker[row]
        partition, slot = self._split(at)
        pulls = Batch.of(MOVE, partition, slot, target, pick_disk(self.placement, target))
        # and replicas of the cell to other brokers
        if of == BROKER:
            own = self._held(topic, broker, index, self.parameters.least_per_cell // 4)
        else:
            own = self._some(at, len(topic) * 4)
        return [pulls, self.spread(own, destinations, 8), self._leads(np.concatenate([at, own]))]

    def _of_topics(
        self, of: BrokerScope, cells: Ints, budget: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Some of the cells (topic, cell of brokers): topics, and a broker of each cell.

        Also a few replicas of each topic from anywhere, with the row of their topic.
        """
        s, f = self.placement.snapshot, self.placement.slots
        share = self.parameters.least_per_cell
        cells = self._some(cells, max(budget // (4 * share), 1))
        width = of.cells(s)
        if of == BROKER:
            topic, broker = cells // width, cells % width
        else:
            topic, own = cells // width, cells % width
            where = of.members(s)
            members = [np.flatnonzero((where == k) & self.rules.receives) for k in range(width)]
            broker = np.array(
                [self.rng.choice(members[k]) if len(members[k]) else -1 for k in own], np.int64
            )
            topic, broker = topic[broker >= 0], broker[broker >= 0]
        if self.rules.permitted is not None:
            may = self.rules.permitted[topic, broker]
            topic, broker = topic[may], broker[may]
        begin = np.searchsorted(s.partition_topic, topic) * f
        count = np.searchsorted(s.partition_topic, topic, side="right") * f - begin
        topic, broker, begin, count = (x[count > 0] for x in (topic, broker, begin, count))
        take = np.minimum(count, share)
        row = np.repeat(np.arange(len(topic)), take)
        rank = np.arange(len(row)) - np.repeat(np.cumsum(take) - take, take)
        offset = (rank + self.rng.random(len(topic))[row]) * (count[row] / take[row])
        at = begin[row] + offset.astype(np.int64)
        real = self.placement.replica_broker[at] >= 0
        return topic, broker, at[real], row[real]

    def _related_actions(
        self, scope: Scope, unmet: Bools, destinations: Ints, budget: int
    ) -> list[Batch]:
        """Actions for cells of kinds of topics: push replicas out, pull others of the kind in.

        Where a replica may be in cells of several kinds, it is also sent to brokers with replicas
        of those kinds. Cells without brokers of their own, such as whole topics, only push.
        """
        s, placement = self.placement.snapshot, self.placement
        width, share = self.parameters.least_destinations, self.parameters.least_per_cell
        at = np.flatnonzero(placement.replica_broker >= 0)
        p = at // placement.slots
        mine = self._some(at[self._inside(scope, unmet, at)], budget // width)
        found = [self.spread(mine, destinations, width), self._leads(mine)]
        if not isinstance(scope, Divided):
            return [*found, self.spread(mine, self.receivers, width)]
        kinds = np.atleast_2d(scope.kinds(s))
        # replicas by their own kind
        own = kinds[0][s.partition_topic[p]]
        order = stable_order(own)
        at, own = at[order], own[order]
        if scope.several:
            topic = s.partition_topic[mine // placement.slots]
            sought, row = kinds[1:, topic].ravel(), np.tile(np.arange(len(mine)), len(kinds) - 1)
            hosts, row = self._of_kinds(at, own, sought, row, max(width // 2, 1))
            found.append(self._moves(mine[row], self._beside(scope.of, hosts)))
        cells = self._some(np.flatnonzero(unmet), max(budget // (4 * share), 1))
        kind, group = scope.split(s, cells)
        pulled, row = self._of_kinds(at, own, kind, np.arange(len(cells)), share)
        return [*found, self._moves(pulled, self._any_in(scope.of, group[row]))]

    def _related_replicas(self, tier: Tier) -> Ints:
        """Replicas that count in discontented cells of kinds of topics, on any broker."""
        found = [np.empty(0, np.int64)]
        for i in tier.goals:
            scope, unmet = self.scorer.goals[i].scope, self.scorer.scores[i] < self.levels[i]
            divided = isinstance(scope.inner or scope, Divided) and not isinstance(scope, PerTopic)
            if divided and unmet.any():
                at = np.flatnonzero(self.placement.replica_broker >= 0)
                found.append(at[self._inside(scope, unmet, at)])
        return np.unique(np.concatenate(found))

    def _inside(self, scope: Scope, cells: Bools, at: Ints) -> Bools:
        """(R,) whether each replica counts in some cells of kinds of topics."""
        s, placement = self.placement.snapshot, self.placement
        p, broker = at // placement.slots, placement.replica_broker[at]
        disk = placement.replica_disk[at] if len(placement.replica_disk) else np.full_like(at, -1)
        if isinstance(scope.inner, Divided):
            # a replica in no group counts for nothing, and may be the one to move
            cell = scope.inner.kinds(s)[s.partition_topic[p]]
        else:
            cell = scope.keys(s, p, broker, disk)
        inside = np.append(cells, False)[cell]
        return np.asarray(inside.any(axis=0) if scope.several else inside)

    def _of_kinds(self, at: Ints, own: Ints, kinds: Ints, rows: Ints, n: int) -> tuple[Ints, Ints]:
        """`n` random replicas of each kind, and its row; `at` is sorted by `own`, the kind."""
        begin = np.searchsorted(own, kinds)
        count = np.searchsorted(own, kinds, side="right") - begin
        known = (kinds >= 0) & (count > 0)
        begin, count, rows = (np.repeat(x[known], n) for x in (begin, count, rows))
        return at[begin + (self.rng.random(len(begin)) * count).astype(np.int64)], rows

    def _beside(self, of: BrokerScope, at: Ints) -> Ints:
        """A random receiver in the group of each replica's broker; -1 for none."""
        own = of.members(self.placement.snapshot)
        return self._any_in(of, own[self.placement.replica_broker[at]])

    def _any_in(self, of: BrokerScope, groups: Ints) -> Ints:
        """A random receiver of each group; -1 for none."""
        own = of.members(self.placement.snapshot)[self.receivers]
        order = np.argsort(own, kind="stable")
        begin = np.searchsorted(own[order], groups)
        count = np.searchsorted(own[order], groups, side="right") - begin
        known = (groups >= 0) & (count > 0)
        place = begin + (self.rng.random(len(groups)) * count).astype(np.int64)
        found = np.full(len(groups), -1)
        found[known] = self.receivers[order[place[known]]]
        return found

    def _moves(self, at: Ints, target: Ints) -> Batch:
        """Moves of replicas to brokers, without those to -1."""
        at, target = at[target >= 0], target[target >= 0]
        partition, slot = self._split(at)
        return Batch.of(MOVE, partition, slot, target, pick_disk(self.placement, target))

    def _held(self, topic: Ints, broker: Ints, index: ReplicaIndex, n: int) -> Ints:
        """Up to `n` replicas of each topic on each broker."""
        own, f = self.placement.snapshot.partition_topic, self.placement.slots
        low, high = (np.searchsorted(own, topic, side=side) * f for side in ("left", "right"))
        begin, count = index.between(broker, low, high)
        take = np.minimum(count, n)
        row = np.repeat(np.arange(len(topic)), take)
        rank = np.arange(len(row)) - np.repeat(np.cumsum(take) - take, take)
        return index.at(begin[row] + rank)


def nothing() -> Batch:
    """No actions."""
    none = np.empty(0, np.int64)
    return Batch.of(MOVE, none, none, none)
