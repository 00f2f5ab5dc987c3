"""An operation: every broker of a rack is emptied, before its power is switched off."""

from typing import ClassVar

from balancer.problem.operations import (
    OperationError,
    OperationType,
    Permissions,
    Verdict,
    replicas_that_must_move,
)
from cluster_model import Snapshot
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools
from goals import Cluster


class EvacuateRack(OperationType):
    """Empties every broker of a rack; nothing else moves.

    Parameters
    ----------
    rack
        Name of the rack.
    """

    summary: ClassVar[str] = "Empty every broker of a rack; nothing else moves."

    rack: str

    def check(self, snapshot: Snapshot, named: Bools) -> None:
        if self.rack not in snapshot.racks:
            known = ", ".join(snapshot.racks)
            raise OperationError(f"rack {self.rack!r} found, one of {known} expected")

    def empties(self, snapshot: Snapshot, named: Bools) -> Bools:
        of_rack: Bools = snapshot.broker_rack == snapshot.racks.index(self.rack)
        return of_rack

    def permissions(self, whole: Permissions) -> Permissions:
        return replicas_that_must_move(whole)

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict:
        held = ended.replica_broker[ended.replica_broker >= 0]
        left = int(self.empties(ended.snapshot, named)[held].sum())
        text = (
            f"rack {self.rack} still holds {left:,} replicas"
            if left
            else f"rack {self.rack} is empty"
        )
        return Verdict(fulfilled=not left, remaining=left, sentence=text)
