"""Phrases about brokers and partitions for messages."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Bools, Snapshot

_MOST = 5


def brokers_named(snapshot: Snapshot, chosen: Bools, verb: tuple[str, str] = ("is", "are")) -> str:
    """The chosen brokers by id, with a verb that agrees: "brokers 3 and 7 are".

    Parameters
    ----------
    snapshot
        The cluster.
    chosen : (B,) bool
        Which brokers; at least one.
    verb
        Its singular and plural.
    """
    ids = [str(i) for i in snapshot.broker_ids[np.flatnonzero(chosen)].tolist()]
    if len(ids) == 1:
        return f"broker {ids[0]} {verb[0]}"
    rest = len(ids) - _MOST
    listed = (
        f"{', '.join(ids[:_MOST])} and {rest:,} more"
        if rest > 0
        else (f"{', '.join(ids[:-1])} and {ids[-1]}")
    )
    return f"brokers {listed} {verb[1]}"
