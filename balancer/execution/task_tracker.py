"""Tracks the states of an execution's tasks; each change is journalled before it counts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from balancer.execution import journal as records
from balancer.execution.journal import Journal, RecordedExecution
from balancer.execution.outcome import ClosedState, Outcome, OutcomeState, Progress, Waiting
from balancer.execution.targets import PlanReading
from balancer.execution.task_status import Judgement, TaskStatus
from balancer.execution.tasks import OPEN, Phase, Task, TaskState

STOPPED = "stopped"

Judgements = Sequence[tuple[Task, Judgement]]


class TaskTracker:
    """The tasks of one execution.

    Parameters
    ----------
    journal
        Where changes are written; open.
    recorded
        The state that it holds so far.
    reading
        Its problems count as cancelled tasks and are reported.

    Attributes
    ----------
    tasks, states
        Every task by id, and its state.
    statuses
        The status of the tasks in progress.
    problems
        What went wrong, one sentence each.
    """

    def __init__(self, journal: Journal, recorded: RecordedExecution, reading: PlanReading) -> None:
        self._journal, self._recorded = journal, recorded
        self._left_out = len(reading.problems)
        self._started = time.monotonic()
        self._bytes = 0.0
        self.tasks, self.states = recorded.tasks, recorded.states
        self.problems = [*reading.problems, *reading.gone]
        if reading.problems and not recorded.targets:
            self.problems.insert(0, "no step of the plan applies to this cluster as it is now")
        self.statuses: dict[int, TaskStatus] = {}
        for task, state in self.states.items():
            if state in ("in progress", "cancelling"):
                self._stand(task)
                if state == "cancelling":
                    self.statuses[task].cancelling = self.statuses[task].since
                self.statuses[task].note = recorded.notes.get(task, "")

    def open(self, phase: Phase | None = None) -> list[Task]:
        """Tasks (of a phase) that have not ended."""
        return [
            t for i, t in self.tasks.items() if phase in (None, t.phase) and self.states[i] in OPEN
        ]

    def waiting(self) -> list[Task]:
        """Tasks that have not started."""
        return [t for i, t in self.tasks.items() if self.states[i] == "pending"]

    def running(self) -> list[Task]:
        """Tasks in progress."""
        return [self.tasks[i] for i in self.statuses]

    def add(self, tasks: Iterable[Task]) -> None:
        """Add the tasks of a rollback."""
        tasks = list(tasks)
        self._journal.append(*records.planned((), tasks), {"record": "back"})
        self.tasks.update({t.id: t for t in tasks})
        self.states.update({t.id: "pending" for t in tasks})
        self._recorded.going_back = True
        self._recorded.back = {t.id for t in tasks}

    def begin(self, tasks: Iterable[Task]) -> None:
        """Record tasks that Kafka is about to be asked for."""
        tasks = list(tasks)
        self._journal.append(*(records.changed(t.id, "in progress") for t in tasks))
        for task in tasks:
            self.states[task.id] = "in progress"
            self._stand(task.id)

    def cancel(self, tasks: Judgements) -> None:
        """Record tasks that Kafka is about to be asked to cancel, and their states after that."""
        self._journal.append(*(records.changed(t.id, "cancelling", v.note) for t, v in tasks))
        for task, decision in tasks:
            self.states[task.id] = "cancelling"
            status = self.statuses[task.id]
            status.looks = 0
            if status.cancelling is None:
                status.cancelling = time.monotonic()
            status.decision, status.note = decision.state, decision.note

    def close(self, tasks: Judgements) -> None:
        """Record tasks that ended; those left to Kafka stay known."""
        # State and leftover in one record: if they were separated, the move and its throttle could
        # be lost.
        self._journal.append(
            *(records.changed(t.id, v.state, v.note, left=v.left) for t, v in tasks)
        )
        self._recorded.left += [t for t, v in tasks if v.left]
        for task, decision in tasks:
            self.states[task.id] = decision.state
            status = self.statuses.pop(task.id, None)
            if decision.state == "completed":
                self._bytes += task.bytes
            elif status is not None:
                self._bytes += status.seen
            if decision.note and decision.note != STOPPED:
                self.problems.append(f"{task}: {decision.note}")

    def progress(self, phase: Phase, waiting: Waiting) -> Progress:
        """The progress of the execution, with the tasks that wait."""
        seconds = time.monotonic() - self._started
        moved = self._bytes + sum(s.seen for s in self.statuses.values())
        given_up: tuple[TaskState, ...] = ("cancelled", "dead")
        total = sum(t.bytes for i, t in self.tasks.items() if self.states[i] not in given_up)
        return Progress(
            phase=phase,
            total=len(self.tasks) + self._left_out,
            running=len(self.statuses),
            # More than planned is copied if a partition grows or a move is given up.
            bytes_total=max(total, moved),
            bytes_moved=moved,
            seconds=seconds,
            seconds_left=max(0.0, total - moved) * seconds / moved if moved else None,
            waiting=waiting.tasks,
            waits_for=waiting.reason,
            **self._counts(),
        )

    def end(self) -> ClosedState:
        """How the execution ended, judged by its tasks."""
        recorded, states = self._recorded, set(self.states.values())
        if recorded.going_back or recorded.stop == "rollback":
            return "rolled back" if self._all_back() else "failed"
        if recorded.stop is not None:
            return "stopped"
        if not self._left_out and states <= {"completed"}:
            return "done"
        over = recorded.adopted and not self._left_out and "dead" not in states
        return "stopped" if over and (recorded.given_up or recorded.reopened is None) else "failed"

    def _all_back(self) -> bool:
        """Whether everything was moved back, even moves that ended after the rollback began."""
        recorded, states = self._recorded, self.states
        late = (recorded.reopened or set()) - recorded.back
        return (
            recorded.going_back
            and "dead" not in states.values()
            and all(states[i] == "completed" for i in recorded.back)
            and all(states[i] != "completed" for i in late)
        )

    def outcome(self, state: OutcomeState, differences: Sequence[str] = ()) -> Outcome:
        """The outcome to report at the end."""
        return Outcome(
            state=state,
            bytes_moved=self._bytes,
            seconds=time.monotonic() - self._started,
            problems=tuple(self.problems),
            differences=tuple(differences),
            **self._counts(),
        )

    def _counts(self) -> dict[str, int]:
        states = list(self.states.values())
        return {
            "completed": states.count("completed"),
            "failed": states.count("dead"),
            "cancelled": states.count("cancelled") + self._left_out,
        }

    def _stand(self, task: int) -> None:
        now = time.monotonic()
        self.statuses[task] = TaskStatus(since=now, progressed=now)
