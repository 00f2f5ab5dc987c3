"""Demotes brokers: moves leadership away from them."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from balancer.problem.operations.operation_type import OperationType
from balancer.problem.permissions import Permissions
from balancer.problem.sentences import brokers_named
from balancer.problem.verdict import Verdict
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools
from goals import Cluster
from metrics_reporter.quantities import plural


class DemoteBrokers(OperationType):
    """Moves all leadership off the named brokers; no replica moves."""

    summary: ClassVar = "Move all leadership off the named brokers; no replica moves."
    takes_brokers: ClassVar = "always"
    moves_replicas: ClassVar = False

    def permissions(self, whole: Permissions) -> Permissions:
        """Only leadership moves, and only to other brokers."""
        return replace(
            whole,
            leads=whole.leads & ~whole.named,
            receives=np.zeros_like(whole.receives),
            movable=np.zeros_like(whole.movable),
            slots=np.zeros_like(whole.slots),
        )

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict:
        """Fulfilled if the brokers lead nothing."""
        led = ended.location[(ended.location >= 0) & ~ended.snapshot.leaderless]
        leads = np.bincount(led, minlength=len(named))
        still = named & (leads > 0)
        if not still.any():
            text = f"{brokers_named(ended.snapshot, named, ('leads', 'lead'))} nothing"
            return Verdict(fulfilled=True, remaining=0, sentence=text)
        count = int(leads[still].sum())
        who = brokers_named(ended.snapshot, still, ("still leads", "still lead"))
        text = f"{who} {plural(count, 'partition')}"
        return Verdict(fulfilled=False, remaining=count, sentence=text)
