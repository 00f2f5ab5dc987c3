"""A member's tasks, with clients of Kafka that are stubs; tests/kafka runs real groups."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import LIMIT

from balancer.assignment.group import host as hosts
from balancer.assignment.group import membership as memberships
from balancer.assignment.group import task as tasks
from balancer.assignment.group import word_count
from balancer.assignment.group.background import Background
from balancer.assignment.group.changelog import INPUT_KEY, Replay, input_value, state_key
from balancer.assignment.group.configs import GroupConfigs
from balancer.assignment.group.directory import StateDirectory
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.generation import Generation
from balancer.assignment.group.leader import Joined, MemberAssignment
from balancer.assignment.group.membership import Assigned, Membership
from balancer.assignment.group.messages import MemberReport, MemberTasks
from balancer.assignment.group.processing import Processor, Record, State
from balancer.assignment.group.reader import Batch
from balancer.assignment.group.store import StateStore
from balancer.assignment.group.word_count import WordCount
from balancer.assignment.state import TaskId

confluent_kafka = pytest.importorskip("confluent_kafka")

FIRST = TaskId(0, 0)
GENERATION = Generation("app", "member", 1)


class Broker:
    """The changelog that the stub clients share, and the lines of the input."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = list(lines)
        self.log: list[tuple[bytes, bytes | None]] = []
        # The group's generation, as a transaction must state it, and the producers that began.
        self.generation = GENERATION.metadata()
        self.begun = 0

    def counts(self) -> dict[bytes, bytes | None]:
        replay = Replay()
        replay.add(self.log)
        return dict(replay.changes)


class StubProducer:
    """Appends to the changelog when a transaction is committed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def begin_transaction(self) -> None:
        self._begun: list[tuple[bytes, bytes | None]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int,
        headers: object = None,
        on_delivery: Callable[[None, Any], None] | None = None,
    ) -> None:
        self._begun.append((key, value))
        if on_delivery is not None:
            offset = len(self._broker.log) + len(self._begun) - 1
            on_delivery(None, SimpleNamespace(offset=lambda: offset))

    def send_offsets_to_transaction(
        self, offsets: list[Any], metadata: bytes, timeout: float
    ) -> None:
        if metadata != self._broker.generation:
            error = confluent_kafka.KafkaError(confluent_kafka.KafkaError.ILLEGAL_GENERATION)
            raise confluent_kafka.KafkaException(error)

    def abort_transaction(self, timeout: float) -> None:
        self._begun.clear()

    def commit_transaction(self, timeout: float) -> None:
        self._broker.log.extend(self._begun)


class StubWriter:
    """A producer that begins at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.producer: Any = StubProducer(broker)

    def begin(self, deadline: float) -> None:
        self._broker.begun += 1

    def close(self) -> None:
        pass


