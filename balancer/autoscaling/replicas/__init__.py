"""Runs as many consumers as were decided: what may start and end them, and within which limits."""

from balancer.autoscaling.replicas.kubernetes import KubernetesReplicas, KubernetesSettings
from balancer.autoscaling.replicas.processes import LocalProcesses, ProcessSettings
from balancer.autoscaling.replicas.protocols import Count, Replicas
from balancer.autoscaling.replicas.scaler import Outcome, Scaler, ScalingLimits

__all__ = [
    "Count",
    "KubernetesReplicas",
    "KubernetesSettings",
    "LocalProcesses",
    "Outcome",
    "ProcessSettings",
    "Replicas",
    "Scaler",
    "ScalingLimits",
]
