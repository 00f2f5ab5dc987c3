"""``counterpoise report-metrics``: messages about wrong options, and a run without brokers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from command_line import invoke
from confluent_kafka import Producer

from metrics_reporter import Record, mock_cluster, read_records
from metrics_reporter.errors import ReporterError
from metrics_reporter.source_plugins import SOURCES, Connection, open_source


def run(*words: str, bootstrap: str = "127.0.0.1:1") -> tuple[int, str, str]:
    kept = ["report-metrics", "--bootstrap-server", bootstrap, "--metrics-topic", "metrics"]
    done = invoke([*kept, *words])
    return done.exit_code, done.stdout, done.stderr.strip()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--source snmp", "--source: 'snmp' found, one of admin, host, prometheus expected"),
        ("--source prometheus", "no endpoint found"),
        ("--source prometheus --endpoint broker", "BROKER=URL like"),
        ("--source prometheus --endpoint 1=broker:7071", "'broker:7071' found, an address like"),
        ("--source prometheus --exporters none.yaml", "none.yaml: No such file"),
        ("--source prometheus --rules strimzy", "--rules: 'strimzy' found, one of strimzi, conf"),
        ("--source prometheus --rules msk", "no endpoint found"),
        ("--source admin --rules msk", "--rules found, together with --source prometheus"),
        ("--source host", "--broker ID"),
        ("--source host --source-option broker=x", "source host, option broker: 'x' found"),
        (
            "--source admin --source-option group=false",
            "--source-option group: no such option of source admin, one of groups expected",
        ),
        ("--source host --source-option brok=1", "no such option of source host, one of broker"),
        (
            "--source host --broker 2 --source-option broker=1",
            "--source-option broker: already given by --endpoint, --exporters or --broker",
        ),
        ("--source prometheus --source-option endpoints={}", "no endpoint found"),
        (
            "--source admin --source host --source-option broker=1",
            "--source-option: 2 sources found, one expected, or one of another package",
        ),
        ("--source admin --broker 1", "--broker found, together with --source host expected"),
        ("--source admin --compression rar", "'rar' found, one of none, lz4"),
        ("--source admin --command-config none.properties", "none.properties: No such file"),
    ],
)
def test_wrong_options_are_reported_in_one_sentence(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, reported = run(*words.split())
    assert code == 2, reported
    assert sentence in reported
    assert reported.startswith("counterpoise: ")
    assert "\n" not in reported


def test_the_sources_are_listed_and_shown_with_their_options() -> None:
    listed = invoke(["sources", "list"])
    assert listed.exit_code == 0
    for name in ("prometheus", "admin", "host"):
        assert f"\n{name} " in listed.stdout
    shown = invoke(["sources", "show", "host"]).stdout
    assert "broker" in shown
    assert "report-metrics --source host --source-option FIELD=VALUE" in shown


def test_a_secret_is_not_reported(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("sasl.password=hunter2\nsecurity.protocol=hunter2\n")
    code, _, reported = run("--source", "host", "--broker", "1", "--command-config", str(config))
    assert code == 2
    assert "hunter2" not in reported
    assert "***" in reported


def test_a_try_says_what_was_sent() -> None:
    with mock_cluster() as bootstrap:
        # The mock creates a topic when it is asked for by name.
        Producer({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics("metrics", 10)
        words = ["--source", "host", "--broker", "7", "--interval", "0.3", "--once"]
        code, said, _ = run(*words, bootstrap=bootstrap)
        assert code == 0
        assert re.fullmatch(r"[12] records? sent to metrics\n", said)
        assert {record.broker for record in read_records(bootstrap, "metrics")} == {7}


def test_a_try_of_which_a_part_fails_exits_with_1(tmp_path: Path) -> None:
    with mock_cluster() as bootstrap:
        Producer({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics("metrics", 10)
        words = ["--source", "host", "--broker", "7", "--interval", "0.3", "--once"]
        exporters = tmp_path / "exporters.yaml"
        exporters.write_text("endpoints: {7: 'http://me:secret@127.0.0.1:1/'}")
        words += ["--source", "prometheus", "--exporters", str(exporters)]
        code, said, reported = run(*words, bootstrap=bootstrap)
        assert code == 1
        assert "sent to metrics" in said
        # Once, though it failed twice.
        assert reported.count("broker 7 not measured: http://127.0.0.1:1/: ") == 1
        assert "secret" not in reported


@contextmanager
def exporter(*pages: str) -> Iterator[str]:
    """Address of an exporter that serves these pages, one after the other, and then the last."""
    left = list(pages)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write((left.pop(0) if len(left) > 1 else left[0]).encode())

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


def tried(*pages: str, options: tuple[str, ...] = ()) -> tuple[int, str, str, list[Record]]:
    """Exit code and output of a trial run with an exporter, and what it sent."""
    with mock_cluster() as bootstrap, exporter(*pages) as url:
        Producer({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics("metrics", 10)
        words = ["--source", "prometheus", "--endpoint", f"0={url}", "--interval", "0.3", "--once"]
        code, said, reported = run(*words, *options, bootstrap=bootstrap)
        return code, said, reported, list(read_records(bootstrap, "metrics"))


# As the JMX exporter writes rates without rules, on Amazon MSK for example.
GAUGES = """\
# TYPE kafka_server_BrokerTopicMetrics_OneMinuteRate gauge
kafka_server_BrokerTopicMetrics_OneMinuteRate{{name="BytesInPerSec",topic="orders",}} {0}
kafka_server_BrokerTopicMetrics_OneMinuteRate{{name="BytesOutPerSec",topic="orders",}} {1}
kafka_server_BrokerTopicMetrics_OneMinuteRate{{name="BytesInPerSec",}} {0}
kafka_server_BrokerTopicMetrics_OneMinuteRate{{name="BytesOutPerSec",}} {1}
# TYPE kafka_log_Log_Value gauge
kafka_log_Log_Value{{name="Size",partition="0",topic="orders",}} 1.0E9
"""


@pytest.mark.parametrize("short", [False, True])
def test_rates_that_are_gauges_are_reported_as_they_are(short: bool) -> None:
    """Also where they fall, and under a name that a count may have."""
    pages = [GAUGES.format(*rates) for rates in (("3000000.0", 6e6), ("2900000.0", 6.1e6))]
    if short:
        replaced = (
            re.sub(r'Metrics_One.*{name="(\w+)PerSec",', r"Metrics_\1_per_sec{", p) for p in pages
        )
        types = "".join(
            f"# TYPE kafka_server_BrokerTopicMetrics_Bytes{way}_per_sec gauge\n"
            for way in ("In", "Out")
        )
        pages = [types + page for page in replaced]
    code, _, reported, records = tried(*pages)
    assert code == 0, reported
    assert "exported as rates over the last minute by broker 0" in reported
    assert [r.metrics for r in records if r.topic and "size" not in r.metrics] == [
        {"bytes_in": 3e6, "bytes_out": 6e6},
        {"bytes_in": 2.9e6, "bytes_out": 6.1e6},
    ]


PROCESS = "process_cpu_seconds_total 7\nprocess_start_time_seconds 5\n"
SIZES = "".join(f'kafka_log_log_size{{topic="orders",partition="{p}"}} 4096\n' for p in range(12))
WRITTEN = "kafka_server_brokertopicmetrics_bytesin_total 9\n"
TOTALS = WRITTEN + WRITTEN.replace("in_total", "out_total")


@pytest.mark.parametrize(
    ("page", "sentence", "sent"),
    [
        (
            PROCESS + 'kminion_kafka_broker_info{broker_id="0"} 1\n',
            "no known Kafka metric found in 3 samples; this is kminion, which asks the cluster",
            0,
        ),
        (
            PROCESS + 'kafka_topic_partition_current_offset{partition="0",topic="a"} 300\n',
            "no known Kafka metric found in 3 samples; this is kafka_exporter, which asks",
            0,
        ),
        (
            PROCESS + SIZES,
            "rates of 0, sizes of 12 of 12 partitions: no exporter has bytes; a rule of the "
            "exporters for kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
            2 * 12 + 1,
        ),
        (
            PROCESS + SIZES + TOTALS,
            "rates of 0, sizes of 12 of 12 partitions: no exporter has bytes of topics; a rule of "
            "the exporters for kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec and "
            "BytesOutPerSec,topic=* expected",
            2 * 12 + 1,
        ),
        (
            PROCESS + SIZES + WRITTEN + WRITTEN.replace("_total", '_total{topic="orders"}'),
            "rates of 0, sizes of 12 of 12 partitions: no exporter has bytes_out; a rule of the",
            2 * 12 + 2,
        ),
    ],
)
def test_an_exporter_without_bytes_is_no_success(page: str, sentence: str, sent: int) -> None:
    code, said, reported, records = tried(page)
    assert (code, len(records)) == (1, sent)
    assert reported.count(sentence) == 1
    assert said == f"{sent} records sent to metrics\n"


def test_a_product_is_recognised_and_read_with_its_rules() -> None:
    size = 'vectorized_storage_log_partition_size{namespace="kafka",topic="a",partition="0"} 7\n'
    code, _, reported, records = tried(size)
    assert (code, records) == (1, [])
    assert "this is Redpanda, --rules redpanda expected" in reported
    code, _, reported, records = tried(size, options=("--rules", "redpanda"))
    assert [r.metrics for r in records] == 2 * [{"size": 7.0}]
    assert "expected (the address of /metrics, not /public_metrics)" in reported


def test_a_try_says_what_is_covered() -> None:
    topics = TOTALS.replace("_total", '_total{topic="orders"}')
    code, _, reported, _ = tried(PROCESS + SIZES + TOTALS + topics)
    assert code == 0, reported
    assert reported.endswith("rates of 12, sizes of 12 of 12 partitions")
    # Without sizes, nothing tells which topics are idle.
    code, _, reported, _ = tried(PROCESS + TOTALS + topics)
    assert code == 0, reported
    assert "topics without traffic stay unknown; a rule of the exporters for kafka.log:" in reported


def test_passwords_on_the_command_line_are_refused_and_not_shown() -> None:
    words = ["--source", "prometheus", "--endpoint", "7=http://me:secret@127.0.0.1:1/"]
    code, said, reported = run(*words, bootstrap="localhost:1")
    assert (code, said) == (2, "")
    assert "--exporters" in reported
    assert "secret" not in reported


class _Opens:
    """A source of another package whose `open` does not do what it should."""

    found: Any = None

    def open(self, connection: Connection) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (None, "source tried: open() returned None, an iterable of reports expected"),
        (KeyError("zone"), "source tried cannot be opened (KeyError: 'zone')"),
    ],
)
def test_a_source_that_does_not_open_is_named(
    found: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Opens, "found", found)
    monkeypatch.setitem(SOURCES.built_in, "tried", _Opens)
    with pytest.raises(ReporterError) as raised:
        open_source("tried", {}, Connection("", {}, 1.0, lambda: nullcontext(lambda ask: None)))
    assert str(raised.value) == sentence
