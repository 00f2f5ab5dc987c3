"""Reads metrics from brokers that run a Prometheus exporter, such as the JMX exporter.

The names of metrics on a page depend on the exporter's rule file. :data:`DEFAULT_RULES`
cover the common ones (the JMX exporter's example and its many relatives, and an exporter
without rules); rules from a file (:func:`load_prometheus`) take precedence.

Kafka reports bytes per topic and broker, not per partition. Where the page also has the
end offsets and leaders of partitions, a topic's ``bytes_in`` is split among them by the
records each took since the last scrape. Otherwise it is reported for the topic, as
``bytes_out`` always is: a reader knows that such a record is a sum.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from metrics_reporter.coverage import coverage
from metrics_reporter.documents import WholeKey, as_model, load_mapping
from metrics_reporter.errors import ReporterError
from metrics_reporter.exposition import Sample, checked_url, parse, scrape
from metrics_reporter.growth import Growth
from metrics_reporter.metrics import (
    BYTES_IN,
    BYTES_OUT,
    CPU,
    CPU_RATIO,
    FETCH_LOCAL_MEAN,
    FETCH_LOCAL_P999,
    FETCH_RATE,
    FETCH_TIME_MEAN,
    FETCH_TIME_P999,
    FOLLOWER_LOCAL_MEAN,
    FOLLOWER_LOCAL_P999,
    HANDLER_IDLE,
    LOG_FLUSH_MEAN,
    LOG_FLUSH_P999,
    LOG_FLUSH_RATE,
    MESSAGES_IN,
    PRODUCE_LOCAL_MEAN,
    PRODUCE_LOCAL_P999,
    PRODUCE_RATE,
    PRODUCE_TIME_MEAN,
    PRODUCE_TIME_P999,
    REPLICATION_IN,
    REPLICATION_OUT,
    REQUEST_QUEUE,
    SIZE,
)
from metrics_reporter.records import Record
from metrics_reporter.rule_packs import PACKS, PackName
from metrics_reporter.rules import Rule
from metrics_reporter.source_plugins import Connection

log = logging.getLogger(__name__)

# Read to interpret the rest, and not reported.
END_OFFSET, REPLICAS, START_TIME = "end_offset", "replicas", "start_time"
# The metrics of a topic's record; a record without them has no use.
_OF_TOPICS = (BYTES_IN, BYTES_OUT)
_INNER = (END_OFFSET, REPLICAS, START_TIME)
# What any process exports of itself.
_OF_PROCESSES = (CPU, CPU_RATIO, START_TIME)
_OUTSIDE = (
    "this is {}, which asks the cluster from outside and has no bytes of brokers: the address of "
    "the broker's own exporter expected"
)
# What a page is by the beginning of a name on it.
_OTHERS = {
    "kminion_": _OUTSIDE.format("kminion"),
    "kafka_topic_partition_current_offset": _OUTSIDE.format("kafka_exporter"),
    "kafka_exporter_": _OUTSIDE.format("kafka_exporter"),
    "kafka_consumergroup_": _OUTSIDE.format("kafka_exporter"),
    "vectorized_": "this is Redpanda, --rules redpanda expected",
    "redpanda_": "this is Redpanda's /public_metrics, /metrics and --rules redpanda expected",
    "kafka_network_io_bytes_total": "this is AutoMQ, --rules automq expected",
}
_AT_ONCE = 16
_MISSING = "a rule of the exporters for {}:{} expected"
_METERS = "type=BrokerTopicMetrics,name=BytesInPerSec and BytesOutPerSec, with and without topic=*,"
_TOPICS = "type=BrokerTopicMetrics,name=BytesInPerSec and BytesOutPerSec,topic=*"
# A log that exists on brokers but is not a topic.
_METADATA = "__cluster_metadata"

_Type = Literal["counter", "gauge"] | None
# Metric, topic or None, partition or -1.
MetricKey = tuple[str, str | None, int]


class PrometheusOptions(BaseModel):
    """The source ``prometheus``: addresses of exporters, and rules for their metrics.

    Parameters
    ----------
    endpoints
        Address of each broker's exporter, by broker id.
    rules
        Name of a product whose names of metrics are known, see :data:`PACKS`.
    metrics
        Rules that take precedence over those and :data:`DEFAULT_RULES`.
    topic_label, partition_label
        Labels that name a topic and a partition.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoints: dict[Annotated[WholeKey, Field(lt=2**31)], str] = Field(default={}, repr=False)
    rules: PackName | None = None
    metrics: tuple[Rule, ...] = ()
    topic_label: str = "topic"
    partition_label: str = "partition"

    summary: ClassVar[str] = "Scrape the Prometheus exporters of brokers."

    def open(self, connection: Connection) -> PrometheusSource:
        """The source itself."""
        return PrometheusSource(
            self.endpoints,
            rules=self.metrics,
            pack=self.rules,
            topic_label=self.topic_label,
            partition_label=self.partition_label,
            timeout=connection.timeout,
        )


