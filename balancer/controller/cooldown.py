"""Decides what the controller must not do yet: grace periods, cool-downs, uncertain loads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from balancer.controller.balance import even_sentence
from balancer.controller.decision import DecisionKind
from balancer.controller.finding import Finding, View, span
from balancer.controller.settings import DetectorSettings
from balancer.problem.operations import type_of
from cluster_model.snapshot import Snapshot

# These detectors look at loads, or healing would undo their plans.
_AFTER_HEALING = ("missing_replicas", "drained_brokers", "goal_violations")


class Cooldown:
    """Remembers past attempts and moves, and when loads can be judged again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Partition -> when it last moved, and how many times it moved without resting in between.
        self._moved: dict[str, tuple[float, int]] = {}
        self._changed_at = float("-inf")
        self._placement: Snapshot | None = None
        # Detector -> when it last tried, what for (None: anything), and the result.
        self._tried: dict[str, tuple[float, frozenset[str] | None, str]] = {}
        # Kind and subject of findings that the last attempt could not fix.
        self._hopeless: set[tuple[str, str]] = set()

    def tried(
        self,
        findings: Sequence[Finding],
        now: float,
        came: str,
        *,
        anything: bool = False,
        helped: bool = True,
    ) -> None:
        """Remember an attempt for findings of one detector.

        Parameters
        ----------
        findings, now
            The findings, and when.
        came
            The result, as text.
        anything
            Whether the cool-down applies to everything the detector finds, rather than only to
            the same findings.
        helped
            Whether a plan could do anything; if not, other findings do not wait for these.
        """
        about = frozenset[str]().union(*map(_about, findings))
        self._tried[findings[0].kind] = (now, None if anything else about, came)
        if helped:
            self._hopeless -= {(f.kind, f.subject) for f in findings}
        else:
            self.gave_up(findings)

    def gave_up(self, findings: Iterable[Finding]) -> None:
        """Remember findings that could not be fixed: others do not wait for them."""
        self._hopeless |= {(f.kind, f.subject) for f in findings}

    def forget(self, kind: str) -> None:
        """End the cool-down of a detector, so that it can finish its work."""
        self._tried.pop(kind, None)

    def moved(self, partitions: Iterable[str], now: float) -> None:
        """Remember the partitions that an execution touched."""
        with self._lock:
            times = {p: self._moved.get(p, (now, 0))[1] + 1 for p in partitions}
            self._moved |= {p: (now, n) for p, n in times.items()}
            self._changed_at = now
        # The placement of the next round is the new baseline, not a change by others.
        self._placement = None

    def saw(self, snapshot: Snapshot, now: float, changed: float) -> None:
        """Note whether replicas or leaders have moved since the last round, for any reason.

        Parameters
        ----------
        snapshot, now
            The cluster, and the current time in seconds.
        changed
            Share of the partitions whose changes are below the noise of loads.
        """
        before, self._placement = self._placement, snapshot
        if before is not None and changed_share(before, snapshot) > changed:
            with self._lock:
                self._changed_at = max(self._changed_at, now)

    def cooling(self, now: float, cooldown: float, longest: float, growth: float) -> set[str]:
        """Names of partitions that moved recently.

        Goals that contradict each other, or loads that do not follow replicas as the model
        assumes, would move the same data over and over. So each time a partition moves again,
        it rests longer than before.

        Parameters
        ----------
        now
            Current time in seconds.
        cooldown
            Seconds that a partition rests after its first move.
        longest
            Longest rest in seconds, after which its moves are forgotten.
        growth
            Factor by which each further rest is longer.
        """
        longest = max(cooldown, longest)
        with self._lock:
            self._moved = {p: m for p, m in self._moved.items() if now - m[0] < longest}
            return {
                p
                for p, (at, times) in self._moved.items()
                if now - at < min(cooldown * growth ** min(times - 1, 60), longest)
            }

    def reason_not_to_act(
        self,
        view: View,
        finding: Finding,
        findings: Sequence[Finding],
        detector: DetectorSettings,
        evenness: dict[str, Any],
        settle: float,
    ) -> tuple[DecisionKind, str] | None:
        """Why nothing is done about a finding now; None if a plan should be made."""
        said = finding.sentence
        if finding.state in ("unfixable", "waiting"):
            return ("unfixable" if finding.state == "unfixable" else "waiting"), said
        if finding.state == "notice" or finding.operation is None:
            if finding.kind == "goal_violations":
                return "trivial", f"{said}; {even_sentence(evenness)}"
            return "reported", said
        if not detector.act:
            return "reported", f"{said}; this detector only reports"
        there = {(f.kind, f.subject) for f in findings}
        self._hopeless &= there
        dead = [
            f
            for f in findings
            if f.holds and f is not finding and (f.kind, f.subject) not in self._hopeless
        ]
        # A detector of another package gets no exception.
        # While loads are not known, a finding on goals is on those that need none.
        judged = (finding.kind == "goal_violations" and view.incomplete is None) or finding.added
        if (finding.kind in _AFTER_HEALING or finding.added) and dead:
            return "waiting", f"{said}; that waits because of {dead[0].subject}"
        moves = finding.kind == "slow_brokers" and type_of(finding.operation).moves_replicas
        if judged or moves:
            stale = [f for f in findings if f.kind == "stale_metrics"]
            # The replicas of a few stale brokers stay; the others can be balanced without them.
            if stale and moves:
                return "stale", f"{said}; it is not emptied now, because {stale_sentence(stale)}"
            if view.incomplete is not None:
                return "waiting", view.incomplete
        since = view.now if view.since is None else view.since
        early = max(self._changed_at - since, self._changed_at + settle - view.now)
        if judged and early > 0:
            return "cooling", (
                f"{said}; loads are judged again in {span(early)}, so that all of them are "
                "measured after replicas or leaders last moved"
            )
        return self._cooldown(finding, detector, view.now)

    def _cooldown(
        self, finding: Finding, detector: DetectorSettings, now: float
    ) -> tuple[DecisionKind, str] | None:
        tried = self._tried.get(finding.kind)
        if tried is None:
            return None
        at, about, came = tried
        covered = about is None or _about(finding) <= about
        if not covered or now - at >= detector.cooldown:
            return None
        return "cooling", f"{finding.sentence}; {span(now - at)} ago: {came}"


def changed_share(before: Snapshot, after: Snapshot) -> float:
    """Share of partitions with other replicas or another leader; 0 if topics changed.

    Topics come and go in a busy cluster; that alone must not delay judgement.
    """
    same = before.topics == after.topics and all(
        np.array_equal(getattr(before, name), getattr(after, name))
        for name in ("broker_ids", "partition_topic", "partition_number")
    )
    if not same or not before.n_partitions:
        return 0.0
    changed = before.leader != after.leader
    if np.array_equal(before.replica_offset, after.replica_offset):
        other = before.replica_broker != after.replica_broker
        changed[before.replica_partition[other]] = True
    else:
        changed |= before.replication_factor != after.replication_factor
    return float(changed.mean())


def stale_sentence(stale: Sequence[Finding]) -> str:
    """A phrase on the brokers whose metrics are stale."""
    more = f" (and {len(stale) - 1} more)" if len(stale) > 1 else ""
    return stale[0].sentence + more


def _about(finding: Finding) -> frozenset[str]:
    """The subjects of a finding, to detect whether it now covers more than the last time."""
    ripe = None if finding.added else finding.data.get("ripe")
    return frozenset(ripe) if ripe else frozenset([finding.subject])
