"""Limits on the size of one plan and on the time to find it."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from cluster_model.errors import InputError
from cluster_model.snapshot import Ints, Snapshot
from metrics_reporter.documents import number_not_truth


class BudgetError(InputError):
    """A budget that does not fit the cluster."""


class Budget(BaseModel):
    """Limits of one plan; None means no limit.

    Parameters
    ----------
    moves
        Maximum number of replicas that the plan may move (between brokers or disks) or add.
    cost
        Maximum total cost of its moves, in the snapshot's unit of cost
        (:func:`balancer.problem.movement_cost.cost_unit`).
    bytes
        The same if that unit is bytes, as in Kafka; an error for other units.
    moves_per_broker, moves_per_rack
        Maximum number of replicas that may arrive at any one broker, or rack, and maximum number
        that may leave it.
    seconds
        Seconds after which the search stops with the best placement so far. The only
        limit that makes a plan depend on the clock.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        return number_not_truth(cls, info.field_name, value)

    moves: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    bytes: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    moves_per_broker: int | None = Field(default=None, ge=0)
    moves_per_rack: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @property
    def limits_moves(self) -> bool:
        """Whether anything but the time is limited."""
        return any(value is not None for name, value in self if name != "seconds")

    def within(self, other: Budget) -> Budget:
        """The lower of each pair of limits.

        Examples
        --------
        >>> both = Budget(moves=5, bytes=1e9).within(Budget(moves=9, seconds=60))
        >>> both.moves, both.bytes, both.seconds
        (5, 1000000000.0, 60.0)
        """
        mine, theirs = (limits.model_dump(exclude_none=True) for limits in (self, other))
        both = {name: min(mine[name], theirs[name]) for name in mine.keys() & theirs.keys()}
        return Budget(**theirs | mine | both)

    def per_group(self, snapshot: Snapshot) -> list[tuple[int, Ints]]:
        """The limits for each broker, and rack, that are set, with the group of each broker."""
        limits = (
            (self.moves_per_broker, np.arange(snapshot.n_brokers)),
            (self.moves_per_rack, snapshot.broker_rack),
        )
        return [(limit, group) for limit, group in limits if limit is not None]

    def in_unit(self, unit: str) -> Budget:
        """The same limits for a cluster whose moves are paid in `unit`: `cost` holds them all.

        Raises
        ------
        BudgetError
            If bytes are limited, and moves cost something else.

        Examples
        --------
        >>> Budget(bytes=5e9).in_unit("bytes").cost
        5000000000.0
        """
        if self.bytes is None:
            return self
        if unit != "bytes":
            raise BudgetError(
                f"budget: a limit of bytes found, a limit of cost in {unit} expected: that is "
                "what moves cost in this cluster"
            )
        least = self.bytes if self.cost is None else min(self.cost, self.bytes)
        return self.model_copy(update={"cost": least})
