"""Simulated annealing of tiers whose costs add up, on clusters with one replica per partition.

Moves and swaps that a local search does not find one by one lower a sum of costs: each step may
raise it, ever less as the temperature falls. It needs goals that state their terms
(:meth:`goals.Goal.terms`) and the package numba; everything else is served by rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.rules import Rules
from balancer.search.parameters import SearchParameters
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
) -> Batch | None:
    """Serve a tier whose costs add up; None if it cannot be annealed.

    Otherwise the moves, safe one after the other, that lead there. Some replicas stop on the way
    where others wait for each other.

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
    mobile, given, begin = _arrays(scorer, rules, terms)
    batch = way = Batch.of(MOVE, mobile[:0], mobile[:0], mobile[:0])
    if len(mobile) and len(given.receivers) and deadline.left > 0:
        found = annealed(given, begin, scorer.parameters, seed, deadline)
        away, steps = np.flatnonzero(found.at != begin.at), found.steps
        batch = Batch.of(MOVE, mobile[away], 0 * away, found.at[away].astype(np.int64))
        way = Batch.of(MOVE, mobile[steps[:, 0]], 0 * steps[:, 0], steps[:, 2])
    if len(batch):
        scorer.commit(batch)
    above = {i for one in scorer.tiers[:number] for i in one.goals}
    kept = all(
        (scorer.scores[i] >= before[i] * (1 - _ROUNDING)).all()
        for i, goal in enumerate(scorer.goals)
        if goal.hard or i in above
    )
    if kept and scorer.penalty(tier) <= penalty * (1 + _ROUNDING):
        return way
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
                if i not in weights or (isinstance(term, Excess) and term.rate < 0):
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
    if "terms" not in vars(first):
        return None
    with scorer.placement.locked():
        return goal.terms(scorer.cluster)


@dataclass(frozen=True)
class Annealed:
    """Where annealing has led.

    Parameters
    ----------
    at : (N,)
        The broker of each replica that may move.
    steps : (S, 3)
        The moves that lead there, safe one after the other: a replica, its broker before, and
        after.
    scored
        How many moves and swaps were scored.
    """

    at: Ints
    steps: Ints
    scored: int


def annealed(
    given: Any, begin: Any, own: SearchParameters, seed: int, deadline: Deadline
) -> Annealed:
    """The placement at the lowest cost that was found and that safe steps lead to.

    Parameters
    ----------
    given, begin
        What does not change, and the placement at the start.
    own
        Parameters of the search.
    seed
        Seed of the random steps.
    deadline
        How long to search; without a limit of time, the number of steps is that of the parameters.
    """
    walk = _Walk(given, begin, own, seed, deadline)
    if walk.unit and not deadline.passed:
        hot, warm, cold = (
            math.log(walk.unit * max(factor, own.annealing_cold))
            for factor in (own.annealing_hot, own.annealing_warm, own.annealing_cold)
        )
        # where the largest end is decided early: several runs if there is time
        runs = max(1, int(walk.effort / own.annealing_thorough))
        pilot = max(own.annealing_pilot, 1 / runs if runs > 1 else 0.0)
        schedule = paced(walk.run([hot, cold], pilot), hot, cold, own)
        least, most = own.annealing_settling, own.annealing_most_settling
        settling = least + (most - least) * min(1.0, walk.settle() / own.annealing_much_lost)
        walk.restart()
        each = (1 - pilot) / max(runs - 1, 1)
        parts = math.ceil(settling / own.annealing_part)
        for k in range(max(runs - 1, 1)):
            end = pilot + (k + 1) * each
            since = end - each * settling
            walk.run(schedule, since)
            walk.settle()
            for i in range(parts):
                first, last = (warm + (cold - warm) * x / parts for x in (i, i + 1))
                walk.run([first, last], since + (end - since) * (i + 1) / parts, safe=True)
                walk.settle()
                if deadline.stopped:
                    break
            if deadline.stopped:
                break
            walk.restart()
    return Annealed(walk.reached.at, walk.steps, walk.scored)


