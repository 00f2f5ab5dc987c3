"""The endpoints under ``/kafkacruisecontrol``: names, parameters, roles, and who answers."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from balancer.server.access import Actor
from balancer.server.cruise_control.answers import (
    Answer,
    LongAnswer,
    body,
    error_body,
    message,
    respond,
    respond_in_parts,
)
from balancer.server.cruise_control.loads import broker_stats, partition_load
from balancer.server.cruise_control.parameters import PLANNED, SPEED, Parameters
from balancer.server.cruise_control.planning import plan_for
from balancer.server.cruise_control.reviews import board, decide
from balancer.server.cruise_control.state import cruise_control_state, kafka_cluster_state
from balancer.server.cruise_control.tasks import UserTask, UserTasks, task_list
from balancer.server.errors import RequestError, UnknownLoadsError
from balancer.server.models import SpeedLimits
from balancer.server.service import Service
from balancer.server.settings import ANONYMOUS, Role
from cluster_model.errors import InputError
from cluster_model.snapshot import Snapshot
from metrics_reporter.documents import shown

log = logging.getLogger("counterpoise.server")
router = APIRouter(prefix="/kafkacruisecontrol", include_in_schema=False)

# Seconds until an answer that is still being made is answered with its progress, as in Cruise
# Control by default.
_BLOCKS = 10.0
_LOOKS = 0.02


@dataclass(frozen=True)
class Call:
    """One request to an endpoint that answers at once."""

    service: Service
    actor: Actor
    given: Parameters
    tasks: UserTasks


@dataclass(frozen=True)
class Endpoint:
    """An endpoint.

    Parameters
    ----------
    method
        ``GET`` or ``POST``.
    parameters
        Names of those that not every endpoint takes.
    answer
        Answers at once; None for a plan, which is made in the background.
    role
        The least role that may ask.
    """

    method: str
    parameters: frozenset[str] = field(default_factory=frozenset)
    answer: Callable[[Call], Answer | LongAnswer] | None = None
    role: Role = "viewer"


@router.api_route("/{name}", methods=["GET", "POST"])
async def endpoint(request: Request, name: str) -> Response:
    """Answer a request to any endpoint, in Cruise Control's shapes also for errors."""
    query = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=None)
    wanted = {key.lower(): value.lower() == "true" for key, value in query}
    as_json, schema = wanted.get("json", False), wanted.get("get_response_schema", False)
    task: str | None = None
    # As in Cruise Control, names of endpoints are not case-sensitive.
    name = name.lower()

    def failed(sentence: str, status: int) -> Response:
        return respond(error_body(sentence, as_json), as_json, status, task, schema)

    try:
        form = await _form(request)
        found = _endpoint(name, request.method)
        actor: Actor = request.state.actor
        if not actor.may(found.role):
            raise RequestError(f"{actor.name} is {actor.role}; {found.role} needed", 403)
        given = Parameters(name, [*query, *form], found.parameters)
        service: Service = request.app.state.service
        tasks: UserTasks = request.app.state.user_tasks
        if service.controller.view is None and name != "state":
            raise UnknownLoadsError("the cluster has not been read yet")
        if found.answer is not None:
            call = Call(service, actor, given, tasks)
            return await run_in_threadpool(_answered, found.answer, call, as_json, schema)
        if (review := given.text("review_id")) is not None:
            # A reviewed plan starts once it is approved, and is not submitted again.
            shown_board = await run_in_threadpool(board, service, [review])
            return respond(body(shown_board, as_json), as_json, schema=schema)
        planned = await run_in_threadpool(_task, request, name, given, as_json)
        task = planned.id
        return await _planned(planned, schema)
    except UnknownLoadsError as error:
        # Clients look for this word and ask again.
        return failed(_due_to(request, name, f"{_NO_LOADS}: {error}"), 500)
    except RequestError as error:
        return failed(_due_to(request, name, str(error)), error.status)
    except InputError as error:
        return failed(_due_to(request, name, str(error)), 400)
    except HTTPException as error:
        return failed(_due_to(request, name, error.detail), error.status_code)
    except ClientDisconnect:
        # Nobody reads this.
        return failed("the client has left", 400)
    except Exception:
        number = uuid.uuid4().hex[:8]
        log.exception("request %s failed: %s %s", number, request.method, request.url.path)
        return failed(f"an internal error; the log has it under {number}", 500)


