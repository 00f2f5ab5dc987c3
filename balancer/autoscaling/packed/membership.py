"""What a member of a packed group does whatever its client: it follows decisions, and leaves."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from balancer.autoscaling.packed.decisions import DECISIONS_TOPIC, Known
from balancer.autoscaling.packed.leader import Member, must_move, shares
from balancer.autoscaling.packed.message import Partition

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackedSettings:
    """Tunable numbers of a consumer.

    Parameters
    ----------
    decisions_topic
        The topic that the autoscaler writes to.
    read_seconds
        Time to read the last decision before joining the group; without it the group divides
        partitions by their number until a decision comes.
    rejoin_seconds
        At least between two rebalances that this consumer asks for.
    rejoin_most_seconds
        While rebalances do not follow the newest decision, as the group's leader does not know it,
        the time between them doubles up to so many seconds.
    settle_seconds
        An assignment that follows a decision from further on in the topic than this consumer has
        read is believed for so long; after that, the topic must have been recreated.
    heartbeat_ms
        Between two heartbeats: so long it takes until a consumer hears of a rebalance.
    session_ms
        Without a heartbeat for so long, a consumer's partitions go to others.
    leave
        Whether a consumer that closes leaves the group at once, so that others take over. If not,
        its partitions wait for it until its session ends, as for a consumer that crashed.
    leave_seconds
        Time for leaving.
    """

    decisions_topic: str = DECISIONS_TOPIC
    read_seconds: float = 5.0
    rejoin_seconds: float = 1.0
    rejoin_most_seconds: float = 60.0
    settle_seconds: float = 5.0
    heartbeat_ms: int = 500
    session_ms: int = 10_000
    leave: bool = True
    leave_seconds: float = 5.0


class Membership(ABC):
    """What one member knows of its group, and when it asks for a rebalance.

    Parameters
    ----------
    name
        Its static id.
    settings
        Tunable numbers.
    clock
        Seconds.
    """

    def __init__(
        self, name: str, settings: PackedSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.newest: Callable[[], Known | None] = lambda: None
        self.name = name
        self._settings, self._clock = settings, clock
        self._assigned: _Assigned | None = None
        # when it may ask for a rebalance, and how long it waits after that
        self._next, self._pause = -float("inf"), settings.rejoin_seconds

    @abstractmethod
    def rejoin(self) -> None:
        """Join the group again, which makes it rebalance; called in the thread of `look`."""

    def look(self) -> None:
        """Join again if a newer decision gives a partition of this member to another."""
        known, assigned, now = self.newest(), self._assigned, self._clock()
        if known is None or assigned is None or assigned.follows(known):
            return
        if known.number < assigned.number and now < assigned.at + self._settings.settle_seconds:
            return
        if must_move(known.decision, self.name, assigned.partitions) and now >= self._next:
            self._next = now + self._pause
            self._pause = min(2 * self._pause, self._settings.rejoin_most_seconds)
            self.rejoin()

    def decided(
        self, joined: Mapping[str, Member], partitions: Collection[Partition]
    ) -> tuple[dict[str, list[Partition]], bytes]:
        """The partitions of each member by the newest decision, and which one that is."""
        known = self.newest()
        target = shares(None if known is None else known.decision, joined, partitions)
        number, content = (-1, "") if known is None else (known.number, known.content)
        return target, json.dumps({"decision": number, "content": content}).encode()

    def follow(self, partitions: Iterable[Partition], user_data: bytes | None) -> None:
        """The leader has assigned partitions, and says by which decision."""
        number, content = _followed(user_data)
        self._assigned = _Assigned(frozenset(partitions), number, content, self._clock())
        known = self.newest()
        if known is not None and self._assigned.follows(known):
            self._pause = self._settings.rejoin_seconds


class _Assigned(NamedTuple):
    """What was assigned, the decision by which it was, and when."""

    partitions: frozenset[Partition]
    number: int
    content: str
    at: float

    def follows(self, known: Known) -> bool:
        """Whether it follows a decision; leaders of earlier versions tell only its number."""
        return self.content == known.content if self.content else self.number >= known.number


def _followed(user_data: bytes | None) -> tuple[int, str]:
    """Number and content of the decision that an assignment follows; -1 if it does not say."""
    try:
        said = json.loads(bytes(user_data or b""))
        number, content = said["decision"], said.get("content", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return -1, ""
    if not isinstance(number, int) or not isinstance(content, str):
        return -1, ""
    return number, content


def leave_group(reach: dict[str, Any], group: str, name: str, member: str, seconds: float) -> None:
    """Leave the group: a static member does not by itself when its client closes.

    Kafka refuses it to one that was fenced, as another process has its name now.
    """
    from kafka import KafkaAdminClient
    from kafka.admin import MemberToRemove
    from kafka.errors import KafkaError

    milliseconds = int(seconds * 1000)
    try:
        admin = KafkaAdminClient(
            **reach, request_timeout_ms=milliseconds, bootstrap_timeout_ms=milliseconds
        )
        try:
            removed = MemberToRemove(member_id=member, group_instance_id=name)
            admin.remove_group_members(group, [removed])
        finally:
            admin.close()
    except (KafkaError, OSError) as error:
        # its session then ends by itself
        log.warning("consumer %s did not leave group %s: %s", name, group, error)
