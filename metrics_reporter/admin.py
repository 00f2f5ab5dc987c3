"""Measures a cluster through Kafka's admin API, with nothing installed on brokers.

The API gives the bytes of each replica, the end of each partition, and the progress of each
consumer group; bytes/s follow from these. It gives no cpu.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict

from metrics_reporter.errors import ReporterError
from metrics_reporter.metrics import BYTES_IN, BYTES_OUT, SIZE
from metrics_reporter.records import Record
from metrics_reporter.source_plugins import Connection

Partition = tuple[str, int]
Ask = Callable[[Callable[[Any], Any]], Any]
# ListOffsets' timestamps for the newest and the oldest offset.
_NEWEST, _OLDEST = -1, -2
# Key of a broker's problem, before its id.
_BROKER = "broker "


class Look(NamedTuple):
    """The state of a partition's leader at one moment.

    Parameters
    ----------
    at
        Seconds on a monotonic clock.
    leader
        Broker id.
    start, end
        Its oldest offset and the next one.
    size
        Bytes of the leader's replica; None if its broker did not report it.
    read
        Sum of the offsets committed by consumer groups.
    """

    at: float
    leader: int
    start: int
    end: int
    size: float | None
    read: Mapping[str, int]


class AdminOptions(BaseModel):
    """The source ``admin``: Kafka's admin API, with nothing installed on brokers.

    Parameters
    ----------
    groups
        Whether to query the offsets of consumer groups; if not, ``bytes_out`` is 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: ClassVar[str] = "Query Kafka's admin API, with nothing installed on brokers."

    groups: bool = True

    def open(self, connection: Connection) -> AdminSource:
        """The source itself."""
        return AdminSource(connection.admin, groups=self.groups)


