"""``counterpoise run``: the controller, for as long as it is wanted."""

from __future__ import annotations

import json as json_format
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from balancer import Balancer, Budget
from balancer.cli.daemon import ended_by_signals, logged, redacted
from balancer.cli.options import client_properties
from balancer.cli.snapshot import KAFKA, CapacityFile, CommandConfig, MetricsTopic, Timeout
from balancer.cli.terminal import DONE, UNMET, out, say
from balancer.controller import (
    Controller,
    Decision,
    Election,
    Endpoint,
    MeasuredCluster,
    PlainCluster,
    Redactor,
    Settings,
    WebhookNotifier,
    load_settings,
)
from balancer.controller.endpoint import parse_address
from balancer.controller.roles import Model, Vote
from balancer.execution import Executor, Limits, LocalTimes
from cluster_model import InputError, Snapshot
from cluster_model.capacities import as_capacities

ACTING = "Acting"
_LOOK_SECONDS = 0.2
# How often `--once` asks a model that still reads its records, in seconds.
_PATIENCE_STEP = 0.5
# Decisions after which nothing is left to do.
_WELL = ("balanced", "executed", "recovered", "trivial")

log = logging.getLogger("counterpoise")


def run(
    bootstrap_server: Annotated[
        str, typer.Option(metavar="HOST:PORT", rich_help_panel=KAFKA, help="Ask these brokers.")
    ],
    capacity: CapacityFile = None,
    command_config: CommandConfig = None,
    metrics_topic: MetricsTopic = None,
    timeout: Timeout = 10.0,
    goals: Annotated[
        str, typer.Option(metavar="PROFILE|FILE", help="See `counterpoise goals list`.")
    ] = "default",
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Detectors, graces, cool-downs, webhooks, as YAML; read again when it changes.",
        ),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            rich_help_panel=ACTING,
            help="Carry plans out; without it, they are only proposed.",
        ),
    ] = False,
    journal: Annotated[
        Path,
        typer.Option(
            metavar="FILE", rich_help_panel=ACTING, help="Where executions are written down."
        ),
    ] = Path("counterpoise-execution.journal"),
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=ACTING,
            help="Of several controllers with this name and --execute one acts.",
        ),
    ] = "counterpoise-controller",
    session: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", rich_help_panel=ACTING, help="After that, another takes over."
        ),
    ] = 10.0,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /metrics (for Prometheus) and /state."),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="One round: exits with 0 where nothing is left to do, else 1."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Decisions as JSON on stdout, one a line.")
    ] = False,
) -> None:
    """Watch a cluster and keep it balanced: look, find what is wrong, plan, carry out.

    Every decision is said with its reason, those to do nothing too. SIGTERM or Ctrl-C ends
    it, and stops an execution in good order.

    Example: `counterpoise run --bootstrap-server localhost:9092 --metrics-topic metrics
    --capacity capacity.yaml --listen :9464`
    """
    wanted = _settings(settings, execute)
    properties = client_properties(command_config)
    hide = Redactor(properties, [w.url for w in wanted.webhooks])
    address = None if listen is None else parse_address(listen)
    budget = Budget(moves=wanted.max_moves, bytes=wanted.max_bytes, seconds=wanted.max_seconds)
    balancer = Balancer(goals, budget=budget)
    source = Source(bootstrap_server, capacity, properties, metrics_topic, timeout)
    with redacted(hide), ExitStack() as stack:
        limits = _limits(wanted)
        model, slow, counters = stack.enter_context(_cluster(source, wanted, limits))
        executor: Executor | None = None
        if wanted.execute:
            executor = Executor(
                bootstrap_server,
                journal=journal,
                limits=limits,
                client=properties,
                slow=slow,
                # Of a group one acts: what another one left is nobody else's.
                owner=group,
            )
        vote: Vote | None = None
        if executor is not None:
            vote = stack.enter_context(
                Election(bootstrap_server, group=group, session=session, client=properties)
            )
        webhooks = [WebhookNotifier(w) for w in wanted.webhooks]
        for webhook in webhooks:
            stack.callback(webhook.close)
        controller = Controller(
            model,
            balancer,
            executor,
            wanted,
            notifiers=webhooks,
            vote=vote,
            redactor=hide,
            witness=_as_json if json and not once else None,
        )
        if address is not None:
            endpoint = Endpoint(
                *address, lambda: controller.metrics.text(counters()), controller.state
            )
            stack.callback(endpoint.close)
            say(f"serving http://{endpoint.address}/metrics and /state")
        if once:
            decision = _once(controller, timeout)
            (_as_json if json else _as_sentence)(decision)
            raise typer.Exit(DONE if decision.kind in _WELL else UNMET)
        with logged(log, hide):
            _serve(controller, settings, execute)


