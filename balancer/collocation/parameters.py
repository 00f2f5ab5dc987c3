"""Tunable numbers of ALBIC beyond those of the allocation."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from balancer.allocation.parameters import AllocationParameters, Count, Share


class CollocationParameters(AllocationParameters):
    """Tunable numbers of collocation; options of the strategy ``albic``.

    The defaults are those of the figures in the documentation of collocation.

    Parameters
    ----------
    fine_share
        Share of maxLD below which a load distance is good enough: further migrations are better
        spent on bringing communicating key groups together.
    attempt_share
        Share of the remaining time for an attempt that may have to be repeated.
    locality_passes
        Maximum number of passes over the units that would have more local traffic elsewhere.
    looks_per_migration, fewest_looks, most_looks
        Units that a pass examines: for each migration that the budget still allows, and at least
        and at most in total.
    pass_share
        Share of the remaining budget that a pass spends.
    """

    fine_share: Share = 0.15
    attempt_share: float = Field(default=0.6, gt=0, le=1)
    locality_passes: int = Field(default=40, ge=0, le=10**9)
    looks_per_migration: Count = 4
    fewest_looks: Count = 200
    most_looks: Count = 1_000
    pass_share: float = Field(default=0.125, gt=0, le=1)

    @model_validator(mode="after")
    def _fewest_first(self) -> Self:
        if self.fewest_looks > self.most_looks:
            raise ValueError("fewest_looks of at most most_looks expected")
        return self
