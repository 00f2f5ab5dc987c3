"""A plan: ordered actions with their reasons, what they achieve, and how good that is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from cluster_model.errors import InputError
from cluster_model.files import write_atomically
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot

PLAN_SCHEMA_VERSION = 1

ActionKind = Literal["move", "leadership", "move_disk", "add", "remove"]


class PlanError(InputError):
    """A plan that cannot be read or does not fit its snapshot."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Action(_Record):
    """One step: brokers by id, disks by path, bytes copied.

    ``helped`` gives, for each goal the step serves, by how much it raises the lower of
    the contentments it touches, in (0, 1]; ``hurt`` likewise what it costs. Moves with the
    same ``group`` stand together, and are one: those of partitions that talk to one
    another, from the same broker to the same other. What they help and hurt is told of the
    whole.
    """

    kind: ActionKind
    topic: str
    partition: int
    source: int | None
    destination: int | None
    source_disk: str | None = None
    destination_disk: str | None = None
    leader: bool = False
    bytes: float = 0.0
    helped: dict[str, float] = {}
    hurt: dict[str, float] = {}
    group: int | None = None


class Spread(_Record):
    """How a column is spread over the brokers: in its unit, and worst / fair share."""

    mean: float
    max: float
    min: float
    std: float
    worst_ratio: float


class ColumnResult(_Record):
    """A resource or count, before and after; no plan gets `worst_ratio` below the bound."""

    before: Spread
    after: Spread
    worst_ratio_bound: float


class GoalResult(_Record):
    """A goal, before and after: cells not content, and the mean contentment in [0, 1]."""

    goal: str
    hard: bool
    tier: int
    weight: float
    met_before: bool
    met_after: bool
    unmet_cells_before: int
    unmet_cells_after: int
    contentment_before: float
    contentment_after: float


class Unmet(_Record):
    """A goal the plan does not reach.

    ``proven`` tells a goal that no placement can meet (with the reason and the cure)
    from one that the search did not reach.
    """

    goal: str
    hard: bool
    proven: bool
    reason: str
    cure: str = ""
    brokers_to_add: int = 0
    racks_to_add: int = 0


class AllocationResult(_Record):
    """How far an allocation of key groups came (seed 001, Section 4.3).

    ``distance`` is the load distance in percent points of the `resource` that is balanced,
    before, after, and what no allocation within the budget gets below; ``local`` the share
    of all communication that stays on a broker.
    """

    strategy: Literal["milp", "albic"]
    resource: str
    distance_before: float
    distance_after: float
    distance_bound: float
    local_before: float
    local_after: float


class Summary(_Record):
    """What a plan does and how good it is.

    ``balancedness`` is 100 where every goal is met; each unmet goal costs its share,
    1.1 times that of the goal below it, hard ones 1.5 times that (Cruise Control's).
    ``bytes_bound`` is what any plan meeting the same goals must copy at least.
    ``group_moves`` are moves of whole groups; what they move is among the replica moves.
    """

    replica_moves: int
    leadership_moves: int
    disk_moves: int
    replicas_added: int
    replicas_removed: int
    bytes_moved: float
    bytes_bound: float
    bytes_total: float
    balancedness_before: float
    balancedness_after: float
    left_out: int
    exhausted: str | None = None
    group_moves: int = 0


