"""Measures the server: requests per second, the controller's cycle beside it, a mixed storm."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import random
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.registry import BenchmarkError, Options, Row, benchmark

_CLUSTERS: dict[str, tuple[int, int]] = {"S": (100, 5_000), "M": (1_000, 50_000)}
_SUBJECTS = ("requests", "cycles", "mixed")
_READS = {
    "state": "/api/v1/state",
    "load": "/api/v1/cluster/brokers",
    "partitions": "/api/v1/cluster/partitions",
    "proposals": "/api/v1/proposals",
}
# Clients that send one request after the other, and how many each sends.
_CLIENTS = 4
_REQUESTS = 100
_LISTENERS = 100
_CYCLES = 20
_MIXED = 10_000
_VIEWER = {"Authorization": "Bearer viewer"}
_EXPIRED = "2020-01-01T00:00:00Z"
_ROOT = Path(__file__).parents[1]
_START_SECONDS = 120.0
# Listeners have received everything if they receive nothing for so long.
_QUIET_SECONDS = 1.0


@benchmark("serve", sizes=tuple(_CLUSTERS))
def serve(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """The server under load: requests/s and latency, cycles with listeners, mixed requests.

    The server is a process of its own, this one is the client. `--rounds` is the number of mixed
    requests.
    """
    for name in options.subjects:
        if name not in _SUBJECTS:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(_SUBJECTS)}")
    chosen = options.subjects or _SUBJECTS
    for size in sizes:
        options.log(f"serve {size}: the first plan is made")
        with _running(*_CLUSTERS[size], options.seed) as found:
            measured: list[tuple[str, str, float, str]] = []
            if "requests" in chosen:
                options.log(f"serve {size}: requests")
                measured += _requests(found)
            if "cycles" in chosen:
                options.log(f"serve {size}: cycles of the controller")
                measured += _cycles(found)
            if "mixed" in chosen:
                options.log(f"serve {size}: mixed requests while an execution runs")
                measured += _mixed(found, options.rounds or _MIXED, options.seed)
        for subject, metric, value, unit in measured:
            yield Row("serve", size, subject, metric, value, unit)


@dataclass
class Running:
    """A server in another process.

    Parameters
    ----------
    process
        The process, which takes commands.
    host, port
        Where it listens.
    proposal, digest
        A proposal that it keeps.
    """

    process: subprocess.Popen[str]
    host: str
    port: int
    proposal: str
    digest: str

    def tell(self, command: str) -> dict[str, Any]:
        """Send a command; returns the answer.

        Raises
        ------
        BenchmarkError
            If the server has ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return _answer(self.process)

    def connection(self) -> http.client.HTTPConnection:
        """A connection; close it."""
        return http.client.HTTPConnection(self.host, self.port, timeout=120.0)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchmarkError(f"the server has ended with code {process.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


@contextmanager
def _running(brokers: int, partitions: int, seed: int) -> Iterator[Running]:
    """A server of a synthetic cluster, until the context is left."""
    with tempfile.TemporaryDirectory(prefix="serve-") as scratch:
        tokens = {
            role: {"sha256": hashlib.sha256(role.encode()).hexdigest(), "role": role}
            for role in ("viewer", "operator", "admin")
        }
        tokens["old"] = {**tokens["admin"], "expires": _EXPIRED}
        tokens["old"]["sha256"] = hashlib.sha256(b"old").hexdigest()
        # Without limits on the rate: what the server can do is measured.
        most = {"requests": 1e9, "changes": 1e9, "failures": 10**9}
        (Path(scratch) / "server.json").write_text(json.dumps({"tokens": tokens, "rates": most}))
        command = [sys.executable, "-m", "benchmarks.harness.served"]
        process = subprocess.Popen(
            [*command, str(brokers), str(partitions), str(seed), scratch],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            first = _answer(process)
            host, _, port = first["url"].partition("://")[2].partition(":")
            yield Running(process, host, int(port), first["proposal"], first["digest"])
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _requests(found: Running) -> Iterator[tuple[str, str, float, str]]:
    """Each read, sent by some clients at once."""
    for name, path in _READS.items():
        seconds: list[float] = []
        sizes: set[int] = set()

        def client(
            path: str = path, seconds: list[float] = seconds, sizes: set[int] = sizes
        ) -> None:
            connection = found.connection()
            for _ in range(_REQUESTS):
                began = time.perf_counter()
                connection.request("GET", path, headers=_VIEWER)
                answer = connection.getresponse()
                content = answer.read()
                seconds.append(time.perf_counter() - began)
                if answer.status != 200:
                    raise BenchmarkError(f"{path}: {answer.status} found, 200 expected")
                sizes.add(len(content))
            connection.close()

        before = found.tell("usage")
        began = time.perf_counter()
        _at_once([client] * _CLIENTS)
        duration = time.perf_counter() - began
        used = found.tell("usage")["processor"] - before["processor"]
        if len(seconds) != _CLIENTS * _REQUESTS:
            raise BenchmarkError(f"{path}: {len(seconds)} of {_CLIENTS * _REQUESTS} answers found")
        yield name, "requests per second", len(seconds) / duration, "1/s"
        yield name, "p50", float(np.quantile(seconds, 0.5)), "seconds"
        yield name, "p99", float(np.quantile(seconds, 0.99)), "seconds"
        yield name, "processor of a request", used / len(seconds), "seconds"
        yield name, "size of an answer", float(max(sizes)), "bytes"


def _cycles(found: Running) -> Iterator[tuple[str, str, float, str]]:
    """Cycles of the controller without and with listeners, in turn."""
    found.tell("cycles 2")
    seconds: dict[str, dict[str, list[float]]] = {}
    events = 0
    for _ in range(2):
        for listeners in (0, _LISTENERS):
            heard = Listeners(found, listeners)
            answer = found.tell(f"cycles {_CYCLES}")
            kept = seconds.setdefault(f"{listeners} listeners", {"clock": [], "processor": []})
            for clock, values in answer.items():
                kept[clock] += values
            events += heard.close()
    (without, beside) = seconds
    for subject, kept in seconds.items():
        yield subject, "cycle, median", float(np.median(kept["clock"])), "seconds"
        yield subject, "cycle, longest", max(kept["clock"]), "seconds"
        yield subject, "processor of a cycle", float(np.mean(kept["processor"])), "seconds"
    for metric, clock in (("cycle, median", "clock"), ("processor of a cycle", "processor")):
        of = np.median if clock == "clock" else np.mean
        ratio = float(of(seconds[beside][clock]) / of(seconds[without][clock]))
        yield "ratio", metric, ratio, "ratio"
    yield beside, "events received", float(events), "events"


class Listeners:
    """Clients that follow events, all read by one thread.

    Parameters
    ----------
    found
        The server.
    number
        How many.
    """

    def __init__(self, found: Running, number: int) -> None:
        self._found = found
        self._selector = selectors.DefaultSelector()
        self._over = threading.Event()
        self._events = 0
        request = (
            f"GET /api/v1/events HTTP/1.1\r\nHost: {found.host}\r\n"
            "Authorization: Bearer viewer\r\n\r\n"
        )
        for _ in range(number):
            connection = socket.create_connection((found.host, found.port))
            connection.sendall(request.encode())
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self._wait(number)

    def close(self) -> int:
        """Leave; returns how many events all of them have received."""
        heard = -1
        while self._events > heard:
            heard = self._events
            time.sleep(_QUIET_SECONDS)
        self._over.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        self._wait(0)
        return self._events

    def _wait(self, number: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while (followers := self._found.tell("usage")["followers"]) != number:
            if number == 0:
                # A server notices that a client has left when it sends something.
                self._found.tell("cycles 1")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{followers} clients follow, {number} expected")
            time.sleep(0.05)

    def _read(self) -> None:
        while not self._over.is_set():
            if not self._selector.get_map():
                self._over.wait(0.05)
                continue
            for key, _ in self._selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                self._events += key.fileobj.recv(1 << 20).count(b"\nevent: decision\n")


def _mixed(found: Running, number: int, seed: int) -> Iterator[tuple[str, str, float, str]]:
    """Requests of all kinds while an execution runs and the controller makes its rounds."""
    admin = {"Authorization": "Bearer admin", "Content-Type": "application/json"}
    connection = found.connection()
    body = json.dumps({"digest": found.digest})
    connection.request("POST", f"/api/v1/proposals/{found.proposal}/approve", body, admin)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        raise BenchmarkError(f"the proposal cannot be approved: {said.decode()}")
    connection.close()
    found.tell("run")
    deadline = time.monotonic() + _START_SECONDS
    while not found.tell("usage")["executing"]:
        if time.monotonic() > deadline:
            raise BenchmarkError("no execution has begun")
        time.sleep(0.05)
    before = found.tell("usage")
    storm = Storm(found)
    halves = []
    for half in range(2):
        storm.send(number // 2, seed + half)
        halves.append(found.tell("usage"))
    after = halves[1]
    statuses = storm.statuses
    subject = "mixed requests"
    yield subject, "requests", float(sum(statuses.values())), "requests"
    for status, count in sorted(statuses.items()):
        yield (
            subject,
            f"status {status}" if status else "connection closed",
            float(count),
            "requests",
        )
    yield (
        subject,
        "answers of 500 and above",
        float(sum(statuses[s] for s in statuses if s >= 500)),
        "requests",
    )
    yield subject, "rounds of the controller", float(after["rounds"] - before["rounds"]), "rounds"
    yield subject, "rounds that failed", float(after["errors"]), "rounds"
    yield subject, "execution runs at the end", float(after["executing"]), "yes"
    yield subject, "memory before", float(before["resident"]), "bytes"
    for place, usage in enumerate(halves, 1):
        count = place * (number // 2)
        yield subject, f"memory after {count:,}", float(usage["resident"]), "bytes"
    yield subject, "threads", float(after["threads"]), "threads"
    yield subject, "processor", after["processor"] - before["processor"], "seconds"


@dataclass
class Storm:
    """Sends requests of all kinds, and counts the answers by status; 0 for none at all.

    Parameters
    ----------
    found
        The server.
    """

    found: Running
    statuses: Counter[int] = field(default_factory=Counter)

    def send(self, number: int, seed: int) -> None:
        """Send requests from some clients at once."""

        def client(place: int) -> Callable[[], None]:
            mine = number // _CLIENTS + (place < number % _CLIENTS)
            return lambda: self._send(mine, random.Random(f"{seed} {place}"))

        _at_once([client(place) for place in range(_CLIENTS)])

    def _send(self, number: int, chance: random.Random) -> None:
        counted: Counter[int] = Counter()
        connection = self.found.connection()
        for _ in range(number):
            method, path, headers, body = any_request(chance, self.found.proposal)
            try:
                connection.request(method, path, body, dict(headers))
                answer = connection.getresponse()
                answer.read()
                counted[answer.status] += 1
            except (http.client.HTTPException, OSError):
                counted[0] += 1
                connection.close()
                connection = self.found.connection()
        connection.close()
        with _counting:
            self.statuses.update(counted)


_counting = threading.Lock()
_PATHS = (
    *(f"/api/v1/{p}" for p in ("state", "cluster", "cluster/racks", "cluster/disks", "goals")),
    *(f"/api/v1/{p}" for p in ("findings", "decisions", "settings", "execution", "proposals")),
    *(f"/api/v1/{p}" for p in ("cluster/topics", "cluster/partitions?broker=1", "audit?limit=5")),
    "/api/v1/cluster/brokers?sort=disk&limit=20",
    "/api/v1/cluster/brokers/1",
    "/api/v1/proposals/{proposal}",
    "/api/v1/jobs/none",
    "/kafkacruisecontrol/state?json=true",
    "/kafkacruisecontrol/partition_load?entries=20",
    "/kafkacruisecontrol/USER_TASKS?json=true",
    "/kafkacruisecontrol/review_board",
    "/",
    "/state",
    "/health/ready",
)
_ODD_PATHS = (
    "//evil.example/state",
    "/api/v1/../../etc/passwd",
    "/api/v1/proposals/..%2f..%2faudit.log",
    "/api/v1/proposals/%00",
    "/api/v1/proposals/%ff%fe",
    "/api/v1/cluster/brokers?limit=-1",
    "/api/v1/cluster/brokers?sort=%ed%a0%80",
    "/api/v1/cluster/brokers/" + "9" * 400,
    "/api/v1/cluster/partitions?topic=" + "a" * 4000,
    "/api/v1/decisions?before=nan",
    "/api/v1/jobs/none?wait=1e9",
    "/kafkacruisecontrol/load?json=true&JSON=false",
    "/kafkacruisecontrol/partition_load?topic=(&json=true",
    "/kafkacruisecontrol/partition_load?entries=99999999999999999999",
    "/kafkacruisecontrol/nothing",
    "/kafkacruisecontrol/state?substates=all",
    "/nothing",
)
_CHANGES = (
    ("POST", "/api/v1/controller/look", "{}"),
    ("PATCH", "/api/v1/execution/limits", '{"throttle": "20MB/s"}'),
    ("PATCH", "/api/v1/execution/limits", '{"throttle": -1}'),
    ("PATCH", "/api/v1/execution/limits", '{"throttle": 1e999}'),
    ("POST", "/api/v1/execution/resume", '{"why": "\\ud800"}'),
    ("POST", "/api/v1/proposals/none/approve", '{"digest": "' + "0" * 64 + '"}'),
    ("POST", "/api/v1/proposals", "{"),
    ("POST", "/api/v1/proposals", '{"bogus": 1}'),
    ("POST", "/api/v1/proposals", '{"goals": "../secret.yaml", "only": []}'),
    ("POST", "/api/v1/what-if", "[" * 900),
    ("POST", "/api/v1/why-not", '{"proposal": "none", "partition": "a-1", "broker": 1}'),
    ("DELETE", "/api/v1/jobs/none", ""),
    ("DELETE", "/api/v1/state", ""),
    ("POST", "/kafkacruisecontrol/review?approve=1", ""),
    ("POST", "/kafkacruisecontrol/rebalance?dryrun=maybe", ""),
    ("POST", "/kafkacruisecontrol/admin?concurrent_leader_movements=5", ""),
)
_WRONG: tuple[Mapping[str, str], ...] = (
    {},
    {"Authorization": "Bearer old"},
    {"Authorization": "Bearer guess"},
    {"Authorization": "Basic !!"},
    {"Authorization": "Digest a"},
    {"Cookie": "session=admin"},
)
_ODD_HEADERS: tuple[Mapping[str, str], ...] = (
    {"Host": "evil.example"},
    {"Host": "a@localhost"},
    {"Origin": "https://evil.example"},
    {"Content-Length": "-1"},
    {"Accept": "\u00ff" * 50},
    {"X-Forwarded-User": "admin"},
    {"User-Task-ID": "none"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"X-Long": "a" * 5000},
)


def any_request(
    chance: random.Random, proposal: str
) -> tuple[str, str, Mapping[str, str], str | None]:
    """A request of any kind: method, path, headers and body."""
    kind = chance.random()
    role = chance.choice(("viewer", "operator", "admin"))
    headers: dict[str, str] = {"Authorization": f"Bearer {role}"}
    method, path, body = "GET", chance.choice(_PATHS).replace("{proposal}", proposal), None
    if kind < 0.15:
        headers = dict(chance.choice(_WRONG))
    elif kind < 0.3:
        path = chance.choice(_ODD_PATHS)
    elif kind < 0.45:
        headers |= chance.choice(_ODD_HEADERS)
    elif kind < 0.6:
        method, path, body = chance.choice(_CHANGES)
        headers["Content-Type"] = "application/json"
    elif kind < 0.602:
        # A wrong password costs some 50 ms of a processor, on purpose.
        wrong = base64.b64encode(b"ann:guess").decode()
        headers = {"Authorization": f"Basic {wrong}"}
    return method, path, headers, body


def _at_once(work: Sequence[Callable[[], None]]) -> None:
    """Do all of it in a thread each.

    Raises
    ------
    BenchmarkError
        If some of it fails.
    """
    failed: list[BaseException] = []

    def done(do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=done, args=(do,)) for do in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise BenchmarkError(f"a client failed: {failed[0]!r}") from failed[0]
