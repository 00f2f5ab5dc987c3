"""Goals by Cruise Control's names: which of ours they stand for, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from balancer.composition.cruise_control.goals import EQUIVALENTS, converted, short_name
from balancer.planning.document import GoalResult
from balancer.server.errors import RequestError
from cluster_model.snapshot import Snapshot
from goals import Goal, applicable, load_goals
from metrics_reporter.documents import shown

DISK_GOALS = ("IntraBrokerDiskCapacityGoal", "IntraBrokerDiskUsageDistributionGoal")


def chosen_goals(
    names: Sequence[str], configured: Sequence[Goal], snapshot: Snapshot, *, skip_hard_check: bool
) -> list[Goal]:
    """Our goals for names of Cruise Control, in their order.

    A goal that the controller has keeps its configured thresholds.

    Parameters
    ----------
    names
        Classes, with or without their package; names of our goals are taken too.
    configured
        The controller's goals.
    snapshot
        The cluster: hard goals that do not apply to it may be left out.
    skip_hard_check
        Whether hard goals of the controller may be left out.

    Raises
    ------
    RequestError
        For a goal that is not known, or a hard one that is missing.
    """
    own = {goal.name: goal for goal in configured}
    short = tuple(dict.fromkeys(map(short_name, names)))
    found: dict[str, Goal] = {}
    for tier, name in enumerate(short):
        if name in EQUIVALENTS:
            entries, _ = converted([name], {}, [e.resource or "" for e in EQUIVALENTS[name]])
            made = [own.get(goal.name, goal) for goal in load_goals({"goals": entries})]
        elif name in own:
            made = [own[name]]
        else:
            raise RequestError(
                f"goals: {shown(name)} found, one of {', '.join([*EQUIVALENTS, *own])} expected"
            )
        for goal in made:
            found.setdefault(goal.name, goal.model_copy(update={"tier": tier}))
    if not skip_hard_check and not set(short) <= set(DISK_GOALS):
        hard = [g.name for g in applicable(configured, snapshot, strict=False) if g.hard]
        missing = [n for n in _named(hard) if n not in short]
        if missing:
            raise RequestError(
                f"Missing hard goals {missing} in the provided goals: {list(short)}. Add "
                "skip_hard_goal_check=true parameter to ignore this sanity check."
            )
    return list(found.values())


def goal_summary(results: Iterable[GoalResult]) -> list[dict[str, Any]]:
    """How each goal stands after a plan; several of ours may be one of Cruise Control's."""
    before: dict[str, bool] = {}
    after: dict[str, bool] = {}
    for result in results:
        for name in _named([result.goal]) or [result.goal]:
            before[name] = before.get(name, True) and result.met_before
            after[name] = after.get(name, True) and result.met_after
    return [
        {
            "goal": name,
            "status": "VIOLATED" if not met else "NO-ACTION" if before[name] else "FIXED",
            # Statistics after each single goal: a plan here serves all goals at once.
            "clusterModelStats": None,
        }
        for name, met in after.items()
    ]


def cruise_control_names(goals: Iterable[str]) -> list[str]:
    """Cruise Control's names of our goals; a goal that it does not have keeps its own."""
    found = [name for goal in goals for name in _named([goal]) or [goal]]
    return list(dict.fromkeys(found))


def _named(ours: Iterable[str]) -> list[str]:
    found = [
        name
        for goal in ours
        for name, parts in EQUIVALENTS.items()
        if goal in [part.label for part in parts]
    ]
    return list(dict.fromkeys(found))
