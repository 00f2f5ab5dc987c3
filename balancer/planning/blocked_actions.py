"""Looks for single actions that help an unmet goal at the end of a plan, and says what stops them.

On large clusters a sample is examined, the same for equal plans: actions that take replicas from
the worst cells, and actions that bring some there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from balancer.planning.additions import destinations
from balancer.planning.further_actions import PlanEnd, action_phrase, because, listed, stoppers
from balancer.planning.parameters import PlanningParameters
from balancer.problem.prohibitions import prohibitions
from balancer.search.scorer import EPSILON, Scorer
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch
from cluster_model.scopes import Divided, Scope
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from goals import Goal
from metrics_reporter.quantities import plural

# actions scored at once: more would only take more memory
CHUNK = 1 << 15
# goals that a reason names, in addition to limits and to goals that no placement meets
_NAMED = 3
_LIMIT = "the limit of"


@dataclass
class _Tally:
    """What stops helpful actions: how many each, how many it stops alone, and an example."""

    helpful: int = 0
    free: int = 0
    stopped: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    impossible: set[str] = field(default_factory=set)
    best: float = 0.0
    example: str = ""
    because: str = ""

    def count(self, name: str, remark: str, stops: Bools, alone: Bools) -> None:
        """Add the actions that something stops."""
        row = self.stopped.setdefault((name, remark), [0, 0])
        row[0] += int(stops.sum())
        row[1] += int((stops & alone).sum())


class BlockedActions:
    """Single actions that would help unmet goals at the end of a plan, and what stops them.

    Parameters
    ----------
    end
        Where the plan ends.
    impossible
        Numbers of the goals that no placement meets.
    parameters
        How many actions to examine; the size of samples is that for one goal.
    longer
        The remedy where nothing stops an action that would help.
    """

    def __init__(
        self,
        end: PlanEnd,
        impossible: Sequence[int],
        parameters: PlanningParameters,
        longer: str = "",
    ) -> None:
        self._end, self._impossible, self._parameters = end, impossible, parameters
        self._longer = longer

    def reason(self, i: int, cells: Ints) -> tuple[str, str]:
        """Whether single actions help a goal, what stops them, and a remedy.

        Parameters
        ----------
        i
            The number of the goal in the scorer.
        cells
            Its discontented cells.
        """
        end, scorer = self._end, self._end.scorer
        number = next(k for k, tier in enumerate(scorer.tiers) if i in tier.goals)
        allowed, complete = self._near(i, cells, allowed=True)
        tally = _Tally()
        for batch, gain in _helpful(scorer, i, allowed):
            _judge(end, number, batch, gain, self._impossible, tally)
        text = _found(tally, len(allowed), complete)
        if tally.free:
            return text, self._longer
        other = _Tally()
        if self._restricted:
            barred, _ = self._near(i, cells, allowed=False)
            for batch, gain in _helpful(scorer, i, barred):
                _judge_forbidden(end, number, batch, gain, other)
        if other.helpful:
            which = "it" if other.helpful == 1 else "them"
            text += (
                f"; {plural(other.helpful, 'other')} would help, and only rules forbid {which}: "
            )
            text += f"{_counts(other)}; the best, {other.example}, because {other.because}"
        if any(name.startswith(_LIMIT) for name, _ in tally.stopped):
            return text, "allow more, or plan again"
        if other.helpful:
            return text, "allow more destinations, or more to be moved"
        hard = scorer.goals[i].hard and tally.helpful
        return text, "add brokers that have room, or raise the limits in the way" if hard else ""

    @cached_property
    def _free(self) -> Ints:
        """Replicas that may move."""
        return np.flatnonzero(self._end.rules.free(self._end.scorer.placement))

    @cached_property
    def _living(self) -> Ints:
        """Replicas of partitions that have something to copy from."""
        placement, lost = self._end.scorer.placement, self._end.rules.lost
        return np.flatnonzero((placement.replica_broker >= 0) & ~np.repeat(lost, placement.slots))

    @cached_property
    def _followers(self) -> Ints:
        """Living replicas that do not lead, on brokers that stay."""
        placement, at = self._end.scorer.placement, self._living
        at = at[~self._end.rules.draining[placement.replica_broker[at]]]
        follows: Ints = at[at % placement.slots != placement.leader[at // placement.slots]]
        return follows

    @cached_property
    def _restricted(self) -> bool:
        """Whether rules forbid anything to living replicas and brokers that stay."""
        rules = self._end.rules
        stays = ~rules.draining
        return not (
            rules.receives[stays].all()
            and rules.leads[stays].all()
            and rules.movable[~rules.lost].all()
            and rules.free(self._end.scorer.placement)[self._living].all()
            and rules.permitted is None
            and rules.cold is None
            and (rules.stranded < 0).all()
        )

    def _near(self, i: int, cells: Ints, *, allowed: bool) -> tuple[Batch, bool]:
        """Actions that touch discontented cells, and whether these are all.

        If not allowed, actions that a rule forbids, among the living replicas and brokers.
        """
        scorer, rules, goal = self._end.scorer, self._end.rules, self._end.scorer.goals[i]
        placement, parameters = scorer.placement, self._parameters
        receivers = ~rules.draining
        if allowed and not placement.snapshot.n_disks:
            receivers = rules.receives
        moves, complete = _moves(
            scorer,
            goal,
            cells[np.argsort(scorer.scores[i][cells], kind="stable")],
            self._free if allowed else self._living,
            np.flatnonzero(receivers),
            parameters,
        )
        at = self._followers
        if goal.scope.of_partitions:
            at = at[np.isin(at // placement.slots, cells)]
        if len(at) > parameters.examined_actions:
            # of these, the ones near a discontented cell are kept
            at, complete = at[_some(len(at), 2 * parameters.sampled_actions)], False
        p, slot = at // placement.slots, at % placement.slots
        found = []
        for batch in (Batch.of(LEAD, p, slot, placement.replica_broker[at]), moves):
            batch = batch[_touching(scorer, goal, cells, batch)]
            found.append(batch[rules.legal(placement, batch) == allowed])
        return Batch.concatenate(found), complete


def _found(tally: _Tally, examined: int, complete: bool) -> str:
    """How many allowed actions help, and what stops them."""
    if not tally.helpful and complete:
        return "no allowed single action helps"
    if not tally.helpful:
        return f"of {plural(examined, 'allowed single action')} examined, none helps"
    text = plural(tally.helpful, "allowed single action")
    if not complete:
        text = f"{tally.helpful:,} of {plural(examined, 'allowed single action')} examined"
    text += " would help"
    if not tally.free:
        text += ", and it is stopped: " if tally.helpful == 1 else ", and all are stopped: "
        return f"{text}{_counts(tally)}; the best, {tally.example}, because {tally.because}"
    which = "it" if tally.helpful == 1 else "them"
    which = f"{tally.free:,} of them" if tally.free < tally.helpful else which
    text += f", and nothing stops {which}, such as {tally.example}; the search ended without "
    text += "it" if tally.free == 1 else "them"
    return text + (f"; what stops the rest: {_counts(tally)}" if tally.stopped else "")


def _judge(
    end: PlanEnd,
    number: int,
    batch: Batch,
    gain: Floats,
    impossible: Sequence[int],
    tally: _Tally,
) -> None:
    """Count what stops helpful actions, and keep the best as an example."""
    found = stoppers(end, number, Transition(end.scorer.cluster, batch))
    times = np.sum([np.zeros(len(batch), np.int64), *(one.stops for one in found)], axis=0)
    free = times == 0
    tally.helpful += len(batch)
    for one in found:
        tally.count(one.name, one.remark, one.stops, times == 1)
        if one.goal in impossible:
            tally.impossible.add(one.name)
    if free.any() and not tally.free:
        tally.best = 0.0
    tally.free += int(free.sum())
    rows = np.flatnonzero(free) if tally.free else np.arange(len(batch))
    if len(rows) and gain[rows].max() > tally.best + EPSILON:
        # of those that help most, the one that the fewest stop
        rows = rows[gain[rows] >= gain[rows].max() - EPSILON]
        row = int(rows[times[rows].argmin()])
        tally.best, tally.example = float(gain[row]), action_phrase(end.scorer, batch, row)
        tally.because = "" if free[row] else because(found, row)


def _judge_forbidden(end: PlanEnd, number: int, batch: Batch, gain: Floats, tally: _Tally) -> None:
    """Count the rules that forbid helpful actions which neither goals nor limits stop."""
    found = stoppers(end, number, Transition(end.scorer.cluster, batch))
    rows = ~np.any([np.zeros(len(batch), np.bool_), *(one.stops for one in found)], axis=0)
    batch, gain = batch[rows], gain[rows]
    if not len(batch):
        return
    rules = prohibitions(end.rules, end.operation, end.scorer.placement, batch)
    times = np.sum([rule.forbids for rule in rules], axis=0)
    tally.helpful += len(batch)
    for rule in rules:
        tally.count(rule.name, "", rule.forbids, times == 1)
    row = int(gain.argmax())
    if gain[row] > tally.best:
        tally.best, tally.example = float(gain[row]), action_phrase(end.scorer, batch, row)
        tally.because = listed([rule.sentence(row) for rule in rules if rule.forbids[row]])


def _counts(tally: _Tally) -> str:
    """How many actions each stopper stops, the most important first."""
    ranked = sorted(tally.stopped.items(), key=lambda item: (-item[1][0], item[0]))
    parts, rest = [], 0
    for place, ((name, remark), (count, alone)) in enumerate(ranked):
        if place >= _NAMED and name not in tally.impossible and not name.startswith(_LIMIT):
            rest += 1
            continue
        remarks = [remark] if remark else []
        remarks += ["no placement meets it"] if name in tally.impossible else []
        if alone and len(ranked) > 1:
            remarks.append(f"{'all' if alone == count else f'{alone:,}'} of them alone")
        parts.append(f"{count:,} by {name}" + (f" ({', '.join(remarks)})" if remarks else ""))
    return ", ".join(parts) + (f", others by {rest} more" if rest else "")


def _helpful(scorer: Scorer, i: int, batch: Batch) -> Iterator[tuple[Batch, Floats]]:
    """The actions that help a goal, and by how much they raise the lowest touched contentment."""
    for first in range(0, len(batch), CHUNK):
        part = batch[first : first + CHUNK]
        gain = scorer.diff(i, Transition(scorer.cluster, part))[0]
        helps = gain > EPSILON
        if helps.any():
            yield part[helps], gain[helps]


def _moves(
    scorer: Scorer,
    goal: Goal,
    cells: Ints,
    at: Ints,
    receivers: Ints,
    parameters: PlanningParameters,
) -> tuple[Batch, bool]:
    """Moves of some replicas to receivers, near the discontented cells, and whether all."""
    placement, s, scope = scorer.placement, scorer.placement.snapshot, goal.scope
    most, worst = parameters.sampled_actions, parameters.sampled_cells
    brokers, disks = destinations(placement, receivers)
    if scope.of_partitions:
        at = at[np.isin(at // placement.slots, cells)]
    elif (topics := _topics(scope, s, cells)) is not None:
        at = at[topics[s.partition_topic[at // placement.slots]]]
    n = len(brokers)
    if not len(at) or not n:
        return _distinct(scorer, brokers, disks, np.empty(0, np.int64), at), True
    if len(at) * n <= parameters.examined_actions:
        return _distinct(scorer, brokers, disks, np.arange(len(at) * n), at), True
    if scope.of_partitions:
        return _distinct(scorer, brokers, disks, _pairs(len(at), n, most), at), False
    p = at // placement.slots
    disk = placement.replica_disk[at] if len(placement.replica_disk) else np.full_like(at, -1)
    own = placement.keys(scope, p, placement.replica_broker[at], disk)
    sides, everywhere = [], np.arange(len(at))
    for cell in cells[:worst].tolist():
        near, mine = everywhere, np.flatnonzero(np.atleast_2d(own == cell).any(0))
        if (topics := _topics(scope, s, np.array([cell]))) is not None:
            near = np.flatnonzero(topics[s.partition_topic[p]])
        if not len(near):
            continue
        there = placement.keys(scope, np.full(n, p[near[0]]), brokers, disks) == cell
        there = np.atleast_2d(there).any(0)
        sides += [(mine, np.arange(n)), (near, np.flatnonzero(there))]
    sides = [(rows, to) for rows, to in sides if len(rows) and len(to)]
    pairs = [np.empty(0, np.int64)]
    for rows, to in sides:
        chosen = _pairs(len(rows), len(to), most // len(sides))
        pairs.append(rows[chosen // len(to)] * n + to[chosen % len(to)])
    return _distinct(scorer, brokers, disks, np.unique(np.concatenate(pairs)), at), False


def _pairs(rows: int, columns: int, most: int) -> Ints:
    """Numbers of pairs, row by row: of so many rows that there are about `most`."""
    chosen = _some(rows, max(1, most // columns))
    return (chosen[:, None] * columns + np.arange(columns)).ravel()


def _some(count: int, most: int) -> Ints:
    """At most `most` of the numbers below `count`, evenly spread and without a period."""
    if count <= most:
        return np.arange(count)
    step = int(0.618 * count)
    while math.gcd(step, count) > 1:
        step += 1
    return np.sort(np.arange(most) * step % count)


def _distinct(scorer: Scorer, brokers: Ints, disks: Ints, pairs: Ints, at: Ints) -> Batch:
    """Moves of pairs of a replica and a destination, without those that change nothing."""
    placement, n = scorer.placement, max(1, len(brokers))
    at, broker, disk = at[pairs // n], brokers[pairs % n], disks[pairs % n]
    p, where = at // placement.slots, placement.replica_broker[at]
    batch = Batch.of(MOVE, p, at % placement.slots, broker, disk)
    stays = where == broker
    batch.kind[stays] = MOVE_DISK
    inside = (placement.brokers[p] == broker[:, None]).any(1)
    return batch[np.where(stays, disk != placement.source_disk(batch), ~inside)]


def _topics(scope: Scope, snapshot: Snapshot, cells: Ints) -> Bools | None:
    """(T,) whether replicas of a topic count in some cells; None if those of any topic do."""
    divided = scope.inner or scope
    if not isinstance(divided, Divided):
        return None
    kinds = cells if scope.inner else divided.split(snapshot, cells)[0]
    return np.asarray(np.isin(np.atleast_2d(divided.kinds(snapshot)), kinds).any(axis=0))


def _touching(scorer: Scorer, goal: Goal, cells: Ints, batch: Batch) -> Bools:
    """(C,) whether an action touches a discontented cell: no other action can help."""
    if goal.scope.of_partitions:
        return np.isin(batch.partition, cells)
    touched = np.isin(Transition(scorer.cluster, batch).cells(goal.scope), cells)
    return np.asarray(touched.any(0))
