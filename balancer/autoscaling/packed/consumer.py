"""A consumer of kafka-python whose group assigns partitions as the autoscaler has decided.

The leader of the group, as in seed 003, takes the assignment from the controller: here through a
topic, so that neither needs to reach the other. Members are static, so that a consumer that crashes
and starts again in time keeps its partitions without a rebalance, and partitions that stay are kept
through a rebalance (KIP-429).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.packed.decisions import DECISIONS_TOPIC, DecisionReader, Known
from balancer.autoscaling.packed.leader import Member, first_round, must_move, shares
from balancer.autoscaling.packed.message import Partition, by_topic

log = logging.getLogger(__name__)

# All members of a group have an assignor of this name.
PROTOCOL = "counterpoise-packed"
# Of a subscription: with the generation in which partitions were owned.
_VERSION = 2
# Configurations of kafka-python that say where the brokers are, and how to log in.
_CONNECTION = ("bootstrap_servers", "security_", "sasl_", "ssl_", "socks5_", "api_version")


@dataclass(frozen=True)
class PackedSettings:
    """Tunable numbers of a consumer.

    Parameters
    ----------
    decisions_topic
        The topic that the autoscaler writes to.
    read_seconds
        Time to read the last decision before joining the group; without it the group divides
        partitions by their number until a decision comes.
    rejoin_seconds
        At least between two rebalances that this consumer asks for.
    rejoin_most_seconds
        While rebalances do not follow the newest decision, as the group's leader does not know it,
        the time between them doubles up to so many seconds.
    settle_seconds
        An assignment that follows a decision from further on in the topic than this consumer has
        read is believed for so long; after that, the topic must have been recreated.
    heartbeat_ms
        Between two heartbeats: so long it takes until a consumer hears of a rebalance.
    session_ms
        Without a heartbeat for so long, a consumer's partitions go to others.
    leave
        Whether a consumer that closes leaves the group at once, so that others take over. If not,
        its partitions wait for it until its session ends, as for a consumer that crashed.
    leave_seconds
        Time for leaving.
    """

    decisions_topic: str = DECISIONS_TOPIC
    read_seconds: float = 5.0
    rejoin_seconds: float = 1.0
    rejoin_most_seconds: float = 60.0
    settle_seconds: float = 5.0
    heartbeat_ms: int = 500
    session_ms: int = 10_000
    leave: bool = True
    leave_seconds: float = 5.0


@contextmanager
def packed_consumer(
    topics: Sequence[str],
    *,
    group: str,
    name: str,
    bootstrap_servers: str | Sequence[str],
    settings: PackedSettings | None = None,
    **configs: Any,
) -> Iterator[Any]:
    """A ``kafka.KafkaConsumer`` that reads what has been decided, closed at the end.

    Nothing is committed automatically: commit what has been processed before the next poll, and no
    record is lost, nor processed by two at a time as long as a batch takes less than the session.

    Parameters
    ----------
    topics
        What to read; the same for all consumers of the group.
    group
        The consumer group.
    name
        Name of the consumer, which no other has at the same time: its static id.
    bootstrap_servers
        Addresses of brokers.
    settings
        Tunable numbers.
    configs
        Further configurations of the ``KafkaConsumer``. With ``auto_offset_reset="latest"``, which
        is its own default, what arrives while a partition moves that was never committed is lost;
        so here it is ``earliest``.

    Raises
    ------
    AutoscalingError
        If kafka-python is missing or refuses the configuration.

    Examples
    --------
    ::

        with packed_consumer(
            ["orders"], group="orders", name="a", bootstrap_servers="localhost:9092"
        ) as consumer:
            while True:
                batch = consumer.poll(timeout_ms=200)
                for records in batch.values():
                    process(records)
                if batch:
                    consumer.commit()
    """
    try:
        import kafka
    except ImportError:
        raise AutoscalingError(
            "kafka-python is not installed: pip install 'counterpoise[kafka]'"
        ) from None
    s = settings or PackedSettings()
    given = {"bootstrap_servers": bootstrap_servers, **configs}
    reach = {key: value for key, value in given.items() if key.startswith(_CONNECTION)}
    membership = _Membership(name, s)
    try:
        reader = DecisionReader(reach, group, s.decisions_topic, membership.look)
        membership.newest = lambda: reader.known
        try:
            consumer = kafka.KafkaConsumer(
                **{
                    "enable_auto_commit": False,
                    "auto_offset_reset": "earliest",
                    "heartbeat_interval_ms": s.heartbeat_ms,
                    "session_timeout_ms": s.session_ms,
                    **given,
                    "group_id": group,
                    "group_instance_id": name,
                    "partition_assignment_strategy": [_assignor(membership)],
                }
            )
        except BaseException:
            reader.close()
            raise
    except (kafka.errors.KafkaError, AssertionError, TypeError, ValueError) as error:
        raise AutoscalingError(f"consumer {name} of group {group}: {error}") from None
    try:
        if not reader.wait(s.read_seconds):
            log.warning("no decision read in %g s", s.read_seconds)
        membership.consumer = consumer
        consumer.subscribe(list(topics))
        yield consumer
    finally:
        reader.close()
        # before it is closed, which forgets it; a name alone could be that of a successor
        member = consumer._coordinator._generation.member_id
        consumer.close(timeout_ms=int(s.leave_seconds * 1000))
        if s.leave and member:
            _leave(reach, group, name, member, s.leave_seconds)


class _Membership:
    """What one member knows of its group; called in the client's thread, except for `look`."""

    def __init__(
        self, name: str, settings: PackedSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.newest: Callable[[], Known | None] = lambda: None
        self.consumer: Any = None
        self._name, self._settings, self._clock = name, settings, clock
        self._generation = -1
        self._assigned: _Assigned | None = None
        # when it may ask for a rebalance, and how long it waits after that
        self._next, self._pause = -float("inf"), settings.rejoin_seconds

    def look(self) -> None:
        """Join again if a newer decision gives a partition of this member to another."""
        known, assigned, now = self.newest(), self._assigned, self._clock()
        if known is None or assigned is None or assigned.follows(known):
            return
        if known.number < assigned.number and now < assigned.at + self._settings.settle_seconds:
            return
        if must_move(known.decision, self._name, assigned.partitions) and now >= self._next:
            self._next = now + self._pause
            self._pause = min(2 * self._pause, self._settings.rejoin_most_seconds)
            # kafka-python has no public name for Java's Consumer.enforceRebalance
            self.consumer._coordinator.request_rejoin()

    def subscription(self, topics: Sequence[str]) -> Any:
        """What this member says when it joins."""
        from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

        # of a member that was expelled, the client has already taken all partitions
        owned = [(tp.topic, tp.partition) for tp in self.consumer.assignment()]
        listed = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=_VERSION,
            topics=sorted(topics),
            user_data=b"",
            owned_partitions=[listed(topic=t, partitions=p) for t, p in by_topic(owned)],
            generation_id=self._generation if owned else -1,
        )

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """The leader's answer: the partitions of each member in this round."""
        from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

        joined = {
            m.member_id: Member(
                name=m.group_instance_id or m.member_id,
                topics=frozenset(m.metadata.topics),
                owned=frozenset(
                    (owned.topic, p)
                    for owned in m.metadata.owned_partitions or ()
                    for p in owned.partitions
                ),
                generation=m.metadata.generation_id,
            )
            for m in members
        }
        partitions = {
            (topic, p)
            for topic in {t for m in joined.values() for t in m.topics}
            for p in cluster.partitions_for_topic(topic) or ()
        }
        known = self.newest()
        target = shares(None if known is None else known.decision, joined, partitions)
        number, content = (-1, "") if known is None else (known.number, known.content)
        user_data = json.dumps({"decision": number, "content": content}).encode()
        return {
            id_: ConsumerProtocolAssignment(_VERSION, by_topic(mine), user_data)
            for id_, mine in first_round(target, joined).items()
        }

    def assigned(self, assignment: Any, generation: int) -> None:
        """The leader's answer has arrived."""
        self._generation = generation
        partitions = frozenset((tp.topic, tp.partition) for tp in assignment.partitions())
        number, content = _followed(assignment.user_data)
        self._assigned = _Assigned(partitions, number, content, self._clock())
        known = self.newest()
        if known is not None and self._assigned.follows(known):
            self._pause = self._settings.rejoin_seconds


