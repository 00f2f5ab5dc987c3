"""PoTC: every key may go to two nodes, and is merged on the node of its own hash."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Floats


def potc(
    load: Floats, merge: Floats, nodes: int, *, tuples: int = 20, sources: int = 4, seed: int = 0
) -> Floats:
    """(N,) float: load of each node under The Power of Both Choices (Nasir et al., ICDE 2015).

    Two hash functions give every key two nodes. Each source sends a tuple to the one of the two
    that it has itself sent less to (local load estimation). So the state of a key is split over
    both, and has to be merged before it can be used, on the node of the key's own hash, which is
    not balanced (seed 001, Sections 2.2 and 5.2.1).

    Parameters
    ----------
    load : (K,) float
        Load of each key, in percentage points, before merging.
    merge : (K,) float
        Load of merging both states of each key.
    nodes
        N, of equal capacity.
    tuples
        Number of equal parts that the load of a key is divided into.
    sources
        Number of sources, each of which knows only its own traffic.
    seed
        Seed of the hash functions and of the order of tuples. The same seed hashes a key to the
        same nodes, whatever its load.

    Examples
    --------
    >>> import numpy as np
    >>> loads = potc(np.full(100, 2.0), np.zeros(100), 4)
    >>> round(float(loads.sum()), 6), bool(np.ptp(loads) < 10)
    (200.0, True)
    """
    keys = len(load)
    rng = np.random.default_rng(seed)
    first = rng.integers(nodes, size=keys)
    # The second choice is another node if there is one.
    second = (first + rng.integers(1, max(nodes, 2), size=keys)) % nodes
    merging = rng.integers(nodes, size=keys)
    order = rng.permutation(np.repeat(np.arange(keys), tuples))
    sender = rng.integers(sources, size=len(order))
    part = load / tuples
    carried = [0.0] * nodes
    sent = [[0.0] * nodes for _ in range(sources)]
    choices = (first[order], second[order], part[order], sender)
    for one, other, amount, who in zip(*(c.tolist() for c in choices), strict=True):
        known = sent[who]
        to = one if known[one] <= known[other] else other
        known[to] += amount
        carried[to] += amount
    total: Floats = np.array(carried) + np.bincount(merging, merge, nodes)
    return total
