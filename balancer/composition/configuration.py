"""Reads the configuration file: which cluster the command line works on, and with what."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from balancer.composition.properties import read_properties
from cluster_model import InputError
from metrics_reporter.documents import as_model, load_mapping, shown_name
from metrics_reporter.quantities import WithDuration

# Read if it is in the current directory and no other file is named.
IMPLICIT = "counterpoise.yaml"
# Keys that name a file, relative to the configuration file.
_FILES = ("command_config", "capacity", "attributes", "settings")
# A reference, in the syntax of Kafka's configuration providers.
_ELSEWHERE = re.compile(r"\$\{(\w+):([^}]*)\}")
# Secrets are mounted as small files.
_MOST_BYTES = 1 << 20


class ConfigurationError(InputError):
    """An unusable configuration file; says what is wrong and where."""


class Configuration(BaseModel):
    """A configuration file: values for options of the same names.

    Files are relative to the directory of the configuration file.

    Parameters
    ----------
    bootstrap_server
        Addresses of brokers: ``host:port``, several separated by commas or as a list.
    client
        Client properties. As with Kafka's configuration providers, ``${env:NAME}`` in a value
        stands for an environment variable, ``${file:PATH:KEY}`` for a property in a file, and
        ``${dir:PATH:NAME}`` for the content of a file in a directory.
    command_config
        A file of client properties instead.
    capacity, attributes, settings
        Files for the options of these names.
    metrics_topic
        Topic with the measured loads.
    goals
        A profile, or a file of goals.
    timeout
        Seconds to wait for an answer, or text like ``30s``.
    """

    # Every command knows the fields, and few read a file.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    bootstrap_server: str | None = None
    client: dict[str, str] | None = Field(default=None, repr=False)
    command_config: str | None = None
    capacity: str | None = None
    attributes: str | None = None
    settings: str | None = None
    metrics_topic: str | None = None
    goals: str | None = None
    timeout: Annotated[float, WithDuration] | None = None

    @field_validator("bootstrap_server", mode="before")
    @classmethod
    def _joined(cls, given: Any) -> Any:
        texts = isinstance(given, list) and all(isinstance(server, str) for server in given)
        return ",".join(given) if texts else given

    @field_validator("client", mode="before")
    @classmethod
    def _as_texts(cls, given: Any) -> Any:
        return {k: _as_text(v) for k, v in given.items()} if isinstance(given, Mapping) else given


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file: YAML, or JSON or TOML by its suffix.

    Raises
    ------
    ConfigurationError
        If it cannot be read, or naming the first invalid entry. Values of client properties, which
        may be secrets, are not quoted.
    """
    where = f"configuration file {path}"
    content = load_mapping(path, where, ConfigurationError, "a configuration file")
    known = Configuration.model_fields
    for key in content:
        if key not in known:
            close = get_close_matches(
                str(key).lower().replace("-", "_").replace(".", "_"), known, 1
            )
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise ConfigurationError(f"{where}: {shown_name(str(key))}: no such key; {hint}")
    found = as_model(Configuration, content, where, ConfigurationError, hide=["client"])
    if found.client is not None and found.command_config is not None:
        raise ConfigurationError(f"{where}: client and command_config found, one of them expected")
    return found


def option_values(path: Path) -> dict[str, str | float]:
    """Key of a configuration file to the value of the option of that name.

    Properties that the file itself holds are read from it again when they are needed, so that no
    secret is a value of an option.
    """
    # Every command reads this module, and few commands need the goals.
    from goals import profiles

    found = load_configuration(path)
    values = found.model_dump(exclude_none=True, exclude={"client"})
    files = [name for name in _FILES if name in values]
    if found.goals is not None and found.goals not in profiles():
        files.append("goals")
    for name in files:
        values[name] = str(path.parent / values[name])
    if found.client is not None:
        values["command_config"] = str(path)
    return values


def inline_properties(path: Path) -> dict[str, str]:
    """The client properties in a configuration file, with what they take from elsewhere.

    Raises
    ------
    ConfigurationError
        If there are none, or for an environment variable or a file that is missing.
    """
    found = load_configuration(path).client
    if found is None:
        raise ConfigurationError(
            f"configuration file {path}: client: none found, a mapping expected"
        )
    return {name: _resolved(name, value, path) for name, value in found.items()}


def implicit_configuration(directory: Path) -> tuple[Path | None, str | None]:
    """The configuration file of a directory, and why it is not read if it is not.

    Client properties can load libraries, so a file that others may have written is not read
    unless it is named.
    """
    path = directory / IMPLICIT
    try:
        found = path.stat()
    except OSError:
        return None, None
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & stat.S_IWOTH:
        return None, (
            f"{IMPLICIT} is not read, because others may have written it; "
            f"--config {IMPLICIT} reads it"
        )
    return Path(IMPLICIT) if path.is_file() else None, None


def _resolved(name: str, value: str, path: Path) -> str:
    """A property's value with what its references stand for."""
    where = f"configuration file {path}: client.{shown_name(name)}"

    def found(reference: re.Match[str]) -> str:
        kind, key = reference[1], reference[2]
        place, _, part = key.rpartition(":")
        try:
            if kind == "env" and key in os.environ:
                return os.environ[key]
            if kind == "file" and place:
                properties = {p.key: p.value for p in read_properties(path.parent / place)}
                if part in properties:
                    return properties[part]
            if kind == "dir" and place:
                with (path.parent / place / part).open("rb") as file:
                    return file.read(_MOST_BYTES).decode().removesuffix("\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "no UTF-8 text"
            raise ConfigurationError(f"{where}: file {shown_name(key)}: {reason}") from None
        if kind in ("env", "file"):
            what = "environment variable" if kind == "env" else "property"
            raise ConfigurationError(f"{where}: {what} {shown_name(key)} not found")
        raise ConfigurationError(
            f"{where}: a reference of kind {shown_name(kind)} found, ${{env:NAME}}, "
            "${file:PATH:KEY} or ${dir:PATH:NAME} expected"
        )

    return _ELSEWHERE.sub(found, value)
