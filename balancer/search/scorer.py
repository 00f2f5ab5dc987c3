"""Normalised scores of actions (seed 004), for whole batches at once.

For a goal and an action, with the cells the action touches before (``c``) and
after (``c'``)::

    diff = min score(c') - min score(c)        in [-1, 1]
    f    = (diff + 1) / 2                      in [ 0, 1]

Everything here works with ``diff``: f > 1/2 is diff > 0. For a goal whose contentment is a cost
(``aggregate = "sum"``) the differences of the touched cells add up instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from balancer.problem.movement_cost import relative_cost
from balancer.search.parameters import SearchParameters
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from cluster_model.columns import Column
from cluster_model.errors import InputError
from cluster_model.placement import Batch, Placement
from cluster_model.scopes import BROKER, BrokerScope, Scope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Cluster, Goal, GoalError, State
from metrics_reporter.plugins import fault_of

# score differences below this, or below this share of the score, are rounding
EPSILON = 1e-12


@dataclass
class Tier:
    """Goals of one priority."""

    goals: list[int]
    weights: Floats = field(default_factory=lambda: np.empty(0))


class Scorer:
    """The contentment of every cell with every goal, kept up to date as the placement changes.

    Parameters
    ----------
    cluster
        The cluster with the placement to change.
    goals
        Prepared goals.
    parameters
        Parameters of the search; None for the defaults.
    """

    def __init__(
        self,
        cluster: Cluster,
        goals: Sequence[Goal],
        parameters: SearchParameters | None = None,
    ) -> None:
        self.cluster, self.goals = cluster, list(goals)
        self.parameters = parameters or SearchParameters()
        self.placement: Placement = cluster.placement
        self._bundles = [_Bundle(self.goals, members) for members in _alike(self.goals)]
        self._bundle_of = {i: bundle for bundle in self._bundles for i in bundle.members}
        self.scores: list[Floats] = [np.empty(0)] * len(self.goals)
        for bundle in self._bundles:
            bundle.scores = self._everywhere(bundle)
            for row, i in enumerate(bundle.members):
                self.scores[i] = bundle.scores[row]
        numbers = sorted({goal.tier or 0 for goal in self.goals})
        self.tiers = [
            self._tier([i for i, goal in enumerate(self.goals) if (goal.tier or 0) == n])
            for n in numbers
        ]

    def _tier(self, goals: list[int]) -> Tier:
        weights = np.array([self.goals[i].weight for i in goals])
        return Tier(goals, weights / weights.sum())

    def stages(self, tier: Tier) -> list[Tier]:
        """What a search serves of a tier: its hard goals by themselves, then all of it.

        A hard goal is not given up for what soft goals of its tier gain.
        """
        hard = [i for i in tier.goals if self.goals[i].hard]
        return [self._tier(hard), tier] if 0 < len(hard) < len(tier.goals) else [tier]

    def _everywhere(self, bundle: _Bundle) -> Floats:
        """(k, cells) contentment of all cells, in portions whose arrays fit a processor's cache."""
        scope, size = bundle.scope, self.parameters.chunk
        cells = self.placement.cells(scope)
        scores = np.empty((len(bundle.members), cells))
        for start in range(0, cells, size):
            keys = np.arange(start, min(start + size, cells))
            found = bundle.score(
                self.cluster.partition_state(keys)
                if scope.of_partitions
                else State(self._fetcher(scope, keys))
            )
            if found.shape != (len(scores), len(keys)):
                raise GoalError(
                    f"goal {bundle.names}: scores of shape {found.shape[1:]} found, "
                    f"({len(keys)},) expected: one for each {scope.noun}"
                )
            scores[:, keys[0] : keys[-1] + 1] = found
        return scores

    def copy(self, cluster: Cluster) -> Scorer:
        """The same scores of another cluster, with an equal placement that changes separately."""
        other = copy(self)
        other.cluster, other.placement = cluster, cluster.placement
        other._bundles = [copy(bundle) for bundle in self._bundles]
        other._bundle_of = {i: bundle for bundle in other._bundles for i in bundle.members}
        other.scores = list(self.scores)
        for bundle in other._bundles:
            bundle.scores = bundle.scores.copy()
            for row, i in enumerate(bundle.members):
                other.scores[i] = bundle.scores[row]
        return other

    def commit(
        self, batch: Batch, partner: Batch | None = None, transition: Transition | None = None
    ) -> None:
        """Carry out actions on distinct partitions and bring every score up to date.

        The transition of these actions saves time if it is known.
        """
        if transition is None:
            transition = Transition(self.cluster, batch, partner)
        for goal in self.goals:
            if not goal.scope.of_partitions:
                transition.cells(goal.scope)
        self.placement.apply(batch)
        if partner is not None:
            self.placement.apply(partner)
        self.refresh(transition)

    def mark(self) -> tuple[Placement, list[Floats]]:
        """The current state, for :meth:`restore`."""
        return self.placement.copy(), [bundle.scores.copy() for bundle in self._bundles]

    def restore(self, mark: tuple[Placement, list[Floats]]) -> None:
        """Go back to an earlier mark."""
        self.placement.restore(mark[0])
        for bundle, scores in zip(self._bundles, mark[1], strict=True):
            bundle.scores[:] = scores

    def adopt(self, other: Placement, partitions: Ints) -> None:
        """Put partitions where they are in another placement."""
        placement = self.placement
        placement.brokers[partitions] = other.brokers[partitions]
        placement.leader[partitions] = other.leader[partitions]
        if len(placement.replica_disk):
            shape = placement.brokers.shape
            there = other.replica_disk.reshape(shape)[partitions]
            placement.replica_disk.reshape(shape)[partitions] = there
        placement.invalidate_sums()
        for bundle in self._bundles:
            bundle.scores[:] = self._everywhere(bundle)

    def refresh(self, transition: Transition) -> None:
        """Bring the cell scores up to date after the actions have been applied."""
        fresh: dict[Scope, tuple[Ints, State]] = {}
        for bundle in self._bundles:
            scope = bundle.scope
            if scope not in fresh:
                fresh[scope] = self._touched(scope, transition)
            keys, state = fresh[scope]
            if isinstance(scope, BrokerScope):
                bundle.scores[:] = bundle.score(state)
            else:
                for row, score in zip(bundle.scores, bundle.score(state), strict=True):
                    row[keys] = score

    def _touched(self, scope: Scope, transition: Transition) -> tuple[Ints, State]:
        if scope.of_partitions:
            both = (transition.batch, transition.partner)
            rows = np.concatenate([b.partition for b in both if b is not None])
            return rows, self.cluster.partition_state(rows)
        if isinstance(scope, BrokerScope):
            return np.arange(self.placement.cells(scope)), self.cluster.state(scope)
        keys = np.unique(transition.cells(scope))
        keys = keys[keys >= 0]
        return keys, State(self._fetcher(scope, keys))

    def _fetcher(self, scope: Scope, keys: Ints) -> Callable[[Column], Floats | Ints]:
        return lambda name: self.cluster.fetch(scope, name, keys)

    def judge(self, scope: Scope, goals: set[int], state: State) -> Iterator[tuple[int, Floats]]:
        """The goals of a scope, each with its scores of a state."""
        for bundle in self._bundles:
            if bundle.scope == scope and not goals.isdisjoint(bundle.members):
                for i, score in zip(bundle.members, bundle.score(state), strict=True):
                    if i in goals:
                        yield i, score

    def worthwhile(self, tier: Tier, penalty: float, trivial_share: float) -> float:
        """The penalty that a tier must fall below for a change to be worthwhile.

        The share counts of the penalty, or of one item that is not content at all: where much
        of a penalty cannot be removed, what a few items gain is still worthwhile.
        """
        hard = any(self.goals[i].hard for i in tier.goals)
        return penalty - (EPSILON if hard else trivial_share * min(penalty, 1.0))

    def lowest(self, tier: Tier) -> Floats:
        """The scores below 1 of a tier's cells, in ascending order."""
        found = [self.scores[i][self.scores[i] < 1] for i in tier.goals]
        return np.sort(np.concatenate([*found, np.empty(0)]))

    def lifted(self, tier: Tier, then: Floats, trivial_share: float) -> bool:
        """Whether the first of a tier's :meth:`lowest` scores that has changed is higher now.

        By more than a trivial share of it. An action that raises the lowest score that it touches
        may add to the penalty where scores are nearly flat, far from the limits. A tier with costs
        that add up is judged by its penalty alone.
        """
        if any(self.goals[i].aggregate == "sum" for i in tier.goals):
            return False
        now = self.lowest(tier)
        n = max(len(now), len(then))
        now = np.pad(now, (0, n - len(now)), constant_values=1.0)
        then = np.pad(then, (0, n - len(then)), constant_values=1.0)
        changed = np.flatnonzero(np.abs(now - then) > EPSILON)
        if not len(changed):
            return False
        first = changed[0]
        return bool(now[first] - then[first] > trivial_share * then[first])

    def met(self, i: int) -> bool:
        """Whether every cell is content with goal number `i`."""
        return bool((self.scores[i] >= 1).all())

    def diff(self, i: int, transition: Transition) -> tuple[Floats, Bools]:
        """(C,) the score difference of each action, and (C,) whether it makes the goal worse.

        It does if any cell gets worse or, with a goal that adds up, their sum.
        """
        if i not in transition.diffs:
            self._compare(self._bundle_of[i], transition)
        return transition.diffs[i]

    def _compare(self, bundle: _Bundle, transition: Transition) -> None:
        """Fill in the differences of all goals of a bundle."""
        scope = bundle.scope
        if scope.of_partitions:
            states = transition.partition_states()
            keys = np.stack([rows for rows, _ in states])
            before = bundle.scores.take(keys, axis=1)
            after = np.stack([bundle.score(state) for _, state in states], 1)
        else:
            keys = transition.cells(scope)
            after = bundle.score(transition.after_state(scope))
            if isinstance(transition, SequentialTransition):
                before = transition.scores_before(scope, bundle.scores, after)
            else:
                before = bundle.scores.take(keys, axis=1)
        if transition.padded(scope):
            before, after = np.where(keys < 0, 1.0, before), np.where(keys < 0, 1.0, after)
        # relative to the score: a cell 10^9 times too full must not hide a further increase
        if bundle.summed:
            diff = (after - before).sum(1)
            worse: Bools = diff < -EPSILON * before.sum(1)
        else:
            diff = after.min(1)
            diff -= before.min(1)
            worse = np.any(after < before * (1 - EPSILON), axis=1)
        for row, i in enumerate(bundle.members):
            transition.diffs[i] = diff[row], worse[row]
            transition.scored[i] = before[row], after[row]

    def relief(self, tier: Tier, leaving: Transition) -> Floats:
        """(C,) how much more content each source would be without the replica, wherever it goes."""
        total = np.zeros(len(leaving))
        weight = dict(zip(tier.goals, tier.weights, strict=True))
        for bundle in self._bundles:
            share = np.array([weight.get(i, 0.0) for i in bundle.members])
            if not isinstance(bundle.scope, BrokerScope) or not share.any():
                continue
            keys = leaving.cells(bundle.scope)[0]
            score = bundle.score(leaving.departed_state(bundle.scope))
            more = score - bundle.scores.take(keys, axis=1)
            total += share @ (np.where(keys < 0, 0.0, more) if bundle.scope.partial else more)
        return total

    def severity(self, tier: Tier, batch: Batch) -> tuple[Floats, float]:
        """(C,) the score of the worst cell that each action touches, at its turn.

        Of the actions only those count that come before it and relieve the same cell. Also the
        lowest score at which a cell has no action left.
        """
        transition, found, horizon = Transition(self.cluster, batch), np.ones(len(batch)), 1.0
        row = np.arange(len(batch))
        for bundle in self._bundles:
            inside = [k for k, i in enumerate(bundle.members) if i in tier.goals]
            if not inside:
                continue
            if bundle.scope.of_partitions:
                found = np.minimum(found, bundle.scores[inside][:, batch.partition].min(0))
                continue
            cells = transition.cells(bundle.scope)
            scores = np.where(cells < 0, 1.0, bundle.scores[inside].min(0)[cells])
            end = scores.argmin(0)
            series = transition.relieving(bundle.scope, end)
            # actions beyond what relieves a cell do not make it worse: they come last
            peak = 2.0 * np.cumsum(np.append(0, series.last[:-1]))
            before, after = (
                np.maximum.accumulate(bundle.score(state)[inside].min(0) + peak) - peak
                for state in series.states
            )
            horizon = min(horizon, float(after[series.last].min(initial=1.0)))
            before[series.order] = before.copy()
            found = np.where(cells[end, row] < 0, found, np.minimum(found, before))
        return found, horizon

    def relative_cost(self, batch: Batch) -> Floats:
        """(C,) cost of each action in copies of the mean replica, with the fixed cost."""
        return relative_cost(self.placement, batch, self.parameters.action_overhead)

    def slack(self, tier: Tier, transition: Transition) -> Floats:
        """(C,) contentment that an action adds if its brokers then change a little.

        A goal that is flat inside its limits scores a broker on a limit like one in the
        middle. Scored with a small parcel more, and less, they differ.
        """
        total, small = np.zeros(len(transition)), self.parameters.slack_parcel
        keys = transition.cells(BROKER)
        everywhere = np.arange(self.placement.snapshot.n_brokers)
        weight = dict(zip(tier.goals, tier.weights, strict=True))
        for bundle in self._bundles:
            share = np.array([weight.get(i, 0.0) for i in bundle.members])
            if bundle.scope != BROKER or not share.any():
                continue
            for parcel in (-small, small):
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
        """(C,) the same for any number of actions, each carried out alone."""
        size = self.parameters.chunk
        chunks = [batch[i : i + size] for i in range(0, len(batch), size)]
        return np.concatenate([self.gain(tier, Transition(self.cluster, b)) for b in chunks])

    def allowed(self, number: int, transition: Transition) -> Bools:
        """(C,) whether actions that serve tier `number` make no hard goal and no tier above worse.

        Of each goal of a tier above, the score of the action may not fall and the penalty may not
        rise; no met item may become unmet, except of a goal that adds up.
        """
        ok = np.ones(len(transition), np.bool_)
        for i in self._guarded(number):
            if not self._settled(self.goals[i], transition):
                ok &= ~self.worsened(i, transition)
        return ok

    def allowed_rows(self, number: int, batch: Batch, partner: Batch | None = None) -> Ints:
        """Rows of the actions that :meth:`allowed` accepts, each carried out alone."""
        found, size, guarded = [np.empty(0, np.int64)], self.parameters.chunk, self._guarded(number)
        for start in range(0, len(batch), size):
            rows = np.arange(start, min(start + size, len(batch)))
            ok, transition = np.zeros(0, np.bool_), None
            for i in guarded:
                if transition is None:
                    mates = None if partner is None else partner[rows]
                    transition = Transition(self.cluster, batch[rows], mates)
                    ok = np.ones(len(rows), np.bool_)
                ok &= ~self.worsened(i, transition)
                if 2 * np.count_nonzero(ok) < len(ok):
                    # most are out: the other goals look at the rest
                    rows, transition = rows[ok], None
                    if not len(rows):
                        break
            found.append(rows if transition is None else rows[ok])
        return np.concatenate(found)

    def _guarded(self, number: int) -> list[int]:
        """The goals that actions which serve tier `number` may not hurt."""
        return [
            i
            for k, tier in enumerate(self.tiers)
            for i in tier.goals
            if k < number or self.goals[i].hard
        ]

    def worsened(self, i: int, transition: Transition) -> Bools:
        """(C,) whether actions that serve a lower tier make goal number `i` worse."""
        goal, (diff, worse) = self.goals[i], self.diff(i, transition)
        if goal.hard:
            return worse
        before, after = transition.scored[i]
        found: Bools = diff < -EPSILON
        found |= (_lack(goal, after) - _lack(goal, before)).sum(0) > EPSILON
        if goal.aggregate == "min":
            found |= ((before >= 1) & (after < 1)).any(0)
        return found

    def penalty(self, tier: Tier) -> float:
        """How far a tier is from content, the objective of the search.

        The weighted sum over goals of the squares of what their cells lack; of what they lack
        where the goal adds up. Actions that :meth:`allowed` accepts for the tiers below never
        add to it, so a series of plans that lower it, first tiers first, terminates. Work that
        adds to it is kept only if it has :meth:`lifted` the lowest scores.
        """
        pairs = zip(tier.goals, tier.weights, strict=True)
        total = 0.0
        for i, weight in pairs:
            scores = self.scores[i]
            total += weight * float(_lack(self.goals[i], scores[scores < 1]).sum())
        return total

    def penalty_change(self, tier: Tier, transition: Transition) -> Floats:
        """(C,) what each action adds to the penalty of a tier."""
        total = np.zeros(len(transition))
        for i, weight in zip(tier.goals, tier.weights, strict=True):
            self.diff(i, transition)
            before, after = transition.scored[i]
            total += weight * (_lack(self.goals[i], after) - _lack(self.goals[i], before)).sum(0)
        return total

    def harmless(self, transition: Transition, hard_only: bool = False) -> Bools:
        """(C,) whether no cell becomes less content with any goal."""
        ok = np.ones(len(transition), np.bool_)
        for i, goal in enumerate(self.goals):
            if (goal.hard or not hard_only) and not self._settled(goal, transition):
                ok &= ~self.diff(i, transition)[1]
        return ok

    def harmless_rows(self, batch: Batch, partner: Batch | None, ended: Callable[[], bool]) -> Ints:
        """Rows of actions that make no cell less content; the strictest goals are checked first.

        Rows that are not looked at before the work has `ended` are left out.
        """
        bundles = sorted(self._bundles, key=lambda b: (b.scope.of_partitions, -len(b.members)))
        found, size = [], self.parameters.chunk
        for start in range(0, len(batch), size):
            if ended():
                break
            rows = np.arange(start, min(start + size, len(batch)))
            for bundle in bundles:
                mates = None if partner is None else partner[rows]
                transition = Transition(self.cluster, batch[rows], mates)
                self._compare(bundle, transition)
                rows = rows[~np.any([transition.diffs[i][1] for i in bundle.members], axis=0)]
            found.append(rows)
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _settled(self, goal: Goal, transition: Transition) -> bool:
        # an action's effect on its own partition does not depend on earlier actions,
        # and callers check it before they form a series
        return goal.scope.of_partitions and isinstance(transition, SequentialTransition)


