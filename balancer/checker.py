"""A second opinion on plans: every step replayed, every figure worked out afresh.

Nothing here is shared with what made the plan: it reads the snapshot and the plan's
document, and has its own definition of every goal. Where nobody leads a partition, its
first replica is the leader to be, as everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from balancer.plan import Action, PlanDocument, Spread
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints, Snapshot

# Two ways to add up the same loads differ by about this much of the sum.
TOLERANCE = 1e-9
# A goal is judged a little strictly and a little laxly; what is stated must agree with either.
_STRICT, _LAX = 0.25 * TOLERANCE, 4 * TOLERANCE


@dataclass(frozen=True)
class Finding:
    """Something wrong with a plan.

    Parameters
    ----------
    kind
        A short name, the same for all findings of a sort.
    text
        What, where, what was found and what was expected.
    step
        Index of the action; None for the plan as a whole.
    """

    kind: str
    text: str
    step: int | None = None

    def __str__(self) -> str:
        return f"{'' if self.step is None else f'step {self.step}: '}{self.text}"


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Parameters
    ----------
    violations
        Steps that cannot or must not be done, and promises of the operation not kept.
    mismatches
        Figures that are not what they come out as from the snapshot and the steps.
    """

    violations: tuple[Finding, ...]
    mismatches: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.violations and not self.mismatches


def check_plan(snapshot: Snapshot, plan: PlanDocument) -> CheckReport:
    """Replay a plan from its snapshot and check every step, promise and figure.

    Parameters
    ----------
    snapshot
        Where the plan starts.
    plan
        What it says of itself, see :meth:`balancer.Plan.document` and
        :func:`balancer.load_plan`.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    >>> check_plan(snapshot, Balancer("default").propose(snapshot).document()).ok
    True
    """
    who = _Who(snapshot, plan.operation)
    replay = _Replay(who, plan)
    replay.run()
    replay.promises()
    replay.groups()
    mismatches = [
        *_summary(replay),
        *_columns(replay),
        *_goals(replay),
        *_allocation(replay),
    ]
    return CheckReport(tuple(replay.violations), tuple(mismatches))


class _Who:
    """Which brokers may hold, lead and receive what, by the operation's own words."""

    def __init__(self, s: Snapshot, operation: Mapping[str, Any]) -> None:
        self.snapshot, self.operation = s, operation
        self.kind = str(operation.get("kind", "rebalance"))
        self.mine = self._brokers("brokers")
        disks = np.bincount(s.disk_broker, minlength=s.n_brokers)
        broken = np.bincount(s.disk_broker, ~s.disk_alive, s.n_brokers)
        # a broker all of whose disks are dead can hold nothing either
        self.dead = (s.broker_state == BrokerState.DEAD) | ((disks > 0) & (broken == disks))
        self.draining = self.dead | (self.mine & (self.kind == "remove_brokers"))
        self.eligible = ~self.draining & ~self._brokers("excluded_brokers_for_replicas")
        self.may_lead = ~self.draining & (s.broker_state != BrokerState.DEMOTED)
        self.may_lead &= ~self._brokers("excluded_brokers_for_leadership")
        self.may_lead &= ~(self.mine & (self.kind == "demote_brokers"))
        self.receives = self.eligible.copy()
        if operation.get("destinations") is not None:
            self.receives &= self._brokers("destinations")
        if self.kind == "add_brokers":
            self.receives &= self.mine
        self.excluded = np.zeros(s.n_partitions, np.bool_)
        for pattern in operation.get("excluded_topics", ()):
            self.excluded |= self.topics(pattern)[s.partition_topic]
        fixed = frozenset(operation.get("excluded_partitions", ()))
        if fixed:
            numbered = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
            self.excluded |= [f"{s.topics[t]}-{n}" in fixed for t, n in numbered]
        self.factor = s.replication_factor.copy()
        for pattern, wanted in operation.get("replication_factor", {}).items():
            self.factor[self.topics(pattern)[s.partition_topic]] = wanted
        self.group = s.broker_set + 1 if len(s.broker_set) else np.zeros(s.n_brokers, np.int64)
        self.groups = int(self.group.max()) + 1

    def _brokers(self, name: str) -> Bools:
        return np.isin(self.snapshot.broker_ids, list(self.operation.get(name) or ()))

    def topics(self, pattern: str) -> Bools:
        """(T,) whether a pattern matches the whole name; an empty one matches none."""
        matches = (bool(pattern) and re.fullmatch(pattern, t) for t in self.snapshot.topics)
        return np.array([bool(m) for m in matches], np.bool_)

    @cached_property
    def size(self) -> Floats:
        """(B,) the mean over resources of capacity / mean capacity, 0 where nothing may go."""
        capacity = self.snapshot.capacity
        known = capacity.mean(0) > 0
        if not known.any():
            return np.where(self.eligible, 1.0, 0.0)
        relative = capacity[:, known] / capacity[:, known].mean(0)
        return np.where(self.eligible, relative.mean(1), 0.0)

    @cached_property
    def led_size(self) -> Floats:
        """(B,) :attr:`size`, 0 where nobody may lead either."""
        return np.where(self.may_lead, self.size, 0.0)

    def per_group(self, values: Floats | Bools) -> Floats:
        """(B,) the sum over each broker's own broker set."""
        return _sums(self.group, values, self.groups)[self.group]

    def shared(self, total: Floats, weight: Floats) -> Floats:
        """(B,) a total of each set, but for what stays on barred brokers, shared out by weight."""
        counted = self.per_group(np.where(self.eligible | self.draining, total, 0.0))
        weights = self.per_group(weight)
        return np.divide(counted, weights, out=np.zeros_like(total), where=weights > 0) * weight

    def weight(self, column: str) -> Floats:
        """(B,) what a column is shared out by."""
        resource = column.partition(".")[2]
        takes = self.takes(column)
        return np.where(takes, self.capacity(resource) if resource else self.size, 0.0)

    def takes(self, column: str) -> Bools:
        """(B,) who has a part in a column: where replicas, or leaders, may go."""
        takes: Bools = self.eligible
        return takes & self.may_lead if column.startswith("leader_") else takes

    def capacity(self, resource: str) -> Floats:
        """(B,) capacity of a resource."""
        return self.snapshot.capacity[:, self.snapshot.resources.index(resource)]


