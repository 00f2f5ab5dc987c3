"""An active task: processes a partition in transactions that hold its state and its progress."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any

from balancer.assignment.group.changelog import INPUT_KEY, PROCESS_HEADER, input_value, state_key
from balancer.assignment.group.configs import GroupConfigs
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.generation import Generation
from balancer.assignment.group.processing import Processor, Record, State
from balancer.assignment.group.reader import PartitionReader
from balancer.assignment.group.store import StateStore
from balancer.assignment.state import TaskId
from metrics_reporter.clients import create, kafka, passing, reason

log = logging.getLogger(__name__)

# After its first answer a client takes about 50 ms to connect to the brokers it has learnt of.
_CONNECTING_SECONDS = 0.1
# How often a start that may not begin yet looks again.
_LOOK_AGAIN_SECONDS = 0.05


class Fenced(Exception):
    """Another member has taken the task over."""


class Outdated(Exception):
    """The group is in another generation, perhaps without this member.

    Parameters
    ----------
    seconds
        For how long Kafka has refused the member's transactions.
    """

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds


class Unanswered(GroupError):
    """Brokers are away, or do not lead yet: the same may succeed later."""


class Writer:
    """A transactional producer that is connected before it is needed.

    It shuts out nobody until :meth:`begin`. The client of a standby is opened with it, as a
    producer without a connection takes half a second to begin.

    Parameters
    ----------
    configs
        Configuration of the member.
    task
        The task that it will write for.
    """

    def __init__(self, configs: GroupConfigs, task: TaskId) -> None:
        self._configs, self._task = configs, task
        self._open()

    def _open(self) -> None:
        configs = self._configs
        self.producer: Any = create(
            "Producer",
            {
                "bootstrap.servers": configs.bootstrap_servers,
                "transactional.id": configs.transactional_id(self._task),
                "transaction.timeout.ms": configs.transaction_timeout_ms,
                "linger.ms": 0,
                # Errors are raised.
                "log_level": 0,
            },
        )
        self._connected_at = time.monotonic() + _CONNECTING_SECONDS

    def begin(self, deadline: float) -> None:
        """End the predecessor's transaction, and refuse all that it writes from now on."""
        self.producer.list_topics(self._configs.changelog_topic, _left(deadline))
        time.sleep(max(self._connected_at - time.monotonic(), 0))
        self.producer.init_transactions(_left(deadline))

    def renew(self) -> None:
        """Replace the client, which another one has shut out for good."""
        self.close()
        self._open()

    def close(self) -> None:
        """Close the client, which may take a moment."""
        self.producer.purge()
        self.producer = None


