"""Simulated annealing of moves and swaps of single replicas, compiled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from balancer.search.compilation import compiled, inlined


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


class Way(NamedTuple):
    """Moves from one placement to another, and what is noted on the way.

    ``steps`` (S, 3) the replica of each move, its broker before, and after; S is the most that are
    made; ``later`` (S,) the next move of the same replica. ``waiting`` (N,) the replicas that are
    not at their target, of which the number is passed on, and ``turn`` (N,) where each is among
    them. ``first`` (M,) a replica of each broker, ``after`` and ``before`` (N,) the next one and
    the one before. All but the first and third are -1 where there is none.
    """

    steps: Any
    later: Any
    waiting: Any
    turn: Any
    first: Any
    after: Any
    before: Any


def new_way(replicas: int, brokers: int, most: int) -> Way:
    """A way of no more than so many moves."""
    sizes = (most, 3), most, replicas, replicas, brokers, replicas, replicas
    return Way(*(np.empty(size, np.int64) for size in sizes))


@inlined
def _drawn(state: Any) -> Any:
    """64 random bits (xorshift; Marsaglia, Journal of Statistical Software, 2003)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@inlined
def _below(bits: Any, number: Any) -> Any:
    """A number from 0 to below `number`, from 32 random bits."""
    return np.int64((bits * np.uint64(number)) >> np.uint64(32))


@inlined
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


@inlined
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


@inlined
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


@inlined
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


@inlined
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


@inlined
def _moved(given: Given, n: int, m: int) -> Any:
    """What it costs that a replica is on a broker."""
    home = given.home[n]
    if home == m or home < 0:
        return 0.0
    cost = given.fixed[n]
    for k in range(given.scaled.shape[1]):
        cost += given.scaled[n, k] * given.between[k, given.place[k, home], given.place[k, m]]
    return cost


@compiled
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


@inlined
def _goes(given: Given, now: Now, n: int, b: int) -> bool:
    """Whether a replica can go to broker `b` at once."""
    return _fits(given, now, b, n, -1) and _related(given, now, n, now.at[n], b)


@inlined
def _put(given: Given, now: Now, n: int, b: int) -> None:
    """Put a replica on broker `b`, with all that is summed and counted."""
    a = now.at[n]
    _shift(given, now, n, a, b)
    _carry(given, now, n, a, b)
    now.cost[a] = now.cost[b] = 0.0
    for h in range(given.worth.shape[1]):
        now.cost[a] += max(now.excess[a, h], 0.0)
        now.cost[b] += max(now.excess[b, h], 0.0)


@inlined
def _note(way: Way, made: int, n: int, a: int, b: int) -> None:
    way.steps[made, 0], way.steps[made, 1], way.steps[made, 2] = n, a, b


@compiled
def approach(given: Given, now: Now, target: Any, harmless: bool, way: Way, made: int) -> Any:
    """Carry out the moves to a placement that are possible one by one.

    Parameters
    ----------
    target : (N,)
        The broker of each replica in the placement.
    harmless
        Whether only moves that do not raise the cost are carried out, to these brokers.
    way, made
        Notes the moves, after so many that it holds.

    Returns
    -------
    int
        How many moves the way holds now.
    """
    progress = True
    while progress:
        progress = False
        for n in range(len(target)):
            a, b = now.at[n], target[n]
            if a == b or made == len(way.steps) or not _goes(given, now, n, b):
                continue
            if harmless:
                change = _cost(given, now, a, n, -1) + _cost(given, now, b, -1, n)
                change += _moved(given, n, b) - _moved(given, n, a)
                if change > now.cost[a] + now.cost[b]:
                    continue
            _note(way, made, n, a, b)
            made += 1
            _put(given, now, n, b)
            progress = True
    return made


@compiled
def total_cost(given: Given, now: Now) -> Any:
    """What a placement costs."""
    total = 0.0
    for m in range(len(now.cost)):
        total += now.cost[m]
    for n in range(len(now.at)):
        total += _moved(given, n, now.at[n])
    return total


