"""A plan: ordered actions with their reasons, what they achieve, and how good that is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    Strict,
    ValidationError,
    field_validator,
)

from cluster_model.errors import InputError
from cluster_model.files import write_atomically
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from metrics_reporter.documents import (
    DocumentError,
    Number,
    Whole,
    first_problem,
    read_document,
    shown,
)
from metrics_reporter.quantities import amount, plural

PLAN_SCHEMA_VERSION = 1

ActionKind = Literal["move", "leadership", "move_disk", "add", "remove"]


# A number of things, as large as a float can be; whether it is true is for the check to say.
Count = Annotated[int, Strict(), Field(gt=-(10**300), lt=10**300)]


class PlanError(InputError):
    """A plan that cannot be read or does not fit its snapshot."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Action(_Record):
    """One step: brokers by id, disks by path, bytes copied.

    ``helped`` gives, for each goal the step serves, by how much it raises the lower of
    the contentments it touches, in (0, 1]; ``hurt`` likewise what it costs. Moves with the
    same ``group`` stand together, and are one: those of partitions that talk to one
    another, from the same broker to the same other. What they help and hurt is stated for the
    whole.
    """

    kind: ActionKind
    topic: str
    partition: Whole
    source: Whole | None
    destination: Whole | None
    source_disk: str | None = None
    destination_disk: str | None = None
    leader: bool = False
    bytes: Annotated[Number, Field(ge=0)] = 0.0
    helped: dict[str, Number] = {}
    hurt: dict[str, Number] = {}
    group: Whole | None = None


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
    tier: Count
    weight: float
    met_before: bool
    met_after: bool
    unmet_cells_before: Count
    unmet_cells_after: Count
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
    brokers_to_add: Count = 0
    racks_to_add: Count = 0
    broker_set: str = ""


class Remedy(_Record):
    """Brokers whose addition makes unmet goals possible.

    ``tried`` says what has been tried (a plan for the cluster with these brokers meets the
    goals, and every hard goal that this one meets) from what certificates say alone: with
    fewer, the goals cannot be met.
    """

    goals: tuple[str, ...]
    brokers: Count
    racks: Count
    tried: bool
    text: str


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

    replica_moves: Count
    leadership_moves: Count
    disk_moves: Count
    replicas_added: Count
    replicas_removed: Count
    bytes_moved: float
    bytes_bound: float
    bytes_total: float
    balancedness_before: float
    balancedness_after: float
    left_out: Count
    exhausted: str | None = None
    group_moves: Count = 0


class Identity(_Record):
    """The cluster that a plan is for; None where its snapshot does not say.

    Parameters
    ----------
    cluster_id
        Id of the cluster; the execution refuses another one.
    taken_ms
        When the snapshot was taken, ms since 1970.
    metadata_version
        The cluster's ``metadata.version`` at that time.
    snapshot_digest
        :meth:`cluster_model.Snapshot.digest` of the snapshot.

    Examples
    --------
    A plan that is not made from a snapshot of Kafka states its cluster itself:

    >>> Identity(cluster_id="Y291bnRlcnBvaXNlLXRlcw").cluster_id
    'Y291bnRlcnBvaXNlLXRlcw'
    """

    cluster_id: str | None = None
    taken_ms: int | None = None
    metadata_version: int | None = None
    snapshot_digest: str | None = None


class PlanDocument(_Record):
    """A plan as it is written: the shape of its JSON."""

    schema_version: int = PLAN_SCHEMA_VERSION
    identity: Identity = Identity()
    digest: str | None = None
    operation: dict[str, Any]
    goals: Annotated[tuple[dict[str, Any], ...], FailFast()]
    goals_left_out: dict[str, str] = {}
    warnings: Annotated[tuple[str, ...], FailFast()] = ()
    summary: Summary
    columns: dict[str, ColumnResult]
    goal_results: Annotated[tuple[GoalResult, ...], FailFast()]
    unmet: Annotated[tuple[Unmet, ...], FailFast()]
    actions: Annotated[tuple[Action, ...], FailFast()]
    replicas: dict[str, Annotated[tuple[Whole, ...], Field(min_length=1)]] = {}
    allocation: AllocationResult | None = None
    remedy: Remedy | None = None

    @property
    def content_digest(self) -> str:
        """A hash (SHA-256, hex) of all but `digest`, which equals it unless the plan was changed.

        It shows that the plan to be executed is the one that was approved; it does not
        show who made it.
        """
        # A plan from before `replicas` was stated keeps its digest.
        unstated = set() if self.replicas else {"replicas"}
        content = self.model_dump(mode="json", exclude={"digest"} | unstated)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @field_validator("goals")
    @classmethod
    def _have_names(cls, goals: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for place, goal in enumerate(goals):
            if not isinstance(goal.get("goal"), str) or not isinstance(goal.get("name"), str):
                raise ValueError(f"entry {place}: goal and name, as text, expected")
        return goals

    @field_validator("operation")
    @classmethod
    def _names_its_kind(cls, operation: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(operation.get("kind"), str):
            raise ValueError("a kind of operation, as text, expected")
        return operation


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
    goals_left_out
        Goals of a profile that do not apply to the snapshot -> what it lacks.
    warnings
        What was asked for and matches nothing, one sentence each.
    allocation
        What the strategies ``milp`` and ``albic`` achieved; None with goals alone.
    trial
        Finds the remedy of a plan that leaves goals unmet.
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
    goals_left_out: dict[str, str]
    warnings: tuple[str, ...]
    allocation: AllocationResult | None = None
    trial: Callable[[Plan], Remedy | None] | None = None

    @cached_property
    def remedy(self) -> Remedy | None:
        """What would make unmet goals possible, worked out when it is first asked for."""
        return None if self.trial is None or not self.unmet else self.trial(self)

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
            f"Plan({plural(s.replica_moves, 'move')}, "
            f"{plural(s.leadership_moves, 'leadership transfer')}, "
            f"{amount(s.bytes_moved)}, {plural(len(self.unmet), 'goal')} unmet)"
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
        found = PlanDocument(
            identity=self.identity,
            operation=self.operation,
            goals=self.goals,
            goals_left_out=self.goals_left_out,
            warnings=self.warnings,
            summary=self.summary,
            columns=self.columns,
            goal_results=self.goal_results,
            unmet=self.unmet,
            actions=self.actions,
            replicas=self.rows.replicas(self.snapshot),
            allocation=self.allocation,
            remedy=self.remedy,
        )
        return found.model_copy(update={"digest": found.content_digest})

    def to_json(self) -> str:
        """The plan's own JSON; equal inputs give equal bytes."""
        document = self.document().model_dump(mode="json")
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

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

    def replicas(self, s: Snapshot) -> dict[str, tuple[int, ...]]:
        """``topic-partition`` of every partition changed -> its replicas before the plan."""
        at, brokers = s.replica_offset, s.broker_ids[s.replica_broker]
        return {
            f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}": tuple(
                brokers[at[p] : at[p + 1]].tolist()
            )
            for p in dict.fromkeys(self.partition.tolist())
        }

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
        raw = read_document(path, "a plan", format="json")
    except DocumentError as error:
        raise PlanError(f"plan file {path}: {error}") from None
    except (OSError, ValueError) as error:
        raise PlanError(f"plan file {path}: {getattr(error, 'strerror', None) or error}") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if type(version) is not int or version != PLAN_SCHEMA_VERSION:
        raise PlanError(
            f"plan file {path}: schema_version {shown(version)} found, "
            f"{PLAN_SCHEMA_VERSION} expected"
        )
    try:
        return PlanDocument.model_validate(raw)
    except ValidationError as error:
        raise PlanError(f"plan file {path}: {first_problem(error)}") from None
