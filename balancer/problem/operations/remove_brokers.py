"""Removes brokers: empties them."""

from __future__ import annotations

from typing import ClassVar

from balancer.problem.liveness import living_replicas
from balancer.problem.operations.fix_offline_replicas import replicas_that_must_move
from balancer.problem.operations.operation_type import OperationType
from balancer.problem.permissions import Permissions
from balancer.problem.sentences import brokers_named
from balancer.problem.verdict import Verdict
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Snapshot
from goals import Cluster
from metrics_reporter.quantities import plural


class RemoveBrokers(OperationType):
    """Empties the named brokers; besides, only what is on dead brokers and disks moves."""

    summary: ClassVar = (
        "Empty the named brokers; besides, only what is on dead brokers and disks moves."
    )
    takes_brokers: ClassVar = "always"

    def empties(self, snapshot: Snapshot, named: Bools) -> Bools:
        """The named brokers."""
        return named

    def permissions(self, whole: Permissions) -> Permissions:
        """Only replicas on brokers to be emptied, and on dead brokers and disks, may move."""
        return replicas_that_must_move(whole)

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict:
        """Fulfilled if the brokers hold nothing."""
        return emptied_verdict(ended, named)


def emptied_verdict(ended: Placement, named: Bools) -> Verdict:
    """Whether brokers hold nothing at the end of a plan; fulfilled if so.

    Parameters
    ----------
    ended
        The placement at the end of the plan.
    named : (B,) bool
        The brokers; at least one.
    """
    where = ended.replica_broker
    left = (where >= 0) & named[where]
    if not left.any():
        text = f"{brokers_named(ended.snapshot, named)} empty"
        return Verdict(fulfilled=True, remaining=0, sentence=text)
    holds = named.copy()
    holds[:] = False
    holds[where[left]] = True
    lost = ~living_replicas(ended).any(axis=1)
    dead = int(left.reshape(ended.brokers.shape)[lost].sum())
    kept = brokers_named(ended.snapshot, holds, verb=("still holds", "still hold"))
    why = f", {dead:,} of them with no living copy" if dead else ""
    count = int(left.sum())
    text = f"{kept} {plural(count, 'replica')}{why}"
    return Verdict(fulfilled=False, remaining=count, sentence=text)
