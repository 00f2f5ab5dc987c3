"""Opens and closes the notifiers in the settings, and hides the secrets in their options."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from balancer.controller.notify import BackgroundNotifier, open_notifier
from balancer.controller.redact import Redactor, address_parts
from balancer.controller.settings import Settings

# Seconds that all notifiers together may take at shutdown to deliver their last events.
_CLOSING_SECONDS = 1.5
# Options of other packages whose names say that their value is a secret.
_KEY = re.compile(r"key|auth|password|secret|token|credential|private", re.I)


class Notifiers:
    """The open notifiers, and all secrets of the client and of options in the settings.

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
        self._secrets: set[str] = set()
        self._open: dict[str, BackgroundNotifier] = {}
        self.redactor = Redactor(properties)

    def hide(self, text: str) -> str:
        """A text without secrets."""
        return self.redactor(text)

    def take(self, settings: Settings) -> list[BackgroundNotifier]:
        """The notifiers of these settings; opens new ones, and unused ones end on their own."""
        entries = [("webhook", w.model_dump()) for w in settings.webhooks]
        entries += [(n.name, n.options) for n in settings.notifiers]
        given = [options for _, options in entries]
        given += [d.options for d in settings.detectors.values()]
        texts = [found for options in given for found in _texts(options)]
        # A former secret stays secret. Invalid settings leave everything as it was.
        urls = self._urls | {text for _, text in texts if "://" in text}
        secrets = self._secrets | {text for name, text in texts if _KEY.search(name)}
        secrets |= set(address_parts(urls))
        hidden = {f"secret.{i}": text for i, text in enumerate(sorted(secrets))}
        redactor = Redactor({**self._properties, **hidden}, urls)
        opened: dict[str, BackgroundNotifier] = {}
        for name, options in entries:
            key = f"{name} {json.dumps(options, sort_keys=True, default=str)}"
            opened[key] = self._open.get(key) or open_notifier(name, options)
        for gone in self._open.keys() - opened.keys():
            self._open[gone].close(0)
        self._urls, self._secrets = urls, secrets
        self.redactor, self._open = redactor, opened
        return list(opened.values())

    def close(self) -> None:
        """Send waiting events, as far as the total time allows."""
        deadline = time.monotonic() + _CLOSING_SECONDS
        for notifier in self._open.values():
            notifier.close(max(0.0, deadline - time.monotonic()))


def _texts(options: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text in nested options, with the name of its option."""
    if isinstance(options, str):
        yield name, options
    elif isinstance(options, Mapping):
        for key, value in options.items():
            yield from _texts(value, str(key))
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _texts(value, name)
