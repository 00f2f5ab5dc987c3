"""``counterpoise autoscale``: decisions and simulations, and bad input in one sentence."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from rich.console import Console

from balancer.autoscaling.autoscaler import Autoscaler, Round, decide_once
from balancer.autoscaling.document import load_group
from balancer.autoscaling.errors import NotYetError
from balancer.autoscaling.measurement import MeasurementSettings
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.repairing import RepairPolicy
from balancer.autoscaling.trace import load_trace
from balancer.cli.autoscale_run import _once
from balancer.cli.autoscale_view import live

GROUP = """
group: orders
capacity: 200
rebalance_time: 50ms
reaction_time: 3s
consumers: [{name: a}, {name: b, capacity: 200}]
partitions:
  - {topic: orders, partition: 0, rate: 110, lag: 40, consumer: a}
  - {topic: orders, partition: 1, rate: 95, lag: 60, consumer: a}
  - {topic: orders, partition: 2, rate: 20, consumer: b}
"""
TRACE = "seconds,rate\n0,50\n20,150\n40,300\n60,0\n"


@pytest.fixture
def group(tmp_path: Path) -> Path:
    path = tmp_path / "group.yaml"
    path.write_text(GROUP, encoding="utf-8")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    return path


def run(*words: object) -> Any:
    return invoke(["autoscale", *words])


def refused(sentence: str, *words: object) -> None:
    result = run(*words)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert sentence in line, line
    assert result.stdout == ""


def test_a_decision_moves_what_must(group: Path) -> None:
    result = run("decide", group, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["running"], found["consumers"], found["start"], found["stop"]) == (2, 2, 0, [])
    load = dict.fromkeys("ab", 0.0)
    for partition, rate in (("orders-0", 110), ("orders-1", 95), ("orders-2", 20)):
        load[found["assignment"][partition]] += rate
    assert max(load.values()) < 200
    assert found["moves"] >= 1


def test_what_is_too_fast_for_a_consumer_is_named(group: Path) -> None:
    text = GROUP.replace("rate: 20", "rate: 500").replace(
        "{topic: ", "{write_speed: 1MB/s, topic: "
    )
    text = text.replace("write_speed: 1MB/s", "write_speed: 100MB/s", 1)
    group.write_text(text.replace("rebalance_time", "byte_capacity: 50MB/s\nrebalance_time"))
    found = json.loads(run("decide", group, "--json").stdout)
    assert found["warnings"] == [
        "orders-2 receives more than a consumer can process, 500 events/s of 200 events/s: more "
        "partitions are needed",
        "orders-0 receives more than a consumer can read, 100 MB/s of 50 MB/s: more partitions "
        "are needed",
    ]


def test_a_number_alone_is_seconds(group: Path) -> None:
    words = ("decide", group, "--json", "--sla")
    assert run(*words, "5").stdout == run(*words, "5s").stdout
    refused("seconds, or text like 250ms", *words, "-5")


def test_consumers_are_named_in_reasons(group: Path) -> None:
    assert "will have too much: a 205 events/s of 200" in run("decide", group).stdout


def test_a_decision_is_shown_with_bars(group: Path) -> None:
    result = run("decide", group)
    assert result.exit_code == 0, result.output
    assert "102.5 %" in result.stdout
    assert "Then" in result.stdout
    assert "orders-0" in result.stdout


def test_numbers_are_written_out_and_one_is_singular(group: Path) -> None:
    waits = "  - {topic: orders, partition: 0, rate: 9, lag: 15000, consumer: a}\n"
    more = waits.replace("partition: 0", "partition: 1")
    group.write_text("group: g\ncapacity: 20\nconsumers: [{name: a}]\npartitions:\n" + waits + more)
    shown = run("decide", group, "--maximum", 1).stdout
    assert "at the maximum of 1 consumer, no move relieves any" in shown
    assert " 30,000 " in shown


def test_consumers_that_are_missing_are_started(group: Path) -> None:
    group.write_text(GROUP.replace("rate: 20", "rate: 160"), encoding="utf-8")
    found = json.loads(run("decide", group, "--json").stdout)
    assert found["start"] == 1
    assert "new 1" in run("decide", group).stdout


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("capacity: 200", "capacity: -200", "capacity"),
        (", capacity: 200}", ", capacity: 0}", "capacity"),
        ("rate: 110", "rate: -1", "rate"),
        ("rate: 110", "rate: .nan", "number .nan found, a finite one expected"),
        ("lag: 40", "lag: many", "lag"),
        ("consumer: b}", "consumer: c}", "consumer 'c' found, one of consumers expected"),
        ("partition: 1", "partition: 0", "partition 'orders-0' found twice"),
        ("{name: a}", "{name: b}", "consumers found twice"),
        ("rebalance_time: 50ms", "rebalance_time: soon", "rebalance_time"),
        ("group: orders", "grup: orders", "group: field required"),
        ("lag: 60,", "lag: 60, write_speed: 1MB/s,", "write_speed of 1 of 3 partitions found"),
        ("partition: 1", "partition: true", "partition"),
        ("partition: 1", 'partition: "1"', "partition"),
        ("capacity: 200", "capacity: 1e-320", "a number from 1e-06 to 1e+15 expected"),
        ("capacity: 200", "capacity: 1e+300", "a number from 1e-06 to 1e+15 expected"),
        ("rate: 110", "rate: 1e+300", "rate of orders-0: 1e+300 found"),
        ("lag: 40", "lag: 1e+308", "lag of orders-0: 1e+308 found"),
        ("rate: 110", "rate: 1e+12", "at most what 1,000,000 consumers of 200 can process"),
        (", capacity: 200}", ", capacity: 1e-300}", "capacity of b: 1e-300 found"),
        ("rebalance_time: 50ms", "rebalance_time: 500ms", "only over-provisioning can keep it"),
    ],
)
def test_a_bad_group_file_is_one_sentence(group: Path, old: str, new: str, sentence: str) -> None:
    group.write_text(GROUP.replace(old, new, 1), encoding="utf-8")
    refused(sentence, "decide", group)


def test_bad_options_are_one_sentence(group: Path, trace: Path) -> None:
    refused("--sla: 'soon' found, seconds", "decide", group, "--sla", "soon")
    refused("sla", "decide", group, "--sla", "0s")
    refused("only over-provisioning can keep it", "decide", group, "--sla", "50ms")
    refused("policy: 'best' found, one of repair", "decide", group, "--policy", "best")
    refused("minimum 5 found, at most", "decide", group, "--minimum", 5, "--maximum", 4)
    refused("No such file", "decide", group.with_name("missing.yaml"))
    refused("only over-provisioning", "simulate", trace, "--rebalance-time", "2s")
    refused("only over-provisioning", "simulate", trace, "--eager")
    refused("at most one of them", "simulate", trace, "--eager", "--cooperative")
    refused("numbers above 0 expected", "simulate", trace, "--capacity", "-1")
    refused("interval", "simulate", trace, "--interval", "0s")
    refused("lag threshold: 0 found", "simulate", trace, "--policy", "keda", "--lag-threshold", 0)


def kafka(*words: object) -> tuple[object, ...]:
    at = ("--bootstrap-server", "localhost:1", "--group", "orders")
    return ("run", *at, "--timeout", 0.2, *words)


def test_a_run_that_cannot_start_is_one_sentence() -> None:
    refused("capacity: -5 found, events/s above 0", *kafka("--capacity", -5))
    refused("only over-provisioning", *kafka("--capacity", 5, "--sla", "1s"))
    refused("only over-provisioning", *kafka("--rebalance-time", "6s"))
    # what is not given is measured
    refused("Kafka at localhost:1", *kafka())
    refused("Kafka at localhost:1", *kafka("--sla", "1s", "--rebalance-time", "50ms"))
    refused(
        "--workload and --keda given, at most one",
        *kafka("--capacity", 5, "--workload", "deployment/x", "--keda", ":0"),
    )
    refused("both expected", *kafka("--capacity", 5, "--tls-key", "key.pem"))
    refused("--interval: 0s found, a duration above", *kafka("--capacity", 5, "--interval", "0s"))
    pair = ("--tls-key", "key.pem", "--tls-certificate", "certificate.pem")
    refused("--tls-key: goes with --keda", *kafka("--capacity", 5, *pair))
    refused("goes with --tls-cert", *kafka("--capacity", 5, "--tls-client-ca", "a.pem"))
    refused("Kafka at localhost:1", *kafka("--capacity", 5))
    refused("byte capacity: 0 found", *kafka("--capacity", 5, "--byte-capacity", "0MB/s"))
    refused("--byte-capacity: 'fast' found", *kafka("--capacity", 5, "--byte-capacity", "fast"))
    refused("goes with --byte-capacity", *kafka("--capacity", 5, "--write-speeds", "speeds"))
    told = ("--capacity", 5, "--assignor", "assigned")
    refused("only if --dry-run is given", *kafka(*told, "--once"))
    refused("as its control topic is named after it", *kafka(*told, "--group", "a b"))
    refused("Kafka at localhost:1", *kafka(*told))


def test_bad_options_of_the_monitor_are_one_sentence() -> None:
    at = ("monitor", "--bootstrap-server", "localhost:1", "--timeout", 0.2)
    refused("--interval: 'x' found", *at, "--interval", "x")
    refused("--window: 0 s found, more than 0 expected", *at, "--window", "0s")
    refused("Kafka at localhost:1", *at, "--topics", "orders")
    refused("topic monitor.write-speed at localhost:1 cannot be created", *at)


def test_a_simulation_compares_policies(trace: Path) -> None:
    words = ("simulate", trace, "--partitions", 4, "--policy", "repair", "--policy", "keda")
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["events"] == 10_000
    assert list(found["policies"]) == ["repair", "keda"]
    for figures in found["policies"].values():
        assert 0 <= figures["within_sla"] <= 1
        assert figures["p50_seconds"] <= figures["p99_seconds"] <= figures["p100_seconds"]
    assert run(*words, "--json").stdout == result.stdout
    assert "replica-minutes" in run(*words).stdout
    eager = json.loads(run(*words, "--sla", "5s", "--eager", "--json").stdout)
    # consumers wait for the last heartbeat
    assert eager["policies"]["repair"]["p99_seconds"] > found["policies"]["repair"]["p99_seconds"]


def test_what_a_peak_has_left_is_worked_off(tmp_path: Path) -> None:
    peak = tmp_path / "peak.csv"
    peak.write_text("0,0\n30,2400\n40,0\n699,12\n700,0\n")
    words = ("--partitions", 12, "--capacity", 20, "--sla", "5s", "--interval", "10s", "--json")
    found = json.loads(run("simulate", peak, *words).stdout)["policies"]
    # with consumers for what arrives only, it was 950 s
    assert found["repair"]["p100_seconds"] <= 120
    assert found["repair"]["p100_seconds"] <= found["latency-aware"]["p100_seconds"]
    assert found["repair"]["replica_minutes"] < found["keda"]["replica_minutes"] / 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "0 lines of numbers found, at least 2 expected"),
        ("0,5\n", "1 line of numbers found"),
        ("0,1O\n1,5\n2,5\n", "line 1: '0,1O' found, a time and events/s"),
        ("O,10\n1,5\n2,5\n", "line 1: 'O,10' found"),
        ("-1e308,0\n1e308,0\n", "line 1"),
        ("0,1\n2000000,0\n", "at most 500,000 decisions expected"),
        ("0,5\n0,5\n", "line 2"),
        ("0,5\n1,-5\n", "events/s from 0 to 1e+15 expected"),
        ("0,5\n1,x\n", "line 2"),
        ("0,5\n1,5,5\n", "2 columns"),
        ("0\n1\n", "line 1"),
        ("0,0\n1,0\n", "no event found"),
        ("0,1e14\n1,0\n", "at most 50,000,000 expected"),
    ],
)
def test_a_bad_trace_is_one_sentence(trace: Path, text: str, sentence: str) -> None:
    trace.write_text(text, encoding="utf-8")
    refused(sentence, "simulate", trace)


def test_a_device_is_no_endless_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("balancer.autoscaling.trace._MOST_BYTES", 1000)
    refused("more than 1,000 bytes found", "simulate", "/dev/zero")


def test_a_trace_has_as_many_events_as_it_says(trace: Path) -> None:
    trace.write_text("0,10,0.5\n10,20,0\n20,0,0\n", encoding="utf-8")
    events = load_trace(trace, 7)
    assert events.partitions == 2
    assert np.bincount(events.partition).tolist() == [300, 5]
    assert (np.diff(events.arrival) >= 0).all()
    assert (events.arrival < 10).sum() == 105


def test_the_live_view_shows_bars_lag_and_the_reason(group: Path) -> None:
    seen = load_group(group)
    decision = decide_once(seen, RepairPolicy())
    done = Round(
        at=0.0, kind="changed", reason="2 -> 3 consumers: because", observation=seen,
        decision=decision, consumers=3,
    )  # fmt: skip
    screen = io.StringIO()
    console = Console(file=screen, width=120)
    console.print(live(done))
    console.print(live(Round(at=0.0, kind="failed", reason="no answer")))
    shown = screen.getvalue()
    for part in (
        "group orders: 2 consumers, 3 needed",
        "lag 100",
        "changed: 2 -> 3",
        "█",
        "no answ",
    ):
        assert part in shown


def test_deciding_once_does_not_wait_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    looks = []

    def observe() -> Observation:
        looks.append(1)
        assert len(looks) < 100
        raise NotYetError("arrivals are being measured")

    autoscaler = Autoscaler(observe, RepairPolicy())
    assert _once(autoscaler, threading.Event(), 1e-6, json=False) == 1
    assert len(looks) == MeasurementSettings().once_looks
    assert "arrivals are being measured" in capsys.readouterr().out


def test_a_byte_capacity_without_write_speeds_is_refused(group: Path) -> None:
    text = group.read_text(encoding="utf-8")
    group.write_text(text + "byte_capacity: 2MB/s\n", encoding="utf-8")
    refused("byte_capacity found, write_speed of each partition expected with it", "decide", group)
