"""Simulated annealing of moves and swaps of single replicas, compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    """The function, compiled when it is first called; the result is kept for other processes."""
    try:
        return cast(_Function, njit(cache=True)(function))
    except RuntimeError:
        # there is no folder to keep it in
        return cast(_Function, njit(function))


class Given(NamedTuple):
    """What does not change: N replicas on M brokers, R resources.

    ``load`` (N, R); ``home`` (N,) the broker of the start, -1 for none; ``mobile`` the replicas
    that may move, in ascending order of size, and ``rank`` (N,) their places in it; ``receivers``
    the brokers that may receive, ``receives`` (M,) as a mask; ``topic`` (N,), and ``may`` (T, M)
    whether a broker may hold a topic.

    Cost ``h`` is ``rate[h] * max(0, offset[m, h] + factor[h, 0] * load[one[h]] + factor[h, 1] *
    load[two[h]])``. Limit ``k`` is ``most[m, k]`` for resource ``limited[k]``, with what has left
    if ``former[k]``. A replica away from home costs ``fixed``, and ``scaled[k, n] * between[k, i,
    j]`` with the places ``place[k, m]`` of both brokers.

    Relation ``t`` has the kinds ``kind[t, n]``, the groups ``group[t, m]``, at most ``crowd[t]`` of
    a kind in a group; its counts begin at ``first[t]``, ``width[t]`` for each kind; kind ``s`` has
    number ``kinds[t] + s``, which needs ``least`` groups, the kinds ``needs`` from ``needs_begin``
    on, and is needed by ``needed`` from ``needed_begin`` on.
    """

    load: Any
    home: Any
    mobile: Any
    receivers: Any
    receives: Any
    topic: Any
    may: Any
    rank: Any
    one: Any
    two: Any
    factor: Any
    offset: Any
    rate: Any
    limited: Any
    former: Any
    most: Any
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

    ``at`` (N,) the broker of each replica, ``use`` (M, R) its load, ``left`` (M, R) that of
    replicas that have left it, ``cost`` (M,), ``count`` the replicas of each kind in each group,
    and ``reached`` the number of groups with a replica of each kind.
    """

    at: Any
    use: Any
    left: Any
    cost: Any
    count: Any
    reached: Any


@_compiled
def cost_of(given: Given, use: Any, m: int, minus: int, plus: int) -> Any:
    """What the load of a broker costs, without one replica and with another (-1 for none)."""
    total = 0.0
    for h in range(len(given.rate)):
        i, j = given.one[h], given.two[h]
        x = use[m, i]
        if minus >= 0:
            x -= given.load[minus, i]
        if plus >= 0:
            x += given.load[plus, i]
        cost = given.offset[m, h] + given.factor[h, 0] * x
        if j >= 0:
            x = use[m, j]
            if minus >= 0:
                x -= given.load[minus, j]
            if plus >= 0:
                x += given.load[plus, j]
            cost += given.factor[h, 1] * x
        if cost > 0:
            total += given.rate[h] * cost
    return total


@_compiled
def fits(given: Given, now: Now, m: int, plus: int, minus: int) -> bool:
    """Whether a broker takes a replica, and gives another away, within its limits."""
    for k in range(len(given.limited)):
        i = given.limited[k]
        used, more = now.use[m, i], given.load[plus, i]
        less = given.load[minus, i] if minus >= 0 else 0.0
        if given.former[k]:
            # what was here at the start counts until the end
            used += now.left[m, i]
            if given.home[plus] == m:
                more = 0.0
            if minus >= 0 and given.home[minus] == m:
                less = 0.0
        # what is above a limit may fall
        if more > less and used + more - less > given.most[m, k]:
            return False
    return True


@_compiled
def related(given: Given, now: Now, n: int, a: int, b: int) -> bool:
    """Whether a replica may go from broker `a` to `b` as far as relations are concerned."""
    for t in range(len(given.crowd)):
        x, y, s = given.group[t, a], given.group[t, b], given.kind[t, n]
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


@_compiled
def shift(given: Given, now: Now, n: int, a: int, b: int) -> None:
    """Count a replica in the groups of broker `b` instead of `a`."""
    for t in range(len(given.crowd)):
        x, y, s = given.group[t, a], given.group[t, b], given.kind[t, n]
        if x == y or s < 0:
            continue
        row, c = given.first[t] + s * given.width[t], given.kinds[t] + s
        if x >= 0:
            now.count[row + x] -= 1
            now.reached[c] -= now.count[row + x] == 0
        if y >= 0:
            now.reached[c] += now.count[row + y] == 0
            now.count[row + y] += 1


