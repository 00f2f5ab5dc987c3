from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.judge import balance_metrics, move_metrics, placed
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


@pytest.mark.peer
def test_the_peer_keeps_a_limit_on_moves(tmp_path: Path) -> None:
    before = synthetic_snapshot(partitions=600, rack_violations=0.1)
    options = Options(peer_timeout=60)
    usage = ("network_in",)
    answer, _ = rebalancer.measure(before, tmp_path, options, only_usage=usage, limits=(20, 10))
    after = placed(before, answer.replica_broker, answer.leader)
    moved = dict(m[:2] for m in move_metrics(before, after))["moves"]
    assert 0 < moved <= 20
    worst = "worst / mean network_in"
    was, now = (dict(m[:2] for m in balance_metrics(s))[worst] for s in (before, after))
    assert now < was
