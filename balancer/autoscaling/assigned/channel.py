"""The control topic: how consumers and their controller reach each other."""

from __future__ import annotations

import logging
import re
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from balancer.autoscaling.errors import AutoscalingError
from metrics_reporter.clients import MANUAL_POSITIONS, create, kafka, reason
from metrics_reporter.documents import shown

log = logging.getLogger("counterpoise.assigned")

# The partition that the controller reads; consumers read the others.
CONTROLLER = 0
# Messages are of use for as long as a lease.
_CONFIG = {"retention.ms": "3600000", "cleanup.policy": "delete"}
_COPIES = 3
_MOST_MESSAGES = 1000
_LOOK_SECONDS = 0.2


def control_topic(group: str) -> str:
    """Name of the control topic of a consumer group.

    Raises
    ------
    AutoscalingError
        If the group has a name that no topic can have.
    """
    name = f"counterpoise-control-{group}"
    if re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is None:
        raise AutoscalingError(
            f"group {shown(group)}: letters, digits, '.', '_' and '-' expected, at most 228 of "
            "them, as its control topic is named after it"
        )
    return name


def address(consumer: str, partitions: int) -> int:
    """The partition of the control topic that a consumer reads.

    Consumers that end with a number have one each if there are enough partitions. Some may share
    one, as every message names the process that is meant.

    Examples
    --------
    >>> address("consumer-0", 7), address("consumer-5", 7), address("consumer-6", 7)
    (1, 6, 1)
    """
    number = re.search(r"\d+$", consumer, re.ASCII)
    found = int(number[0][-18:]) if number else zlib.crc32(consumer.encode())
    return 1 + found % (partitions - 1)


