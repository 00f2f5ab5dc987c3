"""``counterpoise history backtest``: replays the past with other configurations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

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
from balancer.cli.terminal import (
    AsJson,
    CommandError,
    check_outputs,
    out,
    print_json,
    say,
    writing,
)
from metrics_reporter.quantities import amount, percent, rounded

if TYPE_CHECKING:
    from balancer.backtest import BacktestResult, Configuration, ConfigurationFigures
    from balancer.backtest.verdict import Spread
    from cluster_model.history.history import History

TRIED, JUDGED, RESULT = "What to try", "How to judge", "Results"


def backtest(
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
            help="Configurations by name, as YAML: {careful: {goals: default, settings: "
            "{max_moves: 50}, statistic: p95, span: 1d}}.",
        ),
    ] = None,
    goals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE|FILE",
            rich_help_panel=TRIED,
            help="Add a configuration with these goals and the default settings; repeatable. "
            "Without any configuration: the profile `default`.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="NUMBER",
            rich_help_panel=TRIED,
            help="Replay each configuration with so many seeds, to see the spread.",
        ),
    ] = 1,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start, such as 2025-03-01 or 2025-03-01T12:00 (UTC unless the time has a zone); "
            "by default the beginning.",
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
            help="Goals that all configurations are judged by.",
        ),
    ] = "default",
    limit: Annotated[
        float,
        typer.Option(
            rich_help_panel=JUDGED, help="Share of a capacity above which a broker is overloaded."
        ),
    ] = 0.8,
    price: Annotated[
        float, typer.Option(rich_help_panel=JUDGED, help="Price of a copied GB.")
    ] = 0.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            rich_help_panel=RESULT,
            help="File for figures, days and plans (.json) or for every window (.csv).",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=RESULT, help="File for a diagram of the comparison: .svg, .png ..."
        ),
    ] = None,
    heat_map: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=RESULT,
            help="File for a picture of all brokers over time, by load: .svg, .png ...",
        ),
    ] = None,
    moves: Annotated[
        Path | None,
        typer.Option(rich_help_panel=RESULT, help="File (CSV) for the steps of all plans."),
    ] = None,
    tables: Tables = None,
    table_format: TableFormat = "delta",
    cluster: Cluster = "default",
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Replay a history with configurations and compare what each would have done.

    Each configuration moves replicas in its own copy of the cluster, under the real loads.
    All are compared with what really happened (`history`), and nothing is changed anywhere.

    Example: `counterpoise history backtest prepared --metadata metadata-log --goals default
    --goals cruise-control --from 2025-03-01 --to 2025-04-01 --picture march.svg`
    """
    from balancer import backtest as backtests

    check_outputs(
        {
            "PREPARED": Path(prepared),
            "--metadata": metadata,
            "--configurations": configurations,
            "--judge-by": Path(judge_by),
            **{f"--goals {name}": Path(name) for name in goals or ()},
        },
        {"--output": output, "--picture": picture, "--heat-map": heat_map, "--moves": moves},
    )
    tried = _tried(configurations, goals)
    first_ms, end_ms = moment("--from", since), moment("--to", until)
    spark = start_spark(master, conf, delta=True)
    writer = tables_in(spark, tables, table_format)
    from cluster_model.history.history import History
    from cluster_model.history.metadata import load_metadata
    from cluster_model.history.read import sentences

    history = History.open(spark, prepared, load_metadata(metadata, cluster=cluster))
    began = time.monotonic()
    with spark_working("backtest", spark) as report, sentences(f"prepared history {prepared}"):
        first_ms, end_ms = known_range(history, first_ms, end_ms)
        found = backtests.backtest(
            history,
            tried,
            first_ms=first_ms,
            end_ms=end_ms,
            goals=judge_by,
            limit=limit,
            price=price,
            seeds=seeds,
            progress=report,
        )
        if writer is not None:
            from balancer.backtest.tables import write_backtest

            key = {
                "cluster": cluster,
                "first_ms": first_ms,
                "end_ms": end_ms,
                "configurations": found.configurations,
                "judge_by": judge_by,
                "limit": limit,
                "price": price,
                "seeds": seeds,
            }
            write_backtest(writer, found, key)
    say(f"replayed in {time.monotonic() - began:.0f} s")
    if output is not None:
        with writing(output):
            found.save(output)
    if picture is not None:
        with writing(picture):
            backtests.draw(found, picture)
    if heat_map is not None:
        with writing(heat_map):
            backtests.draw_brokers(found, heat_map)
    if moves is not None:
        with writing(moves):
            found.save_moves(moves)
    said = backtests.verdicts(found)
    spread = backtests.spreads(found)
    if json:
        between = {
            name: {figure: of._asdict() for figure, of in figures.items()}
            for name, figures in spread.items()
        }
        answers = [verdict._asdict() for verdict in said]
        print_json({**found.document(), "verdicts": answers, "spreads": between})
        return
    out().print(table(found))
    if spread:
        out().print(spread_table(found, spread))
    for verdict in said:
        out().print(verdict.text, markup=False)


