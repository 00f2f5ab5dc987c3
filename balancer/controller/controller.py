"""The loop: snapshot, detect, propose, execute; one decision a round, with its reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from balancer.controller.balance import even_sentence
from balancer.controller.carrier import Carrier, Job, Work, in_thread
from balancer.controller.decision import (
    Decision,
    Kind,
    outcome_record,
    outcome_sentence,
    plan_record,
    plan_sentence,
)
from balancer.controller.finding import Finding, View, span
from balancer.controller.metrics import Metrics
from balancer.controller.news import News
from balancer.controller.patience import Patience, stale_sentence
from balancer.controller.redact import Redactor
from balancer.controller.roles import Alone, Clock, Executor, Model, Notifier, Outcome, Vote
from balancer.controller.settings import Settings
from balancer.controller.watches import HEALING, Watches
from balancer.controller.worth import gain, gain_record, not_worth
from balancer.engine import Balancer
from balancer.plan import Plan
from cluster_model.errors import InputError

# What is mended first: data at risk comes before load.
_ORDER = (
    "dead_brokers",
    "dead_disks",
    "missing_replicas",
    "drained_brokers",
    "slow_brokers",
    "goal_violations",
)
# Where nothing is done, what says most about why.
_TELLING: tuple[Kind, ...] = (
    "not_worth",
    "nothing_helps",
    "unfixable",
    "stale",
    "cooling",
    "waiting",
    "trivial",
    "told",
)
_RECOVERY = "recovery"
_STOP_SECONDS = 0.5


@dataclass(frozen=True)
class _Note:
    """Why nothing came of a finding."""

    kind: Kind
    finding: Finding
    why: str
    plan: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Controller:
    """Watches a cluster and keeps it balanced.

    Parameters
    ----------
    model
        The cluster: a :class:`balancer.controller.MeasuredCluster`, or anything alike.
    balancer
        Makes the plans; its goals are what is watched.
    executor
        Carries plans out; without one, or where ``settings.execute`` is False, plans are
        proposed only.
    settings
        See :class:`Settings`.
    notifiers
        Told of what people may want to know.
    vote
        Whether this controller acts; by default it is alone and does.
    clock
        Seconds since 1970.
    redactor
        Hides secrets in decisions, events and logs.
    spawn
        How an execution is run: beside the rounds, which go on watching, or at once.
    witness
        Shown every decision.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> class Still:
    ...     def snapshot(self, min_ratio=0.95):
    ...         return synthetic_snapshot(brokers=6, partitions=60, racks=3)
    ...     def staleness(self):
    ...         return None
    ...     def signals(self):
    ...         return {}
    ...     def since(self):
    ...         return None
    ...     def noise(self):
    ...         return {}
    ...     def refresh(self): ...
    >>> Controller(Still(), Balancer("default")).step().kind
    'proposed'
    """

    def __init__(
        self,
        model: Model,
        balancer: Balancer,
        executor: Executor | None = None,
        settings: Settings | None = None,
        *,
        notifiers: Iterable[Notifier] = (),
        vote: Vote | None = None,
        clock: Clock = time.time,
        redactor: Redactor | None = None,
        spawn: Callable[[Job], None] = in_thread,
        witness: Callable[[Decision], None] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.metrics = Metrics()
        self._model = model
        self._balancer = balancer
        self._vote = vote or Alone()
        self._clock = clock
        self._carrier = None if executor is None else Carrier(executor, self._vote, spawn)
        self._watches = Watches(self.settings, balancer.goals)
        self._patience = Patience()
        self._news = News(self.settings.decisions, notifiers, redactor or Redactor())
        self._stopping = threading.Event()
        self._witness = witness
        self._recovered = False
        self._changed = False

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The last decisions, oldest first."""
        return self._news.decisions

    @property
    def work(self) -> Work | None:
        """The execution under way."""
        return None if self._carrier is None else self._carrier.work

    def configure(self, settings: Settings) -> None:
        """Take other settings; what detectors remember is kept."""
        self.settings = settings
        self._watches.configure(settings)
        self._news.keep_last(settings.decisions)

    def step(self) -> Decision:
        """One round; returns its decision (of an execution that is over already, its end).

        Raises
        ------
        InputError
            Where goals or settings don't fit the cluster.
        """
        now = self._clock()
        decision = self._round(now)
        if decision is not None:
            self._keep(decision)
        self.metrics.round(now, self._vote.acting)
        return self.decisions[-1]

    def run(self) -> None:
        """Make rounds until :meth:`stop`; a round that fails is told, and the next is tried."""
        while not self._stopping.is_set():
            try:
                self.step()
            except Exception as error:
                known = isinstance(error, InputError)
                said = str(error) if known else f"{type(error).__name__}: {error}"
                self._news.trace()
                self._keep(Decision(self._clock(), "error", f"the round failed: {said}"))
            self._stopping.wait(self.settings.interval)
        while self._carrier is not None and not self._carrier.wait(_STOP_SECONDS):
            # Again: an execution that was only just beginning may have missed it.
            self._carrier.stop()

    def stop(self) -> None:
        """End :meth:`run` after the round in hand, and an execution soon; from any thread."""
        self._stopping.set()
        if self._carrier is not None:
            self._carrier.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the execution that is under way, if any; returns whether it has ended."""
        return self._carrier is None or self._carrier.wait(timeout)

    def state(self) -> dict[str, Any]:
        """Everything a person may want to see, as JSON takes it."""
        work, watches = self.work, self._watches
        cooling = self._patience.cooling(self._clock(), self.settings.moved_cooldown)
        return self._news.hidden(
            {
                "acting": self._vote.acting,
                "execute": self._executes,
                "executing": None
                if work is None
                else {"cause": work.cause, "since": work.since, "plan": work.plan},
                "rounds": self.metrics.rounds,
                "balancedness": watches.goals.balancedness,
                "evenness": watches.goals.evenness,
                "slow_scores": {str(b): n for b, n in watches.slow.scores.items()},
                "demoted": sorted(watches.slow.demoted),
                "partitions_cooling": len(cooling),
                "decisions": [d.record() for d in reversed(self.decisions)],
            }
        )

    @property
    def _executes(self) -> bool:
        return self.settings.execute and self._carrier is not None

    def _round(self, now: float) -> Decision | None:
        acting = self._vote.acting
        recover = acting and self._executes and not self._recovered and self.work is None
        self._recovered = acting and self._executes and (self._recovered or recover)
        if recover:
            assert self._carrier is not None
            self._carrier.launch(Work(_RECOVERY, now), self._carrier.executor.recover, self._ended)
        try:
            view = self._look(now)
        except InputError as error:
            return Decision(now, "waiting", f"there is no picture of the cluster: {error}")
        cooling = self._patience.cooling(now, self.settings.moved_cooldown)
        self._patience.saw(view.snapshot, now)
        findings = self._watches.find(view, cooling)
        self.metrics.saw(findings, self._watches.goals.balancedness)
        self._news.found(findings, now, tell=acting)
        if not acting:
            return Decision(
                now, "standby", "another controller acts, or none for certain", findings=findings
            )
        if self.work is not None:
            return self._beside(self.work, findings, now)
        return self._decide(view, findings)

    def _look(self, now: float) -> View:
        if self._changed:
            # What was moved must not be planned for once more.
            self._model.refresh()
            self._changed = False
        incomplete = None
        try:
            snapshot = self._model.snapshot()
        except InputError as error:
            # Enough to heal by: where replicas are is known even where loads are not.
            snapshot, incomplete = self._model.snapshot(0.0), str(error)
        return View(
            snapshot=snapshot,
            now=now,
            staleness=self._model.staleness(),
            signals=self._model.signals(),
            since=self._model.since(),
            noise=self._model.noise(),
            incomplete=incomplete,
        )

    def _decide(self, view: View, findings: tuple[Finding, ...]) -> Decision | None:
        """A decision, or None where one was kept with the execution that it began."""
        notes: list[_Note] = []
        known = [f for f in findings if f.kind in _ORDER]
        for finding in sorted(known, key=lambda f: _ORDER.index(f.kind)):
            in_the_way = self._patience.obstacle(
                view,
                finding,
                findings,
                self._watches.settings_of(finding.kind),
                self._watches.goals.evenness,
                self.settings.settle,
            )
            if in_the_way is not None:
                notes.append(_Note(in_the_way[0], finding, in_the_way[1]))
                continue
            tried = self._attempt(view, finding, findings)
            if not isinstance(tried, _Note):
                return tried
            notes.append(tried)
        return self._nothing(view, findings, notes)

    def _nothing(self, view: View, findings: tuple[Finding, ...], notes: list[_Note]) -> Decision:
        """The decision to do nothing, with the reasons."""
        facts: dict[str, Any] = {"evenness": self._watches.goals.evenness}
        if notes:
            notes = sorted(notes, key=lambda note: _TELLING.index(note.kind))
            first = notes[0]
            for note in notes:
                facts |= note.facts
            reason = "; ".join(dict.fromkeys(note.why for note in notes))
            kind, cause = first.kind, first.finding.kind
            return Decision(view.now, kind, reason, cause, findings, facts, first.plan)
        if view.incomplete is not None:
            return Decision(view.now, "waiting", view.incomplete, None, findings, facts)
        stale = [f for f in findings if f.kind == "stale_metrics"]
        if stale:
            reason = f"{stale_sentence(stale)}: nothing would be moved on stale data"
            return Decision(view.now, "stale", reason, "stale_metrics", findings, facts)
        reason = f"nothing to do: {even_sentence(self._watches.goals.evenness)}"
        return Decision(view.now, "balanced", reason, None, findings, facts)

    def _attempt(
        self, view: View, finding: Finding, findings: tuple[Finding, ...]
    ) -> Decision | _Note | None:
        """Plan for a finding: a proposal, why nothing comes of it, or None if it was begun."""
        now, patience = view.now, self._patience
        started = time.perf_counter()
        plan = self._balancer.propose(*self._watches.scene(view, finding, findings))
        seconds = time.perf_counter() - started
        self.metrics.planned(plan, seconds)
        figures = plan_record(plan, seconds)
        if not len(plan):
            why = "; ".join(u.reason for u in plan.unmet[:2]) or "the plan is empty"
            stay = len(finding.operation.excluded_partitions) if finding.operation else 0
            if stay:
                why += f" ({stay} partitions stay, because they were moved not long ago)"
            patience.tried(finding, now, f"nothing helped, {why}")
            return _Note(
                "nothing_helps", finding, f"{finding.sentence}; nothing helps: {why}", figures
            )
        facts: dict[str, Any] = {}
        if finding.kind == "goal_violations":
            found = gain(plan)
            facts = gain_record(found)
            poor = not_worth(found, self.settings.goal_violations)
            if poor is not None:
                patience.tried(finding, now, f"a plan was not worth it, {poor}")
                why = f"{finding.sentence}; a plan is not worth it: {poor}"
                return _Note("not_worth", finding, why, figures, facts)
        told = plan_sentence(plan)
        reason = f"{finding.sentence}; {told}"
        decision = Decision(now, "proposed", reason, finding.kind, findings, facts, figures)
        if not self._executes:
            patience.tried(finding, now, f"proposed {told}")
            return decision
        # The search may have taken minutes.
        if not self._vote.acting:
            return replace(decision, kind="standby", reason="another controller may act by now")
        # After an action of its own a goal isn't judged anew because another fell short too.
        patience.tried(
            finding, now, f"carried out {told}", anything=finding.kind == "goal_violations"
        )
        self._keep(replace(decision, kind="started"))
        self._carry_out(plan, finding.kind, now, figures)
        return None

    def _carry_out(self, plan: Plan, cause: str, now: float, figures: dict[str, Any]) -> None:
        carrier = self._carrier
        assert carrier is not None
        partitions = dict.fromkeys(f"{a.topic}-{a.partition}" for a in plan.actions)
        work = Work(cause, now, figures, tuple(partitions))
        carrier.launch(work, lambda: carrier.executor.execute(plan), self._ended)

    def _ended(self, work: Work, outcome: Outcome | None, failure: Exception | None) -> None:
        now = self._clock()
        self._changed = True
        recovery = work.cause == _RECOVERY
        if failure is not None or (outcome is not None and outcome.state == "failed"):
            # It may have left something, which would be in the way of the next. A recovery
            # that could not do better would not with the next round either.
            self._recovered = recovery and failure is None
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
            kind: Kind = "recovered" if recovery else "executed"
            figures = outcome_record(outcome)
            reason = f"{work.cause.replace('_', ' ')}: {outcome_sentence(outcome)}"
            decision = Decision(now, kind, reason, work.cause, (), {}, work.plan, figures)
        self._patience.moved(work.partitions, now)
        self._keep(decision)

    def _beside(self, work: Work, findings: tuple[Finding, ...], now: float) -> Decision:
        """What is decided while an execution is under way: to stop it, where healing is due."""
        carrier = self._carrier
        assert carrier is not None
        cause = work.cause.replace("_", " ")
        said = f"an execution ({cause}) has been under way for {span(now - work.since)}"
        urgent = [
            f
            for f in findings
            if f.kind in HEALING and f.state == "ripe" and self._watches.settings_of(f.kind).act
        ]
        if urgent and not carrier.stopping and work.cause not in (*HEALING, _RECOVERY):
            carrier.stop()
            reason = f"{said}; it is stopped, because {urgent[0].sentence}"
            return Decision(now, "stopping", reason, urgent[0].kind, findings)
        return Decision(now, "executing", said, work.cause, findings)

    def _keep(self, decision: Decision) -> None:
        self.metrics.decided(decision.kind)
        shown = self._news.decided(decision)
        if self._witness is not None:
            self._witness(shown)
