"""A rule: how to interpret a metric on an exporter's page."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, field_validator

from metrics_reporter.exposition import Sample


class Rule(BaseModel):
    """How to interpret a metric on a page.

    Parameters
    ----------
    name
        Regular expression of its whole name, case-insensitive.
    metric
        One of :mod:`metrics_reporter.records`, or another name, which is passed through.
        ``end_offset`` and ``replicas`` (0 where the broker does not lead the partition)
        help to split a topic's rates by partition; ``start_time`` is the process's.
    kind
        Counters become rates per second, gauges keep their values. By default what the page
        states (``# TYPE``), and else a gauge.
    type
        ``gauge`` for a rule of what the page calls a gauge, ``counter`` for one of all else.
    where
        Label to a regular expression of its whole value.
    scale
        Factor on the value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    metric: Annotated[str, Field(min_length=1, max_length=255)]
    kind: Literal["counter", "gauge"] | None = None
    type: Literal["counter", "gauge"] | None = None
    where: dict[str, str] = {}
    scale: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)] = 1.0

    @field_validator("name", "where")
    @classmethod
    def _is_pattern(cls, given: str | dict[str, str]) -> str | dict[str, str]:
        for pattern in [given] if isinstance(given, str) else given.values():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"a regular expression ({error})") from None
        return given

    def is_of(self, type: str) -> bool:
        """Whether it is a rule of metrics of this type."""
        return self.type is None or (self.type == "gauge") == (type == "gauge")

    def counts(self, type: str) -> bool:
        """Whether a metric of this type is a counter."""
        return (self.kind or type) == "counter"

    def takes(self, sample: Sample) -> bool:
        """Whether the labels match; the name and the type already do."""
        return all(
            re.fullmatch(pattern, sample.labels.get(label, ""))
            for label, pattern in self.where.items()
        )
