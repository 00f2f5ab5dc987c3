"""Runs the tasks of one member: processes, restores, and follows the group's assignments."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from balancer.assignment.assignor import TaskAssignor
from balancer.assignment.group.background import Background
from balancer.assignment.group.changelog import Replay
from balancer.assignment.group.configs import GroupConfigs
from balancer.assignment.group.directory import StateDirectory
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.generation import Generation
from balancer.assignment.group.leader import Joined, Leader, MemberAssignment
from balancer.assignment.group.membership import Assigned, Membership
from balancer.assignment.group.messages import MemberReport
from balancer.assignment.group.processing import Processor, Record
from balancer.assignment.group.reader import PartitionReader
from balancer.assignment.group.store import StateStore
from balancer.assignment.group.task import ActiveTask, Fenced, Outdated, Unanswered, Writer
from balancer.assignment.group.topics import Topics
from balancer.assignment.state import TaskId

log = logging.getLogger(__name__)

# Each change of state and each progress is a record of its own; the last of a key counts. The
# broker's clock dates them, so that members can be compared.
CHANGELOG_CONFIG = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}

# Transactions of a task that Kafka may refuse in succession before the member gives up.
_ATTEMPTS = 3
# Seconds between two signs of life while answers of Kafka are awaited, and how long after its
# deadline a call of the client has to return.
_SIGN_OF_LIFE_SECONDS = 1.0
# How long a transaction holds the member's other tasks; then only its own task waits for it.
_HELD_SECONDS = 1.0
_GRACE_SECONDS = 2.0


@dataclass
class Copy:
    """A copy of a task's state on this member, active or not."""

    role: str
    store: StateStore
    # Of a copy that may become active; that of an active one belongs to its task.
    writer: Writer | None = None
    active: ActiveTask | None = None
    # A transaction under way, and when it is over at the latest (monotonic seconds).
    commit: Future[None] | None = None
    commit_until: float = 0.0
    # Whether input is not read until it ends.
    waits: bool = False
    failures: int = 0
    # Since when brokers have not answered, and when last (monotonic seconds).
    unanswered_since: float | None = None
    unanswered_at: float = 0.0


