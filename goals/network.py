"""The goals of AutoMQ's AutoBalancer, with the scores of its article (seed 004)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field, PrivateAttr, field_validator

from cluster_model.columns import LOAD, Column
from cluster_model.snapshot import Bools
from goals.cluster import Cluster
from goals.curves import TOLERANCE, distance
from goals.goal import Goal
from goals.state import State
from metrics_reporter.quantities import byte_rate

_MIB = 2.0**20


class _NetworkUsage(Goal):
    """Keeps each broker's traffic near the mean of all, in bytes/s, regardless of capacity.

    With the mean `avg` over the brokers that may receive replicas, ``ua = |avg - load|``,
    ``bound = avg * deviation`` and ``var = bound + baseline``, the score is that of
    :func:`goals.curves.distance`: 1 up to the bound, linear to 0.1 at `var`, then
    0.1 / log_var(ua).

    AutoBalancer also treats a broker as balanced, whatever its score, while both its
    load and the mean are below `detect_threshold`. Here a broker is balanced exactly if
    its score is 1, so such brokers score 1. The resulting step at the threshold is
    downwards and small (0.9 * threshold / baseline at most, 0.009 by default), and the
    score still never rises with the distance. (The article has "or", the source "and":
    an idle broker in a busy cluster is out of balance; this follows the source.)
    """

    @field_validator("baseline", "detect_threshold", mode="before")
    @classmethod
    def _in_units(cls, value: Any) -> Any:
        return byte_rate(value) if isinstance(value, str) else value

    deviation: float = Field(default=0.1, ge=0, le=1)
    baseline: float = Field(default=100 * _MIB, gt=1)
    detect_threshold: float = Field(default=_MIB, ge=0)
    _avg: float = PrivateAttr(default=0.0)
    _bound: float = PrivateAttr(default=0.0)
    _unbounded: Bools | None = PrivateAttr(default=None)
    _content: Bools | None = PrivateAttr(default=None)

    @property
    def column(self) -> Column:
        """The column to balance."""
        raise NotImplementedError

    def prepare(self, cluster: Cluster) -> None:
        """Compute the mean over the brokers that may receive replicas."""
        eligible, draining = cluster.eligible, cluster.draining
        counted = np.where(eligible | draining, 0, -1)
        self._avg = float(cluster.total(self.column, counted, 1)[0] / max(1, eligible.sum()))
        self._bound = self._avg * self.deviation
        self._unbounded = None if eligible.all() else ~eligible
        self._content = draining if draining.any() else None

    def score(self, state: State) -> Any:
        """The seed's curve of the distance from the mean."""
        load = state.column(self.column)
        ua = np.abs(load - self._avg)
        ua -= TOLERANCE * self._avg
        if self._unbounded is not None:
            ua = np.where(self._unbounded[state.broker] & (load < self._avg), 0.0, ua)
        if self._avg < self.detect_threshold:
            ua = np.where(load < self.detect_threshold, 0.0, ua)
        score = distance(ua, self._bound, self._bound + self.baseline)
        return score if self._content is None else np.where(self._content[state.broker], 1.0, score)


class NetworkInUsageDistribution(_NetworkUsage):
    """Each broker's inbound traffic is near the mean, as AutoBalancer scores it.

    Parameters
    ----------
    deviation
        Distance from the mean, as a part of it, within which a broker is balanced.
    baseline
        Bytes/s, or text like ``100MB/s``, beyond the bound at which the score has fallen to 0.1.
    detect_threshold
        Bytes/s, or text like ``1MB/s``: brokers below it are balanced while the mean is below
        it too.
    """

    requires: ClassVar[tuple[str, ...]] = ("network_in",)

    @property
    def column(self) -> Column:
        """The inbound load."""
        return Column(LOAD, "network_in")


class NetworkOutUsageDistribution(_NetworkUsage):
    """Each broker's outbound traffic is near the mean, as AutoBalancer scores it.

    Parameters
    ----------
    deviation, baseline, detect_threshold
        As for :class:`NetworkInUsageDistribution`.
    """

    requires: ClassVar[tuple[str, ...]] = ("network_out",)

    @property
    def column(self) -> Column:
        """The outbound load."""
        return Column(LOAD, "network_out")
