"""``counterpoise history snapshot``: turns months of windows into one snapshot."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from balancer.cli.history_options import (
    Cluster,
    Master,
    MeasuredCapacities,
    MetadataPath,
    Properties,
    TableFormat,
    Tables,
    start_spark,
    tables_in,
)
from balancer.cli.layout import Rows
from balancer.cli.snapshot import Output
from balancer.cli.spark_progress import spark_working
from balancer.cli.terminal import (
    AsJson,
    CommandError,
    check_outputs,
    out,
    print_json,
    writing,
)
from metrics_reporter.quantities import duration, plural

if TYPE_CHECKING:
    from cluster_model.history.cpu import CpuModel
    from cluster_model.history.forecast import ForecastError


FORECAST = "Forecast"
DAY_MS = 86_400_000


def snapshot(
    prepared: Annotated[
        str,
        typer.Argument(
            metavar="PREPARED",
            help="Directory that `history prepare` wrote.",
            show_default=False,
        ),
    ],
    metadata: MetadataPath,
    output: Output,
    statistic: Annotated[
        Literal["mean", "p95", "peak", "forecast"],
        typer.Option(help="Statistic of the windows, or a forecast of the largest hour."),
    ] = "mean",
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End of the time range, such as 2025-03-01T12:00 (UTC unless the time has a "
            "zone); by default the end of the last complete window.",
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How far to look back, or ahead for a forecast, such as 12h or 7d; by default "
            "back to the beginning, or a day ahead.",
        ),
    ] = None,
    cpu: Annotated[
        Literal["regression", "attribution"] | None,
        typer.Option(
            help="How a broker's cpu is divided among its partitions: `regression` uses the "
            "measured cost per byte, `attribution` (means only, their default) divides it on "
            "each broker.",
        ),
    ] = None,
    time_zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE",
            rich_help_panel=FORECAST,
            help="Time zone whose days and weeks the loads follow, such as Europe/Berlin.",
        ),
    ] = "UTC",
    holidays: Annotated[
        list[str] | None,
        typer.Option(
            "--holiday",
            metavar="DATE",
            rich_help_panel=FORECAST,
            help="A day that is not learned from, such as 2025-12-25; repeatable.",
        ),
    ] = None,
    min_ratio: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of the partitions' windows that must be known."),
    ] = 0.95,
    tables: Tables = None,
    table_format: TableFormat = "delta",
    cluster: Cluster = "default",
    capacity: MeasuredCapacities = None,
    master: Master = None,
    conf: Properties = None,
    json: AsJson = False,
) -> None:
    """Write a snapshot of the cluster with the loads from its history.

    Example: `counterpoise history snapshot prepared --metadata metadata-log --statistic p95
    --horizon 28d -o cluster.npz`
    """
    from cluster_model import save_snapshot
    from cluster_model.capacities import as_capacities
    from cluster_model.files import check_suffix

    check_suffix(output)
    inputs = {"PREPARED": Path(prepared), "--metadata": metadata, "--capacity": capacity}
    check_outputs(inputs, {"--output": output})
    at_ms, horizon_ms = _time(at), _span(horizon)
    days_off = tuple(_day(text) for text in holidays or ())
    measured = as_capacities(capacity).follower_shares
    spark = start_spark(master, conf, delta=True)
    writer = tables_in(spark, tables, table_format)
    from cluster_model.history.history import History
    from cluster_model.history.metadata import load_metadata
    from cluster_model.history.read import sentences
    from cluster_model.history.smoothing import ForecastParameters

    forecasting = ForecastParameters(time_zone=time_zone, holidays=days_off)
    log = load_metadata(metadata, cluster=cluster)
    history = History.open(spark, prepared, log, measured=measured)
    with spark_working("reading the history", spark), sentences(f"prepared history {prepared}"):
        found = history.snapshot(
            at_ms, horizon_ms, statistic, cpu=cpu, min_ratio=min_ratio, forecasting=forecasting
        )
        forecast = None
        if statistic == "forecast":
            forecast = history.forecast(at_ms, horizon_ms, forecasting)
        regressed = cpu == "regression" or statistic != "mean"
        learnt = history.cpu_model(None, at_ms) if regressed else None
        if writer is not None:
            from cluster_model.history.tables import write_forecast, write_snapshot

            end_ms = history.range()[1] if at_ms is None else at_ms
            end_ms = end_ms // history.window_ms * history.window_ms
            key = {
                "cluster": cluster,
                "at_ms": end_ms,
                "horizon_ms": horizon_ms,
                "statistic": statistic,
                "cpu": cpu,
                "forecasting": asdict(forecasting) if forecast is not None else None,
            }
            write_snapshot(writer, found, key, end_ms, statistic)
            if forecast is not None:
                ahead = DAY_MS if horizon_ms is None else horizon_ms
                write_forecast(writer, forecast, found.resources, key, end_ms, ahead)
    with writing(output):
        save_snapshot(found, output)
    if json:
        print_json(
            {
                "output": str(output),
                "brokers": found.n_brokers,
                "partitions": found.n_partitions,
                "replicas": found.n_replicas,
                "cpu_costs": [] if learnt is None else [*map(asdict, learnt.classes)],
                "forecast_errors": [] if forecast is None else [*map(asdict, forecast.errors)],
            }
        )
        return
    if learnt is not None and "cpu" in found.resources:
        out().print(costs(learnt))
    if forecast is not None:
        out().print(errors(forecast.errors))
    out().print(
        f"{output}: {repr(found).removeprefix('Snapshot(').removesuffix(')')}", markup=False
    )


def costs(model: CpuModel) -> Rows:
    """Cpu for a MB/s by kind of traffic, for each class of brokers, and the errors."""
    figures = ("leader in", "leader out", "follower in", "windows", "R²", "RMSE")
    held_out = ("R², held out", "RMSE, held out")
    table = Rows(
        "brokers",
        *(f"{name}>" for name in (*figures, *held_out)),
        title="cpu for 1 MB/s, learnt from the history",
    )
    for of in model.classes:
        per_mb = (f"{1e6 * cost:.4g}" for cost in of.coefficients)
        measured = (of.r2, of.rmse, of.held_out_r2, of.held_out_rmse)
        others = f" and {plural(len(of.brokers) - 1, 'other')}" if of.brokers[1:] else ""
        table.add(
            f"{of.brokers[0]}{others}",
            *per_mb,
            f"{of.windows:,}",
            *("-" if isnan(error) else f"{error:.4g}" for error in measured),
        )
    return table


def errors(of: tuple[ForecastError, ...]) -> Rows:
    """How wrong forecasts of known hours would have been, next to the baselines."""
    title = "error of forecasts of known hours, as a share of the load"
    names = list(of[0].baselines)
    table = Rows("resource", "of~", "hours>", "forecast>", *(f"{n}>" for n in names), title=title)
    for one in of:
        for what, own, others in (
            ("hours", one.wape, one.baselines),
            ("peaks", one.wape_of_peaks, one.baselines_of_peaks),
        ):
            shares = (own, *(others[name] for name in names))
            cells = ("-" if isnan(x) else f"{x:.1%}" for x in shares)
            table.add(escape(one.resource), what, str(one.hours), *cells)
    return table


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--holiday: {text!r} found, a day like 2025-12-25 expected") from None


def _time(text: str | None) -> int | None:
    """ms since 1970 of ``"2025-03-01T12:00"``."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--at: {text!r} found, a time like 2025-03-01T12:00 expected") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _span(text: str | None) -> int | None:
    """ms of ``"7d"``."""
    if text is None:
        return None
    try:
        seconds = duration(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise CommandError(f"--horizon: {text!r} found, a time like 90m, 12h or 7d expected")
    return round(1000 * seconds)
