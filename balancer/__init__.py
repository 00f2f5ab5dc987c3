"""The engine a controller embeds: ``Balancer(goals).propose(snapshot) -> Plan``."""

from balancer.collocation.strategy import Albic
from balancer.engine import Balancer
from balancer.planning.document import Action, Identity, PlanDocument, PlanError, load_plan
from balancer.planning.parameters import PlanningParameters
from balancer.planning.plan import Plan
from balancer.problem.budget import Budget
from balancer.problem.operation import Operation, OperationError
from balancer.strategies.local_search import LocalSearch
from balancer.strategies.milp import Milp

__all__ = [
    "Action",
    "Albic",
    "Balancer",
    "Budget",
    "Identity",
    "LocalSearch",
    "Milp",
    "Operation",
    "OperationError",
    "Plan",
    "PlanDocument",
    "PlanError",
    "PlanningParameters",
    "load_plan",
]
