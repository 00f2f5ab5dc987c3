"""Puts the nearest feasible limit in place of one that no placement keeps, or that must yield."""

from __future__ import annotations

from collections.abc import Iterable

from cluster_model.errors import InputError
from goals import Cluster, Goal, GoalError, Relaxation
from goals.capacity import Ceiling
from metrics_reporter.plugins import fault_of
from metrics_reporter.quantities import distinct


def nearest_feasible(
    goals: Iterable[Goal], cluster: Cluster, room: float, heals: bool = False
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
    heals
        Whether replicas leave dead brokers or disks: hard limits that are exceeded already then
        yield to what they need.
    """
    used: list[Goal] = []
    replaced: dict[str, tuple[Goal, Relaxation]] = {}
    for goal in goals:
        with (
            fault_of(f"goal {goal.name}: relaxed failed", GoalError, InputError),
            cluster.placement.locked(),
        ):
            found = goal.relaxed(cluster, room)
            if heals and goal.hard and isinstance(goal, Ceiling):
                wider = goal.yielding(cluster, room)
                if wider is not None and (found is None or wider.used > found.used):
                    found = wider
        if found is None:
            used.append(goal)
            continue
        replaced[goal.name] = goal, found
        used.append(goal.model_copy(update={found.parameter: found.used}).prepared(cluster))
    return tuple(used), replaced


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
    if found.healing:
        return (
            f"{name}: {found.parameter} {configured} is exceeded already and yields to what is on "
            f"dead brokers and disks ({found.reason}); the steps of this plan keep {used}"
        )
    return (
        f"{name}: no placement keeps {found.parameter} {configured} ({found.reason}); "
        f"the steps of this plan keep {used}"
    )
