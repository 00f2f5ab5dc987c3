"""Finds out who sends a request, and what they may do."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from balancer.server.settings import ROLES, Role, ServerSettings

ANONYMOUS = "anonymous"
# Cost of a password's hash: about 50 ms and 16 MiB.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}
# Right passwords are remembered by a keyed hash, since a page sends them with each request.
_REMEMBERED = 256


class AccessError(Exception):
    """Credentials that are missing, wrong or expired; the text says which without detail."""


@dataclass(frozen=True)
class Actor:
    """Who sends a request, and their role."""

    name: str
    role: Role

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
        self._failures: dict[str, list[float]] = {}

    def actor(
        self, headers: Mapping[str, str], address: str, certificate: str | None = None
    ) -> Actor:
        """Who sends a request.

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
        stated = headers.get("authorization", "")
        if stated:
            self._check_rate(address)
            kind, _, value = stated.partition(" ")
            found = None
            if kind.lower() == "basic":
                found = self._by_password(value.strip())
            elif kind.lower() == "bearer":
                found = self._by_token(value.strip())
            if found is None:
                self._failed(address)
                raise AccessError("wrong credentials, or expired ones")
            return found
        if certificate is not None and settings.tls is not None:
            role = settings.tls.roles.get(certificate)
            if role is not None:
                return Actor(certificate, role)
        if self._open is None:
            raise AccessError("credentials needed")
        return Actor(ANONYMOUS, self._open)

    def _from_proxy(self, headers: Mapping[str, str], address: str) -> Actor | None:
        proxy = self._settings.proxy
        if proxy is None:
            return None
        name = headers.get(proxy.user_header.lower(), "").strip()
        if not name or not _within(address, proxy.addresses):
            return None
        groups = headers.get((proxy.role_header or "").lower(), "").split(",")
        roles = [proxy.roles[g.strip()] for g in groups if g.strip() in proxy.roles]
        role = max(roles, key=ROLES.index) if roles else proxy.role
        if role is None:
            raise AccessError("no role for this user")
        return Actor(name, role)

    def _by_password(self, encoded: str) -> Actor | None:
        try:
            name, separator, password = (
                base64.b64decode(encoded, validate=True).decode().partition(":")
            )
        except (ValueError, binascii.Error):
            return None
        if not separator:
            return None
        user = self._settings.users.get(name)
        stated = self._nobody if user is None else user.password
        mark = hmac.digest(self._key, f"{name}:{password}".encode(), "sha256")
        with self._lock:
            remembered = self._known.get(mark) == stated
        if not remembered:
            if not is_password(password, stated) or user is None:
                return None
            with self._lock:
                self._known[mark] = stated
                while len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        return None if user is None else Actor(name, user.role)

    def _by_token(self, token: str) -> Actor | None:
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = None
        for name, known in self._settings.tokens.items():
            same = hmac.compare_digest(known.sha256, digest)
            if same and (known.expires is None or self._now() < known.expires):
                found = Actor(name, known.role)
        return found

    def _check_rate(self, address: str) -> None:
        now, most = time.monotonic(), self._settings.rates.failures
        with self._lock:
            recent = [t for t in self._failures.get(address, []) if now - t < 60]
            if recent:
                self._failures[address] = recent
            else:
                self._failures.pop(address, None)
            if len(recent) >= most:
                raise AccessError("too many wrong credentials from this address; wait a minute")

    def _failed(self, address: str) -> None:
        now = time.monotonic()
        with self._lock:
            if len(self._failures) > 10_000:
                self._failures = {
                    a: times for a, times in self._failures.items() if now - times[-1] < 60
                }
            self._failures.setdefault(address, []).append(now)


def _within(address: str, networks: tuple[str, ...]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(network) for network in networks)
