"""What the checker knows of each kind of operation, and how it reads one from a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cluster_model.snapshot import Snapshot
from goals.patterns import valid_pattern
from metrics_reporter.documents import shown

_KINDS = {
    "rebalance": "",
    "add_brokers": "brokers",
    "remove_brokers": "brokers",
    "demote_brokers": "brokers",
    "fix_offline_replicas": "",
    "change_replication_factor": "replication_factor",
}
_ID_LISTS = (
    "brokers",
    "excluded_brokers_for_replicas",
    "excluded_brokers_for_leadership",
    "destinations",
)
_TEXT_LISTS = ("excluded_topics", "excluded_partitions", "frozen_partitions")
_FIELDS = {"kind", "replication_factor", *_TEXT_LISTS, *_ID_LISTS}


def wrong_operation(s: Snapshot, operation: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with an operation, one sentence each."""
    kind = operation.get("kind")
    if kind not in _KINDS:
        yield f"operation: kind {kind!r} found, one of {', '.join(_KINDS)} expected"
        return
    for name in sorted({*operation} - _FIELDS):
        yield f"operation: no field is called {name!r}"
    for name in ("brokers", "replication_factor"):
        if bool(operation.get(name)) != (_KINDS[kind] == name):
            yield f"operation {kind}: {name} {operation.get(name)!r} is wrong"
    known = set(s.broker_ids.tolist())
    for name in _ID_LISTS:
        ids = operation.get(name)
        ids = () if ids is None else ids
        if not isinstance(ids, list | tuple) or not all(b in known for b in ids):
            yield f"operation: {name} {ids!r} found, ids of brokers of the snapshot expected"
    for name in _TEXT_LISTS:
        texts = operation.get(name, ())
        if not isinstance(texts, list | tuple) or not all(isinstance(x, str) for x in texts):
            yield f"operation: {name} {texts!r} found, a list of text expected"
            return
    factors = operation.get("replication_factor") or {}
    for pattern, number in factors.items():
        if not isinstance(number, int) or number < 1:
            yield f"operation: {number!r} replicas of {pattern!r}, 1 or more expected"
    for pattern in (*operation.get("excluded_topics", ()), *factors):
        try:
            valid_pattern(pattern)
        except ValueError as error:
            yield f"operation: topic pattern {shown(pattern)}: {error}"
