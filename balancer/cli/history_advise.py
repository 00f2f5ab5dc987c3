"""``counterpoise history advise``: what months of metrics recommend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from balancer.cli.history_backtest import known_range, moment
from balancer.cli.history_options import (
    Cluster,
    Master,
    MetadataPath,
    Properties,
    TableFormat,
    Tables,
    start_spark,
    tables_in,
)
from balancer.cli.layout import Rows
from balancer.cli.spark_progress import spark_working
from balancer.cli.terminal import AsJson, CommandError, check_outputs, out, print_json, write
from metrics_reporter.documents import json_text
from metrics_reporter.quantities import amount, duration, percent, rounded

if TYPE_CHECKING:
    from balancer.backtest import Advice

TRIED, JUDGED, SIZE = "What to try", "How to judge", "How many brokers"


def advise(
    prepared: Annotated[
        str,
        typer.Argument(
            metavar="PREPARED",
            help="Directory that `history prepare` wrote.",
            show_default=False,
        ),
    ],
    metadata: MetadataPath,
    configurations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=TRIED,
            help="Configurations by name, as for `history backtest`, instead of goal lists.",
        ),
    ] = None,
    goals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE|FILE",
            rich_help_panel=TRIED,
            help="A goal list to try; repeatable. By default `default` and `cruise-control`.",
        ),
    ] = None,
    thresholds: Annotated[
        list[float] | None,
        typer.Option(
            "--threshold",
            metavar="NUMBER",
            rich_help_panel=TRIED,
            help="Also try each goal list with this threshold of its distribution goals: the "
            "largest load as a multiple of the fair share; repeatable. By default 1.3.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, metavar="NUMBER", rich_help_panel=TRIED, help="Seeds of each configuration."
        ),
    ] = 1,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start, such as 2025-03-01 (UTC unless the time has a zone); by default the "
            "beginning.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="End; by default the end of the last whole window."
        ),
    ] = None,
    judge_by: Annotated[
        str,
        typer.Option(
            metavar="PROFILE|FILE",
            rich_help_panel=JUDGED,
            help="Goals that configurations are judged by, and whose hard ones decide how many "
            "brokers are enough.",
        ),
    ] = "default",
    limit: Annotated[
        float,
        typer.Option(
            rich_help_panel=JUDGED,
            help="Share of a capacity above which a broker is overloaded, and a resource has run "
            "out.",
        ),
    ] = 0.8,
    ahead: Annotated[
        str,
        typer.Option(
            metavar="SPAN", rich_help_panel=SIZE, help="When the brokers are needed, such as 91d."
        ),
    ] = "91d",
    max_seconds: Annotated[
        float,
        typer.Option(
            min=0.001, rich_help_panel=SIZE, help="Limit on each search for a number of brokers."
        ),
    ] = 60.0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File (JSON) for all advice and the backtest."),
    ] = None,
    tables: Tables = None,
    table_format: TableFormat = "delta",
    cluster: Cluster = "default",
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Recommend goals and thresholds, and tell when resources run out and how many brokers to have.

    Goal lists are compared by a backtest: of those that avoid nearly the most overload, the one
    that copies least is recommended.

    Example: `counterpoise history advise prepared --metadata metadata-log --from 2025-02-01`
    """
    inputs = {
        "PREPARED": Path(prepared),
        "--metadata": metadata,
        "--configurations": configurations,
    }
    check_outputs(inputs, {"--output": output})
    if configurations is not None and (goals or thresholds):
        raise CommandError(
            "--configurations: found together with --goals or --threshold, one way expected"
        )
    first_ms, end_ms = moment("--from", since), moment("--to", until)
    days = _days(ahead)
    from balancer import backtest as backtests
    from goals import load_goals

    fixed = () if configurations is None else backtests.load_configurations(configurations)
    lists = goals or ["default", "cruise-control"]
    for name in lists:
        load_goals(name)
    spark = start_spark(master, conf, delta=True)
    writer = tables_in(spark, tables, table_format)
    from cluster_model.history.history import History
    from cluster_model.history.metadata import load_metadata
    from cluster_model.history.read import sentences

    history = History.open(spark, prepared, load_metadata(metadata, cluster=cluster))
    with spark_working("advice", spark) as report, sentences(f"prepared history {prepared}"):
        first_ms, end_ms = known_range(history, first_ms, end_ms)
        base = history.metadata.at(end_ms - 1)
        found = backtests.advise(
            history,
            fixed or backtests.candidates(lists, thresholds or [1.3], base),
            first_ms=first_ms,
            end_ms=end_ms,
            goals=judge_by,
            limit=limit,
            seeds=seeds,
            parameters=backtests.AdviceParameters(ahead=days, seconds=max_seconds),
            progress=report,
        )
        if writer is not None:
            from balancer.backtest.tables import write_advice

            key = {
                "cluster": cluster,
                "first_ms": first_ms,
                "end_ms": end_ms,
                "configurations": found.backtest.configurations,
                "judge_by": judge_by,
                "limit": limit,
                "ahead": days,
                "seeds": seeds,
            }
            write_advice(writer, found, key)
    if output is not None:
        write(output, json_text(found.document(), indent=1))
    if json:
        print_json(found.document())
        return
    out().print(tried_table(found))
    if found.growth:
        out().print(growth_table(found))
    for sentence in backtests.sentences(found):
        out().print(sentence, markup=False)


def tried_table(advice: Advice) -> Rows:
    """What each configuration would have avoided, and for how much."""
    over = f"broker-hours above {percent(advice.backtest.limit)}>"
    table = Rows("configuration", over, "avoided>", "copied>", "avoided per TB>")
    for of in advice.tried:
        per_tb = "-" if of.avoided_per_tb is None else rounded(of.avoided_per_tb)
        hours = (rounded(of.overloaded_hours), rounded(of.avoided))
        table.add(escape(of.configuration), *hours, amount(of.bytes_moved), per_tb)
    return table


def growth_table(advice: Advice) -> Rows:
    """The load of each resource now and later, and when it runs out."""
    from balancer.backtest import date_of

    table = Rows("resource", "now>", "a day>", "later>", "runs out>", "earliest>", "latest>")
    for of in advice.growth:
        shares = (of.load, of.growth, of.load_ahead)
        cells = (f"{x / of.capacity:.2%}" if of.capacity > 0 else "-" for x in shares)
        days = (of.days, of.days_low, of.days_high)
        dates = (date_of(advice.end_ms, x) or "-" for x in days)
        table.add(escape(of.resource), *cells, *dates)
    return table


def _days(text: str) -> float:
    try:
        seconds = duration(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3650 * 86_400:
        raise CommandError(f"--ahead: {text!r} found, a time up to ten years like 91d expected")
    return seconds / 86_400
