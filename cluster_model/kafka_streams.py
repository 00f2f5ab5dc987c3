"""Reads a Kafka Streams application from the Prometheus pages of its instances.

Instances (clients) are brokers, subtopologies are topics and active tasks are partitions. The
pages are those of the JMX exporter without rules, or with rules that keep its names. The load
of a task is the share of the time that its thread spends on it. There is no traffic between
tasks: all of it goes through Kafka's topics, wherever the tasks are.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from math import isfinite

from cluster_model.build import BrokerRecord, PartitionRecord, SnapshotDocument, build_snapshot
from cluster_model.errors import SnapshotError
from cluster_model.snapshot import Snapshot
from metrics_reporter.exposition import parse, scrape
from metrics_reporter.exposition import shown as shown_url
from metrics_reporter.quantities import plural

_OF_THREAD = "kafka_streams_stream_thread_metrics_process_ratio"
_OF_TASK = "kafka_streams_stream_task_metrics_active_process_ratio"
_RATE = "kafka_streams_stream_task_metrics_process_rate"
_STATE = "kafka_streams_stream_state_metrics_total_sst_files_size"
_THREAD = re.compile(r"(.+)-StreamThread-\d+")
# With a named topology: its name, two underscores, and the id.
_TASK = re.compile(r"(?:(.+)__)?(\d{1,9})_(\d{1,9})")

# The page and the name of a thread; the thread and the id of a task.
Thread = tuple[str, str]
Task = tuple[Thread, str]


def read_kafka_streams(
    urls: Iterable[str],
    *,
    timeout: float = 10.0,
    warn: Callable[[str], None] = lambda sentence: None,
) -> Snapshot:
    """A snapshot of an application, for the strategy ``milp``.

    Parameters
    ----------
    urls
        Address of the metrics of each instance, like ``http://app-1:9404/metrics``.
    timeout
        Seconds to wait for each of them.
    warn
        Receives a sentence for whatever is unknown. A task without a load is left out.

    Raises
    ------
    ReporterError
        If a page cannot be read.
    SnapshotError
        If a page is not of a Kafka Streams instance, or no task has a load.
    """
    threads: set[Thread] = set()
    values: dict[str, dict[Task, float]] = {name: {} for name in (_OF_THREAD, _OF_TASK, _RATE)}
    state: dict[Task, float] = defaultdict(float)
    malformed = 0
    for url in dict.fromkeys(urls):
        samples, bad = parse(scrape(url, timeout))
        here = set()
        for name, labels, value in samples:
            name, thread = name.lower(), (url, labels.get("thread_id", ""))
            if not name.startswith("kafka_streams_stream_") or not _THREAD.fullmatch(thread[1]):
                continue
            here.add(thread)
            task = thread, labels.get("task_id", "")
            of_task = name in (_OF_TASK, _RATE, _STATE)
            if value < 0 or (of_task and not _TASK.fullmatch(task[1])):
                bad += name in values or name == _STATE
            elif isfinite(value) and name in values:
                values[name][task] = value
            elif isfinite(value) and name == _STATE:
                state[task] += value
            elif name in (_OF_TASK, _RATE):
                values[name].setdefault(task, float("nan"))
        if not here:
            raise SnapshotError(
                f"{shown_url(url)}: no metrics of a thread of Kafka Streams "
                "(kafka_streams_stream_... with the label thread_id) found, some expected"
            )
        threads |= here
        malformed += bad
    if malformed:
        warn(f"{plural(malformed, 'malformed metric')} skipped")
    node = _nodes(threads)
    size = Counter(node.values())
    partitions = _partitions(_loads(values), state, node, warn)
    return build_snapshot(
        SnapshotDocument(
            resources=("cpu",),
            brokers=tuple(
                BrokerRecord(id=client, host=client, capacity={"cpu": 100.0 * count})
                for client, count in size.items()
            ),
            partitions=tuple(partitions),
            creatable=True,
            taken_ms=int(time.time() * 1000),
        )
    )


def _loads(values: Mapping[str, Mapping[Task, float]]) -> dict[Task, float]:
    """Percent of a thread's time by task, NaN where it is unknown.

    The thread's measured ratio times the task's; if a thread lacks the ratio of a task, its
    own is divided by the rates of records.
    """
    tasks: dict[Thread, list[Task]] = defaultdict(list)
    for task in sorted(values[_OF_TASK].keys() | values[_RATE].keys()):
        tasks[task[0]].append(task)
    loads = {}
    unknown = float("nan")
    for thread, of_thread in tasks.items():
        part = [values[_OF_TASK].get(task, unknown) for task in of_thread]
        if not all(map(isfinite, part)):
            rates = [values[_RATE].get(task, unknown) for task in of_thread]
            total = sum(rates)
            if isfinite(total):
                part = [rate / total if total else 0.0 for rate in rates]
        busy = values[_OF_THREAD].get((thread, ""), unknown)
        loads.update({task: 100 * busy * p for task, p in zip(of_thread, part, strict=True)})
    return loads


def _partitions(
    loads: Mapping[Task, float],
    state: Mapping[Task, float],
    node: Mapping[Thread, str],
    warn: Callable[[str], None],
) -> list[PartitionRecord]:
    without = [id_ for (_, id_), load in loads.items() if not isfinite(load)]
    if without:
        warn(
            f"{len(without)} of {plural(len(loads), 'task')} (such as {without[0]}) have no "
            "process ratio; their load is unknown, so they are left out and no plan moves them"
        )
    by_id: dict[str, Task] = {}
    for task, load in loads.items():
        if isfinite(load):
            by_id.setdefault(task[1], task)
    if not by_id:
        raise SnapshotError(
            f"Kafka Streams: no task with a load ({_OF_THREAD} and {_OF_TASK}) found, at least "
            "one expected"
        )
    twice = len(loads) - len(without) - len(by_id)
    if twice:
        warn(f"{plural(twice, 'task')} reported by two threads, of which one counts")
    sized = sum(task in state for task in by_id.values())
    if 0 < sized < len(by_id):
        warn(
            f"{sized} of {plural(len(by_id), 'task')} report the size of their state; as those "
            "of the others are unknown, every move costs the same"
        )
    return [
        PartitionRecord(
            topic=_subtopology(id_),
            partition=int(id_.rpartition("_")[2]),
            replicas=(node[task[0]],),
            leader_load={"cpu": loads[task]},
            state_size=state[task] if sized == len(by_id) else None,
        )
        for id_, task in by_id.items()
    ]


def _nodes(threads: Iterable[Thread]) -> dict[Thread, str]:
    """The instance of each thread: its client's id, with the page if two pages have that id."""
    client = {thread: thread[1].rpartition("-StreamThread-")[0] for thread in threads}
    pages = defaultdict(set)
    for (page, _), id_ in client.items():
        pages[id_].add(page)
    shown = {page: shown_url(page) for page, _ in client}
    alike = Counter(shown.values())
    # Queries are not shown: pages that differ in nothing else are numbered.
    number = {page: n for n, page in enumerate(sorted(shown), 1)}
    address = {
        page: text if alike[text] == 1 else f"{text}, page {number[page]}"
        for page, text in shown.items()
    }
    return {
        thread: id_ if len(pages[id_]) == 1 else f"{id_} ({address[thread[0]]})"
        for thread, id_ in client.items()
    }


def _subtopology(task: str) -> str:
    """The name of a task's subtopology.

    Examples
    --------
    >>> _subtopology("0_12"), _subtopology("clicks__1_2")
    ('subtopology-0', 'clicks-subtopology-1')
    """
    found = _TASK.fullmatch(task)
    assert found is not None
    topology = "" if found[1] is None else f"{found[1]}-"
    return f"{topology}subtopology-{found[2]}"