class Host:
    """One member: a process with state of its own.

    Parameters
    ----------
    configs
        Configuration.
    processor
        What is done with a record.
    assignor
        Used while this member leads the group; Kafka's procedure unless given.
    tell
        Called with a sentence for each assignment.

    Examples
    --------
    ::

        Host(configs, WordCount()).run(threading.Event())
    """

    def __init__(
        self,
        configs: GroupConfigs,
        processor: Processor,
        assignor: TaskAssignor | None = None,
        tell: Callable[[str], None] = log.info,
    ) -> None:
        self._configs, self._processor, self._tell = configs, processor, tell
        assignor = assignor or TaskAssignor(configs.assignment)
        self._leader = Leader(assignor.assign, configs.probing_rebalance_interval_ms)
        self._copies: dict[TaskId, Copy] = {}
        # State without a copy: how far it is.
        self._on_disk: dict[TaskId, int] = {}
        # Guards both, as reports are made in another thread.
        self._lock = threading.Lock()
        self._probe_at: float | None = None
        # The assignment that is followed; without one nothing is committed.
        self._followed: Assigned | None = None

    def run(self, stop: threading.Event) -> None:
        """Take part in the group until `stop` is set, then leave it.

        Raises
        ------
        GroupError
            If the member cannot go on; it has left the group.
        """
        configs = self._configs
        with ExitStack() as ends:
            self._directory = StateDirectory(configs.state_dir)
            ends.callback(self._directory.close)
            self._topics = Topics(configs.bootstrap_servers)
            partitions = self._topics.partitions(configs.input_topic)
            if not partitions:
                raise GroupError(f"topic {configs.input_topic}: not found")
            self._topics.create(configs.changelog_topic, partitions, CHANGELOG_CONFIG)
            for task in self._directory.tasks():
                store = StateStore(self._directory.task_path(task))
                self._on_disk[task] = store.position
                store.close()
            self._input = PartitionReader(configs.bootstrap_servers, configs.input_topic)
            ends.callback(self._input.close)
            self._changelog = PartitionReader(configs.bootstrap_servers, configs.changelog_topic)
            ends.callback(self._changelog.close)
            self._executor: Executor = Background()
            # What is not committed by now is repeated by the next owner.
            ends.callback(lambda: self._drop(list(self._copies), commit=False))
            self._membership = Membership(
                configs, partitions, self._report, self._assign, self._leader.forget
            )
            ends.callback(self._membership.close)
            self._take_part(stop)
            stopping = self._executor.submit(self._membership.stop)
            while not stopping.done():
                self._process()
            # The last transactions end in the group: it takes none of who has left.
            self._drop(list(self._copies))

    def _take_part(self, stop: threading.Event) -> None:
        """Follow the group, restore and process until `stop` is set."""
        clean_at = time.monotonic()
        while not stop.is_set():
            for assigned in self._membership.poll():
                self._follow(assigned)
                assigned.applied.set()
            self._restore()
            self._process()
            if self._probe_at is not None and time.monotonic() >= self._probe_at:
                self._probe_at = None
                self._membership.rebalance()
            if time.monotonic() >= clean_at:
                self._clean()
                clean_at = time.monotonic() + self._configs.state_cleanup_delay_ms / 1000

    def _report(self, number: int) -> MemberReport:
        """What this member says when it joins."""
        self._directory.report_begins(number)
        configs = self._configs
        with self._lock:
            copies = dict(self._copies)
            offsets = dict(self._on_disk)
        offsets |= {task: copy.store.position for task, copy in copies.items()}
        active = {task: copy.active for task, copy in copies.items() if copy.active is not None}
        return MemberReport(
            process=self._directory.process,
            capacity=configs.capacity,
            rack=configs.rack,
            tags=configs.tags,
            offsets={str(task): offset for task, offset in offsets.items()},
            state_bytes={str(task): self._directory.state_bytes(task) for task in offsets},
            active=tuple(map(str, active)),
            running=tuple(str(task) for task, a in active.items() if a.running),
            standby=tuple(str(task) for task in copies if task not in active),
        )

    def _assign(
        self, leader: str, joined: Sequence[Joined], partitions: Sequence[int]
    ) -> dict[str, MemberAssignment]:
        """The leader's answer to all members."""
        ends = self._topics.ends(
            self._configs.changelog_topic, partitions, self._configs.offsets_timeout_ms / 1000
        )
        return self._leader.assign(leader, joined, partitions if ends is None else ends)

    def _follow(self, assigned: Assigned) -> None:
        """Make the copies on this member those that the leader requires."""
        if assigned.lost:
            self._followed = self._probe_at = None
            # Others may run these tasks by now, and have shut this member out.
            self._deactivate(list(self._copies), commit=False)
            self._tell("membership lost; joining again")
            return
        self._followed = assigned
        roles = {
            **{TaskId.parse(name): "standby" for name in assigned.tasks.standby},
            **{TaskId.parse(name): "warm-up" for name in assigned.tasks.warmup},
            **{TaskId(0, p): "active" for p in assigned.partitions},
        }
        self._drop([task for task in self._copies if task not in roles])
        self._deactivate([t for t in self._copies if roles[t] != "active"])
        for task, role in roles.items():
            if task in self._copies:
                copy = self._copies[task]
            else:
                copy = Copy(role, StateStore(self._directory.task_path(task)))
                with self._lock:
                    self._copies[task] = copy
                    self._on_disk.pop(task, None)
                self._changelog.add(task.partition, copy.store.position)
            copy.role = role
            if role == "active" and copy.active is None:
                copy.failures, copy.unanswered_since = 0, None
                self._activate(task, copy)
            if copy.active is None and copy.writer is None:
                copy.writer = Writer(self._configs, task)
        self._directory.assignment_applied(assigned.reports)
        after = assigned.tasks.probe_after_ms
        self._probe_at = None if after is None else time.monotonic() + after / 1000
        self._tell(_sentence(assigned.generation, roles, after))

    def _activate(self, task: TaskId, copy: Copy) -> None:
        writer, copy.writer = copy.writer or Writer(self._configs, task), None
        copy.active = ActiveTask(
            self._configs,
            task,
            self._directory.process,
            copy.store,
            writer,
            self._changelog,
            self._processor,
            self._executor,
            partial(self._owns, task.partition),
        )

    def _owns(self, partition: int) -> bool:
        """Whether this member may shut out others who process a partition."""
        followed = self._followed
        return followed is not None and self._membership.owns(followed.member, partition)

    def _generation(self) -> Generation | None:
        """The generation in which transactions are committed; None if they are not."""
        followed = self._followed
        if followed is None:
            return None
        number = self._membership.generation(followed)
        return Generation(self._configs.application_id, followed.member, number)

    def _deactivate(self, tasks: Sequence[TaskId], *, commit: bool = True) -> None:
        """Stop processing tasks, and keep their state current from the changelog.

        Together they take no longer than one transaction may.
        """
        generation = self._generation() if commit else None
        deadline = time.monotonic() + self._configs.answer_seconds
        ending: list[tuple[TaskId, Copy, ActiveTask, Future[None] | None]] = []
        for task in tasks:
            copy = self._copies[task]
            active, copy.active = copy.active, None
            done, copy.commit, copy.waits = copy.commit, None, False
            if active is not None:
                self._input.remove(task.partition)
                if generation is None or not active.running:
                    done = None
                elif done is None:
                    done = self._executor.submit(active.commit, generation, deadline)
                ending.append((task, copy, active, done))
        self._await([done for *_, done in ending if done is not None], deadline)
        for task, copy, active, done in ending:
            was_running = active.running
            try:
                if done is not None:
                    _result(task, done)
            except (Fenced, Outdated, GroupError) as error:
                log.info("task %s: given up without its last records: %s", task, error)
            self._membership.waits()
            active.close(deadline)
            if was_running:
                self._changelog.add(task.partition, copy.store.position)

    def _drop(self, tasks: Sequence[TaskId], *, commit: bool = True) -> None:
        """Close copies; their state stays on disk."""
        self._deactivate(tasks, commit=commit)
        for task in tasks:
            copy = self._copies[task]
            self._changelog.remove(task.partition)
            with self._lock:
                del self._copies[task]
                self._on_disk[task] = copy.store.position
            copy.store.close()
            if copy.writer is not None:
                self._executor.submit(copy.writer.close)

    def _restore(self) -> None:
        """Bring copies that do not process up to date, and start those that are."""
        batch = self._changelog.read(self._configs.batch_records, 0)
        for partition in batch.missing:
            copy = self._copies.get(TaskId(0, partition))
            if copy is None or (copy.active is not None and copy.active.running):
                # A late answer: nothing of a task that runs is restored.
                continue
            log.warning("partition %d: the state on disk is of another changelog", partition)
            copy.store.clear()
            self._changelog.remove(partition)
            self._changelog.add(partition, 0)
        for partition in (batch.messages.keys() | batch.ends.keys()) - batch.missing:
            copy = self._copies.get(TaskId(0, partition))
            if copy is None or (copy.active is not None and copy.active.running):
                continue
            messages = batch.messages.get(partition, ())
            replay = Replay()
            replay.add((m.key(), m.value()) for m in messages)
            position = max(
                [copy.store.position, batch.ends.get(partition, 0)]
                + [m.offset() + 1 for m in messages[-1:]]
            )
            if position > copy.store.position:
                copy.store.apply(replay.changes, position, replay.input_offset)
                if copy.active is not None:
                    copy.active.progressed()
        for task, copy in self._copies.items():
            active = copy.active
            if active is None or active.running:
                continue
            end = active.restored_up_to()
            if end is None:
                continue
            if copy.store.position < end:
                active.check_restoring()
                continue
            self._changelog.remove(task.partition)
            active.run()
            self._input.add(task.partition, active.next_offset)
            self._tell(f"task {task}: processes from {active.next_offset} after {active.age:.2f} s")

    def _process(self) -> None:
        """Process what there is, and commit what is due."""
        # Restoring copies must not wait for input.
        batch = self._input.read(self._configs.batch_records, 0.01)
        if batch.missing:
            raise GroupError(
                f"topic {self._configs.input_topic}: partition {min(batch.missing)} no longer has "
                "the records that come next"
            )
        for partition, messages in batch.messages.items():
            copy = self._copies.get(TaskId(0, partition))
            if copy is not None and copy.active is not None and copy.active.running:
                copy.active.process(
                    [Record(m.key(), m.value(), partition, m.offset()) for m in messages]
                )
        generation = self._generation()
        deadline = time.monotonic() + self._configs.answer_seconds
        begun: list[Future[None]] = []
        for copy in self._copies.values():
            active = copy.active
            if generation is None or active is None or copy.commit is not None:
                continue
            if active.running and active.commit_due:
                copy.commit = self._executor.submit(active.commit, generation, deadline)
                copy.commit_until = deadline + _GRACE_SECONDS
                begun.append(copy.commit)
        if begun:
            wait(begun, _HELD_SECONDS)
            self._membership.waits()
        for task, copy in self._copies.items():
            if copy.commit is None:
                continue
            if not copy.commit.done() and time.monotonic() <= copy.commit_until:
                self._input.remove(task.partition)
                copy.waits = True
                continue
            done, copy.commit = copy.commit, None
            try:
                _result(task, done)
                copy.failures, copy.unanswered_since = 0, None
            except Outdated as error:
                # That is an answer.
                copy.failures, copy.unanswered_since = 0, None
                # The assignment of the group's generation, or the loss of membership, arrives.
                log.debug("task %s: commits later: %s", task, error)
                if error.seconds > self._configs.session_timeout_ms / 1000:
                    # It has not arrived, although the member would have lost its session by now.
                    self._membership.rebalance()
            except Fenced:
                log.info(
                    "task %s: shut out, by another member or since a transaction took too long",
                    task,
                )
                self._deactivate([task], commit=False)
                self._membership.rebalance()
            except GroupError as error:
                if self._gives_up(copy, error):
                    raise
                log.warning("%s; starting it again", error)
                self._deactivate([task], commit=False)
                self._activate(task, copy)
            if copy.waits and copy.active is not None:
                copy.waits = False
                self._input.add(task.partition, copy.active.next_offset)
        if not batch.messages and not batch.ends:
            time.sleep(0.01)

    def _gives_up(self, copy: Copy, error: GroupError) -> bool:
        """Whether a task that could not commit is not to be started again."""
        if isinstance(error, Unanswered):
            now, longest = time.monotonic(), self._configs.task_timeout_ms / 1000
            since = copy.unanswered_since
            # A start and a transaction may each take the longest time; after that it is another
            # outage.
            if since is None or now - copy.unanswered_at > 2 * longest:
                since = now
            copy.unanswered_since, copy.unanswered_at = since, now
            return now - since > longest
        copy.failures += 1
        return copy.failures >= _ATTEMPTS

    def _await(self, answers: Sequence[Future[None]], deadline: float) -> None:
        """Wait for answers of Kafka; the member is not taken to be stuck meanwhile.

        Returns a moment after the deadline of the calls, even if the client returns from none.
        """
        while wait(answers, _SIGN_OF_LIFE_SECONDS).not_done:
            if time.monotonic() > deadline + _GRACE_SECONDS:
                return
            self._membership.waits()

    def _clean(self) -> None:
        """Delete old state that no copy uses."""
        # No report may say what is about to be deleted.
        with self._lock:
            delay = self._configs.state_cleanup_delay_ms
            for task in self._directory.clean(self._copies.keys(), delay):
                self._on_disk.pop(task, None)


def _result(task: TaskId, answer: Future[None]) -> None:
    """Raise what a transaction raised, and Unanswered if the client has not returned in time."""
    if not answer.done():
        raise Unanswered(f"task {task}: cannot commit: the client did not return in time")
    answer.result()


def _sentence(generation: int, roles: dict[TaskId, str], probe_after_ms: int | None) -> str:
    """An assignment in a line."""
    parts = []
    for role in ("active", "standby", "warm-up"):
        tasks = sorted(task for task, r in roles.items() if r == role)
        parts.append(f"{role} {' '.join(map(str, tasks)) or 'none'}")
    line = f"generation {generation}: {'; '.join(parts)}"
    return line if probe_after_ms is None else f"{line}; next rebalance in {probe_after_ms} ms"
