"""Simulated annealing for one problem of machine reassignment, compiled.

Stands alone: numpy, numba and the standard library only, none of ours.

    python annealing_solve.py PROBLEM.npz ANSWER.npz SECONDS SEED

PROBLEM.npz holds the fields of ``Reassignment``. ANSWER.npz gets ``machine`` (P,), the best
assignment found, ``seconds`` of the processor and ``candidates``, the feasible moves and
swaps whose cost was computed. Compiling does not count.
"""

# numba has no types for mypy
# mypy: disable-error-code="untyped-decorator"

import math
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from numba import njit

# Steps between two looks at the clock.
STEPS = 20_000
# Temperature at the start and at the end, as shares of the mean change by a random feasible step.
HOT, COLD = 1.0, 1e-3
# Of the steps, how many try to exchange two processes; of the others, how many lead back.
SWAPS, HOME = 0.4, 0.05


class Given(NamedTuple):
    """The problem; pairs of services are listed by their first, and by their second."""

    capacity: Any
    safety: Any
    transient: Any
    location: Any
    neighborhood: Any
    requirement: Any
    service: Any
    start: Any
    spread: Any
    load_weight: Any
    balance_weight: Any
    process_cost: Any
    machine_cost: Any
    one: Any
    two: Any
    ratio: Any
    needs_begin: Any
    needs: Any
    needed_begin: Any
    needed: Any


class Now(NamedTuple):
    """An assignment, and what is counted of it.

    ``cost`` (M,) is that of each machine's load; ``use`` and ``held`` (M, R) are its load without
    and with what has left it; ``on`` (S, M), ``at`` (S, L) and ``near`` (S, N) are the processes of
    each service on each machine, and in each location and neighborhood.
    """

    machine: Any
    cost: Any
    use: Any
    held: Any
    on: Any
    at: Any
    near: Any


@njit
def cost_of(given: Given, use: Any, m: int) -> Any:
    """What the load of one machine costs."""
    total = 0.0
    for r in range(len(use)):
        if use[r] > given.safety[m, r]:
            total += given.load_weight[r] * (use[r] - given.safety[m, r])
    for k in range(len(given.ratio)):
        i, j = given.one[k], given.two[k]
        lacking = given.ratio[k] * (given.capacity[m, i] - use[i]) - given.capacity[m, j] + use[j]
        if lacking > 0:
            total += given.balance_weight[k] * lacking
    return total


@njit
def related(given: Given, now: Now, s: int, a: int, b: int) -> bool:
    """Whether a process of service `s` may go from machine `a` to `b`, apart from capacities."""
    if now.on[s, b]:
        return False
    here, there = given.location[a], given.location[b]
    if here != there and now.at[s, here] == 1 and now.at[s, there] > 0:
        reached = 0
        for k in range(now.at.shape[1]):
            reached += now.at[s, k] > 0
        if reached - 1 < given.spread[s]:
            return False
    here, there = given.neighborhood[a], given.neighborhood[b]
    if here != there:
        for k in range(given.needs_begin[s], given.needs_begin[s + 1]):
            if now.near[given.needs[k], there] == 0:
                return False
        if now.near[s, here] == 1:
            for k in range(given.needed_begin[s], given.needed_begin[s + 1]):
                if now.near[given.needed[k], here] > 0:
                    return False
    return True


@njit
def shift(given: Given, now: Now, s: int, a: int, b: int) -> None:
    """Count a process of service `s` on machine `b` instead of `a`."""
    now.on[s, a] -= 1
    now.on[s, b] += 1
    now.at[s, given.location[a]] -= 1
    now.at[s, given.location[b]] += 1
    now.near[s, given.neighborhood[a]] -= 1
    now.near[s, given.neighborhood[b]] += 1


@njit
def fits(given: Given, now: Now, b: int, p: int, q: int) -> bool:
    """Whether machine `b` has room for process `p`, without process `q` if that is not -1."""
    for r in range(now.use.shape[1]):
        more, used = given.requirement[p, r], now.use[b, r]
        less = given.requirement[q, r] if q >= 0 else 0.0
        if given.transient[r]:
            # what was here at the start counts until the end
            used = now.held[b, r]
            more = 0.0 if given.start[p] == b else more
            less = 0.0 if q >= 0 and given.start[q] == b else less
        if used + more - less > given.capacity[b, r]:
            return False
    return True


@njit
def carry(given: Given, now: Now, p: int, a: int, b: int) -> None:
    """Put process `p` on machine `b` instead of `a`."""
    now.machine[p] = b
    for r in range(now.use.shape[1]):
        need = given.requirement[p, r]
        now.use[a, r] -= need
        now.use[b, r] += need
        if given.start[p] != a:
            now.held[a, r] -= need
        if given.start[p] != b:
            now.held[b, r] += need


