"""Options into what the engine takes: broker lists, byte counts, operations, client properties."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from balancer import Budget, Operation
from balancer.cli.terminal import CommandError
from balancer.problem.operations import OPERATIONS
from metrics_reporter import quantities
from metrics_reporter.clients import servers
from metrics_reporter.documents import shown

# Kafka's ids have 32 bits.
_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


def addresses(given: str | None) -> str | None:
    """Addresses of brokers as they were given, where brokers can have them."""
    if given is not None:
        servers(given)
    return given


def broker_ids(option: str, text: str | None) -> tuple[int, ...]:
    """Broker ids of ``"4,5"``.

    Examples
    --------
    >>> broker_ids("--add-brokers", "4, 5")
    (4, 5)
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(_ID.fullmatch(part) for part in parts):
        raise CommandError(f"{option}: {shown(text)} found, broker ids like 4 or 4,5 expected")
    return tuple(int(part) for part in parts)


def byte_count(option: str, text: str) -> float:
    """Bytes of ``"10GB"`` (powers of 1000) or ``"10GiB"`` (of 1024).

    Examples
    --------
    >>> byte_count("--max-bytes", "1.5 GB"), byte_count("--max-bytes", "2KiB")
    (1500000000.0, 2048.0)
    """
    return _measured(option, text, quantities.byte_count)


def byte_rate(option: str, text: str | None) -> float | None:
    """Bytes/s of ``"50MB/s"``.

    Examples
    --------
    >>> byte_rate("--throttle", "50MB/s")
    50000000.0
    """
    return None if text is None else _measured(option, text, quantities.byte_rate)


def _measured(option: str, text: str, unit: Callable[[str], float]) -> float:
    try:
        return unit(text)
    except ValueError as error:
        raise CommandError(f"{option}: {shown(text)} found, {error}") from None


def factors(given: Sequence[str]) -> dict[str, int]:
    """Topic pattern to number of replicas, of ``"topic=3"``.

    Examples
    --------
    >>> factors(["orders=3", "log.*=2"])
    {'orders': 3, 'log.*': 2}
    """
    wanted = {}
    for text in given:
        pattern, equals, number = text.rpartition("=")
        if not equals or not pattern or not _ID.fullmatch(number.strip()):
            raise CommandError(
                f"--replication-factor: {shown(text)} found, TOPIC=NUMBER like orders=3 expected"
            )
        wanted[pattern] = int(number)
    return wanted


def operation(
    kind: str | None,
    brokers: Mapping[str, str | None],
    fix_offline_replicas: bool,
    replication_factor: Sequence[str],
    **limits: Any,
) -> Operation:
    """The one operation that the options ask for; a rebalance if they name none.

    Parameters
    ----------
    kind
        What ``--operation`` says; the options that follow say it by themselves.
    brokers
        Operation to the broker ids given with its option.
    limits
        Further fields of :class:`balancer.Operation`.

    Raises
    ------
    CommandError
        For two operations at once, or one that does not exist.
    """
    asked = [name for name, ids in brokers.items() if ids is not None]
    asked += ["fix_offline_replicas"] * fix_offline_replicas
    asked += ["change_replication_factor"] * bool(replication_factor)
    if kind is not None:
        kind = kind.replace("-", "_")
        known = OPERATIONS.names()
        if kind not in known:
            raise CommandError(
                f"--operation: {shown(kind)} found, one of {', '.join(known)} expected"
            )
        asked = list(dict.fromkeys([kind, *asked]))
    if len(asked) > 1:
        raise CommandError(f"{' and '.join(asked)} asked for, one operation at a time expected")
    named = asked[0] if asked else "rebalance"
    option = f"--{named.replace('_', '-')}"
    return Operation.model_validate(
        {
            "kind": named,
            "brokers": broker_ids(option, brokers.get(named)),
            "replication_factor": factors(replication_factor),
            **limits,
        }
    )


def budget(moves: int | None, size: str | None, seconds: float | None) -> Budget:
    """Limits of the plan."""
    try:
        return Budget(
            moves=moves,
            bytes=None if size is None else byte_count("--max-bytes", size),
            seconds=seconds,
        )
    except ValidationError as error:
        first = error.errors()[0]
        expected = first["msg"].removeprefix("Input should be ")
        raise CommandError(
            f"--max-{first['loc'][0]}: {shown(first['input'])} found, a number {expected} expected"
        ) from None


_MOST_BYTES = 1 << 20
# Names of Kafka's properties have no escapes, and no mark of an encoding within.
_LINE = re.compile(r"([A-Za-z0-9_.-]+)(?:\s*[=:]\s*|\s+)(.*)")


def client_properties(path: Path | None) -> dict[str, str]:
    """Read a client's properties file, as Kafka's tools take it for ``--command-config``.

    User and password of a PLAIN or SCRAM ``sasl.jaas.config``, and a PEM trust store,
    are given the names that the clients of Python know.

    Raises
    ------
    CommandError
        For a file that cannot be read, or naming the line that is no property.
    """
    return _named_for_python(java_properties(path))


def java_properties(path: Path | None) -> dict[str, str]:
    """The same under the names that the file has, for clients that Java runs."""
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"client properties {path}: no UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"client properties {path}: {reason}") from None
    if len(data) > _MOST_BYTES:
        raise CommandError(
            f"client properties {path}: more than {_MOST_BYTES} bytes found, fewer expected"
        )
    found: dict[str, str] = {}
    for number, line in enumerate(_joined(text), 1):
        match = _LINE.fullmatch(line)
        # What is no property may be part of a secret, as a line of a private key is.
        if match is None or not match[2] or "\0" in line:
            raise CommandError(f"client properties {path}, entry {number}: name=value expected")
        if match[1] in found:
            raise CommandError(
                f"client properties {path}, entry {number}: {shown(match[1])} found twice"
            )
        found[match[1]] = match[2].strip()
    return found


def _joined(text: str) -> list[str]:
    """Lines that say something, those that end with a backslash joined to the next."""
    # Of backslashes at the end of a line the last joins, unless it is itself escaped.
    whole = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:(?:\r\n?|\n)\s*|\Z)", r"\1", text)
    lines = re.split(r"\r\n?|\n", whole)
    return [x.strip() for x in lines if x.strip() and x.strip()[0] not in "#!"]


def _named_for_python(properties: dict[str, str]) -> dict[str, str]:
    jaas = properties.pop("sasl.jaas.config", None)
    if jaas is not None:
        for field in ("username", "password"):
            match = re.search(rf'\b{field}\s*=\s*"((?:\\.|[^"\\])*)"', jaas)
            if match is None:
                raise CommandError(
                    f'client properties: sasl.jaas.config without {field}="...", '
                    "a PLAIN or SCRAM login module expected"
                )
            properties.setdefault(f"sasl.{field}", re.sub(r"\\(.)", r"\1", match[1]))
    if properties.get("ssl.truststore.type", "").upper() == "PEM":
        del properties["ssl.truststore.type"]
        properties["ssl.ca.location"] = properties.pop("ssl.truststore.location", "")
    return properties
