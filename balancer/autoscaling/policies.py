"""The policies by the names that the command line knows.

Importing the names does not import the policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from balancer.autoscaling.errors import AutoscalingError
from metrics_reporter.documents import shown

if TYPE_CHECKING:
    from balancer.autoscaling.parameters import AutoscalingParameters
    from balancer.autoscaling.policy import Policy

# Name and what it does.
POLICIES = {
    "repair": "keep what fits, move what must, save a consumer where its price is worth the moves",
    "latency-aware": "pack again with the lag that a rebalance adds (Algorithm 2 of the paper)",
    "latency-aware-1": "pack again without it (Algorithm 1)",
    "linear": "the arrival rate over a consumer's capacity",
    "keda": "the total lag over a threshold, as KEDA's Kafka scaler",
}


def policy(name: str, parameters: AutoscalingParameters, lag_threshold: float = 10.0) -> Policy:
    """The policy of a name.

    Parameters
    ----------
    name
        One of :data:`POLICIES`.
    parameters
        Those of ``repair``; the others take the SLA and the bounds from it.
    lag_threshold
        Of ``keda``: events of lag per consumer.

    Raises
    ------
    AutoscalingError
        For an unknown name.
    """
    from balancer.autoscaling.baselines import Keda, LatencyAware, Linear
    from balancer.autoscaling.repairing import RepairPolicy

    if name == "repair":
        return RepairPolicy(parameters)
    if name in ("latency-aware", "latency-aware-1"):
        return LatencyAware(
            sla=parameters.sla,
            rebalance_lag=name == "latency-aware",
            minimum=parameters.minimum,
            maximum=parameters.maximum,
        )
    if name == "linear":
        return Linear(minimum=parameters.minimum, maximum=parameters.maximum)
    if name == "keda":
        if not lag_threshold > 0:
            raise AutoscalingError(
                f"lag threshold: {lag_threshold:g} found, a number above 0 expected"
            )
        return Keda(threshold=lag_threshold, minimum=parameters.minimum, maximum=parameters.maximum)
    raise AutoscalingError(f"policy: {shown(name)} found, one of {', '.join(POLICIES)} expected")


def check_sla(sla: float, rebalance_seconds: float) -> None:
    """Refuse a target that no policy can keep.

    Raises
    ------
    AutoscalingError
        If a rebalance takes as long as the target allows, or longer.
    """
    from balancer.autoscaling.feasibility import sla_warning

    sentence = sla_warning(sla, rebalance_seconds)
    if sentence is not None:
        raise AutoscalingError(sentence)
