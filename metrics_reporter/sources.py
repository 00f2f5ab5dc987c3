"""Sources of records: the protocol, and a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from metrics_reporter.arrays import Floats, Ints
from metrics_reporter.errors import ReporterError
from metrics_reporter.metrics import BYTES_IN, BYTES_OUT, CPU, SIZE
from metrics_reporter.records import Record

Numbers = Sequence[float] | Floats
Integers = Sequence[int] | Ints

# A full hour, so that windows of any usual length start with the simulation.
_START_MS = 1_699_999_200_000


class Source(Protocol):
    """Something that measures: iterating it gives one report of many records per interval."""

    def __iter__(self) -> Iterator[Iterable[Record]]:
        """One report after the other; a live source measures when asked for the next."""


class SimulatedSource:
    """Generates measurements of an invented cluster endlessly, as fast as they are read.

    Partition p has its replicas on brokers
    ``replica_broker[replica_offset[p]:replica_offset[p + 1]]``.

    Parameters
    ----------
    partitions
        Topic and number of each of P partitions.
    replica_broker : (N,) int
        Id of the broker of each replica.
    replica_offset : (P + 1,) int
    leader : (P,) int
        Position of the leader among the partition's replicas; -1 for none, and then
        the rates of the partition are not reported.
    bytes_in, bytes_out, size : (P,) float
        Mean bytes/s of producers and of consumers, and bytes on the leader's disk.
    cpu
        Mean cpu by broker id; a broker that is missing here does not report at all.
    replica_size : (N,) float, optional
        Bytes on disk of each replica, instead of `size`; followers report theirs too.
    noise
        Standard deviation of the logarithm of the factor on each rate and on cpu, of
        mean 1; 0 reports the means themselves.
    start_ms, interval_ms
        Time of the first report, and between reports, in the records' own time.
    seed
        Equal seeds, with equal arguments, give equal records.

    Raises
    ------
    ReporterError
        For arrays whose shapes do not match.

    Examples
    --------
    >>> source = SimulatedSource(
    ...     partitions=[("orders", 0)], replica_broker=[1, 2], replica_offset=[0, 2], leader=[0],
    ...     bytes_in=[10.0], bytes_out=[30.0], size=[500.0], cpu={1: 40.0, 2: 5.0})
    >>> [record.broker for record in next(iter(source))]
    [1, 2, 1]
    """

    def __init__(
        self,
        *,
        partitions: Sequence[tuple[str, int]],
        replica_broker: Integers,
        replica_offset: Integers,
        leader: Integers,
        bytes_in: Numbers,
        bytes_out: Numbers,
        size: Numbers,
        cpu: dict[int, float],
        replica_size: Numbers | None = None,
        noise: float = 0.0,
        start_ms: int = _START_MS,
        interval_ms: int = 60_000,
        seed: int = 0,
    ) -> None:
        n = len(replica_broker)
        for name, array, length in (
            ("replica_offset", replica_offset, len(partitions) + 1),
            ("leader", leader, len(partitions)),
            ("bytes_in", bytes_in, len(partitions)),
            ("bytes_out", bytes_out, len(partitions)),
            ("size", size, len(partitions)),
            ("replica_size", range(n) if replica_size is None else replica_size, n),
        ):
            if len(array) != length:
                raise ReporterError(
                    f"simulated source, {name}: {len(array)} found, {length} expected"
                )
        if len(replica_offset) and (replica_offset[0] != 0 or replica_offset[-1] != n):
            raise ReporterError(
                f"simulated source, replica_offset: {replica_offset[0]} to {replica_offset[-1]} "
                f"found, 0 to {n} expected"
            )
        if not (noise >= 0 and interval_ms > 0):
            raise ReporterError(
                f"simulated source: noise {noise} and interval {interval_ms} ms found, at least 0 "
                "and more than 0 expected"
            )
        self._partitions = partitions
        self._broker = np.asarray(replica_broker, np.int64).tolist()
        self._offset = np.asarray(replica_offset, np.int64).tolist()
        self._leader = np.asarray(leader, np.int64).tolist()
        self._rates = np.stack([np.asarray(bytes_in, float), np.asarray(bytes_out, float)], axis=1)
        self._size = np.asarray(size, float).tolist()
        self._replica_size = (
            None if replica_size is None else np.asarray(replica_size, float).tolist()
        )
        self._cpu = dict(sorted(cpu.items()))
        self._noise = noise
        self._start_ms = start_ms
        self._interval_ms = interval_ms
        self._seed = seed

    def __iter__(self) -> Iterator[list[Record]]:
        rng = np.random.default_rng(self._seed)
        time_ms = self._start_ms
        while True:
            yield self._report(time_ms, rng)
            time_ms += self._interval_ms

    def _report(self, time_ms: int, rng: np.random.Generator) -> list[Record]:
        # A factor of mean 1 keeps windows near the given rates.
        shift = -(self._noise**2) / 2
        factor = np.exp(rng.normal(shift, self._noise, self._rates.shape))
        busy = np.exp(rng.normal(shift, self._noise, len(self._cpu))).tolist()
        report = [
            Record(time_ms, broker, {CPU: cpu * f})
            for (broker, cpu), f in zip(self._cpu.items(), busy, strict=True)
        ]
        rates = (self._rates * factor).tolist()
        for p, (topic, number) in enumerate(self._partitions):
            first = self._offset[p]
            for n in range(first, self._offset[p + 1]):
                broker = self._broker[n]
                leads = n - first == self._leader[p]
                if broker not in self._cpu or not (leads or self._replica_size):
                    continue
                size = self._replica_size[n] if self._replica_size else self._size[p]
                metrics = {SIZE: size}
                if leads:
                    metrics |= {BYTES_IN: rates[p][0], BYTES_OUT: rates[p][1]}
                report.append(Record(time_ms, broker, metrics, topic, number))
        return report
