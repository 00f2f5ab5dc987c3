"""Reads the limits that a plan obeys in place of those that no placement keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from balancer.planning.document import PlanDocument, RelaxedLimit
from goals import Goal
from metrics_reporter.quantities import distinct


def used_limits(plan: PlanDocument) -> dict[str, RelaxedLimit]:
    """The limits that were used, by name of their goal."""
    return {g.goal: g.relaxed for g in plan.goal_results if g.relaxed is not None}


def with_used_limits(
    plan: PlanDocument, known: tuple[dict[str, Any], ...], objects: Mapping[str, Goal]
) -> tuple[tuple[dict[str, Any], ...], dict[str, Goal]]:
    """The goals that steps obey: fields, and objects by name, with the limits that were used."""
    used, of = used_limits(plan), dict(objects)
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
    for name, limit in used_limits(plan).items():
        configured, used = distinct(limit.configured, limit.used)
        if limit.healing:
            found.append(
                f"{name}: {limit.parameter} {configured} is exceeded already and yields to what is "
                f"on dead brokers and disks ({limit.reason}); the steps of this plan keep {used}"
            )
            continue
        found.append(
            f"{name}: no placement keeps {limit.parameter} {configured} ({limit.reason}); "
            f"the steps of this plan keep {used}"
        )
    return found
