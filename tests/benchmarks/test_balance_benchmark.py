from __future__ import annotations

import json
import math
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks import balance as module
from benchmarks.__main__ import app
from benchmarks.harness.answers import Answer, load_answer, save_answer
from benchmarks.harness.environments import PeerMissing
from benchmarks.harness.report import print_rows, save_rows
from benchmarks.registry import BenchmarkError, Options, Row, all_benchmarks, find
from cluster_model import Snapshot, synthetic_snapshot


@dataclass
class Stays:
    """A subject that answers with the placement it was given."""

    seconds: float = 1.0
    bound: float = math.nan
    error: Exception | None = None

    def measure(self, snapshot: Snapshot, scratch: Path, options: Options) -> tuple[Answer, int]:
        if self.error:
            raise self.error
        answer = Answer(
            snapshot.replica_broker,
            snapshot.leader,
            self.seconds * snapshot.n_replicas**1.5,
            bytes_lower_bound=self.bound,
        )
        return answer, snapshot.n_replicas


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    tiny = {"brokers": 6, "partitions": 50, "racks": 3}
    clusters: dict[str, Any] = {"S": tiny, "M": tiny, "XL": {**tiny, "partitions": 500}}
    subjects: dict[str, Any] = {"ours": Stays(bound=5.0), "peer": Stays()}
    monkeypatch.setattr(
        module, "cluster_of", lambda size, seed: synthetic_snapshot(**clusters[size])
    )
    monkeypatch.setattr(module, "_SUBJECTS", subjects)
    return subjects


def quiet(**changes: Any) -> Options:
    return Options(log=lambda sentence: None, **changes)


def test_all_subjects_are_judged_alike(small: dict[str, Any]) -> None:
    rows = list(module.balance(["S"], quiet()))
    metrics = {
        who: {row.metric for row in rows if row.subject == who}
        for who in ("before", "ours", "peer")
    }
    assert metrics["ours"] == metrics["peer"]
    assert metrics["before"] < metrics["ours"]
    assert {"seconds", "peak memory", "moves", "bytes moved / lower bound"} < metrics["peer"]


def test_growth_is_reported_between_the_sizes_far_apart(small: dict[str, Any]) -> None:
    rows = list(module.balance(["M", "XL"], quiet()))
    growth = {(row.subject, row.metric): row.value for row in rows if row.size == "M to XL"}
    assert growth["ours", "growth of seconds"] == pytest.approx(1.5)
    assert growth["peer", "growth of peak memory"] == pytest.approx(1.0)
    assert not [row for row in module.balance(["S"], quiet()) if row.unit == "exponent"]


def test_a_peer_that_cannot_be_had_is_left_out(small: dict[str, Any]) -> None:
    small["peer"].error = PeerMissing("no Python")
    reported: list[str] = []
    rows = list(module.balance(["S"], Options(log=reported.append)))
    assert {row.subject for row in rows} == {"before", "ours"}
    assert "peer left out: no Python" in reported


def test_a_failure_does_not_take_the_others_with_it(small: dict[str, Any]) -> None:
    small["ours"].error = BenchmarkError("it broke")
    rows = module.balance(["S"], quiet())
    reported: list[Row] = []
    with pytest.raises(BenchmarkError, match="size S: it broke"):
        reported.extend(rows)
    assert {row.subject for row in reported} == {"before", "peer"}


def test_an_unknown_subject_is_refused(small: dict[str, Any]) -> None:
    with pytest.raises(BenchmarkError, match="no subject 'theirs'; there are ours, peer"):
        list(module.balance(["S"], quiet(subjects=("theirs",))))


def test_benchmarks_are_found_by_name() -> None:
    assert "balance" in all_benchmarks()
    assert find("balance", ["M"]).summary
    with pytest.raises(BenchmarkError, match=r"no benchmark 'weigh'; there are albic-.*, balance"):
        find("weigh", [])
    with pytest.raises(BenchmarkError, match="no size 'XS'; it has S, M, L, XL, XXL"):
        find("balance", ["XS"])


def test_the_command_line_keeps_the_rows(small: dict[str, Any], tmp_path: Path) -> None:
    results = tmp_path / "rows.json"
    command = ["run", "balance", "--size", "S", "--size", "M", "--json", str(results)]
    reported = CliRunner().invoke(app, command)
    assert reported.exit_code == 0, reported.output
    rows = json.loads(results.read_text())
    assert {row["size"] for row in rows} == {"S", "M"}
    assert set(rows[0]) == {"benchmark", "size", "subject", "metric", "value", "unit"}
    assert "worst / mean disk" in reported.output
    assert "balance" in CliRunner().invoke(app, ["list"]).output


def test_rows_measured_before_a_failure_are_kept(small: dict[str, Any], tmp_path: Path) -> None:
    small["peer"].error = BenchmarkError("it broke")
    results = tmp_path / "rows.json"
    reported = CliRunner().invoke(app, ["run", "balance", "--json", str(results)])
    assert isinstance(reported.exception, BenchmarkError)
    assert "ours" in {row["subject"] for row in json.loads(results.read_text())}


def test_results_without_a_folder_are_refused_before_the_run(small: dict[str, Any]) -> None:
    reported = CliRunner().invoke(app, ["run", "balance", "--json", "/no/such/folder/rows.json"])
    assert isinstance(reported.exception, BenchmarkError)
    assert "no folder /no/such/folder" in str(reported.exception)


def test_what_is_not_finite_is_null_in_json(tmp_path: Path) -> None:
    save_rows([Row("b", "S", "s", "m", math.nan, "ratio")], tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text())[0]["value"] is None


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (23.5e12, "bytes", "23.5 TB"),
        (0.0, "bytes", "0 B"),
        (1.0, "yes", "yes"),
        (0.5, "seconds", "0.5 s"),
        (1.0995, "ratio", "1.0995"),
        (1419.0, "replicas", "1,419"),
    ],
)
def test_values_are_shown_in_their_unit(value: float, unit: str, shown: str) -> None:
    console = Console(width=80)
    with console.capture() as captured:
        print_rows([Row("b", "S", "s", "m", value, unit)], console)
    assert shown in captured.get()


def test_a_wide_table_is_whole_in_a_log() -> None:
    printed = StringIO()
    rows = [Row("b", "S", f"s{i}", f"metric{j}", 1e6, "") for i in range(9) for j in range(40)]
    print_rows(rows, Console(width=80, file=printed))
    assert printed.getvalue().count("1,000,000") == 9 * 40


def test_answers_are_read_as_written(tmp_path: Path) -> None:
    s = synthetic_snapshot(brokers=4, partitions=10, racks=4)
    given = Answer(s.replica_broker, s.leader, 1.5, finished=False, bytes_lower_bound=7.0)
    save_answer(given, tmp_path / "answer.npz")
    read = load_answer(tmp_path / "answer.npz", s, "subject")
    assert np.array_equal(read.replica_broker, s.replica_broker)
    assert (read.seconds, read.finished, read.bytes_lower_bound) == (1.5, False, 7.0)


def test_an_answer_that_is_missing_is_reported(tmp_path: Path) -> None:
    s = synthetic_snapshot(brokers=4, partitions=10, racks=4)
    with pytest.raises(BenchmarkError, match="the answer of subject cannot be read"):
        load_answer(tmp_path / "answer.npz", s, "subject")