@dataclass(frozen=True)
class _Picture:
    """Which replica is where at one moment; N replicas in preference order of each partition."""

    snapshot: Snapshot
    partition: Ints
    broker: Ints
    disk: Ints
    leads: Bools
    leader: Ints

    @cached_property
    def factor(self) -> Ints:
        return np.bincount(self.partition, minlength=self.snapshot.n_partitions)

    def amounts(self, column: str) -> Floats:
        """(N,) what each replica adds to a column."""
        lead, follow = _contribution(self.snapshot, column)
        return np.where(self.leads, lead[self.partition], follow[self.partition])

    def per_broker(self, column: str) -> Floats:
        """(B,) a column added up."""
        return _sums(self.broker, self.amounts(column), self.snapshot.n_brokers)

    def per_topic(self, leaders: bool, of_broker: Ints, cells: int) -> Floats:
        """(T, cells) replicas, or leaders, where brokers fall into cells."""
        key = self.snapshot.partition_topic[self.partition] * cells + of_broker[self.broker]
        key = key[self.leads] if leaders else key
        count = np.bincount(key, minlength=len(self.snapshot.topics) * cells)
        return count.reshape(-1, cells).astype(np.float64)

    def per_disk(self) -> Floats:
        """(D,) bytes on each disk."""
        known = self.disk >= 0
        return _sums(self.disk[known], self.amounts("load.disk")[known], self.snapshot.n_disks)

    def count(self, replicas: Bools) -> Ints:
        """(P,) how many replicas of each partition are marked."""
        return np.bincount(self.partition[replicas], minlength=self.snapshot.n_partitions)

    def rack_counts(self) -> tuple[Ints, Ints]:
        """For every rack that holds a partition: the partition, and its replicas there."""
        racks = max(len(self.snapshot.racks), 1)
        key = self.partition * racks + self.snapshot.broker_rack[self.broker]
        key, held = np.unique(key, return_counts=True)
        return key // racks, held


def _sums(cell: Ints, value: Floats | Bools, cells: int) -> Floats:
    """(cells,) values added up by cell."""
    return np.bincount(cell, value, cells).astype(np.float64)


def _contribution(s: Snapshot, column: str) -> tuple[Floats, Floats]:
    """(P,) what a replica adds to a column while it leads, and while it follows."""
    name, _, resource = column.partition(".")
    ones, none = np.ones(s.n_partitions), np.zeros(s.n_partitions)
    if not resource:
        return ones, ones if name == "replica_count" else none
    r = s.resources.index(resource)
    lead = s.leader_load[:, r]
    return lead, {"load": s.follower_load[:, r], "leader_load": none, "potential_load": lead}[name]


def _sizes(s: Snapshot) -> tuple[Floats, Floats]:
    """(P,) bytes of a replica while it leads, and while it follows."""
    if "disk" in s.resources:
        return _contribution(s, "load.disk")
    size = s.state_size if len(s.state_size) else np.ones(s.n_partitions)
    return size, size


@dataclass
class _Ceiling:
    """A limit that no step may break or break further, with what its cells hold at the moment."""

    name: str
    scope: str
    cell: Callable[[int, int], int]
    lead: list[float]
    follow: list[float]
    limit: list[float]
    value: list[float]
    slack: list[float] = field(init=False)

    def __post_init__(self) -> None:
        scale = 1e-12 * max(self.value, default=0.0)
        self.slack = [TOLERANCE * limit + scale for limit in self.limit]


