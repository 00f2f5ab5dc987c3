"""The decided assignment as a message: written by the autoscaler, read by the group's leader."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.policy import Decision
from metrics_reporter.documents import first_problem

# A message that is larger when it is unpacked is refused; a partition takes about 20 bytes.
LARGEST_BYTES = 1 << 26
Partition = tuple[str, int]


class TopicShare(BaseModel):
    """The partitions of a topic, as columns.

    Parameters
    ----------
    partition
        Their numbers.
    consumer
        For each the row of its consumer in :attr:`DecidedAssignment.consumers`; -1 for none.
    rate
        Events/s that arrive in each.
    """

    model_config = ConfigDict(frozen=True)

    partition: tuple[Annotated[int, Field(ge=0)], ...]
    consumer: tuple[Annotated[int, Field(ge=-1)], ...]
    rate: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        if not len(self.partition) == len(self.consumer) == len(self.rate):
            raise ValueError(
                f"{len(self.partition)} partitions, {len(self.consumer)} consumers and "
                f"{len(self.rate)} rates found, as many of each expected"
            )
        return self


class DecidedAssignment(BaseModel):
    """Which consumer is to read each partition.

    Parameters
    ----------
    version
        Of this format.
    consumers
        Names of the consumers: those that ran when it was decided, then those to start.
    running
        How many of them ran.
    topics
        The partitions of each topic.
    """

    # unknown fields are those of a newer autoscaler
    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal[1] = 1
    consumers: tuple[str, ...]
    running: Annotated[int, Field(ge=0)]
    topics: dict[str, TopicShare]

    @model_validator(mode="after")
    def _known(self) -> Self:
        highest = max((c for t in self.topics.values() for c in t.consumer), default=-1)
        if highest >= len(self.consumers) or self.running > len(self.consumers):
            raise ValueError(
                f"consumer {max(highest, self.running - 1)} found, at most "
                f"{len(self.consumers) - 1} expected"
            )
        return self

    def consumer_of(self) -> dict[Partition, int]:
        """The row of the consumer of each partition that has one."""
        return {
            (topic, p): c
            for topic, t in self.topics.items()
            for p, c in zip(t.partition, t.consumer, strict=True)
            if c >= 0
        }

    def rates(self) -> dict[Partition, float]:
        """Events/s that arrive in each partition."""
        return {
            (topic, p): r
            for topic, t in self.topics.items()
            for p, r in zip(t.partition, t.rate, strict=True)
        }

    def encode(self) -> bytes:
        """The message, compressed."""
        return gzip.compress(self.model_dump_json().encode(), mtime=0)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a message.

        Raises
        ------
        AutoscalingError
            If it is not one, in one sentence.
        """
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            text = unpacker.decompress(data, LARGEST_BYTES)
        except zlib.error:
            raise AutoscalingError("decision: not compressed by gzip, a message expected") from None
        if not unpacker.eof:
            raise AutoscalingError(
                f"decision: more than {LARGEST_BYTES} bytes or cut off, a whole message expected"
            )
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise AutoscalingError(f"decision: {first_problem(error)}") from None


def decided(observation: Observation, decision: Decision) -> DecidedAssignment:
    """The message of a decision."""
    rows: dict[str, tuple[list[int], list[int], list[float]]] = {}
    columns = zip(
        observation.partitions,
        decision.consumer.tolist(),
        observation.group.rate.tolist(),
        strict=True,
    )
    for name, consumer, rate in columns:
        topic, _, number = name.rpartition("-")
        numbers, consumers, rates = rows.setdefault(topic, ([], [], []))
        numbers.append(int(number))
        consumers.append(consumer)
        # three digits are enough to compare loads
        rates.append(float(f"{rate:.3g}"))
    return DecidedAssignment(
        consumers=observation.names_after(decision),
        running=observation.group.consumers,
        topics={
            topic: TopicShare(partition=tuple(p), consumer=tuple(c), rate=tuple(r))
            for topic, (p, c, r) in rows.items()
        },
    )


def same_consumers(one: DecidedAssignment, other: DecidedAssignment) -> bool:
    """Whether two messages give every partition to the same consumer, whatever the rates."""

    def named(message: DecidedAssignment) -> Mapping[Partition, str]:
        return {p: message.consumers[c] for p, c in message.consumer_of().items()}

    return one.running == other.running and named(one) == named(other)


def by_topic(partitions: Iterable[Partition]) -> list[tuple[str, list[int]]]:
    """Partitions as Kafka's protocol lists them."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return list(found.items())
