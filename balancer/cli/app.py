"""The commands, and what they have in common."""

from __future__ import annotations

import typer

from balancer.cli.demo import demo
from balancer.cli.execute import execute
from balancer.cli.explain import explain
from balancer.cli.goals import goals
from balancer.cli.history import history
from balancer.cli.propose import propose
from balancer.cli.report_metrics import report_metrics
from balancer.cli.run import run
from balancer.cli.snapshot import snapshot
from balancer.cli.terminal import Commands
from balancer.cli.verify import verify

app = typer.Typer(
    name="counterpoise",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keep a Kafka cluster balanced: look at it, propose a plan, and say why.\n\n"
    "New here? `counterpoise demo` shows all of it, without a cluster.\n\n"
    "Exit codes: 0 done, 1 goals unmet (or a check failed), 2 bad input.",
)
app.command()(demo)
app.command()(propose)
app.command()(explain)
app.command()(verify)
app.command()(execute)
app.command()(run)
app.command("report-metrics")(report_metrics)
app.add_typer(goals)
app.add_typer(history)
app.add_typer(snapshot)
