"""Tunable numbers of the repair of a packing."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RepairParameters(BaseModel):
    """Tunable numbers of :func:`~balancer.allocation.packing.repair.repair`.

    Parameters
    ----------
    bin_price
        What one bin less is worth, in weight of items that move for it over the capacity of a bin
        in its first dimension. With 0, items only leave bins that are too full; the higher, the
        fewer the bins.
    headroom
        Share of a bin that items which move in leave free, so that it is not too full again soon.
    spread
        Whether items that must move go where most is left, rather than where they leave least.
    exact_items
        Items in a bin up to which all of their subsets are considered for leaving it.
    tries
        Attempts in a row to do with one bin less that may fail.
    exchange_bins
        Bins, those with most left first, that may pass an item on to make room.
    growth, group_items
        Factor by which the group of bins that are packed together grows after a failure, and the
        items that it may have.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    bin_price: float = Field(default=1.0, ge=0, le=1e9)
    headroom: float = Field(default=0.0, ge=0, lt=1)
    spread: bool = False
    exact_items: int = Field(default=12, ge=1, le=20)
    tries: int = Field(default=64, ge=0, le=10**9)
    exchange_bins: int = Field(default=64, ge=0, le=10**9)
    growth: float = Field(default=1.3, gt=1, le=1000)
    group_items: int = Field(default=2_000, ge=0, le=10**9)
