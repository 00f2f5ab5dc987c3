"""The main loop of an execution: look at the cluster, settle ended tasks, start new ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from balancer.execution import throttle
from balancer.execution.availability import Availability
from balancer.execution.cluster import ClusterClient, ClusterView, HeldReplica, Key
from balancer.execution.concurrency import AdaptiveConcurrency, Health, health
from balancer.execution.disk_space import DiskSpace
from balancer.execution.errors import VoteLostError
from balancer.execution.journal import (
    Journal,
    RecordedExecution,
    moves_left,
    throttles_left,
    throttling,
)
from balancer.execution.limits import Limits
from balancer.execution.outcome import Outcome, Progress, Waiting
from balancer.execution.steering import Steering
from balancer.execution.stop import Stop
from balancer.execution.targets import PlanReading, Target, differences, rollback_targets
from balancer.execution.task_order import choose, copying, ordered
from balancer.execution.task_status import Judgement, cancel_refused, judge, may_start, refused
from balancer.execution.task_tracker import STOPPED, Judgements, TaskTracker
from balancer.execution.tasks import PHASES, Phase, Task, make_tasks
from cluster_model.kafka import KafkaSourceError
from metrics_reporter.quantities import plural

_SHORTEST_WAIT = 0.1
_GONE = Judgement("cancelled", "it was no longer in progress")


@dataclass(frozen=True)
class _Look:
    """The result of one look at the cluster, and its time."""

    now: float
    view: ClusterView
    health: Health
    held: dict[tuple[Key, int], HeldReplica]

    def replica(self, task: Task) -> HeldReplica | None:
        """The replica that a move between disks moves."""
        return None if task.broker is None else self.held.get((task.key, task.broker))


class Run:
    """One execution, from the state in its journal to its end.

    Parameters
    ----------
    cluster
        The cluster to act on.
    journal
        Open; every action is recorded before it is done.
    recorded
        The content of the journal.
    reading
        Parts of the plan that do not apply; see :class:`TaskTracker`.
    limits, stop
        Speed limits, and the request to stop.
    progress
        Called with the progress.
    slow
        Returns whether the cluster suffers; see :class:`Executor`.
    owner
        The owner in the marks of throttles; see :class:`Executor`.
    steering
        What an operator changes while it runs.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        journal: Journal,
        recorded: RecordedExecution,
        reading: PlanReading,
        limits: Limits,
        stop: Stop,
        progress: Callable[[Progress], None] | None = None,
        slow: Callable[[], bool] | None = None,
        owner: str | None = None,
        steering: Steering | None = None,
    ) -> None:
        self._cluster, self._journal, self._recorded = cluster, journal, recorded
        self._stop = stop
        # The configured limits, and those with the changes of an operator.
        self._configured = self._limits = limits
        self._steering = steering or Steering()
        self._progress = progress or (lambda progress: None)
        self._slow = slow or (lambda: False)
        self._owner = owner
        self._tracker = TaskTracker(journal, recorded, reading)
        self._concurrency = AdaptiveConcurrency(limits)
        self._availability = Availability(limits.broker_grace, limits.confirming_looks)
        self._disk_space = DiskSpace(cluster.free, limits.task_timeout)
        self._min_isr: dict[str, int] = {}
        self._leaders: dict[Key, int | None] = {}
        # Since when others reassign a partition, and since when nothing may start.
        self._others: dict[Key, float] = {}
        self._waiting = Waiting()
        # Consecutive looks at which a waiting task seemed no longer possible.
        self._doubts: dict[int, int] = {}
        self._idle: float | None = None

    def carry_out(self) -> Outcome:
        """Work until done, stopped or given up; throttles are removed."""
        try:
            if self._recorded.ended is None:
                self._work_through()
            return self._end()
        except KafkaSourceError as error:
            self._tracker.problems.append(
                f"{error}; what was started continues in Kafka: recover once it answers"
            )
            return self._tracker.outcome("failed")
        except VoteLostError as error:
            # Not even cleanup: the state in Kafka may be another's by now.
            self._tracker.problems.append(str(error))
            return self._tracker.outcome("vote lost")
        except BaseException:
            self._cancel_after_error()
            raise

    def _work_through(self) -> None:
        if not self._recorded.going_back:
            self._throttle()
            for phase in PHASES:
                self._work(phase)
            if self._recorded.stop != "rollback" or self._recorded.given_up:
                return
            self._roll_back()
        self._throttle()
        for phase in PHASES:
            self._work(phase)

    def _roll_back(self) -> None:
        """Plan the rollback of all completed moves."""
        tasks, states = self._tracker.tasks, self._tracker.states
        done = {t.key for i, t in tasks.items() if states[i] == "completed"}
        done -= {t.key for t in self._recorded.left}
        moved = [w for w in self._recorded.targets if w.key in done]
        self._tracker.add(
            make_tasks(
                rollback_targets(moved, self._cluster.view(_topics(moved))),
                one_at_a_time=self._limits.one_replica_at_a_time,
                start=max(tasks, default=-1) + 1,
            )
        )

    def _work(self, phase: Phase) -> None:
        """Execute the tasks of a phase."""
        wait = _SHORTEST_WAIT
        tasks = self._tracker.open(phase)
        while tasks:
            self._keep_time()
            self._steer()
            look = self._look(phase, tasks)
            self._settle(look)
            if self._stopping:
                self._halt(look)
            else:
                self._start(phase, look)
            self._progress(self._tracker.progress(phase, self._waiting))
            before, tasks = len(tasks), self._tracker.open(phase)
            if not tasks:
                return
            # Look again soon while tasks end, and less and less often while they do not; in a
            # large cluster a look takes long, and must not take up all the time.
            ended, spent = len(tasks) < before, time.monotonic() - look.now
            wait = max(spent, _SHORTEST_WAIT if ended else 2 * wait)
            self._stop.wait(min(wait, self._limits.progress_interval))

    def _keep_time(self) -> None:
        """Leave the rest to a recovery if the deadline of a stop has passed."""
        if self._stop.soon and self._recorded.going_back:
            raise KafkaSourceError("the rollback was stopped")
        if self._stop.overdue:
            left = plural(len(self._tracker.running()), "task was", "tasks were")
            within = f"{self._limits.stop_timeout:g} s"
            raise KafkaSourceError(f"stopped, but {left} not cancelled within {within}")

    def _steer(self) -> None:
        """Apply what an operator has changed; a pause that lasts too long ends the execution."""
        limits = self._steering.applied(self._configured)
        if limits != self._limits:
            throttled = limits.throttle != self._limits.throttle
            self._limits = limits
            self._concurrency.configure(limits)
            if throttled:
                self._throttle()
        if self._steering.paused_for() > limits.pause_timeout and not self._stop.asked:
            self._tracker.problems.append(
                f"paused for more than {limits.pause_timeout:g} s (pause_timeout), so the rest "
                "was cancelled"
            )
            self._steering.resume()
            self._stop.ask(False)

    @property
    def _stopping(self) -> bool:
        asked = self._stop.asked or self._recorded.stop is not None
        return asked and not self._recorded.going_back

    def _look(self, phase: Phase, tasks: list[Task]) -> _Look:
        now, running = time.monotonic(), self._tracker.running()
        view = self._cluster.view(None if self._limits.adaptive else _topics(tasks))
        absent = [
            task
            for task in tasks
            if task.key not in view.partitions and not self._availability.deleted(task.key)
        ]
        if self._limits.adaptive and absent:
            # A list of all topics omits those hidden by missing rights; by name they are an error.
            named = self._cluster.view(_topics(absent))
            view = replace(view, partitions={**view.partitions, **named.partitions})
        self._availability.look(view, tasks, now)
        for key in {t.key for t in tasks} & view.partitions.keys():
            leader = view.partitions[key].leader
            self._leaders[key] = self._leaders.get(key) if leader is None else leader
        judged = self._judge(view, running)
        self._concurrency.look(judged, now, slow=self._slow())
        if phase == "log_dir":
            asked = [(t.key, t.broker) for t in tasks if t.broker is not None]
        else:
            asked = [(t.key, b) for t in running for b in t.added]
        held = self._cluster.held((k, b) for k, b in asked if b in view.brokers)
        look = _Look(now, view, judged, held)
        for task in running:
            self._measure(task, look)
        return look

    def _judge(self, view: ClusterView, running: list[Task]) -> Health:
        lacking = {k.topic for k, p in view.partitions.items() if len(p.isr) < len(p.replicas)}
        unknown = sorted(lacking - self._min_isr.keys())
        if unknown and self._limits.adaptive:
            self._min_isr.update(self._cluster.min_isr(unknown))
        return health(view, self._min_isr, {t.key for t in running})

    def _measure(self, task: Task, look: _Look) -> None:
        if task.phase == "log_dir":
            replica = look.replica(task)
            seen = 0.0 if replica is None else replica.future_size
        else:
            copies = [look.held.get((task.key, b)) for b in task.added]
            seen = sum(c.size for c in copies if c is not None)
        status = self._tracker.statuses[task.id]
        if seen > status.seen:
            status.seen, status.progressed = seen, look.now

    def _settle(self, look: _Look) -> None:
        """Judge the tasks in progress."""
        decisions = [(t, v) for t in self._tracker.running() if (v := self._decision(t, look))]
        if self._recorded.adopted:
            # The process that started it, or acted after that, may have cancelled it.
            decisions = [(t, _GONE if v.state == "in progress" else v) for t, v in decisions]
        again = [t for t, v in decisions if v.state == "in progress"]
        over = [(t, v) for t, v in decisions if v.state != "in progress"]
        self._tracker.close([(t, v) for t, v in over if not v.cancel])
        self._cancel([(t, v) for t, v in over if v.cancel], look)
        for task in again:
            self._tracker.statuses[task.id].looks = 0
            self._tracker.statuses[task.id].tries += 1
        self._ask(again, look)

    def _decision(self, task: Task, look: _Look) -> Judgement | None:
        return judge(
            task,
            self._tracker.statuses[task.id],
            look.view.partitions.get(task.key),
            look.replica(task),
            self._availability,
            self._limits,
            look.now,
        )

    def _start(self, phase: Phase, look: _Look) -> None:
        """Start waiting tasks, as far as the limits allow."""
        waiting = [t for t in self._tracker.waiting() if t.phase == phase]
        decisions = [(t, self._may_start(t, look)) for t in waiting]
        self._tracker.close(
            [(t, v) for t, v in decisions if v.state not in ("in progress", "pending")]
        )
        ready = [t for t, v in decisions if v.state == "in progress"]
        if self._steering.paused:
            self._idle = None
            self._waiting = Waiting(len(ready), "an operator to resume it")
            return
        if self._concurrency.held and phase != "leadership":
            self._waiting = Waiting(len(ready), "partitions under min ISR")
            self._hold(ready, look.now)
            return
        self._idle = None
        ready = ordered(
            ready,
            self._limits.order,
            under_min_isr=look.health.under_min_isr,
            under_replicated=look.health.under_replicated,
        )
        chosen, full = self._disk_space.fitting(
            self._choose(phase, self._disk_space.last(ready)),
            self._tracker.running(),
            look.held,
            look.now,
        )
        self._tracker.close(full)
        self._disk_space.keep(t.id for t in ready)
        self._waiting = self._disk_space.waiting
        self._tracker.begin(chosen)
        self._ask(chosen, look)

    def _may_start(self, task: Task, look: _Look) -> Judgement:
        found = look.view.partitions.get(task.key)
        before = None if task.after is None else self._tracker.states[task.after]
        decision = may_start(task, before, found, look.replica(task), self._availability, look.now)
        if decision.state == "cancelled":
            # Metadata may be older than the list of reassignments: what they report is accepted
            # once enough consecutive looks confirm it.
            self._doubts[task.id] = self._doubts.get(task.id, 0) + 1
            sure = self._doubts[task.id] >= self._limits.confirming_looks
            return decision if sure else Judgement("pending")
        self._doubts.pop(task.id, None)
        if decision.state != "pending" or not decision.note:
            self._others.pop(task.key, None)
            return decision
        waited = look.now - self._others.setdefault(task.key, look.now)
        patient = self._limits.others == "wait" and waited <= self._limits.task_timeout
        return decision if patient else Judgement("cancelled", decision.note)

    def _choose(self, phase: Phase, ready: list[Task]) -> list[Task]:
        limits, running = self._limits, self._tracker.running()
        if phase == "leadership":
            return ready[: max(0, limits.leadership_batch - len(running))]
        if phase == "log_dir":
            return choose(
                ready,
                running,
                lambda t: () if t.broker is None else (t.broker,),
                per_broker=limits.concurrent_log_dir_moves_per_broker,
                cluster=limits.concurrent_moves,
                spread=limits.spread,
            )
        return choose(
            ready,
            running,
            lambda t: copying(t, self._leaders),
            per_broker=self._concurrency.per_broker,
            cluster=self._concurrency.cluster,
            spread=limits.spread,
        )

    def _hold(self, ready: list[Task], now: float) -> None:
        """Start nothing; give up tasks that could never start."""
        self._idle = None if self._tracker.statuses else self._idle or now
        if self._idle is not None and now - self._idle > self._limits.task_timeout:
            note = "partitions stayed under min ISR, so it was never started"
            self._tracker.close([(t, Judgement("cancelled", note)) for t in ready])

    def _ask(self, tasks: list[Task], look: _Look) -> None:
        """Ask Kafka for tasks of one phase."""
        if not tasks:
            return
        if tasks[0].phase == "move":
            dirs = {(t.key, b): d for t in tasks for b, d in t.dirs.items()}
            if dirs:
                # Refused, since the replica does not exist yet, but remembered for it.
                self._cluster.move_log_dirs(dirs)
            said = self._cluster.reassign({t.key: t.target for t in tasks})
            why = {t.id: said[t.key] for t in tasks if t.key in said}
        elif tasks[0].phase == "log_dir":
            places = {t.id: (t.key, t.broker) for t in tasks if t.broker is not None}
            requested = {places[t.id]: t.target_dir for t in tasks if t.target_dir is not None}
            reported = self._cluster.move_log_dirs(requested)
            why = {i: reported[place] for i, place in places.items() if place in reported}
        else:
            why = self._elect(tasks, look)
        self._tracker.close([(t, refused(why[t.id])) for t in tasks if t.id in why])

    def _elect(self, tasks: list[Task], look: _Look) -> dict[int, str]:
        """Put the leader first in the preference order if needed, then elect it."""
        found = look.view.partitions
        said = self._cluster.reassign(
            {t.key: t.target for t in tasks if found[t.key].replicas != t.target}
        )
        voted = [t for t in tasks if t.key not in said and t.leader is not None]
        # An election that fails now may succeed at a later look, within its timeout.
        why = self._cluster.elect([t.key for t in voted])
        for task in voted:
            self._tracker.statuses[task.id].note = why.get(task.key, "")
        return {t.id: said[t.key] for t in tasks if t.key in said}

    def _cancel(self, tasks: Judgements, look: _Look) -> None:
        """Ask Kafka to cancel tasks; they end once it has."""
        if not tasks:
            return
        self._tracker.cancel(tasks)
        requested: dict[Key, tuple[int, ...] | None] = {}
        for task, _ in tasks:
            found = look.view.partitions.get(task.key)
            if found is None or task.phase == "log_dir":
                continue
            if found.moving and task.phase == "move":
                requested[task.key] = None
            elif set(found.replicas) == set(task.origin) and found.replicas != task.origin:
                requested[task.key] = task.origin
        said = self._cluster.reassign(requested)
        over = [
            (
                t,
                cancel_refused(
                    self._tracker.statuses[t.id], said[t.key], moving=not requested[t.key]
                ),
            )
            for t, _ in tasks
            if t.key in said
        ]
        self._tracker.close([(t, v) for t, v in over if v is not None])
        stay = {
            (t.key, t.broker): replica.log_dir
            for t, _ in tasks
            if t.broker is not None and (replica := look.replica(t)) is not None
        }
        if stay:
            self._cluster.move_log_dirs(stay)

    def _halt(self, look: _Look) -> None:
        """Cancel waiting and running tasks."""
        rollback = self._stop.rollback or self._recorded.stop == "rollback"
        wish = "rollback" if rollback else "stop"
        if self._recorded.stop != wish:
            self._journal.append({"record": "stop", "rollback": rollback})
            self._recorded.stop = wish
        self._waiting = Waiting()
        stopped = Judgement("cancelled", STOPPED)
        states = self._tracker.states
        running = [t for t in self._tracker.running() if states[t.id] == "in progress"]
        self._cancel([(t, stopped) for t in running], look)
        self._tracker.close([(t, stopped) for t in self._tracker.waiting()])

    def _throttle(self) -> None:
        """Throttle the remaining moves; recorded before it is set."""
        todo = self._tracker.open()
        ours = {t.key for t in self._tracker.running()}
        requested = throttle.settings(
            self._cluster,
            throttle.flows(t for t in todo if t.phase == "move"),
            self._limits.throttle,
            sorted({t.broker for t in todo if t.broker is not None}),
            self._limits.log_dir_throttle,
            self._recorded.throttles,
            shared=bool(self._cluster.view(_topics(todo)).moving - ours),
            owner=self._owner,
            epoch=self._recorded.epoch,
        )
        self._journal.append(*throttling(requested))
        fresh = {(s.resource, s.key) for s in requested}
        kept = [s for s in self._recorded.throttles if (s.resource, s.key) not in fresh]
        self._recorded.throttles = [*kept, *requested]
        if todo:
            # All of them: a process that died may have recorded what it never set.
            self._tracker.problems += throttle.apply(self._cluster, self._recorded.throttles)

    def _unthrottle(self) -> None:
        """Remove the throttles, except those of moves that Kafka continues."""
        if self._recorded.left:
            left = still_moving(self._cluster, self._recorded.left)
            self._journal.append(moves_left(left))
            self._recorded.left = left
        if self._recorded.throttles:
            lasting = throttle.flows(self._recorded.left)
            kept, problems = throttle.remove(
                self._cluster, self._recorded.throttles, lasting, self._limits
            )
            self._journal.append(throttles_left(kept))
            self._recorded.throttles = kept
            self._tracker.problems += problems
        throttled = bool(self._recorded.throttles)
        self._tracker.problems += [
            f"{still_moving_sentence(task, throttled=throttled)}: recover then"
            for task in self._recorded.left
        ]

    def _cancel_after_error(self) -> None:
        """Leave nothing running without its throttle after an unexpected error."""
        if self._journal.lost:
            # Another process has the journal now, and acts on it.
            return
        try:
            moves = [t for t in self._tracker.running() if t.phase == "move"]
            self._cluster.reassign({t.key: None for t in moves})
            lasting = throttle.flows(still_moving(self._cluster, [*moves, *self._recorded.left]))
            throttle.remove(self._cluster, self._recorded.throttles, lasting, self._limits)
        except Exception:  # the first error is the one to report
            return

    def _end(self) -> Outcome:
        self._unthrottle()
        requested = self._recorded.targets
        if self._recorded.going_back:
            requested = [w.undone for w in requested]
        view = self._cluster.view(_topics(requested))
        placed = [(w.key, b) for w in requested for b in w.dirs if b in view.brokers]
        found = differences(requested, view, self._cluster.held(placed))
        state = self._recorded.ended or self._tracker.end()
        if self._recorded.ended is None:
            self._journal.append({"record": "end", "state": state})
            self._recorded.ended = state
        return self._tracker.outcome(state, found)


def still_moving(cluster: ClusterClient, tasks: Sequence[Task]) -> list[Task]:
    """The moves that Kafka is still carrying out."""
    found = cluster.view(_topics(tasks)).partitions if tasks else {}
    return [
        t
        for t in tasks
        if t.key in found and found[t.key].moving and set(found[t.key].settled) == set(t.target)
    ]


def still_moving_sentence(task: Task, *, throttled: bool) -> str:
    """A sentence on a move that was given up but that Kafka continues."""
    kept_too = ", and so does its throttle" if throttled else ""
    return (
        f"{task}: continues in Kafka{kept_too}, until broker "
        f"{' or '.join(map(str, task.origin))} serves again or the topic is deleted"
    )


def _topics(things: Iterable[Task | Target]) -> list[str]:
    return sorted({thing.topic for thing in things})
