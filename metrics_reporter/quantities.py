"""Parses and formats bytes, rates, durations and counts for people: ``50MB/s``, ``1 move``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from pydantic import BeforeValidator

PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_FACTORS = {
    "": 1.0,
    **{p: 1000.0**i for i, p in enumerate("kmgtp", 1)},
    **{f"{p}i": 1024.0**i for i, p in enumerate("kmgtp", 1)},
}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"\s*(\d+\.?\d*(?:e\d+)?)\s*([kmgtp]?i?)b?\s*", re.ASCII)
# Mb, Gb: bits to some, bytes to others.
_BITS = re.compile(r"\d\s*[KMGTP]i?b(/s)?\s*$", re.ASCII)


def amount(value: float, unit: str = "B") -> str:
    """Format a number with three digits and a decimal prefix.

    Examples
    --------
    >>> amount(0), amount(1_500_000), amount(2e13, "B/s"), amount(999.9e9)
    ('0 B', '1.5 MB', '20 TB/s', '1 TB')
    """
    place = 0
    while abs(value) >= 999.5 and place < len(PREFIXES) - 1:
        value, place = value / 1000, place + 1
    return f"{value:.3g} {PREFIXES[place]}{unit}".rstrip()


def amounts(*values: float, unit: str = "B") -> tuple[str, ...]:
    """Format numbers with one common decimal prefix and enough digits to differ.

    Examples
    --------
    >>> amounts(8.19e13, 7.71e13), amounts(1.0002e9, 1e9, unit="B/s")
    (('81.9 TB', '77.1 TB'), ('1.0002 GB/s', '1 GB/s'))
    """
    largest = max(*map(abs, values), 1.0)
    step = min(int(math.log10(largest) // 3), len(PREFIXES) - 1)
    return distinct(*(v / 1000.0**step for v in values), unit=f" {PREFIXES[step]}{unit}")


def distinct(*values: float, unit: str = "") -> tuple[str, ...]:
    """Format numbers with three digits, or as many as they need to differ.

    Examples
    --------
    >>> distinct(12.0, 10.0), distinct(80.04, 80.0, unit=" %")
    (('12', '10'), ('80.04 %', '80 %'))
    """
    shown: tuple[str, ...] = ()
    for digits in range(3, 16):
        shown = tuple(f"{rounded(v, digits)}{unit}" for v in values)
        if len(set(shown)) == len(set(values)):
            break
    return shown


def rounded(value: float, digits: int = 4) -> str:
    """A number with so many digits, written out.

    Examples
    --------
    >>> rounded(15_000.0), rounded(1_234_567), rounded(0.12344), rounded(1_234_567, 6)
    ('15,000', '1,235,000', '0.1234', '1,234,570')
    """
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def cost_amount(value: float, unit: str) -> str:
    """A movement cost with its unit: bytes with a decimal prefix, other units as they are.

    Examples
    --------
    >>> cost_amount(1.5e6, "bytes"), cost_amount(12_345_678, "records"), cost_amount(1, "replicas")
    ('1.5 MB', '12,300,000 records', '1 replica')
    >>> cost_amount(1, "records"), cost_amount(1, "ms")
    ('1 record', '1 ms')
    """
    if unit == "bytes":
        return amount(value)
    (shown,) = distinct(value)
    # an abbreviation, such as ms, has no singular
    one = shown == "1" and len(unit) > 3
    return f"{shown} {unit.removesuffix('s') if one else unit}"


def percent(share: float) -> str:
    """A share as a percentage, never rounded to 100 or 0 from below or above.

    Examples
    --------
    >>> percent(1.0), percent(0.99999), percent(1.075), percent(0.0001)
    ('100 %', '99.9 %', '107.5 %', '<0.1 %')
    """
    shown = round(100 * share, 1)
    if shown == 100 and share < 1:
        shown = 99.9
    return f"{shown:g} %" if shown or share <= 0 else "<0.1 %"


def times(ratio: float) -> str:
    """A ratio, with as many digits as matter.

    Examples
    --------
    >>> times(1.0349), times(12.31)
    ('1.03 ×', '12.3 ×')
    """
    return f"{ratio:.2f} ×" if ratio < 9.995 else f"{ratio:.3g} ×"


def period(seconds: float) -> str:
    """A time in its two largest units.

    Examples
    --------
    >>> period(42.4), period(3_725), period(200_000), period(0.2)
    ('42 s', '1 h 2 min', '2 d 7 h', '1 s')
    """
    whole = max(1, round(seconds))
    steps = (("d", whole // 86400), ("h", whole // 3600 % 24), ("min", whole // 60 % 60))
    shown = [f"{count} {unit}" for unit, count in (*steps, ("s", whole % 60))]
    first = next((i for i, (_, count) in enumerate(steps) if count), len(steps))
    return " ".join(text for text in shown[first : first + 2] if not text.startswith("0 "))


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """A count with its noun; `nouns` is an irregular plural.

    Examples
    --------
    >>> plural(1, "move"), plural(1200, "move"), plural(2, "replica added", "replicas added")
    ('1 move', '1,200 moves', '2 replicas added')
    """
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def byte_count(text: str) -> float:
    """Bytes of ``"10GB"`` (powers of 1000) or ``"10GiB"`` (of 1024).

    Raises
    ------
    ValueError
        For any other text; the message gives the expected form.

    Examples
    --------
    >>> byte_count("1.5 GB"), byte_count("2KiB")
    (1500000000.0, 2048.0)
    """
    if _BITS.search(text):
        raise ValueError("bytes like 500MB, with a capital B, expected: Mb reads as bits")
    found = _SIZE.fullmatch(text.lower())
    if (
        found is None
        or found[2] not in _FACTORS
        or not math.isfinite(float(found[1]) * _FACTORS["pi"])
    ):
        raise ValueError("bytes like 500MB, 10GB or 2TiB expected")
    return float(found[1]) * _FACTORS[found[2]]


def byte_rate(text: str) -> float:
    """Bytes/s of ``"50MB/s"``, or of ``"50MB"``.

    Raises
    ------
    ValueError
        For any other text; the message gives the expected form.

    Examples
    --------
    >>> byte_rate("50MB/s"), byte_rate("1KiB")
    (50000000.0, 1024.0)
    """
    if _BITS.search(text):
        raise ValueError("bytes/s like 50MB/s, with a capital B, expected: Mb reads as bits")
    try:
        return byte_count(text.strip().removesuffix("/s"))
    except ValueError:
        raise ValueError("bytes/s like 50MB/s or 1GiB/s expected") from None


def duration(text: str) -> float:
    """Seconds of ``"30m"`` or ``"1.5 h"``.

    Raises
    ------
    ValueError
        For any other text; the message gives the expected form.

    Examples
    --------
    >>> duration("30m"), duration("250 ms")
    (1800.0, 0.25)
    """
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*(ms|[smhd])\s*", text, re.ASCII)
    if found is None:
        raise ValueError("seconds, or text like 250ms, 30m, 2h or 1d, expected")
    return float(found[1]) * _SECONDS[found[2]]


def _in(unit: Callable[[str], float]) -> BeforeValidator:
    """Validator for fields of models: text is parsed with its unit, anything else is kept."""
    return BeforeValidator(lambda value: unit(value) if isinstance(value, str) else value)


WithBytes, WithRate, WithDuration = _in(byte_count), _in(byte_rate), _in(duration)
