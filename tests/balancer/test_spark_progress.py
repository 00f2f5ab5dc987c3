"""What Spark does is told in a log, with a share and the time left, with and without a driver."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from balancer.cli import spark_progress
from balancer.cli.spark_progress import spark_working


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_progress, "_LOOK", 0.01)
    monkeypatch.setattr(spark_progress, "_LOG", 0.0)


class Tracker:
    """A job of two stages, of which one has not begun."""

    def getActiveJobsIds(self) -> list[int]:
        return [7]

    def getJobInfo(self, job: int) -> Any:
        return SimpleNamespace(stageIds=[1, 2])

    def getStageInfo(self, stage: int) -> Any:
        return SimpleNamespace(numTasks=8, numCompletedTasks=2) if stage == 1 else None


def until_told(capsys: pytest.CaptureFixture[str], what: str) -> str:
    said, until = "", time.monotonic() + 60
    while what not in said and time.monotonic() < until:
        time.sleep(0.02)
        said += capsys.readouterr().err
    return said


def test_tasks_of_the_current_job_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=Tracker))
    with spark_working("preparing", spark) as report:
        said = until_told(capsys, "preparing")
        assert "preparing: tasks of step 1: 2 of 8 (25%)" in said
        report("days", 3, 4)
        assert "preparing: days: 3 of 4 (75%)" in until_told(capsys, "days")
        time.sleep(0.1)
        assert "tasks" not in capsys.readouterr().err.splitlines()[1:]


def test_a_session_elsewhere_tells_itself(capsys: pytest.CaptureFixture[str]) -> None:
    handlers: list[Any] = []
    spark: Any = SimpleNamespace(
        registerProgressHandler=handlers.append, removeProgressHandler=handlers.remove
    )
    with spark_working("preparing", spark):
        stages = [SimpleNamespace(num_tasks=4, num_completed_tasks=n) for n in (4, 1)]
        handlers[0](stages=stages, inflight_tasks=1, operation_id="a", done=False)
        handlers[0](stages=None, inflight_tasks=0, operation_id="b", done=False)
        handlers[0](stages=stages[:1], inflight_tasks=1, operation_id="b", done=True)
        said = capsys.readouterr().err
    assert "preparing: tasks of step 1: 5 of 8 (62%)" in said
    assert "preparing: tasks of step 2: 4 of 4 (100%)" in said
    assert not handlers