@inlined
def _listed(way: Way, n: int, b: int) -> None:
    """Put a replica first on the list of broker `b`."""
    way.after[n], way.before[n] = way.first[b], -1
    if way.first[b] >= 0:
        way.before[way.first[b]] = n
    way.first[b] = n


@inlined
def _counted(now: Now, target: Any, way: Way, n: int, several: int) -> Any:
    """How many replicas wait when one of them has moved, or has another target."""
    if (now.at[n] != target[n]) == (way.turn[n] >= 0):
        return several
    if way.turn[n] < 0:
        way.waiting[several], way.turn[n] = n, several
        return several + 1
    last = way.waiting[several - 1]
    way.waiting[way.turn[n]], way.turn[last] = last, way.turn[n]
    way.turn[n] = -1
    return several - 1


@compiled
def _shifted(given: Given, now: Now, target: Any, way: Way, n: int, b: int, several: int) -> Any:
    """Put a replica on broker `b`; returns how many wait then."""
    after, before = way.after[n], way.before[n]
    if before >= 0:
        way.after[before] = after
    else:
        way.first[now.at[n]] = after
    if after >= 0:
        way.before[after] = before
    _put(given, now, n, b)
    _listed(way, n, b)
    return _counted(now, target, way, n, several)


@inlined
def _blocker(given: Given, way: Way, n: int, b: int, choice: Any, bits: Any) -> Any:
    """A replica that may be in the way of another to broker `b`, at random; -1 for none."""
    if choice == 0:
        return n
    if choice == 1:
        begin, end = given.members_begin[given.family[n]], given.members_begin[given.family[n] + 1]
        return np.int64(given.members[begin + _below(bits, end - begin)])
    several, q = 0, way.first[b]
    while q >= 0:
        several, q = several + 1, way.after[q]
    if several == 0:
        return -1
    q = way.first[b]
    for _ in range(_below(bits, several)):
        q = way.after[q]
    return q


