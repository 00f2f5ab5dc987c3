"""The benchmark of the search's parameters sweeps the requested values."""

from __future__ import annotations

from typing import Any

import pytest

from balancer.search.parameters import SearchParameters
from benchmarks import search_parameters
from benchmarks.registry import BenchmarkError, Options, Row, find


def rows(monkeypatch: pytest.MonkeyPatch, *subjects: str) -> list[Row]:
    small: dict[str, Any] = {"brokers": 6, "partitions": 120, "racks": 3}
    monkeypatch.setattr(search_parameters, "_CLUSTERS", {"S": small})
    options = Options(subjects=subjects, log=lambda sentence: None)
    return list(find("search-parameters", ["S"]).run(["S"], options))


def test_a_parameter_is_planned_with_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows(monkeypatch, "passes=1,3", "widening=[1, 4, 16],[1]", "stall_gain")
    assert list(dict.fromkeys((row.size, row.subject) for row in found)) == [
        ("S, passes", "passes=1"),
        ("S, passes", "passes=3 (default)"),
        ("S, widening", "widening=(1, 4, 16) (default)"),
        ("S, widening", "widening=(1,)"),
        *(("S, stall_gain", f"stall_gain={share}") for share in (0.00025, 0.0005)),
        ("S, stall_gain", "stall_gain=0.001 (default)"),
        *(("S, stall_gain", f"stall_gain={share}") for share in (0.002, 0.004)),
    ]
    metrics = {row.metric for row in found}
    assert {"seconds", "moves", "bytes moved", "goals unmet", "penalty of tier 1"} <= metrics


def test_every_number_is_swept_by_default() -> None:
    swept = dict(search_parameters._sweep(name) for name in search_parameters._numbers())
    left = {name for name in SearchParameters.model_fields if "annealing" not in name} - {*swept}
    assert left == {"widening", "destination_parcels"}
    assert all(len(values) > 1 for values in swept.values())


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("speed", "no search parameter 'speed'; there are passes, "),
        ("passes=0", "search parameter passes: '0' found, values for it expected"),
        ("passes=", "search parameter passes: '' found, values for it expected"),
        ("passes=[", "search parameter passes: '\\[' found, values for it expected"),
        ("widening", "search parameter widening: values expected, like widening=\\[1\\]"),
    ],
)
def test_a_wrong_subject(subject: str, said: str) -> None:
    with pytest.raises(BenchmarkError, match=said):
        list(find("search-parameters", []).run(["S"], Options(subjects=(subject,))))
