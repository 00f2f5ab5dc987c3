"""Rules for the metrics of products, by name.

The usual names (:data:`metrics_reporter.prometheus.DEFAULT_RULES`) are those of the JMX exporter,
with which most products run; a pack adds what a product names otherwise, and where its rules are.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from metrics_reporter.metrics import BYTES_IN, BYTES_OUT, CPU, HANDLER_IDLE, REQUEST_QUEUE, SIZE
from metrics_reporter.rules import Rule

PackName = Literal["strimzi", "confluent", "bitnami", "automq", "redpanda", "msk"]


class Pack(NamedTuple):
    """Rules of a product, and where to add one to its exporters.

    Parameters
    ----------
    rules
        Tried before the usual names.
    place
        Where a rule that is missing belongs.
    """

    rules: tuple[Rule, ...]
    place: str


def _automq() -> tuple[Rule, ...]:
    """The names of core/src/main/resources/jmx/rules/broker.yaml, as OpenTelemetry exports them."""
    ways = ((BYTES_IN, "int?"), (BYTES_OUT, "out"))
    return (
        *(
            Rule(
                name="kafka_(broker_)?network_io_bytes_total",
                metric=metric,
                kind="counter",
                where={"direction": way},
            )
            for metric, way in ways
        ),
        Rule(name="kafka_log_size(_bytes)?", metric=SIZE, kind="gauge"),
        Rule(name="kafka_request_queue", metric=REQUEST_QUEUE, kind="gauge"),
        Rule(name="kafka_io_threads_idle_rate_1m", metric=HANDLER_IDLE, kind="gauge"),
    )


def _redpanda() -> tuple[Rule, ...]:
    """The names of /metrics, which has partitions and their sizes; /public_metrics has neither."""
    partition, kafka = "vectorized_cluster_partition_bytes_", {"namespace": "kafka"}
    return (
        Rule(name=f"{partition}produced_total", metric=BYTES_IN, kind="counter", where=kafka),
        Rule(name=f"{partition}fetched_total", metric=BYTES_OUT, kind="counter", where=kafka),
        Rule(name="vectorized_storage_log_partition_size", metric=SIZE, kind="gauge", where=kafka),
        # Milliseconds of each shard, which is a core, in percent of a core.
        Rule(name="vectorized_reactor_cpu_busy_ms", metric=CPU, kind="counter", scale=0.1),
    )


PACKS: dict[PackName, Pack] = {
    "strimzi": Pack((), "metricsConfig of the Kafka resource"),
    "confluent": Pack((), "kafka_broker.yml of jmx-monitoring-stacks"),
    "bitnami": Pack((), "metrics.jmx.extraRules and whitelistObjectNames of the chart"),
    "automq": Pack(_automq(), "the rules of AutoMQ's telemetry"),
    "redpanda": Pack(_redpanda(), "the address of /metrics, not /public_metrics"),
    "msk": Pack((), "open monitoring of the JMX exporter, port 11001"),
}