class _Assigned(NamedTuple):
    """What was assigned, the decision by which it was, and when."""

    partitions: frozenset[Partition]
    number: int
    content: str
    at: float

    def follows(self, known: Known) -> bool:
        """Whether it follows a decision; leaders of earlier versions tell only its number."""
        return self.content == known.content if self.content else self.number >= known.number


def _followed(user_data: bytes | None) -> tuple[int, str]:
    """Number and content of the decision that an assignment follows; -1 if it does not say."""
    try:
        said = json.loads(bytes(user_data or b""))
        number, content = said["decision"], said.get("content", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return -1, ""
    if not isinstance(number, int) or not isinstance(content, str):
        return -1, ""
    return number, content


def _leave(reach: dict[str, Any], group: str, name: str, member: str, seconds: float) -> None:
    """Leave the group: a static member does not by itself when its client closes.

    Kafka refuses it to one that was fenced, as another process has its name now.
    """
    from kafka import KafkaAdminClient
    from kafka.admin import MemberToRemove
    from kafka.errors import KafkaError

    milliseconds = int(seconds * 1000)
    try:
        admin = KafkaAdminClient(
            **reach, request_timeout_ms=milliseconds, bootstrap_timeout_ms=milliseconds
        )
        try:
            removed = MemberToRemove(member_id=member, group_instance_id=name)
            admin.remove_group_members(group, [removed])
        finally:
            admin.close()
    except (KafkaError, OSError) as error:
        # its session then ends by itself
        log.warning("consumer %s did not leave group %s: %s", name, group, error)


def _assignor(membership: _Membership) -> Any:
    """The assignor as kafka-python takes it; made here, so that it is imported only when used."""
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol

    class PackedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
        """Passes everything on to the membership."""

        name = PROTOCOL

        def supported_protocols(self) -> list[Any]:
            """Members keep their partitions while they join."""
            return [RebalanceProtocol.COOPERATIVE]

        def metadata(self, topics: Sequence[str]) -> Any:
            """What the member says when it joins."""
            return membership.subscription(topics)

        def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
            """The leader's answer."""
            return membership.assign(cluster, members)

        def on_assignment(self, assignment: Any, generation: int) -> None:
            """The answer has arrived."""
            membership.assigned(assignment, generation)

    return PackedAssignor()
