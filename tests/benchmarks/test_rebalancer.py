from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.judge import balance_metrics, placed
from benchmarks.registry import Options
from benchmarks.subjects import rebalancer
from cluster_model import synthetic_snapshot


@pytest.mark.peer
def test_the_peer_meets_what_it_was_asked(tmp_path: Path) -> None:
    before = synthetic_snapshot(partitions=600, rack_violations=0.1)
    options = Options(peer_timeout=60)
    answer, peak = rebalancer.measure(before, tmp_path, options)
    assert answer.finished
    assert peak > 0
    after = placed(before, answer.replica_broker, answer.leader)
    for metric, value, unit in balance_metrics(after):
        assert value <= (1.1 + 1e-9 if unit == "ratio" else 0), metric
