"""Reads a running Flink job from Flink's REST API: its task managers, subtasks and traffic.

Task managers are brokers, vertices (chains of operators) are topics and subtasks are
partitions. The load of a subtask is its busy time. Flink measures how many records a subtask
sends and receives, but not between which two: that traffic is estimated from the plan of the
job (:func:`shares`), such that it agrees with what is measured.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cluster_model.build import (
    BrokerRecord,
    PartitionRecord,
    SnapshotDocument,
    TrafficRecord,
    build_snapshot,
)
from cluster_model.errors import SnapshotError
from cluster_model.snapshot import Bools, Floats, Snapshot
from metrics_reporter.documents import DocumentError, Whole, as_model, parse_json, shown
from metrics_reporter.errors import ReporterError
from metrics_reporter.exposition import checked_url, scrape
from metrics_reporter.exposition import shown as shown_url
from metrics_reporter.quantities import plural

BUSY, SENT, RECEIVED = "busyTimeMsPerSecond", "numRecordsOutPerSecond", "numRecordsInPerSecond"
# Of a task manager; unlike all others it changes with every measurement.
PROCESSOR_TIME = "Status.JVM.CPU.Time"


@dataclass(frozen=True)
class FlinkParameters:
    """How Flink is asked, and how its traffic is estimated.

    Parameters
    ----------
    subtasks_at_once
        Subtasks of a request: the first line of an HTTP request to Flink has at most 4,096 bytes.
    refresh_seconds
        Longest time to wait for new measurements. Flink fetches them when it is asked, but not
        within ten seconds of the last time (``metrics.fetcher.update-interval``).
    poll_seconds
        Time between two looks at whether they are there.
    rate_seconds
        Time over which Flink takes its rates.
    rounds
        How often the estimated traffic is scaled to what senders and receivers measure.
    """

    subtasks_at_once: int = 40
    refresh_seconds: float = 15.0
    poll_seconds: float = 0.5
    rate_seconds: float = 60.0
    rounds: int = 20


PARAMETERS = FlinkParameters()

Name = Annotated[str, Field(min_length=1)]
Parallelism = Annotated[Whole, Field(ge=1, le=1 << 15)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


AnyAnswer = TypeVar("AnyAnswer", bound=_Answer)


class _Vertex(_Answer):
    id: Name
    name: Name
    parallelism: Parallelism
    duration: float | None = None


class _Job(_Answer):
    state: str
    vertices: tuple[_Vertex, ...]


class _Input(_Answer):
    id: str
    ship_strategy: str | None = None


class _Node(_Answer):
    id: str
    inputs: tuple[_Input, ...] | None = None


class _Graph(_Answer):
    nodes: tuple[_Node, ...]


class _Plan(_Answer):
    plan: _Graph


class _TaskManager(_Answer):
    id: Name
    path: str | None = None
    slots: Whole = Field(alias="slotsNumber")


class _TaskManagers(_Answer):
    taskmanagers: tuple[_TaskManager, ...]


class _Subtask(_Answer):
    subtask: Whole
    status: str
    manager: str | None = Field(default=None, alias="taskmanager-id")


class _Subtasks(_Answer):
    subtasks: tuple[_Subtask, ...]


class _Metric(_Answer):
    id: str
    value: Any = None


class _Metrics(_Answer):
    metrics: tuple[_Metric, ...]


def read_flink(
    url: str,
    job: str,
    *,
    timeout: float = 10.0,
    warn: Callable[[str], None] = lambda sentence: None,
    parameters: FlinkParameters = PARAMETERS,
) -> Snapshot:
    """A snapshot of a running job, for the strategies ``albic`` and ``milp``.

    Parameters
    ----------
    url
        Address of Flink's REST API, like ``http://jobmanager:8081``.
    job
        The job's id.
    timeout
        Seconds to wait for each answer.
    warn
        Receives a sentence for whatever is unknown. A subtask without a busy time is left out.
    parameters
        How Flink is asked.

    Raises
    ------
    ReporterError
        If Flink cannot be reached, or does not know the job.
    SnapshotError
        If an answer is not as documented, or the job does not run.
    """
    return _Reader(url, job, timeout, warn, parameters).read()


def shares(strategy: str | None, senders: int, receivers: int) -> Floats:
    """(senders, receivers) float: the estimated share of a sender's records that each receives.

    ``FORWARD`` and ``RESCALE`` connect neighbours, ``BROADCAST`` sends every record to all,
    ``GLOBAL`` to the first; all others (``HASH``, ``REBALANCE`` and so on) are taken as even.

    Examples
    --------
    >>> shares("RESCALE", 2, 4).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    >>> shares("HASH", 1, 4).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    found = np.zeros((senders, receivers))
    if strategy in ("FORWARD", "RESCALE"):
        if senders < receivers:
            to = np.arange(receivers)
            found[to * senders // receivers, to] = 1.0
        else:
            of = np.arange(senders)
            found[of, ((of + 1) * receivers - 1) // senders] = 1.0
        found /= found.sum(1, keepdims=True)
        return found
    if strategy == "GLOBAL":
        found[:, :1] = 1.0
        return found
    found += 1.0 if strategy == "BROADCAST" else 1.0 / receivers
    return found


class _Reader:
    """One reading of a job."""

    def __init__(
        self,
        url: str,
        job: str,
        timeout: float,
        warn: Callable[[str], None],
        parameters: FlinkParameters,
    ) -> None:
        try:
            parts = checked_url(url)
        except ReporterError:
            raise SnapshotError(
                f"Flink: address '{shown_url(url)}' found, one like http://jobmanager:8081 expected"
            ) from None
        path = parts.path.rstrip("/")
        self.base = parts._replace(path=path, query="", fragment="").geturl()
        self.job = f"/jobs/{quote(job, safe='')}"
        self.timeout = timeout
        self.warn = warn
        self.parameters = parameters
        self.malformed: list[str] = []

    def read(self) -> Snapshot:
        job = self.ask(_Job, self.job)
        if job.state != "RUNNING":
            raise SnapshotError(
                f"Flink, {self.job}: state {shown(job.state)} found, RUNNING expected"
            )
        answer = self.ask(_TaskManagers, "/taskmanagers").taskmanagers
        managers = tuple(manager for manager in answer if manager.slots)
        self.refresh(managers)
        plan = self.ask(_Plan, f"{self.job}/plan").plan
        names = _names(job.vertices)
        self.check_duration(job.vertices, names)
        measured = {vertex.id: self.measured(vertex) for vertex in job.vertices}
        partitions = list(self.partitions(job.vertices, names, managers))
        known = self.with_load(partitions, {names[v]: m[BUSY] for v, m in measured.items()})
        kept = {(p.topic, p.partition) for p in known}
        traffic = [
            TrafficRecord(source=(names[a], i), target=(names[b], j), rate=rate)
            for a, b, i, j, rate in self.traffic(plan, measured, names)
            if (names[a], i) in kept and (names[b], j) in kept
        ]
        if self.malformed:
            self.warn(
                f"{plural(len(self.malformed), 'malformed metric')} skipped, such as "
                f"{self.malformed[0]}"
            )
        if not known:
            raise SnapshotError(
                f"Flink, {self.job}: no subtask with a busy time ({BUSY}) found, at least "
                "one expected"
            )
        return build_snapshot(
            SnapshotDocument(
                resources=("cpu",),
                brokers=tuple(_broker(m) for m in managers),
                partitions=tuple(known),
                traffic=tuple(traffic),
                creatable=True,
                taken_ms=int(time.time() * 1000),
            )
        )

    def answer(self, path: str) -> Any:
        try:
            return parse_json(scrape(f"{self.base}{path}", self.timeout))
        except DocumentError as error:
            raise SnapshotError(f"Flink, {path}: {error}") from None

    def ask(self, model: type[AnyAnswer], path: str) -> AnyAnswer:
        return as_model(model, self.answer(path), f"Flink, {path}", SnapshotError)

    def refresh(self, managers: tuple[_TaskManager, ...]) -> None:
        """Wait for new measurements: until they are there, Flink answers with the previous ones.

        These may be of days ago, or there may be none.
        """
        before = {manager.id: self.processor_time(manager) for manager in managers}
        end = time.monotonic() + self.parameters.refresh_seconds
        for manager in managers:
            while self.processor_time(manager) == before[manager.id]:
                if time.monotonic() > end:
                    self.warn(
                        f"no new measurements of task manager {manager.id} came in "
                        f"{self.parameters.refresh_seconds:g} s; loads and traffic may be old"
                    )
                    return
                time.sleep(self.parameters.poll_seconds)

    def processor_time(self, manager: _TaskManager) -> str:
        """The processor time of a task manager as Flink last measured it."""
        path = f"/taskmanagers/{quote(manager.id, safe='')}/metrics"
        return str(self.answer(f"{path}?get={PROCESSOR_TIME}"))

    def check_duration(self, vertices: tuple[_Vertex, ...], names: dict[str, str]) -> None:
        """Say if a vertex has not yet run for as long as Flink's rates are taken over."""
        durations = [(v.duration / 1000, names[v.id]) for v in vertices if v.duration is not None]
        seconds, name = min(durations, default=(self.parameters.rate_seconds, ""))
        if seconds < self.parameters.rate_seconds:
            self.warn(
                f"{name} has run for {max(seconds, 0):.0f} s; Flink's rates are over "
                f"{self.parameters.rate_seconds:g} s, so the traffic is too low"
            )

    def measured(self, vertex: _Vertex) -> dict[str, Floats]:
        """(parallelism,) float by metric, NaN where it is unknown."""
        found = {name: np.full(vertex.parallelism, np.nan) for name in (BUSY, SENT, RECEIVED)}
        path = f"{self.job}/vertices/{quote(vertex.id, safe='')}/metrics"
        for first in range(0, vertex.parallelism, self.parameters.subtasks_at_once):
            last = min(first + self.parameters.subtasks_at_once, vertex.parallelism)
            subtasks = range(first, last)
            wanted = {f"{i}.{name}": (name, i) for i in subtasks for name in found}
            answer = {"metrics": self.answer(f"{path}?get={','.join(wanted)}")}
            for metric in as_model(_Metrics, answer, f"Flink, {path}", SnapshotError).metrics:
                if metric.id not in wanted:
                    continue
                name, subtask = wanted[metric.id]
                try:
                    value = float(metric.value)
                except (TypeError, ValueError):
                    value = -1.0
                if value < 0:
                    self.malformed.append(f"{metric.id} of {vertex.id}: {shown(metric.value)}")
                elif isfinite(value):
                    found[name][subtask] = value
        return found

    def partitions(
        self,
        vertices: tuple[_Vertex, ...],
        names: dict[str, str],
        managers: tuple[_TaskManager, ...],
    ) -> Iterator[PartitionRecord]:
        """The subtasks that run, without their loads."""
        known = {manager.id for manager in managers}
        total, without = 0, []
        for vertex in vertices:
            path = f"{self.job}/vertices/{quote(vertex.id, safe='')}"
            for task in self.ask(_Subtasks, path).subtasks:
                total += 1
                if task.status == "RUNNING" and task.manager in known:
                    yield PartitionRecord(
                        topic=names[vertex.id], partition=task.subtask, replicas=(task.manager,)
                    )
                else:
                    without.append(f"{names[vertex.id]}-{task.subtask}")
        if without:
            self.warn(
                f"{len(without)} of {plural(total, 'subtask')} (such as {without[0]}) do not run "
                "on one of the task managers; they are left out"
            )

    def with_load(
        self, partitions: list[PartitionRecord], busy: dict[str, Floats]
    ) -> list[PartitionRecord]:
        """Those with a known load; milliseconds of a second are tenths of a percent."""
        known, without = [], []
        for p in partitions:
            of_operator = busy[p.topic]
            load = of_operator[p.partition] if p.partition < len(of_operator) else np.nan
            if np.isnan(load):
                without.append(f"{p.topic}-{p.partition}")
            else:
                known.append(p.model_copy(update={"leader_load": {"cpu": float(load) / 10}}))
        if without:
            self.warn(
                f"{len(without)} of {plural(len(partitions), 'subtask')} (such as {without[0]}) "
                f"have no busy time ({BUSY}); their load is unknown, so they are left out and "
                "no plan moves them"
            )
        return known

    def traffic(
        self, plan: _Graph, measured: dict[str, dict[str, Floats]], names: dict[str, str]
    ) -> Iterator[tuple[str, str, int, int, float]]:
        """Vertex and subtask of senders and receivers, and the estimated records a second.

        A sender's measured records are divided by :func:`shares`, and the result is scaled to
        what is measured: the records that each receiver gets, and those of each sender with one
        output. With several, a sender's records are those of all of them together: how many go
        to which is known from the receivers only.
        """
        outputs = Counter(edge.id for node in plan.nodes for edge in node.inputs or ())
        unknown: Counter[str] = Counter()
        rates: dict[tuple[str, str], Floats] = {}
        exact: dict[tuple[str, str], Bools] = {}
        into: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for node in plan.nodes:
            for edge in node.inputs or ():
                if not measured.keys() >= {edge.id, node.id}:
                    continue
                pair = edge.id, node.id
                sent = measured[edge.id][SENT]
                part = shares(edge.ship_strategy, len(sent), len(measured[node.id][RECEIVED]))
                rate = np.where(part > 0, sent[:, None] * part, 0.0)
                # Two outputs of a sender may lead to one receiver.
                rates[pair] = rates[pair] + rate if pair in rates else rate
                exact[pair] = (part == 1) & (outputs[edge.id] == 1)
                if pair not in into[node.id]:
                    into[node.id].append(pair)
                unknown[names[edge.id]] = int(np.isnan(sent).sum())
        for _ in range(self.parameters.rounds):
            for pair, rate in rates.items():
                if outputs[pair[0]] == 1:
                    rates[pair] = _scaled(rate.T, exact[pair].T, measured[pair[0]][SENT]).T
            for receiver, pairs in into.items():
                together = _scaled(
                    np.concatenate([rates[pair] for pair in pairs]),
                    np.concatenate([exact[pair] for pair in pairs]),
                    measured[receiver][RECEIVED],
                )
                ends = np.cumsum([len(rates[pair]) for pair in pairs])[:-1]
                rates.update(zip(pairs, np.split(together, ends), strict=True))
        for (sender, receiver), rate in rates.items():
            rate = np.nan_to_num(rate)
            for i, j in zip(*np.nonzero(rate), strict=True):
                yield sender, receiver, int(i), int(j), float(rate[i, j])
        if count := sum(unknown.values()):
            such = next(name for name, number in unknown.items() if number)
            self.warn(
                f"{plural(count, 'subtask')} (such as of {such}) without a rate of records out "
                f"({SENT}) found; what they send is unknown and missing in the traffic"
            )


def _scaled(rates: Floats, exact: Bools, totals: Floats) -> Floats:
    """The rates with columns that sum to `totals`; those that are exact stay.

    A column stays as it is if its total or one of its rates is unknown.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.maximum(totals - np.where(exact, rates, 0.0).sum(0), 0.0)
        factor = rest / np.where(exact, 0.0, rates).sum(0)
    return np.where(exact, rates, rates * np.where(np.isfinite(factor), factor, 1.0))


def _names(vertices: tuple[_Vertex, ...]) -> dict[str, str]:
    """A name of its own for each vertex, by id: the operators', with the id if two have it."""
    times = Counter(vertex.name for vertex in vertices)
    return {v.id: v.name if times[v.name] == 1 else f"{v.name} ({v.id})" for v in vertices}


def _broker(manager: _TaskManager) -> BrokerRecord:
    """A task manager: 100 % of busy time for each slot."""
    try:
        address = urlsplit(manager.path or "")
        # Without a user it is the name of an actor system in the same process, not a host.
        host = address.hostname if address.username else None
    except ValueError:
        host = None
    return BrokerRecord(
        id=manager.id, host=host or manager.id, capacity={"cpu": 100.0 * manager.slots}
    )
