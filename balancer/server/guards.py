"""What every request passes before it is answered: host, origin, size, rate, credentials."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balancer.server.access import Access, AccessError
from balancer.server.refusals import refused
from balancer.server.settings import Rates, ServerSettings
from metrics_reporter.documents import shown

_SAFE = ("GET", "HEAD", "OPTIONS")
# Answered without credentials: an orchestrator asks for them.
_OPEN = ("/health/live", "/health/ready")
# Where a request may wait for something that happens.
_EVENTS, _JOBS = "/api/v1/events", "/api/v1/jobs/"
# Headers that decide who is let in: two of them could be read in two ways.
_ONCE = ("host", "origin", "authorization", "content-length", "transfer-encoding")
# Passwords hashed at once: each takes some 50 ms of a processor.
_HASHING = 1
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
        b"frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
)


class Budgets:
    """Token buckets by client.

    Examples
    --------
    >>> clock = iter([0.0, 0.0, 0.0, 1.0])
    >>> budgets = Budgets(1.0, 2.0, lambda: next(clock))
    >>> [budgets.take("a") for _ in range(4)]
    [True, True, False, True]
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._most = rate, max(1.0, rate * burst)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, client: str, cost: float = 1.0) -> bool:
        """Take the cost of a request from a client's budget; False if it is used up.

        What costs more than a whole budget takes all of it.
        """
        cost = min(cost, self._most)
        now = self._clock()
        with self._lock:
            left, at = self._left.get(client, (self._most, now))
            left = min(self._most, left + (now - at) * self._rate)
            allowed = left >= cost
            self._left[client] = (left - cost if allowed else left, now)
            if len(self._left) > 10_000:
                full = self._most / self._rate
                self._left = {c: v for c, v in self._left.items() if now - v[1] < full}
        return allowed


class Turns:
    """Lets each client have so many requests answered at once; the others wait, without a thread.

    Parameters
    ----------
    most
        Requests of one client.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By client: the semaphore, and the requests that have it or wait for it.
        self._of: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait until it is this request's turn."""
        semaphore, requests = self._of.setdefault(client, (asyncio.Semaphore(self._most), set()))
        requests.add(request := object())
        try:
            async with semaphore:
                yield
        finally:
            requests.remove(request)
            if not requests:
                self._of.pop(client, None)


