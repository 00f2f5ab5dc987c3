"""Checks that a plan belongs to its snapshot, and has not been changed since."""

from __future__ import annotations

from collections.abc import Iterator

from balancer.planning.document import PlanDocument
from balancer.verification.report import Fault
from balancer.verification.stated_request import StatedRequest
from cluster_model.snapshot import Snapshot


def identity_faults(snapshot: Snapshot, plan: PlanDocument) -> Iterator[Fault]:
    """Whether the plan was made from this snapshot; handwritten plans do not state theirs."""
    stated, found = plan.identity, snapshot.digest()
    if stated.cluster_id is not None and stated.cluster_id != snapshot.cluster_id:
        yield Fault(
            "other cluster",
            f"the plan is for cluster {stated.cluster_id}, "
            f"the snapshot is of {snapshot.cluster_id or 'no named cluster'}",
        )
    if stated.snapshot_digest is not None and stated.snapshot_digest != found:
        yield Fault(
            "other snapshot",
            f"the plan was made from another snapshot: digest {stated.snapshot_digest[:12]} "
            f"stated, {found[:12]} found",
        )
    if stated.metadata_version not in (None, snapshot.metadata_version):
        yield Fault(
            "other snapshot",
            f"the plan is for metadata.version {stated.metadata_version}, "
            f"the snapshot has {snapshot.metadata_version}",
        )
    if plan.digest is not None and plan.digest != plan.content_digest:
        yield Fault(
            "changed plan",
            f"the plan was changed after it was made: digest {plan.digest[:12]} stated, "
            f"{plan.content_digest[:12]} found",
        )


def demotion_faults(request: StatedRequest, plan: PlanDocument) -> Iterator[Fault]:
    """Whether the stated brokers are those that stay and that the request bars from leading."""
    ids = request.snapshot.broker_ids
    if request.kind.known:
        expected = tuple(ids[~request.may_lead & ~request.draining].tolist())
        if plan.demoted != expected:
            text = f"demoted: {list(plan.demoted)} stated, {list(expected)} expected"
            yield Fault("demoted", text)
    elif strange := set(plan.demoted) - set(ids.tolist()):
        yield Fault("demoted", f"demoted: {min(strange, key=str)} is not in the snapshot")


def replica_faults(snapshot: Snapshot, plan: PlanDocument) -> Iterator[Fault]:
    """Whether the stated replicas match the changed partitions; older plans state none."""
    s, changed = snapshot, {f"{a.topic}-{a.partition}" for a in plan.actions}
    if not plan.replicas:
        return
    found = {}
    for p, (topic, number) in enumerate(zip(s.partition_topic, s.partition_number, strict=True)):
        if (name := f"{s.topics[topic]}-{number}") in changed:
            rows = s.replica_broker[s.replica_offset[p] : s.replica_offset[p + 1]]
            found[name] = tuple(s.broker_ids[rows].tolist())
    for name in sorted(found.keys() | plan.replicas.keys()):
        stated, expected = plan.replicas.get(name), found.get(name)
        if stated != expected:
            texts = ("none" if r is None else str(list(r)) for r in (stated, expected))
            yield Fault("replicas", f"{name}: {next(texts)} stated, {next(texts)} expected")
