"""Fetches and parses Prometheus' text format without a dependency.

Prometheus' own parser rejects a page at its first bad line; this one counts the line and
reads the rest.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Timer
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from metrics_reporter.documents import shown_name as quoted
from metrics_reporter.errors import ReporterError

# About the size of a page of a hundred thousand partitions.
_MOST_BYTES = 1 << 29
_CHUNK = 1 << 16
_LINE = re.compile(
    r"([A-Za-z_:][\w:]*)[ \t]*(?:\{(.*)\})?[ \t]+([^\s{}\"]+)(?:[ \t]+-?\d+)?[ \t]*",
    re.ASCII,
)
_LABEL = re.compile(r'[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)', re.ASCII)
_ESCAPE = re.compile(r"\\(.)")
_TYPE = re.compile(r"^[ \t]*#[ \t]+TYPE[ \t]+([\w:]+)[ \t]+(\w+)[ \t]*$", re.ASCII | re.MULTILINE)


class Sample(NamedTuple):
    """A line of a page: ``name{label="..."} value``, and the type that the page states for it."""

    name: str
    labels: dict[str, str]
    value: float
    type: str = ""


def parse(text: str) -> tuple[list[Sample], int]:
    """The samples of a page in order, and how many lines were not samples.

    Timestamps are ignored; the first of two equal labels counts.

    Examples
    --------
    >>> parse('# TYPE a counter\\na_total{topic="x"} 3\\nnonsense\\nb 1.5 1700000000000\\n')
    ([Sample(name='a_total', labels={'topic': 'x'}, value=3.0, type='counter'), \
Sample(name='b', labels={}, value=1.5, type='')], 1)
    """
    samples: list[Sample] = []
    malformed = 0
    types = dict(_TYPE.findall(text))
    for line in text.split("\n"):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        sample = _sample(line)
        if sample is None:
            malformed += 1
        else:
            samples.append(sample._replace(type=type_of(sample.name, types)))
    return samples, malformed


def type_of(name: str, types: Mapping[str, str]) -> str:
    """The type of a metric: ``counter``, ``gauge`` and so on; empty if it is not stated.

    Parameters
    ----------
    name
        Its name.
    types
        Types by name; OpenMetrics leaves out the ``_total`` of a counter.
    """
    found = types.get(name) or types.get(name.removesuffix("_total"), "")
    return "" if found in ("untyped", "unknown") else found


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, which could carry credentials to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Limit:
    """The sockets of a request, which are shut down when its time is over."""

    def __init__(self) -> None:
        self.over = False
        self.sockets: list[socket] = []

    def end(self) -> None:
        self.over = True
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(SHUT_RDWR)

    def watched(self, kind: type[HTTPConnection]) -> Callable[..., HTTPConnection]:
        """Makes connections whose sockets are among those of the request."""

        def connection(*args: Any, **options: Any) -> HTTPConnection:
            made = kind(*args, **options)
            connect = made.connect

            def connected() -> None:
                connect()
                self.sockets.append(made.sock)
                if self.over:
                    self.end()

            made.connect = connected  # type: ignore[method-assign]
            return made

        return connection


class _Http(HTTPHandler):
    def __init__(self, limit: _Limit) -> None:
        super().__init__()
        self.limit = limit

    def http_open(self, req: Request) -> Any:
        return self.do_open(self.limit.watched(HTTPConnection), req)


class _Https(HTTPSHandler):
    def __init__(self, limit: _Limit) -> None:
        super().__init__()
        self.limit = limit

    def https_open(self, req: Request) -> Any:
        return self.do_open(self.limit.watched(HTTPSConnection), req)


class HttpStatusError(ReporterError):
    """An answer with another status than 200.

    Parameters
    ----------
    message
        The sentence.
    status
        The status.
    body
        Beginning of the answer, which may say why.
    """

    def __init__(self, message: str, status: int, body: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


def scrape(url: str, timeout: float = 10.0) -> str:
    """Fetch the page of an endpoint.

    Parameters
    ----------
    url
        With user and password in it if the endpoint needs them.
    timeout
        Seconds for the whole request.

    Raises
    ------
    ReporterError
        If it cannot be reached, refuses, redirects or is too slow; the password is left out.
    """
    return fetch(url, timeout).decode("utf-8", "replace")


def fetch(
    url: str,
    timeout: float,
    *,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    most_bytes: int = _MOST_BYTES,
) -> bytes:
    """Fetch an address within a limit of time and size.

    Parameters
    ----------
    url, timeout
        See :func:`scrape`.
    data
        A form to post, or None to get the page.
    headers
        Further headers, which may hold secrets: messages leave them out.
    most_bytes
        Limit on the size of the answer.

    Raises
    ------
    ReporterError
        See :func:`scrape`; a status is an :class:`HttpStatusError`.
    """
    parts = checked_url(url)
    where = shown(url)
    request = Request(parts._replace(netloc=_host(parts)).geturl(), data, dict(headers or {}))
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    page, limit = bytearray(), _Limit()
    # A socket's own limit is one for each read: a server that drips would never reach it.
    timer = Timer(timeout, limit.end)
    timer.daemon = True
    timer.start()
    late = ReporterError(f"{where}: not read completely in {timeout:g} s")
    try:
        opener = build_opener(_NoRedirect, _Http(limit), _Https(limit))
        with opener.open(request, timeout=timeout) as answer:
            while chunk := answer.read1(_CHUNK):
                page += chunk
                if len(page) > most_bytes:
                    raise ReporterError(
                        f"{where}: more than {most_bytes} bytes found, fewer expected"
                    )
    except HTTPError as error:
        body = _beginning(error)
        error.close()
        if 300 <= error.code < 400:
            to = urlsplit(error.headers.get("Location") or "")
            target = f" to {to.scheme}://{_host(to)}" if to.netloc else ""
            raise ReporterError(
                f"{where}: a redirect{target} found, which is not followed; "
                "the address of the metrics themselves expected"
            ) from None
        raise HttpStatusError(
            f"{where}: HTTP status {error.code} found, 200 expected", error.code, body
        ) from None
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, ReporterError):
            raise
        if limit.over:
            raise late from None
        reason = getattr(error, "reason", None) or error
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise ReporterError(f"{where}: {why}") from None
    finally:
        timer.cancel()
    if limit.over:
        raise late
    return bytes(page)


def _beginning(error: HTTPError) -> bytes:
    try:
        return bytes(error.read1(_CHUNK))
    except (OSError, HTTPException, ValueError):
        return b""


def checked_url(url: str) -> SplitResult:
    """The parts of an endpoint's address.

    Raises
    ------
    ReporterError
        For an invalid address.
    """
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fine = False
    if not fine or any(c.isspace() for c in url):
        raise ReporterError(
            f"endpoint: '{shown(url)}' found, an address like http://broker:7071/metrics expected"
        )
    return parts


def shown(url: str) -> str:
    """An address without user, password and query.

    Examples
    --------
    >>> shown("http://me:pa/ss@broker:7071/metrics?token=x"), shown("me:secret@broker")
    ('http://broker:7071/metrics', 'broker')
    """
    head, slashes, rest = url.rpartition("://")
    if re.match(r"[^/?#]*@", rest) or re.match(r"[^/?#:@]*:(?!\d*(?:[/?#]|$)).*@", rest):
        # Otherwise a password with a slash in it ends the host too early.
        cut = rest.find("@") if "@" in re.split("[/?#]", rest)[0] else rest.rfind("@")
        rest = rest[cut + 1 :]
    return quoted(f"{head}{slashes}{re.split('[?#]', rest)[0]}")


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _sample(line: str) -> Sample | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    name, inside, number = found.groups()
    labels = _labels(inside or "")
    try:
        return None if labels is None else Sample(name, labels, float(number))
    except ValueError:
        return None


def _labels(inside: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    at = 0
    while at < len(inside) and inside[at:].strip():
        found = _LABEL.match(inside, at)
        if found is None:
            return None
        value = found[2]
        labels.setdefault(found[1], _ESCAPE.sub(_unescaped, value) if "\\" in value else value)
        at = found.end()
    return labels


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
