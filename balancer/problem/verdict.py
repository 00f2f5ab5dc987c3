"""Whether a plan fulfils its operation."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Verdict(BaseModel):
    """Whether the operation is fulfilled at the end of the plan; leads its report.

    ``remaining`` counts what is left to do: replicas on brokers to be emptied or on dead
    brokers and disks, partitions led by demoted brokers, new brokers without replicas,
    partitions with a number of replicas other than the requested one. It is 0 if the
    operation is ``fulfilled``. ``sentence`` states the result: "broker 3 is empty".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fulfilled: bool
    remaining: int
    sentence: str
