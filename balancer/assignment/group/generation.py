"""A member's place in one generation of the group, as a transaction states it (KIP-447)."""

from __future__ import annotations

import struct
from typing import NamedTuple


class Generation(NamedTuple):
    """What Kafka compares with the group before it takes a transaction's offsets.

    It refuses them if the group has gone on without the member, or has assigned its partitions
    again meanwhile.

    Parameters
    ----------
    group
        Name of the group.
    member
        Id of the member.
    number
        Number of the generation.
    """

    group: str
    member: str
    number: int

    def metadata(self) -> bytes:
        """The group's metadata as confluent-kafka takes it, which reads no other format.

        Its own consumer is not in the group, and can therefore not make it.
        """
        names = self.group.encode() + b"\0" + self.member.encode() + b"\0"
        # Ends with a flag: there is no group.instance.id.
        return b"CGMDv2:" + struct.pack("=i", self.number) + names + b"\1"
