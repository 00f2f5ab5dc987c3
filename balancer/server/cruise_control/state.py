"""States as Cruise Control tells them: its parts, and the brokers and partitions of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from balancer.composition.cruise_control.keys import HEALING
from balancer.problem.liveness import dead_brokers
from balancer.server.cruise_control.answers import Answer
from balancer.server.cruise_control.goals import cruise_control_names
from balancer.server.cruise_control.loads import MB
from balancer.server.cruise_control.tasks import UserTask
from balancer.server.errors import RequestError
from balancer.server.patterns import partitions_of_topics
from balancer.server.service import Service
from cluster_model.snapshot import Snapshot

SUBSTATES = ("analyzer", "monitor", "executor", "anomaly_detector")
_RECENT = {
    "recentGoalViolations": ("goal_violations",),
    "recentBrokerFailures": ("dead_brokers",),
    "recentDiskFailures": ("dead_disks",),
    "recentMetricAnomalies": ("slow_brokers",),
    "recentTopicAnomalies": ("missing_replicas",),
}
# Detectors whose plans need no approval if the policy lets them heal.
_HEALERS = ("dead_brokers", "dead_disks")
_STATUS = {
    "ripe": "DETECTED",
    "waiting": "CHECK_WITH_DELAY",
    "notice": "IGNORED",
    "unfixable": "IGNORED",
}


def cruise_control_state(
    service: Service, substates: Sequence[str], tasks: Sequence[UserTask]
) -> Answer:
    """The state of each part that is asked for; what is not known is null or left out."""
    asked = [part.lower() for part in substates] or list(SUBSTATES)
    unknown = [part for part in asked if part not in SUBSTATES]
    if unknown:
        raise RequestError(f"Unsupported substates in {unknown}. Supported: {list(SUBSTATES)}")
    content: dict[str, dict[str, Any]] = {}
    if "analyzer" in asked:
        content["AnalyzerState"] = _analyzer(service)
    if "monitor" in asked:
        content["MonitorState"] = _monitor(service)
    if "executor" in asked:
        content["ExecutorState"] = _executor(service, tasks)
    if "anomaly_detector" in asked:
        content["AnomalyDetectorState"] = _anomalies(service)
    text = "\n".join(
        f"{part}: {{{', '.join(f'{k}: {v}' for k, v in fields.items())}}}"
        for part, fields in content.items()
    )
    return Answer(content, text)


def kafka_cluster_state(s: Snapshot, *, topic: str | None, verbose: bool) -> Answer:
    """Brokers and partitions of the last look; replicas in sync are not part of it, so null."""
    names = [str(b) for b in s.broker_ids.tolist()]
    gone = dead_brokers(s)[s.replica_broker]
    if s.n_disks:
        gone = gone | ~np.append(s.disk_alive, True)[s.replica_disk]

    def counted(which: Any) -> dict[str, int]:
        found = np.bincount(s.replica_broker[which], minlength=s.n_brokers)
        return dict(zip(names, found.tolist(), strict=True))

    every = np.ones(s.n_replicas, np.bool_)
    leaders, replicas = counted(s.replica_is_leader), counted(every)
    paths: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    for broker, path, alive in zip(
        s.disk_broker.tolist(), s.disk_path, s.disk_alive.tolist(), strict=True
    ):
        paths[alive].setdefault(names[broker], []).append(path)
    of_brokers = {
        "LeaderCountByBrokerId": leaders,
        "ReplicaCountByBrokerId": replicas,
        "OfflineReplicaCountByBrokerId": counted(gone),
        "OutOfSyncCountByBrokerId": None,
        "IsController": None,
        "OnlineLogDirsByBrokerId": paths[True],
        "OfflineLogDirsByBrokerId": paths[False],
        "Summary": _summary(s, leaders, replicas),
    }
    shown = np.ones(s.n_partitions, np.bool_)
    if topic is not None:
        shown &= partitions_of_topics(topic, s)
    lost = np.bincount(s.replica_partition, gone, s.n_partitions) > 0

    def listed(which: Any) -> list[dict[str, Any]]:
        return [_partition(s, p, gone) for p in np.flatnonzero(which & shown).tolist()]

    of_partitions: dict[str, Any] = {
        "offline": listed(s.leaderless),
        "with-offline-replicas": listed(lost),
        "urp": None,
        "under-min-isr": None,
    }
    if verbose:
        of_partitions["other"] = listed(~(s.leaderless | lost))

    def text() -> str:
        parts = {**of_brokers, **of_partitions}
        return "\n".join(f"{k}: {'unknown' if v is None else v}" for k, v in parts.items())

    return Answer({"KafkaBrokerState": of_brokers, "KafkaPartitionState": of_partitions}, text)


def _analyzer(service: Service) -> dict[str, Any]:
    open_now = [p for p in service.controller.approvals.store.all() if p.state == "open"]
    ready = (
        []
        if service.controller.view is None
        else cruise_control_names(g.goal for g in service.goals() if g.left_out is None)
    )
    return {"isProposalReady": bool(open_now), "readyGoals": ready}


def _monitor(service: Service) -> dict[str, Any]:
    view = service.controller.view
    return {
        "state": "LOADING" if view is None else "RUNNING",
        "trained": False,
        "numTotalPartitions": None if view is None else view.snapshot.n_partitions,
        "numMonitoredWindows": None,
        "numValidPartitions": None,
        "monitoringCoveragePct": None,
        "numFlawedPartitions": None,
        **({"error": view.incomplete} if view is not None and view.incomplete else {}),
    }


def _executor(service: Service, tasks: Sequence[UserTask]) -> dict[str, Any]:
    found = service.execution()
    if found is None:
        return {"state": "NO_TASK_IN_PROGRESS"}
    plan, progress, limits = found["plan"] or {}, found["progress"] or {}, found["limits"]
    moves = plan.get("replica_moves", 0) + plan.get("replicas_added", 0)
    disks = plan.get("disk_moves", 0)
    kind = "INTER_BROKER_REPLICA" if moves else "INTRA_BROKER_REPLICA" if disks else "LEADER"
    # what a recovery finishes is not known before it ends
    state = f"{kind}_MOVEMENT_TASK_IN_PROGRESS" if plan else "STARTING_EXECUTION"
    by = next((t.id for t in tasks if t.proposal and t.proposal == found["proposal"]), None)
    figures: dict[str, Any] = {
        "state": state,
        "triggeredTaskReason": found["cause"],
        **({"triggeredUserTaskId": by} if by else {}),
        "numTotalPartitionMovements": moves,
        "numTotalIntraBrokerPartitionMovements": disks,
        "numTotalLeadershipMovements": plan.get("leadership_moves", 0),
        "maximumConcurrentPartitionMovementsPerBroker": limits["concurrent_moves_per_broker"],
        "maximumConcurrentLeaderMovements": limits["leadership_batch"],
    }
    if progress and plan.get("cost_unit") == "bytes":
        figures |= {
            "finishedDataMovement": round(progress["bytes_moved"] / MB),
            "totalDataToMove": round(progress["bytes"] / MB),
        }
    return figures


def _anomalies(service: Service) -> dict[str, Any]:
    settings, findings = service.controller.settings, service.controller.findings
    policy, balancedness = settings.approval, service.controller.state()["balancedness"]
    healed = {
        key.removeprefix("self.healing.").removesuffix(".enabled").replace(".", "_").upper(): bool(
            service.controller.executes
            and getattr(settings, detector).act
            and (policy.mode == "automatic" or (policy.heal and detector in _HEALERS))
        )
        for key, detector in HEALING.items()
    }
    return {
        "selfHealingEnabled": [name for name, on in healed.items() if on],
        "selfHealingDisabled": [name for name, on in healed.items() if not on],
        **{
            title: [
                {
                    "detectionMs": round(f.since * 1000),
                    "status": _STATUS[f.state],
                    "description": f.sentence,
                }
                for f in findings
                if f.kind in kinds
            ]
            for title, kinds in _RECENT.items()
        },
        **({} if balancedness is None else {"balancednessScore": balancedness}),
    }


def _summary(s: Snapshot, leaders: dict[str, int], replicas: dict[str, int]) -> dict[str, Any]:
    led, held = list(leaders.values()), list(replicas.values())
    return {
        "Brokers": s.n_brokers,
        "Topics": len(s.topics),
        "Replicas": s.n_replicas,
        "Leaders": sum(led),
        "AvgReplicationFactor": s.n_replicas / s.n_partitions if s.n_partitions else None,
        "AvgReplicasPerBroker": float(np.mean(held)),
        "AvgLeadersPerBroker": float(np.mean(led)),
        "MaxReplicasPerBroker": max(held),
        "MaxLeadersPerBroker": max(led),
        "StdReplicasPerBroker": float(np.std(held)),
        "StdLeadersPerBroker": float(np.std(led)),
    }


def _partition(s: Snapshot, p: int, gone: Any) -> dict[str, Any]:
    first, last = s.replica_offset[p : p + 2].tolist()
    held, leader = s.broker_ids[s.replica_broker[first:last]].tolist(), int(s.leader[p])
    return {
        "topic": s.topics[s.partition_topic[p]],
        "partition": int(s.partition_number[p]),
        "leader": held[leader] if leader >= 0 else -1,
        "replicas": held,
        "in-sync": None,
        "out-of-sync": None,
        "offline": [b for b, off in zip(held, gone[first:last].tolist(), strict=True) if off],
    }
