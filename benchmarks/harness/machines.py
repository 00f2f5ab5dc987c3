"""Machine reassignment as in the ROADEF/EURO 2012 challenge: problems, their cost and constraints.

Numpy only, from the definition of the challenge; knows nothing of goals or of any subject.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Reassignment:
    """M machines in L locations, P processes of S services, and R resources.

    The challenge has one more cost, the largest number of processes of one service that move; it
    is left out here.

    Parameters
    ----------
    capacity, safety : (M, R) float
        Capacity of each machine, and the amount above which its load costs.
    transient : (R,) bool
        Resources that a process which moves uses on both machines.
    location, neighborhood : (M,) int
    requirement : (P, R) float
    service, start : (P,) int
        Service of each process, and its machine at the start.
    spread : (S,) int
        Least number of locations of each service.
    needs : (D, 2) int
        Pairs of services: each process of the first is in a neighborhood of the second.
    load_weight : (R,) float
    balance : (K, 3) float
        Two resources and the units of the second expected for each free unit of the first.
    balance_weight : (K,) float
    process_cost : (P,) float
        Cost of moving each process, with its weight.
    machine_cost : (L, L) float
        Cost of moving a process between different machines, by their locations, with its weight.
    """

    capacity: Floats
    safety: Floats
    transient: Bools
    location: Ints
    neighborhood: Ints
    requirement: Floats
    service: Ints
    start: Ints
    spread: Ints
    needs: Ints
    load_weight: Floats
    balance: Floats
    balance_weight: Floats
    process_cost: Floats
    machine_cost: Floats


@dataclass(frozen=True)
class Shape:
    """Numbers from which a problem is drawn."""

    machines: int
    processes: int
    resources: int
    transient: int
    locations: int
    neighborhoods: int
    balances: int = 1
    dependencies: int = 0


def generate(shape: Shape, seed: int) -> Reassignment:
    """Draw a problem whose start keeps all constraints.

    Machines differ up to fourfold, services have lognormal requirements and heavy-tailed sizes.
    Processes are placed one by one, largest first, on machines with room, with odds that differ by
    machine: some machines end above their safety capacity while others are nearly empty. Spread
    and dependencies are drawn from what holds at the start.
    """
    rng = np.random.default_rng([seed, shape.machines, shape.processes])
    m, p, r = shape.machines, shape.processes, shape.resources
    service = _services(rng, p, max(2, m // 2))
    n = int(service.max()) + 1
    mean = rng.lognormal(0.0, 0.8, (n, 1)) * rng.lognormal(0.0, 0.5, (n, r))
    requirement = np.ceil(100 * mean[service] * rng.uniform(0.9, 1.1, (p, r)))
    power = rng.choice([1.0, 1.0, 2.0, 4.0], m)[:, None] * rng.uniform(0.7, 1.4, (m, r))
    used = rng.uniform(0.55, 0.8, r)
    capacity = np.ceil(power / power.sum(0) * requirement.sum(0) / used)
    odds = power.mean(1) * rng.lognormal(0.0, 0.7, m)
    start, capacity = _placed(rng, requirement, service, capacity, odds)
    location = rng.permutation(np.arange(m) % shape.locations)
    neighborhood = rng.permutation(np.arange(m) % shape.neighborhoods)
    reached = _present(service, location[start], n, shape.locations).sum(1)
    spread = np.where(rng.random(n) < 0.5, reached, rng.integers(1, reached + 1))
    near = _present(service, neighborhood[start], n, shape.neighborhoods)
    pairs = rng.permutation([(i, j) for i in range(r) for j in range(r) if i != j])
    pairs = pairs[: shape.balances]
    free = capacity.sum(0) - requirement.sum(0)
    ratio = free[pairs[:, 1]] / free[pairs[:, 0]] * rng.uniform(0.7, 1.0, len(pairs))
    distance = rng.integers(5, 21, (shape.locations, shape.locations))
    distance[np.diag_indices(shape.locations)] = 2
    return Reassignment(
        capacity=capacity,
        safety=np.floor(capacity * rng.uniform(0.65, 0.95, r)),
        transient=np.arange(r) < shape.transient,
        location=location,
        neighborhood=neighborhood,
        requirement=requirement,
        service=service,
        start=start,
        spread=spread,
        needs=_needs(rng, near, shape.dependencies),
        load_weight=rng.choice([1.0, 2.0, 5.0], r),
        balance=np.column_stack([pairs, ratio.round(2)]),
        balance_weight=np.ones(len(pairs)),
        process_cost=rng.integers(1, 41, p).astype(float),
        machine_cost=distance.astype(float),
    )


def _services(rng: np.random.Generator, processes: int, largest: int) -> Ints:
    """(P,) service of each process; most services have one."""
    size = 1 + np.minimum(rng.pareto(1.2, processes), largest - 1).astype(np.int64)
    found: Ints = np.repeat(np.arange(processes), size)[:processes]
    return found


def _placed(
    rng: np.random.Generator, requirement: Floats, service: Ints, capacity: Floats, odds: Floats
) -> tuple[Ints, Floats]:
    """A machine for each process, no two of one service on one; and the capacities.

    Where a process fits nowhere, the capacity of a machine is raised.
    """
    capacity, free = capacity.copy(), capacity.copy()
    start = np.full(len(service), -1)
    members = np.split(np.arange(len(service)), np.flatnonzero(np.diff(service)) + 1)
    for p in np.argsort(-requirement.max(1), kind="stable").tolist():
        others = start[members[service[p]]]
        apart = np.ones(len(capacity), np.bool_)
        apart[others[others >= 0]] = False
        fits = apart & (free >= requirement[p]).all(1)
        chance = np.where(fits if fits.any() else apart, odds, 0.0)
        at = int(rng.choice(len(odds), p=chance / chance.sum()))
        more = np.maximum(requirement[p] - free[at], 0.0)
        capacity[at] += more
        free[at] += more - requirement[p]
        start[p] = at
    return start, capacity


def _present(service: Ints, group: Ints, services: int, groups: int) -> Bools:
    """(S, G) whether a service has a process in a group of machines."""
    present = np.zeros((services, groups), np.bool_)
    present[service, group] = True
    return present


def _needs(rng: np.random.Generator, near: Bools, number: int) -> Ints:
    """Up to `number` pairs of services of which the second is wherever the first is."""
    found = []
    for one in rng.permutation(len(near))[:number].tolist():
        covers = (near | ~near[one]).all(1)
        covers[one] = False
        if covers.any():
            found.append((one, int(rng.choice(np.flatnonzero(covers)))))
    return np.array(found, np.int64).reshape(-1, 2)


def costs(problem: Reassignment, machine: Ints) -> dict[str, float]:
    """Each cost of an assignment of processes to machines, weighted; their sum is its cost."""
    load = _load(problem, machine, np.ones(len(machine), np.bool_))
    free = problem.capacity - load
    one, two = (problem.balance[:, k].astype(np.int64) for k in (0, 1))
    lacking = np.maximum(problem.balance[:, 2] * free[:, one] - free[:, two], 0.0)
    moved = machine != problem.start
    across = problem.machine_cost[problem.location[problem.start], problem.location[machine]]
    above = np.maximum(load - problem.safety, 0.0)
    return {
        "load": float((above.sum(0) * problem.load_weight).sum()),
        "balance": float((lacking.sum(0) * problem.balance_weight).sum()),
        "process moves": float(problem.process_cost[moved].sum()),
        "machine moves": float(across[moved].sum()),
    }


def violations(problem: Reassignment, machine: Ints) -> dict[str, int]:
    """How often each constraint is broken; all 0 for a feasible assignment."""
    services = len(problem.spread)
    left = machine != problem.start
    use = _load(problem, machine, np.ones(len(machine), np.bool_))
    former = _load(problem, problem.start, left)
    together = np.bincount(problem.service * len(problem.capacity) + machine)
    reached = _present(
        problem.service, problem.location[machine], services, len(problem.machine_cost)
    )
    near = _present(
        problem.service,
        problem.neighborhood[machine],
        services,
        int(problem.neighborhood.max()) + 1,
    )
    first, second = problem.needs.T
    return {
        "capacity": int((use + former * problem.transient > problem.capacity).sum()),
        "conflict": int(np.maximum(together - 1, 0).sum()),
        "spread": int((reached.sum(1) < problem.spread).sum()),
        "dependency": int((near[first] & ~near[second]).sum()),
    }


def _load(problem: Reassignment, machine: Ints, counted: Bools) -> Floats:
    """(M, R) what the processes that count use."""
    load = np.zeros_like(problem.capacity)
    np.add.at(load, machine[counted], problem.requirement[counted])
    return load
