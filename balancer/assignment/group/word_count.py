"""The example: counts words, makes lines to count, and compares the counts with a recount."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from balancer.assignment.group.changelog import INPUT_KEY, PROCESS_HEADER, Replay
from balancer.assignment.group.configs import GroupConfigs
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.processing import Record, State
from balancer.assignment.group.reader import PartitionReader
from balancer.assignment.group.topics import Topics
from metrics_reporter.clients import create

# Time that the last lines have to arrive.
_FLUSH_SECONDS = 30


class WordCount:
    """Counts how often each word occurs in a partition."""

    def process(self, record: Record, state: State) -> None:
        """Count the words of a line."""
        for word in (record.value or b"").split():
            state.put(word, str(int(state.get(word) or 0) + 1).encode())


def write_lines(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: int,
    rate: float,
    stop: threading.Event,
    seed: int = 0,
    words: int = 2_000,
) -> int:
    """Write lines of four words at a steady rate until `stop` is set; returns how many arrived.

    The topic is made with this number of partitions if it does not exist.

    Raises
    ------
    GroupError
        If Kafka does not take all of the lines.
    """
    Topics(bootstrap_servers).create(topic, partitions, {})
    producer = create(
        "Producer", {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "log_level": 0}
    )
    chance = random.Random(seed)
    vocabulary = [f"word{n}" for n in range(words)]
    weights = [1 / (n + 1) for n in range(words)]
    began, written, delivered = time.monotonic(), 0, 0
    refused: list[str] = []

    def on_delivery(error: Any, _: Any) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1
        elif not refused:
            refused.append(error.str())

    while not stop.is_set():
        due = int((time.monotonic() - began) * rate)
        while written < due and not stop.is_set():
            line = " ".join(chance.choices(vocabulary, weights, k=4)).encode()
            partition = written % partitions
            while not stop.is_set():
                try:
                    producer.produce(topic, line, partition=partition, on_delivery=on_delivery)
                    written += 1
                    break
                except BufferError:  # no room in the client's queue
                    producer.poll(0.1)
        producer.poll(0)
        stop.wait(0.01)
    producer.flush(_FLUSH_SECONDS)
    if delivered < written:
        why = refused[0] if refused else f"no answer within {_FLUSH_SECONDS} s"
        raise GroupError(
            f"topic {topic}: {written - delivered} of {written} lines not written: {why}"
        )
    return delivered


@dataclass
class PartitionCheck:
    """What a recount of a partition found.

    Parameters
    ----------
    partition
        The partition.
    records
        Records of the input.
    processed
        Records that the state stands for.
    differences
        Words whose counts differ from the recount.
    commits
        When each transaction ended, in seconds since 1970 by the broker's clock.
    processes
        The processes that wrote them, in order of their first.
    """

    partition: int
    records: int
    processed: int
    differences: int
    commits: tuple[float, ...]
    processes: tuple[str, ...]

    @property
    def correct(self) -> bool:
        """Whether every record was counted exactly once."""
        return self.records == self.processed and not self.differences

    def gap(self, since: float = 0.0, until: float = math.inf) -> float:
        """Longest time in seconds between two transactions, of those with its middle in a span."""
        gaps = (
            after - before
            for before, after in pairwise(self.commits)
            if since <= (before + after) / 2 < until
        )
        return max(gaps, default=0.0)


@dataclass
class _Found:
    """The state of a partition as its changelog tells it."""

    replay: Replay = field(default_factory=Replay)
    commits: list[float] = field(default_factory=list)
    processes: dict[str, None] = field(default_factory=dict)

    def add(self, message: Any) -> None:
        """Take the next record of the changelog."""
        self.replay.add([(message.key(), message.value())])
        if message.key() == INPUT_KEY:
            self.commits.append(message.timestamp()[1] / 1000)
            self.processes |= {
                value.decode(): None
                for name, value in message.headers() or ()
                if name == PROCESS_HEADER
            }


def check(configs: GroupConfigs, timeout: float = 60.0) -> list[PartitionCheck]:
    """Recount the input and compare each partition with the state in the changelog.

    Its transactions are those that compaction has left.

    Raises
    ------
    GroupError
        If a topic does not exist, or cannot be read in `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    counts: dict[int, Counter[bytes]] = {}
    records: Counter[int] = Counter()
    for message in read_topic(configs.bootstrap_servers, configs.input_topic, deadline):
        records[message.partition()] = message.offset() + 1
        counts.setdefault(message.partition(), Counter()).update((message.value() or b"").split())
    found: dict[int, _Found] = {}
    for message in read_topic(configs.bootstrap_servers, configs.changelog_topic, deadline):
        found.setdefault(message.partition(), _Found()).add(message)
    checks = []
    for p in sorted(records | dict.fromkeys(found, 0)):
        of = found.get(p, _Found())
        state = {k: int(v) for k, v in of.replay.changes.items() if v is not None}
        recount = counts.get(p, Counter())
        words = state.keys() | recount.keys()
        checks.append(
            PartitionCheck(
                p,
                records[p],
                of.replay.input_offset or 0,
                sum(state.get(w, 0) != recount[w] for w in words),
                tuple(of.commits),
                tuple(of.processes),
            )
        )
    return checks


def wait_until_processed(
    configs: GroupConfigs, timeout: float, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until everything written so far is processed; returns whether it is."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and not stop():
        if all(c.records == c.processed for c in check(configs, timeout)):
            return True
        time.sleep(0.5)
    return False


def read_topic(bootstrap_servers: str, topic: str, deadline: float) -> Iterator[Any]:
    """All messages of a topic up to its end.

    Raises
    ------
    GroupError
        If it does not exist, or its end is not reached by the deadline (monotonic seconds).
    """
    partitions = set(range(Topics(bootstrap_servers).partitions(topic)))
    if not partitions:
        raise GroupError(f"topic {topic}: not found")
    reader = PartitionReader(bootstrap_servers, topic)
    try:
        ends = {p: reader.end(p, max(deadline - time.monotonic(), 0.001)) for p in partitions}
        for p in partitions:
            reader.add(p, 0)
        while partitions:
            if time.monotonic() > deadline:
                raise GroupError(f"topic {topic}: its end was not reached in time")
            batch = reader.read(5_000, 0.2)
            for messages in batch.messages.values():
                yield from messages
            partitions -= {p for p, at in batch.ends.items() if at >= ends[p]}
    finally:
        reader.close()
