"""What a client may ask of a running controller, apart from HTTP: both APIs call this."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter

from balancer.approval import ApprovalError, KeptProposal, changes_since
from balancer.approval.approvals import REQUEST
from balancer.composition.proposal import restricted_to_known
from balancer.controller import Controller
from balancer.controller.decision import plan_record, plan_sentence
from balancer.controller.finding import View
from balancer.controller.proposals import without_loads
from balancer.engine import Balancer
from balancer.execution import Executor
from balancer.inspection.load import BrokerLoad, ClusterLoad
from balancer.planning.document import Action, PlanDocument
from balancer.planning.plan import Plan
from balancer.planning.remedies import enlarged
from balancer.planning.traffic import Traffic, traffic
from balancer.planning.why_not import why_not
from balancer.problem.operation import Operation
from balancer.problem.operations import type_of
from balancer.problem.resolution import resolve
from balancer.problem.topics import unmatched_exclusion
from balancer.server.access import Actor
from balancer.server.audit import AuditLog
from balancer.server.errors import RequestError, UnknownLoadsError
from balancer.server.jobs import CancelledError, Job, Jobs
from balancer.server.judgement import goal_states
from balancer.server.models import (
    BrokerProposal,
    GoalState,
    Hypothesis,
    PlanRequest,
    SpeedLimits,
    WhatIfRequest,
    WhyNotRequest,
)
from balancer.server.patterns import partitions_of_topics
from cluster_model.snapshot import BrokerState, Snapshot
from cluster_model.trust import Distrust
from goals import Goal, inapplicable
from metrics_reporter.documents import shown
from metrics_reporter.quantities import plural

# Plans whose end is kept in memory, to answer why not.
_ENDS = 4
# Plans whose numbers of actions by broker are kept.
_COUNTS = 100
# Lists of brokers that are kept as they were written, and comparisons of plans with the cluster.
_ANSWERS = 8
Compared = TypeVar("Compared")
_BROKERS = TypeAdapter(list[BrokerLoad])


class Service:
    """A running controller, for its clients.

    Parameters
    ----------
    controller
        The controller.
    balancer
        Makes its plans.
    executor
        Executes them; None if it only proposes.
    audit
        Records changes.
    planning_queue
        Plans that may wait to be made for clients.
    plans_per_client
        Plans of one client that may wait or be made.
    """

    def __init__(
        self,
        controller: Controller,
        balancer: Balancer,
        executor: Executor | None,
        audit: AuditLog,
        *,
        planning_queue: int,
        plans_per_client: int,
    ) -> None:
        self.controller = controller
        self.balancer = balancer
        self.jobs = Jobs(planning_queue, plans_per_client)
        self._executor = executor
        self._audit = audit
        self._lock = threading.Lock()
        # Who holds the controller: names by client.
        self._holders: dict[str, str] = {}
        self._load: tuple[View, ClusterLoad] | None = None
        self._goals: tuple[View, Sequence[GoalState]] | None = None
        self._brokers: OrderedDict[tuple[ClusterLoad, str | None, int], bytes] = OrderedDict()
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._counts: OrderedDict[str, Counter[str]] = OrderedDict()
        self._comparing = threading.Lock()
        self._compared_with: Snapshot | None = None
        self._comparisons: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def close(self) -> None:
        """End planning for clients."""
        self.jobs.close()

    # The cluster

    def state(self) -> dict[str, Any]:
        """What the controller is doing, without its decisions."""
        found = self.controller.state()
        found.pop("decisions")
        with self._lock:
            return {**found, "held_by": sorted(self._holders.values())}

    def view(self) -> View:
        """The last look at the cluster.

        Raises
        ------
        RequestError
            Before the first one.
        """
        view = self.controller.view
        if view is None:
            raise RequestError("the cluster has not been read yet; try again in a moment", 503)
        return view

    def load(self) -> ClusterLoad:
        """What is where, by the last look."""
        view = self.view()
        with self._lock:
            if self._load is None or self._load[0] is not view:
                self._load = view, ClusterLoad(view.snapshot, view.distrust)
                # They hold the snapshot before.
                self._brokers.clear()
            return self._load[1]

    def brokers(self, sort: str | None, limit: int) -> bytes:
        """Brokers by the last look, as JSON: made once for a look, since all clients ask for it."""
        load = self.load()
        with self._lock:
            found = self._brokers.get((load, sort, limit))
        if found is None:
            found = _BROKERS.dump_json(load.brokers(sort=sort, limit=limit))
            with self._lock:
                self._brokers[load, sort, limit] = found
                while len(self._brokers) > _ANSWERS:
                    self._brokers.popitem(last=False)
        return found

    def goals(self) -> Sequence[GoalState]:
        """How each goal stands, by the last look."""
        view = self.view()
        with self._lock:
            if self._goals is None or self._goals[0] is not view:
                self._goals = (view, goal_states(self.balancer, view))
            return self._goals[1]

    # Proposals

    def propose(self, request: PlanRequest, by: Actor) -> Job:
        """Make a proposal in the background; the job's result is a :class:`KeptProposal`."""

        def do(stop: threading.Event, progress: Callable[[str, int, int, int], None]) -> Any:
            plan = self._plan(request, self.view(), stop, progress)
            return self._keep(plan, request, by)

        self._check(request)
        self._audit.record(by, "propose", request.operation.kind, request.reason)
        return self.jobs.submit(Job(request.operation.kind, by, do))

    def plan(
        self,
        request: PlanRequest,
        goals: Sequence[Goal] | None,
        by: Actor,
        then: Callable[[Plan], None],
        made: Plan | None = None,
    ) -> Job:
        """Make a plan in the background, and hand it over; nothing is kept or executed.

        Parameters
        ----------
        request
            What is asked.
        goals
            The goals in place of those of the request; None for these.
        by
            Who asks.
        then
            Gets the plan, in the thread that plans.
        made
            A plan that was made before, to hand over in place of a new one.
        """

        def do(stop: threading.Event, progress: Callable[[str, int, int, int], None]) -> Any:
            plan = made
            if plan is None:
                plan = self._plan(request, self.view(), stop, progress, goals)
            if stop.is_set():
                raise CancelledError
            then(plan)

        self._balancer_for(request, self.view(), goals)
        return self.jobs.submit(Job(request.operation.kind, by, do))

    def keep(self, plan: Plan, request: PlanRequest, by: Actor) -> KeptProposal:
        """Keep a plan that was made for a client as a proposal."""
        self._audit.record(by, "propose", request.operation.kind, request.reason)
        return self._keep(plan, request, by)

    def may_execute(self) -> None:
        """Check that proposals can be executed here now.

        Raises
        ------
        RequestError
            With the reason, if not.
        """
        if not self.controller.executes:
            raise RequestError(self._why_not_executing(), 409)

    def what_if(self, request: WhatIfRequest, by: Actor) -> Job:
        """Plan for a cluster that differs; the job's result is a dict with both clusters."""

        def do(stop: threading.Event, progress: Callable[[str, int, int, int], None]) -> Any:
            view = self.view()
            _check_scale(request.hypothesis, view)
            changed, operation, said = supposed(
                view.snapshot, request.operation, request.hypothesis
            )
            asked = request.model_copy(update={"operation": operation})
            plan = self._plan(asked, replace(view, snapshot=changed), stop, progress)
            return {
                "cluster": said,
                "plan": plan_record(plan, 0.0),
                "verdict": plan_sentence(plan) + _remarks(plan, request.operation, view),
                "goals": [g.model_dump(mode="json") for g in plan.goal_results],
                "unmet": [u.model_dump(mode="json") for u in plan.unmet],
                "goals_left_out": plan.goals_left_out,
                "columns": {k: c.model_dump(mode="json") for k, c in plan.columns.items()},
                "before": _brokers(changed, view.distrust) if request.brokers else [],
                "after": _brokers(plan.final_snapshot(), view.distrust) if request.brokers else [],
            }

        self._check(request)
        _check_scale(request.hypothesis, self.view())
        return self.jobs.submit(Job("what if", by, do))

    def why_not(self, request: WhyNotRequest, by: Actor) -> Job:
        """Why a partition is not on a broker; the job's result is a list of answers."""

        def do(stop: threading.Event, progress: Callable[[str, int, int, int], None]) -> Any:
            if request.proposal is None:
                plan = self._plan(PlanRequest(), self.view(), stop, progress)
            else:
                plan = self._kept_plan(request.proposal)
            answers = why_not(plan.end, request.partition, request.broker)
            return [{**asdict(a), "verdict": a.verdict} for a in answers]

        if request.proposal is not None:
            self._kept_plan(request.proposal)
        else:
            self._check(PlanRequest())
        return self.jobs.submit(Job("why not", by, do))

    def cancel(self, identity: str, by: Actor) -> Job:
        """End the making of a plan.

        Raises
        ------
        RequestError
            If it is somebody else's, and the role does not suffice for that.
        """
        found = self.jobs.get(identity)
        if found.by.client != by.client and not by.may("operator"):
            raise RequestError(
                f"{found.by.name} asked for this plan, and {by.name} is {by.role}; operator needed",
                403,
            )
        self._audit.record(by, "cancel", f"job {found.id} ({found.what})")
        self.jobs.cancel(found)
        return found

    def proposals(self) -> tuple[KeptProposal, ...]:
        """The proposals that are kept, the oldest first."""
        self.controller.approvals.expire()
        return self.controller.approvals.store.all()

    def approve(self, identity: str, digest: str, why: str, by: Actor) -> KeptProposal:
        """Approve a proposal.

        Raises
        ------
        RequestError
            If this controller does not execute plans now.
        ApprovalError
            If it cannot be approved.
        """
        kept = self.controller.approvals.store.get(identity)
        if not self.controller.executes:
            raise RequestError(f"proposal {kept.id}: {self._why_not_executing()}", 409)
        self._audit.record(by, "approve", f"proposal {kept.id}", why, digest=digest)
        found = self.controller.approvals.approve(identity, digest, by=by.name, why=why)
        self.controller.look_now()
        return found

    def reject(self, identity: str, why: str, by: Actor) -> KeptProposal:
        """Reject a proposal."""
        kept = self.controller.approvals.store.get(identity)
        self._audit.record(by, "reject", f"proposal {kept.id}", why)
        return self.controller.approvals.reject(identity, by=by.name, why=why)

    def changes(self, identity: str) -> list[str]:
        """What has changed in the cluster since a proposal was made."""
        return self._compared("changes", identity, changes_since)

    def traffic(self, identity: str) -> Traffic:
        """What carrying out the plan of a proposal copies, by broker."""
        return self._compared("traffic", identity, traffic)

    def proposals_with(self, broker: str, limit: int) -> list[BrokerProposal]:
        """Those of the last `limit` proposals that have actions with a broker, the newest first."""
        found = []
        for kept in tuple(reversed(self.proposals()))[:limit]:
            try:
                counts = self._actions_by_broker(kept)
            except ApprovalError:
                # its plan was removed meanwhile, or cannot be read: the proposal itself says so
                continue
            if broker in counts:
                found.append(BrokerProposal(proposal=kept, actions=counts[broker]))
        return found

    def _compared(
        self, what: str, identity: str, compare: Callable[[PlanDocument, Snapshot], Compared]
    ) -> Compared:
        """A comparison of a plan with the last look, made once for all clients.

        With a million actions it takes seconds, and every open page of the proposal requests it.
        """
        kept = self.controller.approvals.store.get(identity)
        with self._comparing:
            snapshot = self.view().snapshot
            if self._compared_with is not snapshot:
                self._compared_with = snapshot
                self._comparisons.clear()
            found: Compared | None = self._comparisons.get((what, kept.digest))
            if found is None:
                found = compare(self.document(kept.id), snapshot)
                self._comparisons[what, kept.digest] = found
                while len(self._comparisons) > _ANSWERS:
                    self._comparisons.popitem(last=False)
            return found

    def _actions_by_broker(self, kept: KeptProposal) -> Mapping[str, int]:
        with self._lock:
            found = self._counts.get(kept.digest)
        if found is None:
            found = Counter(
                str(b)
                for a in self.document(kept.id).actions
                for b in {a.source, a.destination} - {None}
            )
            with self._lock:
                self._counts[kept.digest] = found
                while len(self._counts) > _COUNTS:
                    self._counts.popitem(last=False)
        return found

    def document(self, identity: str) -> PlanDocument:
        """The plan of a proposal."""
        return self.controller.approvals.store.plan(identity)

    def actions(
        self, identity: str, offset: int, limit: int, broker: str | None, topic: str | None
    ) -> tuple[int, list[Action]]:
        """How many actions of a plan match, and some of them in order."""
        found: Sequence[Action] = self.document(identity).actions
        if broker is None and topic is None:
            return len(found), list(found[offset : offset + limit])
        found = [
            a
            for a in found
            if (broker is None or broker in (str(a.source), str(a.destination)))
            and (topic is None or topic == a.topic)
        ]
        return len(found), list(found[offset : offset + limit])

    # Executions

    def execution(self) -> dict[str, Any] | None:
        """The execution in progress; None without one."""
        work: Any = self.controller.state()["executing"]
        if work is None or self._executor is None:
            return None
        limits = self._executor.limits
        return {
            **work,
            "paused": self._executor.steering.paused,
            "limits": {
                name: getattr(limits, name) for name in SpeedLimits.model_fields if name != "why"
            },
        }

    def pause(self, why: str, by: Actor) -> None:
        """Start no further task of the execution in progress."""
        executor = self._executing()
        self._audit.record(by, "pause", "execution", why)
        executor.steering.pause()

    def resume(self, why: str, by: Actor) -> None:
        """Go on with a paused execution."""
        executor = self._executing()
        self._audit.record(by, "resume", "execution", why)
        executor.steering.resume()

    def adjust(self, limits: SpeedLimits, by: Actor) -> None:
        """Change speed limits of the execution in progress."""
        executor = self._executing()
        changes = limits.model_dump(exclude_none=True, exclude={"why"})
        if not changes:
            raise RequestError("no limit found, at least one to change expected")
        self._audit.record(by, "adjust", "execution", limits.why, **changes)
        executor.adjust(**changes)

    def stop(self, why: str, by: Actor) -> None:
        """Stop the execution in progress: running moves are cancelled."""
        self._executing()
        self._audit.record(by, "stop", "execution", why)
        self.controller.end_execution(f"{by.name} asked for it" + (f" ({why})" if why else ""))

    def hold(self, held: bool, why: str, by: Actor) -> None:
        """Hold everything back that has not started, or let it start again.

        Raises
        ------
        RequestError
            If somebody else holds it, and the role does not suffice to release that.
        """
        with self._lock:
            others = sorted(n for c, n in self._holders.items() if c != by.client)
            if not held and others and not by.may("admin"):
                raise RequestError(
                    f"{', '.join(others)} {'holds' if len(others) == 1 else 'hold'} the "
                    f"controller, and {by.name} is {by.role}; admin needed",
                    403,
                )
            self._audit.record(by, "hold" if held else "release", "controller", why)
            if held:
                self._holders[by.client] = by.name
            else:
                self._holders.clear()
            self.controller.hold(held)

    def audit(self, limit: int) -> list[dict[str, Any]]:
        """The last changes that people have made, the newest first."""
        return self._audit.last(limit)

    def look_now(self, by: Actor) -> None:
        """Start the next round at once."""
        self._audit.record(by, "look", "controller")
        self.controller.look_now()

    def _executing(self) -> Executor:
        if self._executor is None or self.controller.work is None:
            raise RequestError("no execution is in progress", 409)
        return self._executor

    def _why_not_executing(self) -> str:
        if self._executor is None:
            return "this controller only proposes; start it with --execute"
        if self.controller.held:
            return "the controller is on hold; release it first"
        if not self.controller.settings.execute:
            return "executions are paused by the settings file (execute: false)"
        return "this controller does not have the vote; approve it where the proposal was made"

    def _check(self, request: PlanRequest) -> None:
        """Refuse at once what cannot be planned for the cluster of the last look.

        Raises
        ------
        RequestError
            If it excludes what no topic matches, or needs loads that are not known.
        """
        _check_exclusions(request.operation, self.view().snapshot)
        self._balancer_for(request, self.view())

    def _plan(
        self,
        request: PlanRequest,
        view: View,
        stop: threading.Event,
        progress: Callable[[str, int, int, int], None],
        goals: Sequence[Goal] | None = None,
    ) -> Plan:
        settings = self.controller.settings
        balancer = self._balancer_for(request, view, goals)
        balancer.budget = balancer.budget.within(settings.budget).within(request.budget)
        operation = request.operation
        excluded = tuple(dict.fromkeys((*operation.excluded_topics, *settings.excluded_topics)))
        # what the request excludes was checked; the settings may name topics that come and go
        operation = operation.model_copy(
            update={"excluded_topics": excluded, "allow_unmatched": True}
        )
        if view.incomplete is None:
            # what stays is said with the plan
            operation = restricted_to_known(
                view.snapshot, operation, view.distrust, lambda sentence: None
            )
        plan = balancer.propose(view.snapshot, operation, progress=progress, stop=stop)
        if stop.is_set():
            # Its search was cut short.
            raise CancelledError
        return plan

    def _balancer_for(
        self, request: PlanRequest, view: View, goals: Sequence[Goal] | None = None
    ) -> Balancer:
        """The planner with the goals of a request: every plan for a client comes by here.

        Raises
        ------
        RequestError
            If a goal does not exist, or one that is asked for by name cannot be judged.
        UnknownLoadsError
            If the operation, or a goal that is asked for by name, needs loads that are not known.
        """
        if goals is not None:
            balancer = copy(self.balancer)
            balancer.goals = list(goals)
        elif request.goals is None:
            balancer = copy(self.balancer)
        else:
            if "/" in request.goals or request.goals.endswith((".yaml", ".yml", ".json", ".toml")):
                raise RequestError(
                    f"goals: {shown(request.goals)} found, the name of a profile expected"
                )
            balancer = Balancer(request.goals)
        if request.only is not None:
            known = {goal.name: goal for goal in balancer.goals}
            unknown = [name for name in request.only if name not in known]
            if unknown:
                raise RequestError(
                    f"only: goal {shown(unknown[0])} found, one of {', '.join(known)} expected"
                )
            balancer.goals = [known[name] for name in request.only]
        named = goals is not None or request.only is not None
        lacking = inapplicable(balancer.goals, view.snapshot)
        if view.incomplete is not None:
            if lacking and (named or type_of(request.operation).needs_loads):
                raise UnknownLoadsError(view.incomplete)
            balancer.strict = False
        elif request.only is not None and lacking:
            raise RequestError(f"{next(iter(lacking.values()))}; leave it out")
        return balancer

    def _keep(self, plan: Plan, request: PlanRequest, by: Actor) -> KeptProposal:
        figures = plan_record(plan, 0.0)
        asked = f"{by.name} asked: {request.reason}" if request.reason else f"{by.name} asked"
        kept = self.controller.approvals.keep(
            plan,
            by=by.name,
            cause=REQUEST,
            reason=f"{asked}; {plan_sentence(plan)}"
            f"{_remarks(plan, request.operation, self.view())}",
            figures=figures,
        )
        with self._lock:
            self._plans[kept.id] = plan
            while len(self._plans) > _ENDS:
                self._plans.popitem(last=False)
        return kept

    def _kept_plan(self, identity: str) -> Plan:
        self.controller.approvals.store.get(identity)
        with self._lock:
            plan = self._plans.get(identity)
        if plan is None:
            raise RequestError(
                f"proposal {shown(identity)}: only the last {_ENDS} proposals that people asked "
                "for can be asked why not; propose again, or leave the proposal out",
                409,
            )
        return plan


