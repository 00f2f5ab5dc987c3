"""Strategies by name: the protocol, the built-in strategies, and installed ones.

Another package adds its own as an entry point of the group ``counterpoise.strategies``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from balancer.problem.budget import Budget
from balancer.problem.problem import Problem
from balancer.strategies.local_search import LocalSearch
from balancer.strategies.milp import Milp
from balancer.strategies.strategy import (
    Progress,
    Proposal,
    Strategy,
    StrategyError,
)
from metrics_reporter.documents import shown
from metrics_reporter.plugins import Plugins

STRATEGIES: Plugins[type[Strategy]] = Plugins(
    group="counterpoise.strategies",
    noun="strategy",
    built_in={
        "goals": LocalSearch,
        "milp": Milp,
        "albic": "balancer.collocation.strategy:Albic",
    },
    accepts=lambda found: callable(getattr(found, "propose", None)),
    expected="a class with a method propose",
    error=StrategyError,
)

Config = str | Mapping[str, Any] | Strategy
"""A strategy, its name, or a mapping of ``strategy`` to its name together with its options."""


def load_strategy(config: Config = "goals") -> Strategy:
    """Build a strategy from its configuration.

    Parameters
    ----------
    config
        See :data:`Config`.

    Raises
    ------
    StrategyError
        Naming the strategy or option, the value found and what was expected.

    Examples
    --------
    >>> load_strategy({"strategy": "milp", "rounds": 500}).rounds
    500
    """
    if not isinstance(config, str | Mapping):
        if isinstance(config, type) or not callable(getattr(config, "propose", None)):
            raise StrategyError(f"strategy: {config!r} found, an object with `propose` expected")
        return config
    options: dict[str, Any] = {"strategy": config} if isinstance(config, str) else dict(config)
    name = options.pop("strategy", None)
    if not isinstance(name, str):
        raise StrategyError(f"strategy: {shown(name)} found, a name expected")
    made: Strategy = STRATEGIES.make(name, options)
    return made


__all__ = [
    "STRATEGIES",
    "Budget",
    "Config",
    "Problem",
    "Progress",
    "Proposal",
    "Strategy",
    "StrategyError",
    "load_strategy",
]
