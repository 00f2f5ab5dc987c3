"""Finds out who sends a request, and what they may do."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from balancer.server.addresses import client_network, is_within
from balancer.server.settings import ANONYMOUS, RESERVED, ROLES, Role, ServerSettings

_LONGEST_NAME = 200
# Cost of a password's hash: about 50 ms and 16 MiB.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}
# Right passwords are remembered by a keyed hash, since a page sends them with each request.
_REMEMBERED = 256
# Wrong credentials are counted for the last minute, of the addresses that sent some last.
_MINUTE = 60.0
_ADDRESSES = 10_000
_WRONG = "wrong credentials, or expired ones"


class AccessError(Exception):
    """Credentials that are missing, wrong or expired; the text says which without detail."""


@dataclass(frozen=True)
class Actor:
    """Who sends a request, and their role.

    Parameters
    ----------
    name
        Name of the user, token or certificate.
    role
        What they may do.
    address
        Address that the request comes from.
    """

    name: str
    role: Role
    address: str = ""

    @property
    def client(self) -> str:
        """Whom limits apply to: the name, or where requests without credentials are from."""
        return client_network(self.address) if self.name == ANONYMOUS else self.name

    def may(self, role: Role) -> bool:
        """Whether the role includes another one."""
        return ROLES.index(self.role) >= ROLES.index(role)


def hash_password(password: str, salt: bytes | None = None) -> str:
    """The hash of a password, as settings state it.

    Examples
    --------
    >>> stated = hash_password("correct horse", b"0" * 16)
    >>> is_password("correct horse", stated), is_password("battery staple", stated)
    (True, False)
    """
    salt = os.urandom(16) if salt is None else salt
    digest = hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT)
    parts = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "$".join(["scrypt", *map(str, _SCRYPT.values()), *parts])


def is_password(password: str, stated: str) -> bool:
    """Whether a password has a stated hash."""
    try:
        _, n, r, p, salt, digest = stated.split("$")
        found = hashlib.scrypt(
            password.encode(),
            salt=base64.b64decode(salt, validate=True),
            n=int(n),
            r=int(r),
            p=int(p),
            maxmem=2**27,
        )
        return hmac.compare_digest(found, base64.b64decode(digest, validate=True))
    except (ValueError, binascii.Error):
        return False


class Access:
    """Authenticates requests.

    Parameters
    ----------
    settings
        Who may do what.
    local
        Whether the server listens on this machine only.
    now
        The current time, with a time zone.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        local: bool,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._now = now
        self._open: Role | None = settings.without_credentials
        if self._open is None and local and not settings.authenticates:
            self._open = "admin"
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        # What a wrong user name costs, so that time does not tell which names exist.
        self._nobody = hash_password("nobody")
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def known(
        self, headers: Mapping[str, str], address: str, certificate: str | None = None
    ) -> Actor | None:
        """Who sends a request; None if a password has to be checked first (see `by_password`).

        Parameters
        ----------
        headers
            By lower-case name.
        address
            Address that it comes from.
        certificate
            Common name of the client's certificate, if TLS has checked one.

        Raises
        ------
        AccessError
            If credentials are needed, wrong or expired.
        """
        settings = self._settings
        if (by_proxy := self._from_proxy(headers, address)) is not None:
            return by_proxy
        if "authorization" in headers:
            kind, value = _authorization(headers)
            if kind == "basic" and (stated := _password(value)) is not None:
                name, password = stated
                user = settings.users.get(name)
                with self._lock:
                    if user is not None and self._known.get(self._mark(name, password)) == (
                        user.password
                    ):
                        return Actor(name, user.role)
                return None
            found = self._by_token(value) if kind == "bearer" else None
            if found is None:
                self._attempt(address)
                raise AccessError(_WRONG)
            return found
        if certificate is not None and settings.tls is not None:
            role = settings.tls.roles.get(certificate)
            if role is not None:
                return Actor(certificate, role)
        if self._open is None:
            raise AccessError("credentials needed")
        return Actor(ANONYMOUS, self._open)

    def by_password(self, headers: Mapping[str, str], address: str) -> Actor:
        """Who sends a request with a password; takes some 50 ms of a processor.

        Raises
        ------
        AccessError
            If it is wrong, or the address has sent too many wrong ones.
        """
        stated = _password(_authorization(headers)[1])
        # Counted before it is checked: many at once count as much as one after the other.
        attempt = self._attempt(address)
        if stated is not None:
            name, password = stated
            user = self._settings.users.get(name)
            right = is_password(password, self._nobody if user is None else user.password)
            if right and user is not None:
                with self._lock:
                    self._known[self._mark(name, password)] = user.password
                    while len(self._known) > _REMEMBERED:
                        self._known.popitem(last=False)
                    if attempt in (failures := self._failures.get(client_network(address), [])):
                        failures.remove(attempt)
                return Actor(name, user.role)
        raise AccessError(_WRONG)

    def _from_proxy(self, headers: Mapping[str, str], address: str) -> Actor | None:
        proxy = self._settings.proxy
        if proxy is None:
            return None
        name = headers.get(proxy.user_header.lower(), "").strip()
        if not name or not is_within(address, proxy.addresses):
            return None
        if name in RESERVED or len(name) > _LONGEST_NAME or not name.isprintable():
            raise AccessError("this user name cannot be used")
        groups = headers.get((proxy.role_header or "").lower(), "").split(",")
        roles = [proxy.roles[g.strip()] for g in groups if g.strip() in proxy.roles]
        role = max(roles, key=ROLES.index) if roles else proxy.role
        if role is None:
            raise AccessError("no role for this user")
        return Actor(name, role)

    def _mark(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}:{password}".encode(), "sha256")

    def _by_token(self, token: str) -> Actor | None:
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = None
        for name, known in self._settings.tokens.items():
            same = hmac.compare_digest(known.sha256, digest)
            if same and (known.expires is None or self._now() < known.expires):
                found = Actor(name, known.role)
        return found

    def _attempt(self, address: str) -> float:
        """Count a failure of an address, and refuse it if there were too many; returns its time."""
        address = client_network(address)
        now, most = time.monotonic(), self._settings.rates.failures
        with self._lock:
            recent = [t for t in self._failures.get(address, []) if now - t < _MINUTE]
            if len(recent) >= most:
                raise AccessError("too many wrong credentials from this address; wait a minute")
            self._failures[address] = [*recent, now]
            self._failures.move_to_end(address)
            while len(self._failures) > _ADDRESSES:
                self._failures.popitem(last=False)
        return now


def _authorization(headers: Mapping[str, str]) -> tuple[str, str]:
    """The kind of an Authorization header, in lower case, and its value."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    return kind.lower(), value.strip()


def _password(encoded: str) -> tuple[str, str] | None:
    """Name and password of HTTP basic authentication; None if they cannot be read."""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (ValueError, binascii.Error):
        return None
    name, separator, password = text.partition(":")
    return (name, password) if separator else None
