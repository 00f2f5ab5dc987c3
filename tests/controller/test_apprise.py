"""Events sent through Apprise, to a real HTTP server on this machine."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from balancer.composition.notifiers import Notifiers
from balancer.controller import SettingsError
from balancer.controller.apprise_notifier import AppriseNotifier
from balancer.controller.protocols import DeliveryError
from balancer.controller.settings import as_settings

SECRET = "T0K3N-0F-A-CHAT"


class Received:
    """What was posted, and the status that answers it."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status = 200
        self.moved_to: str | None = None
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.bodies.append(json.loads(body))
                self.send_response(received.status)
                if received.moved_to is not None:
                    self.send_header("Location", received.moved_to)
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


def test_an_event_arrives_with_what_it_means(received: Received) -> None:
    with closing(AppriseNotifier(urls=(received.url,))) as notifier:
        for event, meaning in (
            ({"event": "error", "text": "the round failed"}, "failure"),
            ({"event": "finding", "text": "broker 3 is dead"}, "warning"),
            ({"event": "over", "text": "broker 3 is back"}, "success"),
            ({"event": "executed", "text": "done", "outcome": {"state": "done"}}, "success"),
            ({"event": "executed", "text": "cut", "outcome": {"state": "stopped"}}, "failure"),
            ({"event": "started", "text": "3 moves"}, "info"),
        ):
            notifier.send(event)
            body = received.bodies.pop()
            assert not received.bodies
            title, text = f"Counterpoise: {event['event']}", event["text"]
            assert (body["title"], body["message"], body["type"]) == (title, text, meaning)


def test_only_events_that_are_asked_for_are_sent(received: Received) -> None:
    notifier = AppriseNotifier(urls=(received.url,), events=frozenset({"error"}))
    notifier.send({"event": "started", "text": "3 moves"})
    assert received.bodies == []
    notifier.send({"event": "error", "text": "the round failed"})
    assert len(received.bodies) == 1
    notifier.close()


def test_a_service_cannot_send_an_event_on_to_another_address(received: Received) -> None:
    """A redirect could reach what only this machine reaches; an address may ask for it."""
    other = Received()
    received.status, received.moved_to = 307, other.url.replace("json://", "http://")
    event = {"event": "error", "text": "x"}
    with (
        closing(AppriseNotifier(urls=(received.url,))) as notifier,
        pytest.raises(DeliveryError, match="error=307"),
    ):
        notifier.send(event)
    assert other.bodies == []
    with closing(AppriseNotifier(urls=(f"{received.url}?redirect=yes",))) as notifier:
        notifier.send(event)
    assert len(other.bodies) == 1
    other.server.shutdown()
    other.server.server_close()


def test_a_refusal_is_counted_and_no_secret_is_logged(
    received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    received.status = 403
    with (
        closing(AppriseNotifier(urls=(received.url,))) as refused,
        pytest.raises(DeliveryError, match="error=403"),
    ):
        refused.send({"event": "error", "text": "x"})
    settings = as_settings(
        {"notifiers": [{"name": "apprise", "options": {"urls": [received.url]}}]}
    )
    opened = Notifiers({})
    with caplog.at_level(logging.INFO):
        [notifier] = opened.take(settings)
        notifier({"event": "error", "text": "x"})
        deadline = time.monotonic() + 60
        while not notifier.counts()["failed"] and time.monotonic() < deadline:
            time.sleep(0.05)
        opened.close()
    assert notifier.counts()["failed"] == 1
    assert "apprise: an event was not delivered: " in caplog.text
    assert "error=403" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in opened.hide(f"failed at {received.url}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urls": []}, "urls"),
        (
            {"urls": [f"nonsense://{SECRET}"]},
            "notifier apprise: urls: number 1 is no address that Apprise knows",
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


def _bad_service(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """A web server that reads a request and then does this with the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            behave(connection)

    threading.Thread(target=serve, daemon=True).start()
    yield f"json://127.0.0.1:{listening.getsockname()[1]}/hooks/{SECRET}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def _drips(connection: socket.socket) -> None:
    """Answers a byte now and then: no time-out of a socket ends that."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.2)


def _floods(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000000\r\n\r\n")
    for _ in range(4000):
        connection.sendall(bytes(1_000_000))


def _is_no_server(connection: socket.socket) -> None:
    connection.sendall(b"\xff\xfe not HTTP \r\n\r\n")


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        pytest.param(
            _drips, "not every address has accepted it within 8 s", marks=pytest.mark.soak
        ),
        (_floods, "JSON"),
        (_is_no_server, "JSON"),
    ],
)
def test_a_bad_service_costs_its_own_events_only(
    received: Received, behave: Callable[[socket.socket], None], said: str
) -> None:
    for bad in _bad_service(behave):
        # Long enough for the other address on a busy machine.
        timeout, texts = (8, ["first"]) if behave is _drips else (60, ["first", "second"])
        notifier = AppriseNotifier(urls=(bad, received.url), timeout=timeout)
        for text in texts:
            with pytest.raises(DeliveryError, match=re.escape(said)) as caught:
                notifier.send({"event": "error", "text": text})
            assert SECRET not in str(caught.value)
        notifier.close()
    assert [b["message"] for b in received.bodies] == texts


def test_a_process_that_somebody_ends_is_started_again(received: Received) -> None:
    notifier = AppriseNotifier(urls=(received.url,))
    for _ in range(2):
        notifier.send({"event": "error", "text": "x"})
        assert notifier._process is not None
        notifier._process._process.kill()
        notifier._process._process.wait()
    notifier.close()
    assert len(received.bodies) == 2


def test_nothing_of_the_text_is_markup(received: Received) -> None:
    with closing(AppriseNotifier(urls=(f"{received.url}?format=html",))) as notifier:
        notifier.send({"event": "error", "text": "rack <img src=x> & co"})
    [body] = received.bodies
    assert body["message"].replace("&nbsp;", " ") == "rack &lt;img src=x&gt; &amp; co"


def test_the_process_keeps_to_the_options(received: Received) -> None:
    """Address space, and how much of what services say is quoted, are options."""
    received.status = 403
    urls = tuple(f"{received.url}/{n}" for n in range(3))
    with (
        closing(AppriseNotifier(urls=urls, memory=4e8, remarks=1)) as notifier,
        pytest.raises(DeliveryError) as caught,
    ):
        notifier.send({"event": "error", "text": "x"})
    assert "error=403" in str(caught.value)
    assert "; " not in str(caught.value)
    options = {"urls": [received.url], "memory": "1MB"}
    with pytest.raises(SettingsError, match="option memory: input should be greater than"):
        as_settings({"notifiers": [{"name": "apprise", "options": options}]})


def test_what_apprise_logs_does_not_leave_its_process(capfd: pytest.CaptureFixture[str]) -> None:
    urls = ["json://localhost", f"slack://{SECRET}/{SECRET}/{SECRET}"]
    with pytest.raises(SettingsError) as caught:
        as_settings({"notifiers": [{"name": "apprise", "options": {"urls": urls}}]})
    assert "notifier apprise: urls: number 2 is no address that Apprise knows" in str(caught.value)
    assert "".join(capfd.readouterr()) == ""
