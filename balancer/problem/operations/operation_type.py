"""The interface of an operation: what it may move, what must move, and when it is fulfilled."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from balancer.problem.permissions import Permissions
from balancer.problem.verdict import Verdict
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Ints, Snapshot
from goals import Cluster, Goal


class OperationType(BaseModel):
    """What an operation does; its fields are the operation's own options.

    The defaults are those of a rebalance. A subclass overrides what it changes, is
    registered as an entry point of the group ``counterpoise.operations`` under its name,
    and is asked for as ``Operation(kind=name, options={...})``.

    Attributes
    ----------
    summary : str
        One line for people: ``counterpoise operations list`` prints it.
    takes_brokers : str
        Whether :attr:`Operation.brokers` must be given, may not be, or may be.
    moves_replicas : bool
        Whether replicas move, and not leadership alone.
    changes_replication_factor : bool
        Whether replicas are added and removed.
    named_receive : bool
        Whether the named brokers are the ones that are given replicas.
    needs_loads : bool
        Whether the operation is planned on loads: what is not measured is then left alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: ClassVar[str] = ""
    takes_brokers: ClassVar[Literal["never", "always", "optional"]] = "never"
    moves_replicas: ClassVar[bool] = True
    changes_replication_factor: ClassVar[bool] = False
    named_receive: ClassVar[bool] = False
    needs_loads: ClassVar[bool] = False

    def check(self, snapshot: Snapshot, named: Bools) -> None:
        """Raise :class:`OperationError` where the request does not fit the cluster.

        Parameters
        ----------
        snapshot
            The cluster as it is.
        named : (B,) bool
            The brokers of the request.
        """

    def empties(self, snapshot: Snapshot, named: Bools) -> Bools:
        """(B,) brokers that are to be emptied, besides dead ones: by default none."""
        return np.zeros(snapshot.n_brokers, np.bool_)

    def factor(self, snapshot: Snapshot) -> Ints:
        """(P,) replicas that each partition is to have: by default as many as it has."""
        return snapshot.replication_factor

    def permissions(self, whole: Permissions) -> Permissions:
        """What the operation lets a strategy touch; `whole` is what a rebalance may."""
        return whole

    def placement(self, allowed: Permissions) -> tuple[Placement, Bools]:
        """Where the search starts, and (P * F,) replicas that may move from there."""
        return allowed.start.copy(), allowed.slots

    def goals(self, factor: Ints) -> list[Goal]:
        """Hard goals that stand for what the operation asks, before all others."""
        return []

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict | None:
        """Whether the operation is fulfilled where a plan ends.

        Parameters
        ----------
        before
            The cluster at the start.
        ended
            The placement at the end of the plan.
        named : (B,) bool
            The brokers of the request.

        Returns
        -------
        Verdict or None
            None where there is nothing to say but what the goals say.
        """
        return None
