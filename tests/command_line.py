"""Runs ``counterpoise`` inside the process of the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typer.testing import CliRunner, Result

from balancer.cli.app import app


def invoke(
    words: Sequence[object],
    *,
    input: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
) -> Result:
    """The outcome of a command line, each of its words as `str` makes it."""
    return CliRunner().invoke(app, [str(word) for word in words], input=input, env=env)