class StubMessage:
    """A record of partition 0."""

    def __init__(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        self.key, self.value, self.offset = lambda: key, lambda: value, lambda: offset

    def partition(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def headers(self) -> list[tuple[str, bytes]]:
        return []


class StubReader:
    """A consumer that returns the lines from the offset of each partition."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._is_input, self._offsets = broker, topic == "lines", dict[int, int]()

    def add(self, partition: int, offset: int) -> None:
        self._offsets[partition] = offset

    def remove(self, partition: int) -> None:
        self._offsets.pop(partition, None)

    def read(self, maximum: int, timeout: float) -> Batch:
        batch = Batch()
        for partition, offset in self._offsets.items():
            of_input: list[tuple[bytes | None, bytes | None]] = [
                (None, x) for x in self._broker.lines
            ]
            records = of_input if self._is_input else self._broker.log
            batch.messages[partition] = [
                StubMessage(key, value, o) for o, (key, value) in enumerate(records) if o >= offset
            ]
            self._offsets[partition] = len(records)
            if not self._is_input:
                batch.ends[partition] = len(records)
        return batch

    def end(self, partition: int, timeout: float) -> int:
        return len(self._broker.log)

    def close(self) -> None:
        pass


class StubMembership:
    """Gives partition 0 to the member."""

    def __init__(self, *_: object) -> None:
        self.arrived = [Assigned(1, (0,), MemberTasks(), 0, "member")]
        self.member = "member"

    def poll(self) -> list[Assigned]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def generation(self, followed: Assigned) -> int:
        return followed.generation

    def owns(self, member: str, partition: int) -> bool:
        return member == self.member

    def rebalance(self) -> None:
        pass

    def waits(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def configured(directory: Path, **more: Any) -> GroupConfigs:
    given: dict[str, Any] = {"bootstrap_servers": "x:1", "application_id": "app"}
    # A task that does not start ends a test before long.
    given |= {"task_timeout_ms": 30_000, **more}
    return GroupConfigs(**given, input_topic="lines", state_dir=directory)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


class Interrupted:
    """Counts words, and raises an error at a word."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def process(self, record: Record, state: State) -> None:
        for word in (record.value or b"").split():
            if word == b"bad":
                raise self._error
            WordCount().process(record._replace(value=word), state)


def running_task(
    configs: GroupConfigs, broker: Broker, processor: Processor, executor: ThreadPoolExecutor
) -> tasks.ActiveTask:
    task = tasks.ActiveTask(
        configs,
        FIRST,
        "process",
        StateStore(configs.state_dir / "0_0"),
        StubWriter(broker),  # type: ignore[arg-type]
        StubReader(broker, configs.changelog_topic),  # type: ignore[arg-type]
        processor,
        executor,
        lambda: True,
    )
    task.run()
    return task


class StubConsumer:
    """A member of a group in which nothing happens, or whose polls fail."""

    metadata = SimpleNamespace(member_id="a")
    error: Exception | None = None
    polls = 0

    def __init__(self, **_: object) -> None:
        pass

    def subscribe(self, *_: object, **__: object) -> None:
        pass

    def poll(self, timeout_ms: int) -> None:
        time.sleep(0.01)
        StubConsumer.polls += 1
        if self.error is not None:
            raise self.error

    def group_metadata(self) -> SimpleNamespace:
        return self.metadata

    def close(self, timeout_ms: int) -> None:
        pass


@pytest.mark.parametrize("ends", [False, True])
def test_a_member_outlasts_brokers_that_are_away_but_not_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    kafka = pytest.importorskip("kafka")
    away, refused = kafka.errors.KafkaConnectionError, kafka.errors.GroupAuthorizationFailedError
    monkeypatch.setattr(kafka, "KafkaConsumer", StubConsumer)
    monkeypatch.setattr(memberships, "_POLL_MS", 1)
    monkeypatch.setattr(StubConsumer, "polls", 0)
    monkeypatch.setattr(StubConsumer, "error", (refused if ends else away)("no"))
    report = MemberReport(process="process-a")
    membership = Membership(configured(tmp_path), 1, lambda _: report, lambda *_: {}, lambda: None)
    if ends:
        membership._thread.join(60)
        with pytest.raises(GroupError, match=r"group app: GroupAuthorizationFailedError: .*no"):
            membership.poll()
    else:
        while StubConsumer.polls < 5:
            assert membership.poll() == []
            time.sleep(0.01)
    membership.close()


def test_while_the_topic_is_unknown_its_partitions_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = pytest.importorskip("kafka")

    def assign(
        leader: str, joined: Sequence[Joined], partitions: Sequence[int]
    ) -> dict[str, MemberAssignment]:
        return {j.member: MemberAssignment(tuple(partitions)) for j in joined}

    monkeypatch.setattr(kafka, "KafkaConsumer", StubConsumer)
    led_by_others: list[int] = []
    report = MemberReport(process="process-a")
    membership = Membership(
        configured(tmp_path), 3, lambda _: report, assign, lambda: led_by_others.append(1)
    )
    owned = SimpleNamespace(topic="lines", partitions=[0, 1, 2])
    metadata = SimpleNamespace(user_data=None, owned_partitions=[owned], generation_id=1)
    member = SimpleNamespace(member_id="a", metadata=metadata)
    for known, found in ((None, [0, 1, 2]), ({0, 1, 2, 3}, [0, 1, 2, 3])):
        cluster = SimpleNamespace(partitions_for_topic=lambda _, known=known: known)
        answer = membership._assign_all(cluster, [member])["a"]
        assert [(topic, p) for topic, p in answer.assigned_partitions] == [("lines", found)]
    # It led the first of these rebalances only.
    own = SimpleNamespace(partitions=list, user_data=MemberTasks().encode())
    for generation, others in ((2, 0), (3, 1), (4, 2)):
        membership._assigned(own, generation)
        assert len(led_by_others) == others
    membership._lost()
    assert len(led_by_others) == 3
    membership.close()


def test_a_member_commits_in_the_generation_that_it_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = pytest.importorskip("kafka")
    found = SimpleNamespace(member_id="a", generation_id=7)
    monkeypatch.setattr(StubConsumer, "metadata", found)
    monkeypatch.setattr(kafka, "KafkaConsumer", StubConsumer)
    report = MemberReport(process="process-a")
    membership = Membership(configured(tmp_path), 1, lambda _: report, lambda *_: {}, lambda: None)
    assignment = SimpleNamespace(partitions=list, user_data=MemberTasks().encode())
    membership._assigned(assignment, 7)
    (followed,) = membership.poll()
    followed.applied.set()
    found.generation_id = 8
    assert membership.generation(followed) == 8
    # What has been assigned since, or is not yet applied, may be less.
    membership._assigned(assignment, 8)
    found.generation_id = 9
    assert membership.generation(followed) == 7
    (following,) = membership.poll()
    assert membership.generation(following) == 8
    following.applied.set()
    assert membership.generation(following) == 9
    # It has been removed, and has joined again.
    found.member_id = "another"
    assert membership.generation(following) == 8
    found.member_id, found.generation_id = "a", -1
    assert membership.generation(following) == 8
    membership.close()


@pytest.mark.parametrize("error", [ValueError("bad word"), KeyboardInterrupt()])
def test_part_of_a_record_is_never_committed(
    tmp_path: Path, executor: ThreadPoolExecutor, error: BaseException
) -> None:
    broker = Broker()
    task = running_task(configured(tmp_path), broker, Interrupted(error), executor)
    lines = [Record(None, b"x", 0, 0), Record(None, b"a b bad", 0, 1)]
    with pytest.raises(type(error)):
        task.process(lines)
    task.commit(GENERATION)
    assert broker.log == []


def test_the_metadata_of_a_generation_is_what_the_client_makes() -> None:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": "localhost:1", "group.id": "a group", "log_level": 0}
    )
    # Before it has joined.
    assert Generation("a group", "", -1).metadata() == client.consumer_group_metadata()
    client.close()


def test_what_another_generation_refuses_is_committed_in_the_next(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    broker = Broker()
    task = running_task(configured(tmp_path), broker, WordCount(), executor)
    task.process([Record(None, b"a", 0, 0)])
    later = GENERATION._replace(number=2)
    broker.generation = later.metadata()
    with pytest.raises(tasks.Outdated):
        task.commit(GENERATION)
    assert (broker.log, task.store.input_offset) == ([], 0)
    task.process([Record(None, b"a", 0, 1)])
    task.commit(later)
    assert (broker.counts(), task.store.input_offset) == ({b"a": b"2"}, 2)


def test_a_member_that_never_learns_of_the_generation_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    clock, broker = Clock(), Broker()
    monkeypatch.setattr(tasks, "time", clock)
    task = running_task(configured(tmp_path, task_timeout_ms=2000), broker, WordCount(), executor)
    task.process([Record(None, b"a", 0, 0)])
    broker.generation = b"another"
    written: list[bytes] = []

    class CountingProducer(StubProducer):
        def produce(
            self, topic: str, value: bytes | None, key: bytes, *args: Any, **kw: Any
        ) -> None:
            written.append(key)
            super().produce(topic, value, key, *args, **kw)

    task._writer.producer = CountingProducer(broker)
    for _ in range(2):
        with pytest.raises(tasks.Outdated):
            task.commit(GENERATION)
        clock.sleep(1.5)
    with pytest.raises(GroupError, match="another generation for more than 2000 ms"):
        task.commit(GENERATION)
    assert broker.log == []
    # Only the first attempt wrote state, which nobody may read.
    assert written == [state_key(b"a"), INPUT_KEY]


class Following:
    """A host that follows the assignments of a stub of its membership."""

    def __init__(
        self, broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch, executor: Any
    ) -> None:
        monkeypatch.setattr(hosts, "Writer", lambda *_: StubWriter(broker))
        self.configs = configured(directory, commit_interval_ms=1)
        self.host, self.membership = hosts.Host(self.configs, WordCount()), StubMembership()
        member: Any = self.membership
        self.host._membership, self.host._executor = member, executor
        self.host._directory = StateDirectory(directory)
        changelog: Any = StubReader(broker, self.configs.changelog_topic)
        lines: Any = StubReader(broker, "lines")
        self.host._changelog, self.host._input = changelog, lines

    def follow(self) -> None:
        for assigned in self.membership.poll():
            self.host._follow(assigned)

    def run_task(self) -> None:
        while not (active := self.host._copies[FIRST].active) or not active.running:
            self.host._restore()


def test_a_member_that_has_lost_its_tasks_neither_commits_nor_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    broker = Broker(b"a b")
    following = Following(broker, tmp_path, monkeypatch, executor)
    host, membership = following.host, following.membership
    following.follow()
    following.run_task()
    # The group has gone on, and this member does not know yet.
    broker.generation, membership.member = b"another", "another"
    time.sleep(0.002)
    host._process()
    # What fails for another reason is begun again only by a member of the group.
    host._deactivate([FIRST], commit=False)
    host._activate(FIRST, host._copies[FIRST])
    active = host._copies[FIRST].active
    assert active is not None
    time.sleep(0.1)
    host._restore()
    assert (broker.log, broker.begun, active.running) == ([], 1, False)
    # Now it does.
    membership.arrived = [Assigned(-1, (), MemberTasks(), 0)]
    following.follow()
    host._process()
    host._drop(list(host._copies))
    assert (broker.log, broker.begun) == ([], 1)
    host._directory.close()


def test_a_member_that_joins_under_another_id_goes_on_starting_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    broker = Broker(b"a")
    following = Following(broker, tmp_path, monkeypatch, executor)
    following.membership.member = "later"
    following.follow()
    assert broker.begun == 0
    # Its partitions are still its own: the group has not been without it.
    following.membership.arrived = [Assigned(2, (0,), MemberTasks(), 0, "later")]
    following.follow()
    following.run_task()
    assert broker.begun == 1
    following.host._drop([FIRST])
    following.host._directory.close()


@pytest.mark.parametrize("error", [ValueError("bad word"), KeyboardInterrupt()])
def test_a_record_at_which_a_member_ends_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    broker = Broker(b"x", b"a b bad")

    class Membership(StubMembership):
        def __init__(self, *_: object) -> None:
            super().__init__()
            broker.generation = GENERATION.metadata()

        def close(self) -> None:
            broker.generation = b"without this member"

    monkeypatch.setattr(hosts, "Membership", Membership)
    monkeypatch.setattr(hosts, "Writer", lambda *_: StubWriter(broker))
    monkeypatch.setattr(hosts, "PartitionReader", lambda _, topic: StubReader(broker, topic))
    topics = SimpleNamespace(partitions=lambda _: 1, create=lambda *_: None)
    monkeypatch.setattr(hosts, "Topics", lambda _: topics)
    configs = configured(tmp_path, commit_interval_ms=1)
    with pytest.raises(type(error)):
        hosts.Host(configs, Interrupted(error)).run(threading.Event())
    stop = threading.Event()

    class Counted(WordCount):
        def process(self, record: Record, state: State) -> None:
            super().process(record, state)
            stop.set()

    hosts.Host(configs, Counted()).run(stop)
    assert broker.counts() == {b"x": b"1", b"a": b"1", b"b": b"1", b"bad": b"1"}


def test_a_missing_topic_is_no_correct_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = SimpleNamespace(partitions=lambda topic: 0)
    monkeypatch.setattr(word_count, "Topics", lambda _: topics)
    with pytest.raises(GroupError, match="topic lines: not found"):
        word_count.check(configured(tmp_path))


def test_a_line_without_a_value_has_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = configured(tmp_path)
    written: dict[str, list[tuple[bytes | None, bytes | None]]] = {
        "lines": [(None, b"a"), (None, None)],
        configs.changelog_topic: [(state_key(b"a"), b"1"), (INPUT_KEY, input_value(2))],
    }

    def read(_: str, topic: str, deadline: float) -> Iterator[Any]:
        for offset, (key, value) in enumerate(written[topic]):
            yield StubMessage(key, value, offset)

    monkeypatch.setattr(word_count, "read_topic", read)
    (found,) = word_count.check(configs)
    assert (found.records, found.differences, found.correct) == (2, 0, True)


def test_no_report_says_what_a_clean_up_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = StateDirectory(tmp_path)
    store = StateStore(directory.task_path(FIRST))
    store.apply({b"a": b"1"}, 500, 10)
    store.close()
    for file in [*directory.task_path(FIRST).iterdir(), directory.task_path(FIRST)]:
        os.utime(file, (0, 0))
    host = hosts.Host(configured(tmp_path), WordCount())
    host._directory, host._on_disk = directory, {FIRST: 500}
    reports: list[MemberReport] = []
    reporting = threading.Thread(target=lambda: reports.append(host._report(1)))
    clean = directory.clean

    def clean_while_reporting(in_use: Collection[TaskId], delay_ms: int) -> list[TaskId]:
        removed = clean(in_use, delay_ms)
        # The report goes as far as it can before its task is forgotten.
        reporting.start()
        reporting.join(0.3)
        return removed

    monkeypatch.setattr(directory, "clean", clean_while_reporting)
    host._clean()
    reporting.join()
    assert directory.tasks() == []
    assert reports[0].offsets == {}
    directory.close()


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_start_has_one_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    clock = Clock()
    allowed: list[float] = []

    class SlowProducer:
        def list_topics(self, topic: str, timeout: float) -> None:
            allowed.append(timeout)
            clock.sleep(timeout * 0.75)

        def init_transactions(self, timeout: float) -> None:
            allowed.append(timeout)
            clock.sleep(timeout * 0.75)

        def purge(self) -> None:
            pass

    class SlowReader(StubReader):
        def end(self, partition: int, timeout: float) -> int:
            allowed.append(timeout)
            return 0

    monkeypatch.setattr(tasks, "time", clock)
    monkeypatch.setattr(tasks, "create", lambda *_: SlowProducer())
    configs = configured(tmp_path, task_timeout_ms=16_000, transaction_timeout_ms=16_000)
    writer = tasks.Writer(configs, FIRST)
    changelog: Any = SlowReader(Broker(), configs.changelog_topic)
    store = StateStore(tmp_path / "0_0")
    task = tasks.ActiveTask(
        configs, FIRST, "process", store, writer, changelog, WordCount(), executor, lambda: True
    )
    while task.restored_up_to() is None:
        time.sleep(0.01)
    task.close()
    assert allowed == [16, 4, 1]


def test_a_slow_broker_is_asked_again_and_holds_nobody_longer_than_an_answer_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    clock = Clock()
    allowed: list[float] = []

    class SlowReader(StubReader):
        def end(self, partition: int, timeout: float) -> int:
            allowed.append(timeout)
            clock.sleep(timeout)
            if len(allowed) < 5:
                error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT)
                raise confluent_kafka.KafkaException(error)
            return 7

    monkeypatch.setattr(tasks, "time", clock)
    configs = GroupConfigs(
        bootstrap_servers="x:1", application_id="app", input_topic="lines", state_dir=tmp_path
    )
    changelog: Any = SlowReader(Broker(), configs.changelog_topic)
    store, writer = StateStore(tmp_path / "0_0"), StubWriter(broker := Broker())
    given: Any = writer
    task = tasks.ActiveTask(
        configs, FIRST, "p", store, given, changelog, WordCount(), executor, lambda: True
    )
    while (end := task.restored_up_to()) is None:
        time.sleep(0.01)
    # Longer together than a task was once given to start; its producer began only once.
    assert (end, allowed, broker.begun) == (7, [configs.answer_seconds] * 5, 1)
    task.close()
    store.close()


@pytest.mark.parametrize("code", ["_DESTROY_BROKER", "_TRANSPORT", "_UNKNOWN_PARTITION"])
def test_a_start_is_tried_again_while_brokers_are_away(
    tmp_path: Path, executor: ThreadPoolExecutor, code: str
) -> None:
    error = confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, code))
    calls: list[str] = []

    def fails_twice(name: str) -> None:
        calls.append(name)
        if calls.count(name) <= 2:
            raise confluent_kafka.KafkaException(error)

    class AwayWriter(StubWriter):
        def begin(self, deadline: float) -> None:
            fails_twice("begin")

    class AwayReader(StubReader):
        def end(self, partition: int, timeout: float) -> int:
            fails_twice("end")
            return 7

    configs = configured(tmp_path)
    changelog: Any = AwayReader(Broker(), configs.changelog_topic)
    writer: Any = AwayWriter(Broker())
    store, may = StateStore(tmp_path / "0_0"), iter([True, False, True, True])
    task = tasks.ActiveTask(
        configs, FIRST, "p", store, writer, changelog, WordCount(), executor, lambda: next(may)
    )
    while (end := task.restored_up_to()) is None:
        time.sleep(0.01)
    # Each time it begins it asks whether it may; once it has begun, it goes on.
    assert (end, calls, list(may)) == (7, ["begin"] * 3 + ["end"] * 3, [])
    task.close()


