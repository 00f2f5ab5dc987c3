"""Reads JSON, YAML and TOML text from untrusted files, within limits.

All readers of files use it: a document that is too large, nested too deeply, repeats a key
or holds a value that JSON cannot express is rejected in one sentence.
"""

from __future__ import annotations

import json
import re
import reprlib
import tomllib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, Field, Strict, ValidationError
from pydantic_core import PydanticCustomError

from metrics_reporter.suggestions import hint


@dataclass(frozen=True)
class DocumentLimits:
    """Size limits of a document.

    Parameters
    ----------
    json_bytes
        Bytes of a JSON file; snapshots and plans of large clusters are large.
    yaml_bytes, toml_bytes
        Bytes of a YAML or TOML file, which people write and which are slow to parse.
    npz_bytes, npz_text_bytes
        Bytes of all arrays of a snapshot in an npz archive, and of one array of text, which is
        slower to read. Taken from the archive's headers, before anything is inflated. A million
        replicas take about 100 MB.
    reader_seconds
        Seconds to wait for a reader when writing to a pipe.
    depth
        Nesting of mappings and lists.
    nodes
        Values of a YAML file, with each alias expanded.
    shown
        Characters of a value that a message quotes.
    """

    json_bytes: int = 1 << 31
    yaml_bytes: int = 1 << 22
    toml_bytes: int = 1 << 20
    npz_bytes: int = 1 << 29
    npz_text_bytes: int = 1 << 26
    reader_seconds: float = 5.0
    depth: int = 64
    nodes: int = 250_000
    shown: int = 80


LIMITS = DocumentLimits()


AnyModel = TypeVar("AnyModel", bound=BaseModel)


class DocumentError(ValueError):
    """Text that is not the expected document; the message gives the problem and the place."""


class KindError(DocumentError):
    """A document of another kind, such as a plan where a snapshot belongs."""


def _whole_key(value: Any) -> Any:
    if isinstance(value, bool | float) or (isinstance(value, str) and "." in value):
        raise PydanticCustomError("int_parsing", "a whole number expected")
    return value


def _broker_id(value: Any) -> Any:
    whole = type(value) is int and 0 <= value < 2**63
    if not whole and (type(value) is not str or not value):
        raise PydanticCustomError("broker_id", "a whole number of at least 0, or a name, expected")
    return value


def number_not_truth(model: type[BaseModel], field: str | None, value: Any) -> Any:
    """For a validator of all fields: rejects `true` as a number, also in a list or as a value.

    Raises
    ------
    ValueError
        For a boolean in a field that takes none.
    """
    annotation = str(model.model_fields[field or ""].annotation)
    # A strict element is reported by itself, with its place in the list.
    if any(word in annotation for word in ("bool", "Any", "Strict")):
        return value
    held: Iterable[Any] = (value,)
    if isinstance(value, list | tuple | set | frozenset):
        held = value
    elif isinstance(value, Mapping) and "dict[" in annotation:
        held = value.values()
    if any(isinstance(one, bool) for one in held):
        raise ValueError("another kind of value expected")
    return value


# An id or a count: text, floats and booleans are rejected.
Whole = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
# A broker's id: a number in Kafka, elsewhere it may be a name.
BrokerId = Annotated[int | str, BeforeValidator(_broker_id)]
# A finite number, not a boolean.
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
# A mapping key that is a number; in JSON all keys are text.
WholeKey = Annotated[int, BeforeValidator(_whole_key), Field(ge=0, lt=2**63)]


