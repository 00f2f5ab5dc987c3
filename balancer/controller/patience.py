"""What keeps the controller from doing a thing now: grace, cool-downs, doubt."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from balancer.controller.balance import even_sentence
from balancer.controller.decision import Kind
from balancer.controller.finding import Finding, View, living, span
from balancer.controller.settings import Detector, GoalViolations
from cluster_model.snapshot import Snapshot
from metrics_reporter.quantities import plural

# Leaders of a few partitions change all the time; what they carry is less than noise.
_CHANGED = 0.005
# These look at loads, or would be undone by healing.
_AFTER_HEALING = ("missing_replicas", "drained_brokers", "goal_violations")


class Patience:
    """Remembers what was tried, what was moved, and when loads can be judged again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved: dict[str, float] = {}
        self._changed_at = float("-inf")
        self._placement: Snapshot | None = None
        # Detector -> when it last tried, what for (None: anything), and what came of it.
        self._tried: dict[str, tuple[float, frozenset[str] | None, str]] = {}
        # Kind and subject of what the last try could not mend.
        self._hopeless: set[tuple[str, str]] = set()
        # Detectors whose last plan was cut -> share of the cluster's bytes copied since.
        self._unfinished: dict[str, float] = {}
        self._stall = Stall()

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
        if anything:
            self._stall.acted()
        else:
            self.finished(findings[0].kind)
        if helped:
            self._hopeless -= {(f.kind, f.subject) for f in findings}
        else:
            self.gave_up(findings)

    def gave_up(self, findings: Iterable[Finding]) -> None:
        """Remember what could not be mended: others do not wait for it."""
        self._hopeless |= {(f.kind, f.subject) for f in findings}

    def go_on(self, kind: str, copied: float) -> None:
        """Let a detector go on at once with what it had to leave.

        Parameters
        ----------
        kind
            The detector.
        copied
            Share of the cluster's bytes that it has copied now. It may go on until it has
            copied as much as there is.
        """
        self._unfinished[kind] = self._unfinished.get(kind, 0.0) + copied

    def finished(self, kind: str) -> None:
        """Note that a detector has done what it meant to do."""
        self._unfinished.pop(kind, None)

    def settled(self) -> None:
        """Note that goals are met, or nearly: what falls short next is something new."""
        self._stall = Stall()

    def moved(self, partitions: Iterable[str], now: float) -> None:
        """Remember what an execution touched."""
        with self._lock:
            self._moved |= dict.fromkeys(partitions, now)
            self._changed_at = now
        # What the next round sees is the new start, no change by others.
        self._placement = None

    def saw(self, snapshot: Snapshot, now: float) -> None:
        """Note whether replicas or leaders were moved since the last round, by whomever."""
        before, self._placement = self._placement, snapshot
        if before is not None and changed_share(before, snapshot) > _CHANGED:
            with self._lock:
                self._changed_at = max(self._changed_at, now)

    def cooling(self, now: float, cooldown: float) -> set[str]:
        """Names of partitions that were moved not long ago."""
        with self._lock:
            self._moved = {p: t for p, t in self._moved.items() if now - t < cooldown}
            return set(self._moved)

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
        if isinstance(detector, GoalViolations):
            self._stall.saw(finding, detector, unfinished=self._goes_on(finding))
        return self._cooldown(finding, detector, view.now)

    def _cooldown(
        self, finding: Finding, detector: Detector, now: float
    ) -> tuple[Kind, str] | None:
        tried = self._tried.get(finding.kind)
        if tried is None:
            return None
        at, about, came = tried
        covered = about is None or _about(finding) <= about
        said = f"{finding.sentence}; {span(now - at)} ago: {came}"
        cooldown = detector.cooldown
        if self._goes_on(finding):
            return None
        if isinstance(detector, GoalViolations) and self._stall.strikes:
            cooldown = self._stall.cooldown(detector)
            said += (
                f"; {plural(self._stall.strikes, 'rebalance')} in a row brought the goals no "
                f"nearer, so the next waits for {span(cooldown - (now - at))}, or until it gets "
                "worse"
            )
        if not covered or now - at >= cooldown:
            return None
        return "cooling", said

    def _goes_on(self, finding: Finding) -> bool:
        return self._unfinished.get(finding.kind, 1.0) < 1


class Stall:
    """Counts the rebalances in a row that brought goals no nearer.

    Goals that contradict each other, or loads that do not follow replicas as the model
    supposes, would have data moved for ever. Each rebalance without progress makes the
    cool-down four times as long; progress, or a goal that falls shorter than it did after
    the last rebalance, ends that.

    Attributes
    ----------
    strikes : int
        Rebalances without progress.
    """

    def __init__(self) -> None:
        self.strikes = 0
        self._acted = False
        # Of all looks since goals were last met, each at its best.
        self._best: npt.NDArray[np.float64] | None = None
        # Goal -> by how much its worst item was short when last judged after a rebalance.
        self._short: dict[str, float] = {}

    def acted(self) -> None:
        """Note that a rebalance has begun."""
        self._acted = True

    def saw(self, finding: Finding, detector: GoalViolations, *, unfinished: bool) -> None:
        """Judge what came of the last rebalance, once loads are measured again.

        One that is `unfinished`, because its plan was cut, cannot be said to have failed.
        """
        goals = finding.data["goals"]
        short = {v["goal"]: float(v["shortfall"]) for v in goals}
        noise = {v["goal"]: float(v["noise"]) for v in goals}
        ratios = [float(v) for v in finding.data["evenness"].get("ratios", {}).values()]
        worst = max(short, key=short.__getitem__)
        now = np.array(
            [-short[worst], finding.data["balancedness"] / 100, -max(ratios, default=0.0)]
        )
        best, self._best = self._best, now if self._best is None else np.maximum(self._best, now)
        if best is None:
            self._short, self._acted = short, False
        elif self._acted:
            better = bool((now - best > detector.min_gain + noise[worst]).any())
            self.strikes = 0 if better else self.strikes + (not unfinished)
            self._short, self._acted = short, False
        elif any(
            amount > self._short.get(goal, 0.0) + detector.margin + noise[goal]
            for goal, amount in short.items()
        ):
            self.strikes, self._best, self._short = 0, now, short

    def cooldown(self, detector: GoalViolations) -> float:
        """Seconds after the last rebalance until the next."""
        longest = max(detector.cooldown, detector.longest_cooldown)
        return float(min(detector.cooldown * 4.0 ** min(self.strikes, 60), longest))


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