def _check_exclusions(operation: Operation, snapshot: Snapshot) -> None:
    """Refuse a request at once if it excludes what no topic matches, unless it allows that.

    Raises
    ------
    RequestError
        With the pattern.
    """
    for pattern in () if operation.allow_unmatched else operation.excluded_topics:
        if not partitions_of_topics(pattern, snapshot).any():
            raise RequestError(unmatched_exclusion(pattern))


def _check_scale(hypothesis: Hypothesis, view: View) -> None:
    """Refuse to multiply loads that are not known.

    Raises
    ------
    UnknownLoadsError
        With the reason why they are not.
    """
    if hypothesis.scale_load != 1.0 and view.incomplete is not None:
        raise UnknownLoadsError(view.incomplete)


def _remarks(plan: Plan, asked: Operation, view: View) -> str:
    """What a plan does not judge, and which partitions stay although nobody asked for that."""
    # a plan that a dry run made earlier may have loads that are not known any more
    blind = view.incomplete is not None and {*plan.snapshot.resources} <= {*view.snapshot.resources}
    said = without_loads(view, plan) if blind else ""
    stay = {*plan.operation.get("excluded_partitions", ())} - {*asked.excluded_partitions}
    if stay:
        count = plural(len(stay), "partition stays", "partitions stay")
        said += f"; {count}, because not all loads are known"
    return said


