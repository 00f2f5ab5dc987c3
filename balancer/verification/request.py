"""Reads what a plan says was asked of it, and lets goals speak for themselves where they must.

Of the goals this takes their configuration (:mod:`goals.registry`), and for goals that the
checker has no definition of, and for the wording of proofs, their own public methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from balancer.planning.document import PlanDocument
from balancer.verification.goals import Picture, Rows, Who
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Floats, Ints, Snapshot
from goals import Cluster, Goal, GoalError, State, available, inapplicable, load_goals, unmatched
from goals.patterns import matching, valid_pattern
from goals.registry import BUILT_IN
from metrics_reporter.documents import shown

_KINDS = {
    "rebalance": "",
    "add_brokers": "brokers",
    "remove_brokers": "brokers",
    "demote_brokers": "brokers",
    "fix_offline_replicas": "",
    "change_replication_factor": "replication_factor",
}
_ID_LISTS = (
    "brokers",
    "excluded_brokers_for_replicas",
    "excluded_brokers_for_leadership",
    "destinations",
)
_TEXT_LISTS = ("excluded_topics", "excluded_partitions", "frozen_partitions")
_FIELDS = {"kind", "replication_factor", *_TEXT_LISTS, *_ID_LISTS}
_DUTIES = ("OnlineReplicas", "EligibleLeaders")


def wrong_operation(s: Snapshot, operation: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with an operation, one sentence each."""
    kind = operation.get("kind")
    if kind not in _KINDS:
        yield f"operation: kind {kind!r} found, one of {', '.join(_KINDS)} expected"
        return
    for name in sorted({*operation} - _FIELDS):
        yield f"operation: no field is called {name!r}"
    for name in ("brokers", "replication_factor"):
        if bool(operation.get(name)) != (_KINDS[kind] == name):
            yield f"operation {kind}: {name} {operation.get(name)!r} is wrong"
    known = set(s.broker_ids.tolist())
    for name in _ID_LISTS:
        ids = operation.get(name)
        ids = () if ids is None else ids
        if not isinstance(ids, list | tuple) or not all(b in known for b in ids):
            yield f"operation: {name} {ids!r} found, ids of brokers of the snapshot expected"
    for name in _TEXT_LISTS:
        texts = operation.get(name, ())
        if not isinstance(texts, list | tuple) or not all(isinstance(x, str) for x in texts):
            yield f"operation: {name} {texts!r} found, a list of text expected"
            return
    factors = operation.get("replication_factor") or {}
    for pattern, number in factors.items():
        if not isinstance(number, int) or number < 1:
            yield f"operation: {number!r} replicas of {pattern!r}, 1 or more expected"
    for pattern in (*operation.get("excluded_topics", ()), *factors):
        try:
            valid_pattern(pattern)
        except ValueError as error:
            yield f"operation: topic pattern {shown(pattern)}: {error}"


@dataclass(frozen=True)
class StatedGoals:
    """The goals of a plan.

    Parameters
    ----------
    known
        All fields of those that the checker may have a definition of, defaults too.
    objects
        Name -> the goal, where its class is known.
    foreign
        Names of those that do not come with Counterpoise.
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
    def of(plan: PlanDocument, snapshot: Snapshot) -> StatedGoals:
        """Read the goals, and what the plan says of them."""
        known, objects, foreign, hard = [], {}, [], set()
        wrong: list[tuple[str, str]] = []
        for place, stated in enumerate(plan.goals):
            kind, name = stated.get("goal"), stated.get("name")
            if not isinstance(kind, str) or not isinstance(name, str):
                wrong.append(("goals", f"goals, entry {place}: goal and name expected"))
                continue
            fields: dict[str, Any] = {"hard": True, "weight": 1.0, "tier": 0}
            if kind != "ReplicationFactor":
                try:
                    goal = _goal(kind, stated)
                except GoalError as error:
                    if kind in BUILT_IN:
                        wrong.append(("goals", f"goals, entry {place}: {error}"))
                    else:
                        foreign.append(name)
                        hard |= {name} if stated.get("hard", True) else set()
                    continue
                fields = goal.model_dump(mode="json")
                fields["name"] = goal.name
                lacks = list(inapplicable([goal], snapshot).values()) or _unknown_sets(
                    goal, snapshot
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
            for name in _DUTIES
            if names.count(name) != 1
        ]
        wrong += [("goals", f"goals: {n} twice") for n in {*names} if names.count(n) > 1]
        wrong += _remarks(plan, snapshot, objects)
        return StatedGoals(tuple(known), objects, tuple(foreign), frozenset(hard), tuple(wrong))


def _goal(kind: str, stated: Mapping[str, Any]) -> Goal:
    fields = {k: v for k, v in stated.items() if k != "name"}
    if kind not in BUILT_IN:
        # what is installed may go by another name than its class
        entries = [name for name, found in available().items() if found.__name__ == kind]
        fields["goal"] = entries[0] if entries else kind
    (goal,) = load_goals({"goals": [fields]})
    return goal


def _unknown_sets(goal: Goal, snapshot: Snapshot) -> list[str]:
    sets = {*getattr(goal, "sets", {}).values()} - {*snapshot.broker_sets}
    return [f"goal {goal.name}: the snapshot has no broker set {name!r}" for name in sorted(sets)]


def _remarks(
    plan: PlanDocument, snapshot: Snapshot, objects: Mapping[str, Goal]
) -> Iterator[tuple[str, str]]:
    """What is wrong with the goals that a profile left out, and with the warnings."""
    for name, reason in plan.goals_left_out.items():
        kind, _, resource = name.removesuffix("]").partition("[")
        try:
            goal = _goal(kind, {"goal": kind} | ({"resource": resource} if resource else {}))
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
    # of goals of a profile that are given no pattern nothing is said
    expected = [unmatched(of_plan, snapshot, strict) + excluded for strict in (True, False)]
    if list(plan.warnings) not in expected:
        yield "warnings", f"warnings: {list(plan.warnings)} stated, {expected[0]} found"


def cluster_of(picture: Picture, who: Who) -> Cluster:
    """A picture as goals meet it."""
    rows = Rows.of(picture)
    placement = Placement(picture.snapshot, rows.brokers.shape[1])
    width = rows.brokers.shape[1]
    placement.brokers[:] = -1
    placement.brokers[:, :width] = rows.brokers
    if len(placement.replica_disk):
        disks = placement.replica_disk.reshape(placement.brokers.shape)
        disks[:] = -1
        disks[:, :width] = rows.disks
    placement.leader[:] = (rows.brokers == rows.leader[:, None]).argmax(1)
    return Cluster(placement, who.eligible, who.may_lead, who.draining)


def own_scores(goal: Goal, cluster: Cluster) -> Floats:
    """(cells,) contentment of all cells by the goal's own code."""
    placement = cluster.placement.stated()
    if placement is not cluster.placement:
        c = cluster
        cluster = Cluster(placement, c.eligible, c.leader_eligible, c.draining)
    state = cluster.partition_state() if goal.scope == "partition" else cluster.state(goal.scope)
    return np.asarray(goal.score(state), np.float64)


