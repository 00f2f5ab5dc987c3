"""The engine a controller embeds: ``Balancer(goals).propose(snapshot) -> Plan``.

Names are imported when they are first used, so that the command line can handle an interrupt while
the engine is still being loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_MODULES = {
    "balancer.collocation.strategy": ("Albic",),
    "balancer.engine": ("Balancer",),
    "balancer.planning.document": ("Action", "Identity", "PlanDocument", "PlanError", "load_plan"),
    "balancer.planning.parameters": ("PlanningParameters",),
    "balancer.planning.plan": ("Plan",),
    "balancer.problem.budget": ("Budget",),
    "balancer.problem.operation": ("Operation", "OperationError"),
    "balancer.strategies.local_search": ("LocalSearch",),
    "balancer.strategies.milp": ("Milp",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
