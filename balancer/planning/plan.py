"""A plan: ordered actions with reasons, what they achieve, and how good the result is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from balancer.allocation.result import AllocationResult
from balancer.planning.document import (
    Action,
    ActionKind,
    ColumnResult,
    GoalResult,
    Identity,
    PlanDocument,
    ReliefPoint,
    Remedy,
    Sizing,
    Summary,
    Unmet,
    compact,
    plan_json,
)
from balancer.planning.further_actions import PlanEnd
from balancer.planning.why_not import WhyNot, why_not
from balancer.problem.budget import Budget
from balancer.problem.verdict import Verdict
from cluster_model.files import write_atomically
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from metrics_reporter.quantities import cost_amount, plural

# What changes a contentment by less is no effect of an action.
LEAST_EFFECT = 1e-9


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps from a snapshot to a better placement, and what they achieve.

    Parameters
    ----------
    snapshot
        Where the plan starts.
    placement
        Where it ends; a replica that stays keeps its slot.
    end
        The same, as goals, rules and limits judge further actions.
    summary, columns, goal_results, unmet
        See the classes.
    goals_left_out
        Goals of a profile that do not apply to the snapshot -> what the snapshot lacks.
    warnings
        Parts of the request that match nothing, one sentence each.
    demoted
        Brokers that stay, and that the request bars from leading: their replicas come last in
        the preference order of every partition.
    verdict
        Whether the operation is fulfilled; None for a rebalance.
    allocation
        What the strategies ``milp`` and ``albic`` achieved; None for other strategies.
    trial
        Finds the remedy if the plan leaves goals unmet.
    relief
        What its first actions bring.
    unreached
        What a placement that meets more, but has no safe order, places otherwise than the end:
        partitions, by name, with their brokers, leaders first.
    sizing
        How many brokers meet all hard goals, if ``right_size`` was asked.
    """

    snapshot: Snapshot
    placement: Placement
    operation: dict[str, Any]
    end: PlanEnd
    goals: tuple[dict[str, Any], ...]
    summary: Summary
    columns: dict[str, ColumnResult]
    goal_results: tuple[GoalResult, ...]
    unmet: tuple[Unmet, ...]
    rows: ActionRows
    goals_left_out: dict[str, str]
    warnings: tuple[str, ...]
    demoted: tuple[int | str, ...] = ()
    verdict: Verdict | None = None
    allocation: AllocationResult | None = None
    trial: Callable[[Plan], Remedy | None] | None = None
    relief: tuple[ReliefPoint, ...] = ()
    unreached: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    sizing: Sizing | None = None

    @cached_property
    def remedy(self) -> Remedy | None:
        """What would make unmet goals possible, computed on first access."""
        return None if self.trial is None or not self.unmet else self.trial(self)

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """The ordered steps."""
        return tuple(self.rows.actions(self.snapshot))

    @property
    def budget(self) -> Budget:
        """The limits of the plan."""
        return self.end.budget

    @property
    def ok(self) -> bool:
        """Whether every goal is met after the plan."""
        return not self.unmet

    def __len__(self) -> int:
        return len(self.rows.kind)

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"Plan({plural(s.replica_moves, 'move')}, "
            f"{plural(s.leadership_moves, 'leadership transfer')}, "
            f"{cost_amount(s.cost, s.cost_unit)}, {plural(len(self.unmet), 'goal')} unmet)"
        )

    @cached_property
    def identity(self) -> Identity:
        """The cluster and the snapshot that the plan is for."""
        s = self.snapshot
        return Identity(
            cluster_id=s.cluster_id,
            taken_ms=s.taken_ms,
            metadata_version=s.metadata_version,
            snapshot_digest=s.digest(),
        )

    @property
    def digest(self) -> str | None:
        """A hash of the plan's content: equal for equal plans, and kept in its file."""
        return self.document().digest

    def document(self) -> PlanDocument:
        """The plan as plain records."""
        found = self._document(self.actions, self.rows.replicas(self.snapshot))
        return found.model_copy(update={"digest": found.content_digest})

    def _document(
        self, actions: tuple[Action, ...], replicas: dict[str, tuple[int | str, ...]]
    ) -> PlanDocument:
        return PlanDocument(
            identity=self.identity,
            operation=self.operation,
            budget=self.budget,
            goals=self.goals,
            goals_left_out=self.goals_left_out,
            warnings=self.warnings,
            summary=self.summary,
            columns=self.columns,
            goal_results=self.goal_results,
            unmet=self.unmet,
            actions=actions,
            replicas=replicas,
            demoted=self.demoted,
            verdict=self.verdict,
            allocation=self.allocation,
            remedy=self.remedy,
            relief=self.relief,
            unreached=self.unreached,
            sizing=self.sizing,
        )

    def to_json(self) -> str:
        """The plan's own JSON, with one action or partition a line; equal inputs give equal bytes.

        The same as that of :meth:`document`, without a record in memory for each action.
        """
        s, rows = self.snapshot, self.rows
        return plan_json(self._document((), {}), rows.action_lines(s), rows.replica_lines(s))

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_json` to a file, atomically."""
        write_atomically(Path(path), lambda f: f.write(self.to_json().encode()))

    def why_not(self, partition: str, broker: int | str) -> tuple[WhyNot, ...]:
        """What would put a partition on a broker at the end of the plan, and what stops it.

        Parameters
        ----------
        partition
            Its name, like ``orders-3``.
        broker
            The id of a broker.

        Returns
        -------
        tuple
            One action for each replica that could move there, the most promising first. If the
            broker has a replica, the transfer of leadership to it; none if it leads.

        Raises
        ------
        InputError
            If the snapshot has no such partition or broker.
        """
        return why_not(self.end, partition, broker)

    def final_snapshot(self) -> Snapshot:
        """The cluster after the plan: a partition's leader is its preferred replica."""
        s, final = self.snapshot, self.placement
        brokers, leader = preference_lists(self)
        kept = brokers >= 0
        more: dict[str, Any] = {}
        if s.n_disks:
            disks = final.replica_disk.reshape(-1, final.slots)
            more["replica_disk"] = np.take_along_axis(disks, ranked_slots(self), 1)[kept]
        if len(s.warming):
            # a replica that moved was copied in full
            key = np.arange(s.n_partitions)[:, None] * s.n_brokers + brokers
            warm = (s.replica_partition * s.n_brokers + s.replica_broker)[s.warming]
            leads = np.arange(brokers.shape[1]) == leader[:, None]
            more["warming"] = (np.isin(key, warm) & ~leads)[kept]
        return replace(
            s,
            replica_offset=np.concatenate([[0], np.cumsum(kept.sum(1))]),
            replica_broker=brokers[kept],
            leader=leader,
            **more,
        )


def ranked_slots(plan: Plan) -> Ints:
    """(P, F) slots in the new preference order: unchanged partitions keep theirs.

    The leader comes first if the plan changed the partition; replicas on demoted
    brokers come last.
    """
    final, start = plan.placement, Placement(plan.snapshot, plan.placement.slots)
    slot, last = np.arange(final.slots), 2 * final.slots
    changed = (final.brokers != start.brokers).any(1) | (final.leader != start.leader)
    key = np.where(final.brokers < 0, last, 0) + slot
    demoted = plan.rows.demoted
    if demoted.any():
        key = key + final.slots * ((final.brokers >= 0) & demoted[final.brokers])
        changed = changed | (demoted[final.brokers] & (final.brokers >= 0)).any(1)
    key = np.where(slot == final.leader[:, None], -1, key)
    key = np.where(changed[:, None], key, np.where(final.brokers < 0, last, slot))
    return np.argsort(key, axis=1, kind="stable")


def preference_lists(plan: Plan) -> tuple[Ints, Ints]:
    """(P, F) broker indices in the new preference order (-1 last), and (P,) leader's position."""
    rank = ranked_slots(plan)
    brokers = np.take_along_axis(plan.placement.brokers, rank, 1)
    leader = (rank == plan.placement.leader[:, None]).argmax(1)
    without = plan.snapshot.leader < 0
    if without.all() and len(plan.rows.partition):
        # Nothing is known about leaders: in each partition, the first replica is assumed to lead.
        return brokers, np.where((brokers >= 0).any(1), leader, -1)
    same = np.isin(np.arange(len(leader)), plan.rows.partition)
    return brokers, np.where(without & ~same, -1, leader)


@dataclass(frozen=True)
class ActionRows:
    """The actions of a plan as arrays of A rows; brokers, disks, groups are numbers, -1 none."""

    kind: tuple[ActionKind, ...]
    partition: Ints
    source: Ints
    target: Ints
    source_disk: Ints
    target_disk: Ints
    leads: Bools
    cost: Floats
    diff: Floats
    names: tuple[str, ...]
    demoted: Bools
    group: Ints

    def replicas(self, s: Snapshot) -> dict[str, tuple[int | str, ...]]:
        """``topic-partition`` of every changed partition -> its replicas before the plan."""
        ids = s.broker_ids.tolist()
        return {
            f"{s.topics[t]}-{n}": tuple([ids[b] for b in held]) for t, n, held in self._changed(s)
        }

    def replica_lines(self, s: Snapshot) -> list[str]:
        """The JSON of :meth:`replicas`, each entry by itself, in ascending order of the names."""
        ids = list(map(compact, s.broker_ids.tolist()))
        topics = [compact(topic)[:-1] for topic in s.topics]
        lines = [
            (f"{s.topics[t]}-{n}", f'{topics[t]}-{n}":[{",".join([ids[b] for b in held])}]')
            for t, n, held in self._changed(s)
        ]
        return [line for _, line in sorted(lines)]

    def _changed(self, s: Snapshot) -> Iterator[tuple[int, int, list[int]]]:
        """Topic and number of every changed partition, and the brokers it had."""
        changed = np.array(list(dict.fromkeys(self.partition.tolist())), np.int64)
        held, at = s.replica_broker.tolist(), s.replica_offset
        columns = (s.partition_topic, s.partition_number, at[:-1], at[1:])
        for t, n, first, end in zip(*(x[changed].tolist() for x in columns), strict=True):
            yield t, n, held[first:end]

    def action_lines(self, s: Snapshot) -> list[str]:
        """The JSON of :meth:`actions`, each by itself: a plan may have a million of them."""
        ids = [*map(compact, s.broker_ids.tolist()), "null"]
        paths = [*map(compact, s.disk_path), "null"]
        topics = list(map(compact, s.topics))
        kinds = {kind: compact(kind) for kind in set(self.kind)}
        groups = ["null" if group < 0 else str(group) for group in self.group.tolist()]
        helped, hurt = self._effect_lines()
        columns = (
            _texts(self.cost),
            self.target.tolist(),
            self.target_disk.tolist(),
            groups,
            helped,
            hurt,
            self.kind,
            self.leads.tolist(),
            s.partition_number[self.partition].tolist(),
            self.source.tolist(),
            self.source_disk.tolist(),
            s.partition_topic[self.partition].tolist(),
        )
        return [
            f'{{"cost":{cost},"destination":{ids[b]},"destination_disk":{paths[db]},'
            f'"group":{group},"helped":{{{more}}},"hurt":{{{less}}},"kind":{kinds[kind]},'
            f'"leader":{"true" if leads else "false"},"partition":{number},"source":{ids[a]},'
            f'"source_disk":{paths[da]},"topic":{topics[t]}}}'
            for cost, b, db, group, more, less, kind, leads, number, a, da, t in zip(
                *columns, strict=True
            )
        ]

    def _effect_lines(self) -> tuple[list[str], list[str]]:
        """The goals that each action serves, and those that it hurts, without braces."""
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        names = [f"{compact(self.names[i])}:" for i in order]
        ordered = self.diff[:, order]
        which, place = np.nonzero(np.abs(ordered) > LEAST_EFFECT)
        value = np.round(ordered[which, place], 9)
        texts = zip(place.tolist(), _texts(np.abs(value)), strict=True)
        each = [names[k] + text for k, text in texts]
        found = []
        for rows in (np.flatnonzero(value > 0), np.flatnonzero(value < 0)):
            first = np.searchsorted(which[rows], np.arange(len(self.kind) + 1)).tolist()
            own = [each[i] for i in rows.tolist()]
            found.append([",".join(own[i:j]) for i, j in pairwise(first)])
        return found[0], found[1]

    def actions(self, s: Snapshot) -> Iterator[Action]:
        """One record per row."""
        ids = [*s.broker_ids.tolist(), None]
        paths = [*s.disk_path, None]
        topic, number = s.partition_topic.tolist(), s.partition_number.tolist()
        columns = (
            self.kind,
            self.partition.tolist(),
            self.source.tolist(),
            self.target.tolist(),
            self.source_disk.tolist(),
            self.target_disk.tolist(),
            self.leads.tolist(),
            self.cost.tolist(),
            self.group.tolist(),
        )
        which, goal = np.nonzero(np.abs(self.diff) > LEAST_EFFECT)
        effects = list(
            zip(goal.tolist(), np.round(self.diff[which, goal], 9).tolist(), strict=True)
        )
        first = np.searchsorted(which, np.arange(len(self.kind) + 1)).tolist()
        for i, (kind, p, a, b, da, db, leads, size, group) in enumerate(zip(*columns, strict=True)):
            own = effects[first[i] : first[i + 1]]
            yield Action.model_construct(
                kind=kind,
                topic=s.topics[topic[p]],
                partition=number[p],
                source=ids[a],
                destination=ids[b],
                source_disk=paths[da],
                destination_disk=paths[db],
                leader=leads,
                cost=size,
                helped={self.names[g]: value for g, value in own if value > 0},
                hurt={self.names[g]: -value for g, value in own if value < 0},
                group=group if group >= 0 else None,
            )


def _texts(values: Floats) -> list[str]:
    """The JSON of each number."""
    return compact(values.tolist())[1:-1].split(",") if len(values) else []
