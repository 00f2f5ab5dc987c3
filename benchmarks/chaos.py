"""Kills executions and brokers at random moments; counts leftovers and losses."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from balancer import Action, PlanDocument
from balancer.execution import ExecutionError
from balancer.execution.cluster import ConfigResource, Kafka, Key, PartitionView
from balancer.execution.journal import RecordedExecution, read_journal
from balancer.execution.tasks import OPEN
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIR_RATE,
)
from benchmarks.harness.brokers import real_kafka
from benchmarks.harness.ledger import Ledger
from benchmarks.harness.plans import plan_by_hand
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import InputError
from cluster_model.kafka import admin_client

_ROUNDS = {"S": 5, "M": 25, "L": 100}
_BROKERS = (0, 1, 2)
_PARTITIONS = 4
# Replicas and min ISR. Messages are acknowledged by the leader alone if it must be, or never; with
# one replica, they cannot be read while its broker is down.
_TOPICS = {"available": (2, 1), "durable": (2, 2), "single": (1, 1)}
_MEGABYTES = 2
_THROTTLE = "2MB/s"
_SETTLE_SECONDS = 120.0
# Seconds within which every execution that is not killed must end.
_END_SECONDS = 180.0
# Short, so that a killed or suspended execution is soon replaced.
_SESSION = 2
_PROPERTIES = {
    "group.min.session.timeout.ms": "500",
    # How long a killed broker counts as alive. Until then it cannot come back, and the partitions
    # it led have no leader; by default both take most of a round.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
# Rate and size of the messages written meanwhile. They are never deleted, and every move copies
# them: more would make each round longer than the one before.
_MESSAGES_PER_SECOND, _MESSAGE_BYTES = 100.0, 20
_COMMAND = (sys.executable, "-c", "from balancer.cli import main; main()", "execute")

_FAULTS = (
    "executions that did not end",
    "writes after the vote was lost",
    "executions that refused wrongly",
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
    """kill -9 of executions and brokers at random moments; leftovers, round by round.

    Three real brokers, the first of which is also the controller. In each round ``counterpoise
    execute`` carries out a random plan; it is killed or suspended past its lease up to three times
    and recovered, while other executions are started from other directories, brokers are killed and
    restarted, and messages are written with acks=all.
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
            kafka.KafkaCluster(
                brokers=len(_BROKERS),
                directory=Path(scratch),
                properties=_PROPERTIES,
            ) as cluster,
        ):
            _Chaos(cluster, Path(scratch), options, counts).run(rounds)
    except kafka.RealKafkaError as error:
        raise BenchmarkError(" ".join(str(error).split())) from None
    finally:
        reported = (
            "rounds",
            "executions killed",
            "executions put to sleep",
            "executions refused",
            "executions that lost the vote",
            "brokers killed",
            "tasks completed",
            "tasks given up",
        )
        for name in (*reported, *_FAULTS, "messages acknowledged"):
            yield name, float(counts[name]), name.split()[0]


