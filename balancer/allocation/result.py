"""What an allocation reached, as plans state it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class AllocationResult(BaseModel):
    """How far an allocation of key groups came (seed 001, Section 4.3).

    ``distance`` is the load distance in percent points of the `resource` that is balanced,
    before, after, and what no allocation within the budget gets below; ``local`` the share
    of all communication that stays on a broker.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: Literal["milp", "albic"]
    resource: str
    distance_before: float
    distance_after: float
    distance_bound: float
    local_before: float
    local_after: float
