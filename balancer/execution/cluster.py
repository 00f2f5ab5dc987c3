"""What an execution sees of a cluster and asks of it, and the Kafka behind that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from cluster_model.kafka import Ask, KafkaSourceError, admin_client

T = TypeVar("T")

# Seconds before a request that failed is sent again.
_PAUSE = 0.5


class Key(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Resource(NamedTuple):
    """What has configs: a ``topic`` by name or a ``broker`` by id."""

    kind: str
    name: str


@dataclass(frozen=True)
class PartitionView:
    """A partition as Kafka reports it.

    Parameters
    ----------
    replicas
        Brokers in preference order; while it is reassigned, the old and the new ones.
    leader
        None where nobody leads.
    isr, offline
        Replicas in sync, and those on a broker or disk that does not serve.
    adding, removing
        What the ongoing reassignment adds and removes.
    """

    replicas: tuple[int, ...]
    leader: int | None = None
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def moving(self) -> bool:
        """Whether a reassignment is ongoing."""
        return bool(self.adding or self.removing)

    @property
    def before(self) -> tuple[int, ...]:
        """Replicas if the ongoing reassignment were cancelled."""
        return tuple(b for b in self.replicas if b not in self.adding)

    @property
    def settled(self) -> tuple[int, ...]:
        """Replicas once the ongoing reassignment is complete."""
        return tuple(b for b in self.replicas if b not in self.removing)


@dataclass(frozen=True)
class View:
    """The cluster at one moment.

    Parameters
    ----------
    brokers
        Those that serve.
    partitions
        Of the topics that were asked for, as far as they exist.
    moving
        Partitions that are reassigned, of all topics.
    """

    brokers: frozenset[int]
    partitions: Mapping[Key, PartitionView]
    moving: frozenset[Key] = frozenset()


class Held(NamedTuple):
    """A replica on a disk: where, how many bytes, and the same of its copy to another disk."""

    log_dir: str
    size: float
    future_dir: str | None = None
    future_size: float = 0.0


Refusals = Mapping[Any, str]


class Cluster(Protocol):
    """What an execution needs of a cluster.

    Refusals map what was refused to the reason. What may succeed if it is asked for again,
    as it is when nothing is seen of it, is no refusal.
    """

    def identity(self) -> str:
        """The cluster's id."""

    def view(self, topics: Sequence[str] | None) -> View:
        """What Kafka reports of these topics, of all for None."""

    def held(self, replicas: Iterable[tuple[Key, int]]) -> dict[tuple[Key, int], Held]:
        """Replicas by partition and broker; those on brokers that do not answer are left out."""

    def reassign(self, wanted: Mapping[Key, Sequence[int] | None]) -> Refusals:
        """Reassign partitions to these replicas; None cancels."""

    def move_log_dirs(self, wanted: Mapping[tuple[Key, int], str]) -> Refusals:
        """Move replicas to these log directories of their brokers."""

    def elect(self, partitions: Sequence[Key]) -> Refusals:
        """Elect the preferred leader; one that leads already is no refusal."""

    def configs(
        self, keys: Mapping[Resource, Sequence[str]]
    ) -> dict[Resource, dict[str, str | None]]:
        """Values set on topics and brokers themselves; brokers that do not answer are left out."""

    def set_configs(self, values: Mapping[Resource, Mapping[str, str | None]]) -> Refusals:
        """Set or (None) delete values."""

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        """``min.insync.replicas`` of topics."""


