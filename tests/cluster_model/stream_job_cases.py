"""Serves what was recorded of Flink's REST API and of Kafka Streams' pages on a local port.

The programs in ``recorder/`` recorded it; nothing in it is edited by hand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

SAMPLES = Path(__file__).parent / "samples"
FLINK: dict[str, Any] = json.loads((SAMPLES / "flink.json").read_text())
JOB: str = next(path for path in FLINK if path.startswith("/jobs/")).removeprefix("/jobs/")
# Flink's HTTP server reads first lines of at most this length.
LONGEST_LINE = 4096


def flink_answers() -> dict[str, Any]:
    """Answers of Flink's REST API by path, free to be changed.

    As on a running Flink, the processor time of a task manager is another whenever it is asked
    for; that of others was recorded once.
    """
    answers = {path: deepcopy(answer) for path, answer in FLINK.items() if path != "about"}
    for path in answers:
        if path.startswith("/taskmanagers/"):
            (metric,) = answers[path]
            answers[path] = ticking(metric)
    return answers


def ticking(metric: dict[str, str]) -> Callable[[], list[dict[str, str]]]:
    """An answer with a metric that grows whenever it is asked for."""
    values = count(int(metric["value"]), 10**9)
    return lambda: [{**metric, "value": str(next(values))}]


def vertex(name: str) -> str:
    """The path of a vertex of the recorded job, by its name."""
    (id_,) = (v["id"] for v in FLINK[f"/jobs/{JOB}"]["vertices"] if v["name"] == name)
    return f"/jobs/{JOB}/vertices/{id_}"


def streams_pages() -> list[str]:
    """A page of metrics for each of two instances."""
    return [path.read_text() for path in sorted(SAMPLES.glob("kafka_streams_*.txt"))]


@contextmanager
def served(answers: dict[str, Any], seconds: float = 0.0) -> Iterator[str]:
    """The address of a server with an answer by path: text, or what is written as JSON.

    Parameters
    ----------
    answers
        By path. A list is of Flink's metrics, of which a request asks for some. A function is
        called for the answer of each request.
    seconds
        How long an answer takes.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(seconds)
            parts = urlsplit(self.path)
            answer = answers.get(parts.path)
            if callable(answer):
                answer = answer()
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