def unscorable(cluster: Cluster, goals: Sequence[Goal]) -> dict[str, str]:
    """Goals that cannot be judged in a cluster -> the error, such as of a load that it lacks.

    A goal of another package may read more than it requires.
    """
    found = {}
    for goal in goals:
        try:
            Scorer(cluster, [goal.prepared(cluster)])
        # Goals of other packages raise anything.
        except Exception as error:
            found[goal.name] = str(error)
    return found


def improves(before: Scorer, after: Scorer, tiers: int, trivial_share: float) -> bool:
    """Whether the first of `tiers` tiers that changes improves enough to be worthwhile."""
    stages = [stage for tier in before.tiers[:tiers] for stage in before.stages(tier)]
    return better(after, standing(before, stages), trivial_share)


def standing(scorer: Scorer, stages: Sequence[Tier]) -> list[tuple[Tier, float, Floats]]:
    """What some tiers or stages of them have reached: each with its penalty and lowest scores."""
    return [(stage, scorer.penalty(stage), scorer.lowest(stage)) for stage in stages]


def better(
    scorer: Scorer, then: Sequence[tuple[Tier, float, Floats]], trivial_share: float
) -> bool:
    """Whether the first of these stages that differs is better now by something worthwhile."""
    for stage, penalty, lowest in then:
        now = scorer.penalty(stage)
        if now < scorer.worthwhile(stage, penalty, trivial_share):
            return True
        if scorer.lifted(stage, lowest, trivial_share):
            return True
        if now > penalty + EPSILON:
            return False
    return False


