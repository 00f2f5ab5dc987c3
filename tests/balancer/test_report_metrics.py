"""``counterpoise report-metrics``: messages about wrong options, and a run without brokers."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from confluent_kafka import Producer

from metrics_reporter import mock_cluster, read_records
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
