"""Builds the executor of one plan, which competes with the controllers of its group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from balancer.controller.election import Election
from balancer.execution import ExecutionError, Executor, Limits

# Kafka waits 3 s for further members before the first of an empty group is assigned anything.
_JOIN_SECONDS = 4.0


def single_execution(
    bootstrap: str,
    *,
    journal: Path,
    limits: Limits,
    properties: Mapping[str, str],
    group: str,
    session: float,
    name: str,
    notice: Callable[[str], None],
) -> tuple[Executor, Election]:
    """An executor that joins the group's election when an execution is about to start.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    journal
        Where the execution is recorded.
    limits
        Limits of the execution.
    properties
        Client properties, see :func:`balancer.composition.client.client_properties`.
    group, session
        See :class:`balancer.controller.Election`; the session in seconds.
    name
        Name of this participant, as others see it.
    notice
        Called with a sentence when it has to wait for the vote.

    Returns
    -------
    Executor, Election
        The caller closes the election.
    """
    election = Election(bootstrap, group=group, session=session, client=properties, name=name)
    executor = Executor(
        bootstrap,
        journal=journal,
        limits=limits,
        client=properties,
        owner=group,
        vote=_Candidate(election, group, session, notice),
    )
    return executor, election


class _Candidate:
    """The vote of a group, requested when an execution is about to start."""

    def __init__(
        self, election: Election, group: str, session: float, notice: Callable[[str], None]
    ) -> None:
        self._election, self._group, self._notice = election, group, notice
        # A killed predecessor keeps the vote for a session; groups start with a delay.
        self._seconds = session + _JOIN_SECONDS
        self._deadline: float | None = None
        self._noticed = self._held = False

    @property
    def acting(self) -> bool:
        """See :class:`balancer.execution.Vote`."""
        return self._election.acting

    @property
    def epoch(self) -> int | None:
        """See :class:`balancer.execution.Vote`."""
        return self._election.epoch

    @property
    def previous(self) -> int | None:
        """See :class:`balancer.execution.Vote`."""
        return self._election.previous

    def prove(self, within: float) -> int | None:
        """See :class:`balancer.execution.Vote`; a refusal names the holder."""
        if self._deadline is None:
            self._election.start()
            self._deadline = time.monotonic() + self._seconds
        epoch = self._election.prove(within)
        self._held = self._held or epoch is not None
        if not self._held:
            self._wait(self._deadline)
        return epoch

    def _wait(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            if self._election.holder is None:
                raise ExecutionError(
                    f"the vote of group {self._group} could not be obtained in {self._seconds:.0f} "
                    "s, although no holder is known: check that the brokers are healthy, then try "
                    "again"
                )
            raise ExecutionError(
                f"{self._election.holder} acts on this cluster, or did last (group "
                f"{self._group}): wait until it ends, or pause a controller with `execute: false` "
                "in its settings file, then try again"
            )
        if not self._noticed:
            self._notice(
                f"Waiting for the vote of group {self._group}, which another process may hold, "
                f"for at most {self._seconds:.0f} s ..."
            )
        self._noticed = True