class _Replay:
    """The plan carried out on a copy, step by step, each in time independent of the cluster."""

    def __init__(self, who: _Who, plan: PlanDocument) -> None:
        s = self.snapshot = who.snapshot
        self.who, self.plan = who, plan
        self.violations: list[Finding] = []
        bounds = s.replica_offset.tolist()
        held = s.replica_broker.tolist()
        disks = s.replica_disk.tolist() if s.n_disks else [-1] * len(held)
        spans = list(pairwise(bounds))
        self.holders = [held[a:b] for a, b in spans]
        self.disks = [disks[a:b] for a, b in spans]
        self.leader = [
            row[max(at, 0)] for row, at in zip(self.holders, s.leader.tolist(), strict=True)
        ]
        self.row = {
            (s.topics[t], n): p
            for p, (t, n) in enumerate(
                zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
            )
        }
        self.index = {b: i for i, b in enumerate(s.broker_ids.tolist())}
        self.disk_index = {
            (b, path): d
            for d, (b, path) in enumerate(zip(s.disk_broker.tolist(), s.disk_path, strict=True))
        }
        self.jbod = set(s.disk_broker.tolist())
        self.disk_alive = s.disk_alive.tolist()
        self.racks = s.broker_rack.tolist()
        self.topic = s.partition_topic.tolist()
        self.draining, self.receives = who.draining.tolist(), who.receives.tolist()
        self.stranded: list[set[int]] = [
            {b for b, d in zip(*row, strict=True) if d >= 0 and not s.disk_alive[d]}
            for row in zip(self.holders, self.disks, strict=True)
        ]
        self.may_lead, self.eligible = who.may_lead.tolist(), who.eligible.tolist()
        self.excluded = who.excluded.tolist()
        self.usable_racks = len(np.unique(s.broker_rack[who.eligible]))
        size = _sizes(s)
        self.bytes = [(a, b) for a, b in zip(size[0].tolist(), size[1].tolist(), strict=True)]
        self.start = self.base = self.picture()
        self.ceilings = list(self._ceilings())
        hard = {g["goal"]: g for g in plan.goals if g.get("hard")}
        self.rack_aware = "RackAwareness" in hard
        self.rack_even = "RackAwareDistribution" in hard
        sets = hard.get("BrokerSetAwareness")
        self.set_of_topic = None if sets is None else _topic_sets(sets, self.start, who).tolist()
        self.set_of_broker = s.broker_set.tolist()
        self.least = [0] * len(s.topics)
        if "MinTopicLeaders" in hard:
            self.least = _least_leaders(hard["MinTopicLeaders"], who).tolist()
        self.led: dict[tuple[int, int], int] = {}
        for p, b in enumerate(self.leader):
            key = (self.topic[p], b)
            self.led[key] = self.led.get(key, 0) + 1
        # partitions whose leader had to go from the start, whoever leads in between
        self.leader_leaves = [
            not self.may_lead[b] or self._offline(p, self.holders[p].index(b))
            for p, b in enumerate(self.leader)
        ]
        self.now = self.start

    @property
    def cut(self) -> bool:
        """Whether a budget kept replicas away that shares are told with."""
        return bool((self.base.factor != self.who.factor).any())

    def picture(self) -> _Picture:
        """Where everything is at the moment."""
        s = self.snapshot
        factor = [len(row) for row in self.holders]
        partition = np.repeat(np.arange(s.n_partitions), factor)
        broker = np.array([b for row in self.holders for b in row], np.int64)
        disk = np.array([d for row in self.disks for d in row], np.int64)
        leader = np.array(self.leader, np.int64)
        return _Picture(s, partition, broker, disk, broker == leader[partition], leader)

    def _ceilings(self) -> Iterator[_Ceiling]:
        s, who = self.snapshot, self.who
        raw = np.where((s.capacity > 0) & ~who.dead[:, None], s.capacity, np.inf)
        for r, resource in enumerate(s.resources):
            column = f"load.{resource}"
            yield self._ceiling(f"capacity of {resource}", "broker", column, raw[:, r])
        if s.n_disks and "disk" in s.resources:
            held = (s.disk_capacity > 0) & s.disk_alive & ~who.dead[s.disk_broker]
            fits = np.where(held, s.disk_capacity, np.inf)
            yield self._ceiling("capacity of the disk", "disk", "load.disk", fits)
        for goal in self.plan.goals:
            found = _limits(goal, who)
            if found is not None and goal.get("hard"):
                scope, column, limit = found
                yield self._ceiling(str(goal.get("name")), scope, column, limit)

    def _ceiling(self, name: str, scope: str, column: str, limit: Floats) -> _Ceiling:
        lead, follow = _contribution(self.snapshot, column)
        value = _per_cell(self.start, scope, column)
        host = self.snapshot.broker_host.tolist()
        cell: dict[str, Callable[[int, int], int]] = {
            "broker": lambda broker, disk: broker,
            "host": lambda broker, disk: int(host[broker]),
            "disk": lambda broker, disk: disk,
        }
        return _Ceiling(
            name,
            scope,
            cell[scope],
            lead.tolist(),
            follow.tolist(),
            limit.tolist(),
            value.tolist(),
        )

    def fail(self, kind: str, text: str, step: int | None = None) -> None:
        """Note a violation."""
        self.violations.append(Finding(kind, text, step))

    def run(self) -> None:
        """Carry out every step that can be carried out."""
        do = {
            "move": self._move,
            "move_disk": self._move_disk,
            "leadership": self._lead,
            "add": self._add,
            "remove": self._remove,
        }
        for step, action in enumerate(self.plan.actions):
            p = self.row.get((action.topic, action.partition))
            if p is None:
                self.fail("unknown partition", f"no partition {_name(action)}", step)
                continue
            ends = [b for b in (action.source, action.destination) if b is not None]
            unknown = [b for b in ends if b not in self.index]
            if unknown:
                self.fail("unknown broker", f"{_name(action)}: no broker {unknown[0]}", step)
                continue
            do[action.kind](step, action, p)
        self.now = self.picture()
        self.base = self._factored()

    def _factored(self) -> _Picture:
        """The start with replicas added and removed, and nothing else done."""
        changes = [a for a in self.plan.actions if a.kind in ("add", "remove")]
        if not changes:
            return self.start
        before = [list(row) for row in self.holders], list(self.leader)
        spans = np.split(self.snapshot.replica_broker, self.snapshot.replica_offset[1:-1])
        self.holders = [row.tolist() for row in spans]
        first = np.maximum(self.snapshot.leader, 0).tolist()
        self.leader = [row[at] for row, at in zip(self.holders, first, strict=True)]
        for a in changes:
            p = self.row.get((a.topic, a.partition))
            if p is None:
                continue
            if a.kind == "add" and a.destination in self.index:
                self.holders[p].append(self.index[a.destination])
            elif a.kind == "remove" and self.index.get(a.source or 0) in self.holders[p]:
                self.holders[p].remove(self.index[a.source or 0])
        disks, self.disks = self.disks, [[-1] * len(row) for row in self.holders]
        picture = self.picture()
        self.holders, self.leader = before
        self.disks = disks
        return picture

    def _source(self, step: int, a: Action, p: int) -> int | None:
        """Where in the partition's list the replica to be moved stands."""
        broker = self.index.get(-1 if a.source is None else a.source)
        if broker is None or broker not in self.holders[p]:
            self.fail("wrong source", f"{_name(a)}: no replica on broker {a.source}", step)
            return None
        at: int = self.holders[p].index(broker)
        disk = self.disks[p][at]
        path = self.snapshot.disk_path[disk] if disk >= 0 else None
        if a.source_disk != path:
            self.fail(
                "wrong source disk",
                f"{_name(a)}: on disk {path} of broker {a.source}, not {a.source_disk}",
                step,
            )
        # a replica that changes disks takes its leadership nowhere
        if a.leader != (self.leader[p] == broker and a.kind != "move_disk"):
            self.fail("wrong leader flag", f"{_name(a)}: leader {a.leader} is wrong", step)
        return at

    def _target(self, step: int, a: Action, p: int) -> tuple[int, int] | None:
        """The broker and disk a replica goes to, if it may."""
        broker = self.index.get(-1 if a.destination is None else a.destination)
        if broker is None:
            self.fail("no destination", f"{_name(a)}: a destination expected, none given", step)
            return None
        if broker in self.holders[p]:
            self.fail(
                "already there", f"{_name(a)}: broker {a.destination} holds a replica already", step
            )
            return None
        if not self.receives[broker]:
            why = (
                "is dead or to be emptied"
                if self.draining[broker]
                else "is excluded"
                if not self.eligible[broker]
                else "is not among the destinations"
            )
            self.fail("wrong destination", f"{_name(a)}: broker {a.destination} {why}", step)
        return broker, self._target_disk(step, a, broker)

    def _target_disk(self, step: int, a: Action, broker: int) -> int:
        if broker not in self.jbod and a.destination_disk is None:
            return -1
        disk = self.disk_index.get((broker, a.destination_disk or ""), -1)
        if disk < 0 or not self.disk_alive[disk]:
            state = "no such disk" if disk < 0 else "a dead disk"
            self.fail(
                "wrong destination disk",
                f"{_name(a)}: {state}, {a.destination_disk} of broker {a.destination}",
                step,
            )
        return disk

    def _offline(self, p: int, at: int) -> bool:
        disk = self.disks[p][at]
        return self.draining[self.holders[p][at]] or (disk >= 0 and not self.disk_alive[disk])

    def _can_be_copied(self, step: int, a: Action, p: int) -> None:
        if all(
            self.who.dead[b] or (d >= 0 and not self.disk_alive[d])
            for b, d in zip(self.holders[p], self.disks[p], strict=True)
        ):
            self.fail("lost", f"{_name(a)}: every replica is dead, nothing to copy from", step)

    def _may_move(self, step: int, a: Action, p: int, at: int) -> None:
        kind = self.who.kind
        self._can_be_copied(step, a, p)
        if self._offline(p, at):
            if kind == "demote_brokers":
                self.fail("promise", f"{_name(a)}: demote_brokers moves no replica", step)
            return
        if kind == "change_replication_factor":
            # replicas are alike: which of them goes and which one moves is a matter of taste
            stuck = any(self._offline(p, i) for i in range(len(self.holders[p])))
            bound = not stuck and self.who.factor[p] == self.start.factor[p]
        else:
            bound = kind in ("remove_brokers", "fix_offline_replicas", "demote_brokers")
            # an allocation balances while it empties brokers
            bound &= kind != "remove_brokers" or self.plan.allocation is None
        if bound:
            self.fail("promise", f"{_name(a)}: {kind} moves no replica that is online", step)
        elif self.excluded[p] and kind != "change_replication_factor":
            self.fail("excluded topic", f"{_name(a)}: the topic is excluded", step)

    def _move(self, step: int, a: Action, p: int) -> None:
        at = self._source(step, a, p)
        target = self._target(step, a, p)
        if at is None or target is None:
            return
        self._may_move(step, a, p, at)
        source, disk = self.holders[p][at], self.disks[p][at]
        leads = self.leader[p] == source
        before = list(self.holders[p])
        if target[0] in self.stranded[p]:
            self.fail("dead source", f"{_name(a)}: a dead copy on it is not replaced", step)
        self._bytes(step, a, self.bytes[p][0 if leads else 1])
        self._carry(step, a, p, (source, disk), target, 1 if leads else 0, 0 if leads else 1)
        self.holders[p][at], self.disks[p][at] = target
        self._partition_rules(step, a, p, before)
        if leads:
            self._led(step, a, p, source, target[0])

    def _move_disk(self, step: int, a: Action, p: int) -> None:
        at = self._source(step, a, p)
        if at is None:
            return
        broker, disk = self.holders[p][at], self.disks[p][at]
        if a.destination != a.source:
            self.fail("wrong destination", f"{_name(a)}: between disks of one broker only", step)
            return
        self._may_move(step, a, p, at)
        if disk >= 0 and not self.disk_alive[disk]:
            self.fail("dead source", f"{_name(a)}: nothing can be copied off a dead disk", step)
        target = self._target_disk(step, a, broker)
        if target == disk:
            self.fail("already there", f"{_name(a)}: on disk {a.destination_disk} already", step)
            return
        leads = self.leader[p] == broker
        self._bytes(step, a, self.bytes[p][0 if leads else 1])
        self._carry(
            step, a, p, (broker, disk), (broker, target), 1 if leads else 0, 0 if leads else 1
        )
        self.disks[p][at] = target

    def _lead(self, step: int, a: Action, p: int) -> None:
        source = self.index.get(-1 if a.source is None else a.source)
        target = self.index.get(-1 if a.destination is None else a.destination)
        if source is None or self.leader[p] != source:
            self.fail("wrong source", f"{_name(a)}: broker {a.source} does not lead", step)
            return
        if target is None or target not in self.holders[p]:
            self.fail(
                "no replica to lead", f"{_name(a)}: no replica on broker {a.destination}", step
            )
            return
        if target == source:
            self.fail("already there", f"{_name(a)}: broker {a.source} leads already", step)
            return
        if not a.leader:
            self.fail("wrong leader flag", f"{_name(a)}: leader False is wrong", step)
        if not self.may_lead[target]:
            self.fail("wrong leader", f"{_name(a)}: broker {a.destination} may not lead", step)
        if not self.leader_leaves[p]:
            if self.who.kind in ("remove_brokers", "demote_brokers", "fix_offline_replicas"):
                self.fail("promise", f"{_name(a)}: {a.source} need not give up leading", step)
            if self.excluded[p]:
                self.fail("excluded topic", f"{_name(a)}: the topic is excluded", step)
        where = self.holders[p]
        own = self.disks[p][where.index(source)] if source in where else -1
        self._bytes(step, a, 0.0)
        ends = (source, own), (target, self.disks[p][where.index(target)])
        self._carry(step, a, p, *ends, 1, -1)
        self._led(step, a, p, source, target)

    def _add(self, step: int, a: Action, p: int) -> None:
        target = self._target(step, a, p)
        self._changes_factor(step, a, p, 1)
        self._can_be_copied(step, a, p)
        if a.source is not None or a.leader:
            self.fail(
                "wrong source", f"{_name(a)}: a new replica has no source, leads nothing", step
            )
        if target is None:
            return
        before = list(self.holders[p])
        self._bytes(step, a, self.bytes[p][1])
        self._carry(step, a, p, None, target, 0, 1)
        self.holders[p].append(target[0])
        self.disks[p].append(target[1])
        self._partition_rules(step, a, p, before)

    def _remove(self, step: int, a: Action, p: int) -> None:
        at = self._source(step, a, p)
        self._changes_factor(step, a, p, -1)
        if at is None:
            return
        broker, disk = self.holders[p][at], self.disks[p][at]
        leads = self.leader[p] == broker
        if leads:
            self.fail("leader removed", f"{_name(a)}: broker {a.source} still leads", step)
        before = list(self.holders[p])
        self._bytes(step, a, 0.0)
        self._carry(step, a, p, (broker, disk), None, 1 if leads else 0, 0 if leads else 1)
        del self.holders[p][at], self.disks[p][at]
        self._partition_rules(step, a, p, before)

    def _changes_factor(self, step: int, a: Action, p: int, by: int) -> None:
        wanted, have = int(self.who.factor[p]), len(self.holders[p])
        if (wanted - have) * by <= 0:
            self.fail("promise", f"{_name(a)}: {have} replicas, {wanted} wanted: no {a.kind}", step)

    def _bytes(self, step: int, a: Action, size: float) -> None:
        if not _near(a.bytes, size):
            self.fail("wrong bytes", f"{_name(a)}: {a.bytes:.9g} bytes, {size:.9g} expected", step)

    def _carry(
        self,
        step: int,
        a: Action,
        p: int,
        source: tuple[int, int] | None,
        target: tuple[int, int] | None,
        lead: int,
        follow: int,
    ) -> None:
        """Change what cells hold, the destination first, and look whether limits bear it."""
        for c in self.ceilings:
            amount = lead * c.lead[p] + follow * c.follow[p]
            gives = c.cell(*source) if source is not None else -1
            takes = c.cell(*target) if target is not None else -1
            if gives == takes or not amount:
                continue
            for cell, change in ((takes, amount), (gives, -amount)):
                if cell < 0:
                    continue
                value = c.value[cell] = c.value[cell] + change
                if change > 0 and value > c.limit[cell] + c.slack[cell]:
                    self.fail(
                        "over capacity",
                        f"{_name(a)}: {c.name}: {value:.9g} on {self._cell(c, cell)}, "
                        f"at most {c.limit[cell]:.9g} expected",
                        step,
                    )

    def _cell(self, c: _Ceiling, cell: int) -> str:
        s = self.snapshot
        if c.scope == "host":
            return f"host {s.hosts[cell]}"
        if c.scope == "disk":
            return f"disk {s.disk_path[cell]} of broker {s.broker_ids[s.disk_broker[cell]]}"
        return f"broker {s.broker_ids[cell]}"

    def _partition_rules(self, step: int, a: Action, p: int, before: list[int]) -> None:
        """Racks and broker sets of the partition are no worse than before the step."""
        now = self.holders[p]
        if self.rack_aware:
            was, is_ = (len(x) - len({self.racks[b] for b in x}) for x in (before, now))
            unavoidable = len(now) - self.usable_racks if len(now) > len(before) else 0
            if is_ > max(was, unavoidable):
                self.fail("racks", f"{_name(a)}: RackAwareness: one replica more in a rack", step)
        if self.rack_even:
            was, is_ = (self._crowded(x) for x in (before, now))
            if is_ > was:
                self.fail("racks", f"{_name(a)}: RackAwareDistribution: less even racks", step)
        if self.set_of_topic is not None and (home := self.set_of_topic[self.topic[p]]) >= 0:
            was, is_ = (sum(self.set_of_broker[b] != home for b in x) for x in (before, now))
            free = (
                any(
                    ok and self.set_of_broker[b] == home and b not in now
                    for b, ok in enumerate(self.receives)
                )
                if is_ > was
                else False
            )
            if is_ > was and (free or a.kind != "add"):
                self.fail("broker sets", f"{_name(a)}: BrokerSetAwareness: out of its set", step)

    def _crowded(self, holders: list[int]) -> int:
        counts: dict[int, int] = {}
        for b in holders:
            counts[self.racks[b]] = counts.get(self.racks[b], 0) + 1
        full, extra = divmod(len(holders), max(1, self.usable_racks))
        above = [n - full for n in counts.values() if n > full]
        return sum(above) - min(extra, len(above))

    def _led(self, step: int, a: Action, p: int, source: int, target: int) -> None:
        """Leadership goes from one broker to another."""
        self.leader[p] = target
        topic = self.topic[p]
        self.led[topic, source] = left = self.led.get((topic, source), 0) - 1
        self.led[topic, target] = self.led.get((topic, target), 0) + 1
        if left < self.least[topic] and self.may_lead[source]:
            self.fail("leaders", f"{_name(a)}: MinTopicLeaders: {left} left on {a.source}", step)
        if a.kind == "move" and not self.may_lead[target]:
            others = [b for b in self.holders[p] if b != target and self.may_lead[b]]
            if self.may_lead[source] or others:
                self.fail("wrong leader", f"{_name(a)}: broker {a.destination} may not lead", step)

    def groups(self) -> None:
        """What moves as one stands together and goes the same way."""
        known: dict[int, tuple[int, Action]] = {}
        for step, a in enumerate(self.plan.actions):
            if a.group is None:
                continue
            last, first = known.get(a.group, (step - 1, a))
            same = (a.kind, a.source, a.destination) == ("move", first.source, first.destination)
            if last != step - 1 or not same:
                self.fail("group", f"{_name(a)}: apart from the others of group {a.group}", step)
            known[a.group] = step, first

    def promises(self) -> None:
        """What the operation says of the end."""
        plan, who, s = self.plan, self.who, self.snapshot
        unmet = {u.goal for u in plan.unmet}
        if who.kind == "remove_brokers" and "OnlineReplicas" not in unmet:
            left = np.flatnonzero(who.draining[self.now.broker])
            if len(left):
                self.fail("promise", f"{len(left)} replicas are left on brokers to be emptied")
        if who.kind == "demote_brokers" and "EligibleLeaders" not in unmet:
            able = self.now.count(who.may_lead[self.now.broker]) > 0
            still = np.flatnonzero(who.mine[self.now.leader] & able)
            if len(still):
                self.fail("promise", f"{len(still)} partitions are still led by demoted brokers")
        wrong = np.flatnonzero(self.now.factor != who.factor)
        if len(wrong) and "ReplicationFactor" not in unmet:
            p = wrong[0]
            self.fail(
                "promise",
                f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}: "
                f"{self.now.factor[p]} replicas, {who.factor[p]} expected",
            )


