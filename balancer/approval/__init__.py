"""Proposals that wait for people: kept by id, approved or rejected, executed as approved."""

from balancer.approval.approvals import Approvals, ApprovedPlan
from balancer.approval.changes import changes_since
from balancer.approval.policy import ApprovalPolicy, MaintenanceWindow
from balancer.approval.proposal import Approval, ApprovalError, KeptProposal, ProposalState
from balancer.approval.store import ProposalStore

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
