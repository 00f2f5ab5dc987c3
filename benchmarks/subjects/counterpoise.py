"""Runs Counterpoise itself, as a user runs it.

python -m benchmarks.subjects.counterpoise SNAPSHOT.npz ANSWER.npz
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from balancer import Balancer
from benchmarks.harness.answers import Answer, load_answer, save_answer
from benchmarks.harness.processes import run_apart
from benchmarks.registry import Options
from cluster_model import load_snapshot, save_snapshot
from cluster_model.snapshot import Snapshot
from goals import (
    Goal,
    LeaderReplicaDistribution,
    RackAwareness,
    ReplicaDistribution,
    ResourceCapacity,
    UsageDistribution,
)

NAME = "counterpoise"
_ROOT = Path(__file__).parents[2]


def stated_goals(resources: Sequence[str]) -> list[Goal]:
    """The goals that the peer has too: racks, capacities, everything at 1.1 times the mean."""
    even: dict[str, Any] = {"threshold": 1.1, "margin": 1.0, "upper_only": True, "tier": 1}
    return [
        RackAwareness(tier=0),
        *(ResourceCapacity(resource=name, threshold=1.0, tier=0) for name in resources),
        *(UsageDistribution(resource=name, **even) for name in resources),
        ReplicaDistribution(**even),
        LeaderReplicaDistribution(**even),
    ]


def run_counterpoise(snapshot: Snapshot) -> Answer:
    """Propose a plan that balances a snapshot, and time it."""
    balancer = Balancer(goals=stated_goals(snapshot.resources))
    began = time.perf_counter()
    plan = balancer.propose(snapshot)
    seconds = time.perf_counter() - began
    held = plan.placement.brokers >= 0
    leader = np.arange(snapshot.n_partitions), plan.placement.leader
    return Answer(
        replica_broker=plan.placement.brokers[held],
        leader=np.cumsum(held, axis=1)[leader] - 1,
        seconds=seconds,
        finished=plan.summary.exhausted is None,
        bytes_lower_bound=plan.summary.cost_bound,
    )


def measure(snapshot: Snapshot, scratch: Path, options: Options) -> tuple[Answer, int]:
    """Balance a snapshot in a separate process; returns the answer and its peak memory."""
    problem, answer = scratch / "snapshot.npz", scratch / "answer.npz"
    save_snapshot(snapshot, problem)
    peak = run_apart([sys.executable, "-m", __name__, problem, answer], NAME, cwd=_ROOT)
    return load_answer(answer, snapshot, NAME), peak


def main(snapshot_path: str, answer_path: str) -> None:
    """Answer the problem in one file in another."""
    save_answer(run_counterpoise(load_snapshot(snapshot_path)), Path(answer_path))


if __name__ == "__main__":
    main(*sys.argv[1:])
