"""``counterpoise run``: runs the controller until a signal ends it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balancer.cli.commands import DONE, UNMET
from balancer.cli.configuration import variable
from balancer.cli.daemon import ended_by_signals, logged, redacted
from balancer.cli.plugins import strategy_config
from balancer.cli.snapshot import (
    AttributesFile,
    BootstrapServer,
    CapacityFile,
    CommandConfig,
    GoalsOption,
    MetricsTopic,
    PartialView,
    Timeout,
    warn,
)
from balancer.cli.terminal import LONGEST, CommandError, check_outputs, out, say
from balancer.composition.client import client_properties
from balancer.controller.endpoint import parse_address
from metrics_reporter.documents import json_text

if TYPE_CHECKING:
    from balancer.controller import Decision
    from balancer.server import ServerSettings

ACTING, SERVING = "Acting", "Serving"
# Seconds after a signal that closing clients may take, in addition to an execution's time.
_CLOSING_SECONDS = 3.5

log = logging.getLogger("counterpoise")


def run(
    bootstrap_server: BootstrapServer,
    capacity: CapacityFile = None,
    attributes: AttributesFile = None,
    command_config: CommandConfig = None,
    metrics_topic: MetricsTopic = None,
    partial_view: PartialView = False,
    timeout: Timeout = 10.0,
    goals: GoalsOption = "default",
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Strategy for rebalances; see `counterpoise strategies list`. Healing "
            "uses `goals` unless the strategy declares itself universal.",
        ),
    ] = "goals",
    strategy_option: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="An option of the strategy; repeatable."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar=variable("--settings"),
            help="YAML file of detectors, grace periods, cool-downs and notifiers; read again when "
            "it changes.",
        ),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            rich_help_panel=ACTING,
            help="Execute plans, unless the settings file says `execute: false`; without this "
            "option, plans are only proposed.",
        ),
    ] = False,
    journal: Annotated[
        Path,
        typer.Option(
            metavar="FILE", rich_help_panel=ACTING, help="Journal of executions, for recovery."
        ),
    ] = Path("counterpoise-execution.journal"),
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=ACTING,
            help="Only one controller or execution in this group acts at a time.",
        ),
    ] = "counterpoise-controller",
    session: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=LONGEST,
            metavar="SECONDS",
            rich_help_panel=ACTING,
            help="Time without a heartbeat after which another controller takes over.",
        ),
    ] = 10.0,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            rich_help_panel=SERVING,
            help="Serve the API (/api/v1), /metrics for Prometheus and /state; :PORT is reachable "
            "from this machine only, 0.0.0.0:PORT also from others.",
        ),
    ] = None,
    server_settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=SERVING,
            help="YAML file of users, tokens, TLS and limits of the server.",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Run one round and exit, with 0 if nothing is left to do, else with 1."
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print decisions as JSON, one per line.")
    ] = False,
) -> None:
    """Watch a cluster and keep it balanced: observe, detect problems, plan, execute.

    Every decision is logged with its reason, including decisions to do nothing. SIGTERM or
    Ctrl-C stops an execution cleanly and ends the command.

    Example: `counterpoise run --bootstrap-server localhost:9092 --metrics-topic metrics
    --capacity capacity.yaml --listen :9464`
    """
    from balancer import Balancer
    from balancer.composition.controller import (
        ActingOptions,
        compose_controller,
        is_left_to_do,
        run_once,
        run_until,
    )
    from balancer.composition.notifiers import Notifiers
    from balancer.composition.source import KafkaSource, Notices
    from balancer.controller import SettingsFile

    check_outputs(
        {
            "--settings": settings,
            "--goals": Path(goals),
            "--capacity": capacity,
            "--attributes": attributes,
            "--command-config": command_config,
            "--server-settings": server_settings,
        },
        {"--journal": journal},
    )
    file = SettingsFile(settings, execute)
    properties = client_properties(command_config)
    notifiers = Notifiers(properties)
    address = None if listen is None else parse_address(listen)
    if address is None and server_settings is not None:
        raise CommandError("--server-settings: --listen HOST:PORT is missing")
    access = None if address is None else _server_settings(server_settings)
    balancer = Balancer(
        goals,
        strategy=strategy_config(strategy, strategy_option),
    )
    notices = Notices(warn)
    source = KafkaSource(
        bootstrap_server,
        capacity,
        properties,
        metrics_topic,
        timeout,
        notices,
        partial_view,
        attributes,
    )
    acting = ActingOptions(journal, group, session, "counterpoise run") if execute else None
    witnesses: list[Callable[[Decision], None]] = [_as_json] if json and not once else []

    def witness(decision: Decision) -> None:
        for each in witnesses:
            each(decision)

    with redacted(notifiers.hide), ExitStack() as stack:
        ending = Shutdown(lambda: file.settings.stop_within + _CLOSING_SECONDS)
        stack.callback(ending.over.set)
        stack.callback(notifiers.close)
        composed = stack.enter_context(
            compose_controller(
                source,
                file,
                balancer,
                notifiers,
                acting,
                witness,
                None if access is None else access.proposals,
            )
        )
        controller = composed.controller
        if address is not None and access is not None:
            from balancer.server import Server, Service
            from balancer.server.audit import AuditLog

            service = Service(
                controller,
                balancer,
                composed.executor,
                AuditLog(access.audit),
                planning_queue=access.planning_queue,
                plans_per_client=access.plans_per_client,
            )
            server = Server(service, access, *address, composed.metrics)
            stack.callback(server.close)
            witnesses.append(server.decided)
            controller.approvals.changed = server.proposal_changed
            say(f"serving {server.url} (/api/v1, /metrics, /state)")
        if file.note is not None:
            say(file.note)
        stack.enter_context(ended_by_signals(ending.ask))
        if once:
            decision = run_once(controller, timeout, ending.asked)
            (_as_json if json else _as_sentence)(decision)
            raise typer.Exit(UNMET if is_left_to_do(decision) else DONE)
        with logged(log, notifiers.hide):
            notices.notify = log.warning
            if not run_until(controller, composed.follower, ending.asked, ending.begin):
                raise typer.Exit(UNMET)


def _server_settings(path: Path | None) -> ServerSettings:
    """Settings of the server; fails at once if a package that the server needs is missing."""
    import_module("balancer.server.server")
    from balancer.server import load_server_settings

    return load_server_settings(path)


class Shutdown:
    """Handles SIGTERM and Ctrl-C: the first one requests the end, the second one forces it.

    Parameters
    ----------
    seconds
        Seconds after the first signal until the process ends in any case.

    Attributes
    ----------
    asked, over
        Set by the first signal; to be set when everything has ended.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.asked = threading.Event()
        self.over = threading.Event()
        self._seconds = seconds

    def ask(self, number: int) -> None:
        """Handle a signal."""
        if self.asked.is_set():
            # The journal records what is left to do.
            raise SystemExit(128 + number)
        self.begin()

    def begin(self) -> None:
        """Start the timer that ends the process."""
        self.asked.set()
        threading.Thread(target=self._watch, name="ending", daemon=True).start()

    def _watch(self) -> None:
        seconds = self._seconds()
        if not self.over.wait(seconds):
            log.error(
                "ended %g s after it was asked to, with something still open; what an execution "
                "has left to do is in its journal",
                seconds,
            )
            logging.shutdown()
            os._exit(UNMET)


def _as_json(decision: Decision) -> None:
    typer.echo(json_text(decision.record()))


def _as_sentence(decision: Decision) -> None:
    out().print(f"{decision.kind}: {decision.reason}", markup=False, soft_wrap=True)
