"""The past of brokers, from a server with Prometheus' API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_stand_in import IN, StandIn, cluster, served

from metrics_reporter import ReporterError
from metrics_reporter.prometheus_query import (
    PrometheusServer,
    QueryOptions,
    load_query_options,
)

T = 1_700_000_040
BROKER = {"label": "instance", "pattern": r"kafka-(\d+):\d+"}


def options(**fields: Any) -> QueryOptions:
    return QueryOptions.model_validate({"broker": BROKER, "retries": 0} | fields)


def test_the_records_are_those_of_a_live_source() -> None:
    with served(cluster(T, T + 600)) as there:
        server = PrometheusServer(there.url, options())
        queries = server.queries(T, T + 600)
        assert server.series(queries, T) == 2 * (1 + 1 + 1 + 2 * 3 + 2)
        found = server.read(queries, T, T + 600)
    assert (found.unnamed, found.malformed) == (set(), 0)
    times = sorted({r.time_ms for r in found.records})
    assert times == [1000 * t for t in range(T, T + 600, 60)]
    first = {(r.broker, r.topic, r.partition): r.metrics for r in found.records[:10]}
    # The end offsets divide a topic's bytes among its partitions.
    assert first[1, "topic-0", 0] == pytest.approx({"size": 1e6, "bytes_in": 1000.0})
    assert first[2, "topic-0", 3] == pytest.approx({"size": 1e6, "bytes_in": 2000.0})
    assert first[1, "topic-0", -1] == pytest.approx({"bytes_out": 6000.0})
    assert first[2, None, -1] == pytest.approx(
        {"bytes_in": 3000.0, "bytes_out": 6000.0, "cpu": 50.0}
    )


def test_a_counter_that_was_reset_has_the_rate_of_its_growth() -> None:
    there = StandIn()
    there.add(IN, [(T - 60, 5000.0), (T - 30, 5300.0), (T, 60.0)], instance="kafka-1:7071")
    with served(there):
        server = PrometheusServer(there.url, options())
        (record,) = server.read(server.queries(T, T + 60), T, T + 60).records
    assert record.metrics == {"bytes_in": 6.0}


def test_a_rate_that_exporters_call_a_gauge_is_taken_as_it_is() -> None:
    name = "kafka_server_brokertopicmetrics_bytesin_per_sec"
    there = StandIn(types={name: "gauge"})
    there.add(name, [(T - 60, 3e6), (T - 30, 2.9e6), (T, 3e6)], topic="a", instance="kafka-1:7071")
    with served(there):
        server = PrometheusServer(there.url, options())
        (record,) = server.read(server.queries(T, T + 60), T, T + 60).records
        assert record.metrics == {"bytes_in": 3e6}
        # A server without metadata has only the name to tell.
        there.types = {}
        (query,) = server.queries(T, T + 60)
        assert query.counts


def test_a_range_that_is_too_large_is_halved() -> None:
    there = cluster(T, T + 600)
    there.most = 6
    with served(there):
        server = PrometheusServer(there.url, options())
        queries = server.queries(T, T + 600)
        halved = server.read(queries, T, T + 600).records
        there.most = 10**9
        assert server.read(queries, T, T + 600).records == halved
        # Prometheus refuses more than 11,000 points of a series.
        dense = PrometheusServer(there.url, options(step=1))
        there.asked.clear()
        dense.read(queries[:1], T, T + 12_000)
    asked = [a for path, a, _ in there.asked if path.endswith("query_range")]
    assert [(int(a["start"]) - T, int(a["end"]) - T) for a in asked] == [(0, 5999), (6000, 11_999)]


def test_what_is_refused_for_now_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("metrics_reporter.prometheus_query.time.sleep", slept.append)
    there = cluster(T, T + 60)
    with served(there):
        there.failures = [503, 429]
        assert PrometheusServer(there.url, options(retries=2)).queries(T, T + 60)
        assert slept == [1, 2]
        there.failures = [503, 503]
        with pytest.raises(ReporterError, match=r"HTTP status 503 found, 200 expected \(not now\)"):
            PrometheusServer(there.url, options(retries=1)).queries(T, T + 60)
        there.failures = [401]
        slept.clear()
        with pytest.raises(ReporterError, match="HTTP status 401"):
            PrometheusServer(there.url, options(retries=5)).queries(T, T + 60)
        assert not slept


def test_series_of_no_broker_are_told() -> None:
    there = StandIn()
    there.add(IN, [(T - 30, 1.0), (T, 2.0)], instance="elsewhere:7071")
    with served(there):
        server = PrometheusServer(there.url, options())
        found = server.read(server.queries(T, T + 60), T, T + 60)
    assert (found.records, found.unnamed) == ([], {"elsewhere:7071"})


def test_headers_selector_and_names_without_rules() -> None:
    there = StandIn()
    name = "kafka_server_BrokerTopicMetrics_Count"
    for job, rate in (("kafka", 7.0), ("other", 9.0)):
        samples = [(T - 30.0, 0.0), (float(T), 30 * rate)]
        there.add(name, samples, name="BytesInPerSec", instance="kafka-1:1", job=job)
    with served(there):
        chosen = options(selector={"job": "kafka"}, headers={"X-Scope-OrgID": "me"})
        server = PrometheusServer(f"{there.url}/api/v1/", chosen)
        (record,) = server.read(server.queries(T, T + 60), T, T + 60).records
    assert record.metrics == {"bytes_in": 7.0}
    assert {headers.get("X-Scope-Orgid") for *_, headers in there.asked} == {"me"}


def test_answers_that_are_not_of_the_api() -> None:
    class Page(StandIn):
        def answer(self, path: str, asked: dict[str, str]) -> tuple[int, Any]:
            return 200, {"resultType": "matrix", "result": [{"metric": 3, "values": {}}]}

    with served(Page()) as there:
        server = PrometheusServer(there.url, options())
        with pytest.raises(ReporterError, match="not of Prometheus' API, a list of values"):
            server.queries(T, T + 60)
        known = cluster(T, T + 60)
        with served(known):
            queries = PrometheusServer(known.url, options()).queries(T, T + 60)
        with pytest.raises(ReporterError, match="series with metric and values"):
            server.read(queries, T, T + 60)
    with served(StandIn()) as empty, pytest.raises(ReporterError, match="no known metric of Kafka"):
        PrometheusServer(empty.url, options()).queries(T, T + 60)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"broker": None}, "broker: None found"),
        ({"broker": {"label": "a b"}}, "broker.label: 'a b' found"),
        ({"broker": {"label": "a", "pattern": "x"}}, "with one group expected"),
        ({"step": "soon"}, "step: 'soon' found"),
        ({"step": 0.5}, "step: 0.5 found"),
        ({"step": 1.5}, "step in whole seconds expected"),
        ({"step": 1.5, "headers": {"A": "secret"}}, "in whole seconds"),
        ({"headers": {"A\nB": "secret"}}, "headers: names of letters"),
        ({"selector": {"a-b": "x"}}, "selector.a-b"),
        ({"stepp": 60}, "did you mean 'step'"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text(json.dumps({"broker": "broker"} | fields))
    with pytest.raises(ReporterError, match=problem) as error:
        load_query_options(path)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_addresses() -> None:
    for url in ("prometheus:9090", "http://a/?x=1"):
        with pytest.raises(ReporterError):
            PrometheusServer(url, options())
