"""What an execution had to leave in Kafka is checked until it ends, and delays nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from controller_cases import Ended, Progressed, Stage, even, heavier, skewed

from balancer.execution.errors import ExecutionError


class Leaves:
    """An executor whose first execution leaves a move behind, until that ends."""

    def __init__(self) -> None:
        self.rest: tuple[str, ...] | None = ("a-0 to 4: continues in Kafka",)
        self.looks: list[float] = []
        self.recoveries = 0
        self.executions = 0
        self.fails = False
        self.now: Callable[[], float] = lambda: 0.0

    def execute(self, plan: Any, *, progress: Progressed = None) -> Ended:
        self.executions += 1
        return Ended(state="failed", failed=1)

    def recover(self, *, progress: Progressed = None) -> Ended | None:
        self.recoveries += 1
        return Ended(state="failed", failed=1) if self.executions and self.rest else None

    def left(self) -> tuple[str, ...] | None:
        self.looks.append(self.now())
        if self.fails:
            raise ExecutionError("nobody answers")
        return self.rest

    def stop(self) -> None: ...


def _left(**settings: Any) -> tuple[Stage, Leaves]:
    executor = Leaves()
    stage = Stage(skewed(), {"goal_violations": {"cooldown": "30d"}, **settings}, executor=executor)
    executor.now = lambda: stage.now
    stage.rounds(2)
    assert executor.executions == 1
    assert executor.recoveries == 2
    return stage, executor


def test_it_is_looked_at_ever_more_seldom_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    stage, executor = _left(left_interval="8m")
    stage.rounds(60)
    waits = [b - a for a, b in zip(executor.looks, executor.looks[1:], strict=False)]
    assert waits[:3] == [120, 240, 480]
    assert set(waits[2:]) == {480}
    assert caplog.text.count("left in Kafka: a-0 to 4: continues in Kafka") == 1
    assert stage.controller.state()["left_in_kafka"] == ["a-0 to 4: continues in Kafka"]
    lines = len(caplog.records)
    stage.rounds(60)
    assert len(caplog.records) == lines
    # Looking is all it does: nothing is recovered or executed once more.
    assert (executor.recoveries, executor.executions) == (2, 1)
    executor.rest = ()
    stage.rounds(9)
    over = [
        d for d in stage.controller.decisions if "has ended, and nothing is throttled" in d.reason
    ]
    assert [d.kind for d in over] == ["recovered"]
    assert [e["event"] for e in stage.events].count("recovered") == 2
    assert stage.controller.state()["left_in_kafka"] == []
    looks = len(executor.looks)
    stage.rounds(60)
    assert len(executor.looks) == looks


def test_healing_and_balancing_go_on_beside_it() -> None:
    stage, executor = _left(
        dead_brokers={"heal_after": "1m"}, goal_violations={"cooldown": 0}, settle="5m"
    )
    stage.rounds(10)
    assert executor.executions > 1
    assert executor.looks


def test_looks_alone_do_not_put_off_when_loads_are_judged() -> None:
    executor = Leaves()
    stage = Stage(even(), {"settle": "5m", "interval": 60}, executor=executor)
    executor.executions = 1
    stage.rounds(10)
    looks = len(executor.looks)
    assert looks > 1
    stage.model.cluster = heavier(stage.model.cluster, 1, 3.0)
    stage.rounds(2)
    assert executor.executions == 2


def test_one_that_has_not_ended_is_recovered() -> None:
    stage, executor = _left()
    executor.rest = None
    executor.recover = lambda *, progress=None: _recovered(executor)  # type: ignore[method-assign]
    stage.rounds(3)
    assert executor.recoveries == 3
    assert executor.rest == ()
    looks = len(executor.looks)
    stage.rounds(3)
    # Once more after the recovery, and never again.
    assert len(executor.looks) <= looks + 1


def _recovered(executor: Leaves) -> Ended:
    executor.recoveries += 1
    executor.rest = ()
    return Ended()


def test_a_look_that_fails_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage, executor = _left()
    executor.fails = True
    stage.rounds(60)
    assert len(executor.looks) > 3
    assert caplog.text.count("cannot be checked: nobody answers") == 1
    executor.fails = False
    executor.rest = ()
    stage.rounds(11)
    assert not stage.controller.state()["left_in_kafka"]


def test_who_does_not_act_leaves_it_to_who_does() -> None:
    class Vote:
        acting = True

    vote, executor = Vote(), Leaves()
    stage = Stage(skewed(), {"goal_violations": {"cooldown": "30d"}}, executor=executor, vote=vote)
    stage.rounds(3)
    vote.acting = False
    looks = len(executor.looks)
    stage.rounds(30)
    assert len(executor.looks) == looks
    vote.acting = True
    stage.rounds(3)
    assert executor.recoveries == 3
    assert len(executor.looks) > looks