def _lack(goal: Goal, scores: Floats) -> Floats:
    """What each cell adds to the penalty of a goal."""
    lack: Floats = 1 - scores
    return lack if goal.aggregate == "sum" else lack**2


class _Bundle:
    """Goals of one scope that are scored together; most bundles hold a single goal."""

    def __init__(self, goals: Sequence[Goal], members: list[int]) -> None:
        self.members, self.scope = members, goals[members[0]].scope
        self.summed = goals[members[0]].aggregate == "sum"
        self.scores = np.empty((len(members), 0))
        self._goals = [goals[i] for i in members]
        self.names = ", ".join(goal.name for goal in self._goals)
        self._score_batch = self._goals[0].score_batch(self._goals) if len(members) > 1 else None

    def score(self, state: State) -> Floats:
        """(k, …) contentment with each goal."""
        with fault_of(f"goal {self.names}: score failed", GoalError, InputError):
            scores: Floats = (
                self._score_batch(state)
                if self._score_batch is not None
                else np.asarray(self._goals[0].score(state), np.float64)[None]
            )
        return scores


def _alike(goals: Sequence[Goal]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for i, goal in enumerate(goals):
        alone = type(goal).score_batch.__func__ is Goal.score_batch.__func__  # type: ignore[attr-defined]
        # a subclass that scores differently is not alike, even if it inherits `score_batch`
        key = i if alone else (type(goal).score, goal.scope, goal.hard, goal.tier)
        found.setdefault(key, []).append(i)
    return list(found.values())
