"""The engine a controller embeds: ``Balancer(goals).propose(snapshot) -> Plan``."""

from balancer.engine import Balancer, Budget
from balancer.operation import Operation, OperationError
from balancer.plan import Action, Plan, PlanDocument, PlanError, load_plan

__all__ = [
    "Action",
    "Balancer",
    "Budget",
    "Operation",
    "OperationError",
    "Plan",
    "PlanDocument",
    "PlanError",
    "load_plan",
]
