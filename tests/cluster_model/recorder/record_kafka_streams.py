"""Records the Prometheus pages of a real Kafka Streams application.

    PYTHONPATH=. python tests/cluster_model/recorder/record_kafka_streams.py

Writes ``samples/kafka_streams_1.txt`` to ``_3.txt``. Needs a JDK and Maven. Three instances of
``ClickTotals.java`` with two threads each carry the JMX exporter without rules; the third
records at level ``info``, which is Kafka's default. Of what the exporter serves, whole metrics
are left out: all that are not of a thread, of a task, or of the size of a store.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Event, Thread

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from stream_jobs import SAMPLES, running

from benchmarks.harness.brokers import real_kafka
from metrics_reporter.exposition import scrape

PARTITIONS = 6
LEVELS = ("DEBUG", "DEBUG", "INFO")
# Kafka computes rates over two windows of 30 s each.
MEASURED_SECONDS = 150
CLICKS_PER_SECOND = 100
_KEPT = (
    "kafka_streams_stream_thread_metrics_process_",
    "kafka_streams_stream_task_metrics_",
    "kafka_streams_stream_topic_metrics_records_consumed",
    "kafka_streams_stream_state_metrics_total_sst_files_size",
    "kafka_streams_stream_state_metrics_num_open_iterators",
    "kafka_streams_stream_state_metrics_cur_size_all_mem_tables",
)


def click(bootstrap: str, stop: Event) -> None:
    """Produce clicks of many users on pages of which few are popular."""
    producer = Producer({"bootstrap.servers": bootstrap})
    random = Random(0)
    while not stop.wait(0.1):
        for _ in range(CLICKS_PER_SECOND // 10):
            user, page = random.randrange(1 << 30), int(20_000 * random.random() ** 4)
            producer.produce("clicks", f"page-{page}", f"user-{user}")
        producer.poll(0)
    producer.flush(10)


def kept(page: str) -> str:
    """The lines of the metrics that are kept, with what describes them."""

    def name(line: str) -> str:
        words = line.split()
        return words[2] if line.startswith("#") else words[0]

    return "".join(f"{x}\n" for x in page.splitlines() if x and name(x).startswith(_KEPT))


def main() -> None:
    """Run Kafka and the instances, wait until their windows are full, and write the pages."""
    kafka = real_kafka()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        cluster = stack.enter_context(kafka.KafkaCluster(brokers=1))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics(
            [NewTopic(name, PARTITIONS, 1) for name in ("clicks", "totals")]
        ).values():
            future.result(60)
        rules = Path(scratch, "exporter.yaml")
        rules.write_text("{}\n")
        ports = stack.enter_context(kafka.held_ports(len(LEVELS)))
        for number, (port, level) in enumerate(zip(ports, LEVELS, strict=True)):
            agent = f"-javaagent:{{agent}}={kafka.HOST}:{port}:{rules}"
            state = str(Path(scratch, f"state-{number}"))
            arguments = (cluster.bootstrap, state, level)
            out = stack.enter_context(
                running("ClickTotals", Path(scratch), *arguments, agents=[agent])
            )
            out.readline()
        stop = Event()
        clicks = Thread(target=click, args=(cluster.bootstrap, stop))
        clicks.start()
        try:
            time.sleep(MEASURED_SECONDS)
            now = datetime.now(UTC)
            pages = [scrape(f"http://{kafka.HOST}:{port}/metrics", 60) for port in ports]
        finally:
            stop.set()
            clicks.join()
    for number, page in enumerate(pages, 1):
        about = (
            "# Recorded from Kafka Streams 4.3.1 and the JMX exporter 1.0.1 without rules by\n"
            "# tests/cluster_model/recorder/record_kafka_streams.py at "
            f"{now:%Y-%m-%d %H:%M} UTC.\n"
        )
        (SAMPLES / f"kafka_streams_{number}.txt").write_text(about + kept(page))
    print(f"{len(pages)} pages recorded", file=sys.stderr)


if __name__ == "__main__":
    main()
