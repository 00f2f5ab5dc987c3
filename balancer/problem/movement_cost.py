"""The cost of carrying out an action, in bytes and relative units."""

from __future__ import annotations

import numpy as np

from cluster_model.placement import LEAD, Batch, Placement
from cluster_model.snapshot import Floats


def replica_bytes(placement: Placement) -> tuple[Floats, Floats]:
    """(P,), (P,) bytes of the leader and of a follower of each partition.

    Without a resource called ``disk``, the bytes of the state are used; if those are not
    known either, every replica counts as one byte.
    """
    s = placement.snapshot
    if "disk" in s.resources:
        return placement.contribution("load.disk")
    if len(s.state_size):
        return s.state_size, s.state_size
    return placement.contribution("replica_count")


def action_bytes(placement: Placement, batch: Batch) -> Floats:
    """(C,) bytes each action copies: those of the replica; a leadership transfer copies none."""
    lead, follow = replica_bytes(placement)
    leads = batch.slot == placement.leader[batch.partition]
    size = np.where(leads, lead[batch.partition], follow[batch.partition])
    return np.where(batch.kind == LEAD, 0.0, size)


def action_cost(placement: Placement, batch: Batch) -> Floats:
    """(C,) bytes in units of the mean replica, plus a fixed cost per action."""
    lead, _ = replica_bytes(placement)
    unit = float(lead.mean()) or 1.0
    return OVERHEAD + action_bytes(placement, batch) / unit


OVERHEAD = 1.0
