"""Normalised scores of actions (seed 004), for whole batches at once.

For a goal and an action, with the cells the action touches before (``c``) and
after (``c'``)::

    diff = min score(c') - min score(c)        in [-1, 1]
    f    = (diff + 1) / 2                      in [ 0, 1]

Everything here works with ``diff``: f > 1/2 is diff > 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster_model.placement import LEAD, LOCAL, Batch, Placement, SumScope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Cluster, Goal, State
from goals.cluster import is_sum, is_traffic, partition_state
from goals.goal import Scope

# differences of scores below this, or below this share of them, are rounding, not judgement
EPSILON = 1e-12
# actions scored at once where there are very many: what of them stays in a processor's cache
CHUNK = 1 << 15
# share of a soft tier's strain whose removal is not worth moving anything
TRIVIAL = 0.01
# share of the mean broker that is small enough to be what the next action moves
PARCEL = 0.03


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
    unit : (M,) int
        Where the actions are those of whole groups: the group, 0 to C - 1, that each of
        the M actions of `batch` belongs to, in ascending order. No partner goes with it.
    """

    def __init__(
        self,
        cluster: Cluster,
        batch: Batch,
        partner: Batch | None = None,
        unit: Ints | None = None,
    ) -> None:
        self.cluster, self.batch, self.partner, self.unit = cluster, batch, partner, unit
        self.placement = cluster.placement
        self._places: dict[SumScope, Ints] = {}
        self._cells: dict[SumScope, Ints] = {}
        self._delta: dict[tuple[str, ...], Floats] = {}
        self._states: dict[SumScope, State] = {}
        self._partition_states: list[tuple[Ints, State]] | None = None
        self.diffs: dict[int, tuple[Floats, Bools]] = {}
        self.scored: dict[int, tuple[Floats, Floats]] = {}

    def __len__(self) -> int:
        if self.unit is None:
            return len(self.batch)
        return int(self.unit[-1]) + 1 if len(self.unit) else 0

    def cells(self, scope: SumScope) -> Ints:
        """(K, C) the cells each action touches: source and destination, of each partition.

        With groups as many as one has at most, -1 where another has fewer.
        """
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
        return np.stack(keys) if self.unit is None else self._gathered(scope, np.stack(keys))

    def _gathered(self, scope: SumScope, keys: Ints) -> Ints:
        """(K, C) the different cells of each group, from the (2, M) of its actions."""
        assert self.unit is not None
        cells, n = self.placement.cells(scope) + 1, len(self)
        key, at = np.unique((self.unit * cells + keys + 1).ravel(), return_inverse=True)
        unit = key // cells
        rank = np.arange(len(key)) - np.searchsorted(unit, unit)
        found = np.full((int(rank.max(initial=0)) + 1, n), -1)
        found[rank, unit] = key % cells - 1
        self._places[scope] = (rank * n + unit)[at.ravel()]
        return found

    def _moved(self, columns: tuple[str, ...]) -> Floats:
        """(k, C) what goes from source to destination, net of what comes back in a swap."""
        known = self._delta.get(columns)
        if known is None:
            known = self.placement.deltas(self.batch, columns)
            if self.partner is not None:
                known = known - self.placement.deltas(self.partner, columns)
            self._delta[columns] = known
        return known

    def _local(self, column: str) -> tuple[Floats, Floats]:
        """What each action adds to the local traffic of its source, and of its target."""
        if self.partner is None:
            lost, gained = self.placement.local_changes(self.batch, column, self._in_turn())
            return -lost, gained
        # both of a swap in turn, one after the other
        n, pair = len(self), np.arange(2 * len(self))
        both = Batch.concatenate([self.batch, self.partner])[(pair % 2) * n + pair // 2]
        turn = self._in_turn()
        row = pair // 2 if turn is None else turn[pair // 2]
        lost, gained = self.placement.local_changes(both, column, row)
        return gained[1::2] - lost[::2], gained[::2] - lost[1::2]

    def _in_turn(self) -> Ints | None:
        """(M,) actions with the same number follow one another, None: each is alone."""
        return self.unit

    def signed_delta(self, scope: SumScope, columns: tuple[str, ...]) -> Floats:
        """(k, K, C) what each action adds to each of its cells."""
        keys = self.cells(scope)
        if self.unit is not None:
            if columns[0].startswith(LOCAL):
                ends = np.stack(self._local(columns[0]))
            else:
                ends = self._moved(columns)
                ends = np.stack([-ends, ends], 1)
            flat, place = ends.reshape(-1, 2 * len(self.batch)), self._places[scope]
            summed = [np.bincount(place, row, keys.size).reshape(keys.shape) for row in flat]
            return np.stack(summed)
        if columns[0].startswith(LOCAL):
            return np.where(keys[0] == keys[1], 0.0, np.stack(self._local(columns[0])))[None]
        if len(keys) == 2:
            moved = np.where(keys[0] == keys[1], 0.0, self._moved(columns))
            return np.stack([-moved, moved], 1)
        assert self.partner is not None
        one = self.placement.deltas(self.batch, columns)
        two = self.placement.deltas(self.partner, columns)
        topic = self.placement.snapshot.partition_topic
        same = topic[self.batch.partition] == topic[self.partner.partition]
        # within one topic both legs touch the same cells, once
        one, two = np.where(same, one - two, one), np.where(same, 0.0, two)
        one = np.where(keys[0] == keys[1], 0.0, one)
        two = np.where(keys[2] == keys[3], 0.0, two)
        return np.stack([-one, one, -two, two], 1)

    def before(self, scope: SumScope, columns: tuple[str, ...]) -> Floats:
        """(k, K, C) sums in each cell before the action."""
        keys = self.cells(scope)
        return np.stack([self.placement.sums(scope, column)[keys] for column in columns])

    def after_state(self, scope: SumScope) -> State:
        """The cells as the action leaves them."""
        known = self._states.get(scope)
        if known is None:
            known = self._states[scope] = self._state(
                scope, self.cells(scope), lambda names: self._after(scope, names)
            )
        return known

    def _after(self, scope: SumScope, columns: tuple[str, ...]) -> Floats:
        """(k, K, C) sums in each cell after the action."""
        first, *rest = (
            self.before(scope, part) + self.signed_delta(scope, part)
            for part in self.placement.parts(columns)
        )
        for part in rest:
            first += part
        return first

    def shifted_state(self, parcel: float) -> State:
        """The brokers as the action leaves them, each with a share of the mean broker more."""

        def sums(names: tuple[str, ...]) -> Floats:
            after = self.before("broker", names) + self.signed_delta("broker", names)
            if is_traffic(names[0]):
                return after
            shifted: Floats = after + parcel * self.cluster.means(names)[:, None, None]
            return shifted

        return self._state("broker", self.cells("broker"), sums)

    def departed_state(self, scope: SumScope) -> State:
        """(C,) the source cells with the moved load gone and nothing given anywhere."""
        keys = self.cells(scope)[0]
        return self._state(
            scope,
            keys,
            lambda names: (
                np.stack([self.placement.sums(scope, name)[keys] for name in names])
                - self._leaving(names)
            ),
        )

    def _leaving(self, columns: tuple[str, ...]) -> Floats:
        """(k, C) what each action takes from its source."""
        if columns[0].startswith(LOCAL):
            return -self._local(columns[0])[0][None]
        return self._moved(columns)

    def _state(
        self, scope: SumScope, keys: Ints, sums: Callable[[tuple[str, ...]], Floats]
    ) -> State:
        def fetch(name: str) -> Floats | Ints:
            return sums((name,))[0] if is_sum(name) else self.cluster.fetch(scope, name, keys)

        return State(fetch, sums)

    def partition_states(self) -> list[tuple[Ints, State]]:
        """For each partition an action touches: (C,) its index, and its state afterwards.

        With groups, -1 where one has fewer partitions than others.
        """
        if self._partition_states is None:
            if self.unit is None:
                self._partition_states = [
                    self._partition_after(b) for b in (self.batch, self.partner) if b is not None
                ]
            else:
                self._partition_states = list(self._members_after(self.unit))
        return self._partition_states

    def _members_after(self, unit: Ints) -> Iterator[tuple[Ints, State]]:
        first = np.searchsorted(unit, np.arange(len(self)))
        size = np.bincount(unit, minlength=len(self))
        for rank in range(int(size.max(initial=0))):
            rows, state = self._partition_after(self.batch[first + np.minimum(rank, size - 1)])
            yield np.where(rank < size, rows, -1), state

    def _partition_after(self, b: Batch) -> tuple[Ints, State]:
        placement, rows = self.placement, np.arange(len(b))
        brokers = placement.brokers[b.partition]
        brokers[rows, b.slot] = b.target
        leader = np.where(b.kind == LEAD, b.slot, placement.leader[b.partition])
        disks = None
        if len(placement.replica_disk):
            disks = placement.replica_disk.reshape(-1, placement.slots)[b.partition]
            disks[rows, b.slot] = placement.target_disk(b)
        return b.partition, partition_state(placement.snapshot, b.partition, brokers, leader, disks)


class Series(Transition):
    """C actions carried out one after the other: each starts where the one before it ends.

    The partitions must be distinct; brokers, topics and disks need not be. Each action
    must have been found acceptable to the goals of scope ``partition`` by itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        batch: Batch,
        partner: Batch | None = None,
        unit: Ints | None = None,
    ) -> None:
        super().__init__(cluster, batch, partner, unit)
        self._orders: dict[SumScope, _Runs] = {}

    def _in_turn(self) -> Ints:
        return np.zeros(len(self.batch), np.int64)

    def before(self, scope: SumScope, columns: tuple[str, ...]) -> Floats:
        """(k, K, C) sums in each cell before the action, all earlier actions done."""
        runs = self._runs(scope)
        delta = runs.by_cell(self.signed_delta(scope, columns))
        ahead = np.cumsum(delta, axis=1) - delta
        ahead -= ahead[:, runs.start]
        for k, column in enumerate(columns):
            ahead[k] += self.placement.sums(scope, column)[runs.cell]
        return runs.by_action(ahead)

    def scores_before(self, scope: SumScope, now: Floats, after: Floats) -> Floats:
        """(k, K, C) scores of each cell before the action.

        Parameters
        ----------
        now : (k, cells)
            Scores of the cells before all actions.
        after : (k, K, C)
            Scores after each action: what one action leaves, the next one on its cell finds.
        """
        runs = self._runs(scope)
        found = runs.by_cell(after)
        found[:, 1:] = found[:, :-1]
        found[:, runs.first] = now[:, runs.cell[runs.first]]
        return runs.by_action(found)

    def _runs(self, scope: SumScope) -> _Runs:
        if scope not in self._orders:
            self._orders[scope] = _Runs(self.cells(scope))
        return self._orders[scope]


class _Runs:
    """The touches of C actions on K cells each, told by cell: a cell's touches in their order."""

    def __init__(self, cells: Ints) -> None:
        self._shape = cells.shape
        flat = cells.T.ravel()
        self._order = np.argsort(flat, kind="stable")
        self.cell: Ints = flat[self._order]
        new = np.ones(len(flat), np.bool_)
        new[1:] = self.cell[1:] != self.cell[:-1]
        self.first: Ints = np.flatnonzero(new)
        self.start: Ints = np.repeat(self.first, np.diff(np.append(self.first, len(flat))))

    def by_cell(self, values: Floats) -> Floats:
        """(k, K * C) of (k, K, C): a new array, cell after cell."""
        flat: Floats = values.transpose(0, 2, 1).reshape(len(values), -1)[:, self._order]
        return flat

    def by_action(self, values: Floats) -> Floats:
        """The way back."""
        touched, n = self._shape
        back = np.empty_like(values)
        back[:, self._order] = values
        return back.reshape(len(values), n, touched).transpose(0, 2, 1)


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
        self._bundles = [_Bundle(self.goals, members) for members in _alike(self.goals)]
        self._bundle_of = {i: bundle for bundle in self._bundles for i in bundle.members}
        self.scores: list[Floats] = [np.empty(0)] * len(self.goals)
        for bundle in self._bundles:
            bundle.scores = bundle.score(self._everywhere(bundle.scope))
            for row, i in enumerate(bundle.members):
                self.scores[i] = bundle.scores[row]
        numbers = sorted({goal.tier or 0 for goal in self.goals})
        self.tiers = [
            Tier([i for i, goal in enumerate(self.goals) if (goal.tier or 0) == n]) for n in numbers
        ]
        for tier in self.tiers:
            weights = np.array([self.goals[i].weight for i in tier.goals])
            tier.weights = weights / weights.sum()

    def _everywhere(self, scope: Scope) -> State:
        return self.cluster.partition_state() if scope == "partition" else self.cluster.state(scope)

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

    def mark(self) -> tuple[Placement, list[Floats]]:
        """What :meth:`restore` needs to come back to where things stand."""
        return self.placement.copy(), [bundle.scores.copy() for bundle in self._bundles]

    def restore(self, mark: tuple[Placement, list[Floats]]) -> None:
        """Go back to an earlier mark."""
        self.placement.restore(mark[0])
        for bundle, scores in zip(self._bundles, mark[1], strict=True):
            bundle.scores[:] = scores

    def refresh(self, transition: Transition) -> None:
        """Bring the cell scores up to date after the actions have been applied."""
        fresh: dict[str, tuple[Ints, State]] = {}
        for bundle in self._bundles:
            scope = bundle.scope
            if scope not in fresh:
                fresh[scope] = self._touched(scope, transition)
            keys, state = fresh[scope]
            bundle.scores[:, keys] = bundle.score(state)

    def _touched(self, scope: Scope, transition: Transition) -> tuple[Ints, State]:
        if scope == "partition":
            rows = np.concatenate([p for p, _ in transition.partition_states()])
            return rows, self.cluster.partition_state(rows)
        if scope in ("broker", "host"):
            return np.arange(self.placement.cells(scope)), self.cluster.state(scope)
        keys = np.unique(transition.cells(scope))
        keys = keys[keys >= 0]
        return keys, State(self._fetcher(scope, keys))

    def _fetcher(self, scope: SumScope, keys: Ints) -> Callable[[str], Floats | Ints]:
        return lambda name: self.cluster.fetch(scope, name, keys)

    def judge(self, scope: Scope, goals: set[int], state: State) -> Iterator[tuple[int, Floats]]:
        """Those of the goals that are of a scope, each with its scores of a state."""
        for bundle in self._bundles:
            if bundle.scope == scope and not goals.isdisjoint(bundle.members):
                for i, score in zip(bundle.members, bundle.score(state), strict=True):
                    if i in goals:
                        yield i, score

    def worthwhile(self, tier: Tier, strain: float) -> float:
        """The strain below which a tier must come for a change to be worth it."""
        hard = any(self.goals[i].hard for i in tier.goals)
        return strain - (EPSILON if hard else TRIVIAL * strain)

    def met(self, i: int) -> bool:
        """Whether every cell is content with goal number `i`."""
        return bool((self.scores[i] >= 1).all())

    def deficit(self, i: int) -> float:
        """Sum over the cells of what is missing to contentment with goal number `i`."""
        return float((1 - self.scores[i]).sum())

    def diff(self, i: int, transition: Transition) -> tuple[Floats, Bools]:
        """(C,) the score difference of each action, and (C,) whether any cell gets worse."""
        if i not in transition.diffs:
            self._compare(self._bundle_of[i], transition)
        return transition.diffs[i]

    def _compare(self, bundle: _Bundle, transition: Transition) -> None:
        """Fill in the differences of all goals of a bundle."""
        scope = bundle.scope
        if scope == "partition":
            states = transition.partition_states()
            keys = np.stack([rows for rows, _ in states])
            before = bundle.scores[:, keys]
            after = np.stack([bundle.score(state) for _, state in states], 1)
        else:
            keys = transition.cells(scope)
            after = bundle.score(transition.after_state(scope))
            if isinstance(transition, Series):
                before = transition.scores_before(scope, bundle.scores, after)
            else:
                before = bundle.scores[:, keys]
        if scope == "disk" or transition.unit is not None:
            before, after = np.where(keys < 0, 1.0, before), np.where(keys < 0, 1.0, after)
        # by share of the score: 10^9 times too full is no excuse for more
        worse: Bools = np.any(after < before * (1 - EPSILON), axis=1)
        diff = after.min(1) - before.min(1)
        for row, i in enumerate(bundle.members):
            transition.diffs[i] = diff[row], worse[row]
            transition.scored[i] = before[row], after[row]

    def relief(self, tier: Tier, leaving: Transition) -> Floats:
        """(C,) how much happier each source would be without the replica, whoever takes it."""
        total = np.zeros(len(leaving))
        weight = dict(zip(tier.goals, tier.weights, strict=True))
        for bundle in self._bundles:
            share = np.array([weight.get(i, 0.0) for i in bundle.members])
            if bundle.scope not in ("broker", "host") or not share.any():
                continue
            keys = leaving.cells(bundle.scope)[0]
            score = bundle.score(leaving.departed_state(bundle.scope))
            total += share @ (score - bundle.scores[:, keys])
        return total

    def slack(self, tier: Tier, transition: Transition) -> Floats:
        """(C,) how much content an action adds for the case that its brokers change a little.

        A goal that is flat inside its limits does not tell a broker on a limit from one
        in the middle. Scored with a small parcel more, and less, it does.
        """
        total = np.zeros(len(transition))
        keys = transition.cells("broker")
        everywhere = np.arange(self.placement.snapshot.n_brokers)
        weight = dict(zip(tier.goals, tier.weights, strict=True))
        for bundle in self._bundles:
            share = np.array([weight.get(i, 0.0) for i in bundle.members])
            if bundle.scope != "broker" or not share.any():
                continue
            for parcel in (-PARCEL, PARCEL):
                before = bundle.score(self.cluster.shifted(parcel, everywhere))[:, keys]
                after = bundle.score(transition.shifted_state(parcel))
                total += share @ (after - before).sum(1)
        return total

    def gain(self, tier: Tier, transition: Transition) -> Floats:
        """(C,) weighted sum over a tier's goals of the score differences: F - 1/2, doubled."""
        total = np.zeros(len(transition))
        for i, weight in zip(tier.goals, tier.weights, strict=True):
            diff, _ = self.diff(i, transition)
            total += weight * diff
        return total

    def gains(self, tier: Tier, batch: Batch) -> Floats:
        """(C,) the same for actions each carried out alone, however many."""
        chunks = [batch[i : i + CHUNK] for i in range(0, len(batch), CHUNK)]
        return np.concatenate([self.gain(tier, Transition(self.cluster, b)) for b in chunks])

    def allowed(self, number: int, transition: Transition) -> Bools:
        """(C,) whether actions that serve tier `number` hurt no hard goal and no tier above."""
        ok = np.ones(len(transition), np.bool_)
        for k, tier in enumerate(self.tiers):
            total, strain = np.zeros(len(transition)), np.zeros(len(transition))
            for i, weight in zip(tier.goals, tier.weights, strict=True):
                goal = self.goals[i]
                if (k >= number and not goal.hard) or self._settled(goal, transition):
                    continue
                diff, worse = self.diff(i, transition)
                if goal.hard:
                    ok &= ~worse
                else:
                    strain += weight * _strain(*transition.scored[i])
                total += weight * diff
            if k < number:
                ok &= (total >= -EPSILON) & (strain <= EPSILON)
        return ok

    def strain(self, tier: Tier) -> float:
        """How far a tier is from content: weighted squares of what its cells lack.

        Actions that :meth:`allowed` lets through for the tiers below never add to it, so
        plans that lower it, the first tiers first, come to an end.
        """
        pairs = zip(tier.goals, tier.weights, strict=True)
        return float(sum(weight * ((1 - self.scores[i]) ** 2).sum() for i, weight in pairs))

    def harmless(self, transition: Transition, hard_only: bool = False) -> Bools:
        """(C,) whether no cell gets less content with any goal."""
        ok = np.ones(len(transition), np.bool_)
        for i, goal in enumerate(self.goals):
            if (goal.hard or not hard_only) and not self._settled(goal, transition):
                ok &= ~self.diff(i, transition)[1]
        return ok

    def harmless_rows(self, batch: Batch, partner: Batch | None) -> Ints:
        """Rows of actions that make no cell less content; what most fail is asked first."""
        bundles = sorted(self._bundles, key=lambda b: (b.scope == "partition", -len(b.members)))
        found = []
        for start in range(0, len(batch), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(batch)))
            for bundle in bundles:
                mates = None if partner is None else partner[rows]
                transition = Transition(self.cluster, batch[rows], mates)
                self._compare(bundle, transition)
                rows = rows[~np.any([transition.diffs[i][1] for i in bundle.members], axis=0)]
            found.append(rows)
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _settled(self, goal: Goal, transition: Transition) -> bool:
        # what an action does to its own partition does not depend on those before it:
        # whoever makes a series has asked before
        return goal.scope == "partition" and isinstance(transition, Series)