@dataclass(frozen=True)
class Source:
    """A running Kafka, and how to ask it."""

    bootstrap: str
    capacity: Path | None
    properties: dict[str, str]
    topic: str | None
    timeout: float

    def read(self) -> Snapshot:
        """The cluster as it is."""
        from cluster_model.kafka import read_cluster

        stated = as_capacities(self.capacity)
        return read_cluster(
            self.bootstrap,
            capacity=stated,
            resources=stated.resources,
            client_properties=self.properties,
            timeout=self.timeout,
        )


def _settings(path: Path | None, execute: bool) -> Settings:
    found = Settings() if path is None else load_settings(path)
    return found.model_copy(update={"execute": True}) if execute else found


def _limits(settings: Settings) -> Limits:
    # What a window tells counts once.
    return Limits.of(**{"slow_interval": settings.model.window, **settings.execution})


@contextmanager
def _cluster(
    source: Source, settings: Settings, limits: Limits
) -> Iterator[tuple[Model, LocalTimes | None, Callable[[], dict[str, float]]]]:
    """What the controller looks at, who tells if brokers are slow, and counters of the feed."""
    if source.topic is None:
        # Ask once, so that what cannot be reached is told at the start.
        source.read()
        yield PlainCluster(source.read), None, dict
        return
    from cluster_model.follow import follow_kafka

    kept = settings.model
    follower = follow_kafka(
        source.bootstrap,
        source.topic,
        capacity=source.capacity,
        resources=as_capacities(source.capacity).resources,
        client=source.properties,
        timeout=source.timeout,
        refresh=kept.refresh,
        window_ms=int(kept.window * 1000),
        windows=kept.windows,
        min_samples=kept.min_samples,
    )
    with follower:
        model = MeasuredCluster(
            follower.model,
            source.read,
            metadata_age=lambda: follower.metadata_age,
            max_age=10 * kept.refresh,
            problems=lambda: follower.problems,
        )

        slow = LocalTimes(follower.model, limits)

        def counters() -> dict[str, float]:
            records = follower.model.counters.items()
            over = {"brokers_over_local_time_limits": float(slow.brokers)}
            return {**{f"records_{k}": float(v) for k, v in records}, **over}

        yield model, slow, counters


def _once(controller: Controller, timeout: float) -> Decision:
    """One round, as soon as the model knows anything, to its end."""
    deadline = time.monotonic() + 3 * timeout
    while True:
        decision = controller.step()
        early = decision.cause is None and decision.kind in ("waiting", "standby")
        if decision.kind == "executing":
            # What an execution that died left behind comes first.
            controller.wait()
        elif decision.kind == "started":
            controller.wait()
            return controller.decisions[-1]
        elif not early or time.monotonic() > deadline:
            return decision
        time.sleep(_PATIENCE_STEP)


def _serve(controller: Controller, path: Path | None, execute: bool) -> None:
    """Run until a signal; meanwhile read settings that change."""
    asked: list[int] = []

    def ask(number: int) -> None:
        if asked:
            # Asked twice, it ends at once; the journal holds what is left to do.
            raise SystemExit(128 + number)
        asked.append(number)

    with ended_by_signals(ask):
        thread = threading.Thread(target=controller.run, name="controller", daemon=True)
        thread.start()
        changed = _changed(path)
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            if asked:
                controller.stop()
            elif _changed(path) != changed:
                changed = _changed(path)
                _configure(controller, path, execute)


def _changed(path: Path | None) -> int | None:
    try:
        return None if path is None else path.stat().st_mtime_ns
    except OSError:
        return None


def _configure(controller: Controller, path: Path | None, execute: bool) -> None:
    try:
        controller.configure(_settings(path, execute))
        log.info("settings: read anew")
    except InputError as error:
        log.error("settings: %s; the old ones hold", error)


def _as_json(decision: Decision) -> None:
    typer.echo(json_format.dumps(decision.record(), default=str))


def _as_sentence(decision: Decision) -> None:
    out().print(f"{decision.kind}: {decision.reason}", markup=False, soft_wrap=True)
