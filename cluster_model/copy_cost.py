"""What a copy of a replica costs, as the snapshot says."""

from __future__ import annotations

from cluster_model.placement import Placement
from cluster_model.snapshot import Floats


def copy_cost(placement: Placement) -> tuple[Floats, Floats]:
    """(P,), (P,) cost of copying the leader and a follower of each partition anywhere.

    In the snapshot's unit of cost: bytes, a unit of its own, or replicas, see
    :attr:`cluster_model.snapshot.Snapshot.cost_unit`. Destinations that differ are in
    :meth:`cluster_model.snapshot.Snapshot.move_cost_of`.
    """
    s = placement.snapshot
    if s.cost_unit is None and "disk" in s.resources:
        return placement.contribution("load.disk")
    if len(s.state_size):
        return s.state_size, s.state_size
    return placement.contribution("replica_count")
