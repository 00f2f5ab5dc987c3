"""Executions and brokers killed at random moments: what is left, and what is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from balancer import Action, PlanDocument
from balancer.execution import ExecutionError
from balancer.execution.cluster import Kafka, Key, PartitionView, Resource
from balancer.execution.journal import Recorded, read_journal
from balancer.execution.tasks import OPEN
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIR_RATE,
)
from balancer.plan import Summary
from benchmarks.harness.brokers import real_kafka
from benchmarks.harness.ledger import Ledger
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import InputError
from cluster_model.kafka import admin_client

_ROUNDS = {"S": 5, "M": 25, "L": 100}
_BROKERS = (0, 1, 2)
_PARTITIONS = 4
_REPLICAS = 2
# Topics whose messages are acknowledged by the leader alone if it must be, or never.
_TOPICS = {"available": 1, "durable": 2}
_MEGABYTES = 2
_THROTTLE = "2MB/s"
_SETTLE_SECONDS = 120.0
_COMMAND = (sys.executable, "-c", "from balancer.cli import main; main()", "execute")

_FAULTS = (
    "partitions lost",
    "partitions left under-replicated",
    "reassignments left",
    "throttles left",
    "journals inconsistent",
    "executions ended wrong",
    "messages lost",
)


@benchmark("chaos", sizes=tuple(_ROUNDS))
def chaos(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """kill -9 of executions and brokers at random moments; what is left of it, round by round.

    Three real brokers, the first of them the controller too; a random plan a round, carried
    out by ``counterpoise execute``, which is killed up to three times and recovered, while
    brokers are killed and started again and messages are written with acks=all.
    """
    failures = []
    for size in sizes:
        counts: Counter[str] = Counter()
        rounds = options.rounds or _ROUNDS[size]
        started = time.monotonic()
        for name, value, unit in _measure(rounds, options, counts):
            yield Row("chaos", size, "counterpoise", name, value, unit)
        seconds = (time.monotonic() - started) / max(1, counts["rounds"])
        yield Row("chaos", size, "counterpoise", "seconds a round", seconds, "seconds")
        found = ", ".join(f"{counts[f]} {f}" for f in _FAULTS if counts[f])
        if found:
            failures.append(f"chaos {size}: {found}")
    if failures:
        raise BenchmarkError("; ".join(failures))


def _measure(
    rounds: int, options: Options, counts: Counter[str]
) -> Iterator[tuple[str, float, str]]:
    kafka = real_kafka()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="chaos-") as scratch,
            kafka.KafkaCluster(brokers=len(_BROKERS), directory=Path(scratch)) as cluster,
        ):
            _Chaos(cluster, Path(scratch), options, counts).run(rounds)
    except kafka.RealKafkaError as error:
        raise BenchmarkError(" ".join(str(error).split())) from None
    finally:
        told = (
            "rounds",
            "executions killed",
            "brokers killed",
            "tasks completed",
            "tasks given up",
        )
        for name in (*told, *_FAULTS, "messages acknowledged"):
            yield name, float(counts[name]), name.split()[0]


class _Chaos:
    """Rounds on one cluster.

    Parameters
    ----------
    cluster
        The brokers.
    scratch
        Where plans and journals go.
    options, counts
        As given; what happened is counted.
    """

    def __init__(self, cluster: Any, scratch: Path, options: Options, counts: Counter[str]) -> None:
        self._cluster, self._scratch, self._counts = cluster, scratch, counts
        self._tell, self._seed = options.tell, options.seed
        self._places = [Key(t, n) for t in _TOPICS for n in range(_PARTITIONS)]

    def run(self, rounds: int) -> None:
        """Make the topics, then round after round."""
        self._make_topics()
        ledger = Ledger(self._cluster.bootstrap, self._places)
        try:
            with ledger:
                for number in range(rounds):
                    self._round(number, ledger)
            self._fault("messages lost", ledger.lost(all_again=True), "of all rounds")
        finally:
            self._counts["messages acknowledged"] = ledger.acknowledged

    def _round(self, number: int, ledger: Ledger) -> None:
        # A round that failed is made again with its number alone.
        dice = random.Random(f"{self._seed} {number}")
        started = time.monotonic()
        plan, journal = self._scratch / f"plan-{number}.json", self._scratch / f"journal-{number}"
        plan.write_text(self._plan(dice).model_dump_json())
        trouble = threading.Thread(target=self._kill_brokers, args=(dice.random(), dice.random()))
        trouble.start()
        lives = dice.randint(1, 3)
        said = ""
        common = ["--bootstrap-server", self._cluster.bootstrap, "--journal", str(journal)]
        common += ["--throttle", _THROTTLE, "--broker-grace", dice.choice(["0.5", "60"])]
        common += dice.choice([[], ["--one-replica-at-a-time"], ["--moves", "2"]])
        for life in range(lives + 1):
            ends = None if life == lives else 0.7 + dice.expovariate(0.4)
            killed, said = self._execute(common, plan, journal, ends)
            self._counts["executions killed"] += killed
        trouble.join()
        # With all brokers back: throttles of those that were away can be taken off.
        while not self._closed(journal) and time.monotonic() - started < 2 * _SETTLE_SECONDS:
            _, said = self._execute(common, plan, journal, None)
        self._check(number, journal, said)
        self._fault("messages lost", ledger.lost(), f"round {number}")
        self._counts["rounds"] += 1
        self._tell(
            f"chaos: round {number} took {time.monotonic() - started:.1f} s, "
            f"{self._counts['executions killed']} executions and "
            f"{self._counts['brokers killed']} brokers killed so far"
        )

    def _execute(
        self, common: list[str], plan: Path, journal: Path, seconds: float | None
    ) -> tuple[bool, str]:
        """Begin or recover, and kill it after so long; whether it was killed, what it said."""
        what = ["--recover"] if journal.exists() else [str(plan), "--yes"]
        process = subprocess.Popen(
            [*_COMMAND, *common, *what],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = process.communicate(timeout=seconds or 4 * _SETTLE_SECONDS)
            return False, said
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            if seconds is None:
                self._fault("executions ended wrong", 1, f"it did not end: {said[-500:]}")
            return True, said

    def _kill_brokers(self, first: float, second: float) -> None:
        """Kill up to two brokers one after the other, and start them again."""
        dice = random.Random(first)
        for chance in (first, second):
            if chance < 0.35:
                continue
            time.sleep(dice.uniform(0.3, 4))
            broker = dice.choice(_BROKERS)
            self._cluster.kill(broker)
            self._counts["brokers killed"] += 1
            time.sleep(dice.uniform(0.1, 3))
            self._cluster.restart(broker)

    def _plan(self, dice: random.Random) -> PlanDocument:
        """Every partition to other brokers, or to another leader."""
        actions = []
        for key, now in self._view().items():
            left = [b for b in now.replicas if dice.random() < 0.6]
            new = [b for b in _BROKERS if b not in now.replicas]
            dice.shuffle(new)
            stay = list(now.replicas)
            for source, destination in zip(left, new, strict=False):
                stay[stay.index(source)] = destination
                actions.append(_action("move", key, source, destination))
            if dice.random() < 0.3:
                actions.append(_action("leadership", key, now.leader, dice.choice(stay)))
        nothing = {name: 0 for name in Summary.model_fields if name != "exhausted"}
        return PlanDocument(
            operation={"kind": "rebalance"},
            goals=(),
            summary=Summary.model_validate(nothing),
            columns={},
            goal_results=(),
            unmet=(),
            actions=tuple(actions),
        )

    def _check(self, number: int, journal: Path, said: str) -> None:
        """Count what is wrong after a round."""
        where = f"round {number}, seed {self._seed}"
        deadline = time.monotonic() + _SETTLE_SECONDS
        view = self._view()
        while time.monotonic() < deadline and not all(_healthy(p) for p in view.values()):
            time.sleep(0.5)
            view = self._view()
        lost = [k for k, p in view.items() if p.leader is None or len(p.before) != _REPLICAS]
        self._fault(
            "partitions lost", len(lost) + len(self._places) - len(view), f"{where}: {lost}"
        )
        weak = [str(k) for k, p in view.items() if len(p.isr) < len(p.replicas)]
        self._fault("partitions left under-replicated", len(weak), f"{where}: {weak}")
        moving = [str(k) for k, p in view.items() if p.moving]
        self._fault("reassignments left", len(moving), f"{where}: {moving}")
        throttles = self._throttles()
        self._fault("throttles left", len(throttles), f"{where}: {throttles}")
        recorded = self._journal(journal)
        whole = recorded is not None and recorded.closed
        open_tasks = [] if recorded is None else [s for s in recorded.states.values() if s in OPEN]
        if not whole or open_tasks:
            self._fault("journals inconsistent", 1, f"{where}: {open_tasks} {said[-1500:]}")
        if recorded is None:
            return
        wrong = _wrong(recorded, view)
        self._fault("executions ended wrong", len(wrong), f"{where}: {wrong}; it said {said}")
        states = Counter(recorded.states.values())
        self._counts["tasks completed"] += states["completed"]
        self._counts["tasks given up"] += states["dead"] + states["cancelled"]

    def _journal(self, path: Path) -> Recorded | None:
        try:
            return read_journal(path)
        except ExecutionError as error:
            self._tell(str(error))
            return None

    def _closed(self, path: Path) -> bool:
        recorded = self._journal(path)
        return recorded is not None and recorded.closed

    def _fault(self, name: str, count: int, where: str) -> None:
        self._counts[name] += count
        if count:
            self._tell(f"chaos: {count} {name}, {where}")

    def _view(self) -> dict[Key, PartitionView]:
        kafka = self._kafka()
        try:
            return dict(kafka.view(list(_TOPICS)).partitions)
        finally:
            kafka.close()

    def _throttles(self) -> list[str]:
        asked: dict[Resource, Sequence[str]] = {
            Resource("topic", t): (LEADER_REPLICAS, FOLLOWER_REPLICAS) for t in _TOPICS
        }
        for broker in _BROKERS:
            asked[Resource("broker", str(broker))] = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)
        kafka = self._kafka()
        try:
            found = kafka.configs(asked)
        finally:
            kafka.close()
        return [
            f"{key} of {r.kind} {r.name}: {value}"
            for r, values in found.items()
            for key, value in values.items()
            if value is not None
        ]

    def _kafka(self) -> Kafka:
        """A new connection: every old one may lead to a broker that was killed."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                return Kafka(self._cluster.bootstrap)
            except InputError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _make_topics(self) -> None:
        from confluent_kafka import Producer

        with admin_client(self._cluster.bootstrap, timeout=30) as ask:
            wanted = {
                name: {
                    "assignments": {
                        n: [(n + i) % len(_BROKERS) for i in range(_REPLICAS)]
                        for n in range(_PARTITIONS)
                    },
                    "configs": {"min.insync.replicas": str(min_isr)},
                }
                for name, min_isr in _TOPICS.items()
            }
            ask(lambda admin: admin.create_topics(wanted, wait_for_metadata=True))
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all"})
        for key in self._places:
            for _ in range(_MEGABYTES * 100):
                producer.produce(key.topic, b"-1" + b" " * 9_998, partition=key.partition)
            producer.flush(60)


def _action(kind: str, key: Key, source: int | None, destination: int) -> Action:
    return Action.model_validate(
        {
            "kind": kind,
            "topic": key.topic,
            "partition": key.partition,
            "source": source,
            "destination": destination,
        }
    )


def _healthy(p: PartitionView) -> bool:
    return p.leader is not None and not p.moving and set(p.isr) == set(p.replicas)


def _wrong(recorded: Recorded, view: dict[Key, PartitionView]) -> list[str]:
    """Partitions that are not where their tasks say: at the last one completed."""
    found = []
    for w in recorded.wanted:
        expected = set(w.origin)
        for i, task in sorted(recorded.tasks.items()):
            if task.key == w.key and task.phase == "move" and recorded.states[i] == "completed":
                expected = set(task.target)
        now = set(view[w.key].replicas)
        if now != expected:
            found.append(f"{w.key} on {sorted(now)}, {sorted(expected)} expected")
    return found
