"""Completes each join of a group that kafka-python has begun, also one that ends between two polls.

A consumer of kafka-python joins its group in the background, and learns of the end of a join only
while it polls. An end between two polls is lost: the next poll joins again, so that a program that
does other work between its polls may never get a partition; or, if it joined because partitions
were added to a topic, it sends no heartbeats from then on and never joins again.
"""

from __future__ import annotations

import logging
import time
from typing import Any

log = logging.getLogger(__name__)


def complete_joins(consumer: Any, session_seconds: float) -> None:
    """Have the next poll of a consumer take what a join has brought in the meantime.

    Parameters
    ----------
    consumer
        A ``kafka.KafkaConsumer`` with a group, before its first poll.
    session_seconds
        What is older than half a session is not taken: the group may go on without this member,
        which sends no heartbeat before it has taken it.
    """
    coordinator = getattr(consumer, "_coordinator", None)
    join = getattr(coordinator, "_do_join_and_sync_async", None)
    complete = getattr(coordinator, "_on_join_complete_async", None)
    if coordinator is None or join is None or complete is None:
        log.warning("this kafka-python joins groups in an unknown way: poll without long pauses")
        return
    # when the last join ended, its generation, and what was assigned; both run in the client's loop
    ended: list[tuple[float, Any, Any]] = []

    async def joined(*arguments: Any) -> Any:
        if ended:
            at, generation, assigned = ended[0]
            recent = time.monotonic() - at < session_seconds / 2
            if recent and generation is coordinator._generation:
                return assigned
            ended.clear()
        # until it is completed
        coordinator.request_rejoin()
        assigned = await join(*arguments)
        ended[:] = [(time.monotonic(), coordinator._generation, assigned)]
        return assigned

    async def completed(*arguments: Any) -> Any:
        ended.clear()
        return await complete(*arguments)

    coordinator._do_join_and_sync_async = joined
    coordinator._on_join_complete_async = completed