class _Chaos:
    """Rounds on one cluster.

    Parameters
    ----------
    cluster
        The brokers.
    scratch
        Directory of plans and journals.
    options, counts
        The options, and the counts of what happened.
    """

    def __init__(self, cluster: Any, scratch: Path, options: Options, counts: Counter[str]) -> None:
        self._cluster, self._scratch, self._counts = cluster, scratch, counts
        self._log, self._seed = options.log, options.seed
        self._common: list[str] = []
        self._places = [Key(t, n) for t in _TOPICS for n in range(_PARTITIONS)]

    def run(self, rounds: int) -> None:
        """Create the topics, then run the rounds."""
        self._make_topics()
        ledger = Ledger(
            self._cluster.bootstrap,
            self._places,
            per_second=_MESSAGES_PER_SECOND,
            size=_MESSAGE_BYTES,
        )
        try:
            with ledger:
                for number in range(rounds):
                    self._round(number, ledger)
            self._fault("messages lost", ledger.lost(all_again=True), "of all rounds")
        finally:
            self._counts["messages acknowledged"] = ledger.acknowledged

    def _round(self, number: int, ledger: Ledger) -> None:
        # The number of a failed round is enough to repeat it.
        dice = random.Random(f"{self._seed} {number}")
        started = time.monotonic()
        plan, journal = self._scratch / f"plan-{number}.json", self._scratch / f"journal-{number}"
        plan.write_text(self._plan(dice).model_dump_json())
        trouble = threading.Thread(target=self._kill_brokers, args=(dice.random(), dice.random()))
        trouble.start()
        lives = dice.randint(1, 3)
        self._common = ["--bootstrap-server", self._cluster.bootstrap, "--session", str(_SESSION)]
        self._common += ["--throttle", _THROTTLE, "--broker-grace", dice.choice(["0.5", "60"])]
        self._common += dice.choice([[], ["--one-replica-at-a-time"], ["--moves", "2"]])
        where = f"round {number}, seed {self._seed}"
        beside = _RivalExecution(self._scratch / f"beside-{number}")
        said = ""
        for life in range(lives + 1):
            process = self._start(plan, journal)
            if life == 0 and dice.random() < 0.5:
                beside.process = self._start(plan, beside.journal)
            ends = 0.7 + dice.expovariate(0.4)
            sleeps = dice.random() < 0.4
            if life == lives:
                said = self._end(process, where)
            elif sleeps:
                other = self._scratch / f"successor-{number}-{life}"
                said = self._sleep(process, ends, other, beside, where)
            else:
                said = self._kill(process, ends)
        acted = self._refused(beside, where)
        executed = time.monotonic()
        trouble.join()
        brought_back = time.monotonic()
        # All brokers are back, so the throttles of those that were away can be removed.
        for path in (beside.journal, journal) if acted else (journal,):
            # An execution that never got the vote has written nothing yet.
            while not (path.exists() and self._closed(path)):
                if time.monotonic() - started > 2 * _SETTLE_SECONDS:
                    break
                said = self._end(self._start(plan, path), where)
        recovered = time.monotonic()
        self._check(where, journal, said, judged=not acted)
        checked = time.monotonic()
        self._fault("messages lost", ledger.lost(), f"round {number}")
        self._counts["rounds"] += 1
        over = time.monotonic()
        self._log(
            f"chaos: round {number} took {over - started:.1f} s: {executed - started:.1f} for "
            f"{lives + 1} executions, {brought_back - executed:.1f} until all brokers were back, "
            f"{recovered - brought_back:.1f} for recoveries after that, "
            f"{checked - recovered:.1f} until all was in sync and checked, {over - checked:.1f} to "
            f"read messages; {self._counts['executions killed']} executions and "
            f"{self._counts['brokers killed']} brokers killed so far"
        )

    def _start(self, plan: Path, journal: Path) -> subprocess.Popen[str]:
        """Start an execution, or recover the one in the journal."""
        what = ["--recover"] if journal.exists() else [str(plan), "--yes"]
        return self._command("--journal", str(journal), *what)

    def _command(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*_COMMAND, *self._common, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _end(self, process: subprocess.Popen[str], where: str) -> str:
        """Wait for an execution, which must end; returns its output."""
        said, killed = _killed(process, _END_SECONDS)
        if killed:
            self._fault("executions that did not end", 1, f"{where}: {said[-500:]}")
        self._counts["executions that lost the vote"] += "the vote was lost" in said
        return said

    def _kill(self, process: subprocess.Popen[str], seconds: float) -> str:
        """Kill an execution after a delay unless it has ended by then; returns its output."""
        said, killed = _killed(process, seconds)
        self._counts["executions killed"] += killed
        return said

    def _sleep(
        self,
        process: subprocess.Popen[str],
        seconds: float,
        other: Path,
        beside: _RivalExecution,
        where: str,
    ) -> str:
        """Suspend an execution past its lease, let a successor finish it, and resume it."""
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGSTOP)
        self._counts["executions put to sleep"] += 1
        said = ""
        for _ in range(3):
            successor = self._command("--journal", str(other), "--recover")
            said = self._end(successor, where)
            if successor.returncode != 2:
                break
        else:
            # The suspended one may have been waiting for the concurrent one.
            wrongly = beside.process is None or beside.process.poll() is not None
            self._fault("executions that refused wrongly", wrongly, f"{where}: {said[-500:]}")
        before = set(self._throttles()), self._moving()
        os.kill(process.pid, signal.SIGCONT)
        said = self._end(process, where)
        after = set(self._throttles()), self._moving()
        if beside.process is not None and beside.process.poll() is None:
            # It may have obtained the vote, and may then write.
            return said
        # No other process writes meanwhile. A returning broker shows its earlier state.
        written = [t for t in after[0] - before[0] if " of topic " in t]
        written += [str(key) for key in after[1] - before[1]]
        self._fault("writes after the vote was lost", len(written), f"{where}: {written}, {said}")
        return said

    def _refused(self, beside: _RivalExecution, where: str) -> bool:
        """Whether an execution started next to another one acted after that one ended."""
        if beside.process is None:
            return False
        said = self._end(beside.process, where)
        if beside.process.returncode == 2:
            self._counts["executions refused"] += 1
            if beside.journal.exists():
                self._fault("journals inconsistent", 1, f"{where}: of one that refused, {said}")
        return beside.journal.exists()

    def _moving(self) -> set[Key]:
        return {key for key, p in self._view().items() if p.moving}

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
        """A plan that moves every partition to other brokers or to another leader."""
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
        return plan_by_hand(*actions, cluster_id=real_kafka().CLUSTER_ID)

    def _check(self, where: str, journal: Path, said: str, *, judged: bool) -> None:
        """Count the faults after a round; with `judged`, those of the journal too."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        view = self._view()
        while time.monotonic() < deadline and not all(_healthy(p) for p in view.values()):
            time.sleep(0.5)
            view = self._view()
        lost = [
            k for k, p in view.items() if p.leader is None or len(p.before) != _TOPICS[k.topic][0]
        ]
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
        wrong = misplaced_partitions(recorded, view) if judged else []
        self._fault("executions ended wrong", len(wrong), f"{where}: {wrong}; it said {said}")
        states = Counter(recorded.states.values())
        self._counts["tasks completed"] += states["completed"]
        self._counts["tasks given up"] += states["dead"] + states["cancelled"]

    def _journal(self, path: Path) -> RecordedExecution | None:
        try:
            return read_journal(path)
        except ExecutionError as error:
            self._log(str(error))
            return None

    def _closed(self, path: Path) -> bool:
        recorded = self._journal(path)
        return recorded is not None and recorded.closed

    def _fault(self, name: str, count: int, where: str) -> None:
        self._counts[name] += count
        if count:
            self._log(f"chaos: {count} {name}, {where}")

    def _view(self) -> dict[Key, PartitionView]:
        kafka = self._kafka()
        try:
            return dict(kafka.view(list(_TOPICS)).partitions)
        finally:
            kafka.close()

    def _throttles(self) -> list[str]:
        asked: dict[ConfigResource, Sequence[str]] = {
            ConfigResource("topic", t): (LEADER_REPLICAS, FOLLOWER_REPLICAS) for t in _TOPICS
        }
        for broker in _BROKERS:
            asked[ConfigResource("broker", str(broker))] = (
                LEADER_RATE,
                FOLLOWER_RATE,
                LOG_DIR_RATE,
            )
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
        """A new connection; an old one may lead to a killed broker."""
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
            requested = {
                name: {
                    "assignments": {
                        n: [(n + i) % len(_BROKERS) for i in range(replicas)]
                        for n in range(_PARTITIONS)
                    },
                    "configs": {"min.insync.replicas": str(min_isr)},
                }
                for name, (replicas, min_isr) in _TOPICS.items()
            }
            ask(lambda admin: admin.create_topics(requested, wait_for_metadata=True))
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all"})
        for key in self._places:
            for _ in range(_MEGABYTES * 100):
                producer.produce(key.topic, b"-1" + b" " * 9_998, partition=key.partition)
            producer.flush(60)


@dataclass
class _RivalExecution:
    """An execution started next to another one, from its own directory."""

    directory: Path
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        self.directory.mkdir()

    @property
    def journal(self) -> Path:
        """Path of its journal."""
        return self.directory / "journal"


def _killed(process: subprocess.Popen[str], seconds: float) -> tuple[str, bool]:
    """Output of a process, and whether it had to be killed after a timeout."""
    try:
        return process.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], True


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


def misplaced_partitions(recorded: RecordedExecution, view: dict[Key, PartitionView]) -> list[str]:
    """Partitions that are not where the last completed task put them."""
    found = []
    for w in recorded.targets:
        expected = set(w.origin)
        for i, task in sorted(recorded.tasks.items()):
            if task.key == w.key and task.phase == "move" and recorded.states[i] == "completed":
                expected = set(task.target)
        now = set(view[w.key].replicas)
        if now != expected:
            found.append(f"{w.key} on {sorted(now)}, {sorted(expected)} expected")
    return found
