"""Finds the partitions that communicate: the pairs worth placing on one broker."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from metrics_reporter.arrays import read_only


def communicating(snapshot: Snapshot, factor: float) -> tuple[Ints, Ints, Floats]:
    """Pairs of partitions that gain from collocation (seed 001, Section 4.3.2, step 1).

    Pairs whose sender sends to the receiver more than `factor` times its average rate to a
    downstream partition. Downstream are all partitions of each topic that any partition of
    the sender's topic sends to.

    Parameters
    ----------
    snapshot
        With traffic; without it there are no pairs.
    factor
        sF, at least 0: larger values give fewer pairs.

    Returns
    -------
    sender, receiver : (E,) int
        Each pair once, in ascending order; no partition is paired with itself.
    rate : (E,) float
        Rate from sender to receiver, in the unit of the snapshot's traffic.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from cluster_model import synthetic_snapshot
    >>> some = synthetic_snapshot(brokers=3, partitions=8, replication_factor=1, racks=1, topics=2)
    >>> talks = replace(some, traffic_from=[0, 0], traffic_to=[4, 5], traffic_rate=[9.0, 1.0])
    >>> [array.tolist() for array in communicating(talks, 1.5)]
    [[0], [4], [9.0]]
    """
    s = snapshot
    sender, receiver, rate = distinct_pairs(s.traffic_from, s.traffic_to, s.traffic_rate)
    kept = above_average(s.partition_topic, sender, receiver, rate, factor)
    return sender[kept], receiver[kept], rate[kept]


def distinct_pairs(source: Ints, target: Ints, rate: Floats) -> tuple[Ints, Ints, Floats]:
    """Each pair once, in ascending order, with its total rate; no self-pairs, no zero rates.

    Examples
    --------
    >>> a, b, out = distinct_pairs(np.array([3, 1, 3, 2]), np.array([1, 3, 1, 2]), np.ones(4))
    >>> a.tolist(), b.tolist(), out.tolist()
    ([1, 3], [3, 1], [1.0, 2.0])
    """
    kept = (source != target) & (rate > 0)
    ends = np.stack([source[kept], target[kept]])
    order = np.lexsort(ends[::-1])
    ends, rate = ends[:, order], rate[kept][order]
    new = np.ones(len(rate), np.bool_)
    new[1:] = (ends[:, 1:] != ends[:, :-1]).any(axis=0)
    total: Floats = np.bincount(np.cumsum(new) - 1, rate, int(new.sum())).astype(np.float64)
    return ends[0, new], ends[1, new], total


def above_average(
    operator: Ints, sender: Ints, receiver: Ints, rate: Floats, factor: float
) -> Bools:
    """(E,) bool: which pairs have more than `factor` times their sender's average rate.

    Parameters
    ----------
    operator : (n,) int
        The operator (topic) of each thing that sends and receives.
    sender, receiver : (E,) int
        Each pair once.
    rate : (E,) float
        Rate from the first to the second.
    factor
        sF. The average is over all things of each operator that receives from any of the
        sender's operator.
    """
    operators = int(operator.max(initial=0)) + 1
    streams = np.unique(operator[sender] * operators + operator[receiver])
    size = np.bincount(operator, minlength=operators)
    downstream = np.bincount(streams // operators, size[streams % operators], operators)
    mean = np.bincount(sender, rate, len(operator))[sender] / downstream[operator[sender]]
    above: Bools = rate > factor * mean
    return above


class Traffic:
    """Traffic between partitions that should be collocated, both directions added up.

    Parameters
    ----------
    snapshot
        With traffic; without it all rates are 0.
    factor
        sF of :func:`communicating`.

    Attributes
    ----------
    one, two : (E,) int
        Each pair of partitions once.
    rate : (E,) float
        Their mutual traffic.
    total : (P,) float
        Traffic of each partition with all others.
    """

    def __init__(self, snapshot: Snapshot, factor: float) -> None:
        sender, receiver, rate = communicating(snapshot, factor)
        n = self._partitions = snapshot.n_partitions
        pair, at = np.unique(
            np.minimum(sender, receiver) * n + np.maximum(sender, receiver), return_inverse=True
        )
        self.one: Ints = read_only(pair // max(n, 1))
        self.two: Ints = read_only(pair % max(n, 1))
        self.rate: Floats = read_only(np.bincount(at, rate, len(pair)).astype(np.float64))
        ends = np.concatenate([self.one, self.two])
        rates = np.concatenate([self.rate, self.rate])
        self.total: Floats = read_only(np.bincount(ends, rates, n).astype(np.float64))
        order = np.argsort(ends, kind="stable")
        self._other: Ints = np.concatenate([self.two, self.one])[order]
        self._rate: Floats = rates[order]
        self._start: Ints = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))])

    def local(self, where: Ints, brokers: int) -> Floats:
        """(B,) traffic between partitions on the same broker, counted once for either end.

        Parameters
        ----------
        where : (P,) int
            The broker of each partition.
        brokers
            B, the number of brokers.
        """
        here = where[self.one]
        together = (here == where[self.two]) & (here >= 0)
        return 2 * np.bincount(here[together], self.rate[together], brokers).astype(np.float64)

    def neighbours(self, partition: Ints) -> tuple[Ints, Ints, Floats]:
        """All pairs of some partitions: the input row, the other partition, and the rate."""
        degree = self._start[partition + 1] - self._start[partition]
        row = np.repeat(np.arange(len(partition)), degree)
        rank = np.arange(len(row)) - np.repeat(np.cumsum(degree) - degree, degree)
        at = self._start[partition][row] + rank
        return row, self._other[at], self._rate[at]

    def changes(
        self, where: Ints, partition: Ints, source: Ints, target: Ints, row: Ints | None = None
    ) -> tuple[Floats, Floats]:
        """(M,), (M,) local traffic that the source of each move loses and its target gains.

        In O(degree) per move.

        Parameters
        ----------
        where : (P,) int
            The broker of each partition at the start.
        partition, source, target : (M,) int
            The partition, and the brokers that it moves from and to.
        row : (M,) int
            Moves of a row are applied one after the other, each partition once per row; rows
            are independent. None: each move alone.
        """
        move, other, rate = self.neighbours(partition)
        there = where[other]
        if row is not None:
            key, requested = (
                row * self._partitions + partition,
                row[move] * self._partitions + other,
            )
            order = np.argsort(key, kind="stable")
            place = np.searchsorted(key[order], requested)
            found = order[np.minimum(place, max(len(order) - 1, 0))]
            gone = (key[found] == requested) & (found < move)
            there = np.where(gone, target[found], there)

        def at(end: Ints) -> Floats:
            together = (there == end[move]) & (there >= 0)
            return 2 * np.bincount(move, rate * together, len(partition)).astype(np.float64)

        return at(source), at(target)


def connected(n: int, one: Ints, two: Ints) -> Ints:
    """(n,) the smallest member of the set that each of n things belongs to.

    Parameters
    ----------
    n
        Number of things.
    one, two : (E,) int
        Pairs of things that are in the same set.

    Examples
    --------
    >>> connected(5, np.array([3, 1]), np.array([4, 3])).tolist()
    [0, 1, 2, 1, 1]
    """
    label: Ints = np.arange(n)
    while True:
        least = np.minimum(label[one], label[two])
        new = label.copy()
        # update the set's label as well as the pair's, so that long chains take few rounds
        for end in (label[one], label[two], one, two):
            np.minimum.at(new, end, least)
        new = new[new]
        if np.array_equal(new, label):
            return label
        label = new