def _answered(
    answer: Callable[[Call], Answer | LongAnswer], call: Call, as_json: bool, schema: bool
) -> Response:
    """The whole answer, or one that is sent in parts."""
    found, task = answer(call), str(uuid.uuid4())
    if isinstance(found, LongAnswer):
        return respond_in_parts(found, as_json, task, schema)
    return respond(body(found, as_json), as_json, schema=schema, task=task)


async def _form(request: Request) -> list[tuple[str, str]]:
    """Parameters in the body of a POST request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method != "POST" or kind != "application/x-www-form-urlencoded":
        return []
    try:
        return parse_qsl((await request.body()).decode(), keep_blank_values=True)
    except ValueError:
        raise RequestError("the body is not a form") from None


def _endpoint(name: str, method: str) -> Endpoint:
    found = ENDPOINTS.get(name)
    if found is None:
        raise RequestError(
            f"Unrecognized endpoint {shown(name)}. Supported: {', '.join(sorted(ENDPOINTS))}.", 404
        )
    if found.method != method:
        raise RequestError(f"{name}: {method} found, {found.method} expected", 405)
    return found


def _task(request: Request, name: str, given: Parameters, as_json: bool) -> UserTask:
    """The task of a request: that of its header, that of the same request before, or a new one."""
    tasks: UserTasks = request.app.state.user_tasks
    actor: Actor = request.state.actor
    address = request.client.host if request.client is not None else ""
    client = address if actor.name == ANONYMOUS else f"{actor.name}@{address}"
    if (stated := request.headers.get("user-task-id")) is not None:
        return tasks.get(stated, name, given.all)
    url = f"{request.method} {request.url.path}?{request.url.query}"
    task = UserTask(name, url, given.all, client, as_json)
    if (same := tasks.same(task)) is not None:
        return same
    plan_for(request.app.state.service, task, given, actor, request.app.state.dry_runs)
    tasks.add(task)
    return task


async def _planned(task: UserTask, schema: bool) -> Response:
    """The answer of a task if it is made in time, else its progress."""
    job, end = task.job, time.monotonic() + _BLOCKS
    assert job is not None
    while not job.over.is_set() and time.monotonic() < end:
        await asyncio.sleep(_LOOKS)
    if not job.over.is_set():
        said = _progress(task)
        return respond(body(said, task.as_json), task.as_json, 202, task.id, schema)
    task.fetched = True
    if task.body is None:
        sentence = f"Error processing '/{task.endpoint}' request due to: '{job.error or job.state}'"
        return respond(error_body(sentence, task.as_json), task.as_json, 500, task.id, schema)
    return respond(task.body, task.as_json, 200, task.id, schema)


def _progress(task: UserTask) -> Answer:
    assert task.job is not None
    job, figures = task.job, task.job.progress
    phase = str(figures.get("phase", job.state))
    said = (
        f"{figures['met']} of {figures['of']} goals met so far, {figures['actions']} actions"
        if figures
        else "waits for its turn"
    )
    step = {
        "step": phase,
        "description": said,
        "time-in-ms": round((time.time() - task.started) * 1000),
        "completionPercentage": None,
    }
    content = {"progress": [{"operation": task.endpoint, "operationProgress": [step]}]}
    return Answer(content, f"{task.endpoint}: {phase}: {said}")


def _due_to(request: Request, name: str, sentence: str) -> str:
    return f"Error processing {request.method} request '/{name[:100]}' due to: '{sentence}'."


def _measured(call: Call) -> Snapshot:
    """The cluster with its loads.

    Raises
    ------
    UnknownLoadsError
        If they are not known.
    """
    view = call.service.view()
    if view.incomplete is not None:
        raise UnknownLoadsError(view.incomplete)
    return view.snapshot


def _load(call: Call) -> Answer:
    given = call.given
    for name in ("start", "end", "time"):
        if (given.text(name) or "now").lower() != "now":
            raise RequestError(f"{name}: {_PAST}")
    return broker_stats(
        _measured(call),
        untrusted=call.service.view().distrust.brokers,
        disks=given.flag("populate_disk_info"),
        capacity_only=given.flag("capacity_only"),
    )


def _partition_load(call: Call) -> LongAnswer:
    given, snapshot = call.given, _measured(call)
    if stated := given.given(("start", "end")):
        raise RequestError(f"{', '.join(stated)}: {_PAST}")
    if given.flag("max_load"):
        raise RequestError(f"max_load: {_PAST}")
    return partition_load(
        snapshot,
        resource=given.text("resource") or "disk",
        entries=given.number("entries"),
        topic=given.text("topic"),
        partition=given.text("partition"),
        brokers=given.brokers("brokerid", {str(b): b for b in snapshot.broker_ids.tolist()}),
        estimated=call.service.load().estimated,
    )


_NO_LOADS = "NotEnoughValidWindowsException"
_PAST = (
    "only the load now is served; `counterpoise history` reads loads of the past from an archive"
)


def _state(call: Call) -> Answer:
    return cruise_control_state(call.service, call.given.items("substates"), call.tasks.all())


def _kafka_cluster_state(call: Call) -> Answer:
    return kafka_cluster_state(
        call.service.view().snapshot,
        topic=call.given.text("topic"),
        verbose=call.given.flag("verbose"),
    )


def _user_tasks(call: Call) -> Answer:
    given = call.given
    store = call.service.controller.approvals.store
    proposals = {p.id: p.state for p in store.all()}
    tasks = [(t, t.state(proposals.get(t.proposal or ""))) for t in call.tasks.all()]
    ids, endpoints, types, clients = (
        [item.lower() for item in given.items(name)]
        for name in ("user_task_ids", "endpoints", "types", "client_ids")
    )
    chosen = [
        (task, state)
        for task, state in tasks
        if (not ids or task.id.lower() in ids)
        and (not endpoints or task.endpoint in endpoints)
        and (not types or state.lower() in types)
        and (not clients or task.client.lower() in clients)
    ]
    entries = given.number("entries")
    return task_list(chosen[:entries], answers=given.flag("fetch_completed_task"))


def _review_board(call: Call) -> Answer:
    return board(call.service, call.given.items("review_ids"))


def _review(call: Call) -> Answer:
    given = call.given
    return decide(
        call.service,
        given.items("approve"),
        given.items("discard"),
        given.reason,
        call.actor,
    )


def _permissions(call: Call) -> Answer:
    if call.actor.name == ANONYMOUS:
        raise RequestError("Unable to retrieve privilege information for an unsecure connection.")
    # There, USER is one who may send no POST request.
    role = {"viewer": "VIEWER", "operator": "ADMIN", "admin": "ADMIN"}[call.actor.role]
    return Answer([role], role)


def _stop(call: Call) -> Answer:
    if call.service.controller.work is None:
        return message("No execution is in progress.")
    call.service.stop(call.given.reason, call.actor)
    return message("Proposal execution stopped.")


def _admin(call: Call) -> Answer:
    given = call.given
    other = given.given(_ADMIN - set(_SPEEDS))
    if other:
        raise RequestError(
            f"{', '.join(other)}: a setting of the controller: change the settings file, which it "
            "reads again while it runs (act of a detector for self healing, execution for limits)",
            501,
        )
    changes = {ours: given.number(theirs) for theirs, ours in _SPEEDS.items() if given.text(theirs)}
    if not changes:
        raise RequestError(f"nothing to change found, one of {', '.join(_SPEEDS)} expected")
    limits = SpeedLimits.model_validate({**changes, "why": given.reason})
    call.service.adjust(limits, call.actor)
    said = " ".join(
        f"{theirs} is set to {changes[ours]} for the execution in progress."
        for theirs, ours in _SPEEDS.items()
        if ours in changes
    )
    return Answer({"ongoingConcurrencyChangeRequest": said}, said)


# Limits that can be changed while an execution runs.
_SPEEDS = {
    "concurrent_partition_movements_per_broker": "concurrent_moves_per_broker",
    "max_partition_movements_in_cluster": "concurrent_moves",
    "concurrent_leader_movements": "leadership_batch",
}
_ADMIN = frozenset(
    {
        *_SPEEDS,
        "broker_concurrent_leader_movements",
        "concurrent_intra_broker_partition_movements",
        "disable_concurrency_adjuster_for",
        "disable_self_healing_for",
        "drop_recently_demoted_brokers",
        "drop_recently_removed_brokers",
        "enable_concurrency_adjuster_for",
        "enable_self_healing_for",
        "execution_progress_check_interval_ms",
        "min_isr_based_concurrency_adjustment",
    }
)


def _refused(sentence: str) -> Callable[[Call], Answer]:
    """Answers that something does not exist here, and what does it instead."""

    def refuse(call: Call) -> Answer:
        raise RequestError(sentence, 501)

    return refuse


_NO_SAMPLING = (
    "metrics are read from the metrics topic all the time; so that nothing is executed meanwhile, "
    "hold the controller with POST /api/v1/controller/hold and let it go on with "
    "POST /api/v1/controller/release"
)
_CLOCK = frozenset({"start", "end"})
_EXECUTED = PLANNED | SPEED
ENDPOINTS: dict[str, Endpoint] = {
    "add_broker": Endpoint(
        "POST", _EXECUTED | {"brokerid", "throttle_added_broker", "throttle_removed_broker"}
    ),
    "admin": Endpoint("POST", _ADMIN, _admin, "operator"),
    "bootstrap": Endpoint(
        "GET",
        _CLOCK | {"clearmetrics"},
        _refused(
            "nothing has to be bootstrapped: what is still in the metrics topic is read at the "
            "start; `counterpoise history` works on loads of the past"
        ),
    ),
    "demote_broker": Endpoint(
        "POST",
        _EXECUTED
        | {"brokerid", "brokerid_and_logdirs", "exclude_follower_demotion", "skip_urp_demotion"},
    ),
    "fix_offline_replicas": Endpoint("POST", _EXECUTED),
    "kafka_cluster_state": Endpoint("GET", frozenset({"topic"}), _kafka_cluster_state),
    "load": Endpoint(
        "GET",
        _CLOCK | {"time", "allow_capacity_estimation", "populate_disk_info", "capacity_only"},
        _load,
    ),
    "partition_load": Endpoint(
        "GET",
        _CLOCK
        | {
            "allow_capacity_estimation",
            "avg_load",
            "brokerid",
            "entries",
            "max_load",
            "min_valid_partition_ratio",
            "partition",
            "resource",
            "topic",
        },
        _partition_load,
    ),
    "pause_sampling": Endpoint("POST", answer=_refused(_NO_SAMPLING), role="operator"),
    "permissions": Endpoint("GET", answer=_permissions),
    "proposals": Endpoint(
        "GET",
        PLANNED - {"dryrun", "stop_ongoing_execution"}
        | {"destination_broker_ids", "ignore_proposal_cache", "rebalance_disk"},
    ),
    "rebalance": Endpoint(
        "POST", _EXECUTED | {"destination_broker_ids", "ignore_proposal_cache", "rebalance_disk"}
    ),
    "remove_broker": Endpoint(
        "POST", _EXECUTED | {"brokerid", "destination_broker_ids", "throttle_removed_broker"}
    ),
    "remove_disks": Endpoint(
        "POST",
        _EXECUTED | {"brokerid_and_logdirs"},
        _refused(
            "single log directories cannot be emptied here; remove_broker empties a broker, and a "
            "log directory that Kafka has cordoned is given nothing"
        ),
        "operator",
    ),
    "resume_sampling": Endpoint("POST", answer=_refused(_NO_SAMPLING), role="operator"),
    "review": Endpoint("POST", frozenset({"approve", "discard"}), _review, "operator"),
    "review_board": Endpoint("GET", frozenset({"review_ids"}), _review_board),
    "rightsize": Endpoint("POST", frozenset({"num_brokers_to_add", "partition_count", "topic"})),
    "state": Endpoint("GET", frozenset({"substates", "super_verbose"}), _state),
    "stop_proposal_execution": Endpoint(
        "POST", frozenset({"force_stop", "stop_external_agent"}), _stop, "operator"
    ),
    "topic_configuration": Endpoint(
        "POST", _EXECUTED | {"topic", "replication_factor", "skip_rack_awareness_check"}
    ),
    "train": Endpoint(
        "GET",
        _CLOCK,
        _refused("nothing has to be trained: no regression model of cpu exists here"),
    ),
    "user_tasks": Endpoint(
        "GET",
        frozenset(
            {"client_ids", "endpoints", "entries", "fetch_completed_task", "types", "user_task_ids"}
        ),
        _user_tasks,
    ),
}
