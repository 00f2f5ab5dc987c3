"""Write speed of partitions over a window: measured, published to a topic, and read from it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from balancer.autoscaling.errors import AutoscalingError, NotYetError
from metrics_reporter.clients import MANUAL_POSITIONS, create, kafka, reason, refusal
from metrics_reporter.clocks import boot_clock
from metrics_reporter.documents import Number, shown
from metrics_reporter.metrics import BYTES_IN
from metrics_reporter.quantities import plural
from metrics_reporter.records import Record

Partition = tuple[str, int]
Ask = Callable[[Callable[[Any], Any]], Any]

TOPIC = "monitor.write-speed"
# Seconds after which the topic no longer has a message, so that no window may be longer.
_KEPT = 3600
# The last message of each topic is enough, and an old one of no use.
TOPIC_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(1000 * _KEPT)}
_MOST_MESSAGES = 1000


class TopicSpeeds(BaseModel):
    """What one message says: bytes/s that are written to each partition of a topic.

    Parameters
    ----------
    topic
        The topic.
    at
        When it was measured, in seconds since the epoch.
    window
        Seconds over which it was.
    speeds
        Bytes/s by the number of the partition; those that are not known are left out.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal[1] = 1
    topic: str
    at: Number
    window: Number
    speeds: dict[int, Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class SpeedWindow:
    """Means over the last seconds of what was measured step by step.

    Parameters
    ----------
    seconds
        Length of the window.
    clock
        Seconds that never go back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        # end of each step, and what was measured in it
        self._steps: deque[tuple[float, Mapping[Partition, float]]] = deque()

    def add(self, records: Iterable[Record]) -> dict[Partition, float]:
        """Mean bytes/s of each partition in the window that ends with these records.

        A partition that was not measured in a step, as its topic was deleted or its leader has
        changed, has the mean of the other steps.
        """
        now = self._clock()
        step = {
            (r.topic, r.partition): r.metrics[BYTES_IN]
            for r in records
            if r.topic is not None and r.partition >= 0 and BYTES_IN in r.metrics
        }
        self._steps.append((now, step))
        # the first one only says when the second began
        while len(self._steps) > 2 and now - self._steps[1][0] >= self.seconds:
            self._steps.popleft()
        total: dict[Partition, float] = {}
        seconds: dict[Partition, float] = {}
        before = self._steps[0][0]
        for at, found in list(self._steps)[1:]:
            for partition in step.keys() & found.keys():
                total[partition] = total.get(partition, 0.0) + found[partition] * (at - before)
                seconds[partition] = seconds.get(partition, 0.0) + at - before
            before = at
        return {p: total[p] / seconds[p] for p in total if seconds[p] > 0}


class SpeedPublisher:
    """Measures the write speed of partitions, and publishes it.

    Speeds follow from the sizes of log directories and the ends of partitions
    (:class:`~metrics_reporter.admin.AdminSource`), so that what retention or compaction delete, and
    a topic that is deleted and made again, is no negative speed.

    Parameters
    ----------
    connect
        See :class:`~balancer.autoscaling.kafka_observer.KafkaObserver`.
    producer
        A librdkafka producer.
    topics
        Those that are published; by default all.
    window
        Seconds over which speeds are means.
    to
        The topic they are published to.
    answer_seconds
        Time for Kafka to take a message.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Ask]],
        producer: Any,
        topics: Sequence[str] = (),
        window: float = 30.0,
        to: str = TOPIC,
        answer_seconds: float = 10.0,
    ) -> None:
        from metrics_reporter.admin import AdminSource

        self._source = AdminSource(connect, groups=False)
        self._reports = iter(self._source)
        self._producer, self._topics, self._to = producer, frozenset(topics), to
        self._window, self._seconds = SpeedWindow(window), answer_seconds

    def publish(self) -> int:
        """Measure, and publish what is known; returns the number of partitions.

        Raises
        ------
        AutoscalingError
            If Kafka does not take the messages, or not all of it answers; what is known has been
            published then.
        """
        report = next(self._reports)
        by_topic: dict[str, dict[int, float]] = {}
        for (topic, number), speed in self._window.add(report).items():
            if topic in self._topics or not self._topics:
                by_topic.setdefault(topic, {})[number] = speed
        failures: list[str] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(refusal(error, f"WRITE on topic {self._to}"))

        at = time.time()
        for topic, speeds in by_topic.items():
            message = TopicSpeeds(topic=topic, at=at, window=self._window.seconds, speeds=speeds)
            self._producer.produce(
                self._to, message.model_dump_json().encode(), key=topic, on_delivery=delivered
            )
        left = self._producer.flush(self._seconds)
        if left or failures:
            said = failures[0] if failures else f"no answer within {self._seconds:g} s"
            raise AutoscalingError(f"topic {self._to}: speeds not published: {said}")
        if self._source.problems:
            raise AutoscalingError("; ".join(self._source.problems.values()))
        return sum(map(len, by_topic.values()))


