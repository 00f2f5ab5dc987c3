"""Lists the parts of a plan that a check does not cover, and why."""

from __future__ import annotations

from collections.abc import Iterator

from balancer.verification.effects import shares_unknown
from balancer.verification.relaxed import used_limits
from balancer.verification.relief import has_relief, improved
from balancer.verification.replay import Replay
from balancer.verification.report import Unchecked

_OF_SIZING = {
    "least": "it is checked that no placement is below it, not that it is the largest bound",
    "reason": "its wording; the number of brokers that it proves is checked",
    "proof": "that plans with one broker fewer failed; a certificate or a minimum is checked",
    "fewer_tried": "planning for fewer brokers is not repeated",
    "text": "its wording; the numbers are checked where they are fields of their own",
}


def unchecked_parts(replay: Replay) -> Iterator[Unchecked]:
    """The parts of a plan that are not checked, and why."""
    plan, stated = replay.plan, replay.stated
    if replay.request.kind.known:
        yield Unchecked("operation", "what was asked for; the plan is checked against it")
    else:
        yield from _of_unknown_operation(replay)
    yield Unchecked("budget", "what was asked for; the plan is checked against it")
    yield Unchecked("goals", "what was asked for; the plan is checked against them")
    yield Unchecked("goals_left_out", "goals missing here: the plan does not name its profile")
    yield Unchecked("summary.left_out", "depends on what the search tried")
    yield Unchecked("summary.blocked", "depends on what the search tried")
    yield Unchecked("summary.exhausted", "depends on when the search stopped")
    for name in ("summary.cost_bound", "columns[].worst_ratio_bound"):
        yield Unchecked(
            name, "it is checked that no placement is below it, not that it is the largest bound"
        )
    if plan.verdict is not None and replay.request.kind.known:
        yield Unchecked("verdict.sentence", "its wording; whether and how much is left is checked")
    if plan.allocation is not None:
        yield Unchecked("allocation.strategy", "how the placement was found")
        yield Unchecked(
            "allocation.distance_bound", "from the solver; only checked that no result beats it"
        )
    if plan.unmet and replay.cut_short:
        yield Unchecked("unmet", "proofs depend on replicas that the plan does not state")
    if any(not u.proven for u in plan.unmet):
        yield Unchecked(
            "unmet[].reason",
            "without a proof: only that it is one of the known reasons, not what stops actions",
        )
    if plan.sizing is not None:
        for field, reason in _OF_SIZING.items():
            yield Unchecked(f"sizing.{field}", reason)
    if plan.remedy is not None and plan.remedy.tried:
        yield Unchecked("remedy.tried", "planning for the larger cluster is not repeated")
    for name, value in (("digest", plan.digest), *plan.identity):
        where = name if name == "digest" else f"identity.{name}"
        if value is None and name != "taken_ms":
            yield Unchecked(where, "the plan does not state it")
    if plan.actions and not plan.replicas:
        yield Unchecked("replicas", "the plan does not state them")
    if not plan.relief and has_relief(plan):
        yield Unchecked("relief", "the plan does not state it")
    elif plan.relief and any(r.goal in stated.foreign for r in improved(plan)):
        yield Unchecked("relief[].relief", "it depends on goals of other packages")
    yield Unchecked("identity.taken_ms", "a later snapshot of an unchanged cluster is the same")
    for goal in plan.goals:
        name = str(goal.get("name"))
        if name in stated.foreign:
            hard = name in stated.hard
            by = "by its own code alone" if name in stated.objects else "by nothing: not installed"
            what = "is hard, and " if hard else ""
            yield Unchecked(f"goals[{name}]", f"{name} {what}is checked {by}", hard)
    for known in replay.goals:
        if shares_unknown(replay, known):
            reason = "its fair shares depend on replicas that the plan does not state"
            yield Unchecked(f"goals[{known['name']}]", f"{known['name']}: {reason}", known["hard"])
    if replay.cut:
        yield Unchecked("columns[].after.worst_ratio", "fair shares as before: the plan was cut")
        if used_limits(plan):
            reason = "their proofs depend on replicas that the plan does not state"
            yield Unchecked("goals[].relaxed", reason)


def _of_unknown_operation(replay: Replay) -> Iterator[Unchecked]:
    """Parts that depend on an operation unknown to the checker."""
    plan, name = replay.plan, replay.request.kind_name
    yield Unchecked(
        "operation",
        f"{name!r} is not known to the check: what it allows to move, to receive and to lead, "
        "and what it promises",
        hard=True,
    )
    hard = [str(g.get("name")) for g in plan.goals if g.get("hard")]
    which = f"; hard goals are {', '.join(hard)}" if hard else ""
    yield Unchecked("goal_results", f"goals depend on what {name!r} allows{which}", hard=bool(hard))
    fields = ["actions[].helped", "actions[].hurt", "columns", "warnings"]
    fields += ["unmet"] if plan.unmet else []
    fields += ["verdict"] if plan.verdict is not None else []
    fields += ["remedy"] if plan.remedy is not None else []
    fields += ["allocation.distance"] if plan.allocation is not None else []
    for field in fields:
        yield Unchecked(field, f"depends on what {name!r} allows")
