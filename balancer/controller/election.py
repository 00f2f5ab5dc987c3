"""Who of several controllers acts: the one that a Kafka consumer group gives a partition."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from cluster_model.errors import InputError
from metrics_reporter.clients import PATIENCE, create, kafka, reason
from metrics_reporter.errors import ReporterError

log = logging.getLogger("counterpoise.election")

# Of the session, how much the actor trusts; the rest is for clocks that run unalike.
_TRUST = 0.8
_BEATS = 6


class ElectionError(InputError):
    """An election that cannot be held."""


def boot_clock() -> float:
    """Seconds since the machine started, its sleep included."""
    # The broker's clock goes on while this machine sleeps, so must the one of the lease.
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Election:
    """Takes part in a consumer group; :attr:`acting` where it holds partition 0 of a topic.

    Holding the partition is proven again and again by commits, which the group's
    coordinator takes only from the current holder, and each of which starts the session
    anew. Before a session counted from the *sending* of the last good commit is over,
    the coordinator gives the partition to nobody else; acting ends earlier than that. So
    two never act at once, even where one hangs, sleeps or is cut off.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    group
        Name of the consumer group; controllers of one cluster share it.
    topic
        Topic whose partition 0 decides; made with one partition where it is missing.
    session
        Seconds without a sign of life after which another takes over (the brokers allow
        no less than their ``group.min.session.timeout.ms``, 6 s).
    client
        Further properties of the librdkafka consumer.
    clock
        Seconds, steadily rising.

    Examples
    --------
    ::

        with Election("localhost:9092") as election:
            Controller(model, balancer, executor, settings, vote=election).run()
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str = "counterpoise-controller",
        topic: str = "__counterpoise_controller",
        session: float = 10.0,
        client: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        if not 1 <= session <= 1800:
            raise ElectionError(f"election, session: {session:g} s found, 1 to 1800 s expected")
        self._session = session
        self._topic = topic
        self._clock = clock
        self._where = f"election at {bootstrap}"
        self._admin_properties = {"bootstrap.servers": bootstrap, **(client or {})}
        self._properties = {
            **self._admin_properties,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            # A controller that joins must not take the partition from the one that acts.
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(session * 1000),
            "max.poll.interval.ms": max(300_000, int(session * 1000)),
            "heartbeat.interval.ms": max(100, int(session * 1000 / _BEATS)),
            "socket.timeout.ms": max(1000, int(session * 1000)),
            "log_level": 2,
        }
        self._holds = False
        self._until = float("-inf")
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    @property
    def acting(self) -> bool:
        """Whether this one acts; False as soon as that is not certain."""
        return self._holds and self._clock() < self._until

    def start(self) -> Election:
        """Join the group.

        Raises
        ------
        ElectionError
            If the brokers don't answer, refuse, or the topic cannot be made.
        """
        try:
            self._make_topic()
            self._consumer = create("Consumer", self._properties)
            self._consumer.subscribe(
                [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
            )
        except ReporterError as error:
            raise ElectionError(f"{self._where}: {error}") from None
        except kafka().KafkaException as error:
            raise ElectionError(f"{self._where}: {reason(error)}") from None
        self._thread.start()
        return self

    def close(self) -> None:
        """Leave the group, so that another takes over at once."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)

    def __enter__(self) -> Election:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_topic(self) -> None:
        module = kafka()
        administration = import_module("confluent_kafka.admin")
        try:
            admin = administration.AdminClient({**self._admin_properties, "log_level": 2})
        except (module.KafkaException, TypeError, ValueError) as error:
            raise ElectionError(f"{self._where}: client properties: {reason(error)}") from None
        try:
            # Without naming the topic: asking for it by name could create it, too large.
            found = admin.list_topics(timeout=PATIENCE)
            if self._topic in found.topics:
                return
            copies = min(3, len(found.brokers))
            config = {"cleanup.policy": "compact"}
            wanted = administration.NewTopic(self._topic, 1, copies, config=config)
            for future in admin.create_topics([wanted], operation_timeout=PATIENCE).values():
                future.result(PATIENCE)
        except module.KafkaException as error:
            if error.args[0].code() != module.KafkaError.TOPIC_ALREADY_EXISTS:
                raise ElectionError(
                    f"{self._where}: topic {self._topic!r} cannot be made: {reason(error)}"
                ) from None

    def _run(self) -> None:
        module = kafka()
        beat = self._session / _BEATS
        try:
            while not self._closing.is_set():
                # Callbacks of the group run in here.
                message = self._consumer.poll(beat)
                if message is not None and message.error() is not None:
                    log.debug("%s: %s", self._where, message.error().str())
                if self._holds:
                    self._renew(module)
        except Exception as error:
            log.error("%s: %s", self._where, reason(error))
        finally:
            self._holds = False
            self._consumer.close()

    def _renew(self, module: Any) -> None:
        sent = self._clock()
        was = self.acting
        try:
            done = self._consumer.commit(
                offsets=[module.TopicPartition(self._topic, 0, 0)], asynchronous=False
            )
        except module.KafkaException as error:
            log.debug("%s: %s", self._where, reason(error))
        else:
            if done and done[0].error is None:
                self._until = sent + _TRUST * self._session
        if self.acting != was:
            log.info("this controller %s", "acts" if self.acting else "no longer acts")

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)
        if any(p.partition == 0 for p in partitions):
            self._until = float("-inf")
            self._holds = True

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        if any(p.partition == 0 for p in partitions):
            if self.acting:
                log.info("this controller no longer acts")
            self._holds = False
        consumer.incremental_unassign(partitions)