def load_prometheus(path: str | Path) -> PrometheusOptions:
    """Read :class:`PrometheusOptions` from a YAML or JSON file.

    Raises
    ------
    ReporterError
        If the file cannot be read, or for its first invalid entry, by name.
    """
    where = f"exporter file {path}"
    content = load_mapping(
        path, where, ReporterError, "a file of exporters", expected="a mapping with endpoints"
    )
    expected = {
        "extra_forbidden": "a known name",
        "missing": "none found, a value",
        "int_parsing": "a broker id",
    }
    options = as_model(
        PrometheusOptions, content, where, ReporterError, expected, hide=["endpoints"]
    )
    if len(options.endpoints) < len(content.get("endpoints") or {}):
        raise ReporterError(f"{where}: endpoints: a broker found twice, one endpoint each expected")
    for url in options.endpoints.values():
        checked_url(url)
    return options


def _defaults() -> Iterator[Rule]:
    def counter(
        name: str,
        metric: str,
        scale: float = 1.0,
        *,
        where: dict[str, str] | None = None,
        type: _Type = None,
    ) -> Rule:
        return Rule(
            name=name, metric=metric, kind="counter", type=type, where=where or {}, scale=scale
        )

    def gauge(
        name: str, metric: str, where: dict[str, str] | None = None, *, type: _Type = None
    ) -> Rule:
        return Rule(
            name=f"{name}(_value)?", metric=metric, kind="gauge", type=type, where=where or {}
        )

    of_topics = r"kafka_server_broker_?topic_?(?:partition_?)?metrics_(?:total_)?"
    meters = {
        "bytes_?in": BYTES_IN,
        "bytes_?out": BYTES_OUT,
        "replication_?bytes_?in": REPLICATION_IN,
        "replication_?bytes_?out": REPLICATION_OUT,
        "messages_?in": MESSAGES_IN,
        "total_?produce_?requests": PRODUCE_RATE,
        "total_?fetch_?requests": FETCH_RATE,
    }
    # A meter has a count and rates over 1, 5 and 15 minutes. A rule file may give any of them the
    # meter's own name, so that only the type on the page tells which it is; but a count is one.
    rates = (r"_?(?:one_?minute_?|1_?m(?:in)?_?)?rate", "_?five_?minute_?rate")
    for name, metric in meters.items():
        meter = f"{of_topics}{name}(?:_?per_?sec)?"
        yield counter(f"{meter}_count(?:_total)?", metric)
        yield counter(f"{meter}(?:_total)?", metric, type="counter")
    for name, metric in meters.items():
        meter = f"{of_topics}{name}(?:_?per_?sec)?"
        yield gauge(f"{meter}(?:_total)?", metric, type="gauge")
        for rate in rates:
            yield gauge(f"{meter}{rate}(?:_?all_?topics)?", metric)
    yield gauge("kafka_log_log_size", SIZE)
    yield gauge("kafka_log_log_log_?end_?offset", END_OFFSET)
    yield gauge("kafka_cluster_partition_replicas_?count", REPLICAS)
    yield gauge("process_start_time_seconds", START_TIME)
    # In percent of a core, like the capacities of brokers.
    yield counter("process_cpu_seconds_total", CPU, 100.0)
    yield gauge("java_lang_(operating_?system_)?process_?cpu_?load", CPU_RATIO)
    idle = "kafka_server_kafka_?request_?handler_?pool_request_?handler_?avg_?idle"
    yield gauge(f"{idle}(_?percent)?_?one_?minute_?rate", HANDLER_IDLE)
    # Kafka counts idle time in nanoseconds.
    yield counter(f"{idle}_?percent_count(_total)?", HANDLER_IDLE, 1e-9)
    yield counter(f"{idle}_?percent_total", HANDLER_IDLE, 1e-9, type="counter")
    yield gauge(f"{idle}(_?percent)?(_total)?", HANDLER_IDLE)
    yield gauge("kafka_network_request_?channel_request_?queue_?size", REQUEST_QUEUE)
    flush = "kafka_log_log_?flush_?stats_log_?flush_?rate_?and_?time_?ms"
    yield counter(f"{flush}(_count)?(_total)?", LOG_FLUSH_RATE, where={"quantile": ""})
    times = "kafka_network_request_?metrics_total_?time_?ms"
    # Excludes waits for data (fetch.max.wait.ms) and for replicas, which total times include.
    local = "kafka_network_request_?metrics_local_?time_?ms"
    for timer, request, mean, p999 in (
        (flush, None, LOG_FLUSH_MEAN, LOG_FLUSH_P999),
        (times, "Produce", PRODUCE_TIME_MEAN, PRODUCE_TIME_P999),
        (times, "FetchConsumer", FETCH_TIME_MEAN, FETCH_TIME_P999),
        (local, "Produce", PRODUCE_LOCAL_MEAN, PRODUCE_LOCAL_P999),
        (local, "FetchConsumer", FETCH_LOCAL_MEAN, FETCH_LOCAL_P999),
        (local, "FetchFollower", FOLLOWER_LOCAL_MEAN, FOLLOWER_LOCAL_P999),
    ):
        only = {} if request is None else {"request": request}
        yield gauge(f"{timer}_?mean", mean, only)
        yield gauge(timer, p999, only | {"quantile": r"0?\.999"})
        yield gauge(f"{timer}_?999thpercentile", p999, only)


