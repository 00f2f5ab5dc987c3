"""Answers why a partition is not on a broker at the end of a plan, by the scores of each goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import ValidationError

from balancer.planning.document import Action, PlanDocument, PlanError
from balancer.planning.further_actions import (
    PlanEnd,
    Stopper,
    action_phrase,
    because,
    display_name,
    listed,
    stoppers,
)
from balancer.problem.capacity_guards import capacity_guards
from balancer.problem.disks import emptiest_with, pick_disk
from balancer.problem.movement_cost import cost_unit, movement_cost
from balancer.problem.operation import Operation
from balancer.problem.prohibitions import prohibitions
from balancer.problem.resolution import resolve, with_ids_of
from balancer.problem.room_guards import room_guards
from balancer.search.scorer import EPSILON, Scorer
from balancer.search.transition import Transition
from cluster_model.errors import InputError
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from cluster_model.snapshot import Snapshot
from goals import Cluster
from goals.registry import stated_goal
from metrics_reporter.documents import first_problem
from metrics_reporter.suggestions import hint


@dataclass(frozen=True)
class GoalEffect:
    """What an action does to a goal.

    Parameters
    ----------
    goal, tier, hard
        The goal; capacities that are never exceeded have a tier after all others.
    before, after
        The lowest contentment among the cells that the action touches; the mean of these
        contentments if the goal adds up.
    effect
        ``stops`` if the goal stops the action, ``worse`` if a cell loses without that.
    """

    goal: str
    tier: int
    hard: bool
    before: float
    after: float
    effect: Literal["helps", "stops", "worse", "none"]


@dataclass(frozen=True)
class WhyNot:
    """An action at the end of a plan, and why the plan does not contain it.

    Parameters
    ----------
    action
        In words: "moving orders-3 from broker 4 to broker 7".
    forbidden
        The rules that forbid it, one clause each; empty if it is allowed.
    helps
        The goals of the tier that it would serve; empty if it helps none.
    stopped
        The goals and limits that stop it, as one clause; empty if none does.
    goals
        Its effect on each goal.
    cost, cost_unit
        What it costs.
    moves_left, cost_left
        What the plan leaves of its limits; None without a limit.
    """

    action: str
    forbidden: tuple[str, ...]
    helps: tuple[str, ...]
    stopped: str
    goals: tuple[GoalEffect, ...]
    cost: float
    cost_unit: str
    moves_left: int | None
    cost_left: float | None

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        reasons = list(self.forbidden)
        if self.helps:
            reasons += [self.stopped] if self.stopped else []
            if not reasons:
                return (
                    f"Nothing stops it: it helps {listed(self.helps)}; the search ended without it."
                )
            return f"It helps {listed(self.helps)}, but {listed(reasons)}."
        if not reasons and not self.stopped:
            return "It helps no goal."
        return f"It helps no goal; {listed([*reasons, *([self.stopped] if self.stopped else [])])}."


def why_not(end: PlanEnd, partition: str, broker: int | str) -> tuple[WhyNot, ...]:
    """See :meth:`balancer.planning.plan.Plan.why_not`."""
    batch = _actions(end.scorer.placement, partition, broker)
    if not len(batch):
        return ()
    scorer, placement = end.scorer, end.scorer.placement
    transition = Transition(scorer.cluster, batch)
    tiers = [stoppers(end, k, transition) for k in range(len(scorer.tiers))]
    rules = prohibitions(end.rules, end.operation, placement, batch)
    unit, costs = cost_unit(placement.snapshot), movement_cost(placement, batch)
    budget, ranked = end.budget, []
    for row in range(len(batch)):
        gain = [float(scorer.diff(i, transition)[0][row]) for i in range(len(scorer.goals))]
        number, stopped = _served(scorer, gain, tiers, row)
        helps = [i for i in scorer.tiers[number].goals if gain[i] > EPSILON]
        forbidden = tuple(rule.sentence(row) for rule in rules if rule.forbids[row])
        answer = WhyNot(
            action=action_phrase(scorer, batch, row),
            forbidden=forbidden,
            helps=tuple(scorer.goals[i].name for i in helps),
            stopped=because(stopped, row) if stopped else "",
            goals=tuple(_effect(scorer, i, transition, row, stopped) for i in range(len(gain))),
            cost=float(costs[row]),
            cost_unit=unit,
            moves_left=None if budget.moves is None else max(budget.moves - end.moves, 0),
            cost_left=None if budget.cost is None else max(budget.cost - end.cost, 0.0),
        )
        best = max((gain[i] for i in helps), default=0.0)
        ranked.append(((bool(forbidden), not helps, len(stopped), number, -best), answer))
    return tuple(answer for _, answer in sorted(ranked, key=lambda item: item[0]))


def _served(
    scorer: Scorer, gain: Sequence[float], tiers: Sequence[Sequence[Stopper]], row: int
) -> tuple[int, list[Stopper]]:
    """The tier that an action serves, and what then stops it: the first that nothing stops."""
    found = []
    for number, tier in enumerate(scorer.tiers):
        if any(gain[i] > EPSILON for i in tier.goals):
            found.append((number, [one for one in tiers[number] if one.stops[row]]))
    last = len(scorer.tiers) - 1
    found.append((last, [s for s in tiers[last] if s.stops[row] and s.kind != "outweighed"]))
    served = found[: max(1, len(found) - 1)]
    return next((one for one in served if not one[1]), served[0])


def _effect(
    scorer: Scorer, i: int, transition: Transition, row: int, stopped: Sequence[Stopper]
) -> GoalEffect:
    goal, (diff, worse) = scorer.goals[i], scorer.diff(i, transition)
    before, after = (scores[:, row] for scores in transition.scored[i])
    total = np.mean if goal.aggregate == "sum" else np.min
    effect: Literal["helps", "stops", "worse", "none"] = "worse" if worse[row] else "none"
    if any(one.goal == i for one in stopped):
        effect = "stops"
    elif diff[row] > EPSILON:
        effect = "helps"
    return GoalEffect(
        goal=display_name(goal.name),
        tier=goal.tier or 0,
        hard=goal.hard,
        before=float(total(before)),
        after=float(total(after)),
        effect=effect,
    )


def _actions(placement: Placement, partition: str, broker: int | str) -> Batch:
    """What would put a partition on a broker, or its leadership there."""
    s = placement.snapshot
    p, (target,) = _row(s, partition), s.broker_index([broker]).tolist()
    held = placement.brokers[p]
    if target in held:
        slot = np.flatnonzero(held == target)
        slot = slot[slot != placement.leader[p]]
        return Batch.of(LEAD, np.full(len(slot), p), slot, np.full(len(slot), target))
    slot = np.flatnonzero(held >= 0)
    if not len(slot):
        raise InputError(f"{partition} has no replicas at the end of the plan")
    to = np.full(len(slot), target)
    moves = Batch.of(MOVE, np.full(len(slot), p), slot, to, pick_disk(placement, to))
    return emptiest_with(placement, moves)


def _row(s: Snapshot, partition: str) -> int:
    """The number of a partition."""
    if not isinstance(partition, str):
        raise InputError(
            f"partition: {partition!r} found, the name of a topic, a hyphen and a number expected"
        )
    topic, _, number = partition.rpartition("-")
    if topic in s.topics and number.isdecimal() and number == str(int(number)):
        own = s.partition_topic == s.topics.index(topic)
        rows = np.flatnonzero(own & (s.partition_number == int(number)))
        if len(rows):
            return int(rows[0])
    names = (
        f"{s.topics[t]}-{n}"
        for t, n in zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
    )
    raise InputError(
        f"partition {partition!r} found, one of the snapshot like orders-3 expected"
        f"{hint(partition, names)}"
    )


def end_of(snapshot: Snapshot, plan: PlanDocument) -> PlanEnd:
    """The end of a plan that was read from its document.

    Parameters
    ----------
    snapshot
        The snapshot that the plan was made from.
    plan
        The plan.

    Raises
    ------
    InputError
        If the plan does not fit the snapshot, or one of its goals is not installed.
    """
    try:
        operation = with_ids_of(Operation.model_validate(plan.operation), snapshot)
    except ValidationError as error:
        raise PlanError(f"plan: operation: {first_problem(error)}") from None
    resolved = resolve(snapshot, operation)
    own = {g.name: g for g in resolved.goals()}
    goals = [
        own[stated["name"]].model_copy(update={"tier": stated["tier"]})
        if stated["name"] in own
        else stated_goal(stated["goal"], stated)
        for stated in plan.goals
    ]
    cluster, rules = resolved.cluster, resolved.rules
    relaxed = {result.goal: result.relaxed for result in plan.goal_results}
    used_goals = [
        g
        if (limit := relaxed.get(g.name)) is None
        # the steps of the plan keep this limit
        else g.model_copy(update={limit.parameter: limit.used})
        for g in goals
    ]
    used_goals = [g.prepared(cluster) for g in used_goals]
    every = [
        *used_goals,
        *(g.prepared(cluster) for g in capacity_guards(snapshot, goals)),
        *room_guards([g.prepared(cluster) for g in goals], used_goals, cluster),
    ]
    placement = resolved.start.copy()
    _carry_out(placement, plan.actions)
    ended = Cluster(placement.stated(), cluster.eligible, cluster.leader_eligible, rules.draining)
    used = plan.summary
    return PlanEnd(
        scorer=Scorer(ended, every),
        rules=rules,
        operation=operation,
        budget=plan.budget,
        moves=used.limited_moves,
        cost=used.cost,
        start=resolved.start,
    )


def _carry_out(placement: Placement, actions: Sequence[Action]) -> None:
    """Apply the steps of a document to the tables of a placement."""
    s = placement.snapshot
    partitions = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
    rows = {(s.topics[topic], number): p for p, (topic, number) in enumerate(partitions)}
    brokers: dict[int | str | None, int] = {id_: b for b, id_ in enumerate(s.broker_ids.tolist())}
    brokers[None] = -1
    places = zip(s.disk_broker.tolist(), s.disk_path, strict=True)
    disks = {place: disk for disk, place in enumerate(places)}
    for number, action in enumerate(actions, 1):
        p, name = rows.get((action.topic, action.partition)), f"{action.topic}-{action.partition}"
        source, target = brokers.get(action.source), brokers.get(action.destination)
        if p is None or source is None or target is None:
            raise PlanError(f"plan: step {number}: {name} or its brokers are not in the snapshot")
        leads = action.kind == "leadership"
        (at,) = np.nonzero(placement.brokers[p] == (target if leads else source))
        if not len(at):
            where = action.destination if leads else action.source
            raise PlanError(f"plan: step {number}: no replica of {name} on broker {where}")
        slot = int(at[0])
        if leads or (action.kind == "add" and action.leader):
            placement.leader[p] = slot
        if leads:
            continue
        placement.brokers[p, slot] = target
        if len(placement.replica_disk):
            disk = disks.get((target, action.destination_disk or ""), -1)
            placement.replica_disk[p * placement.slots + slot] = disk
    placement.invalidate_sums()
