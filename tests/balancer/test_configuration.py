"""The configuration file and the variables that give options their values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from typer.testing import Result

from balancer.composition.client import client_properties
from balancer.composition.configuration import ConfigurationError, load_configuration
from balancer.composition.properties import PropertiesError, parse_properties
from cluster_model import save_snapshot, synthetic_snapshot

NOBODY = "localhost:1"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("COUNTERPOISE_"):
            monkeypatch.delenv(name)


def run(*args: str) -> Result:
    return invoke(args)


def written(text: str, name: str = "counterpoise.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `propose` would read a cluster with."""
    found: dict[str, Any] = {}

    class Source:
        def __init__(self, *given: Any) -> None:
            names = ("bootstrap", "capacity", "properties", "topic", "timeout")
            found.update(zip(names, given, strict=False))
            raise ConfigurationError("enough")

    monkeypatch.setattr("balancer.composition.source.KafkaSource", Source)
    return found


def test_option_then_variable_then_file_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(monkeypatch)
    written("{bootstrap_server: [a:1, b:2], metrics_topic: of-file, timeout: 3s}", "conf/c.yaml")
    named = ("--config", "conf/c.yaml")
    run("propose", *named)
    assert (found["bootstrap"], found["topic"], found["timeout"]) == ("a:1,b:2", "of-file", 3.0)
    monkeypatch.setenv("COUNTERPOISE_METRICS_TOPIC", "of-variable")
    assert "from the environment: COUNTERPOISE_METRICS_TOPIC" in run("propose", *named).stderr
    assert found["topic"] == "of-variable"
    run("propose", *named, "--metrics-topic", "of-option")
    assert found["topic"] == "of-option"
    run("propose", "--bootstrap-server", NOBODY)
    assert (found["timeout"], found["capacity"]) == (10.0, None)


def test_a_named_file_comes_before_the_implicit_one_and_each_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = seen(monkeypatch)
    written("{bootstrap_server: 'implicit:1'}")
    written("{bootstrap_server: 'variable:1'}", "variable.yaml")
    written("{bootstrap_server: 'option:1'}", "option.yaml")
    assert "from counterpoise.yaml: bootstrap_server" in run("propose").stderr
    assert found["bootstrap"] == "implicit:1"
    monkeypatch.setenv("COUNTERPOISE_CONFIG", "variable.yaml")
    said = run("propose").stderr
    assert "from variable.yaml (of COUNTERPOISE_CONFIG): bootstrap_server" in said
    assert found["bootstrap"] == "variable:1"
    assert "from option.yaml: bootstrap_server" in run("propose", "--config", "option.yaml").stderr
    assert found["bootstrap"] == "option:1"


def test_files_are_found_from_the_directory_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = seen(monkeypatch)
    written("{default: {cpu: 100}}", "conf/capacity.yaml")
    written("{bootstrap_server: 'a:1', capacity: capacity.yaml, goals: mine.yaml}", "conf/c.yaml")
    written("{goals: [RackAwareness]}", "conf/mine.yaml")
    run("propose", "--config", "conf/c.yaml")
    assert found["capacity"] == Path("conf/capacity.yaml")


def test_a_file_that_others_could_have_written_is_only_read_if_named() -> None:
    path = written("{bootstrap_server: 'a:1'}")
    path.chmod(0o666)
    said = run("propose").stderr
    assert "others may have written it" in said
    assert "neither of them given" in said
    assert "from counterpoise.yaml" in run("propose", "--config", str(path)).stderr