DEFAULT_RULES: tuple[Rule, ...] = tuple(_defaults())


def in_order(metrics: Sequence[Rule], pack: PackName | None) -> tuple[Rule, ...]:
    """All rules: own ones, those of a pack, and the usual names."""
    return (*metrics, *(PACKS[pack].rules if pack is not None else ()), *DEFAULT_RULES)


class Reading(NamedTuple):
    """The counters and gauges read from a page."""

    at: float
    counters: dict[MetricKey, float]
    gauges: dict[MetricKey, float]


class PrometheusSource:
    """Scrapes the exporters of brokers, one report per iteration.

    Rates are computed between two scrapes, so the first report has none. Nor does a broker
    that restarted in between, since its counters started again. An endpoint that does
    not answer is left out of the report and listed in `problems`.

    Parameters
    ----------
    endpoints
        Address of each broker's exporter, by broker id.
    rules
        Take precedence over :data:`DEFAULT_RULES`; the first rule that matches a metric counts.
    pack
        A product whose names of metrics come next.
    topic_label, partition_label
        Labels that name a topic and a partition.
    timeout
        Seconds that an endpoint has to answer.

    Attributes
    ----------
    problems
        Current problems, by endpoint; empty if there are none.
    malformed, failed, resets : int
        Lines that were not samples, scrapes that failed, and restarts seen, so far.

    Raises
    ------
    ReporterError
        For no endpoints, or an invalid address.
    """

    def __init__(
        self,
        endpoints: Mapping[int, str],
        *,
        rules: Sequence[Rule] = (),
        pack: PackName | None = None,
        topic_label: str = "topic",
        partition_label: str = "partition",
        timeout: float = 10.0,
    ) -> None:
        if not endpoints:
            raise ReporterError("Prometheus source: no endpoint found, at least 1 expected")
        for url in endpoints.values():
            checked_url(url)
        self.problems: dict[str, str] = {}
        self.malformed = 0
        self.failed = 0
        self.resets = 0
        self._endpoints = dict(sorted(endpoints.items()))
        self._rulebook = Rulebook(in_order(rules, pack), topic_label, partition_label)
        self._place = f" ({PACKS[pack].place})" if pack is not None else ""
        self._timeout = timeout
        self._before: dict[int, Reading] = {}
        self._growth = Growth()
        self._late: set[int] = set()
        self._compared = False
        self._sizeless = False

    def __iter__(self) -> Iterator[list[Record]]:
        while True:
            self._compared = False
            # Not across reports: whoever collects an iterator would wait for threads to end, and a
            # thread that is starting must not.
            with ThreadPoolExecutor(min(_AT_ONCE, len(self._endpoints))) as pool:
                pages = pool.map(self._page, self._endpoints)
                report = [
                    record
                    for broker, page in zip(self._endpoints, pages, strict=True)
                    for record in self._records(broker, page)
                ]
            self._check_rates(report)
            self._check_coverage(report)
            yield report

    def _check_coverage(self, report: list[Record]) -> None:
        """Name the rule of the exporters without which nothing can be planned."""
        if not self._compared:
            return
        lacks = self._lacking(report)
        self.problems.pop("partitions", None)
        if lacks is not None:
            self.problems["partitions"] = f"{coverage(report)}: {lacks}{self._place}"

    def _lacking(self, report: list[Record]) -> str | None:
        """Which MBeans no exporter has; None if rates of partitions are known."""
        of = {m: {r.topic for r in report if m in r.metrics} for m in _OF_TOPICS}
        for mbeans, kind, there in (
            (_METERS, "", {metric for metric in of if of[metric]}),
            (_TOPICS, " of topics", {metric for metric in of if of[metric] - {None}}),
        ):
            lacking = [metric for metric in of if metric not in there]
            if lacking:
                what = "bytes" if not there else lacking[0]
                return f"no exporter has {what}{kind}; {_MISSING.format('kafka.server', mbeans)}"
        if not any(SIZE in record.metrics for record in report) and not self._sizeless:
            self._sizeless = True
            log.info(
                "prometheus: no exporter has sizes, so topics without traffic stay unknown; %s",
                _MISSING.format("kafka.log", "type=Log,name=Size,topic=*,partition=*")
                + self._place,
            )
        return None

    def _check_rates(self, report: list[Record]) -> None:
        """Compare the rates with the growth of sizes, and say which rates are late."""
        self._growth.add(report)
        problem = self._growth.contradiction()
        self._growth.restart()
        if problem is None:
            self.problems.pop(BYTES_IN, None)
        else:
            self.problems[BYTES_IN] = problem
        late = {
            broker
            for broker, reading in self._before.items()
            if any(key[0] in _OF_TOPICS for key in reading.gauges)
        }
        if late - self._late:
            log.info(
                "prometheus: %s exported as rates over the last minute by broker %s%s: they follow "
                "a change a minute late; a rule for their Count would not",
                " and ".join(_OF_TOPICS),
                min(late),
                f" and {len(late) - 1} others" if len(late) > 1 else "",
            )
            self._late = late

    def _page(self, broker: int) -> tuple[float, float, str] | ReporterError:
        """Time of reading, on the monotonic and the wall clock, and the page."""
        started, now = time.monotonic(), time.time()
        try:
            page = scrape(self._endpoints[broker], self._timeout)
        except ReporterError as error:
            return error
        half = (time.monotonic() - started) / 2
        return started + half, now + half, page

    def _records(self, broker: int, page: tuple[float, float, str] | ReporterError) -> list[Record]:
        name = f"broker {broker}"
        if isinstance(page, ReporterError):
            self.failed += 1
            self.problems[name] = f"{name} not measured: {page}"
            return []
        at, now, text = page
        samples, malformed = parse(text)
        self.malformed += malformed
        reading = self._rulebook.read(at, samples)
        if of_broker(reading):
            self.problems.pop(name, None)
        else:
            self.problems[name] = (
                f"{name} not measured: no known Kafka metric found in {len(samples)} samples"
                f"{_other(samples)}"
            )
        before, self._before[broker] = self._before.get(broker), reading
        if before is not None and restarted(before, reading):
            self.resets += 1
            before = None
        self._compared |= before is not None and of_broker(reading)
        return list(records_of(broker, int(1000 * now), before, reading))


