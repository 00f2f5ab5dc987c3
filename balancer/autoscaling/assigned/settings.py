"""Tunable numbers of consumers with a control topic, and of their controller."""

from __future__ import annotations

from dataclasses import dataclass

from balancer.autoscaling.errors import AutoscalingError, check_above_zero


@dataclass(frozen=True)
class ControlSettings:
    """Tunable numbers of a controller; all controllers of a group need the same.

    Parameters
    ----------
    lease_seconds
        How long a consumer may read after the heartbeat that the controller has answered last. If
        it is longer than the election of another controller takes, the death of one interrupts
        no consumer.
    drift
        Share of the lease that the controller waits longer than that, as the clocks of two
        machines do not run equally fast.
    silent_seconds
        A consumer that has sent no heartbeat for so long counts as dead: it gets no partitions, and
        others get its own when its lease is over.
    stop_seconds
        Time for a consumer to stop reading a partition, or to take up an assignment. After it, its
        heartbeats are not answered any longer, so that its lease ends.
    read_back
        Last messages of each consumer's partition of the control topic that a controller reads when
        it is elected, to know what an earlier one has said.
    answer_seconds
        Time for Kafka to answer.
    copies
        Replicas of each partition of the control topic, if it is to be made; fewer if there are
        fewer brokers.
    """

    lease_seconds: float = 10.0
    drift: float = 0.1
    silent_seconds: float = 3.0
    stop_seconds: float = 30.0
    read_back: int = 200
    answer_seconds: float = 10.0
    copies: int = 3

    def __post_init__(self) -> None:
        check_above_zero(self, *(name for name in vars(self) if name != "drift"))
        if not 0 <= self.drift < float("inf"):
            raise AutoscalingError(f"drift: {self.drift} found, 0 or more expected")

    @property
    def wait_seconds(self) -> float:
        """How long the controller waits for a lease to be over."""
        return self.lease_seconds * (1 + self.drift)


@dataclass(frozen=True)
class ConsumerSettings:
    """Tunable numbers of a consumer.

    Parameters
    ----------
    record_seconds
        Longest time that a record takes to be processed. None is begun that could take longer than
        the lease, and a consumer that is busy with one for longer sends no heartbeats. With
        `heartbeat_seconds` it must be less than the lease, or the consumer ends with an error.
    heartbeat_seconds
        Between two heartbeats.
    commit_seconds
        Between two commits of what is processed.
    renewal_seconds
        After so long, the positions of partitions without new records are committed again, as Kafka
        forgets those that it was not told for ``offsets.retention.minutes``.
    batch
        Most records that are fetched at once.
    answer_seconds
        Time for Kafka to answer.
    start_seconds
        Time for the control topic to exist.
    measured_seconds
        Time of processing, waits left out, over which events are counted to know how many the
        consumer can process; at least the last half of it counts.
    least_measured_seconds
        Time of processing from which on that is known.
    remembered_seconds
        Without partitions for so long, it is not known any longer: one that was slow for a while
        and was given nothing since could not be measured again.
    """

    record_seconds: float = 1.0
    heartbeat_seconds: float = 0.5
    commit_seconds: float = 1.0
    renewal_seconds: float = 3600.0
    batch: int = 500
    answer_seconds: float = 5.0
    start_seconds: float = 60.0
    measured_seconds: float = 30.0
    least_measured_seconds: float = 1.0
    remembered_seconds: float = 600.0

    def __post_init__(self) -> None:
        check_above_zero(self, *vars(self))
