"""A log directory that fails on Kafka becomes a dead disk with its replicas."""

from __future__ import annotations

from typing import Any

from balancer.controller.detect import DeadDiskDetector
from balancer.controller.finding import View
from balancer.controller.settings import DeadDisks
from cluster_model import build_snapshot
from cluster_model.capacities import Capacities
from cluster_model.kafka import as_document


def _answer(path: str, partitions: list[int] | None) -> dict[str, Any]:
    held = [
        {"partition_index": n, "partition_size": 10, "is_future_key": False}
        for n in partitions or ()
    ]
    error = 56 if partitions is None else 0
    topics = [{"name": "t", "partitions": held}] if partitions else []
    return {"error_code": error, "log_dir": path, "topics": topics, "total_bytes": 100}


def test_replicas_of_a_failed_log_directory_are_found_and_reported() -> None:
    replicas = [
        {
            "partition_index": n,
            "leader_id": 2,
            "replica_nodes": [1, 2],
            # The second is only late: its directory is not known, but it is not lost.
            "offline_replicas": [1] if n == 0 else [],
        }
        for n in range(3)
    ]
    document = as_document(
        [{"broker_id": b, "rack": None, "host": f"h{b}"} for b in (1, 2)],
        [{"name": "t", "error_code": 0, "partitions": replicas}],
        {1: [_answer("/a", [2]), _answer("/b", None)], 2: [_answer("/a", [0, 1, 2])]},
        Capacities(default={"disk": 200.0}),
        {},
        ("disk",),
    )
    assert [p.log_dirs for p in document.partitions] == [("/b", "/a"), (None, "/a"), ("/a", "/a")]
    (finding,) = DeadDiskDetector(DeadDisks(heal_after=0)).look(View(build_snapshot(document), 0.0))
    assert finding.state == "ripe"
    assert finding.data["disk"] == "/b"
    assert finding.data["replicas"] == 1