@njit
def moved(given: Given, p: int, m: int) -> Any:
    """What it costs that process `p` is on machine `m`."""
    if given.start[p] == m:
        return 0.0
    across = given.machine_cost[given.location[given.start[p]], given.location[m]]
    return given.process_cost[p] + across


@njit
def anneal(
    given: Given, now: Now, rng: Any, temperature: float, total: float, lowest: float, best: Any
) -> Any:
    """Try some steps; returns the cost now, the lowest, and the sum and number of changes.

    `best` gets the assignment of the lowest cost.
    """
    n, machines, changed, feasible = len(now.machine), len(now.use), 0.0, 0
    for _ in range(STEPS):
        p = int(rng.random() * n)
        a, s, q, t = now.machine[p], given.service[p], -1, -1
        if rng.random() < SWAPS:
            q = int(rng.random() * n)
            b, t = now.machine[q], given.service[q]
        else:
            b = given.start[p] if rng.random() < HOME else int(rng.random() * machines)
        if a == b or s == t or not fits(given, now, b, p, q):
            continue
        if q >= 0 and not fits(given, now, a, q, p):
            continue
        if not related(given, now, s, a, b):
            continue
        shift(given, now, s, a, b)
        if q >= 0:
            if not related(given, now, t, b, a):
                shift(given, now, s, b, a)
                continue
            shift(given, now, t, b, a)
        here, there = now.use[a] - given.requirement[p], now.use[b] + given.requirement[p]
        change = moved(given, p, b) - moved(given, p, a)
        if q >= 0:
            here += given.requirement[q]
            there -= given.requirement[q]
            change += moved(given, q, a) - moved(given, q, b)
        cost_a, cost_b = cost_of(given, here, a), cost_of(given, there, b)
        change += cost_a + cost_b - now.cost[a] - now.cost[b]
        changed += abs(change)
        feasible += 1
        if change > 0 and rng.random() >= math.exp(-change / temperature):
            if q >= 0:
                shift(given, now, t, a, b)
            shift(given, now, s, b, a)
            continue
        carry(given, now, p, a, b)
        if q >= 0:
            carry(given, now, q, b, a)
        now.cost[a], now.cost[b] = cost_a, cost_b
        total += change
        if total < lowest - 1e-9:
            lowest = total
            best[:] = now.machine
    return total, lowest, changed, feasible


def listed(first: Any, second: Any, services: int) -> Any:
    """Where the second elements of each first one begin, and all of them."""
    order = np.argsort(first, kind="stable")
    return np.searchsorted(first[order], np.arange(services + 1)), second[order]


def stated(fields: dict[str, Any]) -> tuple[Given, Now]:
    """The problem with what is derived from it, and the start."""
    start, service, services = fields["start"], fields["service"], len(fields["spread"])
    use = np.zeros_like(fields["capacity"])
    np.add.at(use, start, fields["requirement"])
    one, two = fields["balance"][:, :2].astype(np.int64).T.copy()
    first, second = fields["needs"].T.copy()
    given = Given(
        **{name: fields[name] for name in Given._fields if name in fields and name != "needs"},
        one=one,
        two=two,
        ratio=fields["balance"][:, 2].copy(),
        **dict(
            zip(
                ("needs_begin", "needs", "needed_begin", "needed"),
                (*listed(first, second, services), *listed(second, first, services)),
                strict=True,
            )
        ),
    )
    groups = np.arange(len(use)), given.location, given.neighborhood
    counts = [np.zeros((services, int(group.max()) + 1), np.int32) for group in groups]
    for count, group in zip(counts, groups, strict=True):
        np.add.at(count, (service, group[start]), 1)
    cost = np.array([cost_of(given, use[m], m) for m in range(len(use))])
    return given, Now(start.copy(), cost, use, use.copy(), *counts)


def solve(fields: dict[str, Any], seconds: float, seed: int) -> dict[str, Any]:
    """The best assignment found within some seconds of the processor."""
    given, now = stated(fields)
    best, rng = now.machine.copy(), np.random.default_rng(seed)
    total = lowest = float(now.cost.sum())
    # on a copy: the mean change by a step, and so that compiling takes no time below
    trial = Now(*(values.copy() for values in now))
    *_, changed, feasible = anneal(given, trial, rng, 1e-9, total, -math.inf, best)
    unit = changed / max(feasible, 1)
    began, candidates, share = time.process_time(), 0, 0.0
    while share < 1.0:
        temperature = unit * HOT * (COLD / HOT) ** share
        total, lowest, _, scored = anneal(given, now, rng, temperature, total, lowest, best)
        candidates += scored
        share = (time.process_time() - began) / seconds
    took = time.process_time() - began
    return {"machine": best, "seconds": took, "candidates": candidates}


def main(problem: str, answer: str, seconds: str, seed: str) -> None:
    """Answer the problem in one file in another."""
    with np.load(problem) as data:
        fields = {name: data[name] for name in data.files}
    np.savez(answer, **solve(fields, float(seconds), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
