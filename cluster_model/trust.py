"""Trust in brokers' reports: the tolerances, a doubt, and the last trusted values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cluster_model.last_value import rows_of
from cluster_model.snapshot import Bools, Ints, Snapshot
from metrics_reporter import BROKER_METRICS, BYTES_IN, BYTES_OUT, CPU, CPU_RATIO, SIZE
from metrics_reporter.metrics import REPLICATION_IN, REPLICATION_OUT


@dataclass(frozen=True)
class TrustParameters:
    """Tolerances between reports and other measurements, and limits of valid values.

    The smallest false report that must be detected is a factor of 5, so every factor is below
    that. They leave room for honest reporters: with noise of 10 % per sample and with moves and
    real shifts in progress, the poison benchmark and the tests raise no doubt about any of them.

    Parameters
    ----------
    contradiction
        Two measurements of the same thing contradict if they differ by more than this
        factor: partition sums and the broker's own totals, leaders and their followers,
        sizes of replicas and of log directories.
    significance
        A leader becomes a suspect without a history if it explains this many standard
        deviations of the followers' measurements.
    jump
        A window is a jump if it differs by more than this factor from the broker's last
        trusted windows, after the change that all brokers have in common.
    busier
        Cpu confirms a jump in bytes if the jump should change it by more than this factor,
        and it changed by half to twice as much. The mean of five samples with noise of 10 %
        stays within 1.15.
    peers
        Cpu and cpu per byte may both differ by this factor from the median broker's. A
        broker with less than the typical bytes divided by this factor has no history of
        cpu: its idle use says nothing about the cost of bytes.
    witnesses
        Minimum number of brokers whose partitions of a topic show how many times it is read,
        and of a broker's partitions that must be read differently for it to be unusual.
    most_partitions
        The same as a share of the partitions that can be compared.
    floor
        Differences below this share of the median broker's load are no contradiction.
    negligible
        The same as a share of the median broker's bytes_in and bytes_out together, where rates of
        a broker are compared with its past, its totals or its peers: where hardly anything is
        read, one more reader multiplies bytes_out.
    wrong_sizes
        Share of a broker's replicas whose sizes may contradict all other witnesses.
    growth
        Replicas may grow this many times faster than their bytes_in explain.
    stuck_windows
        A broker repeats an old value if its rates are the same to the last digit in this many
        windows, while most others' vary.
    stuck_digits
        Values with at most this many significant digits may repeat, such as cpu in whole percent.
    set_aside_after
        Seconds after which a broker with a value that is neither contradicted nor confirmed
        takes part again without that value. The value itself is not trusted unless it is
        confirmed or returns to its previous level.
    believed
        Ids of brokers whose reports an operator has confirmed; they are not judged.
    known_share, whole_share
        Share of the partitions a broker leads whose rates must be known for it to count as
        reporting, and for its sums to be compared with larger totals.
    max_share
        If more than this share of the living brokers is not trusted or does not
        report, the metrics are at fault and not the brokers, and there are no loads at all.
    max_rate, max_size, max_cpu, max_cpu_ratio, max_value
        Larger values are invalid, since no hardware reaches them: a rate (bytes/s; 1e12 is ten
        network cards of 800 Gbit/s), the size of a replica (bytes; 1e16 is 10 PB), cpu
        (percent; 1e7 is 100,000 cores), cpu as a ratio of its capacity, and any other metric
        of a broker. Capacities are no limit: they may be wrong or out of date.
    """

    contradiction: float = 2.0
    significance: float = 4.0
    jump: float = 3.0
    busier: float = 1.3
    peers: float = 3.0
    witnesses: int = 5
    most_partitions: float = 0.75
    floor: float = 0.05
    negligible: float = 0.01
    wrong_sizes: float = 0.3
    growth: float = 3.0
    stuck_windows: int = 3
    stuck_digits: int = 3
    set_aside_after: float = 6 * 3600.0
    believed: tuple[int, ...] = ()
    known_share: float = 0.5
    whole_share: float = 0.95
    max_share: float = 0.5
    max_rate: float = 1e12
    max_size: float = 1e16
    max_cpu: float = 1e7
    max_cpu_ratio: float = 10.0
    max_value: float = 1e15

    @property
    def limits(self) -> dict[str, float]:
        """Largest valid value by metric: broker metrics in their order, cpu_ratio, size."""
        most = dict.fromkeys(BROKER_METRICS, self.max_value) | {CPU: self.max_cpu}
        most |= dict.fromkeys((BYTES_IN, BYTES_OUT, REPLICATION_IN, REPLICATION_OUT), self.max_rate)
        return most | {CPU_RATIO: self.max_cpu_ratio, SIZE: self.max_size}


@dataclass(frozen=True)
class Doubt:
    """The reason why a broker's report is not trusted.

    Parameters
    ----------
    broker
        Its id.
    check
        ``totals``, ``followers``, ``sizes``, ``growth``, ``history``, ``peers``,
        ``capacity``, ``stuck`` or ``missing``.
    sentence
        Both numbers, with their units.
    proven
        Whether another measurement contradicts it. A value that is only unusual is set aside
        once it has lasted for :attr:`TrustParameters.set_aside_after`.
    set_aside
        Whether only the doubtful value is ignored, and the broker's other values are used.
    """

    broker: int
    check: str
    sentence: str
    proven: bool = True
    set_aside: bool = False


@dataclass(frozen=True)
class Distrust:
    """The brokers and partitions whose loads must not be planned on.

    Parameters
    ----------
    doubts
        One for each broker that is not trusted, in whole or in part.
    unknown
        Names of further partitions whose loads are unknown.
    """

    doubts: tuple[Doubt, ...] = ()
    unknown: frozenset[str] = frozenset()

    @property
    def brokers(self) -> frozenset[int]:
        """Ids of the brokers that are not trusted at all."""
        return frozenset(d.broker for d in self.doubts if not d.set_aside)


def frozen_partitions(snapshot: Snapshot, brokers: Iterable[int]) -> frozenset[str]:
    """Names of the partitions with a replica on any of the brokers (ids)."""
    s = snapshot
    here = np.isin(s.broker_ids, list(brokers))[s.replica_broker]
    return partition_names(s, np.unique(s.replica_partition[here]))


def partition_names(snapshot: Snapshot, rows: Ints) -> frozenset[str]:
    """Names of partitions, ``topic-number``."""
    s = snapshot
    pairs = zip(s.partition_topic[rows].tolist(), s.partition_number[rows].tolist(), strict=True)
    return frozenset(f"{s.topics[t]}-{n}" for t, n in pairs)


class Reference:
    """The last trusted values.

    Attributes
    ----------
    rates : (P, 2) float
        bytes_in and bytes_out of partitions; nan if never trusted.
    further : (P, K) float
        Loads of partitions' leaders in further resources; nan if never trusted.
    sizes : (N,) float
        Sizes of replicas.
    reads : (N,) float
        What followers send to consumers, bytes/s.
    followed : (B,) float
        What all followers of a broker send, as far as its reports tell.
    cpu, weight : (B,) float
        Cpu of brokers, and the weighted bytes it was measured with.
    cost : (B,) float
        Cost relative to the median broker, which has 1; nan while unknown.
    cost_ms
        Start of the window in which it was last learnt; -1 before the first.
    cpu_ms : (B,) int
        Start of the newest window in which `cpu` was trusted; -1 for never.
    since_ms : (B,) int
        Start of the window in which an unproven doubt began; -1 for none.
    doubts : dict
        Id of each broker that was last in doubt -> the reason, and (3,) bool whether its
        bytes_in, bytes_out and cpu were unconfirmed.
    time_ms
        Start of the newest trusted window; -1 before the first.
    """

    def __init__(self, base: Snapshot, further: int = 0) -> None:
        self.rates = np.full((base.n_partitions, 2), np.nan)
        self.further = np.full((base.n_partitions, further), np.nan)
        self.sizes = np.full(base.n_replicas, np.nan)
        self.reads = np.full(base.n_replicas, np.nan)
        self.followed = np.full(base.n_brokers, np.nan)
        self.cpu = np.full(base.n_brokers, np.nan)
        self.weight = np.full(base.n_brokers, np.nan)
        self.cost = np.full(base.n_brokers, np.nan)
        self.cost_ms = -1
        self.cpu_ms = np.full(base.n_brokers, -1, np.int64)
        self.since_ms = np.full(base.n_brokers, -1, np.int64)
        self.doubts: dict[int, tuple[Doubt, Bools]] = {}
        self.time_ms = -1

    def reindexed(self, base: Snapshot, partition: Ints, replica: Ints, broker: Ints) -> Reference:
        """The same for other metadata: row i is that of the given row here; nothing for -1."""
        other = Reference(base)
        other.rates = rows_of(self.rates, partition, np.nan)
        other.further = rows_of(self.further, partition, np.nan)
        other.sizes = rows_of(self.sizes, replica, np.nan)
        other.reads = rows_of(self.reads, replica, np.nan)
        other.followed = rows_of(self.followed, broker, np.nan)
        other.cpu = rows_of(self.cpu, broker, np.nan)
        other.weight = rows_of(self.weight, broker, np.nan)
        other.cost = rows_of(self.cost, broker, np.nan)
        other.cost_ms = self.cost_ms
        other.cpu_ms = rows_of(self.cpu_ms, broker, -1)
        other.since_ms = rows_of(self.since_ms, broker, -1)
        other.doubts = self.doubts
        other.time_ms = self.time_ms
        return other