class Rulebook:
    """Finds the rule for each sample, cached by name."""

    def __init__(self, rules: Sequence[Rule], topic_label: str, partition_label: str) -> None:
        self._rules = [(re.compile(rule.name, re.IGNORECASE), rule) for rule in rules]
        self._topic = topic_label
        self._partition = partition_label
        self._known: dict[tuple[str, str], list[tuple[int, Rule]]] = {}

    def read(self, at: float, samples: Iterable[Sample]) -> Reading:
        """Interpret samples; if two rules give the same metric, the first counts.

        Samples of one rule that map to the same metric differ in labels without a meaning
        here: counters are summed, and of gauges the largest counts.
        """
        found: dict[MetricKey, tuple[int, bool, float]] = {}
        for sample in samples:
            for order, rule in self.candidates(sample):
                if not rule.takes(sample):
                    continue
                key = self.key(rule, sample.labels)
                value = sample.value * rule.scale
                if key is not None and isfinite(value) and value >= 0:
                    counts = rule.counts(sample.type)
                    first, _, before = found.get(key, (order, counts, None))
                    if before is not None and first == order:
                        value = value + before if counts else max(value, before)
                    if first >= order:
                        found[key] = (order, counts, value)
                break
        counters: dict[MetricKey, float] = {}
        gauges: dict[MetricKey, float] = {}
        for key, (_, counts, value) in found.items():
            (counters if counts else gauges)[key] = value
        return Reading(at, counters, gauges)

    def candidates(self, sample: Sample) -> list[tuple[int, Rule]]:
        """The rules for the sample's name and type, with their places in the order."""
        name = sample.name
        if "name" in sample.labels:
            # Without rules the exporter writes type_attribute{name=...}.
            head, _, attribute = name.rpartition("_")
            name = f"{head}_{sample.labels['name']}_{attribute}"
        known = name, sample.type
        if known not in self._known:
            self._known[known] = [
                (order, rule)
                for order, (pattern, rule) in enumerate(self._rules)
                if rule.is_of(sample.type) and pattern.fullmatch(name)
            ]
        return self._known[known]

    def key(self, rule: Rule, labels: Mapping[str, str]) -> MetricKey | None:
        """What a sample of a rule is about; None if its labels name no partition."""
        topic, partition = labels.get(self._topic), labels.get(self._partition)
        if topic == _METADATA:
            return None
        if partition is None:
            return rule.metric, topic or None, -1
        if not topic or not partition.isdecimal() or int(partition) >= 2**31:
            return None
        return rule.metric, topic, int(partition)


