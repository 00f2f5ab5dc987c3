"""Normalised scores of actions (seed 004), for whole batches at once.

For a goal and an action, with the cells the action touches before (``c``) and
after (``c'``)::

    diff = min score(c') - min score(c)        in [-1, 1]
    f    = (diff + 1) / 2                      in [ 0, 1]

Everything here works with ``diff``: f > 1/2 is diff > 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster_model.placement import LEAD, Batch, Placement, SumScope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Cluster, Goal, State
from goals.cluster import partition_state

# differences of scores below this are rounding, not judgement
EPSILON = 1e-12


class Transition:
    """C actions, each from the state the placement is in now.

    Parameters
    ----------
    cluster
        The cluster whose placement the actions start from.
    batch
        C elementary actions.
    partner
        For swaps: C further actions, carried out together with those of `batch`; the
        partner's replica goes the opposite way between the same two brokers.
    """

    def __init__(self, cluster: Cluster, batch: Batch, partner: Batch | None = None) -> None:
        self.cluster, self.batch, self.partner = cluster, batch, partner
        placement = self.placement = cluster.placement
        self.source = placement.source(batch)
        self.target = batch.target
        self._cells: dict[SumScope, Ints] = {}
        self._delta: dict[str, Floats] = {}
        self._states: dict[SumScope, State] = {}
        self._partition_states: list[tuple[Ints, State]] | None = None
        self.diffs: dict[int, tuple[Floats, Bools]] = {}

    def __len__(self) -> int:
        return len(self.batch)

    def cells(self, scope: SumScope) -> Ints:
        """(K, C) the cells each action touches: source and destination, of each partition."""
        known = self._cells.get(scope)
        if known is None:
            known = self._cells[scope] = self._find_cells(scope)
        return known

    def _find_cells(self, scope: SumScope) -> Ints:
        pairs = [self.batch]
        if self.partner is not None and scope in ("topic", "topic_rack"):
            pairs.append(self.partner)
        keys = []
        for b in pairs:
            source_disk = self.placement.source_disk(b)
            target_disk = self.placement.target_disk(b)
            keys.append(
                self.placement.keys(scope, b.partition, self.placement.source(b), source_disk)
            )
            keys.append(self.placement.keys(scope, b.partition, b.target, target_disk))
        return np.stack(keys)

    def _moved(self, column: str) -> Floats:
        """(C,) what goes from source to destination, net of what comes back in a swap."""
        known = self._delta.get(column)
        if known is None:
            known = self.placement.delta(self.batch, column)
            if self.partner is not None:
                known = known - self.placement.delta(self.partner, column)
            self._delta[column] = known
        return known

    def signed_delta(self, scope: SumScope, column: str) -> Floats:
        """(K, C) what each action adds to each of its cells."""
        keys = self.cells(scope)
        if len(keys) == 2:
            moved = np.where(keys[0] == keys[1], 0.0, self._moved(column))
            return np.stack([-moved, moved])
        assert self.partner is not None
        one = self.placement.delta(self.batch, column)
        two = self.placement.delta(self.partner, column)
        topic = self.placement.snapshot.partition_topic
        same = topic[self.batch.partition] == topic[self.partner.partition]
        # within one topic both legs touch the same cells, once
        one, two = np.where(same, one - two, one), np.where(same, 0.0, two)
        one = np.where(keys[0] == keys[1], 0.0, one)
        two = np.where(keys[2] == keys[3], 0.0, two)
        return np.stack([-one, one, -two, two])

    def before(self, scope: SumScope, column: str) -> Floats:
        """(K, C) a sum in each cell before the action."""
        return self.placement.sums(scope, column)[self.cells(scope)]

    def after_state(self, scope: SumScope) -> State:
        """The cells as the action leaves them."""
        known = self._states.get(scope)
        if known is None:
            keys = self.cells(scope)

            def fetch(name: str) -> Floats | Ints:
                if is_sum(name):
                    return self.before(scope, name) + self.signed_delta(scope, name)
                return self.cluster.fetch(scope, name, keys)

            known = self._states[scope] = State(fetch)
        return known

    def departed_state(self, scope: SumScope) -> State:
        """(C,) the source cells with the moved load gone and nothing given anywhere."""
        keys = self.cells(scope)[0]

        def fetch(name: str) -> Floats | Ints:
            if is_sum(name):
                return self.placement.sums(scope, name)[keys] - self._moved(name)
            return self.cluster.fetch(scope, name, keys)

        return State(fetch)

    def partition_states(self) -> list[tuple[Ints, State]]:
        """For each partition an action touches: (C,) its index, and its state afterwards."""
        if self._partition_states is None:
            self._partition_states = [
                self._partition_after(b) for b in (self.batch, self.partner) if b is not None
            ]
        return self._partition_states

    def _partition_after(self, b: Batch) -> tuple[Ints, State]:
        placement, rows = self.placement, np.arange(len(b))
        brokers = placement.brokers[b.partition]
        brokers[rows, b.slot] = b.target
        leader = np.where(b.kind == LEAD, b.slot, placement.leader[b.partition])
        disks = None
        if len(placement.replica_disk):
            disks = placement.replica_disk.reshape(-1, placement.slots)[b.partition]
            disks[rows, b.slot] = placement.target_disk(b)
        return b.partition, partition_state(
            placement.snapshot, b.partition, brokers, leader, disks
        )


class Series(Transition):
    """C actions carried out one after the other: each starts where the one before it ends.

    The partitions must be distinct; brokers, topics and disks need not be.
    """

    def __init__(self, cluster: Cluster, batch: Batch, partner: Batch | None = None) -> None:
        super().__init__(cluster, batch, partner)
        self._order: dict[SumScope, tuple[Ints, Ints, Ints]] = {}

    def before(self, scope: SumScope, column: str) -> Floats:
        """(K, C) a sum in each cell before the action, all earlier actions done."""
        keys = self.cells(scope)
        if scope not in self._order:
            flat = keys.T.ravel()
            order = np.argsort(flat, kind="stable")
            ordered = flat[order]
            first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
            run = np.repeat(first, np.diff(np.append(first, len(flat))))
            self._order[scope] = flat, order, run
        flat, order, run = self._order[scope]
        delta = self.signed_delta(scope, column).T.ravel()[order]
        ahead = np.cumsum(delta) - delta
        earlier = np.empty_like(delta)
        earlier[order] = ahead - ahead[run]
        sums = self.placement.sums(scope, column)[flat] + earlier
        return sums.reshape(-1, len(keys)).T

    def before_state(self, scope: SumScope) -> State:
        """The cells as each action finds them."""
        keys = self.cells(scope)

        def fetch(name: str) -> Floats | Ints:
            if is_sum(name):
                return self.before(scope, name)
            return self.cluster.fetch(scope, name, keys)

        return State(fetch)


def is_sum(name: str) -> bool:
    """Whether a column of a state is a sum over replicas, which actions change."""
    return name in ("replica_count", "leader_count") or name.partition(".")[0] in (
        "load",
        "leader_load",
        "potential_load",
    )


@dataclass
class Tier:
    """Goals of one priority."""

    goals: list[int]
    weights: Floats = field(default_factory=lambda: np.empty(0))


class Scorer:
    """How content every cell is with every goal, kept up to date as the placement changes.

    Parameters
    ----------
    cluster
        The cluster, its placement the one to be changed.
    goals
        Prepared goals.
    """

    def __init__(self, cluster: Cluster, goals: Sequence[Goal]) -> None:
        self.cluster, self.goals = cluster, list(goals)
        self.placement: Placement = cluster.placement
        self.scores: list[Floats] = [self._all(goal) for goal in self.goals]
        numbers = sorted({goal.tier or 0 for goal in self.goals})
        self.tiers = [
            Tier([i for i, goal in enumerate(self.goals) if (goal.tier or 0) == n]) for n in numbers
        ]
        for tier in self.tiers:
            weights = np.array([self.goals[i].weight for i in tier.goals])
            tier.weights = weights / weights.sum()

    def _all(self, goal: Goal) -> Floats:
        if goal.scope == "partition":
            state = self.cluster.partition_state()
        else:
            state = self.cluster.state(goal.scope)
        return _scored(goal, state)

    def commit(self, batch: Batch, partner: Batch | None = None) -> None:
        """Carry out actions on distinct partitions and bring every score up to date."""
        transition = Transition(self.cluster, batch, partner)
        for goal in self.goals:
            if goal.scope == "partition":
                transition.partition_states()
            else:
                transition.cells(goal.scope)
        self.placement.apply(batch)
        if partner is not None:
            self.placement.apply(partner)
        self.refresh(transition)

    def refresh(self, transition: Transition) -> None:
        """Bring the cell scores up to date after the actions have been applied."""
        fresh: dict[str, tuple[Ints, State]] = {}
        for i, goal in enumerate(self.goals):
            scope = goal.scope
            if scope in ("broker", "host"):
                self.scores[i] = self._all(goal)
                continue
            if scope not in fresh:
                if scope == "partition":
                    rows = np.concatenate([p for p, _ in transition.partition_states()])
                    fresh[scope] = rows, self.cluster.partition_state(rows)
                else:
                    keys = np.unique(transition.cells(scope))
                    keys = keys[keys >= 0]
                    fresh[scope] = keys, State(self._fetcher(scope, keys))
            keys, state = fresh[scope]
            self.scores[i][keys] = _scored(goal, state)

    def _fetcher(self, scope: SumScope, keys: Ints) -> Callable[[str], Floats | Ints]:
        return lambda name: self.cluster.fetch(scope, name, keys)

    def met(self, i: int) -> bool:
        """Whether every cell is content with goal number `i`."""
        return bool((self.scores[i] >= 1).all())

    def deficit(self, i: int) -> float:
        """Sum over the cells of what is missing to contentment with goal number `i`."""
        return float((1 - self.scores[i]).sum())

    def diff(self, i: int, transition: Transition) -> tuple[Floats, Bools]:
        """(C,) the score difference of each action, and (C,) whether any cell gets worse."""
        known = transition.diffs.get(i)
        if known is None:
            known = transition.diffs[i] = self._diff(i, transition)
        return known

    def _diff(self, i: int, transition: Transition) -> tuple[Floats, Bools]:
        goal = self.goals[i]
        if goal.scope == "partition":
            pairs = [
                (self.scores[i][rows], _scored(goal, state))
                for rows, state in transition.partition_states()
            ]
            before = np.stack([b for b, _ in pairs])
            after = np.stack([a for _, a in pairs])
        else:
            keys = transition.cells(goal.scope)
            after = _scored(goal, transition.after_state(goal.scope))
            if isinstance(transition, Series):
                before = _scored(goal, transition.before_state(goal.scope))
            else:
                before = self.scores[i][keys]
            if goal.scope == "disk":
                before, after = np.where(keys < 0, 1.0, before), np.where(keys < 0, 1.0, after)
        worse = (after < before - EPSILON).any(0)
        return after.min(0) - before.min(0), worse

    def relief(self, tier: Tier, leaving: Transition) -> Floats:
        """(C,) how much happier each source would be without the replica, whoever takes it."""
        total = np.zeros(len(leaving))
        for i, weight in zip(tier.goals, tier.weights, strict=True):
            goal = self.goals[i]
            if goal.scope not in ("broker", "host"):
                continue
            keys = leaving.cells(goal.scope)[0]
            state = leaving.departed_state(goal.scope)
            total += weight * (_scored(goal, state) - self.scores[i][keys])
        return total

    def gain(self, tier: Tier, transition: Transition) -> Floats:
        """(C,) weighted sum over a tier's goals of the score differences: F - 1/2, doubled."""
        total = np.zeros(len(transition))
        for i, weight in zip(tier.goals, tier.weights, strict=True):
            diff, _ = self.diff(i, transition)
            total += weight * diff
        return total

    def allowed(self, number: int, transition: Transition) -> Bools:
        """(C,) whether actions that serve tier `number` hurt no hard goal and no tier above."""
        ok = np.ones(len(transition), np.bool_)
        for k, tier in enumerate(self.tiers):
            total = np.zeros(len(transition))
            for i, weight in zip(tier.goals, tier.weights, strict=True):
                if k >= number and not self.goals[i].hard:
                    continue
                diff, worse = self.diff(i, transition)
                if self.goals[i].hard:
                    ok &= ~worse
                total += weight * diff
            if k < number:
                ok &= total >= -EPSILON
        return ok


def _scored(goal: Goal, state: State) -> Floats:
    return np.asarray(goal.score(state), np.float64)
