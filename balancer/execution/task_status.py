"""Judges the status of a task by what Kafka reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from balancer.execution.availability import Availability, needed_brokers
from balancer.execution.cluster import HeldReplica, PartitionView
from balancer.execution.limits import Limits
from balancer.execution.tasks import Task, TaskState
from metrics_reporter.quantities import plural


@dataclass
class TaskStatus:
    """What is known of a task in progress.

    Parameters
    ----------
    since, progressed
        When it started, and when it last copied something.
    seen
        Bytes copied.
    looks
        Consecutive looks at which Kafka did not report it.
    tries
        How many times it was requested again.
    cancelling, decision
        When Kafka was first asked to cancel it (None if never), and its state once that is
        done.
    note
        The reason for it.
    """

    since: float
    progressed: float
    seen: float = 0.0
    looks: int = 0
    tries: int = 0
    cancelling: float | None = None
    decision: TaskState = "cancelled"
    note: str = ""


class Judgement(NamedTuple):
    """The decision on a task.

    ``in progress`` requests it from Kafka (again), ``pending`` lets it wait; `cancel` says that
    Kafka must first cancel it, or restore the preference order; `left` says that Kafka
    continues it because it cannot be cancelled.
    """

    state: TaskState
    note: str = ""
    cancel: bool = False
    left: bool = False


DELETED = Judgement("completed", "the topic was deleted")


def judge(
    task: Task,
    status: TaskStatus,
    found: PartitionView | None,
    held: HeldReplica | None,
    availability: Availability,
    limits: Limits,
    now: float,
) -> Judgement | None:
    """The decision on a task in progress; None if it continues.

    Parameters
    ----------
    found
        Its partition; None if Kafka does not report it.
    held
        For a move between disks: its replica; None if its broker does not report it.
    """
    if availability.deleted(task.key):
        return DELETED
    if found is None:
        if status.cancelling is None:
            return _stuck(status, limits, now)
        late = now - status.cancelling > limits.cancel_timeout
        return _uncancelled(status, limits) if late else None
    if task.phase == "move":
        return _move(task, status, found, availability, limits, now)
    if task.phase == "log_dir":
        return _log_dir(task, status, held, availability, limits, now)
    return _leadership(task, status, found, limits, now)


def _move(
    task: Task,
    status: TaskStatus,
    found: PartitionView,
    availability: Availability,
    limits: Limits,
    now: float,
) -> Judgement | None:
    if found.moving and set(found.settled) != set(task.target):
        return Judgement("cancelled", f"another reassignment to {_list(found.settled)} replaced it")
    if found.moving and status.cancelling is not None:
        return _cancelled(task, status, found, limits, now)
    if found.moving:
        status.looks = 0
        gone = availability.gone(found.adding, now) or availability.dead(task.key, now)
        return Judgement("dead", gone, cancel=True) if gone else _stuck(status, limits, now)
    if set(found.replicas) == set(task.target):
        return Judgement("completed")
    if status.cancelling is not None:
        return _cancelled(task, status, found, limits, now)
    if set(found.replicas) == set(task.origin):
        return _again(status, limits, Judgement("in progress"))
    # Metadata may be older than the list of reassignments: confirm it before accepting it.
    other = f"its replicas were moved to {_list(found.replicas)} by another client"
    return _again(status, limits, Judgement("cancelled", other))


def _log_dir(
    task: Task,
    status: TaskStatus,
    held: HeldReplica | None,
    availability: Availability,
    limits: Limits,
    now: float,
) -> Judgement | None:
    gone = availability.gone(needed_brokers(task), now)
    if gone:
        return Judgement("dead", gone)
    if held is not None and held.future_dir is None:
        if held.log_dir == task.target_dir:
            return Judgement("completed")
        if status.cancelling is not None:
            return Judgement(status.decision, status.note)
        return _again(status, limits, Judgement("in progress"))
    if status.cancelling is not None:
        if now - status.cancelling > limits.cancel_timeout:
            return _uncancelled(status, limits)
        return _again(status, limits, Judgement(status.decision, status.note, cancel=True))
    return _stuck(status, limits, now)


def _leadership(
    task: Task, status: TaskStatus, found: PartitionView, limits: Limits, now: float
) -> Judgement | None:
    if found.moving:
        return Judgement("cancelled", f"another reassignment to {_list(found.settled)} replaced it")
    if found.replicas == task.target and task.leader in (None, found.leader):
        return Judgement("completed")
    if status.cancelling is not None:
        return _cancelled(task, status, found, limits, now)
    if set(found.replicas) != set(task.target):
        other = f"its replicas were moved to {_list(found.replicas)} by another client"
        return _again(status, limits, Judgement("cancelled", other))
    if now - status.since > limits.leadership_timeout:
        led = "nobody" if found.leader is None else f"broker {found.leader}"
        why = f": {status.note}" if status.note else ""
        note = f"{led} leads after {limits.leadership_timeout:g} s{why}"
        return Judgement("dead", note, cancel=True)
    return Judgement("in progress")


def _stuck(status: TaskStatus, limits: Limits, now: float) -> Judgement | None:
    if now - status.progressed > limits.task_timeout:
        return Judgement("dead", f"no byte was copied for {limits.task_timeout:g} s", cancel=True)
    if now - status.since > limits.task_deadline:
        return Judgement("dead", f"not complete after {limits.task_deadline:g} s", cancel=True)
    return None


def _cancelled(
    task: Task, status: TaskStatus, found: PartitionView, limits: Limits, now: float
) -> Judgement | None:
    """The decision on a task under cancellation, once its replicas are as they were."""
    decision = Judgement(status.decision, status.note)
    if found.replicas == task.origin and not found.moving:
        return decision
    late = status.cancelling is not None and now - status.cancelling > limits.cancel_timeout
    if late and found.moving:
        return _uncancelled(status, limits)
    if found.moving or set(found.replicas) == set(task.origin):
        # Kafka's cancel keeps the order of the list that it made for the move instead of the
        # original preference order, so that order is requested afterwards.
        order = f"its replicas are left in the order {_list(found.replicas)}"
        over = decision._replace(note=_joined(status.note, order))
        return over if late else _again(status, limits, decision._replace(cancel=True))
    # Metadata may be older than the cancel; otherwise another client has moved it.
    return _again(status, limits, decision)


def _uncancelled(status: TaskStatus, limits: Limits) -> Judgement:
    note = f"Kafka did not cancel it in {limits.cancel_timeout:g} s"
    return Judgement("dead", _joined(status.note, note), left=True)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _again(status: TaskStatus, limits: Limits, decision: Judgement) -> Judgement | None:
    """The decision, once enough looks confirm it; `dead` after too many requests."""
    status.looks += 1
    if status.looks < limits.confirming_looks:
        return None
    if decision.state == "in progress" and status.tries >= limits.task_attempts - 1:
        times = plural(limits.task_attempts, "time")
        return Judgement("dead", f"Kafka was asked for it {times}, and dropped it")
    return decision


def may_start(
    task: Task,
    before: TaskState | None,
    found: PartitionView | None,
    held: HeldReplica | None,
    availability: Availability,
    now: float,
) -> Judgement:
    """Whether a waiting task may start (``in progress``), must wait, or is over already.

    Parameters
    ----------
    before
        State of the task that must be completed first; None without one.
    found, held
        As for :func:`judge`.
    """
    if before in ("pending", "in progress"):
        return Judgement("pending")
    if before in ("cancelled", "dead"):
        return Judgement("cancelled", "the move before it was not completed")
    if found is None:
        return DELETED if availability.deleted(task.key) else Judgement("pending")
    dead = availability.dead(task.key, now) if task.phase == "move" else ""
    if dead:
        return Judgement("cancelled", dead)
    if found.moving:
        return Judgement("pending", f"others are reassigning it to {_list(found.settled)}")
    here = set(found.replicas)
    if task.phase == "move" and here == set(task.target):
        return Judgement("completed")
    if here != set(task.origin):
        return Judgement(
            "cancelled",
            f"its replicas are on {_list(found.replicas)}, {_list(task.origin)} expected",
        )
    if task.phase == "leadership" and found.replicas == task.target and task.leader == found.leader:
        return Judgement("completed")
    if held is not None and held.log_dir == task.target_dir and held.future_dir is None:
        return Judgement("completed")
    gone = availability.gone(needed_brokers(task), now)
    if gone:
        return Judgement("cancelled", gone)
    waits = availability.away(needed_brokers(task)) or (
        task.phase == "move" and found.leader is None
    )
    return Judgement("pending" if waits else "in progress")


def refused(why: str) -> Judgement:
    """The decision on a task that Kafka refuses."""
    return DELETED if "unknown topic" in why else Judgement("dead", f"Kafka refused it: {why}")


def cancel_refused(status: TaskStatus, why: str, *, moving: bool) -> Judgement | None:
    """The decision on a task whose cancel Kafka refuses; None if the next look decides.

    Parameters
    ----------
    moving
        Whether its reassignment was to be cancelled, rather than only its order restored.
    """
    if "no reassignment" in why or "unknown topic" in why:
        return None
    if moving:
        note = _joined(status.note, f"Kafka refuses to cancel it: {why}")
        return Judgement("dead", note, left=True)
    note = _joined(status.note, f"Kafka refuses to restore its preference order: {why}")
    return Judgement(status.decision, note)


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