class AdminSource:
    """Queries Kafka's admin API, one report per iteration.

    ``size`` is as each broker reports it. ``bytes_in`` is the growth of the end offset times
    the bytes of a record on disk. Those are measured as the growth of the leader's size per
    record since the log was last cut. So the rate counts bytes written, after compression,
    and stays right while retention deletes. ``bytes_out`` is the growth of the offsets that
    consumer groups committed, times the same; consumers that commit nothing are not seen.
    The first report has sizes only.

    Parameters
    ----------
    connect
        Returns a context manager of a function that runs another with a kafka-python admin client,
        such as ``lambda: cluster_model.kafka.admin_client("localhost:9092")``.
    groups
        Whether to query the offsets of consumer groups; if not, ``bytes_out`` is 0.

    Attributes
    ----------
    problems
        Current problems; empty if there are none.
    failed : int
        Reports that failed so far.
    """

    def __init__(
        self, connect: Callable[[], AbstractContextManager[Ask]], *, groups: bool = True
    ) -> None:
        self.problems: dict[str, str] = {}
        self.failed = 0
        self._connect = connect
        self._groups = groups
        self._before: dict[Partition, Look] = {}
        self._since: dict[Partition, Look] = {}
        self._record_bytes: dict[Partition, float] = {}

    def __iter__(self) -> Iterator[list[Record]]:
        while True:
            try:
                with self._connect() as ask:
                    report = list(self._report(ask))
            # Clients raise more than they document, and the next attempt may succeed.
            except Exception as error:
                self.failed += 1
                self.problems["admin"] = f"Kafka not measured: {_sentence(error)}"
                yield []
            else:
                self.problems.pop("admin", None)
                # Outside the try, so that the reader's errors are not mistaken for the client's.
                yield report

    def _report(self, ask: Ask) -> Iterator[Record]:
        brokers = [
            b["broker_id"]
            for b in ask(lambda admin: admin.describe_cluster())["brokers"]
            if not b.get("is_fenced", False)
        ]
        for name in {n for n in self.problems if n.startswith(_BROKER)} - {
            f"{_BROKER}{b}" for b in brokers
        }:
            # it has left the cluster
            del self.problems[name]
        topics = ask(lambda admin: admin.describe_topics())
        leader = {
            (topic["name"], p["partition_index"]): p["leader_id"]
            for topic in topics
            for p in topic["partitions"]
            if p["leader_id"] in brokers
        }
        read = self._read_by_groups(ask)
        # Sizes and ends as close in time as possible: one is measured by the other.
        start = _offsets(ask, leader, _OLDEST)
        sizes: dict[tuple[int, Partition], float] = {}
        for broker in brokers:
            found = self._sizes(ask, broker, topics)
            sizes |= {(broker, partition): size for partition, size in found.items()}
        end = _offsets(ask, leader, _NEWEST)
        at, now = time.monotonic(), int(1000 * time.time())

        rates = {
            partition: self._rates(
                partition,
                Look(
                    at,
                    broker,
                    start[partition],
                    end[partition],
                    sizes.get((broker, partition)),
                    {group: offsets[partition] for group, offsets in read.items()
                     if partition in offsets},
                ),
            )
            for partition, broker in leader.items()
            if partition in start and partition in end
        }  # fmt: skip
        self._forget(leader)
        for (broker, partition), size in sizes.items():
            led = leader.get(partition) == broker
            metrics = {SIZE: size, **(rates.get(partition, {}) if led else {})}
            yield Record(now, broker, metrics, *partition)

    def _rates(self, partition: Partition, now: Look) -> dict[str, float]:
        before, since = self._before.get(partition), self._since.get(partition)
        self._before[partition] = now
        grown = None if since is None else _grown(since, now)
        if since is None or grown is None:
            self._since[partition] = now
        elif now.end > since.end:
            self._record_bytes[partition] = grown / (now.end - since.end)
        if before is None or now.at <= before.at or now.end < before.end:
            return {}
        each = self._bytes_of_a_record(partition, now)
        if each is None:
            return {}
        seconds = now.at - before.at
        read = sum(
            max(offset - before.read.get(group, offset), 0) for group, offset in now.read.items()
        )
        return {
            BYTES_IN: (now.end - before.end) * each / seconds,
            BYTES_OUT: read * each / seconds,
        }

    def _bytes_of_a_record(self, partition: Partition, now: Look) -> float | None:
        """As measured, else the mean over the log; None if neither is known."""
        each = self._record_bytes.get(partition)
        if each is None and now.size is not None:
            held = now.end - now.start
            each = now.size / held if held else 0.0
        return each

    def _sizes(
        self, ask: Ask, broker: int, topics: Sequence[Mapping[str, Any]]
    ) -> dict[Partition, float]:
        """Bytes of the replicas on a broker; empty if it does not answer."""
        held = {
            topic["name"]: [
                p["partition_index"] for p in topic["partitions"] if broker in p["replica_nodes"]
            ]
            for topic in topics
        }
        held = {topic: numbers for topic, numbers in held.items() if numbers}
        name = f"{_BROKER}{broker}"
        try:
            (answer,) = ask(lambda admin: admin.describe_log_dirs(held, [broker]))
        except Exception as error:
            self.problems[name] = f"{name} reported no sizes: {_sentence(error)}"
            return {}
        if not answer["log_dirs"]:
            # A refusal looks like this, because the client drops the error code.
            self.problems[name] = (
                f"{name} reported no sizes: the client's user needs the right to DESCRIBE the "
                "cluster"
            )
            return {}
        self.problems.pop(name, None)
        return {
            (topic["name"], p["partition_index"]): float(p["partition_size"])
            for log_dir in answer["log_dirs"]
            if log_dir["error_code"] == 0
            for topic in log_dir["topics"]
            for p in topic["partitions"]
            if not p["is_future_key"]
        }

    def _read_by_groups(self, ask: Ask) -> dict[str, dict[Partition, int]]:
        """Offset committed by each consumer group; empty where it is unavailable."""
        if not self._groups:
            return {}
        try:
            groups = [group["group_id"] for group in ask(lambda admin: admin.list_groups())]
            found = ask(lambda admin: admin.list_group_offsets(groups)) if groups else {}
        except Exception as error:
            self.problems["groups"] = f"consumer groups not measured: {_sentence(error)}"
            return {}
        self.problems.pop("groups", None)
        return {
            group: {(p.topic, p.partition): o.offset for p, o in offsets.items() if o.offset >= 0}
            for group, offsets in found.items()
        }

    def _forget(self, leader: Mapping[Partition, int]) -> None:
        known: tuple[dict[Partition, Any], ...] = (self._before, self._since, self._record_bytes)
        for those in known:
            for partition in those.keys() - leader.keys():
                del those[partition]


def _grown(since: Look, now: Look) -> float | None:
    """Bytes of the records that arrived in between; None if the log was also cut."""
    if since.size is None or now.size is None or since.leader != now.leader:
        return None
    whole = since.start == now.start and since.end <= now.end and since.size <= now.size
    return now.size - since.size if whole else None


def _offsets(ask: Ask, leader: Mapping[Partition, int], which: int) -> dict[Partition, int]:
    if not leader:
        return {}
    try:
        from kafka import TopicPartition
    except ImportError:
        raise ReporterError(
            "kafka-python is not installed: pip install 'counterpoise[kafka]'"
        ) from None
    requested = {TopicPartition(*partition): which for partition in leader}
    found = ask(lambda admin: admin.list_partition_offsets(requested))
    return {(p.topic, p.partition): o.offset for p, o in found.items()}


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
