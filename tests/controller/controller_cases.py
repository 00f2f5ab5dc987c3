"""A static cluster, an executor that changes it at once, and a clock that tests set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from balancer_cases import QUICK
from waiting import LIMIT

from balancer import Balancer, Plan
from balancer.controller import Controller, Settings, at_once
from cluster_model import BrokerState, Snapshot, SnapshotError, synthetic_snapshot
from cluster_model.trust import Distrust

# Most cases are about one plan that mends all.
UNBOUNDED = {"execute": True, "max_share_per_cycle": 1.0}
Progressed = Callable[[Any], None] | None
START = 1_700_000_000.0
# Some of the default goals, one of each kind: planning takes time in proportion to them.
GOALS: dict[str, Any] = {
    "goals": [
        {"goal": "RackAwareness", "tier": 0},
        {"goal": "ResourceCapacity", "resource": "disk", "tier": 0},
        {"goal": "UsageDistribution", "resource": "disk", "tier": 1},
        {"goal": "LeaderReplicaDistribution", "tier": 1, "weight": 0.5},
    ]
}


@dataclass(frozen=True)
class Ended:
    """An outcome."""

    state: Literal["done", "stopped", "rolled back", "failed", "vote lost"] = "done"
    completed: int = 1
    failed: int = 0
    cancelled: int = 0
    bytes_moved: float = 0.0
    seconds: float = 1.0
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


class Still:
    """A model of a cluster that changes only when told to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cluster = snapshot
        self.ages: dict[int, float] | None = None
        self.measured: Mapping[str, Mapping[int, float]] = {}
        self.known = 1.0
        self.measured_since: float | None = None
        self.uncertain: dict[str, float] = {}
        self.distrusted = Distrust()

    def snapshot(self) -> Snapshot:
        if self.known < 0.95:
            raise SnapshotError(f"metrics of {self.known:.0%} of partitions found")
        return self.cluster

    def placement(self) -> Snapshot:
        if self.known < 0:
            raise SnapshotError("no placement found")
        return self.cluster

    def staleness(self) -> Mapping[int, float] | None:
        return self.ages

    def signals(self) -> Mapping[str, Mapping[int, float]]:
        return self.measured

    def since(self) -> float | None:
        return self.measured_since

    def noise(self) -> Mapping[str, float]:
        return self.uncertain

    def distrust(self) -> Distrust:
        return self.distrusted

    def refresh(self) -> None: ...

    def with_states(self, **states: list[int]) -> None:
        """Put brokers (ids) into states, by the states' names; leaders leave the dead."""
        s = self.cluster
        state = s.broker_state.copy()
        for name, ids in states.items():
            state[np.isin(s.broker_ids, ids)] = BrokerState[name.upper()]
        held = state[s.replica_broker] != BrokerState.DEAD
        leader = [
            int(np.argmax(part)) if part.any() else -1
            for part in np.split(held, s.replica_offset[1:-1])
        ]
        now = held[s.replica_offset[:-1] + np.maximum(s.leader, 0)] & (s.leader >= 0)
        self.cluster = replace(
            s, broker_state=state, leader=np.where(now, s.leader, leader).astype(np.int64)
        )


class Applies:
    """An executor that makes the plan's end the cluster, or fails as told."""

    def __init__(self, model: Still) -> None:
        self.model = model
        self.plans: list[Plan] = []
        self.stops = 0
        self.found: Ended | None = None
        self.recoveries = 0

    def execute(self, plan: Plan, *, progress: Progressed = None) -> Ended:
        self.plans.append(plan)
        final = plan.final_snapshot()
        self.model.cluster = replace(final, broker_state=self.model.cluster.broker_state)
        return Ended(completed=len(plan), bytes_moved=plan.summary.cost)

    def recover(self, *, progress: Progressed = None) -> Ended | None:
        self.recoveries += 1
        return self.found

    def left(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> None:
        self.stops += 1


class Failing:
    """An executor that can do nothing it is asked."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def execute(self, plan: Plan, *, progress: Progressed = None) -> Ended:
        self.kinds.append(plan.operation["kind"])
        return Ended(state="failed", completed=0, failed=1)

    def recover(self, *, progress: Progressed = None) -> None:
        return None

    def left(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> None: ...


class Stage:
    """A controller with everything it needs, and a clock."""

    def __init__(
        self,
        snapshot: Snapshot,
        settings: Mapping[str, Any] | None = None,
        *,
        goals: Any = GOALS,
        **options: Any,
    ) -> None:
        self.now = START
        self.events: list[dict[str, Any]] = []
        self.model = Still(snapshot)
        self.executor = Applies(self.model)
        self.balancer = Balancer(goals, strategy=QUICK)
        self.controller = Controller(
            self.model,
            self.balancer,
            options.pop("executor", self.executor),
            Settings.model_validate({**UNBOUNDED, **(settings or {})}),
            notifiers=[lambda event: self.events.append(dict(event))],
            clock=lambda: self.now,
            spawn=options.pop("spawn", at_once),
            **options,
        )

    def rounds(self, count: int, seconds: float = 60.0) -> list[str]:
        """Kinds of the decisions of so many rounds."""
        kinds: list[str] = []
        for _ in range(count):
            kinds.append(self.controller.step().kind)
            self.now += seconds
        return kinds

    def begin(self) -> None:
        """Make rounds until an execution of a plan is under way in its thread."""
        for _ in range(100):
            self.controller.step()
            work = self.controller.work
            if work is not None and work.plan is not None:
                return
            assert self.controller.wait(LIMIT)
        raise AssertionError(self.reason)

    @property
    def reason(self) -> str:
        """Of the last decision."""
        return self.controller.decisions[-1].reason


@cache
def skewed(**options: Any) -> Snapshot:
    """A small cluster that needs balancing."""
    # Half of a rack can carry what all of it carries.
    sizes = {"brokers": 6, "partitions": 120, "racks": 3, "utilization": 0.2}
    return synthetic_snapshot(**{**sizes, **options})


@cache
def even(**options: Any) -> Snapshot:
    """The same, balanced."""
    final = Balancer(GOALS, strategy=QUICK).propose(skewed(**options)).final_snapshot()
    assert Balancer(GOALS, strategy=QUICK).propose(final).summary.replica_moves == 0
    return final


def heavier(snapshot: Snapshot, broker: int, factor: float) -> Snapshot:
    """The snapshot with the load of the partitions that a broker leads grown by a factor."""
    leads = snapshot.replica_broker[snapshot.replica_is_leader]
    mine = snapshot.replica_partition[snapshot.replica_is_leader][
        leads == snapshot.broker_index([broker])[0]
    ]
    leader, follower = snapshot.leader_load.copy(), snapshot.follower_load.copy()
    leader[mine] *= factor
    follower[mine] *= factor
    return replace(snapshot, leader_load=leader, follower_load=follower)
