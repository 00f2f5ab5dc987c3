"""The engine a controller embeds: ``Balancer(goals).propose(snapshot) -> Plan``."""

from balancer.engine import Balancer, Budget
from balancer.planning.document import Action, Identity, PlanDocument, PlanError, load_plan
from balancer.planning.plan import Plan
from balancer.problem.operation import Operation, OperationError
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
