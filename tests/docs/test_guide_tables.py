"""Tables of the guides list every field with its default, every policy and every metric."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from balancer.assignment import AssignmentConfigs
from balancer.assignment.document import InstanceRecord, TaskRecord
from balancer.assignment.group import GroupConfigs
from balancer.autoscaling.assigned import ConsumerSettings, ControlSettings
from balancer.autoscaling.autoscaler import Autoscaler
from balancer.autoscaling.document import (
    ConsumerRecord,
    GroupDocument,
    GroupPartitionRecord,
)
from balancer.autoscaling.group import Group
from balancer.autoscaling.keda import KedaSettings
from balancer.autoscaling.measurement import MeasurementSettings
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.packed import PackedSettings
from balancer.autoscaling.parameters import AutoscalingParameters
from balancer.autoscaling.policies import POLICIES
from balancer.autoscaling.repairing import RepairPolicy
from balancer.autoscaling.replicas import KubernetesSettings, ProcessSettings, ScalingLimits
from balancer.backtest import AdviceParameters
from cluster_model.history.smoothing import ForecastParameters
from metrics_reporter.documents import parse_yaml

DOCS = Path(__file__).parents[2] / "docs"
TASKS, GROUPS, HISTORY = (
    DOCS / f"{page}.md" for page in ("stateful-tasks", "consumer-groups", "history")
)


def rows(page: Path, header: str) -> list[list[str]]:
    """The rows of the page's table whose first column has this header."""
    text = page.read_text(encoding="utf-8")
    table = text[text.index(f"| {header} |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("page", "header", "record"),
    [
        (TASKS, "field of an instance", InstanceRecord),
        (TASKS, "field of a task", TaskRecord),
        (TASKS, "field of `configs`", AssignmentConfigs),
        (TASKS, "field of `GroupConfigs`", GroupConfigs),
        (GROUPS, "field of a group file", GroupDocument),
        (GROUPS, "field of a consumer", ConsumerRecord),
        (GROUPS, "field of a partition", GroupPartitionRecord),
    ],
)
def test_a_table_lists_the_fields(page: Path, header: str, record: type[BaseModel]) -> None:
    named = [name for row in rows(page, header) for name in re.findall(r"`(\w+)`", row[0])]
    assert named == list(record.model_fields)


def test_the_defaults_are_those_of_the_table() -> None:
    for name, default, _ in rows(TASKS, "field of `configs`"):
        found = AssignmentConfigs.model_fields[name.strip("`")].default
        expected = {"None": "–", "()": "[]", "False": "false"}.get(str(found), str(found))
        assert default == expected


def defaults(record: Any) -> dict[str, Any]:
    if issubclass(record, BaseModel):
        return {name: field.default for name, field in record.model_fields.items()}
    return {field.name: field.default for field in fields(record)}


@pytest.mark.parametrize(
    "record",
    [
        AutoscalingParameters,
        ScalingLimits,
        ProcessSettings,
        KubernetesSettings,
        KedaSettings,
        PackedSettings,
        ConsumerSettings,
        ControlSettings,
        MeasurementSettings,
    ],
)
def test_a_table_lists_the_tunable_numbers(record: Any) -> None:
    named: dict[str, Any] = {}
    for names, values, _ in rows(GROUPS, f"field of `{record.__name__}`"):
        stated = [parse_yaml(value) for value in values.split(",")]
        named |= dict(zip(re.findall(r"`(\w+)`", names), stated, strict=True))
    assert named == defaults(record)


@pytest.mark.parametrize(
    ("header", "record"),
    [
        ("parameter of a forecast", ForecastParameters),
        ("parameter of advice", AdviceParameters),
    ],
)
def test_a_table_lists_the_parameters_of_the_history(header: str, record: Any) -> None:
    named = {name.strip("`"): value for name, value, _ in rows(HISTORY, header)}
    assert named == {
        f.name: f"{f.default:g}" if isinstance(f.default, float) else str(f.default)
        for f in fields(record)
    }


def test_every_policy_is_in_the_table() -> None:
    assert [row[0].strip("`") for row in rows(GROUPS, "policy")] == list(POLICIES)


def test_every_metric_is_in_the_table() -> None:
    group = Group(
        rate=np.ones(1),
        lag=np.zeros(1),
        consumer=np.zeros(1, np.int64),
        capacity=np.ones(1),
        new_capacity=1.0,
    )
    seen = Observation(name="shop", group=group, partitions=("orders-0",), consumers=("a",))
    autoscaler = Autoscaler(lambda: seen, RepairPolicy())
    autoscaler.round()
    served = set(re.findall(r"# TYPE (\w+)", autoscaler.metrics()))
    stated = {name for row in rows(GROUPS, "metric") for name in re.findall(r"`(\w+)", row[0])}
    assert stated == served
