"""Opens and closes the webhooks in the settings, and hides their secrets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from balancer.controller.notify import WebhookNotifier
from balancer.controller.redact import Redactor
from balancer.controller.settings import Webhook

# Seconds that all webhooks together may take at shutdown to deliver their last events.
_CLOSING_SECONDS = 1.5


class Webhooks:
    """The open notifiers, and all secrets of the client and of their addresses.

    Parameters
    ----------
    properties
        Client properties, whose secrets are hidden too.

    Attributes
    ----------
    redactor
        Hides the secrets in a text.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._urls: set[str] = set()
        self._open: dict[Webhook, WebhookNotifier] = {}
        self.redactor = Redactor(properties)

    def hide(self, text: str) -> str:
        """A text without secrets."""
        return self.redactor(text)

    def take(self, settings: Sequence[Webhook]) -> list[WebhookNotifier]:
        """The notifiers of these settings; opens new ones, and unused ones end by themselves."""
        # A former secret stays secret. Invalid settings leave everything as it was.
        urls = self._urls | {w.url for w in settings}
        redactor = Redactor(self._properties, urls)
        opened = {w: self._open.get(w) or WebhookNotifier(w) for w in settings}
        for gone in self._open.keys() - opened.keys():
            self._open[gone].close(0)
        self._urls, self.redactor, self._open = urls, redactor, opened
        return list(opened.values())

    def close(self) -> None:
        """Send waiting events, as far as the total time allows."""
        deadline = time.monotonic() + _CLOSING_SECONDS
        for webhook in self._open.values():
            webhook.close(max(0.0, deadline - time.monotonic()))
