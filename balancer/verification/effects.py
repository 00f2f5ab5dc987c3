"""Checks how much each step helps or hurts each goal, and that no hard goal gets worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from balancer.verification.goals import OF_SHARES, definition_of
from balancer.verification.own_code import cluster_of, own_effects
from balancer.verification.replay import Replay
from balancer.verification.report import Fault, label
from cluster_model.snapshot import Bools, Floats

# Contentments are stated with nine decimals, and computed from rounded sums.
CONTENTMENT_TOLERANCE = 1e-7
# Hard goals whose limits are checked step by step, by their names in the plan.
_CHECKED_IN_REPLAY = {
    "ResourceCapacity",
    "HostCapacity",
    "GroupCapacity",
    "RackFailureCapacity",
    "ReplicaCapacity",
    "PotentialNetworkOut",
    "DiskCapacity",
    "RackAwareness",
    "RackAwareDistribution",
    "BrokerSetAwareness",
    "MinTopicLeaders",
    "ReplicationFactor",
}


@dataclass(frozen=True)
class UnitEffects:
    """The effect of each unit: on the lower contentment it touches, and whether a cell worsens.

    Of a goal that adds up: on all contentments together.
    """

    diff: Floats
    worse: Bools


def shares_unknown(replay: Replay, goal: Mapping[str, Any]) -> bool:
    """Whether a goal depends on fair shares that cannot be derived from the plan."""
    if by_own_code(replay, goal) or goal["goal"] == "DiskUsageDistribution":
        # the search's initial places for added replicas are unknown
        return replay.base is not replay.start
    if goal["goal"] == "BrokerSetAwareness":
        return replay.homeless
    return goal["goal"] in OF_SHARES and (replay.cut or replay.uncounted)


def effects_of(replay: Replay, goal: Mapping[str, Any]) -> UnitEffects | None:
    """The effect of each unit on a goal; None if unknown."""
    own = replay.objects.get(goal["name"]) if by_own_code(replay, goal) else None
    if own is not None and not replay.violations:
        began = cluster_of(replay.start, replay.request)
        diff, fall = own_effects(own.prepared(began), began, len(replay.units), replay.steps)
        if own.aggregate == "sum":
            fall = -diff
        return UnitEffects(diff, fall > CONTENTMENT_TOLERANCE)
    definition = definition_of(goal, replay.shared, replay.request)
    if definition is None or shares_unknown(replay, goal):
        return None
    units = len(replay.units)
    if definition.scope == "partition":
        unit, before = replay.rows(0)
        scores = [definition.of_rows(rows) for rows in (before, replay.rows(1)[1])]
    else:
        tally = replay.tallies[definition.scope, definition.column]
        unit, cell = np.array(tally.unit, np.int64), np.array(tally.cell, np.int64)
        scores = [definition.of_cells(cell, np.array(v)) for v in (tally.before, tally.after)]
    if definition.adds_up:
        total = np.bincount(unit, scores[1] - scores[0], units).astype(np.float64)
        return UnitEffects(total, total < -CONTENTMENT_TOLERANCE)
    lowest, worse = np.ones((2, units)), np.zeros(units)
    for low, score in zip(lowest, scores, strict=True):
        np.minimum.at(low, unit, score)
    np.add.at(worse, unit, scores[1] < scores[0] - CONTENTMENT_TOLERANCE)
    return UnitEffects(lowest[1] - lowest[0], worse > 0)


def by_own_code(replay: Replay, goal: Mapping[str, Any]) -> bool:
    """Whether a goal has no definition here, and is judged by its own code."""
    return goal["name"] in replay.stated.foreign


def worsened_hard_goals(replay: Replay) -> Iterator[Fault]:
    """Steps that leave a cell of a hard goal less content."""
    for goal in replay.goals:
        if not goal["hard"] or goal["goal"] in _CHECKED_IN_REPLAY:
            continue
        if (found := effects_of(replay, goal)) is None:
            continue
        for step in np.flatnonzero(found.worse).tolist():
            text = f"{label(replay.plan.actions[step])}: {goal['name']} is hard, and made worse"
            yield Fault("hard goal", text, step)


def reason_faults(replay: Replay) -> Iterator[Fault]:
    """By how much each step raises or lowers the lower contentment of what it touches."""
    plan = replay.plan
    names = {g.goal for g in plan.goal_results}
    for step, a in enumerate(plan.actions):
        for name, value in (*a.helped.items(), *a.hurt.items()):
            if name not in names or not 0 < value <= 1 or (name in a.helped and name in a.hurt):
                yield Fault("reasons", f"{label(a)}: reason {name} {value} is wrong", step)
    for goal in replay.goals:
        found = effects_of(replay, goal)
        if found is None:
            continue
        name, diff = goal["name"], found.diff.tolist()
        for step, (a, unit) in enumerate(zip(plan.actions, replay.units, strict=True)):
            stated = a.helped.get(name, 0.0) - a.hurt.get(name, 0.0)
            expected = 0.0 if unit is None else diff[unit]
            if abs(stated - expected) > CONTENTMENT_TOLERANCE:
                yield Fault(
                    "reasons",
                    f"{label(a)}: {name} {stated:+.9f} stated, {expected:+.9f} found",
                    step,
                )
