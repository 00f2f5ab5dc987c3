"""What compose.yaml starts, started here: a real Kafka, reporter, controller, and Prometheus."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from kafka_cases import create_topic, steady_load
from prometheus import program, prometheus
from real_kafka import KafkaCluster, held_ports
from waiting import LIMIT, wait_for

from cluster_model.kafka import admin_client

ROOT = Path(__file__).parents[2]
DEPLOYMENT, MONITORING = ROOT / "docs" / "deployment", ROOT / "docs" / "monitoring"
TIMEOUT = 240.0
# The example's times are for people.
FASTER: dict[str, Any] = {
    "interval": "1s",
    "settle": "0s",
    "moved_cooldown": "0s",
    "model": {"window": "10s", "windows": 2, "min_samples": 2, "refresh": 1.0},
    "goal_violations": {"rounds": 1, "cooldown": "1s"},
}
# The admin API, which the example's reporter asks, knows no cpu.
MAY_BE_EMPTY = {'counterpoise_broker_load_share{resource="cpu"}'}


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOYMENT / "compose.yaml").read_text())["services"]
    return found


def expressions() -> set[str]:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return {target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())}


def test_only_this_machine_reaches_what_compose_starts() -> None:
    for name, service in services().items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), (name, port)
        for volume in service.get("volumes", ()):
            if volume.startswith("."):
                assert (DEPLOYMENT / volume.split(":")[0]).exists(), volume


def test_the_alert_rules_and_the_configuration_are_valid() -> None:
    for words in (
        ("check", "rules", str(MONITORING / "alerts.yaml")),
        ("check", "config", "--syntax-only", str(DEPLOYMENT / "prometheus.yaml")),
    ):
        done = subprocess.run([program("promtool"), *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        pytest.param({}, {"CounterpoiseDown"}, id="not scraped"),
        pytest.param({"up": "0x20"}, {"CounterpoiseDown"}, id="never answered"),
        pytest.param(
            {"up": "1 0x20", "rounds": "60 stale", "acting": "1 stale"},
            {"CounterpoiseDown"},
            id="ended",
        ),
        pytest.param(
            {"up": "1x20", "rounds": "60x20", "acting": "1x20"},
            {"CounterpoiseNoRounds"},
            id="hangs",
        ),
        pytest.param(
            {"up": "1x20", "rounds": "60+60x20", "acting": "0x20"},
            {"CounterpoiseNobodyActs"},
            id="on standby",
        ),
        pytest.param({"up": "1x20", "rounds": "60+60x20", "acting": "1x20"}, set(), id="runs"),
    ],
)
def test_an_alert_fires_when_the_controller_is_dead_or_idle(
    series: dict[str, str], fires: set[str], tmp_path: Path
) -> None:
    names = {"up": "up", "rounds": "counterpoise_last_round_timestamp_seconds"}
    names["acting"] = "counterpoise_acting"
    target = '{job="counterpoise", instance="controller:9464"}'
    alerts = ("CounterpoiseDown", "CounterpoiseNoRounds", "CounterpoiseNobodyActs")
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    # what is compared is which alerts fire, and on which target, not what they say
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["annotations"], rule["labels"] = {}, {}
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules))
    labels: dict[str, list[dict[str, str]]] = {
        "CounterpoiseDown": [
            {"job": "counterpoise", "instance": "controller:9464"} if series else {}
        ],
        "CounterpoiseNoRounds": [{"job": "counterpoise", "instance": "controller:9464"}],
        "CounterpoiseNobodyActs": [{}],
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": names[k] + target, "values": v} for k, v in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "18m",
                "alertname": alert,
                "exp_alerts": [{"exp_labels": own} for own in labels[alert] if alert in fires],
            }
            for alert in alerts
        ],
    }
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": [test]})
    )
    done = subprocess.run(
        [program("promtool"), "test", "rules", "test.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def run(name: str, kafka: KafkaCluster, folder: Path, listen: str) -> Iterator[Callable[[], str]]:
    """A service of compose.yaml, with the addresses and folders of this machine.

    Yields what says what it has printed, if it still runs.
    """
    service = services()[name]
    paths = {"/etc/counterpoise": folder / "example", "0.0.0.0:9464": listen}

    def here(word: str) -> str:
        for there, own in paths.items():
            word = word.replace(there, str(own))
        return word

    words = [here(word) for word in service["command"]]
    if "--interval" in words:
        words[words.index("--interval") + 1] = "2"
    given = {key: here(value) for key, value in service["environment"].items()}
    given["COUNTERPOISE_BOOTSTRAP_SERVER"] = kafka.bootstrap
    log = folder / f"{name}.log"
    code = "from balancer.cli import main; main()"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **given, "PYTHONPATH": str(ROOT)},
        )

    def printed() -> str:
        assert process.poll() is None, log.read_text()
        return log.read_text()[-5000:]

    try:
        yield printed
        printed()
    finally:
        process.terminate()
        process.wait(LIMIT)


def configured(folder: Path, listen: str) -> Path:
    """The shipped files in a folder, with this test's addresses and times; Prometheus's."""
    example = folder / "example"
    example.mkdir()
    for path in (DEPLOYMENT / "example").iterdir():
        text = path.read_text().replace("/var/lib/counterpoise", str(folder))
        (example / path.name).write_text(text)
    settings = yaml.safe_load((example / "settings.yaml").read_text())
    (example / "settings.yaml").write_text(yaml.safe_dump(settings | FASTER))
    (folder / "alerts.yaml").write_text((MONITORING / "alerts.yaml").read_text())
    text = (DEPLOYMENT / "prometheus.yaml").read_text()
    assert "controller:9464" in text
    text = text.replace("controller:9464", listen).replace("15s", "1s")
    (folder / "prometheus.yaml").write_text(text)
    return folder / "prometheus.yaml"


@pytest.mark.soak
def test_every_panel_of_the_dashboard_shows_data(owned_kafka: KafkaCluster, tmp_path: Path) -> None:
    kafka = owned_kafka
    with ExitStack() as ends:
        own, theirs = ends.enter_context(held_ports(2))
        listen = f"127.0.0.1:{own}"
        configuration = configured(tmp_path, listen)
        # the topic of the service `load`, on two of the brokers
        with admin_client(kafka.bootstrap, timeout=30) as ask:
            create_topic(ask, "orders", {n: [0, 1] if n < 11 else [1, 0] for n in range(12)})
        ends.enter_context(steady_load(kafka, "orders", 12, 2000))
        said = [
            ends.enter_context(run(name, kafka, tmp_path, listen))
            for name in ("reporter", "controller")
        ]
        measured = ends.enter_context(prometheus(configuration, theirs))
        client = ends.enter_context(httpx.Client(base_url=f"http://{listen}/api/v1", timeout=LIMIT))

        def printed() -> list[str]:
            return [one() for one in said]

        def open_proposals() -> list[Any]:
            printed()  # both run
            try:
                found = client.get("/proposals").json()
            except httpx.TransportError:
                return []
            return [p for p in found if p["state"] == "open"]

        kept = wait_for(open_proposals, printed)[0]
        wait_for(lambda: client.get("/state").json()["acting"], printed)
        wait_for(lambda: measured.query('counterpoise_proposals{state="open"}'), printed)
        path = f"/proposals/{kept['id']}"
        client.post(f"{path}/approve", json={"digest": kept["digest"]}).raise_for_status()
        wait_for(lambda: client.get(path).json()["state"] == "executed", printed)

        def empty() -> set[str]:
            # an execution shows its bytes only while it runs
            return {
                e
                for e in expressions() - MAY_BE_EMPTY
                if not measured.query(e)
                and not (re.fullmatch(r"\w+", e) and measured.query(f"last_over_time({e}[10m])"))
            }

        wait_for(lambda: not empty(), lambda: (empty(), printed()))
        groups = measured.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert rules
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        assert [t["health"] for t in measured.get("targets")["activeTargets"]] == ["up"]


@pytest.mark.parametrize("name", ["reporter", "controller"])
def test_services_of_ours_have_no_rights(name: str) -> None:
    service = services()[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