def of_broker(reading: Reading) -> bool:
    """Whether a page has any metric of a broker, so that the process it is of is the broker's."""
    return any(key[0] not in _OF_PROCESSES for key in (*reading.counters, *reading.gauges))


def _other(samples: Sequence[Sample]) -> str:
    """What the page is instead of that of a broker."""
    for prefix, what in _OTHERS.items():
        if any(sample.name.startswith(prefix) for sample in samples):
            return f"; {what}"
    return ""


def restarted(before: Reading, now: Reading) -> bool:
    """Whether the broker's process restarted: its start time differs, or a counter fell.

    Only counters of the whole broker count: those of a topic also restart when the topic,
    or the broker's last replica of it, was gone in between.
    """
    start: MetricKey = (START_TIME, None, -1)
    if now.gauges.get(start, 0.0) != before.gauges.get(start, now.gauges.get(start, 0.0)):
        return True
    return any(
        value < before.counters.get(key, 0.0)
        for key, value in now.counters.items()
        if key[1] is None
    )


def records_of(broker: int, time_ms: int, before: Reading | None, now: Reading) -> Iterator[Record]:
    """The records of a broker, from its last two scrapes; none if the page is not of a broker.

    Parameters
    ----------
    before
        None if there is no earlier scrape or the broker restarted since; then no rates.
    """
    if not of_broker(now):
        return
    values = {key: value for key, value in now.gauges.items() if key[0] not in _INNER}
    if before is not None and now.at > before.at:
        for key, value in now.counters.items():
            # Kafka creates a topic's counter with its first byte.
            grown = value - before.counters.get(key, 0.0)
            if grown >= 0:
                values[key] = grown / (now.at - before.at)
        values |= _reported_by_partition(before, now, values)
        values |= _idle(before, now, values)
    metrics: dict[tuple[str | None, int], dict[str, float]] = {}
    for (metric, topic, partition), value in values.items():
        metrics.setdefault((topic, partition), {})[metric] = value
    for (topic, partition), reported in metrics.items():
        if topic is not None and partition == -1 and reported.keys().isdisjoint(_OF_TOPICS):
            continue
        yield Record(time_ms, broker, reported, topic, partition)


