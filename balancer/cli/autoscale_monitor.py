"""``counterpoise autoscale monitor``: publishes the write speed of partitions until a signal."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Annotated

import typer

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.write_speed import TOPIC
from balancer.cli.autoscale import seconds
from balancer.cli.daemon import ended_by_signals
from balancer.cli.snapshot import KAFKA, BootstrapServer, CommandConfig, Timeout
from balancer.cli.terminal import CommandError, say
from balancer.composition.client import client_properties
from metrics_reporter.clients import create
from metrics_reporter.quantities import plural


def monitor(
    bootstrap_server: BootstrapServer,
    topics: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC,...",
            rich_help_panel=KAFKA,
            help="Topics whose write speeds are published; by default all.",
        ),
    ] = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 10.0,
    interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Between two measurements.")
    ] = "5s",
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Over which speeds are means.")
    ] = "30s",
    to: Annotated[
        str, typer.Option(metavar="TOPIC", help="Topic they are published to; made if missing.")
    ] = TOPIC,
) -> None:
    """Measure how many bytes/s are written to each partition, and publish that to a topic.

    It needs the right to describe the cluster and its topics, which `autoscale run` then does
    without: it reads the topic, if `--byte-capacity` is given.

    Example: `counterpoise autoscale monitor --bootstrap-server localhost:9092 --topics orders`
    """
    from balancer.autoscaling.assigned.channel import make_topic
    from balancer.autoscaling.kafka_observer import partitions_of
    from balancer.autoscaling.write_speed import TOPIC_CONFIG, SpeedPublisher
    from cluster_model.kafka import admin_client

    pause, over = seconds("--interval", interval), seconds("--window", window)
    for option, value in (("--interval", pause), ("--window", over)):
        if not value > 0:
            raise CommandError(f"{option}: {value:g} s found, more than 0 expected")
    properties = client_properties(command_config)
    names = [name for part in (topics or "").split(",") if (name := part.strip())]
    connect = partial(admin_client, bootstrap_server, properties, timeout=timeout)
    stop = threading.Event()
    with ended_by_signals(lambda number: stop.set()):
        if names:
            # a name that is wrong ends the command before anything is published
            with connect() as ask:
                partitions_of(ask, names)
        make_topic(bootstrap_server, properties, to, 1, timeout, config=TOPIC_CONFIG)
        producer = create(
            "Producer",
            {
                "log_level": 2,
                **properties,
                "bootstrap.servers": bootstrap_server,
                "message.timeout.ms": max(1, int(timeout * 1000)),
            },
        )
        publisher = SpeedPublisher(connect, producer, names, over, to, timeout)
        while not stop.is_set():
            began = time.monotonic()
            try:
                count = publisher.publish()
            except AutoscalingError as error:
                typer.echo(f"failed: {error}")
            else:
                if count:
                    typer.echo(f"published: write speeds of {plural(count, 'partition')}")
                else:
                    typer.echo("waiting: write speeds are being measured")
            stop.wait(max(0.0, began + pause - time.monotonic()))
    say(f"no write speeds are published to {to} any longer")
