"""From pages of exporters to records: rules, rates, restarts, partitions."""

from __future__ import annotations

import re
import threading
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metrics_reporter.prometheus as module
from metrics_reporter import Record, ReporterError
from metrics_reporter.exposition import parse
from metrics_reporter.prometheus import (
    DEFAULT_RULES,
    PrometheusSource,
    Reading,
    Rulebook,
    load_prometheus,
    records_of,
    restarted,
)
from metrics_reporter.rules import Rule

HERE = Path(__file__).parent


def reading(page: str, at: float = 0.0, rules: tuple[Rule, ...] = ()) -> Reading:
    samples, malformed = parse(page)
    assert malformed == 0
    return Rulebook((*rules, *DEFAULT_RULES), "topic", "partition").read(at, samples)


def reported(*pages: str, seconds: float = 10.0) -> dict[tuple[str | None, int], dict[str, float]]:
    """What the records after the last page say."""
    first, last = (reading(page, i * seconds) for i, page in enumerate(pages))
    return {(r.topic, r.partition): dict(r.metrics) for r in records_of(1, 5, first, last)}


def page(
    *,
    broker_in: float = 0.0,
    topics: dict[str, tuple[float, float]] | None = None,
    ends: dict[tuple[str, int], float] | None = None,
    led: dict[tuple[str, int], int] | None = None,
    start: float = 100.0,
) -> str:
    """A page as of the example rules of the JMX exporter."""
    lines = [
        f"process_start_time_seconds {start}",
        f"kafka_server_brokertopicmetrics_bytesin_total {broker_in}",
    ]
    for topic, (bytes_in, bytes_out) in (topics or {}).items():
        lines += [
            f'kafka_server_brokertopicmetrics_bytesin_total{{topic="{topic}",}} {bytes_in}',
            f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}",}} {bytes_out}',
        ]
    for name, values in (
        ("kafka_log_log_logendoffset", ends or {}),
        ("kafka_cluster_partition_replicascount", led or {}),
    ):
        lines += [f'{name}{{topic="{t}",partition="{p}",}} {v}' for (t, p), v in values.items()]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "name",
    [
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_BrokerTopicMetrics_BytesIn_total",
        "kafka_server_brokertopicmetrics_bytesinpersec",
        "kafka_server_brokertopicmetrics_bytesinpersec_count",
        "kafka_server_brokertopicmetrics_total_bytesinpersec_count",
        "kafka_server_broker_topic_metrics_bytes_in_per_sec_total",
        "kafka_server_brokertopicpartitionmetrics_bytesinpersec_total",
    ],
)
def test_the_names_that_rule_files_give_to_bytes_in(name: str) -> None:
    assert reading(f'{name}{{topic="t"}} 7').counters == {("bytes_in", "t", -1): 7.0}
    assert reading(f'{name}{{topic="t",partition="3"}} 7').counters == {("bytes_in", "t", 3): 7.0}
    assert reading(f"{name} 7").counters == {("bytes_in", None, -1): 7.0}


@pytest.mark.parametrize(
    ("line", "metric", "value"),
    [
        ("process_cpu_seconds_total 3", "cpu", 300.0),
        ("java_lang_OperatingSystem_ProcessCpuLoad 0.25", "cpu_ratio", 0.25),
        ('kafka_log_logflushstats_logflushrateandtimems{quantile="0.999"} 4',
         "log_flush_time_ms_p999", 4.0),
        ("kafka_log_logflushstats_logflushrateandtimems_999thpercentile 4",
         "log_flush_time_ms_p999", 4.0),
        ("kafka_log_logflushstats_logflushrateandtimems_count 9", "log_flush_rate", 9.0),
        ('kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.999"} 8',
         "produce_total_time_ms_p999", 8.0),
        ('kafka_network_requestmetrics_totaltimems_mean{request="FetchConsumer"} 2',
         "consumer_fetch_total_time_ms_mean", 2.0),
        ('kafka_network_requestmetrics_localtimems{request="Produce",quantile="0.999"} 8',
         "produce_local_time_ms_p999", 8.0),
        ('kafka_network_requestmetrics_localtimems_999thpercentile{request="FetchConsumer"} 8',
         "consumer_fetch_local_time_ms_p999", 8.0),
        ('kafka_network_requestmetrics_localtimems_mean{request="FetchFollower"} 2',
         "follower_fetch_local_time_ms_mean", 2.0),
        ('kafka_network_RequestMetrics_Mean{name="LocalTimeMs",request="Produce"} 7',
         "produce_local_time_ms_mean", 7.0),
        ("kafka_network_requestchannel_requestqueuesize 3", "request_queue_size", 3.0),
        ("kafka_server_brokertopicmetrics_replicationbytesin_total 6", "replication_bytes_in", 6.0),
        ('kafka_server_BrokerTopicMetrics_Count{name="BytesOutPerSec"} 5', "bytes_out", 5.0),
        ('kafka_server_BrokerTopicMetrics_OneMinuteRate{name="BytesOutPerSec"} 5',
         "bytes_out", 5.0),
        ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 0.9",
         "request_handler_idle", 0.9),
        ("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_count 2e9",
         "request_handler_idle", 2.0),
    ],
)  # fmt: skip
def test_what_is_said_of_a_broker(line: str, metric: str, value: float) -> None:
    found = reading(line)
    assert {**found.counters, **found.gauges} == {(metric, None, -1): pytest.approx(value)}