def _reported_by_partition(
    before: Reading, now: Reading, values: dict[MetricKey, float]
) -> dict[MetricKey, float]:
    """Rates of the partitions that the broker leads; removes the topic rates they replace.

    A topic without traffic so far has no counters. Its leaders are idle, which is not the
    same as unknown, so they are reported as 0.
    """
    led: dict[str, list[int]] = {}
    for (metric, topic, partition), replicas in now.gauges.items():
        if metric == REPLICAS and topic is not None and partition >= 0 and replicas > 0:
            led.setdefault(topic, []).append(partition)
    if not led or (BYTES_IN, None, -1) not in values:
        return {}
    known = {topic for metric, topic, p in now.gauges if metric == REPLICAS and topic is not None}
    for topic in known - led.keys():
        for metric in _OF_TOPICS:
            values.pop((metric, topic, -1), None)
    reported: dict[MetricKey, float] = {}
    for topic, partitions in led.items():
        every = partial(_every, values, topic, partitions)
        if not every(BYTES_OUT):
            reported[BYTES_OUT, topic, -1] = values.get((BYTES_OUT, topic, -1), 0.0)
        if every(BYTES_IN):
            continue
        rate = values.get((BYTES_IN, topic, -1), 0.0)
        ends = [now.gauges.get((END_OFFSET, topic, p)) for p in partitions]
        then = [before.gauges.get((END_OFFSET, topic, p)) for p in partitions]
        grown = [
            0.0 if end is None or start is None else max(end - start, 0.0)
            for end, start in zip(ends, then, strict=True)
        ]
        if None in ends or (rate > 0 and sum(grown) == 0):
            reported[BYTES_IN, topic, -1] = rate
            continue
        values.pop((BYTES_IN, topic, -1), None)
        for p, share in zip(partitions, grown, strict=True):
            reported[BYTES_IN, topic, p] = rate * share / sum(grown) if rate > 0 else 0.0
    return reported


def _idle(
    before: Reading, now: Reading, values: Mapping[MetricKey, float]
) -> dict[MetricKey, float]:
    """Rates of 0 of topics without traffic, where the page does not tell who leads them.

    Kafka has a topic's counters from its first byte on. Where a page has those of other topics,
    a topic without them that has not grown is idle, which is not the same as unknown. Whether
    it is read, only counters of what is read tell, of other topics or of all: one that is
    written to may have none.
    """
    keys = (*now.counters, *now.gauges)
    stated = {(metric, topic) for metric, topic, _ in keys if metric in _OF_TOPICS}
    if not any(topic for _, topic in stated) or any(key[0] == REPLICAS for key in now.gauges):
        return {}
    grown: dict[str, bool] = {}
    for key, level in now.gauges.items():
        if key[0] in (SIZE, END_OFFSET) and key[1] is not None:
            old = before.gauges.get(key)
            grown[key[1]] = grown.get(key[1], False) or old is None or level > old
    told = {metric for metric, topic in stated if topic is not None}
    told |= {metric for metric in _OF_TOPICS if values.get((metric, None, -1)) == 0}
    return {
        (metric, topic, -1): 0.0
        for metric in _OF_TOPICS
        if metric in told
        for topic, grows in grown.items()
        if (metric, topic) not in stated
        and (not grows or (metric == BYTES_OUT and (BYTES_IN, topic) in stated))
    }


def _every(
    values: Mapping[MetricKey, Any], topic: str, partitions: Sequence[int], metric: str
) -> bool:
    return all((metric, topic, p) in values for p in partitions)
