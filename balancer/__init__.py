"""The engine a controller embeds: ``Balancer(goals).propose(snapshot) -> Plan``."""

from balancer.engine import Balancer, Budget
from balancer.operation import Operation, OperationError
from balancer.plan import Action, Identity, Plan, PlanDocument, PlanError, load_plan
from balancer.strategy import Albic, Milp

__all__ = [
    "Action",
    "Albic",
    "Balancer",
    "Budget",
    "Identity",
    "Milp",
    "Operation",
    "OperationError",
    "Plan",
    "PlanDocument",
    "PlanError",
    "load_plan",
]
