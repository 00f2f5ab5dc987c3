"""A Kafka cluster inside the process, for demonstrations and tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metrics_reporter.clients import ANSWER_TIMEOUT, create
from metrics_reporter.errors import ReporterError


@contextmanager
def mock_cluster(brokers: int = 3) -> Iterator[str]:
    """Run librdkafka's built-in broker on local ports; yields the bootstrap addresses.

    It keeps messages in memory, creates a topic (of four partitions) on first use and
    ends with the context. Close clients before that, or they log lost connections.

    Raises
    ------
    ReporterError
        For fewer than one broker, or without the Kafka client.
    """
    if brokers < 1:
        raise ReporterError(f"mock cluster, brokers: {brokers} found, at least 1 expected")
    host = create("Producer", {"test.mock.num.brokers": brokers, "log_level": 0})
    try:
        nodes = host.list_topics(timeout=ANSWER_TIMEOUT).brokers.values()
        yield ",".join(f"{node.host}:{node.port}" for node in nodes)
    finally:
        # The cluster lives as long as its producer, which a traceback would keep alive.
        del host
