"""What the endpoints of both APIs share: the service, who asks, and what their role allows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from balancer.server.access import Actor
from balancer.server.errors import RequestError
from balancer.server.service import Service
from balancer.server.settings import Role


# Asynchronous: a plain function would take a thread, and health is asked for while all are busy.
async def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def _role(role: Role) -> Callable[[Request], Awaitable[Actor]]:
    async def checked(request: Request) -> Actor:
        actor: Actor = request.state.actor
        if not actor.may(role):
            raise RequestError(f"{actor.name} is {actor.role}; {role} needed", 403)
        return actor

    return checked


TheService = Annotated[Service, Depends(_service)]
Viewer = Annotated[Actor, Depends(_role("viewer"))]
Operator = Annotated[Actor, Depends(_role("operator"))]
Admin = Annotated[Actor, Depends(_role("admin"))]
