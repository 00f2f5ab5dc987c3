"""The whole way on an invented cluster: records, metrics topic, model, snapshot, plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.live import ClusterModel, simulated_source
from metrics_reporter import Record, Reporter, mock_cluster, read_records

TOPIC = "__counterpoise_metrics"
# Reports a minute apart that fill two windows of five minutes.
REPORTS = 11

Step = Callable[[int, int], None]


def demo_cluster(seed: int = 0) -> Snapshot:
    """Twelve brokers on three racks, badly balanced, with room to do better."""
    return synthetic_snapshot(
        brokers=12, partitions=900, racks=3, topics=12, skew=2.2, utilization=0.2, seed=seed
    )


@dataclass(frozen=True)
class Measured:
    """What came back from the metrics topic."""

    model: ClusterModel
    records: int


def measure(cluster: Snapshot, sending: Step, reading: Step) -> Measured:
    """Let the cluster's brokers report to a real topic, and read it into a model.

    The topic is on the broker that librdkafka carries for tests, in this process.

    Parameters
    ----------
    cluster
        Whose brokers report.
    sending, reading
        Called with (reports or records so far, all of them).

    Raises
    ------
    ReporterError
        Without the Kafka client (the extra ``kafka``).
    """
    source = simulated_source(cluster, noise=0.1)
    with mock_cluster() as bootstrap:
        reporter = Reporter(source, bootstrap=bootstrap, topic=TOPIC)
        for done in range(REPORTS):
            sending(done, REPORTS)
            reporter.run(intervals=1)
        sending(REPORTS, REPORTS)
        model = ClusterModel(cluster)
        reader = read_records(bootstrap, TOPIC)
        model.add_all(_counted(reader, reporter.delivered, reading))
    return Measured(model, reporter.delivered)


def _counted(records: Iterable[Record], total: int, reading: Step) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        if number % 1000 == 0 or number == total:
            reading(number, total)
        yield record