@pytest.mark.parametrize(
    "code", ["_FENCED", "_TIMED_OUT", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"]
)
def test_a_start_that_was_shut_out_or_got_no_answer_is_made_again_with_another_client(
    tmp_path: Path, executor: ThreadPoolExecutor, code: str
) -> None:
    """As by a member that was stuck, which begins before it learns that it has lost the task.

    A client that was asked while a broker was away may never get its answer.
    """
    calls: list[str] = []

    class ShutOutWriter(StubWriter):
        def begin(self, deadline: float) -> None:
            calls.append("begin")
            if calls.count("begin") <= 2:
                error = getattr(confluent_kafka.KafkaError, code)
                raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(error))

        def renew(self) -> None:
            calls.append("renew")

    class Reader(StubReader):
        def end(self, partition: int, timeout: float) -> int:
            return 7

    configs = configured(tmp_path)
    changelog: Any = Reader(Broker(), configs.changelog_topic)
    writer: Any = ShutOutWriter(Broker())
    store, may = StateStore(tmp_path / "0_0"), iter([True, False, True, True])
    task = tasks.ActiveTask(
        configs, FIRST, "p", store, writer, changelog, WordCount(), executor, lambda: next(may)
    )
    while (end := task.restored_up_to()) is None:
        time.sleep(0.01)
    assert (end, list(may)) == (7, [])
    assert calls == ["begin", "renew", "begin", "renew", "begin"]
    task.close()


