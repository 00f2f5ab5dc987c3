"""Simulated annealing of moves and swaps of single replicas, compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from balancer.search.compilation import compiled, inlined, reduced


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


class Desk(NamedTuple):
    """The replicas of each broker, and what is noted to try one of them on another broker.

    ``replica`` lists those of broker m from ``begin[m]`` (M + 1,) on, of which there are
    ``number[m]``, with room for more before the next one's; ``turn`` (N,) is where each is.

    For a replica that goes from one broker to another: ``least`` and ``most`` (2, K) what another
    one that comes back in exchange must and may use; in the second row, if it is at home where it
    leaves, or where it comes. ``here`` and ``there`` (H,) the excess of both brokers then.

    ``draws`` are exponentially distributed.
    """

    begin: Any
    number: Any
    replica: Any
    turn: Any
    least: Any
    most: Any
    here: Any
    there: Any
    draws: Any


_DRAWS = 1024
# the most moves to a broker between two listings of its replicas, besides half as many as it has
_SPARE = 16


def new_desk(given: Given, brokers: int) -> Desk:
    """A desk for a problem, with nothing on it."""
    replicas, several, costs = len(given.need), given.need.shape[1], given.worth.shape[1]
    return Desk(
        begin=np.zeros(brokers + 1, np.int32),
        number=np.zeros(brokers, np.int32),
        replica=np.zeros(replicas + replicas // 2 + _SPARE * brokers, np.int32),
        turn=np.zeros(replicas, np.int32),
        least=np.zeros((2, several)),
        most=np.zeros((2, several)),
        here=np.zeros(costs),
        there=np.zeros(costs),
        draws=-np.log((np.arange(_DRAWS) + 0.5) / _DRAWS),
    )


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
def _fits(given: Given, now: Now, n: int, m: int) -> bool:
    """Whether a broker takes a replica within its limits."""
    # what was here at the start counts until the end
    for k in range(0 if given.home[n] != m else given.former, given.need.shape[1]):
        need = given.need[n, k]
        # what is above a limit may fall
        if need > 0 and need > now.room[m, k]:
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


@inlined
def _laid_out(now: Now, desk: Desk) -> None:
    """List the replicas of each broker."""
    desk.number[:] = 0
    for n in range(len(now.at)):
        if now.at[n] >= 0:
            desk.number[now.at[n]] += 1
    begin = 0
    for m in range(len(desk.number)):
        desk.begin[m] = begin
        begin += desk.number[m] + desk.number[m] // 2 + _SPARE
    desk.begin[len(desk.number)] = begin
    desk.number[:] = 0
    for n in range(len(now.at)):
        if now.at[n] >= 0:
            _appended(desk, n, now.at[n])


@inlined
def _appended(desk: Desk, n: int, b: int) -> None:
    """Put a replica last on the list of a broker."""
    desk.turn[n] = desk.begin[b] + desk.number[b]
    desk.replica[desk.turn[n]] = n
    desk.number[b] += 1


@inlined
def _removed(desk: Desk, n: int, a: int) -> None:
    """Take a replica off the list of a broker; the last one takes its turn."""
    desk.number[a] -= 1
    last = desk.replica[desk.begin[a] + desk.number[a]]
    desk.replica[desk.turn[n]], desk.turn[last] = last, desk.turn[n]


@inlined
def _aimed(given: Given, now: Now, desk: Desk, p: int, a: int, b: int) -> bool:
    """Note what an exchange for a replica that goes from broker `a` to `b` has to keep.

    Returns whether it can go there alone.
    """
    least, most = desk.least, desk.most
    for k in range(given.need.shape[1]):
        need = given.need[p, k]
        # what is above a limit may fall
        least[0, k] = need - max(now.room[b, k], 0.0)
        most[0, k] = need + max(now.room[a, k], 0.0)
    for k in range(given.former):
        # what was here at the start counts until the end
        if given.home[p] == b:
            least[0, k] = -max(now.room[b, k], 0.0)
        if given.home[p] == a:
            most[0, k] = max(now.room[a, k], 0.0)
    short = False
    for k in range(given.need.shape[1]):
        least[1, k], most[1, k] = least[0, k], most[0, k]
        short |= least[0, k] > 0
    for k in range(given.former):
        least[1, k] = np.inf if least[0, k] > 0 else -np.inf
        most[1, k] = np.inf
    for h in range(given.worth.shape[1]):
        desk.here[h] = now.excess[a, h] - given.worth[p, h]
        desk.there[h] = now.excess[b, h] + given.worth[p, h]
    return not short


@reduced
def _answers(given: Given, desk: Desk, q: int, coming: int, leaving: int) -> Any:
    """Whether a replica can be exchanged for the one that is noted, as far as limits go.

    `coming` is 1 if it comes home so, `leaving` if it leaves its home, 0 otherwise.
    """
    bad = False
    for k in range(given.need.shape[1]):
        need = given.need[q, k]
        bad |= (need > desk.most[coming, k]) | (need < desk.least[leaving, k])
    return not bad


@reduced
def _above(excess: Any) -> Any:
    """The sum of what is above 0."""
    total = 0.0
    for h in range(len(excess)):
        x = excess[h]
        total += x if x > 0.0 else 0.0
    return total


@reduced
def _above_with(given: Given, excess: Any, n: int) -> Any:
    """The sum of what is above 0 with a replica more."""
    total = 0.0
    for h in range(given.worth.shape[1]):
        x = excess[h] + given.worth[n, h]
        total += x if x > 0.0 else 0.0
    return total


@reduced
def _above_without(given: Given, excess: Any, n: int) -> Any:
    """The sum of what is above 0 with a replica less."""
    total = 0.0
    for h in range(given.worth.shape[1]):
        x = excess[h] - given.worth[n, h]
        total += x if x > 0.0 else 0.0
    return total


@inlined
def _both_related(given: Given, now: Now, p: int, q: int, a: int, b: int) -> bool:
    """Whether a replica may go from broker `a` to `b`, and then another from `b` to `a`."""
    if not _related(given, now, p, a, b):
        return False
    _shift(given, now, p, a, b)
    possible = _related(given, now, q, b, a)
    _shift(given, now, p, b, a)
    return possible


@inlined
def _exchange(given: Given, now: Now, desk: Desk, p: int, q: int, a: int, b: int) -> None:
    """Put a replica on broker `b` instead of `a`, and another (-1 for none) on `a` instead."""
    _shift(given, now, p, a, b)
    _carry(given, now, p, a, b)
    _removed(desk, p, a)
    if q >= 0:
        _shift(given, now, q, b, a)
        _carry(given, now, q, b, a)
        _removed(desk, q, b)
        _appended(desk, q, a)
    _appended(desk, p, b)


@compiled
def anneal(
    given: Given,
    now: Now,
    desk: Desk,
    state: Any,
    steps: int,
    temperature: float,
    pairs: float,
    homeward: float,
    rows: int,
    columns: int,
    safe: bool,
) -> Any:
    """Try moves of random replicas, and moves and exchanges between random pairs of brokers.

    Parameters
    ----------
    state : (1,) uint64
        State of the random numbers, not 0.
    steps
        How many moves and exchanges to try at least.
    temperature
        A step that adds this much to the cost is accepted once in e.
    pairs
        Share of the steps that are tried between pairs of brokers; the others are moves of one
        replica.
    homeward
        Share of the draws of which the destination is where the replica was at the start.
    rows, columns
        How many replicas of the first broker of a pair are tried, each alone and in exchange for so
        many of the second, at most.
    safe
        Whether the first of two replicas to be exchanged must fit before the second has left.

    Returns
    -------
    tuple
        How much the cost rose, the steps that were tried, those that were scored, the sum of the
        costs that scored steps add, and how many add any.
    """
    replicas, brokers, half = len(now.at), len(given.receivers), np.uint64(32)
    low, back = np.uint64(0xFFFFFFFF), np.uint64(homeward * 2.0**32)
    risen, tried, single, scored, added, adding = 0.0, 0, 0, 0, 0.0, 0
    hottest = temperature * desk.draws[0]
    _laid_out(now, desk)
    while tried < steps:
        tried += 1
        one, two = _drawn(state), _drawn(state)
        p = _below(one & low, replicas)
        a = now.at[p]
        pair = single > (1.0 - pairs) * tried
        b = given.home[p] if (two >> half) < back else a
        if a == b and (pair or (two >> half) >= back):
            b = given.receivers[_below(two & low, brokers)]
        single += not pair
        if a == b or b < 0:
            continue
        if not pair:
            full = desk.begin[b] + desk.number[b] == desk.begin[b + 1]
            if full or not given.may[given.topic[p], b] or not _fits(given, now, p, b):
                continue
            scored += 1
            threshold = temperature * desk.draws[_below(_drawn(state) & low, _DRAWS)]
            change = _moved(given, p, b) - _moved(given, p, a) - now.cost[a] - now.cost[b]
            if change > threshold:
                continue
            there = _above_with(given, now.excess[b], p)
            if change + there > threshold:
                continue
            here = _above_without(given, now.excess[a], p)
            change += here + there
            if change > 0:
                added += change
                adding += 1
            if change <= threshold and _related(given, now, p, a, b):
                _exchange(given, now, desk, p, -1, a, b)
                now.cost[a], now.cost[b] = here, there
                risen += change
            continue
        turn = desk.turn[p]
        for row in range(rows):
            if row >= desk.number[a]:
                break
            turn = turn if turn < desk.begin[a] + desk.number[a] else desk.begin[a]
            p = desk.replica[turn]
            turn += 1
            tried += 1
            if not given.may[given.topic[p], b]:
                continue
            alone = _aimed(given, now, desk, p, a, b)
            if safe and not alone:
                continue
            before = now.cost[a] + now.cost[b] + _moved(given, p, a) - _moved(given, p, b)
            q: Any = np.int64(-2)
            change, here, there = 0.0, 0.0, 0.0
            if alone and desk.begin[b] + desk.number[b] < desk.begin[b + 1]:
                scored += 1
                here, there = _above(desk.here), _above(desk.there)
                change = here + there - before
                if change > 0:
                    added += change
                    adding += 1
                threshold = temperature * desk.draws[_below(_drawn(state) & low, _DRAWS)]
                if change <= threshold and _related(given, now, p, a, b):
                    q = -1
            others = min(desk.number[b], columns) if q == -2 else 0
            tried += others
            i, end = desk.begin[b], desk.begin[b] + desk.number[b]
            if others > 0:
                i += _below(two >> half, desk.number[b])
            for _ in range(others):
                n = desk.replica[i]
                i = i + 1 if i + 1 < end else desk.begin[b]
                leaving = given.home[n] == b
                # it costs something to leave home
                if leaving and -before > hottest:
                    continue
                coming = given.home[n] == a
                if not _answers(given, desk, n, 1 if coming else 0, 1 if leaving else 0):
                    continue
                if not given.may[given.topic[n], a]:
                    continue
                scored += 1
                threshold = temperature * desk.draws[_below(_drawn(state) & low, _DRAWS)]
                change = _moved(given, n, a) - _moved(given, n, b) - before
                if change > threshold:
                    continue
                there = _above_without(given, desk.there, n)
                if change + there > threshold:
                    continue
                here = _above_with(given, desk.here, n)
                change += here + there
                if change > 0:
                    added += change
                    adding += 1
                if change <= threshold and _both_related(given, now, p, n, a, b):
                    q = n
                    break
            if q == -2:
                continue
            _exchange(given, now, desk, p, q, a, b)
            now.cost[a], now.cost[b] = here, there
            risen += change
    return risen, tried, scored, added, adding


@inlined
def _goes(given: Given, now: Now, n: int, b: int) -> bool:
    """Whether a replica can go to broker `b` at once."""
    return _fits(given, now, n, b) and _related(given, now, n, now.at[n], b)


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
def approach(
    given: Given, now: Now, target: Any, harmless: bool, passes: int, way: Way, made: int
) -> Any:
    """Carry out the moves to a placement that are possible one by one.

    Parameters
    ----------
    target : (N,)
        The broker of each replica in the placement.
    harmless
        Whether only moves that do not raise the cost are carried out, to these brokers.
    passes
        How often to look at all replicas, at most.
    way, made
        Notes the moves, after so many that it holds.

    Returns
    -------
    int
        How many moves the way holds now.
    """
    progress = True
    while progress and passes > 0:
        progress = False
        passes -= 1
        for n in range(len(target)):
            a, b = now.at[n], target[n]
            if a == b or made == len(way.steps) or not _goes(given, now, n, b):
                continue
            if harmless:
                change = _above_without(given, now.excess[a], n)
                change += _above_with(given, now.excess[b], n)
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
        How many tries, and looks whether a replica that waits can go, to make.
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
        looks -= 1
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
def shorten(given: Given, now: Now, way: Way, made: int, looks: int) -> Any:
    """Leave out the stops that are not needed; returns how many moves the way holds then.

    How many moves lie between a stop and the next move of its replica decides how long it takes to
    find out whether it is needed; stops after so many looks remain.

    Parameters
    ----------
    now
        The placement where the way starts, and afterwards where it ends.
    way, made
        The moves, and how many.
    looks
        How often to look whether a move is still possible without a stop.
    """
    way.turn[:] = -1
    for k in range(made - 1, -1, -1):
        way.later[k] = way.turn[way.steps[k, 0]]
        way.turn[way.steps[k, 0]] = k
    for k in range(made):
        while way.steps[k, 0] >= 0 and way.later[k] >= 0 and looks > 0:
            looks -= 2 * (way.later[k] - k)
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
