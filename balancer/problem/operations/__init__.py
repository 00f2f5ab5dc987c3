"""Operations, one file each, and their registry.

Another package adds its own as an entry point of the group ``counterpoise.operations``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from balancer.problem.operation import Operation, OperationError
from balancer.problem.operations.add_brokers import AddBrokers
from balancer.problem.operations.change_replication_factor import ChangeReplicationFactor
from balancer.problem.operations.demote_brokers import DemoteBrokers
from balancer.problem.operations.fix_offline_replicas import (
    FixOfflineReplicas,
    replicas_that_must_move,
)
from balancer.problem.operations.operation_type import OperationType
from balancer.problem.operations.rebalance import Rebalance
from balancer.problem.operations.remove_brokers import RemoveBrokers
from balancer.problem.operations.right_size import RightSize
from balancer.problem.permissions import Permissions
from balancer.problem.verdict import Verdict
from metrics_reporter.plugins import Plugins

BUILT_IN: Mapping[str, type[OperationType]] = {
    "rebalance": Rebalance,
    "add_brokers": AddBrokers,
    "remove_brokers": RemoveBrokers,
    "demote_brokers": DemoteBrokers,
    "fix_offline_replicas": FixOfflineReplicas,
    "change_replication_factor": ChangeReplicationFactor,
    "right_size": RightSize,
}
OPERATIONS: Plugins[type[OperationType]] = Plugins(
    group="counterpoise.operations",
    noun="operation",
    built_in={**BUILT_IN},
    accepts=lambda found: inspect.isclass(found) and issubclass(found, OperationType),
    expected="a subclass of balancer.problem.OperationType",
    error=OperationError,
)


def type_of(operation: Operation) -> OperationType:
    """What an operation does, with its options.

    Raises
    ------
    OperationError
        For a kind that is not installed, or an option that does not fit.
    """
    found = OPERATIONS.get(operation.kind)
    options: dict[str, Any] = dict(operation.options)
    if "replication_factor" in found.model_fields:
        options["replication_factor"] = operation.replication_factor
    elif operation.replication_factor:
        raise OperationError(
            "replication_factor (a topic pattern and a number) goes with the operation "
            "change_replication_factor, and only with it"
        )
    made: OperationType = OPERATIONS.make(operation.kind, options)
    return made


__all__ = [
    "BUILT_IN",
    "OPERATIONS",
    "FixOfflineReplicas",
    "OperationError",
    "OperationType",
    "Permissions",
    "RightSize",
    "Verdict",
    "replicas_that_must_move",
    "type_of",
]
