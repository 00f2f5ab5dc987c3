"""Elects which of several controllers and executions acts, with a Kafka consumer group."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from cluster_model.errors import InputError
from metrics_reporter.clients import (
    ANSWER_TIMEOUT,
    MANUAL_POSITIONS,
    create,
    kafka,
    passing,
    reason,
    refusal,
)
from metrics_reporter.clocks import boot_clock
from metrics_reporter.errors import ReporterError

log = logging.getLogger("counterpoise.election")

# Share of the session that the actor relies on; the rest allows for clock drift.
_TRUST = 0.8
_BEATS = 6
# The client starves calls from other threads while one thread polls, so the polling thread
# makes all calls, and checks this often, in seconds, for requests of other threads.
_SLICE = 0.05
_ASK_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
# The longest that the client allows.
_MOST_SOCKET_MS = 300_000


class ElectionError(InputError):
    """An election that cannot be held."""


class _Commit(NamedTuple):
    """A commit that was sent: when, in which tenure and epoch, and the proofs it answers."""

    sent: float
    tenure: int
    epoch: int
    proofs: int


class Election:
    """Takes part in a consumer group; :attr:`acting` while it holds partition 0 of a topic.

    Commits prove repeatedly that the partition is held: the group's coordinator accepts them
    only from a member of the current generation, and each one restarts the session. Until a
    session counted from the *sending* of the last successful commit is over, the coordinator
    gives the partition to no other member; acting ends earlier than that. A failed commit ends
    nothing before then. So two never act at once, even if one hangs, sleeps or is cut off.

    No clock here advances while a virtual machine is paused. So anything that requires the
    vote, such as a write to Kafka, is preceded by :meth:`prove`, a separate commit.

    The committed offset is the **epoch**: a process that gains the partition commits a higher
    one. A process that loses the partition and regains it with no other in between keeps its
    epoch.

    The partition itself is never read or written: it may be offline. The group's coordinator
    is needed, so the election resumes as soon as ``__consumer_offsets`` has a leader again.

    A process that must not act for a time, such as a paused controller, leaves the group with
    :meth:`resign`, so that others may act, and enters it again with :meth:`rejoin`. Call
    :meth:`resign` only after its own execution has ended: after that it can write nothing.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    group
        Name of the consumer group; controllers and executions of one cluster share it.
    topic
        Topic whose partition 0 decides; created with one partition if missing.
    session
        Seconds without a sign of life after which another takes over (brokers allow no less
        than their ``group.min.session.timeout.ms``, 6 s).
    client
        Further properties of the librdkafka consumer.
    clock
        Monotonic clock in seconds.
    name
        Name of this participant in the :attr:`holder` of others; by default the process.

    Examples
    --------
    ::

        with Election("localhost:9092") as election:
            executor = Executor("localhost:9092", journal=path, vote=election)
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
        name: str = "counterpoise",
    ) -> None:
        if not 1 <= session <= 1800:
            raise ElectionError(f"election, session: {session:g} s found, 1 to 1800 s expected")
        self._session = session
        self._topic = topic
        self._clock = clock
        self._name = f"{name}, process {os.getpid()} on {platform.node() or 'an unnamed host'}"
        self._where = f"election at {bootstrap}"
        self._admin_properties = {"bootstrap.servers": bootstrap, **(client or {})}
        self._properties = {
            **self._admin_properties,
            "group.id": group,
            **MANUAL_POSITIONS,
            "auto.offset.reset": "latest",
            "on_commit": self._committed,
            # A controller that joins must not take the partition from the one that acts.
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(session * 1000),
            "max.poll.interval.ms": max(300_000, int(session * 1000)),
            "heartbeat.interval.ms": max(100, int(session * 1000 / _BEATS)),
            "socket.timeout.ms": min(max(1000, int(session * 1000)), _MOST_SOCKET_MS),
            "log_level": 2,
        }
        self._changed = threading.Condition()
        self._holds = False
        # Counts every gain and loss of the partition.
        self._tenure = 0
        self._confirmed = False
        self._epoch: int | None = None
        self._previous: int | None = None
        self._holder: str | None = None
        self._until = float("-inf")
        self._sent: dict[int, _Commit] = {}
        self._number = 0
        self._asked = self._asking = self._proved = 0
        self._next_beat = self._next_look = float("-inf")
        self._requested, self._leaving, self._joined = True, False, False
        self._closing = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    @property
    def acting(self) -> bool:
        """Whether this process acts; False as soon as that is not certain."""
        return self._confirmed and self._clock() < self._until

    @property
    def epoch(self) -> int | None:
        """The latest epoch of this process; None if it has none, or another has taken over."""
        return self._epoch

    @property
    def previous(self) -> int | None:
        """The epoch before :attr:`epoch`, of any holder; None if there was none."""
        return self._previous

    @property
    def holder(self) -> str | None:
        """The last known holder of the vote."""
        return self._holder

    def prove(self, within: float) -> int | None:
        """The epoch, if the coordinator confirms now that the vote is held.

        Parameters
        ----------
        within
            Seconds to wait for that, including the wait for the vote if it is not held yet.
        """
        deadline = time.monotonic() + within
        with self._changed:
            self._asked += 1
            number = self._asked
            while self._proved < number:
                left = deadline - time.monotonic()
                if left <= 0 or self._ended or not self._requested:
                    return None
                self._changed.wait(left)
            return self._epoch if self._confirmed else None

    def resign(self) -> None:
        """Leave the group until :meth:`rejoin`, so that another may act; from any thread."""
        with self._changed:
            self._requested, self._leaving = False, True
            self._lose()
            self._epoch = None

    def rejoin(self) -> None:
        """Enter the group again; from any thread."""
        with self._changed:
            self._requested = True

    def start(self) -> Election:
        """Join the group.

        Raises
        ------
        ElectionError
            If the brokers don't answer, refuse, or the topic cannot be created.
        """
        try:
            self._make_topic()
            self._consumer = create("Consumer", self._properties)
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
            self._thread.join(_CLOSE_SECONDS)

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
            found = admin.list_topics(timeout=ANSWER_TIMEOUT)
            if self._topic in found.topics:
                return
            copies = min(3, len(found.brokers))
            config = {"cleanup.policy": "compact"}
            requested = administration.NewTopic(self._topic, 1, copies, config=config)
            for future in admin.create_topics(
                [requested], operation_timeout=ANSWER_TIMEOUT
            ).values():
                future.result(ANSWER_TIMEOUT)
        except module.KafkaException as error:
            if error.args[0].code() != module.KafkaError.TOPIC_ALREADY_EXISTS:
                why = refusal(error.args[0], f"CREATE on topic {self._topic}")
                raise ElectionError(
                    f"{self._where}: topic {self._topic!r} cannot be created: {why}"
                ) from None

    def _run(self) -> None:
        """Take part until closed; after an error, with a new client and without the vote."""
        while not self._closing.is_set():
            try:
                self._take_part(kafka())
            except Exception as error:
                log.error("%s: %s; joining again", self._where, reason(error))
                self._renew_client()
        with self._changed:
            self._ended = True
            self._lose()
        self._close_client()

    def _close_client(self) -> None:
        """Leave the group; a client that failed may be closed already."""
        with suppress(Exception):
            self._find_coordinator()
        with suppress(Exception):
            self._consumer.close()

    def _find_coordinator(self) -> None:
        """Have the client learn which broker coordinates the group now.

        It sends the request to leave once. The broker that was the coordinator until a moment ago
        refuses it, and the vote would stay with a member that is gone for a whole session.
        """
        module = kafka()
        place = module.TopicPartition(self._topic, 0)
        # Of the machine: the clock of the lease may stand still in a test.
        deadline = time.monotonic() + _CLOSE_SECONDS - 2 * _ASK_SECONDS
        while time.monotonic() < deadline:
            try:
                error = self._consumer.committed([place], _ASK_SECONDS)[0].error
            except module.KafkaException as refused:
                error = refused.args[0]
            if error is None or not passing(error):
                return
            time.sleep(_SLICE)

    def _take_part(self, module: Any) -> None:
        while not self._closing.is_set():
            self._join_or_leave()
            # Callbacks of the group and of commits run inside this call.
            message = self._consumer.poll(_SLICE)
            if message is not None and message.error() is not None:
                log.debug("%s: %s", self._where, message.error().str())
            self._renew(module)

    def _renew_client(self) -> None:
        """Leave the group and prepare to join it again, as soon as Kafka allows it."""
        with self._changed:
            self._joined = self._leaving = False
            self._lose()
        self._close_client()
        while not self._closing.wait(self._session / _BEATS):
            try:
                self._consumer = create("Consumer", self._properties)
                return
            except Exception as error:
                log.error("%s: %s", self._where, reason(error))

    def _join_or_leave(self) -> None:
        with self._changed:
            leave, self._leaving = self._leaving and self._joined, False
            join = self._requested and (leave or not self._joined)
            self._joined = self._requested
        if leave:
            self._find_coordinator()
            self._consumer.unsubscribe()
        if join:
            self._consumer.subscribe(
                [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
            )

    def _renew(self, module: Any) -> None:
        """Commit when it is due, or when a proof is requested."""
        now = self._clock()
        if not self._holds or not self._confirmed:
            self._look(module, now)
        elif self._asked > self._asking or now >= self._next_beat:
            assert self._epoch is not None
            self._commit(module, self._epoch)

    def _look(self, module: Any, now: float) -> None:
        """Check who has the vote; if it is now ours, commit an epoch."""
        if now < self._next_look or not self._requested:
            return
        self._next_look = now + self._session / _BEATS
        tenure, holds = self._tenure, self._holds
        place = module.TopicPartition(self._topic, 0)
        try:
            (found,) = self._consumer.committed([place], _ASK_SECONDS)
        except module.KafkaException as error:
            log.debug("%s: %s", self._where, reason(error))
            return
        if found.error is not None:
            return
        last = found.offset if found.offset >= 0 else None
        with self._changed:
            if last is not None:
                self._holder = (found.metadata or "").partition(" ")[2] or None
            if self._epoch is not None and last is not None and last > self._epoch:
                # Another process has held the vote since.
                self._epoch = None
                self._changed.notify_all()
            if not holds or tenure != self._tenure:
                return
            epoch = self._epoch
            if epoch is None:
                self._previous = last
                # Kafka forgets offsets of a group that was empty for days. Starting from the
                # current minute keeps epochs rising anyway.
                epoch = max(1 + (last or 0), int(time.time() // 60))
        self._commit(module, epoch)

    def _commit(self, module: Any, epoch: int) -> None:
        now = self._clock()
        with self._changed:
            self._number += 1
            number = self._number
            self._sent[number] = _Commit(now, self._tenure, epoch, self._asked)
            self._asking = self._asked
            self._next_beat = now + self._session / _BEATS
        about = f"{number} {self._name}"
        try:
            self._consumer.commit(
                offsets=[module.TopicPartition(self._topic, 0, epoch, about)], asynchronous=True
            )
        except module.KafkaException as error:
            log.debug("%s: %s", self._where, reason(error))
            self._refused(number)

    def _committed(self, error: Any, partitions: list[Any]) -> None:
        for place in partitions:
            number = int((place.metadata or "0").partition(" ")[0])
            if error is not None or place.error is not None:
                log.debug("%s: %s", self._where, error or place.error)
                self._refused(number)
            else:
                self._accepted(number)

    def _accepted(self, number: int) -> None:
        with self._changed:
            commit = self._sent.pop(number, None)
            # It may have been accepted in another tenure, without holding the partition.
            if commit is None or not self._holds or commit.tenure != self._tenure:
                return
            was = self.acting
            self._epoch, self._confirmed, self._holder = commit.epoch, True, self._name
            self._until = max(self._until, commit.sent + _TRUST * self._session)
            self._proved = max(self._proved, commit.proofs)
            self._changed.notify_all()
        if not was and self.acting:
            log.info("this one acts, in epoch %d", commit.epoch)

    def _refused(self, number: int) -> None:
        # A failed commit does not shorten the lease; a requested proof gets another try.
        with self._changed:
            if self._sent.pop(number, None) is not None:
                self._asking = self._proved
        self._closing.wait(_SLICE)

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        for place in partitions:
            # Nothing is read: the start position needs neither a leader nor an answer.
            place.offset = 0
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        if any(p.partition == 0 for p in partitions) and self._requested:
            with self._changed:
                self._lose()
                self._holds = True
                self._next_look = float("-inf")

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        # Before anything else: only after this may the client enter another generation.
        if any(p.partition == 0 for p in partitions):
            with self._changed:
                self._lose()
        consumer.incremental_unassign(partitions)

    def _lose(self) -> None:
        """Give the partition up; the epoch stays until another is seen to have taken over."""
        # Also if the lease has expired by now, for example after a sleep.
        if self._confirmed:
            log.info("this one no longer acts")
        self._holds = self._confirmed = False
        self._tenure += 1
        self._until = float("-inf")
        self._sent.clear()
        self._asking = self._proved
        self._next_look = float("-inf")
        self._changed.notify_all()
