"""Backtests: replays a history to show what a configuration would have done.

result = backtest(history, load_configurations("candidates.yaml"), first_ms=..., end_ms=...)
"""

from balancer.backtest.advice import (
    Advice,
    advise,
    candidates,
    date_of,
    sentences,
)
from balancer.backtest.configuration import RECORDED, Configuration, load_configurations
from balancer.backtest.errors import BacktestError
from balancer.backtest.judge import WindowFigures, judge
from balancer.backtest.parameters import AdviceParameters
from balancer.backtest.picture import draw, draw_brokers
from balancer.backtest.result import BacktestResult, ConfigurationFigures, Move
from balancer.backtest.spark import backtest, judge_placements
from balancer.backtest.verdict import Verdict, compared, spreads, verdicts

__all__ = [
    "RECORDED",
    "Advice",
    "AdviceParameters",
    "BacktestError",
    "BacktestResult",
    "Configuration",
    "ConfigurationFigures",
    "Move",
    "Verdict",
    "WindowFigures",
    "advise",
    "backtest",
    "candidates",
    "compared",
    "date_of",
    "draw",
    "draw_brokers",
    "judge",
    "judge_placements",
    "load_configurations",
    "sentences",
    "spreads",
    "verdicts",
]
