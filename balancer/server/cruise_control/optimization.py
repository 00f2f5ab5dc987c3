"""A plan as Cruise Control answers it: summary, goals, loads before and after, proposals."""

from __future__ import annotations

from typing import Any

from balancer.planning.plan import Plan
from balancer.server.cruise_control.answers import Answer
from balancer.server.cruise_control.goals import goal_summary
from balancer.server.cruise_control.loads import MB, broker_stats
from cluster_model.snapshot import Snapshot
from goals.patterns import matching


def optimization(plan: Plan, *, verbose: bool, note: str) -> Answer:
    """The answer for a plan.

    Parameters
    ----------
    plan
        The plan.
    verbose
        Whether to state each partition's change, and the loads before.
    note
        A sentence on what happens with it; empty for none.
    """
    before, after = broker_stats(plan.snapshot), broker_stats(plan.final_snapshot())
    goals = goal_summary(plan.goal_results)
    figures = summary(plan)
    content: dict[str, Any] = {
        "summary": figures,
        "goalSummary": goals,
        "loadAfterOptimization": after.content,
    }
    changes = proposals(plan) if verbose else []
    if verbose:
        content |= {"proposals": changes, "loadBeforeOptimization": before.content}
    if note:
        content["message"] = note

    def text() -> str:
        parts = [_change_text(change) for change in changes]
        parts += [_summary_text(figures), *(f"Goal {g['goal']}: {g['status']}." for g in goals)]
        if verbose:
            parts.append(f"\nCurrent load:\n{before.text}")
        parts.append(f"\nOptimized load:\n{after.text}")
        return "\n".join([*parts, note] if note else parts)

    return Answer(content, text)


def summary(plan: Plan) -> dict[str, Any]:
    """What the plan moves and how good it is; what is not known is null."""
    s, found, operation = plan.snapshot, plan.summary, plan.operation
    within = 0.0
    if found.disk_moves:
        within = sum(a.cost for a in plan.actions if a.kind == "move_disk")
    between = found.cost - within
    status, recommendation = provision(plan)
    return {
        "numReplicaMovements": found.replica_moves + found.replicas_added,
        "dataToMoveMB": round(between / MB) if found.cost_unit == "bytes" else None,
        "numIntraBrokerReplicaMovements": found.disk_moves,
        "intraBrokerDataToMoveMB": round(within / MB) if found.cost_unit == "bytes" else None,
        "numLeaderMovements": found.leadership_moves,
        "recentWindows": None,
        "monitoredPartitionsPercentage": None,
        "excludedTopics": _excluded(s, operation.get("excluded_topics", ())),
        "excludedBrokersForReplicaMove": list(operation.get("excluded_brokers_for_replicas", ())),
        "excludedBrokersForLeadership": list(operation.get("excluded_brokers_for_leadership", ())),
        "onDemandBalancednessScoreBefore": found.balancedness_before,
        "onDemandBalancednessScoreAfter": found.balancedness_after,
        "provisionStatus": status,
        "provisionRecommendation": recommendation,
    }


def provision(plan: Plan) -> tuple[str, str]:
    """Whether the cluster is large enough, as far as the plan proves it, and what to add."""
    lacking = [u for u in plan.unmet if u.proven and (u.brokers_to_add or u.racks_to_add)]
    if lacking:
        return "UNDER_PROVISIONED", " ".join(f"[{u.goal}] {u.remedy or u.reason}" for u in lacking)
    if plan.sizing is not None and plan.sizing.met:
        fewer = plan.sizing.brokers < plan.sizing.brokers_before
        return ("OVER_PROVISIONED" if fewer else "RIGHT_SIZED"), plan.sizing.text
    return "UNDECIDED", ""


def proposals(plan: Plan) -> list[dict[str, Any]]:
    """Each partition that changes, with its brokers before and after."""
    s, final = plan.snapshot, plan.final_snapshot()
    rows = {
        f"{s.topics[t]}-{n}": p
        for p, (t, n) in enumerate(
            zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
        )
    }
    found = []
    for name in plan.rows.replicas(s):
        p = rows[name]
        held, after, leader = _held(s, p), _held(final, p), int(s.leader[p])
        found.append(
            {
                "topicPartition": {
                    "topic": s.topics[s.partition_topic[p]],
                    "partition": int(s.partition_number[p]),
                },
                "oldLeader": held[leader] if leader >= 0 else -1,
                "oldReplicas": held,
                "newReplicas": after,
            }
        )
    return found


def _held(s: Snapshot, partition: int) -> list[int | str]:
    first, last = s.replica_offset[partition : partition + 2].tolist()
    held: list[int | str] = s.broker_ids[s.replica_broker[first:last]].tolist()
    return held


def _excluded(s: Snapshot, patterns: Any) -> list[str]:
    found = {
        topic
        for pattern in patterns
        for topic, here in zip(s.topics, matching(pattern, s.topics), strict=True)
        if here
    }
    return sorted(found)


def _change_text(change: dict[str, Any]) -> str:
    where = change["topicPartition"]
    return (
        f"{{{where['topic']}-{where['partition']}, oldLeader: {change['oldLeader']}, "
        f"{change['oldReplicas']} -> {change['newReplicas']}}}"
    )


def _summary_text(f: dict[str, Any]) -> str:
    def shown(value: Any) -> Any:
        return "an unknown number of" if value is None else value

    return (
        f"Optimization has {f['numReplicaMovements']} inter-broker replica "
        f"({shown(f['dataToMoveMB'])} MB) moves, {f['numIntraBrokerReplicaMovements']} "
        f"intra-broker replica ({shown(f['intraBrokerDataToMoveMB'])} MB) moves and "
        f"{f['numLeaderMovements']} leadership moves.\n"
        f"Excluded Topics: {f['excludedTopics']}.\n"
        f"Excluded Brokers For Leadership: {f['excludedBrokersForLeadership']}.\n"
        f"Excluded Brokers For Replica Move: {f['excludedBrokersForReplicaMove']}.\n"
        f"On-demand Balancedness Score Before ({f['onDemandBalancednessScoreBefore']:.3f}) "
        f"After({f['onDemandBalancednessScoreAfter']:.3f}).\n"
        f"Provision Status: {f['provisionStatus']}. {f['provisionRecommendation']}".rstrip()
    )
