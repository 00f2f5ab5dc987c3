"""Detects slow brokers by their own history, their peers, and a floor."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from balancer.controller.finding import Finding, FirstSeen, View, listed, living, replicas_on
from balancer.controller.settings import SlowBrokers
from balancer.problem.operation import Operation
from cluster_model.snapshot import Snapshot
from metrics_reporter.quantities import rounded


class SlowBrokerDetector:
    """Finds slow brokers and takes leadership from them: those in :attr:`demoted`.

    Cruise Control's SlowBrokerFinder, except for the history: rounds in which a broker is
    slow are left out of it, or a long slowness would become its own reference.
    """

    def __init__(self, settings: SlowBrokers) -> None:
        self.settings = settings
        self._past: dict[tuple[str, int], deque[float]] = {}
        self._score: dict[int, int] = {}
        self._demoted: set[int] = set()
        self._seen = FirstSeen()

    @property
    def demoted(self) -> frozenset[int]:
        """Ids of brokers whose score reached the limit and has not been 0 since."""
        return frozenset(self._demoted)

    @property
    def scores(self) -> dict[int, int]:
        """Score by broker id, for scores above 0."""
        return dict(self._score)

    def look(self, view: View) -> list[Finding]:
        """One finding for the brokers that are slow enough to demote, one to remove."""
        s, requested = view.snapshot, self.settings
        ids = s.broker_ids[living(s)].tolist()
        # How busy a broker is belongs to the judgement of its times.
        signals = view.signals if view.incomplete is None else {}
        slow = self._slow(s, signals, ids)
        measured = {b for name in requested.signals for b in signals.get(name, {})}
        self._count(ids, measured, set(slow))
        ranked = {b: n for b, n in self._score.items() if n >= requested.demote_score}
        since = self._seen.update([*self._score], view.now)
        allowed = max(1, int(requested.max_share * len(ids)))
        if len(ranked) > allowed:
            return [self._too_many(ranked, len(ids), allowed, min(since[b] for b in ranked))]
        self._demoted = {b for b in self._demoted | ranked.keys() if b in self._score}
        findings = []
        removable = [
            b for b in ranked if requested.remove and self._score[b] >= requested.remove_score
        ]
        for broker in sorted(self._demoted):
            removing = broker in removable
            kind = "remove_brokers" if removing else "demote_brokers"
            open_work = bool(
                replicas_on(s)[s.broker_index([broker])[0]] if removing else _leads(s, broker)
            )
            because = slow.get(broker, "it was slow and is not yet steady again")
            findings.append(
                Finding(
                    kind="slow_brokers",
                    subject=f"broker {broker}",
                    sentence=f"broker {broker} is slow (score {self._score[broker]}): {because}",
                    state="ripe" if open_work else "notice",
                    since=since[broker],
                    operation=Operation(kind=kind, brokers=(broker,)),
                    data={"broker": broker, "score": self._score[broker]},
                )
            )
        return findings

    def _too_many(self, ranked: dict[int, int], of: int, allowed: int, since: float) -> Finding:
        return Finding(
            kind="slow_brokers",
            subject=listed(sorted(ranked), "broker"),
            sentence=f"{listed(sorted(ranked), 'broker')} are slow, {len(ranked)} of {of}; at most "
            f"{allowed} would be demoted: a cause that they share is more likely",
            state="unfixable",
            since=since,
            data={"scores": {str(b): n for b, n in ranked.items()}},
        )

    def _slow(
        self, s: Snapshot, signals: Mapping[str, Mapping[int, float]], ids: list[int]
    ) -> dict[int, str]:
        """Broker id to what is slow about it in this round; its normal values are recorded."""
        requested = self.settings
        busy = _bytes_in(s)
        slow: dict[int, str] = {}
        for name, floor in requested.signals.items():
            now = {b: v for b, v in signals.get(name, {}).items() if b in ids}
            for broker, value in now.items():
                past = self._past.get((name, broker), deque())
                if past.maxlen != requested.history:
                    past = deque(past, maxlen=requested.history)
                self._past[name, broker] = past
                # Most brokers are below the floor, and percentiles of all others are expensive.
                if not (value > floor and busy.get(broker, np.inf) >= requested.min_bytes_in):
                    past.append(value)
                    continue
                peers = [v for b, v in now.items() if b != broker]
                own = (
                    float(np.percentile(past, requested.history_percentile))
                    if len(past) >= requested.min_history
                    else None
                )
                beside = float(np.percentile(peers, requested.peer_percentile)) if peers else np.inf
                if (
                    own is not None
                    and value > requested.history_factor * own
                    and value > requested.peer_factor * beside
                ):
                    slow[broker] = (
                        f"{name} is {rounded(value)}, usually at most {rounded(own)}, "
                        f"{rounded(beside)} at its peers, and {rounded(floor)} is the floor"
                    )
                else:
                    past.append(value)
        return slow

    def _count(self, ids: list[int], measured: set[int], slow: set[int]) -> None:
        self._score = {b: n for b, n in self._score.items() if b in ids}
        for broker in measured & {*ids}:
            score = self._score.get(broker, 0) + (1 if broker in slow else -1)
            # The score is capped at twice the limit, so that it falls as fast as it rose.
            most = (
                self.settings.remove_score if self.settings.remove else self.settings.demote_score
            )
            if score > 0:
                self._score[broker] = min(score, 2 * most)
            else:
                self._score.pop(broker, None)


def _leads(snapshot: Snapshot, broker: int) -> bool:
    index = int(snapshot.broker_index([broker])[0])
    return bool((snapshot.replica_broker[snapshot.replica_is_leader] == index).any())


def _bytes_in(snapshot: Snapshot) -> dict[int, float]:
    if "network_in" not in snapshot.resources:
        return {}
    load = snapshot.broker_load()[:, snapshot.resource("network_in")]
    return dict(zip(snapshot.broker_ids.tolist(), load.tolist(), strict=True))
