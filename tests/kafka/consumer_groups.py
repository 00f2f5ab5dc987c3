"""A consumer group on a real Kafka: its load, its controller, and what its consumers write down."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from kafka_cases import alive, python_environment, wait_for


class Load:
    """Writes events to each partition at rates that may be changed."""

    def __init__(self, bootstrap: str, topic: str, rates: Sequence[float]) -> None:
        self.rates, self.event = rates, b"event"
        self.sent = [0.0] * len(rates)
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(0.05):
            now = time.monotonic()
            for partition, rate in enumerate(self.rates):
                before = self.sent[partition]
                self.sent[partition] += rate * (now - last)
                for _ in range(int(self.sent[partition]) - int(before)):
                    self._producer.produce(self._topic, self.event, partition=partition)
            last = now
            self._producer.poll(0)
        assert self._producer.flush(20.0) == 0

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30.0)


@dataclass
class Stay:
    """A partition from its start to its stop, or to the last sign of a process that was killed."""

    process: int
    partition: int
    began: float
    ended: float


@dataclass
class Work:
    """An event from the beginning of its processing to the end."""

    process: int
    offset: int
    began: float
    ended: float


@dataclass
class Written:
    """What all consumers have written: each into a file that is named after its process.

    A line is JSON: seconds, what it did, and the partition: ``start``, ``stop``, ``begin`` with the
    offset and how long the event had waited, ``end`` with the offset.
    """

    stays: list[Stay] = field(default_factory=list)
    # of each partition
    work: dict[int, list[Work]] = field(default_factory=lambda: defaultdict(list))
    # how long events have waited when their processing began, and when that was
    waited: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    began: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    processes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Written:
        found = cls()
        for file in folder.iterdir():
            process = int(file.name)
            found.processes.append(process)
            found._add(process, file.read_text(encoding="utf-8").splitlines())
        for work in found.work.values():
            work.sort(key=lambda w: w.began)
        return found

    def _add(self, process: int, lines: Sequence[str]) -> None:
        open_: dict[int, Stay] = {}
        begun: dict[int, float] = {}
        tells = False
        for line in lines:
            try:
                at, what, *about = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            for stay in open_.values():
                stay.ended = at
            if what == "start":
                tells = True
                open_[about[0]] = Stay(process, about[0], at, at)
            elif what == "stop":
                self.stays.append(open_.pop(about[0]))
            elif what == "begin":
                # only what is held is processed, if they tell
                assert not tells or about[0] in open_, (process, line)
                self.waited[about[0]].append(about[2])
                self.began[about[0]].append(at)
                begun[about[0]] = at
            elif what == "end":
                self.work[about[0]].append(Work(process, about[1], begun[about[0]], at))
        self.stays += open_.values()

    def check_one_reader(self) -> None:
        """No partition is held, and none is processed, by two at a time."""
        by_partition: dict[int, list[Stay]] = defaultdict(list)
        for stay in self.stays:
            by_partition[stay.partition].append(stay)
        for stays in by_partition.values():
            stays.sort(key=lambda s: s.began)
            for before, after in itertools.pairwise(stays):
                assert before.ended <= after.began, (before, after)
        for partition, work in self.work.items():
            for one, other in itertools.pairwise(work):
                assert one.ended <= other.began, (partition, one, other)

    def check_bound(self, seconds: float) -> None:
        """No event of any partition has waited longer."""
        most = {partition: max(waited) for partition, waited in self.waited.items()}
        assert max(most.values()) < seconds, most

    def waited_before(self, at: float) -> list[float]:
        """How long events have waited whose processing had begun before a time."""
        return [
            seconds
            for partition, each in self.waited.items()
            for seconds, began in zip(each, self.began[partition], strict=True)
            if began < at
        ]

    def check_nothing_lost(self, sent: Sequence[float]) -> None:
        for partition, count in enumerate(sent):
            missing = set(range(int(count))) - {w.offset for w in self.work[partition]}
            assert not missing, (partition, int(count), sorted(missing)[:10])

    def check_balanced(self, at: float, rates: Sequence[float], capacity: float) -> None:
        """At a time, who reads what has no more to process than it can."""
        load: dict[int, float] = defaultdict(float)
        for partition, rate in enumerate(rates):
            last = max((w for w in self.work[partition] if w.began <= at), key=lambda w: w.began)
            load[last.process] += rate
        assert max(load.values()) <= capacity, dict(load)

    @property
    def again(self) -> int:
        """Events that were processed again."""
        return sum(len(work) - len({w.offset for w in work}) for work in self.work.values())

    def report(self, name: str) -> None:
        waited = [seconds for each in self.waited.values() for seconds in each]
        low, high, most = np.percentile(waited, [50, 99, 100])
        print(
            f"\n{name}: {sum(map(len, self.work.values())) - self.again} events, {self.again} "
            f"processed again, waited {low:.2f} s (median), {high:.2f} s (99 %), {most:.2f} s "
            f"(longest); {len(self.stays)} stays of partitions with {len(self.processes)} processes"
        )


@dataclass
class AutoscaleRun:
    """A running ``autoscale run`` and what it says."""

    process: subprocess.Popen[str]
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @classmethod
    def start(cls, *words: object) -> AutoscaleRun:
        return cls(
            subprocess.Popen(
                [sys.executable, "-c", "from balancer.cli import main; main()", "autoscale", "run",
                 "--json", *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=None,
                text=True,
                env=python_environment(),
            )
        )  # fmt: skip

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # it may be killed in the middle of one
            with suppress(ValueError):
                self.rounds.append(json.loads(line))

    def last(self) -> dict[str, Any]:
        return next((r for r in reversed(self.rounds) if "consumers" in r), {})

    def last_rounds(self) -> object:
        return self.rounds[-6:]

    def settled(self, consumers: int, lag: float) -> bool:
        """Whether so many run and are needed, nothing moves, and at most so much waits."""
        last = self.last()
        return (
            bool(last)
            and last["running"] == last["consumers"] == consumers
            and last["lag"] <= lag
            and not last["moves"]
        )

    def wait_settled(self, consumers: int, lag: float, seconds: float = 90.0) -> None:
        """Wait until some rounds from now on have found it settled."""
        begun = len(self.rounds)
        wait_for(
            lambda: len(self.rounds) >= begun + 3 and self.settled(consumers, lag),
            seconds,
            self.last_rounds,
        )

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60.0)
        self.reader.join(10.0)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60.0)
        self.reader.join(10.0)


def margin() -> float:
    """Seconds that no model knows: how long processes start here, heartbeats, polls, elections.

    Six consumers may start at once, so a machine that is slow or busy gets more than usual.
    """
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "import balancer.autoscaling.assigned, kafka, confluent_kafka"],
        check=True,
        env=python_environment(),
    )
    return max(15.0, 5.0 + 6 * (time.monotonic() - began))


def living(folder: Path) -> list[int]:
    """Ids of the consumers that have written and are alive."""
    return [id_ for file in folder.iterdir() if alive(id_ := int(file.name))]
