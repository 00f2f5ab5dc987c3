"""Vetoes that apply to every plan regardless of its goals: no broker or disk is overfilled."""

from __future__ import annotations

from typing import Any

from cluster_model.snapshot import Snapshot
from goals import Goal
from goals.capacity import ResourceCapacity
from goals.disks import DiskCapacity


class WholeBroker(ResourceCapacity):
    """No broker exceeds its capacity of a resource; a broker of capacity 0 takes nothing."""

    threshold: float = 1.0


class WholeDisk(DiskCapacity):
    """No disk exceeds its capacity; a disk of capacity 0 takes nothing."""

    threshold: float = 1.0


def capacity_guards(snapshot: Snapshot, goals: list[Goal]) -> list[Goal]:
    """The vetoes of a snapshot, in a separate tier after all goals."""
    last: dict[str, Any] = {"tier": 1 + max((g.tier or 0 for g in goals), default=0)}
    of_brokers: list[Goal] = [WholeBroker(resource=r, **last) for r in snapshot.resources]
    disks = snapshot.n_disks and "disk" in snapshot.resources
    return of_brokers + ([WholeDisk(**last)] if disks else [])


def implied(guard: Goal, goals: list[Goal]) -> bool:
    """Whether some hard goal vetoes everything that a guard vetoes."""
    if not isinstance(guard, WholeBroker | WholeDisk):
        return False
    kind = ResourceCapacity if isinstance(guard, WholeBroker) else DiskCapacity
    return any(
        g.hard
        and type(g) is kind
        and g.threshold <= 1
        and getattr(g, "resource", None) == getattr(guard, "resource", None)
        for g in goals
    )
