"""The runbook has a section for each finding and each alert, and alerts read metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from balancer.controller.plugins import DETECTORS

DOCS = Path(__file__).parents[2] / "docs"


def test_each_finding_and_each_alert_has_a_section() -> None:
    sections = re.findall(r"(?m)^### `(\w+)`$", (DOCS / "runbook.md").read_text(encoding="utf-8"))
    rules = yaml.safe_load((DOCS / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert sections == [*DETECTORS.built_in, *alerts]