METER = "kafka_server_brokertopicmetrics_bytesin"


@pytest.mark.parametrize(
    ("name", "type", "counts"),
    [
        # kafka.server<type=BrokerTopicMetrics, name=(.+)PerSec><>OneMinuteRate, type: GAUGE
        (f"{METER}_per_sec", "gauge", False),
        (f"{METER}_total", "gauge", False),
        ("kafka_server_broker_topic_metrics_bytesin_per_sec", "gauge", False),
        # Confluent's jmx-monitoring-stacks, shared-assets/jmx-exporter/kafka_broker.yml
        (f"{METER}persec", "untyped", True),
        (f"{METER}persec_oneminuterate", "gauge", False),
        (f"{METER}persec_oneminuterate_alltopics", "gauge", False),
        (f"{METER}persec_count", "gauge", True),
        # Without rules, as of Amazon MSK
        ("kafka_server_BrokerTopicMetrics_BytesInPerSec_OneMinuteRate", "untyped", False),
        ("kafka_server_BrokerTopicMetrics_BytesInPerSec_Count", "untyped", True),
        (f"{METER}_1m_rate", "", False),
        (f"{METER}_rate", "", False),
    ],
)
def test_a_rate_is_what_the_page_calls_a_gauge_or_names_so(
    name: str, type: str, counts: bool
) -> None:
    stated = f"# TYPE {name} {type}\n" if type else ""
    found = reading(f"{stated}{name} 3e6")
    assert (found.counters if counts else found.gauges) == {("bytes_in", None, -1): 3e6}
    assert not (found.gauges if counts else found.counters)


def test_rates_over_five_minutes_count_where_there_are_no_better_ones() -> None:
    five, one = f"{METER}persec_fiveminuterate 5", f"{METER}persec_oneminuterate 1"
    assert reading(five).gauges == {("bytes_in", None, -1): 5.0}
    assert reading(f"{five}\n{one}").gauges == {("bytes_in", None, -1): 1.0}
    assert reading(f"{METER}persec_meanrate 7")[1:] == ({}, {})


def test_idle_time_as_a_rate_is_no_time_in_nanoseconds() -> None:
    idle = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"
    key = ("request_handler_idle", None, -1)
    assert reading(f"# TYPE {idle} gauge\n{idle} 0.9").gauges == {key: 0.9}
    assert reading(f"{idle} 2e9").counters == {key: 2.0}


@pytest.mark.parametrize(("kind", "counts"), [(None, True), ("gauge", False), ("counter", True)])
def test_a_rule_may_state_the_kind_or_leave_it_to_the_page(kind: Any, counts: bool) -> None:
    own = Rule(name="my_in", metric="bytes_in", kind=kind)
    found = reading("# TYPE my_in counter\nmy_in 5", rules=(own,))
    assert bool(found.counters) == counts
    assert bool(reading("my_in 5", rules=(own,)).counters) == (kind == "counter")


