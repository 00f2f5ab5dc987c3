"""Looks up the rows of a snapshot's arrays by the names in records."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from cluster_model.snapshot import Ints, Snapshot

UNKNOWN, AMBIGUOUS = -1, -2


class SnapshotIndex:
    """Rows of a snapshot by the names that records use; -1 for unknown names.

    Parameters
    ----------
    base
        The snapshot.
    """

    def __init__(self, base: Snapshot) -> None:
        self._base = base
        self._topics = {name: i for i, name in enumerate(base.topics)}
        self._first = np.searchsorted(base.partition_topic, np.arange(len(base.topics) + 1))

    def brokers(self, ids: Ints) -> Ints:
        """(n,) int: index of the brokers with these ids."""
        known = self._base.broker_ids
        at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return np.where(known[at] == ids, at, UNKNOWN)

    def topics(self, names: Iterable[str], underscored: Iterable[bool]) -> Ints:
        """(n,) int: index of each topic.

        A name whose dots may have become underscores is compared with names converted
        in the same way; -2 if several of them are equal.
        """
        rows = [
            self._underscored.get(name, UNKNOWN) if flag else self._topics.get(name, UNKNOWN)
            for name, flag in zip(names, underscored, strict=True)
        ]
        return np.array(rows, np.int64)

    def partitions(self, topic: Ints, number: Ints) -> Ints:
        """(n,) int: index of partitions by index of the topic and number."""
        base, found = self._base, np.full(len(topic), UNKNOWN)
        asked = np.flatnonzero((topic >= 0) & (number >= 0))
        if not len(asked):
            return found
        topic, number = topic[asked], number[asked]
        first, end = self._first[topic], self._first[topic + 1]
        # Numbers seldom have gaps, so a partition is nearly always at its number.
        guess = first + np.minimum(number, np.maximum(end - first - 1, 0))
        there = np.flatnonzero(first < end)
        hit = there[base.partition_number[guess[there]] == number[there]]
        found[asked[hit]] = guess[hit]
        for i in np.setdiff1d(there, hit, assume_unique=True).tolist():
            at = int(first[i]) + int(
                np.searchsorted(base.partition_number[first[i] : end[i]], number[i])
            )
            if at < end[i] and base.partition_number[at] == number[i]:
                found[asked[i]] = at
        return found

    def replicas(self, partition: Ints, broker: Ints) -> Ints:
        """(n,) int: the replica of a partition on a broker, both by index."""
        base, found = self._base, np.full(len(partition), UNKNOWN)
        left = np.flatnonzero((partition >= 0) & (broker >= 0))
        replica = base.replica_offset[partition[left]]
        while len(left):
            hit = base.replica_broker[replica] == broker[left]
            found[left[hit]] = replica[hit]
            left, replica = left[~hit], replica[~hit] + 1
            more = replica < base.replica_offset[partition[left] + 1]
            left, replica = left[more], replica[more]
        return found

    def led(self, topic: Ints, broker: Ints) -> tuple[Ints, Ints]:
        """(n,), (n,) int: range in :attr:`by_leader` of a topic's partitions led by a broker."""
        asked = np.where((topic >= 0) & (broker >= 0), self._key(topic, broker), -1)
        _, keys = self._leaders
        return np.searchsorted(keys, asked), np.searchsorted(keys, asked, "right")

    @property
    def by_leader(self) -> Ints:
        """Partitions that have a leader, sorted by topic and leading broker."""
        return self._leaders[0]

    @cached_property
    def _underscored(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for i, name in enumerate(self._base.topics):
            written = name.replace(".", "_")
            rows[written] = AMBIGUOUS if written in rows else i
        return rows

    @cached_property
    def _leaders(self) -> tuple[Ints, Ints]:
        base = self._base
        led = np.flatnonzero(base.leader >= 0)
        broker = base.replica_broker[base.replica_offset[led] + base.leader[led]]
        key = self._key(base.partition_topic[led], broker)
        order = np.argsort(key, kind="stable")
        return led[order], key[order]

    def _key(self, topic: Ints, broker: Ints) -> Ints:
        return topic * self._base.n_brokers + broker
