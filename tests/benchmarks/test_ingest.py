from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fuzz as fuzz_module
from benchmarks import ingest as module
from benchmarks.registry import BenchmarkError, Options, all_benchmarks
from metrics_reporter import decode_batch

QUIET = Options(log=lambda sentence: None)
TINY: dict[str, Any] = {"brokers": 6, "partitions": 50, "racks": 3}


def test_they_are_listed() -> None:
    assert all_benchmarks()["ingest"].sizes == ("S", "M", "L")
    assert all_benchmarks()["fuzz"].sizes == ("S", "M", "L")


@pytest.mark.parametrize(
    ("format", "per_report"),
    [
        # sizes and rates; rates and sizes of leaders; 54 of brokers, 7 of topics, sizes
        ("counterpoise", 150 + 2 * 50 + 6),
        ("automq", 3 * 50 + 4 * 6),
        ("cruise-control", None),
    ],
)
def test_a_model_learns_the_rates_from_each_format(
    format: Any, per_report: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLUSTERS", {"S": TINY})
    rows = {metric: value for metric, value, _ in module.measure("S", format, 1)}
    assert rows["values per second"] > 0
    if per_report is None:
        assert rows["values"] == rows["messages"] > 4 * (54 * 6 + 150)
    else:
        assert rows["values"] == 4 * per_report


def test_a_process_of_its_own_answers(tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"
    command = [sys.executable, "-m", "benchmarks.ingest", "S", "automq", "0", str(answer)]
    subprocess.run(command, check=True, cwd=Path(module.__file__).parents[1])
    assert {metric for metric, _, _ in json.loads(answer.read_text())} >= {"values per second"}


def test_an_unknown_subject_is_one_sentence() -> None:
    with pytest.raises(BenchmarkError, match="no subject 'x'; there are counterpoise,"):
        list(module.ingest(["S"], Options(subjects=("x",), log=lambda s: None)))


def test_fuzz_tells_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_module, "decode_batch", lambda m, f=None: decode_batch(m[1:], f))
    options = replace(QUIET, subjects=("messages",))
    with pytest.raises(BenchmarkError, match=r"input 0: .*fuzz of None: \(\d+.*messages:0\)"):
        list(fuzz_module.fuzz(["S"], options))
