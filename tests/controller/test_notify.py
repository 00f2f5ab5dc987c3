"""Webhooks against a real HTTP server on this machine, and the pages of the endpoint."""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from controller_cases import Stage, skewed
from waiting import LIMIT, wait_for

from balancer.composition.notifiers import Notifiers
from balancer.controller import Endpoint, Redactor, SettingsError, WebhookNotifier
from balancer.controller.endpoint import EndpointError
from balancer.controller.notify import BackgroundNotifier
from balancer.controller.plugins import DETECTORS
from balancer.controller.settings import Webhook, as_settings


class Receiver:
    """Keeps what is posted to it, and answers as told."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.pause = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(json.loads(body))
                receiver.headers.append(dict(self.headers))
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 0:
                    receiver.pause.wait(LIMIT)
                    status = 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.port = self.server.server_address[1]

    def webhook(self, **options: Any) -> Webhook:
        url = f"http://me:pass%40word@127.0.0.1:{self.port}/hooks/T0K3N"
        return Webhook.model_validate({"url": url, "backoff": 0.01, **options})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.pause.set()
    made.server.shutdown()
    made.server.server_close()


def test_decisions_arrive_as_json(receiver: Receiver) -> None:
    notifier = WebhookNotifier(receiver.webhook())
    stage = Stage(skewed())
    stage.controller._events._notifiers = (notifier,)
    stage.rounds(3)
    notifier.close()
    assert [b["event"] for b in receiver.bodies] == ["started", "executed"]
    assert receiver.bodies[0]["plan"]["replica_moves"] > 0
    assert receiver.bodies[0]["text"]
    assert receiver.headers[0]["Authorization"] == "Basic bWU6cGFzc0B3b3Jk"
    assert notifier.delivered == 2


def test_a_receiver_that_fails_is_tried_again(receiver: Receiver) -> None:
    receiver.answers = [500, 503, 200]
    notifier = WebhookNotifier(receiver.webhook())
    notifier({"event": "one"})
    wait_for(lambda: notifier.delivered == 1)
    assert len(receiver.bodies) == 3
    notifier.close()


def test_a_receiver_that_keeps_failing_is_given_up_and_the_next_event_goes_on(
    receiver: Receiver,
) -> None:
    receiver.answers = [500] * 3
    notifier = WebhookNotifier(receiver.webhook(attempts=3))
    notifier({"event": "one"})
    notifier({"event": "two"})
    wait_for(lambda: notifier.delivered == 1)
    assert notifier.failed == 1
    assert receiver.bodies[-1]["event"] == "two"
    notifier.close()


@pytest.mark.parametrize("answer", [302, 401, 404])
def test_a_refusal_or_redirect_is_final(receiver: Receiver, answer: int) -> None:
    receiver.answers = [answer]
    notifier = WebhookNotifier(receiver.webhook())
    notifier({"event": "one"})
    wait_for(lambda: notifier.failed == 1)
    assert len(receiver.bodies) == 1
    notifier.close()


def test_a_receiver_that_hangs_holds_nobody_up(receiver: Receiver) -> None:
    receiver.answers = [0]
    notifier = WebhookNotifier(receiver.webhook(timeout=0.1, attempts=2))
    notifier({"event": "one"})
    wait_for(lambda: notifier.delivered == 1)
    assert len(receiver.bodies) == 2
    notifier.close()


def test_a_full_queue_loses_its_oldest_events_and_says_so(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [0]
    notifier = WebhookNotifier(receiver.webhook(timeout=30.0))
    for n in range(1500):
        notifier({"event": str(n)})
    assert 400 < notifier.dropped <= 500
    assert caplog.text.count("webhook: 1000 events wait; the oldest are dropped") == 1
    receiver.pause.set()
    wait_for(lambda: bool(receiver.bodies) and receiver.bodies[-1]["event"] == "error")
    assert receiver.bodies[-2]["event"] == "1499"
    told = receiver.bodies[-1]["text"]
    assert told == f"{notifier.dropped} older events not sent: more came than could be delivered"
    notifier.close()


def test_secrets_of_the_address_are_never_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500] * 2
    with caplog.at_level(logging.DEBUG):
        notifier = WebhookNotifier(receiver.webhook(attempts=2))
        notifier({"event": "one"})
        wait_for(lambda: notifier.failed == 1)
        receiver.server.shutdown()
        receiver.server.server_close()
        notifier({"event": "two"})
        wait_for(lambda: notifier.failed == 2)
        notifier.close()
    assert f"webhook http://127.0.0.1:{receiver.port}: HTTP status 500" in caplog.text
    for secret in ("pass", "word", "T0K3N", "bWU6"):
        assert secret not in caplog.text


def test_a_notifier_that_raises_stops_nothing() -> None:
    stage = Stage(skewed())

    def broken(event: object) -> None:
        raise RuntimeError("broken")

    stage.controller._events._notifiers = (broken,)
    assert stage.rounds(2) == ["executed", "balanced"]


@pytest.mark.parametrize(
    ("properties", "urls", "text"),
    [
        ({"sasl.password": "s3cret-x"}, [], "refused s3cret-x twice"),
        ({"ssl_key_password": "s3cret-x"}, [], "refused s3cret-x twice"),
        (
            {"sasl.jaas.config": 'Plain required username="u" password="s3cret-x";'},
            [],
            "login s3cret-x",
        ),
        ({}, ["http://u:s3cret%2Dx@h/"], "http://u:s3cret%2Dx@h/ and s3cret-x"),
        ({}, [], "see https://who:s3cret-x@host:9/path"),
    ],
)
def test_the_redactor_hides_secrets_wherever_they_are(
    properties: dict[str, str], urls: list[str], text: str
) -> None:
    hide = Redactor(properties, urls)
    assert "s3cret" not in hide(text)
    assert "s3cret" not in json.dumps(hide.data({"a": [text, {"b": text}], "n": 3}))


def _get(endpoint: Endpoint, page: str) -> tuple[str, str]:
    with urllib.request.urlopen(f"http://{endpoint.address}{page}", timeout=LIMIT) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_metrics_and_state_are_served() -> None:
    stage = Stage(skewed())
    stage.rounds(3)
    endpoint = Endpoint("127.0.0.1", 0, stage.controller.metrics.text, stage.controller.state)
    text, kind = _get(endpoint, "/metrics")
    assert kind.startswith("text/plain; version=0.0.4")
    lines = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")
    )
    assert lines["counterpoise_rounds_total"] == "3"
    assert lines['counterpoise_decisions_total{kind="executed"}'] == "1"
    assert lines["counterpoise_acting"] == "1"
    assert float(lines["counterpoise_bytes_moved_total"]) > 0
    assert float(lines["counterpoise_plan_seconds_total"]) > 0
    for detector in DETECTORS.built_in:
        assert lines[f'counterpoise_findings{{detector="{detector}"}}'] == "0"
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name.partition("{")[0] for name in lines} <= named
    state, kind = _get(endpoint, "/state")
    assert kind == "application/json"
    assert json.loads(state)["decisions"][0]["kind"] == "balanced"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _get(endpoint, "/elsewhere")
    endpoint.close()


def test_an_address_in_use_is_reported_in_a_sentence() -> None:
    endpoint = Endpoint("127.0.0.1", 0, str, dict)
    port = int(endpoint.address.rpartition(":")[2])
    with pytest.raises(EndpointError, match=f"cannot listen on 127.0.0.1:{port}: Address already"):
        Endpoint("127.0.0.1", port, str, dict)
    endpoint.close()


class _Sends:
    """A notifier of another package that does what the test says."""

    def __init__(self, *answers: Callable[[], None]) -> None:
        self.answers, self.sent = list(answers), []  # type: ignore[var-annotated]

    def send(self, event: Any) -> None:
        if self.answers:
            self.answers.pop(0)()
        self.sent.append(event)


def _fails() -> None:
    raise RuntimeError("sesame")


def _wait(free: threading.Event) -> None:
    free.wait(LIMIT)


def _ends() -> None:
    raise SystemExit(1)


def test_a_notifier_of_another_package_that_fails_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sender = _Sends(_fails, _ends)
    notifier = BackgroundNotifier("someones", sender)
    for n in range(3):
        notifier({"event": n})
    wait_for(lambda: notifier.delivered == 1)
    assert notifier.counts() == {"delivered": 1, "failed": 2, "dropped": 0, "waiting": 0}
    assert sender.sent == [{"event": 2}]
    assert "someones: an event was not delivered (RuntimeError)" in caplog.text
    assert "sesame" not in "".join(r.getMessage() for r in caplog.records)
    notifier.close()


def test_a_notifier_of_another_package_that_hangs_holds_nobody_up() -> None:
    free = threading.Event()
    notifier = BackgroundNotifier("someones", _Sends(lambda: _wait(free)))
    stage = Stage(skewed())
    stage.controller.notify([notifier], Redactor())
    assert stage.rounds(2) == ["executed", "balanced"]
    text = stage.controller.metrics.text()
    assert 'counterpoise_notifications_waiting{notifier="someones"} 1' in text
    assert 'counterpoise_notifications_total{notifier="someones",outcome="delivered"} 0' in text
    assert stage.controller.state()["notifiers"][0]["notifier"] == "someones"
    free.set()
    wait_for(lambda: notifier.delivered == 2)
    notifier.close()


def test_notifiers_are_opened_once_and_their_secrets_hidden() -> None:
    settings = as_settings(
        {
            "webhooks": [{"url": "http://127.0.0.1:9/hooks/sesame"}],
            "notifiers": [
                {"name": "log", "options": {"level": "debug"}},
                {"name": "webhook", "options": {"url": "http://127.0.0.1:9/hooks/barley"}},
            ],
        }
    )
    opened = Notifiers({})
    first = opened.take(settings)
    assert [n.name for n in first] == ["webhook", "log", "webhook"]
    assert opened.take(settings) == first
    assert opened.hide("/hooks/sesame /hooks/barley") == "*** ***"
    less = opened.take(settings.model_copy(update={"webhooks": ()}))
    assert less == first[1:]
    # A former secret stays secret.
    assert opened.hide("/hooks/sesame") == "***"
    opened.close()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"name": "pigeon"},
            "notifiers.0: notifier 'pigeon' found, one of apprise, log, webhook expected",
        ),
        ({"sesame": 1}, "notifiers.0.name: field required"),
        ({"name": "log", "sesame": 1}, "notifiers.0: an unknown key found, name, options expected"),
        (
            {"name": "log", "options": {"level": "sesame"}},
            "notifier log, option level: input should be 'debug', 'info', 'warning' or 'error'",
        ),
        (
            {"name": "webhook", "options": {"url": "hooks.example/sesame"}},
            "notifier webhook, option url: string should match pattern",
        ),
        ({"name": "log", "options": "sesame"}, "notifiers.0.options: a mapping expected"),
    ],
)
def test_wrong_notifiers_are_one_sentence_without_secrets(entry: Any, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        as_settings({"notifiers": [entry]})
    assert said in str(caught.value)
    assert "sesame" not in str(caught.value)
