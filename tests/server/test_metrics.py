"""What Prometheus reads: the format, and that dashboards and alerts name what exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from server_cases import served

DOCS = Path(__file__).parents[2] / "docs" / "monitoring"
NAME = re.compile(r"\bcounterpoise_[a-z_]+")
# Labels that Prometheus adds to each series.
TARGET = {"job", "instance"}


def expressions() -> list[str]:
    rules = yaml.safe_load((DOCS / "alerts.yaml").read_text())
    found = [r["expr"] for g in rules["groups"] for r in g["rules"]]
    dashboard: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
    return [*found, *(t["expr"] for p in dashboard["panels"] for t in p["targets"])]


def test_dashboards_and_alerts_name_metrics_and_labels_that_exist(tmp_path: Path) -> None:
    with served(tmp_path, run=False) as found, found.client() as client:
        client.get("/api/v1/cluster")
        text = client.get("/metrics").text
    families = {f.name: f for f in text_string_to_metric_families(text)}
    names = {s.name for f in families.values() for s in f.samples} | families.keys()
    labels: dict[str, set[str]] = {}
    for family in families.values():
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for expression in expressions():
        used = NAME.findall(expression)
        assert used, expression
        assert {*used} <= names, f"{expression}: { ({*used} - names) }"
        for label in re.findall(r"(\w+)=~?\"", expression):
            known = set().union(TARGET, *(labels.get(name, set()) for name in used))
            assert label in known, expression


def test_each_broker_has_its_load_and_each_goal_its_state(tmp_path: Path) -> None:
    with served(tmp_path, run=False) as found, found.client() as client:
        text = client.get("/metrics").text
        load = client.get("/api/v1/cluster/brokers").json()
        goals = client.get("/api/v1/goals").json()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    exported = {
        (s.labels["broker"], s.labels["resource"]): s.value
        for s in families["counterpoise_broker_load"].samples
    }
    for broker in load:
        for resource, figure in broker["figures"].items():
            assert exported[str(broker["broker"]), resource] == figure["amount"]
    met = {s.labels["goal"]: bool(s.value) for s in families["counterpoise_goal_met"].samples}
    assert met == {g["goal"]: g["met"] for g in goals if g["met"] is not None}


def test_paths_that_a_client_makes_up_make_no_new_series(tmp_path: Path) -> None:
    with served(tmp_path, run=False) as found, found.client() as client:
        for number in range(20):
            client.get(f"/made/up/{number}")
        text = client.get("/metrics").text
    assert "/made" not in text
    assert 'route="other"' in text
