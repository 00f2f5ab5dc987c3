"""What the checker knows about each kind of operation, and errors in the plan's operation.

A kind that is missing in :data:`OPERATIONS`, such as one from another package, is not an
error: the steps are replayed, and everything that depends on the kind is listed as unchecked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cluster_model.snapshot import Snapshot
from goals.patterns import matching, valid_pattern
from metrics_reporter.documents import shown


@dataclass(frozen=True, kw_only=True)
class OperationKind:
    """What one kind of operation allows and ensures.

    Parameters
    ----------
    requires
        The field that this kind requires, and that all other kinds must omit.
    empties
        Its brokers end up without replicas, and lead nothing.
    demotes
        Its brokers end up leading nothing.
    receivers
        Which brokers may receive replicas: any, only its own, or none.
    moves
        Which replicas may move, and which leaders may change: ``any``; ``offline``, those
        that must leave a dead or emptied broker or a dead disk; ``none``, no replica, and
        leaders only where they must; ``changed``, those of partitions whose number of
        replicas changes, excluded topics too.
    may_name
        Whether it may name brokers, or none.
    options
        Its options, each a number, with the least allowed and the first that is too large.
    known
        Whether the checker knows the kind. What an unknown kind allows is not checked.
    """

    requires: Literal["brokers", "replication_factor"] | None = None
    empties: bool = False
    demotes: bool = False
    receivers: Literal["any", "named", "none"] = "any"
    moves: Literal["any", "offline", "none", "changed"] = "any"
    may_name: bool = False
    options: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    known: bool = True

    @property
    def moves_what_must(self) -> bool:
        """Whether replicas and leaders may move only if they must."""
        return self.moves in ("offline", "none")


_RIGHT_SIZE = {
    "min_brokers": (1, math.inf),
    "max_brokers": (1, math.inf),
    "headroom": (0, 1),
}
OPERATIONS = {
    "rebalance": OperationKind(),
    "add_brokers": OperationKind(requires="brokers", receivers="named"),
    "remove_brokers": OperationKind(requires="brokers", empties=True, moves="offline"),
    "demote_brokers": OperationKind(
        requires="brokers", demotes=True, receivers="none", moves="none"
    ),
    "fix_offline_replicas": OperationKind(moves="offline"),
    "change_replication_factor": OperationKind(requires="replication_factor", moves="changed"),
    "right_size": OperationKind(may_name=True, empties=True, options=_RIGHT_SIZE),
}
_UNKNOWN = OperationKind(known=False)
# Fields of every operation, whatever its kind.
_ID_LISTS = (
    "excluded_brokers_for_replicas",
    "excluded_brokers_for_leadership",
    "destinations",
)
_TEXT_LISTS = ("excluded_topics", "excluded_partitions", "frozen_partitions")
_FIELDS = {
    "kind",
    "brokers",
    "replication_factor",
    "acceptable_lag",
    "allow_unmatched",
    *_TEXT_LISTS,
    *_ID_LISTS,
}


def kind_of(operation: Mapping[str, Any]) -> OperationKind:
    """What is known about the kind of an operation."""
    return OPERATIONS.get(operation["kind"], _UNKNOWN)


def wrong_operation(s: Snapshot, operation: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with an operation, one sentence each.

    For an unknown kind only the fields common to all operations are checked.
    """
    name = operation.get("kind")
    if not isinstance(name, str):
        yield f"operation: kind {shown(name)} found, text expected"
        return
    kind = kind_of(operation)
    id_lists: tuple[str, ...] = _ID_LISTS
    factors: Any = {}
    if kind.known:
        id_lists = ("brokers", *_ID_LISTS)
        factors = operation.get("replication_factor") or {}
        own = {"options"} if kind.options else set()
        for unknown in sorted({*operation} - _FIELDS - own):
            yield f"operation: no field is called {unknown!r}"
        for required in ("brokers", "replication_factor"):
            if required == "brokers" and kind.may_name:
                continue
            if bool(operation.get(required)) != (kind.requires == required):
                yield f"operation {name}: {required} {operation.get(required)!r} is wrong"
        yield from _wrong_options(kind, operation.get("options", {}))
    known = set(s.broker_ids.tolist())
    for listed in id_lists:
        ids = operation.get(listed)
        ids = () if ids is None else ids
        if not isinstance(ids, list | tuple) or not all(
            type(b) in (int, str) and b in known for b in ids
        ):
            yield f"operation: {listed} {ids!r} found, ids of brokers of the snapshot expected"
    for listed in _TEXT_LISTS:
        texts = operation.get(listed, ())
        if not isinstance(texts, list | tuple) or not all(isinstance(x, str) for x in texts):
            yield f"operation: {listed} {texts!r} found, a list of text expected"
            return
    lag = operation.get("acceptable_lag", 0.0)
    if isinstance(lag, bool) or not isinstance(lag, int | float) or not 0 <= lag < math.inf:
        yield f"operation: acceptable_lag {shown(lag)} found, a number of at least 0 expected"
    allowed = operation.get("allow_unmatched", False)
    if not isinstance(allowed, bool):
        yield f"operation: allow_unmatched {shown(allowed)} found, true or false expected"
    if not isinstance(factors, Mapping):
        yield f"operation: replication_factor {factors!r} found, a number by pattern expected"
        return
    for pattern, number in factors.items():
        if not isinstance(number, int) or number < 1:
            yield f"operation: {number!r} replicas of {pattern!r}, 1 or more expected"
    excluded = operation.get("excluded_topics", ())
    for pattern in (*excluded, *factors):
        try:
            valid_pattern(pattern)
        except ValueError as error:
            yield f"operation: topic pattern {shown(pattern)}: {error}"
            continue
        if pattern in excluded and not allowed and not matching(pattern, s.topics).any():
            yield f"operation: excluded_topics: {shown(pattern)} matches no topic"


def _wrong_options(kind: OperationKind, options: Any) -> Iterator[str]:
    """What is wrong with the options of a known kind."""
    if not isinstance(options, Mapping):
        yield f"operation: options {shown(options)} found, a mapping expected"
        return
    for name, value in options.items():
        if name not in kind.options:
            yield f"operation: no option is called {name!r}"
            continue
        least, below = kind.options[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            if value is not None:
                yield f"operation: {name} {shown(value)} found, a number expected"
        elif not least <= value < below:
            yield f"operation: {name} {shown(value)} found, {least} up to below {below} expected"
