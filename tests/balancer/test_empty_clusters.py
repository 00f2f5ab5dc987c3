"""Every built-in goal is planned for, and its plan checked, where there is nothing to judge."""

from __future__ import annotations

from typing import Any

import pytest
from balancer_cases import RESOURCES, assert_sound

from balancer import Balancer, Operation, OperationError
from cluster_model import Snapshot, SnapshotDocument, build_snapshot
from goals import ReplicaCapacity, inapplicable
from goals.registry import BUILT_IN

FIELDS: dict[str, Any] = {
    "resource": "disk",
    "other": "cpu",
    "ratio": 1.0,
    "above": 0.5,
    "attribute": "zone",
    "at_least": 2,
    "by": "tenant",
}
REPLICA = {"topic": "t", "partition": 0, "replicas": [1], "leader": 1}


def cluster(brokers: int, *partitions: dict[str, Any], **changes: Any) -> Snapshot:
    load = {"leader_load": {"disk": 1.0}, "follower_load": {}, "log_dirs": ["/a"]}
    return build_snapshot(
        SnapshotDocument.model_validate(
            {
                "resources": RESOURCES,
                "brokers": [
                    {
                        "id": b,
                        "rack": f"r{b}",
                        "capacity": dict.fromkeys(RESOURCES, 1e6),
                        "disks": [{"path": "/a", "capacity": 1e6}],
                        "broker_set": "s",
                        "attributes": {"price": 1.0} | ({} if b else {"zone": "z"}),
                    }
                    | changes
                    for b in range(brokers)
                ],
                "partitions": [{**load, **row} for row in partitions],
                "topic_attributes": {row["topic"]: {"tenant": "x"} for row in partitions},
            }
        )
    )


CLUSTERS = {
    "no partitions": cluster(2),
    "one broker": cluster(1),
    "no broker": cluster(2, state="dead"),
    "nothing in the only zone": cluster(2, REPLICA),
    "no capacity": cluster(2, REPLICA, capacity=dict.fromkeys(RESOURCES, 0.0)),
    "no loads": cluster(2, REPLICA).with_resources(()),
}


@pytest.mark.parametrize("place", CLUSTERS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_plan_for_nothing_passes_its_check(name: str, place: str) -> None:
    kind = BUILT_IN[name]
    own: dict[str, Any] = {"MoveCost": {}, "Price": {"attribute": "price"}}
    fields = {k: v for k, v in FIELDS.items() if k in kind.model_fields}
    goal = kind.model_validate(own.get(name, fields))
    if inapplicable([goal], CLUSTERS[place]):
        return
    for operation in ({}, {"kind": "fix_offline_replicas"}):
        plan = Balancer([goal]).propose(CLUSTERS[place], Operation.model_validate(operation))
        assert_sound(CLUSTERS[place], plan)


@pytest.mark.parametrize(("partitions", "brokers"), [(2, 1), (5, 3)])
def test_brokers_are_counted_where_no_loads_are_known(partitions: int, brokers: int) -> None:
    rows = [REPLICA | {"partition": p} for p in range(partitions)]
    bare = cluster(2, *rows).with_resources(())
    plan = Balancer([ReplicaCapacity(limit=2)]).propose(bare, Operation(kind="right_size"))
    assert plan.sizing is not None
    assert plan.sizing.brokers == brokers
    assert_sound(plan.snapshot, plan)


def test_no_number_of_brokers_is_stated_without_the_loads_that_hard_goals_limit() -> None:
    sized = cluster(4, REPLICA).with_resources(("disk",))
    with pytest.raises(OperationError, match=r"ResourceCapacity\[network_in\] needs is not"):
        Balancer("default").propose(sized, Operation(kind="right_size"))
