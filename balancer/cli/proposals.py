"""``counterpoise proposals``: look at the proposals of a running server, approve or reject them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from balancer.cli.configuration import variable
from balancer.cli.layout import Rows
from balancer.cli.server_client import ServerClient
from balancer.cli.terminal import AsJson, CommandError, out, print_json, say
from metrics_reporter.documents import printable

ServerUrl = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="URL",
        envvar=variable("--server"),
        help="Address of the server, like https://balance.example:9464.",
    ),
]
Credentials = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML file with `token`, or with `user` and `password`; else they come from the "
        "variables COUNTERPOISE_TOKEN, or COUNTERPOISE_USER and COUNTERPOISE_PASSWORD.",
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="PEM file of the authority of the server's certificate."),
]
Identity = Annotated[str, typer.Argument(metavar="ID", help="Id of a proposal.")]
Why = Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the audit log.")]


def list_(
    server: ServerUrl, credentials: Credentials = None, ca: Authority = None, json: AsJson = False
) -> None:
    """List the proposals that are kept, the newest first.

    Example: `counterpoise proposals list --server http://localhost:9464`
    """
    found = ServerClient(server, credentials, ca).get("proposals")
    if json:
        print_json(found)
    elif not found:
        say("no proposals")
    else:
        table = Rows("id", "state", "by", "reason~")
        for kept in found:
            table.add(*(escape(printable(str(kept[of]))) for of in ("id", "state", "by", "reason")))
        out().print(table)


def show(
    identity: Identity,
    server: ServerUrl,
    credentials: Credentials = None,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Show a proposal: its verdict, its digest, who decided what, and what has changed since.

    Example: `counterpoise proposals show 217986412 --server http://localhost:9464`
    """
    client = ServerClient(server, credentials, ca)
    kept, changes = _look(client, identity)
    if json:
        print_json({**kept, "changes": changes})
    else:
        _show(kept, changes)


def approve(
    identity: Identity,
    server: ServerUrl,
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="DIGITS",
            help="All 64 digits of the digest of the plan that you have looked at; without this, "
            "the proposal is shown and you are asked.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve the plan as it is now, without being asked.")
    ] = False,
    why: Why = "",
    credentials: Credentials = None,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Approve a proposal: it is executed exactly as it is, or not at all.

    Example: `counterpoise proposals approve 217986412 --server http://localhost:9464
    --why "agreed with the storage team"`
    """
    client = ServerClient(server, credentials, ca)
    if digest is None:
        kept, changes = _look(client, identity)
        if not json:
            _show(kept, changes)
        if not yes:
            typer.confirm("Approve exactly this plan?", abort=True, err=True)
        digest = str(kept["digest"])
    _decided(client.post("proposals", identity, "approve", {"digest": digest, "why": why}), json)


def reject(
    identity: Identity,
    server: ServerUrl,
    why: Why = "",
    credentials: Credentials = None,
    ca: Authority = None,
    json: AsJson = False,
) -> None:
    """Reject a proposal that has not started.

    Example: `counterpoise proposals reject 217986412 --server http://localhost:9464`
    """
    client = ServerClient(server, credentials, ca)
    _decided(client.post("proposals", identity, "reject", {"why": why}), json)


def _look(client: ServerClient, identity: str) -> tuple[dict[str, Any], list[str]]:
    kept = client.get("proposals", identity)
    if not isinstance(kept, dict) or "digest" not in kept:
        raise CommandError(f"proposal {printable(identity)}: an answer of another kind found")
    changes = client.get("proposals", identity, "changes") if kept["state"] == "open" else []
    return kept, changes


def _show(kept: dict[str, Any], changes: list[str]) -> None:
    _print(f"proposal {kept['id']}: {kept['state']}")
    _print(f"digest   {kept['digest']}")
    _print(f"by       {kept['by']}, for {str(kept['cause']).replace('_', ' ')}")
    _print(f"verdict  {kept['reason']}")
    given = ", ".join(a["by"] for a in kept["approvals"]) or "nobody"
    _print(f"approved by {given}; {kept['needed']} needed")
    if kept["decided"] is not None:
        _print(f"rejected by {kept['decided']['by']}: {kept['decided']['why'] or 'no reason'}")
    for problem in (kept["outcome"] or {}).get("problems", ()):
        _print(f"outcome  {problem}")
    for change in changes:
        _print(f"changed since: {change}")


def _decided(kept: dict[str, Any], json: bool) -> None:
    if json:
        print_json(kept)
        return
    missing = kept["needed"] - len(kept["approvals"])
    more = f"; {missing} more to approve it" if kept["state"] == "open" and missing > 0 else ""
    _print(f"proposal {kept['id']}: {kept['state']}{more}")


def _print(line: str) -> None:
    out().print(printable(line), markup=False, highlight=False, soft_wrap=True)