def table(result: BacktestResult) -> Rows:
    """Configurations side by side."""
    first, end = (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "minutes")[:16]
        for ms in (result.first_ms, result.end_ms)
    )
    further = {run for runs in result.runs.values() for run in runs[1:]}
    totals = [tally for tally in result.totals if tally.configuration not in further]
    names = (f"{tally.configuration}>" for tally in totals)
    shown = Rows("", *names, title=f"{first} to {end} UTC")
    lines: tuple[tuple[str, Callable[[ConfigurationFigures], str]], ...] = (
        ("hours measured", lambda t: rounded(t.hours, 6)),
        ("goals not met, mean", lambda t: f"{t.goals_violated:.2f}"),
        ("hours with a hard goal not met", lambda t: rounded(t.hours_violated_hard, 6)),
        ("balancedness, mean", lambda t: f"{t.balancedness:.1f}"),
        ("worst broker, load / capacity", lambda t: percent(t.worst)),
        ("worst broker, which", lambda t: f"{t.worst_broker}, {t.worst_resource}"),
        ("worst broker, mean", lambda t: percent(t.worst_mean)),
        (f"broker-hours above {percent(result.limit)}", lambda t: rounded(t.overloaded_hours, 6)),
        ("plans", lambda t: f"{t.plans:,}"),
        ("actions", lambda t: f"{t.actions:,}"),
        ("copied", lambda t: amount(t.bytes_moved)),
        ("copied again within 12 h", lambda t: percent(t.thrash)),
        ("copied a day", lambda t: amount(t.bytes_a_day)),
    )
    for name, cell in lines:
        shown.add(name, *(escape(cell(t)) for t in totals))
    if result.price:
        shown.add("cost a day", *(f"{t.cost_a_day:,.2f}" for t in totals))
    return shown


def spread_table(result: BacktestResult, spread: Mapping[str, Mapping[str, Spread]]) -> Rows:
    """Means of the seeds of each configuration, and between which values they are."""
    seeds = max(len(runs) for runs in result.runs.values())
    over = f"broker-hours above {percent(result.limit)}>"
    shown = Rows("", over, "goals not met>", "copied>", title=f"mean of {seeds} seeds, and range")
    for name, figures in spread.items():
        cells = []
        for figure in ("overloaded_hours", "goals_violated", "bytes_moved"):
            values = (amount(x) if figure == "bytes_moved" else rounded(x) for x in figures[figure])
            mean, least, most = values
            cells.append(f"{mean} ({least} to {most})")
        shown.add(escape(name), *cells)
    return shown


def _tried(path: Path | None, goals: list[str] | None) -> tuple[Configuration, ...]:
    """The configurations that the options select."""
    from balancer import Balancer
    from balancer.backtest import Configuration, load_configurations

    found = () if path is None else load_configurations(path)
    if goals is None and path is None:
        goals = ["default"]
    return (*found, *(Configuration(Path(name).stem, Balancer(name)) for name in goals or ()))


def known_range(history: History, first_ms: int | None, end_ms: int | None) -> tuple[int, int]:
    """The part of a range that the history has, which replays step by step.

    Raises
    ------
    CommandError
        If it has none.
    """
    first, end = history.range()
    # The newest window may be asked for, though it is not complete.
    latest = end + history.window_ms
    asked = (first if first_ms is None else first_ms, end if end_ms is None else end_ms)
    found = (max(asked[0], first), min(asked[1], latest))
    if found[0] >= found[1]:
        given, held = (
            " to ".join(_shown_time(ms) for ms in both) for both in (asked, (first, latest))
        )
        raise CommandError(f"--from, --to: {given} found, a part of {held} (UTC) expected")
    return found


def _shown_time(ms: int) -> str:
    # What is rounded to the year 10000 has no date.
    return datetime.fromtimestamp(min(ms // 1000, 253_402_300_799), UTC).isoformat()[:16]


def moment(option: str, text: str | None) -> int | None:
    """ms since 1970 of ``"2025-03-01T12:00"``."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{option}: {text!r} found, a time like 2025-03-01T12:00 expected"
        ) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
