"""Pages as of the public rules of products, read with the pack of their name."""

from __future__ import annotations

from typing import get_args

import pytest

from metrics_reporter.exposition import parse
from metrics_reporter.prometheus import Rulebook, in_order, records_of
from metrics_reporter.rule_packs import PACKS, PackName

# Between two pages a minute apart, a broker takes 600 kB of orders and sends 1.2 MB, uses half a
# core, and leads the one partition; {0} is what was taken, {1} what was sent, {2} cpu seconds.
JVM = """
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total {2}
"""
# strimzi-kafka-operator, examples/metrics/kafka-metrics.yaml
STRIMZI = """
# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total {0}
kafka_server_brokertopicmetrics_bytesin_total{{topic="orders",}} {0}
# TYPE kafka_server_brokertopicmetrics_bytesout_total counter
kafka_server_brokertopicmetrics_bytesout_total {1}
kafka_server_brokertopicmetrics_bytesout_total{{topic="orders",}} {1}
# TYPE kafka_log_log_size gauge
kafka_log_log_size{{partition="0",topic="orders",}} {0}
# TYPE kafka_log_log_logendoffset gauge
kafka_log_log_logendoffset{{partition="0",topic="orders",}} {0}
# TYPE kafka_cluster_partition_replicascount gauge
kafka_cluster_partition_replicascount{{partition="0",topic="orders",}} 3
"""
# confluentinc/jmx-monitoring-stacks, shared-assets/jmx-exporter/kafka_broker.yml
CONFLUENT = """
# TYPE kafka_server_brokertopicmetrics_bytesinpersec untyped
kafka_server_brokertopicmetrics_bytesinpersec {0}
kafka_server_brokertopicmetrics_bytesinpersec{{topic="orders",}} {0}
# TYPE kafka_server_brokertopicmetrics_bytesinpersec_oneminuterate gauge
kafka_server_brokertopicmetrics_bytesinpersec_oneminuterate{{topic="orders",}} 9
# TYPE kafka_server_brokertopicmetrics_bytesinpersec_oneminuterate_alltopics gauge
kafka_server_brokertopicmetrics_bytesinpersec_oneminuterate_alltopics 9
# TYPE kafka_server_brokertopicmetrics_bytesoutpersec untyped
kafka_server_brokertopicmetrics_bytesoutpersec {1}
kafka_server_brokertopicmetrics_bytesoutpersec{{topic="orders",}} {1}
# TYPE kafka_log_log_size gauge
kafka_log_log_size{{topic="orders",partition="0",}} {0}
# TYPE kafka_cluster_partition_replicascount gauge
kafka_cluster_partition_replicascount{{topic="orders",partition="0",}} 3
# TYPE kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total gauge
kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total 0.75
"""
# bitnami/charts, bitnami/kafka/templates/metrics/jmx-configmap.yaml
BITNAMI = """
# TYPE kafka_server_brokertopicmetrics_total_bytesinpersec_count untyped
kafka_server_brokertopicmetrics_total_bytesinpersec_count {0}
# TYPE kafka_server_brokertopicmetrics_total_bytesinpersec_oneminuterate untyped
kafka_server_brokertopicmetrics_total_bytesinpersec_oneminuterate 9
kafka_server_brokertopicmetrics_total_bytesoutpersec_count {1}
kafka_server_brokertopicmetrics_bytesinpersec_count{{topic="orders",}} {0}
kafka_server_brokertopicmetrics_bytesinpersec_oneminuterate{{topic="orders",}} 9
kafka_server_brokertopicmetrics_bytesoutpersec_count{{topic="orders",}} {1}
kafka_log_log_size{{partition="0",topic="orders",}} {0}
"""
# Amazon MSK, open monitoring: the JMX exporter without rules
MSK = """
# TYPE kafka_server_BrokerTopicMetrics_Count untyped
kafka_server_BrokerTopicMetrics_Count{{name="BytesInPerSec",}} {0}
kafka_server_BrokerTopicMetrics_Count{{name="BytesInPerSec",topic="orders",}} {0}
kafka_server_BrokerTopicMetrics_Count{{name="BytesOutPerSec",}} {1}
kafka_server_BrokerTopicMetrics_Count{{name="BytesOutPerSec",topic="orders",}} {1}
# TYPE kafka_server_BrokerTopicMetrics_OneMinuteRate untyped
kafka_server_BrokerTopicMetrics_OneMinuteRate{{name="BytesInPerSec",topic="orders",}} 9
# TYPE kafka_log_Log_Value untyped
kafka_log_Log_Value{{name="Size",partition="0",topic="orders",}} {0}
kafka_cluster_Partition_Value{{name="ReplicasCount",partition="0",topic="orders",}} 3
"""
# AutoMQ/automq, core/src/main/resources/jmx/rules/broker.yaml, by OpenTelemetry's names
AUTOMQ = """
# TYPE kafka_network_io_bytes_total counter
kafka_network_io_bytes_total{{direction="int",topic="orders"}} {0}
kafka_network_io_bytes_total{{direction="out",topic="orders"}} {1}
# TYPE kafka_broker_network_io_bytes_total counter
kafka_broker_network_io_bytes_total{{direction="in"}} {0}
kafka_broker_network_io_bytes_total{{direction="out"}} {1}
# TYPE kafka_log_size gauge
kafka_log_size{{topic="orders",partition="0"}} {0}
"""
# Redpanda, /metrics: docs.redpanda.com, internal metrics reference
REDPANDA = """
# TYPE vectorized_cluster_partition_bytes_produced_total counter
vectorized_cluster_partition_bytes_produced_total{{namespace="kafka",partition="0",topic="orders"}} {0}
vectorized_cluster_partition_bytes_produced_total{{namespace="redpanda",partition="0",topic="kvstore"}} 5
# TYPE vectorized_cluster_partition_bytes_fetched_total counter
vectorized_cluster_partition_bytes_fetched_total{{namespace="kafka",partition="0",topic="orders"}} {1}
# TYPE vectorized_storage_log_partition_size gauge
vectorized_storage_log_partition_size{{namespace="kafka",partition="0",topic="orders"}} {0}
# TYPE vectorized_reactor_cpu_busy_ms counter
vectorized_reactor_cpu_busy_ms{{shard="0"}} {3}
vectorized_reactor_cpu_busy_ms{{shard="1"}} {3}
"""  # noqa: E501
PAGES: dict[PackName, str] = {
    "strimzi": STRIMZI + JVM,
    "confluent": CONFLUENT + JVM,
    "bitnami": BITNAMI + JVM,
    "msk": MSK + JVM,
    "automq": AUTOMQ,
    "redpanda": REDPANDA,
}


def test_each_pack_has_a_page() -> None:
    assert set(PAGES) == set(PACKS) == set(get_args(PackName))


@pytest.mark.parametrize("name", PAGES)
def test_a_pack_reads_what_the_public_rules_of_its_product_export(name: PackName) -> None:
    book = Rulebook(in_order((), name), "topic", "partition")
    first, last = (
        book.read(
            at, parse(PAGES[name].format(1e6 + 1e4 * at, 1e6 + 2e4 * at, at / 2, at * 250))[0]
        )
        for at in (0.0, 60.0)
    )
    sums: dict[str, float] = {}
    broker: dict[str, float] = {}
    for record in records_of(1, 60_000, first, last):
        assert record.topic in (None, "orders")
        into = broker if record.topic is None else sums
        for metric, value in record.metrics.items():
            assert metric not in into
            into[metric] = value
    assert sums == {"bytes_in": 1e4, "bytes_out": 2e4, "size": 1.6e6}
    if name != "automq":
        assert broker.pop("cpu") == 50.0
    if name != "redpanda":
        assert (broker.pop("bytes_in"), broker.pop("bytes_out")) == (1e4, 2e4)
    assert broker == ({"request_handler_idle": 0.75} if name == "confluent" else {})
