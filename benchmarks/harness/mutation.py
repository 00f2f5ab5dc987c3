"""Breaks valid documents: flips, cuts and splices bytes, and replaces values by absurd ones."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np

_RAW = "@raw:"
# Text that JSON or YAML would not write, put in place of a value.
_TOKENS = (
    "NaN", "Infinity", "-Infinity", "1e999", "1e3", "-0", "010", "0x1F", "1_000", ".inf",
    "1" * 5000, "!!int x", "2001-99-99", "&a [*a]", "*unknown", "!!python/object:os.x {}",
    "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000, '{"a": 1, "a": 2}', "<<",
)  # fmt: skip
_MARKED = tuple((json.dumps(_RAW + token), token) for token in _TOKENS)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.0, 1.5, -0.0, 1e308, -1e308, 2**31, 2**53 + 1, 2**63 - 1,
    2**63, 2**64, -(2**63) - 1, "", "x", "1", "true", "1e9", "\0", "\x1b[31m", "[/]", "[red]",
    "ünï", "\u202e", "\ud800", "a" * 10_000, "../..", [], {}, [[]], [None], {"": None},
    {"a": {"b": [1, {"c": 2}]}}, [0] * 200,
)  # fmt: skip
_PIECES = (
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\n", b"\r", b"\x1b[2J", b"{", b"}", b"[", b"]", b'"', b"'",
    b":", b",", b"#", b"&a ", b"*a", b"- ", b"? ", b"!!", b"|\n", b"%YAML 9\n", b"---\n", b"...\n",
    b"<<: ", b"=", b"\\", b"\\u0000", b"e999", b"-", b".", b"\xc2\x85", b"\xe2\x80\xa8", b"PK\3\4",
    b"PK\1\2", b"PK\5\6", b"\x93NUMPY", b"\xff\xff\xff\xff", b"\x80\0\0\0\0\0\0\0", b"NaN", b"{}",
)  # fmt: skip


def corrupted(dice: Random, seeds: Sequence[bytes]) -> bytes:
    """A valid document with a few bytes changed, cut off, repeated, or taken from another."""
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.choice((1, 2, 4, 16, 200)))
        kind = dice.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at:end]
        elif kind == 4:
            data[at:at] = data[at:end] * dice.choice((1, 2, 100))
        elif kind == 5:
            other = dice.choice(seeds)
            start = dice.randrange(len(other) + 1)
            data[at:end] = other[start : start + dice.choice((4, 40, 400))]
        elif kind == 6:
            data[at:at] = dice.choice(_PIECES)
        else:
            data[at:end] = dice.choice(_PIECES)
    return bytes(data)


def mutated_json(dice: Random, value: Any) -> str:
    """JSON (and so YAML) of a document in which a few values are not what they should be."""
    value = json.loads(json.dumps(value))
    for _ in range(dice.choice((1, 1, 2, 4))):
        value = _mutate(dice, value)
    text = json.dumps(value)
    for marked, token in _MARKED if _RAW in text else ():
        text = text.replace(marked, token)
    return text


def mutated_npz(dice: Random, seed: bytes) -> bytes:
    """An archive of arrays, a few of which have another type, shape or value, or are missing."""
    with np.load(io.BytesIO(seed)) as data:
        arrays = dict(data)
    for _ in range(dice.choice((1, 1, 2))):
        name = dice.choice(sorted(arrays))
        array = arrays[name]
        kind = dice.randrange(7)
        if kind == 0:
            del arrays[name]
            continue
        if kind == 1:
            types = ("i1", "u8", "f4", "f8", "?", "U3", "c16", "S2", ">i8", "M8[s]", "i8")
            with np.errstate(all="ignore"):
                try:
                    array = array.astype(dice.choice(types))
                except (ValueError, TypeError):
                    array = np.zeros(array.shape)
        elif kind == 2:
            array = array[:-1] if array.ndim and len(array) else np.array([array])
        elif kind == 3:
            array = array.reshape(-1, 1) if dice.random() < 0.5 else np.array(0)
        elif kind == 4 and array.size and array.dtype.kind in "if":
            array = array.copy()
            worst = (-1, 0, 2**31, 2**62, -(2**63), 2**63 - 1)
            odd = (np.nan, np.inf, -1.0, 1e308, 5e-324)
            array.flat[dice.randrange(array.size)] = dice.choice(
                worst if array.dtype.kind == "i" else odd
            )
        elif kind == 5 and array.ndim:
            array = np.concatenate([array, array])
        elif kind == 6 and array.size > 1:
            array = array[::-1]
        arrays[name] = array
    return npz(arrays)


def npz(arrays: Mapping[str, Any]) -> bytes:
    """An archive as numpy writes it, with the same bytes at any time of day."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            file.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _mutate(dice: Random, value: Any) -> Any:
    """The same with one value, somewhere inside, replaced, removed, moved or repeated."""
    inside = isinstance(value, (dict, list)) and len(value) > 0
    if not inside or dice.random() < 0.1:
        if dice.random() < 0.4:
            return _RAW + dice.choice(_TOKENS)
        return deepcopy(dice.choice(_VALUES))
    key = dice.choice(sorted(value)) if isinstance(value, dict) else dice.randrange(len(value))
    kind = dice.randrange(20)
    if kind == 0:
        del value[key]
    elif kind == 1 and isinstance(value, list):
        value.append(deepcopy(value[key]))
    elif kind == 2 and isinstance(value, dict):
        value[str(dice.choice(_VALUES[:30]))[:50]] = value.pop(key)
    else:
        value[key] = _mutate(dice, value[key])
    return value
