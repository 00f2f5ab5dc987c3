"""Simulated annealing for the load distance of key groups within a budget, compiled.

Stands alone: numpy, numba and the standard library only, none of ours.

    python distance_annealing_solve.py PROBLEM.npz ANSWER.npz SECONDS SEED

PROBLEM.npz holds load (U,), cost (U,), node (U,), weight (N,), removed (N,) and budget. ANSWER.npz
gets ``node`` (U,), the best allocation found, and the processor ``seconds``. Compiling does not
count.
"""

# numba has no types for mypy
# mypy: disable-error-code="untyped-decorator"

import sys
import time
from typing import Any

import numpy as np
from numba import njit

# Steps between two looks at the clock.
STEPS = 20_000
# Temperature at the start and at the end, as shares of the load distance at the start.
HOT, COLD = 0.05, 1e-7
# How often the fullest or the emptiest node takes part; of the steps, exchanges, and returns.
WORST, SWAPS, HOME = 0.5, 0.5, 0.1
# Weight of the mean square of the deviations, which tells apart what has the same distance.
EVEN = 0.05


@njit(cache=True)
def energy(off: Any, removed: Any) -> Any:
    """Load distance, and the root of the mean square, of the deviations from the mean."""
    far, square, stays = 0.0, 0.0, 0
    for i in range(len(off)):
        value = off[i]
        if removed[i]:
            value = max(value, 0.0)
        else:
            stays += 1
        far = max(far, abs(value))
        square += value * value
    return far, far + EVEN * np.sqrt(square / max(stays, 1))


@njit(cache=True)
def anneal(
    load: Any,
    cost: Any,
    home: Any,
    weight: Any,
    removed: Any,
    budget: Any,
    node: Any,
    off: Any,
    spent: Any,
    best: Any,
    least: Any,
    temperature: Any,
    steps: Any,
    rng: Any,
) -> Any:
    """Some steps at a temperature; returns what is spent, and the least distance so far."""
    units, nodes = len(load), len(weight)
    _, now = energy(off, removed)
    for _ in range(steps):
        k = rng.integers(0, units)
        to = rng.integers(0, nodes)
        if rng.random() < WORST:
            # from the fullest node, or to the emptiest
            full, empty = 0, -1
            for i in range(nodes):
                if off[i] > off[full]:
                    full = i
                if not removed[i] and (empty < 0 or off[i] < off[empty]):
                    empty = i
            if rng.random() < 0.5:
                for _ in range(8 * nodes):
                    if node[k] == full:
                        break
                    k = rng.integers(0, units)
            else:
                to = empty
        swap = -1
        draw = rng.random()
        if draw < HOME:
            to = home[k]
        elif draw < HOME + SWAPS:
            swap = rng.integers(0, units)
            to = node[swap]
        here = node[k]
        if to == here or (removed[to] and home[k] != to):
            continue
        if swap >= 0 and removed[here] and home[swap] != here:
            continue
        change = cost[k] * ((to != home[k]) - (here != home[k]))
        moved = load[k]
        if swap >= 0:
            change += cost[swap] * ((here != home[swap]) - (to != home[swap]))
            moved -= load[swap]
        if spent + change > budget + 1e-9:
            continue
        off[here] -= moved * weight[here]
        off[to] += moved * weight[to]
        far, then = energy(off, removed)
        if then > now and rng.random() >= np.exp((now - then) / temperature):
            off[here] += moved * weight[here]
            off[to] -= moved * weight[to]
            continue
        now, spent = then, spent + change
        node[k] = to
        if swap >= 0:
            node[swap] = here
        if far < least - 1e-12:
            least = far
            best[:] = node
    return spent, least


def main() -> None:
    """Anneal from the present allocation until the processor time is over."""
    stated, answer, seconds, seed = sys.argv[1:]
    with np.load(stated) as given:
        p = {name: given[name] for name in given.files}
    home, budget = p["node"].astype(np.int64), float(p["budget"])
    mean = p["load"].sum() / (1 / p["weight"][~p["removed"]]).sum()

    def fresh() -> tuple[Any, Any]:
        carried = np.bincount(home, p["load"], len(p["weight"])) * p["weight"]
        return home.copy(), carried - mean

    rng = np.random.default_rng(int(seed))
    given_all = p["load"], p["cost"], home, p["weight"], p["removed"], budget
    node, off = fresh()
    far, _ = energy(off, p["removed"])
    anneal(*given_all, node, off, 0.0, node.copy(), far, 1.0, 10, rng)
    node, off = fresh()
    best, least, spent = node.copy(), far, 0.0
    began, limit = time.process_time(), float(seconds)
    while (share := (time.process_time() - began) / limit) < 1:
        temperature = max(far, 1e-9) * HOT * (COLD / HOT) ** share
        spent, least = anneal(*given_all, node, off, spent, best, least, temperature, STEPS, rng)
    np.savez(answer, node=best, seconds=time.process_time() - began)


if __name__ == "__main__":
    main()
