"""Checks the figures of a plan: its summary, its columns and its allocation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from balancer.planning.document import Spread
from balancer.verification.bounds import least_cost, least_ratio
from balancer.verification.replay import Replay
from balancer.verification.replicas import ReplicaTable, sizes, special_costs, sums, unit_of_cost
from balancer.verification.report import Fault, agree
from cluster_model.snapshot import Floats


def _differs(what: str, stated: float, found: float) -> Iterator[Fault]:
    if not agree(stated, found):
        yield Fault(what.split(" ")[0], f"{what}: {stated:.9g} stated, {found:.9g} found")


def summary_faults(replay: Replay) -> Iterator[Fault]:
    """Counts of actions, their cost and its bound, and balancedness."""
    plan, s = replay.plan, replay.plan.summary
    kinds: list[str] = [a.kind for a in plan.actions]
    stated = {
        "move": s.replica_moves,
        "leadership": s.leadership_moves,
        "move_disk": s.disk_moves,
        "add": s.replicas_added,
        "remove": s.replicas_removed,
    }
    for kind, number in stated.items():
        yield from _differs(f"summary: actions of kind {kind}", number, kinds.count(kind))
    groups = {a.group for a in plan.actions if a.group is not None}
    yield from _differs("group_moves", s.group_moves, len(groups))
    if s.left_out < 0:
        yield from _differs("summary.left_out", s.left_out, 0)
    if s.blocked and not s.left_out:
        yield Fault("blocked", f"summary.blocked: {s.blocked!r} stated, nothing was left out")
    yield from _differs("cost", s.cost, sum(a.cost for a in plan.actions))
    moves, budget = s.replica_moves + s.disk_moves + s.replicas_added, plan.budget
    if budget.moves is not None and moves > budget.moves:
        yield Fault("budget", f"budget: {moves} moves found, at most {budget.moves} expected")
    if budget.cost is not None and s.cost > budget.cost * (1 + 1e-6):
        yield Fault(
            "budget", f"budget: cost {s.cost:.9g} found, at most {budget.cost:.9g} expected"
        )
    for name, limit, group in (
        ("broker", budget.moves_per_broker, np.arange(replay.snapshot.n_brokers)),
        ("rack", budget.moves_per_rack, replay.snapshot.broker_rack),
    ):
        place = dict(zip(replay.snapshot.broker_ids.tolist(), group.tolist(), strict=True))
        if limit is not None:
            arrived = Counter(
                place.get(a.destination)
                for a in plan.actions
                if a.kind in ("move", "add", "move_disk")
            )
            gone = Counter(place.get(a.source) for a in plan.actions if a.kind == "move")
            found = max([0, *arrived.values(), *gone.values()])
            if found > limit:
                yield Fault(
                    "budget",
                    f"budget: {found} moves to or from one {name} found, at most {limit} expected",
                )
    most = [0.0] * replay.snapshot.n_partitions
    for (p, _), special in special_costs(replay.snapshot).items():
        most[p] = max(most[p], special)
    lead, follow = (np.maximum(size, most) for size in sizes(replay.snapshot))
    start = replay.start
    total = np.where(start.leads, lead[start.partition], follow[start.partition]).sum()
    if s.cost_unit != (unit := unit_of_cost(replay.snapshot)):
        yield Fault("cost_unit", f"cost_unit: {s.cost_unit!r} stated, {unit!r} expected")
    yield from _differs("cost_total", s.cost_total, float(total))
    if not s.cost >= s.cost_bound * (1 - 1e-6) - 1e-6:
        yield Fault("cost_bound", f"cost_bound: {s.cost_bound:.9g}, more than {s.cost:.9g} moved")
    operation = replay.request.kind
    # nothing can be derived for an unknown operation
    least = 0.0 if operation.known else math.inf
    if operation.known and operation.moves != "changed":
        names = {g.goal for g in plan.goal_results if g.met_after}
        reached = [g for g in replay.goals if g["name"] in names]
        least = least_cost(replay.request, replay.start, reached)
        if unit == "replicas" and replay.snapshot.cost_unit is None:
            # every copy costs 1
            least = math.ceil(least)
    if not 0 <= s.cost_bound <= least * (1 + 1e-6) + 1e-6:
        yield Fault(
            "cost_bound", f"cost_bound: {s.cost_bound:.9g} stated, {least:.9g} can be derived"
        )
    cost = [1.1**k * (1.5 if g.hard else 1.0) for k, g in enumerate(reversed(plan.goal_results))]
    for when, score in (("before", s.balancedness_before), ("after", s.balancedness_after)):
        met = [getattr(g, f"met_{when}") for g in reversed(plan.goal_results)]
        kept = sum(c for c, ok in zip(cost, met, strict=True) if ok)
        expected = 100 * kept / sum(cost) if cost else 100.0
        yield from _differs(f"balancedness_{when}", score, expected)


def allocation_faults(replay: Replay) -> Iterator[Fault]:
    """Local communication, and the load distance of the balanced resource."""
    stated, s, request = replay.plan.allocation, replay.snapshot, replay.request
    if stated is None:
        return
    stays = ~request.draining
    if stated.resource not in s.resources:
        yield Fault("resource", f"allocation: {stated.resource!r} is none of {s.resources}")
        return
    r = s.resource(stated.resource)
    capacity, mean = s.capacity[:, r], s.capacity[stays, r].mean()
    if not mean > 0:
        yield Fault("resource", f"allocation: no broker has any capacity of {stated.resource}")
        return
    # partitions that were only on dead disks or brokers are lost, and do not count; those that
    # are created from nothing never are
    alive = np.append(s.disk_alive, True)[s.replica_disk] if s.n_disks else np.ones(s.n_replicas)
    there = (alive > 0) & ~request.dead[s.replica_broker]
    there |= ~request.needs_source[s.replica_partition]
    talks = there[s.traffic_from] & there[s.traffic_to] & (s.traffic_from != s.traffic_to)
    one, two, rate = s.traffic_from[talks], s.traffic_to[talks], s.traffic_rate[talks]
    for when, at in (("before", replay.start.leader), ("after", replay.now.leader)):
        local = rate[at[one] == at[two]].sum() / rate.sum() if rate.sum() > 0 else 1.0
        yield from _differs(f"local_{when}", getattr(stated, f"local_{when}"), float(local))
        carried = sums(at[there], s.leader_load[there, r], s.n_brokers)
        fair = carried.sum() / capacity[stays].sum()
        # the load of a broker without capacity has no scale
        off = 100 * (carried / np.where(capacity > 0, capacity, mean) - fair)
        distance = max(float(off.max()), -float(off[stays].min()), 0.0)
        # which brokers stay depends on the operation
        if request.kind.known:
            yield from _differs(f"distance_{when}", getattr(stated, f"distance_{when}"), distance)
    if not stated.distance_bound <= stated.distance_after:
        yield Fault("distance_bound", f"distance_bound: {stated.distance_bound:.9g} not reached")


def column_faults(replay: Replay) -> Iterator[Fault]:
    """The spread of each resource and count, before and after, and its bound."""
    request, columns = replay.request, columns_of(replay)
    if set(replay.plan.columns) != set(columns):
        yield Fault("columns", f"columns {sorted(replay.plan.columns)}, {sorted(columns)} expected")
    for name, result in replay.plan.columns.items():
        if name not in columns:
            continue
        if result.after.worst_ratio < result.worst_ratio_bound * (1 - 1e-6):
            yield Fault(
                "worst_ratio_bound",
                f"column {name}: worst_ratio_bound {result.worst_ratio_bound:.9g}, "
                f"more than {result.after.worst_ratio:.9g} reached",
            )
        # which brokers have a share depends on the operation
        if not request.kind.known:
            continue
        weight = request.weight(columns[name])
        for when, table, base, spread in (
            ("before", replay.start, replay.start, result.before),
            ("after", replay.now, replay.base, result.after),
        ):
            share = request.fair_share(base.per_broker(columns[name]), weight)
            value = table.per_broker(columns[name])
            for figure, found in _spread(value, share):
                if figure == "worst_ratio" and when == "after" and replay.cut:
                    continue
                stated = float(getattr(spread, figure))
                yield from _differs(f"columns: {name} {figure} {when}", stated, found)
        share = request.fair_share(replay.base.per_broker(columns[name]), weight)
        # an allocation balances while it empties brokers
        # an allocation that empties brokers may move other replicas too
        allocates = replay.plan.allocation is not None and request.kind.empties
        free = request.kind.moves == "any" or allocates
        ends = replay.base, replay.now
        least = least_ratio(request, columns[name], share, *ends, free)
        bound = result.worst_ratio_bound
        if not replay.cut and not 0 <= bound <= least * (1 + 1e-6) + 1e-9:
            yield Fault(
                "worst_ratio_bound",
                f"column {name}: worst_ratio_bound {bound:.9g} stated, {least:.9g} can be derived",
            )


def columns_of(replay: Replay) -> dict[str, str]:
    """Name of each column of a plan -> what it sums up."""
    loads = {r: f"load.{r}" for r in replay.snapshot.resources}
    return loads | {"replica_count": "replica_count", "leader_count": "leader_count"}


def largest_ratio(replay: Replay, column: str, table: ReplicaTable) -> float:
    """The largest load of a broker as a multiple of its fair share before the plan."""
    request = replay.request
    share = request.fair_share(replay.start.per_broker(column), request.weight(column))
    return dict(_spread(table.per_broker(column), share))["worst_ratio"]


def _spread(value: Floats, share: Floats) -> Iterator[tuple[str, float]]:
    """The figures of a :class:`Spread`, over the brokers that have a share."""
    has = share > 0
    seen = value[has] if has.any() else value
    found = {
        "mean": seen.mean(),
        "max": seen.max(),
        "min": seen.min(),
        "std": seen.std(),
        "worst_ratio": (value[has] / share[has]).max() if has.any() else 1.0,
    }
    assert found.keys() == Spread.model_fields.keys()
    return ((figure, float(x)) for figure, x in found.items())
