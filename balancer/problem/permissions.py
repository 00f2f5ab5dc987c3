"""What an operation may touch: brokers to be emptied, movable replicas, and destinations."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Snapshot


@dataclass(frozen=True, eq=False, kw_only=True)
class Permissions:
    """What may move, what must, and what receives: B brokers, P partitions of F slots each.

    A rebalance may move everything that the request does not exclude; operations narrow
    this with :func:`dataclasses.replace`.

    Parameters
    ----------
    start
        The current placement, with enough slots.
    named : (B,) bool
        The brokers of the request.
    draining : (B,) bool
        Brokers to be emptied: dead ones, and those that the operation empties.
    eligible : (B,) bool
        Brokers that count as able to hold replicas; averages are taken over them.
    receives : (B,) bool
        Brokers that may receive replicas.
    leads : (B,) bool
        Brokers that may receive leadership.
    movable : (P,) bool
        Partitions that may be moved even when no dead broker or disk requires it.
    slots : (P * F,) bool
        Replicas that may be moved, by their position at the start.
    lost : (P,) bool
        Partitions with all replicas on dead brokers or dead disks.
    frozen : (P,) bool
        Partitions that must not be touched.
    permitted : (T, B) bool
        Whether a broker may hold replicas of a topic; None if every broker may hold every
        topic.
    served : (B,) bool
        The only brokers that leadership goes to, and whose disks exchange replicas, except where a
        leader must leave its broker; None for all brokers.
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
    permitted: Bools | None = None
    served: Bools | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The current cluster."""
        return self.start.snapshot
