"""The control loop: snapshot, detect, propose, execute; one decision with a reason per round."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from balancer.approval.approvals import CONTROLLER, Approvals, ApprovedPlan
from balancer.approval.changes import changes_since
from balancer.approval.store import ProposalStore
from balancer.controller.balance import even_sentence
from balancer.controller.cooldown import Cooldown, stale_sentence
from balancer.controller.cost_benefit import gain, gain_record, insufficient_gain, worsens
from balancer.controller.decision import (
    Decision,
    DecisionKind,
    outcome_record,
    outcome_sentence,
    plan_record,
    plan_sentence,
    unmet_first,
)
from balancer.controller.detectors import HEALING, Detectors
from balancer.controller.event_log import EventLog
from balancer.controller.execution_progress import progress_record, progress_sentence
from balancer.controller.execution_runner import BackgroundJob, ExecutionRunner, Work, in_thread
from balancer.controller.finding import Finding, View, listed, span
from balancer.controller.leftovers import Leftovers
from balancer.controller.metrics import Metrics
from balancer.controller.notify import counted
from balancer.controller.observation import Observer, sentence
from balancer.controller.proposals import Proposals, why_waits, without_loads
from balancer.controller.protocols import (
    AlwaysActing,
    Clock,
    ControllerVote,
    ExactExecutor,
    ExecutionOutcome,
    ExecutionProgress,
    LiveCluster,
    Notifier,
    PlanExecutor,
)
from balancer.controller.redact import Redactor
from balancer.controller.settings import Settings
from balancer.controller.tracing import traced
from balancer.engine import Balancer
from balancer.execution.errors import ChangedClusterError, ExecutionError
from balancer.planning.document import PlanDocument
from balancer.planning.plan import Plan
from balancer.problem.operations import type_of
from cluster_model.errors import InputError
from goals import inapplicable
from metrics_reporter.clocks import boot_clock
from metrics_reporter.quantities import plural

# Order of healing and balancing: data at risk comes before load.
_ORDER = (
    "dead_brokers",
    "dead_disks",
    "missing_replicas",
    "drained_brokers",
    "slow_brokers",
    "added",
    "goal_violations",
)
# If nothing is done, the reasons in order of relevance.
_BY_RELEVANCE: tuple[DecisionKind, ...] = (
    "error",
    "insufficient_gain",
    "nothing_helps",
    "unfixable",
    "stale",
    "cooling",
    "waiting",
    "trivial",
    "reported",
)
_RECOVERY = "recovery"
_LEFT = "moves left in Kafka"
_STOP_SECONDS = 0.2
# Findings of one detector whose sentences are in the reason of a decision.
_QUOTED = 3
_INEXACT = "this controller's executor cannot execute a plan exactly or not at all"


class ControllerError(InputError):
    """A controller that cannot continue."""


@dataclass(frozen=True)
class _Note:
    """Why a finding led to no action."""

    kind: DecisionKind
    finding: Finding
    why: str
    plan: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Controller:
    """Watches a cluster and keeps it balanced.

    Parameters
    ----------
    model
        The cluster: a :class:`balancer.controller.MeasuredCluster`, or any equivalent.
    balancer
        Makes the plans; its goals are the ones to watch.
    executor
        Executes plans; without one, or if ``settings.execute`` is False, plans are only
        proposed.
    settings
        See :class:`Settings`.
    notifiers
        Receive decisions and findings that matter to people.
    vote
        Whether this controller acts; by default it is alone and does.
    clock
        Seconds since 1970, for display and for comparison with the times of metrics.
    steady
        Seconds, for grace periods, cool-downs and all other durations. By default `clock` if
        one is given; else a clock that ignores wall-clock changes and includes sleep.
    redactor
        Hides secrets in decisions, events and logs.
    spawn
        How an execution runs: in the background of the rounds, or synchronously.
    witness
        Called with every decision.
    approvals
        Keeps plans that wait for approval; by default in memory, so that a restart forgets them.
        If it is given, plans of a controller that only proposes are kept, too.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> from cluster_model.trust import Distrust
    >>> class Still:
    ...     def snapshot(self):
    ...         return synthetic_snapshot(brokers=6, partitions=60, racks=3)
    ...     def placement(self):
    ...         return self.snapshot()
    ...     def staleness(self):
    ...         return None
    ...     def signals(self):
    ...         return {}
    ...     def since(self):
    ...         return None
    ...     def noise(self):
    ...         return {}
    ...     def distrust(self):
    ...         return Distrust()
    ...     def refresh(self): ...
    >>> Controller(Still(), Balancer("default")).step().kind
    'proposed'
    """

    def __init__(
        self,
        model: LiveCluster,
        balancer: Balancer,
        executor: PlanExecutor | None = None,
        settings: Settings | None = None,
        *,
        notifiers: Iterable[Notifier] = (),
        vote: ControllerVote | None = None,
        clock: Clock | None = None,
        steady: Clock | None = None,
        redactor: Redactor | None = None,
        spawn: Callable[[BackgroundJob], None] = in_thread,
        witness: Callable[[Decision], None] | None = None,
        approvals: Approvals | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.metrics = Metrics()
        self._balancer = balancer
        self._vote = vote or AlwaysActing()
        self._wall = clock or time.time
        self._clock = steady or clock or boot_clock
        self._runner = None if executor is None else ExecutionRunner(executor, self._vote, spawn)
        self._detectors = Detectors(self.settings, balancer.goals, strict=balancer.strict)
        self._cooldown = Cooldown()
        self._events = EventLog(self.settings.decisions, notifiers, redactor or Redactor())
        self.metrics.notifiers = self._events.notifiers
        self._observer = Observer(model, self._events.trace, lambda: self.settings.stale_metrics)
        self._stopping = threading.Event()
        self._proposals = Proposals(
            balancer, self._detectors, lambda: self.settings, self._events.trace, self._stopping
        )
        self._witness = witness
        self._keeps_all = approvals is not None
        self.approvals = approvals or Approvals(
            ProposalStore(), lambda: self.settings.approval, self._wall
        )
        # The last look at the cluster, and what was found in it, for display.
        self._view: View | None = None
        self._findings: tuple[Finding, ...] = ()
        # Whether a person holds everything back that has not started.
        self._held = False
        self._recovered = False
        self._leftovers = Leftovers()
        self._resigned = False
        self._wake = threading.Event()
        # About the current execution: its findings, whether the cap cut its plan, its progress,
        # when it last reported, when that was last logged, and when it was asked to end.
        self._mending: tuple[Finding, ...] = ()
        self._cut = False
        self._progress: ExecutionProgress | None = None
        self._heard = self._logged = float("-inf")
        self._asked: float | None = None
        # A controller that starts paused must not take the vote from one that acts.
        self._take_part()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The last decisions, oldest first."""
        return self._events.decisions

    @property
    def work(self) -> Work | None:
        """The execution in progress."""
        return None if self._runner is None else self._runner.work

    @property
    def view(self) -> View | None:
        """The last look at the cluster; None before the first round."""
        return self._view

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the last round found, with times for display."""
        return self._dated(self._findings)

    @property
    def progress(self) -> ExecutionProgress | None:
        """The last reported progress of the execution; None without one."""
        return self._progress

    @property
    def executes(self) -> bool:
        """Whether plans are executed, now and by this controller."""
        return self._executes and self._vote.acting

    @property
    def held(self) -> bool:
        """Whether a person holds everything back that has not started."""
        return self._held

    def hold(self, held: bool) -> None:
        """Start nothing more until this is called again with False; from any thread.

        An execution in progress goes on. Without one, the vote is resigned meanwhile, as with
        ``execute: false`` in the settings.
        """
        self._held = held
        self._wake.set()

    def look_now(self) -> None:
        """Start the next round at once; from any thread."""
        self._wake.set()

    def end_execution(self, why: str) -> bool:
        """Stop the execution in progress, from any thread; returns whether there is one."""
        work, now = self.work, self._clock()
        if work is None or work.cause == _LEFT:
            return False
        if self._stop_work(now):
            said = f"{_named(work)} is stopped, because {why}"
            self._keep(Decision(now, "stopping", said, work.cause))
        return True

    def configure(self, settings: Settings) -> None:
        """Use other settings, from any thread; detectors keep what they remember.

        The next round starts at once. If `settings.execute` is no longer True, an execution in
        progress is stopped.
        """
        self.settings = settings
        self._events.keep_last(settings.decisions)
        if not settings.execute and self._runner is not None:
            self._runner.stop()
        self._wake.set()

    def notify(self, notifiers: Iterable[Notifier], redactor: Redactor) -> None:
        """Replace the receivers of notifications and the secrets to hide."""
        self._events.notify(notifiers, redactor)
        self.metrics.notifiers = self._events.notifiers

    def step(self) -> Decision:
        """Make one round; returns its decision (for an execution that is over already, its end).

        Raises
        ------
        InputError
            If goals or settings don't fit the cluster.
        ControllerError
            If an execution neither progresses nor ends, so that nothing else may start.
        """
        now = self._clock()
        with traced("round") as known:
            decision = self._round(now)
            latest = self.decisions[-1] if decision is None else self._keep(decision)
            known(decision=latest.kind)
        self._look_after_left(now)
        self.metrics.round(self._shown(now), self._vote.acting)
        return latest

    def run(self) -> None:
        """Make rounds until :meth:`stop`; a failed round is reported, and the next one follows.

        An execution in progress gets `settings.stop_within` seconds to end. If it takes longer,
        it is left as it is: the next start reads in its journal what is left to do.

        Raises
        ------
        ControllerError
            If an execution neither progresses nor ends, so that nothing else may start.
        """
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self.step()
            except ControllerError as error:
                self._keep(Decision(self._clock(), "error", str(error)))
                raise
            except Exception as error:
                self._events.trace()
                reason = f"the round failed: {sentence(error)}"
                self._keep(Decision(self._clock(), "error", reason))
            if not self._stopping.is_set():
                self._wake.wait(self.settings.interval)
        self.finish()

    def stop(self) -> None:
        """End :meth:`run` after the current round, and planning and an execution soon.

        May be called from any thread.
        """
        self._stopping.set()
        self._wake.set()
        if self._runner is not None:
            self._runner.stop()

    def supervise(self) -> None:
        """Check on the execution in progress between rounds, as each round does.

        Raises
        ------
        ControllerError
            If it neither progresses nor ends.
        """
        work, now = self.work, self._clock()
        if work is not None and (found := self._beside(work, (), now)).kind == "stopping":
            self._keep(found)

    def finish(self) -> bool:
        """Stop, and wait at most `settings.stop_within` seconds for the execution in progress.

        Returns
        -------
        bool
            Whether it has ended. If not, it is left as it is: the next start reads in its
            journal what is left to do.
        """
        self.stop()
        deadline = time.monotonic() + self.settings.stop_within
        while self._runner is not None and not self._runner.wait(_STOP_SECONDS):
            # Repeated: an execution that was just starting may have missed the first request.
            self._runner.stop()
            work = self.work
            if work is not None and time.monotonic() >= deadline:
                self._keep(
                    Decision(
                        self._clock(),
                        "error",
                        f"{_named(work)} has not ended within "
                        f"{span(self.settings.stop_within)} of being asked to; it is left as it "
                        "is, and the next start reads in its journal what is left to do",
                        work.cause,
                    )
                )
                return False
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the execution in progress, if any; returns whether it has ended.

        Parameters
        ----------
        timeout
            Seconds to wait at most. None waits as long as the execution takes, which is forever
            if it hangs, since nothing stops it meanwhile. For a bounded wait, wait briefly and
            call :meth:`supervise`, repeatedly.
        """
        return self._runner is None or self._runner.wait(timeout)

    def state(self) -> dict[str, Any]:
        """The full state for people to inspect, as JSON-compatible data."""
        work, progress, detectors = self.work, self._progress, self._detectors
        cooling = self._cooling(self._clock())
        return self._events.hidden(
            {
                "acting": self._vote.acting,
                "execute": self._executes,
                "held": self._held,
                "executing": None
                if work is None
                else {
                    "cause": work.cause,
                    "since": self._shown(work.since),
                    "plan": work.plan,
                    "proposal": work.proposal,
                    "progress": None if progress is None else progress_record(progress, work.unit),
                },
                "rounds": self.metrics.rounds,
                "loads_unknown": None if self._view is None else self._view.incomplete,
                "balancedness": detectors.goals.balancedness,
                "evenness": detectors.goals.evenness,
                "slow_scores": {str(b): n for b, n in detectors.slow.scores.items()},
                "demoted": sorted(detectors.demoted),
                "detectors_failing": list(detectors.troubles),
                "notifiers": [
                    {"notifier": n.name, **n.counts()} for n in counted(self._events.notifiers)
                ],
                "left_in_kafka": list(self._leftovers.known),
                "partitions_cooling": len(cooling),
                "decisions": [d.record() for d in reversed(self.decisions)],
            }
        )

    @property
    def _executes(self) -> bool:
        return bool(self.settings.execute) and self._runner is not None and not self._held

    @property
    def _paused(self) -> bool:
        return self._runner is not None and (self._held or not self.settings.execute)

    @property
    def _standby(self) -> str:
        """A sentence on which controller acts instead, as far as the vote knows."""
        holder = getattr(self._vote, "holder", None)
        if holder is None:
            return "this controller does not have the vote; whether another one acts is not known"
        return f"this controller does not have the vote; {holder} acts, or did last"

    def _take_part(self) -> None:
        """Resign from the vote while paused, so that a person can act instead.

        Only while no execution is in progress: without the vote it could not clean up.
        """
        if self._paused and not self._resigned and self.work is None:
            self._resigned = True
            if (resign := getattr(self._vote, "resign", None)) is not None:
                resign()
        elif self._executes and self._resigned:
            self._resigned = False
            if (rejoin := getattr(self._vote, "rejoin", None)) is not None:
                rejoin()

    def _round(self, now: float) -> Decision | None:
        if self._detectors.settings is not self.settings:
            self._detectors.configure(self.settings)
        self._take_part()
        acting = self._vote.acting
        recover = acting and self._executes and not self._recovered and self.work is None
        self._recovered = acting and self._executes and (self._recovered or recover)
        if recover:
            assert self._runner is not None
            executor = self._runner.executor
            self._launch(Work(_RECOVERY, now), lambda: executor.recover(progress=self._progressed))
        try:
            with traced("read_cluster"):
                view = self._observer.look(now, self._shown(0.0))
        except InputError as error:
            if self.work is not None and (beside := self._beside(self.work, (), now)).kind != (
                "executing"
            ):
                return beside
            return Decision(now, "waiting", f"the cluster cannot be read: {error}")
        self._view = view
        cooling = self._cooling(now)
        self._cooldown.saw(view.snapshot, now, self.settings.changed_share)
        with traced("detect") as known:
            findings = self._findings = self._detectors.find(view, cooling)
            known(findings=len(findings))
        self.metrics.saw(findings, self._detectors.goals.balancedness, self._detectors.failures)
        # A paused controller has no vote, and proposes like one without an election. The look may
        # have taken long: a controller that has lost the vote meanwhile starts nothing.
        judging = self._paused or (acting and self._vote.acting)
        self._events.found(self._dated(findings), self._shown(now), notify=judging)
        if self.work is not None:
            beside = self._beside(self.work, findings, now)
            if judging or beside.kind == "stopping":
                return beside
        if not judging:
            return Decision(now, "standby", self._standby, findings=findings)
        self.approvals.expire()
        # The look may have taken long, and the end may have been asked for meanwhile.
        may_start = self._executes and not self._stopping.is_set()
        waiting: list[str] = []

        def allowed(plan: PlanDocument) -> bool:
            if (why := why_waits(view, plan)) is not None:
                waiting.append(why)
            return why is None

        if may_start and (approved := self.approvals.next_approved(allowed)) is not None:
            return self._start_approved(approved, view, findings)
        decision = self._decide(view, findings, cooling)
        if decision is None or not waiting:
            return decision
        count = plural(len(waiting), "approved proposal waits", "approved proposals wait")
        return replace(decision, reason=f"{decision.reason}; {count}: {waiting[0]}")

    def _cooling(self, now: float) -> set[str]:
        set_ = self.settings
        return self._cooldown.cooling(
            now, set_.moved_cooldown, set_.longest_moved_cooldown, set_.moved_cooldown_growth
        )

    def _look_after_left(self, now: float) -> None:
        """Check on moves that ended executions left in Kafka, when due.

        At the end of a round, so that it comes after anything the round started.
        """
        if not (self._vote.acting and self._executes):
            self._leftovers.forget()
        elif (
            self._recovered
            and self.work is None
            and not self._stopping.is_set()
            and self._leftovers.due(now)
        ):
            assert self._runner is not None
            executor = self._runner.executor

            def look() -> None:
                left = executor.left()
                if left is None:
                    # The execution has not ended: the next round recovers it.
                    self._recovered = False
                else:
                    self._keep_left(left)

            self._leftovers.looked(now, self.settings.interval, self.settings.left_interval)
            self._launch(Work(_LEFT, now), look)

    def _keep_left(self, left: Sequence[str]) -> None:
        """Log what is left if that is new, and when nothing is left any more."""
        before = self._leftovers.known
        fresh = self._leftovers.found(left)
        if len(left) < len(before):
            self._observer.changed = True
        if fresh:
            more = f" (and {len(fresh) - 1} more)" if len(fresh) > 1 else ""
            self._events.note(f"left in Kafka: {fresh[0]}{more}; it is checked until it ends")
        elif before and not left:
            over = (
                "what earlier executions left in Kafka has ended, and nothing is throttled any more"
            )
            self._keep(Decision(self._clock(), "recovered", over, _RECOVERY))

    def _decide(
        self, view: View, findings: tuple[Finding, ...], cooling: Iterable[str]
    ) -> Decision | None:
        """A decision, or None if one was kept together with the execution that it started."""
        notes: list[_Note] = []
        known = [f for f in findings if f.kind in _ORDER or f.added]
        for finding in sorted(known, key=_rank):
            in_the_way = self._cooldown.reason_not_to_act(
                view,
                finding,
                findings,
                self._detectors.settings_of(finding.kind),
                self._detectors.goals.evenness,
                self.settings.settle,
            )
            if in_the_way is not None:
                notes.append(_Note(in_the_way[0], finding, in_the_way[1]))
                continue
            tried = self._attempt(view, finding, findings, tuple(sorted(cooling)))
            if not isinstance(tried, _Note):
                return tried
            notes.append(tried)
        return self._nothing(view, findings, notes)

    def _nothing(self, view: View, findings: tuple[Finding, ...], notes: list[_Note]) -> Decision:
        """The decision to do nothing, with the reasons."""
        facts: dict[str, Any] = {"evenness": self._detectors.goals.evenness}
        lost = [f for f in findings if f.kind == "lost_partitions"]
        aside = "".join(
            f"; {plural(f.data['partitions'], 'partition')} set aside, since nothing is left to "
            "copy from"
            for f in lost
        )
        if notes:
            notes = sorted(notes, key=lambda note: _BY_RELEVANCE.index(note.kind))
            first = notes[0]
            for note in notes:
                facts |= note.facts
            reason = _reasons(notes) + aside
            kind, cause = first.kind, first.finding.kind
            return Decision(view.now, kind, reason, cause, findings, facts, first.plan)
        troubles = [view.incomplete] if view.incomplete is not None else self._detectors.troubles
        if troubles:
            return Decision(view.now, "waiting", "; ".join(troubles) + aside, None, findings, facts)
        stale = [f for f in findings if f.kind == "stale_metrics"]
        if stale:
            reason = (
                f"{stale_sentence(stale)}; otherwise nothing to do, by the last known loads: "
                f"{self._even}{aside}"
            )
            return Decision(view.now, "stale", reason, "stale_metrics", findings, facts)
        return Decision(
            view.now, "balanced", f"nothing to do: {self._even}{aside}", None, findings, facts
        )

    @property
    def _even(self) -> str:
        """A sentence on how even the cluster is, or why that is unknown."""
        return (
            even_sentence(self._detectors.goals.evenness)
            if self.settings.goal_violations.enabled
            else "goals are not evaluated, because goal_violations is switched off"
        )

    def _attempt(
        self,
        view: View,
        finding: Finding,
        findings: tuple[Finding, ...],
        cooling: tuple[str, ...],
    ) -> Decision | _Note | None:
        """Plan for a finding: a proposal, why nothing follows from it, or None if it started."""
        now, cooldown, proposals = view.now, self._cooldown, self._proposals
        covered = _covered_findings(finding, findings)
        started = time.perf_counter()
        try:
            with traced("plan", finding=finding.kind) as known:
                snapshot, operation = self._detectors.resolved(
                    view, finding, findings, cooling=cooling
                )
                cap = proposals.cap(finding, snapshot)
                operation = proposals.without_cooling(view, finding, snapshot, operation, cooling)
                if finding.kind in HEALING:
                    plan, last_resort = proposals.healing(
                        view, finding, findings, snapshot, operation
                    )
                else:
                    plan = proposals.propose(view, finding, snapshot, operation, cap)
                    last_resort = ""
                too_large = ""
                if cap is not None and not len(plan) and proposals.is_cut(plan, cap):
                    # A partition larger than a cycle may copy stays; the others need not wait.
                    names, too_large = proposals.too_large(snapshot, cap)
                    spared = tuple(sorted({*operation.frozen_partitions, *names}))
                    operation = operation.model_copy(update={"frozen_partitions": spared})
                    plan = (
                        proposals.propose(view, finding, snapshot, operation, cap)
                        if names
                        else plan
                    )
                hardened, remark = frozenset[str](), ""
                # A rebalance has to be worth its cost, whichever detector asks for it.
                judged = finding.kind == "goal_violations" or type_of(operation).needs_loads
                if judged and plan.summary.exhausted != "stopped":
                    plan, hardened, remark = proposals.no_worse(
                        view, finding, snapshot, operation, cap, plan
                    )
                known(operation=operation.kind, actions=len(plan))
        except Exception as error:
            # A finding without a possible plan must not keep the others from being handled.
            self._events.trace()
            kind: DecisionKind = "nothing_helps" if isinstance(error, InputError) else "error"
            came = f"no plan can be made: {sentence(error)}"
            cooldown.tried(covered, now, came, helped=False)
            return _Note(kind, finding, f"{finding.sentence}; {came}")
        if plan.summary.exhausted == "stopped":
            return self._stopped(view, finding, findings)
        cut = proposals.is_cut(plan, cap)
        seconds = time.perf_counter() - started
        self.metrics.planned(plan, seconds)
        figures = plan_record(plan, seconds)
        facts: dict[str, Any] = {}
        unit = plan.summary.cost_unit
        if cut:
            facts["cap"] = {
                "setting": "max_share_per_cycle",
                "share": self.settings.max_share_per_cycle,
            } | ({"bytes": cap} if unit == "bytes" else {"cost": cap, "cost_unit": unit})
        if not len(plan):
            why = "; ".join(u.reason for u in unmet_first(plan)[:2]) or "there is nothing to do"
            if cut:
                why = (
                    "the first step moves partitions together that are more than "
                    f"{proposals.share(unit)}: raise max_share_per_cycle"
                )
            if too_large:
                why = f"without {too_large}, {why}"
            stay = len(operation.excluded_partitions)
            if stay:
                left = plural(
                    stay, "partition stays, because it was", "partitions stay, because they were"
                )
                why += f" ({left} moved recently)"
            cooldown.tried(covered, now, f"the plan was empty, {why}", helped=False)
            why = f"{finding.sentence}; the plan is empty: {why}{remark}"
            return _Note("nothing_helps", finding, why, figures, facts)
        if judged:
            found = gain(plan, hardened)
            poor = insufficient_gain(found, self.settings.goal_violations, unit)
            if poor is not None and cut and not worsens(plan):
                # The part within the cap may gain little; what counts is the complete plan.
                whole = proposals.propose(view, finding, snapshot, operation, None)
                if whole.summary.exhausted == "stopped":
                    return self._stopped(view, finding, findings)
                found = gain(whole)
                poor = insufficient_gain(found, self.settings.goal_violations, unit)
            facts |= gain_record(found)
            if poor is not None:
                cooldown.tried(covered, now, f"a plan was not worth it, {poor}")
                why = f"{finding.sentence}; a plan is not worth it: {poor}{remark}"
                return _Note("insufficient_gain", finding, why, figures, facts)
        reported = plan_sentence(plan) + last_resort + without_loads(view, plan) + remark
        if too_large:
            reported += f"; without {too_large}"
        if cut:
            reported += (
                f"; cut at {proposals.share(unit)} (max_share_per_cycle), the next cycle "
                "continues if what is left is worth a plan"
            )
        if self._balancer.strict and (missing := inapplicable(self._balancer.goals, snapshot)):
            facts["goals_left_out"] = missing
            reported += f"; goals that do not apply are left out: {listed([*missing.values()])}"
        reason = f"{finding.sentence}; {reported}"
        decision = Decision(now, "proposed", reason, finding.kind, findings, facts, figures)
        if not self._executes:
            cooldown.tried(covered, now, f"proposed {reported}")
            return self._kept(plan, decision) if self._keeps_all else decision
        # The search may have taken minutes.
        if self._stopping.is_set():
            ended = "not started, because the controller is ending"
            return replace(decision, reason=f"{reason}; {ended}")
        if not self._vote.acting:
            return replace(decision, kind="standby", reason=self._standby)
        if (waits := self.approvals.waits(plan)) is not None:
            cooldown.tried(covered, now, f"proposed {reported}")
            kept = self._kept(plan, decision)
            return replace(kept, reason=f"{reason}; not started, since {waits}")
        # After its own action a goal isn't judged again because another fell short too.
        cooldown.tried(
            covered, now, f"started: {reported}", anything=finding.kind == "goal_violations"
        )
        self._mending, self._cut = covered, cut
        self._keep(replace(decision, kind="started"))
        self._carry_out(plan, finding.kind, now, figures)
        return None

    def _stopped(self, view: View, finding: Finding, findings: tuple[Finding, ...]) -> Decision:
        """The decision if :meth:`stop` ended the search for a plan."""
        reason = f"{finding.sentence}; the search was stopped, because the controller is ending"
        return Decision(view.now, "waiting", reason, finding.kind, findings)

    def _kept(self, plan: Plan, decision: Decision) -> Decision:
        """Keep the plan of a decision as a proposal; returns the decision with its id."""
        kept = self.approvals.keep(
            plan,
            by=CONTROLLER,
            cause=str(decision.cause),
            reason=decision.reason,
            figures=dict(decision.plan or {}),
        )
        return replace(decision, facts={**decision.facts, "proposal": kept.id})

    def _start_approved(
        self, approved: ApprovedPlan, view: View, findings: tuple[Finding, ...]
    ) -> Decision | None:
        """Execute a proposal exactly as approved, or say what has changed since."""
        kept, plan, now = approved.proposal, approved.plan, view.now
        by = listed([a.by for a in kept.approvals])
        facts = {"proposal": kept.id, "digest": kept.digest}
        assert self._runner is not None
        if not isinstance(self._runner.executor, ExactExecutor):
            self.approvals.ended(kept.id, "failed", {"state": "failed", "problems": [_INEXACT]})
            return Decision(now, "error", f"proposal {kept.id}: {_INEXACT}", kept.cause, findings)
        if changes := changes_since(plan, view.snapshot):
            self.approvals.ended(kept.id, "stale", {"state": "stale", "problems": changes})
            return Decision(
                now, "error", _stale_sentence(kept.id, changes), kept.cause, findings, facts
            )
        self._mending, self._cut = (), False
        reason = f"proposal {kept.id}, approved by {by}: {kept.reason}"
        self._keep(Decision(now, "started", reason, kept.cause, findings, facts, kept.plan))
        self._carry_out(plan, kept.cause, now, kept.plan, kept.id)
        return None

    def _carry_out(
        self,
        plan: Plan | PlanDocument,
        cause: str,
        now: float,
        figures: dict[str, Any],
        proposal: str | None = None,
    ) -> None:
        assert self._runner is not None
        executor = self._runner.executor
        partitions = dict.fromkeys(f"{a.topic}-{a.partition}" for a in plan.actions)
        work = Work(cause, now, figures, tuple(partitions), proposal)
        if isinstance(plan, Plan):
            self._launch(work, lambda: executor.execute(plan, progress=self._progressed))
        else:
            assert isinstance(executor, ExactExecutor)
            self._launch(work, lambda: executor.execute_exactly(plan, progress=self._progressed))

    def _launch(self, work: Work, do: Callable[[], ExecutionOutcome | None]) -> None:
        assert self._runner is not None
        self._progress, self._asked = None, None
        self._heard = self._logged = work.since

        def run() -> ExecutionOutcome | None:
            with traced("execute", cause=work.cause) as known:
                outcome = do()
                if outcome is not None:
                    known(state=outcome.state, bytes_moved=outcome.bytes_moved)
                return outcome

        self._runner.launch(work, run, self._ended)

    def _progressed(self, progress: ExecutionProgress) -> None:
        """Record the progress of the execution; log it now and then."""
        now, work = self._clock(), self.work
        self._progress, self._heard = progress, now
        self.metrics.progressed(progress, "bytes" if work is None else work.unit)
        if work is not None and now - self._logged >= self.settings.progress_interval:
            self._logged = now
            self._events.note(
                f"executing ({_cause_name(work)}): {progress_sentence(progress, work.unit)}"
            )

    def _ended(
        self, work: Work, outcome: ExecutionOutcome | None, failure: Exception | None
    ) -> None:
        now = self._clock()
        self._progress = None
        self.metrics.progressed(None)
        if work.cause == _LEFT:
            if self._leftovers.failed(failure):
                self._events.note(f"what is left in Kafka cannot be checked: {failure}")
            return
        self._observer.changed = True
        self._proposal_ended(work, outcome, failure)
        if isinstance(failure, ChangedClusterError):
            reason = _stale_sentence(str(work.proposal), failure.changes)
            self._keep(Decision(now, "error", reason, work.cause, (), {}, work.plan))
            return
        recovery = work.cause == _RECOVERY
        if failure is not None or outcome is not None:
            self._leftovers.expect(now, self.settings.interval)
        if failure is not None or (outcome is not None and outcome.state == "failed"):
            # It may have left something that would block the next execution. A recovery that
            # failed to clean up would fail in the next round too.
            self._recovered = recovery and failure is None
        if outcome is not None and outcome.state == "vote lost":
            self._recovered = False
        if failure is not None:
            said = str(failure) or type(failure).__name__
            what = "cleaning up after an execution that died" if recovery else "the execution"
            decision = Decision(
                now, "error", f"{what} failed: {said}", work.cause, (), {}, work.plan
            )
        elif outcome is None:
            return
        else:
            self.metrics.moved(outcome)
            if (self._cut and outcome.state == "done") or (
                not self.settings.execute and outcome.state == "stopped"
            ):
                # The rest belongs to the same finding, and follows without a cool-down.
                self._cooldown.forget(work.cause)
            if outcome.state == "failed" and not outcome.completed:
                self._cooldown.gave_up(self._mending)
            kind: DecisionKind = "recovered" if recovery else "executed"
            unit = work.unit
            figures = outcome_record(outcome, unit)
            reason = f"{work.cause.replace('_', ' ')}: {outcome_sentence(outcome, unit)}"
            if outcome.state == "done" and (limit := (work.plan or {}).get("exhausted")):
                reached = (
                    f"cut at {self._proposals.share(unit)}"
                    if self._cut
                    else f"ended by a limit ({limit})"
                )
                reason += f"; its plan was {reached}, so more may be left to do"
            decision = Decision(now, kind, reason, work.cause, (), {}, work.plan, figures)
        self._mending, self._cut = (), False
        self._cooldown.moved(work.partitions, now)
        self._keep(decision)

    def _proposal_ended(
        self, work: Work, outcome: ExecutionOutcome | None, failure: Exception | None
    ) -> None:
        """Record how the execution of an approved proposal ended, if it is one."""
        if work.proposal is None:
            return
        if isinstance(failure, ChangedClusterError):
            state, figures = "stale", {"state": "stale", "problems": list(failure.changes)}
        elif failure is not None or outcome is None:
            state, figures = (
                "failed",
                {
                    "state": "failed",
                    "problems": [sentence(failure or ExecutionError("nothing was executed"))],
                },
            )
        else:
            state = "executed" if outcome.state == "done" else "failed"
            figures = outcome_record(outcome, work.unit)
        self.approvals.ended(work.proposal, state, self._events.hidden(figures))

    def _beside(self, work: Work, findings: tuple[Finding, ...], now: float) -> Decision:
        """The decision while an execution is in progress: stop it, if that is due."""
        said = f"{_named(work)} has been running for {span(now - work.since)}"
        if self._progress is not None:
            said += f": {progress_sentence(self._progress, work.unit)}"
        why = self._reason_to_stop(work, findings, now)
        if why is not None and self._stop_work(now):
            reason, cause = why
            return Decision(
                now, "stopping", f"{said}; it is stopped, because {reason}", cause, findings
            )
        self._end_hung(now)
        return Decision(now, "executing", said, work.cause, findings)

    def _reason_to_stop(
        self, work: Work, findings: tuple[Finding, ...], now: float
    ) -> tuple[str, str] | None:
        """Why the execution has to end now, and for which detector; None if it may continue."""
        if not self.settings.execute:
            return "the settings pause executions", work.cause
        silent = now - self._heard
        if silent > self.settings.silence_timeout:
            return f"it has reported no progress for {span(silent)}", work.cause
        if work.cause in HEALING:
            return None
        if work.cause == _RECOVERY and now - work.since <= self.settings.recovery_timeout:
            return None
        for f in findings:
            if f.kind in HEALING and f.state == "ripe" and self._detectors.settings_of(f.kind).act:
                return f.sentence, f.kind
        return None

    def _stop_work(self, now: float) -> bool:
        """Ask the execution to end; returns whether this is the first time."""
        assert self._runner is not None
        first = self._asked is None
        # Repeated: an execution that was just starting may have missed the first request.
        self._runner.stop()
        if first:
            self._asked = now
        return first

    def _end_hung(self, now: float) -> None:
        """End the controller if an execution was asked to end and does not.

        It may still write to Kafka when it resumes, so nothing may run alongside it in this
        process. A controller that ends lets a standby, or its own next start, recover.
        """
        work, asked = self.work, self._asked
        if work is None or asked is None or now - asked <= self.settings.stop_timeout:
            return
        raise ControllerError(
            f"{_named(work)} was asked to stop {span(now - asked)} ago and has not "
            "ended; no other execution may start meanwhile, so this controller ends: the next "
            "to act recovers it"
        )

    def _shown(self, steady: float) -> float:
        """A time of the steady clock as seconds since 1970, by the current wall clock."""
        return steady + (self._wall() - self._clock())

    def _dated(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Findings with times for display."""
        return tuple(replace(f, since=self._shown(f.since)) for f in findings)

    def _keep(self, decision: Decision) -> Decision:
        self.metrics.decided(decision.kind)
        time_, findings = self._shown(decision.time), self._dated(decision.findings)
        shown = self._events.decided(replace(decision, time=time_, findings=findings))
        if self._witness is not None:
            try:
                self._witness(shown)
            except Exception as error:
                # A failing listener, such as standard output on a full disk, stops nothing here.
                self._events.note(f"the decision could not be passed on: {sentence(error)}")
        return shown


def _stale_sentence(proposal: str, changes: Sequence[str]) -> str:
    more = f" (and {len(changes) - 1:,} more)" if len(changes) > 1 else ""
    return (
        f"proposal {proposal} was approved, but not started, since the cluster has changed: "
        f"{changes[0]}{more}; propose again"
    )


def _reasons(notes: Sequence[_Note]) -> str:
    """Why nothing is done; of many findings of one detector only the first are quoted."""
    said: list[str] = []
    by_detector = Counter[str]()
    for note in notes:
        by_detector[note.finding.kind] += 1
        if by_detector[note.finding.kind] <= _QUOTED and note.why not in said:
            said.append(note.why)
    more = [
        f"{plural(count - _QUOTED, 'more finding', 'more findings')} of {kind}"
        for kind, count in by_detector.items()
        if count > _QUOTED
    ]
    return "; ".join([*said, *more])


def _rank(finding: Finding) -> int:
    """The order of handling: detectors of other packages come right before goals."""
    return _ORDER.index("added" if finding.added else finding.kind)


def _cause_name(work: Work) -> str:
    return work.cause.replace("_", " ")


def _named(work: Work) -> str:
    """The work as the subject of a sentence."""
    if work.cause == _RECOVERY:
        return "the recovery of an earlier execution"
    return f"a check of {_LEFT}" if work.cause == _LEFT else f"an execution ({_cause_name(work)})"


def _covered_findings(finding: Finding, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that a plan for this one covers: one healing plan covers all ripe ones."""
    if finding.kind not in HEALING:
        return (finding,)
    return tuple(f for f in findings if f.kind == finding.kind and f.state == "ripe")
