"""A consumer group as arrays: what its partitions receive, what its consumers can take."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from balancer.allocation.packing.problem import Packing
from balancer.autoscaling.errors import AutoscalingError
from cluster_model.snapshot import Floats, Ints
from metrics_reporter.documents import shown_name

# Numbers outside add up to nothing that could be computed with, and are mistakes.
LEAST, MOST = 1e-6, 1e15
# A group that needs more has a mistake in its numbers.
MOST_CONSUMERS = 10**6


def _no_floats() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Group:
    """P partitions and the C running consumers that read them.

    Parameters
    ----------
    rate : (P,) float
        Events that arrive in each partition per second.
    lag : (P,) float
        Events that wait in each partition.
    consumer : (P,) int
        The consumer of each partition, 0 to C - 1; -1 if none reads it.
    capacity : (C,) float
        Events per second that each consumer can process (seed 003, Eq. 1); they may differ.
    new_capacity
        Events per second that a consumer can process that would be started.
    speed : (P,) float
        Bytes written to each partition per second; empty if not measured.
    byte_capacity
        Bytes per second that a new consumer can read; those of the others are in the proportion of
        their capacities.
    rebalance_seconds
        How long partitions are not read when their consumers change.
    reaction_seconds
        Time until a change takes effect: consumers start, and the others hear of it.
    blocking
        Whether a rebalance stops all consumers, or only the partitions that move.
    partition_names, consumer_names
        Names for messages; numbers are used where they are empty.

    Raises
    ------
    AutoscalingError
        Naming the field, the row and the value.
    """

    rate: Floats
    lag: Floats
    consumer: Ints
    capacity: Floats
    new_capacity: float
    speed: Floats = field(default_factory=_no_floats)
    byte_capacity: float = np.inf
    rebalance_seconds: float = 0.0
    reaction_seconds: float = 0.0
    blocking: bool = True
    partition_names: tuple[str, ...] = ()
    consumer_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        partitions = len(self.rate)
        for name, above, optional in (
            ("rate", False, False),
            ("lag", False, False),
            ("speed", False, True),
            ("capacity", True, False),
        ):
            values = getattr(self, name)
            known = values.shape == (partitions,) or (optional and not values.size)
            if name != "capacity" and not known:
                raise AutoscalingError(
                    f"group, {name}: shape {values.shape} found, ({partitions},) expected"
                )
            least = LEAST if above else 0.0
            bad = np.flatnonzero(~((values >= least) & (values <= MOST)))
            if len(bad):
                row = int(bad[0])
                where = self.consumer_name(row) if above else self.partition_name(row)
                raise AutoscalingError(
                    f"group, {name} of {where}: {values[row]:g} found, a number from {least:g} to "
                    f"{MOST:g} expected"
                )
        for name in ("new_capacity", "byte_capacity"):
            value = getattr(self, name)
            unlimited = name == "byte_capacity" and value == np.inf
            if not (LEAST <= value <= MOST or unlimited):
                raise AutoscalingError(
                    f"group, {name}: {value:g} found, a number from {LEAST:g} to {MOST:g} expected"
                )
        for name, values, each, unit in (
            ("rate", self.rate, self.new_capacity, "events/s"),
            ("speed", self.speed, self.byte_capacity, "bytes/s"),
        ):
            if (total := float(values.sum())) / each > MOST_CONSUMERS:
                raise AutoscalingError(
                    f"group, {name}: {total:.4g} {unit} found, at most what "
                    f"{MOST_CONSUMERS:,} consumers of {each:.4g} can process expected"
                )
        for name in ("rebalance_seconds", "reaction_seconds"):
            if not 0 <= getattr(self, name) < np.inf:
                raise AutoscalingError(
                    f"group, {name}: {getattr(self, name)} found, 0 or more expected"
                )
        if self.consumer.shape != (partitions,):
            raise AutoscalingError(
                f"group, consumer: shape {self.consumer.shape} found, ({partitions},) expected"
            )
        outside = np.flatnonzero((self.consumer < -1) | (self.consumer >= len(self.capacity)))
        if len(outside):
            row = int(outside[0])
            raise AutoscalingError(
                f"group, consumer, row {row}: {self.consumer[row]} found, a number from -1 to "
                f"{len(self.capacity) - 1} expected"
            )

    @property
    def consumers(self) -> int:
        """Number of running consumers."""
        return len(self.capacity)

    @property
    def largest(self) -> float:
        """Events per second that the largest consumer can process, a new one included."""
        return max(self.new_capacity, float(self.capacity.max(initial=0.0)))

    def capacity_of(self, consumer: Ints) -> Floats:
        """Events per second of consumers, running ones by their index and new ones beyond."""
        known = np.append(self.capacity, self.new_capacity)
        found: Floats = known[np.minimum(consumer, self.consumers)]
        return found

    def load(self, consumer: Ints, values: Floats, consumers: int | None = None) -> Floats:
        """(C,) sum of values of the partitions of each consumer, in a given assignment."""
        read = consumer >= 0
        least = self.consumers if consumers is None else consumers
        found: Floats = np.bincount(consumer[read], weights=values[read], minlength=least).astype(
            np.float64
        )
        return found

    def partition_name(self, row: int) -> str:
        """The partition of a row, for messages."""
        names = self.partition_names
        return shown_name(names[row]) if names else f"partition {row}"

    def consumer_name(self, index: int) -> str:
        """The running consumer of an index, for messages."""
        return (
            shown_name(self.consumer_names[index]) if self.consumer_names else f"consumer {index}"
        )

    def packing(
        self, sla: float, fill: float, *, rate: Floats | None = None, lag: Floats | None = None
    ) -> Packing:
        """The packing of partitions into consumers that keeps an SLA (seed 003, Eq. 4 and 5).

        A consumer holds partitions whose rates add up to at most its capacity, and whose lags to
        at most what it processes within the SLA. If the bytes are limited, they are a third
        dimension. What is too much for any consumer alone counts as what the largest one takes. The
        weight of a partition is what its move costs: its rate.

        Parameters
        ----------
        sla
            Target of the latency in seconds.
        fill
            Share of the capacity that may be used.
        rate, lag : (P,) float
            Instead of those measured.
        """
        rate, lag = self.rate if rate is None else rate, self.lag if lag is None else lag
        columns, unit = [rate, lag], [1.0, sla]
        if len(self.speed) and np.isfinite(self.byte_capacity):
            columns.append(self.speed)
            unit.append(self.byte_capacity / self.new_capacity)
        scale = np.array(unit) * fill
        differ = bool((self.capacity != self.new_capacity).any())
        return Packing(
            size=np.minimum(np.stack(columns, axis=1), self.largest * scale),
            owner=self.consumer,
            capacity=self.new_capacity * scale,
            capacities=np.outer(self.capacity, scale) if differ else np.zeros((0, 0)),
            weight=rate,
        )
