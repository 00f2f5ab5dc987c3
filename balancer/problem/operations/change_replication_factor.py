"""Changes the replication factor: gives partitions more or fewer replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from balancer.problem.liveness import lost_partitions
from balancer.problem.operation import OperationError
from balancer.problem.operations.operation_type import OperationType
from balancer.problem.permissions import Permissions
from balancer.problem.replication_factor import (
    ReplicationFactor,
    target_replication_factor,
    with_replication_factor,
)
from balancer.problem.verdict import Verdict
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Ints, Snapshot
from goals import Cluster, Goal
from metrics_reporter.quantities import plural


class ChangeReplicationFactor(OperationType):
    """Sets the number of replicas of each partition of some topics.

    Parameters
    ----------
    replication_factor
        Regular expression of topics -> number of replicas for each of their partitions.
    """

    summary: ClassVar = "Give each partition of some topics a number of replicas."
    changes_replication_factor: ClassVar = True

    replication_factor: dict[str, int]

    def check(self, snapshot: Snapshot, named: Bools) -> None:
        """At least one topic must be given a number."""
        if not self.replication_factor:
            raise OperationError(
                "operation change_replication_factor: a topic pattern and a number expected, "
                "none given"
            )

    def factor(self, snapshot: Snapshot) -> Ints:
        """As many as requested."""
        return target_replication_factor(snapshot, self.replication_factor)

    def permissions(self, whole: Permissions) -> Permissions:
        """Only added replicas may move; they go wherever they fit best."""
        return replace(whole, movable=np.zeros_like(whole.movable))

    def placement(self, allowed: Permissions) -> tuple[Placement, Bools]:
        """The start with surplus replicas removed and missing ones added at good places."""
        factor = self.factor(allowed.snapshot)
        takes = allowed.eligible & allowed.receives
        return with_replication_factor(
            allowed.start,
            factor,
            takes,
            allowed.lost,
            allowed.frozen,
            allowed.permitted,
            allowed.leads,
        )

    def goals(self, factor: Ints) -> list[Goal]:
        """Every partition has its number of replicas."""
        return [ReplicationFactor.of(factor)]

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict:
        """Fulfilled if every partition has its number of replicas."""
        target = self.factor(ended.snapshot)
        other = (ended.brokers >= 0).sum(axis=1) != target
        if not other.any():
            text = "every partition has the number of replicas asked for"
            return Verdict(fulfilled=True, remaining=0, sentence=text)
        count, lost = int(other.sum()), int((other & lost_partitions(ended)).sum())
        text = plural(count, "partition has", "partitions have")
        text += " a different number of replicas than requested"
        text += f", {lost:,} of them with no living copy" if lost else ""
        return Verdict(fulfilled=False, remaining=count, sentence=text)
