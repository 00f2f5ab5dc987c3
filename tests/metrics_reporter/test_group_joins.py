"""A join that has ended is completed by the next poll, unless the group has gone on since."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from metrics_reporter.group_joins import complete_joins


class Coordinator:
    """The part of kafka-python's that joins; a join is of a new generation."""

    def __init__(self) -> None:
        self.requested, self.taken = 0, list[str]()
        self._generation: object = None
        self.joins = 0

    def request_rejoin(self) -> None:
        self.requested += 1

    async def _do_join_and_sync_async(self) -> str:
        self.joins += 1
        self._generation = object()
        return f"partitions {self.joins}"

    async def _on_join_complete_async(self, *about: str) -> None:
        self.taken += about


def joined(coordinator: Coordinator) -> str:
    return asyncio.run(coordinator._do_join_and_sync_async())


def of_consumer(coordinator: Coordinator, session: float) -> Coordinator:
    complete_joins(SimpleNamespace(_coordinator=coordinator), session)
    return coordinator


def test_what_a_join_has_brought_waits_for_the_next_poll() -> None:
    c = of_consumer(Coordinator(), 60.0)
    assert joined(c) == joined(c) == joined(c) == "partitions 1"
    # that poll is to come whatever began the join
    assert c.requested == c.joins == 1
    asyncio.run(c._on_join_complete_async("partitions 1"))
    assert c.taken == ["partitions 1"]
    assert joined(c) == "partitions 2"


@pytest.mark.parametrize("old", [True, False])
def test_a_member_that_the_group_has_left_behind_joins_again(old: bool) -> None:
    c = of_consumer(Coordinator(), 0.0 if old else 60.0)
    assert joined(c) == "partitions 1"
    if not old:
        c._generation = object()
    assert joined(c) == "partitions 2"


def test_a_client_that_joins_in_another_way_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complete_joins(SimpleNamespace(_coordinator=SimpleNamespace()), 1.0)
    assert "poll without long pauses" in caplog.text
