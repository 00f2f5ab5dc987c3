"""Limits of an execution: speed, order of tasks and timeouts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from balancer.execution.errors import ExecutionError
from metrics_reporter.documents import first_problem, shown_name
from metrics_reporter.quantities import WithDuration, WithRate

TaskOrder = Literal[
    "plan_order",
    "smallest_first",
    "largest_first",
    "under_min_isr_first",
    "postpone_under_replicated",
]
# A month: a longer wait counts as endless.
_LONGEST = 30 * 86_400.0
Count = Annotated[int, Strict(), Field(ge=1, lt=2**31)]
Seconds = Annotated[float, Strict(), Field(gt=0, le=_LONGEST), WithDuration]
Milliseconds = Annotated[float, Strict(), Field(gt=0)]
# Kafka's recommendation for its own tool: below this, replicas may never catch up.
Rate = Annotated[float, Strict(), Field(ge=1024, le=2**53), WithRate]


class Limits(BaseModel):
    """Limits of an execution.

    Durations are seconds, or text like ``"30m"``; rates are bytes/s, or text like ``"50MB/s"``.

    Parameters
    ----------
    concurrent_moves_per_broker
        Moves a broker takes part in at once, as the leader that is copied from or as the
        destination.
    concurrent_moves
        Moves in the whole cluster at once.
    concurrent_log_dir_moves_per_broker
        Moves between the disks of one broker at once.
    leadership_batch
        Leaders elected with one request.
    one_replica_at_a_time
        Whether a partition's replicas move one after the other, in the plan's own
        steps; otherwise they move together, at the first of these steps.
    order
        Order of tasks; each rule breaks the ties of the previous one, and the plan's
        order breaks the remaining ties.
    spread
        Whether brokers take turns, so that none becomes the bottleneck.
    throttle
        Bytes/s that a broker may send and receive for the moves; None for no throttle.
    log_dir_throttle
        Bytes/s that a broker may copy between its disks; None for no throttle.
    adaptive
        Whether to start fewer moves while the cluster suffers: half as many when
        partitions fall under their min ISR or more of those that do not move are
        under-replicated; one more per `adaptive_interval` when all is well, up to the
        limits above; none while a partition without an offline replica is under min ISR.
        While brokers are slow, also half as many, without any increase.
    adaptive_interval
        Seconds between two increases.
    produce_local_ms, consumer_fetch_local_ms, follower_fetch_local_ms
        Local time of requests, p999 (mean, if only that is measured), above which a broker is
        slow; None disables the check. Requires measurements:
        :class:`balancer.execution.LocalTimes`.
    slow_brokers
        How many brokers must be slow at once (or all, if fewer are measured).
    fresh_windows
        Metrics windows that may have passed since the end of one whose local times still count:
        a window is complete only once the one after it has begun.
    slow_interval
        Seconds until brokers that are still slow halve it again: the length of a metrics
        window, since each window counts once.
    progress_interval
        Seconds between two looks at the cluster.
    task_timeout
        Seconds without a byte of progress after which a task is given up.
    task_deadline
        Seconds that one task may take in total. A partition that is written to faster than
        its throttle lets it be copied makes progress forever and never catches up.
    cancel_timeout
        Seconds that Kafka may take to cancel a task; after that the task is left to Kafka.
    leadership_timeout
        Seconds after which an election is given up if the leader has not changed.
    confirming_looks
        Looks in a row that must show that a partition is deleted, that a move was dropped, or that
        another client changed it: a broker that has just started may not know all topics, and
        metadata may be older than the list of reassignments.
    task_attempts
        Times that Kafka is asked for a task that it drops, before the task is given up.
    throttle_looks
        Maximum number of checks, 0.2 s apart, for a throttle to be gone; otherwise a recovery
        removes it.
    throttle_confirming_looks
        Looks in a row that must show that it is removed.
    throttle_attempts
        Times that a broker may fail to answer before its throttle is left.
    broker_grace
        Seconds that the destination of a replica may be away, and that a partition to be
        copied may be without a leader.
    others
        Partitions that others are reassigning: ``wait`` until they are done (up to
        `task_timeout`), or ``skip`` them.
    resume_within
        Seconds since its journal's last entry within which an execution that died is continued
        by an executor with an owner, such as a controller's; later, its moves in progress are
        only waited for. None continues it at any age.
    plan_age
        Age in seconds of a plan's snapshot above which ``counterpoise execute`` warns.
    outage_timeout
        Seconds that Kafka may be unreachable before the execution gives up.
    timeout
        Seconds that one request may take.
    pause_timeout
        Seconds that an operator may pause an execution; after that the rest is cancelled.
    stop_timeout
        Seconds in which a stopped execution (without rollback) ends, whatever Kafka answers;
        what is not cleaned up by then is left to a recovery.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    concurrent_moves_per_broker: Count = 5
    concurrent_moves: Count = 100
    concurrent_log_dir_moves_per_broker: Count = 2
    leadership_batch: Count = 250
    one_replica_at_a_time: bool = False
    order: tuple[TaskOrder, ...] = ()
    spread: bool = True
    throttle: Rate | None = None
    log_dir_throttle: Rate | None = None
    adaptive: bool = True
    adaptive_interval: Seconds = 30.0
    produce_local_ms: Milliseconds | None = 1000.0
    consumer_fetch_local_ms: Milliseconds | None = 500.0
    follower_fetch_local_ms: Milliseconds | None = 500.0
    slow_brokers: Count = 2
    fresh_windows: Annotated[int, Strict(), Field(ge=1, le=1000)] = 2
    slow_interval: Seconds = 300.0
    progress_interval: Seconds = 2.0
    task_timeout: Seconds = 600.0
    task_deadline: Seconds = 604_800.0
    cancel_timeout: Seconds = 30.0
    leadership_timeout: Seconds = 180.0
    confirming_looks: Annotated[int, Strict(), Field(ge=1, le=100)] = 3
    task_attempts: Annotated[int, Strict(), Field(ge=1, le=1000)] = 4
    throttle_looks: Annotated[int, Strict(), Field(ge=1, le=1000)] = 10
    throttle_confirming_looks: Annotated[int, Strict(), Field(ge=1, le=100)] = 2
    throttle_attempts: Annotated[int, Strict(), Field(ge=1, le=100)] = 2
    broker_grace: Annotated[float, Strict(), Field(ge=0, le=_LONGEST), WithDuration] = 30.0
    others: Literal["wait", "skip"] = "wait"
    resume_within: Seconds | None = 3600.0
    plan_age: Seconds = 86400.0
    outage_timeout: Seconds = 60.0
    timeout: Seconds = 10.0
    pause_timeout: Seconds = 86_400.0
    stop_timeout: Seconds = 7.0

    @classmethod
    def of(cls, **values: Any) -> Limits:
        """Limits with some values given; an invalid value is reported in one sentence.

        Raises
        ------
        ExecutionError
            Naming the limit, the value found and what was expected.

        Examples
        --------
        >>> Limits.of(concurrent_moves=20).concurrent_moves
        20
        """
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if first["type"] == "extra_forbidden":
                known = ", ".join(cls.model_fields)
                raise ExecutionError(
                    f"limit {shown_name(str(first['loc'][0]))}: no such limit, one of {known} "
                    "expected"
                ) from None
            raise ExecutionError(f"limit {first_problem(error)}") from None
