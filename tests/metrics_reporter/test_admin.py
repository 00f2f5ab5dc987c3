"""What Kafka's admin API reports, and the rates that follow from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from metrics_reporter import Record
from metrics_reporter.admin import AdminSource, Ask


class Cluster:
    """A Kafka of brokers 1 and 2, as its admin client answers; partitions of topic t."""

    def __init__(self, partitions: int = 1) -> None:
        self.leader = dict.fromkeys(range(partitions), 1)
        self.start = dict.fromkeys(range(partitions), 0)
        self.end = dict.fromkeys(range(partitions), 0)
        self.size = {(b, p): 0 for b in (1, 2) for p in range(partitions)}
        self.future = 0
        self.committed: dict[str, dict[int, int]] = {}
        self.seconds = 0.0
        self.fails: set[str] = set()

    def write(self, partition: int, records: int, bytes_: int) -> None:
        self.end[partition] += records
        for broker in (1, 2):
            self.size[broker, partition] += bytes_

    def source(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[list[Record]]:
        self.object = AdminSource(self.connect, **options)
        monkeypatch.setattr(time, "monotonic", lambda: self.seconds)
        return iter(self.object)

    @contextmanager
    def connect(self) -> Iterator[Ask]:
        def ask(call: Callable[[Any], Any]) -> Any:
            return call(self)

        if "connect" in self.fails:
            raise RuntimeError("Kafka at b:1\ndid not answer")
        yield ask

    def describe_cluster(self) -> dict[str, Any]:
        return {
            "brokers": [{"broker_id": 1}, {"broker_id": 2}, {"broker_id": 3, "is_fenced": True}]
        }

    def describe_topics(self) -> list[dict[str, Any]]:
        return [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": p, "leader_id": leader, "replica_nodes": [1, 2, 3]}
                    for p, leader in self.leader.items()
                ],
            }
        ]

    def describe_log_dirs(self, held: dict[str, list[int]], brokers: list[int]) -> list[Any]:
        (broker,) = brokers
        if f"sizes of {broker}" in self.fails:
            raise TimeoutError
        reported = [
            {"partition_index": p, "partition_size": self.size[broker, p], "is_future_key": False}
            for p in held["t"]
        ]
        reported += [
            {"partition_index": 0, "partition_size": 5, "is_future_key": True}
        ] * self.future
        dead = {"error_code": 56, "log_dir": "/b", "topics": []}
        fine = {"error_code": 0, "log_dir": "/a", "topics": [{"name": "t", "partitions": reported}]}
        return [{"log_dirs": [dead, fine]}]

    def list_partition_offsets(self, requested: dict[Any, int]) -> dict[Any, Any]:
        return {
            p: SimpleNamespace(offset=(self.end if which == -1 else self.start)[p.partition])
            for p, which in requested.items()
        }

    def list_groups(self) -> list[dict[str, str]]:
        if "groups" in self.fails:
            raise PermissionError("not authorized")
        return [{"group_id": name} for name in self.committed]

    def list_group_offsets(self, groups: list[str]) -> dict[str, dict[Any, Any]]:
        return {
            group: {
                SimpleTopicPartition("t", p): SimpleNamespace(offset=offset)
                for p, offset in self.committed[group].items()
            }
            for group in groups
        }


class SimpleTopicPartition(SimpleNamespace):
    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic=topic, partition=partition)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((self.topic, self.partition))


def said(report: list[Record]) -> dict[tuple[int, int], dict[str, float]]:
    assert {r.topic for r in report} <= {"t"}
    return {(r.broker, r.partition): dict(r.metrics) for r in report}


def test_the_first_report_has_sizes_of_all_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Cluster()
    kafka.future = 1
    kafka.write(0, 10, 1000)
    kafka.size[2, 0] = 900
    report = next(kafka.source(monkeypatch))
    assert said(report) == {(1, 0): {"size": 1000.0}, (2, 0): {"size": 900.0}}


def test_the_leader_is_reported_with_what_was_written_and_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = Cluster(partitions=2)
    kafka.write(0, 10, 1000)
    kafka.committed = {"fast": {0: 10}, "slow": {0: 2}}
    reports = kafka.source(monkeypatch)
    next(reports)
    kafka.seconds = 10
    kafka.write(0, 100, 5000)
    # A group that is new has not read all it begins with.
    kafka.committed = {"fast": {0: 110}, "slow": {0: 42}, "new": {0: 70, 1: -1}}
    assert said(next(reports)) == {
        (1, 0): {"size": 6000.0, "bytes_in": 500.0, "bytes_out": 700.0},
        (1, 1): {"size": 0.0, "bytes_in": 0.0, "bytes_out": 0.0},
        (2, 0): {"size": 6000.0},
        (2, 1): {"size": 0.0},
    }


def test_the_rate_holds_while_retention_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Cluster()
    reports = kafka.source(monkeypatch)
    next(reports)
    for seconds in (10, 20, 30, 40):
        kafka.seconds = seconds
        kafka.write(0, 100, 5000)
        if seconds == 30:
            kafka.start[0] += 150
            kafka.size[1, 0] -= 7500
        assert said(next(reports))[1, 0]["bytes_in"] == pytest.approx(500.0)


def test_a_partition_first_seen_while_it_is_cut_counts_with_its_mean_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = Cluster()
    kafka.write(0, 100, 20_000)
    reports = kafka.source(monkeypatch)
    next(reports)
    kafka.seconds, kafka.start[0] = 10, 50
    kafka.write(0, 50, 0)
    assert said(next(reports))[1, 0]["bytes_in"] == pytest.approx(50 * 20_000 / 100 / 10)


def test_a_new_leader_and_a_recreated_topic_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Cluster()
    kafka.write(0, 10, 1000)
    reports = kafka.source(monkeypatch)
    next(reports)
    kafka.seconds, kafka.leader[0], kafka.size[2, 0] = 10, 2, 99
    kafka.end[0] += 20
    found = said(next(reports))
    assert set(found[1, 0]) == {"size"}
    assert found[2, 0]["bytes_in"] == pytest.approx(20 * 99 / 30 / 10)
    kafka.seconds, kafka.end[0] = 20, 3
    assert set(said(next(reports))[2, 0]) == {"size"}
    kafka.seconds, kafka.leader[0] = 30, -1
    assert all(set(metrics) == {"size"} for metrics in said(next(reports)).values())


def test_what_fails_is_named_and_the_rest_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Cluster()
    reports = kafka.source(monkeypatch)
    kafka.fails = {"sizes of 2", "groups"}
    assert said(next(reports)) == {(1, 0): {"size": 0.0}}
    assert kafka.object.problems == {
        "broker 2": "broker 2 reported no sizes: TimeoutError",
        "groups": "consumer groups not measured: not authorized",
    }
    kafka.fails = {"connect"}
    assert next(reports) == []
    assert kafka.object.problems["admin"] == "Kafka not measured: Kafka at b:1 did not answer"
    kafka.fails = set()
    assert len(next(reports)) == 2
    assert (kafka.object.problems, kafka.object.failed) == ({}, 1)


def test_groups_need_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Cluster()
    kafka.fails = {"groups"}
    reports = kafka.source(monkeypatch, groups=False)
    next(reports)
    kafka.seconds = 1
    assert said(next(reports))[1, 0]["bytes_out"] == 0
    assert kafka.object.problems == {}
