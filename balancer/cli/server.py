"""``counterpoise server``: what an operator needs to set up the server of ``run --listen``."""

from __future__ import annotations

import hashlib
import secrets
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from balancer.cli.terminal import CommandError, print_json

# Shorter passwords are guessed too fast.
_SHORTEST = 8


def hash_password() -> None:
    """Print the hash of a password, for `users` in the server settings.

    The password is asked for, or read from standard input: it never appears in a command line.
    """
    from balancer.server.access import hash_password as hashed

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < _SHORTEST:
        raise CommandError(
            f"password: {len(password)} characters found, at least {_SHORTEST} expected"
        )
    typer.echo(hashed(password))


def new_token(
    days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="Days until it expires; without this, it does not."),
    ] = None,
) -> None:
    """Print a new token, and its entry for `tokens` in the server settings."""
    token = secrets.token_urlsafe(32)
    typer.echo(f"token (give it to the program, it is not kept): {token}")
    typer.echo("entry of the server settings:")
    typer.echo(f"  sha256: {hashlib.sha256(token.encode()).hexdigest()}")
    if days is not None:
        end = datetime.now(UTC) + timedelta(days=days)
        typer.echo(f"  expires: {end:%Y-%m-%dT%H:%M:%SZ}")


def openapi() -> None:
    """Print the description of the API (OpenAPI, JSON), to generate clients from."""
    from balancer.server.app import description

    print_json(description())
