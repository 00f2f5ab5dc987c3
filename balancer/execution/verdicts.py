"""How a task stands, judged by what Kafka reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from balancer.execution.cluster import Held, PartitionView
from balancer.execution.limits import Limits
from balancer.execution.presence import LOOKS, Presence, needs
from balancer.execution.tasks import State, Task

# Times that a task which vanished, as at a controller's fail-over, is asked for again.
TRIES = 3


@dataclass
class Standing:
    """What is known of a task that is under way.

    Parameters
    ----------
    since, progressed
        When it began, and when it last copied something.
    seen
        Bytes copied.
    looks
        Looks in a row at which Kafka knew nothing of it.
    tries
        Times it was asked for again.
    cancelling, verdict
        When Kafka was first asked to cancel it (None if it was not), and what it is once
        that is done.
    note
        Why.
    """

    since: float
    progressed: float
    seen: float = 0.0
    looks: int = 0
    tries: int = 0
    cancelling: float | None = None
    verdict: State = "cancelled"
    note: str = ""


class Verdict(NamedTuple):
    """What becomes of a task.

    ``in progress`` asks Kafka for it (again), ``pending`` lets it wait; `cancel` says that
    Kafka must be asked first to cancel it, or to put the preference order back; `left` that
    Kafka goes on with it, because it cannot be cancelled.
    """

    state: State
    note: str = ""
    cancel: bool = False
    left: bool = False


DELETED = Verdict("completed", "the topic was deleted")


def judge(
    task: Task,
    standing: Standing,
    found: PartitionView | None,
    held: Held | None,
    presence: Presence,
    limits: Limits,
    now: float,
) -> Verdict | None:
    """What becomes of a task that is under way; None where it goes on.

    Parameters
    ----------
    found
        Its partition, None where it is not reported.
    held
        Of a move between disks: its replica, None where its broker does not tell.
    """
    if presence.deleted(task.key):
        return DELETED
    if found is None:
        if standing.cancelling is None:
            return _stuck(standing, limits, now)
        late = now - standing.cancelling > limits.cancel_timeout
        return _uncancelled(standing, limits) if late else None
    if task.phase == "move":
        return _move(task, standing, found, presence, limits, now)
    if task.phase == "log_dir":
        return _log_dir(task, standing, held, presence, limits, now)
    return _leadership(task, standing, found, limits, now)


def _move(
    task: Task,
    standing: Standing,
    found: PartitionView,
    presence: Presence,
    limits: Limits,
    now: float,
) -> Verdict | None:
    if found.moving and set(found.settled) != set(task.target):
        return Verdict("cancelled", f"another reassignment to {_list(found.settled)} replaced it")
    if found.moving and standing.cancelling is not None:
        return _cancelled(task, standing, found, limits, now)
    if found.moving:
        standing.looks = 0
        gone = presence.gone(found.adding, now) or presence.dead(task.key, now)
        return Verdict("dead", gone, cancel=True) if gone else _stuck(standing, limits, now)
    if set(found.replicas) == set(task.target):
        return Verdict("completed")
    if standing.cancelling is not None:
        return _cancelled(task, standing, found, limits, now)
    if set(found.replicas) == set(task.origin):
        return _again(standing, Verdict("in progress"))
    # Metadata may be older than the list of reassignments: look again before it is believed.
    other = f"its replicas were brought to {_list(found.replicas)} by another"
    return _again(standing, Verdict("cancelled", other))


def _log_dir(
    task: Task,
    standing: Standing,
    held: Held | None,
    presence: Presence,
    limits: Limits,
    now: float,
) -> Verdict | None:
    gone = presence.gone(needs(task), now)
    if gone:
        return Verdict("dead", gone)
    if held is not None and held.future_dir is None:
        if held.log_dir == task.target_dir:
            return Verdict("completed")
        if standing.cancelling is not None:
            return Verdict(standing.verdict, standing.note)
        return _again(standing, Verdict("in progress"))
    if standing.cancelling is not None:
        if now - standing.cancelling > limits.cancel_timeout:
            return _uncancelled(standing, limits)
        return _again(standing, Verdict(standing.verdict, standing.note, cancel=True))
    return _stuck(standing, limits, now)


def _leadership(
    task: Task, standing: Standing, found: PartitionView, limits: Limits, now: float
) -> Verdict | None:
    if found.moving:
        return Verdict("cancelled", f"another reassignment to {_list(found.settled)} replaced it")
    if found.replicas == task.target and task.leader in (None, found.leader):
        return Verdict("completed")
    if standing.cancelling is not None:
        return _cancelled(task, standing, found, limits, now)
    if set(found.replicas) != set(task.target):
        other = f"its replicas were brought to {_list(found.replicas)} by another"
        return _again(standing, Verdict("cancelled", other))
    if now - standing.since > limits.leadership_timeout:
        led = "nobody" if found.leader is None else f"broker {found.leader}"
        why = f": {standing.note}" if standing.note else ""
        note = f"{led} leads after {limits.leadership_timeout:g} s{why}"
        return Verdict("dead", note, cancel=True)
    return Verdict("in progress")


def _stuck(standing: Standing, limits: Limits, now: float) -> Verdict | None:
    if now - standing.progressed > limits.task_timeout:
        return Verdict("dead", f"no byte was copied for {limits.task_timeout:g} s", cancel=True)
    if now - standing.since > limits.task_deadline:
        return Verdict("dead", f"not complete after {limits.task_deadline:g} s", cancel=True)
    return None


def _cancelled(
    task: Task, standing: Standing, found: PartitionView, limits: Limits, now: float
) -> Verdict | None:
    """The verdict of a task that is being cancelled, once its replicas are as they were."""
    verdict = Verdict(standing.verdict, standing.note)
    if found.replicas == task.origin and not found.moving:
        return verdict
    late = standing.cancelling is not None and now - standing.cancelling > limits.cancel_timeout
    if late and found.moving:
        return _uncancelled(standing, limits)
    if found.moving or set(found.replicas) == set(task.origin):
        # Kafka's cancel does not restore the preference order: it keeps the order of the list
        # that it made for the move. So the order is asked for after it.
        order = f"its replicas are left in the order {_list(found.replicas)}"
        over = verdict._replace(note=_joined(standing.note, order))
        return over if late else _again(standing, verdict._replace(cancel=True))
    # Metadata may be older than the cancel; else somebody else has moved it.
    return _again(standing, verdict)


def _uncancelled(standing: Standing, limits: Limits) -> Verdict:
    note = f"Kafka did not cancel it in {limits.cancel_timeout:g} s"
    return Verdict("dead", _joined(standing.note, note), left=True)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _again(standing: Standing, verdict: Verdict) -> Verdict | None:
    """The verdict, once enough looks confirm it; `dead` once it was asked for too often."""
    standing.looks += 1
    if standing.looks < LOOKS:
        return None
    if verdict.state == "in progress" and standing.tries >= TRIES:
        return Verdict("dead", f"Kafka was asked for it {TRIES + 1} times, and dropped it")
    return verdict


def may_start(
    task: Task,
    before: State | None,
    found: PartitionView | None,
    held: Held | None,
    presence: Presence,
    now: float,
) -> Verdict:
    """Whether a task that waits may start (``in progress``), must wait, or is over already.

    Parameters
    ----------
    before
        How the task stands that must be completed first; None without one.
    found, held
        As for :func:`judge`.
    """
    if before in ("pending", "in progress"):
        return Verdict("pending")
    if before in ("cancelled", "dead"):
        return Verdict("cancelled", "the move before it was not completed")
    if found is None:
        return DELETED if presence.deleted(task.key) else Verdict("pending")
    dead = presence.dead(task.key, now) if task.phase == "move" else ""
    if dead:
        return Verdict("cancelled", dead)
    if found.moving:
        return Verdict("pending", f"others are reassigning it to {_list(found.settled)}")
    here = set(found.replicas)
    if task.phase == "move" and here == set(task.target):
        return Verdict("completed")
    if here != set(task.origin):
        return Verdict(
            "cancelled",
            f"its replicas are on {_list(found.replicas)}, {_list(task.origin)} expected",
        )
    if task.phase == "leadership" and found.replicas == task.target and task.leader == found.leader:
        return Verdict("completed")
    if held is not None and held.log_dir == task.target_dir and held.future_dir is None:
        return Verdict("completed")
    gone = presence.gone(needs(task), now)
    if gone:
        return Verdict("cancelled", gone)
    waits = presence.away(needs(task)) or (task.phase == "move" and found.leader is None)
    return Verdict("pending" if waits else "in progress")


def refused(why: str) -> Verdict:
    """What becomes of a task that Kafka refuses."""
    return DELETED if "unknown topic" in why else Verdict("dead", f"Kafka refused it: {why}")


def cancel_refused(standing: Standing, why: str, *, moving: bool) -> Verdict | None:
    """What becomes of a task whose cancel Kafka refuses; None where the next look decides.

    Parameters
    ----------
    moving
        Whether its reassignment was to be cancelled, and not only its order put back.
    """
    if "no reassignment" in why or "unknown topic" in why:
        return None
    if moving:
        note = _joined(standing.note, f"Kafka refuses to cancel it: {why}")
        return Verdict("dead", note, left=True)
    note = _joined(standing.note, f"Kafka refuses to put its preference order back: {why}")
    return Verdict(standing.verdict, note)


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
