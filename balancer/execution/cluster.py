"""The cluster interface that executions use, and its implementation on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from balancer.execution.errors import LateError
from cluster_model.kafka import Ask, KafkaDeniedError, KafkaSourceError, admin_client
from cluster_model.log_dirs import FileSystem, file_systems

T = TypeVar("T")

# Seconds before a failed request is sent again.
_PAUSE = 0.5

# The rights that the client's user needs, as Kafka's ACLs name them.
_DESCRIBE = "DESCRIBE on the cluster"
_ALTER = "ALTER on the cluster"
_READ_CONFIGS = {
    "topic": "DESCRIBE_CONFIGS on the topics",
    "broker": "DESCRIBE_CONFIGS on the cluster",
}
_SET_CONFIGS = {"topic": "ALTER_CONFIGS on topic {}", "broker": "ALTER_CONFIGS on the cluster"}


class Key(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ConfigResource(NamedTuple):
    """Something with configs: a ``topic`` by name or a ``broker`` by id."""

    kind: str
    name: str


@dataclass(frozen=True)
class PartitionView:
    """A partition as Kafka reports it.

    Parameters
    ----------
    replicas
        Brokers in preference order; during a reassignment, the old and the new ones.
    leader
        None if there is no leader.
    isr, offline
        Replicas in sync, and those on a broker or disk that is down.
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
        """Replicas if the ongoing reassignment is cancelled."""
        return tuple(b for b in self.replicas if b not in self.adding)

    @property
    def settled(self) -> tuple[int, ...]:
        """Replicas once the ongoing reassignment is complete."""
        return tuple(b for b in self.replicas if b not in self.removing)


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one moment.

    Parameters
    ----------
    brokers
        The brokers that are up.
    partitions
        Partitions of the requested topics that exist.
    moving
        Partitions under reassignment, of all topics.
    """

    brokers: frozenset[int]
    partitions: Mapping[Key, PartitionView]
    moving: frozenset[Key] = frozenset()


class HeldReplica(NamedTuple):
    """A replica on a disk: where, how many bytes, and the same for its copy to another disk."""

    log_dir: str
    size: float
    future_dir: str | None = None
    future_size: float = 0.0


Refusals = Mapping[Any, str]


class ClusterClient(Protocol):
    """What an execution needs from a cluster.

    Refusals map what was refused to the reason. An error that may pass is not a refusal: if
    the change does not show up in the cluster, it is requested again.
    """

    def identity(self) -> str:
        """The cluster's id."""

    def view(self, topics: Sequence[str] | None) -> ClusterView:
        """What Kafka reports about these topics; None means all."""

    def held(self, replicas: Iterable[tuple[Key, int]]) -> dict[tuple[Key, int], HeldReplica]:
        """Replicas by partition and broker, without those on brokers that do not answer."""

    def reassign(self, targets: Mapping[Key, Sequence[int] | None]) -> Refusals:
        """Reassign partitions to these replicas; None cancels."""

    def move_log_dirs(self, targets: Mapping[tuple[Key, int], str]) -> Refusals:
        """Move replicas to these log directories of their brokers."""

    def elect(self, partitions: Sequence[Key]) -> Refusals:
        """Elect the preferred leader; if it leads already, that is no refusal."""

    def configs(
        self, keys: Mapping[ConfigResource, Sequence[str]]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        """Values set on topics and brokers themselves, without brokers that do not answer."""

    def set_configs(self, values: Mapping[ConfigResource, Mapping[str, str | None]]) -> Refusals:
        """Set values, or delete those that are None."""

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        """``min.insync.replicas`` of topics."""

    def free(self, brokers: Sequence[int]) -> dict[int, list[FileSystem]]:
        """File systems that can hold replicas; none for brokers that do not report them."""


class WriteGuard(Protocol):
    """Decides whether the cluster may be written to: :class:`balancer.execution.fence.Fence`."""

    def check(self) -> None:
        """Raise if nothing may be written now."""

    def confirm(self) -> None:
        """Raise a LateError if the last check no longer holds; must return at once."""

    def watch(self) -> None:
        """Raise if it is known that nothing may be written any more."""


class _Gate:
    """What one client may send: from its first write on, nothing without the vote.

    A client may hold a write back while it connects, and send it long after its caller has
    given up. So a closed client's gate lets nothing through.
    """

    def __init__(self, fence: WriteGuard) -> None:
        self._fence = fence
        self.writing = self.closed = False

    def check(self) -> None:
        """Raise a LateError if nothing may be sent."""
        if self.closed:
            raise LateError("a request was not sent, because its client was closed")
        if self.writing:
            self._fence.confirm()


class Kafka:
    """A real Kafka, through the admin client of kafka-python.

    A failed request is sent again over a new connection until `outage_timeout` seconds have
    passed: every request may be repeated without harm.

    Parameters
    ----------
    bootstrap, client
        As accepted by :func:`cluster_model.kafka.admin_client`.
    timeout
        Seconds that one request may take.
    outage_timeout
        Seconds until a failure is reported; the first connection is tried only once.
    given_up
        Once this is true, no answer is waited for any more.
    fence
        Checked before each request that changes something, including repeated ones, and
        once more right before its bytes leave; an exception keeps the request from being sent.
    """

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, Any] | None = None,
        *,
        timeout: float = 10.0,
        outage_timeout: float = 60.0,
        given_up: Callable[[], bool] = lambda: False,
        fence: WriteGuard | None = None,
    ) -> None:
        self._bootstrap, self._client = bootstrap, client
        self._fence = fence
        self._timeout, self._outage_timeout, self._given_up = timeout, outage_timeout, given_up
        self._stack = ExitStack()
        self._gate: _Gate | None = None
        self._ask: Ask | None = self._connect()

    def close(self) -> None:
        """Close the connection."""
        if self._gate is not None:
            self._gate.closed = True
        self._stack.close()
        self._ask = None

    def identity(self) -> str:
        """The cluster's id."""
        return str(self._call(lambda admin: admin.describe_cluster())["cluster_id"])

    def view(self, topics: Sequence[str] | None) -> ClusterView:
        """What Kafka reports about these topics; None means all."""
        if self._fence is not None:
            self._fence.watch()
        # Read reassignments first: one that ends in between is then seen as complete, not
        # as undone.
        moving = self._call(lambda admin: admin.list_partition_reassignments(), _DESCRIBE)
        brokers = self._call(lambda admin: admin.describe_cluster())["brokers"]
        requested = None if topics is None else list(topics)
        found = self._call(lambda admin: admin.describe_topics(requested))
        partitions = {}
        for topic in found:
            if _denied(topic.get("error_code")):
                raise self._lacks(f"DESCRIBE on topic {topic['name']}")
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
        return ClusterView(
            frozenset(b["broker_id"] for b in brokers if not b.get("is_fenced", False)),
            partitions,
            frozenset(Key(*tp) for tp in moving),
        )

    def held(self, replicas: Iterable[tuple[Key, int]]) -> dict[tuple[Key, int], HeldReplica]:
        """Replicas by partition and broker, without those on brokers that do not answer."""
        asked: dict[int, dict[str, list[int]]] = {}
        for key, broker in replicas:
            asked.setdefault(broker, {}).setdefault(key.topic, []).append(key.partition)
        found: dict[tuple[Key, int], HeldReplica] = {}
        for broker, topics in asked.items():
            answer = self._once(_describe_log_dirs(topics, broker))
            if isinstance(answer, KafkaSourceError):
                continue
            if not answer[0]["log_dirs"]:
                # This is what a refusal looks like: the client drops the answer's error code.
                raise self._lacks(_DESCRIBE)
            now: dict[Key, tuple[str, float]] = {}
            future: dict[Key, tuple[str, float]] = {}
            for log_dir in answer[0]["log_dirs"]:
                for topic in log_dir["topics"]:
                    for p in topic["partitions"]:
                        at = future if p["is_future_key"] else now
                        key = Key(topic["name"], p["partition_index"])
                        at[key] = (log_dir["log_dir"], float(p["partition_size"]))
            for key, place in now.items():
                found[key, broker] = HeldReplica(*place, *future.get(key, ()))
        return found

    def reassign(self, targets: Mapping[Key, Sequence[int] | None]) -> Refusals:
        """Reassign partitions to these replicas; None cancels."""
        if not targets:
            return {}
        from kafka import TopicPartition

        request = {TopicPartition(*key): replicas for key, replicas in targets.items()}
        try:
            answer = self._call(
                lambda admin: admin.alter_partition_reassignments(request), _ALTER, write=True
            )
        except KafkaDeniedError as denied:
            return dict.fromkeys(targets, str(denied))
        return {Key(*tp): _words(error) for tp, error in answer.items() if _final(error)}

    def move_log_dirs(self, targets: Mapping[tuple[Key, int], str]) -> Refusals:
        """Move replicas to these log directories of their brokers."""
        by_broker: dict[int, dict[tuple[str, int, int], str]] = {}
        for (key, broker), log_dir in targets.items():
            by_broker.setdefault(broker, {})[*key, broker] = log_dir
        refused: dict[tuple[Key, int], str] = {}
        for broker, moves in by_broker.items():
            answer = self._once(_alter_log_dirs(moves), write=True)
            for topic, partition, _ in moves:
                key = Key(topic, partition)
                if isinstance(answer, KafkaSourceError):
                    refused[key, broker] = str(answer)
                elif _final(error := answer.get((topic, partition, broker))):
                    denied = _denied(error.errno)
                    refused[key, broker] = str(self._lacks(_ALTER)) if denied else _words(error)
        return refused

    def elect(self, partitions: Sequence[Key]) -> Refusals:
        """Elect the preferred leader; if it leads already, that is no refusal."""
        if not partitions:
            return {}
        from kafka import errors

        requested: dict[str, list[int]] = {}
        for key in partitions:
            requested.setdefault(key.topic, []).append(key.partition)
        answer = self._call(
            lambda a: a.elect_leaders(0, requested, raise_errors=False), _ALTER, write=True
        )
        if _denied(answer.error_code):
            raise self._lacks(_ALTER)
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
        self, keys: Mapping[ConfigResource, Sequence[str]]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        """Values set on topics and brokers themselves, without brokers that do not answer."""
        from kafka.admin import ConfigResource

        found: dict[ConfigResource, dict[str, str | None]] = {}
        for resources in _grouped_by_request(keys):
            asked = [ConfigResource(r.kind, r.name, list(keys[r])) for r in resources]

            def ask(admin: Any, asked: list[Any] = asked) -> Any:
                return admin.describe_configs(asked, config_filter="all")

            one = resources[0].kind == "broker"
            right = _READ_CONFIGS[resources[0].kind]
            answer = self._once(ask, right) if one else self._call(ask, right)
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

    def set_configs(self, values: Mapping[ConfigResource, Mapping[str, str | None]]) -> Refusals:
        """Set values, or delete those that are None."""
        from kafka.admin import AlterConfigOp, ConfigResource

        refused: dict[ConfigResource, str] = {}
        for resources in _grouped_by_request(values):
            requested = [
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

            def ask(admin: Any, requested: list[Any] = requested) -> Any:
                return admin.alter_configs(requested, raise_on_unknown=False, incremental=True)

            one = resources[0].kind == "broker"
            answer = self._once(ask, write=True) if one else self._call(ask, write=True)
            for r in resources:
                if isinstance(answer, KafkaSourceError):
                    refused[r] = str(answer)
                elif (said := answer.get(r.kind, {}).get(r.name, "no answer")) != "OK":
                    if "AuthorizationFailed" in said:
                        raise self._lacks(_SET_CONFIGS[r.kind].format(r.name))
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

    def free(self, brokers: Sequence[int]) -> dict[int, list[FileSystem]]:
        """File systems that can hold replicas; none for brokers that do not report them."""
        found = {}
        for broker in brokers:
            answer = self._once(_describe_log_dirs({}, broker))
            if isinstance(answer, KafkaSourceError):
                continue
            open_dirs = [d for d in answer[0]["log_dirs"] if not d.get("is_cordoned", False)]
            if systems := file_systems(open_dirs):
                found[broker] = systems
        return found

    def _connect(self) -> Ask:
        self._gate = None if self._fence is None else _Gate(self._fence)
        return self._stack.enter_context(
            admin_client(
                self._bootstrap,
                self._client,
                timeout=self._timeout,
                given_up=self._given_up,
                before_send=None if self._gate is None else self._gate.check,
            )
        )

    def _call(self, call: Callable[[Any], Any], right: str = "", *, write: bool = False) -> Any:
        """The result of a call; `right` is the right that the client's user needs for it."""
        deadline = time.monotonic() + self._outage_timeout
        while True:
            answer = self._once(call, right, write=write)
            if not isinstance(answer, KafkaSourceError):
                return answer
            if time.monotonic() > deadline or self._given_up():
                raise answer
            time.sleep(_PAUSE)

    def _once(self, call: Callable[[Any], Any], right: str = "", *, write: bool = False) -> Any:
        """The result of a call, or why it failed; a refusal of the user is raised at once."""
        deadline = time.monotonic() + self._outage_timeout
        while True:
            answer = self._attempt(call, right, write=write)
            # Nothing was sent: a new proof may allow it.
            if not isinstance(answer, LateError):
                return answer
            if time.monotonic() > deadline or self._given_up():
                return answer

    def _attempt(self, call: Callable[[Any], Any], right: str, *, write: bool) -> Any:
        try:
            if self._ask is None:
                self._ask = self._connect()
            if write and self._fence is not None:
                self._fence.check()
            if write and self._gate is not None:
                self._gate.writing = True
            answer = self._ask(call)
            if self._gate is not None:
                # Only now: a write whose wait was interrupted may still be in flight.
                self._gate.writing = False
            return answer
        except KafkaDeniedError as error:
            raise self._lacks(right) if right and self._ask is not None else error from None
        except (KafkaSourceError, RuntimeError) as error:
            # The client raises RuntimeError if it finds no controller. It remembers the broker
            # that forwards requests to the controller, even after that broker is gone: only a
            # new client looks for another.
            self.close()
            self._stack = ExitStack()
            if isinstance(error, KafkaSourceError):
                return error
            return KafkaSourceError(f"Kafka at {self._bootstrap}: {error}")

    def _lacks(self, right: str) -> KafkaDeniedError:
        return KafkaDeniedError(
            f"Kafka at {self._bootstrap} refused: give the client's user the right to {right}"
        )


def _grouped_by_request(resources: Iterable[ConfigResource]) -> list[list[ConfigResource]]:
    """Groups resources that one request may name: each broker alone, topics together."""
    topics = [r for r in resources if r.kind == "topic"]
    return [*([topics] if topics else []), *([r] for r in resources if r.kind == "broker")]


def _describe_log_dirs(topics: dict[str, list[int]], broker: int) -> Callable[[Any], Any]:
    return lambda admin: admin.describe_log_dirs(topics, [broker])


def _alter_log_dirs(moves: dict[tuple[str, int, int], str]) -> Callable[[Any], Any]:
    return lambda admin: admin.alter_replica_log_dirs(moves)


def _final(error: Any) -> bool:
    """Whether an answer's error class is permanent."""
    from kafka import errors

    if error is None or not error.errno:
        return False
    return error is errors.UnknownTopicOrPartitionError or not error.retriable


def _denied(code: int | None) -> bool:
    """Whether an error code means that the user is not authorized."""
    from kafka import errors

    return bool(code) and issubclass(errors.for_code(code), errors.AuthorizationError)


def _words(error: Any) -> str:
    return str(getattr(error, "message", None) or error.__name__).lower().replace("_", " ")
