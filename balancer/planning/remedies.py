"""Finds how many more brokers make unmet goals possible, by planning on larger clusters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from balancer.planning.document import Remedy, Unmet
from balancer.planning.least_brokers import least_brokers, needs_of
from balancer.planning.plan import Plan
from balancer.problem.operation import Operation
from balancer.problem.operations import type_of
from balancer.problem.resolution import resolve
from cluster_model.errors import InputError
from cluster_model.snapshot import LARGEST_ID, BrokerIds, BrokerState, Ints, Snapshot
from goals import Cluster
from metrics_reporter.quantities import plural

# makes a plan for a cluster and an operation, with hard goals only or with all
Attempt = Callable[[Snapshot, Operation, bool], Plan]


class RemedyLimits(BaseModel):
    """Effort of the search for a remedy, counted in work: equal inputs give equal remedies.

    Parameters
    ----------
    trials
        Maximum number of sizes to plan for, each with the new brokers in two orders.
    replicas
        Maximum total number of replicas of these clusters: if one cluster has more, none is tried,
        and only the certificates' lower bound is stated.
    brokers
        Maximum number of brokers to add.
    confirmed
        Maximum number of sizes that suffice for the hard goals and are then tried with all goals.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trials: int = Field(default=6, ge=0)
    replicas: int = Field(default=6_000, ge=0)
    brokers: int = Field(default=200, ge=0)
    confirmed: int = Field(default=2, ge=0)


def find_remedy(
    plan: Plan,
    attempt: Attempt | None,
    limits: RemedyLimits,
    seconds: float | None = None,
) -> Remedy | None:
    """The fewest brokers found with which a plan meets what this one leaves unmet.

    Hard goals come first: all that brokers may help, else those that are proven impossible
    without more brokers; soft ones only if no hard goal is unmet. No hard goal that was met
    may be lost.

    Parameters
    ----------
    plan
        The plan that leaves goals unmet.
    attempt
        Plans for another cluster; None to try no other cluster.
    limits
        How much effort to spend.
    seconds
        Time after which no further cluster is tried; None for no limit.
    """
    operation = Operation(**plan.operation)
    if not type_of(operation).moves_replicas:
        return None
    hard = [u for u in plan.unmet if u.hard]
    kept = {g.goal for g in plan.goal_results if g.hard and g.met_after}
    groups = [helped(hard), helped([u for u in hard if u.proven])]
    if not hard:
        groups = [helped([u for u in plan.unmet if u.proven])]
    if plan.summary.exhausted is not None:
        groups = groups[-1:]
    groups = [group for group in groups if group]
    if not groups:
        return None
    trials = limits.replicas // max(1, plan.snapshot.n_replicas)
    trials = 0 if attempt is None else min(limits.trials, trials)
    deadline = None if seconds is None else time.monotonic() + seconds
    for group in groups:
        number = _enough(plan, operation, group, kept, attempt, trials, limits, deadline)
        if number is not None:
            cluster = resolve(plan.snapshot, operation).cluster
            *_, places = enlarged(plan.snapshot, operation, cluster, number, group)
            return Remedy(
                goals=tuple(dict.fromkeys(u.goal for u in group)),
                brokers=number,
                racks=_new_racks(cluster, number, group),
                tried=True,
                text=f"add {plural(number, 'broker')}{places}",
            )
    return _at_least(groups[-1])


def _enough(
    plan: Plan,
    operation: Operation,
    group: Sequence[Unmet],
    kept: set[str],
    attempt: Attempt | None,
    trials: int,
    limits: RemedyLimits,
    deadline: float | None,
) -> int | None:
    """The fewest brokers found with which all goals of a group and all kept goals are met."""
    requested = {u.goal for u in group} | kept
    hard = all(u.hard for u in group)
    cluster = resolve(plan.snapshot, operation).cluster
    least = max(1, *(max(u.brokers_to_add, u.racks_to_add) for u in group))
    if hard:
        candidates = cluster.eligible & plan.end.rules.receives
        goals = [goal for goal in plan.end.scorer.goals if goal.name in requested]
        bound = least_brokers(needs_of(goals, cluster, candidates), cluster, candidates)
        least = max(least, bound.number - int((~cluster.draining).sum()))

    def meets(number: int, hard_only: bool, backwards: bool) -> bool:
        larger, asked, _ = enlarged(
            plan.snapshot, operation, cluster, number, group, backwards=backwards
        )
        assert attempt is not None
        try:
            tried = attempt(larger, asked, hard_only)
        except InputError:
            # a strategy may refuse the larger cluster: that is no remedy, but no failure either
            return False
        return requested <= {g.goal for g in tried.goal_results if g.met_after}

    def suffices(number: int, hard_only: bool) -> bool:
        # the search depends on the order of the brokers
        return all(meets(number, hard_only, way) for way in (False, True)[:number])

    # added brokers get the ids after the existing ones, as far as ids are available
    most = limits.brokers
    if not plan.snapshot.named_brokers:
        most = min(most, LARGEST_ID - int(plan.snapshot.broker_ids.max()))
    met: dict[int, bool] = {}
    for _ in range(limits.confirmed):
        while (
            (number := next_number(met, least)) is not None and number <= most and len(met) < trials
        ):
            if deadline is not None and time.monotonic() > deadline:
                break
            met[number] = suffices(number, hard)
        found = min((number for number, ok in met.items() if ok), default=None)
        # planning for hard goals is quick; the result is confirmed with all goals
        if found is None or not hard or suffices(found, False):
            return found
        met[found] = False
    return None


