"""A second opinion on plans: every step is replayed, every figure worked out independently.

Nothing here is shared with what made the plan: it reads the snapshot and the plan's
document. :mod:`balancer.verification.goals` defines every goal, :mod:`balancer.verification.bounds`
derives bounds, :mod:`balancer.verification.request` reads what was asked for. Where nobody leads a
partition, its first replica is the leader to be, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from balancer.planning.document import PLAN_SCHEMA_VERSION, Action, PlanDocument, Spread
from balancer.verification.bounds import least_bytes, least_ratio
from balancer.verification.goals import (
    OF_SHARES,
    TOLERANCE,
    Picture,
    Rows,
    Who,
    contribution,
    judge_of,
    least_leaders,
    limits,
    pairs,
    sizes,
    sums,
    topic_sets,
    values,
)
from balancer.verification.request import (
    StatedGoals,
    cluster_of,
    own_effects,
    own_scores,
    wrong_operation,
)
from balancer.verification.unmet import Left, remedy_faults, unmet_faults
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from goals import Obstacle
from metrics_reporter.quantities import plural

# A goal is judged a little strictly and a little laxly; what is stated must agree with either.
_STRICT, _LAX = 0.25 * TOLERANCE, 4 * TOLERANCE
# Hard goals whose limits are looked at step by step, in the plan's own words.
_RULED = {
    "ResourceCapacity",
    "HostCapacity",
    "ReplicaCapacity",
    "PotentialNetworkOut",
    "DiskCapacity",
    "RackAwareness",
    "RackAwareDistribution",
    "BrokerSetAwareness",
    "MinTopicLeaders",
    "ReplicationFactor",
}
# Contentments are stated with nine digits after the point, and worked out on rounded sums.
_EFFECT = 1e-7
# An amount that is a smaller part of what is there already changes nothing that can be seen.
_UNSEEN = 1e-12


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
class Unchecked:
    """A part of a plan that is taken as it stands.

    Parameters
    ----------
    field
        Where it is in the plan's document, ``[]`` for any item: ``unmet[].cure``.
    reason
        Why it is not checked, or what of it is.
    hard
        Whether it is about a hard goal: then the plan is not sound.
    """

    field: str
    reason: str
    hard: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Parameters
    ----------
    violations
        Steps that cannot or must not be done, and promises of the operation not kept.
    mismatches
        Figures that are not what they come out as from the snapshot and the steps.
    unchecked
        What nothing was worked out for.
    """

    violations: tuple[Finding, ...]
    mismatches: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found, and every hard goal was checked."""
        hard = any(u.hard for u in self.unchecked)
        return not (self.violations or self.mismatches or hard)

    def record(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        return {
            "ok": self.ok,
            "violations": [asdict(f) for f in self.violations],
            "mismatches": [asdict(f) for f in self.mismatches],
            "unchecked": [asdict(u) for u in self.unchecked],
        }


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
    wrong = tuple(wrong_operation(snapshot, plan.operation))
    if plan.schema_version != PLAN_SCHEMA_VERSION:
        wrong += (f"schema_version {plan.schema_version}, {PLAN_SCHEMA_VERSION} expected",)
    if wrong:
        # who may hold and lead what is not known: nothing can be replayed
        return CheckReport(tuple(Finding("operation", text) for text in wrong), ())
    stated = StatedGoals.of(plan, snapshot)
    replay = _Replay(Who(snapshot, plan.operation), plan, stated)
    replay.run()
    replay.promises()
    replay.groups()
    replay.hard_goals()
    mismatches = [
        *_identity(snapshot, plan),
        *_replicas(snapshot, plan),
        *(Finding(kind, text) for kind, text in stated.wrong),
        *_summary(replay),
        *_columns(replay),
        *_goals(replay),
        *_reasons(replay),
        *_unmet(replay),
        *_allocation(replay),
    ]
    return CheckReport(
        tuple(replay.violations), tuple(mismatches), tuple(_unchecked(replay, stated))
    )


def _identity(snapshot: Snapshot, plan: PlanDocument) -> Iterator[Finding]:
    """Whether this is the snapshot that the plan was made from; plans by hand do not say."""
    stated, found = plan.identity, snapshot.digest()
    if stated.cluster_id is not None and stated.cluster_id != snapshot.cluster_id:
        yield Finding(
            "other cluster",
            f"the plan is for cluster {stated.cluster_id}, "
            f"the snapshot is of {snapshot.cluster_id or 'no named cluster'}",
        )
    if stated.snapshot_digest is not None and stated.snapshot_digest != found:
        yield Finding(
            "other snapshot",
            f"the plan was made from another snapshot: digest {stated.snapshot_digest[:12]} "
            f"stated, {found[:12]} found",
        )
    if stated.metadata_version not in (None, snapshot.metadata_version):
        yield Finding(
            "other snapshot",
            f"the plan is for metadata.version {stated.metadata_version}, "
            f"the snapshot has {snapshot.metadata_version}",
        )
    if plan.digest is not None and plan.digest != plan.content_digest:
        yield Finding(
            "changed plan",
            f"the plan was changed after it was made: digest {plan.digest[:12]} stated, "
            f"{plan.content_digest[:12]} found",
        )


def _replicas(snapshot: Snapshot, plan: PlanDocument) -> Iterator[Finding]:
    """Whether the replicas stated are those of the partitions changed; old plans state none."""
    s, changed = snapshot, {f"{a.topic}-{a.partition}" for a in plan.actions}
    if not plan.replicas:
        return
    found = {}
    for p, (topic, number) in enumerate(zip(s.partition_topic, s.partition_number, strict=True)):
        if (name := f"{s.topics[topic]}-{number}") in changed:
            rows = s.replica_broker[s.replica_offset[p] : s.replica_offset[p + 1]]
            found[name] = tuple(s.broker_ids[rows].tolist())
    for name in sorted(found.keys() | plan.replicas.keys()):
        stated, expected = plan.replicas.get(name), found.get(name)
        if stated != expected:
            texts = ("none" if r is None else str(list(r)) for r in (stated, expected))
            yield Finding("replicas", f"{name}: {next(texts)} stated, {next(texts)} expected")


class _Exact:
    """Sums of a column in each cell of a scope, as whole multiples of a power of two.

    Whatever comes and goes leaves nothing behind, however much it was.
    """

    def __init__(self, picture: Picture, scope: str, column: str) -> None:
        s = picture.snapshot
        lead, follow = contribution(s, column)
        self._lead, self._follow = lead.tolist(), follow.tolist()
        finest = [int(np.frexp(x[x > 0])[1].min(initial=0)) for x in (lead, follow)]
        self._shift = max(0, 53 - min(finest))
        self._unit = 1 << self._shift
        if scope in ("topic", "topic_rack"):
            self.held = [int(n) << self._shift for n in values(picture, scope, column).tolist()]
            return
        cell, cells = picture.broker, s.n_brokers
        if scope == "host":
            cell, cells = s.broker_host[cell], len(s.hosts)
        if scope == "disk":
            cell, cells = picture.disk, s.n_disks
        self.held = [0] * cells
        amount = np.where(cell < 0, 0.0, picture.amounts(column))
        part, exponent = np.frexp(amount)
        digits = np.ldexp(part, 53).astype(np.int64)
        for e in np.unique(exponent[amount > 0]).tolist():
            rows = np.flatnonzero((exponent == e) & (amount > 0))
            # halves of 27 bits, which add up without rounding
            for half, place in ((digits[rows] >> 26, 26), (digits[rows] & (2**26 - 1), 0)):
                found = np.bincount(cell[rows], half, cells).astype(np.int64)
                for at in np.flatnonzero(found).tolist():
                    self.held[at] += int(found[at]) << (e - 53 + self._shift + place)

    def amount(self, p: int, carried: _Carried) -> int:
        """What a step takes from one cell and gives to another."""
        lead, follow = (
            times * int(math.ldexp(of[p], self._shift)) if times else 0
            for times, of in ((carried.lead, self._lead), (carried.follow, self._follow))
        )
        return lead + follow

    def number(self, cell: int) -> float:
        """What a cell holds, to the last digit."""
        return self.held[cell] / self._unit


class _Tally:
    """A column of a scope as the steps change it, and every cell that a step touches.

    Changes are recorded in units: a step, or all steps of a group. For each unit and each
    cell that it touches there is a row: what the cell held before, and holds after.
    """

    def __init__(self, picture: Picture, scope: str, column: str) -> None:
        s = picture.snapshot
        self.scope = scope
        self._topic: list[int] = s.partition_topic.tolist()
        self._brokers, self._racks = s.n_brokers, len(s.racks)
        self._host: list[int] = s.broker_host.tolist()
        self._rack: list[int] = s.broker_rack.tolist()
        self.unit: list[int] = []
        self.cell: list[int] = []
        self.before: list[float] = []
        self.after: list[float] = []
        self._row: dict[int, int] = {}
        self._partners: dict[int, list[tuple[int, float]]] = {}
        self._remote: list[float] = []
        self._sums: _Exact | None = None
        if column.startswith("remote."):
            self._remote = values(picture, scope, column).tolist()
            ends = pairs(s, float(column.removeprefix("remote.")))
            for one, two, rate in zip(*(x.tolist() for x in ends), strict=True):
                self._partners.setdefault(one, []).append((two, rate))
                self._partners.setdefault(two, []).append((one, rate))
        else:
            self._sums = _Exact(picture, scope, column)

    def _value(self, cell: int) -> float:
        return self._remote[cell] if self._sums is None else self._sums.number(cell)

    def cell_of(self, p: int, broker: int, disk: int) -> int:
        """Where a replica counts; -1 for nowhere."""
        if self.scope == "broker":
            return broker
        if self.scope == "topic":
            return self._topic[p] * self._brokers + broker
        if self.scope == "host":
            return self._host[broker]
        if self.scope == "topic_rack":
            return self._topic[p] * self._racks + self._rack[broker]
        return disk

    def carry(self, unit: int | None, p: int, carried: _Carried, leader: list[int]) -> None:
        """Take over what a step changes; rows are kept where it has a unit."""
        ends = [
            -1 if end is None else self.cell_of(p, *end) for end in (carried.source, carried.target)
        ]
        if unit is not None:
            self._touch(unit, [c for c in ends if c >= 0])
        if self._sums is None:
            if carried.lead and carried.source and carried.target:
                self._leave(p, carried.source[0], carried.target[0], leader)
        elif ends[0] != ends[1]:
            amount = self._sums.amount(p, carried)
            for cell, change in zip(ends, (-amount, amount), strict=True):
                if cell >= 0:
                    self._sums.held[cell] += change
        if unit is not None:
            for cell in ends:
                if cell >= 0:
                    self.after[self._row[cell]] = self._value(cell)

    def _touch(self, unit: int, cells: list[int]) -> None:
        if not self.unit or self.unit[-1] != unit:
            self._row = {}
        for cell in cells:
            if cell not in self._row:
                self._row[cell] = len(self.cell)
                self.unit.append(unit)
                self.cell.append(cell)
                self.before.append(self._value(cell))
                self.after.append(self._value(cell))

    def _leave(self, p: int, source: int, target: int, leader: list[int]) -> None:
        """A leader goes from one broker to another, its partners stay."""
        for partner, rate in self._partners.get(p, ()):
            there = leader[partner]
            for broker, by in ((source, -rate), (target, rate)):
                if there != broker:
                    self._remote[broker] += by
                    self._remote[there] += by


@dataclass(frozen=True)
class _Effects:
    """What each unit does: to the lower contentment it touches, and whether a cell gets worse."""

    diff: Floats
    worse: Bools


@dataclass(frozen=True)
class _Carried:
    """What a step moves: how many leaders and followers of its partition, from where to where."""

    source: tuple[int, int] | None
    target: tuple[int, int] | None
    lead: int
    follow: int


@dataclass
class _Ceiling:
    """A limit that no step may break or break further, with what its cells hold at the moment."""

    name: str
    scope: str
    cell: Callable[[int, int], int]
    limit: list[float]
    sums: _Exact


class _Replay:
    """The plan carried out on a copy, step by step, each in time independent of the cluster."""

    def __init__(self, who: Who, plan: PlanDocument, stated: StatedGoals) -> None:
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
        self.disk_alive, self.open_disk = s.disk_alive.tolist(), who.open_disk.tolist()
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
        size = sizes(s)
        self.bytes = [(a, b) for a, b in zip(size[0].tolist(), size[1].tolist(), strict=True)]
        self.start = self.base = self.picture()
        self.stated, self.goals = stated, stated.known
        self.ceilings = list(self._ceilings())
        hard = {g["goal"]: g for g in stated.known if g["hard"]}
        self.rack_aware = "RackAwareness" in hard
        self.rack_even = "RackAwareDistribution" in hard
        sets = hard.get("BrokerSetAwareness")
        self.set_of_topic = None if sets is None else topic_sets(sets, self.start, who).tolist()
        self.set_of_broker = s.broker_set.tolist()
        self.least = [0] * len(s.topics)
        if "MinTopicLeaders" in hard:
            self.least = least_leaders(hard["MinTopicLeaders"], who).tolist()
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
        # of each step: what it is a unit with, None for replicas added and removed
        self.unit: int | None = None
        self.units: list[int | None] = []
        self.steps: list[
            tuple[int, int, tuple[list[int], list[int], int], tuple[list[int], list[int], int]]
        ] = []
        self.tallies: dict[tuple[str, str], _Tally] = {}
        for goal in stated.known:
            judge = judge_of(goal, self.start, who)
            if judge is not None and judge.scope != "partition":
                key = judge.scope, judge.column
                if key not in self.tallies:
                    self.tallies[key] = _Tally(self.start, *key)

    def no_shares(self, goal: Mapping[str, Any]) -> bool:
        """Whether the fair shares that a goal goes by cannot be known from the plan alone."""
        if self.by_own_code(goal) or goal["goal"] == "DiskUsageDistribution":
            # where the search first put the replicas that it added
            return self.base is not self.start
        return goal["goal"] in OF_SHARES and self.cut

    def effects(self, goal: Mapping[str, Any]) -> _Effects | None:
        """What each unit does to a goal; None where that is not known."""
        own = self.stated.objects.get(goal["name"]) if self.by_own_code(goal) else None
        if own is not None and not self.violations:
            began = cluster_of(self.start, self.who)
            diff, fall = own_effects(own.prepared(began), began, len(self.units), self.steps)
            return _Effects(diff, fall > _EFFECT)
        judge = judge_of(goal, self.base, self.who)
        if judge is None or self.no_shares(goal):
            return None
        lowest, worse = np.ones((2, len(self.units))), np.zeros(len(self.units))
        if judge.scope == "partition":
            unit, before = self.rows(0)
            scores = [judge.of_rows(rows) for rows in (before, self.rows(1)[1])]
        else:
            tally = self.tallies[judge.scope, judge.column]
            unit, cell = np.array(tally.unit, np.int64), np.array(tally.cell, np.int64)
            scores = [judge.of_cells(cell, np.array(v)) for v in (tally.before, tally.after)]
        for low, score in zip(lowest, scores, strict=True):
            np.minimum.at(low, unit, score)
        np.add.at(worse, unit, scores[1] < scores[0] - _EFFECT)
        return _Effects(lowest[1] - lowest[0], worse > 0)

    def scores(self, goal: Mapping[str, Any], picture: Picture) -> list[Floats]:
        """(cells,) contentment judged strictly, as it is meant, and laxly; none where not known."""
        if self.no_shares(goal):
            return []
        if self.by_own_code(goal):
            own = self.stated.objects[goal["name"]].prepared(cluster_of(self.base, self.who))
            return 3 * [own_scores(own, cluster_of(picture, self.who))]
        judges = [judge_of(goal, self.base, self.who, t) for t in (_STRICT, TOLERANCE, _LAX)]
        return [judge.everywhere(picture) for judge in judges if judge is not None]

    def by_own_code(self, goal: Mapping[str, Any]) -> bool:
        """Whether a goal has no definition here, and speaks for itself."""
        return goal["name"] in self.stated.foreign

    def hard_goals(self) -> None:
        """No step leaves a cell of a hard goal less content."""
        for goal in self.goals:
            if not goal["hard"] or goal["goal"] in _RULED or (found := self.effects(goal)) is None:
                continue
            for step in np.flatnonzero(found.worse).tolist():
                text = f"{_name(self.plan.actions[step])}: {goal['name']} is hard, and made worse"
                self.fail("hard goal", text, step)

    @cached_property
    def lost(self) -> Bools:
        """(P,) whether no living replica is left to copy from."""
        alive = np.append(self.snapshot.disk_alive, True)[self.start.disk]
        found: Bools = self.start.count(alive & ~self.who.dead[self.start.broker]) == 0
        return found

    def left(self, name: str) -> Left:
        """What is left to be done for a goal."""
        goal = next((g for g in self.goals if g["name"] == name), None)
        if goal is None:
            return Left(name, "", None, None)
        own = self.stated.objects.get(name)
        judge = judge_of(goal, self.base, self.who)
        cells = None
        if judge is not None and not self.no_shares(goal):
            cells = np.flatnonzero(judge.everywhere(self.now) < 1)
        scope = judge.scope if judge is not None else own.scope if own is not None else ""
        proofs: Sequence[Obstacle] | None = () if own is None else None
        if own is not None and not self.cut_short:
            origin = cluster_of(self.base, self.who)
            proofs = own.prepared(origin).obstacles(origin)
        return Left(goal["goal"], scope, cells, proofs)

    @property
    def cut(self) -> bool:
        """Whether replicas that fair shares are worked out from were left out."""
        other = self.base.factor != self.who.factor
        return bool((other & ~self.lost & ~self.who.untouched).any())

    @property
    def cut_short(self) -> bool:
        """Whether replicas that proofs are worked out from are missing."""
        summary = self.plan.summary
        return self.cut and (summary.exhausted is not None or summary.left_out > 0)

    def picture(self) -> Picture:
        """Where everything is at the moment."""
        s = self.snapshot
        factor = [len(row) for row in self.holders]
        partition = np.repeat(np.arange(s.n_partitions), factor)
        broker = np.array([b for row in self.holders for b in row], np.int64)
        disk = np.array([d for row in self.disks for d in row], np.int64)
        leader = np.array(self.leader, np.int64)
        return Picture(s, partition, broker, disk, broker == leader[partition], leader)

    def _ceilings(self) -> Iterator[_Ceiling]:
        s, who = self.snapshot, self.who
        # a broker to be emptied is given nothing but followers that were leaders there
        raw = np.where(~who.draining[:, None], s.capacity, np.inf)
        for r, resource in enumerate(s.resources):
            column = f"load.{resource}"
            yield self._ceiling(f"capacity of {resource}", "broker", column, raw[:, r])
        if s.n_disks and "disk" in s.resources:
            held = s.disk_alive & ~who.draining[s.disk_broker]
            fits = np.where(held, s.disk_capacity, np.inf)
            yield self._ceiling("capacity of the disk", "disk", "load.disk", fits)
        for goal in self.goals:
            found = limits(goal, who)
            if found is not None and goal["hard"]:
                scope, column, limit = found
                yield self._ceiling(goal["name"], scope, column, limit)

    def _ceiling(self, name: str, scope: str, column: str, limit: Floats) -> _Ceiling:
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
            limit.tolist(),
            _Exact(self.start, scope, column),
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
        group = None
        for step, action in enumerate(self.plan.actions):
            if action.kind in ("add", "remove"):
                self.unit = None
            elif action.group is None or action.group != group or self.unit is None:
                self.unit = step
            group = action.group
            self.units.append(self.unit)
            p = self.row.get((action.topic, action.partition))
            if p is None:
                self.fail("unknown partition", f"no partition {_name(action)}", step)
                continue
            if self.who.reassigning[p]:
                self.fail("reassigning", f"{_name(action)}: Kafka is reassigning it", step)
            if self.who.frozen[p]:
                self.fail("frozen", f"{_name(action)}: it is among frozen_partitions", step)
            ends = [b for b in (action.source, action.destination) if b is not None]
            unknown = [b for b in ends if b not in self.index]
            if unknown:
                self.fail("unknown broker", f"{_name(action)}: no broker {unknown[0]}", step)
                continue
            before = self._row_of(p)
            do[action.kind](step, action, p)
            if self.unit is not None:
                self.steps.append((self.unit, p, before, self._row_of(p)))
        self.now = self.picture()
        self.base = self._factored()

    def _row_of(self, p: int) -> tuple[list[int], list[int], int]:
        """A partition as it is now: brokers, disks and leader."""
        return list(self.holders[p]), list(self.disks[p]), self.leader[p]

    def rows(self, when: int) -> tuple[Ints, Rows]:
        """The unit of each step and its partition before (0) or after (1) it."""
        width = max((len(x[0]) for _, _, *both in self.steps for x in both), default=1)
        tables = np.full((2, len(self.steps), width), -1, np.int64)
        for i, (_, _, *both) in enumerate(self.steps):
            for table, held in zip(tables, both[when][:2], strict=True):
                table[i, : len(held)] = held
        unit, p = (np.array([x[k] for x in self.steps], np.int64) for k in (0, 1))
        leader = np.array([both[when][2] for _, _, *both in self.steps], np.int64)
        return unit, Rows(p, tables[0], tables[1], leader)

    def _factored(self) -> Picture:
        """The start with replicas added and removed, and nothing else done."""
        changes = [a for a in self.plan.actions if a.kind in ("add", "remove")]
        if not changes:
            return self.start
        s, ended = self.snapshot, (self.holders, self.disks, self.leader)
        disks = s.replica_disk if s.n_disks else np.full(s.n_replicas, -1)
        cuts = s.replica_offset[1:-1]
        self.holders = [row.tolist() for row in np.split(s.replica_broker, cuts)]
        self.disks = [row.tolist() for row in np.split(disks, cuts)]
        first = np.maximum(s.leader, 0).tolist()
        self.leader = [row[at] for row, at in zip(self.holders, first, strict=True)]
        for a in changes:
            p = self.row.get((a.topic, a.partition))
            end = a.destination if a.kind == "add" else a.source
            broker = self.index.get(-1 if end is None else end)
            if p is None or broker is None:
                continue
            if a.kind == "add":
                self.holders[p].append(broker)
                self.disks[p].append(self.disk_index.get((broker, a.destination_disk or ""), -1))
            elif broker in self.holders[p]:
                at = self.holders[p].index(broker)
                del self.holders[p][at], self.disks[p][at]
        picture = self.picture()
        self.holders, self.disks, self.leader = ended
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
                else "is excluded or cordoned"
                if not self.eligible[broker]
                else "is not among the destinations"
            )
            self.fail("wrong destination", f"{_name(a)}: broker {a.destination} {why}", step)
        return broker, self._target_disk(step, a, broker)

    def _target_disk(self, step: int, a: Action, broker: int) -> int:
        if broker not in self.jbod and a.destination_disk is None:
            return -1
        disk = self.disk_index.get((broker, a.destination_disk or ""), -1)
        if disk < 0 or not self.open_disk[disk]:
            closed = "a cordoned disk" if disk >= 0 and self.disk_alive[disk] else "a dead disk"
            state = "no such disk" if disk < 0 else closed
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
        if self.who.dead[broker] or (disk >= 0 and not self.disk_alive[disk]):
            what = "broker" if self.who.dead[broker] else "disk"
            self.fail("dead source", f"{_name(a)}: nothing can be copied off a dead {what}", step)
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
        heir = self.disks[p][self.holders[p].index(target)]
        if heir >= 0 and not self.disk_alive[heir]:
            self.fail("wrong leader", f"{_name(a)}: what is on a dead disk cannot lead", step)
        if not self.leader_leaves[p]:
            if self.who.kind in ("remove_brokers", "demote_brokers", "fix_offline_replicas"):
                self.fail("promise", f"{_name(a)}: {a.source} need not give up leading", step)
            if self.excluded[p]:
                self.fail("excluded topic", f"{_name(a)}: the topic is excluded", step)
        where = self.holders[p]
        own = self.disks[p][where.index(source)] if source in where else -1
        self._on_disks(step, a, own)
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
        if a.source_disk is not None:
            self.fail("wrong source disk", f"{_name(a)}: a new replica has no source", step)
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
        if a.destination is not None:
            self.fail("wrong destination", f"{_name(a)}: nothing takes what is removed", step)
        self._on_disks(step, a, disk)
        if leads:
            self.fail("leader removed", f"{_name(a)}: broker {a.source} still leads", step)
        before = list(self.holders[p])
        self._bytes(step, a, 0.0)
        self._carry(step, a, p, (broker, disk), None, 1 if leads else 0, 0 if leads else 1)
        del self.holders[p][at], self.disks[p][at]
        self._partition_rules(step, a, p, before)

    def _on_disks(self, step: int, a: Action, disk: int) -> None:
        """Leadership, and what is removed, comes from a disk and goes to none."""
        path = self.snapshot.disk_path[disk] if disk >= 0 else None
        if (a.source_disk, a.destination_disk) != (path, None):
            self.fail("wrong source disk", f"{_name(a)}: disks {path} and none expected", step)

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
        carried = _Carried(source, target, lead, follow)
        for tally in self.tallies.values():
            tally.carry(self.unit, p, carried, self.leader)
        for c in self.ceilings:
            amount = c.sums.amount(p, carried)
            gives = c.cell(*source) if source is not None else -1
            takes = c.cell(*target) if target is not None else -1
            if gives == takes or not amount:
                continue
            for cell, change in ((takes, amount), (gives, -amount)):
                if cell < 0:
                    continue
                before = c.sums.number(cell)
                c.sums.held[cell] += change
                value = c.sums.number(cell)
                most = max(c.limit[cell] * (1 + TOLERANCE), before * (1 + _UNSEEN))
                if change > 0 and value > most:
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
                count = plural(len(left), "replica is", "replicas are")
                self.fail("promise", f"{count} left on brokers to be emptied")
        if who.kind == "demote_brokers" and "EligibleLeaders" not in unmet:
            able = self.now.count(who.may_lead[self.now.broker]) > 0
            still = np.flatnonzero(who.mine[self.now.leader] & able)
            if len(still):
                count = plural(len(still), "partition is", "partitions are")
                self.fail("promise", f"{count} still led by demoted brokers")
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
    if s.left_out < 0:
        yield from _differs("summary.left_out", s.left_out, 0)
    yield from _differs("bytes_moved", s.bytes_moved, sum(a.bytes for a in plan.actions))
    lead, follow = sizes(replay.snapshot)
    start = replay.start
    total = np.where(start.leads, lead[start.partition], follow[start.partition]).sum()
    yield from _differs("bytes_total", s.bytes_total, float(total))
    if not s.bytes_moved >= s.bytes_bound * (1 - 1e-6) - 1e-6:
        yield Finding(
            "bytes_bound", f"bytes_bound: {s.bytes_bound:.9g}, more than {s.bytes_moved:.9g} moved"
        )
    least = 0.0
    if replay.who.kind != "change_replication_factor":
        names = {g.goal for g in plan.goal_results if g.met_after}
        reached = [g for g in replay.goals if g["name"] in names]
        least = least_bytes(replay.who, replay.start, reached)
    if not 0 <= s.bytes_bound <= least * (1 + 1e-6) + 1e-6:
        yield Finding(
            "bytes_bound", f"bytes_bound: {s.bytes_bound:.9g} stated, {least:.9g} can be derived"
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
        carried = sums(at[there], s.leader_load[there, r], s.n_brokers)
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
        share = who.shared(replay.base.per_broker(columns[name]), weight)
        # an allocation balances while it empties brokers
        free = who.kind in ("rebalance", "add_brokers") or replay.plan.allocation is not None
        ends = replay.base, replay.now
        least = least_ratio(who, columns[name], share, *ends, free)
        bound = result.worst_ratio_bound
        if not replay.cut and not 0 <= bound <= least * (1 + 1e-6) + 1e-9:
            yield Finding(
                "worst_ratio_bound",
                f"column {name}: worst_ratio_bound {bound:.9g} stated, {least:.9g} can be derived",
            )
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
    """Each goal before and after: cells not content, and the mean contentment."""
    plan = replay.plan
    stated = [g.get("name") for g in plan.goals]
    if [g.goal for g in plan.goal_results] != stated:
        yield Finding("goal_results", f"goal_results: one for each of {stated} in order expected")
    results = {g.goal: g for g in plan.goal_results}
    for goal in replay.goals:
        result = results.get(goal["name"])
        if result is None:
            continue
        for name in ("hard", "tier", "weight"):
            if getattr(result, name) != goal[name]:
                yield Finding(
                    "goal_results",
                    f"{result.goal}: {name} {getattr(result, name)}, {goal[name]} expected",
                )
        for when, picture in (("before", replay.start), ("after", replay.now)):
            scores = replay.scores(goal, picture)
            if not scores:
                continue
            # A wider tolerance rounds the even share of a topic up too, and is not laxer there.
            unmet = np.stack(scores) < 1
            most, fewest = int(unmet.any(axis=0).sum()), int(unmet.all(axis=0).sum())
            cells = getattr(result, f"unmet_cells_{when}")
            if not fewest <= cells <= most:
                yield Finding(
                    f"goal {goal['goal']}",
                    f"{goal['name']}: {plural(cells, 'cell')} unmet {when} stated, {most} found",
                )
            mean = float(scores[1].mean()) if len(scores[1]) else 1.0
            if abs(getattr(result, f"contentment_{when}") - mean) > _EFFECT:
                yield Finding(
                    "contentment",
                    f"{goal['name']}: contentment_{when} "
                    f"{getattr(result, f'contentment_{when}'):.9g} stated, {mean:.9g} found",
                )
    for result in plan.goal_results:
        for when in ("before", "after"):
            cells, met = getattr(result, f"unmet_cells_{when}"), getattr(result, f"met_{when}")
            if met != (cells == 0):
                yield Finding(
                    "met", f"{result.goal}: met_{when} is wrong, {plural(cells, 'cell')} unmet"
                )
            mean = getattr(result, f"contentment_{when}")
            if not 0 <= mean <= 1 or (met and mean != 1):
                yield Finding("contentment", f"{result.goal}: contentment_{when} {mean} is wrong")


def _reasons(replay: _Replay) -> Iterator[Finding]:
    """By how much each step raises or lowers the lower contentment of what it touches."""
    plan = replay.plan
    names = {g.goal for g in plan.goal_results}
    for step, a in enumerate(plan.actions):
        for name, value in (*a.helped.items(), *a.hurt.items()):
            if name not in names or not 0 < value <= 1 or (name in a.helped and name in a.hurt):
                yield Finding("reasons", f"{_name(a)}: reason {name} {value} is wrong", step)
    for goal in replay.goals:
        found = replay.effects(goal)
        if found is None:
            continue
        name, diff = goal["name"], found.diff.tolist()
        for step, (a, unit) in enumerate(zip(plan.actions, replay.units, strict=True)):
            stated = a.helped.get(name, 0.0) - a.hurt.get(name, 0.0)
            expected = 0.0 if unit is None else diff[unit]
            if abs(stated - expected) > _EFFECT:
                yield Finding(
                    "reasons",
                    f"{_name(a)}: {name} {stated:+.9f} stated, {expected:+.9f} found",
                    step,
                )


def _unmet(replay: _Replay) -> Iterator[Finding]:
    """What is said of goals that are not met, and of brokers that would help."""
    plan, who = replay.plan, replay.who
    for kind, text in unmet_faults(plan, who, replay.lost, replay.left):
        yield Finding(kind, text)
    for text in remedy_faults(plan, who):
        yield Finding("remedy", text)


def _unchecked(replay: _Replay, stated: StatedGoals) -> Iterator[Unchecked]:
    """What is taken as it stands, and why."""
    plan = replay.plan
    yield Unchecked("operation", "what was asked for; the plan is checked against it")
    yield Unchecked("goals", "what was asked for; the plan is checked against them")
    yield Unchecked("goals_left_out", "goals missing here: the plan does not name its profile")
    yield Unchecked("summary.left_out", "depends on what the search tried")
    yield Unchecked("summary.exhausted", "the plan does not state its budget")
    for name in ("summary.bytes_bound", "columns[].worst_ratio_bound"):
        yield Unchecked(
            name, "that no placement is below it is checked, not that it is the largest"
        )
    if plan.allocation is not None:
        yield Unchecked("allocation.strategy", "how the placement was found")
        yield Unchecked("allocation.distance_bound", "the solver's; only that it was not beaten")
    if plan.unmet and replay.cut_short:
        yield Unchecked("unmet", "proofs are of replicas that the plan does not state")
    if any(not u.proven for u in plan.unmet):
        yield Unchecked(
            "unmet[].reason", "without a proof, who vetoes what: only that it is one of the reasons"
        )
    if plan.remedy is not None and plan.remedy.tried:
        yield Unchecked("remedy.tried", "planning for the larger cluster is not repeated")
    for name, value in (("digest", plan.digest), *plan.identity):
        where = name if name == "digest" else f"identity.{name}"
        if value is None and name != "taken_ms":
            yield Unchecked(where, "the plan does not state it")
    if plan.actions and not plan.replicas:
        yield Unchecked("replicas", "the plan does not state them")
    yield Unchecked("identity.taken_ms", "a later snapshot of an unchanged cluster is the same")
    for goal in plan.goals:
        name = str(goal.get("name"))
        if name in stated.foreign:
            hard = name in stated.hard
            by = "by its own code alone" if name in stated.objects else "by nothing: not installed"
            what = "is hard, and " if hard else ""
            yield Unchecked(f"goals[{name}]", f"{name} {what}is checked {by}", hard)
    for known in replay.goals:
        if replay.no_shares(known):
            reason = "its fair shares depend on replicas that the plan does not state"
            yield Unchecked(f"goals[{known['name']}]", f"{known['name']}: {reason}", known["hard"])
    if replay.cut:
        yield Unchecked("columns[].after.worst_ratio", "fair shares as before: the plan was cut")
