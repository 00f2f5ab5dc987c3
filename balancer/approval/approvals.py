"""Decides which proposals wait for people, records their decisions, and names what may start."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from balancer.approval.policy import ApprovalPolicy
from balancer.approval.proposal import PENDING, Approval, ApprovalError, KeptProposal
from balancer.approval.store import ProposalStore
from balancer.planning.document import PlanDocument
from balancer.planning.plan import Plan
from balancer.problem.operations import OPERATIONS

log = logging.getLogger("counterpoise.approval")

_DIGEST = re.compile(r'^ "digest": "([0-9a-f]{64})",$', re.M)
REQUEST = "request"
CONTROLLER = "controller"


@dataclass(frozen=True)
class ApprovedPlan:
    """A proposal that may start now, with the plan that was approved."""

    proposal: KeptProposal
    plan: PlanDocument


class Approvals:
    """The desk at which proposals wait.

    Parameters
    ----------
    store
        Keeps the proposals.
    policy
        The current policy.
    clock
        Seconds since 1970.
    changed
        Called with a proposal after each change, from the thread that changed it.

    Examples
    --------
    >>> from balancer import Balancer
    >>> from cluster_model import synthetic_snapshot
    >>> desk = Approvals(ProposalStore(), lambda: ApprovalPolicy(mode="manual"))
    >>> plan = Balancer("default").propose(synthetic_snapshot(brokers=6, partitions=60, racks=3))
    >>> kept = desk.keep(plan, by="alice", cause="request", reason="a test", figures={})
    >>> desk.approve(kept.id, kept.digest, by="bob").state
    'approved'
    >>> desk.next_approved().plan.digest == plan.digest
    True
    """

    def __init__(
        self,
        store: ProposalStore,
        policy: Callable[[], ApprovalPolicy],
        clock: Callable[[], float] = time.time,
        changed: Callable[[KeptProposal], None] | None = None,
    ) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock
        self.changed = changed or (lambda proposal: None)
        self._lock = threading.RLock()

    @property
    def store(self) -> ProposalStore:
        """Where proposals are kept."""
        return self._store

    def waits(self, plan: Plan) -> str | None:
        """Why a controller's plan may not start by itself now; None if it may."""
        policy, summary = self._policy(), plan.summary
        heals = OPERATIONS.get(plan.operation["kind"]).heals
        why = policy.waits(
            moves=summary.limited_moves, cost=summary.cost, unit=summary.cost_unit, heals=heals
        )
        if why is None and not (heals and policy.heal) and not self.in_window():
            why = "no maintenance window is open (approval.windows)"
        return why

    def in_window(self) -> bool:
        """Whether executions may start at this time of the week."""
        return self._policy().may_start(datetime.fromtimestamp(self._clock(), UTC))

    def keep(
        self, plan: Plan, *, by: str, cause: str, reason: str, figures: dict[str, Any]
    ) -> KeptProposal:
        """Keep a proposal; an open one of the controller for the same cause is superseded.

        If the same person proposes the same plan for the same cause while it waits or executes,
        that proposal is returned. For anybody else it is a separate one, as nobody reviews what
        they asked for.
        """
        policy, now = self._policy(), self._clock()
        text = plan.to_json()
        # The text states it; reading a plan of a million actions again would take long.
        stated = _DIGEST.search(text)
        assert stated is not None
        digest = stated[1]
        with self._lock:
            own = [p for p in self._store.all() if (p.by, p.cause) == (by, cause)]
            for other in own:
                if other.digest == digest and other.state in (*PENDING, "executing"):
                    return other
            for other in own if by == CONTROLLER else ():
                # One that somebody has approved already waits for the other reviewer.
                if other.state == "open" and not other.approvals:
                    self._change(other.id, lambda p: {"state": "superseded"})
            proposal = KeptProposal(
                id=self._store.new_id(now),
                digest=digest,
                state="open" if len(plan) else "empty",
                made=now,
                expires=now + policy.expire_after,
                by=by,
                cause=cause,
                reason=reason,
                plan=figures,
                needed=policy.reviewers,
            )
            self._store.add(proposal, text, policy.keep)
        self.changed(proposal)
        return proposal

    def approve(self, identity: str, digest: str, *, by: str, why: str = "") -> KeptProposal:
        """Approve a proposal: with enough approvals it starts as soon as it may.

        Parameters
        ----------
        identity
            Its id.
        digest
            The digest of the plan that was looked at: the whole of it, so that nobody approves
            what they did not see.
        by, why
            Who approves, and the reason.

        Raises
        ------
        ApprovalError
            If there is no such proposal, it is of another digest, can no longer be approved, or
            this person may not approve it.
        """

        def change(kept: KeptProposal) -> dict[str, Any]:
            if digest != kept.digest:
                raise ApprovalError(
                    f"proposal {kept.id}: digest {kept.digest[:12]} expected, {digest[:12]} found: "
                    "what was looked at is not this plan"
                )
            if kept.state != "open":
                raise ApprovalError(f"proposal {kept.id}: is {kept.state}, open expected")
            # Of the policy when it was made and the one of now, the stricter counts.
            needed = max(kept.needed, self._policy().reviewers)
            if needed > 1 and by == kept.by:
                raise ApprovalError(
                    f"proposal {kept.id}: {by} asked for it; with approval.reviewers = "
                    f"{needed} others have to approve it"
                )
            if any(a.by == by for a in kept.approvals):
                raise ApprovalError(
                    f"proposal {kept.id}: {by} has approved it already; it needs "
                    f"{needed - len(kept.approvals)} more, of another person"
                )
            given = (*kept.approvals, Approval(by=by, at=self._clock(), why=why))
            return {
                "approvals": given,
                "needed": needed,
                "state": "approved" if len(given) >= needed else "open",
            }

        self.expire()
        return self._change(identity, change)

    def reject(self, identity: str, *, by: str, why: str = "") -> KeptProposal:
        """Reject a proposal that has not started.

        Raises
        ------
        ApprovalError
            If there is no such proposal, or it has started or ended.
        """

        def change(kept: KeptProposal) -> dict[str, Any]:
            if kept.state not in PENDING:
                raise ApprovalError(
                    f"proposal {kept.id}: is {kept.state}, open or approved expected"
                )
            return {"state": "rejected", "decided": Approval(by=by, at=self._clock(), why=why)}

        self.expire()
        return self._change(identity, change)

    def next_approved(
        self, may_start: Callable[[PlanDocument], bool] = lambda plan: True
    ) -> ApprovedPlan | None:
        """The oldest approved proposal, if a maintenance window is open; from now on it executes.

        One whose plan cannot be read or was changed fails, and the next one follows.

        Parameters
        ----------
        may_start
            Whether a plan may start now; one that may not waits on.
        """
        self.expire()
        if not self.in_window():
            return None
        for kept in self._store.all():
            if kept.state != "approved":
                continue
            try:
                plan = self._store.plan(kept.id)
                if not may_start(plan):
                    continue
                # Reading a large plan takes long.
                if kept.expires <= self._clock():
                    self._change(kept.id, _from("approved", {"state": "expired"}))
                    continue
                if not self.in_window():
                    return None
                started = self._change(kept.id, _from("approved", {"state": "executing"}))
            except ApprovalError as error:
                self._change_if(kept.id, "approved", {"state": "failed", "outcome": said(error)})
                continue
            return ApprovedPlan(started, plan)
        return None

    def ended(self, identity: str, state: str, outcome: dict[str, Any]) -> None:
        """Record how the execution of a proposal ended, or why it did not start."""
        with self._lock:
            if self._store.get(identity).state != "executing":
                return
            ended = self._store.end(identity, {"state": state, "outcome": outcome})
        self.changed(ended)

    def expire(self) -> None:
        """End proposals whose time is over."""
        now = self._clock()
        for kept in self._store.all():
            if kept.state in PENDING and kept.expires <= now:
                self._change_if(kept.id, kept.state, {"state": "expired"})

    def _change_if(self, identity: str, state: str, fields: dict[str, Any]) -> None:
        try:
            self._change(identity, _from(state, fields))
        except ApprovalError as error:
            log.warning("%s", error)

    def _change(
        self, identity: str, change: Callable[[KeptProposal], dict[str, Any]]
    ) -> KeptProposal:
        with self._lock:
            changed = self._store.change(identity, change)
        self.changed(changed)
        return changed


def said(error: Exception) -> dict[str, Any]:
    """An error as the outcome of a proposal."""
    return {"state": "failed", "problems": [str(error)]}


def _from(state: str, fields: dict[str, Any]) -> Callable[[KeptProposal], dict[str, Any]]:
    def change(kept: KeptProposal) -> dict[str, Any]:
        if kept.state != state:
            raise ApprovalError(f"proposal {kept.id}: is {kept.state}, {state} expected")
        return fields

    return change
