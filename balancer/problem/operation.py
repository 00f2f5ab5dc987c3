"""The request: what an operator asks of the balancer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from cluster_model.errors import InputError
from metrics_reporter.documents import number_not_truth


class OperationError(InputError):
    """An operation that cannot be carried out as requested."""


class Operation(BaseModel):
    """A request to the balancer; all ids are broker ids.

    Parameters
    ----------
    kind
        ``rebalance``: move whatever helps. ``add_brokers``: replicas and leadership move
        only to `brokers`. ``remove_brokers``: `brokers` are emptied; besides, only what is on dead
        brokers and disks moves. ``demote_brokers``: `brokers` lead nothing, no replica moves.
        ``fix_offline_replicas``: replicas on dead brokers and disks are re-created
        elsewhere, nothing else moves. ``change_replication_factor``: see
        `replication_factor`. ``right_size``: as few brokers as meet all hard goals; the others are
        emptied, or brokers are added (see :class:`balancer.problem.operations.RightSize`).
        Or one that another package adds (``counterpoise operations list``).
    brokers
        The brokers of the operation.
    replication_factor
        Regular expression of topics -> number of replicas for each of their partitions.
    excluded_topics
        Regular expressions of topics that stay where they are (except that they leave
        dead and removed brokers). One that matches no topic is an error.
    allow_unmatched
        Whether `excluded_topics` may match no topic, because topics do not exist yet.
    excluded_partitions
        The same for single partitions, by name (``orders-3``); names that are not in the
        snapshot are no error, since topics come and go.
    frozen_partitions
        Partitions, by name, that are never touched, not even to leave a dead or removed
        broker: because they have no replica to copy from, or because a person handles them.
    excluded_brokers_for_replicas, excluded_brokers_for_leadership
        Brokers that receive no replicas, or no leadership; averages leave them out.
    destinations
        The only brokers that receive replicas; None for all.
    acceptable_lag
        Records that a warming replica may be behind and still become leader; one whose lag is
        unknown may not. Counts only in snapshots with ``warming`` replicas.
    options
        Options of ``right_size``, or of an operation that another package adds.

    Examples
    --------
    >>> Operation(kind="remove_brokers", brokers=(7,)).brokers
    (7,)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = "rebalance"
    brokers: tuple[int | str, ...] = ()
    replication_factor: dict[str, int] = Field(default_factory=dict)
    excluded_topics: tuple[str, ...] = ()
    allow_unmatched: bool = False
    excluded_partitions: tuple[str, ...] = ()
    frozen_partitions: tuple[str, ...] = ()
    excluded_brokers_for_replicas: tuple[int | str, ...] = ()
    excluded_brokers_for_leadership: tuple[int | str, ...] = ()
    destinations: tuple[int | str, ...] | None = None
    acceptable_lag: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        return number_not_truth(cls, info.field_name, value)