def test_a_start_that_kafka_refuses_is_not_tried_again(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    refused = confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    class RefusedWriter(StubWriter):
        def begin(self, deadline: float) -> None:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(refused))

    configs = configured(tmp_path)
    changelog: Any = StubReader(Broker(), configs.changelog_topic)
    writer: Any = RefusedWriter(Broker())
    store = StateStore(tmp_path / "0_0")
    task = tasks.ActiveTask(
        configs, FIRST, "p", store, writer, changelog, WordCount(), executor, lambda: True
    )
    wait([task._starting])
    with pytest.raises(GroupError, match=r"task 0_0: cannot start: .*authorization"):
        task.restored_up_to()
    task.close()


@pytest.mark.parametrize(
    ("code", "attempts"), [("NOT_COORDINATOR", 60), ("TOPIC_AUTHORIZATION_FAILED", 3)]
)
def test_a_member_gives_up_after_a_time_if_brokers_are_away_and_at_once_if_they_refuse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    executor: ThreadPoolExecutor,
    code: str,
    attempts: int,
) -> None:
    broker, clock = Broker(b"a"), Clock()
    following = Following(broker, tmp_path, monkeypatch, executor)
    monkeypatch.setattr(hosts, "time", clock)
    error = confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, code))
    tried = 0

    class AwayProducer(StubProducer):
        def commit_transaction(self, timeout: float) -> None:
            nonlocal tried
            tried += 1
            clock.sleep(0.5)
            raise confluent_kafka.KafkaException(error)

    def away_writer(*_: object) -> Any:
        writer = StubWriter(broker)
        writer.producer = AwayProducer(broker)
        return writer

    monkeypatch.setattr(hosts, "Writer", away_writer)
    following.follow()

    def go_on() -> None:
        while True:
            following.run_task()
            time.sleep(0.002)
            following.host._process()

    with pytest.raises(GroupError, match="task 0_0: cannot commit: "):
        go_on()
    assert abs(tried - attempts) <= 3
    assert broker.log == []
    following.host._drop([FIRST], commit=False)
    following.host._directory.close()


