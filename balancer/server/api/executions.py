"""The execution in progress: watch, pause, resume, change its speed, stop; hold the controller."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from balancer.server.api.context import Admin, Operator, TheService, Viewer
from balancer.server.models import Reason, SpeedLimits

router = APIRouter(tags=["execution"])


@router.get("/execution")
def execution(service: TheService, actor: Viewer) -> dict[str, Any] | None:
    """The execution in progress; null without one."""
    return service.execution()


@router.post("/execution/pause")
def pause(service: TheService, actor: Operator, why: Reason) -> dict[str, Any] | None:
    """Start no further task; running ones end."""
    service.pause(why.why, actor)
    return service.execution()


@router.post("/execution/resume")
def resume(service: TheService, actor: Operator, why: Reason) -> dict[str, Any] | None:
    """Go on."""
    service.resume(why.why, actor)
    return service.execution()


@router.post("/execution/stop")
def stop(service: TheService, actor: Operator, why: Reason) -> dict[str, Any] | None:
    """Stop: running moves are cancelled, the rest is not started."""
    service.stop(why.why, actor)
    return service.execution()


@router.patch("/execution/limits")
def limits(service: TheService, actor: Operator, changes: SpeedLimits) -> dict[str, Any] | None:
    """Change speed limits until the execution ends."""
    service.adjust(changes, actor)
    return service.execution()


@router.post("/controller/hold")
def hold(service: TheService, actor: Operator, why: Reason) -> dict[str, Any]:
    """Start nothing more until it is released; an execution in progress goes on."""
    service.hold(True, why.why, actor)
    return {"held": True}


@router.post("/controller/release")
def release(service: TheService, actor: Operator, why: Reason) -> dict[str, Any]:
    """Let the controller act again; if somebody else holds it, this takes the role admin."""
    service.hold(False, why.why, actor)
    return {"held": False}


@router.get("/audit", tags=["audit"])
def audit(
    service: TheService, actor: Admin, limit: Annotated[int, Query(ge=1, le=10_000)] = 100
) -> list[dict[str, Any]]:
    """Who changed what through the server, when and why; the newest first."""
    return service.audit(limit)


@router.post("/controller/look")
def look(service: TheService, actor: Operator) -> dict[str, Any]:
    """Start the next round at once."""
    service.look_now(actor)
    return {"asked": True}