def helped(unmet: Sequence[Unmet]) -> list[Unmet]:
    """Without the goals that are proven to need something other than brokers."""
    lost = {u.goal for u in unmet if u.proven and not (u.brokers_to_add or u.racks_to_add)}
    return [u for u in unmet if u.goal not in lost]


def _at_least(group: Sequence[Unmet]) -> Remedy | None:
    """The lower bound by certificates; None if they require no broker."""
    asking = [u for u in group if u.proven and (u.brokers_to_add or u.racks_to_add)]
    if not asking:
        return None
    racks = max(u.racks_to_add for u in asking)
    brokers = max(racks, *(u.brokers_to_add for u in asking))
    return Remedy(
        goals=tuple(dict.fromkeys(u.goal for u in asking)),
        brokers=brokers,
        racks=racks,
        tried=False,
        text=f"add at least {plural(brokers, 'broker')}"
        + (f" in at least {plural(racks, 'more rack')}" if racks else ""),
    )


def next_number(met: dict[int, bool], least: int) -> int | None:
    """How many brokers to try next: increasing until it is enough, then fewer."""
    enough = min((number for number, ok in met.items() if ok), default=None)
    if enough is None:
        return max(met) + (max(met) - least + 1) if met else least
    short = max((number for number in met if number < enough), default=least - 1)
    return (enough + short) // 2 if enough - short > 1 else None


def enlarged(
    snapshot: Snapshot,
    operation: Operation,
    cluster: Cluster,
    number: int,
    unmet: Sequence[Unmet] = (),
    *,
    backwards: bool = False,
) -> tuple[Snapshot, Operation, str]:
    """A larger cluster, the operation that may use the new brokers, and their racks and sets.

    Each new broker has the median capacities of the brokers that may receive replicas, and
    the disks of the median one, and may hold every topic. New brokers level the number of
    brokers per rack, with as many new racks as certificates require; if every broker has its own
    rack, so does each new one. With broker sets, they go where certificates require them, the rest
    to the fullest set. The new brokers come in the order in which the sentence lists them.

    Parameters
    ----------
    snapshot, operation
        The current cluster, and the request.
    cluster
        The same cluster as goals see it.
    number
        Brokers to add.
    unmet
        The goals that the brokers are to help.
    backwards
        Whether the new brokers come in the opposite order instead.
    """
    s = snapshot
    new_racks = _new_racks(cluster, number, unmet)
    names = [*s.racks, *_unused("new-rack", new_racks, s.racks)]
    held = np.bincount(s.broker_rack[cluster.eligible], minlength=len(names))
    open_racks = np.flatnonzero((held > 0) | (np.arange(len(names)) >= len(s.racks)))
    if len(open_racks) == new_racks > 0 or not len(open_racks):
        open_racks = np.arange(len(names))
    racks = []
    for _ in range(number):
        least = int(open_racks[np.argmin(held[open_racks])])
        held[least] += 1
        racks.append(least)
    sets = _sets(cluster, number, unmet)
    several = f"{new_racks} new racks" if new_racks > 1 else "a new rack"
    where = [
        (several if r >= len(s.racks) else f"rack {names[r]}")
        + (f" and broker set {s.broker_sets[b]}" if b >= 0 else "")
        for r, b in zip(racks, sets.tolist(), strict=True)
    ]
    places = Counter(where)
    turns = sorted(range(number), key=lambda k: list(places).index(where[k]), reverse=backwards)
    rack, sets = [racks[k] for k in turns], sets[turns]
    ids = _later_ids(s, number)
    d = cluster.typical_disks
    grown = replace(
        s,
        broker_ids=np.concatenate([s.broker_ids, ids]),
        racks=tuple(names),
        broker_rack=np.concatenate([s.broker_rack, rack]),
        hosts=(*s.hosts, *_unused("new-host", number, s.hosts)),
        broker_host=np.concatenate([s.broker_host, len(s.hosts) + np.arange(number)]),
        broker_state=np.concatenate([s.broker_state, np.full(number, BrokerState.ALIVE)]),
        capacity=np.concatenate([s.capacity, np.tile(cluster.typical, (number, 1))]),
        broker_set=np.concatenate([s.broker_set, sets]) if len(s.broker_set) else s.broker_set,
        disk_broker=np.concatenate(
            [s.disk_broker, np.repeat(s.n_brokers + np.arange(number), len(d))]
        ),
        disk_path=(*s.disk_path, *(s.disk_path[k] for _ in range(number) for k in d.tolist())),
        disk_capacity=np.concatenate([s.disk_capacity, np.tile(s.disk_capacity[d], number)]),
        disk_alive=np.concatenate([s.disk_alive, np.ones(number * len(d), np.bool_)]),
        disk_cordoned=np.concatenate([s.disk_cordoned, np.zeros(number * len(d), np.bool_)])
        if len(s.disk_cordoned)
        else s.disk_cordoned,
        broker_attributes=_attributes(s, rack),
        may_hold=np.pad(s.may_hold, ((0, 0), (0, number)), constant_values=True)
        if s.may_hold.size
        else s.may_hold,
    )
    changes: dict[str, tuple[int | str, ...]] = {}
    if type_of(operation).named_receive:
        changes["brokers"] = (*operation.brokers, *ids.tolist())
    if operation.destinations is not None:
        changes["destinations"] = (*operation.destinations, *ids.tolist())
    if len(places) == 1:
        text = f" in {next(iter(places))}"
    else:
        text = ": " + ", ".join(f"{n} in {place}" for place, n in places.items())
    return grown, operation.model_copy(update=changes), text


