"""Sends notifications to chats, mail and pagers through Apprise."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from balancer.controller.protocols import DeliveryError
from balancer.controller.redact import Redactor, address_parts
from metrics_reporter.quantities import WithBytes, WithDuration

Event = Literal[
    "proposed", "started", "executed", "stopping", "recovered", "error", "finding", "over"
]
# Kinds of events by what they mean to a person; any other is information.
_KINDS = {"error": "failure", "finding": "warning", "over": "success"}
_PROGRAM = Path(__file__).with_name("apprise_delivery.py")


class AppriseNotifier(BaseModel):
    """Sends events to any address of Apprise: Slack, Teams, mail, PagerDuty, Alertmanager, ...

    Needs the extra ``notifications``. Apprise repeats a failed delivery itself if the address says
    so, such as ``slack://...?retry=3&wait=5``. It runs in a process of its own, which is ended if
    a service never ends its answer, and whose memory is limited.

    Parameters
    ----------
    urls
        Addresses as Apprise writes them, such as ``slack://TOKEN_A/TOKEN_B/TOKEN_C``.
    events
        Kinds of events to send, such as ``[error, finding, over]``; None sends all.
    timeout
        Seconds that the delivery of an event may take, with all repetitions.
    start_timeout
        Seconds that the process may take to start and to open the addresses.
    memory
        Bytes of address space of the process; with ten addresses, Apprise takes 200 MB.
    remarks
        What services say about a failure: how many of these remarks the log quotes.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    summary: ClassVar[str] = "Send every event to chats, mail or pagers through Apprise."

    urls: Annotated[tuple[str, ...], Field(min_length=1, repr=False)]
    events: frozenset[Event] | None = None
    timeout: Annotated[float, WithDuration, Field(ge=1, le=3600)] = 60.0
    start_timeout: Annotated[float, WithDuration, Field(ge=1, le=3600)] = 60.0
    memory: Annotated[float, WithBytes, Field(ge=2e8, le=1e12)] = 2.0**29
    remarks: Annotated[int, Field(ge=0, le=100)] = 3
    _process: _Delivery | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if importlib.util.find_spec("apprise") is None:
            raise ValueError("needs the package apprise: pip install 'counterpoise[notifications]'")
        try:
            delivery = self._delivery()
        except (OSError, ValueError) as error:
            raise ValueError(f"Apprise cannot be started ({type(error).__name__})") from None
        delivery.close()
        if delivery.unknown:
            # Without the address itself, which may contain a secret.
            raise ValueError(f"urls: number {delivery.unknown[0]} is no address that Apprise knows")
        return self

    def send(self, event: Mapping[str, Any]) -> None:
        """Send an event to every address.

        Raises
        ------
        DeliveryError
            If one of them did not accept it in time, with what Apprise says, without secrets.
        """
        kind = str(event.get("event"))
        if self.events is not None and kind not in self.events:
            return
        try:
            if self._process is not None and self._process.ended:
                self.close()
            if self._process is None:
                self._process = self._delivery()
            answer = self._process.deliver(
                body=str(event.get("text")),
                title=f"Counterpoise: {kind}",
                notify_type=_meaning(event),
            )
        except (OSError, ValueError) as error:
            self.close()
            raise DeliveryError(f"Apprise has failed ({type(error).__name__})") from None
        if answer is None:
            self.close()
            raise DeliveryError(f"not every address has accepted it within {self.timeout:g} s")
        if not answer["sent"]:
            said = answer["said"][: self.remarks]
            hide = Redactor({f"secret.{i}": p for i, p in enumerate(address_parts(self.urls))})
            raise DeliveryError(hide("; ".join(said)) or "not every address has accepted it")

    def close(self) -> None:
        """End the process that delivers."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _delivery(self) -> _Delivery:
        return _Delivery(
            urls=self.urls,
            start=self.start_timeout,
            seconds=self.timeout,
            memory=int(self.memory),
        )


class _Delivery:
    """A process that delivers through Apprise.

    Parameters
    ----------
    urls
        The addresses.
    start
        Seconds until it ends if it has not opened the addresses.
    seconds
        Seconds until it ends if it has not delivered an event.
    memory
        Bytes of its address space.

    Attributes
    ----------
    unknown : list of int
        Which of the addresses Apprise does not know, from 1.
    """

    def __init__(self, *, urls: tuple[str, ...], start: float, seconds: float, memory: int) -> None:
        # Its own session: Ctrl-C must not end it before the last events are sent. -P: no module
        # of the working directory or of this folder may take the place of another.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Otherwise the C library reserves 64 MB of address space for each thread.
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            opened = self._ask({"urls": urls, "start": start, "seconds": seconds, "memory": memory})
            if opened is None:
                raise OSError("the process has ended")
        except (OSError, ValueError):
            self.close()
            raise
        self.unknown: list[int] = opened["unknown"]

    @property
    def ended(self) -> bool:
        """Whether something else has ended it."""
        return self._process.poll() is not None

    def deliver(self, **event: str) -> dict[str, Any] | None:
        """What came of an event; None if the process has ended over it."""
        return self._ask(event)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
        self._process.wait()

    def _ask(self, line: Mapping[str, Any]) -> dict[str, Any] | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        found: dict[str, Any] | None = json.loads(answer) if answer else None
        return found


def _meaning(event: Mapping[str, Any]) -> str:
    """Apprise's type of an event, which decides its colour or its severity.

    Examples
    --------
    >>> _meaning({"event": "executed", "outcome": {"state": "failed"}})
    'failure'
    >>> _meaning({"event": "started"})
    'info'
    """
    kind = str(event.get("event"))
    if kind == "executed":
        outcome = event.get("outcome") or {}
        return "success" if outcome.get("state") == "done" else "failure"
    return _KINDS.get(kind, "info")
