"""Simulated annealing of tiers whose costs add up, on clusters with one replica per partition.

Moves and swaps that a local search does not find one by one lower a sum of costs: each step may
raise it, ever less as the temperature falls. It needs goals that state their terms
(:meth:`goals.Goal.terms`) and the package numba; everything else is served by rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.rules import Rules
from balancer.search.scorer import Scorer
from cluster_model.placement import MOVE, Batch
from cluster_model.snapshot import Floats, Ints
from goals import Goal
from goals.terms import Excess, Limit, Moved, Relation, Term

# share by which sums differ that are counted in another order
_ROUNDING = 1e-9


def anneal(
    scorer: Scorer,
    rules: Rules,
    number: int,
    seed: int,
    deadline: Deadline = NEVER,
) -> int | None:
    """Serve a tier whose costs add up; the number of moves, or None if it cannot be annealed.

    Parameters
    ----------
    scorer
        Goals, the placement to improve, and the parameters of the search.
    rules
        Which replicas may move, and where to.
    number
        The number of the tier.
    seed
        Seed of the random steps.
    deadline
        How long to search; without a limit of time, the number of steps is that of the parameters.
    """
    terms = stated(scorer, number)
    if terms is None or not compiles():
        return None
    mark, before = scorer.mark(), [scores.copy() for scores in scorer.scores]
    tier, penalty = scorer.tiers[number], scorer.penalty(scorer.tiers[number])
    batch = Annealing(scorer, rules, terms, seed).run(deadline)
    if len(batch):
        scorer.commit(batch)
    above = {i for one in scorer.tiers[:number] for i in one.goals}
    kept = all(
        (scorer.scores[i] >= before[i] * (1 - _ROUNDING)).all()
        for i, goal in enumerate(scorer.goals)
        if goal.hard or i in above
    )
    if kept and scorer.penalty(tier) <= penalty:
        return len(batch)
    # the score of a goal is not what its terms state
    scorer.restore(mark)
    return None


def compiles() -> bool:
    """Whether numba is installed, and works with this release of numpy."""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


@dataclass(frozen=True)
class Stated:
    """A tier and all that protects from it, in terms; costs with their weights."""

    costs: Sequence[tuple[float, Excess | Moved]]
    limits: Sequence[Limit]
    relations: Sequence[Relation]


def stated(scorer: Scorer, number: int) -> Stated | None:
    """Tier `number` and the goals that veto its actions in terms; None if one has none."""
    tier, costs, limits, relations = scorer.tiers[number], [], [], []
    if scorer.placement.slots > 1 or len(scorer.placement.replica_disk):
        return None
    weights = dict(zip(tier.goals, tier.weights.tolist(), strict=True))
    before = {i for above in scorer.tiers[:number] for i in above.goals}
    for i, goal in enumerate(scorer.goals):
        if not (i in weights or i in before or goal.hard):
            continue
        if i in weights and goal.hard:
            return None
        terms = _terms_of(goal, scorer)
        if terms is None or (goal.aggregate == "sum") != (i in weights):
            return None
        for term in terms:
            if isinstance(term, Excess | Moved):
                if i not in weights:
                    return None
                costs.append((weights[i], term))
            elif i in weights:
                return None
            elif isinstance(term, Limit):
                limits.append(term)
            else:
                relations.append(term)
    return Stated(costs, limits, relations)


def _terms_of(goal: Goal, scorer: Scorer) -> tuple[Term, ...] | None:
    """The terms of a goal; None if it has none, or a subclass changed what they state."""
    decisive = ("score", "costs", "prepare", "limits", "terms")
    first = next(c for c in type(goal).__mro__ if any(name in vars(c) for name in decisive))
    return goal.terms(scorer.cluster) if "terms" in vars(first) else None


@dataclass
class Annealing:
    """Simulated annealing of one tier.

    Parameters
    ----------
    scorer
        Goals, the placement to improve, and the parameters of the search.
    rules
        Which replicas may move, and where to.
    terms
        The tier in terms.
    seed
        Seed of the random steps.
    """

    scorer: Scorer
    rules: Rules
    terms: Stated
    seed: int
    # moves and swaps whose cost was computed
    scored: int = 0

    def run(self, deadline: Deadline = NEVER) -> Batch:
        """The moves to the placement of the lowest cost that was found.

        Parameters
        ----------
        deadline
            How long to search; without a limit of time, the number of steps is that of the
            parameters.
        """
        # numba is loaded by those who use it
        from balancer.search import compiled

        own, began, seconds = self.scorer.parameters, time.monotonic(), deadline.left
        given, begin = self._state(compiled)
        if not (len(given.mobile) and len(given.receivers) and seconds > 0):
            return _moves(begin.at, begin.at)
        now, best = _copy(begin), begin.at.copy()
        rng = np.random.default_rng(self.seed)
        total = lowest = compiled.approach(given, now, best, given.mobile[:0], False)
        reach = max(1, int(own.annealing_reach * len(given.mobile)))
        limit, done = max(own.annealing_steps * len(given.mobile), own.least_annealing_steps), 0

        def steps(state: Any, temperature: float, safe: bool) -> Any:
            return compiled.anneal(
                given,
                state,
                rng,
                own.annealing_stride,
                temperature,
                own.annealing_swaps,
                own.annealing_homeward,
                reach,
                safe,
            )

        # any scored step is accepted: what one adds on average is the unit of temperature
        *_, added, adding = steps(_copy(begin), np.inf, False)
        warmed = time.monotonic()
        steps(_copy(begin), np.inf, False)
        pace = own.annealing_stride / max(time.monotonic() - warmed, 1e-6)
        if not adding:
            return _moves(begin.at, begin.at)
        # fewer steps than bring a placement out of its basin begin cooler
        effort = (limit if math.isinf(seconds) else pace * seconds) / len(given.mobile)
        first = own.annealing_hot * min(1.0, effort / own.annealing_thorough)
        hot, warm, cold = (
            added / adding * max(factor, own.annealing_cold)
            for factor in (first, own.annealing_warm, own.annealing_cold)
        )
        settle, parts = 1 - own.annealing_settling, own.annealing_parts
        # the first phase, and parts of the last one
        phases = [(hot, cold, settle)] + [
            (
                warm * (cold / warm) ** (k / parts),
                warm * (cold / warm) ** ((k + 1) / parts),
                settle + (1 - settle) * (k + 1) / parts,
            )
            for k in range(parts)
        ]
        # what rounding leaves of no cost at all
        share, free = 0.0, _ROUNDING * lowest
        for k, (first, last, until) in enumerate(phases):
            since = share
            while share < until and lowest > free and not deadline.stopped:
                temperature = first * (last / first) ** ((share - since) / (until - since))
                risen, scored, *_ = steps(now, temperature, k > 0)
                total += risen
                if total < lowest:
                    lowest = total
                    best[:] = now.at
                self.scored += scored
                done += own.annealing_stride
                share = self._share(seconds, began, done, limit)
            # what can be reached one by one
            now, target = _copy(begin), best.copy()
            pending = np.flatnonzero(target != begin.at).astype(np.int32)
            compiled.approach(given, now, target, pending, False)
            # and back, where that costs nothing
            total = lowest = compiled.approach(given, now, begin.at, pending, True)
            best[:] = now.at
        return _moves(begin.at, best)

    @staticmethod
    def _share(seconds: float, began: float, done: int, limit: int) -> float:
        """How much of the effort is done."""
        return done / limit if math.isinf(seconds) else (time.monotonic() - began) / seconds

    def _state(self, compiled: Any) -> Any:
        """What does not change, and the placement with its sums, as arrays."""
        placement, rules, terms = self.scorer.placement, self.rules, self.terms
        s = placement.snapshot
        # the only replica of a partition leads it
        load = s.leader_load
        at, home = placement.replica_broker, placement.start[:, 0]
        mean = np.maximum(load.sum(0), 1e-300)
        mobile = np.flatnonzero(rules.free(placement))
        mobile = mobile[np.argsort((load[mobile] / mean).sum(1), kind="stable")]
        rank = np.full(len(at), -1)
        rank[mobile] = np.arange(len(mobile))
        receives = rules.receives & rules.leads
        may = np.ones((len(s.topics), 1), np.bool_) & receives
        if rules.permitted is not None:
            may = may & rules.permitted
        use, left = np.zeros_like(s.capacity), np.zeros_like(s.capacity)
        held, gone = at >= 0, (home >= 0) & (home != at)
        np.add.at(use, at[held], load[held])
        np.add.at(left, home[gone], load[gone])
        relations = _Relations(terms.relations, s.partition_topic, at)
        costs, moves = _split(terms.costs)
        fixed, scaled = _moved(moves, len(at), s.n_brokers)
        given = compiled.Given(
            load=np.ascontiguousarray(load, np.float64),
            home=home.astype(np.int32),
            mobile=mobile.astype(np.int32),
            rank=rank.astype(np.int32),
            receivers=np.flatnonzero(receives).astype(np.int32),
            receives=receives,
            topic=s.partition_topic.astype(np.int32),
            may=may,
            **_costs(costs, s.resource, s.n_brokers),
            **_limits(
                # what is nearly used up is checked first
                sorted(terms.limits, key=lambda x: -_used(use[:, s.resource(x.resource)], x.most)),
                s.resource,
                s.n_brokers,
            ),
            fixed=fixed,
            **scaled,
            **relations.given,
        )
        cost = np.zeros(s.n_brokers)
        now = compiled.Now(at.astype(np.int32), use, left, cost, relations.count, relations.reached)
        for m in range(s.n_brokers):
            cost[m] = compiled.cost_of(given, use, m, -1, -1)
        return given, now


def _copy(now: Any) -> Any:
    return type(now)(*(values.copy() for values in now))


def _moves(start: Ints, end: Ints) -> Batch:
    p = np.flatnonzero(start != end)
    return Batch.of(MOVE, p, np.zeros(len(p), np.int64), end[p].astype(np.int64))


def _split(
    terms: Sequence[tuple[float, Excess | Moved]],
) -> tuple[list[tuple[float, Excess]], list[tuple[float, Moved]]]:
    """Costs of brokers, and of partitions."""
    costs = [(weight, term) for weight, term in terms if isinstance(term, Excess)]
    return costs, [(weight, term) for weight, term in terms if isinstance(term, Moved)]


def _costs(
    terms: Sequence[tuple[float, Excess]], resource: Callable[[str], int], brokers: int
) -> dict[str, Any]:
    """Costs of brokers as arrays."""
    one, two = np.zeros(len(terms), np.int32), np.full(len(terms), -1, np.int32)
    factor, offset = np.zeros((len(terms), 2)), np.empty((brokers, len(terms)))
    for h, (_, term) in enumerate(terms):
        (first, factor[h, 0]), *second = term.factors.items()
        one[h], offset[:, h] = resource(first), -term.above
        for name, weight in second:
            two[h], factor[h, 1] = resource(name), weight
    rate = np.array([weight * term.rate for weight, term in terms])
    return {"one": one, "two": two, "factor": factor, "offset": offset, "rate": rate}


def _used(use: Floats, most: Floats) -> float:
    """The share of a limit that is used, over all brokers that have one."""
    known = np.isfinite(most)
    return float(use[known].sum() / max(most[known].sum(), 1e-300))


def _limits(terms: Sequence[Limit], resource: Callable[[str], int], brokers: int) -> dict[str, Any]:
    """Limits of brokers as arrays."""
    most = np.empty((brokers, len(terms)))
    for k, term in enumerate(terms):
        most[:, k] = term.most
    return {
        "limited": np.array([resource(term.resource) for term in terms], np.int32),
        "former": np.array([term.former for term in terms], np.bool_),
        "most": most,
    }


def _moved(
    terms: Sequence[tuple[float, Moved]], replicas: int, brokers: int
) -> tuple[Floats, dict[str, Any]]:
    """(N,) the cost of each replica away from its start, and what depends on where it is."""
    fixed = np.zeros(replicas)
    placed = []
    for weight, term in terms:
        if term.group is None or term.factors is None:
            fixed += weight * term.cost
        else:
            placed.append((weight * term.cost, term.group, term.factors))
    wide = max((len(factors) for *_, factors in placed), default=0)
    between = np.zeros((len(placed), wide, wide))
    for k, (*_, factors) in enumerate(placed):
        between[k, : len(factors), : len(factors)] = factors
    scaled = np.array([cost for cost, *_ in placed]).reshape(len(placed), replicas)
    place = np.array([group for _, group, _ in placed], np.int32).reshape(len(placed), brokers)
    return fixed, {"scaled": scaled, "place": place, "between": between}


class _Relations:
    """Relations as arrays, and their counts at a placement.

    Parameters
    ----------
    terms
        The relations.
    topic : (N,) int
        The topic of each replica.
    at : (N,) int
        Its broker; -1 for none.
    """

    def __init__(self, terms: Sequence[Relation], topic: Ints, at: Ints) -> None:
        several, held = len(terms), at >= 0
        kind = np.stack([t.kinds[topic] for t in terms]) if several else np.empty((0, len(at)))
        group = np.stack([t.group for t in terms]) if several else np.empty((0, 1))
        number = [int(t.kinds.max(initial=-1)) + 1 for t in terms]
        width = np.array([int(t.group.max(initial=-1)) + 1 for t in terms], np.int64)
        kinds = np.append(0, np.cumsum(number)).astype(np.int64)
        first = np.append(0, np.cumsum(np.array(number, np.int64) * width))
        self.count = np.zeros(first[-1], np.int32)
        self.reached = np.zeros(kinds[-1], np.int32)
        least, needs = np.zeros(kinds[-1]), [np.empty((2, 0), np.int64)]
        for t, term in enumerate(terms):
            own = np.zeros((number[t], width[t]), np.int32)
            x, y = kind[t][held], group[t][at[held]]
            counted = (x >= 0) & (y >= 0)
            np.add.at(own, (x[counted], y[counted]), 1)
            self.count[first[t] : first[t + 1]] = own.ravel()
            self.reached[kinds[t] : kinds[t + 1]] = (own > 0).sum(1)
            if term.at_least is not None:
                least[kinds[t] : kinds[t + 1]] = term.at_least
            if term.needs is not None:
                # the first row is numbered over all relations, the second within its own
                needs.append(np.stack([term.needs[0] + kinds[t], term.needs[1]]))
        pairs = np.concatenate(needs, axis=1)
        begin = np.searchsorted(kinds, pairs[0], "right") - 1
        self.given = {
            "kind": kind.astype(np.int32),
            "group": group.astype(np.int32),
            "crowd": np.array([t.at_most for t in terms], np.int32),
            "first": first[:-1],
            "width": width,
            "kinds": kinds[:-1],
            "least": least,
        }
        known = pairs[1] >= 0
        by = pairs[:, known]
        offset = kinds[begin[known]]
        for name, one, two in (
            ("needs", pairs[0], pairs[1]),
            ("needed", by[1] + offset, by[0] - offset),
        ):
            order = np.argsort(one, kind="stable")
            starts = np.searchsorted(one[order], np.arange(kinds[-1] + 1))
            self.given[f"{name}_begin"] = starts.astype(np.int32)
            self.given[name] = two[order].astype(np.int32)