class ActiveTask:
    """One task that this member processes.

    It starts in three steps: the producer begins, which ends the predecessor's
    transaction and shuts it out; the rest of the changelog is restored; records are processed
    from the offset that the state stands for. Until a successor begins, only the generation in
    which a member commits shuts it out.

    Parameters
    ----------
    configs
        Configuration of the member.
    task
        The task.
    process
        Name of this member's process, which the changelog shows with each transaction.
    store
        Its state.
    writer
        Its producer; the task closes it.
    changelog
        Reads the changelog.
    processor
        What is done with a record.
    executor
        Runs what waits for Kafka.
    may_begin
        Asked immediately before the predecessor is shut out: whether this member is in the group,
        and has the task. The task does not start before.
    """

    def __init__(
        self,
        configs: GroupConfigs,
        task: TaskId,
        process: str,
        store: StateStore,
        writer: Writer,
        changelog: PartitionReader,
        processor: Processor,
        executor: Executor,
        may_begin: Callable[[], bool],
    ) -> None:
        self.task, self.store = task, store
        self.running = False
        self.next_offset = 0
        self.records = 0
        self._configs, self._writer, self._changelog = configs, writer, changelog
        self._processor, self._executor = processor, executor
        self._may_begin = may_begin
        self._headers = [(PROCESS_HEADER, process.encode())]
        self._state = State(store)
        self._began = time.monotonic()
        self._deadline = self._began + configs.task_timeout_ms / 1000
        self._last_commit = self._began
        self._closed = threading.Event()
        # A transaction ends in the store, or the task is given up, but not both at once.
        self._ending = threading.Lock()
        # Since when Kafka refuses the member's generation.
        self._outdated_since: float | None = None
        self._starting: Future[int | None] = executor.submit(self._start)

    def _start(self) -> int | None:
        """Shut the predecessor out; returns the offset up to which to restore.

        None if this member has lost the task: what is shut out would be the rightful owner.
        """
        deadline = time.monotonic() + self._configs.task_timeout_ms / 1000
        begun = unusable = False
        while True:
            try:
                if unusable:
                    unusable = False
                    self._writer.renew()
                if not begun and self._may_begin():
                    self._writer.begin(self._answered_by(deadline))
                    begun = True
                if begun:
                    seconds = _left(self._answered_by(deadline))
                    return self._changelog.end(self.task.partition, seconds)
            except kafka().KafkaException as error:
                code = error.args[0]
                # A member that was stuck may begin at the same time, before it learns that it has
                # lost the task. A client that got no answer while a broker was away may never get
                # one.
                shut_out = _shut_out(code)
                unusable = shut_out or (not begun and code.code() == kafka().KafkaError._TIMED_OUT)
                if time.monotonic() > deadline or not (shut_out or _may_pass(code)):
                    raise
            if self._closed.wait(_LOOK_AGAIN_SECONDS) or time.monotonic() > deadline:
                return None

    def _answered_by(self, deadline: float) -> float:
        """When a question to Kafka has to be answered, which may be asked again until a deadline.

        Who gives the task up waits no longer.
        """
        return min(deadline, time.monotonic() + self._configs.answer_seconds)

    def restored_up_to(self) -> int | None:
        """The offset of the changelog at which the task can run; None while it is not known.

        Raises
        ------
        GroupError
            If the task has not started in time.
        """
        try:
            end = self._starting.result() if self._starting.done() else None
        except kafka().KafkaException as error:
            raise GroupError(f"task {self.task}: cannot start: {reason(error)}") from None
        if end is None:
            self._check_deadline("start")
        return end

    def check_restoring(self) -> None:
        """Raise a GroupError if the state has not been restored in time since the last progress."""
        self._check_deadline("restore its state")

    def progressed(self) -> None:
        """State is being restored: the deadline moves on."""
        self._deadline = time.monotonic() + self._configs.task_timeout_ms / 1000

    def _check_deadline(self, what: str) -> None:
        if time.monotonic() > self._deadline:
            raise GroupError(
                f"task {self.task}: did not {what} within {self._configs.task_timeout_ms} ms"
            )

    def run(self) -> None:
        """The state is complete: process from the offset that it stands for."""
        self.running = True
        self.next_offset = self.store.input_offset

    def process(self, records: Sequence[Record]) -> None:
        """Process records; their effect is not visible before :meth:`commit`.

        If the processor raises, or is interrupted, a record may have left part of its changes:
        nothing that is not yet committed will be.
        """
        try:
            for record in records:
                if record.offset < self.next_offset:
                    continue
                self._processor.process(record, self._state)
                self.next_offset = record.offset + 1
                self.records += 1
        except BaseException:
            self.running = False
            raise

    @property
    def age(self) -> float:
        """Seconds since this member was given the task."""
        return time.monotonic() - self._began

    @property
    def commit_due(self) -> bool:
        """Whether there is something to commit, and the interval is over."""
        if self.next_offset == self.store.input_offset:
            return False
        return time.monotonic() - self._last_commit >= self._configs.commit_interval_ms / 1000

    def commit(self, generation: Generation, deadline: float | None = None) -> None:
        """Write state and progress to the changelog in one transaction, then to the store.

        The offset of the input is committed for the group too. Nobody reads it from there, but
        Kafka refuses it, and the transaction with it, unless the generation is the group's.

        Parameters
        ----------
        generation
            The generation in which this member was assigned the task.
        deadline
            When it gives up (monotonic seconds); ``answer_seconds`` from now unless given.

        Raises
        ------
        Fenced
            If another member has taken the task over: nothing was written.
        Outdated
            If the group is no longer in this generation: nothing was written. A member that is
            still assigned the task commits the same in a later one.
        Unanswered
            If brokers are away: it is not known whether Kafka has accepted the transaction.
        GroupError
            If Kafka does not accept it.
        """
        self._last_commit = time.monotonic()
        if not self.running or self.next_offset == self.store.input_offset:
            return
        module = kafka()
        topic, partition = self._configs.changelog_topic, self.task.partition
        if deadline is None:
            deadline = time.monotonic() + self._configs.answer_seconds
        delivered: list[int | None] = []

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                delivered.append(message.offset())

        producer = self._writer.producer

        def produce(key: bytes, value: bytes | None, **more: Any) -> None:
            while True:
                try:
                    producer.produce(topic, value, key, partition, **more)
                    return
                except BufferError:  # no room in the client's queue
                    if time.monotonic() > deadline:
                        raise GroupError(
                            f"task {self.task}: cannot commit: no room in the client's queue"
                        ) from None
                    producer.poll(0.1)

        offset = module.TopicPartition(self._configs.input_topic, partition, self.next_offset)

        def send_offset() -> None:
            try:
                producer.send_offsets_to_transaction(
                    [offset], generation.metadata(), _left(deadline)
                )
            except module.KafkaException as error:
                if error.args[0].code() not in _outdated():
                    raise
                producer.abort_transaction(_left(deadline))
                raise Outdated(reason(error), self._outdated_seconds()) from None

        try:
            producer.begin_transaction()
            if self._outdated_since is not None:
                # Probably refused again: state that nobody may read is not written each time.
                send_offset()
            for key, value in self._state.changes.items():
                produce(state_key(key), value)
            progress = input_value(self.next_offset)
            produce(INPUT_KEY, progress, headers=self._headers, on_delivery=on_delivery)
            send_offset()
            producer.commit_transaction(_left(deadline))
        except module.KafkaException as error:
            code = error.args[0]
            if _shut_out(code):
                raise Fenced from None
            kind = Unanswered if passing(code) else GroupError
            raise kind(f"task {self.task}: cannot commit: {reason(error)}") from None
        self._outdated_since = None
        if not delivered:
            raise GroupError(f"task {self.task}: a transaction ended without its last record")
        (offset,) = delivered
        if offset is None:
            # After a retry a client may not know it: the changelog has what was written.
            raise Unanswered(f"task {self.task}: where its transaction was written is not known")
        with self._ending:
            if self._closed.is_set():
                # The client returned too late: another start may have restored more by now.
                raise Unanswered(f"task {self.task}: given up during a transaction")
            self.store.apply(self._state.changes, offset + 1, self.next_offset)
            self._state = State(self.store)

    def _outdated_seconds(self) -> float:
        """For how long the member's generation has been refused; a GroupError if for too long."""
        now = time.monotonic()
        self._outdated_since = now if self._outdated_since is None else self._outdated_since
        seconds = now - self._outdated_since
        if seconds > self._configs.task_timeout_ms / 1000:
            raise GroupError(
                f"task {self.task}: cannot commit: the group has been in another generation for "
                f"more than {self._configs.task_timeout_ms} ms"
            )
        return seconds

    def close(self, deadline: float | None = None) -> None:
        """Give the task up; what is not committed is left to the next owner.

        A start under way is waited for: if it ended later, it would shut the next owner out.

        Parameters
        ----------
        deadline
            When that wait ends (monotonic seconds); ``answer_seconds`` from now unless given.
        """
        with self._ending:
            self.running = False
            self._closed.set()
        if deadline is None:
            deadline = time.monotonic() + self._configs.answer_seconds
        if not self._starting.cancel() and wait([self._starting], _left(deadline)).not_done:
            log.warning("task %s: given up before its start ended", self.task)
        self._executor.submit(self._writer.close)


def _outdated() -> tuple[int, ...]:
    """Codes by which Kafka says that a member is not in the group's generation."""
    errors = kafka().KafkaError
    return errors.ILLEGAL_GENERATION, errors.UNKNOWN_MEMBER_ID


def _may_pass(error: Any) -> bool:
    """Whether time may mend what prevents a start: a starting broker does not know its topics."""
    codes = kafka().KafkaError
    unknown = codes._UNKNOWN_PARTITION, codes._UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_OR_PART
    return passing(error) or error.code() in unknown


def _shut_out(error: Any) -> bool:
    """Whether another producer of the task has begun."""
    codes = kafka().KafkaError
    return error.code() in (codes._FENCED, codes.INVALID_PRODUCER_EPOCH, codes.PRODUCER_FENCED)


def _left(deadline: float) -> float:
    """Seconds until a deadline; the clients take 0 or less for no limit."""
    return max(deadline - time.monotonic(), 0.001)
