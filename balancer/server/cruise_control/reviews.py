"""The review board: proposals that wait for people, or did."""

from __future__ import annotations

from collections.abc import Iterable

from balancer.approval import KeptProposal
from balancer.server.access import Actor
from balancer.server.cruise_control.answers import Answer, table
from balancer.server.errors import RequestError
from balancer.server.service import Service
from metrics_reporter.documents import shown

# Names of endpoints that ask for an operation.
ENDPOINTS = {
    "rebalance": "rebalance",
    "add_brokers": "add_broker",
    "remove_brokers": "remove_broker",
    "demote_brokers": "demote_broker",
    "fix_offline_replicas": "fix_offline_replicas",
    "change_replication_factor": "topic_configuration",
    "right_size": "rightsize",
}
_STATUS = {
    "open": "PENDING_REVIEW",
    "approved": "APPROVED",
    "executing": "SUBMITTED",
    "executed": "SUBMITTED",
    "failed": "SUBMITTED",
    "interrupted": "SUBMITTED",
}


def review_id(proposal: KeptProposal) -> int:
    """The id of a proposal, which clients of Cruise Control read as a number of 32 bits."""
    return int(proposal.id)


def board(service: Service, only: Iterable[str]) -> Answer:
    """The proposals that are kept, the newest first; all, or those with some ids."""
    chosen = _chosen(service, only)
    records = [
        {
            "Id": review_id(p),
            "SubmitterAddress": p.by,
            "SubmissionTimeMs": round(p.made * 1000),
            "Status": _STATUS.get(p.state, "DISCARDED"),
            "EndpointWithParams": _endpoint(p),
            "Reason": p.reason,
        }
        for p in chosen
    ]
    heads = ["ID", "SUBMITTER", "SUBMISSION TIME (ms)", "STATUS", "ENDPOINT", "REASON"]
    text = table(heads, [list(r.values()) for r in records])
    return Answer({"RequestInfo": records}, text)


def decide(
    service: Service, approve: tuple[str, ...], discard: tuple[str, ...], why: str, by: Actor
) -> Answer:
    """Approve and discard proposals by the ids of the board; answers with these.

    Raises
    ------
    RequestError
        If there is no such proposal, or nothing is asked.
    """
    if not approve and not discard:
        raise RequestError("approve or discard: nothing found, ids of the review board expected")
    if both := sorted({*approve} & {*discard}):
        raise RequestError(f"review {shown(both[0])}: found in approve and in discard")
    rejected = _chosen(service, discard) if discard else []
    approved = _chosen(service, approve) if approve else []
    for kept in rejected:
        service.reject(kept.id, why, by)
    for kept in approved:
        service.approve(kept.id, kept.digest, why, by)
    return board(service, (*approve, *discard))


def _chosen(service: Service, only: Iterable[str]) -> list[KeptProposal]:
    ids = list(only)
    kept = {str(review_id(p)): p for p in reversed(service.controller.approvals.store.all())}
    unknown = [identity for identity in ids if identity not in kept]
    if unknown:
        raise RequestError(f"review {shown(unknown[0])}: not found on the review board")
    return [kept[identity] for identity in ids] if ids else list(kept.values())


def _endpoint(kept: KeptProposal) -> str:
    kind = str(kept.plan.get("operation", {}).get("kind", ""))
    return ENDPOINTS.get(kind, kind)
