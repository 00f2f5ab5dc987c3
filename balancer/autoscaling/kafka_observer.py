"""Looks at a consumer group on a Kafka: what arrives, what waits, and who reads it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from balancer.autoscaling.errors import AutoscalingError, NotYetError, RebalancingError
from balancer.autoscaling.group import LEAST, MOST, Group
from balancer.autoscaling.measurement import (
    ConsumptionEstimator,
    MeasurementSettings,
    RebalanceTimes,
    Reports,
)
from balancer.autoscaling.observation import Observation
from cluster_model.errors import InputError
from cluster_model.kafka import KafkaDeniedError
from cluster_model.snapshot import Floats
from metrics_reporter.clocks import boot_clock
from metrics_reporter.documents import shown, shown_name
from metrics_reporter.quantities import plural, rounded
from metrics_reporter.suggestions import listed

Ask = Callable[[Callable[[Any], Any]], Any]
Partition = tuple[str, int]
# ListOffsets' timestamps for the newest and the oldest offset.
_NEWEST, _OLDEST = -1, -2
# Its isolation levels: the end of all records, and that of those whose transactions have ended.
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
# Error code of a topic that does not exist.
_UNKNOWN_TOPIC = 3
# Configuration of a topic: whether old records are deleted, compacted, or both.
_CLEANUP = "cleanup.policy"
# States of a group, as Kafka names them.
_STABLE, _UNKNOWN, _EMPTY = "Stable", "Dead", "Empty"
# The protocol that members of a classic group have in common if they are consumers.
_CONSUMERS = "consumer"
# Types of groups, as Kafka names them, and what those are that cannot be sized.
_CLASSIC, _ASSIGNED_BY_BROKERS = "classic", "consumer"
_KINDS = {
    _ASSIGNED_BY_BROKERS: (
        "its partitions are assigned by the brokers (KIP-848, group.protocol=consumer)"
    ),
    "share": "it is a share group, whose consumers share the records of a partition (KIP-932)",
    "streams": (
        "its tasks are assigned to instances of Kafka Streams by the brokers (KIP-1071, "
        "group.protocol=streams)"
    ),
}
# Errors of a group whose coordinator is being started or moved, by their names at kafka-python.
_PASSING = ("NotCoordinator", "CoordinatorNotAvailable", "CoordinatorLoadInProgress")
_NO_RIGHTS = "no rights, DESCRIBE of the group expected for the client's user"
# How often, and after how many seconds, a group's coordinator is looked for again.
_COORDINATOR_LOOKS, _COORDINATOR_SECONDS = 5, 1.0
# Until then a coordinator that is not ready is being started or moved.
_OUTAGE_SECONDS = 60.0


@dataclass(frozen=True)
class Working:
    """What is known about the consumers of a group beforehand.

    Parameters
    ----------
    capacity
        Events/s that a consumer can process; None if that is to be measured.
    rebalance_seconds
        How long partitions are not read when their consumers change; None if that is to be
        measured.
    reaction_seconds
        Time until a change takes effect.
    blocking
        Whether a rebalance stops all consumers, or only the partitions that move.
    window
        Seconds over which arrivals are counted.
    byte_capacity
        Bytes/s that a consumer can read.
    """

    capacity: float | None = None
    rebalance_seconds: float | None = None
    reaction_seconds: float = 5.0
    blocking: bool = True
    window: float = 30.0
    byte_capacity: float = np.inf

    def __post_init__(self) -> None:
        if self.capacity is not None and not 0 < self.capacity < np.inf:
            raise AutoscalingError(f"capacity: {self.capacity:g} found, events/s above 0 expected")
        if not self.byte_capacity > 0:
            raise AutoscalingError(
                f"byte capacity: {self.byte_capacity:g} found, bytes/s above 0 expected"
            )
        if not 0 < self.window < np.inf:
            raise AutoscalingError(f"window: {self.window:g} found, seconds above 0 expected")


class _Look(NamedTuple):
    """When it was, the partitions that metadata listed, and the ends of those that answered."""

    at: float
    listed: frozenset[Partition]
    end: dict[Partition, int]


class KafkaObserver:
    """Looks at one consumer group through Kafka's admin API.

    Parameters
    ----------
    connect
        Returns a context manager of a function that runs another with a kafka-python admin client,
        such as ``lambda: cluster_model.kafka.admin_client("localhost:9092")``.
    group
        The consumer group.
    topics
        Those it reads; by default those that its members read, as Kafka has assigned them. Of a
        group without members, and with a control topic, those that it has committed offsets of.
    working
        What is known about its consumers.
    new
        Whether the group may not exist yet; its topics are then to be named.
    clock
        Seconds that never go back, and go on while this machine sleeps, as the group does.
    members
        Which partitions each consumer reads, if Kafka does not know that, as with a control
        topic.
    speeds
        Bytes/s that are written to partitions; without it they are not limited.
    reports
        What consumers have measured themselves; what they do not say is measured from their
        committed offsets.
    measurement
        Tunable numbers of that.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Ask]],
        group: str,
        topics: Sequence[str],
        working: Working,
        new: bool = False,
        clock: Callable[[], float] = boot_clock,
        members: Callable[[], Mapping[str, Sequence[Partition]]] | None = None,
        speeds: Callable[[Sequence[Partition]], Sequence[float]] | None = None,
        reports: Reports | None = None,
        measurement: MeasurementSettings | None = None,
    ) -> None:
        self.group, self._topics, self._working = group, tuple(topics), working
        self._connect, self._new, self._clock = connect, new, clock
        self._own_members, self._speeds = members, speeds
        self._looks: deque[_Look] = deque()
        self._reports, self._settings = reports, measurement or MeasurementSettings()
        self._consumption = ConsumptionEstimator(self._settings)
        self._rebalances = RebalanceTimes(self._settings)
        # whether a topic is, or may be, compacted, and the ends of such when they were first seen
        self._compacted: dict[str, bool] = {}
        self._gaps: dict[Partition, int] = {}
        # of the cluster that answered first
        self._cluster: str | None = None
        # the median of what was measured last, and what was far above it
        self._usual: float | None = None
        self._doubted: dict[str, float] = {}
        # whether a look has failed since the last one of which arrivals are known
        self._failed = False
        # when a coordinator was first not ready, since it last was
        self._unready_since: float | None = None
        # the topics that were read at the last look
        self._read: frozenset[str] = frozenset()

    def observe(self) -> Observation:
        """Look.

        Raises
        ------
        NotYetError
            At the first look, as rates are differences, and whenever the group reads other topics
            than at the look before.
        RebalancingError
            While the group rebalances.
        AutoscalingError
            For an unknown group or topic.
        InputError
            If Kafka refuses or does not answer.
        """
        try:
            return self._observe()
        except RebalancingError:
            # its coordinator has answered
            self._unready_since = None
            self._consumption.interrupt()
            raise
        except NotYetError:
            raise
        except InputError:
            self._failed = True
            # nobody knows how often the group has rebalanced meanwhile
            self._rebalances.look(self._clock(), None)
            raise

    def _observe(self) -> Observation:
        with self._connect() as ask:
            self._check_cluster(ask)
            members: Mapping[str, Sequence[Partition]] = self._members(ask)
            if self._own_members is not None:
                if members:
                    raise AutoscalingError(
                        f"group {shown(self.group)} has members that Kafka assigns partitions to, "
                        "only consumers with a control topic expected"
                    )
                members = self._own_members()
            asked = self._clock()
            committed = self._committed(ask)
            self._unready_since = None
            topics = self._topics or self._topics_read(members, committed)
            partitions = partitions_of(ask, topics, may_be_gone=not self._topics)
            left = {topic for topic, _ in partitions}
            gone = {topic for topic in topics if topic not in left}
            topics = tuple(topic for topic in topics if topic in left)
            start = _offsets(ask, partitions, _OLDEST)
            end = _offsets(ask, partitions, _NEWEST)
            settled = _offsets(ask, partitions, _NEWEST, _READ_COMMITTED)
            now = self._clock()
            gaps = self._gaps_in(ask, topics, end)
        self._consumption.look(now, members, committed, start, settled, took=now - asked, gaps=gaps)
        answered = [p for p in partitions if p in start and p in end and p in settled]
        rates = self._rates(_Look(now, frozenset(partitions), end))
        known = [p for p in answered if p in rates]
        self._tell_news(topics)
        if not known:
            raise NotYetError("arrivals are being measured")
        lag, notes = self._lags(known, start, end, settled, committed)
        for missing, why in (
            (len(partitions) - len(answered), "without offsets, left out: no broker answers"),
            (
                len(answered) - len(known),
                "whose arrivals are being measured, left out until the next look",
            ),
        ):
            if missing:
                notes = (*notes, f"{plural(missing, 'partition')} {why}")
        lost = [p for read in members.values() for p in read if p[0] in gone]
        if lost:
            notes = (*notes, f"{_named(gone)}: read by members, and does not exist: left out")
        names = tuple(sorted(members))
        consumer = {p: i for i, name in enumerate(names) for p in members[name]}
        w, rate = self._working, np.array([rates[p] for p in known])
        measured = self._measured(names)
        capacity, new_capacity = self._capacity(names, measured, float(rate.sum()))
        notes = (*notes, *self._differences(measured))
        took = self._rebalance_measured()
        assumed = self._settings.default_rebalance_seconds if took is None else took
        return Observation(
            name=self.group,
            group=Group(
                rate=rate,
                lag=lag,
                consumer=np.array([consumer.get(p, -1) for p in known], np.int64),
                capacity=capacity,
                new_capacity=new_capacity,
                speed=np.array([] if self._speeds is None else self._speeds(known), np.float64),
                byte_capacity=w.byte_capacity,
                rebalance_seconds=(assumed if w.rebalance_seconds is None else w.rebalance_seconds),
                reaction_seconds=w.reaction_seconds,
                blocking=w.blocking,
                partition_names=tuple(f"{topic}-{number}" for topic, number in known),
                consumer_names=names,
            ),
            partitions=tuple(f"{topic}-{number}" for topic, number in known),
            consumers=names,
            notes=notes,
            unknown=len(partitions) - len(known) + len(lost),
            measured=measured,
            measuring=w.capacity is None and self._usual is None,
            rebalance_measured=took,
        )

    def _topics_read(
        self, members: Mapping[str, Sequence[Partition]], committed: Mapping[Partition, int]
    ) -> tuple[str, ...]:
        """The topics that the members read.

        Committed offsets stay where nobody reads any more, and are hidden without a right to their
        topic: they count only while there is no member that Kafka has assigned anything to.
        """
        topics = {topic for read in members.values() for topic, _ in read}
        if self._own_members is not None:
            # they read what they are told to
            topics |= self._read | {topic for topic, _ in committed}
        elif not topics and members:
            raise NotYetError(f"group {shown(self.group)}: its members read nothing yet")
        topics = topics or set(self._read) or {topic for topic, _ in committed}
        if not topics:
            raise AutoscalingError(
                f"group {shown(self.group)}: no committed offset found; name its topics"
            )
        return tuple(sorted(topics))

    def _tell_news(self, topics: Sequence[str]) -> None:
        """Say that other topics are read than before: no change of the load to decide on."""
        before, self._read = self._read, frozenset(topics)
        changed = [
            f"{verb} {_named(found)}"
            for verb, found in (
                ("reads", self._read - before),
                ("no longer reads", before - self._read),
            )
            if found
        ]
        if before and changed:
            raise NotYetError(
                f"group {shown(self.group)} {' and '.join(changed)} from now on: decided on at the "
                "next look"
            )

    def _check_cluster(self, ask: Ask) -> None:
        """Refuse a cluster that is not the one of the first look: its group is another one."""
        found = ask(lambda admin: admin.describe_cluster()).get("cluster_id")
        self._cluster = found if self._cluster is None else self._cluster
        if found != self._cluster:
            raise AutoscalingError(
                f"group {shown(self.group)}: cluster {shown(found)} answers, "
                f"{shown(self._cluster)} as at first expected"
            )

    def _measured(self, names: Sequence[str]) -> dict[str, float]:
        """Events/s that running consumers can process, of those of which it is known."""
        said = {} if self._reports is None else self._reports.capacities()
        found = {**self._consumption.capacities(), **said}
        # what nobody can process is not measured
        known = {n: found[n] for n in names if n in found and LEAST <= found[n] <= MOST}
        self._doubted = {}
        if not known:
            return {}
        # one that is wrong by far would be given everything; of two, the mean would follow it
        middle = np.exp(np.median(np.log(list(known.values()))))
        most = self._settings.most_of_usual * float(middle)
        self._doubted = {name: rate for name, rate in known.items() if rate > most}
        measured = {name: rate for name, rate in known.items() if rate <= most}
        self._usual = float(np.median(list(measured.values())))
        return measured

    def _capacity(
        self, names: Sequence[str], measured: Mapping[str, float], rate: float
    ) -> tuple[Floats, float]:
        """Events/s of each consumer, and of a new one: as stated, or as measured.

        One of which nothing is known counts as the median of the others. Where nothing is known
        of any, all take what arrives, and the observation says that this is being measured.
        """
        if self._working.capacity is not None:
            return np.full(len(names), self._working.capacity), self._working.capacity
        usual = max(rate, 1.0) if self._usual is None else self._usual
        return np.array([measured.get(name, usual) for name in names]), usual

    def _differences(self, measured: Mapping[str, float]) -> tuple[str, ...]:
        """Notes if consumers process much more or less than is stated, or than they can."""
        stated = self._working.capacity
        if stated is None:
            return tuple(
                f"{shown_name(name)} says that it can process {rate:.4g} events/s, far more than "
                "the others: not believed"
                for name, rate in self._doubted.items()
            )
        far = {
            name: abs(rate - stated)
            for name, rate in measured.items()
            if abs(rate - stated) > self._settings.difference * stated
        }
        if not far:
            return ()
        worst = max(far, key=far.__getitem__)
        others = f", and {plural(len(far) - 1, 'other')} differ too" if len(far) > 1 else ""
        return (
            f"{shown_name(worst)} can process {rounded(measured[worst])} events/s as measured, and "
            f"{rounded(stated)} are stated{others}",
        )

    def _rebalance_measured(self) -> float | None:
        if self._reports is not None:
            return self._reports.rebalance_seconds()
        return self._rebalances.median

    def _members(self, ask: Ask) -> dict[str, list[Partition]]:
        """The partitions of each member: by its static id, a client id of its own, or its id."""
        found = self._described(ask)
        state, why = found.get("group_state"), " ".join(str(found.get("error") or "").split())
        # Kafka 4 has an error of its own for what was a state before
        if "GroupIdNotFound" in why:
            state, why = _UNKNOWN, ""
        if why:
            if "Authorization" in why:
                why = _NO_RIGHTS
            raise AutoscalingError(f"group {shown(self.group)}: {why}")
        members: dict[str, list[Partition]] = {}
        joined = found.get("members", ())
        clients = Counter(member.get("client_id") for member in joined)
        for member in joined:
            client = member.get("client_id")
            alone = client if clients[client] == 1 else None
            name = member.get("group_instance_id") or alone or member["member_id"]
            # the static id of one may be the client id of another
            if name in members:
                name = member["member_id"]
            assignment = member.get("member_assignment")
            assigned = (
                assignment.get("assigned_partitions", ()) if isinstance(assignment, Mapping) else ()
            )
            members[name] = [(a["topic"], n) for a in assigned for n in a["partitions"]]
        stable = state == _STABLE if members else None
        self._rebalances.look(self._clock(), stable)
        if stable is False:
            raise RebalancingError(f"group {shown(self.group)} rebalances ({state})")
        if state == _UNKNOWN:
            self._check_listed(ask)
        if (protocol := found.get("protocol_type") or _CONSUMERS) != _CONSUMERS:
            raise self._not_classic(f"its members are no consumers, but of the kind {protocol}")
        return members

    def _check_listed(self, ask: Ask) -> None:
        """Refuse a group that Kafka does not know as a classic one, unless it can become one.

        As one without members can that Kafka has assigned by KIP-848: it is what its next member
        makes of it.
        """
        groups = self._answer(ask, lambda admin: admin.list_groups())
        found: Mapping[str, Any] = next((g for g in groups if g.get("group_id") == self.group), {})
        kind, state = found.get("group_type") or _CLASSIC, found.get("group_state")
        if kind == _CLASSIC and not self._new:
            raise AutoscalingError(
                f"group {shown(self.group)} not found, a consumer group that exists expected"
            )
        if kind != _CLASSIC and (kind, state) != (_ASSIGNED_BY_BROKERS, _EMPTY):
            raise self._not_classic(_KINDS.get(kind, f"it is of the type {shown(kind)}"))

    def _not_classic(self, what: str) -> AutoscalingError:
        return AutoscalingError(
            f"group {shown(self.group)}: {what}, a group of consumers of group.protocol=classic "
            "expected"
        )

    def _described(self, ask: Ask) -> Mapping[str, Any]:
        """What Kafka says of the group."""

        def described(admin: Any) -> Mapping[str, Any]:
            found: Mapping[str, Any] = admin.describe_groups([self.group])[self.group]
            if any(name in str(found.get("error")) for name in _PASSING):
                raise self._not_ready()
            return found

        try:
            found: Mapping[str, Any] = self._answer(ask, described)
            return found
        except KafkaDeniedError as error:
            if "consumer group" in str(error):
                raise AutoscalingError(f"group {shown(self.group)}: {_NO_RIGHTS}") from None
            raise

    def _committed(self, ask: Ask) -> dict[Partition, int]:
        found = self._answer(ask, lambda admin: admin.list_group_offsets([self.group]))
        return {
            (p.topic, p.partition): o.offset
            for p, o in found.get(self.group, {}).items()
            if o.offset >= 0
        }

    def _answer(self, ask: Ask, call: Callable[[Any], Any]) -> Any:
        """What a coordinator of groups answers; asked again while it is not ready.

        It is not while the topic of offsets is being made, at the first group of a cluster, and
        after its broker has become the leader of a part of it.
        """
        from kafka.errors import KafkaError

        def once(admin: Any) -> Any:
            try:
                return call(admin)
            except KafkaError as error:
                if any(name in type(error).__name__ for name in _PASSING):
                    raise self._not_ready() from None
                raise

        for left in reversed(range(_COORDINATOR_LOOKS)):
            try:
                return ask(once)
            except NotYetError:
                if not left:
                    raise self._unready() from None
            except InputError as error:
                if "FindCoordinator" not in str(error) or not left:
                    raise
            time.sleep(_COORDINATOR_SECONDS)
        raise AssertionError("the last look returns or raises")

    def _not_ready(self) -> NotYetError:
        return NotYetError(f"group {shown(self.group)}: its coordinator is not ready")

    def _unready(self) -> AutoscalingError:
        """The error of a look that ends without an answer: an outage if it lasts."""
        now = self._clock()
        # as after any look that failed
        self._failed = True
        self._rebalances.look(now, None)
        since = self._unready_since = now if self._unready_since is None else self._unready_since
        if now - since < _OUTAGE_SECONDS:
            return self._not_ready()
        return AutoscalingError(
            f"group {shown(self.group)}: its coordinator has not been ready for {now - since:.0f} s"
        )

    def _gaps_in(
        self, ask: Ask, topics: Sequence[str], end: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Offsets below which compaction may have left gaps: ends when they were first seen.

        What arrives later is in the segment that is written to, which is not compacted. A topic
        whose configuration may not be read counts as compacted.
        """
        for topic in topics:
            if topic not in self._compacted:
                self._compacted[topic] = _is_compacted(ask, topic)
        for p, offset in end.items():
            if self._compacted[p[0]]:
                self._gaps[p] = min(self._gaps.get(p, offset), offset)
        return self._gaps

    def _rates(self, now: _Look) -> dict[Partition, float]:
        """Events/s of each partition since the first look within the window that knows its end.

        What a partition held when it was first seen arrived at an unknown time: it has no rate
        until a second look, unless it was added to a topic that had been looked at without it.
        After looks that failed for longer than the window, none is known.
        """
        looks = self._looks
        if self._failed and looks and now.at - looks[-1].at > self._working.window:
            # while Kafka did not answer, perhaps nobody could write: that is no low rate
            looks.clear()
        self._failed = False
        last = {p: end for look in looks for p, end in look.end.items()}
        # a topic that was deleted and created again begins at 0 again
        recreated = {p[0] for p, end in now.end.items() if end < last.get(p, 0)}
        for look in looks:
            for p in [p for p in look.end if p[0] in recreated]:
                del look.end[p]
        if looks:
            before = looks[-1]
            topics = {topic for topic, _ in before.listed} - recreated
            before.end.update(
                {p: 0 for p in now.listed - before.listed if p[0] in topics and p not in last}
            )
        looks.append(now)
        while len(looks) > 2 and now.at - looks[1].at >= self._working.window:
            looks.popleft()
        first: dict[Partition, tuple[float, int]] = {}
        for look in looks:
            if look.at < now.at:
                for p, end in look.end.items():
                    first.setdefault(p, (look.at, end))
        return {
            p: (end - first[p][1]) / (now.at - first[p][0])
            for p, end in now.end.items()
            if p in first
        }

    def _lags(
        self,
        partitions: Sequence[Partition],
        start: Mapping[Partition, int],
        end: Mapping[Partition, int],
        settled: Mapping[Partition, int],
        committed: Mapping[Partition, int],
    ) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
        """Events that wait and can be consumed, and notes on those that cannot.

        What follows the beginning of an open transaction cannot, unless the group has committed
        some of it: then it does not wait for transactions.
        """
        lag = np.zeros(len(partitions))
        never, expired, beyond, held = 0, 0, 0, 0
        reads_all = any(settled[p] < committed.get(p, 0) <= end[p] for p in partitions)
        until = end if reads_all else settled
        for row, p in enumerate(partitions):
            at = committed.get(p)
            if at is None:
                never += 1
            elif at > end[p]:
                beyond += 1
            else:
                expired += at < start[p]
                held += until[p] < end[p]
                lag[row] = max(until[p] - max(at, start[p]), 0)
        counted = (
            (never, "never committed: counted without lag"),
            (expired, "committed below the oldest record: lag counted from there"),
            (beyond, "committed beyond the end: counted without lag"),
            (held, "with an open transaction: lag counted up to its beginning"),
        )
        return lag, tuple(f"{plural(n, 'partition')} {text}" for n, text in counted if n)


def partitions_of(ask: Ask, topics: Sequence[str], *, may_be_gone: bool = False) -> list[Partition]:
    """The partitions of topics, sorted.

    Parameters
    ----------
    ask
        Runs a function with a kafka-python admin client.
    topics
        Their names.
    may_be_gone
        Whether one that does not exist has no partitions, unless no other one has.

    Raises
    ------
    AutoscalingError
        For a topic that does not exist, or may not be described.
    """
    described = {t["name"]: t for t in ask(lambda admin: admin.describe_topics(list(topics)))}
    if may_be_gone:
        left = [t for t in topics if described.get(t, {}).get("error_code") != _UNKNOWN_TOPIC]
        topics = left or list(topics)
    for topic in topics:
        entry = described.get(topic)
        if entry is None or entry.get("error_code") or not entry["partitions"]:
            raise AutoscalingError(
                f"topic {shown(topic)} not found, a topic that exists and that the user of "
                "the client properties may describe expected"
            )
    return sorted(
        (topic, p["partition_index"]) for topic in topics for p in described[topic]["partitions"]
    )


def _named(topics: Collection[str]) -> str:
    """Topics for a sentence."""
    return f"topic{'s' if len(topics) > 1 else ''} {listed(sorted(topics))}"


def _is_compacted(ask: Ask, topic: str) -> bool:
    from kafka.admin import ConfigResource

    asked = [ConfigResource("topic", topic, [_CLEANUP])]
    try:
        answer = ask(lambda admin: admin.describe_configs(asked, config_filter="all"))
    except KafkaDeniedError:
        return True
    policy = answer.get("topic", {}).get(topic, {}).get(_CLEANUP, {}).get("value")
    return policy is None or "compact" in str(policy)


def _offsets(
    ask: Ask, partitions: Sequence[Partition], which: int, isolation: int = _READ_UNCOMMITTED
) -> dict[Partition, int]:
    from kafka import TopicPartition

    asked = {TopicPartition(*p): which for p in partitions}
    found = ask(lambda admin: admin.list_partition_offsets(asked, isolation_level=isolation))
    return {(p.topic, p.partition): o.offset for p, o in found.items() if o.offset >= 0}
