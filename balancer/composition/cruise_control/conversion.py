"""Converts a configuration of Cruise Control; accounts for each of its keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from balancer.composition.cruise_control.errors import CruiseControlError
from balancer.composition.cruise_control.files import read_broker_sets, read_capacities
from balancer.composition.cruise_control.given import FILE, Given
from balancer.composition.cruise_control.goals import (
    DEFAULT_GOALS,
    EQUIVALENTS,
    HARD,
    ConvertedGoal,
    converted,
    short_name,
)
from balancer.composition.cruise_control.keys import (
    HEALING,
    ORDERS,
    RULES,
    WITHOUT_COUNTERPART,
    Rule,
    why_without,
)
from balancer.controller.settings import SettingsError, as_settings
from goals import GoalError, load_goals
from metrics_reporter.quantities import plural

CONFIGURATION, GOALS, CAPACITIES = "counterpoise.yaml", "goals.yaml", "capacities.yaml"
SETTINGS, ATTRIBUTES = "settings.yaml", "attributes.yaml"
DISK_GOALS, CONTROLLER_GOALS = "disk-goals.yaml", "controller-goals.yaml"

_METRICS_TOPIC = "__CruiseControlMetrics"
_SAMPLER = "CruiseControlMetricsReporterSampler"
_RESOLVERS = ("BrokerCapacityConfigFileResolver", "BrokerCapacityConfigurationFileResolver")
_MULTIPLIER = "goal.violation.distribution.threshold.multiplier"
_CLUSTER_LIMITS = ("max.num.cluster.partition.movements", "max.num.cluster.movements")
_NONE_OF_THEM = "none of these goals has a counterpart and a known capacity"
_UPPER_ONLY = "LeaderBytesInDistribution"
_GAP = "topic.replica.count.balance"
_FACTOR = "self.healing.target.topic.replication.factor"
_EXCLUDED = "topics.excluded.from.partition.movement"
_MIN_LEADERS = "topics.with.min.leaders.per.broker"
_UNCHECKED = "topic.excluded.from.replication.factor.check"
# Patterns of topics that are left alone: without one of them, these topics would be changed.
_STAYING = (_EXCLUDED, _MIN_LEADERS, _UNCHECKED)
# What Cruise Control takes without the key.
_DEFAULT_FACTOR = 3
_CLIENT = re.compile(r"(security|sasl|ssl)\..+")
# Properties that both Python clients take, and the values that need nothing else of Java's.
_USABLE = {
    "security.protocol": re.compile(r".*"),
    "sasl.mechanism": re.compile(r"PLAIN|SCRAM-SHA-(256|512)|\$\{.*\}"),
}
# Certificates and keys within the file, and the property that names a file with the same.
_INLINE = {
    "ssl.truststore.certificates": "ssl.ca.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.location",
    "ssl.keystore.key": "ssl.key.location",
}
_JAVA_ONLY = "a setting of Java's TLS; Python's clients use OpenSSL"
_PEM = "Python's clients read PEM files: convert the store, then state {0} under client"


class Taken(NamedTuple):
    """A key that has a counterpart: where it stands now, and what to know about it."""

    key: str
    value: str
    ours: str
    note: str = ""


class Left(NamedTuple):
    """A known key without a counterpart, and why or what to do instead."""

    key: str
    value: str
    why: str


class Unknown(NamedTuple):
    """A key that is none of Cruise Control's, and the one that may be meant."""

    key: str
    line: int
    meant: str | None


@dataclass
class Imported:
    """The files of an import, and what became of every key.

    Parameters
    ----------
    read
        Files that were read.
    documents
        Name of a file to write, and its content.
    taken, left, unknown
        Each key of the input, in exactly one of these.
    goals
        What became of each goal of the list that plans are made with.
    implied
        What is written without a key, because Cruise Control has this default.
    """

    read: list[Path] = field(default_factory=list)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    goals: list[ConvertedGoal] = field(default_factory=list)
    implied: list[str] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """Every key that is accounted for."""
        return [row.key for rows in (self.taken, self.left, self.unknown) for row in rows]


