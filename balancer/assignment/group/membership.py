"""A member's part in the group: joins, reports, receives tasks; reads no records.

kafka-python is used because it alone takes an assignor written in Python; its consumer owns the
partitions of the active tasks under the cooperative protocol (KIP-429), so that Kafka's tools
show them, but reads none: the host reads them itself, also while the group rebalances.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from balancer.assignment.group.configs import GroupConfigs
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.leader import Joined, MemberAssignment
from balancer.assignment.group.messages import MemberReport, MemberTasks
from metrics_reporter.clients import servers
from metrics_reporter.group_joins import complete_joins

log = logging.getLogger(__name__)

# All members of a group have an assignor of this name.
PROTOCOL = "counterpoise-tasks"
# Of a subscription: with the generation in which partitions were owned.
_VERSION = 2
# Milliseconds of a poll; a member that closes waits as long.
_POLL_MS = 200


@dataclass(frozen=True)
class Assigned:
    """What the leader has assigned to this member; no generation if membership was lost.

    ``reports`` is how often this member had reported when it arrived, and ``member`` its id then.
    """

    generation: int
    partitions: tuple[int, ...]
    tasks: MemberTasks
    reports: int
    member: str = ""
    applied: threading.Event = field(default_factory=threading.Event)

    @property
    def lost(self) -> bool:
        """Whether the group has gone on without this member."""
        return self.generation < 0


class Membership:
    """This member of the group; it takes part in a thread of its own.

    `report`, `assign` and `others_lead` are called in the client's thread.

    Parameters
    ----------
    configs
        Configuration of the member.
    partitions
        Partitions of the input at the start, for when the client knows of none.
    report
        What the member says when it joins; called with the number of the report.
    assign
        Called on the leader with its own id, all members, and the partitions of the input.
    others_lead
        Called when the group has assigned, or has gone on, without this member's `assign`.

    Raises
    ------
    GroupError
        If the brokers cannot be reached, or kafka-python is missing.
    """

    def __init__(
        self,
        configs: GroupConfigs,
        partitions: int,
        report: Callable[[int], MemberReport],
        assign: Callable[[str, Sequence[Joined], Sequence[int]], dict[str, MemberAssignment]],
        others_lead: Callable[[], None],
    ) -> None:
        self._configs, self._report, self._assign = configs, report, assign
        self._others_lead, self._led = others_lead, False
        self._partitions = range(partitions)
        self._arrived: SimpleQueue[Assigned] = SimpleQueue()
        self._last: Assigned | None = None
        self._owned: tuple[int, ...] = ()
        self._generation = -1
        self._reports = 0
        self._closing = False
        self._error: Exception | None = None
        self._polled = time.monotonic()
        self.malformed = 0
        try:
            import kafka
            from kafka.consumer.subscription_state import ConsumerRebalanceListener
        except ImportError:
            raise GroupError(
                "kafka-python is not installed: pip install 'counterpoise[kafka]'"
            ) from None
        membership = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            """Learns which partitions this member has to give up."""

            def on_partitions_assigned(self, assigned: Any) -> None:
                """Nothing to do: the assignor has received the assignment."""

            def on_partitions_revoked(self, revoked: Any) -> None:
                """Wait until they are given up: the client then joins again, for the new owner."""
                membership._await_applied()

            def on_partitions_lost(self, lost: Any) -> None:
                """Give everything up."""
                membership._lost()

        try:
            self._consumer = kafka.KafkaConsumer(
                bootstrap_servers=servers(configs.bootstrap_servers),
                group_id=configs.application_id,
                partition_assignment_strategy=[_assignor(self)],
                enable_auto_commit=False,
                session_timeout_ms=configs.session_timeout_ms,
                heartbeat_interval_ms=configs.heartbeat_interval_ms,
                max_poll_interval_ms=configs.rebalance_timeout_ms,
                # Also how often the client looks whether to join again.
                retry_backoff_ms=50,
            )
        except kafka.errors.KafkaError as error:
            raise GroupError(f"group {configs.application_id}: {error}") from None
        complete_joins(self._consumer, configs.session_timeout_ms / 1000)
        self._consumer.subscribe([configs.input_topic], listener=Listener())
        self._thread = threading.Thread(target=self._take_part, name="membership", daemon=True)
        self._thread.start()

    def _take_part(self) -> None:
        """Poll until the end."""
        from kafka.errors import KafkaError

        longest = self._configs.rebalance_timeout_ms
        try:
            while not self._closing:
                try:
                    self._consumer.poll(timeout_ms=_POLL_MS)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    # Brokers are away: how long a task may wait for them ends the wait.
                    log.debug("group %s: %s", self._configs.application_id, error)
                    time.sleep(_POLL_MS / 1000)
                if time.monotonic() - self._polled > longest / 1000:
                    # Others can do what this member has stopped doing.
                    self._closing = True
                    self._consumer.close(timeout_ms=self._configs.session_timeout_ms)
                    raise TimeoutError(f"the member was busy for more than {longest} ms")
        except Exception as error:
            self._error = error

    def poll(self) -> list[Assigned]:
        """What has arrived, oldest first; the caller sets ``applied`` on each.

        Raises
        ------
        GroupError
            If the group refuses the member.
        """
        self._polled = time.monotonic()
        if self._error is not None:
            raise GroupError(
                f"group {self._configs.application_id}: {type(self._error).__name__}: {self._error}"
            )
        arrived = []
        while not self._arrived.empty():
            arrived.append(self._arrived.get())
        return arrived

    def waits(self) -> None:
        """The member is not stuck: it waits for an answer of Kafka, which has a deadline."""
        self._polled = time.monotonic()

    def rebalance(self) -> None:
        """Join again: if this is the leader, or it has news, the group rebalances."""
        # kafka-python has no public name for Java's Consumer.enforceRebalance.
        self._consumer._coordinator.request_rejoin()

    def generation(self, followed: Assigned) -> int:
        """The generation in which a member that follows an assignment may commit.

        From the moment it has joined the next one until that one's assignment arrives, Kafka
        refuses the former; all that was assigned is still its own.
        """
        found = self._consumer.group_metadata()
        current = self._last is followed and followed.applied.is_set()
        if current and found.member_id == followed.member and found.generation_id >= 0:
            return int(found.generation_id)
        return followed.generation

    def owns(self, member: str, partition: int) -> bool:
        """Whether the group still knows this member by its id, and has left it a partition.

        As far as is known here: may be asked in any thread.
        """
        if self._closing or partition not in self._owned:
            return False
        found = self._consumer.group_metadata()
        return bool(found.member_id == member and found.generation_id >= 0)

    def stop(self) -> None:
        """Take part in no further rebalance; the member is in the group until :meth:`close`."""
        self._closing = True
        if self._last is not None:
            self._last.applied.set()
        self._thread.join(_POLL_MS / 1000 + self._configs.session_timeout_ms / 1000)

    def close(self) -> None:
        """Leave the group; does nothing the second time."""
        self.stop()
        self._consumer.close(timeout_ms=self._configs.session_timeout_ms)

    def _await_applied(self) -> None:
        """Wait for the host, no longer than the group would wait for a heartbeat."""
        if self._last is not None and not self._closing:
            self._last.applied.wait(self._configs.session_timeout_ms / 2000)

    def _lost(self) -> None:
        self._owned, self._generation = (), -1
        self._others_lead()
        self._arrived.put(Assigned(-1, (), MemberTasks(), self._reports))

    def _subscription(self, topics: Sequence[str]) -> Any:
        from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

        self._reports += 1
        owned = ConsumerProtocolSubscription.TopicPartition(
            topic=self._configs.input_topic, partitions=sorted(self._owned)
        )
        return ConsumerProtocolSubscription(
            version=_VERSION,
            topics=sorted(topics),
            user_data=self._report(self._reports).encode(),
            owned_partitions=[owned] if self._owned else [],
            generation_id=self._generation,
        )

    def _assigned(self, assignment: Any, generation: int) -> None:
        partitions = [tp for tp in assignment.partitions() if tp.topic == self._configs.input_topic]
        for tp in partitions:
            # Owned, but never fetched: with a position nothing is looked up.
            self._consumer.seek(tp, 0)
            self._consumer.pause(tp)
        try:
            tasks = MemberTasks.decode(assignment.user_data)
        except GroupError as error:
            self.malformed += 1
            log.warning("assignment of generation %d without standbys: %s", generation, error)
            tasks = MemberTasks()
        self._owned = tuple(sorted(tp.partition for tp in partitions))
        self._generation = generation
        if not self._led:
            self._others_lead()
        self._led = False
        member = self._consumer.group_metadata().member_id
        self._last = Assigned(generation, self._owned, tasks, self._reports, member)
        self._arrived.put(self._last)

    def _assign_all(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

        topic = self._configs.input_topic
        joined = [
            Joined(
                member.member_id,
                None if member.metadata.user_data is None else bytes(member.metadata.user_data),
                frozenset(
                    p
                    for owned in member.metadata.owned_partitions or ()
                    if owned.topic == topic
                    for p in owned.partitions
                ),
                member.metadata.generation_id,
            )
            for member in members
        ]
        self._led = True
        leader = self._consumer.group_metadata().member_id
        # A broker that has just started may not know the topic yet.
        partitions = sorted(cluster.partitions_for_topic(topic) or self._partitions)
        found = self._assign(leader, joined, partitions)
        return {
            member: ConsumerProtocolAssignment(
                _VERSION, [(topic, list(a.partitions))] if a.partitions else [], a.tasks.encode()
            )
            for member, a in found.items()
        }


def _assignor(membership: Membership) -> Any:
    """The assignor as kafka-python takes it; made here, so that it is imported only when used."""
    from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol

    class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
        """Passes everything on to the membership."""

        name = PROTOCOL

        def supported_protocols(self) -> list[Any]:
            """Members keep their partitions while they join."""
            return [RebalanceProtocol.COOPERATIVE]

        def metadata(self, topics: Sequence[str]) -> Any:
            """What the member says when it joins."""
            return membership._subscription(topics)

        def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
            """The leader's answer."""
            return membership._assign_all(cluster, members)

        def on_assignment(self, assignment: Any, generation: int) -> None:
            """The answer has arrived."""
            membership._assigned(assignment, generation)

    return Assignor()