class Guards:
    """ASGI middleware; the actor of an accepted request is ``request.state.actor``.

    Parameters
    ----------
    app
        What answers.
    settings, access
        Who may do what.
    address
        Host that the server listens on.
    """

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, access: Access, address: str
    ) -> None:
        self._app = app
        self._settings = settings
        self._access = access
        self._hosts = {h.lower() for h in settings.hosts}
        self._local = is_loopback(address)
        # A page of another site can only misuse what is open to requests without credentials.
        self._any_host = not (
            self._local or settings.hosts or settings.without_credentials is not None
        )
        proxy = settings.proxy
        named = () if proxy is None else (proxy.user_header, proxy.role_header or "")
        self._once = (*_ONCE, *(name.lower() for name in named if name))
        self._hashing: anyio.CapacityLimiter | None = None
        rates: Rates = settings.rates
        self._requests = Budgets(rates.requests, rates.burst)
        self._changes = Budgets(rates.changes, rates.burst)
        self._turns = Turns(rates.at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        sent = _with_headers(send)
        refusal = self._misdirected(request)
        if refusal is None and scope["path"] not in _OPEN:
            refusal = await self._admit(request)
        if refusal is not None:
            await refusal(scope, receive, sent)
            return
        if _waits_without_a_thread(request):
            await self._app(scope, self._limited(receive), sent)
            return
        async with self._turns.turn(request.state.actor.client):
            await self._app(scope, self._limited(receive), sent)

    def _misdirected(self, request: Request) -> Response | None:
        """The refusal of a request that another web site may have sent."""
        for twice in self._once:
            if len(request.headers.getlist(twice)) > 1:
                return refused(request, 400, f"header {twice}: found twice, once expected")
        host = request.headers.get("host", "")
        name = _host_name(host)
        if name is None:
            return refused(
                request, 400, f"header host: {shown(host[:200])} found, a host name expected"
            )
        # Another site's page can be sent here under that site's name, never under an address.
        by_address = not self._local and _is_address(name)
        if not (self._any_host or by_address or is_loopback(name) or name in self._hosts):
            return refused(
                request,
                421,
                f"host {shown(name[:200])}: not one of this server's names (setting hosts)",
            )
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self._settings.max_body:
            return refused(
                request,
                413,
                f"request of {length[:20]} bytes, at most {self._settings.max_body:,.0f}",
            )
        if request.method in _SAFE:
            return None
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site")
        foreign = origin is not None and origin.partition("://")[2].lower() != host.lower()
        if foreign or (site is not None and site not in ("same-origin", "none")):
            return refused(
                request, 403, "sent by another web site: only this server's page may change"
            )
        return None

    async def _admit(self, request: Request) -> Response | None:
        address = request.client.host if request.client is not None else ""
        try:
            headers = {k.lower(): v for k, v in request.headers.items()}
            certificate = request.scope.get("counterpoise.certificate")
            actor = self._access.known(headers, address, certificate)
            if actor is None:
                if self._hashing is None:
                    self._hashing = anyio.CapacityLimiter(_HASHING)
                actor = await anyio.to_thread.run_sync(
                    self._access.by_password, headers, address, limiter=self._hashing
                )
        except AccessError as error:
            return refused(
                request, 401, f"{error}", {"www-authenticate": 'Basic realm="counterpoise", Bearer'}
            )
        actor = replace(actor, address=address)
        client = actor.client
        changes = request.method not in _SAFE
        allowed = self._requests.take(client, _cost(request))
        if not allowed or (changes and not self._changes.take(client)):
            return refused(request, 429, "too many requests; wait a second", {"retry-after": "1"})
        request.state.actor = actor
        return None

    def _limited(self, receive: Receive) -> Receive:
        """Receive a body of the allowed size, in the allowed time, even without a stated length."""
        seen, complete = 0, False
        most = int(self._settings.max_body)
        deadline = time.monotonic() + self._settings.idle_timeout

        async def limited() -> Message:
            nonlocal seen, complete
            left = math.inf if complete else deadline - time.monotonic()
            with anyio.move_on_after(left):
                message = await receive()
                if message["type"] == "http.request":
                    seen += len(message.get("body", b""))
                    complete = not message.get("more_body", False)
                    if seen > most:
                        raise HTTPException(413, f"a body of at most {most:,} bytes expected")
                return message
            raise HTTPException(
                408, f"the body did not arrive within {self._settings.idle_timeout:g} s"
            )

        return limited


def _waits_without_a_thread(request: Request) -> bool:
    """Whether a request is open to anybody, or may wait long for something that happens."""
    path = request.scope["path"]
    waits = "wait" in request.query_params and path.startswith(_JOBS)
    return path in (*_OPEN, _EVENTS) or request.method not in _SAFE or waits


def _cost(request: Request) -> float:
    """What a request takes of its client's budget, by the entries of the list that it asks for.

    Numbers and names are read as leniently as by what answers: +2000, 2_000 and 2000.0, ENTRIES.
    """
    cost = 1.0
    for name, asked in request.query_params.multi_items():
        if name.lower() in ("limit", "entries"):
            with suppress(ValueError, OverflowError):
                cost = max(cost, 1.0 + int(float(asked)) // 1000)
    return cost


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine only.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str | None:
    """The name in a Host header, in lower case; None if there is more than a name and a port."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 - raises ValueError for a port that is none
        name = parts.hostname
    except ValueError:
        return None
    return name if parts.netloc == host and name and "@" not in host else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            more = [(n, v) for n, v in _HEADERS if n not in present]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent
