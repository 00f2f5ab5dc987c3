"""What every request passes before it is answered: host, origin, size, rate, credentials."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balancer.server.access import ANONYMOUS, Access, AccessError, Actor
from balancer.server.settings import Rates, ServerSettings

_SAFE = ("GET", "HEAD", "OPTIONS")
# Answered without credentials: an orchestrator asks for them.
_OPEN = ("/health/live", "/health/ready")
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

    def take(self, client: str) -> bool:
        """Take one from a client's budget; False if it is used up."""
        now = self._clock()
        with self._lock:
            left, at = self._left.get(client, (self._most, now))
            left = min(self._most, left + (now - at) * self._rate)
            allowed = left >= 1
            self._left[client] = (left - allowed, now)
            if len(self._left) > 10_000:
                full = self._most / self._rate
                self._left = {c: v for c, v in self._left.items() if now - v[1] < full}
        return allowed


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
        self._any_host = not is_loopback(address) and not settings.hosts
        rates: Rates = settings.rates
        self._requests = Budgets(rates.requests, rates.burst)
        self._changes = Budgets(rates.changes, rates.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        sent = _with_headers(send)
        refusal = self._misdirected(request)
        if refusal is None and request.url.path not in _OPEN:
            refusal = await self._admit(request)
        if refusal is not None:
            await refusal(scope, receive, sent)
            return
        await self._app(scope, _limited(receive, int(self._settings.max_body)), sent)

    def _misdirected(self, request: Request) -> JSONResponse | None:
        """The refusal of a request that another web site may have sent."""
        host = request.headers.get("host", "")
        name = (urlsplit(f"//{host}").hostname or "").lower()
        if not (self._any_host or is_loopback(name) or name in self._hosts):
            return _refusal(
                421, f"host {name[:200]!r}: not one of this server's names (setting hosts)"
            )
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self._settings.max_body:
            return _refusal(
                413, f"request of {length[:20]} bytes, at most {self._settings.max_body:,.0f}"
            )
        if request.method in _SAFE:
            return None
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
        if foreign or (site is not None and site not in ("same-origin", "none")):
            return _refusal(403, "sent by another web site: only this server's page may change")
        return None

    async def _admit(self, request: Request) -> JSONResponse | None:
        address = request.client.host if request.client is not None else ""
        try:
            headers = {k.lower(): v for k, v in request.headers.items()}
            certificate = request.scope.get("counterpoise.certificate")
            # A password's hash takes some 50 ms of a processor.
            actor: Actor = await run_in_threadpool(
                self._access.actor, headers, address, certificate
            )
        except AccessError as error:
            return _refusal(
                401, f"{error}", {"www-authenticate": 'Basic realm="counterpoise", Bearer'}
            )
        client = address if actor.name == ANONYMOUS else actor.name
        changes = request.method not in _SAFE
        if not self._requests.take(client) or (changes and not self._changes.take(client)):
            return _refusal(429, "too many requests; wait a second", {"retry-after": "1"})
        request.state.actor = actor
        return None


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


def _refusal(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)


def _limited(receive: Receive, most: int) -> Receive:
    """Receive at most so many bytes, also of a body without a stated length."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > most:
                return {"type": "http.disconnect"}
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            more = [(n, v) for n, v in _HEADERS if n not in present]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent
