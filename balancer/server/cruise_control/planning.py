"""Requests that make a plan: rebalance, brokers, topics; executed if asked and allowed."""

from __future__ import annotations

from collections.abc import Sequence

from balancer.approval import ApprovalError, KeptProposal
from balancer.planning.plan import Plan
from balancer.problem.operation import Operation
from balancer.server.access import Actor
from balancer.server.cruise_control.answers import Answer, body
from balancer.server.cruise_control.dry_runs import DryRuns
from balancer.server.cruise_control.goals import DISK_GOALS, chosen_goals
from balancer.server.cruise_control.optimization import optimization, provision
from balancer.server.cruise_control.parameters import SPEED, Parameters
from balancer.server.cruise_control.tasks import UserTask
from balancer.server.errors import RequestError
from balancer.server.models import PlanRequest
from balancer.server.patterns import partitions_of_topics
from balancer.server.service import Service
from goals import Goal
from goals.patterns import glob_hint, matching
from metrics_reporter.documents import shown
from metrics_reporter.quantities import plural

_KINDS = {
    "proposals": "rebalance",
    "rebalance": "rebalance",
    "add_broker": "add_brokers",
    "remove_broker": "remove_brokers",
    "demote_broker": "demote_brokers",
    "fix_offline_replicas": "fix_offline_replicas",
    "topic_configuration": "change_replication_factor",
    "rightsize": "right_size",
}


def plan_for(
    service: Service, task: UserTask, given: Parameters, by: Actor, dry_runs: DryRuns
) -> None:
    """Start planning what a request asks; the task gets the job, and later the answer.

    The plan of a dry run of the same client with the same parameters is taken if it still applies.

    Raises
    ------
    RequestError
        If the request asks for what is not possible here, or not now.
    """
    _supported(given)
    operation = _operation(service, task.endpoint, given)
    goals = _goals(service, task.endpoint, given)
    execute = task.endpoint not in ("proposals", "rightsize") and not given.flag("dryrun", True)
    request = PlanRequest(operation=operation, reason=given.reason)
    if execute:
        if not by.may("operator"):
            raise RequestError(f"{by.name} is {by.role}; operator needed", 403)
        service.may_execute()
        if service.controller.work is not None:
            if not given.flag("stop_ongoing_execution"):
                raise RequestError(
                    "Cannot execute new proposals while there is an ongoing execution; "
                    "stop_ongoing_execution=true stops it.",
                    500,
                )
            service.stop(request.reason, by)

    asked = (task.client, task.endpoint, given.planned)
    seen, changes = None, list[str]()
    if execute:
        expires = service.controller.settings.approval.expire_after
        seen, changes = dry_runs.take(asked, service.view().snapshot, expires)

    def then(plan: Plan) -> None:
        notes = []
        if execute:
            notes.append(_executed(service, task, plan, request, by))
        else:
            dry_runs.add(asked, plan)
        if changes:
            notes.append(f"The plan of the dry run no longer applies: {changes[0]}.")
        answer = _answered(task, given, plan, notes)
        task.body = body(answer, task.as_json)

    task.job = service.plan(request, goals, by, then, made=seen)


def _answered(task: UserTask, given: Parameters, plan: Plan, notes: list[str]) -> Answer:
    """The answer for a plan, with sentences about it."""
    if ignored := given.without_effect:
        notes = [*notes, f"Without effect here: {', '.join(ignored)}."]
    notes += [f"{said}." for said in plan.warnings if said.startswith("excluded_topics")]
    if given.items("goals"):
        notes += [f"Left out: {why}." for why in plan.goals_left_out.values()]
    note = " ".join(notes)
    if task.endpoint != "rightsize":
        return optimization(plan, verbose=given.flag("verbose"), note=note)
    status, text = provision(plan)
    said = plan.sizing.text if plan.sizing is not None else text
    return Answer({"provisionerState": f"{status}: {said}"}, f"{status}: {said}")


