"""Vetoes that every plan obeys, whatever its goals: nothing that was whole is overfilled."""

from __future__ import annotations

from typing import Any

import numpy as np

from cluster_model.snapshot import Floats, Snapshot
from goals import Cluster, Goal
from goals.capacity import ResourceCapacity
from goals.disks import DiskCapacity


class WholeBroker(ResourceCapacity):
    """No broker carries more than its capacity of a resource; one of 0 is not known."""

    threshold: float = 1.0

    def limits(self, cluster: Cluster) -> Floats:
        """(B,) each capacity that is known."""
        return _known(super().limits(cluster))


class WholeDisk(DiskCapacity):
    """No disk holds more than fits on it; a capacity of 0 is not known."""

    threshold: float = 1.0

    def limits(self, cluster: Cluster) -> Floats:
        """(D,) each capacity that is known."""
        return _known(super().limits(cluster))


def _known(capacity: Floats) -> Floats:
    return np.where(capacity > 0, capacity, np.inf)


def guards(snapshot: Snapshot, goals: list[Goal]) -> list[Goal]:
    """The vetoes of a snapshot, in a tier of their own after all the goals."""
    last: dict[str, Any] = {"tier": 1 + max((g.tier or 0 for g in goals), default=0)}
    of_brokers: list[Goal] = [WholeBroker(resource=r, **last) for r in snapshot.resources]
    disks = snapshot.n_disks and "disk" in snapshot.resources
    return of_brokers + ([WholeDisk(**last)] if disks else [])


def implied(guard: Goal, goals: list[Goal]) -> bool:
    """Whether some hard goal vetoes all that a guard does."""
    kind = ResourceCapacity if isinstance(guard, WholeBroker) else DiskCapacity
    return any(
        g.hard
        and type(g) is kind
        and g.threshold <= 1
        and getattr(g, "resource", None) == getattr(guard, "resource", None)
        for g in goals
    )
