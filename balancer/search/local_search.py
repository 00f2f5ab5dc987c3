"""Local search from a placement to a better one, in batches, tier by tier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from balancer.problem.budget import Budget
from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.disks import pick_disk
from balancer.problem.movement_cost import copy_cost, movement_cost
from balancer.problem.rules import Rules
from balancer.search.annealing import anneal
from balancer.search.arrays import best_of_each, descending, stable_order
from balancer.search.candidates import Candidates
from balancer.search.scorer import EPSILON, Scorer, Tier
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.shortening import Reached, every_stage, penalties
from balancer.search.spending import Spending
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from cluster_model.snapshot import Bools, Floats, Ints
from goals.goal import proofs_of


@dataclass
class Search:
    """One optimisation in progress.

    Parameters
    ----------
    scorer
        Goals, the placement to improve, and the parameters of the search.
    rules
        Which actions are legal.
    serve
        How many of the tiers to serve; later ones only veto.
    deadline
        After it no round starts; everything else is deterministic.
    seed
        Seed of the random sampling.
    progress
        Called after each round with the phase, the numbers of the goals that the best placement so
        far meets, and its actions: those with which the search would end now.
    spending
        Limits of the plan on moves and cost. With them the worst cells are relieved first, by
        the actions that bring most for what they take of the limits.
    hopeless
        Asked after each round whether the search need not go on, because its plan would be far
        beyond the limits; None if it has none.
    """

    scorer: Scorer
    rules: Rules
    serve: int | None = None
    deadline: Deadline = NEVER
    seed: int = 0
    progress: Callable[[str, list[int], int], None] | None = None
    spending: Spending | None = None
    hopeless: Callable[[], bool] | None = None
    #: whether the largest of what has to leave its broker goes first
    largest_first: bool = False
    actions: int = 0
    rounds: int = 0
    exhausted: bool = False

    def __post_init__(self) -> None:
        self.parameters = self.scorer.parameters
        self.rng = np.random.default_rng(self.seed)
        #: numbers of the goals that the best placement so far meets, and its actions
        self.best = self._standing()
        # penalty of the served tier below which its changes are kept, and the lowest scores above
        # which they are, too
        self._kept_below = 0.0
        self._lowest: Floats | None = None
        #: safe steps of tiers that were annealed: they lead near where the search ends
        self.known: list[Batch] = []
        #: numbers of the tiers that were annealed, which is done once
        self.annealed: set[int] = set()
        # whether the last round carried out many of its candidates, and how rounds have grown
        self._fruitful, self._growth = False, 1
        # penalty of each tier before it was first served
        self._first: dict[tuple[int, ...], float] = {}
        # retries of each tier in a row that failed
        self._failed: dict[tuple[int, ...], int] = {}
        self.candidates = Candidates(self.scorer, self.rules, self.rng)
        if self.spending is not None:
            self.candidates.price = self.spending.price
            self.candidates.deep = True
        # whether rounds look at every action, because there are few
        self._every = self.spending is None and self.candidates.few
        # scoring a candidate costs in proportion to its partition's replicas
        self._width = max(1, self.scorer.placement.slots // self.parameters.full_width_slots)

    @cached_property
    def stages(self) -> list[tuple[int, Tier]]:
        """What is served, in order, each with the number of its tier."""
        served = enumerate(self.scorer.tiers[: self.serve])
        return [(number, stage) for number, tier in served for stage in self.scorer.stages(tier)]

    def run(self) -> None:
        """Serve the tiers in order, and repeat while one tier's changes make room for another."""
        tiers = self.stages
        for _ in range(self.parameters.passes):
            helped = [self._improve(number, tier) for number, tier in tiers]
            if not any(helped) or self.met:
                break

    @property
    def met(self) -> bool:
        """Whether all goals that are served are met."""
        return all(self._met(tier) for _, tier in self.stages)

    def _improve(self, number: int, tier: Tier) -> bool:
        """Serve a tier; if it gains almost nothing, undo the changes and return False."""
        scorer = self.scorer
        if self._met(tier):
            return False
        mark, penalty, actions = scorer.mark(), scorer.penalty(tier), self.actions
        known = len(self.known)
        self._kept_below = self._worthwhile(tier, penalty)
        self._lowest = lowest = scorer.lowest(tier)
        self._anneal(number, tier)
        self._serve(number, tier)
        only_lifted = scorer.penalty(tier) > penalty and self._lifted(tier, lowest)
        if not self._met(tier) and self.spending is None and not only_lifted:
            self._perturb_and_serve(number, tier)
        if scorer.penalty(tier) < self._worthwhile(tier, penalty) - EPSILON:
            return True
        if self._lifted(tier, lowest):
            return True
        scorer.restore(mark)
        self._restarted()
        self.actions = actions
        del self.known[known:]
        return False

    def _worthwhile(self, tier: Tier, penalty: float) -> float:
        """The penalty below which a tier's changes are kept."""
        return self.scorer.worthwhile(tier, penalty, self._trivial_share())

    def _lifted(self, tier: Tier, lowest: Floats) -> bool:
        """Whether a tier's changes are kept because its lowest scores are higher."""
        return self.scorer.lifted(tier, lowest, self._trivial_share())

    def _trivial_share(self) -> float:
        return 0.0 if self._full() else self.parameters.trivial_share

    def _anneal(self, number: int, tier: Tier) -> None:
        """Serve a tier by annealing, once, if its costs add up and there are no limits on moves."""
        limited = self.spending is not None or self.hopeless is not None
        if limited or number in self.annealed or self.spent():
            return
        self.annealed.add(number)
        later = len(self.scorer.tiers[: self.serve]) - number
        done = anneal(self.scorer, self.rules, number, self.seed, self.deadline.within(1 / later))
        if done:
            self.actions += len(done)
            self.known.append(done)
            self._report(number, tier)

    def _full(self) -> bool:
        """Whether the limits leave nothing for another move."""
        return self.spending is not None and self.spending.exhausted

    def _restarted(self) -> None:
        if self.spending is not None:
            self.spending.restart()

    def _perturb_and_serve(self, number: int, tier: Tier) -> None:
        """Retry a stuck small cluster from nearby placements; keep any better result."""
        scorer, goals, own = self.scorer, self.scorer.goals, self.parameters
        if scorer.placement.snapshot.n_replicas > own.perturbed_replicas or all(
            scorer.met(i) or proofs_of(goals[i], scorer.cluster) for i in tier.goals
        ):
            return
        # those of the passes before it count too
        failed = self._failed.get(tuple(tier.goals), 0)
        while failed < own.perturbation_tries and not self._met(tier) and not self.spent():
            mark, penalty, actions = scorer.mark(), scorer.penalty(tier), self.actions
            self._kept_below, self._lowest = min(self._kept_below, penalty), None
            for _ in range(1 + failed % 3):
                self._perturb(number)
            self._serve(number, tier, give_up=max(own.idle_rounds // 2, 1))
            failed += 1
            if scorer.penalty(tier) < penalty - EPSILON:
                failed = 0
            else:
                scorer.restore(mark)
                self._restarted()
                self.actions = actions
        self._failed[tuple(tier.goals)] = failed

    def _perturb(self, number: int) -> None:
        """Carry out one random action that no hard goal and no tier above forbids."""
        batch = self.candidates.random_actions(self.parameters.perturbation_choices)
        batch = batch[self.scorer.allowed(number, Transition(self.scorer.cluster, batch))]
        if len(batch):
            self.carry_out(batch[:1])

    def carry_out(
        self, batch: Batch, partner: Batch | None = None, transition: Transition | None = None
    ) -> None:
        """Carry out actions, and take note of what they spend; their transition if it is known."""
        self.scorer.commit(batch, partner, transition)
        self.actions += len(batch) * (1 if partner is None else 2)
        if self.spending is not None:
            self.spending.update(batch.partition)
            if partner is not None:
                self.spending.update(partner.partition)

    def repair(self, number: int) -> None:
        """Serve a tier again, briefly, after changes that may have hurt it."""
        self._kept_below, self._lowest = -np.inf, None
        give_up = max(self.parameters.idle_rounds // 2, 1)
        self._serve(number, self.scorer.tiers[number], give_up)

    def _serve(self, number: int, tier: Tier, give_up: int | None = None) -> None:
        if self.spending is not None:
            self._serve_within(number, tier, give_up)
            return
        own, idle, penalties = self.parameters, 0, [self.scorer.penalty(tier)]
        give_up = own.idle_rounds if give_up is None else give_up
        while idle < give_up and not self._met(tier) and not self.spent():
            wider = own.widening[-1 if self._every else min(idle, len(own.widening) - 1)]
            done = self._round(number, tier, wider)
            if self.candidates.pairs is not None:
                self._group_round(number, tier, wider)
            slow = self.scorer.penalty(tier) > own.swap_share * penalties[-1]
            if slow and not self._fruitful:
                done += self._swap_round(number, tier, wider)
            penalties.append(self.scorer.penalty(tier))
            self._report(number, tier)
            idle = 0 if penalties[-1] < penalties[-2] - EPSILON else idle + 1
            if self._stalled(penalties) or (self._every and not done):
                return

    def _report(self, number: int, tier: Tier) -> None:
        """Count a round, and report the best placement so far."""
        self.rounds += 1
        if self.hopeless is not None and self.hopeless():
            self.exhausted = True
        if self.progress is not None:
            kept = self.scorer.penalty(tier) < self._kept_below - EPSILON
            if kept or (self._lowest is not None and self._lifted(tier, self._lowest)):
                self.best = self._standing()
            self.progress(f"tier {number}", *self.best)

    def settle(self) -> None:
        """Take the current placement for the best so far."""
        self.best = self._standing()

    def _standing(self) -> tuple[list[int], int]:
        """The goals that are met now, and the actions so far."""
        return [i for i in range(len(self.scorer.goals)) if self.scorer.met(i)], self.actions

    def _stalled(self, penalties: list[float]) -> bool:
        """Whether the last rounds gained almost nothing."""
        own = self.parameters
        if len(penalties) <= own.stall_rounds:
            return False
        before = penalties[-1 - own.stall_rounds]
        return before - penalties[-1] <= min(own.stall_gain, own.stall_share * before)

    def _stalled_within(self, tier: Tier, penalties: list[float]) -> bool:
        """Whether the last rounds gained almost nothing of what the tier has gained so far."""
        own = self.parameters
        if len(penalties) <= own.stall_rounds_within:
            return False
        recent = penalties[-1 - own.stall_rounds_within] - penalties[-1]
        gained = self._first[tuple(tier.goals)] - penalties[-1]
        return recent <= max(own.stall_gain, own.stall_share_within * gained)

    def _serve_within(self, number: int, tier: Tier, most_idle: int | None) -> None:
        """Serve a tier within the limits: its worst cells first, free actions before others."""
        assert self.spending is not None
        own = self.parameters
        for free, least in ((True, 1.0), (True, own.worst_share), (False, own.worst_share)):
            idle, share, self.candidates.leads_only = 0, least, free
            penalties = [self.scorer.penalty(tier)]
            self._first.setdefault(tuple(tier.goals), penalties[0])
            most = own.idle_rounds if most_idle is None else most_idle
            give_up = min(2, most) if free else most
            while idle < give_up and not self._met(tier) and not self.spent():
                self.candidates.levels = self._levels(tier, share)
                spent = self.spending.exhausted and not free
                self.candidates.movable = self.spending.moved if spent else None
                wider = 1 if share < 1 else own.widening[min(idle, len(own.widening) - 1)]
                quick, before = free or spent, self.spending.left
                done = self._round(number, tier, wider)
                if self.candidates.pairs is not None and not free:
                    done += self._group_round(number, tier, wider)
                if not done and share >= 1 and not free:
                    done = self._swap_round(number, tier, wider)
                self._report(number, tier)
                penalties.append(self.scorer.penalty(tier))
                if (quick and self._stalled_within(tier, penalties)) or self._stalled(penalties):
                    break
                if done and penalties[-1] < penalties[-2] - EPSILON:
                    # where little of what is left is spent, there is enough for more cells
                    slow = not quick and self.spending.left_share(before) > 1 - own.slow_share
                    idle, share = 0, min(1.0, 2 * share) if slow else least
                elif share < 1:
                    share = min(1.0, 4 * share)
                else:
                    idle += 1
        self.candidates.levels, self.candidates.leads_only = [1.0] * len(self.scorer.goals), False
        self.candidates.movable = None

    def _levels(self, tier: Tier, share: float) -> list[float]:
        """Per goal, the score below which the worst cells of a tier are: the same for all of it.

        A goal that is nearly met waits for those that are far from it.
        """
        scores = np.concatenate([self.scorer.scores[i] for i in tier.goals])
        low, level = np.sort(scores[scores < 1]), 1.0
        if share < 1 and len(low):
            k = int(share * len(low)) + 1
            level = float(low[k]) if k < len(low) else 1.0
            level = max(level, low[0] + 0.5 * share * (1 - low[0]))
            if 0 < low[0] < self.parameters.nearly_flat:
                # others with hardly higher scores may be far less in need
                level = min(level, low[0] * (1 + 2 * share))
            level = min(1.0, level)
        served = set(tier.goals)
        return [level if i in served else 0.0 for i in range(len(self.scorer.goals))]

    def _met(self, tier: Tier) -> bool:
        return all(self.scorer.met(i) for i in tier.goals)

    def spent(self) -> bool:
        """Whether the time is over, or the search was asked to stop."""
        self.exhausted = self.exhausted or self.deadline.passed
        return self.exhausted

    def _round(self, number: int, tier: Tier, wider: int) -> int:
        own, destinations = self.parameters, self._destinations(number, wider)
        self._fruitful = False
        n = self.scorer.placement.snapshot.n_brokers
        candidates = max(own.candidates_per_broker * n, own.least_candidates)
        budget = wider * min(candidates * self._growth, own.most_candidates) // self._width
        self.candidates.fruitful = self._growth >= own.growth
        batch = (
            self.candidates.all_actions()
            if self._every
            else self.candidates.draw(tier, destinations, budget)
        )
        if self.spending is not None:
            batch = batch[self.spending.affordable(batch, alone=True)]
        if not len(batch):
            return 0
        gain = self.scorer.gains(tier, batch)
        useful = np.flatnonzero(gain > EPSILON)
        if not len(useful):
            return 0
        batch, gain = batch[useful], gain[useful]
        priority = self._gain_per_cost(number, batch, gain)
        if self.spending is not None and len(tier.goals) > 1 and not self.candidates.leads_only:
            priority *= self._relief(tier, batch) / gain
        if self.largest_first:
            priority = self._with_largest_first(batch, priority)
        best = best_of_each(batch.partition, priority, own.checked_per_partition * wider)
        batch, priority, gain = batch[best], priority[best], gain[best]
        ok = self.scorer.allowed_rows(number, batch)
        batch, priority, gain = batch[ok], priority[ok], gain[ok]
        best = best_of_each(batch.partition, priority, 1)
        order = best[descending(priority[best])]
        if self.spending is not None and len(order) and not self.candidates.leads_only:
            order = order[self._worst_first(tier, batch[order])]
        done = self._commit(number, tier, batch[order], gain[order])
        size = candidates / max(own.small_round * self.scorer.placement.snapshot.n_replicas, 1.0)
        self._fruitful = done > own.fruitful_share * min(size, 1.0) * budget
        if any(self.scorer.goals[i].hard for i in tier.goals):
            self._fruitful |= 0 < own.carried_out_share * len(order) < done
        growth = 2 * self._growth if self._fruitful else self._growth // 2
        self._growth = max(1, min(growth, own.growth))
        return done

    def _relief(self, tier: Tier, batch: Batch) -> Floats:
        """(C,) how much of a tier's penalty each action removes by itself.

        The gain of an action is that of the worse of its two ends. Under limits, one that relieves
        both, each by a goal of its own, is worth more.
        """
        size, found = self.parameters.chunk, [np.empty(0)]
        for start in range(0, len(batch), size):
            transition = Transition(self.scorer.cluster, batch[start : start + size])
            found.append(-self.scorer.penalty_change(tier, transition))
        return np.maximum(np.concatenate(found), 0.0)

    def _worst_first(self, tier: Tier, batch: Batch) -> Ints:
        """Rows in the order in which each relieves the cell that is worst at its turn.

        Actions that relieve the same cell keep their order. If the limits end among them, rows
        end where the first cell runs out of actions, because others may then have better ones,
        or where a share of what is left is spent.
        """
        assert self.spending is not None
        n, level = len(batch), min(self.candidates.levels[i] for i in tier.goals)
        severity, horizon = self.scorer.severity(tier, batch)
        order = np.argsort(severity, kind="stable")
        below = int(np.searchsorted(severity[order], level))
        # what remains still relieves the cells that others overtake now
        few = self.spending.affordable(batch[order], share=self.parameters.spent_at_once)
        if few.all():
            keep = max(below, n // 10)
        else:
            before = int(np.searchsorted(severity[order], horizon))
            keep = min(below, max(before, int(np.argmin(few))))
        rows: Ints = order[: max(keep, 1)]
        return rows

    def _destinations(self, number: int, wider: int) -> Ints:
        """The brokers with room; in the widest rounds every receiver."""
        if wider < self.parameters.widening[-1]:
            return self.candidates.receptive(number)
        return self.candidates.receivers

    def _gain_per_cost(self, number: int, batch: Batch, gain: Floats) -> Floats:
        """Gain per cost, with the tiers below as a minor factor."""
        gain = self._with_lower_tiers(number, batch, gain)
        return gain / self.candidates.price(batch)

    def _with_largest_first(self, batch: Batch, priority: Floats) -> Floats:
        """The priorities, with those of what has to leave its broker above others, by size."""
        placement = self.scorer.placement
        rows = np.flatnonzero(self.rules.draining[placement.source(batch)])
        load = placement.snapshot.leader_load
        most = np.maximum(load.max(0, initial=0.0), np.finfo(np.float64).tiny)
        # a load of each resource as a share of the largest one
        size = (load[batch.partition[rows]] / most).max(1, initial=0.0)
        found = priority.copy()
        rank = np.arange(1.0, len(rows) + 1)
        found[rows[np.lexsort((priority[rows], size))]] = priority.max(initial=0.0) + rank
        return found

    def _with_lower_tiers(self, number: int, batch: Batch, gain: Floats) -> Floats:
        """The tier's gain, scaled according to the tiers below it."""
        below = self.scorer.tiers[number + 1 : self.serve][: self.parameters.lower_tiers]
        if not below:
            return gain
        transition, bonus, share = Transition(self.scorer.cluster, batch), np.zeros(len(batch)), 1.0
        for lower in below:
            share *= self.parameters.lower_tier_weight
            bonus += share * self.scorer.gain(lower, transition)
        most = self.parameters.most_lower_tier_gain
        voiced: Floats = gain + np.clip(bonus, -most * gain, most * gain)
        return voiced

    def _commit(self, number: int, tier: Tier, batch: Batch, gain: Floats) -> int:
        """Carry out, in the given order, every action that still helps when its turn comes."""
        cluster, scorer = self.scorer.cluster, self.scorer
        while len(batch):
            series = SequentialTransition(cluster, batch)
            now = scorer.gain(tier, series)
            keep = now > np.maximum(EPSILON, self.parameters.kept_gain * gain)
            if keep.all():
                keep = scorer.allowed(number, series)
                if keep.all() and self.spending is not None:
                    keep = self.spending.affordable(batch)
                if keep.all():
                    break
            batch, gain = batch[keep], gain[keep]
        if len(batch):
            self.carry_out(batch, transition=series)
        return len(batch)

    def _group_round(self, number: int, tier: Tier, wider: int) -> int:
        """Move groups as a whole, and partitions that should join a group to its broker."""
        scorer, cluster = self.scorer, self.scorer.cluster
        own, destinations = self.parameters, self._destinations(number, wider)
        batch, unit = self.candidates.groups(tier, destinations, wider * own.least_candidates)
        legal = np.ones(int(unit.max(initial=-1)) + 1, np.bool_)
        legal[unit[~self.candidates.rules.legal(scorer.placement, batch)]] = False
        batch, unit = _chosen(batch, unit, legal)
        if not len(unit):
            return 0
        transition = Transition(cluster, batch, unit=unit)
        gain = scorer.gain(tier, transition)
        gain = np.where(scorer.allowed(number, transition), gain, 0.0)
        priority = gain / np.bincount(unit, scorer.relative_cost(batch))
        # in order of priority, each partition at most once
        first = np.searchsorted(unit, np.arange(len(gain) + 1))
        turns: list[Ints] = []
        taken = np.zeros(scorer.placement.snapshot.n_partitions, np.bool_)
        for row in descending(priority)[: int((gain > EPSILON).sum())].tolist():
            members = np.arange(first[row], first[row + 1])
            if not taken[batch.partition[members]].any():
                taken[batch.partition[members]] = True
                turns.append(members)
        if not turns:
            return 0
        gain = gain[[unit[members[0]] for members in turns]]
        unit = np.repeat(np.arange(len(turns)), [len(members) for members in turns])
        batch = batch[np.concatenate(turns)]
        while len(unit):
            series = SequentialTransition(cluster, batch, unit=unit)
            keep = scorer.gain(tier, series) > np.maximum(EPSILON, own.kept_gain * gain)
            keep &= scorer.allowed(number, series)
            if self.spending is not None:
                beyond = ~self.spending.affordable(batch)
                keep &= np.bincount(unit, beyond, len(gain)) == 0
            if keep.all():
                self.carry_out(batch)
                break
            batch, unit = _chosen(batch, unit, keep)
            gain = gain[keep]
        return len(unit)

    def _swap_round(self, number: int, tier: Tier, wider: int) -> int:
        scorer, own = self.scorer, self.parameters
        batch, partner = (
            self.candidates.all_swaps()
            if self._every
            else self.candidates.swaps(tier, wider * own.least_candidates // self._width)
        )
        transition = Transition(scorer.cluster, batch, partner)
        real = scorer.gain(tier, transition)
        # a swap without gain now may make room for one that gains
        slack = own.slack_weight * scorer.slack(tier, transition)
        gain = np.where(real > EPSILON, real, 0.0) + slack
        rows = np.flatnonzero((real >= -EPSILON) & (gain > own.least_swap_gain))
        batch, partner, gain = batch[rows], partner[rows], gain[rows]
        ok = scorer.allowed_rows(number, batch, partner)
        batch, partner, gain = batch[ok], partner[ok], gain[ok]
        cost = scorer.relative_cost(batch) + scorer.relative_cost(partner)
        rows = self._disjoint(batch, partner, gain / cost)
        batch, partner, gain = batch[rows], partner[rows], gain[rows]
        if self.spending is not None:
            rows = np.flatnonzero(self.spending.affordable(batch, partner))
            batch, partner, gain = batch[rows], partner[rows], gain[rows]
        while len(batch):
            series = SequentialTransition(scorer.cluster, batch, partner)
            real = scorer.gain(tier, series)
            slack = own.slack_weight * scorer.slack(tier, series)
            now = np.where(real > EPSILON, real, 0.0) + slack
            keep = (
                (real >= -EPSILON) & (now > own.kept_gain * gain) & scorer.allowed(number, series)
            )
            if keep.all():
                self.carry_out(batch, partner)
                break
            batch, partner, gain = batch[keep], partner[keep], gain[keep]
        return len(batch)

    def _disjoint(self, batch: Batch, partner: Batch | None, priority: Floats) -> Ints:
        """Rows in order of priority, best first, with no partition touched twice."""
        order = descending(priority)
        mates = batch.partition if partner is None else partner.partition
        one, two, turn = batch.partition[order], mates[order], np.arange(len(order))
        best = np.empty(self.scorer.placement.snapshot.n_partitions, np.int64)
        chosen: list[Ints] = []
        while len(turn):
            # the last write stays: in reverse order, that is the best row
            best[np.stack([one, two], 1).ravel()[::-1]] = np.repeat(turn, 2)[::-1]
            first = (best[one] == turn) & (best[two] == turn)
            chosen.append(turn[first])
            best[one[first]] = best[two[first]] = -1
            free = (best[one] >= 0) & (best[two] >= 0)
            if partner is None or len(chosen[-1]) < self.parameters.pairing_share * len(chosen[0]):
                break
            one, two, turn = one[free], two[free], turn[free]
        rows: Ints = order[np.sort(np.concatenate(chosen))] if chosen else order
        return rows

    def reduce(self, start: Placement) -> int:
        """Return every replica and every leadership that no goal needs elsewhere.

        Reverts only actions whose removal leaves every cell as content as it was.
        """
        undone = 0
        while not self.spent():
            moved = self.bytes_away(start)
            found = self._send_home(start) + self._exchange_home(start)
            undone += found
            if not found or moved - self.bytes_away(start) < self.parameters.least_saving * moved:
                break
        return undone

    def bytes_away(self, start: Placement) -> float:
        """Bytes to copy from a start to the current placement."""
        placement = self.scorer.placement
        moved = np.flatnonzero(placement.replica_broker != start.replica_broker)
        partition = moved // placement.slots
        inside = (start.brokers[partition] == placement.replica_broker[moved][:, None]).any(1)
        return float(copy_cost(placement)[0][partition[~inside]].sum())

    def _send_home(self, start: Placement) -> int:
        batch = self._homeward(start)
        return self._commit_harmless(batch, None, movement_cost(self.scorer.placement, batch))

    def _commit_harmless(self, batch: Batch, partner: Batch | None, priority: Floats) -> int:
        """Carry out the actions that remain harmless, best first, until none or no time is left."""
        done = 0
        while len(batch) and not self.spent():
            ok = self.scorer.harmless_rows(batch, partner, self.spent)
            batch, priority = batch[ok], priority[ok]
            partner = partner[ok] if partner is not None else None
            rows = self._disjoint(batch, partner, priority)
            while len(rows):
                mates = partner[rows] if partner is not None else None
                keep = self.scorer.harmless(
                    SequentialTransition(self.scorer.cluster, batch[rows], mates)
                )
                if keep.all():
                    break
                rows = rows[keep]
            if not len(rows):
                break
            mates = partner[rows] if partner is not None else None
            self.carry_out(batch[rows], mates)
            self.actions -= len(rows) * (1 if mates is None else 2)
            done += len(rows)
            touched = np.zeros(self.scorer.placement.snapshot.n_partitions, np.bool_)
            touched[batch.partition[rows]] = True
            if mates is not None:
                touched[mates.partition] = True
            rest = ~touched[batch.partition]
            if partner is not None:
                rest &= ~touched[partner.partition]
                partner = partner[rest]
            batch, priority = batch[rest], priority[rest]
            if len(rows) < self.parameters.repeat_share * len(batch):
                break
        return done

    def _exchange_home(self, start: Placement) -> int:
        """If replica r came to broker B and q left B for C: r goes to C instead, q stays."""
        if self.spent():
            return 0
        placement = self.scorer.placement
        home = self._homeward(start)
        home = home[home.kind == MOVE]
        size, _ = copy_cost(placement)
        most = self.parameters.most_exchanges // (2 * self.parameters.similar_replicas)
        if len(home) > most:
            home = home[np.sort(descending(size[home.partition])[: max(most, 1)])]
        away = np.flatnonzero(
            (placement.replica_broker >= 0)
            & ~(placement.brokers[:, :, None] == start.brokers[:, None, :]).any(2).ravel()
        )
        if not len(home) or not len(away):
            return 0
        # arrivals on each broker by size, and for each replica that left the nearest of them
        f = placement.slots
        scale = float(size.max()) * 1.001 or 1.0
        guest_key = placement.replica_broker[away] + size[away // f] / scale
        order = stable_order(guest_key)
        away, guest_key = away[order], guest_key[order]
        at = np.searchsorted(guest_key, home.target + size[home.partition] / scale)
        similar = self.parameters.similar_replicas
        near = at[:, None] + np.arange(-similar, similar)
        rows, _ = np.nonzero((near >= 0) & (near < len(away)))
        guests = away[near[(near >= 0) & (near < len(away))]]
        mine = (home.partition * f + home.slot)[rows]
        local = placement.replica_broker[guests] == home.target[rows]
        batch, partner = self.candidates.exchanged(mine[local], guests[local])
        return self._commit_harmless(batch, partner, movement_cost(placement, batch))

    def shorten(self, start: Placement) -> None:
        """Take back a few changes at a time and serve the goals again; keep what is cheaper.

        Only for clusters of up to `perturbed_replicas` replicas. No hard goal becomes worse.

        Parameters
        ----------
        start
            Where the search started.
        """
        scorer, own = self.scorer, self.parameters
        if scorer.placement.snapshot.n_replicas > own.perturbed_replicas:
            return
        end = scorer.mark()
        scorer.adopt(start, scorer.placement.changed(start))
        begin = Reached.of(scorer, start)
        scorer.restore(end)
        failed, best = 0, Reached.of(scorer, start)
        # what is tried is not reported as reached
        self._kept_below, self._lowest = -np.inf, None
        for _ in range(4 * own.shortening_tries):
            if failed >= own.shortening_tries or self.spent():
                return
            changed = scorer.placement.changed(start)
            if not len(changed):
                return
            mark, actions = scorer.mark(), self.actions
            if failed % 3 == 2:
                other = self._with_exchanged_brokers(changed)
                scorer.adopt(other, changed)
            else:
                scorer.adopt(start, self.rng.permutation(changed)[: 1 + failed // 3 % 4])
            if failed % 3 == 1:
                self._perturb(0)
            if self._regained_at_once(best, start) or self._regained(best):
                self.reduce(start)
                found = Reached.of(scorer, start)
                if found.beats(best, begin):
                    failed, best = 0, found
                    self.settle()
                    continue
            failed += 1
            scorer.restore(mark)
            self.actions = actions

    def _with_exchanged_brokers(self, partitions: Ints) -> Placement:
        """The placement with two random brokers in each other's place for some partitions."""
        placement, rules = self.scorer.placement.copy(), self.rules
        pair, special = self.candidates.receivers, rules.permitted is not None
        if len(pair) < 2 or special or rules.cold is not None or len(placement.replica_disk):
            return placement
        one, two = self.rng.choice(pair, 2, replace=False)
        if rules.leads[one] == rules.leads[two]:
            there = np.append(np.arange(len(rules.leads)), -1)
            there[[one, two]] = two, one
            rows = partitions[rules.movable[partitions]]
            placement.brokers[rows] = there[placement.brokers[rows]]
            placement.invalidate_sums()
        return placement

    def _regained_at_once(self, best: Reached, start: Placement) -> bool:
        """Carry out the cheapest action, if any is needed, after which nothing is worse."""
        scorer = self.scorer
        if all(a <= b + EPSILON for a, b in zip(penalties(scorer), best.penalties, strict=True)):
            return True
        batch = self.candidates.all_actions()
        transition = Transition(scorer.cluster, batch)
        ok = np.ones(len(batch), np.bool_)
        for stage, penalty in zip(every_stage(scorer), best.penalties, strict=True):
            change = scorer.penalty_change(stage, transition)
            ok &= scorer.penalty(stage) + change <= penalty + EPSILON
        if not ok.any():
            return False
        batch = batch[ok]
        moves, cost = Spending(start, scorer.placement, Budget()).added(batch)
        self.carry_out(batch[np.lexsort((moves, cost))[:1]])
        return True

    def _regained(self, best: Reached) -> bool:
        """Serve what is worse than in the best state, and say whether nothing still is."""
        for (number, stage), penalty in zip(self.stages, best.penalties, strict=False):
            if self.scorer.penalty(stage) > penalty + EPSILON:
                self._serve(number, stage, give_up=1)
            if self.scorer.penalty(stage) > penalty + EPSILON:
                return False
        return True

    def _homeward(self, start: Placement) -> Batch:
        now, then = self.scorer.placement.brokers, start.brokers
        moved = np.flatnonzero((now != then).any(1))
        now, then = now[moved], then[moved]
        away = (now >= 0) & ~(now[:, :, None] == then[:, None, :]).any(2)
        gone = (then >= 0) & ~(then[:, :, None] == now[:, None, :]).any(2)
        row, slot, home = np.nonzero(away[:, :, None] & gone[:, None, :])
        target = then[row, home]
        placement = self.scorer.placement
        disk = pick_disk(placement, target)
        if len(placement.replica_disk):
            # back to the disk it was on, if that still takes replicas
            own = start.replica_disk.reshape(start.brokers.shape)[moved[row], home]
            takes = (own >= 0) & np.append(placement.snapshot.disk_open, False)[own]
            disk = np.where(takes, own, disk)
            if self.rules.served is not None:
                # on another one it would be a move between the disks of a broker
                keep = (disk == own) | self.rules.served[target]
                row, slot, target, disk = row[keep], slot[keep], target[keep], disk[keep]
        moves = Batch.of(MOVE, moved[row], slot, target, disk)
        led = placement.leader
        row = np.flatnonzero(
            placement.brokers[np.arange(len(led)), led]
            != start.brokers[np.arange(len(led)), start.leader]
        )
        before = start.brokers[row, start.leader[row]]
        at, slot = np.nonzero(placement.brokers[row] == before[:, None])
        leads = Batch.of(LEAD, row[at], slot, before[at])
        batch = Batch.concatenate([moves, leads])
        # what returns was not received: the broker needs only be one that may keep replicas
        keeping = replace(self.rules, receives=~self.rules.draining)
        ok = keeping.legal(placement, batch)
        if self.rules.served is not None:
            # a leader that returns elsewhere would transfer leadership to another broker
            p = batch.partition
            first = start.brokers[p, start.leader[p]]
            leads = (batch.kind == MOVE) & (batch.slot == placement.leader[p])
            ok &= ~leads | (first == batch.target) | self.rules.served[batch.target]
        return batch[ok]


def _chosen(batch: Batch, unit: Ints, kept: Bools) -> tuple[Batch, Ints]:
    """The actions of the groups that are kept, and their groups renumbered."""
    rows = kept[unit]
    return batch[rows], (np.cumsum(kept) - 1)[unit[rows]]