class PublishedSpeeds:
    """Write speeds as they were published last.

    Parameters
    ----------
    bootstrap_servers, properties
        Addresses of brokers, and further properties of the client.
    topic
        Where they are published.
    timeout
        Seconds for Kafka to answer.
    stale_windows
        A speed that is older than so many of its windows, by this machine's clock, is not used.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, Any],
        topic: str = TOPIC,
        timeout: float = 10.0,
        stale_windows: float = 3.0,
    ) -> None:
        self._topic, self._timeout, self._stale = topic, timeout, stale_windows
        # the last to arrive of each topic, and when it is too old
        self._last: dict[str, tuple[TopicSpeeds, float]] = {}
        self._consumer = create(
            "Consumer",
            {
                "log_level": 2,
                **properties,
                "bootstrap.servers": bootstrap_servers,
                # The client insists on a group, which is not used.
                "group.id": topic,
                "auto.offset.reset": "earliest",
                **MANUAL_POSITIONS,
            },
        )
        self._begun = False

    def __call__(self, partitions: Sequence[Partition]) -> list[float]:
        """Bytes/s that are written to each partition.

        Raises
        ------
        NotYetError
            If one is not known, or too old.
        AutoscalingError
            If there is no such topic, or Kafka does not answer.
        """
        module = kafka()
        try:
            if not self._begun:
                self._begin(module)
            # others may write without end
            deadline = boot_clock() + self._timeout
            while messages := self._consumer.consume(_MOST_MESSAGES, 0.1):
                self._note(messages)
                if boot_clock() >= deadline:
                    break
        except module.KafkaException as error:
            raise AutoscalingError(f"topic {self._topic}: {reason(error)}") from None
        now = boot_clock()
        found = [self._speed(p, now) for p in partitions]
        known = [speed for speed in found if speed is not None]
        if len(known) < len(found):
            raise NotYetError(
                f"the write speed of {plural(len(found) - len(known), 'partition')} is not known: "
                f"nothing recent in topic {self._topic}, where counterpoise autoscale monitor "
                "publishes it"
            )
        return known

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _begin(self, module: Any) -> None:
        topics = self._consumer.list_topics(timeout=self._timeout).topics
        if self._topic not in topics:
            raise AutoscalingError(
                f"topic {shown(self._topic)} not found: counterpoise autoscale monitor makes it, "
                "and publishes write speeds there"
            )
        numbers = sorted(topics[self._topic].partitions)
        self._consumer.assign(
            [module.TopicPartition(self._topic, n, module.OFFSET_BEGINNING) for n in numbers]
        )
        self._begun = True

    def _note(self, messages: Sequence[Any]) -> None:
        for message in messages:
            if message.error() is not None:
                continue
            try:
                found = TopicSpeeds.model_validate_json(message.value() or b"")
            except ValidationError:
                continue
            # in the order of arrival, as the monitor's clock may have been put back
            age = max(0.0, time.time() - found.at)
            until = boot_clock() - age + self._stale * min(found.window, _KEPT)
            self._last[found.topic] = found, until

    def _speed(self, partition: Partition, now: float) -> float | None:
        topic, number = partition
        last, until = self._last.get(topic, (None, 0.0))
        return None if last is None or now > until else last.speeds.get(number)
