"""Reads the settings file of a running controller, again whenever it changes."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from balancer.controller.settings import Settings, load_settings
from metrics_reporter.file_changes import FileChanges


class SettingsFile:
    """Reads a settings file at the start and whenever it has changed.

    Parameters
    ----------
    path
        The file; None for the defaults.
    execute
        Whether ``--execute`` was given. Plans are executed only if it was and the file
        does not say ``execute: false``: the more cautious choice applies.

    Attributes
    ----------
    settings : Settings
        As last read, with `execute` resolved.
    note : str or None
        If file and option differ, which of them applies.

    Raises
    ------
    SettingsError
        If the file cannot be used.
    """

    def __init__(self, path: Path | None, execute: bool) -> None:
        self._path, self._execute = path, execute
        self._changes = FileChanges(path)
        self.settings, self.note = decided(_loaded(path), execute)

    def changed(self) -> bool:
        """Whether the file has changed and was read again; to be polled.

        Raises
        ------
        SettingsError
            If it is invalid, once for each change; the settings stay as they were.
        """
        if not self._changes.due():
            return False
        self.settings, self.note = decided(_loaded(self._path), self._execute)
        return True


def decided(settings: Settings, execute: bool) -> tuple[Settings, str | None]:
    """Settings with `execute` resolved between file and option, and a note about it.

    Examples
    --------
    >>> decided(Settings(), True)[0].execute, decided(Settings(execute=True), False)[0].execute
    (True, False)
    >>> decided(Settings(execute=False), True)[1]
    'execute: the settings file pauses executions; --execute does not override it'
    """
    note = None
    if execute and settings.execute is False:
        note = "execute: the settings file pauses executions; --execute does not override it"
    elif settings.execute and not execute:
        note = (
            "execute: the settings file allows executions, but --execute was not given; plans are "
            "only proposed"
        )
    acts = execute and settings.execute is not False
    return settings.model_copy(update={"execute": acts}), note


def differences(old: BaseModel, new: BaseModel, within: str = "") -> list[str]:
    """Names of the settings that differ, without their values, which may be secrets.

    Examples
    --------
    >>> differences(Settings(), Settings.model_validate({"dead_brokers": {"heal_after": "1h"}}))
    ['dead_brokers.heal_after']
    """
    found: list[str] = []
    for name in type(new).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            found += differences(before, after, f"{within}{name}.")
        elif before != after:
            found.append(within + name)
    return found


def _loaded(path: Path | None) -> Settings:
    return Settings() if path is None else load_settings(path)
