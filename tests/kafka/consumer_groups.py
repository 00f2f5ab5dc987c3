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
from kafka_cases import alive, python_environment
from waiting import wait_for

from balancer.autoscaling.parameters import AutoscalingParameters

# Seconds between two looks at what is to be written.
_STEP = 0.05
# The command with numbers that it has no options for: how long consumers may read without their
# controller, and controllers without their vote.
_RUN = """
from functools import partial
from balancer.autoscaling import assigned
from balancer.cli import autoscale_run, main

assigned.ControlSettings = partial(assigned.ControlSettings, lease_seconds={lease})
autoscale_run._SESSION_SECONDS = {session}
main()
"""


class Load:
    """Writes events to each partition at rates that may be changed."""

    def __init__(self, bootstrap: str, topic: str, rates: Sequence[float]) -> None:
        self.rates, self.event = rates, b"event"
        self.sent = [0.0] * len(rates)
        # longest time until Kafka had an event, and for which the machine let this thread wait
        self.written_seconds = self.paused_seconds = 0.0
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(_STEP):
            now = time.monotonic()
            self.paused_seconds = max(self.paused_seconds, now - last - _STEP)
            for partition, rate in enumerate(self.rates):
                before = self.sent[partition]
                self.sent[partition] += rate * (now - last)
                for _ in range(int(self.sent[partition]) - int(before)):
                    self._producer.produce(
                        self._topic, self.event, partition=partition, on_delivery=self._note
                    )
            last = now
            self._producer.poll(0)
        assert self._producer.flush(20.0) == 0

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self.written_seconds = max(self.written_seconds, message.latency())

    @property
    def late_seconds(self) -> float:
        """By how much an event may be later in Kafka than its rate says."""
        return self.written_seconds + self.paused_seconds

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
    """An event from the beginning of its processing to the end.

    It was written at one time, and could be read from another one on: as soon as it was written, or
    when its reader had begun with its partition.
    """

    process: int
    offset: int
    began: float
    ended: float
    written: float
    readable: float


@dataclass
class Written:
    """What all consumers have written: each into a file that is named after its process.

    A line is JSON: seconds, what it did, and the partition: ``start``, ``stop``, ``begin`` with the
    offset and how long the event had waited, ``end`` with the offset; or ``commit`` and how long
    that took.
    """

    stays: list[Stay] = field(default_factory=list)
    # of each partition
    work: dict[int, list[Work]] = field(default_factory=lambda: defaultdict(list))
    # how long events have waited when their processing began, and when that was
    waited: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    began: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    processes: list[int] = field(default_factory=list)
    # seconds that each process has waited for commits
    commits: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    @classmethod
    def read(cls, folder: Path) -> Written:
        found = cls()
        for file in folder.iterdir():
            process = int(file.name)
            found.processes.append(process)
            found._add(process, file.read_text(encoding="utf-8").splitlines())
        for work in found.work.values():
            work.sort(key=lambda w: w.began)
            if not found.stays:
                # a reader has begun with a partition when it begins with its first event
                begun: Work | None = None
                for each in work:
                    begun = each if begun is None or begun.process != each.process else begun
                    each.readable = max(each.written, begun.began)
        return found

    def _add(self, process: int, lines: Sequence[str]) -> None:
        open_: dict[int, Stay] = {}
        begun: dict[int, tuple[float, float]] = {}
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
                begun[about[0]] = at, at - about[2]
            elif what == "end":
                began, written = begun[about[0]]
                readable = max(written, open_[about[0]].began) if tells else written
                self.work[about[0]].append(Work(process, about[1], began, at, written, readable))
            elif what == "commit":
                self.commits[process] += about[0]
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

    def check_model(self, load: Load, rounds: int = 1) -> None:
        """No event of any partition has waited longer than the model of latency allows.

        The model is that of two queues (seed 000, Eq. 16 to 27), event by event. What stays with
        its reader can be read when it is written, and what moves when its new reader starts: after
        the rebalance. A reader is never idle while it can read something. So it has done all that
        can be read until t by

            F(t) = max over s <= t of s + (the work that can be read from s to t)

        where the work is what its events took to process and commit, as the reader has measured: a
        number of events over its rate, Eq. 1 of seed 003. An event that was written at w and can be
        read from r on waits at most

            F(r + delivery) + delivery - w

        as it is fetched, with others that are written until then, up to `delivery` later: three
        seconds for connections, fetches and polls, and what Kafka took at most to have an event
        that was written, and the machine to let a thread run, each twice, as the reader is another
        process. A reader may hand out all that it has fetched of a partition before it fetches more
        of it; then what can be read during a round is handed out in the next, and the bound is that
        of two `rounds`, F(F(r + delivery)) + delivery - w.

        How long a partition has no reader is taken as it was: :meth:`check_bound` limits that.
        """
        delivery = 3.0 + 2 * load.late_seconds
        print(f"delivery takes at most {delivery:.2f} s")
        by_process: dict[int, list[tuple[int, Work]]] = defaultdict(list)
        for partition, each in self.work.items():
            for work in each:
                by_process[work.process].append((partition, work))
        rows: dict[int, tuple[float, float]] = {}
        for process, found in by_process.items():
            found.sort(key=lambda f: f[1].readable)
            began, ended, written, readable = np.array(
                [(w.began, w.ended, w.written, w.readable) for _, w in found]
            ).T
            took = ended - began + self.commits[process] / len(found)
            done = np.cumsum(took)
            done += np.maximum.accumulate(readable - (done - took))
            until = readable + delivery
            for _ in range(rounds):
                until = done[np.searchsorted(readable, until, side="right") - 1]
            bound = until + delivery - written
            for (partition, _), waited, most in zip(found, began - written, bound, strict=True):
                worst = rows.get(partition, (0.0, 1.0))
                if waited / most >= worst[0] / worst[1]:
                    rows[partition] = waited, most
        for partition, (waited, most) in sorted(rows.items()):
            print(f"partition {partition} waited {waited:.2f} s, the model allows {most:.2f} s")
        assert all(waited <= most for waited, most in rows.values()), rows

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

    def check_balanced(
        self, load: Load, at: float, rates: Sequence[float], capacity: float, window: float
    ) -> None:
        """At a time, no reader has more to process than the policy lets one have.

        The policy sees rates as events that were counted in a window: one event may be in or out,
        and those that were written late.
        """
        counted: dict[int, float] = defaultdict(float)
        for partition, rate in enumerate(rates):
            last = max((w for w in self.work[partition] if w.began <= at), key=lambda w: w.began)
            counted[last.process] += rate - (1 + rate * load.late_seconds) / window
        assert max(counted.values()) <= capacity * AutoscalingParameters().fill, dict(counted)

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
    def start(cls, *words: object, lease: float = 10.0, session: float = 6.0) -> AutoscaleRun:
        code = _RUN.format(lease=lease, session=session)
        return cls(
            subprocess.Popen(
                [sys.executable, "-c", code, "autoscale", "run", "--json", *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=None,
                text=True,
                env=python_environment(),
            )
        )

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

    def wait_settled(self, consumers: int, lag: float) -> None:
        """Wait until some rounds from now on have found it settled."""
        begun = len(self.rounds)
        wait_for(
            lambda: len(self.rounds) >= begun + 3 and self.settled(consumers, lag),
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
