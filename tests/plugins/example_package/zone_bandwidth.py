"""A goal: the brokers of each zone receive no more than its uplink carries."""

from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.scopes import Grouping
from cluster_model.snapshot import Floats
from goals import Cluster, Goal, State, at_most

ZONE = Grouping("zone")


class ZoneBandwidth(Goal):
    """The brokers of each zone together receive at most `share` of the zone's uplink.

    Brokers have the attribute `zone`, and the attribute `uplink`: their part of the bytes/s that
    their zone can receive.

    Parameters
    ----------
    share
        Share of the uplink.
    """

    scope: ClassVar = ZONE
    requires: ClassVar = ("network_in", "broker attribute uplink")

    share: float = 0.8
    _limit: Floats = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        zone, uplink = ZONE.members(cluster.snapshot), cluster.broker_attribute("uplink")
        known = (zone >= 0) & ~np.isnan(uplink)
        size = np.bincount(zone[known], uplink[known], ZONE.cells(cluster.snapshot))
        self._limit = (self.share * size).astype(np.float64)

    def score(self, state: State) -> Any:
        return at_most(state.load("network_in"), self._limit[state.group])
