"""Checks each goal before and after the plan, and the statements about unmet goals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from balancer.verification.effects import (
    CONTENTMENT_TOLERANCE,
    by_own_code,
    shares_unknown,
)
from balancer.verification.goals import TOLERANCE, definition_of
from balancer.verification.own_code import cluster_of, own_scores
from balancer.verification.relations import NOUNS, relation_of
from balancer.verification.relaxed import used_limits
from balancer.verification.replay import Replay
from balancer.verification.replicas import GROUP, ReplicaTable
from balancer.verification.report import Fault
from balancer.verification.too_large import too_large_proofs
from balancer.verification.unmet import UnmetGoal, remedy_faults, unmet_faults
from balancer.verification.unreached import unreached_table
from cluster_model.snapshot import Floats
from goals import Infeasibility
from metrics_reporter.quantities import plural

# A goal is judged slightly strictly and slightly laxly; stated figures must agree with either.
_STRICT, _LAX = 0.25 * TOLERANCE, 4 * TOLERANCE


def goal_scores(
    replay: Replay,
    goal: Mapping[str, Any],
    table: ReplicaTable,
    tolerances: Sequence[float] = (_STRICT, TOLERANCE, _LAX),
) -> list[Floats]:
    """(cells,) contentment by tolerance: strictly, as defined, and laxly; empty if unknown."""
    if shares_unknown(replay, goal):
        return []
    if by_own_code(replay, goal):
        own = replay.stated.objects[goal["name"]].prepared(cluster_of(replay.base, replay.request))
        return len(tolerances) * [own_scores(own, cluster_of(table, replay.request))]
    definitions = [definition_of(goal, replay.shared, replay.request, t) for t in tolerances]
    return [definition.everywhere(table) for definition in definitions if definition is not None]


def goal_faults(replay: Replay) -> Iterator[Fault]:
    """Each goal before and after: discontented cells, and the mean contentment."""
    plan = replay.plan
    stated = [g.get("name") for g in plan.goals]
    if [g.goal for g in plan.goal_results] != stated:
        yield Fault("goal_results", f"goal_results: one for each of {stated} in order expected")
    results = {g.goal: g for g in plan.goal_results}
    for goal in replay.configured:
        result = results.get(goal["name"])
        if result is None:
            continue
        for name in ("hard", "tier", "weight"):
            if getattr(result, name) != goal[name]:
                yield Fault(
                    "goal_results",
                    f"{result.goal}: {name} {getattr(result, name)}, {goal[name]} expected",
                )
        for when, table in (("before", replay.start), ("after", replay.now)):
            scores = goal_scores(replay, goal, table)
            if not scores:
                continue
            # A wider tolerance rounds the even share of a topic up too, and is not laxer there.
            unmet = np.stack(scores) < 1
            most, fewest = int(unmet.any(axis=0).sum()), int(unmet.all(axis=0).sum())
            cells = getattr(result, f"unmet_cells_{when}")
            if not fewest <= cells <= most:
                yield Fault(
                    f"goal {goal['goal']}",
                    f"{goal['name']}: {plural(cells, 'cell')} unmet {when} stated, {most} found",
                )
            mean = float(scores[1].mean()) if len(scores[1]) else 1.0
            if abs(getattr(result, f"contentment_{when}") - mean) > CONTENTMENT_TOLERANCE:
                yield Fault(
                    "contentment",
                    f"{goal['name']}: contentment_{when} "
                    f"{getattr(result, f'contentment_{when}'):.9g} stated, {mean:.9g} found",
                )
    for result in plan.goal_results:
        for when in ("before", "after"):
            cells, met = getattr(result, f"unmet_cells_{when}"), getattr(result, f"met_{when}")
            if met != (cells == 0):
                yield Fault(
                    "met", f"{result.goal}: met_{when} is wrong, {plural(cells, 'cell')} unmet"
                )
            mean = getattr(result, f"contentment_{when}")
            if not 0 <= mean <= 1 or (met and mean != 1):
                yield Fault("contentment", f"{result.goal}: contentment_{when} {mean} is wrong")


def _unmet_goal(replay: Replay, unreached: ReplicaTable | None, name: str) -> UnmetGoal:
    """The replay's result on a goal that is not met at the end."""
    goal = next((g for g in replay.configured if g["name"] == name), None)
    if goal is None:
        return UnmetGoal(name, "", "", None, None)
    own = replay.stated.objects.get(name)
    definition = definition_of(goal, replay.shared, replay.request)
    cells = None
    if definition is not None and not shares_unknown(replay, goal):
        cells = np.flatnonzero(definition.everywhere(replay.now) < 1)
    scope, noun = "", "topic placement"
    if definition is not None:
        scope = definition.scope
        noun = noun if scope.startswith("topic") else scope.removeprefix(GROUP)
        noun = NOUNS.get(relation_of(scope), noun)
    elif own is not None:
        scope, noun = own.scope.name, own.scope.noun
    proofs: Sequence[Infeasibility] | None = () if own is None else None
    if own is not None and not replay.cut_short:
        origin = cluster_of(replay.base, replay.request)
        proofs = own.prepared(origin).infeasibilities(origin)
    if name == "ReplicationFactor":
        proofs = too_large_proofs(replay)
    used, elsewhere = used_limits(replay.plan).get(name), bool(unreached is not None)
    if unreached is not None and (there := goal_scores(replay, goal, unreached, (_LAX,))):
        elsewhere = bool((there[0] >= 1).all())
    return UnmetGoal(goal["goal"], scope, noun, cells, proofs, used, elsewhere)


def unmet_goal_faults(replay: Replay) -> Iterator[Fault]:
    """Statements about unmet goals, and about brokers that would help."""
    plan, request = replay.plan, replay.request
    found = partial(_unmet_goal, replay, unreached_table(replay))
    for kind, text in unmet_faults(plan, request, replay.lost, found):
        yield Fault(kind, text)
    for text in remedy_faults(plan, request):
        yield Fault("remedy", text)
