"""A controller and its server in a process of their own, steered by lines on standard input.

python -m benchmarks.harness.served BROKERS PARTITIONS SEED DIRECTORY
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from balancer import Balancer, Plan
from balancer.approval import Approvals, ProposalStore
from balancer.controller import Controller, Decision, PlainCluster, Settings
from balancer.execution import Executor, Limits, Outcome, Progress
from balancer.execution.steering import Steering
from balancer.planning.document import PlanDocument
from balancer.server import Server, ServerSettings, Service
from balancer.server.access import Actor
from balancer.server.audit import AuditLog
from balancer.server.models import PlanRequest
from cluster_model import synthetic_snapshot

# Who asks for the proposal that is looked at.
_ASKS = Actor("benchmark", "admin")
_RACKS = 10
_PROGRESS_SECONDS = 0.2


class Endless:
    """Carries out a plan until it is stopped: what clients do meanwhile is measured."""

    def __init__(self) -> None:
        self.steering = Steering()
        self._limits = Limits(throttle=10_000_000.0)
        self._stop = threading.Event()

    @property
    def limits(self) -> Limits:
        """The limits now."""
        return self.steering.applied(self._limits)

    def adjust(self, **changes: Any) -> None:
        """Change limits."""
        self.steering.adjust(self._limits, **changes)

    def execute(self, plan: Plan, *, progress: Callable[[Progress], None] | None = None) -> Outcome:
        """Report progress until it is stopped."""
        return self.execute_exactly(plan.document(), progress=progress)

    def execute_exactly(
        self, plan: PlanDocument, *, progress: Callable[[Progress], None] | None = None
    ) -> Outcome:
        """The same for a plan that was kept."""
        self._stop.clear()
        total, size = len(plan.actions), plan.summary.cost
        done = 0
        while not self._stop.wait(_PROGRESS_SECONDS):
            done = min(done + 1, total)
            if progress is not None:
                progress(Progress("move", total, done, 0, 0, 1, size, size / 2, 1.0, 1.0))
        return Outcome("stopped", 0, 0, total, 0.0, 1.0)

    def recover(self, *, progress: Callable[[Progress], None] | None = None) -> Outcome | None:
        """Nothing was left."""
        return None

    def left(self) -> tuple[str, ...]:
        """Nothing was left."""
        return ()

    def stop(self) -> None:
        """End the execution."""
        self._stop.set()


def resident() -> int:
    """Memory of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def main(brokers: str, partitions: str, seed: str, directory: str) -> None:
    """Serve until the end of standard input; answers each command with a line of JSON."""
    # A warning for each malformed request would hide everything else.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    snapshot = synthetic_snapshot(
        brokers=int(brokers), partitions=int(partitions), racks=_RACKS, seed=int(seed)
    )
    where = Path(directory)
    stated = json.loads((where / "server.json").read_text())
    settings = ServerSettings.model_validate(
        {**stated, "audit": str(where / "audit.log"), "proposals": str(where / "proposals")}
    )
    executor, balancer = Endless(), Balancer("default")
    chosen = {"execute": True, "interval": 1.0, "settle": 0, "approval": {"mode": "manual"}}
    served: list[Server] = []

    def witness(decision: Decision) -> None:
        for server in served:
            server.decided(decision)

    controller = Controller(
        PlainCluster(lambda: snapshot),
        balancer,
        executor,
        Settings.model_validate(chosen),
        witness=witness,
        approvals=Approvals(
            ProposalStore(settings.proposals), lambda: controller.settings.approval
        ),
    )
    service = Service(
        controller,
        balancer,
        cast(Executor, executor),
        AuditLog(settings.audit),
        planning_queue=settings.planning_queue,
        plans_per_client=settings.plans_per_client,
    )
    server = Server(service, settings, "127.0.0.1", 0, controller.metrics.text)
    served.append(server)
    controller.approvals.changed = server.proposal_changed
    controller.step()
    job = service.propose(PlanRequest(), _ASKS)
    job.over.wait()
    _say({"url": server.url, "proposal": job.result.id, "digest": job.result.digest})
    thread = threading.Thread(target=controller.run, daemon=True)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "cycles":
            _say(_cycles(controller, int(rest[0])))
        elif command == "run":
            thread.start()
            _say({})
        else:
            _say(
                {
                    "processor": time.process_time(),
                    "resident": resident(),
                    "rounds": controller.metrics.rounds,
                    "executing": controller.work is not None,
                    "errors": sum(d.kind == "error" for d in controller.decisions),
                    "followers": server.events.followers,
                    "threads": threading.active_count(),
                }
            )
    controller.stop()
    server.close()


def _cycles(controller: Controller, number: int) -> dict[str, Any]:
    """Seconds of some cycles of the controller: of the clock, and of its thread's processor."""
    clock, processor = [], []
    for _ in range(number):
        began, used = time.perf_counter(), time.thread_time()
        controller.step()
        clock.append(time.perf_counter() - began)
        processor.append(time.thread_time() - used)
    return {"clock": clock, "processor": processor}


def _say(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
