"""Reads partitions of one topic from positions that the host sets; belongs to no group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from balancer.assignment.group.errors import GroupError
from metrics_reporter.clients import MANUAL_POSITIONS, create, kafka, passing


@dataclass
class Batch:
    """What one read found.

    Parameters
    ----------
    messages
        Messages of each partition, in their order.
    ends
        Offset at which a partition ended.
    missing
        Partitions whose position does not exist, because it was deleted or is yet to come.
    """

    messages: dict[int, list[Any]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)


class PartitionReader:
    """A consumer of partitions that are added and removed one by one.

    Parameters
    ----------
    bootstrap_servers, topic
        What to read; only committed transactions.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic, self._kafka = topic, kafka()
        # The offset from which each partition is read next.
        self._positions: dict[int, int] = {}
        self._consumer = create(
            "Consumer",
            {
                "bootstrap.servers": bootstrap_servers,
                "log_level": 0,
                # The client insists on a name, which is not used.
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                # A partition that is added waits for the fetch under way to end.
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
                **MANUAL_POSITIONS,
            },
        )

    def add(self, partition: int, offset: int) -> None:
        """Read a partition from an offset; 0 stands for the first there is."""
        at = offset or self._kafka.OFFSET_BEGINNING
        self._positions[partition] = offset
        self._consumer.incremental_assign([self._kafka.TopicPartition(self._topic, partition, at)])

    def remove(self, partition: int) -> None:
        """Do not read a partition any longer."""
        if partition in self._positions:
            del self._positions[partition]
            self._consumer.incremental_unassign(
                [self._kafka.TopicPartition(self._topic, partition)]
            )

    def read(self, maximum: int, timeout: float) -> Batch:
        """Wait for messages at most `timeout` seconds, and return what there is.

        Raises
        ------
        GroupError
            If the topic cannot be read.
        """
        batch = Batch()
        if not self._positions:
            return batch
        errors = self._kafka.KafkaError
        messages: Sequence[Any] = self._consumer.consume(maximum, timeout)
        for message in messages:
            partition, error = message.partition(), message.error()
            # The client drops messages of a partition that has been removed, but not its errors.
            if partition >= 0 and partition not in self._positions:
                continue
            if error is None:
                # After a change of leaders a client may return a message once more.
                if message.offset() >= self._positions[partition]:
                    self._positions[partition] = message.offset() + 1
                    batch.messages.setdefault(partition, []).append(message)
            elif error.code() == errors._PARTITION_EOF:
                batch.ends[partition] = message.offset()
            elif error.code() in (errors._AUTO_OFFSET_RESET, errors.OFFSET_OUT_OF_RANGE):
                batch.missing.add(partition)
            elif not passing(error):
                raise GroupError(f"topic {self._topic}: {error.str()}")
        return batch

    def end(self, partition: int, timeout: float) -> int:
        """The offset after the last record of a partition; may be called from any thread."""
        at = self._kafka.TopicPartition(self._topic, partition)
        return int(self._consumer.get_watermark_offsets(at, timeout=timeout)[1])

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
