"""Errors of backtests."""

from __future__ import annotations

from cluster_model.errors import InputError


class BacktestError(InputError):
    """A backtest that cannot be run: says why, the value found and what is expected."""