@pytest.mark.parametrize(
    ("type", "first", "last", "told"),
    [
        # Steady, but read as a counter.
        ("counter", 3e6, 3.12e6, "of t they are 2 kB/s, and it grows by 3 MB/s"),
        # What was ever written, read as a rate.
        ("gauge", 8e12, 9e12, "of t they are 9 TB/s, and it grows by 3 MB/s"),
        ("counter", 3e6, 183e6, None),
    ],
)
def test_rates_that_the_growth_of_sizes_contradicts_are_named(
    type: str, first: float, last: float, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 'kafka_log_log_size{{topic="t",partition="0"}} {}\n'
    texts = iter(
        f"# TYPE {METER}_total {type}\n{page(topics={'t': (value, 0)})}\n{size.format(grown)}"
        for value, grown in ((first, 1e9), (last, 1e9 + 180e6), (2 * last, 1e9 + 180e6))
    )
    monotonic, wall = iter([0.0, 0.0, 60.0, 60.0, 120.0, 120.0]), iter([0.0, 60.0, 120.0])
    clocks = SimpleNamespace(monotonic=lambda: next(monotonic), time=lambda: next(wall))
    monkeypatch.setattr(module, "time", clocks)
    monkeypatch.setattr(module, "scrape", lambda url, timeout: next(texts))
    source = PrometheusSource({1: "http://a/"})
    reports = iter(source)
    next(reports)
    next(reports)
    assert (told or "") in source.problems.get("bytes_in", "")
    assert (told is None) == (not source.problems)
    next(reports)
    assert not source.problems


# As of the rules of Bitnami's chart (templates/metrics/jmx-configmap.yaml): no kafka.cluster, so
# nothing tells who leads a partition.
BITNAMI = """\
kafka_server_brokertopicmetrics_total_bytesinpersec_count {0}
kafka_server_brokertopicmetrics_total_bytesoutpersec_count 0
kafka_server_brokertopicmetrics_bytesinpersec_count{{topic="busy"}} {0}
kafka_log_log_size{{topic="busy",partition="0"}} {0}
kafka_log_log_size{{topic="idle",partition="0"}} 4096
kafka_log_log_logendoffset{{topic="idle",partition="0"}} 7
kafka_log_log_size{{topic="filtered",partition="0"}} {0}
"""


def test_a_topic_without_counters_that_did_not_grow_is_idle() -> None:
    found = reported(BITNAMI.format(1000), BITNAMI.format(2000))
    assert found["idle", -1] == {"bytes_in": 0.0, "bytes_out": 0.0}
    # Nothing is read from the broker at all.
    assert found["busy", -1] == {"bytes_in": 100.0, "bytes_out": 0.0}
    # Something is written to it, of which the exporter says nothing.
    assert ("filtered", -1) not in found
    # Without rates of any topic, none of them is known.
    only = [re.sub(r".*bytesinpersec_count{.*\n", "", BITNAMI).format(n) for n in (1000, 2000)]
    assert ("idle", -1) not in reported(*only)
    # What is read is of some topic, and no exporter tells of which.
    out = "bytesoutpersec_count "
    read = [BITNAMI.replace(f"{out}0", f"{out}{n}").format(n) for n in (1000, 2000)]
    found = reported(*read)
    assert found["idle", -1] == {"bytes_in": 0.0}
    assert found["busy", -1] == {"bytes_in": 100.0}
    # Of another one: those without a counter never were.
    other = 'kafka_server_brokertopicmetrics_bytesoutpersec_count{{topic="read"}} {}\n'
    found = reported(*(p + other.format(n) for n, p in enumerate(read)))
    assert found["idle", -1] == {"bytes_in": 0.0, "bytes_out": 0.0}
    assert found["busy", -1] == {"bytes_in": 100.0, "bytes_out": 0.0}


def test_a_process_that_is_no_broker_tells_no_cpu_of_one() -> None:
    cpu = "process_cpu_seconds_total {}\nprocess_start_time_seconds 5\ngo_goroutines 9\n"
    assert reported(cpu.format(1), cpu.format(2)) == {}


def test_the_size_of_a_replica_is_a_level_and_so_reported_at_once() -> None:
    size = 'kafka_log_log_size{partition="2",topic="t"} 4096'
    assert [r.metrics for r in records_of(1, 5, None, reading(size))] == [{"size": 4096.0}]
    assert reading('kafka_log_Log_Value{name="Size",partition="2",topic="t"} 1').gauges == {
        ("size", "t", 2): 1.0
    }


@pytest.mark.parametrize(
    "line",
    [
        "unheard_of 1",
        'kafka_network_requestmetrics_localtimems{request="Fetch",quantile="0.999"} 8',
        'kafka_log_log_size{topic="t",partition="x"} 1',
        'kafka_log_log_size{partition="0"} 1',
        'kafka_log_log_size{topic="__cluster_metadata",partition="0"} 1',
        'kafka_log_log_size{topic="t",partition="0"} NaN',
        'kafka_log_log_logendoffset{topic="t",partition="0"} -1',
        'kafka_network_requestmetrics_totaltimems{request="Metadata",quantile="0.999"} 8',
        'kafka_log_logflushstats_logflushrateandtimems{quantile="0.5"} 4',
    ],
)
def test_what_is_not_known_or_no_number_is_left_out(line: str) -> None:
    assert reading(line)[1:] == ({}, {})


def test_counters_become_rates_and_gauges_do_not() -> None:
    cpu = "process_cpu_seconds_total {}\nkafka_network_requestchannel_requestqueuesize {}"
    assert reported(cpu.format(1, 4), cpu.format(6, 7)) == {
        (None, -1): {"cpu": 50.0, "request_queue_size": 7.0}
    }


def test_the_first_rule_that_takes_a_metric_counts() -> None:
    both = 'kafka_server_brokertopicmetrics_bytesin_oneminuterate 5\nmy_in{listener="a"} 1\n'
    both += 'my_in{listener="b"} 2\nmy_in{listener="c",kind="inner"} 4'
    own = Rule(name="MY_in", metric="bytes_in", kind="counter", where={"kind": ""}, scale=10)
    found = reading(both, rules=(own,))
    assert found[1:] == ({("bytes_in", None, -1): 30.0}, {})


def test_a_topic_without_more_is_reported_as_a_topic() -> None:
    found = reported(
        page(topics={"t": (100, 50)}),
        page(broker_in=900, topics={"t": (1000, 250), "new": (30, 0)}),
    )
    assert found["t", -1] == {"bytes_in": 90.0, "bytes_out": 20.0}
    # Kafka has the counter from the topic's first byte on.
    assert found["new", -1] == {"bytes_in": 3.0, "bytes_out": 0.0}


def test_bytes_in_are_reported_by_partition_where_end_offsets_tell() -> None:
    led = {("t", 0): 3, ("t", 1): 3, ("t", 2): 0, ("idle", 0): 3, ("followed", 0): 0}
    found = reported(
        page(topics={"t": (0, 0)}, ends={("t", 0): 10, ("t", 1): 5, ("t", 2): 7, ("idle", 0): 4},
             led=led),
        page(broker_in=1000, topics={"t": (1000, 400)},
             ends={("t", 0): 40, ("t", 1): 15, ("t", 2): 99, ("idle", 0): 4}, led=led),
    )  # fmt: skip
    assert found == {
        (None, -1): {"bytes_in": 100.0},
        ("t", 0): {"bytes_in": 75.0},
        ("t", 1): {"bytes_in": 25.0},
        ("t", -1): {"bytes_out": 40.0},
        ("idle", 0): {"bytes_in": 0.0},
        ("idle", -1): {"bytes_out": 0.0},
    }


@given(st.floats(0, 1e12), st.lists(st.integers(0, 10**9), min_size=1, max_size=6), st.data())
def test_partitions_get_all_of_their_topic(
    rate: float, grown: list[int], data: st.DataObject
) -> None:
    ends = [data.draw(st.integers(0, 10**9)) for _ in grown]
    led = {("t", p): 1 for p in range(len(grown))}
    found = reported(
        page(ends={("t", p): e for p, e in enumerate(ends)}, led=led, topics={"t": (0, 0)}),
        page(
            ends={("t", p): e + g for p, (e, g) in enumerate(zip(ends, grown, strict=True))},
            led=led, topics={"t": (rate, 0)}, broker_in=rate,
        ),
        seconds=1.0,
    )  # fmt: skip
    assert sum(m.get("bytes_in", 0.0) for (t, _), m in found.items() if t) == pytest.approx(rate)
    assert all(v >= 0 for m in found.values() for v in m.values())


def test_a_restarted_broker_has_no_rates_once() -> None:
    old = reading(page(broker_in=1000, topics={"t": (10, 0)}))
    assert not restarted(old, reading(page(broker_in=1000, topics={"t": (0, 0)})))
    assert restarted(old, reading(page(broker_in=999)))
    assert restarted(old, reading(page(broker_in=1001, start=101.0)))


def test_a_counter_of_a_topic_that_fell_is_not_reported() -> None:
    found = reported(page(topics={"t": (500, 7)}), page(topics={"t": (20, 8)}))
    assert found["t", -1] == {"bytes_out": 0.1}


def test_one_endpoint_that_fails_is_named_and_the_others_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = {"t": (0.0, 0.0)}
    pages: dict[str, list[str | Exception]] = {
        "http://a/": [
            page(topics=topics),
            page(broker_in=5, topics=topics),
            page(broker_in=1, topics=topics, start=2.0),
        ],
        "http://b/": [
            "junk line !\n" + page(topics=topics),
            ReporterError("b: refused"),
            page(topics=topics),
        ],
    }
    answers = {url: iter(found) for url, found in pages.items()}

    def scrape(url: str, timeout: float) -> str:
        found = next(answers[url])
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(module, "scrape", scrape)
    source = PrometheusSource({2: "http://b/", 1: "http://a/"})
    reports = iter(source)
    assert next(reports) == []
    assert (source.problems, source.malformed, source.failed) == ({}, 1, 0)
    said = [(r.broker, set(r.metrics)) for r in next(reports) if r.topic is None]
    assert said == [(1, {"bytes_in"})]
    assert source.problems == {"broker 2": "broker 2 not measured: b: refused"}
    last = [(r.broker, r.metrics) for r in next(reports) if r.topic is None]
    assert last == [(2, {"bytes_in": 0.0})]
    assert (source.problems, source.failed, source.resets) == ({}, 1, 1)


def test_between_two_reports_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """An iterator is collected in any thread, which must not wait for others then."""
    monkeypatch.setattr(module, "scrape", lambda url, timeout: page())
    reports = iter(PrometheusSource({1: "http://a/"}))
    before = threading.active_count()
    next(reports)
    assert threading.active_count() == before


def test_a_page_without_anything_of_kafka_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "scrape", lambda url, timeout: "go_goroutines 4\n")
    source = PrometheusSource({1: "http://a/"})
    assert list(islice(source, 2)) == [[], []]
    assert "no known Kafka metric found in 1 samples" in source.problems["broker 1"]