def _new_racks(cluster: Cluster, number: int, unmet: Sequence[Unmet]) -> int:
    """As many as certificates require; one each if every broker has its own."""
    held = np.bincount(cluster.snapshot.broker_rack[cluster.eligible])
    alone = len(cluster.snapshot.racks) > 1 and int(held.max(initial=1)) == 1
    asked = max((u.racks_to_add for u in unmet), default=0)
    return number if alone else min(number, asked)


def _unused(name: str, number: int, taken: Sequence[str]) -> list[str]:
    known, at = set(taken), 1
    found: list[str] = []
    while len(found) < number:
        if f"{name}-{at}" not in known:
            found.append(f"{name}-{at}")
        at += 1
    return found


def _sets(cluster: Cluster, number: int, unmet: Sequence[Unmet]) -> Ints:
    """(number,) the broker set of each broker to add; -1 for none."""
    s = cluster.snapshot
    if not len(s.broker_set):
        return np.full(number, -1)
    asked = [
        s.broker_sets.index(u.broker_set)
        for u in unmet
        if u.broker_set
        for _ in range(u.brokers_to_add)
    ]
    room = np.zeros((len(s.broker_sets), len(s.resources)))
    load = np.zeros_like(room)
    inside = s.broker_set >= 0
    np.add.at(load, s.broker_set[inside], s.broker_load()[inside])
    open_ = inside & cluster.eligible
    np.add.at(room, s.broker_set[open_], s.capacity[open_])
    chosen: list[int] = []
    for k in range(number):
        if k < len(asked):
            chosen.append(asked[k])
        else:
            full = load / np.maximum(room, 1e-300)
            chosen.append(int(np.argmax(full.max(1, initial=0.0))))
        room[chosen[-1]] += cluster.typical
    return np.array(chosen, np.int64)


def _attributes(s: Snapshot, racks: Sequence[int]) -> dict[str, list[Any]]:
    """Attributes of the brokers and of new ones.

    A new broker has the value that all brokers of its rack share. Where there is none, it has the
    value that the fewest brokers have, as an operator would add brokers to zones that cross racks;
    none where each broker has a value of its own.
    """
    found = {}
    for name, values in s.broker_attributes.items():
        column = values.tolist()
        known = [value for value in column if value is not None]
        count = {value: known.count(value) for value in known}
        distinct = len(known) > 1 and len(count) == len(known)
        for rack in racks:
            own = set(values[s.broker_rack == rack].tolist())
            if len(own) == 1:
                value = own.pop()
            else:
                value = None if distinct or not count else min(count, key=lambda v: count[v])
            if value is not None:
                count[value] += 1
            column.append(value)
        found[name] = column
    return found


def _later_ids(snapshot: Snapshot, number: int) -> BrokerIds:
    """Ids of additional brokers, in order after all others."""
    last = snapshot.broker_ids[-1]
    if snapshot.named_brokers:
        return np.array([f"{last}+{i:06d}" for i in range(1, number + 1)])
    return int(last) + 1 + np.arange(number)