def read_document(
    path: str | Path,
    kind: str | None = None,
    *,
    format: str | None = None,
    limits: DocumentLimits = LIMITS,
) -> Any:
    """Read a file as JSON, TOML or, for any other suffix, YAML.

    Parameters
    ----------
    path
        The file.
    kind
        Expected kind, see :data:`KINDS`; None accepts any.
    format
        ``json``, ``toml`` or ``yaml``, regardless of the suffix.
    limits
        Its size limits.

    Raises
    ------
    OSError
        If the file cannot be read.
    DocumentError
        If it is too large or not as expected, such as a file of another kind.
    """
    path = Path(path)
    format = format or {".json": "json", ".toml": "toml"}.get(path.suffix.lower(), "yaml")
    most = {"json": limits.json_bytes, "toml": limits.toml_bytes, "yaml": limits.yaml_bytes}[format]
    data = read_limited(path, most)
    found = {"json": parse_json, "toml": parse_toml, "yaml": parse_yaml}[format](data, limits)
    if kind is not None and isinstance(found, dict):
        for other, belongs in KINDS.items():
            if other != kind and belongs(found) and not KINDS[kind](found):
                raise KindError(f"{other} found, {kind} expected")
    return found


def read_limited(path: Path, most: int) -> bytes:
    """The content of a text file of at most so many bytes.

    Raises
    ------
    OSError, DocumentError
        See :func:`read_document`.
    """
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DocumentError(f"more than {most} bytes found, a smaller file expected")
    if data.startswith(b"PK\3\4"):
        raise DocumentError("a zip archive (as of a snapshot in npz) found, text expected")
    return data


def load_document(
    path: str | Path,
    where: str,
    error: type[Exception],
    kind: str | None = None,
    *,
    format: str | None = None,
) -> Any:
    """Read a file; any problem becomes one sentence in the caller's error.

    Parameters
    ----------
    path, kind, format
        See :func:`read_document`.
    where
        Beginning of the sentence, like ``settings file balancer.yaml``.
    error
        The error to raise.

    Examples
    --------
    >>> load_document("/none.yaml", "settings file /none.yaml", DocumentError)
    Traceback (most recent call last):
        ...
    metrics_reporter.documents.DocumentError: settings file /none.yaml: No such file or directory
    """
    try:
        return read_document(path, kind, format=format)
    except (OSError, ValueError) as problem:
        said = getattr(problem, "strerror", None) or problem
        raise error(f"{where}: {said}") from None


def load_mapping(
    path: str | Path,
    where: str,
    error: type[Exception],
    kind: str | None = None,
    *,
    expected: str = "a mapping",
) -> Mapping[Any, Any]:
    """Like :func:`load_document`, for a file that must hold a mapping; `expected` says which."""
    found = load_document(path, where, error, kind)
    if not isinstance(found, Mapping):
        # Without the value, which may hold a password.
        raise error(f"{where}: {type(found).__name__} found, {expected} expected")
    return found


def as_model(
    model: type[AnyModel],
    content: Any,
    where: str,
    error: type[Exception],
    expected: Mapping[str, str] | None = None,
    *,
    hide: Iterable[str] = (),
) -> AnyModel:
    """Make a pydantic model of a document; the first problem is one sentence in the caller's error.

    Parameters
    ----------
    model, content
        The model, and its fields' values.
    where, error
        See :func:`load_document`.
    expected, hide
        See :func:`first_problem`.
    """
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        said = first_problem(problem, expected, hide=hide)
        first = problem.errors(include_url=False)[0]
        near = ""
        if first["type"] == "extra_forbidden":
            near = hint(str(first["loc"][-1]), fields_at(model, first["loc"]))
        raise error(f"{where}: {said}{near}") from None


