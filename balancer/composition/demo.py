"""Runs the demo's pipeline on a synthetic cluster: records, metrics topic, model, snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.live import ClusterModel, simulated_source
from metrics_reporter import Record, Reporter, ReporterError, mock_cluster, read_records
from metrics_reporter.clients import kafka

TOPIC = "__counterpoise_metrics"
# Reports, one minute apart, that fill two windows of five minutes.
REPORTS = 11

Step = Callable[[int, int], None]


def demo_cluster(seed: int = 0) -> Snapshot:
    """Twelve brokers on three racks, badly balanced, with room for improvement."""
    return synthetic_snapshot(
        brokers=12, partitions=900, racks=3, topics=12, skew=2.2, utilization=0.2, seed=seed
    )


@dataclass(frozen=True)
class MeasuredDemo:
    """The model filled from the brokers' records.

    Parameters
    ----------
    model
        The model.
    records
        Number of records that went into it.
    over_topic
        Whether they went through a topic.
    """

    model: ClusterModel
    records: int
    over_topic: bool


def measure(cluster: Snapshot, sending: Step, reading: Step) -> MeasuredDemo:
    """Send the brokers' reports to a real topic, and read it into a model.

    The topic is on the test broker that librdkafka contains, in this process. Without the
    Kafka client (the extra ``kafka``) the records go into the model directly.

    Parameters
    ----------
    cluster
        The cluster whose brokers report.
    sending, reading
        Called with (reports or records so far, total).
    """
    source = simulated_source(cluster, noise=0.1)
    model = ClusterModel(cluster)
    try:
        kafka()
    except ReporterError:
        records = [record for report in islice(source, REPORTS) for record in report]
        model.add_all(_counted(records, len(records), reading))
        return MeasuredDemo(model, len(records), over_topic=False)
    with mock_cluster() as bootstrap:
        reporter = Reporter(source, bootstrap=bootstrap, topic=TOPIC)
        for done in range(REPORTS):
            sending(done, REPORTS)
            reporter.run(intervals=1)
        sending(REPORTS, REPORTS)
        reader = read_records(bootstrap, TOPIC)
        model.add_all(_counted(reader, reporter.delivered, reading))
    return MeasuredDemo(model, reporter.delivered, over_topic=True)


def _counted(records: Iterable[Record], total: int, reading: Step) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        if number % 1000 == 0 or number == total:
            reading(number, total)
        yield record
