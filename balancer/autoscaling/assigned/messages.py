"""What consumers and their controller send each other: JSON, checked on arrival."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metrics_reporter.documents import Number, Whole

Partition = tuple[str, int]
# Larger messages are ignored unread; a partition takes about 6 bytes.
LARGEST_BYTES = 1 << 20

_LONGEST = 250
# Of a consumer: its id is the name, a slash and 32 digits.
LONGEST_NAME = _LONGEST - 33

_Name = Annotated[str, Field(min_length=1, max_length=_LONGEST)]
_Numbers = dict[_Name, tuple[Whole, ...]]
_Rate = Annotated[Number, Field(gt=0)]


class _Message(BaseModel):
    # Unknown fields are those of a newer version.
    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal[1] = 1

    def encode(self) -> bytes:
        """The message as the value of a record."""
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, value: bytes | None) -> Self | None:
        """Read the value of a record; None if it is no such message."""
        if value is None or len(value) > LARGEST_BYTES:
            return None
        try:
            return cls.model_validate_json(value)
        except ValidationError:
            return None


class Heartbeat(_Message):
    """A consumer says that it runs, and what it holds.

    Parameters
    ----------
    consumer
        Its name.
    id
        Of this process: another one of the same name has another id.
    address
        The partition of the control topic that it reads.
    number
        Of the heartbeat; each has a higher one.
    epoch, seen
        The latest assignment that it has accepted.
    partitions
        Those that it reads or may begin to read without another message.
    leaving
        Whether it ends: it will read nothing again.
    capacity
        Events/s that it can process, as it has measured; None while it does not know.
    unread
        Those of `partitions` that it does not read: not yet, or not any longer. None if they are
        not known, or too many to be listed.
    """

    kind: Literal["heartbeat"] = "heartbeat"
    consumer: _Name
    id: _Name
    address: Whole
    number: Whole
    epoch: Whole
    seen: Whole
    partitions: _Numbers = {}
    leaving: bool = False
    capacity: _Rate | None = None
    unread: _Numbers | None = None

    @property
    def held(self) -> frozenset[Partition]:
        """The partitions as a set."""
        return frozenset(flat(self.partitions))

    @property
    def reads(self) -> frozenset[Partition] | None:
        """Those that it reads; None if it does not say."""
        return None if self.unread is None else self.held - frozenset(flat(self.unread))


class Assignment(_Message):
    """What a consumer is to read, and for how long that is certain; sent by the controller.

    Parameters
    ----------
    id
        The process that is meant.
    epoch
        Of the controller: a later one has a higher epoch.
    number
        Of the assignment; each of an epoch has a higher one.
    heartbeat
        The heartbeat that is answered: the lease counts from the time at which it was sent.
    lease_seconds
        How long the consumer may read from then on.
    partitions
        All that it is to read: it stops all others, and starts these. None leaves them as they are.
    """

    kind: Literal["assignment"] = "assignment"
    id: _Name
    epoch: Whole
    number: Whole
    heartbeat: Whole
    lease_seconds: Number
    partitions: _Numbers | None = None

    @property
    def given(self) -> frozenset[Partition] | None:
        """The partitions as a set."""
        return None if self.partitions is None else frozenset(flat(self.partitions))


def by_topic(partitions: Iterable[Partition]) -> dict[str, tuple[int, ...]]:
    """Numbers of the partitions of each topic, sorted."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in found.items()}


def flat(numbers: dict[str, tuple[int, ...]]) -> Iterable[Partition]:
    """The partitions of :func:`by_topic`."""
    return ((topic, n) for topic, found in numbers.items() for n in found)