def fields_at(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Names of the fields of the model that a place of a document belongs to.

    Parameters
    ----------
    model
        The model of the whole document.
    place
        Steps from there, the last of them the name of a field that may not exist.
    """
    for step in place[:-1]:
        info = model.model_fields.get(str(step))
        inner = None if info is None else _model_in(info.annotation)
        if info is not None and inner is None:
            return []
        model = inner or model
    return [info.alias or name for name, info in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a type is, or that it is a list, a mapping or an alternative of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(inner) for inner in get_args(annotation))
    return next((model for model in found if model is not None), None)


_SETTINGS = frozenset(
    ("interval", "execute", "execution", "webhooks", "goal_violations", "dead_brokers")
)
_CONFIGURATION = frozenset(("bootstrap_server", "client", "command_config", "metrics_topic"))
# How to recognise a file's kind, when one is given where another belongs.
KINDS: dict[str, Callable[[dict[Any, Any]], bool]] = {
    "a plan": lambda d: {"operation", "actions"} <= d.keys(),
    "a snapshot": lambda d: isinstance(d.get("brokers"), list) and "partitions" in d,
    "a goals file": lambda d: "profile" in d or (isinstance(d.get("goals"), list) and len(d) == 1),
    "a capacity file": lambda d: isinstance(d.get("default", d.get("brokers")), dict),
    "an attributes file": lambda d: (
        (
            bool(d.keys() & {"topics", "topic_configs", "broker_sets"})
            or isinstance(d.get("brokers"), dict)
        )
        and d.keys() <= {"brokers", "topics", "topic_configs", "broker_sets"}
    ),
    "a settings file": lambda d: not d.keys().isdisjoint(_SETTINGS),
    "a configuration file": lambda d: not d.keys().isdisjoint(_CONFIGURATION),
    "a file of exporters": lambda d: isinstance(d.get("endpoints"), dict),
    "a file for kafka-reassign-partitions": lambda d: d.keys() == {"version", "partitions"},
    "a file for kafka-leader-election": lambda d: d.keys() == {"partitions"},
}


def parse_json(text: str | bytes, limits: DocumentLimits = LIMITS) -> Any:
    """Parse JSON text.

    Raises
    ------
    DocumentError
        Also for NaN, infinities, numbers beyond the range of a float, and a repeated key.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    metrics_reporter.documents.DocumentError: not JSON: key 'a' found twice
    """
    try:
        found = json.loads(
            text if isinstance(text, str) else text.decode("utf-8-sig"),
            object_pairs_hook=_once,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except UnicodeDecodeError as error:
        raise DocumentError(f"not JSON: no UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise DocumentError(_too_deep(limits)) from None
    except ValueError as error:
        raise DocumentError(f"not JSON: {error}") from None
    _check_depth(found, limits)
    if (b"\\u" if isinstance(text, bytes) else "\\u") in text:  # type: ignore[operator]
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DocumentError("not JSON: half of a surrogate pair found in a text") from None
    return found


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON of data that others may have made.

    A number that is not finite, which JSON cannot hold, becomes null; an object that JSON does
    not know becomes its text.

    Parameters
    ----------
    value
        The data.
    indent
        Spaces per level; None for one line.

    Examples
    --------
    >>> json_text({"skew": float("nan"), "of": (1, float("inf"))})
    '{"skew": null, "of": [1, null]}'
    """
    return json.dumps(_finite_only(value), default=str, indent=indent, allow_nan=False)


def _finite_only(value: Any) -> Any:
    """The same with None for numbers that are not finite."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            str(key) if isinstance(key, float) else key: _finite_only(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_finite_only(each) for each in value]
    return value


def parse_toml(text: str | bytes, limits: DocumentLimits = LIMITS) -> Any:
    """Parse TOML text.

    Raises
    ------
    DocumentError
        Also for dates, infinities and NaN.
    """
    try:
        given = text if isinstance(text, str) else text.decode("utf-8-sig")
        # The parser's time and memory grow with the square of the dots in a key.
        if any(line.count(".") > limits.depth for line in given.split("\n") if line[:1] != "#"):
            raise DocumentError(_too_deep(limits))
        found = tomllib.loads(given, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise DocumentError(f"TOML expected (no UTF-8 at byte {error.start})") from None
    except RecursionError:
        raise DocumentError(_too_deep(limits)) from None
    except DocumentError:
        raise
    except ValueError as error:
        raise DocumentError(f"TOML expected ({_line(str(error))})") from None
    _check_depth(found, limits)
    return found


def parse_yaml(text: str | bytes, limits: DocumentLimits = LIMITS) -> Any:
    """Parse YAML text; scalars have their YAML 1.2 meaning (``1e9`` is a number).

    Dates are text, and only the tags of JSON's types are allowed. Messages do not quote
    the text, which may hold a password.

    Raises
    ------
    DocumentError
        Also for aliases that expand to too much, or that contain themselves.

    Examples
    --------
    >>> parse_yaml("{cpu: 1e3, day: 2001-99-99, on: yes}")
    {'cpu': 1000.0, 'day': '2001-99-99', 'on': 'yes'}
    """
    try:
        given = text if isinstance(text, str) else text.decode("utf-8-sig")
        _check_events(given, limits)
        return yaml.load(given, _Loader)
    except UnicodeDecodeError as error:
        raise DocumentError(f"not YAML: no UTF-8 at byte {error.start}") from None
    except yaml.MarkedYAMLError as error:
        # The parser has a limit of its own, from PyYAML 6.0.4 on.
        if "nesting depth" in (error.problem or ""):
            raise DocumentError(_too_deep(limits)) from None
        mark = error.problem_mark or error.context_mark
        at = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise DocumentError(f"not YAML{at}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError("not YAML") from None


# Types of error for which pydantic's message says more than a reader needs.
_EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "text",
    "tuple_type": "a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping"),
    "finite_number": "a finite number",
    "extra_forbidden": "no field of this name",
}


def first_problem(
    error: ValidationError, expected: Mapping[str, str] | None = None, *, hide: Iterable[str] = ()
) -> str:
    """The first problem of a document: the place, the value found, and what was expected.

    Parameters
    ----------
    error
        The error that pydantic raised.
    expected
        Type of error to what should be there, for those of which pydantic's message says too
        little.
    hide
        Fields whose value must not be shown.
    """
    first = error.errors(include_url=False)[0]
    place = ".".join(str(step) for step in first["loc"] if step != "[key]")
    say = {**_EXPECTED, **(expected or {})}.get(first["type"])
    if say is None:
        say = _lower(first["msg"].removeprefix("Value error, ").removeprefix("Input should be "))
    hidden = set(hide)
    # A problem of several fields together is one of the mapping that holds them.
    holds = isinstance(first["input"], Mapping) and not hidden.isdisjoint(first["input"])
    if (
        first["type"] == "missing"
        or holds
        or (hidden & set(first["loc"]) and first["loc"][-1] != "[key]")
    ):
        found = ""
    else:
        found = f"{shown(first['input'])} found, "
    ends = say.endswith(("expected", "found", "required"))
    return f"{shown_name(place)}: {found}{say}{'' if ends else ' expected'}".removeprefix(": ")


def shown(value: Any, limits: DocumentLimits = LIMITS) -> str:
    """A value as a message quotes it: short, and without control characters.

    Examples
    --------
    >>> len(shown("a" * 1000)), shown([1, "x"])
    (80, "[1, 'x']")
    """
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = limits.shown
    short.maxlevel = 3
    text = short.repr(value)
    return text if len(text) <= limits.shown else f"{text[:50]}...{text[-26:]}"


# Characters that terminals obey instead of showing: control characters, and bidirectional marks.
_CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text without control characters that a terminal or a page obeys; line breaks stay.

    Examples
    --------
    >>> printable("a\\x1b[31mb\\nc")
    'a\ufffd[31mb\\nc'
    """
    return _CONTROLS.sub("\ufffd", text)


def clipped(sentence: str, limits: DocumentLimits = LIMITS) -> str:
    """The sentence with overlong words, such as absurd names, cut in the middle."""
    words = rf"\S{{{limits.shown + 1},}}"
    text = re.sub(words, lambda word: f"{word[0][:50]}...{word[0][-26:]}", sentence)
    most = 10 * limits.shown
    return text if len(text) <= most else f"{text[:most]}..."


def shown_name(name: str, limits: DocumentLimits = LIMITS) -> str:
    """A name as a message shows it, quoted only where necessary."""
    if name.isprintable() and len(name) <= limits.shown:
        return name
    return shown(name, limits)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {shown(key)} found twice")
            seen.add(key)
    return found


def _finite(text: str) -> float:
    # YAML writes infinities and NaN with a dot, which float() rejects.
    value = float(text.replace(".", "", 1) if text[-1:].isalpha() else text)
    if not isfinite(value):
        raise DocumentError(f"number {shown_name(text)} found, a finite one expected")
    return value


def _too_deep(limits: DocumentLimits) -> str:
    return f"values nested more than {limits.depth} deep found, fewer levels expected"


def _check_depth(found: Any, limits: DocumentLimits) -> None:
    level = [found]
    for _ in range(limits.depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise DocumentError(_too_deep(limits))


def _check_events(text: str, limits: DocumentLimits) -> None:
    """Check depth and number of values before building any; an alias counts as its expansion."""
    total = 0
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise DocumentError("an alias found before its anchor")
            total += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, total))
            total += 1
            if len(opened) > limits.depth:
                raise DocumentError(_too_deep(limits))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if total > limits.nodes:
            raise DocumentError(
                f"more than {limits.nodes} values found (each alias counts as what it stands "
                "for), fewer expected"
            )


