"""Serves the application from a thread of its own until it is closed."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from balancer.approval import KeptProposal
from balancer.controller import Decision
from balancer.server.access import Access
from balancer.server.addresses import client_network, is_within
from balancer.server.app import create_app
from balancer.server.errors import ServerError
from balancer.server.events import Events
from balancer.server.guards import is_loopback
from balancer.server.metrics import ServerMetrics
from balancer.server.service import Service
from balancer.server.settings import ServerSettings
from metrics_reporter.addresses import host_and_port
from metrics_reporter.tls import Tls

log = logging.getLogger("counterpoise.server")
_START_SECONDS = 10.0
_PROGRESS_SECONDS = 1.0
# Connections beyond those that are served, which get an answer that says so.
_REFUSED = 100
_PROGRESS = "progress of executions"


class Server:
    """Serves a running controller over HTTP.

    Parameters
    ----------
    service
        What clients may ask.
    settings
        Who may do what.
    host, port
        Where to listen; port 0 takes a free one.
    metrics
        Makes the text of the controller's metrics.

    Attributes
    ----------
    url : str
        The actual address.

    Raises
    ------
    ServerError
        If the address cannot be listened on, or would be open to others without credentials.
    """

    def __init__(
        self,
        service: Service,
        settings: ServerSettings,
        host: str,
        port: int,
        metrics: Callable[[], str],
    ) -> None:
        local = is_loopback(host)
        if not local and not settings.authenticates and settings.without_credentials is None:
            raise ServerError(
                f"listening on {host} would let anyone on the network in: list users or tokens in "
                "the server settings, or state the role of requests without credentials "
                "(without_credentials: viewer)"
            )
        self.events = Events(settings.listeners, settings.listeners_per_client)
        # What fails in the background since the last time that it was tried.
        self._failing: list[str] = []
        self._metrics = ServerMetrics(service, metrics, lambda: self.events.followers)
        app = create_app(
            service,
            settings,
            access=Access(settings, local=local),
            address=host,
            metrics=self._metrics,
            events=self.events,
            failing=lambda: self._failing,
        )
        self._service = service
        self._socket = _listening(host, port, settings)
        tls: dict[str, Any] = {}
        if settings.tls is not None:
            tls = {"ssl_certfile": settings.tls.certificate, "ssl_keyfile": settings.tls.key}
            if settings.tls.client_ca is not None:
                tls |= {
                    "ssl_ca_certs": str(settings.tls.client_ca),
                    "ssl_cert_reqs": ssl.CERT_REQUIRED,
                }
        config = uvicorn.Config(
            app,
            http=_protocol(settings.idle_timeout),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=settings.connections,
            timeout_keep_alive=int(max(1, settings.idle_timeout)),
            timeout_graceful_shutdown=1,
            **tls,
        )
        try:
            if settings.tls is not None:
                _check_key(settings.tls)
            config.load()
        except (OSError, ValueError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or error
            raise ServerError(f"tls: the certificate or key cannot be used: {why}") from None
        self._server = uvicorn.Server(config)
        # Signals belong to the command.
        self._server.capture_signals = _nothing  # type: ignore[method-assign]
        address = host_and_port(*self._socket.getsockname()[:2])
        self.url = f"http{'s' if settings.tls else ''}://{address}"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="server", daemon=True)
        self._thread.start()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._ticker.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started and time.monotonic() < deadline:
            if not self._thread.is_alive():
                raise ServerError(f"the server at {self.url} ended at once; see the log")
            time.sleep(0.01)

    def decided(self, decision: Decision) -> None:
        """Tell clients about a decision."""
        self.events.publish("decision", decision.record())

    def proposal_changed(self, proposal: KeptProposal) -> None:
        """Tell clients about a proposal."""
        self.events.publish("proposal", proposal.model_dump(mode="json"))

    def close(self) -> None:
        """Stop serving."""
        self._closing.set()
        self.events.close()
        self._server.should_exit = True
        self._thread.join(3.0)
        self._service.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def _tick(self) -> None:
        """Send the progress of an execution while it runs."""
        before: Any = None
        while not self._closing.wait(_PROGRESS_SECONDS):
            if not self.events.followers:
                continue
            try:
                now = self._service.execution()
                if now != before:
                    self.events.publish("execution", now)
                    before = now
            except Exception:
                if not self._failing:
                    log.exception("the %s cannot be sent to clients; it is tried again", _PROGRESS)
                self._failing = [_PROGRESS]
                self._metrics.errors.labels(_PROGRESS).inc()
            else:
                self._failing = []


class _Listening(socket.socket):
    """Accepts a limited number of connections at once, and closes others at once.

    Each takes an open file of the process, which needs some for Kafka and the journal. One
    address must not take all of them, even by connections that send nothing.
    """

    def __init__(self, *kind: int, settings: ServerSettings) -> None:
        super().__init__(*kind)
        self._most = settings.connections + _REFUSED
        self._most_of_one = settings.connections_per_address
        self._proxies = () if settings.proxy is None else settings.proxy.addresses
        self._accepted: weakref.WeakKeyDictionary[socket.socket, str] = weakref.WeakKeyDictionary()
        # Whether it has been logged since there was no connection too many.
        self._said = False

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises
        ------
        ConnectionAbortedError
            If there were too many; asyncio then tries again.
        """
        connection, address = super().accept()
        client = client_network(address[0])
        held = [own for other, own in self._accepted.items() if other.fileno() >= 0]
        too_many = held.count(client) >= self._most_of_one and not is_within(
            address[0], self._proxies
        )
        if too_many or len(held) >= self._most:
            connection.close()
            if not self._said:
                whose = f"from {client} " if too_many else ""
                log.warning("connections %sare closed: there are too many", whose)
                self._said = True
            raise ConnectionAbortedError
        self._said = self._said and len(held) > self._most_of_one // 2
        self._accepted[connection] = client
        return connection, address


