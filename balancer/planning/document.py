"""The JSON records of a plan, written and read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationError,
    field_validator,
    model_serializer,
)

from balancer.allocation.result import AllocationResult
from balancer.problem.budget import Budget
from balancer.problem.verdict import Verdict
from cluster_model.errors import InputError
from metrics_reporter.documents import (
    BrokerId,
    DocumentError,
    Number,
    Whole,
    first_problem,
    read_document,
    shown,
)

PLAN_SCHEMA_VERSION = 2

# Shares of a plan's cost for which it states its relief.
RELIEF_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


ActionKind = Literal["move", "leadership", "move_disk", "add", "remove"]


# A count of things, as large as a float can be; the checker verifies that it is right.
Count = Annotated[int, Strict(), Field(gt=-(10**300), lt=10**300)]


class PlanError(InputError):
    """A plan that cannot be read or does not fit its snapshot."""


class _PlanRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Action(_PlanRecord):
    """One step: brokers by id, disks by path, cost in the summary's unit.

    ``helped`` gives, for each goal the step serves, by how much it raises the lower of
    the contentments it touches, in (0, 1]; ``hurt`` likewise by how much it lowers that. Moves with
    the same ``group`` are adjacent and form one unit: partitions that communicate with one
    another and move from one broker to one other. Their ``helped`` and ``hurt`` are those of the
    whole unit.
    """

    kind: ActionKind
    topic: str
    partition: Whole
    source: BrokerId | None
    destination: BrokerId | None
    source_disk: str | None = None
    destination_disk: str | None = None
    leader: bool = False
    cost: Annotated[Number, Field(ge=0)] = 0.0
    helped: dict[str, Number] = {}
    hurt: dict[str, Number] = {}
    group: Whole | None = None


class Spread(_PlanRecord):
    """How a column is spread over the brokers: in its unit, and as worst / fair share."""

    mean: float
    max: float
    min: float
    std: float
    worst_ratio: float


class ColumnResult(_PlanRecord):
    """A resource or count, before and after; no plan has a `worst_ratio` below the bound."""

    before: Spread
    after: Spread
    worst_ratio_bound: float


class RelaxedLimit(_PlanRecord):
    """The limit that steps obey in place of one that is infeasible or yields to healing.

    ``parameter`` of the goal is ``configured``; what steps help and hurt is judged with ``used``.
    """

    parameter: str
    configured: Number
    used: Number
    reason: str
    healing: bool = False

    @model_serializer(mode="wrap")
    def _without_false(self, default: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A plan written before `healing` existed keeps its digest.
        found: dict[str, Any] = default(self)
        if not self.healing:
            found.pop("healing", None)
        return found


class GoalResult(_PlanRecord):
    """A goal, before and after: discontented cells, and the mean contentment in [0, 1].

    All as the goal is configured, even if its limit is ``relaxed``.
    """

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
    relaxed: RelaxedLimit | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, default: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A plan written before `relaxed` existed keeps its digest.
        found: dict[str, Any] = default(self)
        if self.relaxed is None:
            found.pop("relaxed", None)
        return found


class ReliefPoint(_PlanRecord):
    """What the first actions of a plan bring, which together take at most a share of its cost.

    Parameters
    ----------
    share
        Share of the plan's cost.
    actions, cost
        How many actions that is, those of a group only together, and what they cost.
    worst_ratio
        The largest load of a broker as a multiple of its fair share, of all columns.
    relief
        Share of what the whole plan adds to a goal's contentment, as the weighted mean over the
        goals to which it adds more than `least_gain`.
    """

    least_gain: ClassVar[float] = 1e-6

    share: Annotated[Number, Field(gt=0, lt=1)]
    actions: Whole
    cost: Annotated[Number, Field(ge=0)]
    worst_ratio: Number
    relief: Number


class Unmet(_PlanRecord):
    """A goal that the plan does not reach.

    ``proven`` distinguishes a goal that no placement can meet (with reason and remedy)
    from one that the search did not reach.
    """

    goal: str
    hard: bool
    proven: bool
    reason: str
    remedy: str = ""
    brokers_to_add: Count = 0
    racks_to_add: Count = 0
    broker_set: str = ""


class Remedy(_PlanRecord):
    """Brokers whose addition makes unmet goals possible.

    ``tried`` distinguishes a remedy that was tried (a plan for the cluster with these
    brokers meets the goals, and every hard goal that this one meets) from a lower bound by
    certificates: with fewer brokers, the goals cannot be met.
    """

    goals: tuple[str, ...]
    brokers: Count
    racks: Count
    tried: bool
    text: str


class Sizing(_PlanRecord):
    """How many brokers meet all hard goals, as ``right_size`` found it.

    Parameters
    ----------
    brokers_before
        Living brokers of the cluster as it is.
    brokers
        Living brokers that hold replicas in the end: fewer, as many, or with those to add.
    emptied
        Brokers that the plan empties.
    added
        Brokers of the plan's snapshot that do not exist yet: the plan is carried out after they
        do.
    met
        Whether a plan without a limit on moves meets all hard goals with this number.
    least
        No placement on fewer brokers meets them: a certificate.
    reason
        Why; empty if nothing asks for more than one.
    fewer_tried
        Choices of brokers, one broker fewer, for which a plan was tried that met fewer goals.
    proof
        Why one broker fewer is not the answer: ``certificate``, it is below `least`; ``search``,
        no plan was found for `fewer_tried` choices; ``every choice``, and all others have too
        little room; ``minimum``,
        the request asks for no fewer; ``none``, the number does not meet the goals, or the
        search ended early.
    text
        The same as a sentence.
    """

    brokers_before: Count
    brokers: Count
    emptied: Annotated[tuple[BrokerId, ...], FailFast()] = ()
    added: Annotated[tuple[BrokerId, ...], FailFast()] = ()
    met: bool
    least: Count
    reason: str
    fewer_tried: Count
    proof: Literal["certificate", "search", "every choice", "minimum", "none"]
    text: str


class Summary(_PlanRecord):
    """What a plan does and how good it is.

    ``balancedness`` is 100 if every goal is met; each unmet goal costs its share, 1.1 times
    that of the goal below it, hard ones 1.5 times that (Cruise Control's definition).
    ``cost_bound`` is the least that any plan that meets the same goals must pay, ``cost_total``
    what moving every replica once would cost, all in ``cost_unit``. ``group_moves`` are moves of
    whole groups; their replicas count among the replica moves. ``blocked`` names what stops the
    first action that was left out, once all steps with a safe order are done.
    """

    replica_moves: Count
    leadership_moves: Count
    disk_moves: Count
    replicas_added: Count
    replicas_removed: Count
    cost: float
    cost_bound: float
    cost_total: float
    balancedness_before: float
    balancedness_after: float
    left_out: Count
    exhausted: str | None = None
    cost_unit: str = "bytes"
    group_moves: Count = 0
    blocked: str = ""

    @property
    def limited_moves(self) -> int:
        """What counts towards the limit on moves."""
        return self.replica_moves + self.disk_moves + self.replicas_added


def limit_reached(exhausted: str, budget: Budget, moves: int) -> str:
    """What ended a plan early, as a clause: a limit of the budget, or a request to stop.

    Parameters
    ----------
    exhausted
        Of the plan's summary.
    budget
        The limits of the plan.
    moves
        What the plan takes of the limit on moves.

    Examples
    --------
    >>> limit_reached("budget", Budget(moves=5, moves_per_rack=2), 5)
    'the limit on moves was reached'
    >>> limit_reached("budget", Budget(moves=5, cost=1e9, moves_per_rack=2), 4)
    'limited by cost and moves per rack'
    """
    if exhausted == "stopped":
        return "the search was stopped"
    if exhausted == "seconds":
        return "the limit on seconds was reached"
    if budget.moves is not None and moves >= budget.moves:
        return "the limit on moves was reached"
    limits = [name for name in _LIMITS if getattr(budget, name) is not None]
    return f"limited by {' and '.join(limits or ['moves'])}".replace("_", " ")


_LIMITS = ("cost", "moves_per_broker", "moves_per_rack")


class Identity(_PlanRecord):
    """The cluster that a plan is for; None if its snapshot does not state it.

    Parameters
    ----------
    cluster_id
        Id of the cluster; execution refuses any other.
    taken_ms
        When the snapshot was taken, ms since 1970.
    metadata_version
        The cluster's ``metadata.version`` at that time.
    snapshot_digest
        :meth:`cluster_model.Snapshot.digest` of the snapshot.

    Examples
    --------
    A plan whose snapshot does not come from Kafka states its cluster itself:

    >>> Identity(cluster_id="Y291bnRlcnBvaXNlLXRlcw").cluster_id
    'Y291bnRlcnBvaXNlLXRlcw'
    """

    cluster_id: str | None = None
    taken_ms: int | None = None
    metadata_version: int | None = None
    snapshot_digest: str | None = None


class PlanDocument(_PlanRecord):
    """A plan in the shape of its JSON."""

    schema_version: int = PLAN_SCHEMA_VERSION
    identity: Identity = Identity()
    digest: str | None = None
    operation: dict[str, Any]
    budget: Budget = Budget()
    goals: Annotated[tuple[dict[str, Any], ...], FailFast()]
    goals_left_out: dict[str, str] = {}
    warnings: Annotated[tuple[str, ...], FailFast()] = ()
    summary: Summary
    columns: dict[str, ColumnResult]
    goal_results: Annotated[tuple[GoalResult, ...], FailFast()]
    unmet: Annotated[tuple[Unmet, ...], FailFast()]
    actions: Annotated[tuple[Action, ...], FailFast()]
    replicas: dict[str, tuple[BrokerId, ...]] = {}
    demoted: Annotated[tuple[BrokerId, ...], FailFast()] = ()
    verdict: Verdict | None = None
    allocation: AllocationResult | None = None
    remedy: Remedy | None = None
    relief: Annotated[tuple[ReliefPoint, ...], FailFast()] = ()
    unreached: dict[str, tuple[BrokerId, ...]] = {}
    sizing: Sizing | None = None

    @property
    def content_digest(self) -> str:
        """A hash (SHA-256, hex) of all fields but `digest`, which equals it in an unchanged plan.

        It shows that the executed plan is the approved one; it does not show who made it.
        """
        unstated = {} if self.replicas else {"replicas": True}
        content = self.model_dump(mode="json", exclude={"digest": True} | unstated | self.unstated)
        return hashlib.sha256(compact(content).encode()).hexdigest()

    @property
    def unstated(self) -> dict[str, Any]:
        """What the digest leaves out: plans from before these fields existed keep theirs."""
        found: dict[str, Any] = {"budget": True} if self.budget == Budget() else {}
        for name in ("relief", "unreached", "sizing"):
            if not getattr(self, name):
                found[name] = True
        if "blocked" not in self.summary.model_fields_set:
            found["summary"] = {"blocked"}
        return found

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


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def compact(value: Any) -> str:
    """JSON as it is hashed: without spaces, keys in ascending order, finite numbers."""
    return _ENCODER.encode(value)


_BRACKETS = {"actions": ("[", "]"), "replicas": ("{", "}")}
# Lines that are hashed at once.
_PORTION = 10_000


def plan_json(document: PlanDocument, actions: list[str], replicas: list[str]) -> str:
    """The JSON of a plan, with its digest, and one action or changed partition a line.

    Parameters
    ----------
    document
        The plan without a digest, actions and replicas.
    actions, replicas
        The text of each of these, as :func:`compact` writes it, which the digest and the file
        share: a plan may have a million of them. Replicas are in ascending order of their names.
    """
    lines = {"actions": actions, "replicas": replicas}
    content = document.model_dump(mode="json", exclude={"digest", *lines})
    # as `content_digest` does
    stated = document.model_dump(
        mode="json", exclude={"digest": True, **dict.fromkeys(lines, True)} | document.unstated
    )
    names = {*stated, "actions", *(["replicas"] if replicas else [])}
    hashed = hashlib.sha256()
    for place, name in enumerate(sorted(names)):
        hashed.update(f'{"," if place else "{"}"{name}":'.encode())
        if name not in lines:
            hashed.update(compact(stated[name]).encode())
            continue
        first, last = _BRACKETS[name]
        hashed.update(first.encode())
        for at in range(0, len(lines[name]), _PORTION):
            portion = ",".join(lines[name][at : at + _PORTION])
            hashed.update(f"{',' if at else ''}{portion}".encode())
        hashed.update(last.encode())
    hashed.update(b"}")
    content["digest"] = hashed.hexdigest()
    parts: list[str] = []
    separator = "{\n"
    for name in type(document).model_fields:
        parts.append(f'{separator} "{name}": ')
        separator = ",\n"
        if name in lines:
            first, last = _BRACKETS[name]
            start, end = ("\n  ", "\n ") if lines[name] else ("", "")
            parts += [first, start, ",\n  ".join(lines[name]), end, last]
        else:
            text = json.dumps(content[name], indent=1, allow_nan=False)
            parts.append(text.replace("\n", "\n "))
    return "".join([*parts, "\n}\n"])


def load_plan(path: str | Path) -> PlanDocument:
    """Read a plan's own JSON.

    Raises
    ------
    PlanError
        If the file is missing, not JSON or not a plan, in one sentence.
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
