"""Runs all detectors together, and prepares snapshot and operation for plans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from balancer.controller.added_detectors import AddedDetectorRunner
from balancer.controller.detect import (
    DeadBrokerDetector,
    DeadDiskDetector,
    DistrustedReporterDetector,
    DrainedBrokerDetector,
    MissingReplicasDetector,
    StaleMetricsDetector,
    with_state,
)
from balancer.controller.finding import Detector, Finding, View
from balancer.controller.lost_partitions import (
    LostPartitionDetector,
    lost_partitions,
    offline_replicas,
    partition_names,
)
from balancer.controller.settings import DetectorSettings, Settings
from balancer.controller.slow_brokers import SlowBrokerDetector
from balancer.controller.unmatched_settings import UnmatchedSettingDetector
from balancer.controller.violations import GoalViolationDetector
from balancer.problem.operation import Operation
from balancer.problem.operations import type_of
from cluster_model.errors import InputError
from cluster_model.snapshot import BrokerState, Snapshot
from cluster_model.trust import frozen_partitions
from goals import Goal

HEALING = ("dead_brokers", "dead_disks")
_DETECTORS: dict[str, Callable[[Any], Detector]] = {
    "dead_brokers": DeadBrokerDetector,
    "dead_disks": DeadDiskDetector,
    "missing_replicas": MissingReplicasDetector,
    "drained_brokers": DrainedBrokerDetector,
    "slow_brokers": SlowBrokerDetector,
    "stale_metrics": StaleMetricsDetector,
    "distrusted_reporters": DistrustedReporterDetector,
}

log = logging.getLogger("counterpoise.controller")


class Detectors:
    """The detectors of a controller.

    Attributes
    ----------
    settings
        The current settings.
    goals
        The detector of unmet goals, whose memory other parts read.
    troubles
        Why detectors failed at the last look, one sentence each.
    """

    def __init__(self, settings: Settings, goals: Sequence[Goal], *, strict: bool = False) -> None:
        self.settings = settings
        self.troubles: list[str] = []
        self._goal_list, self._strict = list(goals), strict
        self.goals = GoalViolationDetector(settings.goal_violations, goals, strict=strict)
        self._simple: dict[str, Detector] = {
            name: made(getattr(settings, name)) for name, made in _DETECTORS.items()
        }
        self._added: dict[str, AddedDetectorRunner] = {}
        self._failing: set[str] = set()
        self._add(settings)
        self._lost = LostPartitionDetector(settings.dead_brokers)
        self._unmatched = UnmatchedSettingDetector(settings)

    def configure(self, settings: Settings) -> None:
        """Use other settings; detectors keep what they remember while they are enabled."""
        self.settings = settings
        self._lost.settings = settings.dead_brokers
        self._unmatched.settings = settings
        self.goals.settings = settings.goal_violations
        if not settings.goal_violations.enabled:
            self.goals = GoalViolationDetector(
                settings.goal_violations, self._goal_list, strict=self._strict
            )
        for name, detector in self._simple.items():
            detector.settings = getattr(settings, name)
            if not detector.settings.enabled:
                # A grace period does not run while the detector is off.
                self._simple[name] = _DETECTORS[name](detector.settings)
        self._add(settings)

    def _add(self, settings: Settings) -> None:
        """Keep the detectors of other packages that stay enabled with the same options."""
        before, self._added = self._added, {}
        for name, requested in settings.detectors.items():
            detector = before.get(name)
            if not requested.enabled:
                continue
            if detector is None or detector.settings.options != requested.options:
                detector = AddedDetectorRunner(name, requested)
            detector.settings = requested
            self._added[name] = detector

    @property
    def failures(self) -> dict[str, int]:
        """Looks without an answer, by detector of another package."""
        return {name: detector.failures for name, detector in self._added.items()}

    @property
    def slow(self) -> SlowBrokerDetector:
        """The detector of slow brokers."""
        detector = self._simple["slow_brokers"]
        assert isinstance(detector, SlowBrokerDetector)
        return detector

    @property
    def demoted(self) -> frozenset[int]:
        """Ids of slow brokers that lead nothing and receive nothing."""
        return self.slow.demoted if self.settings.slow_brokers.act else frozenset()

    def settings_of(self, kind: str) -> DetectorSettings:
        """The settings of a detector."""
        added = self.settings.detectors.get(kind)
        detector: DetectorSettings = getattr(self.settings, kind) if added is None else added
        return detector

    def find(self, view: View, cooling: Iterable[str]) -> tuple[Finding, ...]:
        """The findings of all detectors; a rebalance leaves the `cooling` partitions alone."""
        found: list[Finding] = []
        self.troubles = []
        for name, detector in self._simple.items():
            if self.settings_of(name).enabled:
                found += self._looked(name, partial(detector.look, view))
        found += self._looked("lost_partitions", partial(self._lost.look, view))
        found += self._looked("unmatched_settings", partial(self._unmatched.look, view))
        for name, added in self._added.items():
            found += self._looked(name, partial(added.look, view))
        # A broker that reports nothing at all is reported once.
        stale = _reported_as(found, "stale_metrics")
        found = [
            f for f in found if f.kind != "distrusted_reporters" or f.data["broker"] not in stale
        ]
        if self.settings.goal_violations.enabled:
            known = replace(view, snapshot=self.as_known(view.snapshot))
            operation = self._rebalance(view, found, cooling)
            found += self._looked("goal_violations", partial(self.goals.look, known, operation))
        return tuple(found)

    def _looked(self, name: str, look: Callable[[], list[Finding]]) -> list[Finding]:
        """The findings of a detector; a failing one must not keep the others from healing."""
        try:
            found = look()
        except Exception as error:
            said = (
                str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            )
            self.troubles.append(f"{name} cannot be judged: {said}")
            # It would be logged in each round otherwise.
            level = logging.DEBUG if name in self._failing else logging.WARNING
            self._failing.add(name)
            self._log(self.troubles[-1], level)
            return []
        self._failing.discard(name)
        return found

    def _log(self, trouble: str, level: int) -> None:
        log.log(level, "%s", trouble, exc_info=level == logging.DEBUG)

    def as_known(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with slow brokers marked as demoted."""
        alive = snapshot.broker_ids[snapshot.broker_state == BrokerState.ALIVE].tolist()
        slow = self.demoted & {*alive}
        if not slow:
            return snapshot
        return replace(snapshot, broker_state=with_state(snapshot, slow, BrokerState.DEMOTED))

    def resolved(
        self,
        view: View,
        finding: Finding,
        findings: Iterable[Finding],
        *,
        cooling: Iterable[str] = (),
        last_resort: Collection[int] = (),
    ) -> tuple[Snapshot, Operation]:
        """The snapshot and the operation that a plan for the finding starts from.

        `cooling` names partitions that moved recently, which a finding of another package's
        detector leaves alone. `last_resort` names drained brokers that may receive replicas after
        all, for healing.
        """
        snapshot, operation = self.as_known(view.snapshot), finding.operation
        assert operation is not None
        if finding.kind == "goal_violations":
            return snapshot, operation
        if finding.added:
            return snapshot, self._within_limits(view, findings, operation, cooling)
        healing = finding.kind in HEALING
        if not healing:
            barred = self._barred(view, findings)
        else:
            # Replicas at risk go to any living broker, including slow ones; they need no loads.
            barred = set(self.drained(view) - {*last_resort})
            # Brokers and disks in their grace period may come back: their replicas stay, none come.
            waiting = [f for f in findings if f.kind in HEALING and f.state != "ripe"]
            away = {f.data["broker"] for f in waiting if f.kind == "dead_brokers"}
            lost = [(f.data["broker"], f.data["disk"]) for f in waiting if f.kind == "dead_disks"]
            states = with_state(snapshot, away, BrokerState.DEMOTED)
            snapshot = _with_disks(replace(snapshot, broker_state=states), lost)
            barred |= away
        excluded = self.settings.excluded_topics
        return snapshot, operation.model_copy(
            update={
                "frozen_partitions": self._frozen(view.snapshot, operation),
                "excluded_brokers_for_replicas": tuple(sorted(barred - {*operation.brokers})),
                "excluded_topics": ()
                if type_of(operation).changes_replication_factor
                else excluded,
                # what the settings name may come and go: that is a finding, and stops nothing
                "allow_unmatched": True,
            }
        )

    def _within_limits(
        self, view: View, findings: Iterable[Finding], asked: Operation, cooling: Iterable[str]
    ) -> Operation:
        """What another package's detector requests, restricted to the limits of a rebalance.

        Partitions that can be healed stay, too: healing has its own grace period.
        """
        limits = self._rebalance(view, findings, cooling)
        barred = {*limits.excluded_brokers_for_replicas}
        if not type_of(asked).named_receive:
            barred -= {*asked.brokers}
        both = (asked.destinations, limits.destinations)
        stated = [d for d in both if d is not None]
        destinations = tuple(b for b in stated[0] if b in stated[-1]) if stated else None
        return asked.model_copy(
            update={
                "excluded_topics": _union(asked.excluded_topics, limits.excluded_topics),
                "allow_unmatched": True,
                "excluded_partitions": _union(
                    asked.excluded_partitions, limits.excluded_partitions
                ),
                "frozen_partitions": _union(asked.frozen_partitions, limits.frozen_partitions),
                "excluded_brokers_for_replicas": _union(
                    asked.excluded_brokers_for_replicas, barred
                ),
                "excluded_brokers_for_leadership": _union(
                    asked.excluded_brokers_for_leadership, limits.excluded_brokers_for_leadership
                ),
                "destinations": destinations,
            }
        )

    def _rebalance(
        self, view: View, findings: Iterable[Finding], cooling: Iterable[str]
    ) -> Operation:
        ids = view.snapshot.broker_ids.tolist()
        # The targets of other brokers must not change because a reporter fails: such a broker
        # keeps its fair share, and only receives nothing.
        silent, unknown, doubted = frozenset[int](), frozenset[str](), frozenset[int]()
        if view.incomplete is None:
            silent = _reported_as(findings, "stale_metrics") | view.distrust.brokers
            # Nothing is planned on unknown loads, not even to fix a hard goal.
            unknown = view.distrust.unknown | frozen_partitions(view.snapshot, silent)
            doubted = silent.union(d.broker for d in view.distrust.doubts)
        frozen = unknown.union(self._frozen(view.snapshot, Operation()))
        return Operation(
            excluded_topics=self.settings.excluded_topics,
            allow_unmatched=True,
            excluded_partitions=tuple(sorted(cooling)),
            frozen_partitions=tuple(sorted(frozen)),
            excluded_brokers_for_replicas=tuple(sorted(self._barred(view, ()))),
            destinations=tuple(b for b in ids if b not in doubted) if doubted else None,
            excluded_brokers_for_leadership=tuple(sorted(self.drained(view))),
        )

    def _barred(self, view: View, findings: Iterable[Finding]) -> set[int]:
        """Brokers that receive nothing: slow, stale, distrusted or to be emptied."""
        barred = self.demoted
        if view.incomplete is None:
            barred |= _reported_as(findings, "stale_metrics", "distrusted_reporters")
        return {*self.drained(view)} | (barred & {*view.snapshot.broker_ids.tolist()})

    def drained(self, view: View) -> frozenset[int]:
        """Ids of brokers in the cluster that are to be empty."""
        drained = self.settings.drained_brokers
        named = frozenset(drained.brokers if drained.enabled else ())
        return named & {*view.snapshot.broker_ids.tolist()}

    def _frozen(self, snapshot: Snapshot, operation: Operation) -> tuple[str, ...]:
        """Partitions that an operation leaves alone, regardless of its goals.

        Those include lost partitions. Partitions that can be healed get a separate plan,
        after its grace period and within its limits, not along with another move.
        """
        aside = lost_partitions(snapshot)
        asked = type_of(operation)
        if asked.moves_replicas and not asked.heals:
            s, offline = snapshot, offline_replicas(snapshot)
            aside = aside | (np.bincount(s.replica_partition, offline, s.n_partitions) > 0)
        return partition_names(snapshot, aside)


def _union(*given: Iterable[Any]) -> tuple[Any, ...]:
    """All of them once, in order."""
    return tuple(sorted({each for some in given for each in some}))


def _reported_as(findings: Iterable[Finding], *kinds: str) -> frozenset[int]:
    return frozenset(f.data["broker"] for f in findings if f.kind in kinds)


def _with_disks(snapshot: Snapshot, spared: list[tuple[int, str]]) -> Snapshot:
    """The snapshot with those disks (broker id, path) considered alive."""
    if not spared:
        return snapshot
    ids = snapshot.broker_ids[snapshot.disk_broker].tolist()
    named = [pair in spared for pair in zip(ids, snapshot.disk_path, strict=True)]
    return replace(snapshot, disk_alive=snapshot.disk_alive | named)
