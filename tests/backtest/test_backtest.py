"""A whole backtest on Spark: figures, table and picture, independent of the executors."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backtest_cases import HOUR_MS, Handmade, Log, skewed
from pyspark.sql import SparkSession

from balancer import Balancer
from balancer.backtest import (
    BacktestError,
    BacktestResult,
    Configuration,
    backtest,
    draw,
    draw_brokers,
    judge_placements,
    spreads,
    verdicts,
)
from balancer.backtest.progress import Progress
from balancer.controller import Settings
from cluster_model import InputError

HOURS = 28


def configurations() -> list[Configuration]:
    return [
        Configuration("default"),
        Configuration(
            "careful", Balancer("default"), Settings(max_moves=5), statistic="peak", span=6 * 3600.0
        ),
    ]


def handmade(spark: SparkSession, tasks: int = 3) -> Handmade:
    """Topics of their own rhythms, replicas moved by the history itself, an hour lost."""
    s = skewed(topics=4, utilization=0.5)
    later = Balancer("default").propose(s).final_snapshot()
    log = Log({0: s, 20 * HOUR_MS: later})
    return Handmade(spark, s, log, HOURS, tasks=tasks, missing=(7,))


def replayed(
    spark: SparkSession, tasks: int = 3, progress: Progress | None = None
) -> BacktestResult:
    return backtest(
        handmade(spark, tasks),
        configurations(),
        first_ms=0,
        end_ms=HOURS * HOUR_MS,
        price=0.01,
        progress=progress,
    )


@pytest.fixture(scope="module")
def said() -> list[tuple[str, int, int]]:
    """What the replay of `result` reported of its progress."""
    return []


@pytest.fixture(scope="module")
def result(spark: SparkSession, said: list[tuple[str, int, int]]) -> BacktestResult:
    return replayed(spark, progress=lambda *of: said.append(of))


def test_it_tells_what_each_configuration_would_have_done(result: BacktestResult) -> None:
    was, default, careful = result.totals
    assert result.configurations == ("history", "default", "careful")
    assert was.hours == default.hours == HOURS - 1
    assert (was.plans, was.bytes_moved) == (0, 0.0)
    assert default.plans > 0
    assert default.bytes_moved > careful.bytes_moved > 0
    assert default.overloaded_hours < was.overloaded_hours
    assert default.goals_violated < was.goals_violated
    assert default.bytes_a_day == pytest.approx(default.bytes_moved * 24 / HOURS)
    assert default.cost_a_day == pytest.approx(0.01 * default.bytes_a_day / 1e9)
    assert sum(result.decisions("default").values()) >= HOURS


def test_what_was_is_judged_by_where_replicas_were(result: BacktestResult) -> None:
    figures = {w.start_ms // HOUR_MS: w.figures for w in result.by_name[0]["history"]}
    assert 7 not in figures
    # The history's own rebalance.
    assert figures[20].violated_hard < figures[19].violated_hard


def test_days_add_up(result: BacktestResult) -> None:
    for total in result.totals:
        days = [t for _, t in result.days() if t.configuration == total.configuration]
        assert len(days) == 2
        assert sum(d.overloaded_hours for d in days) == pytest.approx(total.overloaded_hours)
        assert sum(d.bytes_moved for d in days) == pytest.approx(total.bytes_moved)
        assert max(d.worst for d in days) == total.worst


def test_the_table_is_written_and_the_picture_drawn(result: BacktestResult, tmp_path: Path) -> None:
    result.save(tmp_path / "found.json")
    result.save(tmp_path / "found.csv")
    reported = json.loads((tmp_path / "found.json").read_text())
    assert [c["configuration"] for c in reported["configurations"]] == list(result.configurations)
    assert {p["configuration"] for p in reported["plans"]} == {"default", "careful"}
    with (tmp_path / "found.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(result.windows) == 3 * (HOURS - 1)
    for name in ("one.svg", "two.svg", "one.png"):
        draw(result, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "one.svg").read_text()
    assert "careful" in drawn
    with pytest.raises(BacktestError, match="format 'docx' found"):
        draw(result, tmp_path / "one.docx")


def test_progress_is_told_in_windows(
    result: BacktestResult, said: list[tuple[str, int, int]]
) -> None:
    for phase, total in (("replaying windows", 2 * HOURS), ("judging windows", HOURS)):
        done = [count for of, count, _ in said if of == phase]
        assert {whole for of, _, whole in said if of == phase} == {total}
        assert done == sorted(done)
        # an hour is missing, and datagrams may be lost
        assert 0.5 * total < done[-1] <= total


def test_the_moves_are_those_of_the_plans(result: BacktestResult, tmp_path: Path) -> None:
    moves = list(result.moves())
    for total in result.totals[1:]:
        of = [m for m in moves if m.configuration == total.configuration]
        assert sum(m.copied for m in of) == pytest.approx(total.bytes_moved)
        # a plan of the last hour has not ended
        assert 0 < len(of) <= total.actions
        copies = [m for m in of if m.copied > 0]
        assert all(m.source != m.destination for m in copies)
        assert all(m.began_ms < m.ended_ms for m in copies)
    result.save_moves(tmp_path / "moves.csv")
    with (tmp_path / "moves.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(moves) > 0


def test_copying_is_load_of_the_network_while_it_lasts(result: BacktestResult) -> None:
    hour = HOUR_MS / 1000
    for total in result.totals:
        windows = result.by_name[0][total.configuration]
        copied = sum(w.figures.copying * hour for w in windows)
        # of the hour without loads nothing is judged
        assert copied <= total.bytes_moved * (1 + 1e-9)
        assert (copied > 0) == (total.bytes_moved > 0)


def test_a_heat_map_has_every_broker_and_hour(result: BacktestResult, tmp_path: Path) -> None:
    assert tuple(result.shares) == result.configurations
    for name, of in result.shares.items():
        assert of.share.shape == (6, HOURS)
        assert np.isnan(of.share[:, 7]).all()
        worst = {w.start_ms // HOUR_MS: w.figures.worst for w in result.by_name[0][name]}
        for column, share in worst.items():
            assert of.share[:, column].max() == pytest.approx(share)
    for name in ("one.svg", "two.svg"):
        draw_brokers(result, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "careful" in (tmp_path / "one.svg").read_text()


@pytest.mark.soak
def test_several_seeds_show_the_spread(spark: SparkSession) -> None:
    found = backtest(handmade(spark), configurations()[:1], first_ms=0, end_ms=8 * HOUR_MS, seeds=2)
    assert found.configurations == ("history", "default", "default (seed 1)")
    assert found.runs == {"default": ("default", "default (seed 1)")}
    values = [t.overloaded_hours for t in found.totals[1:]]
    of = spreads(found)["default"]["overloaded_hours"]
    assert of == (sum(values) / 2, min(values), max(values))
    (verdict,) = verdicts(found)
    assert {verdict.better, verdict.other} == {"history", "default"}


@pytest.mark.soak
def test_it_is_the_same_in_whatever_parts(spark: SparkSession, result: BacktestResult) -> None:
    width = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "13")
        other = replayed(spark, tasks=5)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(width))
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert other.to_json() == result.to_json()
    assert other.to_csv() == result.to_csv()
    assert list(other.moves()) == list(result.moves())
    for name, of in result.shares.items():
        np.testing.assert_array_equal(of.share, other.shares[name].share)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first_ms": 5, "end_ms": 6}, "at least one window of 3600 s expected"),
        ({"first_ms": 99 * HOUR_MS, "end_ms": 100 * HOUR_MS}, "no loads found"),
        ({"configurations": []}, "configurations none found"),
        ({"configurations": [Configuration("a"), Configuration("a")]}, "each name once"),
        ({"price": -1.0}, "price -1.0 found"),
        ({"seeds": 0}, "0 seeds found, at least 1"),
        ({"limit": 0.0}, "limit 0.0 found, a share above 0"),
        ({"goals": {"goals": ["BrokerSetAwareness"]}}, "the snapshot has no broker sets"),
    ],
)
def test_what_cannot_be_done_is_reported_in_one_sentence(
    spark: SparkSession, change: dict[str, object], said: str
) -> None:
    asked: dict[str, Any] = {
        "first_ms": 0,
        "end_ms": HOURS * HOUR_MS,
        "configurations": configurations()[:1],
    }
    with pytest.raises(InputError, match=said):
        backtest(handmade(spark), **{**asked, **change})


def test_placements_are_judged_by_the_loads_that_were(
    spark: SparkSession, result: BacktestResult
) -> None:
    history = handmade(spark)
    start = history.snapshot
    better = Balancer("default").propose(start).final_snapshot()
    asked: dict[str, Any] = {"first_ms": 0, "end_ms": 6 * HOUR_MS}
    found = judge_placements(history, {"start": start, "better": better}, **asked)
    was, same, after = found.totals
    assert same._replace(configuration="history") == was
    assert after.overloaded_hours < same.overloaded_hours
    other = {"other": skewed(topics=5)}
    with pytest.raises(BacktestError, match="partition topic-4-0 found"):
        judge_placements(history, other, **asked)


def test_what_is_not_known_is_as_the_rest_of_its_topic(spark: SparkSession) -> None:
    s = skewed(topics=4, utilization=0.5)
    leader, follower = s.leader_load.copy(), s.follower_load.copy()
    for topic in range(len(s.topics)):
        of = s.partition_topic == topic
        leader[of], follower[of] = leader[of].mean(axis=0), follower[of].mean(axis=0)
    s = replace(s, leader_load=leader, follower_load=follower)
    first, count = np.unique(s.partition_topic, return_index=True, return_counts=True)[1:]
    silent = tuple(first[count > 1].tolist())
    asked: dict[str, Any] = {"first_ms": 0, "end_ms": 6 * HOUR_MS}
    whole, part = (
        judge_placements(Handmade(spark, s, Log({0: s}), 6, unknown=unknown), {}, **asked)
        for unknown in ((), silent)
    )
    assert len(silent) > 1
    for of_all, of_some in zip(whole.windows, part.windows, strict=True):
        assert of_some.figures.known == pytest.approx(1 - len(silent) / s.n_partitions)
        found = of_some.figures._replace(known=1.0)
        assert tuple(found) == pytest.approx(tuple(of_all.figures))
