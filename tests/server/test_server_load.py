"""Many mixed requests while an execution runs: no error, no stall, and nothing that grows."""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from server_cases import Served, planned, served
from waiting import wait_for

READS = [
    "state",
    "cluster",
    "cluster/brokers",
    "cluster/racks",
    "cluster/topics",
    "goals",
    "findings",
    "decisions",
    "settings",
    "execution",
    "proposals",
    "operations",
    "profiles",
    "cluster/partitions?broker=1",
    "nothing",
    "jobs/none",
    "cluster/brokers?sort=dist",
    "openapi.json",
]
# One request in so many changes something.
CHANGES = 12


def resident() -> int:
    """Memory of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS found")


class Clients:
    """Threads that send requests and count the answers."""

    def __init__(self, found: Served, requests: int, seed: int) -> None:
        self.statuses: Counter[int] = Counter()
        self._found, self._requests = found, requests
        threads = [threading.Thread(target=self._send, args=(seed + n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, seed: int) -> None:
        chance, statuses = random.Random(seed), Counter[int]()
        with self._found.client() as client:
            for _ in range(self._requests // 8):
                statuses[self._one(client, chance).status_code] += 1
        self.statuses += statuses

    def _one(self, client: httpx.Client, chance: random.Random) -> httpx.Response:
        if chance.randrange(CHANGES):
            return client.get(f"/api/v1/{chance.choice(READS)}")
        changes: list[Callable[[], httpx.Response]] = [
            lambda: client.post("/api/v1/controller/look"),
            lambda: client.patch("/api/v1/execution/limits", json={"throttle": "20MB/s"}),
            lambda: client.patch("/api/v1/execution/limits", json={"throttle": -1}),
            lambda: client.post("/api/v1/proposals/none/approve", json={"digest": "0" * 64}),
            lambda: client.post("/api/v1/proposals", content=b"{", headers={"Host": "evil"}),
            lambda: client.post("/api/v1/proposals", json={"bogus": 1}),
            lambda: client.post("/api/v1/execution/resume", json={"why": "load"}),
        ]
        return chance.choice(changes)()


@pytest.mark.soak
def test_mixed_requests_while_an_execution_runs(tmp_path: Path) -> None:
    requests = 10_000
    access = {"rates": {"requests": 1e6, "changes": 1e6}, "idle_timeout": 30}
    with (
        served(tmp_path, access=access, settings={"interval": 1.0}) as found,
        found.client() as client,
    ):
        found.executor.may_end.clear()
        job = planned(client, "/api/v1/proposals", {})
        path = f"/api/v1/proposals/{job['proposal']}"
        digest = client.get(path).json()["digest"]
        client.post(f"{path}/approve", json={"digest": digest})
        wait_for(lambda: client.get("/api/v1/execution").json() is not None)
        deaf = [follower(found) for _ in range(20)]
        Clients(found, requests // 4, 0)
        rounds, threads = found.controller.state()["rounds"], threading.active_count()
        first = Clients(found, requests // 2, 100).statuses
        middle = resident()
        second = Clients(found, requests // 4, 200).statuses
        grown = resident() - middle
        for statuses in (first, second):
            assert not [s for s in statuses if s >= 500], statuses
            assert statuses[200] > 0
        # The server has a bounded number of threads; those of clients have ended.
        assert threading.active_count() <= threads + 8
        assert grown < 30e6
        assert found.controller.state()["rounds"] > rounds
        assert not [d for d in found.controller.decisions if d.kind == "error"]
        assert found.controller.work is not None
        found.executor.may_end.set()
        wait_for(lambda: client.get(path).json()["state"] == "executed")
        for connection in deaf:
            connection.close()


def follower(found: Served) -> socket.socket:
    """A connection that follows events and never reads."""
    host, _, port = found.server.url.partition("://")[2].partition(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection
