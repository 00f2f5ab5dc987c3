"""``counterpoise report-metrics``: runs the metrics reporter."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from balancer.cli.commands import DONE, UNMET
from balancer.cli.configuration import variable
from balancer.cli.daemon import ended_by_signals, logged, redacted
from balancer.cli.options import addresses
from balancer.cli.plugins import options_of
from balancer.cli.snapshot import CommandConfig, Timeout
from balancer.cli.terminal import LONGEST, CommandError, out, say
from balancer.composition.client import client_properties
from balancer.controller import Redactor
from metrics_reporter.exposition import shown
from metrics_reporter.quantities import plural
from metrics_reporter.rule_packs import PACKS
from metrics_reporter.source_plugins import SOURCES, Connection, open_source

if TYPE_CHECKING:
    from metrics_reporter import Source
    from metrics_reporter.agent import Agent

MEASURING, SENDING = "Sources", "Sending"
COMPRESSIONS = ("none", "lz4", "zstd", "gzip", "snappy")
# Seconds between the two reports of a trial run: rates need two.
_TRY_SECONDS = 10.0
_LOOK_SECONDS = 0.2

log = logging.getLogger("metrics_reporter")


def report_metrics(
    bootstrap_server: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            callback=addresses,
            envvar=variable("--bootstrap-server"),
            rich_help_panel=SENDING,
            help="Brokers of the metrics topic.",
        ),
    ],
    topic: Annotated[
        str,
        typer.Option(
            "--metrics-topic", "--topic", rich_help_panel=SENDING, help="Topic for the reports."
        ),
    ],
    source: Annotated[
        list[str],
        typer.Option(
            metavar="|".join(SOURCES.built_in),
            rich_help_panel=MEASURING,
            help="A source of metrics: one of these, or one from another package "
            "(`counterpoise sources list`); repeatable.",
        ),
    ],
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            rich_help_panel=MEASURING,
            help="An option of the source (`counterpoise sources show NAME`); repeatable. With "
            "several sources, an option of the one from another package.",
        ),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER=URL",
            rich_help_panel=MEASURING,
            help="For prometheus: a broker's exporter, such as 1=http://broker-1:7071/metrics; "
            "repeatable.",
        ),
    ] = None,
    exporters: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=MEASURING,
            help="For prometheus: YAML file of endpoints, and of metrics with other names.",
        ),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(PACKS),
            rich_help_panel=MEASURING,
            help="For prometheus: the product whose exporters these are.",
        ),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            min=0, rich_help_panel=MEASURING, help="For host: id of the broker on this machine."
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=LONGEST,
            metavar="SECONDS",
            rich_help_panel=SENDING,
            help="Interval between reports.",
        ),
    ] = 60.0,
    compression: Annotated[
        str,
        typer.Option(
            metavar="|".join(COMPRESSIONS),
            rich_help_panel=SENDING,
            help="Compression of the records.",
        ),
    ] = "lz4",
    linger: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=5.0,
            metavar="SECONDS",
            rich_help_panel=SENDING,
            help="Maximum time to fill a batch.",
        ),
    ] = 0.1,
    create_topic: Annotated[
        bool,
        typer.Option(
            "--create-topic", rich_help_panel=SENDING, help="Create the topic if it is missing."
        ),
    ] = False,
    command_config: CommandConfig = None,
    timeout: Timeout = 10.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="Send two reports and exit, with 1 if anything failed."),
    ] = False,
) -> None:
    """Measure brokers and send the results to a metrics topic, which other commands read.

    With the sources prometheus and admin, one agent serves a whole cluster; with host, run
    one next to each broker. It continues after any failure, and reports each failure once.
    SIGTERM or Ctrl-C ends it.

    Example: `counterpoise report-metrics --bootstrap-server localhost:9092 --metrics-topic
    metrics --source admin --once`
    """
    from metrics_reporter.agent import Agent

    if compression not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise CommandError(f"--compression: {compression!r} found, one of {known} expected")
    properties = client_properties(command_config)
    hide = Redactor(properties, [])
    with redacted(hide), logged(log, hide):
        agent = Agent(
            _sources(
                source,
                source_option or (),
                _shortcuts(source, endpoint or (), exporters, rules, broker),
                Connection(
                    bootstrap_server,
                    properties,
                    timeout,
                    partial(_admin_client, bootstrap_server, properties, timeout=timeout),
                ),
            ),
            bootstrap=bootstrap_server,
            topic=topic,
            interval=min(interval, _TRY_SECONDS) if once else interval,
            client={
                **properties,
                "compression.type": compression,
                "linger.ms": int(1000 * linger),
            },
            create_topic=create_topic,
        )
        if once:
            sent = agent.run(2)
            out().print(f"{plural(sent, 'record')} sent to {topic}", markup=False)
            if agent.coverage.partitions:
                say(str(agent.coverage))
            raise typer.Exit(DONE if sent and not agent.problems else UNMET)
        _serve(agent)


def _sources(
    names: Sequence[str],
    pairs: Sequence[str],
    shortcuts: Mapping[str, Mapping[str, Any]],
    connection: Connection,
) -> dict[str, Source]:
    """The sources of these names; `shortcuts` are options that have a flag of their own."""
    known = SOURCES.names()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(f"--source: {unknown[0]!r} found, one of {', '.join(known)} expected")
    options = {name: dict(shortcuts.get(name, {})) for name in names}
    if pairs:
        others = [name for name in options if name not in SOURCES.built_in]
        takes = others if len(options) > 1 else [*options]
        if len(takes) != 1:
            raise CommandError(
                f"--source-option: {plural(len(options), 'source')} found, one expected, or one of "
                "another package; built-in sources have --endpoint, --exporters and --broker"
            )
        (taker,) = takes
        given = options_of("--source-option", pairs, SOURCES, taker)
        fields = getattr(SOURCES.get(taker), "model_fields", given)
        unknown = [name for name in given if name not in fields]
        if unknown:
            raise CommandError(
                f"--source-option {unknown[0]}: no such option of source {taker}, one of "
                f"{', '.join(fields)} expected"
            )
        twice = sorted(given.keys() & options[taker].keys())
        if twice:
            raise CommandError(
                f"--source-option {twice[0]}: already given by --endpoint, --exporters or --broker"
            )
        options[taker] |= given
    for name, option, lacking in (
        (
            "prometheus",
            "endpoints",
            "no endpoint found, --endpoint BROKER=URL for each broker, or --exporters FILE "
            "expected",
        ),
        ("host", "broker", "the id of the broker expected, as --broker ID"),
    ):
        if name in options and options[name].get(option) in (None, {}):
            raise CommandError(f"--source {name}: {lacking}")
    return {name: open_source(name, own, connection) for name, own in options.items()}


def _shortcuts(
    names: Collection[str],
    given: Sequence[str],
    file: Path | None,
    rules: str | None,
    broker: int | None,
) -> dict[str, dict[str, Any]]:
    """The options of built-in sources that have a flag of their own."""
    from metrics_reporter.prometheus import load_prometheus

    for option, value, name in (
        ("--endpoint", given, "prometheus"),
        ("--exporters", file, "prometheus"),
        ("--rules", rules, "prometheus"),
        ("--broker", broker, "host"),
    ):
        if value not in (None, [], ()) and name not in names:
            raise CommandError(f"{option} found, together with --source {name} expected")
    found: dict[str, dict[str, Any]] = {}
    if rules is not None and rules not in PACKS:
        raise CommandError(f"--rules: {rules!r} found, one of {', '.join(PACKS)} expected")
    if given or file is not None:
        own = {} if file is None else load_prometheus(file).model_dump(exclude_unset=True)
        own |= {} if rules is None else {"rules": rules}
        found["prometheus"] = own | {"endpoints": own.get("endpoints", {}) | _endpoints(given)}
    if broker is not None:
        found["host"] = {"broker": broker}
    return found


def _admin_client(bootstrap: str, properties: Mapping[str, str], *, timeout: float) -> Any:
    from cluster_model.kafka import admin_client

    return admin_client(bootstrap, properties, timeout=timeout)


def _endpoints(given: Sequence[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for text in given:
        broker, equals, url = text.partition("=")
        if not equals or not broker.strip().isdecimal() or len(broker) > 10:
            raise CommandError(
                f"--endpoint: '{shown(text)}' found, BROKER=URL like "
                "1=http://broker-1:7071/metrics expected"
            )
        if "@" in url:
            raise CommandError(
                f"--endpoint: a user or password found for broker {broker.strip()}, which others "
                "see in the list of processes; put the address into a file, see --exporters"
            )
        if int(broker) in found:
            raise CommandError(f"--endpoint: broker {int(broker)} found twice, once expected")
        found[int(broker)] = url.strip()
    return found


def _serve(agent: Agent) -> None:
    """Report until a signal."""
    asked: list[int] = []

    def ask(number: int) -> None:
        if asked:
            # On a second signal it does not wait for an unreachable Kafka.
            raise SystemExit(128 + number)
        asked.append(number)
        agent.stop()

    failed: list[BaseException] = []

    def run() -> None:
        try:
            agent.run()
        except BaseException as error:
            failed.append(error)

    with ended_by_signals(ask):
        thread = threading.Thread(target=run, name="report metrics", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
    if failed:
        raise failed[0]
