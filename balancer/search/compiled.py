"""Simulated annealing of moves and swaps of single replicas, compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Pairs and replicas that exchanges of targets look at, for each replica.
_WORK = 200
# Counting references to arrays would take most of the time; the functions make no array.
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}


def _compiled(function: _Function, **options: Any) -> _Function:
    """The function, compiled when it is first called; the result is kept for other processes."""
    options = _OPTIONS | options
    try:
        return cast(_Function, njit(cache=True, **options)(function))
    except RuntimeError:
        # there is no folder to keep it in
        return cast(_Function, njit(**options)(function))


def _inlined(function: _Function) -> _Function:
    """The function as a part of the compiled ones that call it: to pass arrays on takes time."""
    return _compiled(function, forceinline=True)


class Given(NamedTuple):
    """What does not change: N replicas that may move, in ascending order of size, and M brokers.

    ``home`` (N,) the broker of the start, -1 for none; ``receivers`` the brokers that may receive;
    ``may`` (T, M) whether a broker may hold a replica of the class ``topic`` (N,); ``family`` (N,)
    the topic of each, whose replicas are ``members`` from ``members_begin`` on.

    A replica adds ``worth`` (N, H) to the excess of its broker, and ``need`` (N, K) to what it uses
    of the limits, of which the first ``former`` also count what has left. A replica away from home
    costs ``fixed``, and ``scaled[n, k] * between[k, i, j]`` with the places ``place[k, m]`` of both
    brokers.

    Relation ``t`` has the kinds ``kind[n, t]``, the groups ``group[t, m]``, at most ``crowd[t]`` of
    a kind in a group; its counts begin at ``first[t]``, ``width[t]`` for each kind; kind ``s`` has
    number ``kinds[t] + s``, which needs ``least`` groups, the kinds ``needs`` from ``needs_begin``
    on, and is needed by ``needed`` from ``needed_begin`` on.
    """

    home: Any
    receivers: Any
    topic: Any
    may: Any
    family: Any
    members_begin: Any
    members: Any
    worth: Any
    need: Any
    former: int
    fixed: Any
    scaled: Any
    place: Any
    between: Any
    kind: Any
    group: Any
    crowd: Any
    first: Any
    width: Any
    kinds: Any
    least: Any
    needs_begin: Any
    needs: Any
    needed_begin: Any
    needed: Any


class Now(NamedTuple):
    """A placement, and what is summed of it.

    ``at`` (N,) the broker of each replica; ``excess`` (M, H) by how much each broker is above the
    amount of each cost, below 0 if it is below; ``room`` (M, K) what its limits leave; ``cost``
    (M,) the sum of the excess above 0; ``count`` the replicas of each kind in each group, and
    ``reached`` the number of groups with a replica of each kind.
    """

    at: Any
    excess: Any
    room: Any
    cost: Any
    count: Any
    reached: Any


@_inlined
def _drawn(state: Any) -> Any:
    """64 random bits (xorshift; Marsaglia, Journal of Statistical Software, 2003)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@_inlined
def _below(bits: Any, number: Any) -> Any:
    """A number from 0 to below `number`, from 32 random bits."""
    return np.int64((bits * np.uint64(number)) >> np.uint64(32))


@_inlined
def _cost(given: Given, now: Now, m: int, minus: int, plus: int) -> Any:
    """What the load of a broker costs, without one replica and with another (-1 for none)."""
    total = 0.0
    if minus < 0:
        for h in range(given.worth.shape[1]):
            total += max(now.excess[m, h] + given.worth[plus, h], 0.0)
    elif plus < 0:
        for h in range(given.worth.shape[1]):
            total += max(now.excess[m, h] - given.worth[minus, h], 0.0)
    else:
        for h in range(given.worth.shape[1]):
            more = given.worth[plus, h] - given.worth[minus, h]
            total += max(now.excess[m, h] + more, 0.0)
    return total


@_inlined
def _fits(given: Given, now: Now, m: int, plus: int, minus: int) -> bool:
    """Whether a broker takes a replica, and gives another away, within its limits."""
    # what was here at the start counts until the end
    if given.home[plus] != m:
        leaves = minus >= 0 and given.home[minus] != m
        for k in range(given.former):
            more = given.need[plus, k]
            if leaves:
                more -= given.need[minus, k]
            # what is above a limit may fall
            if more > 0 and more > now.room[m, k]:
                return False
    for k in range(given.former, given.need.shape[1]):
        more = given.need[plus, k]
        if minus >= 0:
            more -= given.need[minus, k]
        if more > 0 and more > now.room[m, k]:
            return False
    return True


