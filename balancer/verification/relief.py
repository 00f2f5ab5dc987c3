"""Checks what a plan states of the relief that its first actions bring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from balancer.planning.document import RELIEF_SHARES, Action, GoalResult, PlanDocument, ReliefPoint
from balancer.verification.effects import CONTENTMENT_TOLERANCE
from balancer.verification.figures import columns_of, largest_ratio
from balancer.verification.goal_results import goal_scores
from balancer.verification.goals import TOLERANCE
from balancer.verification.replay import Replay
from balancer.verification.replicas import ReplicaTable
from balancer.verification.report import Fault, agree
from cluster_model.snapshot import Floats


def improved(plan: PlanDocument) -> list[GoalResult]:
    """The goals whose contentment a plan raises."""
    return [
        r
        for r in plan.goal_results
        if r.contentment_after - r.contentment_before > ReliefPoint.least_gain
    ]


def has_relief(plan: PlanDocument) -> bool:
    """Whether there is a relief that a plan could state."""
    changes = any(action.kind in ("add", "remove") for action in plan.actions)
    return bool(improved(plan)) and plan.summary.cost > 0 and not changes


def relief_faults(replay: Replay) -> Iterator[Fault]:
    """Each point of the curve: its place, its cost, how even the cluster is, and its relief."""
    plan, points = replay.plan, replay.plan.relief
    if not points:
        return
    if [point.share for point in points] != list(RELIEF_SHARES):
        yield Fault("relief", f"relief: one point for each of {list(RELIEF_SHARES)} expected")
    if not has_relief(plan):
        yield Fault("relief", "relief: none expected without cost, gain, or the same replicas")
        return
    paid = np.append(0.0, np.cumsum([action.cost for action in plan.actions]))
    better = improved(plan)
    # of few actions, many points are at the same one
    found_at: dict[int, tuple[float | None, tuple[float, float] | None]] = {}
    for point in points:
        where = f"relief at {point.share:g}"
        if not _is_place(point, plan.actions, paid):
            yield Fault("relief", f"{where}: {point.actions} actions are not what it pays for")
            continue
        if not agree(point.cost, float(paid[point.actions])):
            found = paid[point.actions]
            yield Fault("relief", f"{where}: cost {point.cost:.9g}, {found:.9g} found")
        if point.actions not in found_at:
            table = replay.prefixes[point.actions]
            found_at[point.actions] = _worst_ratio(replay, table), _relief(replay, better, table)
        ratio, relief = found_at[point.actions]
        if ratio is not None and not agree(point.worst_ratio, ratio):
            yield Fault(
                "relief", f"{where}: worst_ratio {point.worst_ratio:.9g}, {ratio:.9g} found"
            )
        if relief is not None and abs(point.relief - relief[0]) > relief[1]:
            yield Fault("relief", f"{where}: relief {point.relief:.9g}, {relief[0]:.9g} found")


def _worst_ratio(replay: Replay, table: ReplicaTable) -> float | None:
    """The largest load of a broker at a table, of all columns; None for unknown operations."""
    if not replay.request.kind.known:
        return None
    return max(largest_ratio(replay, c, table) for c in columns_of(replay).values())


def _is_place(point: ReliefPoint, actions: Sequence[Action], paid: Floats) -> bool:
    """Whether the point is where the share of the cost ends, with groups kept whole."""
    most, n = point.share * paid[-1], point.actions
    if n > len(actions) or paid[n] > most * (1 + 1e-6):
        return False
    if n == len(actions):
        return True
    group = actions[n].group
    if group is None:
        return bool(paid[n + 1] >= most * (1 - 1e-6))
    if n and actions[n - 1].group == group:
        return False
    end = next((i for i in range(n, len(actions)) if actions[i].group != group), len(actions))
    return bool(paid[end] >= most * (1 - 1e-6))


def _relief(
    replay: Replay, better: Sequence[GoalResult], table: ReplicaTable
) -> tuple[float, float] | None:
    """The relief at a table, and by how much a stated one may differ; None if unknown."""
    goals = {goal["name"]: goal for goal in replay.configured}
    total = weights = slack = 0.0
    for result in better:
        # a goal that the replay cannot score leaves the relief unknown
        scores = (
            goal_scores(replay, goals[result.goal], table, (TOLERANCE,))
            if result.goal in goals
            else []
        )
        if not scores:
            return None
        gain = result.contentment_after - result.contentment_before
        mean = float(scores[0].mean()) if len(scores[0]) else 1.0
        total += result.weight * (mean - result.contentment_before) / gain
        slack += result.weight * 3 * CONTENTMENT_TOLERANCE / gain
        weights += result.weight
    return (total / weights, slack / weights + 1e-6) if weights else None