def _line(text: str) -> str:
    return " ".join(text.split())


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads only the YAML types that JSON has, as YAML 1.2 writes them; keys must be unique."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}


def _mapping(loader: Any, node: Any) -> dict[Hashable, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise DocumentError(f"line {node.start_mark.line + 1}: a mapping expected")
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        line = f"line {key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise DocumentError(f"{line}: a key that is no text or number found")
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node)
        if isinstance(key, bool) or not isinstance(key, str | int):
            key = key_node.value
            key_node.tag = "tag:yaml.org,2002:str"
            loader.constructed_objects[key_node] = key
        if key in seen:
            raise DocumentError(f"{line}: key {shown(key)} found twice")
        seen.add(key)
    loader.flatten_mapping(node)
    return {
        loader.construct_object(key_node, deep=True): loader.construct_object(value, deep=True)
        for key_node, value in node.value
    }


def _sequence(loader: Any, node: Any) -> list[Any]:
    if not isinstance(node, yaml.SequenceNode):
        raise DocumentError(f"line {node.start_mark.line + 1}: a list expected")
    return [loader.construct_object(item, deep=True) for item in node.value]


def _scalar(make: Any, what: str) -> Any:
    def construct(loader: Any, node: Any) -> Any:
        line = f"line {node.start_mark.line + 1}"
        if not isinstance(node, yaml.ScalarNode):
            raise DocumentError(f"{line}: {what} expected")
        try:
            return make(node.value)
        except DocumentError as error:
            raise DocumentError(f"{line}: {error}") from None
        except (ValueError, KeyError):
            raise DocumentError(f"{line}: {what} expected") from None

    return construct


def _unknown(loader: Any, node: Any) -> Any:
    raise DocumentError(
        f"line {node.start_mark.line + 1}: a tag found that is not one of JSON's types"
    )


def _whole(text: str) -> int:
    return int(text, {"0x": 16, "0o": 8}.get(text[:2], 10))


_TRUTH = {"true": True, "false": False}
_DIGITS = list("-+0123456789")
for _tag, _pattern, _starts, _make, _what in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], lambda text: None, "null"),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), lambda text: _TRUTH[text.lower()],
     "true or false"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", _DIGITS, _whole, "a whole number"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", [*_DIGITS, "."],
     _finite, "a finite number"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+."), _finite,
     "a finite number"),
):  # fmt: skip
    _name = f"tag:yaml.org,2002:{_tag}"
    _Loader.add_implicit_resolver(_name, re.compile(f"(?:{_pattern})\\Z"), _starts)
    _Loader.add_constructor(_name, _scalar(_make, _what))
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("<<\\Z"), ["<"])
_Loader.add_constructor("tag:yaml.org,2002:str", _scalar(str, "text"))
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _sequence)
_Loader.add_constructor(None, _unknown)
