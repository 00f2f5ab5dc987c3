"""Requests and answers of the API that are not records of the core: what OpenAPI shows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from balancer.approval import KeptProposal
from balancer.problem.budget import Budget
from balancer.problem.operation import Operation
from metrics_reporter.documents import number_not_truth

# Characters of a reason that somebody gives.
LONGEST_REASON = 1000


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        return number_not_truth(cls, info.field_name, value)


class Refusal(_Model):
    """Why a request is refused.

    Parameters
    ----------
    error
        One sentence.
    """

    error: str


class Hypothesis(_Model):
    """A change of the cluster to try, without touching it.

    Parameters
    ----------
    add_brokers
        How many brokers to add, with the median capacities, where racks have fewest.
    lose_brokers
        Ids of brokers that die.
    lose_racks
        Racks whose brokers all die.
    scale_load
        Factor for the load of all partitions.
    """

    add_brokers: Annotated[int, Field(ge=0, le=1000)] = 0
    lose_brokers: tuple[int | str, ...] = ()
    lose_racks: tuple[str, ...] = ()
    scale_load: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0


class PlanRequest(_Model):
    """What a client asks to be planned.

    Parameters
    ----------
    operation
        The operation; by default a rebalance.
    goals
        A profile of goals; None for those of the controller.
    only
        Names of the goals to use, of those; None for all.
    budget
        Limits of the plan; those of the controller apply, too.
    reason
        Why, for others to read.
    """

    operation: Operation = Operation()
    goals: str | None = None
    only: tuple[str, ...] | None = None
    budget: Budget = Budget()
    reason: Annotated[str, Field(max_length=LONGEST_REASON)] = ""


class WhatIfRequest(PlanRequest):
    """A plan for a cluster that does not exist (yet): it is never executed.

    Parameters
    ----------
    hypothesis
        How the cluster differs.
    brokers
        Whether the answer lists every broker, before and after.
    """

    hypothesis: Hypothesis = Hypothesis()
    brokers: bool = True


class WhyNotRequest(_Model):
    """Why a partition is not on a broker at the end of a proposal.

    Parameters
    ----------
    proposal
        Its id; None asks about a rebalance that is planned now.
    partition
        Name, ``orders-3``.
    broker
        Id of a broker.
    """

    proposal: str | None = None
    partition: str
    broker: int | str


class Decide(_Model):
    """A person's decision about a proposal.

    Parameters
    ----------
    digest
        Digest of the plan that was looked at, 64 digits.
    why
        The reason.
    """

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    why: Annotated[str, Field(max_length=LONGEST_REASON)] = ""


class Reason(_Model):
    """Why something is done."""

    why: Annotated[str, Field(max_length=LONGEST_REASON)] = ""


class SpeedLimits(_Model):
    """Speed limits of the execution in progress; None leaves one as it is.

    Parameters
    ----------
    throttle
        Bytes/s that a broker may send and receive for the moves, or text like ``"50MB/s"``.
    concurrent_moves_per_broker, concurrent_moves, leadership_batch
        See the limits of executions.
    """

    throttle: float | str | None = None
    concurrent_moves_per_broker: int | None = None
    concurrent_moves: int | None = None
    leadership_batch: int | None = None
    why: Annotated[str, Field(max_length=LONGEST_REASON)] = ""


class BrokerProposal(_Model):
    """A proposal, and how many of its actions have a broker as source or destination."""

    proposal: KeptProposal
    actions: int


class GoalState(_Model):
    """How a goal stands now; None where it cannot be judged, which `left_out` explains."""

    goal: str
    tier: int | None
    hard: bool
    weight: float
    met: bool | None
    cells: int
    unmet_cells: int | None
    worst: float | None
    where: str | None
    left_out: str | None = None


class JobState(_Model):
    """A plan being made for a client; `proposal` or `result` once it is done."""

    id: str
    what: str
    by: str
    made: float
    state: str
    progress: dict[str, Any]
    error: str | None
    ended: float | None
    proposal: str | None = None
    result: dict[str, Any] | None = None