def _executed(service: Service, task: UserTask, plan: Plan, request: PlanRequest, by: Actor) -> str:
    """Keep and approve a plan; says what happens next."""
    if not len(plan):
        return "Nothing is to be done."
    kept = service.keep(plan, request, by)
    task.proposal = kept.id
    if kept.state == "open":
        try:
            kept = service.approve(kept.id, kept.digest, request.reason, by)
        except ApprovalError as error:
            return f"{error}. It waits on the review board."
    return _next(service, kept)


def _next(service: Service, kept: KeptProposal) -> str:
    where = f"Proposal {kept.id}"
    if kept.state == "open":
        missing = plural(kept.needed - len(kept.approvals), "approval")
        return f"{where} waits on the review board for {missing}."
    if not service.controller.approvals.in_window():
        return f"{where} is approved and waits for a maintenance window."
    return f"{where} is approved and is executed exactly as it is."


def _supported(given: Parameters) -> None:
    """Refuse what would be done otherwise than asked."""
    if given.flag("kafka_assigner"):
        raise RequestError(
            "kafka_assigner: a mode that rebuilds the placement, which does not exist here; "
            "state goals=RackAwareGoal,DiskUsageDistributionGoal"
        )
    if given.text("brokerid_and_logdirs") is not None:
        raise RequestError(
            "brokerid_and_logdirs: single log directories cannot be demoted here; name brokers "
            "with brokerid",
            501,
        )
    if speed := given.given(SPEED):
        raise RequestError(
            f"{', '.join(speed)}: limits of executions are in the settings file of the controller "
            "(execution); while one runs, change them with POST /kafkacruisecontrol/admin or "
            "PATCH /api/v1/execution/limits"
        )


def _operation(service: Service, endpoint: str, given: Parameters) -> Operation:
    known = {str(b): b for b in service.view().snapshot.broker_ids.tolist()}
    brokers = given.brokers("brokerid", known)
    if endpoint in ("add_broker", "remove_broker", "demote_broker") and not brokers:
        raise RequestError("parameter brokerid: nothing found, ids of brokers expected")
    if endpoint == "rightsize":
        if asked := given.given(("num_brokers_to_add", "partition_count", "topic")):
            raise RequestError(
                f"{', '.join(asked)}: brokers and partitions are not created here; without them, "
                "rightsize says how many brokers are enough",
                501,
            )
        brokers = ()
    replication_factor = {}
    if endpoint == "topic_configuration":
        topic, factor = given.text("topic"), given.number("replication_factor")
        if not topic or not factor:
            raise RequestError("parameters topic and replication_factor (at least 1) expected")
        replication_factor = {topic: factor}
    excluded = given.text("excluded_topics")
    for pattern in (excluded, *replication_factor):
        # what is not a regular expression is refused at once
        matching(pattern or "", ())
    like = glob_hint(excluded or "")
    if like and not partitions_of_topics(excluded or "", service.view().snapshot).any():
        raise RequestError(f"parameter excluded_topics: {shown(excluded)} matches no topic{like}")
    return Operation(
        kind=_KINDS[endpoint],
        brokers=brokers,
        replication_factor=replication_factor,
        excluded_topics=(excluded,) if excluded else (),
        # Clients send stored requests that fit many clusters, and cannot state an exception.
        allow_unmatched=True,
        destinations=given.brokers("destination_broker_ids", known) or None,
    )


def _goals(service: Service, endpoint: str, given: Parameters) -> Sequence[Goal] | None:
    names = given.items("goals")
    if given.flag("rebalance_disk"):
        if names:
            raise RequestError("rebalance_disk: it has its own goals; leave goals out")
        names = DISK_GOALS
    if not names:
        return None
    return chosen_goals(
        names,
        service.balancer.goals,
        service.view().snapshot,
        skip_hard_check=given.flag("skip_hard_goal_check") or endpoint == "demote_broker",
    )
