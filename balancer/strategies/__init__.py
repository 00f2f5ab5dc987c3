"""Strategies by name: the protocol, the built-in strategies, and installed ones.

Another package adds its own as an entry point of the group ``counterpoise.strategies``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from pydantic import BaseModel

from balancer.problem.budget import Budget
from balancer.problem.problem import Problem
from balancer.search.parameters import SearchParameters
from balancer.strategies.local_search import LocalSearch
from balancer.strategies.milp import Milp
from balancer.strategies.strategy import (
    ProgressCallback,
    Proposal,
    Strategy,
    StrategyError,
    is_universal,
    search_options,
)
from metrics_reporter.documents import shown
from metrics_reporter.plugins import Model, Plugins

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


def with_search_parameters(strategy: Strategy, parameters: SearchParameters) -> Strategy:
    """The strategy, with parameters of the search as defaults of the options it declares.

    Its own options take precedence; see :func:`search_options`.
    """
    taken = search_options(strategy) & parameters.model_fields_set
    if not taken or not isinstance(strategy, BaseModel):
        return strategy
    return with_defaults(strategy, parameters, taken)


def with_defaults(given: Model, default: BaseModel, taken: Set[str] | None = None) -> Model:
    """The given parameters, with those left unset taken from others of the same names.

    Parameters
    ----------
    given, default
        The parameters that take precedence, and the others.
    taken
        Names of the parameters to take; by default all.
    """
    others = default.model_dump(exclude_unset=True, include=None if taken is None else {*taken})
    return type(given).model_validate(others | given.model_dump(exclude_unset=True))


__all__ = [
    "STRATEGIES",
    "Budget",
    "Config",
    "Problem",
    "ProgressCallback",
    "Proposal",
    "Strategy",
    "StrategyError",
    "is_universal",
    "load_strategy",
    "search_options",
    "with_defaults",
    "with_search_parameters",
]
