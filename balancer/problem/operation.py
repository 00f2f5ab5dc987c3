"""The request: what an operator asks of the balancer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cluster_model.errors import InputError


class OperationError(InputError):
    """An operation that cannot be carried out as asked."""


class Operation(BaseModel):
    """One of the things a balancer is asked to do; all ids are broker ids.

    Parameters
    ----------
    kind
        ``rebalance``: move whatever helps. ``add_brokers``: replicas move only to
        `brokers`. ``remove_brokers``: nothing is left on `brokers`, nothing else moves.
        ``demote_brokers``: `brokers` lead nothing, no replica moves.
        ``fix_offline_replicas``: replicas on dead brokers and disks get a new home,
        nothing else moves. ``change_replication_factor``: as `replication_factor` says. Or
        one that another package adds (``counterpoise operations list``).
    brokers
        The brokers of the operation.
    replication_factor
        Regular expression of topics -> replicas each of their partitions shall have.
    excluded_topics
        Regular expressions of topics that stay where they are (but for a dead or
        removed broker, which they leave).
    excluded_partitions
        The same for single partitions, by name (``orders-3``); names that the snapshot
        does not have are no error, since topics come and go.
    frozen_partitions
        Partitions, by name, that nothing touches, not even to leave a dead or removed
        broker: because nothing can be copied from them, or because they are left to a person.
    excluded_brokers_for_replicas, excluded_brokers_for_leadership
        Brokers that are given no replicas, or no leadership; averages leave them out.
    destinations
        The only brokers that are given replicas; None for all.
    options
        Options of an operation that another package adds.

    Examples
    --------
    >>> Operation(kind="remove_brokers", brokers=(7,)).brokers
    (7,)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = "rebalance"
    brokers: tuple[int, ...] = ()
    replication_factor: dict[str, int] = Field(default_factory=dict)
    excluded_topics: tuple[str, ...] = ()
    excluded_partitions: tuple[str, ...] = ()
    frozen_partitions: tuple[str, ...] = ()
    excluded_brokers_for_replicas: tuple[int, ...] = ()
    excluded_brokers_for_leadership: tuple[int, ...] = ()
    destinations: tuple[int, ...] | None = None
    options: dict[str, Any] = Field(default_factory=dict)