def supposed(
    snapshot: Snapshot, operation: Operation, hypothesis: Hypothesis
) -> tuple[Snapshot, Operation, str]:
    """The cluster if something else were true, the operation on it, and a sentence on it.

    Raises
    ------
    RequestError
        If a broker or rack does not exist, or no broker would be left.
    """
    said = []
    ids = snapshot.broker_ids.tolist()
    lost = set()
    for rack in hypothesis.lose_racks:
        if rack not in snapshot.racks:
            raise RequestError(f"rack {shown(rack)}: not found, one of the cluster expected", 404)
        lost |= {
            b
            for b, r in zip(ids, snapshot.broker_rack.tolist(), strict=True)
            if snapshot.racks[r] == rack
        }
        said.append(f"without rack {rack}")
    by_name = {str(b): b for b in ids}
    for broker in hypothesis.lose_brokers:
        if str(broker) not in by_name:
            raise RequestError(f"broker {broker}: not found, one of the cluster expected", 404)
        lost.add(by_name[str(broker)])
        said.append(f"without broker {broker}")
    changed = snapshot
    if lost:
        state = np.where(
            np.isin(snapshot.broker_ids, list(lost)), int(BrokerState.DEAD), snapshot.broker_state
        )
        if (state == BrokerState.DEAD).all():
            raise RequestError("no broker would be left, at least one expected")
        changed = replace(changed, broker_state=state.astype(np.int64))
    if hypothesis.scale_load != 1.0:
        changed = replace(
            changed,
            leader_load=changed.leader_load * hypothesis.scale_load,
            follower_load=changed.follower_load * hypothesis.scale_load,
        )
        said.append(f"with {hypothesis.scale_load:g} times the load")
    if hypothesis.add_brokers:
        cluster = resolve(changed, operation).cluster
        changed, operation, where = enlarged(changed, operation, cluster, hypothesis.add_brokers)
        said.append(f"with {plural(hypothesis.add_brokers, 'more broker')}{where}")
    return changed, operation, ", ".join(said) or "as it is"


def _brokers(snapshot: Snapshot, distrust: Distrust) -> list[dict[str, Any]]:
    return [b.model_dump(mode="json") for b in ClusterLoad(snapshot, distrust).brokers()]
