"""What the compiled loops of an assignment read and change, as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple


class Known(NamedTuple):
    """How far behind instances are; T tasks, I instances, K lags, C caught-up copies.

    ``lag_offset`` (T + 1,) where the lags of each task begin in ``lag_instance`` and ``lag`` (K,);
    ``end`` (T,) the lag of any other instance. ``near_offset`` (T + 1,) and ``near`` (C,) the same
    of the instances with a lag that have caught up; ``others_near`` (T,) whether those without one
    have.
    """

    lag_offset: Any
    lag_instance: Any
    lag: Any
    end: Any
    near_offset: Any
    near: Any
    others_near: Any


class Copies(NamedTuple):
    """The copies on each of I instances, and the queue of instances by their load.

    ``count``, ``threads`` and ``load`` (I,) are copies, threads and copies per thread. ``heap``
    (I,) is a binary heap of ``size`` (1,) instances, ``place`` (I,) where each is in it, -1 if it
    is not. ``aside``, ``after`` and ``order`` (I,), and ``bins`` (4 I or more,) are for what leaves
    it for a while.
    """

    count: Any
    threads: Any
    load: Any
    heap: Any
    size: Any
    place: Any
    aside: Any
    after: Any
    order: Any
    bins: Any


class Marks(NamedTuple):
    """What is known of instances while a task moves, by the number of that task; (I,) each.

    ``candidate``, ``standby`` and ``held`` are that number if the instance is caught up, has a
    standby, has any copy; ``listed`` the instances that were candidates at first.
    """

    candidate: Any
    standby: Any
    held: Any
    listed: Any


class Budget(NamedTuple):
    """Copies, and bytes that they restore, which may be made only so that tasks can move.

    ``left`` (1,) how many more; ``used`` (1,) bytes that those made restore, at most ``limit``,
    of the sizes ``state_bytes`` (T,), which is empty if nothing is limited.
    """

    left: Any
    used: Any
    limit: float
    state_bytes: Any
