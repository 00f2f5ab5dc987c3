"""A plan carried out on a real cluster: ``Executor(...).execute(plan) -> Outcome``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from balancer.execution import journal as records
from balancer.execution import throttle
from balancer.execution.abandoned import abandoned, superseded
from balancer.execution.cluster import Cluster, Kafka
from balancer.execution.errors import ExecutionError
from balancer.execution.journal import Journal, Recorded, read_journal
from balancer.execution.limits import Limits
from balancer.execution.outcome import Outcome, Progress
from balancer.execution.run import Run
from balancer.execution.stop import Stop
from balancer.execution.tasks import Task, make_tasks
from balancer.execution.wanted import Reading, Wanted, demoted_brokers, read_plan
from balancer.plan import Plan, PlanDocument


class Preview(NamedTuple):
    """What an execution would do: its tasks, what it would leave out and why."""

    tasks: list[Task]
    problems: list[str]


class Executor:
    """Carries plans out, one at a time.

    Parameters
    ----------
    bootstrap
        ``"host:port,host:port"`` of the cluster.
    journal
        File that the execution is written to, so that it survives the process. One
        journal holds one execution.
    limits
        How fast, in which order and how patiently.
    client
        Client properties (TLS, SASL), as :func:`cluster_model.kafka.read_cluster`
        takes them. They are never written anywhere.
    slow
        Tells whether the cluster suffers in a way that Kafka's admin interface does not
        show, as :class:`LocalTimes` does by requests that take long; then fewer moves are
        under way, and no more until it is over. Asked at each look at the cluster.
    owner
        Name under which throttles are marked in Kafka as this executor's. :meth:`recover`
        then also ends what another executor of that name left, whose journal is out of
        reach, as on another machine. Executors of one name must not act at the same time:
        an election has to see to that.
    connect
        Gives the cluster in place of a Kafka at `bootstrap`.

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
        connect: Callable[[], Cluster] | None = None,
    ) -> None:
        self._journal = Journal(Path(journal))
        self._limits = limits or Limits()
        self._stop = Stop()
        self._slow = slow
        self._owner = owner
        self._connect = connect or (
            lambda: Kafka(
                bootstrap, client, timeout=self._limits.timeout, patience=self._limits.patience
            )
        )

    def execute(
        self,
        plan: Plan | PlanDocument,
        *,
        progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Carry a plan out; returns when it is done, stopped or has failed.

        Parameters
        ----------
        plan
            As proposed, or as loaded from its file.
        progress
            Told how far it is, after each look at the cluster.

        Raises
        ------
        ExecutionError
            If the journal holds an execution that did not end, or cannot be written.
        KafkaSourceError
            If the brokers do not answer at the start, or refuse.
        """
        self._stop.clear()
        with self._journal.locked():
            old = read_journal(self._journal.path)
            if old is not None and old.ended is None:
                raise ExecutionError(
                    f"journal {self._journal.path} holds an execution that did not end: "
                    "recover it first (counterpoise execute --recover)"
                )
            with self._cluster() as cluster:
                reading = self._read(plan, cluster)
                left: list[throttle.Setting] = []
                if old is not None and old.throttles:
                    self._same(old, cluster)
                    left, _ = throttle.remove(cluster, old.throttles)
                tasks = self._tasks(reading.wanted)
                recorded = Recorded(
                    cluster.identity(),
                    reading.wanted,
                    {t.id: t for t in tasks},
                    {t.id: "pending" for t in tasks},
                    throttles=left,
                )
                self._journal.begin(
                    recorded.cluster,
                    [*records.planned(reading.wanted, tasks), *records.throttling(left)],
                )
                return self._run(cluster, recorded, progress, reading)

    def recover(self, *, progress: Callable[[Progress], None] | None = None) -> Outcome | None:
        """Bring what an execution that died left behind to its end.

        What Kafka is still reassigning is waited for, what was not begun is begun; an
        execution that was stopping, or rolling back, goes on with that. Throttles are
        removed. Others' reassignments are left alone.

        Where executors have an owner, so it is with what Kafka tells of an execution of
        another one; of that one, only what is under way is known, and waited for. No more
        is done for an execution of its own that another one has ended in this way, or that
        is older than the limit ``resume_within``: its plan is of a cluster that was.

        Returns
        -------
        Outcome or None
            None where nothing was left.

        Raises
        ------
        ExecutionError
            If the journal cannot be read, or is of another cluster.
        KafkaSourceError
            If the brokers do not answer, or refuse.
        """
        self._stop.clear()
        if self._owner is None and not self._journal.path.exists():
            return None
        with self._journal.locked():
            recorded = read_journal(self._journal.path)
            left_open = recorded is not None and not recorded.closed
            if self._owner is None and not left_open:
                return None
            with self._cluster() as cluster:
                outcome = None
                if recorded is not None and left_open:
                    outcome = self._resume(cluster, recorded, progress)
                    if recorded.ended is None:
                        # Kafka is out of reach, and the journal still needed.
                        return outcome
                if self._owner is None:
                    return outcome
                left = [] if recorded is None else recorded.throttles
                adopted = self._adopt(cluster, self._owner, left, progress)
                return outcome if adopted is None else adopted.after(outcome)

    def stop(self, *, rollback: bool = False) -> None:
        """Stop what is under way, from any thread; `execute` then returns.

        Tasks under way are cancelled, those that wait are not begun; with `rollback`
        what was already moved is moved back.
        """
        self._stop.ask(rollback)

    def preview(self, plan: Plan | PlanDocument) -> Preview:
        """What :meth:`execute` would do now; changes nothing."""
        with self._cluster() as cluster:
            reading = self._read(plan, cluster)
        return Preview(self._tasks(reading.wanted), [*reading.problems, *reading.gone])

    def _resume(
        self,
        cluster: Cluster,
        recorded: Recorded,
        progress: Callable[[Progress], None] | None,
    ) -> Outcome:
        """Bring the execution of the journal to its end."""
        self._same(recorded, cluster)
        idle = time.time() - self._journal.path.stat().st_mtime
        self._journal.resume()
        gone = superseded(cluster, recorded, self._owner)
        if gone or (self._owner is not None and idle > self._limits.resume_within):
            recorded.throttles = [s for s in recorded.throttles if s not in gone]
            self._journal.append(*records.given_up(recorded))
        return self._run(cluster, recorded, progress, Reading([], [], []))

    def _adopt(
        self,
        cluster: Cluster,
        owner: str,
        left: list[throttle.Setting],
        progress: Callable[[Progress], None] | None,
    ) -> Outcome | None:
        """End what the marks of the owner tell of; `left` are throttles still to be removed."""
        recorded = abandoned(cluster, owner)
        if recorded is None:
            return None
        topics = sorted({s.name for s in recorded.throttles if s.kind == "topic"})
        known = {(s.resource, s.key) for s in left}
        found = [s for s in recorded.throttles if (s.resource, s.key) not in known]
        if not found:
            return None
        recorded.throttles = [*left, *found]
        self._journal.begin(
            recorded.cluster,
            [
                {"record": "adopted"},
                *records.planned(recorded.wanted, recorded.tasks.values()),
                *(records.changed(i, state) for i, state in recorded.states.items()),
                *records.throttling(recorded.throttles),
            ],
        )
        told = (
            f"throttles of an execution whose journal is out of reach were found on {len(topics)} "
            f"topics (as {topics[0]}), and {len(recorded.tasks)} of its moves under way"
        )
        return self._run(cluster, recorded, progress, Reading([], [], [told]))

    def _tasks(self, wanted: list[Wanted]) -> list[Task]:
        return make_tasks(wanted, one_at_a_time=self._limits.one_replica_at_a_time)

    def _run(
        self,
        cluster: Cluster,
        recorded: Recorded,
        progress: Callable[[Progress], None] | None,
        reading: Reading,
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
        ).carry_out()

    def _read(self, plan: Plan | PlanDocument, cluster: Cluster) -> Reading:
        """What the plan wants, with where replicas are on disk and how large they are."""
        document = plan.document() if isinstance(plan, Plan) else plan
        topics = sorted({a.topic for a in document.actions})
        view = cluster.view(None if demoted_brokers(plan) else topics)
        reading = read_plan(plan, view)
        held = cluster.held(
            (w.key, b) for w in reading.wanted for b in w.origin if b in view.brokers
        )
        wanted = []
        for w in reading.wanted:
            there = {b: held[w.key, b] for b in w.origin if (w.key, b) in held}
            size = max((h.size for h in there.values()), default=w.size)
            dirs = {b: h.log_dir for b, h in there.items()}
            wanted.append(w.model_copy(update={"origin_dirs": dirs, "size": size}))
        return reading._replace(wanted=wanted)

    def _same(self, recorded: Recorded, cluster: Cluster) -> None:
        found = cluster.identity()
        if found != recorded.cluster:
            raise ExecutionError(
                f"journal {self._journal.path} is of cluster {recorded.cluster}, but the "
                f"brokers asked are of cluster {found}: name the journal of this cluster"
            )

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        cluster = self._connect()
        try:
            yield cluster
        finally:
            if isinstance(cluster, Kafka):
                cluster.close()
