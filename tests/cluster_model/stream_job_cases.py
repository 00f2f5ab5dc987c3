"""Serves the samples of Flink's REST API and of Kafka Streams' pages on a local port."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

SAMPLES = Path(__file__).parent / "samples"
JOB = "5a1b7d1a1b3a4e2f8c9d0e1f2a3b4c5d"
COUNT = "90bea66de1c231edf33913ecd54406c1"
# Flink's HTTP server reads first lines of at most this length.
LONGEST_LINE = 4096


def flink_answers() -> dict[str, Any]:
    """Answers of Flink's REST API by path, free to be changed."""
    answers: dict[str, Any] = json.loads((SAMPLES / "flink_handmade.json").read_text())
    del answers["about"]
    return answers


def streams_pages() -> list[str]:
    """A page of metrics for each of two instances."""
    return [path.read_text() for path in sorted(SAMPLES.glob("kafka_streams_*.txt"))]


@contextmanager
def served(answers: dict[str, Any], seconds: float = 0.0) -> Iterator[str]:
    """The address of a server with an answer by path: text, or what is written as JSON.

    Parameters
    ----------
    answers
        By path. A list is of Flink's metrics, of which a request asks for some.
    seconds
        How long an answer takes.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(seconds)
            parts = urlsplit(self.path)
            answer = answers.get(parts.path)
            if isinstance(answer, list):
                asked = set(parse_qs(parts.query)["get"][0].split(","))
                answer = [m for m in answer if not isinstance(m, dict) or m.get("id") in asked]
            fits = len(self.requestline) < LONGEST_LINE
            self.send_response((200 if fits else 414) if answer is not None else 404)
            self.end_headers()
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
