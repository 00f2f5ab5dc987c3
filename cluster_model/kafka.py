"""Takes snapshots of a live Kafka: metadata, racks and log directories, read from its brokers.

Kafka knows where replicas are and how many bytes they hold. It knows neither the
capacities of its brokers, which the caller states (:class:`Capacities`), nor the CPU
and network that a partition uses, which a metrics model supplies (`loads`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from cluster_model.build import (
    BrokerRecord,
    PartitionRecord,
    SnapshotDocument,
    build_snapshot,
)
from cluster_model.capacities import Capacities, CapacityError, as_capacities
from cluster_model.errors import InputError
from cluster_model.log_dirs import Room, room_of
from cluster_model.snapshot import DEFAULT_RESOURCES, Snapshot
from metrics_reporter.clients import servers as bootstrap_addresses
from metrics_reporter.errors import ReporterError
from metrics_reporter.quantities import amounts, plural

T = TypeVar("T")
PartitionLoads = Mapping[tuple[str, int], "PartitionLoad"]

DISK = "disk"

# Topics that nearly every cluster has, and that may be denied by name.
_INTERNAL = {"__consumer_offsets", "__transaction_state"}

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FILES = {"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"}

# librdkafka's names for the TLS and SASL settings, so that one set of client properties
# serves both clients.
_LIBRDKAFKA = {
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}


# At debug level these log the client's configuration and everything it sends, passwords
# included.
_TALKATIVE = ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser")


class KafkaSourceError(InputError):
    """A Kafka that cannot be read; the message says which, why, and what to do."""


class KafkaDeniedError(KafkaSourceError):
    """A Kafka that rejects the user, authenticated or not; retrying does not help."""


class PartitionLoad(NamedTuple):
    """Load per resource of one replica of a partition, as leader and as follower."""

    leader: Mapping[str, float] = {}
    follower: Mapping[str, float] = {}


def read_cluster(
    bootstrap_servers: str | Sequence[str],
    *,
    capacity: Capacities | Mapping[str, Any] | str | Path | None = None,
    loads: PartitionLoads | None = None,
    resources: Sequence[str] = DEFAULT_RESOURCES,
    client_properties: Mapping[str, Any] | None = None,
    timeout: float = 10.0,
    partial_view: bool = False,
    placement_only: bool = False,
    notice: Callable[[str], None] | None = None,
    topic_configs: Sequence[str] = (),
) -> Snapshot:
    """Take a snapshot of a live Kafka.

    Topics include internal ones. A partition's ``disk`` load is its leader's size
    while it leads and its largest follower's while it follows (a follower that is
    catching up will grow to that). A broker that holds replicas but does not
    serve is ``dead``; one with an offline log directory has ``bad_disks``. A partition
    under reassignment has its future replicas and leader, and is marked as
    ``reassigning``. If the reassignment cannot finish, because there is no leader to copy
    from, the partition has its previous replicas and no leader.

    Parameters
    ----------
    bootstrap_servers
        ``"host:port,host:port"`` or a sequence of ``"host:port"``.
    capacity
        Capacities of brokers: ``{resource: value}`` for all of them, the
        ``{"default": ..., "brokers": ...}`` of a capacity file, such a file's path, or
        :class:`Capacities`. Where ``disk`` is not stated, it is the bytes of the broker's
        replicas plus the free bytes of its log directories (Kafka 3.3 and newer). Free
        bytes of a file system that several directories share count once; ``log_dirs`` of
        :class:`Capacities` states whether they share one.
    loads
        Load of partitions, by (topic, number); overrides the disk load read from
        Kafka. A resource that is in neither has load 0.
    resources
        Names of the snapshot's resources.
    client_properties
        Any option of kafka-python's admin client (``security_protocol``,
        ``ssl_cafile``, ``sasl_mechanism``, ...). Dots may replace underscores, and
        librdkafka's names for the TLS and SASL settings are accepted.
    timeout
        Longest wait for each answer, in seconds.
    partial_view
        Whether the snapshot may lack topics that the client may not describe.
    placement_only
        Whether the location of replicas is enough, as for healing. Then brokers whose log
        directories cannot be read have none, and hidden topics may be missing. `capacity`
        must state that of `resources`; none are needed.
    notice
        Called with each sentence that a user of the snapshot should know.
    topic_configs
        Configs of topics to read as their attributes, such as ``retention.ms``: numbers where
        every topic has one, otherwise text.

    Returns
    -------
    Snapshot

    Raises
    ------
    KafkaSourceError
        If the brokers do not answer, refuse, or hide topics from the client.
    CapacityError
        If a broker has no usable capacity for one of the resources.
    SnapshotError
        If the data contradicts itself, for example if `loads` has an unknown resource.
    """
    capacities = as_capacities(capacity, resources)
    notify = notice or (lambda sentence: None)
    taken = int(1000 * time.time())
    with admin_client(bootstrap_servers, client_properties, timeout=timeout) as ask:
        cluster = ask(lambda admin: admin.describe_cluster())
        # Metadata does not show reassignments. They are read before and after it, so that
        # one that starts or ends in between does not look like a larger partition.
        try:
            earlier = ask(lambda admin: admin.list_partition_reassignments())
        except KafkaSourceError as error:
            raise _without_rights(cluster) or error from None
        topics = ask(lambda admin: admin.describe_topics())
        after = ask(lambda admin: admin.list_partition_reassignments())
        serving = [b["broker_id"] for b in cluster["brokers"] if not b.get("is_fenced", False)]
        if placement_only:
            log_dirs = _log_dirs_that_answer(ask, serving, 2 * timeout, notify)
        else:
            log_dirs = {broker: _log_dirs(ask, broker) for broker in serving}
        hidden = _hidden(ask, topics, log_dirs, {**earlier, **after})
        version = ask(_metadata_version)
        configs = _topic_configs(ask, [topic["name"] for topic in topics], topic_configs)
    if hidden is not None:
        if not (partial_view or placement_only):
            raise KafkaSourceError(
                f"{hidden}: give the client's user the right to do so (kafka-acls --add --topic "
                "'*' --operation Describe), or ask for a partial view (--partial-view)"
            )
        left_out = "they are not healed" if placement_only else "the snapshot is without them"
        notify(f"{hidden}: {left_out}")
    document = as_document(
        cluster["brokers"],
        topics,
        log_dirs,
        capacities,
        loads or {},
        tuple(resources),
        reassignments={**earlier, **after},
        notice=None if placement_only else notify,
    )
    identity = {"cluster_id": cluster["cluster_id"], "metadata_version": version}
    placed = {p.topic for p in document.partitions}
    update = {
        "taken_ms": taken,
        "topic_attributes": {t: own for t, own in configs.items() if t in placed},
    }
    return build_snapshot(document.model_copy(update=update | identity))


Ask = Callable[[Callable[[Any], Any]], Any]


def topic_ids(
    bootstrap_servers: str | Sequence[str],
    client_properties: Mapping[str, str] | None = None,
    *,
    timeout: float = 30.0,
) -> dict[str, str]:
    """Ids of topics by name, of those that have one. A topic that is created again has another.

    Raises
    ------
    KafkaSourceError
        If the brokers do not answer, or refuse.
    """
    with admin_client(bootstrap_servers, client_properties, timeout=timeout) as ask:
        topics = ask(lambda admin: admin.describe_topics())
    ids = ((topic["name"], topic.get("topic_id")) for topic in topics)
    return {name: str(id_) for name, id_ in ids if id_ and getattr(id_, "int", 1)}


@contextmanager
def admin_client(
    bootstrap_servers: str | Sequence[str],
    client_properties: Mapping[str, Any] | None = None,
    *,
    timeout: float = 10.0,
    given_up: Callable[[], bool] = lambda: False,
    before_send: Callable[[], None] | None = None,
) -> Iterator[Ask]:
    """Connect to a Kafka, and yield a function that calls its admin client.

    The function takes a function of the admin client and returns its result;
    every call ends within `timeout` seconds, and soon after `given_up` becomes true.
    `before_send` is called in the client's thread right before bytes are sent to a broker.
    If it raises, the connection is closed with nothing sent, and the call ends.

    Examples
    --------
    ::

        with admin_client("localhost:9092") as ask:
            topics = ask(lambda admin: admin.list_topics())

    Raises
    ------
    KafkaSourceError
        For any failure, in one sentence that names the bootstrap servers.
    KafkaDeniedError
        If the user is not authenticated or not authorized.
    """
    try:
        from kafka import KafkaAdminClient
        from kafka.errors import (
            AuthorizationError,
            KafkaConfigurationError,
            KafkaError,
            KafkaTimeoutError,
            SaslAuthenticationFailedError,
        )
        from kafka.net.compat import KafkaNetClient
        from kafka.version import __version__ as client_version
    except ImportError:
        raise KafkaSourceError(
            "reading a live Kafka needs kafka-python 3 or newer: pip install 'counterpoise[kafka]'"
        ) from None
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_above_debug)
    try:
        servers = bootstrap_addresses(bootstrap_servers)
    except ReporterError as error:
        raise KafkaSourceError(str(error)) from None
    where = f"Kafka at {','.join(servers)}"
    silent = (
        f"{where} did not answer in {timeout:g} s: check that the brokers run, that the "
        "addresses can be reached from here, and the security settings of the client properties"
    )
    # A client whose constructor fails keeps its thread running; this is the only reference to it.
    made: list[Any] = []
    # Why connections failed. The client only logs it while it looks for a first broker.
    failures: list[BaseException] = []
    transports = _Transports(before_send)

    def remember(**config: Any) -> Any:
        made.append(KafkaNetClient(**config))
        manager = made[-1]._manager
        transports.watch(manager)
        connect = manager.get_connection

        def connected(*args: Any, **options: Any) -> Any:
            connection = connect(*args, **options)
            connection.init_future.add_errback(failures.append)
            return connection

        manager.get_connection = connected
        return made[-1]

    milliseconds = max(1, int(timeout * 1000))
    properties = {
        "request_timeout_ms": milliseconds,
        "bootstrap_timeout_ms": milliseconds,
        "kafka_client": remember,
        **_client_properties(client_properties or {}),
        "bootstrap_servers": servers,
    }

    def unknown_user() -> KafkaDeniedError:
        return KafkaDeniedError(
            f"{where} refused the user or the password (authentication failed): check the "
            "security settings of the client properties"
        )

    def interrupted() -> None:
        """End a wait that cannot succeed; the client would keep trying a wrong password."""
        if given_up():
            raise KafkaSourceError(f"{where} did not answer before it had to stop")
        if any(isinstance(error, SaslAuthenticationFailedError) for error in failures):
            raise unknown_user()

    def bounded(call: Callable[[], T]) -> T:
        try:
            # Longer than the client's own timeouts, whose messages are more specific.
            return _within(timeout + 1, call, interrupted)
        except (KafkaTimeoutError, TimeoutError):
            raise KafkaSourceError(silent) from None
        except SaslAuthenticationFailedError:
            raise unknown_user() from None
        except AuthorizationError as error:
            kind = type(error).__name__
            what = "a topic" if "Topic" in kind else "the cluster"
            what = "a consumer group" if "Group" in kind else what
            raise KafkaDeniedError(
                f"{where} refused: the user of the client properties is not authorized for this "
                f"on {what}"
            ) from None
        except (KafkaError, OSError) as error:
            raise KafkaSourceError(
                f"{where} refused or closed the connection: {_sentence(error)}; check its health "
                "and the security settings of the client properties, then try again"
            ) from None

    def connect() -> Any:
        try:
            return KafkaAdminClient(**properties)
        except (KafkaConfigurationError, AssertionError, TypeError, ValueError) as error:
            raise KafkaSourceError(f"{where}: client properties: {_sentence(error)}") from None

    try:
        admin = bounded(connect)
        if not transports.checked:
            raise KafkaSourceError(
                f"kafka-python {client_version} sends requests in a way that cannot be checked, so "
                "nothing may be written with it: install kafka-python 3.0.12"
            )
        yield lambda call: bounded(lambda: call(admin))
    finally:
        for client in made:
            client.close()


def as_document(
    brokers: Sequence[Mapping[str, Any]],
    topics: Sequence[Mapping[str, Any]],
    log_dirs: Mapping[int, Sequence[Mapping[str, Any]]],
    capacities: Capacities,
    loads: PartitionLoads,
    resources: tuple[str, ...] = DEFAULT_RESOURCES,
    *,
    reassignments: Mapping[Any, Mapping[str, Any]] | None = None,
    notice: Callable[[str], None] | None = None,
) -> SnapshotDocument:
    """Build the records of a snapshot from the brokers' answers.

    Parameters
    ----------
    brokers, topics
        As the admin client's ``describe_cluster()["brokers"]`` and ``describe_topics()``.
    log_dirs
        Broker id to its DescribeLogDirs answer; a broker that is missing is dead.
    capacities, loads, resources, notice
        As in :func:`read_cluster`.
    reassignments
        As the admin client's ``list_partition_reassignments()``.

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
    # An offline directory does not report what it held; with several, any of them will do.
    offline = {
        broker: answer["log_dir"]
        for broker, answers in log_dirs.items()
        for answer in reversed(answers)
        if answer["error_code"] != 0
    }
    own: dict[int, set[tuple[str, int]]] = {broker: set() for broker in log_dirs}
    for topic, p in held:
        for broker in p["replica_nodes"]:
            own.setdefault(broker, set()).add((topic, p["partition_index"]))
    rooms = {
        broker: room_of(
            answers, own[broker], capacities.sharing_of(broker), capacities.of(broker).get(DISK)
        )
        for broker, answers in log_dirs.items()
    }
    for sentence in _notices(rooms, capacities):
        if notice is not None:
            notice(sentence)
    ongoing = reassignments or {}
    return SnapshotDocument(
        resources=resources,
        brokers=tuple(
            _broker(i, described.get(i, {}), rooms.get(i), capacities.of(i), resources)
            for i in sorted(own)
        ),
        partitions=tuple(
            _partition(
                topic,
                p,
                sizes,
                offline,
                loads,
                resources,
                ongoing.get((topic, p["partition_index"])),
            )
            for topic, p in held
        ),
    )


