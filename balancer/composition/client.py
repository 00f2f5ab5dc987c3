"""Reads a Kafka client's properties file for clients in Python and Java."""

from __future__ import annotations

import re
from pathlib import Path

from balancer.composition.configuration import inline_properties
from cluster_model import InputError
from metrics_reporter.documents import shown

_MOST_BYTES = 1 << 20
# Endings of a configuration file, as opposed to a properties file.
_CONFIGURATION = (".yaml", ".yml", ".json", ".toml")
# Names of Kafka's properties contain no escapes and no byte order mark.
_LINE = re.compile(r"([A-Za-z0-9_.-]+)(?:\s*[=:]\s*|\s+)(.*)")


class ClientPropertiesError(InputError):
    """An invalid properties file; says what is wrong and where."""


def client_properties(path: Path | None) -> dict[str, str]:
    """Read a client's properties file, in the format of Kafka's ``--command-config``.

    A configuration file (``.yaml``, ``.json``, ``.toml``) gives the properties under ``client``.

    User and password of a PLAIN or SCRAM ``sasl.jaas.config``, and a PEM trust store, are
    renamed to what the Python clients expect.

    Raises
    ------
    ClientPropertiesError
        If the file cannot be read, or naming the line that is not a property.
    """
    return _named_for_python(java_properties(path))


def java_properties(path: Path | None) -> dict[str, str]:
    """The same with the names in the file, for Java clients."""
    if path is None:
        return {}
    if path.suffix.lower() in _CONFIGURATION:
        return inline_properties(path)
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ClientPropertiesError(
            f"client properties {path}: no UTF-8 at byte {error.start}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClientPropertiesError(f"client properties {path}: {reason}") from None
    if len(data) > _MOST_BYTES:
        raise ClientPropertiesError(
            f"client properties {path}: more than {_MOST_BYTES} bytes found, fewer expected"
        )
    found: dict[str, str] = {}
    for number, line in enumerate(_joined(text), 1):
        match = _LINE.fullmatch(line)
        # A line that is not a property may be part of a secret, such as a private key.
        if match is None or not match[2] or "\0" in line:
            raise ClientPropertiesError(
                f"client properties {path}, entry {number}: name=value expected"
            )
        if match[1] in found:
            raise ClientPropertiesError(
                f"client properties {path}, entry {number}: {shown(match[1])} found twice"
            )
        found[match[1]] = match[2].strip()
    return found


def _joined(text: str) -> list[str]:
    """Lines with content, joined to the next if they end with a backslash."""
    # Of several backslashes at the end of a line the last joins, unless it is itself escaped.
    whole = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:(?:\r\n?|\n)\s*|\Z)", r"\1", text)
    lines = re.split(r"\r\n?|\n", whole)
    return [x.strip() for x in lines if x.strip() and x.strip()[0] not in "#!"]


def _named_for_python(properties: dict[str, str]) -> dict[str, str]:
    jaas = properties.pop("sasl.jaas.config", None)
    if jaas is not None:
        for field in ("username", "password"):
            match = re.search(rf'\b{field}\s*=\s*"((?:\\.|[^"\\])*)"', jaas)
            if match is None:
                raise ClientPropertiesError(
                    f'client properties: sasl.jaas.config without {field}="...", '
                    "a PLAIN or SCRAM login module expected"
                )
            properties.setdefault(f"sasl.{field}", re.sub(r"\\(.)", r"\1", match[1]))
    if properties.get("ssl.truststore.type", "").upper() == "PEM":
        del properties["ssl.truststore.type"]
        properties["ssl.ca.location"] = properties.pop("ssl.truststore.location", "")
    return properties
