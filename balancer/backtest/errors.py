"""What a backtest is asked for and cannot do."""

from __future__ import annotations

from cluster_model.errors import InputError


class BacktestError(InputError):
    """A backtest that cannot be made: says what, the value found and what is expected."""
