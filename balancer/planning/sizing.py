"""Finds how few brokers meet all hard goals, or how many to add, by planning for each number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Literal, NamedTuple

import numpy as np

from balancer.planning.document import Sizing, Unmet
from balancer.planning.least_brokers import LeastBrokers
from balancer.planning.parameters import PlanningParameters
from balancer.planning.plan import Plan
from balancer.planning.remedies import enlarged, helped, next_number
from balancer.problem.operation import Operation
from balancer.problem.operations import RightSize
from cluster_model.errors import InputError
from cluster_model.snapshot import LARGEST_ID, Bools, Ints, Snapshot
from goals import Cluster
from metrics_reporter.quantities import plural

# makes a plan for a cluster and an operation, with hard goals and no limit on moves, or as asked
Plans = Callable[[Snapshot, Operation, bool], Plan]
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
    least: LeastBrokers
    plans: Plans
    ended: Callable[[], bool]
    parameters: PlanningParameters

    @property
    def living(self) -> int:
        """Brokers that hold replicas if none is emptied."""
        return int((~self.cluster.draining).sum())


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
    order = emptying_order(asked.cluster, asked.candidates)
    emptied: dict[int, Ints] = {}
    met: dict[int, bool] = {}

    def works(rows: Ints) -> bool:
        plan = _planned(asked, asked.snapshot, _emptying(asked, rows))
        return plan is not None and _meets(plan, hard_only=True)

    while (number := next_number(met, low)) is not None and not asked.ended():
        number = min(number, most)
        if number in met or len(met) >= asked.parameters.sized_numbers:
            break
        emptied[number] = order[: living - number]
        met[number] = works(emptied[number])
    found = min((number for number, ok in met.items() if ok), default=None)
    if found is None:
        return None
    tried = 0
    every = False
    while found - 1 >= low and not asked.ended():
        choices = _choices(asked, living - found + 1, order)
        every = comb(int(asked.candidates.sum()), living - found + 1) <= len(choices)
        # the first choice may have been tried
        better, tried = None, 0
        for rows in choices:
            if asked.ended():
                every = False
                break
            tried += 1
            if not (met.get(found - 1) is False and np.array_equal(rows, order[: len(rows)])) and works(rows):
                better = rows
                break
        if better is None:
            break
        found -= 1
        emptied[found] = np.sort(better)
    plan = _confirmed(asked, found, emptied, order, most)
    if plan is None:
        return None
    number = living - len(plan.operation.get("brokers", ()))
    if number != found:
        tried, every = 1, False
    return replace(plan, sizing=_stated(asked, plan, number, (), tried, every))


def _confirmed(
    asked: SizingRequest, found: int, emptied: dict[int, Ints], order: Ints, most: int
) -> Plan | None:
    """The plan with all goals, and the limits of the request, for the first number that works."""
    for number in range(found, most + 1):
        rows = emptied.get(number, order[: asked.living - number])
        plan = asked.plans(asked.snapshot, _emptying(asked, rows), False)
        if _meets(plan) or plan.summary.exhausted or asked.ended():
            return plan
    return None


def _grown(asked: SizingRequest) -> Plan:
    """A plan on a larger cluster; on the cluster as it is if no number of brokers helps."""
    plan = asked.plans(asked.snapshot, asked.operation, False)
    hard = [u for u in plan.unmet if u.hard]
    group = helped(hard)
    living, kind, s = asked.living, asked.kind, asked.snapshot
    most = asked.parameters.sized_added
    if kind.max_brokers is not None:
        most = min(most, kind.max_brokers - living)
    if not s.named_brokers:
        most = min(most, LARGEST_ID - int(s.broker_ids.max()))
    low = max(1, asked.least.number - living, kind.min_brokers - living)
    low = max(low, *(max(u.brokers_to_add, u.racks_to_add) for u in group)) if group else low
    met: dict[int, bool] = {}
    lost = len({u.goal for u in group}) < len({u.goal for u in hard})

    def larger(number: int, backwards: bool = False) -> tuple[Snapshot, Operation]:
        return enlarged(s, asked.operation, asked.cluster, number, group, backwards=backwards)[:2]

    def works(number: int, backwards: bool = False) -> bool:
        tried = _planned(asked, *larger(number, backwards))
        return tried is not None and _meets(tried, hard_only=True)

    while hard and not lost and not asked.ended() and most >= low:
        number = next_number(met, low)
        if number is None or len(met) >= asked.parameters.sized_numbers:
            break
        number = min(number, most)
        if number in met:
            break
        met[number] = works(number)
    found = min((number for number, ok in met.items() if ok), default=None)
    while found is not None and found <= most:
        snapshot, operation = larger(found)
        final = asked.plans(snapshot, operation, False)
        if _meets(final) or final.summary.exhausted:
            added = tuple(snapshot.broker_ids[s.n_brokers :].tolist())
            tried = int(found - 1 >= low)
            return replace(final, sizing=_stated(asked, final, living + found, added, tried, False))
        found += 1
    return replace(plan, sizing=_stated(asked, plan, living, (), 0, False))


def _planned(asked: SizingRequest, snapshot: Snapshot, operation: Operation) -> Plan | None:
    """A plan with hard goals; None if the strategy refuses the cluster."""
    try:
        return asked.plans(snapshot, operation, True)
    except InputError:
        return None


def _meets(plan: Plan, hard_only: bool = False) -> bool:
    """Whether a plan meets all hard goals; those of a plan may also fail for a limit on moves."""
    return all(g.met_after for g in plan.goal_results if g.hard) and (
        plan.verdict is None or plan.verdict.fulfilled
    )


def _emptying(asked: SizingRequest, rows: Ints) -> Operation:
    """The request for certain brokers to empty, in the order of their ids."""
    ids = asked.snapshot.broker_ids[np.sort(rows)].tolist()
    return asked.operation.model_copy(update={"brokers": tuple(ids)})


def emptying_order(cluster: Cluster, candidates: Bools) -> Ints:
    """Brokers in the order in which they are best emptied, all candidates.

    Each time, the broker whose broker set has most room without it; of those in one set the
    smallest; of equal ones one in the rack with the most capacity left; then the one with
    the least to copy.

    Parameters
    ----------
    cluster
        The cluster, with no candidate emptied.
    candidates : (B,) bool
        Brokers that may be emptied.
    """
    s = cluster.snapshot
    size, load = cluster.weight, s.broker_load()
    group = cluster.group
    work = np.zeros((int(group.max()) + 1, load.shape[1]))
    np.add.at(work, group, load)
    left = candidates.copy()
    disk = s.resources.index("disk") if "disk" in s.resources else 0
    capacity = np.where(~cluster.draining[:, None], s.capacity, 0.0)
    found: list[int] = []
    while left.any():
        rows = np.flatnonzero(left)
        room = np.zeros_like(work)
        np.add.at(room, group, capacity)
        remains = room[group[rows]] - capacity[rows]
        need = work[group[rows]]
        full = np.where(need > 0, need / np.maximum(remains, 1e-300), 0.0).max(1)
        # sets count only if there are several; sums of equal capacities differ in their last digits
        full = np.zeros(len(rows)) if len(work) == 1 else np.round(full, 9)
        rack = np.bincount(s.broker_rack, np.where(cluster.draining, 0.0, capacity.sum(1)))
        by = (load[rows, disk], -np.round(rack[s.broker_rack[rows]], 6), np.round(size[rows], 9), full)
        best = int(rows[np.lexsort(by)[0]])
        found.append(best)
        left[best] = False
        capacity[best] = 0.0
    return np.array(found, np.int64)


def _choices(asked: SizingRequest, number: int, order: Ints) -> list[Ints]:
    """Sets of brokers to empty: the best first, then neighbours of it, or all if they are few."""
    limit = asked.parameters.sized_choices
    rows = np.flatnonzero(asked.candidates)
    first = np.array(order[:number])
    found = [first]
    known = {frozenset(first.tolist())}

    def others() -> Iterator[Sequence[int]]:
        if comb(len(rows), number) <= limit:
            yield from combinations(order.tolist(), number)
        # with the last of the best exchanged for each of the next ones
        for after in order[number:].tolist():
            yield [*order[: number - 1].tolist(), after]

    for chosen in others():
        if len(found) >= limit:
            break
        if frozenset(chosen) not in known:
            known.add(frozenset(chosen))
            found.append(np.array(chosen, np.int64))
    return found


def _stated(
    asked: SizingRequest,
    plan: Plan,
    number: int,
    added: tuple[int | str, ...],
    tried: int,
    every: bool,
) -> Sizing:
    """What was found, and why one fewer is not enough."""
    emptied = tuple(plan.operation.get("brokers", ()))
    met = _meets(plan) or plan.summary.exhausted is not None
    least = asked.least
    proof: Proof = "none"
    if not met or asked.ended():
        tried = 0
    elif number <= least.number:
        proof, tried = "certificate", 0
    elif number <= asked.kind.min_brokers:
        proof, tried = "minimum", 0
    elif tried:
        proof = "every choice" if every else "search"
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
        text=_sentence(asked, number, emptied, added, met, proof, tried),
    )


def _sentence(
    asked: SizingRequest,
    number: int,
    emptied: Sequence[int | str],
    added: Sequence[int | str],
    met: bool,
    proof: Proof,
    tried: int,
) -> str:
    living, least = asked.living, asked.least
    if not met:
        return f"no number of brokers was found that meets all hard goals; at least {least.number}" + (
            f" ({least.reason})" if least.reason else ""
        )
    verb = "meets" if number == 1 else "meet"
    if added:
        text = (
            f"{living} of the needed {plural(number, 'broker')} exist: with {len(added)} more, which "
            f"this plan calls {_listed(added)}, all hard goals are met"
        )
    elif emptied:
        text = f"{number} of {plural(living, 'broker')} {verb} all hard goals: {_listed(emptied)} emptied"
    else:
        text = f"all {plural(living, 'broker')} are needed to meet the hard goals"
    why = {
        "certificate": f"fewer cannot ({least.reason or 'one must stay'})",
        "minimum": f"{asked.kind.min_brokers} is the minimum asked for",
        "search": f"with one fewer, no plan was found for {plural(tried, 'choice')} of brokers; fewer "
        f"than {least.number} cannot",
        "every choice": "with one fewer, no plan was found for any choice of brokers",
        "none": "the search ended before fewer were ruled out",
    }[proof]
    return f"{text}; {why}"


def _listed(ids: Sequence[int | str]) -> str:
    shown = ", ".join(str(i) for i in ids[:10])
    return shown + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
