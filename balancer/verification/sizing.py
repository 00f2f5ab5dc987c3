"""Checks what a plan states about the number of brokers: counts, and the certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np

from balancer.planning.document import Sizing
from balancer.verification.replay import Replay
from balancer.verification.replicas import contribution
from balancer.verification.report import Fault
from cluster_model.snapshot import Bools, Floats

# Goals whose limit of a broker does not depend on which others there are.
_OWN = ("ResourceCapacity", "ReplicaCapacity", "PotentialNetworkOut", "TransientCapacity")
# Loads that are compared as sums differ in their last digits.
_ROUNDING = 1e-6
_TRIED = ("search", "every choice")


def sizing_faults(replay: Replay) -> Iterator[Fault]:
    """Errors in the record of a sized cluster.

    That plans for other numbers of brokers failed is not repeated.
    """
    stated, request, s = replay.plan.sizing, replay.request, replay.snapshot
    if stated is None:
        return
    if request.kind_name != "right_size":
        yield Fault("sizing", f"sizing: stated for the operation {request.kind_name}")
        return
    for text in [*_wrong_counts(replay, stated), *_wrong_result(replay, stated)]:
        yield Fault("sizing", f"sizing: {text}")
    absent = [b for b in stated.added if b not in set(s.broker_ids.tolist())]
    if absent or replay.cut:
        # without the brokers to add, the certificate has no cluster
        return
    new = np.isin(s.broker_ids, list(stated.added))
    least = _least(replay, new)
    if stated.least > least:
        yield Fault("sizing", f"sizing: at least {stated.least} brokers stated, {least} found")


def _wrong_counts(replay: Replay, stated: Sizing) -> Iterator[str]:
    """Numbers of brokers that contradict the snapshot and the operation."""
    s, request = replay.snapshot, replay.request
    ids = set(s.broker_ids.tolist())
    if {*stated.emptied} != {*s.broker_ids[request.named].tolist()}:
        yield f"{[*stated.emptied]} stated as emptied, the operation names others"
    if not {*stated.added} <= ids or len({*stated.added}) < len(stated.added):
        yield f"{[*stated.added]} stated as added, brokers of the snapshot expected"
    living = int((~request.dead).sum())
    if stated.brokers_before != living - len(stated.added):
        yield (f"{stated.brokers_before} brokers before stated, {living - len(stated.added)} found")
    if stated.brokers != living - len(stated.emptied):
        yield f"{stated.brokers} brokers stated, {living - len(stated.emptied)} found"


def _wrong_result(replay: Replay, stated: Sizing) -> Iterator[str]:
    """Statements about the goals and the proof that contradict one another."""
    plan = replay.plan
    unmet = [g.goal for g in plan.goal_results if g.hard and not g.met_after]
    held = plan.verdict is None or plan.verdict.fulfilled
    options = plan.operation.get("options") or {}
    minimum = options.get("min_brokers", 1)
    within = minimum <= stated.brokers <= (options.get("max_brokers") or stated.brokers)
    done = not unmet and held
    if stated.met and not (within and (done or plan.summary.exhausted is not None)):
        yield f"met is stated, with {stated.brokers} brokers and {len(unmet)} hard goals unmet"
    if not stated.met and within and done:
        yield "met is denied, and all hard goals are met"
    if stated.proof == "certificate" and stated.brokers > stated.least:
        yield f"a certificate is stated for {stated.brokers} brokers, it proves {stated.least}"
    if stated.proof == "minimum" and stated.brokers > minimum:
        yield f"{stated.brokers} is above the minimum, {minimum}"
    tried = stated.fewer_tried > 0
    if tried != (stated.proof in _TRIED) and (tried or stated.proof == "search"):
        yield f"the proof is {stated.proof!r}, and {stated.fewer_tried} choices were tried"


def _least(replay: Replay, new: Bools) -> int:
    """The number of living brokers below which some hard goal is proven unmet."""
    s, request, table = replay.snapshot, replay.request, replay.base
    # a broker that the plan empties could also be kept
    living = ~request.dead
    free = living & (request.receives | request.named)
    fixed = living & ~free
    others = int(fixed.sum())
    factor = table.factor
    best = max(1, int(factor.max(initial=0)))
    racked = not others and any(
        g["goal"] == "RackAwareness" and g["hard"] for g in replay.stated.known
    )
    for goal in replay.stated.known:
        if goal["goal"] not in _OWN or not goal["hard"]:
            continue
        column, limit = _limit(replay, goal)
        lead, follow = contribution(s, column)
        sizes = np.concatenate([lead[factor > 0], np.repeat(follow, np.maximum(factor - 1, 0))])
        kept = np.bincount(table.broker, np.maximum(lead, follow)[table.partition], s.n_brokers)
        needed = float(sizes.sum() - np.minimum(kept, limit)[fixed].sum())
        old = free & ~new
        enough = _count(needed, limit[old])
        if enough is None:
            # a typical broker: one more like the median of those that may hold replicas
            like = np.sort(limit[(request.eligible | request.named) & living & ~new])
            added = float(like[(len(like) - 1) // 2]) if len(like) else 0.0
            missing = needed - float(limit[old].sum())
            enough = int(old.sum()) + (max(1, ceil(missing / added)) if added > 0 else 1)
        best = max(best, enough + others)
        largest = float(limit[free].max(initial=0.0))
        if not others and largest > 0:
            best = max(best, int((sizes > largest / 2 * (1 - _ROUNDING)).sum()))
        racks = np.unique(s.broker_rack[old])
        full = factor >= len(racks)
        if racked and len(racks) > 1 and full.any():
            each = float(np.minimum(lead, follow)[full].sum())
            counts = [(_count(each, limit[old & (s.broker_rack == r)]), r) for r in racks]
            best = max(
                best,
                sum(
                    max(1, int((old & (s.broker_rack == r)).sum()) if k is None else k)
                    for k, r in counts
                ),
            )
    return best


def _count(needed: float, limit: Floats) -> int | None:
    """The fewest of the largest limits that have room for a load; None if all have not."""
    room = 0.0
    for k, more in enumerate([0.0, *np.sort(limit)[::-1].tolist()]):
        room += more
        # this bound may be too high by rounding, never too low
        if needed <= room * (1 - _ROUNDING) or needed <= 0:
            return k
    return None


def _limit(replay: Replay, goal: Mapping[str, Any]) -> tuple[str, Floats]:
    """The column of a goal, and (B,) its limits if no broker is emptied; 0 on dead brokers."""
    request, kind = replay.request, goal["goal"]
    resource = goal.get("resource", "network_out")
    if kind == "ReplicaCapacity":
        column, limit = "replica_count", np.full(replay.snapshot.n_brokers, float(goal["limit"]))
    elif kind == "TransientCapacity":
        column, limit = f"load.{resource}", request.capacity(resource) * goal["limit"]
    else:
        measure = "potential_load" if kind == "PotentialNetworkOut" else "load"
        column, limit = f"{measure}.{resource}", request.capacity(resource) * goal["threshold"]
    return column, np.where(request.dead, 0.0, limit)