Half = tuple[list[int], list[int], int]


def own_effects(
    goal: Goal, cluster: Cluster, units: int, steps: Sequence[tuple[int, int, Half, Half]]
) -> tuple[Floats, Floats]:
    """(units,) how much each raises the lower contentment, and the largest fall of a cell.

    Parameters
    ----------
    goal
        Prepared.
    cluster
        Where the steps start; afterwards, where they end.
    units
        How many units there may be.
    steps
        Of each its unit, its partition, and the partition before and after it.
    """
    diff, fall = np.zeros(units), np.zeros(units)
    first = 0
    while first < len(steps):
        last = first
        while last < len(steps) and steps[last][0] == steps[first][0]:
            last += 1
        batches = [_batch(cluster.placement, *step[1:]) for step in steps[first:last]]
        keys = np.unique(np.concatenate([_cells(goal, cluster.placement, b) for b in batches]))
        keys = keys[keys >= 0]
        before = _scores_of(goal, cluster, keys)
        for batch in batches:
            cluster.placement.apply(batch)
        after = _scores_of(goal, cluster, keys)
        unit = steps[first][0]
        diff[unit] = after.min(initial=1.0) - before.min(initial=1.0)
        fall[unit] = (before - after).max(initial=0.0)
        first = last
    return diff, fall


def _batch(placement: Placement, p: int, before: Half, after: Half) -> Batch:
    row = placement.brokers[p].tolist()
    one = np.array([p])
    moved = [i for i, (a, b) in enumerate(zip(before[0], after[0], strict=True)) if a != b]
    if moved:
        at = row.index(before[0][moved[0]])
        target, disk = after[0][moved[0]], after[1][moved[0]]
        return Batch.of(MOVE, one, np.array([at]), np.array([target]), np.array([disk]))
    if before[2] != after[2]:
        at = row.index(after[2])
        return Batch.of(LEAD, one, np.array([at]), np.array([after[2]]))
    changed = [i for i, (a, b) in enumerate(zip(before[1], after[1], strict=True)) if a != b]
    i = changed[0] if changed else 0
    at = row.index(before[0][i])
    return Batch.of(
        MOVE_DISK, one, np.array([at]), np.array([before[0][i]]), np.array([after[1][i]])
    )


def _cells(goal: Goal, placement: Placement, batch: Batch) -> Ints:
    if goal.scope == "partition":
        return batch.partition
    ends = (
        (placement.source(batch), placement.source_disk(batch)),
        (batch.target, placement.target_disk(batch)),
    )
    return np.concatenate(
        [placement.keys(goal.scope, batch.partition, broker, disk) for broker, disk in ends]
    )


def _scores_of(goal: Goal, cluster: Cluster, keys: Ints) -> Floats:
    if goal.scope == "partition":
        return np.asarray(goal.score(cluster.partition_state(keys)), np.float64)
    scope = goal.scope
    state = State(lambda name: cluster.fetch(scope, name, keys))
    return np.asarray(goal.score(state), np.float64)