def test_a_snapshot_on_the_command_line_replaces_a_configured_cluster() -> None:
    save_snapshot(synthetic_snapshot(brokers=3, partitions=9, utilization=0.2), Path("c.json"))
    written("{bootstrap_server: 'localhost:1', capacity: none.yaml, timeout: 1}")
    done = run("propose", "c.json", "--json")
    assert done.exit_code in (0, 1)
    assert done.stderr == ""
    json.loads(done.stdout)
    clash = run("propose", "c.json", "--bootstrap-server", NOBODY)
    assert "both of them given" in clash.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{bootstrap_servers: 'a:1'}", "bootstrap_servers: no such key; did you mean bootstrap_s"),
        ("{bootstrap.server: 'a:1'}", "did you mean bootstrap_server?"),
        ("{sesame: 1}", "known are bootstrap_server, client"),
        ("{timeout: soon}", "timeout: 'soon' found"),
        ("{client: {a: [sesame]}}", "client.a: text expected"),
        ("{client: {a: b}, command_config: c}", "one of them expected"),
        ("[]", "list found, a mapping expected"),
        ("{interval: 60}", "a settings file found, a configuration file expected"),
        ("{", "not YAML"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, says: str) -> None:
    written(text, "c.yaml")
    done = run("propose", "--config", "c.yaml")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert says in line
    assert "sesame" not in line or "sesame: 1" in text


def test_client_properties_are_taken_from_the_file_and_from_where_they_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "open sesame")
    written("truststore.password=a\\u0062c\n", "secrets/some.properties")
    written("from a mount\n", "secrets/token")
    path = written(
        "client:\n"
        "  security.protocol: SASL_SSL\n"
        '  sasl.jaas.config: Login required username="me" password="${env:KAFKA_PASSWORD}";\n'
        "  enable.ssl.certificate.verification: true\n"
        "  session.timeout.ms: 6000\n"
        "  x: ${file:secrets/some.properties:truststore.password}\n"
        "  y: ${dir:secrets:token}\n"
    )
    assert client_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "me",
        "sasl.password": "open sesame",
        "enable.ssl.certificate.verification": "true",
        "session.timeout.ms": "6000",
        "x": "abc",
        "y": "from a mount",
    }
    assert "sesame" not in repr(load_configuration(path))


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("${env:NOT_SET}", "environment variable NOT_SET not found"),
        ("${file:none:a}", "file none:a: No such file"),
        ("${dir:none:a}", "file none:a: No such file"),
        ("${vault:a:b}", "a reference of kind vault found"),
    ],
)
def test_a_reference_to_nothing_is_named(reference: str, says: str) -> None:
    path = written(f"{{client: {{sasl.password: '{reference}'}}}}")
    with pytest.raises(ConfigurationError, match=r"client\.sasl\.password") as error:
        client_properties(path)
    assert says in str(error.value)


def test_a_file_without_properties_is_no_file_of_properties() -> None:
    with pytest.raises(ConfigurationError, match="client: none found"):
        client_properties(written("{bootstrap_server: 'a:1'}"))


def test_a_configured_capacity_needs_no_metadata_log() -> None:
    written("{bootstrap_server: 'a:1', capacity: c.yaml, command_config: none.properties}")
    archive = ("history", "archive", "archive", "--metrics-topic", "metrics")
    assert "none.properties: No such file" in run(*archive).stderr
    assert "--metadata expected" in run(*archive, "--capacity", "c.yaml").stderr


def test_every_command_that_reads_a_cluster_takes_the_file() -> None:
    for command in (
        ["propose"],
        ["run"],
        ["execute"],
        ["report-metrics"],
        ["snapshot", "kafka"],
        ["history", "archive"],
        ["autoscale", "run"],
        ["autoscale", "monitor"],
        ["word-count", "load"],
    ):
        text = invoke([*command, "--help"], env={"COLUMNS": "200"}).stdout
        assert "COUNTERPOISE_CONFIG" in text, command
        assert "COUNTERPOISE_BOOTSTRAP_SERVER" in text, command


def test_properties_are_read_as_java_does() -> None:
    text = (
        "# comment \\\n! too\n\n  a.b=1,\\\r\n    2,\\\n\t3\nkey\\ with\\:signs : v\\\\\n"
        "tab\\tkey value with = sign\nempty\nlast=\\u00e4\\n\\q\\\\\\\nend"
    )
    assert [(p.key, p.value) for p in parse_properties(text)] == [
        ("a.b", "1,2,3"),
        ("key with:signs", "v\\"),
        ("tab\tkey", "value with = sign"),
        ("empty", ""),
        ("last", "ä\nq\\end"),
    ]
    assert [p.line for p in parse_properties(text)] == [4, 7, 8, 9, 10]
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties("a=1\nb=\\u12")
