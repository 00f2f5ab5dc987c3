"""Proposals: ask for one, look at it, compare, approve, reject; what if, and why not."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from balancer.approval import KeptProposal
from balancer.approval.proposal import ProposalState
from balancer.planning.document import Action
from balancer.planning.traffic import Traffic
from balancer.server.api.context import Operator, TheService, Viewer
from balancer.server.jobs import Job
from balancer.server.models import (
    Decide,
    JobState,
    PlanRequest,
    Reason,
    WhatIfRequest,
    WhyNotRequest,
)

router = APIRouter(tags=["proposals"])
# Between looks at a job that a client waits for.
_LOOK_SECONDS = 0.1
Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for the result.")]


@router.get("/proposals")
def proposals(
    service: TheService,
    actor: Viewer,
    state: ProposalState | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
) -> list[KeptProposal]:
    """Proposals that are kept, the newest first."""
    kept = reversed(service.proposals())
    return [p for p in kept if state is None or p.state == state][:limit]


@router.post("/proposals", status_code=202)
async def propose(
    service: TheService, actor: Operator, request: PlanRequest, wait: Wait = 0
) -> JobState:
    """Ask for a proposal; the job that makes it names it once it is done."""
    return await _waited(await run_in_threadpool(service.propose, request, actor), wait)


@router.get("/proposals/compare")
def compare(service: TheService, actor: Viewer, a: str, b: str) -> dict[str, Any]:
    """Two proposals side by side: figures, goals, and how many actions they share."""
    plans = [service.document(identity) for identity in (a, b)]
    moves = [
        {(x.kind, x.topic, x.partition, x.source, x.destination) for x in p.actions} for p in plans
    ]
    return {
        "a": _figures(plans[0]),
        "b": _figures(plans[1]),
        "actions_only_in_a": len(moves[0] - moves[1]),
        "actions_only_in_b": len(moves[1] - moves[0]),
        "actions_in_both": len(moves[0] & moves[1]),
    }


@router.get("/proposals/{identity}")
def proposal(service: TheService, actor: Viewer, identity: str) -> KeptProposal:
    """A proposal."""
    return service.controller.approvals.store.get(identity)


@router.get("/proposals/{identity}/plan")
def plan(service: TheService, actor: Viewer, identity: str) -> Response:
    """The plan of a proposal, as a plan file."""
    text = service.controller.approvals.store.plan_text(identity)
    return Response(text, media_type="application/json")


@router.get("/proposals/{identity}/summary")
def summary(service: TheService, actor: Viewer, identity: str) -> dict[str, Any]:
    """The plan without its actions: goals, bounds, relief, what stays unmet, remedies."""
    found = service.document(identity)
    hidden = {"actions", "replicas", "goals"}
    return found.model_dump(mode="json", exclude=hidden)


@router.get("/proposals/{identity}/actions")
def actions(
    service: TheService,
    actor: Viewer,
    identity: str,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    broker: str | None = None,
    topic: str | None = None,
) -> dict[str, Any]:
    """Actions of the plan, in order."""
    total, found = service.actions(identity, offset, limit, broker, topic)
    return {"total": total, "offset": offset, "actions": [_action(a) for a in found]}


@router.get("/proposals/{identity}/traffic")
def traffic(
    service: TheService,
    actor: Viewer,
    identity: str,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
) -> Traffic:
    """What carrying out the plan copies between brokers; the busiest brokers first."""
    found = service.traffic(identity)
    return found.model_copy(update={"brokers": found.brokers[:limit]})


@router.get("/proposals/{identity}/changes")
def changes(service: TheService, actor: Viewer, identity: str) -> list[str]:
    """What has changed in the cluster since the proposal was made; empty if it still applies."""
    return service.changes(identity)


@router.post("/proposals/{identity}/approve")
def approve(service: TheService, actor: Operator, identity: str, decision: Decide) -> KeptProposal:
    """Approve the plan with this digest: it is executed exactly as it is, or not at all."""
    return service.approve(identity, decision.digest, decision.why, actor)


@router.post("/proposals/{identity}/reject")
def reject(service: TheService, actor: Operator, identity: str, why: Reason) -> KeptProposal:
    """Reject a proposal that has not started."""
    return service.reject(identity, why.why, actor)


@router.post("/what-if", status_code=202)
async def what_if(
    service: TheService, actor: Viewer, request: WhatIfRequest, wait: Wait = 0
) -> JobState:
    """Plan for a cluster that differs from this one; nothing is executed."""
    return await _waited(await run_in_threadpool(service.what_if, request, actor), wait)


@router.post("/why-not", status_code=202)
async def why_not(
    service: TheService, actor: Viewer, request: WhyNotRequest, wait: Wait = 0
) -> JobState:
    """Why a partition is not on a broker, by the scores of each goal."""
    return await _waited(await run_in_threadpool(service.why_not, request, actor), wait)


@router.get("/jobs/{identity}")
async def job(service: TheService, actor: Viewer, identity: str, wait: Wait = 0) -> JobState:
    """A plan being made for a client."""
    return await _waited(service.jobs.get(identity), wait)


@router.delete("/jobs/{identity}")
def cancel(service: TheService, actor: Viewer, identity: str) -> JobState:
    """End the making of a plan; that of somebody else takes the role operator."""
    return _job(service.cancel(identity, actor))


async def _waited(found: Job, seconds: float) -> JobState:
    if seconds:
        # Without a thread: clients that wait must not keep others from being answered.
        deadline = time.monotonic() + seconds
        while not found.over.is_set() and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
    return _job(found)


def _job(found: Job) -> JobState:
    result = found.result
    return JobState(
        **found.record(),
        proposal=result.id if isinstance(result, KeptProposal) else None,
        result={"answers": result}
        if isinstance(result, list)
        else result
        if isinstance(result, dict)
        else None,
    )


def _action(action: Action) -> dict[str, Any]:
    return action.model_dump(mode="json")


def _figures(plan: Any) -> dict[str, Any]:
    return {
        "summary": plan.summary.model_dump(mode="json"),
        "columns": {k: v.model_dump(mode="json") for k, v in plan.columns.items()},
        "unmet": [u.goal for u in plan.unmet],
    }
