"""Replays a plan on a copy of the snapshot, and records every step that breaks a rule."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from balancer.planning.document import Action, PlanDocument
from balancer.verification.goals import definition_of, home_sets, sets_of_topics
from balancer.verification.hard_rules import PartitionRules, step_limits
from balancer.verification.own_code import PartitionState
from balancer.verification.relations import tally_of
from balancer.verification.relaxed import with_used_limits
from balancer.verification.replicas import PartitionTable, ReplicaTable, sizes, special_costs
from balancer.verification.report import Fault, agree, label
from balancer.verification.stated_goals import StatedGoals
from balancer.verification.stated_request import StatedRequest
from balancer.verification.tallies import Tally, Transfer
from cluster_model.snapshot import Bools, Ints
from metrics_reporter.quantities import plural


class Replay:
    """The plan carried out on a copy, step by step, each in time independent of the cluster."""

    def __init__(self, request: StatedRequest, plan: PlanDocument, stated: StatedGoals) -> None:
        s = self.snapshot = request.snapshot
        self.request, self.plan = request, plan
        self.violations: list[Fault] = []
        bounds = s.replica_offset.tolist()
        held = s.replica_broker.tolist()
        disks = s.replica_disk.tolist() if s.n_disks else [-1] * len(held)
        spans = list(pairwise(bounds))
        self.holders = [held[a:b] for a, b in spans]
        self.disks = [disks[a:b] for a, b in spans]
        # -1 for a partition without replicas
        self.leader = [
            row[max(at, 0)] if row else -1
            for row, at in zip(self.holders, s.leader.tolist(), strict=True)
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
        self.disk_alive, self.open_disk = s.disk_alive.tolist(), request.open_disk.tolist()
        self.topic = s.partition_topic.tolist()
        self.draining, self.receives = request.draining.tolist(), request.receives.tolist()
        self.stranded: list[set[int]] = [
            {b for b, d in zip(*row, strict=True) if d >= 0 and not s.disk_alive[d]}
            for row in zip(self.holders, self.disks, strict=True)
        ]
        self.may_lead, self.eligible = request.may_lead.tolist(), request.eligible.tolist()
        self.excluded = request.excluded.tolist()
        size = sizes(s)
        self.cost = [(a, b) for a, b in zip(size[0].tolist(), size[1].tolist(), strict=True)]
        self.special_cost = special_costs(s)
        self.start = self.base = self.shared = self.table()
        # whether new replicas may count in a broker set that the plan does not state
        self.uncounted = False
        # whether that may change which set holds most of a topic
        self.homeless = False
        # which brokers a goal applies to depends on the operation
        self.stated = stated
        self.configured = stated.known if request.kind.known else ()
        # as configured, and with the limits that the steps obey
        self.goals, self.objects = with_used_limits(plan, self.configured, stated.objects)
        self.ceilings = list(step_limits(self.goals, self.start, request))
        self.rules = PartitionRules(self.goals, self.start, request)
        self.led: dict[tuple[int, int], int] = {}
        for p, b in enumerate(self.leader):
            key = (self.topic[p], b)
            self.led[key] = self.led.get(key, 0) + 1
        self.first_leader = list(self.leader)
        # partitions whose leader had to change from the start, whichever broker leads in between
        self.leader_leaves = [
            b >= 0 and (not self.may_lead[b] or self._offline(p, self.holders[p].index(b)))
            for p, b in enumerate(self.leader)
        ]
        self.now = self.start
        # the unit of each step, None for replicas added and removed
        self.unit: int | None = None
        self.units: list[int | None] = []
        self.steps: list[tuple[int, int, PartitionState, PartitionState]] = []
        self.tallies: dict[tuple[str, str], Tally] = {}
        # the location of everything after the first actions, by their number
        self.prefixes: dict[int, ReplicaTable] = {}
        for goal in self.goals:
            definition = definition_of(goal, self.start, request)
            if definition is not None and definition.scope != "partition":
                key = definition.scope, definition.column
                if key not in self.tallies:
                    self.tallies[key] = tally_of(self.start, *key)

    @cached_property
    def lost(self) -> Bools:
        """(P,) whether a partition has no living replica left to copy from."""
        alive = np.append(self.snapshot.disk_alive, True)[self.start.disk]
        found: Bools = self.start.count(alive & ~self.request.dead[self.start.broker]) == 0
        return found & self.request.needs_source

    @property
    def cut(self) -> bool:
        """Whether replicas that fair shares are worked out from were left out."""
        if not self.request.kind.known:
            return False
        other = self.base.factor != self.request.factor
        return bool((other & ~self.lost & ~self.request.untouched).any())

    @property
    def cut_short(self) -> bool:
        """Whether replicas that proofs are worked out from are missing."""
        summary = self.plan.summary
        return self.cut and (summary.exhausted is not None or summary.left_out > 0)

    def table(self) -> ReplicaTable:
        """The current location of everything."""
        s = self.snapshot
        factor = [len(row) for row in self.holders]
        partition = np.repeat(np.arange(s.n_partitions), factor)
        broker = np.array([b for row in self.holders for b in row], np.int64)
        disk = np.array([d for row in self.disks for d in row], np.int64)
        leader = np.array(self.leader, np.int64)
        return ReplicaTable(s, partition, broker, disk, broker == leader[partition], leader)

    def fail(self, kind: str, text: str, step: int | None = None) -> None:
        """Record a violation."""
        self.violations.append(Fault(kind, text, step))

    def run(self) -> None:
        """Carry out every step that is possible."""
        do = {
            "move": self._move,
            "move_disk": self._move_disk,
            "leadership": self._lead,
            "add": self._add,
            "remove": self._remove,
        }
        group, places = None, {point.actions for point in self.plan.relief}
        for step, action in enumerate(self.plan.actions):
            if step in places:
                self.prefixes[step] = self.table()
            if action.kind in ("add", "remove"):
                self.unit = None
            elif action.group is None or action.group != group or self.unit is None:
                self.unit = step
            group = action.group
            self.units.append(self.unit)
            p = self.row.get((action.topic, action.partition))
            if p is None:
                self.fail("unknown partition", f"no partition {label(action)}", step)
                continue
            if self.request.reassigning[p]:
                self.fail("reassigning", f"{label(action)}: Kafka is reassigning it", step)
            if self.request.frozen[p]:
                self.fail("frozen", f"{label(action)}: it is among frozen_partitions", step)
            ends = [b for b in (action.source, action.destination) if b is not None]
            unknown = [b for b in ends if b not in self.index]
            if unknown:
                self.fail("unknown broker", f"{label(action)}: no broker {unknown[0]}", step)
                continue
            before = self._row_of(p)
            do[action.kind](step, action, p)
            if self.unit is not None:
                self.steps.append((self.unit, p, before, self._row_of(p)))
        self.now = self.prefixes[len(self.plan.actions)] = self.table()
        self.base = self.shared = self._factored()
        if self.base is not self.start and len(self.snapshot.broker_set):
            self.shared = self._counted()

    def _row_of(self, p: int) -> PartitionState:
        """The current state of a partition: brokers, disks and leader."""
        return list(self.holders[p]), list(self.disks[p]), self.leader[p]

    def rows(self, when: int) -> tuple[Ints, PartitionTable]:
        """The unit of each step and its partition before (0) or after (1) it."""
        width = max((len(x[0]) for _, _, *both in self.steps for x in both), default=1)
        tables = np.full((2, len(self.steps), width), -1, np.int64)
        for i, (_, _, *both) in enumerate(self.steps):
            for table, held in zip(tables, both[when][:2], strict=True):
                table[i, : len(held)] = held
        unit, p = (np.array([x[k] for x in self.steps], np.int64) for k in (0, 1))
        leader = np.array([both[when][2] for _, _, *both in self.steps], np.int64)
        return unit, PartitionTable(p, tables[0], tables[1], leader)

    def _factored(self) -> ReplicaTable:
        """The start with replicas added and removed, and no other change."""
        changes = [a for a in self.plan.actions if a.kind in ("add", "remove")]
        if not changes:
            return self.start
        s, ended = self.snapshot, (self.holders, self.disks, self.leader)
        disks = s.replica_disk if s.n_disks else np.full(s.n_replicas, -1)
        cuts = s.replica_offset[1:-1]
        self.holders = [row.tolist() for row in np.split(s.replica_broker, cuts)]
        self.disks = [row.tolist() for row in np.split(disks, cuts)]
        first = np.maximum(s.leader, 0).tolist()
        self.leader = [row[at] if row else -1 for row, at in zip(self.holders, first, strict=True)]
        for a in changes:
            p = self.row.get((a.topic, a.partition))
            end = a.destination if a.kind == "add" else a.source
            broker = self.index.get(-1 if end is None else end)
            if p is None or broker is None:
                continue
            if a.kind == "add":
                if not self.holders[p]:
                    self.leader[p] = broker
                self.holders[p].append(broker)
                self.disks[p].append(self.disk_index.get((broker, a.destination_disk or ""), -1))
            elif broker in self.holders[p]:
                at = self.holders[p].index(broker)
                del self.holders[p][at], self.disks[p][at]
        changed = self.table()
        self.holders, self.disks, self.leader = ended
        return changed

    def _counted(self) -> ReplicaTable:
        """The same, with each new replica in the broker set that its fair shares count it in.

        That is the set that holds most of its topic, if a broker there can take it, wherever the
        replica goes in the end.
        """
        s, base, request = self.snapshot, self.base, self.request
        home, broker, leader = home_sets(self.start), base.broker.copy(), base.leader.copy()
        uncounted = np.zeros(len(s.topics), np.int64)
        first = np.searchsorted(base.partition, np.arange(s.n_partitions + 1)).tolist()
        for p in np.flatnonzero(base.factor > s.replication_factor).tolist():
            at, had = first[p], int(s.replication_factor[p])
            held = broker[at : at + had]
            takes = request.receives & ~request.forbidden(np.array(p), np.arange(s.n_brokers))
            takes &= s.broker_set == home[self.topic[p]]
            takes[held] = False
            inside = np.flatnonzero(takes)
            # the first replica leads, and goes to a broker that may
            inside = inside if had else inside[np.argsort(~request.may_lead[inside], kind="stable")]
            new = broker[at + had : first[p + 1]]
            if (
                home[self.topic[p]] < 0
                or len(inside) < len(new)
                or not (had or request.may_lead[inside[0]])
            ):
                uncounted[self.topic[p]] += len(new)
                continue
            new[:] = inside[: len(new)]
            if not had:
                leader[p] = new[0]
        counted = ReplicaTable(
            s, base.partition, broker, base.disk, broker == leader[base.partition], leader
        )
        self.uncounted = bool(uncounted.any())
        if self.uncounted and len(s.broker_sets) > 1:
            held = np.sort(sets_of_topics(counted), axis=1)
            self.homeless = bool((held[:, -1] - held[:, -2] <= 2 * uncounted)[uncounted > 0].any())
        return counted

    def _source(self, step: int, a: Action, p: int) -> int | None:
        """Position of the moved replica in the partition's list."""
        broker = self.index.get(-1 if a.source is None else a.source)
        if broker is None or broker not in self.holders[p]:
            self.fail("wrong source", f"{label(a)}: no replica on broker {a.source}", step)
            return None
        at: int = self.holders[p].index(broker)
        disk = self.disks[p][at]
        path = self.snapshot.disk_path[disk] if disk >= 0 else None
        if a.source_disk != path:
            self.fail(
                "wrong source disk",
                f"{label(a)}: on disk {path} of broker {a.source}, not {a.source_disk}",
                step,
            )
        # a replica that changes disks keeps its leadership on the broker
        if a.leader != (self.leader[p] == broker and a.kind != "move_disk"):
            self.fail("wrong leader flag", f"{label(a)}: leader {a.leader} is wrong", step)
        return at

    def _target(self, step: int, a: Action, p: int) -> tuple[int, int] | None:
        """The broker and disk that a replica goes to, if allowed."""
        broker = self.index.get(-1 if a.destination is None else a.destination)
        if broker is None:
            self.fail("no destination", f"{label(a)}: a destination expected, none given", step)
            return None
        if broker in self.holders[p]:
            self.fail(
                "already there", f"{label(a)}: broker {a.destination} holds a replica already", step
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
            self.fail("wrong destination", f"{label(a)}: broker {a.destination} {why}", step)
        elif not self.may_hold(p, broker):
            text = f"{label(a)}: broker {a.destination} may not hold replicas of topic {a.topic}"
            self.fail("wrong destination", text, step)
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
                f"{label(a)}: {state}, {a.destination_disk} of broker {a.destination}",
                step,
            )
        return disk

    def may_hold(self, p: int, broker: int) -> bool:
        """Whether a broker may hold replicas of a partition."""
        table = self.snapshot.may_hold
        return not table.size or bool(table[self.topic[p], broker])

    def _offline(self, p: int, at: int) -> bool:
        broker, disk = self.holders[p][at], self.disks[p][at]
        leaves = self.draining[broker] or not self.may_hold(p, broker)
        return leaves or (disk >= 0 and not self.disk_alive[disk])

    def _can_be_copied(self, step: int, a: Action, p: int) -> None:
        if self.request.needs_source[p] and all(
            self.request.dead[b] or (d >= 0 and not self.disk_alive[d])
            for b, d in zip(self.holders[p], self.disks[p], strict=True)
        ):
            self.fail("lost", f"{label(a)}: every replica is dead, nothing to copy from", step)

    def _may_move(self, step: int, a: Action, p: int, at: int) -> None:
        kind, name = self.request.kind, self.request.kind_name
        self._can_be_copied(step, a, p)
        if not kind.known:
            return
        if self._offline(p, at):
            if kind.moves == "none":
                self.fail("promise", f"{label(a)}: {name} moves no replica", step)
            return
        if kind.moves == "changed":
            # replicas are interchangeable: which one leaves and which one moves does not matter
            stuck = any(self._offline(p, i) for i in range(len(self.holders[p])))
            bound = not stuck and self.request.factor[p] == self.start.factor[p]
        else:
            # an allocation balances while it empties brokers
            balances = kind.empties and self.plan.allocation is not None
            bound = kind.moves_what_must and not balances
        if bound:
            self.fail("promise", f"{label(a)}: {name} moves no replica that is online", step)
        elif self.excluded[p] and kind.moves != "changed":
            self.fail("excluded topic", f"{label(a)}: the topic is excluded", step)

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
            self.fail(
                "dead source",
                f"{label(a)}: it holds a dead replica, which this move does not replace",
                step,
            )
        if leads and (p, target[0]) in self.request.cold:
            text = f"{label(a)}: broker {a.destination} had a replica that was warming up"
            self.fail("wrong leader", text, step)
        self._cost(step, a, self._copy(p, target[0], leads))
        self._carry(step, a, p, Transfer.of((source, disk), target, leads))
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
            self.fail("wrong destination", f"{label(a)}: between disks of one broker only", step)
            return
        self._may_move(step, a, p, at)
        if self.request.dead[broker] or (disk >= 0 and not self.disk_alive[disk]):
            what = "broker" if self.request.dead[broker] else "disk"
            self.fail("dead source", f"{label(a)}: nothing can be copied off a dead {what}", step)
        self._served(step, a, broker)
        target = self._target_disk(step, a, broker)
        if target == disk:
            self.fail("already there", f"{label(a)}: on disk {a.destination_disk} already", step)
            return
        leads = self.leader[p] == broker
        self._cost(step, a, self.cost[p][0 if leads else 1])
        self._carry(step, a, p, Transfer.of((broker, disk), (broker, target), leads))
        self.disks[p][at] = target

    def _lead(self, step: int, a: Action, p: int) -> None:
        source = self.index.get(-1 if a.source is None else a.source)
        target = self.index.get(-1 if a.destination is None else a.destination)
        if source is None or self.leader[p] != source:
            self.fail("wrong source", f"{label(a)}: broker {a.source} does not lead", step)
            return
        if target is None or target not in self.holders[p]:
            self.fail(
                "no replica to lead", f"{label(a)}: no replica on broker {a.destination}", step
            )
            return
        if target == source:
            self.fail("already there", f"{label(a)}: broker {a.source} leads already", step)
            return
        if not a.leader:
            self.fail("wrong leader flag", f"{label(a)}: leader False is wrong", step)
        if not self.may_lead[target]:
            self.fail("wrong leader", f"{label(a)}: broker {a.destination} may not lead", step)
        if (p, target) in self.request.cold:
            text = f"{label(a)}: the replica on broker {a.destination} is still warming up"
            self.fail("wrong leader", text, step)
        successor = self.disks[p][self.holders[p].index(target)]
        if successor >= 0 and not self.disk_alive[successor]:
            self.fail("wrong leader", f"{label(a)}: a replica on a dead disk cannot lead", step)
        if self.request.kind.known and not self.leader_leaves[p]:
            if self.request.kind.moves_what_must:
                self.fail("promise", f"{label(a)}: broker {a.source} may keep leading", step)
            self._served(step, a, target, returns=target == self.first_leader[p])
            if self.excluded[p]:
                self.fail("excluded topic", f"{label(a)}: the topic is excluded", step)
        where = self.holders[p]
        own = self.disks[p][where.index(source)] if source in where else -1
        self._on_disks(step, a, own)
        self._cost(step, a, 0.0)
        ends = (source, own), (target, self.disks[p][where.index(target)])
        self._carry(step, a, p, Transfer(*ends, 1, -1))
        self._led(step, a, p, source, target)

    def _served(self, step: int, a: Action, broker: int, returns: bool = False) -> None:
        """Leadership and disk moves serve the named brokers if these alone receive replicas."""
        request = self.request
        if request.kind.receivers == "named" and not (request.named[broker] or returns):
            name = request.kind_name
            self.fail("promise", f"{label(a)}: {name} serves the named brokers alone", step)

    def _add(self, step: int, a: Action, p: int) -> None:
        target = self._target(step, a, p)
        self._changes_factor(step, a, p, 1)
        self._can_be_copied(step, a, p)
        # the first replica of a partition leads it
        leads = not self.holders[p]
        if a.source is not None or a.leader != leads:
            role = "leads, as the first" if leads else "does not lead"
            self.fail("wrong source", f"{label(a)}: a new replica has no source and {role}", step)
        if target is None:
            return
        if a.source_disk is not None:
            self.fail("wrong source disk", f"{label(a)}: a new replica has no source", step)
        before = list(self.holders[p])
        copied = self.request.needs_source[p]
        self._cost(step, a, self._copy(p, target[0], leads) if copied else 0.0)
        self._carry(step, a, p, Transfer.of(None, target, leads))
        self.holders[p].append(target[0])
        self.disks[p].append(target[1])
        self._partition_rules(step, a, p, before)
        if leads:
            self.leader[p], key = target[0], (self.topic[p], target[0])
            self.led[key] = self.led.get(key, 0) + 1
            able = self.request.may_lead & self.request.receives
            if not self.may_lead[target[0]] and (able & self.request.holders(self.topic[p])).any():
                self.fail("wrong leader", f"{label(a)}: broker {a.destination} may not lead", step)

    def _remove(self, step: int, a: Action, p: int) -> None:
        at = self._source(step, a, p)
        self._changes_factor(step, a, p, -1)
        if at is None:
            return
        broker, disk = self.holders[p][at], self.disks[p][at]
        leads = self.leader[p] == broker
        if a.destination is not None:
            self.fail(
                "wrong destination", f"{label(a)}: a removed replica has no destination", step
            )
        self._on_disks(step, a, disk)
        if leads:
            self.fail("leader removed", f"{label(a)}: broker {a.source} still leads", step)
        before = list(self.holders[p])
        self._cost(step, a, 0.0)
        self._carry(step, a, p, Transfer.of((broker, disk), None, leads))
        del self.holders[p][at], self.disks[p][at]
        self._partition_rules(step, a, p, before)

    def _on_disks(self, step: int, a: Action, disk: int) -> None:
        """Leadership transfers and removals have a source disk and no target disk."""
        path = self.snapshot.disk_path[disk] if disk >= 0 else None
        if (a.source_disk, a.destination_disk) != (path, None):
            self.fail("wrong source disk", f"{label(a)}: disks {path} and none expected", step)

    def _changes_factor(self, step: int, a: Action, p: int, by: int) -> None:
        if not self.request.kind.known:
            return
        expected, have = int(self.request.factor[p]), len(self.holders[p])
        if (expected - have) * by <= 0:
            text = f"{label(a)}: {have} replicas found, {expected} asked for: no reason to {a.kind}"
            self.fail("promise", text, step)

    def _copy(self, p: int, broker: int, leads: bool) -> float:
        """What a copy of a replica to a broker costs."""
        elsewhere: float = self.cost[p][0 if leads else 1]
        return self.special_cost.get((p, broker), elsewhere)

    def _cost(self, step: int, a: Action, expected: float) -> None:
        if not agree(a.cost, expected):
            self.fail(
                "wrong cost", f"{label(a)}: {a.cost:.9g} found, {expected:.9g} expected", step
            )

    def _carry(self, step: int, a: Action, p: int, transfer: Transfer) -> None:
        """Update the contents of cells, and check the limits."""
        for tally in self.tallies.values():
            tally.carry(self.unit, p, transfer, self.leader)
        for ceiling in self.ceilings:
            for text in ceiling.exceeded(p, transfer):
                self.fail("over capacity", f"{label(a)}: {text}", step)

    def _partition_rules(self, step: int, a: Action, p: int, before: list[int]) -> None:
        """Racks and broker sets of the partition are no worse than before the step."""
        for kind, text in self.rules.broken(p, before, self.holders[p]):
            self.fail(kind, f"{label(a)}: {text}", step)

    def _led(self, step: int, a: Action, p: int, source: int, target: int) -> None:
        """Leadership goes from one broker to another."""
        self.leader[p] = target
        topic = self.topic[p]
        self.led[topic, source] = left = self.led.get((topic, source), 0) - 1
        self.led[topic, target] = self.led.get((topic, target), 0) + 1
        if left < self.rules.least_leaders[topic] and self.may_lead[source]:
            self.fail(
                "leaders", f"{label(a)}: MinTopicLeaders: {left} left on broker {a.source}", step
            )
        if self.request.kind.known and a.kind == "move" and not self.may_lead[target]:
            others = [
                b
                for b in self.holders[p]
                if b != target and self.may_lead[b] and (p, b) not in self.request.cold
            ]
            if self.may_lead[source] or others:
                self.fail("wrong leader", f"{label(a)}: broker {a.destination} may not lead", step)

    def groups(self) -> None:
        """Steps of a group are adjacent and go the same way."""
        known: dict[int, tuple[int, Action]] = {}
        for step, a in enumerate(self.plan.actions):
            if a.group is None:
                continue
            last, first = known.get(a.group, (step - 1, a))
            same = (a.kind, a.source, a.destination) == ("move", first.source, first.destination)
            if last != step - 1 or not same:
                self.fail(
                    "group",
                    f"{label(a)}: not next to, or not like, the other moves of group {a.group}",
                    step,
                )
            known[a.group] = step, first

    def promises(self) -> None:
        """The promises of the operation about the end."""
        plan, request, s = self.plan, self.request, self.snapshot
        if not request.kind.known:
            return
        unmet = {u.goal for u in plan.unmet}
        if request.kind.empties and "OnlineReplicas" not in unmet:
            left = np.flatnonzero(request.draining[self.now.broker])
            if len(left):
                count = plural(len(left), "replica is", "replicas are")
                self.fail("promise", f"{count} left on brokers to be emptied")
        if request.kind.demotes and "EligibleLeaders" not in unmet:
            able = self.now.count(request.may_lead[self.now.broker]) > 0
            still = np.flatnonzero(request.named[self.now.leader] & able)
            if len(still):
                count = plural(len(still), "partition is", "partitions are")
                self.fail("promise", f"{count} still led by demoted brokers")
        wrong = np.flatnonzero(self.now.factor != request.factor)
        if len(wrong) and "ReplicationFactor" not in unmet:
            p = wrong[0]
            self.fail(
                "promise",
                f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}: "
                f"{self.now.factor[p]} replicas, {request.factor[p]} expected",
            )