class PlanDocument(_Record):
    """A plan as it is written: the shape of its JSON."""

    schema_version: int = PLAN_SCHEMA_VERSION
    operation: dict[str, Any]
    goals: tuple[dict[str, Any], ...]
    summary: Summary
    columns: dict[str, ColumnResult]
    goal_results: tuple[GoalResult, ...]
    unmet: tuple[Unmet, ...]
    actions: tuple[Action, ...]
    allocation: AllocationResult | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """The way from a snapshot to a better placement.

    Parameters
    ----------
    snapshot
        Where the plan starts.
    placement
        Where it ends; a replica that stays keeps its slot.
    summary, columns, goal_results, unmet
        See the classes.
    allocation
        What the strategies ``milp`` and ``albic`` achieved; None with goals alone.
    """

    snapshot: Snapshot
    placement: Placement
    operation: dict[str, Any]
    goals: tuple[dict[str, Any], ...]
    summary: Summary
    columns: dict[str, ColumnResult]
    goal_results: tuple[GoalResult, ...]
    unmet: tuple[Unmet, ...]
    rows: ActionRows
    allocation: AllocationResult | None = None

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """The ordered steps."""
        return tuple(self.rows.actions(self.snapshot))

    @property
    def ok(self) -> bool:
        """Whether every goal is met after the plan."""
        return not self.unmet

    def __len__(self) -> int:
        return len(self.rows.kind)

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"Plan({s.replica_moves} moves, {s.leadership_moves} leadership transfers, "
            f"{s.bytes_moved:.3g} bytes, {len(self.unmet)} goals unmet)"
        )

    def document(self) -> PlanDocument:
        """The plan as plain records."""
        return PlanDocument(
            operation=self.operation,
            goals=self.goals,
            summary=self.summary,
            columns=self.columns,
            goal_results=self.goal_results,
            unmet=self.unmet,
            actions=self.actions,
            allocation=self.allocation,
        )

    def to_json(self) -> str:
        """The plan's own JSON; equal inputs give equal bytes."""
        return json.dumps(self.document().model_dump(mode="json"), indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_json` to a file, atomically."""
        write_atomically(Path(path), lambda f: f.write(self.to_json().encode()))

    def final_snapshot(self) -> Snapshot:
        """The cluster after the plan: a partition's leader is its preferred replica."""
        s, final = self.snapshot, self.placement
        brokers, leader = preference_lists(self)
        kept = brokers >= 0
        disk: dict[str, Any] = {}
        if s.n_disks:
            disks = final.replica_disk.reshape(-1, final.slots)
            disk["replica_disk"] = np.take_along_axis(disks, ranked_slots(self), 1)[kept]
        return replace(
            s,
            replica_offset=np.concatenate([[0], np.cumsum(kept.sum(1))]),
            replica_broker=brokers[kept],
            leader=leader,
            **disk,
        )


def ranked_slots(plan: Plan) -> Ints:
    """(P, F) slots in the new preference order: unchanged partitions keep theirs.

    The leader comes first where the plan changed the partition; replicas on demoted
    brokers come last.
    """
    final, start = plan.placement, Placement(plan.snapshot, plan.placement.slots)
    slot = np.arange(final.slots)
    changed = (final.brokers != start.brokers).any(1) | (final.leader != start.leader)
    key = np.where(final.brokers < 0, 300, 100) + slot
    demoted = plan.rows.demoted
    if demoted.any():
        key = key + 100 * ((final.brokers >= 0) & demoted[final.brokers])
        changed = changed | (demoted[final.brokers] & (final.brokers >= 0)).any(1)
    key = np.where(slot == final.leader[:, None], 0, key)
    key = np.where(changed[:, None], key, np.where(final.brokers < 0, 300, slot))
    return np.argsort(key, axis=1, kind="stable")


def preference_lists(plan: Plan) -> tuple[Ints, Ints]:
    """(P, F) broker indices in the new preference order (-1 last), and (P,) leader's position."""
    rank = ranked_slots(plan)
    brokers = np.take_along_axis(plan.placement.brokers, rank, 1)
    leader = (rank == plan.placement.leader[:, None]).argmax(1)
    untouched = plan.snapshot.leader < 0
    same = np.isin(np.arange(len(leader)), plan.rows.partition)
    return brokers, np.where(untouched & ~same, -1, leader)


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
    bytes: Floats
    diff: Floats
    names: tuple[str, ...]
    demoted: Bools
    group: Ints

    def actions(self, s: Snapshot) -> Iterator[Action]:
        """One record a row."""
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
            self.bytes.tolist(),
            self.group.tolist(),
        )
        which, goal = np.nonzero(np.abs(self.diff) > 1e-9)
        effects: list[tuple[dict[str, float], dict[str, float]]] = [
            ({}, {}) for _ in range(len(self.kind))
        ]
        values = np.round(self.diff[which, goal], 9).tolist()
        for i, g, value in zip(which.tolist(), goal.tolist(), values, strict=True):
            effects[i][value < 0][self.names[g]] = abs(value)
        for (kind, p, a, b, da, db, leads, size, group), (helped, hurt) in zip(
            zip(*columns, strict=True), effects, strict=True
        ):
            yield Action.model_construct(
                kind=kind,
                topic=s.topics[topic[p]],
                partition=number[p],
                source=ids[a],
                destination=ids[b],
                source_disk=paths[da],
                destination_disk=paths[db],
                leader=leads,
                bytes=size,
                helped=helped,
                hurt=hurt,
                group=group if group >= 0 else None,
            )


def load_plan(path: str | Path) -> PlanDocument:
    """Read a plan's own JSON.

    Raises
    ------
    PlanError
        Where the file is missing, not JSON or not a plan, in one sentence.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PlanError(f"plan file {path}: {reason}") from None
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise PlanError(f"plan file {path}: not JSON: {error}") from None
    if not isinstance(raw, dict) or raw.get("schema_version") != PLAN_SCHEMA_VERSION:
        found = raw.get("schema_version") if isinstance(raw, dict) else None
        raise PlanError(
            f"plan file {path}: schema_version {found!r} found, {PLAN_SCHEMA_VERSION} expected"
        )
    try:
        return PlanDocument.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise PlanError(f"plan file {path}: {place}: {first['msg']}") from None
