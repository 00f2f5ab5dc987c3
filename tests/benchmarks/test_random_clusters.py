from __future__ import annotations

from typing import Any

import pytest

from balancer.problem.operations import BUILT_IN
from balancer.verification.report import CheckReport, Fault
from benchmarks import random_clusters as module
from benchmarks.registry import BenchmarkError, Options, all_benchmarks

QUIET = Options(log=lambda sentence: None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLUSTERS", {"S": 1})
    monkeypatch.setattr(module, "_TINY", {"S": 4})


def test_it_is_listed() -> None:
    assert all_benchmarks()["random-clusters"].sizes == ("S", "M", "L")


def test_cases_are_the_same_again_and_cover_all_operations() -> None:
    first, second = ([module.random_case(seed) for seed in range(7)] for _ in range(2))
    assert [c.operation for c in first] == [c.operation for c in second]
    assert all(a.snapshot == b.snapshot for a, b in zip(first, second, strict=True))
    assert {c.operation.kind for c in first} == set(BUILT_IN)


@pytest.mark.slow
def test_rows_are_reported_where_nothing_is_found(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "check_plan", lambda *a: CheckReport((), ()))
    rows = {row.metric: row.value for row in module.random_clusters(["S"], QUIET)}
    assert rows["clusters"] == 1
    assert rows["plans"] + rows["refused operations"] == 1
    assert rows["violations"] == rows["mismatches"] == 0
    assert 0 <= rows["unmet goals all proven"] <= 1
    # Some have too many placements.
    assert 2 <= rows["plans compared with all placements"] <= rows["tiny clusters"] == 4
    assert rows["false statements"] == 0


@pytest.mark.slow
def test_findings_are_reported_and_fail_the_run(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = CheckReport((Fault("racks", "too close", 3),), (Fault("cost", "off"),))
    monkeypatch.setattr(module, "check_plan", lambda *a: found)
    monkeypatch.setattr(module, "false_statements", lambda *a: ["cost_bound 3, but 2"])
    reported: list[str] = []
    rows: dict[str, Any] = {}
    run = module.random_clusters(["S"], Options(log=reported.append))
    with pytest.raises(BenchmarkError, match="racks") as caught:
        rows.update((row.metric, row.value) for row in run)
    assert "cost_bound" in str(caught.value)
    assert rows["violations"] == rows["plans"]
    # figures of steps that cannot be done are no figures
    assert rows["mismatches"] == 0
    assert "seed 0" in reported[0]
    assert len(reported) == 1 + rows["false statements"]
    assert all("tiny cluster, seed " in sentence for sentence in reported[1:])


def test_a_crash_is_a_finding(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: module.RandomCase) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(module.RandomCase, "propose", fail)
    monkeypatch.setattr(module, "_TINY", {"S": 0})
    with pytest.raises(BenchmarkError, match="RuntimeError"):
        list(module.random_clusters(["S"], QUIET))
