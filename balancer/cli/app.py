"""The command line: its commands, and the options that all of them share."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.main import get_command

from balancer.cli.commands import Commands

# First word of several commands -> what they have in common.
GROUPS = {
    "server": "Passwords, tokens and the API description of the server "
    "(`counterpoise run --listen`).",
    "proposals": "Look at the proposals of `counterpoise run --listen`, approve or reject them.",
    "goals": "List, explain and check goals.",
    "strategies": "The strategies: ways to find a better placement.",
    "operations": "The operations that a plan can carry out.",
    "notifiers": "The notifiers, which send decisions to other systems.",
    "detectors": "The detectors, which find problems for the controller.",
    "sources": "The sources of metrics: what measures the brokers.",
    "readers": "The readers of snapshots, by suffix or scheme.",
    "history": "Archive months of metrics with Spark, and make snapshots and backtests from them.",
    "snapshot": "Read a snapshot from Kafka, Flink or Kafka Streams, or generate a synthetic one.",
    "tasks": "Assign the stateful tasks of a stream application to its instances.",
    "autoscale": "Size a consumer group: as few consumers and moves as keep the latency below its "
    "target.",
    "word-count": "Count words with stateful consumers whose tasks move without a pause: "
    "an example.",
    "import": "Turn the configuration of another balancer into files for Counterpoise.",
}
# Words of a command -> the function in this package, and the first line of its docstring: what a
# group shows of a command without importing it.
COMMANDS = {
    "demo": (
        "demo:demo",
        "Balance a synthetic cluster from end to end: metrics topic, model, plan, report.",
    ),
    "load": (
        "load:load",
        "Show what is where now: the load of brokers, racks, disks, topics and partitions.",
    ),
    "propose": (
        "propose:propose",
        "Plan how to balance a cluster, without changing it.",
    ),
    "explain": (
        "explain:explain",
        "Explain a plan: what each goal gains, the load of brokers, and why goals stay unmet.",
    ),
    "verify": (
        "verify:verify",
        "Replay a plan step by step, check its claims, and list what is not checked.",
    ),
    "execute": (
        "execute:execute",
        "Execute a plan: move replicas, then data between disks, then leadership.",
    ),
    "run": (
        "run:run",
        "Watch a cluster and keep it balanced: observe, detect problems, plan, execute.",
    ),
    "report-metrics": (
        "report_metrics:report_metrics",
        "Measure brokers and send the results to a metrics topic, which other commands read.",
    ),
    "server hash-password": (
        "server:hash_password",
        "Print the hash of a password, for `users` in the server settings.",
    ),
    "server new-token": (
        "server:new_token",
        "Print a new token, and its entry for `tokens` in the server settings.",
    ),
    "server openapi": (
        "server:openapi",
        "Print the description of the API (OpenAPI, JSON), to generate clients from.",
    ),
    "proposals list": (
        "proposals:list_",
        "List the proposals that are kept, the newest first.",
    ),
    "proposals show": (
        "proposals:show",
        "Show a proposal: its verdict, its digest, who decided what, and what has changed since.",
    ),
    "proposals approve": (
        "proposals:approve",
        "Approve a proposal: it is executed exactly as it is, or not at all.",
    ),
    "proposals reject": (
        "proposals:reject",
        "Reject a proposal that has not started.",
    ),
    "goals list": (
        "goals:list_all",
        "List goals and the profiles that combine them.",
    ),
    "goals show": (
        "goals:show",
        "Show the meaning and fields of a goal, or the goals of a profile.",
    ),
    "goals check": (
        "goals:check",
        "Test on small clusters whether a goal behaves as the optimiser requires.",
    ),
    "strategies list": (
        "plugins:list_strategies",
        "List every strategy, built in and installed.",
    ),
    "strategies show": (
        "plugins:show_strategy",
        "Show the purpose and the options of one strategy.",
    ),
    "operations list": (
        "plugins:list_operations",
        "List every operation, built in and installed.",
    ),
    "operations show": (
        "plugins:show_operation",
        "Show the purpose and the options of one operation.",
    ),
    "notifiers list": (
        "plugins:list_notifiers",
        "List every notifier, built in and installed.",
    ),
    "notifiers show": (
        "plugins:show_notifier",
        "Show the purpose and the options of one notifier.",
    ),
    "notifiers test": (
        "controller_plugins:send_test",
        "Send a test event, and print whether it was delivered. Exits with 1 if it was not.",
    ),
    "detectors list": (
        "plugins:list_detectors",
        "List every detector, built in and installed.",
    ),
    "detectors show": (
        "plugins:show_detector",
        "Show the purpose and the options of one detector.",
    ),
    "detectors try": (
        "controller_plugins:try_out",
        "Run one round of the controller on a snapshot; print its findings and its decision.",
    ),
    "sources list": (
        "plugins:list_sources",
        "List every source, built in and installed.",
    ),
    "sources show": (
        "plugins:show_source",
        "Show the purpose and the options of one source.",
    ),
    "readers list": (
        "plugins:list_readers",
        "List every snapshot reader, built in and installed.",
    ),
    "readers show": (
        "plugins:show_reader",
        "Show the purpose and the options of one snapshot reader.",
    ),
    "history archive": (
        "history:archive",
        "Archive a metrics topic to a Delta table, each message exactly once, even across crashes.",
    ),
    "history compact": (
        "history:compact",
        "Merge the small files of each day of an archive into a few large ones.",
    ),
    "history expire": (
        "history:expire",
        "Remove the days of an archive that are older than the given number of days.",
    ),
    "history export": (
        "history:export",
        "Copy an archive to plain Parquet, by cluster and day, for other tools.",
    ),
    "history advise": (
        "history_advise:advise",
        "Recommend goals and thresholds, and tell when resources run out and how many brokers to "
        "have.",
    ),
    "history backtest": (
        "history_backtest:backtest",
        "Replay a history with configurations and compare what each would have done.",
    ),
    "history import": (
        "history_import:import_",
        "Import past metrics from a server with Prometheus' API into an archive, day by day.",
    ),
    "history prepare": (
        "history_prepare:prepare",
        "Validate the records of a cluster and sum them over windows, for the other commands.",
    ),
    "history snapshot": (
        "history_snapshot:snapshot",
        "Write a snapshot of the cluster with the loads from its history.",
    ),
    "snapshot kafka": (
        "snapshot:kafka",
        "Write a snapshot of a running Kafka: brokers, racks, replicas, sizes.",
    ),
    "snapshot flink": (
        "snapshot:flink",
        "Write a snapshot of a running Flink job: task managers, subtasks, busy times, traffic.",
    ),
    "snapshot kafka-streams": (
        "snapshot:kafka_streams",
        "Write a snapshot of a Kafka Streams application: instances, tasks, loads.",
    ),
    "snapshot synthetic": (
        "snapshot:synthetic",
        "Generate an unbalanced cluster for experiments.",
    ),
    "tasks assign": (
        "tasks:assign",
        "Assign tasks so that each keeps running where its state is.",
    ),
    "tasks explain": (
        "tasks:explain",
        "Explain why a task runs where it does, and what each instance has of its state.",
    ),
    "tasks verify": (
        "tasks:verify",
        "Check an assignment as Kafka checks that of a custom assignor, and more.",
    ),
    "tasks simulate": (
        "tasks_simulate:simulate",
        "Simulate instances that join, leave, crash and come back.",
    ),
    "autoscale decide": (
        "autoscale:decide",
        "Decide once, on a group described by a file.",
    ),
    "autoscale run": (
        "autoscale_run:run",
        "Watch a consumer group, and keep as many consumers as its latency needs.",
    ),
    "autoscale monitor": (
        "autoscale_monitor:monitor",
        "Measure how many bytes/s are written to each partition, and publish that to a topic.",
    ),
    "autoscale simulate": (
        "autoscale_simulate:simulate",
        "Simulate policies on a trace of arrivals: who keeps the latency, and at what price.",
    ),
    "word-count load": (
        "word_count:load",
        "Write lines of words at a steady rate.",
    ),
    "word-count run": (
        "word_count:run",
        "Run one member until a signal ends it.",
    ),
    "word-count check": (
        "word_count:check_",
        "Recount the lines and compare; exits with 1 if a count differs.",
    ),
    "import cruise-control": (
        "imports:cruise_control",
        "Convert a configuration of Cruise Control, and say what became of each of its keys.",
    ),
}


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"counterpoise {version('counterpoise')}")
        raise typer.Exit()


_typer = typer.Typer(
    name="counterpoise",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keep a Kafka cluster balanced: inspect it, propose plans, explain and execute them.\n\n"
    "`counterpoise demo` runs the complete pipeline without a cluster.\n\n"
    "Exit codes: 0 success, 1 a goal is unmet or a check failed, 2 bad input.",
)


@_typer.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""


app = get_command(_typer)
assert isinstance(app, Commands)
app.add(COMMANDS, GROUPS)
