"""Answers that refuse a request, in the shape of the API that it was sent to."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from balancer.server.cruise_control.answers import asks_for_json, error_body, respond

CRUISE_CONTROL = "/kafkacruisecontrol"


def refused(
    request: Request, status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer to a request that is refused.

    Parameters
    ----------
    request
        The request.
    status
        The HTTP status.
    sentence
        Why.
    headers
        More headers.
    """
    # JSON can state half of a pair of surrogates, which UTF-8 cannot.
    text = sentence.encode("utf-8", "backslashreplace").decode()
    path: str = request.scope["path"]
    if path != CRUISE_CONTROL and not path.startswith(f"{CRUISE_CONTROL}/"):
        return JSONResponse({"error": text}, status, headers)
    as_json = asks_for_json(request.scope["query_string"].decode("latin-1"))
    answer = respond(error_body(text, as_json), as_json, status)
    answer.headers.update(headers or {})
    return answer
