"""Untrusted text: what is accepted, and the messages about what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from metrics_reporter.documents import (
    DocumentError,
    DocumentLimits,
    as_model,
    clipped,
    load_document,
    load_mapping,
    parse_json,
    parse_toml,
    parse_yaml,
    read_document,
    shown,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    text = json.dumps(value)
    assert parse_json(text) == value
    assert parse_json(text.encode()) == value


@pytest.mark.slow
@given(st.binary() | st.text().map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_no_bytes_do_harm(data: bytes) -> None:
    for parse in (parse_json, parse_yaml, parse_toml):
        with suppress(DocumentError):
            parse(data)


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parse_json, "[" * 5000 + "]" * 5000, "nested more than 64 deep"),
        (parse_json, "[" * 100 + "]" * 100, "nested more than 64 deep"),
        (parse_json, '{"a": 1, "b": {"c": 1, "c": 2}}', "key 'c' found twice"),
        (parse_json, "[1e999]", "number 1e999 found, a finite one expected"),
        (parse_json, "[NaN]", "number NaN found"),
        (parse_json, '["\\ud800"]', "half of a surrogate pair"),
        (parse_json, b'"\xff"', "no UTF-8 at byte 1"),
        (parse_yaml, "[" * 5000 + "]" * 5000, "nested more than 64 deep"),
        (parse_yaml, "? " * 5000, "nested more than 64 deep"),
        (parse_yaml, BOMB, "each alias counts as what it stands for"),
        (parse_yaml, MERGES, "each alias counts as what it stands for"),
        (parse_yaml, "a: &a [*a]", "an alias found before its anchor"),
        (parse_yaml, "a: 1\nb: 2\na: 3\n", "line 3: key 'a' found twice"),
        (parse_yaml, "!!int x", "line 1: a whole number expected"),
        (parse_yaml, "a: .inf", "line 1: number .inf found, a finite one expected"),
        (parse_yaml, "!!python/object/apply:os.system [a]", "a tag found"),
        (parse_yaml, "password: hunter2: x", "not YAML, line 1"),
        (parse_toml, "a = " + "[" * 5000, "nested more than 64 deep"),
        (parse_toml, ".".join("a" * 300_000) + " = 1", "nested more than 64 deep"),
        (parse_toml, "a = nan", "number nan found"),
        (parse_toml, "a = 2001-99-99", "TOML expected"),
    ],
)
def test_what_is_refused(parse: Any, text: str | bytes, said: str) -> None:
    with pytest.raises(DocumentError) as reported:
        parse(text)
    assert said in str(reported.value)
    assert "hunter2" not in str(reported.value)
    assert len(str(reported.value)) < 300


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("010", 10),
        ("0x1F", 31),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2001-09-09", "2001-09-09"),
        ("~", None),
        ("{1: a, '1': b}", {1: "a", "1": "b"}),
        ("a: &a {x: 1}\nb: {<<: *a, y: 2}", {"a": {"x": 1}, "b": {"x": 1, "y": 2}}),
    ],
)
def test_what_yaml_means(text: str, value: Any) -> None:
    assert parse_yaml(text) == value


@pytest.mark.parametrize("suffix", [".json", ".toml", ".yaml"])
def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(" " * 101)
    limits = DocumentLimits(json_bytes=100, toml_bytes=100, yaml_bytes=100)
    with pytest.raises(DocumentError, match="more than 100 bytes found"):
        read_document(path, limits=limits)


@given(VALUES)
def test_a_value_in_a_message_is_short_and_printable(value: Any) -> None:
    assert len(shown(value)) <= 80
    assert shown(value).isprintable()
    assert len(clipped(f"{value!r}")) <= 803


class _Refused(Exception):
    """What a caller raises."""


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.yaml", None, "No such file or directory"),
        ("nul\0.yaml", None, "embedded null byte"),
        ("torn.json", "{", "not JSON: "),
        ("torn.toml", "a = ", "TOML expected ("),
        ("list.yaml", "- 1", "list found, a mapping of names expected"),
        ("plan.yaml", "{operation: x, actions: []}", "a plan found, a settings file expected"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence_of_the_callers_error(
    tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(_Refused) as refused:
        load_mapping(
            tmp_path / name, "file F", _Refused, "a settings file", expected="a mapping of names"
        )
    assert str(refused.value).startswith(f"file F: {said}")
    assert "\n" not in str(refused.value)


def test_a_document_becomes_a_model_or_one_sentence(tmp_path: Path) -> None:
    class Colours(BaseModel):
        sky: int
        secret: int = 0

    file = tmp_path / "colours.toml"
    file.write_text("sky = 3\n")
    found = as_model(Colours, load_document(file, "F", _Refused), "F", _Refused)
    assert found == Colours(sky=3)
    with pytest.raises(_Refused, match=r"^F: sky: 'blue' found, a whole number expected$"):
        as_model(Colours, {"sky": "blue"}, "F", _Refused)
    with pytest.raises(_Refused, match=r"^F: secret: a whole number expected$"):
        as_model(Colours, {"sky": 1, "secret": "x"}, "F", _Refused, hide=["secret"])
