"""Checks the limits that a plan obeys in place of those that no placement keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor
from typing import TYPE_CHECKING, Any

from balancer.planning.document import PlanDocument, RelaxedLimit
from balancer.verification.own_code import cluster_of
from balancer.verification.report import Fault
from goals import Goal
from metrics_reporter.quantities import distinct

if TYPE_CHECKING:
    from balancer.verification.replay import Replay

# The most by which a limit may be above the least feasible one, as a share.
_MOST_ROOM = 0.1


def _limits(plan: PlanDocument) -> dict[str, RelaxedLimit]:
    return {g.goal: g.relaxed for g in plan.goal_results if g.relaxed is not None}


def with_used_limits(
    plan: PlanDocument, known: tuple[dict[str, Any], ...], objects: Mapping[str, Goal]
) -> tuple[tuple[dict[str, Any], ...], dict[str, Goal]]:
    """The goals that steps obey: fields, and objects by name, with the limits that were used."""
    used, of = _limits(plan), dict(objects)
    changed = tuple(
        goal | {used[goal["name"]].parameter: used[goal["name"]].used}
        if goal["name"] in used
        else goal
        for goal in known
    )
    for name in used.keys() & objects.keys():
        of[name] = objects[name].model_copy(update={used[name].parameter: used[name].used})
    return changed, of


def relaxation_warnings(plan: PlanDocument) -> list[str]:
    """The sentences that a plan must begin its warnings with."""
    found = []
    for name, limit in _limits(plan).items():
        configured, used = distinct(limit.configured, limit.used)
        found.append(
            f"{name}: no placement keeps {limit.parameter} {configured} ({limit.reason}); "
            f"the steps of this plan keep {used}"
        )
    return found


def relaxation_faults(replay: Replay) -> Iterator[Fault]:
    """Limits that were replaced without need, or by more than they had to be."""
    configured = {g["name"]: g for g in replay.stated.known}
    for name, limit in _limits(replay.plan).items():
        goal, own = configured.get(name), replay.stated.objects.get(name)
        if goal is None or goal.get(limit.parameter) != limit.configured:
            text = f"{name}: {limit.parameter} {limit.configured:g} is not a limit of the goal"
            yield Fault("relaxed", text)
            continue
        # what an unknown operation lets brokers receive is not known either
        if own is None or replay.cut_short or not replay.request.kind.known:
            continue
        cluster = cluster_of(replay.base, replay.request)
        proofs = own.prepared(cluster).infeasibilities(cluster)
        if not proofs:
            yield Fault("relaxed", f"{name}: its limit was replaced, and no proof found")
            continue
        if replay.base is replay.start and limit.reason != proofs[0].reason:
            yield Fault("relaxed", f"{name}: the proof is: {proofs[0].reason}")
        if name in replay.stated.foreign:
            continue
        least = limit.used / (1 + _MOST_ROOM) * (1 - 1e-6)
        if isinstance(goal[limit.parameter], int):
            least = max(floor((limit.used - 1) / (1 + _MOST_ROOM)), 1)
        tighter = own.model_copy(update={limit.parameter: least}).prepared(cluster)
        if not (limit.used > limit.configured and tighter.infeasibilities(cluster)):
            text = f"{name}: {limit.parameter} {limit.used:g} is more than the least feasible limit"
            yield Fault("relaxed", text)
