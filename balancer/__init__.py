"""The engine a controller embeds: ``Balancer(goals).propose(snapshot) -> Plan``.

Names are imported when they are first used, so that the command line can handle an interrupt while
the engine is still being loaded.
"""

from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
    from balancer.collocation.strategy import Albic
    from balancer.engine import Balancer
    from balancer.planning.document import Action, Identity, PlanDocument, PlanError, load_plan
    from balancer.planning.parameters import PlanningParameters
    from balancer.planning.plan import Plan
    from balancer.problem.budget import Budget
    from balancer.problem.operation import Operation, OperationError
    from balancer.strategies.local_search import LocalSearch
    from balancer.strategies.milp import Milp
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "balancer.collocation.strategy": ("Albic",),
            "balancer.engine": ("Balancer",),
            "balancer.planning.document": (
                "Action",
                "Identity",
                "PlanDocument",
                "PlanError",
                "load_plan",
            ),
            "balancer.planning.parameters": ("PlanningParameters",),
            "balancer.planning.plan": ("Plan",),
            "balancer.problem.budget": ("Budget",),
            "balancer.problem.operation": ("Operation", "OperationError"),
            "balancer.strategies.local_search": ("LocalSearch",),
            "balancer.strategies.milp": ("Milp",),
        },
    )

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
