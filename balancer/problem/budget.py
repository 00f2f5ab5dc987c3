"""Limits on the size of one plan and on the time to find it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Budget(BaseModel):
    """Limits of one plan; None means no limit.

    Parameters
    ----------
    moves
        Most replicas the plan may move (between brokers or disks, or add).
    bytes
        Most bytes it may copy.
    seconds
        Seconds after which the search stops with the best placement so far. The only
        limit that makes a plan depend on the clock.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    moves: int | None = Field(default=None, ge=0)
    bytes: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
