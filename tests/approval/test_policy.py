"""Which plans wait, and when executions may start: time zones, midnight, changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from balancer.approval import ApprovalPolicy, MaintenanceWindow
from metrics_reporter.documents import read_document


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        (
            {"start": "22:00", "end": "04:00", "days": ["fri"]},
            ["2026-11-27T22:00:00", "2026-11-28T03:59:59"],
            ["2026-11-27T03:00", "2026-11-27T21:59:59", "2026-11-28T04:00", "2026-11-28T23:00"],
        ),
        (
            {"start": "22:00", "end": "24:00"},
            ["2026-11-27T23:59:59.999999"],
            ["2026-11-28T00:00:00", "2026-11-27T21:59:59"],
        ),
        ({"start": "00:00", "end": "00:00", "days": ["mon"]}, ["2026-11-23T12:00"], ["2026-11-24"]),
        (
            {"start": "01:00", "end": "05:00", "timezone": "Asia/Kolkata", "days": ["tue"]},
            ["2026-11-23T19:30:00", "2026-11-23T23:29:59"],
            ["2026-11-23T19:29:59", "2026-11-23T23:30:00", "2026-11-24T20:00:00"],
        ),
        # 02:30 does not exist on 29 March in Berlin, and exists twice on 25 October.
        (
            {"start": "02:00", "end": "03:30", "timezone": "Europe/Berlin"},
            ["2026-03-29T01:00:00", "2026-03-29T01:29:00"],
            ["2026-03-29T00:59:59", "2026-03-29T01:30:00"],
        ),
        (
            {"start": "02:00", "end": "03:00", "timezone": "Europe/Berlin"},
            ["2026-10-25T00:00:00", "2026-10-25T01:59:59"],
            ["2026-10-24T23:59:59", "2026-10-25T02:00:00"],
        ),
        (
            {"start": "22:00", "end": "02:00", "timezone": "America/New_York", "days": ["sat"]},
            ["2026-11-01T02:00:00", "2026-11-01T05:59:59"],
            ["2026-11-01T01:59:59", "2026-11-01T07:00:00"],
        ),
    ],
)  # fmt: skip
def test_windows(window: dict[str, Any], inside: list[str], outside: list[str]) -> None:
    policy = ApprovalPolicy(windows=(MaintenanceWindow.model_validate(window),))
    assert all(policy.may_start(datetime.fromisoformat(t).replace(tzinfo=UTC)) for t in inside)
    assert not any(policy.may_start(datetime.fromisoformat(t).replace(tzinfo=UTC)) for t in outside)


@pytest.mark.parametrize("written", ["22:00", "'22:00'", "22:00:00"])
@pytest.mark.parametrize("end", ["24:00", "'24:00'", "00:00"])
def test_times_are_read_as_yaml_writes_them(tmp_path: Path, written: str, end: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(f"windows: [{{start: {written}, end: {end}}}]\n")
    document: Any = read_document(path, "settings")
    (window,) = ApprovalPolicy.model_validate(document).windows
    assert window.start.isoformat() == "22:00:00"
    assert window.end.isoformat() == "00:00:00"


@pytest.mark.parametrize(
    "window",
    [
        {"start": "25:00", "end": "1:00"},
        {"start": 1500, "end": "01:00"},
        {"start": True, "end": "01:00"},
        {"start": "22:00+01:00", "end": "01:00"},
        {"start": "22:00", "end": "01:00", "timezone": "Mars/Base"},
        {"start": "22:00", "end": "01:00", "timezone": "../../etc/passwd"},
        {"start": "22:00", "end": "01:00", "days": []},
        {"start": "22:00", "end": "01:00", "days": ["friday"]},
        {"start": "22:00"},
    ],
)
def test_mistakes_in_windows_are_refused(window: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MaintenanceWindow.model_validate(window)


@pytest.mark.parametrize(
    ("policy", "plan", "expected"),
    [
        ({}, {"moves": 10**6, "cost": 1e15}, None),
        ({"mode": "manual"}, {"moves": 0}, "every plan"),
        ({"mode": "manual"}, {"heals": True}, None),
        ({"mode": "manual", "heal": False}, {"heals": True}, "every plan"),
        ({"max_moves": 10}, {"moves": 10}, None),
        ({"max_moves": 10}, {"moves": 11}, "more than 10"),
        ({"max_bytes": "1GB"}, {"cost": 1e9}, None),
        ({"max_bytes": "1GB"}, {"cost": 1e9 + 1}, "max_bytes"),
        ({"max_bytes": "1GB"}, {"cost": 1.0, "unit": "records"}, "records"),
        ({"max_bytes": 0, "max_moves": 0}, {}, None),
    ],
)
def test_which_plans_wait(
    policy: dict[str, Any], plan: dict[str, Any], expected: str | None
) -> None:
    asked = {"moves": 0, "cost": 0.0, "unit": "bytes", "heals": False, **plan}
    found = ApprovalPolicy.model_validate(policy).waits(**asked)
    assert found == expected or (expected is not None and expected in str(found))
