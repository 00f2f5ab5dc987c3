"""``counterpoise snapshot``: writes snapshots of synthetic and real clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from balancer.cli.configuration import variable
from balancer.cli.files import STDIO, snapshot_from, snapshot_to
from balancer.cli.options import addresses
from balancer.cli.terminal import (
    LONGEST,
    CommandError,
    check_outputs,
    out,
    say,
    working,
)
from balancer.composition.client import client_properties
from metrics_reporter.quantities import plural

if TYPE_CHECKING:
    from cluster_model import Snapshot
    from cluster_model.trust import Distrust
    from goals import Goal

KAFKA = "A running Kafka"

_SERVERS = typer.Option(
    "--bootstrap-server",
    metavar="HOST:PORT",
    callback=addresses,
    envvar=variable("--bootstrap-server"),
    rich_help_panel=KAFKA,
    help="Kafka bootstrap servers.",
)
BootstrapServer = Annotated[str, _SERVERS]
Bootstrap = Annotated[str | None, _SERVERS]
CapacityFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar=variable("--capacity"),
        rich_help_panel=KAFKA,
        help="Broker capacities, YAML or JSON: {default: {cpu: 800, network_in: 1e9}, "
        "brokers: {7: {cpu: 1600}}}. Without it, cpu and network are not balanced.",
    ),
]
AttributesFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar=variable("--attributes"),
        rich_help_panel=KAFKA,
        help="Attributes that goals read, YAML or JSON: {brokers: {7: {zone: a}}, topics: "
        "{'pay.*': {tenant: shop}}, topic_configs: [retention.ms], broker_sets: {blue: [7]}}.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar=variable("--command-config"),
        rich_help_panel=KAFKA,
        help="Client properties file, as for Kafka's tools (security.protocol=SASL_SSL ...), or a "
        "configuration file with client: {...}.",
    ),
]
MetricsTopic = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC",
        envvar=variable("--metrics-topic"),
        rich_help_panel=KAFKA,
        help="Topic with the measured cpu and network loads; without it they are left out.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=LONGEST,
        envvar=variable("--timeout"),
        rich_help_panel=KAFKA,
        help="Seconds to wait for an answer.",
    ),
]
PartialView = Annotated[
    bool,
    typer.Option(
        "--partial-view",
        rich_help_panel=KAFKA,
        help="Leave out topics that the user may not describe; by default they are an error.",
    ),
]
Wait = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=LONGEST, help="Seconds to wait for each answer."),
]
GoalsOption = Annotated[
    str,
    typer.Option(
        "--goals",
        metavar="PROFILE|FILE",
        envvar=variable("--goals"),
        help="Goals; see `counterpoise goals list`.",
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="File to write, .json or .npz; - writes JSON to stdout."),
]


def kafka(
    output: Output,
    bootstrap_server: BootstrapServer,
    capacity: CapacityFile = None,
    attributes: AttributesFile = None,
    command_config: CommandConfig = None,
    metrics_topic: MetricsTopic = None,
    partial_view: PartialView = False,
    timeout: Timeout = 10.0,
) -> None:
    """Write a snapshot of a running Kafka: brokers, racks, replicas, sizes.

    Example: `counterpoise snapshot kafka --bootstrap-server localhost:9092 -o cluster.json`
    """
    import numpy as np

    from balancer.composition.source import KafkaSource
    from balancer.inspection.load import ClusterLoad

    _check_suffix(output)
    check_outputs(
        {
            "--capacity": capacity,
            "--attributes": attributes,
            "--command-config": command_config,
        },
        {"--output": output},
        stdout=True,
    )
    with working("reading the cluster"):
        properties = client_properties(command_config)
        source = KafkaSource(
            bootstrap_server,
            capacity,
            properties,
            metrics_topic,
            timeout,
            warn,
            partial_view,
            attributes,
        )
        found, distrust = source.measured()
    estimated = int(np.count_nonzero(ClusterLoad(found, distrust).estimated))
    if estimated:
        warn(
            f"{plural(estimated, 'partition')} without known loads: the file has estimates of "
            "them, which a plan made from it takes for measured"
        )
    _save(found, output)


def flink(
    url: Annotated[
        str, typer.Argument(help="Address of Flink's REST API, like http://jobmanager:8081.")
    ],
    output: Output,
    job: Annotated[str, typer.Option(metavar="ID", help="Id of the job; `flink list` shows it.")],
    timeout: Wait = 10.0,
) -> None:
    """Write a snapshot of a running Flink job: task managers, subtasks, busy times, traffic.

    Example: `counterpoise snapshot flink http://jobmanager:8081
    --job 5a1b7d1a1b3a4e2f8c9d0e1f2a3b4c5d -o job.json`
    """
    from cluster_model.flink import read_flink

    _check_suffix(output)
    with working("reading the job"):
        found = read_flink(url, job, timeout=timeout, warn=warn)
    _save(found, output)


def kafka_streams(
    urls: Annotated[
        list[str],
        typer.Argument(
            help="Address of each instance's Prometheus page, like http://app-1:9404/metrics."
        ),
    ],
    output: Output,
    timeout: Wait = 10.0,
) -> None:
    """Write a snapshot of a Kafka Streams application: instances, tasks, loads.

    Example: `counterpoise snapshot kafka-streams http://app-1:9404/metrics
    http://app-2:9404/metrics -o app.json`
    """
    from cluster_model.kafka_streams import read_kafka_streams

    _check_suffix(output)
    with working("reading the application"):
        found = read_kafka_streams(urls, timeout=timeout, warn=warn)
    _save(found, output)


def synthetic(
    output: Output,
    brokers: Annotated[int, typer.Option(help="Number of brokers.")] = 20,
    partitions: Annotated[int, typer.Option(help="Number of partitions.")] = 2000,
    replication_factor: Annotated[
        int | None, typer.Option(help="Default: 3, or fewer with fewer brokers.")
    ] = None,
    racks: Annotated[
        int | None, typer.Option(help="Default: 5, or fewer with fewer brokers.")
    ] = None,
    topics: Annotated[int | None, typer.Option(help="Default: one per 50 partitions.")] = None,
    skew: Annotated[
        float, typer.Option(help="Approximate load of the fullest broker, in mean loads.")
    ] = 2.0,
    utilization: Annotated[float, typer.Option(help="Mean load as a share of capacity.")] = 0.5,
    rack_violations: Annotated[
        float, typer.Option(help="Share of partitions with two replicas in a rack.")
    ] = 0.05,
    heterogeneity: Annotated[
        float, typer.Option(help="How much the brokers differ; 0 for equal brokers.")
    ] = 0.0,
    disks_per_broker: Annotated[int, typer.Option(help="Disks of a broker; 0 for none.")] = 0,
    dead_brokers: Annotated[int, typer.Option(help="How many of the brokers are dead.")] = 0,
    new_brokers: Annotated[int, typer.Option(help="How many of the brokers are still empty.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the cluster.")] = 0,
) -> None:
    """Generate an unbalanced cluster for experiments.

    Example: `counterpoise snapshot synthetic --brokers 50 --partitions 10000 -o cluster.npz`
    """
    from cluster_model import synthetic_snapshot

    _check_suffix(output)
    with working("generating a cluster"):
        found = synthetic_snapshot(
            brokers=brokers,
            partitions=partitions,
            replication_factor=replication_factor,
            racks=racks,
            topics=topics,
            skew=skew,
            utilization=utilization,
            rack_violations=rack_violations,
            heterogeneity=heterogeneity,
            disks_per_broker=disks_per_broker,
            dead_brokers=dead_brokers,
            new_brokers=new_brokers,
            seed=seed,
        )
    _save(found, output)


def read_cluster(
    path: Path | None,
    bootstrap: str | None,
    *,
    capacity: Path | None,
    attributes: Path | None,
    command_config: Path | None,
    metrics_topic: str | None,
    partial_view: bool,
    timeout: float,
    snapshot_option: list[str] | None,
    goals: Sequence[Goal] | None = None,
) -> tuple[Snapshot, Distrust]:
    """A snapshot from a file or from a running Kafka, whichever is given.

    Parameters
    ----------
    path, bootstrap
        One of them, or a sentence says that one is expected.
    capacity, attributes, command_config, metrics_topic, partial_view
        Options that go with a running Kafka.
    timeout
        Seconds to wait for an answer of Kafka.
    snapshot_option
        Options of the reader of a file.
    goals
        Goals that need the loads of the metrics topic, see :meth:`KafkaSource.measured`.
    """
    from balancer.composition.source import KafkaSource
    from cluster_model.trust import Distrust

    if (path is None) == (bootstrap is None):
        given = "neither" if path is None else "both"
        raise CommandError(
            f"a snapshot file or --bootstrap-server HOST:PORT expected, {given} of them given"
        )
    if path is not None:
        for option, found in (
            ("--capacity", capacity is not None),
            ("--attributes", attributes is not None),
            ("--command-config", command_config is not None),
            ("--metrics-topic", metrics_topic is not None),
            ("--partial-view", partial_view),
        ):
            if found:
                raise CommandError(
                    f"{option} goes with --bootstrap-server, but a snapshot file is given"
                )
        with working("reading the snapshot"):
            return snapshot_from(path, snapshot_option), Distrust()
    assert bootstrap is not None
    if snapshot_option:
        raise CommandError("--snapshot-option goes with a snapshot file, but none is given")
    with working("reading the cluster"):
        return KafkaSource(
            bootstrap,
            capacity,
            client_properties(command_config),
            metrics_topic,
            timeout,
            warn,
            partial_view,
            attributes,
        ).measured(goals)


def _check_suffix(path: Path) -> None:
    from cluster_model.files import check_suffix

    if path != STDIO:
        check_suffix(path)


def warn(sentence: str) -> None:
    """Print what the reader of a result should know, on stderr."""
    say(f"warning: {sentence}")


def _save(found: Snapshot, path: Path) -> None:
    snapshot_to(found, path)
    about = f"{path}: {repr(found).removeprefix('Snapshot(').removesuffix(')')}"
    if path == STDIO:
        say(about)
    else:
        out().print(about, markup=False)
