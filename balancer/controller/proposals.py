"""Makes plans for findings, within the limits of the settings and of one cycle."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from copy import copy
from dataclasses import replace
from threading import Event

import numpy as np

from balancer.controller.cost_benefit import as_configured, cluster_cost, gain, worsens
from balancer.controller.detectors import HEALING, Detectors
from balancer.controller.finding import Finding, View, listed
from balancer.controller.observation import sentence
from balancer.controller.settings import Settings
from balancer.engine import Balancer
from balancer.planning.document import PlanDocument
from balancer.planning.plan import Plan
from balancer.problem.budget import Budget
from balancer.problem.movement_cost import copy_cost, cost_unit
from balancer.problem.operation import Operation, OperationError
from balancer.problem.operations import OPERATIONS, type_of
from balancer.problem.resolution import resolve
from balancer.search.scorer import unscorable
from balancer.strategies import is_universal, load_strategy, with_search_parameters
from cluster_model.placement import Placement
from cluster_model.snapshot import Snapshot
from cluster_model.trust import frozen_partitions
from goals import OnlineReplicas, applicable
from metrics_reporter.quantities import distinct, plural

# Findings that move data because of measured loads, which one bad reading can distort.
_CAPPED = ("goal_violations", "slow_brokers")
# Columns of a plan that nobody has to measure.
_COUNTS = {"replica_count", "leader_count"}
# Findings that restore copies of data: an inapplicable goal must not prevent that.
_AT_RISK = (*HEALING, "missing_replicas")


class Proposals:
    """Makes the plans of a controller.

    Parameters
    ----------
    balancer
        Searches for plans; its own limits apply, too.
    detectors
        Turn a finding into an operation.
    settings
        Returns the current settings.
    trace
        Logs the current exception.
    stop
        Ends a search in progress when it is set.
    """

    def __init__(
        self,
        balancer: Balancer,
        detectors: Detectors,
        settings: Callable[[], Settings],
        trace: Callable[[], None],
        stop: Event,
    ) -> None:
        self._balancer = balancer
        self._detectors = detectors
        self._settings = settings
        self._trace = trace
        self._stop = stop
        # Goals that could not be judged in the last healing plan, and why.
        self._failing: dict[str, str] = {}

    def propose(
        self,
        view: View,
        finding: Finding,
        snapshot: Snapshot,
        operation: Operation,
        cap: float | None,
        kept: Collection[str] = (),
    ) -> Plan:
        """A plan within the limits of the balancer, the settings and the cap.

        Goals whose names are in `kept` are hard, if they are not yet.
        """
        balancer = copy(self._balancer)
        if view.incomplete is not None and finding.kind == "goal_violations":
            balancer.goals = [g for g in balancer.goals if g.hard]
        if kept:
            balancer.goals = [
                g.model_copy(update={"hard": True}) if g.name in kept else g for g in balancer.goals
            ]
        limits = balancer.budget.within(self._settings().budget)
        balancer.budget = _countable(limits, view, snapshot).within(Budget(cost=cap))
        if not type_of(operation).needs_loads and not is_universal(balancer.strategy):
            # The strategy may not be able to heal this cluster.
            balancer.strategy = with_search_parameters(load_strategy(), balancer.search)
        if view.incomplete is not None or finding.kind in _AT_RISK:
            balancer.goals = applicable(balancer.goals, snapshot, strict=False)
        try:
            return balancer.propose(snapshot, operation, stop=self._stop)
        except Exception as error:
            if finding.kind not in HEALING and view.incomplete is None:
                raise
            self._trace()
            failing = unscorable(resolve(snapshot, operation).cluster, balancer.goals)
            if failing:
                self._failing |= failing
                balancer.goals = [g for g in balancer.goals if g.name not in failing]
                return balancer.propose(snapshot, operation, stop=self._stop)
            if finding.kind not in HEALING or not snapshot.resources:
                raise
            bare = snapshot.with_resources(())
            return self.propose(
                replace(view, incomplete=sentence(error)), finding, bare, operation, cap
            )

    def healing(
        self,
        view: View,
        finding: Finding,
        findings: tuple[Finding, ...],
        snapshot: Snapshot,
        operation: Operation,
    ) -> tuple[Plan, str]:
        """A healing plan, onto drained brokers only if no other can receive; and a remark."""
        drained, self._failing = sorted(self._detectors.drained(view)), {}
        plan: Plan | None = None
        try:
            plan = self.propose(view, finding, snapshot, operation, None)
        except Exception:
            if not drained:
                raise
            self._trace()
        if plan is not None and (not drained or _heals(plan)):
            return plan, self._left_out()
        resolved = self._detectors.resolved(view, finding, findings, last_resort=drained)
        other = self.propose(view, finding, *resolved, None)
        if plan is not None and not _heals(other):
            return plan, self._left_out()
        return other, self._left_out() + (
            f"; {listed(drained, 'broker')}, to be empty, may receive replicas, because no other "
            "broker can"
        )

    def _left_out(self) -> str:
        return "".join(f"; {why}, so it is left out" for why in self._failing.values())

    def no_worse(
        self,
        view: View,
        finding: Finding,
        snapshot: Snapshot,
        operation: Operation,
        cap: float | None,
        plan: Plan,
    ) -> tuple[Plan, frozenset[str], str]:
        """A plan for measured loads that does not lower balancedness, if it can; and a remark.

        If the plan lowers it, the goals that are met at the start are hard in another one; those
        that are soft otherwise are returned with it. Only hard goals that this one mends less are
        worth what the first plan gives up.
        """
        if not worsens(plan):
            return plan, frozenset(), ""
        kept = frozenset(r.goal for r in plan.goal_results if r.met_before and not r.hard)
        other = self.propose(view, finding, snapshot, operation, cap, kept)
        s = plan.summary
        before, lower = distinct(s.balancedness_before, s.balancedness_after)
        fall = f"lowers balancedness from {before} to {lower}"
        if other.summary.exhausted != "stopped" and gain(plan)["hard"] > gain(other)["hard"]:
            return plan, frozenset(), f"; it {fall}, because hard goals come first"
        after = distinct(s.balancedness_after, as_configured(other, kept)[1])[1]
        remark = (
            "; goals that are met are hard in it, also for its balancedness, because a plan that "
            f"gives them up {fall}; as configured, it is {after} after this one"
        )
        return other, kept, remark

    def without_cooling(
        self,
        view: View,
        finding: Finding,
        snapshot: Snapshot,
        operation: Operation,
        cooling: tuple[str, ...],
    ) -> Operation:
        """The operation, without partitions that moved recently unless they are needed.

        A broken hard goal outweighs the cool-down, but not if moving other partitions, or only
        those that break it, can fix it: otherwise each cycle of a plan would move again what
        the earlier ones moved.
        """
        if finding.kind != "goal_violations" or operation.excluded_partitions or not cooling:
            return operation
        others = tuple(p for p in cooling if p not in self._detectors.goals.broken)
        spared = operation.model_copy(update={"excluded_partitions": others})
        plan = self.propose(view, finding, snapshot, spared, None)
        ripe = {*finding.data["ripe"]}
        return operation if any(u.hard and u.goal in ripe for u in plan.unmet) else spared

    def cap(self, finding: Finding, snapshot: Snapshot) -> float | None:
        """Cost that a plan for the finding may have in one cycle; None for no limit."""
        share = self._settings().max_share_per_cycle
        if not (finding.kind in _CAPPED or finding.added) or share >= 1:
            return None
        return share * cluster_cost(snapshot)

    def is_cut(self, plan: Plan, cap: float | None) -> bool:
        """Whether the cap ended the plan, and no other limit."""
        if cap is None or plan.summary.exhausted != "budget":
            return False
        limits, moved = plan.budget, plan.summary.limited_moves
        least = min(x for x in (limits.cost, limits.bytes, cap) if x is not None)
        if least != cap or (limits.moves is not None and moved >= limits.moves):
            return False
        leaves = np.isin(plan.rows.kind, ("move", "add")) & (plan.rows.source >= 0)
        arrives = np.isin(plan.rows.kind, ("move", "move_disk", "add"))
        ends = [plan.rows.target[arrives], plan.rows.source[leaves]]
        return not any(
            np.bincount(group[end]).max(initial=0) >= limit
            for limit, group in limits.per_group(plan.snapshot)
            for end in ends
        )

    def too_large(self, snapshot: Snapshot, cap: float) -> tuple[list[str], str]:
        """Partitions with a copy larger than a cycle may move, and a sentence about them."""
        lead, follow = copy_cost(Placement(snapshot))
        copied = np.maximum(lead, follow)
        rows = np.flatnonzero(copied > cap)
        rows = rows[np.argsort(-copied[rows], kind="stable")]
        named = zip(
            snapshot.partition_topic[rows].tolist(),
            snapshot.partition_number[rows].tolist(),
            strict=True,
        )
        names = [f"{snapshot.topics[t]}-{n}" for t, n in named]
        if not names:
            return [], ""
        share = float(copied[rows[0]]) / cluster_cost(snapshot)
        # Rounded up, so that it is enough.
        enough = min(1.0, math.ceil(1000 * share) / 1000)
        many = f"the {len(names)} partitions" if len(names) > 1 else "the partition"
        unit = cost_unit(snapshot)
        # Only plans for Kafka can be executed by the command.
        how = "" if snapshot.cost_unit or unit != "bytes" else " (counterpoise execute)"
        return names, (
            f"{many} {listed(names)}, of which one copy is more than one cycle may move "
            f"({self.share(unit)}): raise max_share_per_cycle, to {enough:g} for {names[0]}, or "
            f"move such a partition yourself{how}"
        )

    def share(self, unit: str) -> str:
        """What a cycle may move, in words; `unit` is that of costs."""
        return f"{100 * self._settings().max_share_per_cycle:.3g} % of the cluster's {unit}"


def without_loads(view: View, plan: Plan) -> str:
    """A remark on a plan that was made without loads that are not known, or of no use; or empty."""
    if view.incomplete is None:
        if plan.snapshot.resources or not view.snapshot.resources:
            return ""
        return (
            "; no plan could be made with the loads: this one is by placement alone, and limits of "
            "bytes do not apply"
        )
    limits = "" if plan.summary.cost_unit != "replicas" else ", and limits of bytes do not apply"
    return f"; loads are not known ({view.incomplete}): only goals that need none count{limits}"


def why_waits(view: View, plan: PlanDocument) -> str | None:
    """Why a plan waits for loads that are not known now; None if it may start."""
    try:
        needed = OPERATIONS.get(plan.operation["kind"]).needs_loads
    except OperationError:
        # Of a package that is no longer installed: that must stop no round.
        needed = True
    if not needed:
        return None
    lacking = {*plan.columns} - _COUNTS - {*view.snapshot.resources}
    if lacking:
        which = "" if view.incomplete is not None else f" of {', '.join(sorted(lacking))}"
        return f"loads{which} are not known"
    if view.incomplete is not None:
        return None
    silent = view.distrust.brokers
    stay = view.distrust.unknown | frozen_partitions(view.snapshot, silent)
    # it may give a broker something that it names
    barred = silent - {*plan.operation.get("brokers", ())}
    moved = {(f"{a.topic}-{a.partition}", a.destination) for a in plan.actions}
    held = {name for name, to in moved if name in stay or to in barred}
    return f"not all loads of {plural(len(held), 'partition')} in it are known" if held else None


def _countable(limits: Budget, view: View, snapshot: Snapshot) -> Budget:
    """The limits without those of bytes, if nobody knows the sizes."""
    if view.incomplete is None or cost_unit(snapshot) != "replicas":
        return limits
    return limits.model_copy(update={"bytes": None, "cost": None})


def _heals(plan: Plan) -> bool:
    """Whether fewer replicas are offline after a plan."""
    return any(
        r.goal == OnlineReplicas().name and r.contentment_after > r.contentment_before
        for r in plan.goal_results
    )