def eases(before: Scorer, after: Scorer, tiers: int) -> bool:
    """Whether the first of so many tiers whose strain changes is better, and worth the change."""
    for tier in before.tiers[:tiers]:
        then, now = before.strain(tier), after.strain(tier)
        if now > then + EPSILON:
            return False
        if now < before.worthwhile(tier, then):
            return True
    return False


def _strain(before: Floats, after: Floats) -> Floats:
    """(C,) what actions add to the squares of what their (K, C) cells lack."""
    more: Floats = ((1 - after) ** 2 - (1 - before) ** 2).sum(0)
    return more


class _Bundle:
    """Goals of one scope that score themselves at once; most hold a single goal."""

    def __init__(self, goals: Sequence[Goal], members: list[int]) -> None:
        self.members, self.scope = members, goals[members[0]].scope
        self.scores = np.empty((len(members), 0))
        self._goals = [goals[i] for i in members]
        self._together = self._goals[0].together(self._goals) if len(members) > 1 else None

    def score(self, state: State) -> Floats:
        """(k, …) contentment with each goal."""
        scores: Floats = (
            self._together(state)
            if self._together is not None
            else np.asarray(self._goals[0].score(state), np.float64)[None]
        )
        return scores


def _alike(goals: Sequence[Goal]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for i, goal in enumerate(goals):
        alone = type(goal).together.__func__ is Goal.together.__func__  # type: ignore[attr-defined]
        # a subclass that scores otherwise is not alike, whatever it inherits
        key = i if alone else (type(goal).score, goal.scope, goal.hard, goal.tier)
        found.setdefault(key, []).append(i)
    return list(found.values())