def _name(a: Action) -> str:
    return f"{a.kind} {a.topic}-{a.partition}"


def _near(a: float, b: float, tolerance: float = 1e-6) -> bool:
    return abs(a - b) <= tolerance * max(abs(a), abs(b)) + 1e-9


def _differs(what: str, stated: float, found: float) -> Iterator[Finding]:
    if not _near(stated, found):
        yield Finding(what.split(" ")[0], f"{what}: {stated:.9g} stated, {found:.9g} found")


def _summary(replay: _Replay) -> Iterator[Finding]:
    plan, s = replay.plan, replay.plan.summary
    kinds: list[str] = [a.kind for a in plan.actions]
    stated = {
        "move": s.replica_moves,
        "leadership": s.leadership_moves,
        "move_disk": s.disk_moves,
        "add": s.replicas_added,
        "remove": s.replicas_removed,
    }
    for kind, number in stated.items():
        yield from _differs(f"summary: actions of kind {kind}", number, kinds.count(kind))
    groups = {a.group for a in plan.actions if a.group is not None}
    yield from _differs("group_moves", s.group_moves, len(groups))
    yield from _differs("bytes_moved", s.bytes_moved, sum(a.bytes for a in plan.actions))
    lead, follow = _sizes(replay.snapshot)
    start = replay.start
    total = np.where(start.leads, lead[start.partition], follow[start.partition]).sum()
    yield from _differs("bytes_total", s.bytes_total, float(total))
    if s.bytes_moved < s.bytes_bound * (1 - 1e-6) - 1e-6:
        yield Finding(
            "bytes_bound", f"bytes_bound: {s.bytes_bound:.9g}, more than {s.bytes_moved:.9g} moved"
        )
    cost = [1.1**k * (1.5 if g.hard else 1.0) for k, g in enumerate(reversed(plan.goal_results))]
    for when, score in (("before", s.balancedness_before), ("after", s.balancedness_after)):
        met = [getattr(g, f"met_{when}") for g in reversed(plan.goal_results)]
        kept = sum(c for c, ok in zip(cost, met, strict=True) if ok)
        expected = 100 * kept / sum(cost) if cost else 100.0
        yield from _differs(f"balancedness_{when}", score, expected)


