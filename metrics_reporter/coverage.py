"""Counts the partitions whose rates and sizes a report has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from metrics_reporter.metrics import BYTES_IN, SIZE
from metrics_reporter.quantities import plural
from metrics_reporter.records import Record


class Coverage(NamedTuple):
    """How many partitions a report is about, and of how many it has rates and sizes.

    Examples
    --------
    >>> report = [Record(0, 1, {"size": 4096.0}, "a", p) for p in range(3)]
    >>> str(coverage([*report, Record(0, 1, {"bytes_in": 5.0}, "a", 2)]))
    'rates of 1, sizes of 3 of 3 partitions'
    """

    partitions: int
    rates: int
    sizes: int

    def __str__(self) -> str:
        return (
            f"rates of {self.rates:,}, sizes of {self.sizes:,} of "
            f"{plural(self.partitions, 'partition')}"
        )


def coverage(report: Iterable[Record]) -> Coverage:
    """What a report covers; the rates of a topic are those of all its partitions on the broker."""
    held: dict[tuple[str, int], set[int]] = {}
    rated: set[tuple[str, int]] = set()
    sized: set[tuple[str, int]] = set()
    topics: set[tuple[str, int]] = set()
    for record in report:
        if record.topic is None:
            continue
        if record.partition < 0:
            if BYTES_IN in record.metrics:
                topics.add((record.topic, record.broker))
            continue
        partition = record.topic, record.partition
        held.setdefault(partition, set()).add(record.broker)
        if BYTES_IN in record.metrics:
            rated.add(partition)
        if SIZE in record.metrics:
            sized.add(partition)
    for partition, brokers in held.items():
        if any((partition[0], broker) in topics for broker in brokers):
            rated.add(partition)
    return Coverage(len(held), len(rated), len(sized))
