"""Reads a Kafka Streams application from the Prometheus pages of its instances.

Instances (clients) are brokers, subtopologies are topics and active tasks are partitions. The
pages are those of the JMX exporter without rules, or with rules that keep its names. The load
of a task is the share of a thread's time that it is processed for. There is no traffic between
tasks: all of it goes through Kafka's topics, wherever the tasks are.

The ratios that Kafka Streams reports (``active-process-ratio``, and before Kafka 4.3
``process-ratio``) are those of the last iteration of a thread, by chance 0, 1 or nothing. Rates and
mean latencies are over a minute, so loads are made of these.
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

_PREFIX = "kafka_streams_stream_"
# Recorded at level info: of a thread in milliseconds, and records since a task started.
_THREAD_LATENCY = f"{_PREFIX}thread_metrics_process_latency_avg"
_THREAD_RATE = f"{_PREFIX}thread_metrics_process_rate"
_CONSUMED = f"{_PREFIX}topic_metrics_records_consumed"
_ACTIVE = f"{_PREFIX}task_metrics_active_process_ratio"
# Recorded at level debug: of a task in nanoseconds.
_LATENCY = f"{_PREFIX}task_metrics_process_latency_avg"
_RATE = f"{_PREFIX}task_metrics_process_rate"
_OF_THREAD = (_THREAD_LATENCY, _THREAD_RATE)
_OF_TASK = (_CONSUMED, _ACTIVE, _LATENCY, _RATE)
# Every store has the first, since Kafka 3.8; those in RocksDB have the others.
_STORE = f"{_PREFIX}state_metrics_num_open_iterators"
_FILES = f"{_PREFIX}state_metrics_total_sst_files_size"
_MEMORY = f"{_PREFIX}state_metrics_cur_size_all_mem_tables"
_OF_STORE = (_STORE, _FILES, _MEMORY)
_UNKNOWN = float("nan")
_THREAD = re.compile(r"(.+)-StreamThread-\d+")
# With a named topology: its name, two underscores, and the id.
_TASK = re.compile(r"(?:(.+)__)?(\d{1,9})_(\d{1,9})")

# The page and the name of a thread; the thread and the id of a task.
Thread = tuple[str, str]
Task = tuple[Thread, str]
# A task and one of its stores.
Store = tuple[Task, str]


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
    values: dict[str, dict[Task, float]] = {name: {} for name in (*_OF_THREAD, *_OF_TASK)}
    stores: dict[str, dict[Store, float]] = {name: {} for name in _OF_STORE}
    malformed = 0
    for url in dict.fromkeys(urls):
        samples, bad = parse(scrape(url, timeout))
        here = set()
        for name, labels, value, _ in samples:
            # Exporters of other versions keep the end of a counter's name.
            name = name.lower().removesuffix("_total")
            thread = url, labels.get("thread_id", "")
            if not name.startswith(_PREFIX) or not _THREAD.fullmatch(thread[1]):
                continue
            here.add(thread)
            task = thread, labels.get("task_id", "")
            if name not in values and name not in stores:
                continue
            if value < 0 or (name not in _OF_THREAD and not _TASK.fullmatch(task[1])):
                bad += 1
            elif name == _CONSUMED:
                values[name][task] = values[name].get(task, 0.0) + value
            elif name in values:
                values[name][task] = value
            else:
                stores[name][task, _store(labels)] = value
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
    loads = _loads(values, warn)
    partitions = _partitions(loads, _sizes(loads, stores), node, warn)
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


def _loads(
    values: Mapping[str, Mapping[Task, float]], warn: Callable[[str], None]
) -> dict[Task, float]:
    """Percent of a thread's time by active task, NaN where it is unknown.

    Where the latencies of a thread's tasks are not recorded, its own time is divided by the
    records that they have consumed. At level info their rates are there, but 0.
    """
    tasks: dict[Thread, list[Task]] = defaultdict(list)
    for task in sorted(set().union(*(values[name] for name in _OF_TASK))):
        tasks[task[0]].append(task)
    loads, estimated = {}, 0
    for thread, of_thread in tasks.items():
        found = [_busy(values[_LATENCY], values[_RATE], task) / 1e9 for task in of_thread]
        recorded = sum(values[_RATE].get(task, 0.0) for task in of_thread) > 0
        if not recorded or not all(map(isfinite, found)):
            busy = _busy(values[_THREAD_LATENCY], values[_THREAD_RATE], (thread, "")) / 1e3
            records = [values[_CONSUMED].get(task, _UNKNOWN) for task in of_thread]
            total = sum(records)
            if len(of_thread) == 1 or not busy:
                found = [busy] * len(of_thread)
            else:
                found = [busy * of_task / total if total else _UNKNOWN for of_task in records]
                estimated += sum(map(isfinite, found))
        loads.update({task: 100 * load for task, load in zip(of_thread, found, strict=True)})
    if estimated:
        warn(
            f"the loads of {estimated} of {plural(len(loads), 'task')} are estimated from the "
            "records that they have consumed; metrics.recording.level=DEBUG measures them"
        )
    return loads


def _busy(latency: Mapping[Task, float], rate: Mapping[Task, float], task: Task) -> float:
    """Time spent a second, in units of the latency; without records there is no latency."""
    often = rate.get(task, _UNKNOWN)
    return often * latency.get(task, _UNKNOWN) if often else 0.0


def _store(labels: Mapping[str, str]) -> str:
    """The name of a store: its label depends on the kind of store."""
    return next((value for label, value in labels.items() if label.endswith("_state_id")), "")


def _sizes(tasks: Iterable[Task], stores: Mapping[str, Mapping[Store, float]]) -> dict[Task, float]:
    """Bytes of the stores by task, where they are known.

    If stores report themselves, a task without any has no state; before Kafka 3.8 its stores may
    be in memory, of unknown size.
    """
    found: dict[Task, list[float]] = {task: [] for task in tasks} if stores[_STORE] else {}
    for store in stores[_STORE].keys() | stores[_FILES].keys():
        memory = stores[_MEMORY].get(store, 0.0)
        size = stores[_FILES].get(store, _UNKNOWN) + (memory if isfinite(memory) else 0.0)
        found.setdefault(store[0], []).append(size)
    return {task: sum(sizes) for task, sizes in found.items() if isfinite(sum(sizes))}


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
            "process latency and rate, nor have their threads; their load is unknown, so they are "
            "left out and no plan moves them"
        )
    by_id: dict[str, Task] = {}
    for task, load in loads.items():
        if isfinite(load):
            by_id.setdefault(task[1], task)
    if not by_id:
        raise SnapshotError(
            f"Kafka Streams: no task with a load ({_LATENCY} and {_RATE}, or those of its "
            "thread) found, at least one expected"
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
