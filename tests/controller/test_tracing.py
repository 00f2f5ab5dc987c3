"""Spans of OpenTelemetry around rounds, plans and executions, by its own SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from controller_cases import Stage, skewed
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from balancer.controller import tracing


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def _by_name(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in reversed(spans.get_finished_spans())}


def test_a_round_has_its_parts_and_an_execution_is_there(spans: InMemorySpanExporter) -> None:
    assert Stage(skewed()).rounds(1) == ["executed"]
    found = _by_name(spans)
    whole = found["counterpoise.round"]
    assert whole.context is not None
    assert dict(whole.attributes or {}) == {"counterpoise.decision": "executed"}
    for part in ("read_cluster", "detect", "plan"):
        parent = found[f"counterpoise.{part}"].parent
        assert parent is not None
        assert parent.span_id == whole.context.span_id
    planned = found["counterpoise.plan"].attributes or {}
    assert planned["counterpoise.finding"] == "goal_violations"
    assert planned["counterpoise.operation"] == "rebalance"
    assert int(str(planned["counterpoise.actions"])) > 0
    executions = [s.attributes or {} for s in spans.get_finished_spans() if "execute" in s.name]
    assert [e["counterpoise.cause"] for e in executions] == ["recovery", "goal_violations"]
    executed = executions[1]
    assert executed["counterpoise.state"] == "done"
    assert float(str(executed["counterpoise.bytes_moved"])) > 0


def test_what_fails_is_a_span_that_failed(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(skewed())

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no plan today for https://me:hunter2@example.com")

    monkeypatch.setattr(stage.balancer, "propose", fail)
    stage.rounds(1)
    failed = _by_name(spans)["counterpoise.plan"]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "RuntimeError"
    assert all("hunter2" not in s.to_json() for s in spans.get_finished_spans())
    assert _by_name(spans)["counterpoise.round"].status.status_code is StatusCode.UNSET


def test_without_opentelemetry_rounds_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_api", lambda: None)
    assert Stage(skewed()).rounds(2) == ["executed", "balanced"]
