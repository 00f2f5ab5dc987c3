"""Fixtures of a real Kafka; a test that needs one fails, and never skips, if it is not available.

This directory must not become a package: it would take the name of the client, `kafka`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from real_kafka import KafkaCluster, RealKafkaError

from balancer.execution.cluster import Kafka


@contextmanager
def _starting(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., KafkaCluster]]:
    """A function that starts clusters, which are closed in the end."""
    clusters: list[KafkaCluster] = []

    def start(**options: Any) -> KafkaCluster:
        cluster = KafkaCluster(directory=tmp_path_factory.mktemp("kafka"), **options)
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


@pytest.fixture(scope="module")
def start_kafka(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., KafkaCluster]]:
    """Start a cluster with options of its own; it is closed after the module at the latest."""
    with _starting(tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers on three racks with two log directories each, shared by all tests.

    Every test makes its own topics and leaves the brokers running.
    """
    with _starting(tmp_path_factory) as start:
        yield start(brokers=3)


@pytest.fixture
def kafka(kafka_cluster: KafkaCluster) -> Iterator[Kafka]:
    """What executions see of the cluster."""
    found = Kafka(kafka_cluster.bootstrap)
    yield found
    found.close()
