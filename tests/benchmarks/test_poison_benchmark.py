"""A short run of the poison benchmark: a false report moves nothing, a real shift is balanced."""

from __future__ import annotations

import pytest

from balancer import Balancer
from benchmarks.poison import Poison, PoisonCase, run_case, warmed_up
from benchmarks.registry import Options, find
from cluster_model import Snapshot, synthetic_snapshot


@pytest.fixture(scope="module")
def even() -> Snapshot:
    skewed = synthetic_snapshot(brokers=9, partitions=90, racks=3, utilization=0.3)
    return Balancer("default").propose(skewed).final_snapshot()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "kind"),
    [("bytes_in", "x 20"), ("bytes_in", "x 5"), ("size", "x 20"), ("bytes_out", "1e18")],
)
def test_one_bad_reporter_moves_nothing(even: Snapshot, metric: str, kind: str) -> None:
    reported = run_case(*warmed_up(even, 0), PoisonCase(kind, (8,), Poison(metric, "", kind, (8,))))
    assert reported.moved == 0
    assert "distrusted_reporters" in reported.findings


@pytest.mark.slow
def test_a_real_shift_of_the_same_size_is_balanced(even: Snapshot) -> None:
    case = PoisonCase("x 5", (8,), shift=(("bytes_in", "bytes_out", "size"), 5.0))
    reported = run_case(*warmed_up(even, 0), case)
    assert reported.moved > 0
    assert reported.after < reported.before


def test_it_is_a_benchmark() -> None:
    chosen = find("poison", ["S"])
    rows = list(chosen.run(["S"], Options(subjects=("nothing wrong",), log=lambda _: None)))
    assert [(row.metric, row.value) for row in rows[:-1]] == [("nothing wrong: bytes moved", 0.0)]
    assert [row.metric for row in rows[-1:]] == ["seconds"]


@pytest.mark.soak
def test_cases_in_processes_are_what_they_are_one_after_the_other(even: Snapshot) -> None:
    options = Options(subjects=("bytes_in", "real shift, all"), rounds=1, log=lambda _: None)
    first, again = (list(find("poison", ["S"]).run(["S"], options)) for _ in range(2))
    assert first[:-1] == again[:-1]
    assert {row.subject for row in first[:-1]} == set(options.subjects)
