"""Converts options to engine inputs: broker lists, byte counts, operations, budgets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from balancer.cli.plugins import options_of
from balancer.cli.terminal import CommandError
from metrics_reporter import quantities
from metrics_reporter.clients import servers
from metrics_reporter.documents import shown
from metrics_reporter.suggestions import hint

if TYPE_CHECKING:
    from balancer import Budget, Operation

# Kafka's ids have 32 bits.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def addresses(given: str | None) -> str | None:
    """Validate the addresses of brokers; returns them as given."""
    if given is not None:
        servers(given)
    return given


def broker_ids(option: str, text: str | None) -> tuple[int | str, ...]:
    """Broker ids of ``"4,5"``; an id that is not a number is a name.

    Examples
    --------
    >>> broker_ids("--add-brokers", "4, 5"), broker_ids("--destinations", "eu-1")
    ((4, 5), ('eu-1',))
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise CommandError(f"{option}: {shown(text)} found, broker ids like 4 or 4,5 expected")
    return tuple(int(part) if _NUMBER.fullmatch(part) else part for part in parts)


def byte_count(option: str, text: str) -> float:
    """Bytes of ``"10GB"`` (powers of 1000) or ``"10GiB"`` (of 1024).

    Examples
    --------
    >>> byte_count("--max-bytes", "1.5 GB"), byte_count("--max-bytes", "2KiB")
    (1500000000.0, 2048.0)
    """
    return _measured(option, text, quantities.byte_count)


def byte_rate(option: str, text: str | None) -> float | None:
    """Bytes/s of ``"50MB/s"``.

    Examples
    --------
    >>> byte_rate("--throttle", "50MB/s")
    50000000.0
    """
    return None if text is None else _measured(option, text, quantities.byte_rate)


def _measured(option: str, text: str, unit: Callable[[str], float]) -> float:
    try:
        return unit(text)
    except ValueError as error:
        raise CommandError(f"{option}: {shown(text)} found, {error}") from None


def factors(given: Sequence[str]) -> dict[str, int]:
    """Topic pattern to number of replicas, of ``"topic=3"``.

    Examples
    --------
    >>> factors(["orders=3", "log.*=2"])
    {'orders': 3, 'log.*': 2}
    """
    requested = {}
    for text in given:
        pattern, equals, number = text.rpartition("=")
        if not equals or not pattern or not _NUMBER.fullmatch(number.strip()):
            raise CommandError(
                f"--replication-factor: {shown(text)} found, TOPIC=NUMBER like orders=3 expected"
            )
        requested[pattern] = int(number)
    return requested


def operation(
    kind: str | None,
    brokers: Mapping[str, str | None],
    named_brokers: str | None,
    flags: Mapping[str, bool],
    replication_factor: Sequence[str],
    options: Sequence[str] | None,
    sizes: Mapping[str, float | None],
    **limits: Any,
) -> Operation:
    """The one operation that the options select; a rebalance if they name none.

    Parameters
    ----------
    kind
        The value of ``--operation``; the other options imply their operation.
    brokers
        Operation to the broker ids given with its option.
    named_brokers
        Broker ids of ``--operation``.
    flags
        Operation to whether an option selects it that takes no brokers.
    options
        Its options, each ``FIELD=VALUE``.
    sizes
        Options of ``right_size`` that have an option of their own; None if it is not given.
    limits
        Further fields of :class:`balancer.Operation`.

    Raises
    ------
    CommandError
        For two operations at once, or one that does not exist.
    """
    from balancer import Operation
    from balancer.problem.operations import OPERATIONS

    asked = [name for name, ids in brokers.items() if ids is not None]
    asked += [name for name, given in flags.items() if given]
    if kind is not None:
        known = OPERATIONS.names()
        kind = kind if kind in known else kind.replace("-", "_")
        if kind not in known:
            raise CommandError(
                f"--operation: {shown(kind)} found, one of {', '.join(known)} expected"
                f"{hint(kind, known)}"
            )
        asked = list(dict.fromkeys([kind, *asked]))
    if len(asked) > 1:
        raise CommandError(f"{' and '.join(asked)} asked for, one operation at a time expected")
    named = asked[0] if asked else "rebalance"
    option = f"--{named.replace('_', '-')}"
    ids = brokers.get(named)
    if named_brokers is not None:
        if ids is not None:
            raise CommandError(f"--brokers: given together with {option} IDS, one of them expected")
        if kind is None:
            raise CommandError("--brokers: goes with --operation NAME, which is not given")
        option, ids = "--brokers", named_brokers
    given = {name: value for name, value in sizes.items() if value is not None}
    if given and named != "right_size":
        raise CommandError(f"--{next(iter(given)).replace('_', '-')}: goes with --right-size")
    lag = limits.get("acceptable_lag", 0.0)
    if not 0 <= lag < math.inf:
        raise CommandError(f"--acceptable-lag: {lag} found, a number of at least 0 expected")
    return Operation.model_validate(
        {
            "kind": named,
            "brokers": broker_ids(option, ids),
            "replication_factor": factors(replication_factor),
            "options": options_of("--option", options, OPERATIONS, named) | given,
            **limits,
        }
    )


def budget(size: str | None, **limits: float | None) -> Budget:
    """Limits of the plan: the size in bytes as text, and the other fields of a budget."""
    from balancer import Budget

    try:
        given = None if size is None else byte_count("--max-bytes", size)
        return Budget.model_validate({"bytes": given, **limits})
    except ValidationError as error:
        first = error.errors()[0]
        expected = first["msg"].removeprefix("Input should be ")
        option = "--max-" + str(first["loc"][0]).replace("_", "-")
        raise CommandError(
            f"{option}: {shown(first['input'])} found, a number {expected} expected"
        ) from None