def _topic_configs(
    ask: Ask, topics: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The named configs of topics, as attributes."""
    if not (topics and names):
        return {}
    from kafka.admin import ConfigResource

    asked = [ConfigResource("topic", topic, list(names)) for topic in topics]
    answer = ask(lambda admin: admin.describe_configs(asked, config_filter="all")).get("topic", {})
    return configs_as_attributes(answer, names)


def configs_as_attributes(
    answer: Mapping[str, Mapping[str, Mapping[str, Any]]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Attributes of topics from their configs, which Kafka states as text.

    Parameters
    ----------
    answer
        Topic to config name to its data, as of the admin client's ``describe_configs()``.
    names
        The configs to take.

    Raises
    ------
    KafkaSourceError
        For a config that no topic has.

    Examples
    --------
    >>> answer = {"a": {"retention.ms": {"value": "5"}, "cleanup.policy": {"value": "compact"}}}
    >>> configs_as_attributes(answer, ["retention.ms", "cleanup.policy"])
    {'a': {'retention.ms': 5.0, 'cleanup.policy': 'compact'}}
    """
    found: dict[str, dict[str, Any]] = {topic: {} for topic in answer}
    for name in names:
        texts = {t: c[name].get("value") for t, c in answer.items() if name in c}
        values = {t: text for t, text in texts.items() if text not in (None, "")}
        if not texts:
            raise KafkaSourceError(
                f"topic_configs: {name!r} found, the name of a config of Kafka's topics expected"
            )
        numbers = {t: number for t, v in values.items() if (number := _number(v)) is not None}
        for topic, value in (numbers if len(numbers) == len(values) else values).items():
            found[topic][name] = value
    return found


def _number(text: str) -> float | None:
    """A finite number, or None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _broker(
    broker: int,
    described: Mapping[str, Any],
    room: Room | None,
    stated: Mapping[str, float],
    resources: tuple[str, ...],
) -> BrokerRecord:
    capacity = dict(stated)
    state: Literal["alive", "dead", "bad_disks"] = "alive"
    if room is None:
        state = "dead"
        # Nothing is placed on a dead broker, so its capacity may stay unknown.
        capacity = dict.fromkeys(resources, 0.0) | capacity
    else:
        if not all(disk.alive for disk in room.disks):
            state = "bad_disks"
        if room.capacity is not None:
            capacity.setdefault(DISK, room.capacity)
        missing = [r for r in resources if r not in capacity]
        if missing:
            raise CapacityError(
                f"capacity of broker {broker}: no value for resource {missing[0]!r}, "
                f"give one under default or under brokers, {broker}"
            )
    return BrokerRecord(
        id=broker,
        # A capacity file may name more resources than this snapshot has.
        capacity={r: capacity[r] for r in resources},
        rack=described.get("rack"),
        host=described.get("host") or None,
        state=state,
        disks=() if room is None else room.disks,
    )


def _notices(rooms: Mapping[int, Room], capacities: Capacities) -> Iterator[str]:
    """Sentences about the brokers' disks that a user should know."""
    guessed = [b for b, room in rooms.items() if room.shared and capacities.sharing_of(b) is None]
    if guessed:
        first = guessed[0]
        yield (
            f"log directories of {len(guessed):,} of {plural(len(rooms), 'broker')}, for example "
            f"{' and '.join(rooms[first].shared)} of broker {first}, have the same size and free "
            "bytes: they are taken to share a file system, which counts once (log_dirs: separate "
            "in the capacity file if they do not, log_dirs: shared if they do)"
        )
    for broker, room in rooms.items():
        stated = capacities.of(broker).get(DISK)
        if stated is not None and room.capacity is not None and stated > room.capacity:
            most, real = amounts(stated, room.capacity)
            yield (
                f"broker {broker}: a disk capacity of {most} is stated, but its replicas and free "
                f"space are {real}"
            )


def _partition(
    topic: str,
    p: Mapping[str, Any],
    sizes: Mapping[tuple[int, str, int], tuple[int, str]],
    offline: Mapping[int, str],
    loads: PartitionLoads,
    resources: tuple[str, ...],
    ongoing: Mapping[str, Any] | None,
) -> PartitionRecord:
    number, now = p["partition_index"], p["replica_nodes"]
    found = {b: f for b in now if (f := sizes.get((b, topic, number))) is not None}
    lost = p.get("offline_replicas", ())
    size = {b: float(f[0]) for b, f in found.items()}
    leader = p["leader_id"] if p["leader_id"] in now else None
    if ongoing is not None and leader in lost:
        # Kafka copies only from the leader, and metadata may still name the previous one.
        leader = None
    # An unfinished copy does not show its final size.
    begun = () if ongoing is None else ongoing["adding_replicas"]
    largest = max(
        (s for b, s in size.items() if b != leader and b not in begun),
        default=size.get(leader, max(size.values(), default=0.0)),
    )
    led = size.get(leader, largest)
    read = PartitionLoad({DISK: led}, {DISK: largest}) if DISK in resources else PartitionLoad()
    given = loads.get((topic, number), PartitionLoad())
    replicas = now
    if ongoing is not None:
        replicas = before(now, ongoing) if leader is None else settled(now, ongoing)
    if leader is not None and leader not in replicas:
        # Kafka elects the first replica when the leader leaves.
        leader = replicas[0]
    return PartitionRecord(
        topic=topic,
        partition=number,
        replicas=tuple(replicas),
        leader=leader,
        leader_load={**read.leader, **given.leader},
        follower_load={**read.follower, **given.follower},
        log_dirs=tuple(
            found[broker][1] if broker in found else offline.get(broker) if broker in lost else None
            for broker in replicas
        ),
        reassigning=ongoing is not None,
    )


def settled(replicas: Sequence[int], ongoing: Mapping[str, Any]) -> list[int]:
    """Replicas that a partition will have once its reassignment ends.

    Examples
    --------
    >>> settled([3, 1, 2], {"adding_replicas": [3], "removing_replicas": [2]})
    [3, 1]

    A reassignment cancelled in the meantime leaves the replicas as they are:

    >>> settled([1, 2], {"adding_replicas": [3], "removing_replicas": [2]})
    [1, 2]
    """
    adding, removing = ongoing["adding_replicas"], ongoing["removing_replicas"]
    leaving = removing if set(adding) <= set(replicas) else adding
    return [b for b in replicas if b not in leaving] or list(replicas)


def before(replicas: Sequence[int], ongoing: Mapping[str, Any]) -> list[int]:
    """Replicas that a partition had before its reassignment began.

    Examples
    --------
    >>> before([3, 1, 2], {"adding_replicas": [3], "removing_replicas": [2]})
    [1, 2]
    """
    return [b for b in replicas if b not in ongoing["adding_replicas"]] or list(replicas)


def _without_rights(cluster: Mapping[str, Any]) -> KafkaSourceError | None:
    """The error of a client that may not describe the cluster; None if it may."""
    rights = cluster.get("authorized_operations")
    if rights is None or "DESCRIBE" in rights:
        return None
    return KafkaSourceError(
        f"the client's user lacks the right to Describe cluster {cluster['cluster_id']}: "
        "reassignments and log directories cannot be read without it (kafka-acls --add "
        "--cluster --operation Describe)"
    )


def _metadata_version(admin: Any) -> int | None:
    """The cluster's ``metadata.version``; None before Kafka 3.3, or if unknown."""
    found = admin.describe_features().get("metadata.version", {}).get("finalized")
    return None if found is None else int(found[1])


def _hidden(
    ask: Ask,
    topics: Sequence[Mapping[str, Any]],
    log_dirs: Mapping[int, Sequence[Mapping[str, Any]]],
    reassignments: Mapping[Any, Any],
) -> str | None:
    """Whether there are, or may be, topics that the client may not describe; None for no.

    Kafka leaves them out of all lists. By name it refuses them, whether the topic exists
    or not, so a name that no topic has shows whether any name may be described. A topic
    that brokers hold and metadata lacks may also be a leftover of a deleted topic, or newer
    than the metadata; Kafka does not refuse that one.
    """
    from kafka.errors import TopicAuthorizationFailedError

    known = {topic["name"] for topic in topics}
    held = {
        topic["name"]
        for answers in log_dirs.values()
        for answer in answers
        for topic in answer["topics"]
    }
    nobodys = f"counterpoise-{uuid.uuid4().hex}"
    suspects = sorted((held | {topic for topic, _ in reassignments} | _INTERNAL) - known)
    answers = ask(lambda admin: admin.describe_topics([*suspects, nobodys]))
    refused = TopicAuthorizationFailedError.errno
    hidden = sorted({t["name"] for t in answers if t["error_code"] == refused} - {nobodys})
    seen = [name for name in hidden if name not in _INTERNAL or name in held]
    if seen:
        return (
            f"{len(seen)} {'topics' if len(seen) > 1 else 'topic'} in this cluster, for example "
            f"{seen[0]}, cannot be described"
        )
    if any(t["name"] == nobodys and t["error_code"] == refused for t in answers):
        return "not all topics can be described, so there may be some that are not visible"
    return f"topic {hidden[0]} cannot be described" if hidden else None


def _log_dirs(ask: Ask, broker: int) -> list[dict[str, Any]]:
    # All directories: what metadata does not name also takes space, or is hidden.
    (answer,) = ask(lambda admin: admin.describe_log_dirs(None, [broker]))
    log_dirs: list[dict[str, Any]] = answer["log_dirs"]
    if not log_dirs:
        # A refusal looks like this, because the client drops the error code.
        raise KafkaSourceError(
            f"broker {broker} reported no log directories: "
            "give the client's user the right to Describe the cluster"
        )
    return log_dirs


def _log_dirs_that_answer(
    ask: Ask, brokers: Sequence[int], seconds: float, notify: Callable[[str], None]
) -> dict[int, list[dict[str, Any]]]:
    """Log directories of the brokers that answer; after `seconds` no more are asked.

    Otherwise each hanging broker would delay healing by one timeout.
    """
    found: dict[int, list[dict[str, Any]]] = {}
    deadline = time.monotonic() + seconds
    failed, why = [], ""
    for broker in brokers:
        found[broker] = []
        try:
            if time.monotonic() < deadline:
                found[broker] = _log_dirs(ask, broker)
                continue
        except KafkaSourceError as error:
            why = why or str(error)
        failed.append(broker)
    if failed:
        names = ", ".join(map(str, failed))
        why = why or f"reading those of the others took {seconds:g} s"
        notify(
            f"the log directories of brokers {names} are not known, only where replicas are: {why}"
        )
    return found


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
        # The client would retry forever, without saying which file is missing.
        if properties[name] is not None and not Path(properties[name]).is_file():
            raise KafkaSourceError(
                f"client properties: {name} {str(properties[name])!r} found, a file expected"
            )
    return properties


class _Transports:
    """Mends what kafka-python's transports lack.

    `check` is called right before each send to a socket. What was received along with the end of
    a connection is read before the end: a broker that refuses a login answers and closes, and
    the client would drop the answer and log in again.
    """

    def __init__(self, check: Callable[[], None] | None) -> None:
        self._check = check
        self.checked = check is None

    def watch(self, manager: Any) -> None:
        """Mend all transports that a connection manager builds from now on."""
        build = getattr(manager, "_build_transport", None)
        if build is None:
            return

        async def built(*args: Any, **options: Any) -> Any:
            transport = await build(*args, **options)
            if (send := getattr(transport, "_sock_send", None)) is not None:
                transport._sock_send = lambda: self._send(send)
            if (receive := getattr(transport, "_sock_recv", None)) is not None:
                transport._sock_recv = lambda: self._receive(receive)
            return transport

        manager._build_transport = built

    def _send(self, send: Callable[[], Any]) -> Any:
        self.checked = True
        try:
            if self._check is not None:
                self._check()
        except Exception as error:
            # Same as a failed send in the client's own method: bytes sent, and the error.
            return 0, error
        return send()

    def _receive(self, receive: Callable[[], tuple[bytes, Any]]) -> tuple[bytes, Any]:
        received, error = receive()
        # The socket reports its end again at the next call.
        return (received, None) if received else (received, error)


def _within(seconds: float, call: Callable[[], T], interrupted: Callable[[], None]) -> T:
    """Call in a separate thread, since the client's own timeouts miss a silent TLS peer.

    `interrupted` is called repeatedly in the meantime, and may raise.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < deadline:
        thread.join(0.1)
        if thread.is_alive():
            interrupted()
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError
    return done[0]


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _sentence(error: BaseException) -> str:
    # The client's errors print their class before the message.
    said = str(error.args[0]) if error.args else type(error).__name__
    if said.startswith("Request '"):
        # The arguments are the request and the answer; the class names the error.
        said = str(getattr(error, "message", None) or type(error).__name__)
        said = said.lower().replace("_", " ")
    return " ".join(said.split()).rstrip(".")
