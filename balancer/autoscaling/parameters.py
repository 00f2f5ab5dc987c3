"""Tunable numbers of the policy that sizes a consumer group."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from balancer.autoscaling.group import MOST_CONSUMERS


class AutoscalingParameters(BaseModel):
    """Tunable numbers of :class:`~balancer.autoscaling.repairing.RepairPolicy`.

    Parameters
    ----------
    sla
        Target of the latency, in seconds.
    fill
        Share of its capacity that a consumer may be expected to need before partitions leave it.
    target
        Share of their capacity up to which consumers are filled when partitions move; if a
        rebalance stops all, what is above it moves, too.
    shrink
        The same when a consumer is saved, unless it was started for what waited; then it is
        `target`.
    price_per_consumer
        Price of a consumer for a minute.
    price_per_rscore
        Price of moving as much write speed as a consumer's capacity.
    horizon
        Seconds for which a saved consumer counts: it is saved if its price for so long is more
        than that of the moves.
    lookahead
        Seconds by which the forecast of the rates looks beyond the time that a change takes.
    level_seconds, trend_seconds
        Time over which rates and their trends are smoothed; 0 takes them as they are measured.
    noise_seconds
        Time over which the errors of the forecasts are averaged.
    significance
        Standard deviations by which a trend must stand out from these errors.
    step
        Standard deviations, less one each time, by which rates have exceeded forecasts, or been
        below them, when that is a step of the rate, which is not smoothed.
    burst_decisions
        Decisions in which events must wait again and again to count as coming in bursts, whose size
        is provided for.
    calm
        Seconds over which the highest forecast counts when a consumer is to be saved.
    quiet
        Seconds after a change, also of what is read, in which no consumer is saved.
    remembered
        Seconds in which a load must come back, when consumers for it are missed, so that it is
        provided for from then on.
    minimum, maximum
        Fewest and most consumers.
    exact_partitions, exact_seconds
        Groups of at most so many partitions are packed exactly, for at most so long, unless that
        saves a consumer of a group that grows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    sla: float = Field(default=0.5, gt=0, le=1e6)
    fill: float = Field(default=0.95, gt=0, le=1)
    target: float = Field(default=0.9, gt=0, le=1)
    shrink: float = Field(default=0.8, gt=0, le=1)
    price_per_consumer: float = Field(default=1.0, ge=0, le=1e9)
    price_per_rscore: float = Field(default=1.0, ge=0, le=1e9)
    horizon: float = Field(default=60.0, gt=0, le=1e6)
    lookahead: float = Field(default=2.0, ge=0, le=1e5)
    level_seconds: float = Field(default=4.0, ge=0, le=1e5)
    trend_seconds: float = Field(default=4.0, ge=0, le=1e5)
    noise_seconds: float = Field(default=15.0, ge=0, le=1e5)
    significance: float = Field(default=2.0, ge=0, le=100)
    step: float = Field(default=6.0, ge=0, le=1e6)
    burst_decisions: int = Field(default=5, ge=1, le=10_000)
    calm: float = Field(default=15.0, ge=0, le=1e6)
    quiet: float = Field(default=15.0, ge=0, le=1e6)
    remembered: float = Field(default=300.0, ge=0, le=1e6)
    minimum: int = Field(default=1, ge=1, le=MOST_CONSUMERS)
    maximum: int = Field(default=MOST_CONSUMERS, ge=1, le=MOST_CONSUMERS)
    exact_partitions: int = Field(default=0, ge=0, le=1000)
    exact_seconds: float = Field(default=1.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(
                f"minimum {self.minimum} found, at most the maximum of {self.maximum} expected"
            )
        if not self.shrink <= self.target <= self.fill:
            raise ValueError(
                f"shrink {self.shrink:g}, target {self.target:g} and fill {self.fill:g} found, "
                "ascending values expected"
            )
        return self
