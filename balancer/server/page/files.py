"""Serves the files of the page, each with its ETag and a policy that allows nothing foreign."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Response
from starlette.exceptions import HTTPException

import balancer.report
from balancer.server.api.context import Viewer

router = APIRouter(include_in_schema=False)
_POLICY = (
    "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, _File]:
    """The files by name; the colours are those of the report."""
    palette = Path(balancer.report.__file__).with_name("palette.css")
    found = {}
    for path in (palette, *sorted(Path(__file__).parent.iterdir())):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            found[path.name] = _File(content, _TYPES[path.suffix], etag)
    return found


Tag = Annotated[str | None, Header(alias="if-none-match")]


@router.get("/")
def page(actor: Viewer, tag: Tag = None) -> Response:
    """The page."""
    return _answer("index.html", tag)


@router.get("/page/{name}")
def file(actor: Viewer, name: str, tag: Tag = None) -> Response:
    """A module or the stylesheet of the page."""
    return _answer(name, tag)


def _answer(name: str, tag: str | None) -> Response:
    found = page_files().get(name)
    if found is None:
        raise HTTPException(404, "not a file of the page")
    headers = {
        "ETag": found.etag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _POLICY,
    }
    known = {t.strip().removeprefix("W/") for t in (tag or "").split(",")}
    if found.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
