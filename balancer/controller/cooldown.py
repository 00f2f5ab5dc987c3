"""What keeps the controller from doing a thing now: grace, cool-downs, doubt."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from balancer.controller.balance import even_sentence
from balancer.controller.decision import Kind
from balancer.controller.finding import Finding, View, living, span
from balancer.controller.settings import Detector
from cluster_model.snapshot import Snapshot

# Leaders of a few partitions change all the time; what they carry is less than noise.
_CHANGED = 0.005
# These look at loads, or would be undone by healing.
_AFTER_HEALING = ("missing_replicas", "drained_brokers", "goal_violations")


class Cooldown:
    """Remembers what was tried, what was moved, and when loads can be judged again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Partition -> when it was moved last, and how many times it was moved before it had rested.
        self._moved: dict[str, tuple[float, int]] = {}
        self._changed_at = float("-inf")
        self._placement: Snapshot | None = None
        # Detector -> when it last tried, what for (None: anything), and what came of it.
        self._tried: dict[str, tuple[float, frozenset[str] | None, str]] = {}
        # Kind and subject of what the last try could not mend.
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
        """Remember a try for findings of one detector.

        Parameters
        ----------
        findings, now
            For what, and when.
        came
            What came of it, for people.
        anything
            Whether the cool-down holds back whatever the detector finds, rather than the
            same again.
        helped
            Whether a plan could do anything; others do not wait for what none helps.
        """
        about = frozenset[str]().union(*map(_about, findings))
        self._tried[findings[0].kind] = (now, None if anything else about, came)
        if helped:
            self._hopeless -= {(f.kind, f.subject) for f in findings}
        else:
            self.gave_up(findings)

    def gave_up(self, findings: Iterable[Finding]) -> None:
        """Remember what could not be mended: others do not wait for it."""
        self._hopeless |= {(f.kind, f.subject) for f in findings}

    def forget(self, kind: str) -> None:
        """Let a detector go on at once with what it had to leave."""
        self._tried.pop(kind, None)

    def moved(self, partitions: Iterable[str], now: float) -> None:
        """Remember what an execution touched."""
        with self._lock:
            times = {p: self._moved.get(p, (now, 0))[1] + 1 for p in partitions}
            self._moved |= {p: (now, n) for p, n in times.items()}
            self._changed_at = now
        # What the next round sees is the new start, no change by others.
        self._placement = None

    def saw(self, snapshot: Snapshot, now: float) -> None:
        """Note whether replicas or leaders were moved since the last round, by whomever."""
        before, self._placement = self._placement, snapshot
        if before is not None and changed_share(before, snapshot) > _CHANGED:
            with self._lock:
                self._changed_at = max(self._changed_at, now)

    def cooling(self, now: float, cooldown: float, longest: float) -> set[str]:
        """Names of partitions that were moved not long ago.

        Goals that contradict each other, or loads that do not follow replicas as the model
        supposes, would have the same data moved again and again. So each time a partition
        is moved again it rests four times as long as before.

        Parameters
        ----------
        now
            Seconds.
        cooldown
            How long a partition rests that was moved once.
        longest
            How long it rests at most, and after how long its moves are forgotten.
        """
        longest = max(cooldown, longest)
        with self._lock:
            self._moved = {p: m for p, m in self._moved.items() if now - m[0] < longest}
            return {
                p
                for p, (at, times) in self._moved.items()
                if now - at < min(cooldown * 4.0 ** min(times - 1, 60), longest)
            }

    def obstacle(
        self,
        view: View,
        finding: Finding,
        findings: Sequence[Finding],
        detector: Detector,
        evenness: dict[str, Any],
        settle: float,
    ) -> tuple[Kind, str] | None:
        """Why nothing is done about a finding now; None if a plan is to be made."""
        said = finding.sentence
        if finding.state in ("unfixable", "waiting"):
            return ("unfixable" if finding.state == "unfixable" else "waiting"), said
        if finding.state == "notice" or finding.operation is None:
            if finding.kind == "goal_violations":
                return "trivial", f"{said}; {even_sentence(evenness)}"
            return "told", said
        if not detector.act:
            return "told", f"{said}; this detector is set to tell only"
        there = {(f.kind, f.subject) for f in findings}
        self._hopeless &= there
        dead = [f for f in findings if f.holds and (f.kind, f.subject) not in self._hopeless]
        if finding.kind in _AFTER_HEALING and dead:
            return "waiting", f"{said}; that waits, because {dead[0].sentence}"
        removes = finding.kind == "slow_brokers" and finding.operation.kind == "remove_brokers"
        if finding.kind == "goal_violations" or removes:
            stale = [f for f in findings if f.kind == "stale_metrics"]
            # What a few of them hold stays; the others can be balanced without them.
            if stale and removes:
                return "stale", f"{said}; it is not emptied now, because {stale_sentence(stale)}"
            if 2 * len(stale) > (count := int(living(view.snapshot).sum())):
                return "stale", (
                    f"{said}; nothing is rebalanced, because the metrics of {len(stale)} of "
                    f"{count} brokers are stale: {stale_sentence(stale)}"
                )
            if view.incomplete is not None:
                return "waiting", view.incomplete
        since = view.now if view.since is None else view.since
        early = max(self._changed_at - since, self._changed_at + settle - view.now)
        if finding.kind == "goal_violations" and early > 0:
            return "cooling", (
                f"{said}; loads are judged again in {span(early)}, so that all of them are "
                "measured after replicas or leaders last moved"
            )
        return self._cooldown(finding, detector, view.now)

    def _cooldown(
        self, finding: Finding, detector: Detector, now: float
    ) -> tuple[Kind, str] | None:
        tried = self._tried.get(finding.kind)
        if tried is None:
            return None
        at, about, came = tried
        covered = about is None or _about(finding) <= about
        if not covered or now - at >= detector.cooldown:
            return None
        return "cooling", f"{finding.sentence}; {span(now - at)} ago: {came}"


def changed_share(before: Snapshot, after: Snapshot) -> float:
    """Share of partitions with other replicas or another leader; 0 where topics changed.

    Topics come and go in a busy cluster; that alone must not hold judgement up.
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
    """Whose metrics are stale."""
    more = f" (and {len(stale) - 1} more)" if len(stale) > 1 else ""
    return stale[0].sentence + more


def _about(finding: Finding) -> frozenset[str]:
    """What a finding is about, to know whether it is about more than the last time."""
    ripe = finding.data.get("ripe")
    return frozenset(ripe) if ripe else frozenset([finding.subject])
