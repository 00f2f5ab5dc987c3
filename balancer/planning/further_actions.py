"""Judges further actions at the end of a plan: which goals and limits stop them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from balancer.problem.budget import Budget
from balancer.problem.movement_cost import cost_unit, movement_cost
from balancer.problem.operation import Operation
from balancer.problem.rules import Rules
from balancer.search.scorer import EPSILON, Scorer
from balancer.search.spending import Spending
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools
from goals.infeasibility import partition_name
from metrics_reporter.quantities import amounts, cost_amount, distinct, plural


@dataclass(frozen=True, eq=False)
class PlanEnd:
    """Where a plan ends, and what limits further actions.

    Parameters
    ----------
    scorer
        All goals and vetoes, at the final placement.
    rules
        Which actions are legal.
    operation
        The request.
    budget
        The limits of the whole plan.
    moves, cost
        What the plan has spent of them.
    start
        Where the plan starts.
    """

    scorer: Scorer
    rules: Rules
    operation: Operation
    budget: Budget
    moves: int
    cost: float
    start: Placement


@dataclass(frozen=True, eq=False)
class Stopper:
    """A goal or a limit, and which of C actions it stops.

    Parameters
    ----------
    name
        Its displayed name.
    kind
        ``worse``: a goal that the action makes worse. ``exceeded``: a capacity. ``outweighed``: a
        goal of the same tier that loses at least as much as others gain. ``limit``: of the budget.
    remark
        What distinguishes a goal: "hard", "tier 3", or nothing.
    stops : (C,) bool
        The actions.
    goal
        Number of the goal in the scorer; -1 for a limit.
    sentence
        Why a limit stops the action of a row.
    """

    name: str
    kind: Literal["worse", "exceeded", "outweighed", "limit"]
    remark: str
    stops: Bools
    goal: int = -1
    sentence: Callable[[int], str] = str


def stoppers(end: PlanEnd, number: int, transition: Transition) -> list[Stopper]:
    """What stops actions that serve tier `number`.

    A hard goal stops what makes it worse, and so does any goal of a tier above. Within its tier,
    an action must give more than it takes. Limits stop what exceeds them.

    Parameters
    ----------
    end
        Where the actions start.
    number
        The position of their tier among the tiers of the scorer.
    transition
        C single actions.
    """
    scorer, found = end.scorer, list[Stopper]()
    refused = ~scorer.allowed(number, transition)
    vain = scorer.gain(scorer.tiers[number], transition) <= EPSILON
    for k, tier in enumerate(scorer.tiers):
        for i in tier.goals:
            goal = scorer.goals[i]
            name = display_name(goal.name)
            if goal.hard or k < number:
                stops = refused & scorer.worsened(i, transition)
                if name != goal.name:
                    found.append(Stopper(name, "exceeded", "", stops, i))
                else:
                    remark = "hard" if goal.hard else f"tier {goal.tier}"
                    found.append(Stopper(name, "worse", remark, stops, i))
            elif k == number:
                stops = vain & (scorer.diff(i, transition)[0] < -EPSILON)
                found.append(Stopper(name, "outweighed", "same tier", stops, i))
    found += _limits(end, transition.batch)
    return [one for one in found if one.stops.any()]


def because(found: Sequence[Stopper], row: int) -> str:
    """Why an action is stopped, as a clause: "it would make RackAwareness (hard) worse"."""
    stop = [one for one in found if one.stops[row]]
    parts = []
    for kind, clause in (
        ("worse", "it would make {} worse"),
        ("exceeded", "it would exceed {}"),
        ("outweighed", "it takes at least as much from {}"),
    ):
        names = [f"{s.name} ({s.remark})" if s.remark else s.name for s in stop if s.kind == kind]
        if names:
            parts.append(clause.format(listed(names)))
    return listed([*parts, *(one.sentence(row) for one in stop if one.kind == "limit")])


def listed(names: Sequence[str]) -> str:
    """Names as "a, b and c".

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _limits(end: PlanEnd, batch: Batch) -> Iterator[Stopper]:
    """The limits of the budget that actions exceed; leadership is free."""
    most, dearest = end.budget.moves, end.budget.cost
    if most is not None:
        limit = f"the limit of {plural(most, 'move')}"
        spent = (batch.kind != LEAD) & (end.moves >= most)
        yield Stopper(limit, "limit", "", spent, sentence=lambda _: f"{limit} is spent")
    if dearest is not None:
        placement = end.scorer.placement
        unit, cost = cost_unit(placement.snapshot), movement_cost(placement, batch)
        amount = f"the limit of {cost_amount(dearest, unit)}"
        left = max(dearest - end.cost, 0.0)
        yield Stopper(
            amount,
            "limit",
            "",
            end.cost + cost > dearest,
            sentence=lambda row: (
                f"it costs {too_much(float(cost[row]), left, unit)} left of {amount}"
            ),
        )

    for name in ("moves_per_broker", "moves_per_rack"):
        most = getattr(end.budget, name)
        if most is not None:
            each = f"the limit of {plural(most, 'move')} per {name.removeprefix('moves_per_')}"
            own = Spending(end.start, end.scorer.placement, Budget(**{name: most}))
            yield Stopper(
                each, "limit", "", ~own.affordable(batch, alone=True), sentence=_reached(each)
            )


def too_much(cost: float, left: float, unit: str) -> str:
    """A cost, and what is left of a limit that it exceeds.

    Examples
    --------
    >>> too_much(2e6, 1.5e6, "bytes"), too_much(1, 0, "replicas")
    ('2 MB, more than the 1.5 MB', '1 replica, and nothing is')
    """
    if left <= 0:
        return f"{cost_amount(cost, unit)}, and nothing is"
    more, less = amounts(cost, left) if unit == "bytes" else distinct(cost, left, unit=f" {unit}")
    return f"{more}, more than the {less}"


def _reached(limit: str) -> Callable[[int], str]:
    return lambda _: f"{limit} is reached"


def display_name(name: str) -> str:
    """A goal's displayed name; built-in vetoes are named after what they protect."""
    if name.startswith("WholeBroker["):
        return f"the capacity of {name[12:-1]}"
    if name.startswith("TotalRoom["):
        return f"the total room within {name[10:-1]}"
    return "the capacity of the disks" if name == "WholeDisk" else name


def action_phrase(scorer: Scorer, batch: Batch, row: int = 0) -> str:
    """An action in words: "moving orders-3 from broker 4 to broker 7"."""
    placement, one = scorer.placement, batch[row : row + 1]
    s, name = placement.snapshot, partition_name(scorer.cluster, int(one.partition[0]))
    (source,) = s.broker_ids[placement.source(one)].tolist()
    (target,) = s.broker_ids[one.target].tolist()
    if one.kind[0] == LEAD:
        return f"transferring the leadership of {name} from broker {source} to broker {target}"
    old, new = int(placement.source_disk(one)[0]), int(one.disk[0])
    path = [s.disk_path[disk] if disk >= 0 else "" for disk in (old, new)]
    if one.kind[0] == MOVE_DISK:
        return f"moving {name} on broker {source} from {path[0] or 'an unknown disk'} to {path[1]}"
    on = [f" ({p})" if p else "" for p in path]
    return f"moving {name} from broker {source}{on[0]} to broker {target}{on[1]}"
