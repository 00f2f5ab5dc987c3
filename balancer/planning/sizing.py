"""Finds how few brokers meet all hard goals, or how many to add, by planning for each number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Literal, NamedTuple

import numpy as np

from balancer.planning.document import Sizing
from balancer.planning.least_brokers import LeastBrokers, Need, room_without
from balancer.planning.parameters import PlanningParameters
from balancer.planning.plan import Plan
from balancer.planning.remedies import enlarged, helped, next_number
from balancer.problem.operation import Operation, OperationError
from balancer.problem.operations import RightSize
from cluster_model.errors import InputError
from cluster_model.snapshot import LARGEST_ID, Bools, Ints, Snapshot
from goals import Cluster, Goal, ResourceCapacity
from metrics_reporter.quantities import plural

# What a plan is for: as asked, for hard goals without a limit on moves, or for their proofs alone.
Purpose = Literal["asked", "hard", "proofs"]
# makes a plan for a cluster and an operation
Plans = Callable[[Snapshot, Operation, Purpose], Plan]
Proof = Literal["certificate", "search", "every choice", "minimum", "none"]


class SizingRequest(NamedTuple):
    """What is to be sized, and how.

    Parameters
    ----------
    snapshot, operation, kind
        The cluster as it is, and the request, which names no brokers.
    cluster
        The same cluster as goals see it, with nothing emptied.
    candidates : (B,) bool
        Brokers that may be emptied.
    needs
        What the brokers that stay must have room for.
    least
        No placement on fewer living brokers meets all hard goals.
    plans
        Makes a plan.
    ended
        Whether no further plan is to be tried.
    parameters
        How much effort to spend.
    """

    snapshot: Snapshot
    operation: Operation
    kind: RightSize
    cluster: Cluster
    candidates: Bools
    needs: Sequence[Need]
    least: LeastBrokers
    plans: Plans
    ended: Callable[[], bool]
    parameters: PlanningParameters

    @property
    def living(self) -> int:
        """Brokers that hold replicas if none is emptied."""
        return int((~self.cluster.draining).sum())


def check_limits_known(goals: Iterable[Goal], snapshot: Snapshot) -> None:
    """Refuse to find a number of brokers without the loads that hard goals limit.

    Raises
    ------
    OperationError
        With the first goal whose resource the snapshot lacks.
    """
    for goal in goals:
        if (
            isinstance(goal, ResourceCapacity)
            and goal.hard
            and goal.resource not in snapshot.resources
        ):
            raise OperationError(
                f"operation right_size: the number of brokers that hard goal {goal.name} needs is "
                f"not known, because the snapshot has no loads of {goal.resource}: loads, as from "
                "--metrics-topic, or goals without it expected"
            )


def right_sized(asked: SizingRequest) -> Plan:
    """The plan for the smallest number of brokers for which one was found.

    Numbers from the certificate upwards are tried, and then those between the last that failed and
    the first that worked, each with the brokers that are best to empty; with one
    fewer than found, other choices of brokers too. If all brokers are too few, the same
    is done with typical brokers added.
    """
    fewer = _shrunk(asked)
    if fewer is not None:
        return fewer
    return _grown(asked)


def _shrunk(asked: SizingRequest) -> Plan | None:
    """A plan on the existing brokers; None if more are needed."""
    living, kind = asked.living, asked.kind
    most = living if kind.max_brokers is None else min(living, kind.max_brokers)
    stay = living - int(asked.candidates.sum())
    low = max(kind.min_brokers, asked.least.number, stay, 1)
    if asked.least.number > most or low > living:
        return None
    low = min(low, most)
    order = emptying_order(asked)
    emptied: dict[int, Ints] = {}
    met: dict[int, bool] = {}

    def works(rows: Ints) -> bool:
        plan = _planned(asked, asked.snapshot, _emptying(asked, rows), "hard")
        return plan is not None and _meets(plan)

    while (number := next_number(met, low)) is not None and not asked.ended():
        number = min(number, most)
        if number in met or len(met) >= asked.parameters.sized_numbers:
            break
        choices, _ = _choices(asked, living - number, order)
        met[number] = bool(choices) and works(choices[0])
        if choices:
            emptied[number] = choices[0]
    found = min((number for number, ok in met.items() if ok), default=None)
    if found is None:
        return None
    tried = 0
    every = False
    while found - 1 >= low and not asked.ended():
        choices, every = _choices(asked, living - found + 1, order)
        tried = len(choices)
        # the first choice may have been tried
        known = found - 1 in met
        better = next((x for x in choices[known:] if not asked.ended() and works(x)), None)
        if better is None:
            break
        found -= 1
        emptied[found] = better
    plan = _confirmed(asked, found, emptied, order, most)
    if plan is None:
        return None
    number = living - len(plan.operation.get("brokers", ()))
    if number != found:
        tried, every = 1, False
    enough = number == found or _meets(plan)
    return replace(plan, sizing=_stated(asked, plan, number, (), enough, tried, every))


def _confirmed(
    asked: SizingRequest, found: int, emptied: dict[int, Ints], order: Ints, most: int
) -> Plan | None:
    """The plan with all goals, and the limits of the request, for the first number that works."""
    for number in range(found, most + 1):
        rows = emptied.get(number, order[: asked.living - number])
        plan = asked.plans(asked.snapshot, _emptying(asked, rows), "asked")
        if _meets(plan) or plan.summary.exhausted or asked.ended():
            return plan
    return None


def _grown(asked: SizingRequest) -> Plan:
    """A plan on a larger cluster; on the cluster as it is if no number of brokers helps."""
    living, kind, s = asked.living, asked.kind, asked.snapshot
    # where the certificate says that no placement is enough, none is looked for
    short = _planned(asked, s, asked.operation, "proofs" if asked.least.number > living else "hard")
    hard = [u for u in short.unmet if u.hard] if short is not None else []
    group = helped(hard)
    most = asked.parameters.sized_added
    if kind.max_brokers is not None:
        most = min(most, kind.max_brokers - living)
    if not s.named_brokers:
        most = min(most, LARGEST_ID - int(s.broker_ids.max()))
    low = max(1, asked.least.number - living, kind.min_brokers - living)
    low = max([low, *(max(u.brokers_to_add, u.racks_to_add) for u in group)])
    if {u.goal for u in group} < {u.goal for u in hard} or not (hard or kind.min_brokers > living):
        # brokers alone do not help, or nothing needs any
        most = 0
    met: dict[int, bool] = {}

    def larger(number: int) -> tuple[Snapshot, Operation]:
        return enlarged(s, asked.operation, asked.cluster, number, group)[:2]

    while most >= low and (number := next_number(met, low)) is not None and not asked.ended():
        number = min(number, most)
        if number in met or len(met) >= asked.parameters.sized_numbers:
            break
        tried = _planned(asked, *larger(number), "hard")
        met[number] = tried is not None and _meets(tried)
    found = min((number for number, ok in met.items() if ok), default=most + 1)
    for number in range(found, most + 1):
        snapshot, operation = larger(number)
        plan = asked.plans(snapshot, operation, "asked")
        if _meets(plan) or plan.summary.exhausted:
            added = tuple(snapshot.broker_ids[s.n_brokers :].tolist())
            # one fewer was tried, with the brokers where `enlarged` puts them
            failed = number > found or met.get(number - 1) is False
            none = number == 1 and short is not None and asked.least.number <= living
            below = int(failed or none)
            return replace(
                plan, sizing=_stated(asked, plan, living + number, added, True, below, False)
            )
    plan = asked.plans(s, asked.operation, "asked")
    enough = _meets(plan) and living <= (kind.max_brokers or living)
    enough = enough and living >= kind.min_brokers
    return replace(plan, sizing=_stated(asked, plan, living, (), enough, 0, False))


def _planned(
    asked: SizingRequest, snapshot: Snapshot, operation: Operation, purpose: Purpose
) -> Plan | None:
    """A plan with hard goals; None if the strategy refuses the cluster."""
    try:
        return asked.plans(snapshot, operation, purpose)
    except InputError:
        return None


def _meets(plan: Plan) -> bool:
    """Whether a plan meets all hard goals, and empties what it is to empty."""
    return all(g.met_after for g in plan.goal_results if g.hard) and (
        plan.verdict is None or plan.verdict.fulfilled
    )


def _emptying(asked: SizingRequest, rows: Ints) -> Operation:
    """The request for certain brokers to empty, in the order of their ids."""
    ids = asked.snapshot.broker_ids[np.sort(rows)].tolist()
    return asked.operation.model_copy(update={"brokers": tuple(ids)})


def emptying_order(asked: SizingRequest) -> Ints:
    """Brokers in the order in which they are best emptied, all candidates.

    Each time, the broker whose broker set has most room without it; of those in one set, the one
    without which the scarcest room is largest; of equal ones one in the rack with the most
    capacity left; then the one with the least to copy.
    """
    cluster, s = asked.cluster, asked.snapshot
    load, group = s.broker_load(), cluster.group
    work = np.zeros((int(group.max()) + 1, load.shape[1]))
    np.add.at(work, group, load)
    left = asked.candidates.copy()
    kept = ~cluster.draining
    disk = load[:, s.resources.index("disk")] if "disk" in s.resources else load.sum(1)
    scale = np.maximum(s.capacity.max(0), 1e-300)
    capacity = np.where(kept[:, None], s.capacity / scale, 0.0)
    work /= scale
    found: list[int] = []
    while left.any():
        rows = np.flatnonzero(left)
        room = np.zeros_like(work)
        np.add.at(room, group, capacity)
        remains = np.maximum(room[group[rows]] - capacity[rows], 1e-9)
        # sums of equal capacities differ in their last digits
        full = np.round((work[group[rows]] / remains).max(1, initial=0.0), 6)
        if len(work) == 1:
            full[:] = 0.0
        without = np.repeat(kept[None], len(rows), axis=0)
        without[np.arange(len(rows)), rows] = False
        scarcest = np.round(room_without(asked.needs, without), 6)
        rack = np.bincount(s.broker_rack, capacity.sum(1))
        size = np.round(-rack[s.broker_rack[rows]], 6)
        best = int(rows[np.lexsort((disk[rows], size, -scarcest, full))[0]])
        found.append(best)
        left[best] = kept[best] = False
        capacity[best] = 0.0
    return np.array(found, np.int64)


def _choices(asked: SizingRequest, number: int, order: Ints) -> tuple[list[Ints], bool]:
    """Sets of so many brokers to empty, the best first, and whether no other can work.

    Those without room for what is needed are left out.
    """
    limits = asked.parameters
    few = comb(len(order), number) <= limits.sized_sets
    if few:
        sets = [*map(list, combinations(range(len(order)), number))]
    else:
        # the first of the order, and with the last of them exchanged for each other one
        last = range(number - 1, min(len(order), number - 1 + limits.sized_choices))
        sets = [[*range(number - 1), after] for after in last]
    kept = np.repeat(~asked.cluster.draining[None], len(sets), axis=0)
    chosen = order[np.array(sets, np.int64).reshape(len(sets), number)]
    kept[np.arange(len(sets))[:, None], chosen] = False
    scarcest = room_without(asked.needs, kept)
    able = np.flatnonzero(scarcest >= 1)
    if few:
        # of choices with about as much room, those that the order prefers
        able = able[np.argsort(-np.round(np.minimum(scarcest[able], 1e6), 2), kind="stable")]
    most = limits.sized_choices
    return [chosen[k] for k in able[:most]], few and len(able) <= most


def _stated(
    asked: SizingRequest,
    plan: Plan,
    number: int,
    added: tuple[int | str, ...],
    met: bool,
    tried: int,
    every: bool,
) -> Sizing:
    """What was found, and why one fewer is not enough."""
    emptied = tuple(plan.operation.get("brokers", ()))
    least = asked.least
    proof: Proof = "none"
    if not met or asked.ended():
        tried = 0
    elif number <= least.number:
        proof, tried = "certificate", 0
    elif number <= asked.kind.min_brokers:
        proof, tried = "minimum", 0
    elif every:
        proof = "every choice"
    elif tried:
        proof = "search"
    return Sizing(
        brokers_before=asked.living,
        brokers=number,
        emptied=emptied,
        added=added,
        met=met,
        least=least.number,
        reason=least.reason,
        fewer_tried=tried,
        proof=proof,
        text=_sentence(asked, plan, number, emptied, added, met, proof, tried),
    )


def _sentence(
    asked: SizingRequest,
    plan: Plan,
    number: int,
    emptied: Sequence[int | str],
    added: Sequence[int | str],
    met: bool,
    proof: Proof,
    tried: int,
) -> str:
    living, least = asked.living, asked.least
    lost = [
        u for u in plan.unmet if u.hard and u.proven and not (u.brokers_to_add or u.racks_to_add)
    ]
    if not met and lost:
        return f"no number of brokers meets all hard goals: {lost[0].goal}: {lost[0].reason}"
    if not met:
        reason = f" ({least.reason})" if least.reason else ""
        text = "no number of brokers that meets all hard goals was found within the limits of the "
        return f"{text}request; at least {plural(least.number, 'broker')} would be needed{reason}"
    verb = "meets" if number == 1 else "meet"
    if added:
        text = (
            f"{plural(number, 'broker')} {verb} all hard goals, {len(added)} more than there are: "
            f"this plan calls the brokers to add {_listed(added)}"
        )
    elif emptied:
        text = f"{number} of {plural(living, 'broker')} {verb} all hard goals"
        text += f", without {_listed(emptied)}"
    else:
        text = f"all {plural(living, 'broker')} are {'kept' if proof == 'none' else 'needed'}"
    why = {
        "certificate": f"fewer cannot ({least.reason or 'one must stay'})",
        "minimum": f"{asked.kind.min_brokers} is the minimum asked for",
        "search": f"with one fewer, no plan was found for {plural(tried, 'choice')} of brokers, "
        f"which proves nothing: {number} is an upper bound, and {least.number} a lower one",
        "every choice": "with one fewer, no choice of brokers has room"
        if not tried
        else "with one fewer, no plan was found for any choice of brokers with room: "
        f"{plural(tried, 'choice')}",
        "none": "the search ended before fewer were ruled out",
    }[proof]
    return f"{text}; {why}"


def _listed(ids: Sequence[int | str]) -> str:
    shown = ", ".join(str(i) for i in ids[:10])
    return shown + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
