"""A page for Prometheus, and one for people and programs: ``/metrics`` and ``/state``."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cluster_model.errors import InputError


class EndpointError(InputError):
    """An address that cannot be listened on."""


class Endpoint:
    """Serves the pages from a thread of its own until closed.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes a free one.
    metrics
        Makes the text of ``/metrics``.
    state
        Makes what ``/state`` shows as JSON.

    Attributes
    ----------
    address : str
        ``host:port`` as listened on.

    Raises
    ------
    EndpointError
        If the address cannot be listened on.
    """

    def __init__(
        self, host: str, port: int, metrics: Callable[[], str], state: Callable[[], Any]
    ) -> None:
        pages: dict[str, tuple[str, Callable[[], str]]] = {
            "/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics),
            "/state": ("application/json", lambda: json.dumps(state(), default=str) + "\n"),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

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
                """Scrapes every few seconds are no news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise EndpointError(f"cannot listen on {host}:{port}: {why}") from None
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="endpoint", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` or ``:PORT`` (every address of the machine).

    Examples
    --------
    >>> parse_address("127.0.0.1:9464"), parse_address(":9464"), parse_address("[::1]:80")
    (('127.0.0.1', 9464), ('', 9464), ('::1', 80))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise EndpointError(f"address to listen on: {text!r} found, HOST:PORT expected")
    return host.removeprefix("[").removesuffix("]"), int(port)