def test_a_refusal_because_of_the_generation_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    broker, clock = Broker(b"a"), Clock()
    following = Following(broker, tmp_path, monkeypatch, executor)
    monkeypatch.setattr(hosts, "time", clock)
    errors, unanswered = confluent_kafka.KafkaError, 0

    class AwayProducer(StubProducer):
        """Each is refused once, and gets no answer when it is tried again."""

        refused = False

        def send_offsets_to_transaction(self, *args: Any) -> None:
            if not self.refused:
                self.refused = True
                raise confluent_kafka.KafkaException(errors(errors.ILLEGAL_GENERATION))

        def commit_transaction(self, timeout: float) -> None:
            nonlocal unanswered
            unanswered += 1
            clock.sleep(8)
            raise confluent_kafka.KafkaException(errors(errors.NOT_COORDINATOR))

    def away_writer(*_: object) -> Any:
        writer = StubWriter(broker)
        writer.producer = AwayProducer(broker)
        return writer

    monkeypatch.setattr(hosts, "Writer", away_writer)
    following.follow()
    while unanswered < 10:
        following.run_task()
        time.sleep(0.002)
        following.host._process()
    following.host._drop([FIRST], commit=False)
    following.host._directory.close()


def test_who_waits_for_kafka_is_not_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    broker, released = Broker(b"a"), threading.Event()
    following = Following(broker, tmp_path, monkeypatch, executor)
    monkeypatch.setattr(hosts, "_SIGN_OF_LIFE_SECONDS", 0.01)

    class SlowProducer(StubProducer):
        def commit_transaction(self, timeout: float) -> None:
            assert released.wait(LIMIT)

    following.membership.waits = released.set  # type: ignore[method-assign]
    following.follow()
    following.run_task()
    active = following.host._copies[FIRST].active
    assert active is not None
    active._writer.producer = SlowProducer(broker)
    active.process([Record(None, b"a", 0, 0)])
    # A task that is given up commits first.
    following.host._drop([FIRST])
    assert released.is_set()
    following.host._directory.close()


