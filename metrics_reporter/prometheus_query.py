"""Reads the past from a server with Prometheus' HTTP API, also of Mimir and Thanos.

Prometheus has stored what the exporters of brokers said. Its function ``rate`` makes rates of
counters, also where they were reset; the same rules as for live exporters
(:mod:`metrics_reporter.prometheus`) tell which series is which metric. Each time is one of the
multiples of a step, so that repeated and neighbouring ranges have the same times.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from metrics_reporter.documents import WholeKey, as_model, clipped, load_mapping
from metrics_reporter.errors import ReporterError
from metrics_reporter.exposition import (
    HttpStatusError,
    Sample,
    checked_url,
    fetch,
    shown,
    type_of,
)
from metrics_reporter.prometheus import (
    END_OFFSET,
    START_TIME,
    Reading,
    Rulebook,
    in_order,
    records_of,
)
from metrics_reporter.quantities import WithDuration
from metrics_reporter.records import Record
from metrics_reporter.rule_packs import PackName
from metrics_reporter.rules import Rule

# A server may refuse more points of a series than that in an answer.
MOST_POINTS = 11_000
# Statuses after which the same request may succeed later, and those that a smaller one avoids.
_LATER = (429, 500, 502, 503, 504)
_SMALLER = (413, 422)
_LABEL = r"[A-Za-z_][A-Za-z0-9_]*"

Seconds = Annotated[float, WithDuration, Field(gt=0, allow_inf_nan=False)]


class BrokerLabel(BaseModel):
    """The label that tells which broker a series is of.

    Parameters
    ----------
    label
        Its name.
    pattern
        Regular expression of the whole value, whose one group is the id, if the value is not the
        id itself.
    ids
        Broker ids by value, for values without the id.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: Annotated[str, Field(pattern=f"^{_LABEL}$")]
    pattern: str = r"(\d+)"
    ids: dict[str, WholeKey] | None = None

    @model_validator(mode="after")
    def _has_a_group(self) -> BrokerLabel:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"a regular expression expected ({error})") from None
        if groups != 1:
            raise ValueError("a regular expression with one group expected")
        return self

    def id_of(self, value: str) -> int | None:
        """The broker's id; None if the value has none.

        Examples
        --------
        >>> BrokerLabel(label="instance", pattern=r"kafka-(\\d+):.*").id_of("kafka-12:7071")
        12
        """
        if self.ids is not None:
            return self.ids.get(value)
        found = re.fullmatch(self.pattern, value)
        if found is None or not found[1] or not found[1].isdecimal():
            return None
        number = int(found[1])
        return number if number < 2**31 else None


def _labelled(value: Any) -> Any:
    return {"label": value} if isinstance(value, str) else value


