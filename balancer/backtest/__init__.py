"""Backtests: replays a history to show what a configuration would have done.

result = backtest(history, load_configurations("candidates.yaml"), first_ms=..., end_ms=...)
"""

from balancer.backtest.configuration import RECORDED, Configuration, load_configurations
from balancer.backtest.errors import BacktestError
from balancer.backtest.judge import WindowFigures, judge
from balancer.backtest.picture import draw
from balancer.backtest.result import BacktestResult, ConfigurationFigures
from balancer.backtest.spark import backtest, judge_placements

__all__ = [
    "RECORDED",
    "BacktestError",
    "BacktestResult",
    "Configuration",
    "ConfigurationFigures",
    "WindowFigures",
    "backtest",
    "draw",
    "judge",
    "judge_placements",
    "load_configurations",
]
