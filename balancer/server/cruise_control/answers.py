"""Answers in Cruise Control's shapes: JSON or plain text, errors, the header with a schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Response
from fastapi.responses import StreamingResponse

# The release whose API this is; clients compare it with the first that knew status 202.
API_VERSION = "3.0.4"
_JSON_VERSION = 1
_SCHEMA = "Cruise-Control-JSON-Schema"


@dataclass(frozen=True)
class Answer:
    """What an endpoint answers, in both forms; the text may be made when it is needed."""

    content: Any
    words: str | Callable[[], str]

    @property
    def text(self) -> str:
        """The plain text."""
        return self.words if isinstance(self.words, str) else self.words()


@dataclass(frozen=True)
class LongAnswer:
    """An answer that is a long list: it is made and sent in parts, and never held as a whole.

    Parameters
    ----------
    name
        Key of the list in JSON.
    parts
        The records, some at a time.
    text
        The plain text, some lines at a time.
    """

    name: str
    parts: Callable[[], Iterator[list[dict[str, Any]]]]
    text: Callable[[], Iterator[str]]

    def chunks(self, as_json: bool) -> Iterator[str]:
        """The text of the answer, in parts."""
        if not as_json:
            yield from self.text()
            return
        yield f'{{"{self.name}": ['
        joint = ""
        for records in self.parts():
            yield joint + json.dumps(records, allow_nan=False)[1:-1]
            joint = ", "
        yield f'], "version": {_JSON_VERSION}}}'


def message(sentence: str) -> Answer:
    """An answer that is one sentence."""
    return Answer({"message": sentence}, sentence)


def body(answer: Answer, as_json: bool) -> str:
    """The text of an answer."""
    if not as_json:
        return answer.text + "\n"
    content = answer.content
    if isinstance(content, dict):
        content = {**content, "version": _JSON_VERSION}
    return json.dumps(content, allow_nan=False)


def asks_for_json(query: str) -> bool:
    """Whether the query of a URL asks for an answer in JSON.

    Examples
    --------
    >>> asks_for_json("verbose=true&JSON=True"), asks_for_json("json=false"), asks_for_json("")
    (True, False, False)
    """
    return any(
        key.lower() == "json" and value.lower() == "true"
        for key, value in parse_qsl(query, keep_blank_values=True)
    )


def error_body(sentence: str, as_json: bool) -> str:
    """The text of an error. Details of failures are in the log only, so the trace is empty."""
    return body(Answer({"errorMessage": sentence, "stackTrace": ""}, sentence), as_json)


def respond(
    text: str, as_json: bool, status: int = 200, task: str | None = None, schema: bool = False
) -> Response:
    """The HTTP response with a text as made by :func:`body`.

    Parameters
    ----------
    text
        The text.
    as_json
        Whether it is JSON.
    status
        The HTTP status.
    task
        Id of the user task that it belongs to.
    schema
        Whether a header states the schema of the JSON.
    """
    headers = _headers(task)
    if schema and as_json:
        headers[_SCHEMA] = json.dumps(schema_of(json.loads(text)))
    return Response(text, status, headers, _kind(as_json))


def respond_in_parts(
    answer: LongAnswer, as_json: bool, task: str | None = None, schema: bool = False
) -> Response:
    """The HTTP response with a long answer; for the parameters, see :func:`respond`."""
    headers = _headers(task)
    if schema and as_json:
        first: list[dict[str, Any]] = next(answer.parts(), [])
        headers[_SCHEMA] = json.dumps(schema_of({answer.name: first, "version": _JSON_VERSION}))
    return StreamingResponse(answer.chunks(as_json), 200, headers, _kind(as_json))


def _headers(task: str | None) -> dict[str, str]:
    version = {"Cruise-Control-Version": API_VERSION}
    return version if task is None else {**version, "User-Task-ID": task}


def _kind(as_json: bool) -> str:
    return "application/json" if as_json else "text/plain; charset=utf-8"


def schema_of(value: Any) -> dict[str, Any]:
    """The schema of a JSON value, from the first item of each list.

    Examples
    --------
    >>> schema_of({"version": 1})
    {'type': 'object', 'properties': {'version': {'type': 'number'}}}
    """
    if isinstance(value, dict):
        return {"type": "object", "properties": {k: schema_of(v) for k, v in value.items()}}
    if isinstance(value, list):
        return {"type": "array"} | ({"items": [schema_of(value[0])]} if value else {})
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int | float):
        return {"type": "number"}
    return {"type": "null" if value is None else "string"}


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns of text, aligned; a value that is not known is a dash.

    Examples
    --------
    >>> print(table(["BROKER", "CPU(%)"], [[1, 2.5], [20, None]]))
    BROKER  CPU(%)
         1   2.500
        20       -
    """
    cells = [list(head), *([_shown(value) for value in row] for row in rows)]
    wide = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(w) for cell, w in zip(line, wide, strict=True)) for line in cells
    )


def table_line(values: Sequence[Any], widths: Sequence[int]) -> str:
    """One line of a table whose columns have these widths.

    Examples
    --------
    >>> table_line(["a", 2.5, None], [3, 5, 1])
    '  a  2.500  -'
    """
    return "  ".join(_shown(v).rjust(w) for v, w in zip(values, widths, strict=True))


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
