"""A reader of snapshots: a table of rooms and the servers that they are on."""

import csv
from typing import ClassVar

from pydantic import BaseModel, Field

from cluster_model import (
    BrokerRecord,
    PartitionRecord,
    Snapshot,
    SnapshotDocument,
    build_snapshot,
)


class RoomsReader(BaseModel):
    """Reads a table with the columns room, server and players.

    Parameters
    ----------
    capacity
        Number of players that a server has room for.
    """

    summary: ClassVar[str] = "Read a table with the columns room, server and players."

    capacity: float = Field(gt=0)

    def read(self, source: str) -> Snapshot:
        with open(source, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        servers = sorted({int(row["server"]) for row in rows})
        return build_snapshot(
            SnapshotDocument(
                resources=("players",),
                brokers=tuple(
                    BrokerRecord(id=server, capacity={"players": self.capacity})
                    for server in servers
                ),
                partitions=tuple(
                    PartitionRecord(
                        topic="rooms",
                        partition=int(row["room"]),
                        replicas=(int(row["server"]),),
                        leader=int(row["server"]),
                        leader_load={"players": float(row["players"])},
                    )
                    for row in rows
                ),
            )
        )