def _allocation(replay: _Replay) -> Iterator[Finding]:
    """Communication kept local, and the load distance of the resource that is balanced."""
    stated, s, who = replay.plan.allocation, replay.snapshot, replay.who
    if stated is None:
        return
    stays = ~who.draining
    if stated.resource not in s.resources:
        yield Finding("resource", f"allocation: {stated.resource!r} is none of {s.resources}")
        return
    r = s.resource(stated.resource)
    capacity, mean = s.capacity[:, r], s.capacity[stays, r].mean()
    if not mean > 0:
        yield Finding("resource", f"allocation: nobody has any capacity of {stated.resource}")
        return
    # what was on a dead disk alone is gone, and takes no part
    alive = np.append(s.disk_alive, True)[s.replica_disk] if s.n_disks else np.ones(s.n_replicas)
    there = (alive > 0) & ~who.dead[s.replica_broker]
    talks = there[s.traffic_from] & there[s.traffic_to] & (s.traffic_from != s.traffic_to)
    one, two, rate = s.traffic_from[talks], s.traffic_to[talks], s.traffic_rate[talks]
    for when, at in (("before", replay.start.leader), ("after", replay.now.leader)):
        local = rate[at[one] == at[two]].sum() / rate.sum() if rate.sum() > 0 else 1.0
        yield from _differs(f"local_{when}", getattr(stated, f"local_{when}"), float(local))
        carried = _sums(at[there], s.leader_load[there, r], s.n_brokers)
        fair = carried.sum() / capacity[stays].sum()
        # nothing is known of how much a broker without capacity can carry
        off = 100 * (carried / np.where(capacity > 0, capacity, mean) - fair)
        distance = max(float(off.max()), -float(off[stays].min()), 0.0)
        yield from _differs(f"distance_{when}", getattr(stated, f"distance_{when}"), distance)
    if not stated.distance_bound <= stated.distance_after:
        yield Finding("distance_bound", f"distance_bound: {stated.distance_bound:.9g} not reached")


