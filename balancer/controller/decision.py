"""The controller's decision in a round, with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from balancer.controller.execution_progress import executed_unit
from balancer.controller.finding import Finding, span
from balancer.controller.protocols import ExecutionOutcome
from balancer.planning.document import Unmet
from balancer.planning.plan import Plan
from balancer.problem.operations import OPERATIONS
from goals.availability import EligibleLeaders, OnlineReplicas
from metrics_reporter.quantities import cost_amount, plural

DecisionKind = Literal[
    "balanced",
    "trivial",
    "waiting",
    "cooling",
    "stale",
    "reported",
    "unfixable",
    "nothing_helps",
    "insufficient_gain",
    "proposed",
    "started",
    "executing",
    "stopping",
    "executed",
    "recovered",
    "standby",
    "error",
]
# Kinds that people are notified of; the others appear on the state page.
NOTIFIED_KINDS: frozenset[str] = frozenset(
    {"proposed", "started", "executed", "stopping", "recovered", "error"}
)

_AVAILABILITY_GOALS = (OnlineReplicas().name, EligibleLeaders().name)


@dataclass(frozen=True)
class Decision:
    """The result of a round.

    Parameters
    ----------
    time
        Seconds since 1970.
    kind
        ``balanced``: nothing is wrong. ``trivial``: too little is wrong. ``waiting``: too
        early, or the model knows too little. ``cooling``: too soon after the last action.
        ``stale``: metrics of some brokers are too old to act on. ``reported``: this detector only
        reports.
        ``unfixable``: too much is broken. ``nothing_helps``, ``insufficient_gain``: the plan is
        empty, or gains too little. ``proposed``: a plan, in a dry run. ``started``,
        ``executing``, ``stopping``, ``executed``: stages of an execution. ``recovered``: what
        a dead execution left behind was cleaned up. ``standby``: another controller acts.
        ``error``: the round failed.
    reason
        One sentence.
    cause
        The detector whose finding was decisive; None if nothing is wrong.
    findings
        Everything found in the round.
    facts
        Figures behind the reason.
    plan
        The plan in figures, if one was made.
    outcome
        The outcome of an execution.
    """

    time: float
    kind: DecisionKind
    reason: str
    cause: str | None = None
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    outcome: Mapping[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """The decision as JSON-compatible data."""
        return {
            "time": self.time,
            "kind": self.kind,
            "reason": self.reason,
            "cause": self.cause,
            "findings": [f.record() for f in self.findings],
            "facts": dict(self.facts),
            "plan": None if self.plan is None else dict(self.plan),
            "outcome": None if self.outcome is None else dict(self.outcome),
        }


def plan_record(plan: Plan, seconds: float) -> dict[str, Any]:
    """A plan in figures, and the seconds it took to make."""
    summary = plan.summary
    ratios = {
        name: {"before": c.before.worst_ratio, "after": c.after.worst_ratio}
        for name, c in plan.columns.items()
    }
    # Many partitions may stay; their number is enough.
    many = {"partitions_excluded": "excluded_partitions", "partitions_frozen": "frozen_partitions"}
    operation = {k: v for k, v in plan.operation.items() if k not in many.values()}
    operation |= {count: len(plan.operation.get(names, ())) for count, names in many.items()}
    return {
        "operation": operation,
        "actions": len(plan),
        **summary.model_dump(mode="json"),
        "worst_ratios": ratios,
        "unmet": [u.goal for u in plan.unmet],
        "seconds": seconds,
    }


def unmet_first(plan: Plan) -> list[Unmet]:
    """The goals that the plan leaves unmet, those it was made for first.

    Dead replicas have their own plan; other plans that leave them alone need not say so.
    """
    heals = OPERATIONS.get(plan.operation["kind"]).heals
    return sorted(plan.unmet, key=lambda u: not heals and u.goal in _AVAILABILITY_GOALS)


def plan_sentence(plan: Plan) -> str:
    """A plan as a short phrase."""
    s = plan.summary
    counts = (
        (s.replica_moves, "replica move", "replica moves"),
        (s.leadership_moves, "leadership transfer", "leadership transfers"),
        (s.disk_moves, "disk move", "disk moves"),
        (s.replicas_added, "replica added", "replicas added"),
        (s.replicas_removed, "replica removed", "replicas removed"),
    )
    does = ", ".join(plural(n, one, more) for n, one, more in counts if n)
    left = unmet_first(plan)
    unmet = "" if plan.ok or not left else f"; unmet after it: {left[0].goal}, {left[0].reason}"
    cost = f", {cost_amount(s.cost, s.cost_unit)}" if s.cost else ""
    return (
        f"{does or 'nothing to do'}{cost}, balancedness {s.balancedness_before:.0f} to "
        f"{s.balancedness_after:.0f}{unmet}"
    )


def outcome_record(outcome: ExecutionOutcome, unit: str = "bytes") -> dict[str, Any]:
    """The outcome of an execution, in figures; None for what is not known.

    `unit` is that of the plan's costs.
    """
    known = executed_unit(unit, outcome.bytes_moved) is not None
    return {
        "state": outcome.state,
        "completed": outcome.completed,
        "failed": outcome.failed,
        "cancelled": outcome.cancelled,
        "bytes_moved": outcome.bytes_moved if known else None,
        "seconds": outcome.seconds,
        "problems": list(outcome.problems),
        "differences": list(outcome.differences),
    }


def outcome_sentence(outcome: ExecutionOutcome, unit: str = "bytes") -> str:
    """The outcome of an execution whose costs are in a unit, as a short phrase."""
    reported = f"{outcome.state} after {span(outcome.seconds)}"
    if (counted := executed_unit(unit, outcome.bytes_moved)) is not None:
        reported += f", {cost_amount(outcome.bytes_moved, counted)} moved"
    if outcome.failed or outcome.cancelled:
        reported += f", {plural(outcome.failed, 'task')} failed and {outcome.cancelled:,} cancelled"
    if outcome.problems:
        reported += f": {outcome.problems[0]}"
    if outcome.differences:
        reported += f"; the cluster is not as planned: {outcome.differences[0]}"
    return reported
