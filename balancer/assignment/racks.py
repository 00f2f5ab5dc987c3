"""Exchanges tasks so that fewer partitions are read from other racks (KIP-925)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.draft import Draft
from balancer.assignment.rack_flow import exchange
from balancer.assignment.state import ApplicationState, Racks
from cluster_model.snapshot import Ints

# Kafka's costs: of a partition read from another rack, and of a task that changes its instance.
STATEFUL_COSTS = (10, 1)
STATELESS_COSTS = (1, 0)
# Kafka's limit of rounds over all pairs of instances.
_STANDBY_ROUNDS = 4


def optimize_active(draft: Draft, tasks: Ints, costs: tuple[int, int] | None = None) -> None:
    """Exchange active tasks between instances at least cost, as Kafka does.

    Each instance keeps its number of tasks. Does nothing if the strategy is ``none`` or a rack is
    unknown.

    Parameters
    ----------
    draft
        The assignment so far; changed.
    tasks : (N,) int
        The tasks to exchange, sorted.
    costs
        Of a partition from another rack, and of a task that moves; the configured ones, or
        Kafka's, unless given.
    """
    state, configs = draft.state, draft.configs
    if not len(tasks) or not _known(state, configs):
        return
    if costs is None:
        costs = _costs(configs) if state.stateful[tasks[0]] else STATELESS_COSTS
    groups = None
    if configs.rack_aware_assignment_strategy == "balance_subtopology":
        first = np.flatnonzero(np.diff(state.subtopology[tasks])) + 1
        groups = [0, *first.tolist(), len(tasks)]
    owner = draft.active[tasks]
    cost = _task_costs(state, state.sources, tasks, owner, *costs)
    draft.place(tasks, exchange(cost, owner, groups))


def optimize_standbys(
    draft: Draft,
    may_move: Callable[[int, int, int], bool] | None = None,
    costs: tuple[int, int] | None = None,
) -> None:
    """Exchange standbys between pairs of instances in different racks, as Kafka does.

    Parameters
    ----------
    draft
        The assignment so far; changed.
    may_move
        Whether a task's standby may move from a source to a destination; None if each may.
    costs
        As for active tasks.
    """
    state, configs = draft.state, draft.configs
    if not _known(state, configs) or not state.changelogs:
        return
    costs = costs or _costs(configs)
    away = _remote(state, state.changelogs)
    task, instance = draft.standby_pairs()
    standby = np.zeros((state.n_tasks, state.n_instances), np.bool_)
    standby[task, instance] = True
    copy = standby.copy()
    running = np.flatnonzero(draft.active >= 0)
    copy[running, draft.active[running]] = True
    pairs = [
        (one, other)
        for one, other in combinations(range(state.n_instances), 2)
        if state.rack[one] != state.rack[other]
    ]
    for _ in range(_STANDBY_ROUNDS):
        moved = False
        for one, other in pairs:
            sides = []
            for source, destination in ((one, other), (other, one)):
                movable = np.flatnonzero(standby[:, source] & ~copy[:, destination])
                if may_move is not None:
                    allowed = [may_move(t, source, destination) for t in movable.tolist()]
                    movable = movable[np.array(allowed, np.bool_)]
                sides.append(movable)
            if not len(sides[0]) or not len(sides[1]):
                continue
            tasks = np.concatenate(sides)
            order = tasks.argsort()
            tasks = tasks[order]
            owner = np.repeat((0, 1), [len(side) for side in sides])[order]
            cost = costs[0] * away[tasks][:, state.rack[[one, other]]]
            cost[np.arange(len(tasks)), 1 - owner] += costs[1]
            more = cost[np.arange(len(tasks)), 1 - owner] - cost[np.arange(len(tasks)), owner]
            if more[owner == 0].min() + more[owner == 1].min() >= 0:
                continue
            new = exchange(cost, owner)
            both = np.array((one, other))
            for t, source, destination in zip(
                tasks[new != owner].tolist(),
                both[owner[new != owner]].tolist(),
                both[new[new != owner]].tolist(),
                strict=True,
            ):
                moved = True
                draft.standbys[t].remove(source)
                draft.standbys[t].append(destination)
                for table in (standby, copy):
                    table[t, source], table[t, destination] = False, True
        if not moved:
            return


def traffic(state: ApplicationState, tasks: Ints, instances: Ints) -> Ints:
    """(C,) partitions that instances read from other racks if they run tasks."""
    found: Ints = _remote(state, state.sources)[tasks, state.rack[instances]]
    return found


def _costs(configs: AssignmentConfigs) -> tuple[int, int]:
    """What a partition from another rack and a move of a stateful task cost."""
    given = (
        configs.rack_aware_assignment_traffic_cost,
        configs.rack_aware_assignment_non_overlap_cost,
    )
    one, other = (
        default if cost is None else cost
        for cost, default in zip(given, STATEFUL_COSTS, strict=True)
    )
    return one, other


def _known(state: ApplicationState, configs: AssignmentConfigs) -> bool:
    """Whether the racks of all instances and of all partitions' replicas are known."""
    if configs.rack_aware_assignment_strategy == "none":
        return False
    if not len(state.rack) or (state.rack < 0).any() or not state.sources:
        return False
    read = [state.sources]
    if configs.num_standby_replicas:
        if state.stateful.any() and not state.changelogs:
            return False
        read.append(
            tuple(c for c, own in zip(state.changelogs, state.stateful, strict=False) if own)
        )
    return all(partition for racks in read for task in racks for partition in task)


def _remote(state: ApplicationState, read: tuple[Racks, ...]) -> Ints:
    """(T, racks) partitions of each task without a replica in each rack."""
    found = np.zeros((state.n_tasks, len(state.racks)), np.int64)
    for t, partitions in enumerate(read):
        found[t] = len(partitions)
        for partition in partitions:
            found[t, list(partition)] -= 1
    return found


def _task_costs(
    state: ApplicationState,
    read: tuple[Racks, ...],
    tasks: Ints,
    owner: Ints,
    traffic_cost: int,
    non_overlap_cost: int,
) -> Ints:
    """(N, I) cost of tasks on instances."""
    cost: Ints = traffic_cost * _remote(state, read)[tasks][:, state.rack] + non_overlap_cost
    cost[np.arange(len(tasks)), owner] -= non_overlap_cost
    return cost
