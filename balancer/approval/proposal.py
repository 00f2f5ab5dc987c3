"""A proposal as it is kept: a plan with its digest, and what people decided about it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from cluster_model.errors import InputError

ProposalState = Literal[
    "open",
    "approved",
    "executing",
    "executed",
    "failed",
    "stale",
    "interrupted",
    "rejected",
    "expired",
    "superseded",
    "empty",
]
# States that can still change.
PENDING: frozenset[str] = frozenset({"open", "approved"})


class ApprovalError(InputError):
    """A decision about a proposal that cannot be taken; says why.

    Attributes
    ----------
    missing : bool
        Whether there is no such proposal.
    """

    def __init__(self, sentence: str, *, missing: bool = False) -> None:
        super().__init__(sentence)
        self.missing = missing


class Approval(BaseModel):
    """One person's decision: who, when (seconds since 1970) and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: str
    at: float
    why: str = ""


class KeptProposal(BaseModel):
    """A plan that somebody asked for, or that the controller made, at some time.

    Parameters
    ----------
    id
        A number of its own, below 2³¹; later proposals have higher ones. The same plan that is
        proposed again is another proposal, with decisions of its own.
    digest
        Hash of the plan's content: what is approved is what is executed.
    state
        ``open``: waits for approval. ``approved``: starts as soon as it may. ``executing``,
        ``executed``, ``failed``: on its way, done, or ended otherwise (see `outcome`).
        ``stale``: the cluster had changed, nothing was done. ``interrupted``: the process ended
        meanwhile; the journal recovers the execution. ``rejected``, ``expired``: by a person, by
        time. ``superseded``: a newer proposal for the same cause replaced it. ``empty``: the plan
        has no actions, so that there is nothing to approve.
    made, expires
        Seconds since 1970.
    by
        ``controller``, or the user who asked for it.
    cause
        The finding that it is for, or ``request``.
    reason
        One sentence.
    plan
        The plan in figures.
    approvals
        Who approved it.
    needed
        How many approvals it needs.
    decided
        Who rejected it.
    outcome
        How its execution ended, or why it did not start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    digest: str
    state: ProposalState = "open"
    made: float
    expires: float
    by: str
    cause: str
    reason: str
    plan: dict[str, Any]
    approvals: tuple[Approval, ...] = ()
    needed: int = 1
    decided: Approval | None = None
    outcome: dict[str, Any] | None = None