def test_a_client_that_does_not_return_does_not_hold_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, entered, released = Broker(b"a"), threading.Event(), threading.Event()
    background = Background()
    following = Following(broker, tmp_path, monkeypatch, background)
    following.host._configs = configured(tmp_path, commit_interval_ms=1, task_timeout_ms=500)
    monkeypatch.setattr(hosts, "_HELD_SECONDS", 0.01)
    monkeypatch.setattr(hosts, "_GRACE_SECONDS", 0.0)
    host, returned = following.host, threading.Event()

    class StuckProducer(StubProducer):
        def commit_transaction(self, timeout: float) -> None:
            super().commit_transaction(timeout)
            entered.set()
            assert released.wait(LIMIT)
            returned.set()

    following.follow()
    following.run_task()
    stuck = host._copies[FIRST].active
    assert stuck is not None
    stuck._writer.producer = StuckProducer(broker)
    time.sleep(0.002)
    while host._copies[FIRST].active is stuck:
        host._process()
    assert entered.is_set()
    # Started again, it finds in the changelog what the other has written.
    again = host._copies[FIRST].active
    assert again not in (None, stuck)
    following.run_task()
    store = host._copies[FIRST].store
    assert (store.input_offset, store.get(b"a")) == (1, b"1")
    broker.lines.append(b"a")
    time.sleep(0.002)
    host._process()
    host._deactivate([FIRST])
    assert (store.input_offset, store.get(b"a")) == (2, b"2")
    position = store.position
    # What returns now changes nothing.
    released.set()
    assert returned.wait(LIMIT)
    with stuck._ending:
        assert (store.input_offset, store.position, store.get(b"a")) == (2, position, b"2")
    host._drop([FIRST])
    host._directory.close()


