"""Writes backtests and advice as tables for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from balancer.backtest.advice import Advice, date_of
from balancer.backtest.result import BacktestResult

if TYPE_CHECKING:
    from cluster_model.history.tables import OutputTable, TableWriter


class Tables(NamedTuple):
    """The tables of backtests and of advice."""

    totals: OutputTable
    windows: OutputTable
    moves: OutputTable
    configurations: OutputTable
    growth: OutputTable
    sizes: OutputTable


@cache
def tables() -> Tables:
    """The tables, with the types that Spark has."""
    from pyspark.sql import types as t

    from cluster_model.history.tables import (
        DOUBLE,
        FLAG,
        LONG,
        RUN_COLUMNS,
        TEXT,
        TIME,
        OutputTable,
        column,
    )

    of_backtest = [
        *RUN_COLUMNS,
        column("first", TIME, "beginning of the backtest (UTC)"),
        column("end", TIME, "its end (UTC)"),
        column("configuration", TEXT, "name of the configuration; history: what happened"),
    ]
    totals = OutputTable(
        "backtest_totals",
        "A configuration of a backtest.",
        t.StructType(
            [
                *of_backtest,
                column("limit", DOUBLE, "load / capacity above which a broker is overloaded"),
                column("hours", DOUBLE, "hours with known loads"),
                column("hours_violated", DOUBLE, "hours in which a goal was not met"),
                column("hours_violated_hard", DOUBLE, "hours in which a hard goal was not met"),
                column("goals_violated", DOUBLE, "goals not met, mean over the windows"),
                column("balancedness", DOUBLE, "0 to 100, mean over the windows"),
                column("worst", DOUBLE, "load / capacity of the most loaded broker, maximum"),
                column("worst_broker", LONG, "its id; -1 for none"),
                column("worst_resource", TEXT, "its most loaded resource"),
                column("worst_at", TIME, "start of its window (UTC)"),
                column("worst_mean", DOUBLE, "load / capacity of the most loaded broker, mean"),
                column("overloaded_hours", DOUBLE, "broker-hours above the limit"),
                column("plans", LONG, "plans started"),
                column("actions", LONG, "their steps"),
                column("bytes_moved", DOUBLE, "bytes copied"),
                column("thrash", DOUBLE, "share of these of partitions moved in the 12 h before"),
                column("bytes_a_day", DOUBLE, "bytes copied per day"),
                column("cost_a_day", DOUBLE, "their cost at the price given"),
            ]
        ),
    )
    windows = OutputTable(
        "backtest_windows",
        "A window of a configuration of a backtest.",
        t.StructType(
            [
                *of_backtest,
                column("start", TIME, "start of the window (UTC)"),
                column("known", DOUBLE, "share of the loads that is known"),
                column("violated", LONG, "goals not met"),
                column("violated_hard", LONG, "hard goals not met"),
                column("cells", LONG, "items of goals that are not met"),
                column("balancedness", DOUBLE, "0 to 100"),
                column("worst", DOUBLE, "load / capacity of the most loaded broker"),
                column("worst_broker", LONG, "its id"),
                column("worst_resource", TEXT, "its most loaded resource"),
                column("uneven", DOUBLE, "largest load as a multiple of the fair share"),
                column("overloaded", LONG, "brokers above the limit"),
                column("copying", DOUBLE, "B/s that plans copied"),
            ]
        ),
    )
    moves = OutputTable(
        "backtest_moves",
        "A step of a plan of a configuration.",
        t.StructType(
            [
                *of_backtest,
                column("number", LONG, "place in the order of the configuration's steps"),
                column("began", TIME, "when the plan's copying began (UTC)"),
                column("ended", TIME, "when it ended (UTC)"),
                column("kind", TEXT, "as in plans, such as move or leadership"),
                column("topic", TEXT, "name of the topic"),
                column("partition", LONG, "its number"),
                column("source", LONG, "id of the broker; null for none"),
                column("destination", LONG, "id of the broker; null for none"),
                column("copied_bytes", DOUBLE, "bytes copied"),
                column("undone", FLAG, "whether the plan was stopped, and the step had no effect"),
            ]
        ),
    )
    of_advice = [
        *RUN_COLUMNS,
        column("at", TIME, "end of the history that the advice is from (UTC)"),
    ]
    configurations = OutputTable(
        "advice_configurations",
        "A configuration that advice compares.",
        t.StructType(
            [
                *of_advice,
                column("configuration", TEXT, "its name; history: what happened"),
                column("recommended", FLAG, "whether it is the recommended one"),
                column("overloaded_hours", DOUBLE, "broker-hours above the limit"),
                column("avoided_hours", DOUBLE, "how many fewer than what happened"),
                column("bytes_moved", DOUBLE, "bytes copied"),
                column("avoided_hours_per_tb", DOUBLE, "broker-hours avoided per TB copied"),
            ]
        ),
    )
    growth = OutputTable(
        "advice_growth",
        "A resource, how it grows and when it runs out.",
        t.StructType(
            [
                *of_advice,
                column("resource", TEXT, "name of the resource"),
                column("unit", TEXT, "unit of loads and capacities"),
                column("capacity", DOUBLE, "of all living brokers, in `unit`"),
                column("load", DOUBLE, "of the busiest hour of a usual week, now, in `unit`"),
                column("growth_per_day", DOUBLE, "growth of that load in a day, in `unit`"),
                column("growth_per_day_low", DOUBLE, "lower end of its interval"),
                column("growth_per_day_high", DOUBLE, "upper end of its interval"),
                column("load_ahead", DOUBLE, "that load after the time asked for, in `unit`"),
                column("load_ahead_high", DOUBLE, "upper end of its interval"),
                column(
                    "runs_out", TEXT, "date on which it exceeds the limit; null for not foreseen"
                ),
                column("runs_out_earliest", TEXT, "beginning of the date's interval"),
                column("runs_out_latest", TEXT, "end of the date's interval"),
            ]
        ),
    )
    sizes = OutputTable(
        "advice_sizes",
        "A number of brokers needed later.",
        t.StructType(
            [
                *of_advice,
                column("loads", TEXT, "expected, or high: the upper end of the interval of growth"),
                column("headroom", DOUBLE, "share of hard limits kept free for the largest rack"),
                column("brokers_now", LONG, "living brokers"),
                column("brokers", LONG, "how many are needed; null if no number was found"),
                column("finding", TEXT, "in words"),
            ]
        ),
    )
    return Tables(totals, windows, moves, configurations, growth, sizes)


def write_backtest(writer: TableWriter, result: BacktestResult, key: Mapping[str, Any]) -> None:
    """Write the tables `backtest_totals`, `backtest_windows` and `backtest_moves`.

    Parameters
    ----------
    writer
        Where to.
    result
        The backtest.
    key
        What it was made from, with the ``cluster``.
    """
    same = {
        "cluster": key["cluster"],
        "first": _time(result.first_ms),
        "end": _time(result.end_ms),
    }
    totals = []
    for of in result.totals:
        row = of._asdict()
        at_ms = row.pop("worst_ms")
        totals.append({**same, "limit": result.limit, "worst_at": _time(at_ms), **row})
    windows = [
        {**same, "configuration": name, "start": _time(start_ms), **figures._asdict()}
        for name, start_ms, figures in result.windows
    ]
    moves: list[dict[str, Any]] = []
    counted: dict[str, int] = {}
    for move in result.moves():
        row = move._asdict()
        number = counted[move.configuration] = counted.get(move.configuration, -1) + 1
        began, ended, copied = (row.pop(name) for name in ("began_ms", "ended_ms", "copied"))
        row |= {"began": _time(began), "ended": _time(ended), "copied_bytes": copied}
        moves.append({**same, "number": number, **row})
    for table, rows in (
        (tables().totals, totals),
        (tables().windows, windows),
        (tables().moves, moves),
    ):
        writer.write(table, key, rows)


def write_advice(writer: TableWriter, advice: Advice, key: Mapping[str, Any]) -> None:
    """Write the tables of advice, and those of its backtest.

    Parameters
    ----------
    writer, key
        As for :func:`write_backtest`.
    advice
        The advice.
    """
    from cluster_model.history.tables import unit_of

    same = {"cluster": key["cluster"], "at": _time(advice.end_ms)}
    tried: list[dict[str, Any]] = [
        {
            **same,
            "configuration": of.configuration,
            "recommended": of.configuration == advice.recommended,
            "overloaded_hours": of.overloaded_hours,
            "avoided_hours": of.avoided,
            "bytes_moved": of.bytes_moved,
            "avoided_hours_per_tb": of.avoided_per_tb,
        }
        for of in advice.tried
    ]
    growth: list[dict[str, Any]] = []
    for each in advice.growth:
        row = asdict(each)
        dates = {
            "runs_out": row.pop("days"),
            "runs_out_earliest": row.pop("days_low"),
            "runs_out_latest": row.pop("days_high"),
        }
        row |= {f"growth_per_day{end}": row.pop(f"growth{end}") for end in ("", "_low", "_high")}
        row |= {name: date_of(advice.end_ms, days) for name, days in dates.items()}
        growth.append({**same, "unit": unit_of(each.resource), **row})
    sizes = [{**same, **of._asdict(), "finding": of.text} for of in advice.sizes]
    for row in sizes:
        row.pop("text")
    writer.write(tables().configurations, key, tried)
    writer.write(tables().growth, key, growth)
    writer.write(tables().sizes, key, sizes)
    write_backtest(writer, advice.backtest, key)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
