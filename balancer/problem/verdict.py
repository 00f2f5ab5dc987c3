"""Whether what an operation asks for is done at the end of a plan."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Verdict(BaseModel):
    """Whether the operation is fulfilled at the end of the plan; leads its report.

    ``remaining`` counts what is left to do: replicas on brokers to be emptied or on dead
    brokers and disks, partitions that demoted brokers lead, new brokers without replicas,
    partitions with another number of replicas than asked for. It is 0 where the operation
    is ``fulfilled``. ``sentence`` says so in words: "broker 3 is empty".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fulfilled: bool
    remaining: int
    sentence: str
