"""``counterpoise autoscale run``: sizes a consumer group of a Kafka until a signal ends it."""

from __future__ import annotations

import shlex
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.live import Live

from balancer.autoscaling.errors import NotYetError
from balancer.autoscaling.measurement import MeasurementSettings
from balancer.autoscaling.write_speed import TOPIC
from balancer.cli.autoscale import (
    LagThreshold,
    Maximum,
    Minimum,
    PolicyName,
    Price,
    Sla,
    parameters,
    seconds,
)
from balancer.cli.commands import DONE, UNMET
from balancer.cli.daemon import ended_by_signals
from balancer.cli.options import byte_rate
from balancer.cli.snapshot import KAFKA, BootstrapServer, CommandConfig, Timeout
from balancer.cli.terminal import CommandError, out, say
from balancer.composition.client import client_properties
from balancer.controller.endpoint import parse_address
from metrics_reporter.documents import json_text

if TYPE_CHECKING:
    from balancer.autoscaling.autoscaler import Autoscaler, Round
    from balancer.autoscaling.kafka_observer import KafkaObserver
    from balancer.autoscaling.replicas import Replicas, ScalingLimits

_SCALING = "What starts and ends consumers"
_KEDA = "KEDA"
# Prefix of the group in which only one autoscaler of a consumer group may change anything.
_ELECTION = "counterpoise-autoscale-"
# The shortest that brokers allow by default: another takes over before leases of consumers end.
_SESSION_SECONDS = 6.0


