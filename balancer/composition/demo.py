"""The whole way on an invented cluster: records, metrics topic, model, snapshot, plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.live import ClusterModel, simulated_source
from metrics_reporter import Record, Reporter, ReporterError, mock_cluster, read_records
from metrics_reporter.clients import kafka

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
    """The model that the brokers' records filled.

    Parameters
    ----------
    model
        The model.
    records
        Records that went into it.
    over_topic
        Whether they went over a topic.
    """

    model: ClusterModel
    records: int
    over_topic: bool


def measure(cluster: Snapshot, sending: Step, reading: Step) -> Measured:
    """Let the cluster's brokers report to a real topic, and read it into a model.

    The topic is on the broker that librdkafka carries for tests, in this process. Without the
    Kafka client (the extra ``kafka``) the records go into the model directly.

    Parameters
    ----------
    cluster
        Whose brokers report.
    sending, reading
        Called with (reports or records so far, all of them).
    """
    source = simulated_source(cluster, noise=0.1)
    model = ClusterModel(cluster)
    try:
        kafka()
    except ReporterError:
        records = [record for report in islice(source, REPORTS) for record in report]
        model.add_all(_counted(records, len(records), reading))
        return Measured(model, len(records), over_topic=False)
    with mock_cluster() as bootstrap:
        reporter = Reporter(source, bootstrap=bootstrap, topic=TOPIC)
        for done in range(REPORTS):
            sending(done, REPORTS)
            reporter.run(intervals=1)
        sending(REPORTS, REPORTS)
        reader = read_records(bootstrap, TOPIC)
        model.add_all(_counted(reader, reporter.delivered, reading))
    return Measured(model, reporter.delivered, over_topic=True)


def _counted(records: Iterable[Record], total: int, reading: Step) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        if number % 1000 == 0 or number == total:
            reading(number, total)
        yield record
