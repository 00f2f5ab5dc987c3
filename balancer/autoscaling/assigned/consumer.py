"""A consumer that reads what its controller assigns, and stops by itself without one."""

from __future__ import annotations

import logging
import os
import platform
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from balancer.autoscaling.assigned.channel import CONTROLLER, Channel, address, control_topic
from balancer.autoscaling.assigned.member import Member
from balancer.autoscaling.assigned.messages import LONGEST_NAME, Assignment, Partition
from balancer.autoscaling.assigned.meter import ProcessingMeter
from balancer.autoscaling.assigned.settings import ConsumerSettings
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.replicas.processes import NAME_VARIABLE
from metrics_reporter.clients import MANUAL_POSITIONS, create, denied, kafka, reason, refusal
from metrics_reporter.clocks import boot_clock
from metrics_reporter.documents import shown

log = logging.getLogger("counterpoise.assigned")

Told = Callable[[frozenset[Partition]], None]
# Between two looks at what is assigned, and longest wait for a record or a message.
_SLICE = 0.05


class AssignedConsumer:
    """Reads the partitions of a group that ``counterpoise autoscale run`` assigns to it.

    A record counts as processed when the next one is asked for, and not before: so each is to be
    processed inside the loop, and the last one is processed again if the loop ends by ``break`` or
    an exception. What is processed is committed every second, and before a partition is given up;
    so after a crash some records are processed again, and none is left out.

    A thread of its own sends heartbeats, which the controller answers. Without answers the
    consumer stops at the end of its lease, before the controller gives its partitions to another
    one (:class:`~balancer.autoscaling.assigned.member.Member`). No record is begun that could take
    longer than that. This holds as long as records take no longer than
    ``ConsumerSettings.record_seconds``; a consumer that is busy for longer sends no heartbeats. A
    process that is suspended in the middle of a record goes on with it when it is resumed, and
    nothing in the process can prevent that.

    Heartbeats also say how many events the consumer can process: those that it has, over the time
    between handing out a record and being asked for the next one.

    Parameters
    ----------
    bootstrap_servers
        Addresses of brokers.
    group
        The consumer group, whose offsets it commits.
    name
        Its name, of which there should be one; by default ``$COUNTERPOISE_CONSUMER``, which
        ``autoscale run --command`` sets, or the machine's name and the process id.
    properties
        Further properties of the librdkafka clients.
    settings
        Tunable numbers.
    start
        Where partitions begin that were never committed. The end is committed when it was found, so
        that the next reader begins at the same place.
    on_start, on_stop
        Called with partitions before the first of their records, and after the last; what they
        have processed is committed afterwards.

    Raises
    ------
    AutoscalingError
        If there is no control topic in time, or no message can hold the name.

    Examples
    --------
    ::

        with AssignedConsumer("localhost:9092", "orders") as consumer:
            signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
            for record in consumer:
                process(record.topic(), record.value())
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        name: str | None = None,
        *,
        properties: Mapping[str, Any] | None = None,
        settings: ConsumerSettings | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        on_start: Told | None = None,
        on_stop: Told | None = None,
    ) -> None:
        self._settings = s = settings or ConsumerSettings()
        self.name = name or os.environ.get(NAME_VARIABLE) or f"{platform.node()}-{os.getpid()}"
        if not 0 < len(self.name) <= LONGEST_NAME:
            raise AutoscalingError(
                f"consumer {shown(self.name)}: a name of {len(self.name)} characters found, 1 to "
                f"{LONGEST_NAME} expected"
            )
        given = dict(properties or {})
        topic = control_topic(group)
        self._group, self._on_start, self._on_stop = group, on_start, on_stop
        module = kafka()
        self._kafka = module
        self._latest = start == "latest"
        self._consumer = create(
            "Consumer",
            {
                "log_level": 2,
                **given,
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                **MANUAL_POSITIONS,
                "auto.offset.reset": start,
                "on_commit": self._note_commit,
                # a partition that is added waits for the fetch under way to end
                "fetch.wait.max.ms": 50,
                "socket.timeout.ms": max(1000, int(s.answer_seconds * 1000)),
            },
        )
        self._channel = Channel(bootstrap_servers, given, topic, s.answer_seconds)
        try:
            own = address(self.name, self._channel.partitions(s.start_seconds))
        except BaseException:
            self._consumer.close()
            self._channel.close()
            raise
        self._channel.read(own)
        self._member = Member(self.name, f"{self.name}/{uuid.uuid4().hex}", own)
        self._lock = threading.Lock()
        self._stopped, self._closing, self._news = (threading.Event() for _ in range(3))
        # since when the application works on a record; None while it waits for one
        self._busy: float | None = boot_clock()
        self._buffer: deque[Any] = deque()
        self._in_hand: Any = None
        self._reading: frozenset[Partition] = frozenset()
        self._meter = ProcessingMeter(
            s.measured_seconds, s.least_measured_seconds, s.record_seconds
        )
        # when something was read last
        self._read_at = boot_clock()
        # next offset to be processed, and what Kafka has of that
        self._position: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._next_commit = self._next_look = self._next_renewal = float("-inf")
        # why it cannot go on
        self._failure: AutoscalingError | None = None
        self._thread = threading.Thread(target=self._talk, name="heartbeats", daemon=True)
        self._thread.start()

    @property
    def partitions(self) -> frozenset[Partition]:
        """Those that it reads now."""
        return self._reading

    def __iter__(self) -> Iterator[Any]:
        """Records until :meth:`stop` is called."""
        while not self._stopped.is_set():
            yield from self.poll(1.0)

    def poll(self, timeout: float) -> Iterator[Any]:
        """Records that are there, or the first to come within so many seconds.

        Parameters
        ----------
        timeout
            Seconds to wait for a record; it is also what a call without records takes.

        Raises
        ------
        AutoscalingError
            If Kafka refuses to let the user read, the controller's lease is too short for a record,
            or heartbeats have ended.
        """
        deadline = boot_clock() + timeout
        self._count_as_processed()
        self._proceed()
        while not self._buffer and (left := deadline - boot_clock()) > 0:
            if self._stopped.is_set():
                break
            self._fetch(min(left, _SLICE))
            self._proceed()
        while self._buffer and not self._stopped.is_set():
            record = self._buffer.popleft()
            now = boot_clock()
            with self._lock:
                may = self._member.may_process(
                    (record.topic(), record.partition()), now, self._settings.record_seconds
                )
            if not may:
                # the lease may be renewed in time, and if not, this is stopped
                self._buffer.appendleft(record)
                self._wait()
                break
            self._in_hand, self._busy = record, now
            yield record
            self._count_as_processed()
            done = boot_clock()
            self._meter.note(done - now)
            if done >= self._next_look:
                self._proceed()
        self._busy = boot_clock()

    def stop(self) -> None:
        """End :meth:`__iter__` and :meth:`poll` after the present record; from any thread."""
        self._stopped.set()

    def close(self) -> None:
        """Commit what is processed, give all partitions up, and say so.

        The record that was yielded last does not count as processed if no other one was asked for.
        """
        if self._closing.is_set():
            return
        self.stop()
        self._in_hand = self._busy = None
        with self._lock:
            self._member.leave()
        try:
            self._look()
        finally:
            self._closing.set()
            self._thread.join(2 * self._settings.answer_seconds)
            self._consumer.close()

    def __enter__(self) -> AssignedConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count_as_processed(self) -> None:
        self._busy = None
        record, self._in_hand = self._in_hand, None
        if record is not None:
            self._position[record.topic(), record.partition()] = record.offset() + 1

    def _proceed(self) -> None:
        """Look, unless it cannot go on."""
        if self._failure is not None:
            raise self._failure
        self._look()

    def _look(self) -> None:
        """Begin and end what the assignment says, and commit if it is time."""
        now = boot_clock()
        self._next_look = now + _SLICE
        with self._lock:
            change = self._member.due(now)
            certain = now < self._member.until
        if change.stop:
            self._give_up(change.stop, certain)
        missing = self._member.held - self._reading
        if missing:
            self._begin(missing)
        if now >= self._next_renewal:
            self._next_renewal = now + self._settings.renewal_seconds
            # Kafka forgets offsets that are not committed again
            self._committed.clear()
        if now >= self._next_commit:
            self._next_commit = now + self._settings.commit_seconds
            self._commit(self._reading)

    def _give_up(self, partitions: frozenset[Partition], certain: bool) -> None:
        """Stop reading partitions; commit unless the lease is over, as then others commit."""
        reads = partitions & self._reading
        self._reading -= reads
        # the controller hears of it at once, as the commit takes its time
        self._news.set()
        self._buffer = deque(
            r for r in self._buffer if (r.topic(), r.partition()) not in partitions
        )
        self._consumer.incremental_unassign([self._kafka.TopicPartition(*p) for p in reads])
        if reads and self._on_stop is not None:
            self._on_stop(reads)
        if certain:
            deadline = boot_clock() + self._settings.answer_seconds
            while self._commit(reads) and boot_clock() < deadline:
                self._fetch(_SLICE)
        for partition in reads:
            self._position.pop(partition, None)
            self._committed.pop(partition, None)
        with self._lock:
            self._member.stopped(partitions)
        self._news.set()

    def _begin(self, partitions: frozenset[Partition]) -> None:
        """Read partitions from where their last consumer ended; later if Kafka does not say."""
        asked = [self._kafka.TopicPartition(*p) for p in sorted(partitions)]
        try:
            found = self._consumer.committed(asked, self._settings.answer_seconds)
        except self._kafka.KafkaException as error:
            self._refuse(error.args[0])
            return
        for place in found:
            if place.error is not None:
                self._refuse(place.error, place.topic)
        found = [place for place in found if place.error is None]
        if self._latest:
            found = self._at_end(found)
        for place in found:
            if place.offset < 0:
                place.offset = self._kafka.OFFSET_BEGINNING
            else:
                # committed again, as it may be long ago that it was
                self._position[place.topic, place.partition] = place.offset
        begun = frozenset((place.topic, place.partition) for place in found)
        if begun and self._on_start is not None:
            self._on_start(begun)
        self._consumer.incremental_assign(found)
        self._reading |= begun
        if begun:
            self._news.set()

    def _at_end(self, places: list[Any]) -> list[Any]:
        """Places whose offset is known: of those never committed, their end, once it is."""
        known = [place for place in places if place.offset >= 0]
        new = [place for place in places if place.offset < 0]
        if not new:
            return known
        answered: list[Any] = []
        try:
            for place in new:
                ends = self._consumer.get_watermark_offsets(place, self._settings.answer_seconds)
                if ends is None:
                    # no answer in time
                    return known
                place.offset = ends[1]
            with self._lock:
                certain = boot_clock() < self._member.until
            if certain:
                answered = self._consumer.commit(offsets=new, asynchronous=False)
        except self._kafka.KafkaException as error:
            self._refuse(error.args[0])
        for place in answered:
            if place.error is not None:
                self._refuse(place.error, place.topic)
        return known + [place for place in answered if place.error is None]

    def _commit(self, partitions: set[Partition] | frozenset[Partition]) -> bool:
        """Commit what is processed of partitions; whether something is not committed yet."""
        due = [
            self._kafka.TopicPartition(*p, at)
            for p in partitions
            if (at := self._position.get(p)) is not None and at != self._committed.get(p)
        ]
        if due:
            try:
                self._consumer.commit(offsets=due, asynchronous=True)
            except self._kafka.KafkaException as error:
                self._refuse(error.args[0])
        return bool(due)

    def _note_commit(self, error: Any, places: list[Any]) -> None:
        for place in places:
            if error is None and place.error is None:
                self._committed[place.topic, place.partition] = place.offset
            else:
                self._refuse(error or place.error, place.topic)

    def _fetch(self, timeout: float) -> None:
        """Wait for records of partitions that are read; also notes what was committed."""
        for record in self._consumer.consume(self._settings.batch, timeout):
            error = record.error()
            if error is not None:
                # An error of a partition that was given up may come late.
                if self._concerns(record):
                    self._refuse(error, record.topic())
            elif (record.topic(), record.partition()) in self._reading:
                self._buffer.append(record)

    def _concerns(self, record: Any) -> bool:
        """Whether an error is of a partition that is read, or of the consumer as a whole."""
        partition = record.partition()
        whole = record.topic() is None or partition is None or partition < 0
        return whole or (record.topic(), partition) in self._reading

    def _wait(self) -> None:
        self._news.wait(_SLICE)
        self._proceed()

    def _refuse(self, error: Any, topic: str | None = None) -> None:
        """Raise what time will not mend; the client tries everything else again."""
        errors = self._kafka.KafkaError
        if error.fatal() or denied(error) or error.code() == errors._AUTHENTICATION:
            of = "its topics" if topic is None else f"topic {topic}"
            if error.code() == errors.GROUP_AUTHORIZATION_FAILED:
                of = f"group {self._group}"
            raise AutoscalingError(f"consumer {self.name}: {refusal(error, f'READ on {of}')}")
        log.debug("consumer %s: %s", self.name, error.str())

    def _talk(self) -> None:
        """Send heartbeats and receive assignments until closed; then say goodbye."""
        try:
            self._converse()
        except AutoscalingError as error:
            self._failure = error
        except Exception as error:
            log.exception("consumer %s: heartbeats", self.name)
            self._failure = AutoscalingError(
                f"consumer {self.name}: its heartbeats have ended: "
                f"{type(error).__name__}: {reason(error).partition(chr(10))[0]}"
            )
        finally:
            # for iterations that wait for it
            self._news.set()
            self._channel.close()

    def _converse(self) -> None:
        beat_at = float("-inf")
        while not self._closing.is_set():
            try:
                values = self._channel.receive(_SLICE)
            except self._kafka.KafkaException:
                # the lease ends if that goes on
                log.exception("consumer %s: control topic", self.name)
                values = []
                self._closing.wait(self._settings.heartbeat_seconds)
            for value in values:
                message = Assignment.decode(value)
                if message is not None:
                    self._receive(message)
            now = boot_clock()
            if now >= beat_at or self._news.is_set():
                self._news.clear()
                if self._send_heartbeat(now):
                    beat_at = now + self._settings.heartbeat_seconds
        self._send_heartbeat(boot_clock())

    def _receive(self, message: Assignment) -> None:
        s = self._settings
        needed = s.record_seconds + s.heartbeat_seconds
        if message.id == self._member.id and message.lease_seconds <= needed:
            raise AutoscalingError(
                f"consumer {self.name}: the controller's lease of {message.lease_seconds:g} s is "
                f"too short for records that take up to {s.record_seconds:g} s: more than "
                f"{needed:g} s expected, record_seconds and heartbeat_seconds"
            )
        with self._lock:
            if self._member.receive(message, boot_clock()):
                self._news.set()

    def _send_heartbeat(self, now: float) -> bool:
        """Whether one was sent: not while the application is stuck in a record."""
        busy = self._busy
        if busy is not None and now > busy + self._settings.record_seconds:
            return False
        reads = self._reading
        if reads:
            self._read_at = now
        elif now > self._read_at + self._settings.remembered_seconds:
            self._meter.forget()
        with self._lock:
            beat = self._member.heartbeat(now, reads=reads, capacity=self._meter.rate)
        self._channel.send(CONTROLLER, beat.encode())
        return True
