"""Healing continues if log directories or some topics cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from controller_cases import Stage

from balancer.composition.source import KafkaSource, Notices
from balancer.controller import PlainCluster
from cluster_model.capacities import Capacities
from cluster_model.kafka import KafkaSourceError, read_cluster

REFUSED = 29


class Admin:
    """The answers of a cluster of four brokers, the last of them dead."""

    def __init__(self, silent: tuple[int, ...] = (), hidden: tuple[str, ...] = ()) -> None:
        self.silent, self.hidden = silent, hidden
        self.asked: list[int] = []

    def describe_cluster(self) -> dict[str, Any]:
        brokers = [{"broker_id": b, "rack": f"r{b}", "host": f"h{b}"} for b in (1, 2, 3)]
        return {"cluster_id": "c", "brokers": brokers}

    def list_partition_reassignments(self) -> dict[Any, Any]:
        return {}

    def describe_topics(self, names: list[str] | None = None) -> list[dict[str, Any]]:
        if names is not None:
            return [
                {"name": n, "error_code": REFUSED if n in self.hidden else 3, "partitions": []}
                for n in names
            ]
        held = [[1, 4], [2, 4], [3, 1], [1, 2]]
        partitions = [
            {
                "partition_index": i,
                "leader_id": replicas[0],
                "replica_nodes": replicas,
                "offline_replicas": [b for b in replicas if b == 4],
            }
            for i, replicas in enumerate(held)
        ]
        return [{"name": "t", "error_code": 0, "partitions": partitions}]

    def describe_log_dirs(self, topics: Any, brokers: list[int]) -> list[Any]:
        (broker,) = brokers
        self.asked.append(broker)
        if broker in self.silent:
            raise KafkaSourceError("Kafka did not answer in 1 s")
        topics = [{"name": name, "partitions": []} for name in ("t", *self.hidden)]
        reported = {"error_code": 0, "log_dir": "/d", "topics": topics}
        return [{"log_dirs": [{**reported, "total_bytes": 1000, "usable_bytes": 500}]}]

    def describe_features(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Admin]:
    def serve(**options: Any) -> Admin:
        admin = Admin(**options)

        @contextmanager
        def client(*args: Any, **kwargs: Any) -> Iterator[Any]:
            yield lambda call: call(admin)

        monkeypatch.setattr("cluster_model.kafka.admin_client", client)
        return admin

    return serve


def source(reported: list[str]) -> KafkaSource:
    return KafkaSource("k:1", None, {}, None, 1.0, Notices(reported.append))


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"silent": (2,)}, "the log directories of brokers 2 are not known"),
        ({"silent": (1, 2, 3)}, "the log directories of brokers 1, 2, 3 are not known"),
        ({"hidden": ("secret",)}, "for example secret, cannot be described: they are not healed"),
    ],
)
def test_a_dead_broker_is_healed(
    kafka: Callable[..., Admin], trouble: dict[str, Any], said: str
) -> None:
    kafka(**trouble)
    reported: list[str] = []
    of = source(reported)
    # Other snapshots stay strict.
    with pytest.raises(KafkaSourceError):
        of.read()
    stage = Stage(of.placement(), {"dead_brokers": {"heal_after": 0}})
    plain = PlainCluster(of.read, of.placement)
    for name in ("snapshot", "placement"):
        setattr(stage.model, name, getattr(plain, name))
    assert stage.rounds(1) == ["executed"]
    (plan,) = stage.executor.plans
    assert {a.source for a in plan.actions if a.kind == "move"} == {4}
    assert not (plan.final_snapshot().broker_ids[plan.final_snapshot().replica_broker] == 4).any()
    stage.rounds(1)
    assert len([t for t in reported if said in t]) == 1
    assert len(reported) == 1


def test_brokers_that_hang_are_not_waited_for_one_after_another(
    kafka: Callable[..., Admin], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = kafka(silent=(1, 2, 3))
    now = iter(range(0, 1000, 15))
    monkeypatch.setattr("cluster_model.kafka.time.monotonic", lambda: float(next(now)))
    reported: list[str] = []
    s = read_cluster(
        "k:1",
        capacity=Capacities.model_validate({"default": {"disk": 1e18}}),
        resources=("disk",),
        placement_only=True,
        notice=reported.append,
    )
    assert admin.asked == [1]
    assert s.n_partitions == 4
    assert "brokers 1, 2, 3" in reported[0]
