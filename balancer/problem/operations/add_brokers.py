"""Adds brokers: moves replicas to them."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from balancer.problem.liveness import dead_brokers
from balancer.problem.operation import OperationError
from balancer.problem.operations.operation_type import OperationType
from balancer.problem.permissions import Permissions
from balancer.problem.sentences import brokers_named
from balancer.problem.verdict import Verdict
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Snapshot
from goals import Cluster
from metrics_reporter.quantities import plural


class AddBrokers(OperationType):
    """Moves replicas and leadership only to the named brokers."""

    summary: ClassVar = "Move replicas and leadership to the named brokers alone."
    takes_brokers: ClassVar = "always"
    named_receive: ClassVar = True
    needs_loads: ClassVar = True

    def check(self, snapshot: Snapshot, named: Bools) -> None:
        """The brokers must be alive and have a log directory that accepts replicas."""
        s = snapshot
        gone = s.broker_ids[named & dead_brokers(s)]
        if len(gone):
            raise OperationError(f"operation add_brokers: broker {gone[0]} is dead")
        closed = s.broker_ids[named & ~s.broker_open]
        if len(closed):
            raise OperationError(
                f"operation add_brokers: every log directory of broker {closed[0]} is cordoned"
            )

    def permissions(self, whole: Permissions) -> Permissions:
        """Only the named brokers receive anything, except leaders that must leave their brokers."""
        return replace(whole, receives=whole.receives & whole.named, served=whole.named)

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict:
        """Fulfilled if each of the brokers holds a replica."""
        held = np.bincount(ended.replica_broker[ended.replica_broker >= 0], minlength=len(named))
        s, idle = ended.snapshot, named & (held == 0)
        if idle.any():
            text = f"{brokers_named(s, idle, ('holds', 'hold'))} no replicas"
            return Verdict(fulfilled=False, remaining=int(idle.sum()), sentence=text)
        count = plural(int(held[named].sum()), "replica")
        text = f"{brokers_named(s, named, ('holds', 'hold'))} {count}"
        return Verdict(fulfilled=True, remaining=0, sentence=text)
