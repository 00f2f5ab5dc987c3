"""Sends notifications to a log, a webhook or another package, without blocking the controller."""

from __future__ import annotations

import base64
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict

from balancer.controller.plugins import NOTIFIERS
from balancer.controller.protocols import DeliveryError, Notifier, NotifierPlugin
from balancer.controller.settings import Webhook
from metrics_reporter.documents import json_text
from metrics_reporter.quantities import plural

log = logging.getLogger("counterpoise.notify")
_WAITING = 1000


def log_notifier(event: Mapping[str, Any]) -> None:
    """Write an event to the log ``counterpoise.notify``."""
    log.info("%s: %s", event.get("event"), event.get("text"))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: one would carry credentials, and turn the POST into a GET."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class LogNotifier(BaseModel):
    """Writes events to the log ``counterpoise.notify``.

    Parameters
    ----------
    level
        Their level.
    """

    model_config = ConfigDict(extra="forbid")

    level: Literal["debug", "info", "warning", "error"] = "info"

    def send(self, event: Mapping[str, Any]) -> None:
        """Write an event."""
        number = logging.getLevelNamesMapping()[self.level.upper()]
        log.log(number, "%s: %s", event.get("event"), event.get("text"))


class BackgroundNotifier:
    """Delivers events from its own thread; if the queue is full, the oldest are dropped.

    An event that cannot be delivered is logged and counted, and the next one follows. If a
    delivery hangs, events wait behind it, and the controller continues. The log says when events
    are dropped, and the receiver learns how many are missing, as an event of the kind ``error``.

    Parameters
    ----------
    name
        Name of the notifier in logs and metrics.
    sender
        Delivers one event; may block and raise.

    Attributes
    ----------
    delivered, failed, dropped : int
        Events accepted by the receiver, given up, and dropped from the queue.
    """

    def __init__(self, name: str, sender: NotifierPlugin | None = None) -> None:
        self.name = name
        self.delivered = self.failed = self.dropped = 0
        # Dropped events that the receiver knows of.
        self._told = 0
        self._sender = sender
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"notifier {name}", daemon=True)
        self._thread.start()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Queue an event; returns at once."""
        while True:
            try:
                self._queue.put_nowait(event)
                return
            except queue.Full:
                self._drop()

    def counts(self) -> dict[str, int]:
        """Numbers of events by delivery result."""
        return {
            "delivered": self.delivered,
            "failed": self.failed,
            "dropped": self.dropped,
            "waiting": self._queue.qsize(),
        }

    def close(self, timeout: float = 5.0) -> None:
        """Send queued events for a limited number of seconds; nothing is retried any more."""
        self._closing.set()
        self._end()
        self._thread.join(timeout)

    def _end(self) -> None:
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._drop()
            self._queue.put_nowait(None)

    def _drop(self) -> None:
        """Take the oldest event from the queue."""
        try:
            self._queue.get_nowait()
        except queue.Empty:
            return
        if self.dropped == self._told:
            log.error("%s: %d events wait; the oldest are dropped", self.name, _WAITING)
        self.dropped += 1

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            self._send(event)
            # Not after each event: that would take half of the deliveries.
            if self._queue.empty() or self.dropped - self._told >= _WAITING:
                self._tell()
        self._tell()
        self._close_sender()

    def _send(self, event: Mapping[str, Any]) -> None:
        try:
            delivered = self._deliver(event)
        except DeliveryError as error:
            delivered = False
            log.error("%s: an event was not delivered: %s", self.name, error)
        # Even an attempt to end the process is only a failed delivery.
        except BaseException as error:
            delivered = False
            # The message may contain a secret of the receiver's address.
            log.error("%s: an event was not delivered (%s)", self.name, type(error).__name__)
            log.debug("notifier %s", self.name, exc_info=True)
        if delivered:
            self.delivered += 1
        else:
            self.failed += 1

    def _tell(self) -> None:
        """Tell the receiver how many events it has not been sent."""
        missing = self.dropped - self._told
        if missing:
            self._told += missing
            text = f"{plural(missing, 'older event')} not sent: more came than could be delivered"
            self._send({"event": "error", "time": time.time(), "text": text})

    def _close_sender(self) -> None:
        close = getattr(self._sender, "close", None)
        if callable(close):
            try:
                close()
            except Exception as error:
                log.error("%s could not be closed (%s)", self.name, type(error).__name__)

    def _deliver(self, event: Mapping[str, Any]) -> bool:
        """Whether the event was delivered."""
        assert self._sender is not None
        self._sender.send(event)
        return True


class WebhookNotifier(BackgroundNotifier):
    """Posts events as JSON from its own thread; if the queue is full, the oldest are dropped.

    A refusal (4xx other than 408 and 429) is final, any other error is retried.

    Parameters
    ----------
    settings
        Address, time-out and number of attempts.
    """

    def __init__(self, settings: Webhook) -> None:
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
        super().__init__("webhook")

    def _deliver(self, event: Mapping[str, Any]) -> bool:
        body = json_text(event).encode()
        pause = self._settings.backoff
        for attempt in range(1, self._settings.attempts + 1):
            why, final = self._post(body)
            if why is None:
                return True
            last = final or attempt == self._settings.attempts or self._closing.is_set()
            log.warning(
                "webhook %s: %s, %s", self._shown, why, "given up" if last else "tried again"
            )
            if last:
                break
            self._closing.wait(pause)
            pause *= 2
        return False

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
            reported = reason.strerror if isinstance(reason, OSError) else None
            return reported or type(reason).__name__, False


def open_notifier(name: str, options: Mapping[str, Any]) -> BackgroundNotifier:
    """A notifier of that name with its thread.

    Raises
    ------
    PluginError
        If there is none, or not with these options, which are not quoted.
    """
    made = NOTIFIERS.make(name, options, hide=True)
    return WebhookNotifier(made) if isinstance(made, Webhook) else BackgroundNotifier(name, made)


def counted(notifiers: Iterable[Notifier]) -> list[BackgroundNotifier]:
    """Those of the notifiers that count their events."""
    return [n for n in notifiers if isinstance(n, BackgroundNotifier)]
