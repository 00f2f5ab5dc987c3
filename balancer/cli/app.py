"""Defines the commands and the options that all of them share."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from balancer.cli.autoscale import autoscale
from balancer.cli.autoscale_monitor import monitor as autoscale_monitor
from balancer.cli.autoscale_run import run as autoscale_run
from balancer.cli.autoscale_simulate import simulate as autoscale_simulate
from balancer.cli.controller_plugins import detectors, notifiers
from balancer.cli.demo import demo
from balancer.cli.execute import execute
from balancer.cli.explain import explain
from balancer.cli.goals import goals
from balancer.cli.history import history
from balancer.cli.imports import imports
from balancer.cli.load import load
from balancer.cli.plugins import operations, readers, sources, strategies
from balancer.cli.proposals import proposals
from balancer.cli.propose import propose
from balancer.cli.report_metrics import report_metrics
from balancer.cli.run import run
from balancer.cli.server import server
from balancer.cli.snapshot import snapshot
from balancer.cli.tasks import tasks
from balancer.cli.tasks_simulate import simulate
from balancer.cli.terminal import Command, Commands
from balancer.cli.verify import verify
from balancer.cli.word_count import word_count


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"counterpoise {version('counterpoise')}")
        raise typer.Exit()


app = typer.Typer(
    name="counterpoise",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keep a Kafka cluster balanced: inspect it, propose plans, explain and execute them.\n\n"
    "`counterpoise demo` runs the complete pipeline without a cluster.\n\n"
    "Exit codes: 0 success, 1 a goal is unmet or a check failed, 2 bad input.",
)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""


app.command(cls=Command)(demo)
app.command(cls=Command)(load)
app.command(cls=Command)(propose)
app.command(cls=Command)(explain)
app.command(cls=Command)(verify)
app.command(cls=Command)(execute)
app.command(cls=Command)(run)
app.command("report-metrics", cls=Command)(report_metrics)
app.add_typer(server)
app.add_typer(proposals)
app.add_typer(goals)
app.add_typer(strategies)
app.add_typer(operations)
app.add_typer(notifiers)
app.add_typer(detectors)
app.add_typer(sources)
app.add_typer(readers)
app.add_typer(history)
app.add_typer(snapshot)
tasks.command("simulate", cls=Command)(simulate)
app.add_typer(tasks)
autoscale.command("run", cls=Command)(autoscale_run)
autoscale.command("monitor", cls=Command)(autoscale_monitor)
autoscale.command("simulate", cls=Command)(autoscale_simulate)
app.add_typer(autoscale)
app.add_typer(word_count)
app.add_typer(imports)