@_inlined
def _related(given: Given, now: Now, n: int, a: int, b: int) -> bool:
    """Whether a replica may go from broker `a` to `b` as far as relations are concerned."""
    for t in range(len(given.crowd)):
        x, y, s = given.group[t, a], given.group[t, b], given.kind[n, t]
        if x == y or s < 0:
            continue
        row, c = given.first[t] + s * given.width[t], given.kinds[t] + s
        if y >= 0 and given.crowd[t] > 0 and now.count[row + y] >= given.crowd[t]:
            return False
        last = x >= 0 and now.count[row + x] == 1
        new = y >= 0 and now.count[row + y] == 0
        if last and not new and now.reached[c] - 1 < given.least[c]:
            return False
        if y >= 0:
            for k in range(given.needs_begin[c], given.needs_begin[c + 1]):
                other = given.needs[k]
                if other < 0 or now.count[given.first[t] + other * given.width[t] + y] == 0:
                    return False
        if last:
            for k in range(given.needed_begin[c], given.needed_begin[c + 1]):
                if now.count[given.first[t] + given.needed[k] * given.width[t] + x] > 0:
                    return False
    return True


@_inlined
def _shift(given: Given, now: Now, n: int, a: int, b: int) -> None:
    """Count a replica in the groups of broker `b` instead of `a`."""
    for t in range(len(given.crowd)):
        x, y, s = given.group[t, a], given.group[t, b], given.kind[n, t]
        if x == y or s < 0:
            continue
        row, c = given.first[t] + s * given.width[t], given.kinds[t] + s
        if x >= 0:
            now.count[row + x] -= 1
            now.reached[c] -= now.count[row + x] == 0
        if y >= 0:
            now.reached[c] += now.count[row + y] == 0
            now.count[row + y] += 1


@_inlined
def _carry(given: Given, now: Now, n: int, a: int, b: int) -> None:
    """Put a replica on broker `b` instead of `a`."""
    now.at[n] = b
    for h in range(given.worth.shape[1]):
        worth = given.worth[n, h]
        now.excess[a, h] -= worth
        now.excess[b, h] += worth
    for k in range(given.need.shape[1]):
        need = given.need[n, k]
        if k >= given.former or given.home[n] != a:
            now.room[a, k] += need
        if k >= given.former or given.home[n] != b:
            now.room[b, k] -= need


@_inlined
def _moved(given: Given, n: int, m: int) -> Any:
    """What it costs that a replica is on a broker."""
    home = given.home[n]
    if home == m or home < 0:
        return 0.0
    cost = given.fixed[n]
    for k in range(given.scaled.shape[1]):
        cost += given.scaled[n, k] * given.between[k, given.place[k, home], given.place[k, m]]
    return cost


