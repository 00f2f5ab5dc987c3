"""Sends notifications to chats, mail and pagers through Apprise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

if TYPE_CHECKING:
    from apprise import Apprise

Event = Literal[
    "proposed", "started", "executed", "stopping", "recovered", "error", "finding", "over"
]
# Kinds of events by what they mean to a person; any other is information.
_KINDS = {"error": "failure", "finding": "warning", "over": "success"}


class DeliveryError(Exception):
    """A notification that at least one of the addresses did not accept."""


class AppriseNotifier(BaseModel):
    """Sends events to any address of Apprise: Slack, Teams, mail, PagerDuty, Alertmanager, ...

    Needs the extra ``notifications``. Apprise repeats a failed delivery itself if the address says
    so, such as ``slack://...?retry=3&wait=5``.

    Parameters
    ----------
    urls
        Addresses as Apprise writes them, such as ``slack://TOKEN_A/TOKEN_B/TOKEN_C``.
    events
        Kinds of events to send, such as ``[error, finding, over]``; None sends all.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    summary: ClassVar[str] = "Send every event to chats, mail or pagers through Apprise."

    urls: Annotated[tuple[str, ...], Field(min_length=1, repr=False)]
    events: frozenset[Event] | None = None
    _receivers: Apprise = PrivateAttr()

    @field_validator("urls")
    @classmethod
    def _known(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        try:
            receivers = _opened(())
        except ImportError:
            raise ValueError(
                "needs the package apprise: pip install 'counterpoise[notifications]'"
            ) from None
        for place, url in enumerate(urls, start=1):
            if not receivers.add(url):
                # Without the address itself, which may contain a secret.
                raise ValueError(f"number {place} is no address that Apprise knows")
        return urls

    def model_post_init(self, context: Any) -> None:
        """Open the addresses."""
        self._receivers = _opened(self.urls)

    def send(self, event: Mapping[str, Any]) -> None:
        """Send an event to every address.

        Raises
        ------
        DeliveryError
            If one of them did not accept it.
        """
        kind = str(event.get("event"))
        if self.events is not None and kind not in self.events:
            return
        sent = self._receivers.notify(
            body=str(event.get("text")),
            title=f"Counterpoise: {kind}",
            notify_type=_meaning(event),
        )
        if not sent:
            raise DeliveryError


def _opened(urls: Iterable[str]) -> Apprise:
    """Apprise with these addresses; an ImportError if it is not installed."""
    from apprise import Apprise, AppriseAsset

    receivers = Apprise(asset=AppriseAsset(app_id="Counterpoise", app_desc=""))
    for url in urls:
        receivers.add(url)
    return receivers


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
