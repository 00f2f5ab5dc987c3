"""The goals that a plan states: known ones, unknown ones, and errors in the list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from balancer.planning.document import PlanDocument
from balancer.verification.operations import kind_of
from balancer.verification.relaxed import relaxation_warnings
from balancer.verification.stated_request import StatedRequest
from cluster_model.errors import InputError
from cluster_model.placement import Placement
from cluster_model.snapshot import Snapshot
from goals import Cluster, Goal, GoalError, inapplicable, unmatched
from goals.costs import Cost
from goals.patterns import matching
from goals.registry import BUILT_IN, stated_goal

_AVAILABILITY_GOALS = ("OnlineReplicas", "EligibleLeaders")
_GOALS_OF_REQUESTS = ("EmptyBrokers", "ReplicationFactor")


@dataclass(frozen=True)
class StatedGoals:
    """The goals of a plan.

    Parameters
    ----------
    known
        All fields, including defaults, of goals that the checker may have a definition of.
    objects
        Name -> the goal, if its class is known.
    foreign
        Names of goals that do not come with Counterpoise.
    hard
        Names of foreign goals that are hard.
    wrong
        What is wrong with the list: a kind, and a sentence.
    """

    known: tuple[dict[str, Any], ...]
    objects: dict[str, Goal]
    foreign: tuple[str, ...]
    hard: frozenset[str]
    wrong: tuple[tuple[str, str], ...]

    @staticmethod
    def of(plan: PlanDocument, request: StatedRequest) -> StatedGoals:
        """Read the goals, and what the plan states about them."""
        snapshot = request.snapshot
        known, objects, foreign, hard = [], {}, [], set()
        wrong: list[tuple[str, str]] = []
        kinds = [stated.get("goal") for stated in plan.goals]
        empties_first = "EmptyBrokers" in kinds
        for place, stated in enumerate(plan.goals):
            kind, name = stated.get("goal"), stated.get("name")
            if not isinstance(kind, str) or not isinstance(name, str):
                wrong.append(("goals", f"goals, entry {place}: goal and name expected"))
                continue
            tier = int(empties_first and kind != "EmptyBrokers")
            fields: dict[str, Any] = {"hard": True, "weight": 1.0, "tier": tier}
            if kind not in _GOALS_OF_REQUESTS:
                try:
                    goal = stated_goal(kind, stated)
                except GoalError as error:
                    if kind in BUILT_IN:
                        wrong.append(("goals", f"goals, entry {place}: {error}"))
                    else:
                        foreign.append(name)
                        hard |= {name} if stated.get("hard", True) else set()
                    continue
                fields = goal.model_dump(mode="json")
                fields["name"] = goal.name
                lacks = (
                    list(inapplicable([goal], snapshot).values())
                    or _unknown_sets(goal, snapshot)
                    or _refused(goal, request)
                )
                if lacks:
                    wrong.append(("goals", lacks[0]))
                    continue
                objects[name] = goal
                if type(goal) is not BUILT_IN.get(kind):
                    foreign.append(name)
                    hard |= {name} if goal.hard else set()
            full = {"goal": kind, "name": kind} | fields
            if full != stated:
                different = sorted(
                    k for k in {*full, *stated} if full.get(k, ...) != stated.get(k, ...)
                )
                wrong.append(
                    (
                        "goals",
                        f"goals, entry {place}: {kind}: {different[0]} is not as it should be",
                    )
                )
            known.append(full | {"name": name})
        names = [g.get("name") for g in plan.goals]
        wrong += [
            ("goals", f"goals: {name} expected once, as in every plan")
            for name in _AVAILABILITY_GOALS
            if names.count(name) != 1
        ]
        wrong += _first_goal_faults(kinds, snapshot, request)
        wrong += [("goals", f"goals: {n} twice") for n in {*names} if names.count(n) > 1]
        wrong += _remarks(plan, snapshot, objects)
        return StatedGoals(tuple(known), objects, tuple(foreign), frozenset(hard), tuple(wrong))


def _first_goal_faults(
    kinds: Sequence[Any], s: Snapshot, request: StatedRequest
) -> Iterator[tuple[str, str]]:
    """``EmptyBrokers`` comes first if brokers are emptied and other replicas must leave too."""
    if not request.kind.known:
        return
    broker = s.replica_broker
    mine = request.emptied[broker]
    others = request.draining[broker] | request.forbidden(s.replica_partition, broker)
    if s.n_disks:
        others |= ~np.append(s.disk_alive, True)[s.replica_disk]
    expected = bool(mine.any() and (others & ~mine).any())
    if ("EmptyBrokers" in kinds[:1]) != expected or kinds.count("EmptyBrokers") > 1:
        yield "goals", f"goals: EmptyBrokers {'first' if expected else 'nowhere'} expected"


def _unknown_sets(goal: Goal, snapshot: Snapshot) -> list[str]:
    sets = {*getattr(goal, "sets", {}).values()} - {*snapshot.broker_sets}
    return [f"goal {goal.name}: the snapshot has no broker set {name!r}" for name in sorted(sets)]


def _refused(goal: Goal, request: StatedRequest) -> list[str]:
    """Why a cost does not fit the cluster: its scale, or values of an attribute."""
    if not isinstance(goal, Cost):
        return []
    width = int(request.factor.max(initial=1))
    placement = Placement(request.snapshot, width)
    try:
        goal.prepared(Cluster(placement, request.eligible, request.may_lead, request.draining))
    except InputError as error:
        return [str(error)]
    return []


def _remarks(
    plan: PlanDocument, snapshot: Snapshot, objects: Mapping[str, Goal]
) -> Iterator[tuple[str, str]]:
    """Errors in the goals that a profile left out, and in the warnings."""
    for name, reason in plan.goals_left_out.items():
        kind, _, resource = name.removesuffix("]").partition("[")
        resource, _, attribute = resource.partition(" by ")
        fields = {"goal": kind, "resource": resource, "attribute": attribute}
        try:
            goal = stated_goal(kind, {name: value for name, value in fields.items() if value})
        except GoalError as error:
            yield "goals_left_out", f"goals_left_out: {error}"
            continue
        found = inapplicable([goal], snapshot).get(name)
        if found != reason or name in {g.get("name") for g in plan.goals}:
            yield "goals_left_out", f"goals_left_out: {name}: {reason!r} stated, {found!r} found"
    excluded = [
        f"excluded_topics: {pattern!r} matches none of the snapshot's topics"
        for pattern in plan.operation.get("excluded_topics", ())
        if not matching(pattern, snapshot.topics).any()
    ]
    of_plan = [objects[g["name"]] for g in plan.goals if g.get("name") in objects]
    # a profile's goals without a pattern have no remark
    relaxed = relaxation_warnings(plan)
    expected = [
        relaxed + unmatched(of_plan, snapshot, strict) + excluded for strict in (True, False)
    ]
    # an unknown operation may have its own warnings
    if kind_of(plan.operation).known and list(plan.warnings) not in expected:
        yield "warnings", f"warnings: {list(plan.warnings)} stated, {expected[0]} found"
