"""A consumer of kafka-python whose group assigns partitions as the autoscaler has decided.

The leader of the group, as in seed 003, takes the assignment from the controller: here through a
topic, so that neither needs to reach the other. Members are static, so that a consumer that crashes
and starts again in time keeps its partitions without a rebalance, and partitions that stay are kept
through a rebalance (KIP-429).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.packed.decisions import DecisionReader
from balancer.autoscaling.packed.leader import Member, first_round
from balancer.autoscaling.packed.membership import Membership, PackedSettings, leave_group
from balancer.autoscaling.packed.message import by_topic
from metrics_reporter.group_joins import complete_joins

log = logging.getLogger(__name__)

# All members of a group have an assignor of this name.
PROTOCOL = "counterpoise-packed"
# Of a subscription: with the generation in which partitions were owned.
_VERSION = 2
# Configurations of kafka-python that say where the brokers are, and how to log in.
_CONNECTION = ("bootstrap_servers", "security_", "sasl_", "ssl_", "socks5_", "api_version")


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
        complete_joins(consumer, consumer.config["session_timeout_ms"] / 1000)
        consumer.subscribe(list(topics))
        yield consumer
    finally:
        reader.close()
        # before it is closed, which forgets it; a name alone could be that of a successor
        member = consumer._coordinator._generation.member_id
        consumer.close(timeout_ms=int(s.leave_seconds * 1000))
        if s.leave and member:
            leave_group(reach, group, name, member, s.leave_seconds)


class _Membership(Membership):
    """What one member knows of its group; called in the client's thread, except for `look`."""

    def __init__(
        self, name: str, settings: PackedSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name, settings, clock)
        self.consumer: Any = None
        self._generation = -1

    def rejoin(self) -> None:
        """Join again; kafka-python has no public name for Java's Consumer.enforceRebalance."""
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
        target, user_data = self.decided(joined, partitions)
        return {
            id_: ConsumerProtocolAssignment(_VERSION, by_topic(mine), user_data)
            for id_, mine in first_round(target, joined).items()
        }

    def assigned(self, assignment: Any, generation: int) -> None:
        """The leader's answer has arrived."""
        self._generation = generation
        self.follow(
            ((tp.topic, tp.partition) for tp in assignment.partitions()), assignment.user_data
        )


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
