"""Small problems and jobs that several tests use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from balancer.allocation.problem import Allocation
from balancer.allocation.units import Units
from cluster_model import Snapshot
from cluster_model.snapshot import Ints

# Rounds of search that are enough for the few units of a test.
ROUNDS = 60


# Some problems take long to draw.
examples = settings(
    max_examples=settings().max_examples * 2 // 5, suppress_health_check=list(HealthCheck)
)


def allocation(
    load: Sequence[float],
    node: Sequence[int],
    nodes: int,
    *,
    budget: float = np.inf,
    removed: Sequence[int] = (),
    cost: Sequence[float] | None = None,
) -> Allocation:
    return Allocation(
        load=np.array(load, np.float64),
        cost=np.ones(len(load)) if cost is None else np.array(cost, np.float64),
        node=np.array(node, np.int64),
        weight=np.ones(nodes),
        removed=np.isin(np.arange(nodes), removed),
        budget=budget,
    )


def talking(
    problem: Allocation, operator: Sequence[int], out: dict[tuple[int, int], float]
) -> Units:
    """Units that send what `out` says."""
    return Units(
        problem=problem,
        operator=np.array(operator, np.int64),
        source=np.array([a for a, _ in out], np.int64),
        target=np.array([b for _, b in out], np.int64),
        rate=np.array(list(out.values()), np.float64),
    )


@st.composite
def problems(draw: st.DrawFn) -> Allocation:
    """Few nodes, some marked for removal and some of other capacity; units, some fixed."""
    nodes = draw(st.integers(1, 6))
    units = draw(st.integers(0, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    removed = rng.random(nodes) < draw(st.sampled_from([0.0, 0.3]))
    removed[rng.integers(nodes)] = False
    node = rng.integers(0, nodes, units)
    fixed = np.where(rng.random(units) < draw(st.sampled_from([0.0, 0.2])), node, -1)
    fixed[removed[node]] = -1
    limited = draw(st.booleans())
    return Allocation(
        load=np.round(rng.uniform(0, 10, units), draw(st.integers(0, 3))),
        cost=np.ones(units) if draw(st.booleans()) else np.round(rng.uniform(0, 9, units)),
        node=node,
        weight=np.where(rng.random(nodes) < 0.5, 1.0, draw(st.sampled_from([1.0, 0.5]))),
        removed=removed,
        budget=draw(st.sampled_from([0.0, 1.0, 4.0, 15.0, np.inf])),
        fixed=fixed,
        further=np.round(rng.uniform(0, 4, (units, 1))) if limited else np.zeros((units, 0)),
        ceiling=np.full((nodes, 1), 16.0) if limited else np.zeros((nodes, 0)),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Units:
    """Operators in a row, most key groups with one that they send most to."""
    problem = draw(problems())
    units = len(problem.load)
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    operator = np.sort(rng.integers(0, 4, units))
    count = draw(st.integers(0, 60)) if units else 0
    return Units(
        problem=problem,
        operator=operator,
        source=rng.integers(0, max(units, 1), count),
        target=rng.integers(0, max(units, 1), count),
        rate=np.round(rng.pareto(1.0, count), 1),
    )


def streams(
    loads: dict[str, Sequence[float]],
    brokers: dict[str, Sequence[int]],
    *,
    ids: Sequence[int],
    capacity: Sequence[float] | None = None,
    traffic: Sequence[tuple[int, int, float]] = (),
) -> Snapshot:
    """A job as a snapshot: for each topic the cpu of its partitions, and their brokers by id."""
    topics = sorted(loads)
    load = np.concatenate([np.array(loads[t], np.float64) for t in topics])
    held = np.concatenate([np.array(brokers[t]) for t in topics])
    number = np.concatenate([np.arange(len(loads[t])) for t in topics])
    count = len(ids)
    return Snapshot(
        resources=("cpu",),
        broker_ids=np.array(ids),
        racks=("rack",),
        broker_rack=np.zeros(count, np.int64),
        hosts=("host",),
        broker_host=np.zeros(count, np.int64),
        broker_state=np.zeros(count, np.int64),
        capacity=np.array([100.0] * count if capacity is None else capacity)[:, None],
        topics=tuple(topics),
        partition_topic=np.repeat(np.arange(len(topics)), [len(loads[t]) for t in topics]),
        partition_number=number,
        leader_load=load[:, None],
        follower_load=0 * load[:, None],
        replica_offset=np.arange(len(load) + 1),
        replica_broker=np.searchsorted(ids, held),
        leader=np.zeros(len(load), np.int64),
        traffic_from=np.array([a for a, _, _ in traffic], np.int64),
        traffic_to=np.array([b for _, b, _ in traffic], np.int64),
        traffic_rate=np.array([r for _, _, r in traffic], np.float64),
    )


class MemoryJob:
    """A job that is nothing but its snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot
        self.started = 0
        self.retired: list[int] = []

    def snapshot(self) -> Snapshot:
        return self.now

    def start(self, brokers: int) -> None:
        self.started += brokers
        last = int(self.now.broker_ids[-1])
        self._with([*self.now.broker_ids.tolist(), *range(last + 1, last + 1 + brokers)])

    def retire(self, brokers: Sequence[int]) -> None:
        self.retired += brokers
        self._with([b for b in self.now.broker_ids.tolist() if b not in brokers])

    def apply(self, brokers: Ints) -> None:
        self.now = replace(self.now, replica_broker=np.searchsorted(self.now.broker_ids, brokers))

    def _with(self, ids: list[int]) -> None:
        s, count = self.now, len(ids)
        self.now = replace(
            s,
            broker_ids=np.array(ids),
            broker_rack=np.zeros(count, np.int64),
            broker_host=np.zeros(count, np.int64),
            broker_state=np.zeros(count, np.int64),
            capacity=np.full((count, 1), 100.0),
            replica_broker=np.searchsorted(ids, s.broker_ids[s.replica_broker]),
        )
