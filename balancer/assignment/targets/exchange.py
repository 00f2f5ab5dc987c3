"""Exchanges what equal instances are to hold, where less has to be restored then."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from balancer.assignment.state import ApplicationState
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Floats, Ints

# Share of the largest cost below which sums of costs are equal.
_ROUNDING = 1e-9


def exchanged(state: ApplicationState, target: Placement) -> Ints:
    """Find which of its equals takes what an instance is to hold, so that less is restored.

    Two instances exchange all their copies, the most saving pair first, as long as this saves
    anything. Goals see no difference, as the instances differ in nothing but their state.

    Parameters
    ----------
    state
        The application; its instances are the brokers of the target.
    target
        Where copies are to be.

    Returns
    -------
    (I,) int
        For each instance the one that takes its copies; itself in most cases.
    """
    n = state.n_instances
    holder = np.arange(n)
    equal = _equal(state)
    if not equal.any():
        return holder
    saved = _saved(target)
    least = _ROUNDING * float(saved.max(initial=0.0))
    kept = np.diagonal(saved).copy()
    gain = np.where(equal, saved + saved.T - kept[:, None] - kept, 0.0)
    while float(gain.max()) > least:
        # rows are contents, by the instance that has them so far
        i, j = (int(k) for k in np.unravel_index(int(gain.argmax()), gain.shape))
        saved[[i, j]] = saved[[j, i]]
        holder[[i, j]] = holder[[j, i]]
        kept[[i, j]] = saved[i, i], saved[j, j]
        for k in (i, j):
            gain[k] = np.where(equal[k], saved[k] + saved[:, k] - kept[k] - kept, 0.0)
            gain[:, k] = gain[k]
    found: Ints = np.argsort(holder)
    return found


def _equal(state: ApplicationState) -> Bools:
    """(I, I) whether two instances differ in nothing that a goal can see."""
    found: dict[Hashable, int] = {}
    named = [*state.tags.values(), *state.attributes.values()]
    numbers = []
    for i in range(state.n_instances):
        key = (
            int(state.capacity[i]),
            int(state.rack[i]) if len(state.rack) else -1,
            tuple(values[i] for values in named),
            tuple(state.instance_capacity[i].tolist()) if state.instance_capacity.size else (),
        )
        numbers.append(found.setdefault(key, len(found)))
    kind = np.array(numbers)
    equal: Bools = (kind[:, None] == kind) & ~np.eye(len(kind), dtype=np.bool_)
    return equal


def _saved(target: Placement) -> Floats:
    """(I, I) what need not be restored if a row's copies are held by a column's instance."""
    s = target.snapshot
    n, partition = s.n_brokers, s.move_cost_partition
    saved = np.maximum(s.state_size[partition] - s.move_cost, 0.0)
    total = np.zeros(n * n)
    for slot in range(target.slots):
        held = target.brokers[partition, slot]
        at = held >= 0
        pair = held[at] * n + s.move_cost_broker[at]
        total += np.bincount(pair, saved[at], minlength=n * n)
    return total.reshape(n, n)