class Kafka:
    """A real Kafka, through the admin client of kafka-python.

    A request that fails is sent again over a new connection until `patience` seconds
    have passed: every one of them may be repeated without harm.

    Parameters
    ----------
    bootstrap, client
        As :func:`cluster_model.kafka.admin_client` takes them.
    timeout
        Seconds that one request may take.
    patience
        Seconds until a failure is told; the first connection has none.
    """

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, Any] | None = None,
        *,
        timeout: float = 10.0,
        patience: float = 60.0,
    ) -> None:
        self._bootstrap, self._client = bootstrap, client
        self._timeout, self._patience = timeout, patience
        self._stack = ExitStack()
        self._ask: Ask | None = self._connect()

    def close(self) -> None:
        """End the connection."""
        self._stack.close()
        self._ask = None

    def identity(self) -> str:
        """The cluster's id."""
        return str(self._call(lambda admin: admin.describe_cluster())["cluster_id"])

    def view(self, topics: Sequence[str] | None) -> View:
        """What Kafka reports of these topics, of all for None."""
        # The reassignments first: one that ends in between is then seen as complete,
        # not as undone.
        moving = self._call(lambda admin: admin.list_partition_reassignments())
        brokers = self._call(lambda admin: admin.describe_cluster())["brokers"]
        wanted = None if topics is None else list(topics)
        found = self._call(lambda admin: admin.describe_topics(wanted))
        partitions = {}
        for topic in found:
            for p in topic["partitions"]:
                key = Key(topic["name"], p["partition_index"])
                ongoing = moving.get(tuple(key), {})
                leader = p["leader_id"]
                partitions[key] = PartitionView(
                    replicas=tuple(ongoing.get("replicas", p["replica_nodes"])),
                    leader=leader if leader >= 0 else None,
                    isr=tuple(p["isr_nodes"]),
                    offline=tuple(p["offline_replicas"]),
                    adding=tuple(ongoing.get("adding_replicas", ())),
                    removing=tuple(ongoing.get("removing_replicas", ())),
                )
        return View(
            frozenset(b["broker_id"] for b in brokers if not b.get("is_fenced", False)),
            partitions,
            frozenset(Key(*tp) for tp in moving),
        )

    def held(self, replicas: Iterable[tuple[Key, int]]) -> dict[tuple[Key, int], Held]:
        """Replicas by partition and broker; those on brokers that do not answer are left out."""
        asked: dict[int, dict[str, list[int]]] = {}
        for key, broker in replicas:
            asked.setdefault(broker, {}).setdefault(key.topic, []).append(key.partition)
        found: dict[tuple[Key, int], Held] = {}
        for broker, topics in asked.items():
            answer = self._once(_describe_log_dirs(topics, broker))
            if isinstance(answer, KafkaSourceError):
                continue
            now: dict[Key, tuple[str, float]] = {}
            future: dict[Key, tuple[str, float]] = {}
            for log_dir in answer[0]["log_dirs"]:
                for topic in log_dir["topics"]:
                    for p in topic["partitions"]:
                        at = future if p["is_future_key"] else now
                        key = Key(topic["name"], p["partition_index"])
                        at[key] = (log_dir["log_dir"], float(p["partition_size"]))
            for key, place in now.items():
                found[key, broker] = Held(*place, *future.get(key, ()))
        return found

    def reassign(self, wanted: Mapping[Key, Sequence[int] | None]) -> Refusals:
        """Reassign partitions to these replicas; None cancels."""
        if not wanted:
            return {}
        from kafka import TopicPartition

        request = {TopicPartition(*key): replicas for key, replicas in wanted.items()}
        answer = self._call(lambda admin: admin.alter_partition_reassignments(request))
        return {Key(*tp): _words(error) for tp, error in answer.items() if _final(error)}

    def move_log_dirs(self, wanted: Mapping[tuple[Key, int], str]) -> Refusals:
        """Move replicas to these log directories of their brokers."""
        by_broker: dict[int, dict[tuple[str, int, int], str]] = {}
        for (key, broker), log_dir in wanted.items():
            by_broker.setdefault(broker, {})[*key, broker] = log_dir
        refused: dict[tuple[Key, int], str] = {}
        for broker, moves in by_broker.items():
            answer = self._once(_alter_log_dirs(moves))
            for topic, partition, _ in moves:
                key = Key(topic, partition)
                if isinstance(answer, KafkaSourceError):
                    refused[key, broker] = str(answer)
                elif _final(error := answer.get((topic, partition, broker))):
                    refused[key, broker] = _words(error)
        return refused

    def elect(self, partitions: Sequence[Key]) -> Refusals:
        """Elect the preferred leader; one that leads already is no refusal."""
        if not partitions:
            return {}
        from kafka import errors

        wanted: dict[str, list[int]] = {}
        for key in partitions:
            wanted.setdefault(key.topic, []).append(key.partition)
        answer = self._call(lambda a: a.elect_leaders(0, wanted, raise_errors=False))
        fine = (0, errors.ElectionNotNeededError.errno)
        if answer.error_code:
            return dict.fromkeys(partitions, _words(errors.for_code(answer.error_code)))
        return {
            Key(result.topic, p.partition_id): _words(errors.for_code(p.error_code))
            for result in answer.replica_election_results
            for p in result.partition_result
            if p.error_code not in fine
        }

    def configs(
        self, keys: Mapping[Resource, Sequence[str]]
    ) -> dict[Resource, dict[str, str | None]]:
        """Values set on topics and brokers themselves; brokers that do not answer are left out."""
        from kafka.admin import ConfigResource

        found: dict[Resource, dict[str, str | None]] = {}
        for resources in _together(keys):
            asked = [ConfigResource(r.kind, r.name, list(keys[r])) for r in resources]

            def ask(admin: Any, asked: list[Any] = asked) -> Any:
                return admin.describe_configs(asked, config_filter="all")

            one = resources[0].kind == "broker"
            answer = self._once(ask) if one else self._call(ask)
            if isinstance(answer, KafkaSourceError):
                continue
            for r in resources:
                values = answer.get(r.kind, {}).get(r.name, {})
                own = f"DYNAMIC_{r.kind.upper()}_CONFIG"
                found[r] = {
                    key: values[key]["value"]
                    if key in values and values[key]["config_source"] == own
                    else None
                    for key in keys[r]
                }
        return found

    def set_configs(self, values: Mapping[Resource, Mapping[str, str | None]]) -> Refusals:
        """Set or (None) delete values."""
        from kafka.admin import AlterConfigOp, ConfigResource

        refused: dict[Resource, str] = {}
        for resources in _together(values):
            wanted = [
                ConfigResource(
                    r.kind,
                    r.name,
                    {
                        key: (AlterConfigOp.DELETE if v is None else AlterConfigOp.SET, v)
                        for key, v in values[r].items()
                    },
                )
                for r in resources
            ]

            def ask(admin: Any, wanted: list[Any] = wanted) -> Any:
                return admin.alter_configs(wanted, raise_on_unknown=False, incremental=True)

            one = resources[0].kind == "broker"
            answer = self._once(ask) if one else self._call(ask)
            for r in resources:
                if isinstance(answer, KafkaSourceError):
                    refused[r] = str(answer)
                elif (said := answer.get(r.kind, {}).get(r.name, "no answer")) != "OK":
                    refused[r] = " ".join(said.split())
        return refused

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        """``min.insync.replicas`` of topics."""
        from kafka.admin import ConfigResource

        name = "min.insync.replicas"
        asked = [ConfigResource("topic", topic, [name]) for topic in topics]
        if not asked:
            return {}
        answer = self._call(lambda admin: admin.describe_configs(asked, config_filter="all"))
        found = answer.get("topic", {})
        return {t: int(found[t][name]["value"]) for t in topics if name in found.get(t, {})}

    def _connect(self) -> Ask:
        return self._stack.enter_context(
            admin_client(self._bootstrap, self._client, timeout=self._timeout)
        )

    def _call(self, call: Callable[[Any], Any]) -> Any:
        deadline = time.monotonic() + self._patience
        while True:
            answer = self._once(call)
            if not isinstance(answer, KafkaSourceError):
                return answer
            if time.monotonic() > deadline:
                raise answer
            time.sleep(_PAUSE)

    def _once(self, call: Callable[[Any], Any]) -> Any:
        """What a call returns, or why it failed."""
        try:
            if self._ask is None:
                self._ask = self._connect()
            return self._ask(call)
        except (KafkaSourceError, RuntimeError) as error:
            # A RuntimeError is how the client tells that it finds no controller. It remembers
            # the broker that passes requests on to the controller, also when that is gone:
            # only a new client looks for another.
            self.close()
            self._stack = ExitStack()
            if isinstance(error, KafkaSourceError):
                return error
            return KafkaSourceError(f"Kafka at {self._bootstrap}: {error}")


def _together(resources: Iterable[Resource]) -> list[list[Resource]]:
    """Resources that one request may name: a broker is asked alone, topics together."""
    topics = [r for r in resources if r.kind == "topic"]
    return [*([topics] if topics else []), *([r] for r in resources if r.kind == "broker")]


def _describe_log_dirs(topics: dict[str, list[int]], broker: int) -> Callable[[Any], Any]:
    return lambda admin: admin.describe_log_dirs(topics, [broker])


def _alter_log_dirs(moves: dict[tuple[str, int, int], str]) -> Callable[[Any], Any]:
    return lambda admin: admin.alter_replica_log_dirs(moves)


def _final(error: Any) -> bool:
    """Whether an answer's error class is one that will not pass."""
    from kafka import errors

    if error is None or not error.errno:
        return False
    return error is errors.UnknownTopicOrPartitionError or not error.retriable


def _words(error: Any) -> str:
    return str(getattr(error, "message", None) or error.__name__).lower().replace("_", " ")
