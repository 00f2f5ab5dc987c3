from __future__ import annotations

import pytest

from balancer.execution import throttle


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster in memory needs no time to pass changes on."""
    monkeypatch.setattr(throttle, "_PAUSE", 0.0)
