"""The topic of decisions: the autoscaler writes the newest of each group, its consumers read it.

It is compacted, so that a leader knows the last decision although no autoscaler runs, and needs no
address of one.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.packed.message import DecidedAssignment, decided, same_consumers
from balancer.autoscaling.policy import Decision
from metrics_reporter.clients import create, reason, refusal

log = logging.getLogger(__name__)

DECISIONS_TOPIC = "counterpoise-decisions"
_POLL_MS = 200

Ask = Callable[[Callable[[Any], Any]], Any]


class DecisionWriter:
    """Writes what has been decided for one group.

    Nothing is written if it is what was written last, and the group already follows it. If not,
    another controller may have written in between, or the topic may have been recreated.

    Parameters
    ----------
    connect
        Returns a context manager of a function that runs another with a kafka-python admin client.
    properties
        Properties of a confluent-kafka producer.
    group
        The consumer group.
    topic
        The topic of decisions; made at the first one if it is missing.
    may_write
        Asked before every message: whether this process is the one that may.
    timeout
        Seconds for Kafka to take a message.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Ask]],
        properties: Mapping[str, Any],
        group: str,
        *,
        topic: str = DECISIONS_TOPIC,
        may_write: Callable[[], bool] = lambda: True,
        timeout: float = 10.0,
    ) -> None:
        self._connect, self._properties = connect, dict(properties)
        self._group, self._topic = group, topic
        self._may_write, self._timeout = may_write, timeout
        self._producer: Any = None
        self._written: DecidedAssignment | None = None

    def write(self, observation: Observation, decision: Decision) -> bool:
        """Write a decision; returns whether it is Kafka's now.

        Raises
        ------
        AutoscalingError
            If Kafka does not take it.
        InputError
            If the topic cannot be made.
        """
        message = decided(observation, decision)
        if not message.topics:
            return False
        follows = np.array_equal(decision.consumer, observation.group.consumer)
        if follows and self._written is not None and same_consumers(message, self._written):
            return True
        if not self._may_write():
            return False
        if self._producer is None:
            self._make_topic()
            self._producer = create(
                "Producer",
                {
                    **self._properties,
                    "acks": "all",
                    "message.timeout.ms": max(1, int(self._timeout * 1000)),
                },
            )
        failures: list[str] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(refusal(error, f"WRITE on topic {self._topic}"))

        try:
            self._producer.produce(
                self._topic,
                message.encode(),
                self._group.encode(),
                partition=0,
                on_delivery=delivered,
            )
        except Exception as error:
            failures.append(reason(error))
        # longer than the message itself may wait
        left = self._producer.flush(self._timeout + 1.0)
        if failures or left:
            # the topic is made again if it is missing
            self._producer = None
            why = failures[0] if failures else f"no answer in {self._timeout:g} s"
            raise AutoscalingError(f"topic {self._topic}: the decision was not written: {why}")
        self._written = message
        return True

    def _make_topic(self) -> None:
        with self._connect() as ask:
            if self._topic in ask(lambda admin: admin.list_topics()):
                return
            new = {
                self._topic: {
                    "num_partitions": 1,
                    "replication_factor": -1,
                    "configs": {"cleanup.policy": "compact"},
                }
            }
            ask(lambda admin: admin.create_topics(new, wait_for_metadata=True))


@dataclass(frozen=True)
class Known:
    """A decision, its place in the topic, and what identifies its content.

    Of two, the one with the higher place is newer, unless the topic was recreated.
    """

    number: int
    content: str
    decision: DecidedAssignment


class DecisionReader:
    """Follows the decisions for one group, in a thread of its own.

    Parameters
    ----------
    configs
        Of kafka-python: where the brokers are, and how to log in.
    group
        The consumer group.
    topic
        The topic of decisions. While there is none, there is no decision.
    look
        Called in the thread several times a second, with whatever is known then.
    """

    def __init__(
        self,
        configs: Mapping[str, Any],
        group: str,
        topic: str,
        look: Callable[[], None],
    ) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self._group, self._look = group.encode(), look
        self._partition = TopicPartition(topic, 0)
        self._known: Known | None = None
        self._current = threading.Event()
        self._closing = threading.Event()
        self._consumer = KafkaConsumer(
            **configs,
            group_id=None,
            enable_auto_commit=False,
            # of a topic that is recreated
            auto_offset_reset="earliest",
            # a consumer must not make the topic: it would not be compacted
            allow_auto_create_topics=False,
        )
        self._thread = threading.Thread(target=self._follow, name="decisions", daemon=True)
        self._thread.start()

    @property
    def known(self) -> Known | None:
        """The newest decision."""
        return self._known

    def wait(self, seconds: float) -> bool:
        """Wait until what was in the topic at the start has been read; whether it was."""
        return self._current.wait(seconds)

    def close(self) -> None:
        """Stop."""
        self._closing.set()
        self._thread.join(5.0)

    def _follow(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._read()
                except Exception as error:
                    log.warning("decisions of %s: %s", self._partition.topic, error)
                    self._closing.wait(1.0)
        finally:
            self._consumer.close()

    def _read(self) -> None:
        """Read on until closed, or until the client fails."""
        while not self._consumer.partitions_for_topic(self._partition.topic):
            # a group without an autoscaler has none
            self._current.set()
            self._look()
            if self._closing.wait(1.0):
                return
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)
        end = self._consumer.end_offsets([self._partition])[self._partition]
        while not self._closing.is_set():
            for record in self._consumer.poll(_POLL_MS).get(self._partition, ()):
                self._take(record)
            if self._consumer.position(self._partition) >= end:
                self._current.set()
            self._look()

    def _take(self, record: Any) -> None:
        if record.key != self._group or record.value is None:
            return
        try:
            decision = DecidedAssignment.decode(record.value)
            content = hashlib.sha256(record.value).hexdigest()
            self._known = Known(record.offset, content, decision)
        except AutoscalingError as error:
            log.warning("offset %d of %s: %s", record.offset, self._partition.topic, error)
