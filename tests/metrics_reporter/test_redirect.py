"""A redirected scrape does not pass its credentials on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from metrics_reporter import ReporterError
from metrics_reporter.exposition import scrape, shown


@contextmanager
def server(location: str | None, seen: list[str | None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200 if location is None else 302)
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=found.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{found.server_address[1]}"
    finally:
        found.shutdown()
        found.server_close()
        thread.join()


def test_credentials_do_not_follow_a_redirect() -> None:
    there: list[str | None] = []
    here: list[str | None] = []
    with (
        server(None, there) as other,
        server(f"http://x:y@{other}/steal?t=1", here) as first,
        pytest.raises(ReporterError) as reported,
    ):
        scrape(f"http://me:secret@{first}/metrics", 10)
    assert here[0] is not None
    assert there == []
    assert f"a redirect to http://{other} found" in str(reported.value)
    assert "secret" not in str(reported.value)
    assert "steal" not in str(reported.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://me:pa/ss@broker:7071/metrics", "http://broker:7071/metrics"),
        ("http://broker:7071/a@b?token=x", "http://broker:7071/a@b"),
        ("me:secret@broker", "broker"),
    ],
)
def test_addresses_are_shown_without_secrets(url: str, text: str) -> None:
    assert shown(url) == text
