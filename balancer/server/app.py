"""The web application: both APIs, live events, metrics, health and the page."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from balancer.approval import ApprovalError
from balancer.server.access import Access
from balancer.server.api import cluster, executions, proposals
from balancer.server.api.context import TheService, Viewer
from balancer.server.cruise_control import router as cruise_control
from balancer.server.cruise_control.dry_runs import DryRuns
from balancer.server.cruise_control.tasks import UserTasks
from balancer.server.errors import RequestError
from balancer.server.events import Events
from balancer.server.guards import Guards
from balancer.server.metrics import Measured, ServerMetrics
from balancer.server.models import Refusal
from balancer.server.page import files
from balancer.server.refusals import refused
from balancer.server.service import Service
from balancer.server.settings import ServerSettings
from cluster_model.errors import InputError
from metrics_reporter.documents import shown

log = logging.getLogger("counterpoise.server")
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
# What any request may be answered with instead; docs/server.md explains them.
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": what}
    for status, what in (
        (400, "It can be read in two ways, or names something that does not exist."),
        (401, "No credentials, or wrong or expired ones."),
        (403, "The role does not suffice, or the page of another site has sent it."),
        (404, "What the path names does not exist."),
        (408, "The body did not arrive in time."),
        (409, "It cannot be done in the present state."),
        (413, "The body is too large."),
        (421, "The host is not one of this server's names."),
        (422, "A parameter or the body is not as described."),
        (429, "Too many requests, or too many plans or event streams of one client."),
        (
            503,
            "Too many plans or listeners, a cluster not read yet, or loads that are not known.",
        ),
    )
}


def create_app(
    service: Service,
    settings: ServerSettings,
    *,
    access: Access,
    address: str,
    metrics: ServerMetrics,
    events: Events,
    failing: Callable[[], list[str]],
) -> FastAPI:
    """Build the application.

    Parameters
    ----------
    service
        The running controller.
    settings, access
        Who may do what.
    address
        Host that it listens on.
    metrics
        What ``/metrics`` shows, and where requests are counted.
    events
        Live events.
    failing
        Names of what fails in the background now.
    """
    app = _application()
    app.state.service, app.state.events, app.state.metrics = service, events, metrics.text
    app.state.failing = failing
    app.state.user_tasks, app.state.dry_runs = UserTasks(), DryRuns()
    app.add_middleware(Guards, settings=settings, access=access, address=address)
    app.add_middleware(Measured, requests=metrics.requests)
    return app


def description() -> dict[str, Any]:
    """The API as OpenAPI describes it."""
    return _application().openapi()


def _application() -> FastAPI:
    app = FastAPI(
        title="Counterpoise",
        version="1",
        description="Watches a cluster and keeps it balanced: loads, goals, proposals, executions.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    v1 = APIRouter(prefix="/api/v1", responses=_REFUSALS)
    for part in (cluster, proposals, executions):
        v1.include_router(part.router)

    @v1.get("/events", tags=["events"], response_class=StreamingResponse)
    async def follow(
        request: Request,
        service: TheService,
        actor: Viewer,
        after: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> StreamingResponse:
        """Decisions, proposals and progress as they happen (server-sent events)."""
        events: Events = request.app.state.events
        stream = await events.follow(service.state, after, actor.client)
        # A proxy that collects an answer before it passes it on would hold events back.
        unheld = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=unheld)

    app.include_router(v1)
    app.include_router(cruise_control.router)
    app.include_router(files.router)

    # A thread of its own: where reads have all others, an alert would call the controller dead.
    scrapes = CapacityLimiter(1)

    @app.get("/metrics", include_in_schema=False)
    async def prometheus(request: Request, actor: Viewer) -> PlainTextResponse:
        text: str = await to_thread.run_sync(request.app.state.metrics, limiter=scrapes)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    @app.get("/state", include_in_schema=False)
    def state(service: TheService, actor: Viewer) -> dict[str, Any]:
        return service.controller.state()

    @app.get("/health/live", include_in_schema=False)
    async def live() -> dict[str, str]:
        # Without a thread, as /health/ready: those may all be busy, and the server lives.
        return {"status": "live"}

    @app.get("/health/ready", include_in_schema=False)
    async def ready(request: Request, service: TheService) -> JSONResponse:
        known = service.controller.view is not None
        failing: list[str] = request.app.state.failing()
        return JSONResponse(
            {
                "status": "ready" if known else "starting",
                **({"failing": failing} if failing else {}),
            },
            200 if known else 503,
        )

    _add_error_answers(app)
    return app


def _methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods of a path; the framework's own answer names those of its first route only."""
    return [
        method
        for method in _METHODS
        if any(r.matches({**scope, "method": method})[0] is Match.FULL for r in app.routes)
    ]


def _add_error_answers(app: FastAPI) -> None:
    """Answer every error with one sentence."""

    @app.exception_handler(RequestError)
    def request_error(request: Request, error: RequestError) -> Response:
        return refused(request, error.status, str(error))

    @app.exception_handler(ApprovalError)
    def approval_error(request: Request, error: ApprovalError) -> Response:
        return refused(request, 404 if error.missing else 409, str(error))

    @app.exception_handler(InputError)
    def input_error(request: Request, error: InputError) -> Response:
        return refused(request, 400, str(error))

    @app.exception_handler(RequestValidationError)
    def validation_error(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])[:200]
        found = "" if first["type"] == "missing" else f"{shown(first.get('input'))} found, "
        return refused(request, 422, f"{place}: {found}{first['msg']}")

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> Response:
        sentence = f"{request.method} {shown(request.scope['path'])}: {error.detail}"
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_methods(app, request.scope))
        return refused(request, error.status_code, sentence, headers)

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        number = uuid.uuid4().hex[:8]
        path = shown(request.scope["path"])
        log.exception("request %s failed: %s %s", number, request.method, path)
        return refused(request, 500, f"an internal error; the log has it under {number}")
