"""The benchmark of the server on a tiny cluster: nothing fails, and everything is counted."""

from __future__ import annotations

import pytest

from benchmarks import serve as module
from benchmarks.registry import BenchmarkError, Options, all_benchmarks

QUIET = Options(log=lambda sentence: None, rounds=400)


def test_the_server_stands_mixed_requests_and_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all_benchmarks()["serve"].sizes == ("S", "M")
    monkeypatch.setattr(module, "_CLUSTERS", {"S": (20, 100)})
    for name, value in (("_REQUESTS", 5), ("_CYCLES", 2), ("_LISTENERS", 3)):
        monkeypatch.setattr(module, name, value)
    rows = {(r.subject, r.metric): r.value for r in module.serve(["S"], QUIET)}
    for name in ("state", "load", "partitions", "proposals"):
        assert rows[name, "requests per second"] > 0
        assert rows[name, "p99"] >= rows[name, "p50"] > 0
    # Two turns of two cycles, heard by three.
    assert rows["3 listeners", "events received"] == 2 * 2 * 3
    assert rows["ratio", "cycle, median"] > 0
    mixed = {metric: value for (subject, metric), value in rows.items() if "mixed" in subject}
    assert mixed["requests"] == 400
    assert mixed["answers of 500 and above"] == 0
    assert mixed["rounds of the controller"] > 0
    assert mixed["rounds that failed"] == 0
    assert mixed["execution runs at the end"]
    statuses = {m.removeprefix("status ") for m in mixed if m.startswith("status ")}
    assert {"200", "400", "401", "403", "404", "405", "421", "422"} <= statuses


def test_an_unknown_subject_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="requests, cycles, mixed"):
        list(module.serve(["S"], Options(subjects=("bogus",))))
