"""The controller's own metrics, in Prometheus' text format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from balancer.controller.execution_progress import progress_record
from balancer.controller.finding import Finding
from balancer.controller.notify import counted
from balancer.controller.plugins import DETECTORS
from balancer.controller.protocols import ExecutionOutcome, ExecutionProgress, Notifier
from balancer.planning.plan import Plan
from metrics_reporter.exposition_text import ExpositionText, labels

_OUTCOMES = ("done", "stopped", "rolled back", "failed", "vote lost")
# Of the current execution; NaN if there is none, or the value is unknown.
_PROGRESS = {
    "tasks": "Tasks of the execution in progress.",
    "tasks_ended": "Tasks that have ended, successful or not.",
    "bytes": "Bytes that the execution in progress copies.",
    "bytes_moved": "Bytes of them copied so far.",
    "bytes_per_second": "Mean rate of the execution in progress.",
    "seconds_left": "Seconds to its end at that rate.",
}


@dataclass
class Metrics:
    """Counters since the start, and the figures of the last round."""

    rounds: int = 0
    last_round: float = 0.0
    acting: bool = False
    decisions: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    violated_goals: int | None = None
    balancedness: float | None = None
    plans: int = 0
    plan_seconds: float = 0.0
    bytes_planned: float = 0.0
    bytes_moved: float = 0.0
    executions: Counter[str] = field(default_factory=Counter)
    lost_partitions: int = 0
    progress: Mapping[str, Any] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    notifiers: tuple[Notifier, ...] = ()

    def round(self, now: float, acting: bool) -> None:
        """Record the end of a round."""
        self.rounds += 1
        self.last_round, self.acting = now, acting

    def saw(
        self,
        findings: Iterable[Finding],
        balancedness: float | None,
        failures: Mapping[str, int] | None = None,
    ) -> None:
        """Record the findings of a round, and failed looks by detector of another package."""
        found = list(findings)
        self.findings = Counter(f.kind for f in found)
        self.failures = dict(failures or {})
        # While loads are not known, most goals are not judged.
        self.violated_goals = (
            None
            if balancedness is None
            else sum(len(f.data.get("goals", ())) for f in found if f.kind == "goal_violations")
        )
        self.lost_partitions = sum(
            f.data["partitions"] for f in found if f.kind == "lost_partitions"
        )
        self.balancedness = balancedness

    def planned(self, plan: Plan, seconds: float) -> None:
        """Record a plan that was made."""
        self.plans += 1
        self.plan_seconds += seconds
        if plan.summary.cost_unit == "bytes":
            self.bytes_planned += plan.summary.cost

    def moved(self, outcome: ExecutionOutcome) -> None:
        """Record the end of an execution."""
        self.executions[outcome.state] += 1
        self.bytes_moved += outcome.bytes_moved

    def progressed(self, progress: ExecutionProgress | None, unit: str = "bytes") -> None:
        """Record the progress of the current execution, None if there is none.

        `unit` is that of its plan's costs.
        """
        self.progress = {} if progress is None else progress_record(progress, unit)

    def decided(self, kind: str) -> None:
        """Record a decision."""
        self.decisions[kind] += 1

    def text(self, more: Mapping[str, float] | None = None) -> str:
        """Prometheus' text exposition format.

        Parameters
        ----------
        more
            Further gauges by name.

        Examples
        --------
        >>> "counterpoise_rounds_total 0" in Metrics().text()
        True
        """
        page = ExpositionText()
        add, one, by = page.add, page.one, page.by
        one("rounds_total", "counter", "Rounds made.", self.rounds)
        one("last_round_timestamp_seconds", "gauge", "When the last round began.", self.last_round)
        one("acting", "gauge", "1 if this controller acts, 0 on standby.", self.acting)
        by("decisions_total", "counter", "Decisions.", "kind", self.decisions)
        found = {k: self.findings.get(k, 0) for k in (*DETECTORS.built_in, *self.failures)}
        by("findings", "gauge", "What detectors find now.", "detector", found)
        failed = "Looks of added detectors that failed."
        by("detector_failures_total", "counter", failed, "detector", self.failures)
        sent: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        for notifier in counted(self.notifiers):
            counts = notifier.counts()
            waiting[labels(notifier=notifier.name)] += counts.pop("waiting")
            for outcome, n in counts.items():
                sent[labels(notifier=notifier.name, outcome=outcome)] += n
        add("notifications_total", "counter", "Events by delivery result.", sent)
        add("notifications_waiting", "gauge", "Events not sent yet.", waiting)
        stale = self.findings.get("stale_metrics", 0)
        one("stale_brokers", "gauge", "Brokers whose metrics are too old.", stale)
        if self.balancedness is not None and self.violated_goals is not None:
            one("violations", "gauge", "Goals not met now.", self.violated_goals)
            one("balancedness", "gauge", "100 if every goal is met.", self.balancedness)
        one("plans_total", "counter", "Plans made.", self.plans)
        one("plan_seconds_total", "counter", "Time spent making plans.", self.plan_seconds)
        one("bytes_planned_total", "counter", "Bytes that plans would copy.", self.bytes_planned)
        one("bytes_moved_total", "counter", "Bytes that executions copied.", self.bytes_moved)
        ended = {state: self.executions.get(state, 0) for state in _OUTCOMES}
        by("executions_total", "counter", "Executions ended.", "state", ended)
        lost = self.lost_partitions
        one("lost_partitions", "gauge", "Partitions with nothing left to copy from.", lost)
        for name, about in _PROGRESS.items():
            now = self.progress.get(name)
            one(f"execution_{name}", "gauge", about, math.nan if now is None else now)
        for name, value in (more or {}).items():
            one(name, "gauge", f"{name.replace('_', ' ').capitalize()}.", value)
        return page.text()