@_compiled
def anneal(
    given: Given,
    now: Now,
    state: Any,
    steps: int,
    temperature: float,
    swaps: float,
    homeward: float,
    window: int,
    stay: int,
    safe: bool,
) -> Any:
    """Try some moves and swaps.

    Parameters
    ----------
    state : (1,) uint64
        State of the random numbers, not 0.
    temperature
        A step that adds this much to the cost is accepted once in e.
    swaps, homeward
        Share of steps that exchange two replicas; and of those that lead back to the start.
    window, stay
        For so many steps in a row, replicas are drawn among so many of similar size: those are then
        in the processor's cache, and exchanges are between replicas of similar size.
    safe
        Whether the first of two replicas to be exchanged must fit before the second has left.

    Returns
    -------
    tuple
        How much the cost rose, the steps that were scored, the sum of the costs that scored steps
        add, and how many add any.
    """
    replicas, brokers, half = len(now.at), len(given.receivers), np.uint64(32)
    low = np.uint64(0xFFFFFFFF)
    swap, back = np.uint64(swaps * 2.0**32), np.uint64((swaps + homeward) * 2.0**32)
    risen, scored, added, adding, begin = 0.0, 0, 0.0, 0, 0
    for step in range(steps):
        if step % stay == 0:
            # the smallest and the largest are drawn as often as others
            begin = _below(_drawn(state) & low, replicas + window) - window
            begin = min(max(begin, 0), replicas - window)
        one, two = _drawn(state), _drawn(state)
        p, kind = begin + _below(one & low, window), one >> half
        a, q = now.at[p], -1
        if kind < swap:
            q = begin + _below(two & low, window)
            b = now.at[q]
            if a == b or not given.may[given.topic[q], a]:
                continue
        elif kind < back:
            b = given.home[p]
        else:
            b = given.receivers[_below(two & low, brokers)]
        if a == b or b < 0 or not given.may[given.topic[p], b]:
            continue
        if not _fits(given, now, b, p, -1 if safe else q):
            continue
        if q >= 0 and not _fits(given, now, a, q, p):
            continue
        scored += 1
        # a random number above 0
        threshold = -temperature * math.log(((two >> half) + 0.5) * 2.0**-32)
        change = _moved(given, p, b) - _moved(given, p, a) - now.cost[a] - now.cost[b]
        if q >= 0:
            change += _moved(given, q, a) - _moved(given, q, b)
        if change > threshold:
            continue
        there = _cost(given, now, b, q, p)
        if change + there > threshold:
            continue
        here = _cost(given, now, a, p, q)
        change += here + there
        if change > 0:
            added += change
            adding += 1
        if change > threshold or not _related(given, now, p, a, b):
            continue
        _shift(given, now, p, a, b)
        if q >= 0:
            if not _related(given, now, q, b, a):
                _shift(given, now, p, b, a)
                continue
            _shift(given, now, q, b, a)
            _carry(given, now, q, b, a)
        _carry(given, now, p, a, b)
        now.cost[a], now.cost[b] = here, there
        risen += change
    return risen, scored, added, adding


@_inlined
def _passes(given: Given, now: Now, n: int, b: int, other: int, q: int) -> bool:
    """Whether a replica is on broker `b` or can go there at once, and another may be on `other`."""
    a = now.at[n]
    if now.at[q] != other and not given.may[given.topic[q], other]:
        return False
    if a == b:
        return True
    if not given.may[given.topic[n], b]:
        return False
    return _fits(given, now, b, n, -1) and _related(given, now, n, a, b)


@_inlined
def _exchange(given: Given, now: Now, target: Any, most: Any) -> Any:
    """Exchange the targets of two replicas of a topic so that one of them can move or stays.

    Looks at no more than `most` pairs; returns whether it did, and at how many it looked.
    """
    looks = 0
    for n in range(len(target)):
        if now.at[n] == target[n]:
            continue
        topic = given.family[n]
        for k in range(given.members_begin[topic], given.members_begin[topic + 1]):
            q = given.members[k]
            looks += 1
            if looks > most:
                return False, looks
            if target[q] != target[n] and (
                _passes(given, now, n, target[q], target[n], q)
                or _passes(given, now, q, target[n], target[q], n)
            ):
                target[n], target[q] = target[q], target[n]
                return True, looks
    return False, looks


@_compiled
def approach(given: Given, now: Now, target: Any, harmless: bool) -> Any:
    """Carry out the moves to a placement that are possible one by one; returns the cost.

    Parameters
    ----------
    target : (N,)
        The broker of each replica in the placement. Where a replica cannot go to its own, it takes
        that of another of its topic, and the other its: this changes the array.
    harmless
        Whether only moves that do not raise the cost are carried out, to these brokers.
    """
    # Each exchange is followed by another pass: the work of all of them is limited.
    progress, work = True, 0 if harmless else _WORK * len(target)
    while progress:
        progress = False
        for n in range(len(target)):
            a, b = now.at[n], target[n]
            if a == b or not _fits(given, now, b, n, -1) or not _related(given, now, n, a, b):
                continue
            here, there = _cost(given, now, a, n, -1), _cost(given, now, b, -1, n)
            change = here + there - now.cost[a] - now.cost[b]
            if harmless and change + _moved(given, n, b) - _moved(given, n, a) > 0:
                continue
            now.cost[a], now.cost[b] = here, there
            _shift(given, now, n, a, b)
            _carry(given, now, n, a, b)
            progress = True
        if not progress and work > 0:
            progress, looks = _exchange(given, now, target, work)
            work -= looks + len(target)
    total = 0.0
    for m in range(len(now.cost)):
        total += now.cost[m]
    for n in range(len(target)):
        total += _moved(given, n, now.at[n])
    return total
