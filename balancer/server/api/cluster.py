"""The cluster now: loads, goals, findings, decisions, settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from balancer.inspection.load import (
    BrokerLoad,
    ColumnLoad,
    DiskLoad,
    PartitionLoad,
    RackLoad,
    TopicLoad,
    Totals,
)
from balancer.problem.operations import OPERATIONS
from balancer.server.api.context import TheService, Viewer
from balancer.server.errors import RequestError
from balancer.server.models import BrokerProposal, GoalState
from cluster_model.errors import InputError
from goals.registry import profiles

router = APIRouter(tags=["cluster"])
_VERSION = version("counterpoise")
Limit = Annotated[int, Query(ge=1, le=10_000)]
Sort = Annotated[str | None, Query(description="A resource, replica_count or leader_count.")]


@router.get("/state")
def state(service: TheService, actor: Viewer) -> dict[str, Any]:
    """What the controller is doing, the version of this program, and who asks."""
    return {
        **service.state(),
        "version": _VERSION,
        "you": {"name": actor.name, "role": actor.role},
    }


@router.get("/cluster")
def cluster(service: TheService, actor: Viewer) -> Totals:
    """The cluster as a whole."""
    return service.load().totals()


@router.get("/cluster/brokers", response_model=list[BrokerLoad])
def brokers(
    service: TheService, actor: Viewer, sort: Sort = None, limit: Limit = 10_000
) -> Response:
    """Brokers: absolute, of capacity, and as a multiple of the fair share."""
    return Response(service.brokers(sort, limit), media_type="application/json")


@router.get("/cluster/brokers/{broker}/proposals")
def broker_proposals(
    service: TheService,
    actor: Viewer,
    broker: str,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[BrokerProposal]:
    """Those of the last proposals that have actions with a broker, the newest first."""
    load = service.load()
    with _named_by_the_path():
        index = load.broker_index(broker)
    return service.proposals_with(str(load.snapshot.broker_ids[index]), limit)


@router.get("/cluster/brokers/{broker}")
def broker(service: TheService, actor: Viewer, broker: str) -> BrokerLoad:
    """A broker."""
    load = service.load()
    with _named_by_the_path():
        index = load.broker_index(broker)
    return load.brokers(only=[load.snapshot.broker_ids[index].item()])[0]


@router.get("/cluster/columns/{name}")
def column(service: TheService, actor: Viewer, name: str) -> ColumnLoad:
    """One resource or count of all brokers, as short lists."""
    load = service.load()
    with _named_by_the_path():
        return load.column(name)


@router.get("/cluster/racks")
def racks(service: TheService, actor: Viewer) -> list[RackLoad]:
    """Racks."""
    return service.load().racks()


@router.get("/cluster/disks")
def disks(service: TheService, actor: Viewer, broker: str | None = None) -> list[DiskLoad]:
    """Disks, of one broker or of all."""
    return service.load().disks(_id(service, broker))


@router.get("/cluster/topics")
def topics(
    service: TheService,
    actor: Viewer,
    sort: Sort = None,
    limit: Limit = 100,
    broker: str | None = None,
) -> list[TopicLoad]:
    """The topics that carry most."""
    return service.load().topics(sort=sort, limit=limit, broker=_id(service, broker))


@router.get("/cluster/partitions")
def partitions(
    service: TheService,
    actor: Viewer,
    sort: Sort = None,
    limit: Limit = 100,
    broker: str | None = None,
    topic: str | None = None,
) -> list[PartitionLoad]:
    """The partitions that carry most; loads that nobody knows are left out."""
    return service.load().partitions(
        sort=sort, limit=limit, broker=_id(service, broker), topic=topic
    )


@router.get("/goals")
def goals(service: TheService, actor: Viewer) -> list[GoalState]:
    """The goals in order, and how each stands now."""
    return list(service.goals())


@router.get("/findings")
def findings(service: TheService, actor: Viewer) -> list[dict[str, Any]]:
    """What is wrong now, as the last round found it."""
    return [f.record() for f in service.controller.findings]


@router.get("/decisions")
def decisions(
    service: TheService,
    actor: Viewer,
    limit: Limit = 100,
    before: Annotated[float | None, Query(description="Seconds since 1970.")] = None,
    detail: Annotated[bool, Query(description="With findings and figures.")] = True,
) -> list[dict[str, Any]]:
    """Decisions with their reasons, the newest first."""
    found = [d for d in reversed(service.controller.decisions) if before is None or d.time < before]
    records = [d.record() for d in found[:limit]]
    long = {"findings", "facts", "plan"}
    return records if detail else [{k: r[k] for k in r if k not in long} for r in records]


@router.get("/settings")
def settings(service: TheService, actor: Viewer) -> dict[str, Any]:
    """The settings of the controller, without addresses of notifiers and other secrets."""
    hidden = {"webhooks", "notifiers", "detectors"}
    return service.controller.settings.model_dump(mode="json", exclude=hidden)


@router.get("/operations")
def operations(service: TheService, actor: Viewer) -> list[str]:
    """Names of the operations that can be planned."""
    return sorted(OPERATIONS.names())


@router.get("/profiles")
def profile_names(service: TheService, actor: Viewer) -> list[str]:
    """Names of the profiles of goals."""
    return sorted(profiles())


@contextmanager
def _named_by_the_path() -> Iterator[None]:
    """Answer that what the path names does not exist."""
    try:
        yield
    except InputError as error:
        raise RequestError(str(error), 404) from None


def _id(service: TheService, broker: str | None) -> int | str | None:
    """A broker's id as the snapshot has it; an unknown one is refused where it is used."""
    if broker is None:
        return None
    ids: dict[str, int | str] = {str(b): b for b in service.load().snapshot.broker_ids.tolist()}
    return ids.get(broker, broker)
