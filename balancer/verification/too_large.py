"""Proves, without the planner's code, that a replica to add is larger than any broker may hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from balancer.verification.goals import TOLERANCE
from balancer.verification.replaced_limits import stated_limits
from balancer.verification.replay import Replay
from balancer.verification.replicas import contribution, values
from cluster_model.snapshot import Floats
from goals import Infeasibility
from goals.infeasibility import too_large


def too_large_proofs(replay: Replay) -> list[Infeasibility]:
    """The first proof among the limits of the goals, in order, and the capacities; none if none."""
    s, request = replay.snapshot, replay.request
    factor = replay.now.factor
    cells = np.flatnonzero((factor < request.factor) & ~(replay.lost | request.untouched))
    topics, row = np.unique(s.partition_topic[cells], return_inverse=True)
    takes = [request.receives & request.holders(t) for t in topics]
    for column, limit in _limits(replay):
        lead, follow = contribution(s, column)
        size = np.where(factor[cells] == 0, lead[cells], follow[cells])
        most = np.maximum(limit, values(replay.start, "broker", column))
        largest = np.array([most[able].max(initial=0.0) for able in takes])[row]
        over = np.flatnonzero(size > largest * (1 + TOLERANCE))
        if not len(over):
            continue
        over = over[np.argsort(-size[over], kind="stable")]
        p = int(cells[over[0]])
        name = f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}"
        more = f" and {len(over) - 1} more" if len(over) > 1 else ""
        sizes = float(size[over[0]]), float(largest[over[0]])
        return [too_large(name + more, column, *sizes)]
    return []


def _limits(replay: Replay) -> Iterator[tuple[str, Floats]]:
    """Column and (B,) limits of hard goals on brokers, then what brokers hold at most."""
    request = replay.request
    for goal in replay.goals:
        scope, column, most = stated_limits(goal, request)
        if goal.get("hard") and scope == "broker":
            yield column, most
    for resource in replay.snapshot.resources:
        yield f"load.{resource}", np.where(request.draining, np.inf, request.capacity(resource))
