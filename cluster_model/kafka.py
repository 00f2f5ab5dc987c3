"""The snapshot of a live Kafka: metadata, racks and log directories, asked of its brokers.

Kafka knows where replicas are and how many bytes they hold. It knows neither what
its brokers could carry, which the caller states (:class:`Capacities`), nor how much
CPU and network a partition takes, which a metrics model gives (`loads`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from cluster_model.build import (
    BrokerRecord,
    DiskRecord,
    PartitionRecord,
    SnapshotDocument,
    build_snapshot,
)
from cluster_model.capacities import Capacities, CapacityError, as_capacities
from cluster_model.errors import InputError
from cluster_model.snapshot import DEFAULT_RESOURCES, Snapshot

T = TypeVar("T")
Loads = Mapping[tuple[str, int], "PartitionLoad"]

DISK = "disk"

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FILES = {"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"}

# The names librdkafka gives the settings that TLS and SASL take, so that one set of
# client properties serves both clients.
_LIBRDKAFKA = {
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}


# At debug level these write the client's configuration and all that it sends, and with
# that passwords.
_TALKATIVE = ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser")


class KafkaSourceError(InputError):
    """A Kafka that cannot be read: says which, why, and what to do."""


class PartitionLoad(NamedTuple):
    """Load of one replica of a partition per resource, while it leads and while it follows."""

    leader: Mapping[str, float] = {}
    follower: Mapping[str, float] = {}


def read_cluster(
    bootstrap_servers: str | Sequence[str],
    *,
    capacity: Capacities | Mapping[str, Any] | str | Path | None = None,
    loads: Loads | None = None,
    resources: Sequence[str] = DEFAULT_RESOURCES,
    client_properties: Mapping[str, Any] | None = None,
    timeout: float = 10.0,
) -> Snapshot:
    """Take a snapshot of a live Kafka.

    Topics include internal ones. A partition's ``disk`` load is its leader's size
    while it leads and its largest follower's while it follows (a follower that is
    still catching up will grow to that). A broker that holds replicas but does not
    serve is ``dead``; one with an offline log directory has ``bad_disks``.

    Parameters
    ----------
    bootstrap_servers
        ``"host:port,host:port"`` or a sequence of ``"host:port"``.
    capacity
        What brokers can carry: ``{resource: value}`` for all of them, the
        ``{"default": ..., "brokers": ...}`` of a capacity file, such a file's path, or
        :class:`Capacities`. Where ``disk`` is not stated, it is the bytes that the log
        directories' file systems hold (Kafka 3.3 and newer); state it where two
        log directories share a file system, whose bytes would count twice.
    loads
        Load of partitions, by (topic, number); wins over the disk load read from
        Kafka, and a resource that is in neither has load 0.
    resources
        Names of the snapshot's resources.
    client_properties
        Anything the admin client of kafka-python takes (``security_protocol``,
        ``ssl_cafile``, ``sasl_mechanism``, ...); dots may stand for underscores, and
        librdkafka's names for the TLS and SASL settings are understood.
    timeout
        Longest wait for any one answer, in seconds.

    Returns
    -------
    Snapshot

    Raises
    ------
    KafkaSourceError
        If the brokers do not answer, or refuse.
    CapacityError
        If a broker has no usable capacity for one of the resources.
    SnapshotError
        If what was read contradicts itself, for example `loads` of an unknown resource.
    """
    capacities = as_capacities(capacity)
    with admin_client(bootstrap_servers, client_properties, timeout=timeout) as ask:
        brokers = ask(lambda admin: admin.describe_cluster())["brokers"]
        topics = ask(lambda admin: admin.describe_topics())
        log_dirs: dict[int, list[dict[str, Any]]] = {}
        for broker, held in _held_by(brokers, topics).items():
            log_dirs[broker] = _log_dirs(ask, broker, held)
    return build_snapshot(
        as_document(brokers, topics, log_dirs, capacities, loads or {}, tuple(resources))
    )


Ask = Callable[[Callable[[Any], Any]], Any]


@contextmanager
def admin_client(
    bootstrap_servers: str | Sequence[str],
    client_properties: Mapping[str, Any] | None = None,
    *,
    timeout: float = 10.0,
) -> Iterator[Ask]:
    """Connect to a Kafka, and yield a function that calls its admin client.

    The function takes a function of the admin client and returns what that returns;
    every call ends within `timeout` seconds.

    Examples
    --------
    ::

        with admin_client("localhost:9092") as ask:
            topics = ask(lambda admin: admin.list_topics())

    Raises
    ------
    KafkaSourceError
        In one sentence that names the bootstrap servers, for whatever goes wrong.
    """
    try:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaConfigurationError, KafkaError, KafkaTimeoutError
        from kafka.net.compat import KafkaNetClient
    except ImportError:
        raise KafkaSourceError(
            "reading a live Kafka needs kafka-python 3 or newer: install counterpoise[kafka]"
        ) from None
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_above_debug)
    servers = _servers(bootstrap_servers)
    where = f"Kafka at {','.join(servers)}"
    silent = (
        f"{where} did not answer in {timeout:g} s: check that the brokers run, that the "
        "addresses can be reached from here, and the security settings of the client properties"
    )
    # A client whose constructor fails keeps its thread; only this remembers it.
    made: list[Any] = []

    def remember(**config: Any) -> Any:
        made.append(KafkaNetClient(**config))
        return made[-1]

    milliseconds = max(1, int(timeout * 1000))
    properties = {
        "request_timeout_ms": milliseconds,
        "bootstrap_timeout_ms": milliseconds,
        "kafka_client": remember,
        **_client_properties(client_properties or {}),
        "bootstrap_servers": servers,
    }

    def bounded(call: Callable[[], T]) -> T:
        try:
            # More than the client's own timeouts, so that those tell first what was wrong.
            return _within(timeout + 1, call)
        except (KafkaTimeoutError, TimeoutError):
            raise KafkaSourceError(silent) from None
        except (KafkaError, OSError) as error:
            raise KafkaSourceError(
                f"{where} refused or broke off: {_sentence(error)}; check its health and the "
                "security settings of the client properties, then try again"
            ) from None

    def connect() -> Any:
        try:
            return KafkaAdminClient(**properties)
        except (KafkaConfigurationError, AssertionError, TypeError, ValueError) as error:
            raise KafkaSourceError(f"{where}: client properties: {_sentence(error)}") from None

    try:
        admin = bounded(connect)
        yield lambda call: bounded(lambda: call(admin))
    finally:
        for client in made:
            client.close()


def as_document(
    brokers: Sequence[Mapping[str, Any]],
    topics: Sequence[Mapping[str, Any]],
    log_dirs: Mapping[int, Sequence[Mapping[str, Any]]],
    capacities: Capacities,
    loads: Loads,
    resources: tuple[str, ...] = DEFAULT_RESOURCES,
) -> SnapshotDocument:
    """The records of a snapshot, from what the brokers answered.

    Parameters
    ----------
    brokers, topics
        As the admin client's ``describe_cluster()["brokers"]`` and ``describe_topics()``.
    log_dirs
        Broker id to its answer to DescribeLogDirs; a broker that is missing is dead.
    capacities, loads, resources
        As in :func:`read_cluster`.

    Raises
    ------
    CapacityError
        If a broker that is not dead has no capacity for one of the resources.
    """
    described = {b["broker_id"]: b for b in brokers}
    held = [(topic["name"], p) for topic in topics for p in topic["partitions"]]
    held = [(topic, p) for topic, p in held if p["replica_nodes"]]
    sizes = {
        (broker, topic["name"], p["partition_index"]): (p["partition_size"], answer["log_dir"])
        for broker, answers in log_dirs.items()
        for answer in answers
        if answer["error_code"] == 0
        for topic in answer["topics"]
        for p in topic["partitions"]
        if not p["is_future_key"]
    }
    # A directory that is offline does not tell what it held; which of several is all the same.
    offline = {
        broker: answer["log_dir"]
        for broker, answers in log_dirs.items()
        for answer in reversed(answers)
        if answer["error_code"] != 0
    }
    known = sorted(log_dirs.keys() | {b for _, p in held for b in p["replica_nodes"]})
    return SnapshotDocument(
        resources=resources,
        brokers=tuple(
            _broker(i, described.get(i, {}), log_dirs.get(i), capacities.of(i), resources)
            for i in known
        ),
        partitions=tuple(
            _partition(topic, p, sizes, offline, loads, resources) for topic, p in held
        ),
    )


def _broker(
    broker: int,
    described: Mapping[str, Any],
    log_dirs: Sequence[Mapping[str, Any]] | None,
    stated: Mapping[str, float],
    resources: tuple[str, ...],
) -> BrokerRecord:
    capacity = dict(stated)
    disks: tuple[DiskRecord, ...] = ()
    state: Literal["alive", "dead", "bad_disks"] = "alive"
    if log_dirs is None:
        state = "dead"
        # Nothing is placed on a dead broker, so what it could carry may stay unknown.
        capacity = dict.fromkeys(resources, 0.0) | capacity
    else:
        alive = [d["error_code"] == 0 for d in log_dirs]
        if not all(alive):
            state = "bad_disks"
        total = [float(max(d.get("total_bytes", -1), -1)) for d in log_dirs]
        if DISK not in capacity and all(b >= 0 for b, ok in zip(total, alive, strict=True) if ok):
            capacity[DISK] = sum(b for b in total if b >= 0)
        missing = [r for r in resources if r not in capacity]
        if missing:
            raise CapacityError(
                f"capacity of broker {broker}: no value for resource {missing[0]!r}, "
                f"give one under default or under brokers, {broker}"
            )
        share = capacity.get(DISK, 0.0) / max(1, len(log_dirs))
        disks = tuple(
            # A directory that is offline tells no size, and holds nothing any more.
            DiskRecord(
                path=d["log_dir"],
                capacity=b if b >= 0 else share if ok else 0.0,
                alive=ok,
            )
            for d, b, ok in zip(log_dirs, total, alive, strict=True)
        )
    return BrokerRecord(
        id=broker,
        # A capacity file may name more resources than this snapshot has.
        capacity={r: capacity[r] for r in resources},
        rack=described.get("rack"),
        host=described.get("host") or None,
        state=state,
        disks=disks,
    )


def _partition(
    topic: str,
    p: Mapping[str, Any],
    sizes: Mapping[tuple[int, str, int], tuple[int, str]],
    offline: Mapping[int, str],
    loads: Loads,
    resources: tuple[str, ...],
) -> PartitionRecord:
    number, replicas = p["partition_index"], p["replica_nodes"]
    found = [sizes.get((broker, topic, number)) for broker in replicas]
    lost = p.get("offline_replicas", ())
    size = {b: float(f[0]) for b, f in zip(replicas, found, strict=True) if f is not None}
    leader = p["leader_id"] if p["leader_id"] in replicas else None
    largest = max((s for b, s in size.items() if b != leader), default=size.get(leader, 0.0))
    led = size.get(leader, largest)
    read = PartitionLoad({DISK: led}, {DISK: largest}) if DISK in resources else PartitionLoad()
    given = loads.get((topic, number), PartitionLoad())
    return PartitionRecord(
        topic=topic,
        partition=number,
        replicas=tuple(replicas),
        leader=leader,
        leader_load={**read.leader, **given.leader},
        follower_load={**read.follower, **given.follower},
        log_dirs=tuple(
            (offline.get(broker) if broker in lost else None) if f is None else f[1]
            for broker, f in zip(replicas, found, strict=True)
        ),
    )


def _log_dirs(ask: Ask, broker: int, held: dict[str, list[int]]) -> list[dict[str, Any]]:
    (answer,) = ask(lambda admin: admin.describe_log_dirs(held, [broker]))
    log_dirs: list[dict[str, Any]] = answer["log_dirs"]
    if not log_dirs:
        # A refusal looks like this: the client drops the answer's error code.
        raise KafkaSourceError(
            f"broker {broker} told no log directories: "
            "give the client's user the right to DESCRIBE the cluster"
        )
    return log_dirs


def _held_by(
    brokers: Sequence[Mapping[str, Any]], topics: Sequence[Mapping[str, Any]]
) -> dict[int, dict[str, list[int]]]:
    """Broker id to the partitions it holds, of the brokers that serve."""
    held: dict[int, dict[str, list[int]]] = {
        b["broker_id"]: {} for b in brokers if not b.get("is_fenced", False)
    }
    for topic in topics:
        for p in topic["partitions"]:
            for broker in p["replica_nodes"]:
                if broker in held:
                    held[broker].setdefault(topic["name"], []).append(p["partition_index"])
    return held


def _servers(bootstrap_servers: str | Sequence[str]) -> list[str]:
    given = (
        bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else bootstrap_servers
    )
    servers = [server.strip() for server in given if server.strip()]
    for server in servers:
        _, colon, port = server.rpartition(":")
        if colon and not server.endswith("]") and not port.isdecimal():
            raise KafkaSourceError(f"bootstrap servers: {server!r} found, host:port expected")
    if not servers:
        raise KafkaSourceError("bootstrap servers: none found, host:port expected")
    return servers


def _client_properties(given: Mapping[str, Any]) -> dict[str, Any]:
    names = {name: name.replace(".", "_") for name in given}
    properties = {_LIBRDKAFKA.get(names[name], names[name]): value for name, value in given.items()}
    if "security_protocol" in properties:
        protocol = str(properties["security_protocol"]).upper()
        if protocol not in _PROTOCOLS:
            raise KafkaSourceError(
                f"client properties: security_protocol {protocol!r} found, "
                f"one of {', '.join(_PROTOCOLS)} expected"
            )
        properties["security_protocol"] = protocol
    for name in _FILES & properties.keys():
        # The client would try again and again, and never say what it misses.
        if properties[name] is not None and not Path(properties[name]).is_file():
            raise KafkaSourceError(
                f"client properties: {name} {str(properties[name])!r} found, a file expected"
            )
    return properties


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Call in a thread of its own, since the client's own timeouts miss a silent TLS peer."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError
    return done[0]


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _sentence(error: BaseException) -> str:
    # The client's errors print their class before what they say.
    said = str(error.args[0]) if error.args else type(error).__name__
    return " ".join(said.split()).rstrip(".")
