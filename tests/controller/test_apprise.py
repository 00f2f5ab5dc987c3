"""Events sent through Apprise, to a real HTTP server on this machine."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from balancer.composition.notifiers import Notifiers
from balancer.controller import SettingsError
from balancer.controller.apprise_notifier import AppriseNotifier, DeliveryError
from balancer.controller.settings import as_settings

SECRET = "T0K3N-0F-A-CHAT"


class Received:
    """What was posted, and the status that answers it."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status = 200
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.bodies.append(json.loads(body))
                self.send_response(received.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}/hooks/{SECRET}"


@pytest.fixture
def received() -> Iterator[Received]:
    made = Received()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize(
    ("event", "meaning"),
    [
        ({"event": "error", "text": "the round failed"}, "failure"),
        ({"event": "finding", "text": "broker 3 is dead"}, "warning"),
        ({"event": "over", "text": "broker 3 is back"}, "success"),
        ({"event": "executed", "text": "done", "outcome": {"state": "done"}}, "success"),
        ({"event": "executed", "text": "cut short", "outcome": {"state": "stopped"}}, "failure"),
        ({"event": "started", "text": "3 moves"}, "info"),
    ],
)
def test_an_event_arrives_with_what_it_means(
    received: Received, event: dict[str, Any], meaning: str
) -> None:
    AppriseNotifier(urls=(received.url,)).send(event)
    [body] = received.bodies
    assert (body["title"], body["message"]) == (f"Counterpoise: {event['event']}", event["text"])
    assert body["type"] == meaning


def test_only_events_that_are_asked_for_are_sent(received: Received) -> None:
    notifier = AppriseNotifier(urls=(received.url,), events=frozenset({"error"}))
    notifier.send({"event": "started", "text": "3 moves"})
    assert received.bodies == []
    notifier.send({"event": "error", "text": "the round failed"})
    assert len(received.bodies) == 1


def test_a_refusal_is_counted_and_no_secret_is_logged(
    received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    received.status = 403
    with pytest.raises(DeliveryError):
        AppriseNotifier(urls=(received.url,)).send({"event": "error", "text": "x"})
    settings = as_settings(
        {"notifiers": [{"name": "apprise", "options": {"urls": [received.url]}}]}
    )
    opened = Notifiers({})
    with caplog.at_level(logging.INFO):
        [notifier] = opened.take(settings)
        notifier({"event": "error", "text": "x"})
        opened.close()
    assert notifier.counts()["failed"] == 1
    assert SECRET not in caplog.text
    assert SECRET not in opened.hide(f"failed at {received.url}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urls": []}, "urls"),
        (
            {"urls": [f"nonsense://{SECRET}"]},
            "option urls: number 1 is no address that Apprise knows",
        ),
        ({"urls": ["json://localhost"], "event": ["error"]}, "event"),
        ({"urls": ["json://localhost"], "events": ["eror"]}, "option events.0: input should be"),
    ],
)
def test_wrong_options_are_one_sentence_without_secrets(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"name": "apprise", "options": options}
    with pytest.raises(SettingsError) as caught:
        Notifiers({}).take(as_settings({"notifiers": [entry]}))
    assert said in str(caught.value)
    assert SECRET not in str(caught.value) + caplog.text
    assert "\n" not in str(caught.value)
