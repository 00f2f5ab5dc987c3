"""Removes secrets of client properties and addresses from everything that is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

_SECRET = re.compile(r"password|secret|token|jaas|credential|key\.pem|private|user\.info", re.I)
_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]*@", re.I)
_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
)
_HIDDEN = "***"
# A shorter line of a key could be any word.
_SHORTEST_LINE = 8
# So could a shorter part of an address.
_SHORTEST_PART = 6
# Names and addresses of machines, which messages may show.
_HOST = re.compile(r"localhost|(?:[a-z0-9_-]+\.)+[a-z]{2,}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}")


def _lines(text: str) -> list[str]:
    lines = re.split(r"\\n|[\r\n]+", text)
    if len(lines) < 2:
        return []
    return [x.strip() for x in lines if len(x.strip()) >= _SHORTEST_LINE and x[:5] != "-----"]


def address_parts(urls: Iterable[str]) -> Iterator[str]:
    """Parts of addresses that may be secret: any but names of hosts, of what is not of the web.

    Examples
    --------
    >>> list(address_parts(["slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"]))
    ['T1JJ3T3L2', 'A1BRTD4JD', 'TIiajkdnlazkcOXrIdevi7FQ']
    >>> list(address_parts(["mailto://me:hunter2@example.com", "sendgrid://SG.a1B2c3:a@b.example"]))
    ['hunter2', 'SG.a1B2c3']
    """
    for url in urls:
        scheme, _, rest = url.partition("://")
        if scheme.lower() in ("http", "https"):
            continue
        for part in re.split(r"[/:@?&=,#\s]+", rest):
            if len(part) >= _SHORTEST_PART and not _HOST.fullmatch(part):
                yield part


class Redactor:
    """Replaces secrets in text and in data by ``***``.

    Parameters
    ----------
    properties
        Client properties; values are hidden if the property's name indicates a secret.
    urls
        Addresses; user, password, path and query of each are hidden (the path is what
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
        # A key spans lines, and messages quote it in any of these forms, or a line of it.
        found |= {text.replace("\\n", "\n") for text in found}
        found |= {line for text in found for line in _lines(text)}
        # The quoted form of a jaas line contains its password a second time.
        found |= {quoted for text in found for quoted in re.findall(r'"([^"]+)"', text)}
        found |= {unquote(text) for text in found}
        # Longest first: one secret may contain another.
        self._secrets = sorted((t for t in found if len(t) > 1), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        text = _KEY.sub(_HIDDEN, text)
        return _USER.sub(rf"\1{_HIDDEN}@", text)

    def data(self, value: Any) -> Any:
        """The same for everything in nested dicts, lists and strings."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {k: self.data(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(v) for v in value]
        return value