def test_a_file_states_endpoints_and_rules(tmp_path: Path) -> None:
    file = tmp_path / "exporters.yaml"
    file.write_text(
        "endpoints: {1: 'http://broker-1:7071/metrics'}\ntopic_label: t\n"
        "metrics:\n- {name: my_in_total, metric: bytes_in, kind: counter, where: {env: prod}}\n"
    )
    options = load_prometheus(file)
    assert options.endpoints == {1: "http://broker-1:7071/metrics"}
    assert options.metrics == (
        Rule(name="my_in_total", metric="bytes_in", kind="counter", where={"env": "prod"}),
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "list found, a mapping with endpoints expected"),
        ("{endpoints: {a: http://b/}}", "endpoints.a: 'a' found, a broker id expected"),
        ("{endpoints: {1: b}}", "'b' found, an address like"),
        ("{metrics: [{name: a}]}", "metrics.0.metric: none found, a value expected"),
        ("{metrics: [{name: '(', metric: b}]}", "metrics.0.name: '(' found, a regular expression"),
        ("{matrics: []}", "matrics: [] found, a known name expected"),
        ("{", "not YAML, line "),
    ],
)
def test_a_file_that_is_wrong_is_reported_in_a_sentence(
    tmp_path: Path, content: str, sentence: str
) -> None:
    file = tmp_path / "exporters.yaml"
    file.write_text(content)
    with pytest.raises(ReporterError) as reported:
        load_prometheus(file)
    assert sentence in str(reported.value)
    assert "\n" not in str(reported.value)


def test_the_file_of_the_guide_is_read(tmp_path: Path) -> None:
    guide = (HERE.parents[1] / "docs" / "operating.md").read_text(encoding="utf-8")
    found = re.search(r"`exporters.yaml`:\n\n```yaml\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    file = tmp_path / "exporters.yaml"
    file.write_text(found[1])
    options = load_prometheus(file)
    assert set(options.endpoints) == {1, 2}
    assert reading("acme_cpu_busy 0.5", rules=options.metrics).gauges == {
        ("cpu_ratio", None, -1): 0.5
    }


def test_endpoints_are_asked_for() -> None:
    with pytest.raises(ReporterError, match="at least 1 expected"):
        PrometheusSource({})
    with pytest.raises(ReporterError, match=r"missing\.yaml: No such"):
        load_prometheus(HERE / "missing.yaml")


def test_records_are_of_their_broker_and_time() -> None:
    (record,) = records_of(4, 99, None, reading('kafka_log_log_size{topic="t",partition="0"} 1'))
    assert record == Record(99, 4, {"size": 1.0}, "t", 0)
