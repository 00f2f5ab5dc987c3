"""Checks before every write to Kafka that this process still holds the vote."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from balancer.execution.cluster import (
    ClusterClient,
    ClusterView,
    ConfigResource,
    HeldReplica,
    Key,
    Refusals,
)
from balancer.execution.errors import LateError, VoteLostError
from balancer.execution.stop import Stop
from cluster_model.log_dirs import FileSystem

# Seconds that one proof may take, and pause after a failed one.
_STEP, _PAUSE = 1.0, 0.2


class Vote(Protocol):
    """The exclusive right to write; :class:`balancer.controller.Election` implements it.

    An epoch numbers a period of holding the vote. It rises whenever another process takes
    over, and stays the same if a holder loses the vote and regains it with no other in between.
    """

    @property
    def acting(self) -> bool:
        """Whether the last proof still holds, counted from its sending; sends no request."""

    @property
    def epoch(self) -> int | None:
        """The latest epoch of this process; None if it has none or another has taken over."""

    @property
    def previous(self) -> int | None:
        """The epoch before that, of any holder; None if there was none."""

    def prove(self, within: float) -> int | None:
        """The epoch, if the vote is held at this moment; None if that isn't proven in time."""


class Fence:
    """One execution's right to write, valid for the epoch in which it began.

    Parameters
    ----------
    vote
        None for an execution that no other can interfere with: then nothing is checked.
    proof_timeout
        Seconds to wait for a proof while no other process is known to hold the vote, for
        example when a broker dies.
    stop
        Once a stop is requested, no further proof is waited for.
    """

    def __init__(self, vote: Vote | None, proof_timeout: float, stop: Stop) -> None:
        self._vote, self._proof_timeout, self._stop = vote, proof_timeout, stop
        self._lost = ""
        self.epoch: int | None = None

    @property
    def previous(self) -> int | None:
        """The epoch before this execution's; None if unknown."""
        return None if self._vote is None else self._vote.previous

    def begin(self) -> None:
        """Adopt the current epoch as this execution's.

        Raises
        ------
        VoteLostError
            If the vote is not held.
        """
        if self._vote is None:
            return
        deadline = time.monotonic() + self._proof_timeout
        while self.epoch is None:
            # In steps, so that a stop need not wait for the vote.
            self.epoch = self._vote.prove(min(_STEP, self._proof_timeout))
            if self.epoch is None and (self._stop.asked or time.monotonic() > deadline):
                raise VoteLostError(
                    "the vote is not held, so nothing was touched: another may act; try again"
                )

    def watch(self) -> None:
        """Raise a VoteLostError if another process has taken over; sends no request."""
        if self._vote is not None and (self._lost or self._vote.epoch != self.epoch):
            self._lose("another has taken over")

    def check(self) -> None:
        """Prove the vote now; raise a VoteLostError if that fails."""
        if self._vote is None:
            return
        deadline = time.monotonic() + self._proof_timeout
        while True:
            self.watch()
            if self._vote.prove(min(_STEP, self._proof_timeout)) == self.epoch:
                return
            self.watch()
            if self._stop.asked or time.monotonic() > deadline:
                self._lose("it could not be proven that no other has taken over")
            time.sleep(_PAUSE)

    def confirm(self) -> None:
        """Raise a LateError unless the last proof still holds; sends no request."""
        if self._vote is not None and not (self._vote.acting and self._vote.epoch == self.epoch):
            raise LateError("a write was not sent, because its proof of the vote had run out")

    def _lose(self, why: str) -> None:
        # Permanently: from here on, another process is in charge.
        self._lost = self._lost or why
        raise VoteLostError(
            f"the vote was lost, {self._lost}: nothing was touched since; the holder of the vote "
            "finishes what is in progress, or recover (counterpoise execute --recover) once it is "
            "free"
        )


class FencedCluster:
    """A cluster that checks the vote before every write."""

    def __init__(self, cluster: ClusterClient, fence: Fence) -> None:
        self._cluster, self._fence = cluster, fence

    def identity(self) -> str:
        """See :class:`ClusterClient`."""
        return self._cluster.identity()

    def view(self, topics: Sequence[str] | None) -> ClusterView:
        """See :class:`ClusterClient`; ends an execution that only waits if another took over."""
        self._fence.watch()
        return self._cluster.view(topics)

    def held(self, replicas: Iterable[tuple[Key, int]]) -> dict[tuple[Key, int], HeldReplica]:
        """See :class:`ClusterClient`."""
        return self._cluster.held(replicas)

    def reassign(self, targets: Mapping[Key, Sequence[int] | None]) -> Refusals:
        """See :class:`ClusterClient`."""
        if targets:
            self._fence.check()
        return self._cluster.reassign(targets)

    def move_log_dirs(self, targets: Mapping[tuple[Key, int], str]) -> Refusals:
        """See :class:`ClusterClient`."""
        if targets:
            self._fence.check()
        return self._cluster.move_log_dirs(targets)

    def elect(self, partitions: Sequence[Key]) -> Refusals:
        """See :class:`ClusterClient`."""
        if partitions:
            self._fence.check()
        return self._cluster.elect(partitions)

    def configs(
        self, keys: Mapping[ConfigResource, Sequence[str]]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        """See :class:`ClusterClient`."""
        return self._cluster.configs(keys)

    def set_configs(self, values: Mapping[ConfigResource, Mapping[str, str | None]]) -> Refusals:
        """See :class:`ClusterClient`."""
        if values:
            self._fence.check()
        return self._cluster.set_configs(values)

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        """See :class:`ClusterClient`."""
        return self._cluster.min_isr(topics)

    def free(self, brokers: Sequence[int]) -> dict[int, list[FileSystem]]:
        """See :class:`ClusterClient`."""
        return self._cluster.free(brokers)
