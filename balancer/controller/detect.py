"""Detectors that read placement and metadata: dead, missing, stale or drained brokers and disks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from balancer.controller.finding import (
    Finding,
    FirstSeen,
    Streak,
    View,
    listed,
    living,
    replicas_on,
    span,
)
from balancer.controller.lost_partitions import healable
from balancer.controller.settings import (
    DeadBrokers,
    DeadDisks,
    DistrustedReporters,
    DrainedBrokers,
    MissingReplicas,
    StaleMetrics,
)
from balancer.problem.operation import Operation
from cluster_model.errors import InputError
from cluster_model.snapshot import Bools, BrokerState, Ints, Snapshot
from cluster_model.trust import Doubt
from goals.patterns import matching
from metrics_reporter.quantities import plural

_BY_A_PERSON = "healing it is left to a person"


class StaleMetricsError(InputError):
    """Metrics that are too old to tell the loads."""


class DeadBrokerDetector:
    """Dead brokers with replicas: reported after one grace period, healed after another."""

    def __init__(self, settings: DeadBrokers) -> None:
        self.settings = settings
        self._seen = FirstSeen()

    def look(self, view: View) -> list[Finding]:
        """One finding for each dead broker."""
        s, requested = view.snapshot, self.settings
        held = replicas_on(s)
        dead = np.flatnonzero(~living(s) & (held > 0))
        ids = s.broker_ids[dead].tolist()
        since = self._seen.update(ids, view.now)
        allowed = min(requested.max_failed, int(requested.max_share * s.n_brokers))
        heals, _ = healable(s)
        findings = []
        for broker, replicas, mendable in zip(
            ids, held[dead].tolist(), heals[dead].tolist(), strict=True
        ):
            gone = view.now - since[broker]
            early = gone < requested.heal_after
            holds = plural(replicas, "replica")
            said = f"broker {broker} has been dead for {span(gone)} and holds {holds}"
            if len(ids) > allowed:
                state, why = (
                    "unfixable",
                    (
                        f"{len(ids)} of {s.n_brokers} brokers are dead, at most {allowed} are "
                        "healed without a person: is it the network, or the view from here?"
                    ),
                )
            elif not mendable:
                state, why = "notice", "none of them has another copy in sync to be healed from"
                if early:
                    state, why = (
                        "waiting",
                        f"{why}; others wait {span(requested.heal_after)} for it",
                    )
            elif early:
                state, why = "waiting", f"it is healed after {span(requested.heal_after)}"
                if not requested.act:
                    why = f"others wait {span(requested.heal_after)} for it; {_BY_A_PERSON}"
            else:
                state, why = "ripe", "its replicas are to be re-created elsewhere"
                if not requested.act:
                    why = f"{_BY_A_PERSON}, and others are balanced without it"
            findings.append(
                Finding(
                    kind="dead_brokers",
                    subject=f"broker {broker}",
                    sentence=f"{said}; {why}",
                    state=state,  # type: ignore[arg-type]
                    since=since[broker],
                    operation=Operation(kind="fix_offline_replicas"),
                    alert=gone >= requested.alert_after or state in ("ripe", "unfixable"),
                    data={
                        "broker": broker,
                        "replicas": replicas,
                        "healable": mendable,
                        "seconds": gone,
                    },
                    # With this many dead, the remaining cluster is not worth balancing.
                    holds=early
                    or (state == "ripe" and requested.act)
                    or len(ids) > int(requested.max_share * s.n_brokers),
                )
            )
        return findings


class DeadDiskDetector:
    """Offline log directories on living brokers."""

    def __init__(self, settings: DeadDisks) -> None:
        self.settings = settings
        self._seen = FirstSeen()

    def look(self, view: View) -> list[Finding]:
        """One finding for each dead disk that held replicas."""
        s = view.snapshot
        if not s.n_disks:
            return []
        placed = s.replica_disk[s.replica_disk >= 0]
        held = np.bincount(placed, minlength=s.n_disks)
        lost = np.flatnonzero(~s.disk_alive & living(s)[s.disk_broker] & (held > 0))
        names = [(s.broker_ids[s.disk_broker[d]].item(), s.disk_path[d]) for d in lost.tolist()]
        since = self._seen.update(names, view.now)
        _, heals = healable(s)
        findings = []
        for (broker, path), replicas, mendable in zip(
            names, held[lost].tolist(), heals[lost].tolist(), strict=True
        ):
            gone = view.now - since[broker, path]
            early = gone < self.settings.heal_after
            state = "waiting" if early else "ripe" if mendable else "notice"
            why = {
                "waiting": f"they are re-created after {span(self.settings.heal_after)}",
                "ripe": "they are to be re-created elsewhere",
                "notice": "none of them has another copy in sync to be healed from",
            }[state]
            if early and not self.settings.act:
                why = f"others wait {span(self.settings.heal_after)} for it; {_BY_A_PERSON}"
            elif state == "ripe" and not self.settings.act:
                why = f"{_BY_A_PERSON}, and others are balanced without it"
            findings.append(
                Finding(
                    kind="dead_disks",
                    subject=f"broker {broker}, {path}",
                    sentence=f"disk {path} of broker {broker} has been offline for {span(gone)} "
                    f"with {plural(replicas, 'replica')}; {why}",
                    state=state,  # type: ignore[arg-type]
                    since=since[broker, path],
                    operation=Operation(kind="fix_offline_replicas"),
                    data={
                        "broker": broker,
                        "disk": path,
                        "replicas": replicas,
                        "healable": mendable,
                        "seconds": gone,
                    },
                    holds=early or (state == "ripe" and self.settings.act),
                )
            )
        return findings


class StaleMetricsDetector:
    """Living brokers with old metrics."""

    def __init__(self, settings: StaleMetrics) -> None:
        self.settings = settings
        self._seen = FirstSeen()

    def look(self, view: View) -> list[Finding]:
        """One finding for each stale broker; nothing is done, and their replicas stay."""
        s = view.snapshot
        stale = stale_brokers(view, self.settings.max_age)
        since = self._seen.update(stale, view.now)
        age = view.staleness or {}
        held = dict(zip(s.broker_ids.tolist(), replicas_on(s).tolist(), strict=True))
        findings = []
        for broker in stale:
            findings.append(
                Finding(
                    kind="stale_metrics",
                    subject=f"broker {broker}",
                    sentence=_age_sentence(broker, age.get(broker), self.settings.max_age),
                    state="notice",
                    since=since[broker],
                    data={"broker": broker, "seconds": age.get(broker), "replicas": held[broker]},
                )
            )
        return findings


class DistrustedReporterDetector:
    """Brokers whose metrics are distrusted: contradicted, or unusual and unconfirmed."""

    def __init__(self, settings: DistrustedReporters) -> None:
        self.settings = settings
        self._seen = FirstSeen()

    def look(self, view: View) -> list[Finding]:
        """One finding for each of them; their replicas stay."""
        doubts = view.distrust.doubts
        since = self._seen.update([d.broker for d in doubts], view.now)
        held = dict(
            zip(view.snapshot.broker_ids.tolist(), replicas_on(view.snapshot).tolist(), strict=True)
        )
        return [
            Finding(
                kind="distrusted_reporters",
                subject=f"broker {d.broker}",
                sentence=f"{d.sentence}; {_consequence(d)}",
                state="notice",
                since=since[d.broker],
                data={
                    "broker": d.broker,
                    "check": d.check,
                    "proven": d.proven,
                    "set_aside": d.set_aside,
                    "replicas": held.get(d.broker, 0),
                },
            )
            for d in doubts
        ]


def _consequence(doubt: Doubt) -> str:
    """The consequence of a doubt, and what a person can do about it."""
    if doubt.proven:
        return "its metrics are ignored, and its replicas are not rebalanced"
    confirm = f"if it is right, confirm the broker with model: {{believed: [{doubt.broker}]}}"
    if doubt.set_aside:
        return (
            "that value is set aside, its other metrics are used, and it is given nothing; "
            f"{confirm}"
        )
    return f"its metrics are ignored, and its replicas are not rebalanced; {confirm}"


def stale_brokers(view: View, max_age: float) -> list[int]:
    """Ids of living brokers whose newest record is too old, or that have none."""
    if not view.staleness:
        # If no broker has reported yet, the feed is at fault and not the brokers.
        return []
    ids = view.snapshot.broker_ids[living(view.snapshot)].tolist()
    return [b for b in ids if view.staleness.get(b, np.inf) > max_age]


def without_stale_metrics(view: View, max_age: float) -> View:
    """The view without trust in brokers that hold replicas and whose metrics are too old.

    Raises
    ------
    StaleMetricsError
        If then most of these brokers are not trusted: the metrics are at fault, and there are no
        loads.
    """
    s, ages = view.snapshot, view.staleness or {}
    holding = {*s.broker_ids[living(s) & (replicas_on(s) > 0)].tolist()}
    stale = [b for b in stale_brokers(view, max_age) if b in holding]
    if not stale:
        return view
    said = [_age_sentence(b, ages.get(b), max_age) for b in stale]
    ignored = len(holding & {*stale, *view.distrust.brokers})
    if 2 * ignored > len(holding):
        more = f" (and {ignored - 1} more)" if ignored > 1 else ""
        untrusted = " or not trusted" if ignored > len(stale) else ""
        raise StaleMetricsError(
            f"the metrics of {ignored} of {plural(len(holding), 'broker')} are stale{untrusted}: "
            f"{said[0]}{more}"
        )
    doubts = tuple(Doubt(b, "missing", text) for b, text in zip(stale, said, strict=True))
    distrust = replace(view.distrust, doubts=view.distrust.doubts + doubts)
    return replace(view, distrust=distrust)


def _age_sentence(broker: int, age: float | None, max_age: float) -> str:
    said = (
        f"broker {broker} has reported no metrics"
        if age is None
        else f"the metrics of broker {broker} are {span(age)} old"
    )
    return f"{said}, at most {span(max_age)} expected"


class MissingReplicasDetector:
    """Partitions with fewer replicas than intended for their topic."""

    def __init__(self, settings: MissingReplicas) -> None:
        self.settings = settings
        self._streak = Streak()
        self._seen = FirstSeen()

    def look(self, view: View) -> list[Finding]:
        """One finding for all partitions with too few replicas."""
        s = view.snapshot
        factor = s.replication_factor
        requested = requested_factor(s, self.settings.topics)
        short = np.flatnonzero((factor < requested[s.partition_topic]) & s.partition_settled)
        topics = [s.topics[t] for t in np.unique(s.partition_topic[short]).tolist()]
        rounds = self._streak.update(topics)
        since = self._seen.update(topics, view.now)
        if not topics:
            return []
        ripe = [t for t in topics if rounds[t] >= self.settings.rounds]
        first = int(short[0])
        name = f"{s.topics[s.partition_topic[first]]}-{s.partition_number[first]}"
        count, many = len(short), len(short) > 1
        return [
            Finding(
                kind="missing_replicas",
                subject=listed(topics, "topic"),
                sentence=f"{plural(count, 'partition')} of {listed(topics, 'topic')} "
                f"{'have' if many else 'has'} fewer replicas than the topic should have, "
                f"for example {name}: {factor[first]} found, "
                f"{requested[s.partition_topic[first]]} expected",
                state="ripe" if ripe else "waiting",
                since=min(since.values()),
                operation=Operation(
                    kind="change_replication_factor",
                    replication_factor={
                        re.escape(t): int(requested[s.topics.index(t)]) for t in ripe or topics
                    },
                ),
                data={"topics": topics, "partitions": count},
            )
        ]


def requested_factor(snapshot: Snapshot, stated: dict[str, int]) -> Ints:
    """(T,) intended number of replicas of each topic's partitions.

    The number stated by the first matching pattern; else the number that more than half of
    the partitions have, because a factor is being changed if they disagree; else 0.
    """
    s = snapshot
    factor = s.replication_factor
    most = int(factor.max(initial=0)) + 1
    votes = np.bincount(s.partition_topic * most + factor, minlength=len(s.topics) * most)
    by_topic = votes.reshape(len(s.topics), most)
    usual = by_topic.argmax(axis=1)
    agreed = 2 * by_topic.max(axis=1, initial=0) > by_topic.sum(axis=1)
    requested: Ints = np.where(agreed, usual, 0).astype(np.int64)
    # Stated numbers only add replicas: only topics below their number count, and shrinking
    # topics is not the controller's task.
    for pattern, number in reversed(stated.items()):
        requested[matching(pattern, s.topics)] = number
    return requested


class DrainedBrokerDetector:
    """Brokers that their operator has marked to be empty but that still hold replicas."""

    def __init__(self, settings: DrainedBrokers) -> None:
        self.settings = settings
        self._seen = FirstSeen()

    def look(self, view: View) -> list[Finding]:
        """One finding for all of them."""
        s = view.snapshot
        held = replicas_on(s)
        requested = np.isin(s.broker_ids, self.settings.brokers) & living(s) & (held > 0)
        ids = s.broker_ids[requested].tolist()
        since = self._seen.update(ids, view.now)
        if not ids:
            return []
        return [
            Finding(
                kind="drained_brokers",
                subject=listed(ids, "broker"),
                sentence=f"{listed(ids, 'broker')} {'are' if len(ids) > 1 else 'is'} to be empty "
                f"and {'hold' if len(ids) > 1 else 'holds'} "
                + plural(int(held[requested].sum()), "replica"),
                state="ripe",
                since=min(since.values()),
                operation=Operation(kind="remove_brokers", brokers=tuple(ids)),
                alert=False,
                data={"brokers": ids, "replicas": int(held[requested].sum())},
            )
        ]


def with_state(snapshot: Snapshot, brokers: Any, state: BrokerState) -> Ints:
    """(B,) broker states, with a new state for some brokers (ids)."""
    changed: Bools = np.isin(snapshot.broker_ids, list(brokers))
    states: Ints = np.where(changed, int(state), snapshot.broker_state).astype(np.int64)
    return states
