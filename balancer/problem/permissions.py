"""What an operation may touch: brokers to be emptied, replicas that may move, and destinations."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Snapshot


@dataclass(frozen=True, eq=False, kw_only=True)
class Permissions:
    """What may move, what must, and what receives: B brokers, P partitions with F slots each.

    A rebalance may move everything that the request does not exclude; operations return
    others with :func:`dataclasses.replace`.

    Parameters
    ----------
    start
        The placement as it is, with slots enough.
    named : (B,) bool
        The brokers of the request.
    draining : (B,) bool
        Brokers that are to be emptied: dead ones, and those that the operation empties.
    eligible : (B,) bool
        Brokers that count as able to hold replicas: averages are over them.
    receives : (B,) bool
        Brokers that may be given replicas.
    leads : (B,) bool
        Brokers that may be given leadership.
    movable : (P,) bool
        Partitions that may be touched where nothing (a dead broker or disk) demands it.
    slots : (P * F,) bool
        Replicas that may be moved, by where they are at the start.
    lost : (P,) bool
        Partitions all of whose replicas are on dead brokers or dead disks.
    frozen : (P,) bool
        Partitions that nothing may touch.
    """

    start: Placement
    named: Bools
    draining: Bools
    eligible: Bools
    receives: Bools
    leads: Bools
    movable: Bools
    slots: Bools
    lost: Bools
    frozen: Bools

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as it is."""
        return self.start.snapshot
