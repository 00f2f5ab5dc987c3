"""Asks a running server, for commands: credentials, TLS, errors in one sentence."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from balancer.cli.terminal import CommandError
from metrics_reporter.documents import DocumentError, read_document, shown

_SECONDS = 60.0
# An answer that is larger is not one of this server.
_LARGEST = 100_000_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ServerClient:
    """A server's API.

    Parameters
    ----------
    url
        Its address.
    credentials
        YAML file with ``token``, or ``user`` and ``password``; None takes them from the
        environment.
    authority
        PEM file of the authority of its certificate; None for those of the system.

    Raises
    ------
    CommandError
        If these cannot be used.
    """

    def __init__(self, url: str, credentials: Path | None, authority: Path | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CommandError(f"--server: {shown(url)} found, like http://localhost:9464 expected")
        if "@" in parts.netloc:
            raise CommandError(
                "--server: a user in the address found; state credentials in a file "
                "(--credentials) or in the environment"
            )
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/json", **_authorization(credentials)}
        if (
            "Authorization" in self._headers
            and parts.scheme == "http"
            and parts.hostname not in _LOOPBACK
        ):
            raise CommandError(
                f"--server: {shown(url)} would send credentials unencrypted; https:// expected"
            )
        try:
            context = ssl.create_default_context(cafile=authority)
        except OSError as error:
            raise CommandError(f"--ca {authority}: {error.strerror or error}") from None
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _NoRedirects()
        )

    def get(self, *path: str) -> Any:
        """What the server has at a path."""
        return self._ask("GET", path, None)

    def post(self, *path_and_body: Any) -> Any:
        """What the server answers to a change; the last argument is its body."""
        *path, body = path_and_body
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: Any, body: Any) -> Any:
        steps = "/".join(quote(step, safe="") for step in path)
        headers, data = dict(self._headers), None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._url}/api/v1/{steps}", data, headers, method=method
        )
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return json.loads(answer.read(_LARGEST))
        except urllib.error.HTTPError as error:
            raise CommandError(_sentence(error)) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise CommandError(f"server {self._url} does not answer: {why}") from None
        except ValueError:
            raise CommandError(f"server {self._url}: no JSON found; is it the right one?") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Credentials are for the server that was named, not for another."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        said = json.loads(error.read(_LARGEST))["error"]
    except (ValueError, KeyError, TypeError, OSError):
        said = f"{error.code} {error.reason}"
    if error.code == 401:
        said = (
            f"{said} (COUNTERPOISE_TOKEN, COUNTERPOISE_USER and COUNTERPOISE_PASSWORD, or "
            "--credentials FILE)"
        )
    return f"the server answered: {said}"


def _authorization(file: Path | None) -> dict[str, str]:
    """The header with credentials, if there are any."""
    names = ("token", "user", "password")
    if file is None:
        stated = {n: os.environ.get(f"COUNTERPOISE_{n.upper()}") for n in names}
    else:
        try:
            content = read_document(file, "credentials")
        except (DocumentError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandError(f"--credentials {file}: {why}") from None
        if not isinstance(content, Mapping) or not {*content} <= {*names}:
            raise CommandError(
                f"--credentials {file}: token, or user and password expected, and nothing else"
            )
        stated = {n: None if content.get(n) is None else str(content[n]) for n in names}
    if stated["token"]:
        return {"Authorization": f"Bearer {stated['token'].strip()}"}
    if stated["user"] and stated["password"]:
        pair = f"{stated['user']}:{stated['password']}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    if stated["user"] or stated["password"]:
        raise CommandError("credentials: a user without a password found, or the reverse")
    return {}
