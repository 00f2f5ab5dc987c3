"""Converts a snapshot to units to allocate, and an allocation back to brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from balancer.allocation.errors import AllocationError
from balancer.allocation.problem import Allocation
from balancer.problem.operation import Operation
from balancer.problem.operations import type_of
from balancer.problem.resolution import resolve
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from cluster_model.traffic import distinct_pairs

Cost = Literal["count", "state"]


def _no_ints() -> Ints:
    return np.empty(0, np.int64)


def _no_floats() -> Floats:
    return np.empty(0, np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Units:
    """Key groups to allocate, and the traffic between them.

    Parameters
    ----------
    problem
        The problem of U key groups and N nodes.
    operator : (U,) int
        The operator that each key group belongs to.
    source, target : (E,) int
        Pairs of key groups, each once and in ascending order, none with itself.
    rate : (E,) float
        out: traffic from the first to the second of a pair in a period; more than 0.
    partition : (U,) int
        The snapshot's partition of each key group; counted from 0 if empty.
    broker : (P,) int
        Broker of each partition of the snapshot, including those that are no key group (such
        as lost ones on a dead broker); the node of each key group if empty.
    resource
        The resource of the load; empty without a snapshot.
    """

    problem: Allocation
    operator: Ints
    source: Ints = field(default_factory=_no_ints)
    target: Ints = field(default_factory=_no_ints)
    rate: Floats = field(default_factory=_no_floats)
    partition: Ints = field(default_factory=_no_ints)
    broker: Ints = field(default_factory=_no_ints)
    resource: str = ""

    def __post_init__(self) -> None:
        units = len(self.problem.load)
        if not len(self.partition):
            object.__setattr__(self, "partition", np.arange(units))
        if not len(self.broker):
            object.__setattr__(self, "broker", self.problem.node)
        bad = np.flatnonzero(~((self.rate >= 0) & np.isfinite(self.rate)))
        if len(bad):
            raise AllocationError(
                f"units, rate, row {bad[0]}: {self.rate[bad[0]]} found, a finite number of at "
                "least 0 expected"
            )
        with np.errstate(over="ignore"):
            total = float(self.rate.sum())
        if not np.isfinite(total):
            raise AllocationError(
                f"units, rate: a sum of {total} found, a finite number expected of all rates"
            )
        source, target, rate = distinct_pairs(self.source, self.target, self.rate)
        for name, values in (("source", source), ("target", target), ("rate", rate)):
            object.__setattr__(self, name, values)
        for name, length in (("operator", units), ("partition", units), ("target", len(source))):
            if len(getattr(self, name)) != length:
                raise AllocationError(
                    f"units, {name}: {len(getattr(self, name))} rows found, {length} expected"
                )
        ends = np.concatenate([source, target])
        outside = ends[(ends < 0) | (ends >= units)]
        if len(outside):
            raise AllocationError(
                f"units, traffic: key group {outside[0]} found, one from 0 to {units - 1} expected"
            )

    def local(self, node: Ints) -> float:
        """Share of the traffic that stays on its node, 0 to 1; 1 without traffic."""
        total = float(self.rate.sum())
        kept = float(self.rate[node[self.source] == node[self.target]].sum())
        return kept / total if total > 0 else 1.0

    def unfold(self, node: Ints) -> Ints:
        """(P,) int: index of the broker of every partition, for an allocation (U,) of units."""
        placed = self.broker.copy()
        placed[self.partition] = node
        return placed


def units_of(
    snapshot: Snapshot,
    operation: Operation | None = None,
    *,
    budget: float = np.inf,
    cost: Cost | Floats = "count",
    alpha: float = 1.0,
    resource: str | None = None,
    ceiling: float = 1.0,
    most: Mapping[str, Floats] | None = None,
    integrated: bool = True,
) -> Units:
    """State the allocation problem of a snapshot (seed 001, Sections 3 and 4.3.1).

    Partitions are key groups, topics operators, brokers nodes. Loads are in percent of
    a node's capacity; nodes have weights if their capacities differ. Brokers that the
    operation removes, and dead ones, are marked for removal. Partitions that were only on a
    dead broker or disk are lost, and are no key groups.

    Parameters
    ----------
    snapshot
        A cluster whose partitions have one replica each.
    operation
        The request; by default a rebalance. Topics and partitions it excludes are fixed, and
        brokers that may receive nothing keep what they have, or less.
    budget
        maxMigrCost: limit of the total cost of all migrations, in the unit of `cost`.
    cost
        ``count``: every migration costs 1 (maxMigrations). ``state``: α times the size of
        the state. (P,) float: the cost of each partition, by another model.
    alpha
        α: cost of one byte of state. In seconds, the time that a node of average load
        needs to write out a byte; 1 makes the budget one of bytes.
    resource
        The resource to balance; by default the bottleneck, the one with the largest share of
        the remaining brokers' total capacity in use.
    ceiling
        Limit of a broker's load of the other resources, as a share of its capacity.
    most
        Further limits (B,) of the load of a resource by its name, the balanced one included.
    integrated
        Whether the other brokers are balanced while some are removed; otherwise only units on
        the removed ones move.

    Raises
    ------
    InputError
        Naming the partition, broker or operation that does not fit.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=4, partitions=40, replication_factor=1, racks=2)
    >>> units = units_of(snapshot, Operation(kind="remove_brokers", brokers=(4,)), budget=5)
    >>> units.problem.removed.tolist(), len(units.operator)
    ([False, False, False, True], 40)
    """
    s, op = snapshot, operation or Operation()
    _one_replica_each(s)
    if s.may_hold.size:
        limited = s.broker_ids[np.flatnonzero(~s.may_hold.all(0))[0]]
        raise AllocationError(
            f"units: broker {limited} may hold some topics only (may_hold), brokers that may hold "
            "every topic expected by this strategy"
        )
    kind = type_of(op)
    if not kind.moves_replicas or kind.changes_replication_factor:
        raise AllocationError(
            f"operation {op.kind}: key groups have one replica, which leads; an operation that "
            "moves them expected"
        )
    resolved = resolve(s, op)
    rules = resolved.rules
    movable = rules.slots
    if resolved.emptied.any() and integrated:
        rest = op.model_copy(update={"kind": "rebalance", "brokers": (), "options": {}})
        movable = movable | resolve(s, rest).rules.slots
    unit = np.flatnonzero(~rules.lost)
    node, stays = s.replica_broker[unit], ~rules.draining
    if not stays.any():
        raise AllocationError(
            f"units: none of the {s.n_brokers} brokers stays, at least one expected"
        )
    balanced = _bottleneck(s, unit, stays) if resource is None else s.resource(resource)
    capacity = s.capacity[:, balanced]
    without = np.flatnonzero(stays & (capacity <= 0))
    if len(without):
        raise AllocationError(
            f"broker {s.broker_ids[without[0]]}, capacity of {s.resources[balanced]}: 0 found, "
            "more expected of the resource that is balanced"
        )
    mean = float(capacity[stays].mean())
    further, room = _limits(s, unit, balanced, stays, ceiling, most or {})
    kept_out = _kept_out(node, rules.receives & rules.leads | rules.draining)
    costs = _costs(s, cost, alpha)[unit]
    at = np.full(s.n_partitions, -1)
    at[unit] = np.arange(len(unit))
    ends = at[s.traffic_from], at[s.traffic_to]
    sent = (ends[0] >= 0) & (ends[1] >= 0)
    problem = Allocation(
        load=100 / mean * s.leader_load[unit, balanced],
        cost=costs,
        node=node,
        # a node marked for removal receives nothing, whatever its capacity
        weight=np.divide(mean, capacity, out=np.ones(s.n_brokers), where=capacity > 0),
        removed=rules.draining,
        budget=float(budget),
        fixed=np.where(movable[unit] | rules.draining[node], -1, node),
        further=np.hstack([further, kept_out[0]]),
        ceiling=np.hstack([room, kept_out[1]]),
    )
    return Units(
        problem=problem,
        operator=s.partition_topic[unit],
        source=ends[0][sent],
        target=ends[1][sent],
        rate=s.traffic_rate[sent],
        partition=unit,
        broker=s.replica_broker,
        resource=s.resources[balanced],
    )


def totals(group: Ints, of: Floats, groups: int) -> Floats:
    """(groups,) float: the sum over the members of each group."""
    total: Floats = np.bincount(group, of, groups).astype(np.float64)
    return total


def fold(problem: Allocation, group: Ints) -> Allocation:
    """Merge units so that each group migrates as one; ``node[group]`` unfolds.

    Parameters
    ----------
    problem
        U units.
    group : (U,) int
        The group of each, from 0 without gaps. Members of a group are on one node.

    Raises
    ------
    AllocationError
        If a group is on two nodes, or is fixed to two.

    Examples
    --------
    >>> three = Allocation(load=np.array([4.0, 2.0, 2.0]), cost=np.ones(3),
    ...     node=np.zeros(3, np.int64), weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=2)
    >>> two = fold(three, np.array([0, 1, 1]))
    >>> two.load.tolist(), two.cost.tolist()
    ([4.0, 4.0], [1.0, 2.0])
    """
    p, groups = problem, int(group.max(initial=-1)) + 1
    node, fixed = np.zeros(groups, np.int64), np.full(groups, -1)
    node[group] = p.node
    fixed[group[p.fixed >= 0]] = p.fixed[p.fixed >= 0]
    for name, of_unit, of_group in (
        ("node", p.node, node[group]),
        ("fixed", p.fixed, np.where(p.fixed >= 0, fixed[group], -1)),
    ):
        if (of_unit != of_group).any():
            row = int(np.argmax(of_unit != of_group))
            raise AllocationError(
                f"allocation, {name}, row {row}: {of_unit[row]} found, {of_group[row]} expected, "
                f"like the others of group {group[row]}"
            )
    return replace(
        p,
        load=totals(group, p.load, groups),
        cost=totals(group, p.cost, groups),
        node=node,
        fixed=fixed,
        further=_columns([totals(group, column, groups) for column in p.further.T], groups),
    )


def _columns(columns: list[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))


def _one_replica_each(s: Snapshot) -> None:
    several = np.flatnonzero(s.replication_factor != 1)
    if len(several):
        p = several[0]
        raise AllocationError(
            f"partition {s.topics[s.partition_topic[p]]}-{s.partition_number[p]}: "
            f"{s.replication_factor[p]} replicas found, 1 expected of a key group"
        )


def _bottleneck(s: Snapshot, unit: Ints, stays: Bools) -> int:
    """The resource with the greatest total usage."""
    capacity = s.capacity[stays].sum(axis=0)
    load = s.leader_load[unit].sum(axis=0)
    usage = np.divide(load, capacity, out=np.full(len(load), -1.0), where=capacity > 0)
    return int(np.argmax(usage))


def _costs(s: Snapshot, cost: Cost | Floats, alpha: float) -> Floats:
    if isinstance(cost, np.ndarray):
        if cost.shape != (s.n_partitions,):
            raise AllocationError(
                f"units, cost: shape {cost.shape} found, {(s.n_partitions,)} expected"
            )
        return cost
    if cost == "count":
        return np.ones(s.n_partitions)
    if len(s.state_size) != s.n_partitions:
        raise AllocationError(
            "units, cost: a budget of state, but the snapshot has no state_size; give it, or "
            "count migrations"
        )
    return alpha * s.state_size


def _limits(
    s: Snapshot,
    unit: Ints,
    balanced: int,
    stays: Bools,
    share: float,
    further: Mapping[str, Floats],
) -> tuple[Floats, Floats]:
    """(U, R) and (N, R): the resources in which some broker could be overloaded."""
    most = share * s.capacity
    most[:, balanced] = np.inf
    for name, limit in further.items():
        most[:, s.resource(name)] = np.minimum(most[:, s.resource(name)], limit)
    load = s.leader_load[unit]
    binds = load.sum(axis=0) > most[stays].min(axis=0)
    return load[:, binds], most[:, binds]


def _kept_out(node: Ints, takes: Bools) -> tuple[Floats, Floats]:
    """(U, K) and (N, K): resources that let a closed node hold only its own units.

    Each such node has a number, all others together have 0. For each binary digit, a unit
    uses 1 of one resource if its node's number has that digit, and 1 of another if not; a
    node has room only for units with its own digits.
    """
    closed = ~takes
    number = np.where(closed, np.cumsum(closed), 0)
    load, room = [], []
    for digit in range(int(number.max(initial=0)).bit_length()):
        has = (number >> digit & 1).astype(np.bool_)
        for of_unit in (has, ~has):
            limited = closed & ~of_unit
            if limited.any():
                load.append(of_unit[node].astype(np.float64))
                room.append(np.where(limited, 0.0, np.inf))
    return _columns(load, len(node)), _columns(room, len(takes))
