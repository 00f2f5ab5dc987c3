"""Serves ``/metrics`` for Prometheus and ``/state`` for people and programs over HTTP."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cluster_model.errors import InputError
from metrics_reporter.addresses import host_and_port
from metrics_reporter.documents import json_text, shown

_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:\[\]]*)):([0-9]{1,5})", re.ASCII)


class EndpointError(InputError):
    """An address that cannot be listened on."""


@dataclass(frozen=True)
class EndpointLimits:
    """Limits on what clients may occupy.

    Parameters
    ----------
    connections
        Served at once; another one replaces the oldest.
    seconds
        From the start of a connection until it is closed, even if data is still to be sent.
    """

    connections: int = 32
    seconds: float = 10.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Any, limits: EndpointLimits) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._limits = limits
        # Oldest first; connections that were cut are removed, though their threads may still run.
        self._open: dict[Any, None] = {}
        self._serving = 0
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            # A thread that makes a page does not end when its client is cut off.
            busy = self._serving >= 2 * self._limits.connections
            if not busy:
                if len(self._open) >= self._limits.connections:
                    oldest = next(iter(self._open))
                    del self._open[oldest]
                    _cut(oldest)
                self._open[request] = None
                self._serving += 1
        if busy:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A client that sends or takes a byte now and then would never hit the time-out of a single
        # call.
        end = threading.Timer(self._limits.seconds, _cut, [request])
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            with self._lock:
                self._serving -= 1

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, regardless of how it ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Endpoint:
    """Serves the pages from its own thread until closed.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes a free one.
    metrics
        Makes the text of ``/metrics``.
    state
        Makes the content of ``/state``, which is shown as JSON.
    limits
        Limits on what clients may occupy.

    Attributes
    ----------
    address : str
        The actual ``host:port``.

    Raises
    ------
    EndpointError
        If the address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], str],
        state: Callable[[], Any],
        limits: EndpointLimits | None = None,
    ) -> None:
        bounds = limits or EndpointLimits()
        pages: dict[str, tuple[str, Callable[[], str]]] = {
            "/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics),
            "/state": ("application/json", lambda: json_text(state()) + "\n"),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = bounds.seconds

            # One page per connection.
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                if page is None:
                    self.send_error(404, "there are /metrics and /state")
                    return
                kind, make = page
                try:
                    body, status = make().encode(), 200
                except Exception as error:
                    kind, body, status = "text/plain", f"{type(error).__name__}\n".encode(), 500
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Do not log scrapes, which come every few seconds."""

        try:
            self._server = _Server((host, port), Handler, bounds)
        except (OSError, OverflowError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise EndpointError(f"cannot listen on {host_and_port(host, port)}: {why}") from None
        self.address = host_and_port(host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="endpoint", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, or of ``:PORT``, which means this machine only.

    Examples
    --------
    >>> parse_address("127.0.0.1:9464"), parse_address(":9464"), parse_address("[::1]:80")
    (('127.0.0.1', 9464), ('127.0.0.1', 9464), ('::1', 80))
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise EndpointError(
            f"address to listen on: {shown(text)} found, HOST:PORT expected (or :PORT, [::1]:PORT)"
        )
    return found[1] or found[2] or "127.0.0.1", int(found[3])
