"""Sends notifications to a log or a webhook, without blocking the controller."""

from __future__ import annotations

import base64
import json
import logging
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from balancer.controller.settings import Webhook

log = logging.getLogger("counterpoise.notify")
_WAITING = 1000


def log_notifier(event: Mapping[str, Any]) -> None:
    """Write an event to the log ``counterpoise.notify``."""
    log.info("%s: %s", event.get("event"), event.get("text"))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: one would carry credentials, and turn the POST into a GET."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class WebhookNotifier:
    """Posts events as JSON from its own thread; if the queue is full, the oldest are dropped.

    A refusal (4xx other than 408 and 429) is final, any other error is retried.

    Parameters
    ----------
    settings
        Address, time-out and number of attempts.

    Attributes
    ----------
    delivered, failed, dropped : int
        Events accepted by the receiver, given up after all attempts, and dropped from the queue.
    """

    def __init__(self, settings: Webhook) -> None:
        self.delivered = self.failed = self.dropped = 0
        self._settings = settings
        parts = urlsplit(settings.url)
        host = parts.netloc.rpartition("@")[2]
        self._url = urlunsplit((parts.scheme, host, parts.path or "/", parts.query, ""))
        # Paths and queries of webhooks are secrets too.
        self._shown = f"{parts.scheme}://{host}"
        self._headers = {"Content-Type": "application/json", "User-Agent": "counterpoise"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._queue: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Queue an event; returns at once."""
        body = json.dumps(event, default=str).encode()
        while True:
            try:
                self._queue.put_nowait(body)
                return
            except queue.Full:
                try:
                    self._queue.get_nowait()
                    self.dropped += 1
                except queue.Empty:
                    continue

    def close(self, timeout: float = 5.0) -> None:
        """Send queued events for at most so many seconds; nothing is retried any more."""
        self._closing.set()
        self._end()
        self._thread.join(timeout)

    def _end(self) -> None:
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._queue.get_nowait()
            self.dropped += 1
            self._queue.put_nowait(None)

    def _run(self) -> None:
        while (body := self._queue.get()) is not None:
            try:
                self._deliver(body)
            except Exception as error:
                self.failed += 1
                log.error("webhook %s: %s", self._shown, type(error).__name__)

    def _deliver(self, body: bytes) -> None:
        pause = self._settings.backoff
        for attempt in range(1, self._settings.attempts + 1):
            why, final = self._post(body)
            if why is None:
                self.delivered += 1
                return
            last = final or attempt == self._settings.attempts or self._closing.is_set()
            log.warning(
                "webhook %s: %s, %s", self._shown, why, "given up" if last else "tried again"
            )
            if last:
                break
            self._closing.wait(pause)
            pause *= 2
        self.failed += 1

    def _post(self, body: bytes) -> tuple[str | None, bool]:
        """The error, if any, and whether retrying is useless."""
        request = urllib.request.Request(self._url, body, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._settings.timeout):
                return None, False
        except urllib.error.HTTPError as error:
            error.close()
            final = 300 <= error.code < 500 and error.code not in (408, 429)
            return f"HTTP status {error.code}", final
        except OSError as error:
            reason = getattr(error, "reason", error)
            told = reason.strerror if isinstance(reason, OSError) else None
            return told or type(reason).__name__, False
