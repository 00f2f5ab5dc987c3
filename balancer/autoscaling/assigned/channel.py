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
from metrics_reporter.clients import MANUAL_POSITIONS, create, denied, kafka, reason, refusal
from metrics_reporter.documents import shown

log = logging.getLogger("counterpoise.assigned")

# The partition that the controller reads; consumers read the others.
CONTROLLER = 0
# Messages are of use for as long as a lease.
_CONFIG = {"retention.ms": "3600000", "cleanup.policy": "delete"}
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
    *,
    copies: int = 3,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic unless it exists.

    Parameters
    ----------
    bootstrap, properties
        Addresses of brokers, and further properties of the client.
    topic, partitions
        Its name and number of partitions.
    timeout
        Seconds for Kafka to answer.
    copies
        Replicas of each partition; fewer if there are fewer brokers.
    config
        Its configuration; by default that of a control topic.

    Raises
    ------
    AutoscalingError
        If it cannot be created; names the right that is missing.
    """
    module, administration = kafka(), import_module("confluent_kafka.admin")
    admin = _admin(bootstrap, properties)
    try:
        # Without naming the topic: asking for it by name could create it, too small.
        found = admin.list_topics(timeout=timeout)
        if topic in found.topics:
            return
        new = administration.NewTopic(
            topic,
            partitions,
            min(copies, len(found.brokers)),
            config={**_CONFIG, **(config or {})},
        )
        admin.create_topics([new], operation_timeout=timeout)[topic].result(timeout)
    except (module.KafkaException, TimeoutError) as error:
        inner = error.args[0] if isinstance(error, module.KafkaException) else None
        if inner is None or inner.code() != module.KafkaError.TOPIC_ALREADY_EXISTS:
            why = reason(error) if inner is None else refusal(inner, f"CREATE on topic {topic}")
            raise AutoscalingError(
                f"topic {topic} at {bootstrap} cannot be created: {why}"
            ) from None


def check_rights(bootstrap: str, properties: Mapping[str, Any], topic: str, timeout: float) -> None:
    """Check that the user may read and write a topic, as far as Kafka says.

    A topic that a broker does not know is waited for: brokers learn of a new one after it is made.

    Raises
    ------
    AutoscalingError
        Naming the rights that are missing, or if no broker knows the topic in time.
    """
    module, administration = kafka(), import_module("confluent_kafka.admin")
    admin, needed = _admin(bootstrap, properties), administration.AclOperation
    deadline = time.monotonic() + timeout
    while True:
        left = max(deadline - time.monotonic(), _LOOK_SECONDS)
        try:
            found = admin.describe_topics(
                module.TopicCollection([topic]),
                include_authorized_operations=True,
                request_timeout=left,
            )[topic].result(left + 1.0)
            break
        except module.KafkaException as error:
            unknown = error.args[0].code() == module.KafkaError.UNKNOWN_TOPIC_OR_PART
            if not unknown or time.monotonic() >= deadline:
                why = refusal(error.args[0], f"READ and WRITE on topic {topic}")
                raise AutoscalingError(f"topic {topic} at {bootstrap}: {why}") from None
        except TimeoutError as error:
            raise AutoscalingError(f"topic {topic} at {bootstrap}: {error}") from None
        time.sleep(_LOOK_SECONDS)
    # some brokers do not say
    if allowed := found.authorized_operations:
        missing = [right.name for right in (needed.READ, needed.WRITE) if right not in allowed]
        if missing:
            raise AutoscalingError(
                f"topic {topic} at {bootstrap}: Topic authorization failed; give the client's "
                f"user the right to {' and '.join(missing)} on topic {topic}"
            )


def _admin(bootstrap: str, properties: Mapping[str, Any]) -> Any:
    """An admin client of librdkafka."""
    module, administration = kafka(), import_module("confluent_kafka.admin")
    try:
        return administration.AdminClient(
            {"log_level": 2, **properties, "bootstrap.servers": bootstrap}
        )
    except (module.KafkaException, TypeError, ValueError) as error:
        raise AutoscalingError(f"client properties: {reason(error)}") from None


def last_messages(
    bootstrap: str, properties: Mapping[str, Any], topic: str, count: int, within: float
) -> list[bytes]:
    """The last messages to consumers, so many of each partition, as far as there is time.

    Raises
    ------
    AutoscalingError
        If Kafka does not know the topic, or does not say where the partitions end.
    """
    module, deadline = kafka(), time.monotonic() + within
    own = {"group.id": topic, "auto.offset.reset": "earliest", **MANUAL_POSITIONS}
    consumer = create(
        "Consumer", {"log_level": 2, **properties, "bootstrap.servers": bootstrap, **own}
    )
    found: list[bytes] = []
    try:
        listed = consumer.list_topics(topic, timeout=within).topics[topic]
        if listed.error is not None:
            raise AutoscalingError(f"topic {topic}: {listed.error.str()}")
        left: dict[int, int] = {}
        places = []
        for number in sorted(set(listed.partitions) - {CONTROLLER}):
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
        own = {
            "group.id": topic,
            "auto.offset.reset": "latest",
            # asking for it must not create it: it would have one partition
            "allow.auto.create.topics": False,
            **MANUAL_POSITIONS,
        }
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
            If it does not in time, or the user may not see it.
        """
        deadline, said = time.monotonic() + within, ""
        while time.monotonic() < deadline:
            try:
                found = self._consumer.list_topics(self._topic, self._seconds).topics[self._topic]
            except kafka().KafkaException as error:
                said = f": {reason(error)}"
            else:
                # its leaders may be elected later
                if len(found.partitions) > 1:
                    return len(found.partitions)
                if found.error is not None and denied(found.error):
                    raise AutoscalingError(
                        f"topic {self._topic}: "
                        f"{refusal(found.error, f'READ and WRITE on topic {self._topic}')}"
                    )
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
                self._note(error, "READ")
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
            self._note(error, "WRITE")

    def _note(self, error: Any, right: str) -> None:
        """Report each error once; the clients try again, except where the user has no right."""
        errors, code = kafka().KafkaError, error.code()
        if code == errors.GROUP_AUTHORIZATION_FAILED:
            # the client's group is not used
            return
        if denied(error) or code == errors._AUTHENTICATION:
            self._refused = refusal(error, f"{right} on topic {self._topic}")
        elif code not in self._reported:
            self._reported.add(code)
            log.warning("topic %s: %s", self._topic, error.str())

    def _next(self, timeout: float) -> list[Any]:
        message = self._consumer.poll(timeout)
        return [] if message is None else [message]
