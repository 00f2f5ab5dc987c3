"""Fixtures of a real Kafka; a test that needs one fails, and never skips, if it is not available.

There are two clusters, one for each group of tests (groups.py). Each is started when its first test
needs it, and closed after its last.

This directory must not become a package: it would take the name of the client, `kafka`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from groups import group
from kafka_cases import PASSWORDS, clear, create_topic, grant
from real_kafka import KafkaCluster, RealKafkaError

from balancer.execution.cluster import Kafka
from cluster_model.kafka import admin_client

HERE = Path(__file__).parent
RACKS = [f"rack-{x}" for x in "abcd"]
_CLUSTERS = pytest.StashKey[list[KafkaCluster]]()
_USED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def start_kafka(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[..., KafkaCluster]]:
    """Start a cluster, which is closed after the last test of the group that runs now."""
    clusters = request.session.stash.setdefault(_CLUSTERS, [])

    def start(**options: Any) -> KafkaCluster:
        cluster = KafkaCluster(
            directory=tmp_path_factory.mktemp("kafka"),
            heap="192m",
            # Members of groups may choose how long theirs is.
            properties={"group.min.session.timeout.ms": "500"},
            **options,
        )
        try:
            clusters.append(cluster.start())
        except RealKafkaError as error:
            pytest.fail(str(error), pytrace=False)
        return cluster

    try:
        yield start
    finally:
        for cluster in clusters:
            cluster.close()


@pytest.hookimpl(trylast=True)  # after fixtures that ask the cluster
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close the clusters after a group: brokers that do nothing take processor time too."""
    if (
        nextitem is None
        or nextitem.path.parent != HERE
        or (group(nextitem.path.name) != group(item.path.name))
    ):
        for cluster in item.session.stash.get(_CLUSTERS, []):
            cluster.close()


@pytest.fixture(scope="session")
def kafka_cluster(start_kafka: Callable[..., KafkaCluster]) -> KafkaCluster:
    """Three brokers on three racks with two log directories each, shared by tests.

    Every test makes its own topics and groups, and leaves the brokers running. Clients may log in
    too, as users that may do what is granted to them here or by tests, for the length of a test.
    """
    kafka = start_kafka(brokers=3, accounts=PASSWORDS)
    with admin_client(kafka.bootstrap, timeout=30) as ask:
        for topic in ("seen", "secret", "metrics", "guarded"):
            create_topic(ask, topic, {0: [0]})
        for who, topic in (("reader", "*"), ("half", "seen"), ("denied", "*")):
            grant(ask, who, "CLUSTER", "kafka-cluster", "DESCRIBE")
            grant(ask, who, "TOPIC", topic, "DESCRIBE")
        grant(ask, "denied", "TOPIC", "__consumer_offsets", "DESCRIBE", permission="DENY")
        grant(ask, "nobody", "TOPIC", "*", "DESCRIBE")
    return kafka


@pytest.fixture(scope="session")
def guarded(kafka_cluster: KafkaCluster) -> str:
    """Bootstrap servers of the same brokers for clients that log in."""
    return kafka_cluster.guarded


@pytest.fixture
def kafka(kafka_cluster: KafkaCluster) -> Iterator[Kafka]:
    """What executions see of the cluster."""
    found = Kafka(kafka_cluster.bootstrap)
    yield found
    found.close()


@pytest.fixture(scope="session")
def _owned(start_kafka: Callable[..., KafkaCluster]) -> KafkaCluster:
    return start_kafka(brokers=4, racks=RACKS, exporter=True)


@pytest.fixture(scope="module")
def owned_kafka(_owned: KafkaCluster, request: pytest.FixtureRequest) -> KafkaCluster:
    """Four brokers on four racks without topics: the module may do with them what it likes.

    Their JMX exporters and internal topics last from module to module. A module that defines
    ``FRESH`` gets newly started brokers instead.
    """
    if hasattr(request.module, "FRESH") and request.session.stash.get(_USED, False):
        _owned.close()
        _owned.start()
    request.session.stash[_USED] = True
    _owned.renew(racks=RACKS)
    clear(_owned)
    return _owned