@_compiled
def carry(given: Given, now: Now, n: int, a: int, b: int) -> None:
    """Put a replica on broker `b` instead of `a`."""
    now.at[n] = b
    for r in range(now.use.shape[1]):
        load = given.load[n, r]
        now.use[a, r] -= load
        now.use[b, r] += load
        if given.home[n] == a:
            now.left[a, r] += load
        elif given.home[n] == b:
            now.left[b, r] -= load


@_compiled
def moved(given: Given, n: int, m: int) -> Any:
    """What it costs that a replica is on a broker."""
    home = given.home[n]
    if home == m or home < 0:
        return 0.0
    cost = given.fixed[n]
    for k in range(len(given.scaled)):
        cost += given.scaled[k, n] * given.between[k, given.place[k, home], given.place[k, m]]
    return cost


@_compiled
def anneal(
    given: Given,
    now: Now,
    rng: Any,
    steps: int,
    temperature: float,
    swaps: float,
    homeward: float,
    reach: int,
    safe: bool,
) -> Any:
    """Try some moves and swaps.

    Parameters
    ----------
    temperature
        A step that adds this much to the cost is accepted once in e.
    swaps, homeward
        Share of steps that exchange two replicas; and of those that lead back to the start.
    reach
        Replicas are exchanged with those that are up to this many places larger or smaller.
    safe
        Whether the first of two replicas to be exchanged must fit before the second has left.

    Returns
    -------
    tuple
        How much the cost rose, the steps that were scored, the sum of the costs that scored steps
        add, and how many add any.
    """
    brokers, risen, scored, added, adding = len(given.receivers), 0.0, 0, 0.0, 0
    for _ in range(steps):
        p = given.mobile[int(rng.random() * len(given.mobile))]
        a, q, kind = now.at[p], -1, rng.random()
        if kind < swaps:
            place = given.rank[p] + int(rng.random() * (2 * reach + 1)) - reach
            if place < 0 or place >= len(given.mobile):
                continue
            q = given.mobile[place]
            b = now.at[q]
            if a == b or not (given.receives[a] and given.may[given.topic[q], a]):
                continue
        elif kind < swaps + homeward:
            b = given.home[p]
        else:
            b = given.receivers[int(rng.random() * brokers)]
        if a == b or b < 0 or not (given.receives[b] and given.may[given.topic[p], b]):
            continue
        if not fits(given, now, b, p, -1 if safe else q) or (
            q >= 0 and not fits(given, now, a, q, p)
        ):
            continue
        scored += 1
        threshold = -temperature * math.log(1.0 - rng.random())
        change = moved(given, p, b) - moved(given, p, a) - now.cost[a] - now.cost[b]
        if q >= 0:
            change += moved(given, q, a) - moved(given, q, b)
        there = cost_of(given, now.use, b, q, p)
        if change + there > threshold:
            continue
        here = cost_of(given, now.use, a, p, q)
        change += here + there
        if change > 0:
            added += change
            adding += 1
        if change > threshold or not related(given, now, p, a, b):
            continue
        shift(given, now, p, a, b)
        if q >= 0:
            if not related(given, now, q, b, a):
                shift(given, now, p, b, a)
                continue
            shift(given, now, q, b, a)
            carry(given, now, q, b, a)
        carry(given, now, p, a, b)
        now.cost[a], now.cost[b] = here, there
        risen += change
    return risen, scored, added, adding


@_compiled
def approach(given: Given, now: Now, target: Any, pending: Any, harmless: bool) -> Any:
    """Carry out the moves to a placement that are possible one by one; returns the cost.

    Parameters
    ----------
    target : (N,)
        The broker of each replica in the placement.
    pending
        The replicas to move.
    harmless
        Whether only moves that do not raise the cost are carried out.
    """
    progress = True
    while progress:
        progress = False
        for k in range(len(pending)):
            n = pending[k]
            a, b = now.at[n], target[n]
            if a == b or not fits(given, now, b, n, -1) or not related(given, now, n, a, b):
                continue
            here = cost_of(given, now.use, a, n, -1)
            there = cost_of(given, now.use, b, -1, n)
            change = here + there - now.cost[a] - now.cost[b]
            if harmless and change + moved(given, n, b) - moved(given, n, a) > 0:
                continue
            now.cost[a], now.cost[b] = here, there
            shift(given, now, n, a, b)
            carry(given, now, n, a, b)
            progress = True
    total = 0.0
    for m in range(len(now.cost)):
        total += now.cost[m]
    for k in range(len(given.mobile)):
        total += moved(given, given.mobile[k], now.at[given.mobile[k]])
    return total
