"""Judges a placement under the loads of one window: goals, the worst broker, overload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from balancer.controller.balance import evenness
from balancer.planning.figures import balancedness
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from balancer.problem.tiers import with_availability
from balancer.search.scorer import Scorer
from cluster_model.snapshot import BrokerState, Floats, Snapshot
from goals import Goal, applicable


class WindowFigures(NamedTuple):
    """Figures of a window.

    Parameters
    ----------
    known
        Share of the partitions whose loads are known.
    violated, violated_hard
        Goals that are not met, and the hard ones of them.
    cells
        Discontented cells (brokers, topics, partitions) of all goals.
    balancedness
        As in plans, up to 100.
    worst, worst_broker, worst_resource
        Load / capacity of the most loaded broker in the resource it is most loaded in.
    uneven
        Load / fair share of the broker furthest above it, in any resource or count.
    overloaded
        Brokers that carry more than the limit of the capacity of any resource.
    copying
        Bytes/s that plans copy in the window, part of the brokers' loads.
    """

    known: float
    violated: int
    violated_hard: int
    cells: int
    balancedness: float
    worst: float
    worst_broker: int
    worst_resource: str
    uneven: float
    overloaded: int
    copying: float = 0.0


def judge(
    snapshot: Snapshot,
    goals: Sequence[Goal],
    limit: float,
    known: float = 1.0,
    copying: Floats | None = None,
) -> WindowFigures:
    """Judge a cluster with its loads of a window.

    Parameters
    ----------
    snapshot
        Placement and loads. A broker without capacity for a load it carries is overloaded,
        without a ratio.
    goals
        The goals to judge by; inapplicable ones are left out, and dead or leaderless replicas
        are not counted.
    limit
        Share of its capacity up to which a broker is not overloaded.
    known
        Share of the partitions whose loads are known.
    copying : (B, 2) float
        Bytes/s that each broker receives and sends for plans. They count as load of the
        network, but not for goals, which judge placements.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> from goals import load_goals
    >>> cluster = synthetic_snapshot(brokers=6, partitions=60, racks=3, utilization=0.4)
    >>> judge(cluster, load_goals("default"), 0.8).worst_resource
    'network_out'
    """
    cluster = resolve(snapshot, Operation()).cluster
    fitting = with_availability(applicable(goals, snapshot, strict=False))
    prepared = [g.prepared(cluster) for g in fitting]
    scorer = Scorer(cluster, prepared)
    short = [
        (g.hard, int((scores < 1).sum()))
        for g, scores in zip(prepared, scorer.scores, strict=True)
        if not g.availability and (scores < 1).any()
    ]
    lives = (snapshot.broker_state != BrokerState.DEAD)[:, None]
    load = broker_load(snapshot, copying)
    share = broker_shares(snapshot, load)
    nowhere = lives & (snapshot.capacity == 0) & (load > 0)
    broker, resource = np.unravel_index(int(np.argmax(share)), share.shape)
    even = evenness(cluster)
    return WindowFigures(
        known=known,
        violated=len(short),
        violated_hard=sum(hard for hard, _ in short),
        cells=sum(cells for _, cells in short),
        balancedness=balancedness(
            [g.hard for g in prepared], [scorer.met(i) for i in range(len(prepared))]
        ),
        worst=float(share[broker, resource]),
        worst_broker=int(snapshot.broker_ids[broker]),
        worst_resource=snapshot.resources[resource],
        uneven=float(even["worst"]["ratio"]) if even else 0.0,
        overloaded=int(((share > limit) | nowhere).any(axis=1).sum()),
        copying=0.0 if copying is None else float(copying[:, 0].sum()),
    )


def broker_load(snapshot: Snapshot, copying: Floats | None = None) -> Floats:
    """(B, R) float: loads of the brokers, with what they copy (B, 2), in and out."""
    load = snapshot.broker_load()
    for way, name in enumerate(("network_in", "network_out")):
        if copying is not None and name in snapshot.resources:
            load[:, snapshot.resource(name)] += copying[:, way]
    return load


def broker_shares(snapshot: Snapshot, load: Floats) -> Floats:
    """(B, R) float: loads as shares of the capacities; 0 without capacity, or if dead."""
    counts = (snapshot.broker_state != BrokerState.DEAD)[:, None] & (snapshot.capacity > 0)
    return np.divide(load, snapshot.capacity, out=np.zeros(counts.shape), where=counts)