def paced(
    points: Sequence[tuple[float, float]], hot: float, cold: float, own: SearchParameters
) -> Floats:
    """A schedule that takes time where the cost changes with the temperature.

    That is, in proportion to the square root of the heat capacity (simulated annealing at constant
    thermodynamic speed; Salamon et al., Computer Physics Communications, 1988).

    Parameters
    ----------
    points
        Temperatures, as logarithms, and costs at them, in the order of another run.
    hot, cold
        Temperatures at the start and at the end, as logarithms.
    own
        Parameters of the search.
    """
    several = own.annealing_levels
    edges = np.linspace(hot, cold, several + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    if len(points) < 2:
        return edges
    logarithm, cost = np.array(points).T
    level = np.clip(((hot - logarithm) / (hot - cold) * several).astype(np.int64), 0, several - 1)
    known = np.unique(level)
    mean = np.bincount(level, cost)[known] / np.bincount(level)[known]
    at_edges = np.interp(-edges, -middle[known], mean)
    density = np.sqrt(np.maximum(at_edges[:-1] - at_edges[1:], 0.0) / np.exp(middle))
    density = np.maximum(density, own.annealing_least_pace * density.max(initial=0.0))
    if not density.any():
        return edges
    passed = np.append(0.0, np.cumsum(density / density.sum()))
    found: Floats = np.interp(np.linspace(0.0, 1.0, 8 * several), passed, edges)
    return found


class _Walk:
    """A placement that random steps change, the best of a run, and the best settled one."""

    def __init__(
        self, given: Any, begin: Any, own: SearchParameters, seed: int, deadline: Deadline
    ) -> None:
        # numba is loaded by those who use it
        from balancer.search import compiled

        self.given, self.begin, self.own, self.deadline = given, begin, own, deadline
        self._compiled = compiled
        replicas, brokers, self._best = len(begin.at), len(begin.cost), begin.at.copy()
        self._random = np.random.default_rng(seed).integers(1, 2**63, 1, np.uint64)
        self._now, self.reached = _copy(begin), begin
        self._way = compiled.new_way(replicas, brokers, own.annealing_stops * replicas)
        self._desk = compiled.new_desk(given, brokers)
        # replicas are listed each time
        self._stride = max(own.annealing_stride, replicas)
        self._compile()
        self._began, self._seconds = time.monotonic(), deadline.left
        #: the steps that lead to `reached`: a replica, its broker before, and after
        self.steps: Ints = self._way.steps[:0].copy()
        self._total = self._lowest = self._settled = float(compiled.total_cost(given, begin))
        # what rounding leaves of no cost at all
        self._free = _ROUNDING * self._lowest
        self._timed = not math.isinf(self._seconds)
        self._limit = max(own.annealing_steps * replicas, own.least_annealing_steps)
        self.scored = self._done = 0
        # any scored step is accepted: what one adds on average is the unit of temperature
        *_, added, adding = self._steps(_copy(begin), np.inf, False)
        self.unit = added / adding if adding else 0.0
        warmed = time.monotonic()
        _, tried, *_ = self._steps(_copy(begin), np.inf, False)
        pace = tried / max(time.monotonic() - warmed, 1e-6)
        #: steps for each replica
        self.effort = (pace * self._seconds if self._timed else self._limit) / replicas

    def run(self, schedule: Any, until: float, safe: bool = False) -> list[tuple[float, float]]:
        """Anneal until a share of the effort; temperatures, as logarithms, and costs at them.

        Parameters
        ----------
        schedule
            The temperatures, as logarithms, evenly over the run.
        until
            The share of the effort.
        safe
            Whether the first of two replicas to be exchanged must fit before the second has left.
        """
        found, since, grid = [], self._share(), np.linspace(0.0, 1.0, len(schedule))
        share = since
        while share < until and self._lowest > self._free and not self.deadline.stopped:
            temperature = float(np.interp((share - since) / (until - since), grid, schedule))
            risen, tried, scored, *_ = self._steps(self._now, math.exp(temperature), safe)
            self._total += risen
            if self._total < self._lowest:
                self._lowest = self._total
                self._best[:] = self._now.at
            found.append((temperature, self._total))
            self.scored += scored
            self._done += tried
            share = self._share()
        return found

    def settle(self) -> float:
        """Go on from the best placement so far that safe steps lead to, perhaps the run's.

        Returns the share of the cost that comes of reaching the run's best so: 0.5 if it doubles.
        """
        before = self._lowest
        total = self._approach(self.begin, self.steps[:0])
        if total > before + self._free and len(self.steps):
            total = min(total, self._approach(self.reached, self.steps))
        self._now = _copy(self.reached)
        self._total = self._lowest = self._settled
        self._best[:] = self._now.at
        return 1 - before / total if total > max(before, self._free) else 0.0

    def _approach(self, begin: Any, known: Ints) -> float:
        """Take safe steps to the run's best placement, with detours; returns the cost.

        Parameters
        ----------
        begin
            Where to start.
        known
            The steps that lead there.
        """
        given, way, now, target = self.given, self._way, _copy(begin), self._best.copy()
        own, call = self.own, self._compiled
        passes = own.annealing_passes
        way.steps[: len(known)] = known
        made = call.approach(given, now, target, False, passes, way, len(known))
        made, _ = call.detour(
            given,
            now,
            target,
            self._random,
            own.annealing_detours,
            own.annealing_looks,
            way,
            made,
        )
        # and back, where that costs nothing
        made = call.approach(given, now, self.begin.at, True, passes, way, made)
        total: float = call.total_cost(given, now)
        if total < self._settled:
            made = call.shorten(given, _copy(self.begin), way, made, own.annealing_looks)
            self._settled, self.reached, self.steps = total, now, way.steps[:made].copy()
        return total

    def restart(self) -> None:
        """Let the next run find a best placement of its own, whatever was settled before."""
        if self._settled > self._free:
            self._lowest = math.inf

    def _compile(self) -> None:
        """Have all that is compiled at its first use compiled, or loaded, by doing nothing with it.

        The first use of a new installation takes seconds, which a schedule has to know.
        """
        now, way, call = _copy(self.begin), self._way, self._compiled
        self._steps(now, np.inf, False, 0)
        made = call.approach(self.given, now, now.at.copy(), False, 1, way, 0)
        made, _ = call.detour(self.given, now, now.at.copy(), self._random, 0, 0, way, made)
        call.shorten(self.given, now, way, made, 0)
        call.total_cost(self.given, now)

    def _steps(self, now: Any, temperature: float, safe: bool, number: int | None = None) -> Any:
        own = self.own
        return self._compiled.anneal(
            self.given,
            now,
            self._desk,
            self._random,
            self._stride if number is None else number,
            temperature,
            own.annealing_pairs,
            own.annealing_homeward,
            own.annealing_rows,
            own.annealing_columns,
            safe,
        )

    def _share(self) -> float:
        """How much of the effort is done."""
        if self._timed:
            return (time.monotonic() - self._began) / self._seconds
        return self._done / self._limit


def _copy(now: Any) -> Any:
    return type(now)(*(values.copy() for values in now))


def _arrays(scorer: Scorer, rules: Rules, terms: Stated) -> tuple[Ints, Any, Any]:
    """The replicas that may move, what does not change, and the placement with its sums."""
    from balancer.search import compiled

    placement = scorer.placement
    s = placement.snapshot
    # the only replica of a partition leads it
    load = s.leader_load
    at, home = placement.replica_broker, placement.start[:, 0]
    mean = np.maximum(load.sum(0), 1e-300)
    mobile = np.flatnonzero(rules.free(placement))
    mobile = mobile[np.argsort((load[mobile] / mean).sum(1), kind="stable")]
    receives = rules.receives & rules.leads
    may, topic = receives[None], np.zeros(len(mobile), np.int32)
    if rules.permitted is not None:
        may, topic = rules.permitted & receives, s.partition_topic[mobile].astype(np.int32)
    use, left = np.zeros_like(s.capacity), np.zeros_like(s.capacity)
    held, gone = at >= 0, (home >= 0) & (home != at)
    np.add.at(use, at[held], load[held])
    np.add.at(left, home[gone], load[gone])
    # those that count what has left come first; then, what is nearly used up
    limits = sorted(
        terms.limits, key=lambda x: (not x.former, -_used(use[:, s.resource(x.resource)], x.most))
    )
    limited = [s.resource(x.resource) for x in limits]
    room = np.zeros((s.n_brokers, _wide(len(limits))))
    for k, (x, r) in enumerate(zip(limits, limited, strict=True)):
        room[:, k] = x.most - use[:, r] - (left[:, r] if x.former else 0.0)
    need = np.zeros((len(mobile), room.shape[1]))
    need[:, : len(limits)] = load[np.ix_(mobile, np.array(limited, np.int64))]
    costs, moves = _split(terms.costs)
    worth, excess = (np.zeros((n, _wide(len(costs)))) for n in (len(at), s.n_brokers))
    for h, (weight, cost) in enumerate(costs):
        excess[:, h] = -cost.above
        for name, factor in cost.factors.items():
            worth[:, h] += factor * load[:, s.resource(name)]
            excess[:, h] += factor * use[:, s.resource(name)]
        worth[:, h] *= weight * cost.rate
        excess[:, h] *= weight * cost.rate
    family = s.partition_topic[mobile]
    members = np.argsort(family, kind="stable")
    relations = _Relations(terms.relations, s.partition_topic, at)
    fixed, scaled, places = _moved(moves, len(at), s.n_brokers)
    given = compiled.Given(
        home=home[mobile].astype(np.int32),
        receivers=np.flatnonzero(receives).astype(np.int32),
        topic=topic,
        may=np.ascontiguousarray(may),
        family=family.astype(np.int32),
        members_begin=np.searchsorted(family[members], np.arange(len(s.topics) + 1)),
        members=members.astype(np.int32),
        worth=worth[mobile],
        need=need,
        former=sum(x.former for x in limits),
        fixed=fixed[mobile],
        scaled=scaled[mobile],
        kind=np.ascontiguousarray(relations.kind[:, mobile].T, np.int32),
        **places,
        **relations.given,
    )
    now = compiled.Now(
        at=at[mobile].astype(np.int32),
        excess=excess,
        room=room,
        cost=np.maximum(excess, 0.0).sum(1),
        count=relations.count,
        reached=relations.reached,
    )
    return mobile, given, now


def _wide(number: int) -> int:
    """The number of columns for so many values that are computed eight at a time."""
    return -(-number // 8) * 8


def _split(
    terms: Sequence[tuple[float, Excess | Moved]],
) -> tuple[list[tuple[float, Excess]], list[tuple[float, Moved]]]:
    """Costs of brokers, and of partitions."""
    costs = [(weight, term) for weight, term in terms if isinstance(term, Excess)]
    return costs, [(weight, term) for weight, term in terms if isinstance(term, Moved)]


def _used(use: Floats, most: Floats) -> float:
    """The share of a limit that is used, over all brokers that have one."""
    known = np.isfinite(most)
    total = float(most[known].sum())
    return float(use[known].sum()) / total if total > 0 else math.inf


def _moved(
    terms: Sequence[tuple[float, Moved]], replicas: int, brokers: int
) -> tuple[Floats, Floats, dict[str, Any]]:
    """(N,) the cost of each replica away from its start, (N, K) what depends on where it is."""
    fixed, placed = np.zeros(replicas), []
    for weight, term in terms:
        if term.group is None or term.factors is None:
            fixed += weight * term.cost
        else:
            placed.append((weight * term.cost, term.group, term.factors))
    wide = max((len(factors) for *_, factors in placed), default=0)
    scaled, place = np.empty((replicas, len(placed))), np.empty((len(placed), brokers), np.int32)
    between = np.zeros((len(placed), wide, wide))
    for k, (scaled[:, k], place[k], factors) in enumerate(placed):
        between[k, : len(factors), : len(factors)] = factors
    return fixed, scaled, {"place": place, "between": between}


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
        self.kind = kind
        self.given = {
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
