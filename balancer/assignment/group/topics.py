"""The topics of a group: makes the changelog, and asks for its ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from balancer.assignment.group.errors import GroupError
from metrics_reporter.clients import reason

log = logging.getLogger(__name__)


class Topics:
    """Questions about topics; every answer has a deadline.

    Parameters
    ----------
    bootstrap_servers
        Addresses of brokers.
    timeout
        Seconds to wait for an answer.
    """

    def __init__(self, bootstrap_servers: str, timeout: float = 10.0) -> None:
        try:
            from confluent_kafka import KafkaException, admin
        except ImportError:
            raise GroupError(
                "confluent_kafka is not installed: pip install 'counterpoise[kafka]'"
            ) from None
        self._admin: Any = admin.AdminClient(
            {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        )
        self._api: Any = admin
        self._error: type[Exception] = KafkaException
        self._servers, self._timeout = bootstrap_servers, timeout

    def partitions(self, topic: str) -> int:
        """Number of partitions of a topic, 0 if it does not exist.

        Raises
        ------
        GroupError
            If no broker answers.
        """
        try:
            # Asking for one topic would create it on brokers that allow that.
            topics = self._admin.list_topics(timeout=self._timeout).topics
        except self._error as error:
            raise GroupError(f"{self._servers}: {reason(error)}") from None
        return len(topics[topic].partitions) if topic in topics else 0

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic unless it exists, and wait until it can be used.

        Raises
        ------
        GroupError
            If it cannot be created, or has another number of partitions.
        """
        deadline = time.monotonic() + self._timeout
        if not self.partitions(topic):
            new = self._api.NewTopic(topic, partitions, config=config)
            try:
                self._admin.create_topics([new])[topic].result(self._timeout)
            except (self._error, TimeoutError) as error:
                # Another member may have been faster.
                if not self.partitions(topic):
                    raise GroupError(f"topic {topic}: {reason(error)}") from None
        # A broker learns of a new topic a moment after it is made.
        while not (found := self.partitions(topic)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if found != partitions:
            raise GroupError(f"topic {topic}: {found} partitions found, {partitions} expected")

    def ends(self, topic: str, partitions: Sequence[int], timeout: float) -> dict[int, int] | None:
        """End of the committed records of each partition; None if it cannot be had in time."""
        deadline = time.monotonic() + timeout
        try:
            try:
                return self._ends(topic, partitions, timeout)
            except self._error:
                # The client keeps what it knows of leaders. A broker that has restarted since
                # refuses that (FENCED_LEADER_EPOCH), for good unless the client asks again.
                self._admin.list_topics(timeout=max(deadline - time.monotonic(), 0.001))
                return self._ends(topic, partitions, max(deadline - time.monotonic(), 0.001))
        except (self._error, TimeoutError) as error:
            log.warning("topic %s: end offsets unknown: %s", topic, reason(error))
            return None

    def _ends(self, topic: str, partitions: Sequence[int], timeout: float) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        asked = {TopicPartition(topic, p): self._api.OffsetSpec.latest() for p in partitions}
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout
        )
        return {tp.partition: f.result(timeout).offset for tp, f in futures.items()}
