"""Executes plans on a real cluster: ``Executor(...).execute(plan) -> Outcome``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from balancer.execution import journal as records
from balancer.execution import throttle
from balancer.execution.cluster import ClusterClient, Kafka
from balancer.execution.errors import ChangedClusterError, ExecutionError
from balancer.execution.fence import Fence, FencedCluster, Vote
from balancer.execution.identity import check_identity, check_stated
from balancer.execution.journal import Journal, RecordedExecution, is_damaged, read_journal
from balancer.execution.limits import Limits
from balancer.execution.outcome import Outcome, Progress
from balancer.execution.recovery import reconstructed_execution, superseded
from balancer.execution.run import Run, still_moving, still_moving_sentence
from balancer.execution.steering import Steering
from balancer.execution.stop import Stop
from balancer.execution.targets import (
    PlanReading,
    Target,
    changed_since,
    demoted_brokers,
    read_plan,
)
from balancer.execution.tasks import Task, make_tasks
from balancer.planning.document import PlanDocument
from balancer.planning.plan import Plan


class Preview(NamedTuple):
    """What an execution would do: its tasks, and what it would leave out and why."""

    tasks: list[Task]
    problems: list[str]


class Executor:
    """Executes plans, one at a time.

    Parameters
    ----------
    bootstrap
        ``"host:port,host:port"`` of the cluster.
    journal
        File that records the execution, so that it survives the process. One journal holds
        one execution.
    limits
        Speed, order and timeouts.
    client
        Client properties (TLS, SASL), as accepted by :func:`cluster_model.kafka.read_cluster`.
        They are never written anywhere.
    slow
        Returns whether the cluster suffers in a way that Kafka's admin interface does not
        show, as :class:`LocalTimes` detects from slow requests; then fewer moves run, and
        their number does not rise until it is over. Called at each look at the cluster.
    owner
        Name under which throttles are marked in Kafka as this executor's. :meth:`recover`
        then also ends what another executor of that name left behind if its journal is out of
        reach, for example on another machine. Executors of one name must not act at the same
        time: `vote` has to ensure that.
    vote
        Whether this executor may write to Kafka, such as a
        :class:`balancer.controller.Election`. It is proven before each write; once it is
        lost, an execution touches nothing more and leaves its journal open. Without a vote,
        only a shared journal keeps two executors of a cluster apart.
    connect
        Returns the cluster to use instead of a Kafka at `bootstrap`.

    Examples
    --------
    ::

        executor = Executor("localhost:9092", journal=Path("execution.journal"),
                            limits=Limits(throttle=50e6))
        executor.recover()
        outcome = executor.execute(plan)
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        journal: Path,
        limits: Limits | None = None,
        client: Mapping[str, Any] | None = None,
        slow: Callable[[], bool] | None = None,
        owner: str | None = None,
        vote: Vote | None = None,
        connect: Callable[[], ClusterClient] | None = None,
    ) -> None:
        self._journal = Journal(Path(journal))
        self._limits = limits or Limits()
        self._stop = Stop(self._limits.stop_timeout)
        self.steering = Steering()
        self._slow = slow
        self._owner = owner
        self._vote = vote
        self._bootstrap, self._client = bootstrap, client
        self._connect = connect

    def execute(
        self,
        plan: Plan | PlanDocument,
        *,
        cluster_id: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Execute a plan; returns when it is done, stopped or has failed.

        Parameters
        ----------
        plan
            The plan, as proposed or as loaded from its file.
        cluster_id
            The cluster to act on; required if the plan names none.
        progress
            Called with the progress after each look at the cluster.

        Raises
        ------
        ExecutionError
            If the plan is for another cluster, names none and none is stated, or was
            changed after it was made; if the journal holds an unfinished execution or cannot
            be written; or if the vote is not held.
        KafkaSourceError
            If the brokers do not answer at the start, or refuse.
        """
        return self._execute(plan, cluster_id, progress, exactly=False)

    def execute_exactly(
        self,
        plan: Plan | PlanDocument,
        *,
        progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Execute the whole plan as people approved it, or nothing.

        :meth:`execute` leaves partitions that others changed as they are, and executes the rest.

        Raises
        ------
        ChangedClusterError
            If any partition is no longer as the plan expects, something else reassigns it, or a
            broker that receives replicas is not there; nothing was done.
        ExecutionError, KafkaSourceError
            As :meth:`execute`.
        """
        return self._execute(plan, None, progress, exactly=True)

    def _execute(
        self,
        plan: Plan | PlanDocument,
        cluster_id: str | None,
        progress: Callable[[Progress], None] | None,
        *,
        exactly: bool,
    ) -> Outcome:
        self._stop.clear(self._limits.stop_timeout)
        self.steering.clear()
        with self._journal.locked():
            old = self._ended()
            fence = self._fence()
            with self._cluster(fence) as cluster:
                # A plan that is refused in any case need not wait for the vote.
                self._identify(plan, cluster, cluster_id)
                fence.begin()
                reading = self._read(plan, cluster, exactly=exactly)
                left: list[throttle.ThrottleConfig] = []
                moving: list[Task] = []
                if old is not None and not old.closed:
                    self._same(old, cluster)
                    moving = still_moving(cluster, old.left)
                    left, _ = throttle.remove(
                        cluster, old.throttles, throttle.flows(moving), self._limits
                    )
                tasks = self._tasks(reading.targets)
                recorded = RecordedExecution(
                    cluster.identity(),
                    reading.targets,
                    {t.id: t for t in tasks},
                    {t.id: "pending" for t in tasks},
                    throttles=left,
                    omitted=reading.problems,
                    left=moving,
                    epoch=fence.epoch,
                )
                self._journal.begin(
                    recorded.cluster,
                    [
                        *records.planned(reading.targets, tasks),
                        {"record": "omitted", "problems": reading.problems},
                        *records.throttling(left),
                        records.moves_left(moving),
                    ],
                    epoch=fence.epoch,
                )
                try:
                    return self._run(cluster, recorded, progress, reading)
                finally:
                    self.steering.clear()

    def recover(
        self,
        *,
        cluster_id: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Outcome | None:
        """Finish what an execution that died left behind.

        Ongoing reassignments are waited for, and tasks not yet started are started; an
        execution that was stopping or rolling back continues with that. Throttles are
        removed. Reassignments by others are left alone.

        With an owner, the same applies to the traces in Kafka of another executor's execution;
        only its ongoing moves are known, and they are waited for. Nothing more is started of this
        executor's own execution if another executor has ended it in this way, or if it is older
        than the limit ``resume_within``: its plan is for an outdated cluster.

        Parameters
        ----------
        cluster_id
            The cluster to act on; None means the one that the brokers belong to.
        progress
            Called with the progress after each look at the cluster.

        Returns
        -------
        Outcome or None
            None if nothing was left.

        Raises
        ------
        ExecutionError
            If the journal cannot be read, or the brokers are of another cluster than the journal
            or than `cluster_id`. A damaged journal, for example after a power loss, is set
            aside if an owner's marks in Kafka show what to do.
        KafkaSourceError
            If the brokers do not answer, or refuse.
        """
        self._stop.clear(self._limits.stop_timeout)
        # A pause and other limits were for the execution that ended.
        self.steering.clear()
        if self._owner is None and not self._journal.path.exists():
            return None
        with self._journal.locked():
            recorded, damage = self._recorded()
            if damage and self._owner is None:
                raise ExecutionError(
                    f"{damage}; throttles that its execution set may still be in Kafka, and its "
                    "moves in progress"
                )
            left_open = recorded is not None and not recorded.closed
            if self._owner is None and not left_open:
                return None
            fence = self._fence()
            with self._cluster(fence) as cluster:
                if cluster_id is not None:
                    check_stated(cluster_id, cluster.identity())
                fence.begin()
                outcome = None
                lost = self._lost(damage) if damage else None
                if recorded is not None and left_open:
                    outcome = self._resume(cluster, fence, recorded, progress)
                    if recorded.ended is None or outcome.state == "vote lost":
                        # Kafka is unreachable, or another process acts: keep the journal.
                        return outcome
                if self._owner is None:
                    return outcome
                adopted = self._adopt(cluster, fence, self._owner, recorded, progress)
                outcome = outcome if adopted is None else adopted.after(outcome)
                if lost is None:
                    return outcome
                # Nothing more can be learned about it, and it must not appear as done.
                ended = outcome or Outcome("done", 0, 0, 0, 0.0, 0.0)
                return replace(ended, state="failed", problems=(lost, *ended.problems))

    def left(self) -> tuple[str, ...] | None:
        """What the last execution left in Kafka, one sentence each; does not wait.

        A move that cannot be cancelled continues in Kafka and keeps its throttle. Moves that
        have ended since are forgotten, and their throttles are removed.

        Returns
        -------
        tuple of str or None
            None if the execution has not ended: that requires :meth:`recover`.

        Raises
        ------
        ExecutionError
            If the journal cannot be read or written, is of another cluster, or the vote is not
            held.
        KafkaSourceError
            If the brokers do not answer, or refuse.
        """
        self._stop.clear(self._limits.stop_timeout)
        if not self._journal.path.exists():
            return ()
        with self._journal.locked():
            recorded, damage = self._recorded()
            if damage or (recorded is not None and recorded.ended is None):
                return None
            if recorded is None or recorded.closed:
                return ()
            fence = self._fence()
            with self._cluster(fence) as cluster:
                self._same(recorded, cluster)
                fence.begin()
                moving = still_moving(cluster, recorded.left)
                self._journal.resume()
                if moving != recorded.left:
                    self._journal.append(records.moves_left(moving))
                lasting = throttle.flows(moving)
                kept, _ = throttle.remove(cluster, recorded.throttles, lasting, self._limits)
                if kept != recorded.throttles:
                    self._journal.append(records.throttles_left(kept))
        if kept and not moving:
            names = sorted({f"{s.kind} {s.name}" for s in kept})
            return (f"throttles are still set on {', '.join(names)}",)
        return tuple(still_moving_sentence(task, throttled=bool(kept)) for task in moving)

    @property
    def vote(self) -> Vote | None:
        """The vote that is proven before each write."""
        return self._vote

    def stop(self, *, rollback: bool = False) -> None:
        """Stop the execution in progress, from any thread; `execute` then returns.

        Running tasks are cancelled, waiting ones are not started; with `rollback`, completed
        moves are reversed.
        """
        self._stop.ask(rollback)

    @property
    def limits(self) -> Limits:
        """The limits, with what an operator changed for the execution in progress."""
        return self.steering.applied(self._limits)

    def adjust(self, **changes: Any) -> None:
        """Change speed limits of the execution in progress, from any thread.

        Parameters
        ----------
        changes
            See :meth:`balancer.execution.steering.Steering.adjust`.

        Raises
        ------
        ExecutionError
            Naming the limit, the value found and what was expected.
        """
        self.steering.adjust(self._limits, **changes)

    def configure(self, limits: Limits) -> None:
        """Use other limits from the next execution on."""
        self._limits = limits

    def preview(self, plan: Plan | PlanDocument, *, cluster_id: str | None = None) -> Preview:
        """What :meth:`execute` would do now; changes nothing.

        Raises
        ------
        ExecutionError
            If :meth:`execute` would refuse the plan, or the journal holds an execution that
            has not ended or is in progress.
        KafkaSourceError
            If the brokers do not answer, or refuse.
        """
        if self._journal.path.exists():
            with self._journal.locked():
                self._ended()
        with self._cluster(Fence(None, 0.0, self._stop)) as cluster:
            self._identify(plan, cluster, cluster_id)
            reading = self._read(plan, cluster)
        return Preview(self._tasks(reading.targets), [*reading.problems, *reading.gone])

    def _ended(self) -> RecordedExecution | None:
        """The execution in the journal, if any; refuses one that has not ended."""
        old, damage = self._recorded()
        if damage:
            raise ExecutionError(f"{damage}; recover it first (counterpoise execute --recover)")
        if old is not None and old.ended is None:
            raise ExecutionError(
                f"journal {self._journal.path} holds an execution that did not end: "
                "recover it first (counterpoise execute --recover)"
            )
        return old

    def _recorded(self) -> tuple[RecordedExecution | None, str]:
        """What the journal holds; if it is damaged, None and what is wrong with it."""
        path = self._journal.path
        try:
            return read_journal(path), ""
        except ExecutionError as error:
            if not path.is_file() or not os.access(path, os.R_OK) or not is_damaged(path):
                raise
            return None, str(error)

    def _lost(self, damage: str) -> str:
        """Set a damaged journal aside; returns a sentence on what happens to its execution."""
        aside = self._journal.set_aside()
        return (
            f"{damage}; it was set aside as {aside.name}, and what the marks of its throttles "
            "show in Kafka was finished: moves that were not throttled, and "
            f"{throttle.LOG_DIR_RATE}, carry no mark"
        )

    def _resume(
        self,
        cluster: ClusterClient,
        fence: Fence,
        recorded: RecordedExecution,
        progress: Callable[[Progress], None] | None,
    ) -> Outcome:
        """Finish the execution in the journal."""
        self._same(recorded, cluster)
        idle = time.time() - self._journal.path.stat().st_mtime
        self._journal.resume()
        # If no other process has held the vote since, no other can have ended it.
        alone = recorded.epoch is not None and recorded.epoch in (fence.epoch, fence.previous)
        gone = set() if alone else superseded(cluster, recorded, self._owner)
        limit = self._limits.resume_within
        # A journal from the future predates a clock that was set back: its age is unknown.
        old = self._owner is not None and limit is not None and abs(idle) > limit
        changes: list[dict[str, Any]] = []
        reported: list[str] = []
        if recorded.ended is not None and recorded.left:
            changes.append(records.reopened(recorded))
        if gone or old or recorded.given_up:
            waiting = sum(state == "pending" for state in recorded.states.values())
            if waiting or (recorded.stop == "rollback" and not recorded.going_back):
                why = "it is too old" if old else "another executor has taken over since"
                reported.append(f"the rest of the execution was given up: {why}")
            recorded.throttles = [s for s in recorded.throttles if s not in gone]
            changes += records.given_up(recorded)
        # Last: in the epoch that its journal states, an execution cannot be another process's.
        if fence.epoch is not None:
            recorded.epoch = fence.epoch
            changes.append({"record": "resumed", "epoch": fence.epoch})
        self._journal.append(*changes)
        return self._run(cluster, recorded, progress, PlanReading([], recorded.omitted, reported))

    def _adopt(
        self,
        cluster: ClusterClient,
        fence: Fence,
        owner: str,
        old: RecordedExecution | None,
        progress: Callable[[Progress], None] | None,
    ) -> Outcome | None:
        """Finish what the owner's marks show, and what is left of an `old` execution."""
        left = [] if old is None else old.throttles
        recorded = reconstructed_execution(cluster, owner, fence.epoch)
        if recorded is None:
            return None
        topics = sorted({s.name for s in recorded.throttles if s.kind == "topic"})
        known = {(s.resource, s.key) for s in left}
        found = [s for s in recorded.throttles if (s.resource, s.key) not in known]
        if not found:
            return None
        recorded.throttles = [*left, *found]
        known_moves = {task.key for task in recorded.tasks.values()}
        recorded.left = [t for t in (old.left if old else ()) if t.key not in known_moves]
        self._journal.begin(
            recorded.cluster,
            [
                {"record": "adopted"},
                *records.planned(recorded.targets, recorded.tasks.values()),
                *(records.changed(i, state) for i, state in recorded.states.items()),
                *records.throttling(recorded.throttles),
                records.moves_left(recorded.left),
            ],
            epoch=fence.epoch,
        )
        reported = (
            f"throttles of an execution whose journal is out of reach were found on {len(topics)} "
            f"topics (such as {topics[0]}), and {len(recorded.tasks)} of its moves in progress; "
            "what it had not started is not known: execute its plan again to continue it"
        )
        return self._run(cluster, recorded, progress, PlanReading([], [], [reported]))

    def _tasks(self, requested: list[Target]) -> list[Task]:
        return make_tasks(requested, one_at_a_time=self._limits.one_replica_at_a_time)

    def _run(
        self,
        cluster: ClusterClient,
        recorded: RecordedExecution,
        progress: Callable[[Progress], None] | None,
        reading: PlanReading,
    ) -> Outcome:
        return Run(
            cluster,
            self._journal,
            recorded,
            reading,
            self._limits,
            self._stop,
            progress,
            self._slow,
            self._owner,
            self.steering,
        ).carry_out()

    def _identify(
        self, plan: Plan | PlanDocument, cluster: ClusterClient, cluster_id: str | None
    ) -> None:
        """Refuse a plan for another cluster, or one that was changed after it was made."""
        document = plan.document() if isinstance(plan, Plan) else plan
        check_identity(document, cluster_id, cluster.identity())

    def _read(
        self, plan: Plan | PlanDocument, cluster: ClusterClient, *, exactly: bool = False
    ) -> PlanReading:
        """What the plan asks for, with the location and size of replicas on disk."""
        document = plan.document() if isinstance(plan, Plan) else plan
        topics = sorted({a.topic for a in document.actions})
        view = cluster.view(None if demoted_brokers(plan) else topics)
        reading = read_plan(plan, view)
        if exactly and (changed := changed_since(document, reading, view)):
            raise ChangedClusterError(changed)
        held = cluster.held(
            (w.key, b) for w in reading.targets for b in w.origin if b in view.brokers
        )
        requested = []
        for w in reading.targets:
            there = {b: held[w.key, b] for b in w.origin if (w.key, b) in held}
            size = max((h.size for h in there.values()), default=w.size)
            dirs = {b: h.log_dir for b, h in there.items()}
            requested.append(w.model_copy(update={"origin_dirs": dirs, "size": size}))
        return reading._replace(targets=requested)

    def _same(self, recorded: RecordedExecution, cluster: ClusterClient) -> None:
        found = cluster.identity()
        if found != recorded.cluster:
            raise ExecutionError(
                f"journal {self._journal.path} is of cluster {recorded.cluster}, but the brokers "
                f"belong to cluster {found}: name the journal of that cluster"
            )

    def _fence(self) -> Fence:
        return Fence(self._vote, self._limits.outage_timeout, self._stop)

    @contextmanager
    def _cluster(self, fence: Fence) -> Iterator[ClusterClient]:
        if self._connect is not None:
            yield FencedCluster(self._connect(), fence)
            return
        limits = self._limits
        kafka = Kafka(
            self._bootstrap,
            self._client,
            timeout=limits.timeout,
            outage_timeout=limits.outage_timeout,
            given_up=lambda: self._stop.overdue,
            fence=None if self._vote is None else fence,
        )
        try:
            yield kafka
        finally:
            kafka.close()