def import_cruise_control(path: Path) -> Imported:
    """Convert a configuration of Cruise Control.

    Parameters
    ----------
    path
        ``cruisecontrol.properties``, or a directory with it.

    Raises
    ------
    CruiseControlError
        If a file cannot be read, or naming the first key with an invalid value.
    """
    return _Conversion(Given(path)).result


class _Conversion:
    def __init__(self, given: Given) -> None:
        self.given = given
        self.result = Imported(read=[given.path])
        self._seen: set[str] = set()
        for key in given:
            if given.refers(key) and key in _STAYING:
                raise given.wrong(key, "the pattern itself")
            if given.refers(key) and not _CLIENT.fullmatch(key):
                self._leave(key, "looked up elsewhere: import again with the value in its place")
        self._capacities()
        self._broker_sets()
        self._goals()
        self._settings()
        self._cluster()
        for key in given:
            if key not in self._seen and (why := why_without(key)) is not None:
                self._leave(key, why)
        for key in given:
            if key not in self._seen:
                known = {*WITHOUT_COUNTERPART, *RULES, *HEALING, *_OTHER_KEYS}
                close = get_close_matches(key, sorted(known), 1, 0.8)
                meant = close[0] if close else None
                self.result.unknown.append(Unknown(key, given.lines(key)[-1], meant))
        found = self.result
        if not found.taken and not found.left and not any(row.meant for row in found.unknown):
            raise CruiseControlError(
                f"{given.path}: none of its {plural(len(found.keys), 'key')} is one of Cruise "
                f"Control's, {FILE} expected"
            )
        self._order()

    # --- accounting

    def _has(self, key: str) -> bool:
        return key in self.given and key not in self._seen

    def _take(self, key: str, ours: str, note: str = "") -> None:
        self._seen.add(key)
        notes = "; ".join(x for x in (note, self._again(key)) if x)
        self.result.taken.append(Taken(key, self.given.shown(key), ours, notes))

    def _leave(self, key: str, why: str) -> None:
        self._seen.add(key)
        again = self._again(key)
        value = self.given.shown(key)
        self.result.left.append(Left(key, value, f"{why}; {again}" if again else why))

    def _again(self, key: str) -> str:
        lines = self.given.lines(key)
        if len(lines) == 1:
            return ""
        return f"given on lines {', '.join(map(str, lines))}, of which the last counts"

    def _order(self) -> None:
        place = {key: i for i, key in enumerate(self.given)}
        self.result.taken.sort(key=lambda row: place[row.key])
        self.result.left.sort(key=lambda row: place[row.key])

    def _document(self, name: str) -> dict[str, Any]:
        return self.result.documents.setdefault(name, {})

    def _put(self, path: str, value: Any) -> None:
        """Set a setting by its path."""
        *steps, last = path.split(".")
        place = self._document(SETTINGS)
        for step in steps:
            place = place.setdefault(step, {})
        place[last] = value

    # --- capacities and broker sets

    def _capacities(self) -> None:
        resolver, file = "broker.capacity.config.resolver.class", "capacity.config.file"
        usual = True
        if self._has(resolver):
            usual = short_name(self.given[resolver]) in _RESOLVERS
            if usual:
                self._take(resolver, f"{CAPACITIES}: a file of capacities, too")
            else:
                self._leave(
                    resolver, "a class of your own: write what it returns to a capacity file"
                )
        if not self._has(file):
            return
        if not usual:
            self._leave(file, f"read by {short_name(self.given[resolver])} only")
            return
        path = self.given.file(file)
        content = read_capacities(path)
        self.result.read.append(path)
        self.result.documents[CAPACITIES] = content
        brokers = plural(len(content.get("brokers", {})), "broker")
        self._take(
            file,
            f"{CAPACITIES}: default, and {brokers} of their own"
            if "brokers" in content
            else f"{CAPACITIES}: default",
            "MB and KB/s of 1024 are bytes here, and a core is 100 % of cpu; log directories add "
            "up. Kafka states disk sizes itself: leave disk out to use those",
        )

    def _broker_sets(self) -> None:
        key = "broker.set.config.file"
        if not self._has(key):
            return
        path = self.given.file(key)
        self.result.read.append(path)
        self.result.documents[ATTRIBUTES] = {"broker_sets": read_broker_sets(path)}
        self._take(key, f"{ATTRIBUTES}: broker_sets")

    # --- goals

    def _goals(self) -> None:
        values = self._goal_values()
        plan = self._list("default.goals") or list(DEFAULT_GOALS)
        if "default.goals" not in self.given:
            self.result.implied.append(f"{GOALS}: the default of default.goals")
        healing = self._list("self.healing.goals")
        disks = self._list("intra.broker.goals")
        multiplier = self.given.number(_MULTIPLIER, 1.0) if self._has(_MULTIPLIER) else 1.0
        entries, self.result.goals = self._converted(plan, values)
        self._goals_file(GOALS, entries)
        used = {row.goal for row in self.result.goals if row.ours}
        entries, rows = self._converted(disks, values)
        if disks and not entries:
            self._leave("intra.broker.goals", _NONE_OF_THEM)
        elif disks:
            self._goals_file(DISK_GOALS, entries)
            used |= {row.goal for row in rows if row.ours}
            self._take(
                "intra.broker.goals",
                f"{DISK_GOALS}: {plural(len(entries), 'goal')}",
                f"for propose --goals {DISK_GOALS}, in place of rebalance_disk",
            )
        if healing and not self._converted(healing, values)[0]:
            self._leave("self.healing.goals", _NONE_OF_THEM)
            healing = []
        if healing or multiplier != 1:
            entries, rows = self._converted(healing or plan, values, multiplier)
            self._goals_file(CONTROLLER_GOALS, entries)
            used |= {row.goal for row in rows if row.ours}
            note = f"for run --goals {CONTROLLER_GOALS}"
            if self._has(_MULTIPLIER):
                self._take(
                    _MULTIPLIER,
                    f"{CONTROLLER_GOALS}: thresholds of distribution goals, times {multiplier:g}",
                    note,
                )
            if healing:
                self._take(
                    "self.healing.goals", f"{CONTROLLER_GOALS}: {plural(len(rows), 'goal')}", note
                )
        self._detected(healing or plan)
        if self._has("self.healing.goals"):
            self._take("self.healing.goals", GOALS, "empty: the goals of default.goals")
        if self._has(_MULTIPLIER):
            self._take(_MULTIPLIER, GOALS, "1: the controller's goals are those of plans")
        self._account_goals(values, used)

    def _detected(self, judged: list[str]) -> None:
        """Say which goals the controller judges and Cruise Control's detector does not."""
        key = "anomaly.detection.goals"
        if not self._has(key):
            return
        detected = {short_name(name) for name in self.given.names(key)}
        more = [name for name in map(short_name, judged) if name not in detected]
        self._leave(
            key,
            "the controller detects violations of every goal that it plans for"
            + (f", also of {', '.join(more)}" if more else "")
            + "; goal_violations.margin and trivial in the settings say how far a goal must be "
            "unmet before it counts",
        )

    def _list(self, key: str) -> list[str]:
        return self.given.names(key) if self._has(key) else []

    def _converted(
        self, names: list[str], values: dict[str, Any], multiplier: float = 1.0
    ) -> tuple[list[dict[str, Any]], list[ConvertedGoal]]:
        capacities = self.result.documents.get(CAPACITIES, {})
        stated = set(capacities.get("default", {}))
        for own in capacities.get("brokers", {}).values():
            stated |= set(own)
        entries, rows = converted(names, values, ["disk", *sorted(stated)], multiplier)
        if ATTRIBUTES not in self.result.documents:
            # Judged as an error where a cluster has no sets.
            entries = [e for e in entries if e["goal"] != "BrokerSetAwareness"]
            rows = [
                row._replace(ours=(), note="left out: broker.set.config.file names no sets")
                if row.goal == "BrokerSetAwareGoal"
                else row
                for row in rows
            ]
        return entries, rows

    def _goals_file(self, name: str, entries: list[dict[str, Any]]) -> None:
        if not entries:
            raise self.given.wrong(
                "default.goals", "at least one goal with a counterpart and a known capacity"
            )
        try:
            load_goals({"goals": entries})
        except GoalError as error:
            # Each value alone is valid: only these two relate to others.
            related = (_MULTIPLIER, f"{_GAP}.max.gap", f"{_GAP}.min.gap", "default.goals")
            key = next(key for key in related if key in self.given)
            raise self.given.wrong(key, f"another value ({error})") from None
        self.result.documents[name] = {"goals": entries}

    def _takes(self, key: str, value: Any) -> bool:
        """Whether our goal takes the value of a key; if not, leave the key and say why."""
        like, name = next(
            (like, name)
            for likes in EQUIVALENTS.values()
            for like in likes
            for name, of in like.fields.items()
            if of == key
        )
        entry: dict[str, Any] = {"goal": like.goal, name: value}
        if like.takes_resource:
            entry["resource"] = like.resource
        if name == "max_gap":
            entry["min_gap"] = 0
        elif name == "min_gap":
            entry["max_gap"] = value
        try:
            load_goals({"goals": [entry]})
        except GoalError as error:
            self._leave(key, f"{like.label}.{name} does not take it: {error}")
            return False
        return True

    def _goal_values(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in sorted({k for e in EQUIVALENTS.values() for x in e for k in x.fields.values()}):
            if not self._has(key):
                continue
            if key == _MIN_LEADERS:
                found[key] = self.given.pattern(key)
            elif key.endswith(".gap") or key.startswith("m"):
                found[key] = self.given.whole(key)
            elif key.endswith("balance.threshold"):
                found[key] = self.given.number(key, 1.0)
            else:
                found[key] = self.given.number(key, 0.0, 1.0)
            if not self._takes(key, found[key]):
                del found[key]
        return found

    def _account_goals(self, values: dict[str, Any], used: set[str]) -> None:
        for key, value in values.items():
            readers = [
                (like, name)
                for goal, likes in EQUIVALENTS.items()
                if goal in used
                for like in likes
                for name, of in like.fields.items()
                if of == key
            ]
            if not readers:
                self._leave(key, "none of the goals in use reads it")
                continue
            fields = dict.fromkeys(f"{like.label}.{name}" for like, name in readers)
            note = ""
            if key.endswith("balance.threshold"):
                # Each of ours has Cruise Control's margin.
                reach = 100 * (value - 1)
                upper = [like.goal for like, _ in readers if like.goal == _UPPER_ONLY]
                parts = [f"{0.9 * reach:.3g} % either way of the fair share"]
                parts = parts if len(upper) < len(readers) else []
                parts += [f"{_UPPER_ONLY}: {reach:.3g} % above it"] if upper else []
                note = f"{'; '.join(parts)}, as in Cruise Control"
            self._take(key, f"{', '.join(fields)} = {_shown(value)}", note)
        if self._has("default.goals"):
            known = [row for row in self.result.goals if row.ours]
            total = len(self.result.goals)
            self._take(
                "default.goals",
                f"{GOALS}: {len(known)} of {plural(total, 'goal')}, one per tier",
                "see the table of goals",
            )
        if self._has("hard.goals"):
            listed = {short_name(name) for name in self.given.names("hard.goals")}
            soft = sorted(listed - HARD)
            self._take(
                "hard.goals",
                f"{GOALS}: hard of each goal",
                "in both, hardness is a goal's own"
                + (f"; {', '.join(soft)} stays soft, as there" if soft else ""),
            )

    # --- settings of the controller

    def _settings(self) -> None:
        for key, rule in RULES.items():
            if self._has(key):
                self._set(key, rule)
        self._cluster_limit()
        self._task_order()
        self._excluded_topics()
        self._metric_finder()
        self._topic_finder()
        self._healing()

    def _set(self, key: str, rule: Rule) -> None:
        read: dict[str, Callable[[str], Any]] = {
            "number": self.given.number,
            "whole": self.given.whole,
            "flag": self.given.flag,
            "milliseconds": lambda k: _plain(self.given.number(k) / 1000),
            "kilobytes": lambda k: _plain(self.given.number(k) * 1024),
        }
        if not self.given[key]:
            self._leave(key, "empty: its default, as here")
            return
        value = read[rule.kind](key)
        if self._accepted(key, rule.setting, value):
            self._take(key, f"{SETTINGS}: {rule.setting} = {_shown(value)}", rule.note)

    def _accepted(self, key: str, setting: str, value: Any) -> bool:
        """Set a setting; if it does not take the value, leave the key and say why."""
        document: Any = value
        for step in reversed(setting.split(".")):
            document = {step: document}
        try:
            as_settings(document, "x")
        except SettingsError as error:
            reason = str(error).removeprefix("x: ").removeprefix(f"{setting}: ")
            self._leave(key, f"{setting} does not take it: {reason}")
            return False
        self._put(setting, value)
        return True

    def _cluster_limit(self) -> None:
        limits = {key: self.given.whole(key) for key in _CLUSTER_LIMITS if self._has(key)}
        if not limits:
            return
        setting, value = "execution.concurrent_moves", min(limits.values())
        for key in limits:
            if self._accepted(key, setting, value):
                note = "the lower one of both limits" if len(limits) == 2 else ""
                self._take(key, f"{SETTINGS}: {setting} = {value}", note)

    def _task_order(self) -> None:
        key = "default.replica.movement.strategies"
        if not self._has(key):
            return
        names = [short_name(name) for name in self.given.names(key)]
        order = [ORDERS[name] for name in names if name in ORDERS]
        other = [name for name in names if name not in ORDERS]
        if not order:
            self._leave(key, f"no order of tasks like {', '.join(other) or 'an empty list'}")
        elif self._accepted(key, "execution.order", order):
            note = f"without {', '.join(other)}, which has no counterpart" if other else ""
            self._take(key, f"{SETTINGS}: execution.order = {', '.join(order)}", note)

    def _excluded_topics(self) -> None:
        if not self._has(_EXCLUDED):
            return
        if not self.given[_EXCLUDED]:
            self._leave(_EXCLUDED, "empty: no topic is excluded, as here")
            return
        pattern = self.given.pattern(_EXCLUDED)
        self._put("excluded_topics", [pattern])
        self._take(
            _EXCLUDED,
            f"{SETTINGS}: excluded_topics = {pattern}",
            "for the controller; propose takes --exclude-topics",
        )

    def _metric_finder(self) -> None:
        key = "metric.anomaly.finder.class"
        if not self._has(key):
            return
        names = [short_name(name) for name in self.given.names(key)]
        enabled = "SlowBrokerFinder" in names
        other = [n for n in names if n not in ("SlowBrokerFinder", "NoopMetricAnomalyFinder")]
        self._put("slow_brokers.enabled", enabled)
        note = f"{', '.join(other)} has no counterpart" if other else ""
        self._take(key, f"{SETTINGS}: slow_brokers.enabled = {_shown(enabled)}", note)

    def _topic_finder(self) -> None:
        finder = "topic.anomaly.finder.class"
        names = [short_name(name) for name in self._list(finder)]
        if "TopicReplicationFactorAnomalyFinder" not in names:
            if self._has(finder):
                self._leave(
                    finder,
                    "missing_replicas finds topics with fewer replicas than most of their "
                    "partitions have; nothing else about topics is judged",
                )
            for key in (_FACTOR, _UNCHECKED):
                if self._has(key):
                    self._leave(key, "read by TopicReplicationFactorAnomalyFinder only")
            return
        factor = self.given.whole(_FACTOR) if self._has(_FACTOR) else _DEFAULT_FACTOR
        unchecked = self.given.pattern(_UNCHECKED) if self._has(_UNCHECKED) else ""
        topics = {f"(?!(?:{unchecked})$).*" if unchecked else ".*": factor}
        given = [key for key in (finder, _FACTOR, _UNCHECKED) if self._has(key)]
        document = {"missing_replicas": {"topics": topics}}
        try:
            as_settings(document, "x")
        except SettingsError as error:
            for key in given:
                self._leave(key, f"missing_replicas.topics does not take it: {error}"[:400])
            return
        self._put("missing_replicas.topics", topics)
        note = "only topics with fewer replicas are found, not those with more"
        for key in given:
            self._take(key, f"{SETTINGS}: missing_replicas.topics = {_shown(topics)}", note)

    def _healing(self) -> None:
        every, notifier = "self.healing.enabled", "anomaly.notifier.class"
        name = short_name(self.given[notifier]) if self._has(notifier) else "NoopNotifier"
        heals = name != "NoopNotifier"
        default = self._has(every) and self.given.flag(every)
        acts = {
            detector: heals and (self.given.flag(key) if self._has(key) else default)
            for key, detector in HEALING.items()
        }
        for detector, act in acts.items():
            self._put(f"{detector}.act", act)
        own = [key for key in HEALING if self._has(key)]
        off = "" if heals else "off, because Cruise Control's NoopNotifier heals nothing"
        for key in own:
            self._take(key, f"{SETTINGS}: {HEALING[key]}.act = {_shown(acts[HEALING[key]])}", off)
        others = [detector for key, detector in HEALING.items() if key not in own]
        written = f"{SETTINGS}: act = {_shown(heals and default)} of {', '.join(others)}"
        if self._has(every) and others:
            self._take(every, written, off)
        elif self._has(every):
            self._leave(every, "every kind of anomaly has a key of its own")
        elif others:
            self.result.implied.append(f"{written}, as without self.healing.enabled")
        if self._has(notifier):
            self._leave(
                notifier,
                ("self healing is off with it; " if not heals else "")
                + "where decisions are sent is webhooks and notifiers in the settings",
            )

    # --- the cluster

    def _cluster(self) -> None:
        document: dict[str, Any] = {}
        if self._has("bootstrap.servers"):
            servers = self.given.names("bootstrap.servers")
            document["bootstrap_server"] = ",".join(servers)
            self._take("bootstrap.servers", f"{CONFIGURATION}: bootstrap_server")
        client = self._client()
        if client:
            document["client"] = client
        for key, name in (
            ("capacity", CAPACITIES),
            ("attributes", ATTRIBUTES),
            ("goals", GOALS),
            ("settings", SETTINGS),
        ):
            if name in self.result.documents:
                document[key] = name
        self._metrics_topic(document)
        key = "request.timeout.ms"
        if self._has(key):
            seconds = _plain(self.given.number(key) / 1000)
            document["timeout"] = seconds
            self._take(key, f"{CONFIGURATION}: timeout = {seconds} s")
        self.result.documents = {CONFIGURATION: document, **self.result.documents}

    def _metrics_topic(self, document: dict[str, Any]) -> None:
        sampler, topic = "metric.sampler.class", "metric.reporter.topic"
        name = short_name(self.given[sampler]) if self._has(sampler) else _SAMPLER
        if name == _SAMPLER:
            document["metrics_topic"] = self.given[topic] if self._has(topic) else _METRICS_TOPIC
            ours = f"{CONFIGURATION}: metrics_topic = {document['metrics_topic']}"
            if self._has(topic):
                self._take(topic, ours, "read as it is, with Cruise Control's reporter")
            if self._has(sampler):
                self._take(sampler, ours)
            if topic not in self.given and sampler not in self.given:
                self.result.implied.append(ours)
            return
        self._leave(
            sampler,
            "counterpoise report-metrics fills a metrics topic (counterpoise sources list)",
        )
        if self._has(topic):
            self._leave(topic, f"read by {_SAMPLER} only")

    def _client(self) -> dict[str, str]:
        """Client properties that both Python clients take."""
        found: dict[str, str] = {}

        def take(key: str, *names: str) -> None:
            found.update(dict.fromkeys(names, self.given[key]))
            refers = self.given.refers(key)
            note = f"{self.given[key]} is looked up when a client connects" if refers else ""
            named = ", ".join(f"client.{name}" for name in names)
            self._take(key, f"{CONFIGURATION}: {named}", note)

        for key in _USABLE:
            if self._has(key) and _USABLE[key].fullmatch(self.given[key]):
                take(key, key)
        for key, name in _INLINE.items():
            if self._has(key):
                self._leave(key, f"write it to a file, and state {name} under client")
        self._jaas(take)
        self._stores(take)
        for key in self.given:
            if self._has(key) and _CLIENT.fullmatch(key):
                verified = key == "ssl.endpoint.identification.algorithm"
                self._leave(
                    key,
                    "Python's clients verify host names in any case"
                    if verified
                    else _JAVA_ONLY
                    if key.startswith("ssl.")
                    else "state what your client library needs under client",
                )
        return found

    def _jaas(self, take: Callable[..., None]) -> None:
        key = "sasl.jaas.config"
        if not self._has(key):
            return
        text = self.given[key]
        whole = text.startswith("${") and text.endswith("}")
        if whole or re.search(r"\b(Plain|Scram)LoginModule\b.*\busername\s*=", text, re.S):
            take(key, key)
        else:
            self._leave(key, "only user and password of PLAIN and SCRAM are read from it")

    def _stores(self, take: Callable[..., None]) -> None:
        for store, names, password in (
            ("truststore", ("ssl.ca.location",), ""),
            (
                "keystore",
                ("ssl.certificate.location", "ssl.key.location"),
                "ssl.key.password",
            ),
        ):
            kind, location = f"ssl.{store}.type", f"ssl.{store}.location"
            if not self._has(location):
                continue
            if self._has(kind) and self.given[kind].upper() == "PEM":
                take(location, *names)
                self._take(kind, f"{CONFIGURATION}: PEM, as Python's clients read it")
                if self._has(password):
                    take(password, password)
                continue
            for key in (location, kind, f"ssl.{store}.password", password):
                if self._has(key):
                    self._leave(key, _PEM.format(" and ".join(names)))


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{k}: {v}" for k, v in value.items())
    return f"{value:.15g}" if isinstance(value, float) else str(value)


_OTHER_KEYS = (
    "bootstrap.servers",
    "request.timeout.ms",
    "metric.sampler.class",
    "metric.reporter.topic",
    "capacity.config.file",
    "broker.capacity.config.resolver.class",
    "broker.set.config.file",
    "default.goals",
    "hard.goals",
    "intra.broker.goals",
    "anomaly.detection.goals",
    "self.healing.goals",
    "self.healing.enabled",
    "anomaly.notifier.class",
    "metric.anomaly.finder.class",
    "topic.anomaly.finder.class",
    _EXCLUDED,
    "default.replica.movement.strategies",
    _FACTOR,
    _UNCHECKED,
    _MULTIPLIER,
    *_CLUSTER_LIMITS,
    *_USABLE,
    "sasl.jaas.config",
    *(k for likes in EQUIVALENTS.values() for like in likes for k in like.fields.values()),
)
