"""Puts the nearest feasible limit in place of one that no placement keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cluster_model.errors import InputError
from goals import Cluster, Goal, GoalError, Relaxation
from metrics_reporter.plugins import fault_of
from metrics_reporter.quantities import distinct


def nearest_feasible(
    goals: Iterable[Goal],
    cluster: Cluster,
    room: float,
    given: Mapping[str, Relaxation] | None = None,
) -> tuple[tuple[Goal, ...], dict[str, tuple[Goal, Relaxation]]]:
    """Goals with limits that can be kept; by name those whose limit was replaced, as given.

    Parameters
    ----------
    goals
        Prepared goals, hard and soft: either kind would veto what other goals need.
    cluster
        The cluster at the start.
    room
        See :meth:`goals.Goal.relaxed`.
    given
        By name of their goal, limits to use in any case.
    """
    used: list[Goal] = []
    replaced: dict[str, tuple[Goal, Relaxation]] = {}
    for goal in goals:
        found = (given or {}).get(goal.name)
        if found is None:
            with fault_of(f"goal {goal.name}: relaxed failed", GoalError, InputError):
                found = goal.relaxed(cluster, room)
        if found is None:
            used.append(goal)
            continue
        replaced[goal.name] = goal, found
        used.append(goal.model_copy(update={found.parameter: found.used}).prepared(cluster))
    return tuple(used), replaced


_AFTER_PLAN = " after this plan"


def holds_after_plan(relaxation: Relaxation) -> bool:
    """Whether its proof is one about the end of the plan; see :func:`infeasible_after`."""
    return relaxation.reason.endswith(_AFTER_PLAN)


def infeasible_after(
    goals: Iterable[Goal], ended: Cluster, room: float, known: Mapping[str, Relaxation]
) -> dict[str, Relaxation]:
    """Limits by goal that no placement keeps once a plan is carried out.

    What brokers keep that receive nothing needs no room elsewhere until a plan moves it: then the
    other brokers may have too little for a limit that could be kept before, and a plan for the
    result would replace it.

    Parameters
    ----------
    goals
        As configured.
    ended
        The cluster at the end of the plan.
    room
        See :meth:`goals.Goal.relaxed`.
    known
        The limits that the plan replaces. One that is proven infeasible at the start is returned
        only if the end needs a higher one.
    """
    relaxed = nearest_feasible((g.prepared(ended) for g in goals), ended, room)[1]
    return {
        name: replace(found, reason=found.reason + _AFTER_PLAN)
        for name, (_, found) in relaxed.items()
        if name not in known or holds_after_plan(known[name]) or found.used > known[name].used
    }


def relaxation_warning(name: str, found: Relaxation) -> str:
    """The sentence that reports a replaced limit.

    Examples
    --------
    >>> reason = "replicas: 300 needed, 200 within limits"
    >>> relaxation_warning("ReplicaCapacity", Relaxation("limit", 100, 158, reason))
    'ReplicaCapacity: no placement keeps limit 100 (replicas: 300 needed, 200 within limits); the \
steps of this plan keep 158'
    """
    configured, used = distinct(found.configured, found.used)
    return (
        f"{name}: no placement keeps {found.parameter} {configured} ({found.reason}); "
        f"the steps of this plan keep {used}"
    )
