"""Re-creates replicas of dead brokers and disks elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from balancer.problem.liveness import living_replicas, offline_replicas
from balancer.problem.operations.operation_type import OperationType
from balancer.problem.permissions import Permissions
from balancer.problem.verdict import Verdict
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools
from goals import Cluster
from metrics_reporter.quantities import plural


def replicas_that_must_move(whole: Permissions) -> Permissions:
    """Only replicas on brokers to be emptied and on dead disks may move."""
    start, s = whole.start, whole.snapshot
    where = start.replica_broker
    slots: Bools = (where >= 0) & whole.draining[where]
    if s.n_disks:
        slots |= (start.replica_disk >= 0) & ~s.disk_alive[start.replica_disk]
    return replace(whole, movable=np.zeros_like(whole.movable), slots=slots)


class FixOfflineReplicas(OperationType):
    """Re-creates replicas of dead brokers and disks elsewhere; nothing else moves."""

    summary: ClassVar = (
        "Re-create replicas of dead brokers and disks elsewhere; nothing else moves."
    )
    heals: ClassVar = True

    def permissions(self, whole: Permissions) -> Permissions:
        """Only replicas on dead brokers and disks may move."""
        return replicas_that_must_move(whole)

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict:
        """Fulfilled if every replica is on a living broker and disk."""
        lives, offline = living_replicas(ended), offline_replicas(ended)
        if not offline.any():
            text = "every replica is on a living broker and disk"
            return Verdict(fulfilled=True, remaining=0, sentence=text)
        count = int(offline.sum())
        lost = int(((ended.brokers >= 0).any(axis=1) & ~lives.any(axis=1)).sum())
        text = plural(count, "replica stays", "replicas stay") + " on dead brokers or disks"
        if lost:
            text += f"; {plural(lost, 'partition has', 'partitions have')} no living copy"
        return Verdict(fulfilled=False, remaining=count, sentence=text)
