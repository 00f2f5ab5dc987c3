"""Secrets of client properties and addresses, kept out of everything that is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

_SECRET = re.compile(r"password|secret|token|jaas|credential|key\.pem|private|user\.info", re.I)
_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]*@", re.I)
_HIDDEN = "***"


class Redactor:
    """Replaces secrets in text and in data by ``***``.

    Parameters
    ----------
    properties
        Client properties; the values of those whose name tells of a secret are hidden.
    urls
        Addresses; user, password, path and query of each are hidden (a path is what
        protects the webhooks of chat services).

    Examples
    --------
    >>> hide = Redactor({"sasl.password": "hunter2"}, ["https://me:pw@chat.example/T0/B1"])
    >>> hide("login with hunter2 failed at https://you:them@chat.example/T0/B1")
    'login with *** failed at https://***@chat.example***'
    """

    def __init__(
        self, properties: Mapping[str, Any] | None = None, urls: Iterable[str] = ()
    ) -> None:
        named = (properties or {}).items()
        found = {str(v) for k, v in named if _SECRET.search(k.replace("_", "."))}
        for url in urls:
            parts = urlsplit(url)
            found |= {p for p in (parts.password, parts.path, parts.query) if p and p != "/"}
        # The quoted form of a jaas line holds its password a second time.
        found |= {quoted for text in found for quoted in re.findall(r'"([^"]+)"', text)}
        found |= {unquote(text) for text in found}
        # The longest first: one secret may hold another.
        self._secrets = sorted((t for t in found if len(t) > 1), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return _USER.sub(rf"\1{_HIDDEN}@", text)

    def data(self, value: Any) -> Any:
        """The same for everything in a nest of dicts, lists and strings."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {k: self.data(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(v) for v in value]
        return value