@compiled
def detour(
    given: Given,
    now: Now,
    target: Any,
    state: Any,
    tries: int,
    looks: int,
    way: Way,
    made: int,
) -> Any:
    """Let replicas go over other brokers where those that wait for each other are in the way.

    Each try puts a random replica that may be in the way on another broker, or exchanges the
    targets of two of a topic, and carries out what is possible then; it is taken back if more wait
    than before. Ends when so many tries in a row have left no fewer, or after so many looks.

    Parameters
    ----------
    target : (N,)
        The broker of each replica in the placement to reach; exchanges change it.
    state : (1,) uint64
        State of the random numbers, not 0.
    tries
        In the second half of them, targets are exchanged too.
    looks
        How often to look whether a replica that waits can go.
    way, made
        Notes the moves, after so many that it holds.

    Returns
    -------
    tuple
        How many moves the way holds now, and how many replicas wait.
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    brokers, several = len(given.receivers), 0
    way.first[:] = -1
    way.turn[:] = -1
    for n in range(len(target)):
        _listed(way, n, now.at[n])
        several = _counted(now, target, way, n, several)
    fewest, kept, tried = several, made, 0
    while tried < tries and several > 0 and looks > 0:
        tried += 1
        one, two = _drawn(state), _drawn(state)
        n, begin, was, other = way.waiting[_below(one & low, several)], made, several, -1
        choice = _below(one >> half, 4)
        q = _blocker(given, way, n, target[n], choice, two & low)
        if q < 0:
            continue
        a = now.at[q]
        if choice == 1 and q != n and 2 * tried > tries and _below(two >> half, 2) == 0:
            other = q
            target[n], target[q] = target[q], target[n]
            several = _counted(now, target, way, n, several)
            several = _counted(now, target, way, q, several)
            q = -1
        else:
            c = given.receivers[_below(two >> half, brokers)]
            if c == a or not given.may[given.topic[q], c] or not _goes(given, now, q, c):
                continue
            if made == len(way.steps):
                break
            _note(way, made, q, a, c)
            made += 1
            several = _shifted(given, now, target, way, q, c, several)
        progress = True
        while progress and looks > 0:
            progress, k = False, 0
            while k < several:
                looks -= 1
                p = way.waiting[k]
                x, y = now.at[p], target[p]
                # what went out of the way waits for another first
                stays = (p == q and y == a and not progress) or made == len(way.steps)
                if stays or not given.may[given.topic[p], y] or not _goes(given, now, p, y):
                    k += 1
                    continue
                _note(way, made, p, x, y)
                made += 1
                several = _shifted(given, now, target, way, p, y, several)
                progress = True
        if several < fewest:
            fewest, kept, tried = several, made, 0
        elif several > was or (other >= 0 and several == was):
            while made > begin:
                made -= 1
                p = way.steps[made, 0]
                several = _shifted(given, now, target, way, p, way.steps[made, 1], several)
            if other >= 0:
                target[n], target[other] = target[other], target[n]
                several = _counted(now, target, way, n, several)
                several = _counted(now, target, way, other, several)
    # what is neither where it was nor at its target
    while made > kept:
        made -= 1
        p = way.steps[made, 0]
        several = _shifted(given, now, target, way, p, way.steps[made, 1], several)
    return made, several


@inlined
def _taken(given: Given, now: Now, way: Way, begin: int, end: int) -> Any:
    """Carry out moves of a way, of which -1 are none; how many until one is not possible."""
    for k in range(begin, end):
        n, b = way.steps[k, 0], way.steps[k, 2]
        if n < 0:
            continue
        if not _goes(given, now, n, b):
            return k
        _put(given, now, n, b)
    return end


@inlined
def _returned(given: Given, now: Now, way: Way, begin: int, end: int) -> None:
    """Take back moves of a way."""
    for k in range(end - 1, begin - 1, -1):
        if way.steps[k, 0] >= 0:
            _put(given, now, way.steps[k, 0], way.steps[k, 1])


@compiled
def _skipped(given: Given, now: Now, way: Way, k: int, late: bool) -> bool:
    """Leave out the stop between a move and the next one of its replica, if that is possible.

    The replica goes at the turn of the second move or, if not `late`, of the first.
    """
    n, a, c, j = way.steps[k, 0], way.steps[k, 1], way.steps[k, 2], way.later[k]
    b, later = way.steps[j, 2], way.later[j]
    way.steps[j, 0] = -1
    if late or a == b:
        way.steps[k, 0] = -1
    else:
        way.steps[k, 2] = b
    end = _taken(given, now, way, k, j)
    ok = end == j and (not late or a == b or _goes(given, now, n, b))
    _returned(given, now, way, k, end)
    if not ok:
        _note(way, k, n, a, c)
        _note(way, j, n, c, b)
    elif a == b:
        # what comes later starts where this would have
        way.later[k] = -1
    elif late:
        _note(way, j, n, a, b)
    else:
        way.later[k] = later
    return ok


@compiled
def shorten(given: Given, now: Now, way: Way, made: int) -> Any:
    """Leave out the stops that are not needed; returns how many moves the way holds then.

    Parameters
    ----------
    now
        The placement where the way starts, and afterwards where it ends.
    way, made
        The moves, and how many.
    """
    way.turn[:] = -1
    for k in range(made - 1, -1, -1):
        way.later[k] = way.turn[way.steps[k, 0]]
        way.turn[way.steps[k, 0]] = k
    for k in range(made):
        while way.steps[k, 0] >= 0 and way.later[k] >= 0:
            if not (_skipped(given, now, way, k, True) or _skipped(given, now, way, k, False)):
                break
        if way.steps[k, 0] >= 0:
            _put(given, now, way.steps[k, 0], way.steps[k, 2])
    left = 0
    for k in range(made):
        if way.steps[k, 0] >= 0:
            _note(way, left, way.steps[k, 0], way.steps[k, 1], way.steps[k, 2])
            left += 1
    return left
