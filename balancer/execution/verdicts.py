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
        Whether Kafka was asked to cancel it, and what it is once that is done.
    note
        Why.
    """

    since: float
    progressed: float
    seen: float = 0.0
    looks: int = 0
    tries: int = 0
    cancelling: bool = False
    verdict: State = "cancelled"
    note: str = ""


class Verdict(NamedTuple):
    """What becomes of a task.

    ``in progress`` asks Kafka for it (again), ``pending`` lets it wait; `cancel` tells
    that Kafka must be asked to cancel it first.
    """

    state: State
    note: str = ""
    cancel: bool = False


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
        return None
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
    if found.moving and standing.cancelling:
        return _again(standing, Verdict(standing.verdict, standing.note, cancel=True))
    if found.moving:
        standing.looks = 0
        gone = presence.gone(found.adding, now)
        return Verdict("dead", gone, cancel=True) if gone else _stuck(standing, limits, now)
    if set(found.replicas) == set(task.target):
        return Verdict("completed")
    if standing.cancelling:
        return Verdict(standing.verdict, standing.note)
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
    if held is None:
        return None
    if held.future_dir is not None:
        return None if standing.cancelling else _stuck(standing, limits, now)
    if held.log_dir == task.target_dir:
        return Verdict("completed")
    if standing.cancelling:
        return Verdict(standing.verdict, standing.note)
    return _again(standing, Verdict("in progress"))


def _leadership(
    task: Task, standing: Standing, found: PartitionView, limits: Limits, now: float
) -> Verdict | None:
    if found.moving:
        return Verdict("cancelled", f"another reassignment to {_list(found.settled)} replaced it")
    if found.replicas == task.target and task.leader in (None, found.leader):
        return Verdict("completed")
    if set(found.replicas) != set(task.target):
        other = f"its replicas were brought to {_list(found.replicas)} by another"
        return _again(standing, Verdict("cancelled", other))
    if standing.cancelling:
        return Verdict(standing.verdict, standing.note)
    if now - standing.since > limits.leadership_timeout:
        led = "nobody" if found.leader is None else f"broker {found.leader}"
        why = f": {standing.note}" if standing.note else ""
        return Verdict("dead", f"{led} leads after {limits.leadership_timeout:g} s{why}")
    return Verdict("in progress")


def _stuck(standing: Standing, limits: Limits, now: float) -> Verdict | None:
    if now - standing.progressed <= limits.task_timeout:
        return None
    return Verdict("dead", f"no byte was copied for {limits.task_timeout:g} s", cancel=True)


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
    return Verdict("pending" if presence.away(needs(task)) else "in progress")


def refused(why: str) -> Verdict:
    """What becomes of a task that Kafka refuses."""
    return DELETED if "unknown topic" in why else Verdict("dead", f"Kafka refused it: {why}")


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