def test_a_transaction_that_hangs_holds_only_its_own_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, released = Broker(), threading.Event()
    monkeypatch.setattr(hosts, "_HELD_SECONDS", 0.01)
    following = Following(broker, tmp_path, monkeypatch, Background())
    following.membership.arrived = [Assigned(1, (0, 1), MemberTasks(), 0, "member")]
    following.follow()
    host, second = following.host, TaskId(0, 1)
    following.run_task()
    while not (other := host._copies[second].active) or not other.running:
        host._restore()

    class HangingProducer(StubProducer):
        def commit_transaction(self, timeout: float) -> None:
            assert released.wait(LIMIT)
            super().commit_transaction(timeout)

    hanging = host._copies[FIRST].active
    assert hanging is not None
    hanging._writer.producer = HangingProducer(broker)
    store, others = host._copies[FIRST].store, host._copies[second].store
    for lines in (1, 2, 3):
        broker.lines.append(b"a")
        while others.input_offset < lines:
            time.sleep(0.002)
            host._process()
    assert (store.input_offset, hanging.next_offset) == (0, 1)
    # Then it goes on where it stopped.
    released.set()
    while store.input_offset < 3:
        time.sleep(0.002)
        host._process()
    assert (store.get(b"a"), others.get(b"a"), host._copies[FIRST].active) == (b"3", b"3", hanging)
    assert not host._copies[FIRST].failures
    host._drop(list(host._copies))
    host._directory.close()


def test_a_task_that_is_given_up_takes_its_transaction_under_way_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, entered, released = Broker(b"a"), threading.Event(), threading.Event()
    monkeypatch.setattr(hosts, "_HELD_SECONDS", 0.01)
    following = Following(broker, tmp_path, monkeypatch, Background())
    host, began = following.host, list[None]()

    class HangingProducer(StubProducer):
        def begin_transaction(self) -> None:
            began.append(None)
            super().begin_transaction()

        def commit_transaction(self, timeout: float) -> None:
            entered.set()
            assert released.wait(LIMIT)
            super().commit_transaction(timeout)

    following.follow()
    following.run_task()
    active, store = host._copies[FIRST].active, host._copies[FIRST].store
    assert active is not None
    active._writer.producer = HangingProducer(broker)
    time.sleep(0.002)
    host._process()
    assert entered.wait(LIMIT)
    following.membership.waits = released.set  # type: ignore[method-assign]
    monkeypatch.setattr(hosts, "_SIGN_OF_LIFE_SECONDS", 0.01)
    host._deactivate([FIRST])
    assert (len(began), store.input_offset, store.get(b"a")) == (1, 1, b"1")
    host._drop([FIRST])
    host._directory.close()


