"""Proposals that wait for people: kept by id, approved or rejected, executed as approved."""

from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
    from balancer.approval.approvals import Approvals, ApprovedPlan
    from balancer.approval.changes import changes_since
    from balancer.approval.policy import ApprovalPolicy, MaintenanceWindow
    from balancer.approval.proposal import Approval, ApprovalError, KeptProposal, ProposalState
    from balancer.approval.store import ProposalStore
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "balancer.approval.approvals": ("Approvals", "ApprovedPlan"),
            "balancer.approval.changes": ("changes_since",),
            "balancer.approval.policy": ("ApprovalPolicy", "MaintenanceWindow"),
            "balancer.approval.proposal": (
                "Approval",
                "ApprovalError",
                "KeptProposal",
                "ProposalState",
            ),
            "balancer.approval.store": ("ProposalStore",),
        },
    )

__all__ = [
    "Approval",
    "ApprovalError",
    "ApprovalPolicy",
    "Approvals",
    "ApprovedPlan",
    "KeptProposal",
    "MaintenanceWindow",
    "ProposalState",
    "ProposalStore",
    "changes_since",
]
