"""A source of metrics: a broker whose cpu is always the same."""

import time
from collections.abc import Iterator

from pydantic import BaseModel

from metrics_reporter import CPU, Record


class SteadySource(BaseModel):
    """Reports the cpu of one broker.

    Parameters
    ----------
    broker
        Id of the broker.
    cpu
        Its cpu, in percent.
    """

    broker: int
    cpu: float = 50.0

    def __iter__(self) -> Iterator[list[Record]]:  # type: ignore[override]  # not of its fields
        while True:
            yield [Record(time.time_ns() // 1_000_000, self.broker, {CPU: self.cpu})]
