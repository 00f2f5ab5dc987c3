"""Who may do what at the server, and how it is reached: read from a YAML file."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from balancer.approval.approvals import CONTROLLER
from balancer.server.errors import ServerError
from metrics_reporter.documents import (
    DocumentError,
    first_problem,
    number_not_truth,
    read_document,
)
from metrics_reporter.quantities import WithBytes, WithDuration
from metrics_reporter.tls import Tls

Role = Literal["viewer", "operator", "admin"]
# Each role may do what the ones before it may.
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
ANONYMOUS = "anonymous"
# Names in records of what nobody, and what the controller itself, has asked for.
RESERVED = frozenset({ANONYMOUS, CONTROLLER})
# Settings with secrets in them.
_SECRET = ("users", "tokens", "tls")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        return number_not_truth(cls, info.field_name, value)


class User(_Part):
    """A person with a password.

    Parameters
    ----------
    password
        Its hash, as ``counterpoise server hash-password`` prints it.
    role
        What they may do.
    """

    password: str = Field(pattern=r"^scrypt\$", repr=False)
    role: Role = "viewer"


class Token(_Part):
    """A program with a bearer token.

    Parameters
    ----------
    sha256
        Hash of the token, 64 hexadecimal digits, as ``counterpoise server new-token`` prints it.
    role
        What it may do.
    expires
        When it ends; None for never.
    """

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", repr=False)
    role: Role = "viewer"
    expires: datetime | None = None

    @field_validator("expires")
    @classmethod
    def _with_zone(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("a time with its zone expected, such as 2027-01-01T00:00:00Z")
        return value


class Proxy(_Part):
    """A reverse proxy that authenticates people.

    Parameters
    ----------
    addresses
        Networks that it connects from; its headers count only from there.
    user_header
        Header with the name of the user.
    role_header
        Header with their groups, separated by commas; None gives everybody `role`.
    roles
        Role by group; the highest counts.
    role
        Role of people without such a group; None refuses them.
    """

    addresses: Annotated[tuple[str, ...], Field(min_length=1)]
    user_header: str = "X-Forwarded-User"
    role_header: str | None = None
    roles: dict[str, Role] = {}
    role: Role | None = "viewer"

    @field_validator("addresses")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            ipaddress.ip_network(text)
        return value


class TlsWithRoles(Tls):
    """TLS of the server, and who may do what by certificate.

    Parameters
    ----------
    certificate, key, client_ca
        As of :class:`metrics_reporter.tls.Tls`.
    roles
        Role by the common name of a client's certificate.
    """

    roles: dict[str, Role] = Field(default_factory=dict)


class Rates(_Part):
    """Limits on what one client may ask; a client is a user, or an address without one.

    Parameters
    ----------
    requests, changes
        Requests per second, and of them those that change something, on average. A list counts
        as one more for each 1,000 entries that are asked for.
    at_once
        Requests for data that are answered at once; further ones wait for their turn.
    burst
        Seconds for which the average may be used up at once.
    failures
        Wrong credentials per minute and address, after which the address is refused for a minute.
    """

    requests: Annotated[float, Field(gt=0)] = 50.0
    changes: Annotated[float, Field(gt=0)] = 2.0
    at_once: Annotated[int, Field(ge=1)] = 8
    burst: Annotated[float, Field(ge=1)] = 10.0
    failures: Annotated[int, Field(ge=1)] = 10


class ServerSettings(_Part):
    """Settings of the server.

    Parameters
    ----------
    users, tokens
        Who may do what, by name.
    proxy
        A reverse proxy that authenticates people; None for none.
    tls
        None for plain HTTP.
    without_credentials
        Role of requests without credentials. None: ``admin`` if the server listens on this
        machine only and nobody is listed above, else such requests are refused.
    hosts
        Names by which clients reach the server, besides the address that it listens on: requests
        for others are refused, since a web page could have sent them.
    rates
        Limits on clients.
    audit
        File that every change is recorded in, one JSON object a line; None for the log only.
    proposals
        Directory that keeps proposals.
    max_body
        Largest request, bytes.
    idle_timeout
        Seconds that a client may take to send a request, to read a part of its answer, and to
        send the next request.
    connections
        Connections served at once.
    connections_per_address
        Connections of one address (of one network of 64 bits, with IPv6); further ones are
        closed. It does not apply to the addresses of `proxy`.
    listeners, listeners_per_client
        Streams of events at once, of all clients and of one.
    planning_queue
        Plans that may wait to be made for clients; further requests are refused.
    plans_per_client
        Plans of one client that may wait or be made; its further requests are refused.
    """

    users: dict[str, User] = {}
    tokens: dict[str, Token] = {}
    proxy: Proxy | None = None
    tls: TlsWithRoles | None = None
    without_credentials: Role | None = None
    hosts: tuple[str, ...] = ()
    rates: Rates = Rates()
    audit: Path | None = None
    proposals: Path = Path("counterpoise-proposals")
    max_body: Annotated[float, WithBytes, Field(gt=0)] = 1e6
    idle_timeout: Annotated[float, WithDuration, Field(gt=0, le=3600)] = 10.0
    connections: Annotated[int, Field(ge=1)] = 500
    connections_per_address: Annotated[int, Field(ge=1)] = 250
    listeners: Annotated[int, Field(ge=1)] = 200
    listeners_per_client: Annotated[int, Field(ge=1)] = 20
    planning_queue: Annotated[int, Field(ge=1)] = 5
    plans_per_client: Annotated[int, Field(ge=1)] = 3

    @field_validator("users", "tokens")
    @classmethod
    def _names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name in RESERVED:
                raise ValueError(f"the name {name} is used in records for something else")
        return value

    @property
    def authenticates(self) -> bool:
        """Whether anybody is listed who has credentials."""
        by_certificate = self.tls is not None and self.tls.client_ca is not None
        return bool(self.users or self.tokens or self.proxy or by_certificate)


def load_server_settings(path: Path | None) -> ServerSettings:
    """Read a settings file of the server; None gives the defaults.

    Raises
    ------
    ServerError
        In one sentence, without any value that may be a secret.
    """
    if path is None:
        return ServerSettings()
    try:
        content: Any = read_document(path, "settings of the server")
    except DocumentError as error:
        raise ServerError(f"server settings {path}: {error}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServerError(f"server settings {path}: {why}") from None
    if content is None:
        content = {}
    if not isinstance(content, Mapping):
        raise ServerError(f"server settings {path}: a mapping of settings expected")
    try:
        return ServerSettings.model_validate(dict(content))
    except ValidationError as error:
        # A misplaced or misspelt setting may be a secret, too.
        hide = [
            *_SECRET,
            *(str(name) for name in content if name not in ServerSettings.model_fields),
        ]
        raise ServerError(f"server settings {path}: {first_problem(error, hide=hide)}") from None