def run(
    bootstrap_server: BootstrapServer,
    group: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=KAFKA, help="The consumer group.")
    ],
    capacity: Annotated[
        float | None,
        typer.Option(
            metavar="EVENTS/S", help="What a consumer can process; by default as it is measured."
        ),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC,...",
            rich_help_panel=KAFKA,
            help="Topics it reads; by default those that its members read.",
        ),
    ] = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 10.0,
    sla: Sla = "5s",
    price_per_consumer: Price = 1.0,
    policy_name: PolicyName = "repair",
    lag_threshold: LagThreshold = 10.0,
    rebalance_time: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long partitions are not read when consumers change; by default as it is "
            f"measured, {MeasurementSettings.default_rebalance_seconds:g}s until one was seen.",
        ),
    ] = None,
    reaction_time: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Until consumers have started and the others know of it."
        ),
    ] = "5s",
    assignor: Annotated[
        Literal["range", "packed", "assigned"],
        typer.Option(
            help="How consumers share partitions: by Kafka's range assignor, for which the number "
            "of consumers must be enough; as the decision packs them, which is written to a topic "
            "that packed consumers follow; or as this command assigns them through a control topic."
        ),
    ] = "range",
    byte_capacity: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES/S",
            help="What a consumer can read, such as 50MB/s; autoscale monitor must publish the "
            "write speeds of partitions.",
        ),
    ] = None,
    write_speeds: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            rich_help_panel=KAFKA,
            help=f"Topic they are published to; {TOPIC} by default.",
        ),
    ] = None,
    cooperative: Annotated[
        bool,
        typer.Option("--cooperative", help="A rebalance stops only the partitions that move."),
    ] = False,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Between rounds.")] = "10s",
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Over which arrivals are counted.")
    ] = "30s",
    minimum: Minimum = 1,
    maximum: Maximum = 100,
    up_cooldown: Annotated[
        str, typer.Option(metavar="DURATION", help="After a change, before more are asked for.")
    ] = "0s",
    down_cooldown: Annotated[
        str, typer.Option(metavar="DURATION", help="After a change, before fewer are.")
    ] = "2m",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be changed, and change nothing.")
    ] = False,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="deployment/NAME|statefulset/NAME",
            rich_help_panel=_SCALING,
            help="A workload of Kubernetes.",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=_SCALING, help="Its namespace."),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_SCALING,
            help="Where Kubernetes is; by default the pod this runs in, or ~/.kube/config.",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=_SCALING, help="A context of that file."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="'COMMAND ...'",
            rich_help_panel=_SCALING,
            help="Run consumers as processes of this machine, which end with this one.",
        ),
    ] = None,
    keda: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            rich_help_panel=_KEDA,
            help="Answer KEDA as an external scaler, and leave changes to it.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_KEDA, help="Certificate for KEDA, PEM."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_KEDA, help="Its key, PEM.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_KEDA,
            help="Answer only clients with a certificate that this one signed.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /metrics (for Prometheus) and /state."),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help=f"Decide once, as soon as what is missing is measured, and end; give up after "
            f"{MeasurementSettings.once_looks} rounds that wait.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print rounds as JSON, one per line.")
    ] = False,
) -> None:
    """Watch a consumer group, and keep as many consumers as its latency needs.

    In a terminal, consumers are shown as bars with their partitions and lag, and below them the
    decision and its reason. Only one process for a group makes changes at a time.

    Example: `counterpoise autoscale run --bootstrap-server localhost:9092 --group orders
    --capacity 500 --keda 0.0.0.0:6000`
    """
    import numpy as np

    from balancer.autoscaling.assigned import ControlSettings, GroupController
    from balancer.autoscaling.autoscaler import Autoscaler
    from balancer.autoscaling.kafka_observer import KafkaObserver, Working
    from balancer.autoscaling.packed import DecisionWriter
    from balancer.autoscaling.policies import check_sla, policy
    from balancer.autoscaling.replicas import Scaler, ScalingLimits
    from balancer.autoscaling.write_speed import PublishedSpeeds
    from balancer.controller import Election, Endpoint
    from cluster_model.kafka import admin_client

    given = parameters(sla, price_per_consumer, minimum, maximum)
    readable = byte_rate("--byte-capacity", byte_capacity)
    if write_speeds is not None and readable is None:
        raise CommandError("--write-speeds: goes with --byte-capacity, which is not given")
    rebalances = None
    if rebalance_time is not None:
        rebalances = seconds("--rebalance-time", rebalance_time)
    working = Working(
        capacity=capacity,
        rebalance_seconds=rebalances,
        reaction_seconds=seconds("--reaction-time", reaction_time),
        window=seconds("--window", window),
        # consumers that follow decisions keep their other partitions through a change
        blocking=assignor == "range" and not cooperative,
        byte_capacity=np.inf if readable is None else readable,
    )
    check_sla(
        given.sla,
        MeasurementSettings.default_rebalance_seconds if rebalances is None else rebalances,
    )
    decides = policy(policy_name, given, lag_threshold)
    limits = ScalingLimits(
        minimum=minimum,
        maximum=maximum,
        up_cooldown=seconds("--up-cooldown", up_cooldown),
        down_cooldown=seconds("--down-cooldown", down_cooldown),
    )
    pause = seconds("--interval", interval)
    if not pause > 0:
        raise CommandError(f"--interval: {interval} found, a duration above 0 expected")
    if (tls_certificate is None) != (tls_key is None):
        raise CommandError("--tls-certificate and --tls-key: one found, both expected")
    if tls_client_ca is not None and tls_key is None:
        raise CommandError("--tls-client-ca: goes with --tls-certificate and --tls-key")
    if tls_key is not None and keda is None:
        raise CommandError("--tls-key: goes with --keda, which is not given")
    chosen = {"--workload": workload, "--command": command, "--keda": keda}
    named = [option for option, value in chosen.items() if value is not None]
    if len(named) > 1:
        raise CommandError(f"{' and '.join(named)} given, at most one of them expected")
    properties = client_properties(command_config)
    address = None if listen is None else parse_address(listen)
    names = [name for part in (topics or "").split(",") if (name := part.strip())]
    connect = partial(admin_client, bootstrap_server, properties, timeout=timeout)
    vote = None
    if not dry_run and (assignor != "range" or workload is not None or command is not None):
        vote = Election(
            bootstrap_server,
            group=_ELECTION + group,
            client=properties,
            name="counterpoise autoscale run",
            session=_SESSION_SECONDS,
        )
    controller = None
    if assignor == "assigned":
        if once and not dry_run:
            raise CommandError(
                "--once: goes with --assignor assigned only if --dry-run is given, as consumers "
                "stop without a controller that stays"
            )
        controller = GroupController(
            bootstrap_server,
            group,
            vote,
            maximum,
            properties=properties,
            settings=ControlSettings(answer_seconds=timeout),
        )
    speeds = None
    if readable is not None:
        speeds = PublishedSpeeds(bootstrap_server, properties, write_speeds or TOPIC, timeout)
    observer = KafkaObserver(
        connect,
        group,
        names,
        working,
        # the consumers that this starts may be the group's first
        new=command is not None or controller is not None,
        members=None if controller is None else controller.members,
        speeds=speeds,
        reports=controller,
    )
    stop = threading.Event()
    with ExitStack() as stack:
        if speeds is not None:
            stack.callback(speeds.close)
        stack.enter_context(ended_by_signals(lambda number: stop.set()))
        # a name that is wrong ends the command, before anything is started or served
        _check_group(observer)
        publish = None
        if keda is not None:
            # loads asyncio, which other commands need not wait for
            from balancer.autoscaling.keda import KedaScaler, KedaSettings
            from metrics_reporter.tls import Tls

            stale = max(KedaSettings.stale_seconds, KedaSettings.stale_intervals * pause)
            tls = None
            if tls_certificate is not None and tls_key is not None:
                tls = Tls(certificate=tls_certificate, key=tls_key, client_ca=tls_client_ca)
            server = stack.enter_context(
                KedaScaler(*parse_address(keda), KedaSettings(stale), tls=tls)
            )
            say(f"KEDA's external scaler for group {group} at {server.address}")
            publish = partial(_publish, server.publish, group, limits)
        # consumers that are processes of this one leave while it still listens
        for part in (vote, controller):
            if part is not None:
                stack.enter_context(part)

        def may_write() -> bool:
            return vote is not None and vote.prove(timeout) is not None

        def overruled() -> bool:
            return vote is not None and not vote.acting and vote.epoch is None

        scaler = None
        # static members: one that an earlier run has left behind must not have the name of another
        prefix = f"consumer-{uuid.uuid4().hex[:6]}" if assignor == "packed" else "consumer"
        replicas = _replicas(workload, namespace, kubeconfig, context, command, prefix)
        if replicas is not None:
            stack.callback(replicas.close)
            scaler = Scaler(replicas, limits, dry_run, may_write, overruled)
        assign = None
        if controller is not None:
            assign = controller.assign
        elif assignor == "packed" and not dry_run:
            writer = DecisionWriter(
                connect,
                {**properties, "bootstrap.servers": bootstrap_server},
                group,
                may_write=may_write,
                timeout=timeout,
            )
            assign = writer.write
        autoscaler = Autoscaler(
            observer.observe,
            decides,
            scaler,
            publish,
            assignor,
            fill=given.fill,
            shrink=given.shrink,
            calm=given.calm,
            minimum=given.minimum,
            assign=assign,
        )
        if address is not None:
            endpoint = Endpoint(*address, autoscaler.metrics, autoscaler.state)
            stack.callback(endpoint.close)
            say(f"serving http://{endpoint.address}/metrics and /state")
        if once:
            raise typer.Exit(_once(autoscaler, stop, min(pause, working.window), json))
        _watch(autoscaler, stop, pause, json, stack)