def _listening(host: str, port: int, settings: ServerSettings) -> socket.socket:
    named = f"cannot listen on {host_and_port(host, port)}"
    try:
        family, kind, number, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = _Listening(family, kind, number, settings=settings)
    except (OSError, UnicodeError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServerError(f"{named}: {why}") from None
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(where)
        found.listen(128)
    except OSError as error:
        found.close()
        raise ServerError(f"{named}: {error.strerror or error}") from None
    return found


def _protocol(seconds: float) -> type[H11Protocol]:
    """HTTP that closes connections whose request does not arrive in time."""

    class Protocol(H11Protocol):
        """One connection."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            certificate = transport.get_extra_info("peercert")
            answer = self.app

            async def app(scope: Any, receive: Any, send: Any) -> None:
                scope["counterpoise.certificate"] = _common_name(certificate)
                await answer(scope, receive, send)

            self.app = app
            self._waits_since = self.loop.time()
            self._stuck: asyncio.TimerHandle | None = None
            self._late = self.loop.call_later(seconds, self._close_if_late)

        def on_response_complete(self) -> None:
            self._waits_since = self.loop.time()
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            # Only an abort frees a connection whose client does not read.
            self._stuck = self._stuck or self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stuck is not None:
                self._stuck.cancel()
                self._stuck = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._late.cancel()
            if self._stuck is not None:
                self._stuck.cancel()
            super().connection_lost(exc)

        def _close_if_late(self) -> None:
            """Close a connection without a complete request head for too long."""
            left = seconds
            if self.cycle is None or self.cycle.response_complete:
                left = self._waits_since + seconds - self.loop.time()
            if left > 0:
                self._late = self.loop.call_later(left, self._close_if_late)
            elif not self.transport.is_closing():
                self.transport.close()

    return Protocol


def _check_key(tls: Tls) -> None:
    """Refuse a key with a password, for which OpenSSL would ask the terminal."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")


def _common_name(certificate: Any) -> str | None:
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