def _columns(replay: _Replay) -> Iterator[Finding]:
    who, s = replay.who, replay.snapshot
    columns = {r: f"load.{r}" for r in s.resources}
    columns |= {"replica_count": "replica_count", "leader_count": "leader_count"}
    if set(replay.plan.columns) != set(columns):
        yield Finding(
            "columns", f"columns {sorted(replay.plan.columns)}, {sorted(columns)} expected"
        )
    for name, result in replay.plan.columns.items():
        if name not in columns:
            continue
        weight = who.weight(columns[name])
        for when, picture, base, spread in (
            ("before", replay.start, replay.start, result.before),
            ("after", replay.now, replay.base, result.after),
        ):
            share = who.shared(base.per_broker(columns[name]), weight)
            value = picture.per_broker(columns[name])
            for figure, found in _spread(value, share):
                if figure == "worst_ratio" and when == "after" and replay.cut:
                    continue
                stated = float(getattr(spread, figure))
                yield from _differs(f"columns: {name} {figure} {when}", stated, found)
        if result.after.worst_ratio < result.worst_ratio_bound * (1 - 1e-6):
            yield Finding(
                "worst_ratio_bound",
                f"column {name}: worst_ratio_bound {result.worst_ratio_bound:.9g}, "
                f"more than {result.after.worst_ratio:.9g} reached",
            )


def _spread(value: Floats, share: Floats) -> Iterator[tuple[str, float]]:
    """The figures of a :class:`Spread`, over the brokers that have a share."""
    has = share > 0
    seen = value[has] if has.any() else value
    found = {
        "mean": seen.mean(),
        "max": seen.max(),
        "min": seen.min(),
        "std": seen.std(),
        "worst_ratio": (value[has] / share[has]).max() if has.any() else 1.0,
    }
    assert found.keys() == Spread.model_fields.keys()
    return ((figure, float(x)) for figure, x in found.items())


def _goals(replay: _Replay) -> Iterator[Finding]:
    plan, who = replay.plan, replay.who
    results = {g.goal: g for g in plan.goal_results}
    if set(results) != {g["name"] for g in plan.goals}:
        yield Finding("goal_results", "goal_results: one for each of the plan's goals expected")
    for goal in plan.goals:
        result = results.get(goal["name"])
        if result is None or (goal["goal"] in _OF_SHARES and replay.cut):
            continue
        if goal["goal"] == "DiskUsageDistribution" and replay.base is not replay.start:
            continue
        for when, picture in (("before", replay.start), ("after", replay.now)):
            strict, lax = (_content(goal, picture, replay.base, who, t) for t in (_STRICT, _LAX))
            if strict is None or lax is None:
                continue
            most, fewest = int((~strict).sum()), int((~lax).sum())
            cells = getattr(result, f"unmet_cells_{when}")
            if not fewest <= cells <= most:
                yield Finding(
                    f"goal {goal['goal']}",
                    f"{goal['name']}: {cells} cells unmet {when} stated, {most} found",
                )
            if getattr(result, f"met_{when}") != (cells == 0):
                yield Finding("met", f"{goal['name']}: met_{when} is wrong, {cells} cells unmet")
    for result in plan.goal_results:
        for when in ("before", "after"):
            mean = getattr(result, f"contentment_{when}")
            if not 0 <= mean <= 1 or (mean == 1) != getattr(result, f"met_{when}"):
                yield Finding("contentment", f"{result.goal}: contentment_{when} {mean} is wrong")
    stated, found = (
        {u.goal for u in plan.unmet},
        {g.goal for g in plan.goal_results if not g.met_after},
    )
    if stated != found:
        yield Finding("unmet", f"unmet: {sorted(stated)} stated, {sorted(found)} found")
    for step, a in enumerate(plan.actions):
        for name, value in (*a.helped.items(), *a.hurt.items()):
            if name not in results or not 0 < value <= 1:
                yield Finding("reasons", f"{_name(a)}: reason {name} {value} is wrong", step)


