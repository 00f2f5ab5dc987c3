"""Answers KEDA: an external scaler whose metric is the number of consumers that was decided."""

from balancer.autoscaling.keda.hpa import metric_value
from balancer.autoscaling.keda.server import KedaScaler, KedaSettings

__all__ = ["KedaScaler", "KedaSettings", "metric_value"]