class QueryOptions(BaseModel):
    """How to query a server, as a file states it.

    Parameters
    ----------
    broker
        Which broker a series is of.
    selector
        Labels that series must have, such as ``job: kafka``.
    rules
        Name of a product whose names of metrics are known.
    metrics
        Rules that take precedence over those and
        :data:`metrics_reporter.prometheus.DEFAULT_RULES`.
    topic_label, partition_label
        Labels that name a topic and a partition.
    headers
        Further headers of each request, such as ``X-Scope-OrgID`` of Mimir, or ``Authorization``.
    step
        Time between two values of a series.
    rate_over
        Time over which a rate is taken; at least twice the interval of scrapes.
    timeout
        Time that the server may take for a request.
    retries
        How often a request is repeated that was not answered, or refused for the moment, after
        1 s, 2 s, 4 s and so on.
    values_at_once
        Values that are asked for at once, over all series and times.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: Annotated[BrokerLabel, BeforeValidator(_labelled)]
    selector: dict[Annotated[str, Field(pattern=f"^{_LABEL}$")], str] = {}
    rules: PackName | None = None
    metrics: tuple[Rule, ...] = ()
    topic_label: Annotated[str, Field(pattern=f"^{_LABEL}$")] = "topic"
    partition_label: Annotated[str, Field(pattern=f"^{_LABEL}$")] = "partition"
    headers: dict[str, str] = Field(default={}, repr=False)
    step: Annotated[Seconds, Field(ge=1)] = 60.0
    rate_over: Annotated[Seconds, Field(ge=1)] = 120.0
    timeout: Seconds = 60.0
    retries: Annotated[int, Field(ge=0, le=10)] = 3
    values_at_once: Annotated[int, Field(ge=1)] = 500_000

    @model_validator(mode="after")
    def _whole_seconds(self) -> QueryOptions:
        for name in ("step", "rate_over"):
            if getattr(self, name) != int(getattr(self, name)):
                raise ValueError(f"{name} in whole seconds expected")
        return self

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not value.isprintable():
                raise ValueError("names of letters, digits and dashes, and texts, expected")
        return headers

    @property
    def in_order(self) -> tuple[Rule, ...]:
        """All rules."""
        return in_order(self.metrics, self.rules)


def load_query_options(path: str | Path) -> QueryOptions:
    """Read :class:`QueryOptions` from a YAML or JSON file.

    Raises
    ------
    ReporterError
        If the file cannot be read, or for its first invalid entry, by name.
    """
    where = f"query file {path}"
    content = load_mapping(path, where, ReporterError, expected="a mapping with broker")
    expected = {"missing": "none found, a value"}
    return as_model(QueryOptions, content, where, ReporterError, expected, hide=["headers"])


class Query(NamedTuple):
    """A query for one metric of the server, the rule that tells what it is, and if it counts."""

    order: int
    expression: str
    counts: bool


@dataclass(frozen=True)
class Found:
    """Records of a range of time, and what could not be read.

    Parameters
    ----------
    records
        The records, by time and broker.
    unnamed
        Values of the broker's label that name no broker.
    malformed
        Values that are no numbers.
    """

    records: list[Record]
    unnamed: set[str]
    malformed: int


class PrometheusServer:
    """A server with Prometheus' HTTP API.

    Parameters
    ----------
    url
        Its address, up to and without ``/api/v1``; with user and password in it if it needs them.
    options
        How to query it.

    Raises
    ------
    ReporterError
        For an invalid address.
    """

    def __init__(self, url: str, options: QueryOptions) -> None:
        checked_url(url)
        if urlsplit(url).query or urlsplit(url).fragment:
            raise ReporterError(
                f"Prometheus server: {shown(url)} with a query found, one without expected"
            )
        self._url = url.rstrip("/").removesuffix("/api/v1")
        self._options = options
        self._rules = options.in_order
        self._rulebook = Rulebook(self._rules, options.topic_label, options.partition_label)

    def queries(self, start: int, end: int) -> list[Query]:
        """A query for each metric that the server has in this time (s since 1970) and a rule knows.

        Raises
        ------
        ReporterError
            If there is none, or the server does not answer.
        """
        names = self._names("__name__", start, end, self._matchers({}))
        types = self._types()
        found: list[Query] = []
        for name in names:
            type = type_of(name, types)
            queries = self._of_name(name, None, type)
            if not queries and name.startswith("kafka_"):
                # Without rules the exporter writes type_attribute{name=...}.
                matchers = self._matchers({"__name__": name})
                for attribute in self._names("name", start, end, matchers):
                    queries += self._of_name(name, attribute, type)
            found += queries
        if not found:
            raise ReporterError(
                f"{shown(self._url)}: no known metric of Kafka found among the names of "
                f"{len(names)} in that time, rules for them (metrics) or another selector expected"
            )
        return found

    def series(self, queries: Sequence[Query], at: int) -> int:
        """The number of series that these queries give at a time."""
        total = 0
        for query in queries:
            data = self._ask("query", {"query": f"count({query.expression})", "time": str(at)})
            for one in _listed(data):
                total += int(float(one["value"][1]))
        return total

    def read(self, queries: Sequence[Query], start: int, end: int) -> Found:
        """Records of the steps from `start` and before `end`, s since 1970 and multiples of a step.

        Raises
        ------
        ReporterError
            If the server does not answer, or refuses.
        """
        counters: dict[tuple[int, int], dict[Any, tuple[int, float]]] = {}
        gauges: dict[tuple[int, int], dict[Any, tuple[int, float]]] = {}
        unnamed: set[str] = set()
        malformed = 0
        for query in queries:
            rule = self._rules[query.order]
            growing = query.counts or rule.metric == END_OFFSET
            into = counters if query.counts else gauges
            for labels, values in self._range(query.expression, start, end):
                name = str(labels.get(self._options.broker.label, ""))
                broker = self._options.broker.id_of(name)
                if broker is None:
                    unnamed.add(name)
                    continue
                key = self._rulebook.key(rule, labels)
                if key is None:
                    continue
                for pair in values:
                    try:
                        at, text = pair
                        when, value = round(float(at)), float(text) * rule.scale
                    except (TypeError, ValueError, OverflowError):
                        malformed += 1
                        continue
                        # Neither is a number of a summary without observations.
                    if not isfinite(value) or value < 0:
                        continue
                    place = into.setdefault((when, broker), {})
                    order, before = place.get(key, (query.order, None))
                    if before is not None and order == query.order:
                        value = value + before if growing else max(value, before)
                    if order >= query.order:
                        place[key] = (query.order, value)
        records: list[Record] = []
        for when, broker in sorted(counters.keys() | gauges.keys()):
            rates = _plain(counters.get((when, broker), {}))
            levels = _plain(gauges.get((when, broker), {}))
            # As between two scrapes a second apart, of which the first found only zeros.
            zeros = Reading(0.0, {}, {key: 0.0 for key in levels if key[0] == END_OFFSET})
            records += records_of(broker, 1000 * when, zeros, Reading(1.0, rates, levels))
        return Found(records, unnamed, malformed)

    def _types(self) -> dict[str, str]:
        """Types of metrics by name, as far as the server knows what the exporters stated."""
        try:
            data = self._ask("metadata", {"limit_per_metric": "1"}, post=False)
        except ReporterError:
            # Not every server with this API has metadata, and the series are what is needed.
            return {}
        stated = data if isinstance(data, dict) else {}
        return {
            name: str(some[0].get("type", ""))
            for name, some in stated.items()
            if isinstance(some, list) and some and isinstance(some[0], dict)
        }

    def _of_name(self, name: str, attribute: str | None, type: str) -> list[Query]:
        """Queries for a metric, one for each rule that may take it."""
        labels = {} if attribute is None else {"name": attribute}
        options = self._options
        by = ", ".join((options.broker.label, options.topic_label, options.partition_label))
        found = []
        for order, rule in self._rulebook.candidates(Sample(name, labels, 0.0, type)):
            if rule.metric == START_TIME:
                continue
            selected = self._matchers({"__name__": name, **labels}, rule.where)
            window = f"[{int(options.rate_over)}s]"
            if rule.counts(type) or rule.metric == END_OFFSET:
                inner = f"rate({selected}{window})"
                expression = f"sum by ({by}) ({inner})"
            else:
                expression = f"max by ({by}) ({selected})"
            found.append(Query(order, expression, rule.counts(type)))
        return found

    def _matchers(self, equal: Mapping[str, str], like: Mapping[str, str] | None = None) -> str:
        labels = {**equal, **self._options.selector}
        parts = [f"{k}={json.dumps(v)}" for k, v in labels.items()]
        parts += [f"{k}=~{json.dumps(v)}" for k, v in (like or {}).items()]
        # A selector has to have at least one matcher that is not empty.
        return "{" + ",".join(parts or ['__name__=~".+"']) + "}"

    def _names(self, label: str, start: int, end: int, match: str) -> list[str]:
        asked = {"start": str(start), "end": str(end), "match[]": match}
        data = self._ask(f"label/{label}/values", asked, post=False)
        if not isinstance(data, list):
            raise self._unexpected("a list of values")
        return sorted(str(value) for value in data)

    def _range(self, expression: str, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        """Labels and values of each series; a range that is too large is halved."""
        step = int(self._options.step)
        points = (end - start) // step
        asked = {
            "query": expression, "start": str(start), "end": str(end - step), "step": str(step)
        }  # fmt: skip
        if points <= MOST_POINTS:
            try:
                data = self._ask("query_range", asked)
            except HttpStatusError as error:
                if points <= 1 or error.status not in _SMALLER:
                    raise
            else:
                for one in _listed(data):
                    labels, values = one.get("metric"), one.get("values")
                    if not isinstance(labels, dict) or not isinstance(values, list):
                        raise self._unexpected("series with metric and values")
                    yield labels, values
                return
        middle = start + points // 2 * step
        yield from self._range(expression, start, middle)
        yield from self._range(expression, middle, end)

    def _ask(self, path: str, asked: Mapping[str, str], *, post: bool = True) -> Any:
        """The data of an answer."""
        url, data = f"{self._url}/api/v1/{path}", None
        if post:
            data = urlencode(asked).encode()
        else:
            url = f"{url}?{urlencode(asked)}"
        for attempt in range(self._options.retries + 1):
            try:
                page = fetch(url, self._options.timeout, data=data, headers=self._options.headers)
                break
            except ReporterError as error:
                status = error.status if isinstance(error, HttpStatusError) else None
                if attempt == self._options.retries or (status and status not in _LATER):
                    raise _with_reason(error) from None
                time.sleep(2**attempt)
        try:
            answer = json.loads(page)
        except ValueError:
            raise self._unexpected("JSON") from None
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise self._unexpected("an answer with status success")
        return answer.get("data")

    def _unexpected(self, expected: str) -> ReporterError:
        return ReporterError(
            f"{shown(self._url)}: an answer found that is not of Prometheus' API, {expected} "
            "expected"
        )


def _listed(data: Any) -> list[dict[str, Any]]:
    found = data.get("result") if isinstance(data, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _plain(found: Mapping[Any, tuple[int, float]]) -> dict[Any, float]:
    return {key: value for key, (_, value) in found.items()}


def _with_reason(error: ReporterError) -> ReporterError:
    """The error with what the server says of it."""
    if not isinstance(error, HttpStatusError):
        return error
    try:
        said = json.loads(error.body)["error"]
    except (ValueError, KeyError, TypeError):
        return error
    text = clipped(" ".join(str(said).split()))
    return HttpStatusError(f"{error} ({text})", error.status, error.body)
