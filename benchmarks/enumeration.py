"""Enumerates every placement of a tiny cluster, to check a plan's statements against the truth.

Shares nothing with the search, the rules or the planning: it has its own interpretation of what an
operation allows. It uses only the goals themselves, which define when they are met. The operation
does not change the replication factor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

import goals as library
from balancer import Operation, Plan
from cluster_model import Snapshot
from cluster_model.columns import Column
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints
from goals import Cluster, Goal, State
from goals.capacity import Ceiling

# two sums of the same loads differ by about this share of them
_ROUNDING = 1e-9
KINDS: tuple[str, ...] = (
    "rebalance",
    "rebalance",
    "add_brokers",
    "remove_brokers",
    "demote_brokers",
    "fix_offline_replicas",
)


class TooManyError(Exception):
    """The cluster has more placements than the enumeration allows."""


@dataclass(frozen=True)
class _Options:
    """The O ways to place one partition; slots as in the plan's replica table."""

    brokers: Ints
    """(O, F) broker of each slot."""
    disks: Ints
    """(O, F) disk of each slot; -1 for none that is known."""
    leader: Ints
    """(O,) slot of the leader."""
    copies: Ints
    """(O,) replicas on brokers, or disks, that held none before."""


class Enumeration:
    """All placements that an operation allows.

    Parameters
    ----------
    snapshot
        The current cluster.
    operation
        The request.
    most
        Maximum number of placements to enumerate.

    Raises
    ------
    TooManyError
        If there are more.
    """

    def __init__(self, snapshot: Snapshot, operation: Operation, most: int = 40_000) -> None:
        s = self.snapshot = snapshot
        self.operation = operation
        mine = np.isin(s.broker_ids, operation.brokers)
        cordoned = s.disk_cordoned if len(s.disk_cordoned) else np.zeros(s.n_disks, np.bool_)
        self.open_disks: list[list[int]] = [[] for _ in range(s.n_brokers)]
        dead, shut = s.broker_state == BrokerState.DEAD, np.zeros(s.n_brokers, np.bool_)
        for b in range(s.n_brokers):
            own = np.flatnonzero(s.disk_broker == b)
            usable = own[s.disk_alive[own] & ~cordoned[own]]
            dead[b] |= len(own) > 0 and not s.disk_alive[own].any()
            shut[b] = len(own) > 0 and not len(usable)
            self.open_disks[b] = usable.tolist() if len(own) else [-1]
        removed = mine & (operation.kind == "remove_brokers")
        self.dead, self.draining = dead, dead | removed
        barred = np.isin(s.broker_ids, operation.excluded_brokers_for_replicas)
        self.eligible = ~self.draining & ~barred & ~shut
        self.leads = ~self.draining & (s.broker_state != BrokerState.DEMOTED)
        self.leads &= ~np.isin(s.broker_ids, operation.excluded_brokers_for_leadership)
        self.leads &= ~(mine & (operation.kind == "demote_brokers"))
        self.receives = self.eligible.copy()
        if operation.destinations is not None:
            self.receives &= np.isin(s.broker_ids, operation.destinations)
        if operation.kind == "add_brokers":
            self.receives &= mine
        if operation.kind == "demote_brokers":
            self.receives[:] = False
        # the only brokers that leadership goes to, and whose disks exchange replicas
        self.served = mine | (operation.kind != "add_brokers")
        self.options = [self._options(p) for p in range(s.n_partitions)]
        self.count = prod(len(o.leader) for o in self.options)
        if self.count > most:
            raise TooManyError(f"{self.count} placements found, at most {most} expected")

    def _fixed(self, p: int) -> bool:
        s, op = self.snapshot, self.operation
        topic = s.topics[s.partition_topic[p]]
        return (
            any(re.fullmatch(pattern, topic) for pattern in op.excluded_topics)
            or f"{topic}-{s.partition_number[p]}" in op.excluded_partitions
            or op.kind in ("remove_brokers", "demote_brokers", "fix_offline_replicas")
        )

    def _options(self, p: int) -> _Options:
        s = self.snapshot
        span = slice(s.replica_offset[p], s.replica_offset[p + 1])
        held = s.replica_broker[span].tolist()
        disks = s.replica_disk[span].tolist() if s.n_disks else [-1] * len(held)
        gone = [d >= 0 and not s.disk_alive[d] for d in disks]
        first = max(int(s.leader[p]), 0)
        name = f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}"
        frozen = not s.partition_settled[p] or name in self.operation.frozen_partitions
        if frozen or all(self.dead[b] or lost for b, lost in zip(held, gone, strict=True)):
            return _Options(*(np.array([x]) for x in (held, disks, first, 0)))
        fixed = self._fixed(p)
        homes = [
            (b, d)
            for b in np.flatnonzero(self.receives).tolist()
            if b not in held
            for d in self.open_disks[b]
        ]
        choices = []
        for b, d, lost in zip(held, disks, gone, strict=True):
            leaves = not fixed or self.draining[b] or lost
            # nothing is copied between the disks of a broker if the source is dead
            beside = [] if fixed or self.draining[b] or lost else self.open_disks[b]
            beside = beside if self.served[b] else []
            choices.append(
                [(b, d), *((b, o) for o in beside if o != d), *(homes if leaves else [])]
            )
        new_leader = not fixed or not self.leads[held[first]] or gone[first]
        found: dict[tuple[frozenset[tuple[int, int]], int], tuple[Any, ...]] = {}
        must = not self.leads[held[first]] or gone[first]
        for row in product(*choices):
            brokers, on = zip(*row, strict=True)
            if len({*brokers}) < len(brokers):
                continue
            able = {
                i
                for i, (b, d) in enumerate(row)
                if self.leads[b] and new_leader and (d < 0 or s.disk_alive[d])
            }
            if not must:
                able &= {i for i, (b, _) in enumerate(row) if self.served[b]}
            if brokers[first] == held[first]:
                able.add(first)
            copies = sum(a != b for a, b in zip(row, zip(held, disks, strict=True), strict=True))
            for slot in sorted(able):
                # which of two new replicas came from which source does not change the placement
                found.setdefault((frozenset(row), brokers[slot]), (brokers, on, slot, copies))
        return _Options(*(np.array(x) for x in zip(*found.values(), strict=True)))

    @cached_property
    def cluster(self) -> Cluster:
        """The starting state as goals see it."""
        return Cluster(Placement(self.snapshot), self.eligible, self.leads, self.draining)

    def _added_up(self, parts: Sequence[npt.NDArray[np.floating]]) -> Floats:
        """(M, …) sums over the partitions of (O, …) parts, for all M combinations."""
        total = np.zeros((1, *parts[0].shape[1:])) if parts else np.zeros((1, 0))
        for part in parts:
            total = (total[:, None] + part[None]).reshape(-1, *part.shape[1:])
        return total

    def on_disks(self) -> Floats:
        """(M, D) bytes on each disk."""
        parts = []
        for p, o in enumerate(self.options):
            lead, follow = self._amounts(p, "load.disk")
            leads = np.arange(o.brokers.shape[1]) == o.leader[:, None]
            # replicas on no known disk fall into a separate cell, which is then dropped
            part = np.zeros((len(o.leader), self.snapshot.n_disks + 1))
            np.add.at(part, (np.arange(len(part))[:, None], o.disks), np.where(leads, lead, follow))
            parts.append(part[:, :-1])
        return self._added_up(parts)

    def sums(self, column: str, cell: Ints | None = None, by_topic: bool = False) -> Floats:
        """(M, cells) a column summed over brokers, or over the cells given by `cell` (B,)."""
        s = self.snapshot
        cell = np.arange(s.n_brokers) if cell is None else cell
        width = int(cell.max()) + 1
        topics = len(s.topics) if by_topic else 1
        parts = []
        for p, o in enumerate(self.options):
            lead, follow = self._amounts(p, column)
            leads = np.arange(o.brokers.shape[1]) == o.leader[:, None]
            part = np.zeros((len(o.leader), topics * width))
            at = cell[o.brokers] + (s.partition_topic[p] * width if by_topic else 0)
            np.add.at(part, (np.arange(len(part))[:, None], at), np.where(leads, lead, follow))
            parts.append(part)
        return self._added_up(parts)

    def _amounts(self, p: int, column: str) -> tuple[float, float]:
        s = self.snapshot
        name, _, resource = column.partition(".")
        if not resource:
            return 1.0, float(name == "replica_count")
        r = s.resources.index(resource)
        lead, follow = float(s.leader_load[p, r]), float(s.follower_load[p, r])
        return lead, {"load": follow, "leader_load": 0.0, "potential_load": lead}[name]

    @cached_property
    def copied(self) -> Floats:
        """(M,) least bytes copied to brokers that did not have them."""
        s = self.snapshot
        parts = []
        for p, o in enumerate(self.options):
            size = min(self._amounts(p, "load.disk")) if "disk" in s.resources else 1.0
            parts.append(o.copies[:, None] * size)
        return self._added_up(parts)[:, 0]

    def met(self, goal: Goal) -> Bools:
        """(M,) whether a goal, prepared on :attr:`cluster`, is met."""
        if goal.scope.of_partitions:
            parts = [1.0 - (score >= 1)[:, None] for score in self._of_partitions(goal)]
            unmet: Floats = self._added_up(parts).sum(1)
            return np.equal(unmet, 0)
        least: Floats = self.scores(goal).min(axis=1, initial=1.0)
        return np.greater_equal(least, 1)

    def lack(self, goal: Goal) -> Floats:
        """(M,) squares of what the cells lack to be content with a goal, added up."""
        if goal.scope.of_partitions:
            parts = [(1 - score[:, None]) ** 2 for score in self._of_partitions(goal)]
            return self._added_up(parts)[:, 0]
        total: Floats = ((1 - self.scores(goal)) ** 2).sum(1)
        return total

    def no_less_content(self, goal: Goal, at: int) -> Bools:
        """(M,) placements with which no cell is less content with a goal than with one of them."""
        if not goal.scope.of_partitions:
            scores = self.scores(goal)
            return np.asarray((scores >= scores[at] - _ROUNDING).all(1))
        own = np.unravel_index(at, [len(o.leader) for o in self.options])
        parts = [
            1.0 * (score < score[here] - _ROUNDING)[:, None]
            for score, here in zip(self._of_partitions(goal), own, strict=True)
        ]
        return np.asarray(self._added_up(parts)[:, 0] == 0)

    def scores(self, goal: Goal) -> Floats:
        """(M, cells) contentment of each cell with a goal whose scope is not partitions."""
        s, scope = self.snapshot, goal.scope.name
        brokers = np.arange(s.n_brokers)
        cell = {
            "broker": brokers,
            "host": s.broker_host,
            "topic": brokers,
            "topic_rack": s.broker_rack,
            "disk": s.disk_broker,
        }[scope]
        by_topic, width = goal.scope.by_topic, int(cell.max(initial=-1)) + 1
        width = s.n_disks if scope == "disk" else width * (len(s.topics) if by_topic else 1)
        index = np.broadcast_to(np.arange(width), (self.count, width))
        per_topic = width // len(s.topics)

        def fetch(column: Column) -> Any:
            name = str(column)
            if scope == "disk" and name == "load.disk":
                return self.on_disks()
            if scope != "disk" and name.partition(".")[0] in _SUMS:
                return self.sums(name, cell, by_topic)
            if by_topic and name == "topic":
                return index // per_topic
            if name == {"topic": "broker", "topic_rack": "rack"}.get(scope, scope):
                return index % per_topic if by_topic else index
            raise AttributeError(f"{goal.name} asks for {name}")

        return np.asarray(goal.score(State(fetch)), np.float64)

    def helped(self, goal: Goal, end: int) -> bool:
        """Whether one action on a placement makes some cell more content with a goal, none less.

        Partitions that may be touched only for availability are left out.
        """
        now = np.unravel_index(end, [len(o.leader) for o in self.options])
        stride, found = 1, False
        per = self._of_partitions(goal) if goal.scope.of_partitions else None
        scores = None if per is not None else self.scores(goal)
        for p in range(len(self.options) - 1, -1, -1):
            at = int(now[p])
            for i in [] if self._fixed(p) else self._one_step(self.options[p], at):
                if per is not None:
                    found |= bool(per[p][i] > per[p][at] + _ROUNDING)
                    continue
                assert scores is not None
                more = scores[end + (i - at) * stride] - scores[end]
                found |= bool(more.min() >= 0 and more.max() > _ROUNDING)
            stride *= len(self.options[p].leader)
        return found

    def _one_step(self, o: _Options, at: int) -> Iterator[int]:
        """Options that a single action leads to."""
        rows = [
            list(zip(brokers, disks, strict=True))
            for brokers, disks in zip(o.brokers.tolist(), o.disks.tolist(), strict=True)
        ]
        first = rows[at][o.leader[at]]
        for i, row in enumerate(rows):
            gone, come, lead = {*rows[at]} - {*row}, {*row} - {*rows[at]}, row[o.leader[i]]
            if not gone:
                alive = lead[1] < 0 or self.snapshot.disk_alive[lead[1]]
                if lead != first and self.leads[lead[0]] and alive:
                    yield i
            elif len(gone) == 1:
                (source,), (target,) = gone, come
                may = self.receives[target[0]] or target[0] == source[0]
                may &= target[1] in self.open_disks[target[0]]
                may &= source != first or bool(self.leads[target[0]] or target[0] == source[0])
                # a leader that moves stays the leader
                if may and lead == (target if source == first else first):
                    yield i

    def safely_reached(self, hard: Sequence[Goal]) -> Bools:
        """(M,) placements to which safe steps lead from the start, one action at a time.

        A step is safe if no cell of a hard goal is less content than before it or, where the goal
        is a limit, than at the start.

        Parameters
        ----------
        hard
            Hard goals and vetoes, prepared on :attr:`cluster`.
        """
        reached = np.zeros(self.count, np.bool_)
        begin = self.place(Placement(self.snapshot))
        if begin is None:
            return reached
        of_partitions = [self._of_partitions(g) for g in hard if g.scope.of_partitions]
        others = [g for g in hard if not g.scope.of_partitions]
        scores = [self.scores(g) for g in others]
        began = [
            np.where(isinstance(g, Ceiling), own[begin], np.inf)
            for g, own in zip(others, scores, strict=True)
        ]
        cells = np.concatenate([np.ones((self.count, 0)), *scores], 1)
        least = np.minimum(cells, np.concatenate([np.empty(0), *began])) * (1 - _ROUNDING)
        steps, stride = [], 1
        for p in range(len(self.options) - 1, -1, -1):
            width = len(self.options[p].leader)
            for here in range(width):
                for there in self._one_step(self.options[p], here):
                    if all(own[p][there] >= own[p][here] - _ROUNDING for own in of_partitions):
                        steps.append((stride, width, here, there))
            stride *= width
        reached[begin] = True
        front = np.array([begin])
        while len(front):
            before = reached.copy()
            for stride, width, here, there in steps:
                source = front[front // stride % width == here]
                target = source + (there - here) * stride
                source, target = source[~reached[target]], target[~reached[target]]
                reached[target[(cells[target] >= least[source]).all(1)]] = True
            front = np.flatnonzero(reached & ~before)
        return reached

    def _of_partitions(self, goal: Goal) -> list[Floats]:
        """(O,) scores of the options of each partition."""
        states = [self._partition_state(p, o) for p, o in enumerate(self.options)]
        return [np.asarray(goal.score(state), np.float64) for state in states]

    def _partition_state(self, p: int, o: _Options) -> State:
        s = self.snapshot
        width = int(s.replication_factor.max())
        empty = np.full((len(o.leader), width - o.brokers.shape[1]), -1)
        brokers, disks = (np.concatenate([x, empty], 1) for x in (o.brokers, o.disks))
        return State.of(
            partition=np.full(len(o.leader), p),
            topic=np.full(len(o.leader), s.partition_topic[p]),
            replica_broker=brokers,
            replica_rack=np.where(brokers < 0, -1, s.broker_rack[brokers]),
            replica_disk=disks,
            leader=o.leader,
        )

    def place(self, placement: Placement) -> int | None:
        """Number of a placement in the enumeration; None if it is not in it."""
        number, width = 0, self.snapshot.n_disks + 1
        disks = placement.replica_disk.reshape(-1, placement.slots) if width > 1 else None
        for p, o in enumerate(self.options):
            row = placement.brokers[p]
            key = row * width + (0 if disks is None else disks[p] + 1)
            own = np.sort(o.brokers * width + o.disks + 1, 1)
            same = (own == np.sort(key[row >= 0])).all(1)
            same &= o.brokers[np.arange(len(own)), o.leader] == row[placement.leader[p]]
            if not same.any():
                return None
            number = number * len(own) + int(same.argmax())
        return number


_SUMS = ("load", "leader_load", "potential_load", "replica_count", "leader_count")


def false_statements(plan: Plan, operation: Operation, most: int = 40_000) -> Iterator[str]:
    """Statements of a plan that the enumeration of all placements contradicts.

    Compares its end, its met and unmet goals, `proven`, the bound on bytes and those on the worst
    ratios with all placements that the operation allows.

    Raises
    ------
    TooManyError
        If there are too many placements.
    """
    every = Enumeration(plan.snapshot, operation, most)
    end = every.place(plan.placement)
    if end is None:
        yield "the plan ends in a placement that the operation does not allow"
        return
    summary, met, goals = plan.summary, {}, {}
    for stated, reported in zip(plan.goals, plan.goal_results, strict=True):
        own = {k: v for k, v in stated.items() if k not in ("goal", "name")}
        goal = getattr(library, str(stated["goal"]))(**own).prepared(every.cluster)
        goals[goal.name], met[goal.name] = goal, every.met(goal)
        # the slots of new replicas have several equivalent orders, which makes no difference here
        ordered = goal.name == "PreferredLeader"
        if bool(met[goal.name][end]) != reported.met_after and not ordered:
            yield f"{goal.name}: met_after {reported.met_after} stated, {met[goal.name][end]} found"
    for unmet in plan.unmet:
        if unmet.proven and met[unmet.goal].any():
            yield f"{unmet.goal}: proven out of reach, but it can be met: {unmet.reason}"
        none = "no allowed single action helps" in unmet.reason
        if none and every.helped(goals[unmet.goal], end):
            yield f"{unmet.goal}: an action helps: {unmet.reason}"
    reached = [g.goal for g in plan.goal_results if g.met_after and g.goal != "PreferredLeader"]
    alike = np.logical_and.reduce([met[name] for name in reached] or [np.ones(every.count, bool)])
    least = float(every.copied[alike].min()) if alike.any() else np.inf
    if summary.cost_bound > least * (1 + _ROUNDING):
        yield f"cost_bound {summary.cost_bound!r}, but {least!r} bytes are enough"
    for name, column in plan.columns.items():
        key = name if name.endswith("_count") else f"load.{name}"
        share = every.cluster.fair_share(key)
        usable = share > 0
        if not usable.any():
            continue
        value = every.sums(key)
        left = value[:, ~usable].sum(1)
        no_more = left <= left[end] + _ROUNDING * value[end].sum()
        ratio = (value[:, usable] / share[usable]).max(1)
        best = float(ratio[no_more].min())
        if column.worst_ratio_bound > best * (1 + _ROUNDING):
            bound = column.worst_ratio_bound
            yield f"{name}: worst_ratio_bound {bound!r}, but {best!r} is possible"


_LOADS = (0.0, 1.0, 2.0, 3.0, 5.0, 0.3, 7.7)


def tiny_cluster(rng: np.random.Generator) -> Snapshot:
    """2 to 4 brokers with up to 4 partitions in unusual states; some have disks."""
    jbod = rng.random() < 0.4
    n, p = int(rng.integers(2, 4 if jbod else 5)), int(rng.integers(1, 4 if jbod else 5))
    names = ("disk", "network_in", "network_out", "cpu")[: int(rng.integers(1, 5))]
    state = rng.choice(4, n, p=(0.6, 0.1, 0.15, 0.15))
    factor = rng.integers(1, min(3, n) + 1, p)
    held = [rng.permutation(n)[:f] for f in factor]
    lead = rng.choice(_LOADS, (p, len(names)))
    follow = rng.choice(_LOADS, (p, len(names))) if rng.random() < 0.5 else lead
    capacity = rng.choice((0.0, 4.0, 10.0, 10.0, 20.0, 40.0), (n, len(names)))
    if rng.random() < 0.6:
        capacity[:] = rng.choice((8.0, 15.0, 40.0))
    racks, hosts = int(rng.integers(1, n + 1)), int(rng.integers(1, n + 1))
    sets = int(rng.integers(0, 3)) if rng.random() < 0.3 else 0
    topic = np.sort(rng.integers(0, min(p, 3), p))
    at = np.concatenate(held)
    disks = _tiny_disks(rng, n, at) if jbod else {}
    return Snapshot(
        resources=names,
        broker_ids=np.arange(n) + 1,
        racks=tuple(f"r{i}" for i in range(racks)),
        broker_rack=rng.integers(0, racks, n),
        hosts=tuple(f"h{i}" for i in range(n)),
        broker_host=np.arange(n) if rng.random() < 0.7 else rng.integers(0, hosts, n),
        broker_state=state,
        capacity=capacity,
        topics=tuple(f"t{i}" for i in range(3)),
        partition_topic=topic,
        partition_number=np.arange(p),
        leader_load=lead,
        follower_load=follow,
        replica_offset=np.concatenate([[0], np.cumsum(factor)]),
        replica_broker=at,
        leader=np.array([rng.integers(-1 if rng.random() < 0.1 else 0, f) for f in factor]),
        broker_sets=tuple(f"s{i}" for i in range(sets)),
        broker_set=rng.integers(-1, sets, n) if sets else np.empty(0, np.int64),
        reassigning=rng.random(p) < 0.5 if rng.random() < 0.1 else np.empty(0, np.bool_),
        **disks,
    )


def _tiny_disks(rng: np.random.Generator, n: int, held: Ints) -> dict[str, Any]:
    """Up to two disks per broker, some dead or cordoned, and some replicas on no known disk."""
    count = rng.choice(3, n, p=(0.1, 0.45, 0.45))
    count[0] = max(count[0], 1)
    d, first = int(count.sum()), np.cumsum(count) - count
    capacity = rng.choice((0.0, 4.0, 10.0, 10.0, 20.0), d)
    on = first[held] + rng.integers(0, np.maximum(count, 1)[held])
    unknown = (count[held] == 0) | (rng.random(len(held)) < rng.choice((0.0, 0.5)))
    return {
        "disk_broker": np.repeat(np.arange(n), count),
        "disk_path": tuple(f"/{i}" for i in range(d)),
        "disk_capacity": np.full(d, 10.0) if rng.random() < 0.4 else capacity,
        "disk_alive": rng.random(d) > rng.choice((0.0, 0.2)),
        "disk_cordoned": rng.random(d) < rng.choice((0.0, 0.2)),
        "replica_disk": np.where(unknown, -1, on),
    }


def tiny_operation(rng: np.random.Generator, s: Snapshot) -> Operation:
    """An operation on a tiny cluster, often with something excluded."""

    def some() -> tuple[int, ...]:
        count = int(rng.integers(1, s.n_brokers))
        return tuple(sorted(rng.choice(s.broker_ids, count, replace=False).tolist()))

    arguments: dict[str, Any] = {"kind": str(rng.choice(KINDS))}
    if arguments["kind"] in ("add_brokers", "remove_brokers", "demote_brokers"):
        arguments["brokers"] = some()
    for name in ("excluded_brokers_for_replicas", "excluded_brokers_for_leadership"):
        if rng.random() < 0.2:
            arguments[name] = some()
    if rng.random() < 0.15:
        arguments["destinations"] = some()
    if rng.random() < 0.3:
        arguments["excluded_topics"] = (str(rng.choice(list(s.topics))),)
    for name in ("excluded_partitions", "frozen_partitions"):
        if rng.random() < 0.1:
            arguments[name] = (f"{rng.choice(list(s.topics))}-{rng.integers(s.n_partitions)}",)
    return Operation(**arguments)


def tiny_goals(rng: np.random.Generator, s: Snapshot) -> list[Goal]:
    """A profile, or goals of every kind with limits that are often out of reach."""
    if rng.random() < 0.5:
        return library.goals_for(s, str(rng.choice(["default", "cruise-control", "autobalancer"])))
    resource = str(rng.choice(s.resources))
    every: list[Goal] = [
        library.RackAwareness(),
        library.RackAwareDistribution(),
        library.ReplicaCapacity(limit=int(rng.integers(1, 4))),
        library.ResourceCapacity(resource=resource, hard=bool(rng.random() < 0.7)),
        library.HostCapacity(resource=resource),
        library.MinTopicLeaders(topics="t[01]", minimum=int(rng.integers(0, 3))),
        library.UsageDistribution(resource=resource, threshold=float(rng.uniform(1, 2))),
        library.ReplicaDistribution(),
        library.LeaderReplicaDistribution(),
        library.TopicReplicaDistribution(min_gap=0),
        library.TopicLeaderDistribution(),
        library.TopicRackDistribution(),
    ]
    if "network_out" in s.resources:
        every.append(library.PotentialNetworkOut(hard=bool(rng.random() < 0.3)))
    if "network_in" in s.resources:
        every += [library.LeaderBytesInDistribution(), library.NetworkInUsageDistribution()]
    if s.broker_sets:
        every.append(library.BrokerSetAwareness())
    if s.n_disks:
        threshold = float(rng.choice((0.5, 0.8, 1.0)))
        every += [library.DiskCapacity(threshold=threshold), library.DiskUsageDistribution()]
    chosen = [goal for goal in every if rng.random() < 0.4]
    return chosen or every[:1]
