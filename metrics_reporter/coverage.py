"""Counts the partitions whose rates and sizes a report has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from metrics_reporter.metrics import BYTES_IN, BYTES_OUT, SIZE
from metrics_reporter.quantities import plural
from metrics_reporter.records import Record

_RATES = (BYTES_IN, BYTES_OUT)


class Coverage(NamedTuple):
    """How many partitions a report is about, and of how many it has rates and sizes.

    Examples
    --------
    >>> report = [Record(0, 1, {"size": 4096.0}, "a", p) for p in range(3)]
    >>> str(coverage([*report, Record(0, 1, {"bytes_in": 5.0, "bytes_out": 0.0}, "a", 2)]))
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
    """What a report covers; the rates of a topic are those of all its partitions on the broker.

    Rates are known if those of what is written and of what is read are.
    """
    held: dict[tuple[str, int], set[int]] = {}
    sized: set[tuple[str, int]] = set()
    # metric, topic, and the partition or its broker
    rated: set[tuple[str, str, int]] = set()
    split: set[tuple[str, str, int]] = set()
    for record in report:
        if record.topic is None:
            continue
        summed = record.partition < 0
        at = record.broker if summed else record.partition
        (split if summed else rated).update(
            (metric, record.topic, at) for metric in _RATES if metric in record.metrics
        )
        if summed:
            continue
        held.setdefault((record.topic, at), set()).add(record.broker)
        if SIZE in record.metrics:
            sized.add((record.topic, at))
    rates = sum(
        all(
            (metric, topic, partition) in rated or any((metric, topic, b) in split for b in brokers)
            for metric in _RATES
        )
        for (topic, partition), brokers in held.items()
    )
    return Coverage(len(held), rates, len(sized))
