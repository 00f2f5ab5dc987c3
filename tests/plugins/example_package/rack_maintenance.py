"""A detector: a rack is about to be switched off, and still holds replicas."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from balancer import Operation
from balancer.controller import Finding, View


class RackMaintenance(BaseModel):
    """Empties a rack before its maintenance.

    Parameters
    ----------
    rack
        Name of the rack.
    """

    summary: ClassVar[str] = "Empty a rack before its maintenance."

    rack: str

    def look(self, view: View) -> Iterator[Finding]:
        s = view.snapshot
        if self.rack in s.racks:
            of_rack = s.broker_rack[s.replica_broker] == s.racks.index(self.rack)
            if held := int(np.count_nonzero(of_rack)):
                yield Finding(
                    subject=f"rack {self.rack}",
                    sentence=f"rack {self.rack} still holds {held:,} replicas",
                    operation=Operation(kind="evacuate_rack", options={"rack": self.rack}),
                )
