"""Kafka's limits of the configuration and of instances hold."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from balancer.assignment import AssignmentConfigs
from balancer.assignment.document import InstanceRecord
from balancer.assignment.group.configs import GroupConfigs

GROUP = {"bootstrap_servers": "x:1", "application_id": "a", "input_topic": "w", "state_dir": "s"}


@pytest.mark.parametrize(
    ("model", "others", "field", "least"),
    [
        (AssignmentConfigs, {}, "max_warmup_replicas", 1),
        (AssignmentConfigs, {}, "probing_rebalance_interval_ms", 60_000),
        (AssignmentConfigs, {}, "acceptable_recovery_lag", 0),
        (AssignmentConfigs, {}, "num_standby_replicas", 0),
        (InstanceRecord, {"id": "P1"}, "capacity", 1),
        (GroupConfigs, GROUP, "capacity", 1),
        (GroupConfigs, GROUP, "batch_records", 1),
        (GroupConfigs, GROUP, "commit_interval_ms", 1),
    ],
)
def test_the_least_value_is_accepted_and_less_is_not(
    model: Any, others: dict[str, Any], field: str, least: int
) -> None:
    assert getattr(model(**others, **{field: least}), field) == least
    with pytest.raises(ValidationError, match=f"greater than or equal to {least}"):
        model(**others, **{field: least - 1})


@pytest.mark.parametrize(
    ("model", "others"), [(InstanceRecord, {"id": "P1"}), (GroupConfigs, GROUP)]
)
def test_tags_are_as_many_and_as_long_as_kafka_takes(model: Any, others: dict[str, Any]) -> None:
    most = {f"{n}" + "k" * 19: "v" * 30 for n in range(5)}
    assert model(**others, tags=most).tags == most
    for wrong in ({**most, "k": "v"}, {"k" * 21: "v"}, {"k": "v" * 31}, {"": "v"}):
        with pytest.raises(ValidationError, match="expected"):
            model(**others, tags=wrong)


def test_a_task_has_as_long_as_in_kafka_streams() -> None:
    assert GroupConfigs(**GROUP).task_timeout_ms == 300_000  # type: ignore[arg-type]
