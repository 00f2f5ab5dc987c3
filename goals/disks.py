"""Goals about the disks of each broker (JBOD)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from cluster_model.columns import LOAD, Column
from cluster_model.snapshot import Bools, Floats
from goals.capacity import Ceiling
from goals.cluster import Cluster
from goals.curves import TOLERANCE, distance
from goals.goal import Goal, Infeasibility, Ratio, Utilization
from goals.state import State


class DiskCapacity(Ceiling):
    """Each disk is filled to at most `threshold` of its capacity.

    Dead disks are content: :class:`goals.availability.OnlineReplicas` empties them.

    Parameters
    ----------
    threshold
        Share of the disk's capacity that may be used.
    """

    scope: ClassVar = "disk"
    requires: ClassVar[tuple[str, ...]] = ("disk",)
    hard: bool = True
    threshold: Utilization = 0.8

    @property
    def column(self) -> Column:
        """Bytes on the disk."""
        return Column(LOAD, "disk")

    def limits(self, cluster: Cluster) -> Floats:
        """(D,) the threshold's share of each capacity."""
        return cluster.snapshot.disk_capacity * self.threshold

    def added_limit(self, cluster: Cluster) -> float:
        """The threshold's share of the disks of a typical broker."""
        return self.threshold * float(cluster.snapshot.disk_capacity[cluster.typical_disks].sum())

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """As for every limit; none if a broker without disks may take any amount."""
        some = np.bincount(cluster.snapshot.disk_broker, minlength=cluster.snapshot.n_brokers)
        return super().infeasibilities(cluster) if some[cluster.eligible].all() else []

    def receiving(self, cluster: Cluster) -> Bools:
        """(D,) open disks of brokers that may keep replicas: their other disks fill them."""
        return self.staying(cluster) & cluster.snapshot.disk_open

    def staying(self, cluster: Cluster) -> Bools:
        """(D,) living disks of brokers that may keep replicas."""
        return ~cluster.draining[cluster.snapshot.disk_broker] & cluster.snapshot.disk_alive


class DiskUsageDistribution(Goal):
    """The disks of a broker are filled evenly.

    Each is within (threshold - 1) * margin of the mean utilisation of its broker's living disks at
    the start of the optimisation. Disks that are dead or on brokers to be emptied are content;
    cordoned ones too, and they are left out of the mean.

    Parameters
    ----------
    threshold, margin
        As for every distribution goal: 1.10 and 0.9 allow 9 percent either way.
    """

    scope: ClassVar = "disk"
    requires: ClassVar[tuple[str, ...]] = ("disk",)
    threshold: Ratio = 1.10
    margin: float = Field(default=0.9, gt=0, le=1)
    _percent: Floats = PrivateAttr()
    _lower: Floats = PrivateAttr()
    _upper: Floats = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        """Express the limits in percent of each disk's share."""
        s = cluster.snapshot
        capacity = np.where(s.disk_open, s.disk_capacity, 0.0)
        # index -1 (no disk) reads the last element
        counted = np.append(np.where(s.disk_open | ~s.disk_alive, s.disk_broker, -1), -1)
        holder = counted[cluster.placement.replica_disk]
        full = cluster.placement.totals(Column(LOAD, "disk"), holder, s.n_brokers)
        size = np.bincount(s.disk_broker, capacity, s.n_brokers)
        mean = np.divide(full, size, out=np.zeros(s.n_brokers), where=size > 0)
        share = mean[s.disk_broker] * capacity
        self._percent = 100.0 / np.where(share > 0, share, 1.0)
        slack = 100.0 * ((self.threshold - 1) * self.margin + TOLERANCE)
        content = ~s.disk_open | cluster.draining[s.disk_broker]
        centre = np.where(share > 0, 100.0, 0.0)
        self._lower = np.where(content, -np.inf, centre - slack)
        self._upper = np.where(content, np.inf, np.where(share > 0, centre + slack, 0.0))

    def score(self, state: State) -> Any:
        """1 between the limits, then the seed's curve of the distance from them."""
        disk = state.disk
        value = state.load("disk") * self._percent[disk]
        outside = np.maximum(value - self._upper[disk], self._lower[disk] - value)
        return distance(outside, bound=0.0, var=100.0)
