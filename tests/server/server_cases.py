"""A running controller on a cluster that executes at once, and a client of its server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import httpx
import numpy as np
from balancer_cases import QUICK
from fastapi import FastAPI
from starlette.datastructures import State
from waiting import LIMIT

from balancer import Balancer, Plan
from balancer.approval import Approvals, ProposalStore, changes_since
from balancer.controller import Controller, PlainCluster, Settings
from balancer.execution import ChangedClusterError, Executor, Limits, Outcome, Progress
from balancer.execution.steering import Steering
from balancer.planning.document import PlanDocument
from balancer.server import Server, ServerSettings, Service, app
from balancer.server.audit import AuditLog
from balancer.server.cruise_control import router
from cluster_model import Snapshot, SnapshotError, synthetic_snapshot

Progressed = Callable[[Progress], None] | None
first_application = cache(app._application)


class LiveModel(PlainCluster):
    """A cluster that an executor changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cluster = snapshot
        self.measured = True
        super().__init__(lambda: self.cluster)

    def snapshot(self) -> Snapshot:
        if not self.measured:
            raise SnapshotError("metrics of 0.0% of partitions found")
        return super().snapshot()


class LiveExecutor:
    """Carries out plans on a model, in steps that a test may hold back."""

    def __init__(self, model: LiveModel) -> None:
        self.model = model
        self.steering = Steering()
        self.executed: list[PlanDocument] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self._limits = Limits(throttle=10_000_000.0)
        self._stop = threading.Event()

    @property
    def limits(self) -> Limits:
        return self.steering.applied(self._limits)

    def adjust(self, **changes: Any) -> None:
        self.steering.adjust(self._limits, **changes)

    def execute(self, plan: Plan, *, progress: Progressed = None) -> Outcome:
        return self._carry_out(plan.document(), progress)

    def execute_exactly(self, plan: PlanDocument, *, progress: Progressed = None) -> Outcome:
        if changes := changes_since(plan, self.model.cluster):
            raise ChangedClusterError(changes)
        return self._carry_out(plan, progress)

    def recover(self, *, progress: Progressed = None) -> Outcome | None:
        return None

    def left(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> None:
        self._stop.set()

    def _carry_out(self, plan: PlanDocument, progress: Progressed) -> Outcome:
        self._stop.clear()
        total, size = len(plan.actions), plan.summary.cost
        while not self.may_end.is_set() or self.steering.paused:
            if progress is not None:
                progress(Progress("move", total, 0, 0, 0, 1, size, size / 2, 1.0, 1.0))
            if self._stop.wait(0.05):
                return Outcome("stopped", 0, 0, total, 0.0, 1.0)
        self.executed.append(plan)
        self.model.cluster = after(plan, self.model.cluster)
        return Outcome("done", total, 0, 0, size, 1.0)


def after(plan: PlanDocument, snapshot: Snapshot) -> Snapshot:
    """The cluster after moves and leadership transfers."""
    ids = snapshot.broker_ids.tolist()
    rows = {
        (snapshot.topics[t], n): p
        for p, (t, n) in enumerate(
            zip(
                snapshot.partition_topic.tolist(),
                snapshot.partition_number.tolist(),
                strict=True,
            )
        )
    }
    broker, leader = snapshot.replica_broker.copy(), snapshot.leader.copy()
    for action in plan.actions:
        p = rows[action.topic, action.partition]
        start, end = snapshot.replica_offset[p : p + 2].tolist()
        source, destination = action.source, action.destination
        assert action.kind in ("move", "leadership"), action.kind
        assert destination is not None
        held = broker[start:end].tolist()
        if action.kind == "move":
            assert source is not None
            broker[start + held.index(ids.index(source))] = ids.index(destination)
        else:
            leader[p] = held.index(ids.index(destination))
    return replace(snapshot, replica_broker=broker, leader=leader.astype(np.int64))


@dataclass
class Served:
    """A running server with everything behind it."""

    model: LiveModel
    executor: LiveExecutor
    controller: Controller
    service: Service
    server: Server

    def client(self, **options: Any) -> httpx.Client:
        """A client; close it."""
        # what it would check certificates with takes longer to load than most requests
        given: dict[str, Any] = {"verify": False, **options}
        return httpx.Client(base_url=self.server.url, timeout=300.0, **given)


def planned(client: httpx.Client, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The job that a request has started, once it is over, however long that takes."""
    answer = client.post(path, json=body)
    assert answer.status_code == 202, answer.text
    return ended(client, answer.json())


def ended(client: httpx.Client, job: Mapping[str, Any]) -> dict[str, Any]:
    """A job once it is over."""
    found = dict(job)
    while found["state"] in ("waiting", "running"):
        found = client.get(f"/api/v1/jobs/{job['id']}?wait=10").json()
    return found


def application() -> FastAPI:
    """One with the routes of the first, which take longer to build than most tests."""
    made = copy(first_application())
    made.state, made.user_middleware, made.middleware_stack = State(), [], None
    return made


@contextmanager
def served(
    directory: Path,
    *,
    snapshot: Snapshot | None = None,
    settings: Mapping[str, Any] | None = None,
    access: Mapping[str, Any] | None = None,
    executes: bool = True,
    host: str = "127.0.0.1",
    port: int = 0,
    run: bool = True,
    measured: bool = True,
) -> Iterator[Served]:
    """A controller of a small cluster and its server, for as long as the context is open."""
    model = LiveModel(
        snapshot if snapshot is not None else synthetic_snapshot(brokers=6, partitions=60, racks=3)
    )
    model.measured = measured
    executor = LiveExecutor(model)
    stated = {
        "execute": executes,
        "max_share_per_cycle": 1.0,
        "interval": 0.5,
        "settle": 0,
        "approval": {"mode": "manual"},
        **(settings or {}),
    }
    chosen = Settings.model_validate(stated)
    given: dict[str, Any] = {
        "audit": str(directory / "audit.log"),
        "proposals": str(directory / "proposals"),
    }
    who = ServerSettings.model_validate({**given, **(access or {})})
    balancer = Balancer("default", strategy=QUICK)
    listeners: list[Callable[[Any], None]] = []

    def witness(decision: Any) -> None:
        for each in listeners:
            each(decision)

    controller = Controller(
        model,
        balancer,
        executor if executes else None,
        chosen,
        witness=witness,
        approvals=Approvals(ProposalStore(who.proposals), lambda: controller.settings.approval),
    )
    own = cast(Executor, executor) if executes else None
    service = Service(
        controller,
        balancer,
        own,
        AuditLog(who.audit),
        planning_queue=who.planning_queue,
        plans_per_client=who.plans_per_client,
    )
    with patch.object(app, "_application", application):
        server = Server(service, who, host, port, controller.metrics.text)
    listeners.append(server.decided)
    controller.approvals.changed = server.proposal_changed
    thread = threading.Thread(target=controller.run, daemon=True)
    if run:
        thread.start()
    else:
        controller.step()
    try:
        # however slow the machine is, what is asked is answered, not its progress
        with patch.object(router, "_BLOCKS", LIMIT):
            yield Served(model, executor, controller, service, server)
    finally:
        controller.stop()
        executor.may_end.set()
        executor.steering.resume()
        server.close()
        if run:
            thread.join(10.0)
