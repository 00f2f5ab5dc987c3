"""A word count on a real Kafka: its members come, go, die and hang, and every line counts once."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from real_kafka import KafkaCluster
from waiting import LIMIT, wait_for

from balancer.assignment.group import GroupConfigs, GroupError, Host, Record, State
from balancer.assignment.group.messages import MemberTasks
from balancer.assignment.group.topics import Topics
from balancer.assignment.group.word_count import PartitionCheck, check, wait_until_processed

PARTITIONS = 6
# A member that is gone is noticed after this time: most of the gap after a kill -9.
SESSION_SECONDS = 2.0
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "stateful-tasks.md"


class Member:
    """A member as a process, and what it says of its tasks."""

    def __init__(self, command: list[str], log: Path, directory: Path | None = None) -> None:
        self.command, self.log, self.directory = command, log, directory
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._before = log.tell()
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def said(self) -> str:
        return self.log.read_bytes()[self._before :].decode()

    def assigned(self) -> tuple[int, int, int] | None:
        """Generation, active tasks and standbys, if no more rebalance is due."""
        lines = [line for line in self.said().splitlines() if " generation " in line]
        if not lines or "next rebalance" in lines[-1]:
            return None
        found = re.search(r"generation (\d+): active (.*); standby (.*); warm-up none", lines[-1])
        if found is None:
            return None
        active, standby = (text.count("_") for text in found.groups()[1:])
        return int(found[1]), active, standby

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(120) == 0, self.said()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Application:
    """A word count with members that are started one by one."""

    def __init__(self, cluster: KafkaCluster, name: str, directory: Path, ends: ExitStack) -> None:
        self.members: dict[int, Member] = {}
        self._directory, self._ends, self._servers = directory, ends, cluster.bootstrap
        self._cluster = cluster
        self._topic = f"lines-{name}"
        self.configs = GroupConfigs(
            bootstrap_servers=self._servers,
            application_id=f"count-{name}",
            input_topic=self._topic,
            state_dir=directory,
        )
        Topics(self._servers).create(self._topic, PARTITIONS, {})
        rate = ["--rate", "150", "--seconds", "300", "--partitions", str(PARTITIONS)]
        self.load = Member(self._command("load", *rate), directory / "load.log")
        ends.callback(self.load.end)

    def _command(self, name: str, *options: str) -> list[str]:
        main = "from balancer.cli import main; main()"
        shared = ["--bootstrap-server", self._servers, "--topic", self._topic]
        return [sys.executable, "-c", main, "word-count", name, *shared, *options]

    def start(self, number: int) -> Member:
        options = {
            "--application": self.configs.application_id,
            "--state-dir": str(self._directory / f"state-{number}"),
            "--standbys": "1",
            "--acceptable-lag": "500",
            "--probing-interval": "1.5",
            "--session-timeout": str(SESSION_SECONDS),
            "--heartbeat": "0.2",
        }
        command = self._command("run", *(word for pair in options.items() for word in pair))
        self.members[number] = Member(command, self._directory / f"member-{number}.log")
        self._ends.callback(self.members[number].end)
        return self.members[number]

    def await_balance(self, *numbers: int) -> None:
        """Wait until these members share the tasks evenly, and each task has a standby."""
        each = PARTITIONS // len(numbers)
        standbys = each if len(numbers) > 1 else 0

        def even() -> bool:
            for n in numbers:
                assert self.members[n].process.poll() is None, self.members[n].said()
            found = [self.members[n].assigned() for n in numbers]
            generations = {None if f is None else f[0] for f in found}
            shares = all(f is not None and f[1:] == (each, standbys) for f in found)
            return len(generations) == 1 and shares

        wait_for(even, self._said)

    def _await_lines(self) -> None:
        """Wait until each partition has lines: before it writes, the load cannot be stopped."""

        def written() -> bool:
            ends = Topics(self._servers).ends(self._topic, range(PARTITIONS), 10)
            return ends is not None and all(ends.values())

        wait_for(written, self.load.said)

    def finish(self) -> list[PartitionCheck]:
        """End the load, and check that everything counts once."""
        self._await_lines()
        self.load.stop()
        if not wait_until_processed(self.configs, 180):
            pytest.fail(f"not all is processed: {self._said()}")
        checks = check(self.configs)
        if not all(c.correct for c in checks):
            wrong = [c.partition for c in checks if not c.correct]
            logs = "\n\n".join(self._log_of(p) for p in wrong)
            pytest.fail(f"{checks}: {self._said()}\n\n{logs}")
        return checks

    def _log_of(self, partition: int) -> str:
        """What each broker has of a changelog: progress, and where transactions ended."""
        name = f"{self.configs.changelog_topic}-{partition}"
        said = []
        for file in sorted(self._cluster.directory.glob(f"data-*/**/{name}/*.log")):
            dump = ("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", file)
            lines = self._cluster.run_tool(*dump, check=False, of_files=True).splitlines()
            kept = [line for line in lines if re.search(r"endTxnMarker|key: i|baseOffset", line)]
            said.append("\n".join([str(file), *kept]))
        return "\n".join(said)

    def _said(self) -> str:
        return "\n\n".join(f"member {n}\n{m.said()}" for n, m in self.members.items())


@pytest.fixture
def application(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Application]:
    with ExitStack() as ends:
        yield Application(kafka_cluster, uuid.uuid4().hex[:8], tmp_path, ends)


@pytest.mark.soak
def test_members_come_go_die_and_hang_and_every_line_counts_once(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    began: dict[str, float] = {}

    def step(name: str) -> None:
        began[name] = time.time()

    application.start(1)
    application.await_balance(1)
    # It has read what was there before it.
    wait_until_some_processed(application)
    step("two members")
    application.start(2)
    application.await_balance(1, 2)
    step("three members")
    application.start(3)
    application.await_balance(1, 2, 3)
    step("kill -9")
    application.members[2].end()
    application.await_balance(1, 3)
    step("back with its state")
    application.members[2].start()
    application.await_balance(1, 2, 3)
    step("hangs")
    application.members[3].process.send_signal(signal.SIGSTOP)
    application.await_balance(1, 2)
    step("wakes up")
    application.members[3].process.send_signal(signal.SIGCONT)
    application.await_balance(1, 2, 3)
    step("one stops")
    application.members[3].stop()
    application.await_balance(1, 2)
    step("another stops")
    application.members[2].stop()
    application.await_balance(1)
    step("end")
    checks = application.finish()
    application.members[1].stop()

    names = list(began)
    gaps = {
        name: [c.gap(began[name], began[after]) for c in checks] for name, after in pairwise(names)
    }
    with capsys.disabled():
        print(
            f"\n{'longest gap in seconds of partition':36}", *(f"{c.partition:5}" for c in checks)
        )
        for name, of in gaps.items():
            print(f"{name:36}", *(f"{gap:5.2f}" for gap in of))
    assert len(checks) == PARTITIONS
    assert all(c.records for c in checks)
    assert {p for c in checks for p in c.processes} == {
        (application._directory / f"state-{n}" / "process-id").read_text() for n in (1, 2, 3)
    }


def wait_until_some_processed(application: Application) -> None:
    def processed() -> bool:
        checks = check(application.configs)
        return len(checks) == PARTITIONS and all(c.records - c.processed < 100 for c in checks)

    wait_for(processed)


@pytest.mark.soak
def test_a_member_with_a_malformed_report_does_not_stop_the_others(
    application: Application,
) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    assigned: list[object] = []

    class Garbage(AbstractPartitionAssignor):  # type: ignore[misc]
        name = "counterpoise-tasks"

        def supported_protocols(self) -> list[object]:
            return [RebalanceProtocol.COOPERATIVE]

        def metadata(self, topics: set[str]) -> object:
            return ConsumerProtocolSubscription(
                version=2, topics=sorted(topics), user_data=b"\xffnonsense", owned_partitions=[]
            )

        def assign(self, cluster: object, members: object) -> dict[str, object]:
            raise AssertionError("it never leads")

        def on_assignment(self, assignment: object, generation: int) -> None:
            assigned.append(assignment)

    application.start(1)
    application.await_balance(1)
    consumer = KafkaConsumer(
        bootstrap_servers=application.configs.bootstrap_servers,
        group_id=application.configs.application_id,
        partition_assignment_strategy=[Garbage()],
        enable_auto_commit=False,
    )
    consumer.subscribe([application.configs.input_topic])
    try:
        deadline = time.monotonic() + 180
        while not assigned and time.monotonic() < deadline:
            consumer.poll(timeout_ms=200)
    finally:
        consumer.close()
    (assignment,) = assigned[:1]
    assert assignment.partitions() == []  # type: ignore[attr-defined]
    assert MemberTasks.decode(bytes(assignment.user_data)) == MemberTasks()  # type: ignore[attr-defined]
    application.await_balance(1)
    assert "gets no tasks: user data" in application.members[1].said()
    checks = application.finish()
    assert math.isfinite(max(c.gap() for c in checks))


class StuckMember:
    """A member, in a thread, that hangs within a record for longer than its group waits."""

    def __init__(self, application: Application) -> None:
        self.entered, self.failures = threading.Event(), list[str]()
        self._release = threading.Event()
        update = {
            "rebalance_timeout_ms": 3000,
            "state_dir": application.configs.state_dir / "stuck",
        }
        self._configs = application.configs.model_copy(update=update)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            Host(self._configs, self).run(threading.Event())
        except GroupError as error:
            self.failures.append(str(error))

    def process(self, record: Record, state: State) -> None:
        self.entered.set()
        self._release.wait(LIMIT)
        # What no recount finds.
        state.put(b"never", b"1")

    def go_on(self) -> None:
        self._release.set()
        self._thread.join(30)
        assert self.failures == [
            f"group {self._configs.application_id}: TimeoutError: "
            "the member was busy for more than 3000 ms"
        ]


@pytest.fixture
def stuck(application: Application) -> Iterator[StuckMember]:
    member = StuckMember(application)
    try:
        assert member.entered.wait(180), member.failures
        yield member
    finally:
        member._release.set()


@pytest.mark.soak
def test_a_member_that_is_stuck_leaves_its_tasks_to_the_others(
    application: Application, stuck: StuckMember
) -> None:
    application.start(1)
    application.await_balance(1)
    stuck.go_on()
    # What it did afterwards was refused.
    application.finish()


@pytest.mark.soak
def test_a_member_that_has_left_commits_nothing_even_if_nobody_has_its_tasks(
    application: Application, stuck: StuckMember
) -> None:
    from confluent_kafka import ConsumerGroupState
    from confluent_kafka.admin import AdminClient

    group = application.configs.application_id
    admin = AdminClient({"bootstrap.servers": application.configs.bootstrap_servers})

    def state() -> Any:
        return admin.describe_consumer_groups([group])[group].result(10).state

    wait_for(lambda: state() == ConsumerGroupState.EMPTY, state)
    stuck.go_on()
    assert [c.processed for c in check(application.configs)] == [0] * PARTITIONS
    application.start(1)
    application.await_balance(1)
    application.finish()


@pytest.mark.soak
def test_a_broker_that_is_away_for_a_while_costs_no_count(
    application: Application, kafka_cluster: KafkaCluster
) -> None:
    topics = Topics(kafka_cluster.bootstrap)
    application.start(1)
    application.start(2)
    application.await_balance(1, 2)
    changelog = application.configs.changelog_topic
    assert topics.ends(changelog, range(PARTITIONS), 10) is not None
    kafka_cluster.kill(1)

    def known() -> bool:
        return topics.ends(changelog, range(PARTITIONS), 2) is not None

    wait_for(lambda: not known(), "a partition without its leader")
    kafka_cluster.restart(1)
    # Also a client that has known the leaders from before: without the ends no task moves.
    wait_for(known, "the leaders are back")
    application.await_balance(1, 2)
    application.finish()


def test_the_word_count_of_the_guide_runs(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    main = [sys.executable, "-c", "from balancer.cli import main; main()"]
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"(?m)^counterpoise (word-count .*)$", text)
    commands = [
        [*main, *shlex.split(line.replace("localhost:9092", kafka_cluster.bootstrap))]
        for line in lines
    ]
    load, *runs, check_ = commands
    assert [command[4] for command in commands] == ["load", "run", "run", "run", "check"]
    with ExitStack() as ends:
        writer = Member(load, tmp_path / "load.log", tmp_path)
        ends.callback(writer.end)
        Topics(kafka_cluster.bootstrap).create("words", PARTITIONS, {})
        members = []
        for n, command in enumerate(runs):
            members.append(Member(command, tmp_path / f"member-{n}.log", tmp_path))
            ends.callback(members[-1].end)
            said = members[-1].said
            wait_for(lambda said=said: ": processes from" in said(), said)  # type: ignore[misc]
        writer.stop()
        done = Member(check_, tmp_path / "check.log", tmp_path)
        ends.callback(done.end)
        assert done.process.wait(180) == 0, done.said()
        assert "every line is counted once" in done.said()
