"""Runs ``counterpoise`` inside the process of the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import typer.testing
from typer import Typer
from typer.testing import CliRunner, Result

from balancer.cli.app import app


def invoke(
    words: Sequence[object],
    *,
    input: str | bytes | None = None,
    env: Mapping[str, str | None] | None = None,
) -> Result:
    """The outcome of a command line, each of its words as `str` makes it."""
    with pytest.MonkeyPatch.context() as patch:
        # Typer would build the command tree again for each call.
        patch.setattr(typer.testing, "_get_command", lambda _: app)
        return CliRunner().invoke(Typer(), list(map(str, words)), input=input, env=env)