def make_topic(
    bootstrap: str,
    properties: Mapping[str, Any],
    topic: str,
    partitions: int,
    timeout: float,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic unless it exists.

    Raises
    ------
    AutoscalingError
        If it cannot be created.
    """
    module, administration = kafka(), import_module("confluent_kafka.admin")
    try:
        admin = administration.AdminClient(
            {"log_level": 2, **properties, "bootstrap.servers": bootstrap}
        )
    except (module.KafkaException, TypeError, ValueError) as error:
        raise AutoscalingError(f"client properties: {reason(error)}") from None
    try:
        # Without naming the topic: asking for it by name could create it, too small.
        found = admin.list_topics(timeout=timeout)
        if topic in found.topics:
            return
        new = administration.NewTopic(
            topic,
            partitions,
            min(_COPIES, len(found.brokers)),
            config={**_CONFIG, **(config or {})},
        )
        admin.create_topics([new], operation_timeout=timeout)[topic].result(timeout)
    except (module.KafkaException, TimeoutError) as error:
        code = getattr(error.args[0], "code", None) if error.args else None
        if code is None or code() != module.KafkaError.TOPIC_ALREADY_EXISTS:
            raise AutoscalingError(
                f"topic {topic} at {bootstrap} cannot be created: {reason(error)}"
            ) from None


def last_messages(
    bootstrap: str, properties: Mapping[str, Any], topic: str, count: int, within: float
) -> list[bytes]:
    """The last messages to consumers, so many of each partition, as far as there is time.

    Raises
    ------
    AutoscalingError
        If Kafka does not say where the partitions end.
    """
    module, deadline = kafka(), time.monotonic() + within
    own = {"group.id": topic, "auto.offset.reset": "earliest", **MANUAL_POSITIONS}
    consumer = create(
        "Consumer", {"log_level": 2, **properties, "bootstrap.servers": bootstrap, **own}
    )
    found: list[bytes] = []
    try:
        listed = consumer.list_topics(topic, timeout=within).topics[topic].partitions
        left: dict[int, int] = {}
        places = []
        for number in sorted(set(listed) - {CONTROLLER}):
            seconds = max(0.0, deadline - time.monotonic())
            place = module.TopicPartition(topic, number)
            try:
                low, high = consumer.get_watermark_offsets(place, timeout=seconds)
            except module.KafkaException as error:
                # it has no leader: what was said to the others is known all the same
                log.warning("topic %s, partition %d: %s", topic, number, reason(error))
                continue
            if high > low:
                left[number] = high
                places.append(module.TopicPartition(topic, number, max(low, high - count)))
        consumer.assign(places)
        while left and (seconds := deadline - time.monotonic()) > 0:
            for message in consumer.consume(_MOST_MESSAGES, min(seconds, _LOOK_SECONDS)):
                if message.error() is None:
                    found.append(message.value() or b"")
                    if message.offset() + 1 >= left.get(message.partition(), 0):
                        left.pop(message.partition(), None)
    except module.KafkaException as error:
        raise AutoscalingError(f"topic {topic}: {reason(error)}") from None
    finally:
        consumer.close()
    return found


class Channel:
    """Reads one partition of a control topic from its end, and writes to any.

    Messages may be lost: those that send them do so again.

    Parameters
    ----------
    bootstrap, properties
        Addresses of brokers, and further properties of the clients.
    topic
        The control topic.
    answer_seconds
        Time for Kafka to answer.
    """

    def __init__(
        self, bootstrap: str, properties: Mapping[str, Any], topic: str, answer_seconds: float
    ) -> None:
        self._topic, self._seconds = topic, answer_seconds
        # why Kafka does not take messages, and errors that were reported
        self._refused: str | None = None
        self._reported: set[int] = set()
        both = {"log_level": 2, **properties, "bootstrap.servers": bootstrap}
        # The client insists on a group, which is not used.
        own = {"group.id": topic, "auto.offset.reset": "latest", **MANUAL_POSITIONS}
        self._consumer = create("Consumer", {**both, **own})
        self._producer = create(
            "Producer",
            {**both, "linger.ms": 0, "message.timeout.ms": max(1, int(answer_seconds * 1000))},
        )

    def partitions(self, within: float) -> int:
        """Number of partitions of the topic, once it exists.

        Raises
        ------
        AutoscalingError
            If it does not in time.
        """
        deadline, said = time.monotonic() + within, ""
        while time.monotonic() < deadline:
            try:
                topics = self._consumer.list_topics(timeout=self._seconds).topics
                # its leaders may be elected later
                if self._topic in topics and len(topics[self._topic].partitions) > 1:
                    return len(topics[self._topic].partitions)
            except kafka().KafkaException as error:
                said = f": {reason(error)}"
            time.sleep(_LOOK_SECONDS)
        raise AutoscalingError(
            f"topic {self._topic} with at least 2 partitions not found within {within:g} s{said}; "
            "it is made by counterpoise autoscale run --assignor assigned, unless that is a dry run"
        )

    def read(self, partition: int) -> None:
        """Read a partition from its present end on."""
        module = kafka()
        self._consumer.assign([module.TopicPartition(self._topic, partition, module.OFFSET_END)])

    def receive(self, timeout: float) -> list[bytes]:
        """Wait for messages, and return those that are there.

        Raises
        ------
        AutoscalingError
            If Kafka refuses to let the user read or write the topic.
        """
        found = []
        for message in self._consumer.consume(_MOST_MESSAGES, 0) or self._next(timeout):
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            else:
                self._note(error)
        if self._refused is not None:
            said, self._refused = self._refused, None
            raise AutoscalingError(f"topic {self._topic}: {said}")
        return found

    def send(self, partition: int, value: bytes) -> None:
        """Send a message; it may be lost."""
        with suppress(BufferError, kafka().KafkaException):
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._note_delivery
            )
        self._producer.poll(0)

    def close(self) -> None:
        """Send what is not sent yet, and close the clients."""
        self._producer.flush(self._seconds)
        self._consumer.close()

    def _note_delivery(self, error: Any, _: Any) -> None:
        if error is not None:
            self._note(error)

    def _note(self, error: Any) -> None:
        """Report each error once; the clients try again, except where the user has no right."""
        errors, code = kafka().KafkaError, error.code()
        if code in (errors.TOPIC_AUTHORIZATION_FAILED, errors._AUTHENTICATION):
            self._refused = error.str()
        elif code not in self._reported:
            self._reported.add(code)
            log.warning("topic %s: %s", self._topic, error.str())

    def _next(self, timeout: float) -> list[Any]:
        message = self._consumer.poll(timeout)
        return [] if message is None else [message]
