"""The result of an allocation, as stated in plans."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class AllocationResult(BaseModel):
    """The quality of an allocation of key groups (seed 001, Section 4.3).

    ``distance`` is the load distance, in percentage points, of the balanced `resource`:
    before, after, and the lower bound of any allocation within the budget; ``local`` is the
    share of all communication that stays on a broker.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    strategy: str
    resource: str
    distance_before: float
    distance_after: float
    distance_bound: float
    local_before: float
    local_after: float