def _check_group(observer: KafkaObserver) -> None:
    """Look once; only what time will not mend is an error."""
    with suppress(NotYetError):
        observer.observe()


def _publish(
    publish: Callable[[str, int, int, int], None],
    group: str,
    limits: ScalingLimits,
    needed: int,
    running: int,
) -> None:
    allowed = min(max(needed, limits.minimum), limits.maximum)
    publish(group, allowed, running, limits.maximum)


def _once(autoscaler: Autoscaler, stop: threading.Event, pause: float, json: bool) -> int:
    from balancer.cli.autoscale_view import live

    done = autoscaler.round()
    for _ in range(MeasurementSettings.once_looks - 1):
        if done.kind != "waiting" or stop.wait(pause):
            break
        done = autoscaler.round()
    _line(done, json) if json else out().print(live(done))
    return DONE if done.kind in ("changed", "kept", "decided", "dry run") else UNMET


def _watch(
    autoscaler: Autoscaler, stop: threading.Event, pause: float, json: bool, stack: ExitStack
) -> None:
    from balancer.cli.autoscale_view import live

    console = out()
    if json or not console.is_terminal:
        autoscaler.run(stop, pause, lambda done: _line(done, json))
        return
    view = stack.enter_context(Live(console=console, auto_refresh=False))
    autoscaler.run(stop, pause, lambda done: view.update(live(done), refresh=True))


def _line(done: Round, json: bool) -> None:
    typer.echo(json_text(done.record()) if json else f"{done.kind}: {done.reason}")


def _replicas(
    workload: str | None,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    command: str | None,
    prefix: str,
) -> Replicas | None:
    from balancer.autoscaling.replicas import KubernetesReplicas, LocalProcesses

    if workload is not None:
        return KubernetesReplicas(workload, namespace, kubeconfig, context)
    for option, value in (
        ("--namespace", namespace),
        ("--kubeconfig", kubeconfig),
        ("--context", context),
    ):
        if value is not None:
            raise CommandError(f"{option}: goes with --workload, which is not given")
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandError(f"--command: {error}") from None
    return LocalProcesses(words, prefix=prefix)
