"""All detectors together, and the cluster as they know it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from balancer.controller.detect import (
    DeadBrokerWatch,
    DeadDiskWatch,
    DrainedBrokerWatch,
    MissingReplicasWatch,
    StaleMetricsWatch,
    with_state,
)
from balancer.controller.finding import Finding, View, Watch
from balancer.controller.settings import Detector, Settings
from balancer.controller.slow import SlowBrokerWatch
from balancer.controller.violations import GoalWatch
from balancer.operation import Operation
from cluster_model.snapshot import BrokerState, Snapshot
from goals import Goal

HEALING = ("dead_brokers", "dead_disks")


class Watches:
    """The detectors of a controller.

    Attributes
    ----------
    slow, goals
        The two whose memory others read.
    """

    def __init__(self, settings: Settings, goals: Sequence[Goal]) -> None:
        self._settings = settings
        self.slow = SlowBrokerWatch(settings.slow_brokers)
        self.goals = GoalWatch(settings.goal_violations, goals)
        self._simple: dict[str, Watch] = {
            "dead_brokers": DeadBrokerWatch(settings.dead_brokers),
            "dead_disks": DeadDiskWatch(settings.dead_disks),
            "missing_replicas": MissingReplicasWatch(settings.missing_replicas),
            "drained_brokers": DrainedBrokerWatch(settings.drained_brokers),
            "slow_brokers": self.slow,
            "stale_metrics": StaleMetricsWatch(settings.stale_metrics),
        }

    def configure(self, settings: Settings) -> None:
        """Take other settings; what the detectors remember is kept."""
        self._settings = settings
        self.goals.settings = settings.goal_violations
        for name, watch in self._simple.items():
            watch.settings = getattr(settings, name)

    def settings_of(self, kind: str) -> Detector:
        """The settings of a detector."""
        detector: Detector = getattr(self._settings, kind)
        return detector

    def find(self, view: View, cooling: Iterable[str]) -> tuple[Finding, ...]:
        """What all detectors find; `cooling` names partitions that a rebalance leaves alone."""
        found: list[Finding] = []
        for name, watch in self._simple.items():
            if self.settings_of(name).enabled:
                found += watch.look(view)
        if self._settings.goal_violations.enabled and view.incomplete is None:
            known = replace(view, snapshot=self.as_known(view.snapshot))
            found += self.goals.look(known, self._rebalance(view, found, cooling))
        return tuple(found)

    def as_known(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with brokers that were found slow as demoted ones."""
        alive = snapshot.broker_ids[snapshot.broker_state == BrokerState.ALIVE].tolist()
        slow = self.slow.demoted & {*alive}
        if not slow:
            return snapshot
        return replace(snapshot, broker_state=with_state(snapshot, slow, BrokerState.DEMOTED))

    def scene(
        self, view: View, finding: Finding, findings: Iterable[Finding]
    ) -> tuple[Snapshot, Operation]:
        """The snapshot and the operation that a plan for the finding starts from."""
        snapshot, operation = self.as_known(view.snapshot), finding.operation
        assert operation is not None
        if finding.kind == "goal_violations":
            return snapshot, operation
        barred = self._barred(view, findings)
        if finding.kind in HEALING:
            # What is still in its grace may come back: its replicas stay, nothing comes.
            waiting = [f for f in findings if f.kind in HEALING and f.state != "ripe"]
            away = {f.data["broker"] for f in waiting if f.kind == "dead_brokers"}
            lost = [(f.data["broker"], f.data["disk"]) for f in waiting if f.kind == "dead_disks"]
            states = with_state(snapshot, away, BrokerState.DEMOTED)
            snapshot = _with_disks(replace(snapshot, broker_state=states), lost)
            barred |= away
        excluded = self._settings.excluded_topics
        return snapshot, operation.model_copy(
            update={
                "excluded_brokers_for_replicas": tuple(sorted(barred - {*operation.brokers})),
                "excluded_topics": ()
                if operation.kind == "change_replication_factor"
                else excluded,
            }
        )

    def _rebalance(
        self, view: View, findings: Iterable[Finding], cooling: Iterable[str]
    ) -> Operation:
        drained = {*self._settings.drained_brokers.brokers} & {*view.snapshot.broker_ids.tolist()}
        return Operation(
            excluded_topics=self._settings.excluded_topics,
            excluded_partitions=tuple(sorted(cooling)),
            excluded_brokers_for_replicas=tuple(sorted(self._barred(view, findings))),
            excluded_brokers_for_leadership=tuple(sorted(drained)),
        )

    def _barred(self, view: View, findings: Iterable[Finding]) -> set[int]:
        """Brokers that are given nothing: slow, stale, to be empty."""
        barred = {*self.slow.demoted, *self._settings.drained_brokers.brokers}
        barred |= {f.data["broker"] for f in findings if f.kind == "stale_metrics"}
        return barred & {*view.snapshot.broker_ids.tolist()}


def _with_disks(snapshot: Snapshot, spared: list[tuple[int, str]]) -> Snapshot:
    """The snapshot with those disks (broker id, path) taken for alive."""
    if not spared:
        return snapshot
    ids = snapshot.broker_ids[snapshot.disk_broker].tolist()
    named = [pair in spared for pair in zip(ids, snapshot.disk_path, strict=True)]
    return replace(snapshot, disk_alive=snapshot.disk_alive | named)