def test_where_a_transaction_went_is_asked_of_the_changelog(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    broker = Broker(b"a")
    task = running_task(configured(tmp_path), broker, WordCount(), executor)
    task.process([Record(None, b"a", 0, 0)])

    class ForgetfulProducer(StubProducer):
        def produce(self, *args: Any, on_delivery: Any = None, **more: Any) -> None:
            super().produce(*args, **more)
            if on_delivery is not None:
                on_delivery(None, SimpleNamespace(offset=lambda: None))

    task._writer.producer = ForgetfulProducer(broker)
    with pytest.raises(tasks.Unanswered, match="where its transaction was written is not known"):
        task.commit(GENERATION)
    # The state is as before, and the changelog has what follows.
    assert (task.store.position, task.store.get(b"a")) == (0, None)
    assert broker.log
    task.close()


def test_a_task_that_is_given_up_before_its_start_ended_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, executor: ThreadPoolExecutor
) -> None:
    begun, released = threading.Event(), threading.Event()

    class StuckWriter(StubWriter):
        def begin(self, deadline: float) -> None:
            begun.set()
            released.wait(LIMIT)

    configs = configured(tmp_path, task_timeout_ms=1)
    changelog: Any = StubReader(Broker(), configs.changelog_topic)
    writer: Any = StuckWriter(Broker())
    store = StateStore(tmp_path / "0_0")
    task = tasks.ActiveTask(
        configs, FIRST, "process", store, writer, changelog, WordCount(), executor, lambda: True
    )
    begun.wait(LIMIT)
    try:
        task.close()
    finally:
        released.set()
    assert "task 0_0: given up before its start ended" in caplog.text


def test_stopping_while_the_brokers_are_away_takes_one_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    broker = Broker()
    together = threading.Barrier(8)
    allowed: list[float] = []

    class AwayProducer(StubProducer):
        def commit_transaction(self, timeout: float) -> None:
            allowed.append(timeout)
            together.wait(LIMIT)
            error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT)
            raise confluent_kafka.KafkaException(error)

    configs = configured(tmp_path)
    host = hosts.Host(configs, WordCount())
    reader: Any = StubReader(broker, configs.changelog_topic)
    host._input = host._changelog = reader
    host._executor = executor
    host._directory = StateDirectory(tmp_path)
    host._followed = Assigned(1, (), MemberTasks(), 0, "member")
    membership: Any = StubMembership()
    host._membership = membership
    monkeypatch.setattr(tasks, "time", Clock())
    monkeypatch.setattr(hosts, "time", Clock())
    for partition in range(8):
        task = TaskId(0, partition)
        writer: Any = StubWriter(broker)
        writer.producer = AwayProducer(broker)
        copy = hosts.Copy("active", StateStore(tmp_path / str(task)), writer)
        host._copies[task] = copy
        host._activate(task, copy)
        assert copy.active is not None
        copy.active.run()
        copy.active.process([Record(None, b"a", partition, 0)])
    # All transactions are under way at the same time.
    host._drop(list(host._copies))
    assert allowed == [configs.transaction_timeout_ms / 1000] * 8
    assert (host._copies, broker.log) == ({}, [])
    host._directory.close()


class LineProducer:
    """Takes some lines, then has no room; refuses those of one partition in the end."""

    def __init__(self, room: int, stop: threading.Event, refused: int = -1) -> None:
        self._room, self._stop, self._refused = room, stop, refused
        self._queue: list[tuple[int, Callable[[Any, None], None]]] = []

    def produce(
        self, topic: str, value: bytes, partition: int, on_delivery: Callable[[Any, None], None]
    ) -> None:
        if len(self._queue) == self._room:
            raise BufferError("Local: Queue full")
        self._queue.append((partition, on_delivery))

    def poll(self, timeout: float) -> None:
        if len(self._queue) == self._room:
            self._stop.set()

    def flush(self, timeout: float) -> None:
        expired = SimpleNamespace(str=lambda: "Local: Message timed out")
        for partition, on_delivery in self._queue:
            on_delivery(expired if partition == self._refused else None, None)


@pytest.mark.parametrize("refused", [-1, 1])
def test_lines_count_once_they_have_arrived(monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    stop = threading.Event()
    topics = SimpleNamespace(create=lambda *_: None)
    monkeypatch.setattr(word_count, "Topics", lambda _: topics)
    monkeypatch.setattr(word_count, "create", lambda *_: LineProducer(100, stop, refused))

    def write() -> int:
        return word_count.write_lines("x:1", "lines", partitions=4, rate=1e6, stop=stop)

    if refused < 0:
        assert write() == 100
    else:
        with pytest.raises(GroupError, match="25 of 100 lines not written: Local: Message timed"):
            write()


def test_an_error_of_a_partition_that_is_no_longer_read_is_nothing_to_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    broker = Broker(b"a b")
    following = Following(broker, tmp_path, monkeypatch, executor)
    host = following.host
    following.follow()
    following.run_task()
    time.sleep(0.002)
    host._process()
    # The client looked up its position, got no answer, and says so when the task runs already.
    monkeypatch.setattr(host._changelog, "read", lambda *_: Batch(ends={0: 9}, missing={0}))
    host._restore()
    broker.lines.append(b"a")
    time.sleep(0.002)
    host._process()
    assert broker.counts() == {b"a": b"2", b"b": b"1"}
    host._drop([FIRST])
    # Nor is it to a member that has given the task up.
    host._restore()
    host._directory.close()