# What every goal means: (cells,) whether each cell is content, from the picture to be
# judged, the picture that shares are taken from, and the tolerance.


def _content(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools | None:
    """Contentment of each cell; None for goals that are not known here."""
    limits = _limits(goal, who)
    if limits is not None:
        scope, column, limit = limits
        content: Bools = _per_cell(now, scope, column) <= limit * (1 + tolerance)
        return content
    judge = _JUDGES.get(goal["goal"])
    return None if judge is None else judge(goal, now, base, who, tolerance)


def _per_cell(picture: _Picture, scope: str, column: str) -> Floats:
    if scope == "disk":
        return picture.per_disk()
    value = picture.per_broker(column)
    s = picture.snapshot
    return value if scope == "broker" else _sums(s.broker_host, value, len(s.hosts))


def _limits(goal: Mapping[str, Any], who: _Who) -> tuple[str, str, Floats] | None:
    """Scope, column and (cells,) limits of a goal that is a ceiling; none on what is emptied."""
    s, name = who.snapshot, goal["goal"]
    stays = ~who.draining
    if name == "ResourceCapacity":
        limit = who.capacity(goal["resource"]) * goal["threshold"]
        return "broker", f"load.{goal['resource']}", np.where(stays, limit, np.inf)
    if name == "HostCapacity":
        staying = np.bincount(s.broker_host, stays, len(s.hosts)) > 0
        room = np.where(stays, who.capacity(goal["resource"]) * goal["threshold"], 0.0)
        limit = np.bincount(s.broker_host, room, len(s.hosts))
        return "host", f"load.{goal['resource']}", np.where(staying, limit, np.inf)
    if name == "ReplicaCapacity":
        return "broker", "replica_count", np.where(stays, float(goal["limit"]), np.inf)
    if name == "PotentialNetworkOut":
        limit = who.capacity("network_out") * goal["threshold"]
        return "broker", "potential_load.network_out", np.where(stays, limit, np.inf)
    if name == "DiskCapacity":
        kept = s.disk_alive & stays[s.disk_broker]
        return "disk", "load.disk", np.where(kept, s.disk_capacity * goal["threshold"], np.inf)
    return None


def _fair(base: _Picture, who: _Who, column: str) -> Floats:
    """(B,) fair shares, for brokers that take nothing as if they did; infinite if none does."""
    takes = who.takes(column)
    share = who.shared(base.per_broker(column), who.weight(column))
    resource = column.partition(".")[2]
    size = who.capacity(resource) if resource else np.ones(len(share))
    sizes = who.per_group(np.where(takes, size, 0.0))
    shares = who.per_group(np.where(takes, share, 0.0))
    rate = np.divide(shares, sizes, out=np.full(len(share), np.inf), where=sizes > 0)
    none = np.isinf(rate)
    return np.where(takes, share, np.where(none, np.inf, np.where(none, 0.0, rate) * size))


def _usage(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    """Every goal that keeps a column of the brokers within limits about a fair share."""
    name = goal["goal"]
    column = {
        "ReplicaDistribution": "replica_count",
        "LeaderReplicaDistribution": "leader_count",
        "LeaderBytesInDistribution": "leader_load.network_in",
    }.get(name) or f"load.{goal['resource']}"
    takes = who.takes(column)
    share = _fair(base, who, column)
    slack = (goal["threshold"] - 1) * goal["margin"]
    least = 0.0 if goal.get("upper_only") else max(0.0, 1 - slack)
    finite = np.where(np.isinf(share), 0.0, share)
    lower, upper = finite * least, share * (1 + slack)
    if column.endswith("_count"):
        lower, upper = np.floor(lower * (1 + tolerance)), np.ceil(upper * (1 - tolerance))
    if name == "LeaderBytesInDistribution":
        lower = np.zeros_like(lower)
        upper = np.maximum(upper, goal["low_utilization"] * who.capacity("network_in"))
    elif name == "UsageDistribution":
        capacity = who.capacity(goal["resource"])
        low = goal["low_utilization"] * capacity
        idle = share <= low
        lower = np.where(idle, 0.0, lower)
        upper = np.where(idle, np.maximum(upper, goal["margin"] * low), upper)
    room = tolerance * np.where(finite > 0, finite, 1.0)
    value = now.per_broker(column)
    enough = (value >= lower - room) | ~takes
    content: Bools = enough & ((value <= upper + room) | who.draining)
    return content


def _network(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    column = "load.network_in" if "NetworkIn" in goal["goal"] else "load.network_out"
    load, first = now.per_broker(column), base.per_broker(column)
    mean = first[who.eligible | who.draining].sum() / max(1, int(who.eligible.sum()))
    far = np.abs(load - mean) > mean * (goal["deviation"] + tolerance)
    idle = (mean < goal["detect_threshold"]) & (load < goal["detect_threshold"])
    content: Bools = ~far | idle | who.draining | (~who.eligible & (load < mean))
    return content


def _topic_spread(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    s, leaders = who.snapshot, goal["goal"] == "TopicLeaderDistribution"
    weight = who.led_size if leaders else who.size
    takes = weight > 0
    counts = base.per_topic(leaders, np.arange(s.n_brokers), s.n_brokers)
    counts = np.where(who.eligible | who.draining, counts, 0.0)
    totals = np.stack([who.per_group(row) for row in counts]) if len(counts) else counts
    many = who.per_group(takes)
    part = np.divide(weight, who.per_group(weight), out=np.zeros(len(weight)), where=takes)
    share = totals * np.where(takes, part, 1 / np.maximum(many, 1))
    floor, ceil = np.floor(share + tolerance), np.ceil(share - tolerance)
    lower, upper = floor, ceil
    if not leaders:
        m = (goal["threshold"] - 1) * goal["margin"]
        upper = np.ceil(share * (1 + m) - tolerance)
        upper = np.minimum(np.maximum(upper, ceil + goal["min_gap"]), ceil + goal["max_gap"])
        lower = np.floor(share * max(0.0, 1 - m) + tolerance)
        lower = np.maximum(np.minimum(lower, floor - goal["min_gap"]), floor - goal["max_gap"])
    held = now.per_topic(leaders, np.arange(s.n_brokers), s.n_brokers)
    content: Bools = ((held >= lower) | ~takes) & (held <= upper) | who.draining | (many == 0)
    return content


def _topic_racks(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    s, racks = who.snapshot, len(who.snapshot.racks)
    weight = np.bincount(s.broker_rack, who.size, racks)
    total = base.per_topic(False, s.broker_rack, racks).sum(1)
    share = np.outer(total, weight / max(float(weight.sum()), 1e-300))
    held = now.per_topic(False, s.broker_rack, racks)
    fits = (held <= np.ceil(share - tolerance)) & (held >= np.floor(share + tolerance))
    content: Bools = fits | (weight <= 0)
    return content


def _least_leaders(goal: Mapping[str, Any], who: _Who) -> Ints:
    """(T,) leaders that each broker that may lead is to have of each topic."""
    s = who.snapshot
    partitions = np.bincount(s.partition_topic, minlength=len(s.topics))
    even = partitions // max(1, int((who.may_lead).sum()))
    least = np.full(len(s.topics), goal["minimum"]) if goal["minimum"] else even
    return np.where(who.topics(goal["topics"]), least, 0)


def _min_leaders(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    n = who.snapshot.n_brokers
    held = now.per_topic(True, np.arange(n), n)
    content: Bools = (held >= _least_leaders(goal, who)[:, None]) | ~who.may_lead
    return content


def _racks(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    partition, _ = now.rack_counts()
    content: Bools = np.bincount(partition, minlength=len(now.factor)) == now.factor
    return content


def _even_racks(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    usable = max(1, len(np.unique(who.snapshot.broker_rack[who.eligible])))
    partition, held = now.rack_counts()
    full, extra = now.factor // usable, now.factor % usable
    fuller = np.bincount(partition[held > full[partition]], minlength=len(full))
    crowded = np.bincount(partition[held > full[partition] + 1], minlength=len(full))
    content: Bools = (crowded == 0) & (fuller <= extra)
    return content


def _topic_sets(goal: Mapping[str, Any], base: _Picture, who: _Who) -> Ints:
    """(T,) broker set of each topic, -1 for any."""
    s = who.snapshot
    sets = len(s.broker_sets)
    # brokers in no set count in a cell of their own, which is then cut off
    own = np.where(s.broker_set < 0, sets, s.broker_set)
    held = base.per_topic(False, own, sets + 1)[:, :sets]
    wanted = np.where(held.any(1), held.argmax(1), -1)
    for pattern, name in reversed(list(goal["sets"].items())):
        wanted[who.topics(pattern)] = s.broker_sets.index(name)
    wanted[who.topics(goal["exempt"])] = -1
    return wanted


def _broker_sets(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    s = who.snapshot
    wanted = _topic_sets(goal, base, who)[s.partition_topic]
    inside = now.count(s.broker_set[now.broker] == wanted[now.partition])
    content: Bools = (wanted < 0) | (inside == now.factor)
    return content


def _online(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    leaving = who.draining[now.broker]
    if who.snapshot.n_disks:
        leaving |= (now.disk >= 0) & ~who.snapshot.disk_alive[now.disk]
    content: Bools = now.count(leaving) == 0
    return content


def _leaders(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    content: Bools = now.count(now.leads & who.may_lead[now.broker]) > 0
    return content


def _factor(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    content: Bools = now.factor == who.factor
    return content


def _preferred(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    able = np.flatnonzero(who.may_lead[now.broker])
    partition, first = np.unique(now.partition[able], return_index=True)
    content = np.ones(len(now.factor), np.bool_)
    content[partition] = now.leads[able[first]]
    return content


def _disks(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    s = who.snapshot
    capacity = np.where(s.disk_alive, s.disk_capacity, 0.0)
    held = np.bincount(s.disk_broker, base.per_disk(), s.n_brokers)[s.disk_broker]
    size = np.bincount(s.disk_broker, capacity, s.n_brokers)[s.disk_broker]
    share = np.divide(held * capacity, size, out=np.zeros(s.n_disks), where=size > 0)
    slack = ((goal["threshold"] - 1) * goal["margin"] + tolerance) * share
    near = np.abs(now.per_disk() - share) <= slack
    content: Bools = near | ~s.disk_alive | who.draining[s.disk_broker]
    return content


def _pairs(s: Snapshot, factor: float) -> tuple[Ints, Ints]:
    """Who sends to whom more than so many times what it sends downstream on average."""
    sent: dict[tuple[int, int], float] = {}
    ends = zip(s.traffic_from.tolist(), s.traffic_to.tolist(), strict=True)
    for pair, rate in zip(ends, s.traffic_rate.tolist(), strict=True):
        if pair[0] != pair[1] and rate > 0:
            sent[pair] = sent.get(pair, 0.0) + rate
    topic, size = s.partition_topic.tolist(), np.bincount(s.partition_topic).tolist()
    output: dict[int, float] = {}
    downstream: dict[int, set[int]] = {}
    for (one, two), rate in sent.items():
        output[one] = output.get(one, 0.0) + rate
        downstream.setdefault(topic[one], set()).add(topic[two])
    width = {t: sum(size[d] for d in down) for t, down in downstream.items()}
    kept = [
        pair
        for pair, rate in sent.items()
        if rate > factor * output[pair[0]] / width[topic[pair[0]]]
    ]
    found = np.array(kept, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _collocated(
    goal: Mapping[str, Any], now: _Picture, base: _Picture, who: _Who, tolerance: float
) -> Bools:
    s = who.snapshot
    one, two = _pairs(s, goal["factor"])
    apart = now.leader[one] != now.leader[two]
    ends = np.concatenate([now.leader[one[apart]], now.leader[two[apart]]])
    content: Bools = (np.bincount(ends, minlength=s.n_brokers) == 0) | who.draining
    return content


_Judge = Callable[[Mapping[str, Any], _Picture, _Picture, _Who, float], Bools]
_OF_SHARES: dict[str, _Judge] = {
    "UsageDistribution": _usage,
    "ReplicaDistribution": _usage,
    "LeaderReplicaDistribution": _usage,
    "LeaderBytesInDistribution": _usage,
    "NetworkInUsageDistribution": _network,
    "NetworkOutUsageDistribution": _network,
    "TopicReplicaDistribution": _topic_spread,
    "TopicLeaderDistribution": _topic_spread,
    "TopicRackDistribution": _topic_racks,
    "DiskUsageDistribution": _disks,
}
_JUDGES: dict[str, _Judge] = _OF_SHARES | {
    "MinTopicLeaders": _min_leaders,
    "RackAwareness": _racks,
    "RackAwareDistribution": _even_racks,
    "BrokerSetAwareness": _broker_sets,
    "ReplicationFactor": _factor,
    "OnlineReplicas": _online,
    "EligibleLeaders": _leaders,
    "PreferredLeader": _preferred,
    "CollocationGoal": _collocated,
}
