"""Kafka's minima of the configuration and of instances hold."""

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
