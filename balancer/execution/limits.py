"""How fast, in which order and how patiently a plan is carried out."""

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
# Kafka's advice for its own tool: below, replicas may never catch up.
Rate = Annotated[float, Strict(), Field(ge=1024, le=2**53), WithRate]


class Limits(BaseModel):
    """Limits of an execution.

    Durations are seconds, or text like ``"30m"``; rates are bytes/s, or text like ``"50MB/s"``.

    Parameters
    ----------
    concurrent_moves_per_broker
        Moves a broker takes part in at once, as the leader that is copied from or as
        the one that copies.
    concurrent_moves
        Moves in the whole cluster at once.
    concurrent_log_dir_moves_per_broker
        Moves between the disks of one broker at once.
    leadership_batch
        Leaders elected with one request.
    one_replica_at_a_time
        Whether a partition's replicas move one after the other, in the plan's own
        steps; else a partition's replicas move together, when its first turn comes.
    strategies
        What goes first; the next strategy decides where one does not, the plan's order
        where none does.
    spread
        Whether brokers take turns, so that none becomes the bottleneck.
    throttle
        Bytes/s that a broker may send and receive for the moves; None does not throttle.
    log_dir_throttle
        Bytes/s that a broker may copy between its disks; None does not throttle.
    adaptive
        Whether to start fewer moves while the cluster suffers: half as many when
        partitions fall under their min ISR or more of those that do not move are
        under-replicated, one more per `adaptive_interval` when all is well, up to the
        limits above; none while a partition without an offline replica is under min ISR.
        Also half as many, and no more, while brokers are slow.
    adaptive_interval
        Seconds between two raises.
    produce_local_ms, consumer_fetch_local_ms, follower_fetch_local_ms
        Local time of requests, p999 (mean, where that is all that is measured), above which
        a broker is slow; None does not look at it. Needs somebody who measures:
        :class:`balancer.execution.LocalTimes`.
    slow_brokers
        So many brokers must be slow at once (or all, where fewer are measured).
    slow_interval
        Seconds until brokers that are still slow halve it once more: the length of a window
        of metrics, each of which counts once.
    progress_interval
        Seconds between two looks at the cluster.
    task_timeout
        Seconds without a byte of progress after which a task is given up.
    task_deadline
        Seconds that one task may take in all. A partition that is written to faster than
        its throttle lets it be copied makes progress forever and never catches up.
    cancel_timeout
        Seconds that Kafka may take to cancel a task; after that the task is left to Kafka.
    leadership_timeout
        Seconds after which an election that did not bring the leader is given up.
    broker_grace
        Seconds that a broker may be away which is to receive a replica, and that a partition
        that is to be copied may be without a leader.
    others
        Partitions that others are reassigning: ``wait`` until they are done (as long as
        `task_timeout`), or ``skip`` them.
    resume_within
        Seconds after its journal's last entry in which an execution that died is carried on
        by an executor with an owner, as a controller's; later, only what is under way is
        waited for. None carries on whatever its age.
    plan_age
        Seconds since a plan's snapshot was taken, after which ``counterpoise execute`` warns.
    patience
        Seconds that Kafka may be out of reach before the execution gives up.
    timeout
        Seconds that one request may take.
    stop_timeout
        Seconds in which an execution that is stopped (without a rollback) ends, whatever Kafka
        answers; what is not in order by then is left to a recovery.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    concurrent_moves_per_broker: Count = 5
    concurrent_moves: Count = 100
    concurrent_log_dir_moves_per_broker: Count = 2
    leadership_batch: Count = 250
    one_replica_at_a_time: bool = False
    strategies: tuple[TaskOrder, ...] = ()
    spread: bool = True
    throttle: Rate | None = None
    log_dir_throttle: Rate | None = None
    adaptive: bool = True
    adaptive_interval: Seconds = 30.0
    produce_local_ms: Milliseconds | None = 1000.0
    consumer_fetch_local_ms: Milliseconds | None = 500.0
    follower_fetch_local_ms: Milliseconds | None = 500.0
    slow_brokers: Count = 2
    slow_interval: Seconds = 300.0
    progress_interval: Seconds = 2.0
    task_timeout: Seconds = 600.0
    task_deadline: Seconds = 604_800.0
    cancel_timeout: Seconds = 30.0
    leadership_timeout: Seconds = 180.0
    broker_grace: Annotated[float, Strict(), Field(ge=0, le=_LONGEST), WithDuration] = 30.0
    others: Literal["wait", "skip"] = "wait"
    resume_within: Seconds | None = 3600.0
    plan_age: Seconds = 86400.0
    patience: Seconds = 60.0
    timeout: Seconds = 10.0
    stop_timeout: Seconds = 7.0

    @classmethod
    def of(cls, **values: Any) -> Limits:
        """Limits with some values given; what is wrong with one is told in a sentence.

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
