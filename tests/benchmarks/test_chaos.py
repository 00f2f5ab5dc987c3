from __future__ import annotations

import time

from balancer.execution.cluster import Key, PartitionView
from balancer.execution.journal import RecordedExecution
from balancer.execution.targets import Target
from balancer.execution.tasks import Task
from benchmarks.chaos import misplaced_partitions
from benchmarks.harness.ledger import Ledger
from benchmarks.registry import all_benchmarks
from metrics_reporter import mock_cluster

A = Key("a", 0)


def test_it_is_listed() -> None:
    assert all_benchmarks()["chaos"].sizes == ("S", "M", "L")


def test_an_execution_ends_right_where_its_last_completed_task_led() -> None:
    steps = [((0, 1), (0, 2)), ((0, 2), (1, 2))]
    recorded = RecordedExecution(
        "id",
        [Target(topic="a", partition=0, origin=(0, 1), target=(1, 2))],
        {
            i: Task(id=i, phase="move", topic="a", partition=0, origin=old, target=new)
            for i, (old, new) in enumerate(steps)
        },
        {0: "completed", 1: "dead"},
    )
    assert misplaced_partitions(recorded, {A: PartitionView((2, 0))}) == []
    assert misplaced_partitions(recorded, {A: PartitionView((1, 2))}) == [
        "a-0 on [1, 2], [0, 2] expected"
    ]


def test_the_ledger_finds_what_is_lost() -> None:
    with mock_cluster() as bootstrap:
        ledger = Ledger(bootstrap, [A, Key("a", 1)], per_second=500)
        with ledger:
            while ledger.acknowledged < 20:
                time.sleep(0.01)
            assert ledger.lost() == 0
        assert ledger.lost() == 0
        assert ledger.lost(all_again=True) == 0
        # Acknowledged, but never written.
        ledger._acknowledged[A].add(1_000_000)
        assert ledger.lost() == 1
        assert ledger.lost(all_again=True) == 1
