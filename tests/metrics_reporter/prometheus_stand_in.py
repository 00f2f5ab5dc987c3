"""A server that answers as Prometheus does, for the queries that are made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

# Seconds for which a value counts, and points of a series that an answer may have.
LOOK_BACK, MOST_POINTS = 300, 11_000

Labels = tuple[tuple[str, str], ...]


@dataclass
class StandIn:
    """Series with their samples, and what was asked.

    Parameters
    ----------
    series
        Times and values by labels, ``__name__`` among them.
    types
        What exporters stated of metrics (``# TYPE``), by name.
    most
        Values that an answer may have, as of a server with a limit.
    failures
        Statuses that are given first.
    """

    series: dict[Labels, list[tuple[float, float]]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    most: int = 10**9
    failures: list[int] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def add(self, name: str, samples: list[tuple[float, float]], /, **labels: str) -> None:
        self.series[tuple(sorted({"__name__": name, **labels}.items()))] = samples

    def answer(self, path: str, asked: dict[str, str]) -> tuple[int, Any]:
        if self.failures:
            return self.failures.pop(0), {"status": "error", "error": "not now"}
        found = re.fullmatch("/api/v1/label/(.*)/values", path)
        if found:
            some = [dict(s) for s in self._selected(asked["match[]"])]
            return 200, sorted({s[found[1]] for s in some if found[1] in s})
        if path == "/api/v1/metadata":
            return 200, {k: [{"type": v, "help": "", "unit": ""}] for k, v in self.types.items()}
        if path == "/api/v1/query":
            inner = re.fullmatch(r"count\((.*)\)", asked["query"])
            assert inner
            count = len(self._evaluated(inner[1], float(asked["time"])))
            pair = [float(asked["time"]), str(count)]
            return 200, {"result": [{"metric": {}, "value": pair}] if count else []}
        assert path == "/api/v1/query_range"
        first, end, step = (float(asked[name]) for name in ("start", "end", "step"))
        steps = [first + i * step for i in range(int((end - first) // step) + 1)]
        if len(steps) > MOST_POINTS:
            return 400, {"status": "error", "error": "exceeded maximum resolution of 11,000"}
        series: dict[Labels, list[list[Any]]] = {}
        for at in steps:
            for labels, value in self._evaluated(asked["query"], at).items():
                series.setdefault(labels, []).append([at, str(value)])
        if sum(map(len, series.values())) > self.most:
            return 422, {"status": "error", "error": "query processing would load too many samples"}
        return 200, {"result": [{"metric": dict(k), "values": v} for k, v in series.items()]}

    def _selected(self, selector: str) -> list[Labels]:
        matchers = re.findall(r'(\w+)(=~|=)("(?:[^"\\]|\\.)*")', selector)
        assert selector == "{" + ",".join("".join(m) for m in matchers) + "}"

        def fits(labels: dict[str, str]) -> bool:
            return all(
                re.fullmatch(json.loads(x) if kind == "=~" else re.escape(json.loads(x)),
                             labels.get(name, ""))
                for name, kind, x in matchers
            )  # fmt: skip

        return [labels for labels in self.series if fits(dict(labels))]

    def _evaluated(self, query: str, at: float) -> dict[Labels, float]:
        parts = re.fullmatch(
            r"(sum|max) by \(([^)]*)\) \((?:rate\((\{.*\})\[(\d+)s\]\)|(\{.*\}))\)", query
        )
        assert parts, query
        how, by, counters, window, gauges = parts.groups()
        names = by.split(", ")
        found: dict[Labels, list[float]] = {}
        for labels in self._selected(counters or gauges):
            back = float(window) if window else LOOK_BACK
            some = [(t, v) for t, v in self.series[labels] if at - back < t <= at]
            if len(some) < (2 if window else 1):
                continue
            value = some[-1][1]
            if window:
                pairs = pairwise(some)
                grown = sum(b - a if b >= a else b for (_, a), (_, b) in pairs)
                value = grown / (some[-1][0] - some[0][0])
            kept = tuple((n, v) for n, v in labels if n in names)
            found.setdefault(kept, []).append(value)
        return {k: sum(v) if how == "sum" else max(v) for k, v in found.items()}


@contextmanager
def served(stand_in: StandIn) -> Iterator[StandIn]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).query)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, form: str) -> None:
            asked = {name: values[0] for name, values in parse_qs(form).items()}
            path = urlsplit(self.path).path
            stand_in.asked.append((path, asked, dict(self.headers)))
            status, data = stand_in.answer(path, asked)
            body = json.dumps({"status": "success", "data": data} if status == 200 else data)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


IN = "kafka_server_brokertopicmetrics_bytesin_total"
OUT = "kafka_server_brokertopicmetrics_bytesout_total"


def cluster(
    first: int, end: int, *, brokers: int = 2, partitions: int = 2, every: int = 30
) -> StandIn:
    """Brokers that each lead as many partitions of topic-0, and grow evenly.

    A broker's partition p gets 100 * (p + 1) records of 10 bytes a second.
    """
    found = StandIn()
    times = [float(t) for t in range(first - 600, end + 1, every)]
    for broker in range(1, brokers + 1):
        where = {"instance": f"kafka-{broker}:7071", "job": "kafka"}
        total = sum(100.0 * (p + 1) for p in range(partitions))

        def grown(rate: float) -> list[tuple[float, float]]:
            return [(t, rate * (t - times[0])) for t in times]

        found.add(IN, grown(10 * total), **where)
        found.add(OUT, grown(20 * total), **where)
        found.add(IN, grown(10 * total), topic="topic-0", **where)
        found.add(OUT, grown(20 * total), topic="topic-0", **where)
        found.add("process_cpu_seconds_total", grown(0.5), **where)
        for p in range(partitions):
            number = str((broker - 1) * partitions + p)
            of = {"topic": "topic-0", "partition": number, **where}
            found.add("kafka_log_log_size", [(t, 1e6) for t in times], **of)
            found.add("kafka_log_log_logendoffset", grown(100.0 * (p + 1)), **of)
            found.add("kafka_cluster_partition_replicascount", [(t, 1.0) for t in times], **of)
    found.add("up", [(t, 1.0) for t in times], instance="kafka-1:7071", job="kafka")
    return found
