"""The rules that a report names forbid exactly the actions that the search may not take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import small
from hypothesis import given
from hypothesis import strategies as st

from balancer import Operation, OperationError
from balancer.problem.prohibitions import prohibitions
from balancer.problem.resolution import resolve
from benchmarks.enumeration import tiny_cluster, tiny_operation
from cluster_model import Snapshot
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement


def every_action(placement: Placement) -> Batch:
    """Every move, leadership transfer and move between disks, allowed or not."""
    s, rows = placement.snapshot, []
    disks = [np.flatnonzero(s.disk_broker == b).tolist() for b in range(s.n_brokers)]
    for at in np.flatnonzero(placement.replica_broker >= 0).tolist():
        p, slot = divmod(at, placement.slots)
        own = int(placement.replica_broker[at])
        rows.append((LEAD, p, slot, own, -1))
        rows += [(MOVE, p, slot, b, d) for b in range(s.n_brokers) for d in disks[b] or [-1]]
        rows += [(MOVE_DISK, p, slot, own, d) for d in disks[own]]
    kind, p, slot, target, disk = np.array(rows, np.int64).T
    return Batch(kind.astype(np.int8), p, slot, target, disk)


def varied(snapshot: Snapshot, rng: np.random.Generator) -> Snapshot:
    """A snapshot with limits that few clusters have."""
    s = snapshot
    if rng.random() < 0.3:
        s = replace(s, may_hold=rng.random((len(s.topics), s.n_brokers)) < 0.7)
    if rng.random() < 0.3:
        s = replace(s, reassigning=rng.random(s.n_partitions) < 0.3)
    if s.n_disks and rng.random() < 0.5:
        s = replace(s, disk_cordoned=rng.random(s.n_disks) < 0.3)
    if rng.random() < 0.3 and (s.leader >= 0).all():
        follows = np.ones(s.n_replicas, np.bool_)
        follows[s.replica_offset[:-1] + s.leader] = False
        s = replace(s, warming=follows & (rng.random(s.n_replicas) < 0.5))
    return s


@given(st.integers(0, 2**31))
def test_an_action_is_legal_if_no_rule_that_is_named_forbids_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    snapshot = varied(tiny_cluster(rng), rng)
    operation = tiny_operation(rng, snapshot)
    try:
        resolved = resolve(snapshot, operation)
    except OperationError:
        return
    placement, rules = resolved.cluster.placement, resolved.rules
    batch = every_action(placement)
    found = prohibitions(rules, operation, placement, batch)
    forbidden = np.any([np.zeros(len(batch), np.bool_), *(one.forbids for one in found)], axis=0)
    np.testing.assert_array_equal(rules.legal(placement, batch), ~forbidden)
    for one in found:
        for row in np.flatnonzero(one.forbids).tolist():
            assert one.sentence(row)


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        (
            {"excluded_brokers_for_replicas": (5,)},
            "broker 5 is excluded from receiving replicas",
        ),
        ({"destinations": (1, 2)}, "broker 5 is not among the destinations (1, 2)"),
        (
            {"kind": "add_brokers", "brokers": (3, 4)},
            "only brokers 3 and 4 receive replicas with add_brokers",
        ),
        (
            {"kind": "demote_brokers", "brokers": (3,)},
            "no broker receives replicas with demote_brokers",
        ),
        ({"kind": "remove_brokers", "brokers": (5,)}, "broker 5 is being emptied"),
        ({"excluded_topics": ("topic-0",)}, "topic topic-0 is excluded"),
        ({"excluded_partitions": ("topic-0-0",)}, "topic-0-0 is excluded"),
        ({"frozen_partitions": ("topic-0-0",)}, "topic-0-0 is frozen"),
        (
            {"kind": "remove_brokers", "brokers": (4,)},
            "remove_brokers leaves this replica in place",
        ),
        (
            {"excluded_brokers_for_leadership": (5,)},
            "broker 5 may not lead: it is excluded from leadership",
        ),
    ],
)
def test_each_rule_has_a_sentence(operation: dict[str, object], sentence: str) -> None:
    """The leader of topic-0-0 moves to broker 5."""
    snapshot = small()
    asked = Operation.model_validate(operation)
    resolved = resolve(snapshot, asked)
    placement = resolved.cluster.placement
    (target,) = snapshot.broker_index([5])
    assert target not in placement.brokers[0]
    row = np.zeros(1, np.int64)
    batch = Batch.of(MOVE, row, row + placement.leader[0], row + target)
    found = prohibitions(resolved.rules, asked, placement, batch)
    assert sentence in [one.sentence(0) for one in found]
