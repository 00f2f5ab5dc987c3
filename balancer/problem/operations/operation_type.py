"""The interface of an operation: what it may move, what must move, and when it is fulfilled."""

from __future__ import annotations

from collections.abc import Iterable
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

    The defaults are those of a rebalance. A subclass overrides what it changes and is
    registered under its name as an entry point of the group ``counterpoise.operations``;
    users request it as ``Operation(kind=name, options={...})``.

    Attributes
    ----------
    summary : str
        One line that ``counterpoise operations list`` prints.
    takes_brokers : str
        Whether :attr:`Operation.brokers` is required, forbidden or optional.
    moves_replicas : bool
        Whether replicas move; if not, only leadership does.
    changes_replication_factor : bool
        Whether replicas are added or removed.
    named_receive : bool
        Whether the named brokers are the ones that receive replicas.
    needs_loads : bool
        Whether planning depends on loads; if so, partitions without measured loads stay.
    heals : bool
        Whether it re-creates offline replicas. In a controller, other operations that move
        replicas leave partitions with offline replicas to one that does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: ClassVar[str] = ""
    takes_brokers: ClassVar[Literal["never", "always", "optional"]] = "never"
    moves_replicas: ClassVar[bool] = True
    changes_replication_factor: ClassVar[bool] = False
    named_receive: ClassVar[bool] = False
    needs_loads: ClassVar[bool] = False
    heals: ClassVar[bool] = False

    def check(self, snapshot: Snapshot, named: Bools) -> None:
        """Raise :class:`OperationError` if the request does not fit the cluster.

        Parameters
        ----------
        snapshot
            The current cluster.
        named : (B,) bool
            The brokers of the request.
        """

    def empties(self, snapshot: Snapshot, named: Bools) -> Bools:
        """(B,) brokers to empty in addition to dead ones: by default none."""
        return np.zeros(snapshot.n_brokers, np.bool_)

    def factor(self, snapshot: Snapshot) -> Ints:
        """(P,) target number of replicas of each partition.

        By default the current one, or what the snapshot asks for if that is more; partitions
        without any get their first.
        """
        if not self.moves_replicas:
            return snapshot.replication_factor
        return snapshot.target_replication_factor

    def permissions(self, whole: Permissions) -> Permissions:
        """What a strategy may touch; `whole` is what a rebalance may touch."""
        return whole

    def placement(self, allowed: Permissions) -> tuple[Placement, Bools]:
        """The placement the search starts from, and (P * F,) replicas that may move from there."""
        return allowed.start.copy(), allowed.slots

    def judged_by(self, goals: Iterable[Goal]) -> list[Goal]:
        """The configured goals as this operation obeys them: by default as they are."""
        return list(goals)

    def goals(self, factor: Ints) -> list[Goal]:
        """Hard goals that express the request; they come before all others."""
        return []

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict | None:
        """Whether the operation is fulfilled at the end of a plan.

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
            None if the goals already say everything.
        """
        return None
