"""Orders the steps from the start to the final placement so that each one is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from balancer.planning.blocked import blocked_by
from balancer.planning.detours import best_detour
from balancer.planning.parameters import PlanningParameters
from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.movement_cost import movement_cost
from balancer.problem.rules import Rules
from balancer.search.arrays import first_of
from balancer.search.exact_order import find_order
from balancer.search.safety import Safety
from balancer.search.scorer import EPSILON, Scorer
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools, Floats, Ints


@dataclass(frozen=True)
class Steps:
    """Ordered steps of a plan; A rows, and G goals.

    Parameters
    ----------
    batch
        The actions, in order; slots are those of the start.
    source, source_disk : (A,) int
        What each action takes from, -1 for none.
    cost : (A,) float
        What each action copies.
    leads : (A,) bool
        Whether the action moves the partition's leadership.
    diff : (A, G) float
        Score difference of each action per goal at its turn; for a group, the difference
        that the whole group makes.
    group : (A,) int
        Actions with the same number, from 0, form the move of a whole group and are
        adjacent; -1 for single actions.
    left_out : int
        Actions dropped because they have no safe order.
    blocked : str
        What stops the first of them, after all steps.
    """

    batch: Batch
    source: Ints
    source_disk: Ints
    cost: Floats
    leads: Bools
    diff: Floats
    group: Ints
    left_out: int
    blocked: str = ""


# pairs of slots compared at once
PAIRED = 1 << 24


def align(start: Placement, final: Placement) -> None:
    """Permute the slots of `final` so that a broker that keeps a replica keeps its slot.

    Replicas of one partition are interchangeable: A to B and B to C become A to C. If both
    change, the leader's slot is paired with the new leader's broker.
    """
    changed = np.flatnonzero((start.brokers != final.brokers).any(1))
    size = max(1, PAIRED // start.slots**2)
    for first in range(0, len(changed), size):
        _align(start, final, changed[first : first + size])


def _align(start: Placement, final: Placement, rows: Ints) -> None:
    """Do the same for some partitions."""
    f = start.slots
    then, now = start.brokers[rows], final.brokers[rows]
    same = (then[:, :, None] == now[:, None, :]) & (then >= 0)[:, :, None]
    kept, stays = same.any(2), same.any(1)
    # source column of each slot: its own broker's, else the next newcomer (or empty slot)
    origin = np.where(kept, same.argmax(2), -1)
    taken = stays | (now < 0)
    rack = np.append(start.snapshot.broker_rack, -1)
    here, there = rack[then], np.where(now < 0, -2, rack[now])
    alike = here[:, :, None] == there[:, None, :]
    leading = (np.arange(f) == start.leader[rows][:, None])[:, :, None] & (
        np.arange(f) == final.leader[rows][:, None]
    )[:, None, :]
    anything = np.ones_like(alike)
    # within a rack first: then no step crowds a rack that a later step relieves
    for requested in (
        alike,
        leading & (then >= 0)[:, :, None],
        (then >= 0)[:, :, None] & anything,
        anything,
    ):
        for slot in range(f):
            fits = ~taken & requested[:, slot] & (origin[:, slot] < 0)[:, None]
            found = np.flatnonzero(fits.any(1))
            new = fits[found].argmax(1)
            origin[found, slot] = new
            taken[found, new] = True
    # whatever remains on both sides is empty
    empty = np.argsort(now >= 0, axis=1, kind="stable")
    origin = np.where(origin < 0, empty[:, :1], origin)
    final.brokers[rows] = np.take_along_axis(now, origin, 1)
    if len(final.replica_disk):
        disks = final.replica_disk.reshape(-1, f)
        disks[rows] = np.take_along_axis(disks[rows], origin, 1)
    final.leader[rows] = (origin == final.leader[rows][:, None]).argmax(1)


def steps_between(start: Placement, final: Placement) -> Batch:
    """The actions from one placement to an aligned other, in order within each partition.

    Leadership of a replica that stays goes first: the old leader then moves as a follower.
    """
    f = start.slots
    here, there = start.replica_broker, final.replica_broker
    at = np.flatnonzero((here != there) & (here >= 0) & (there >= 0))
    disk = final.replica_disk[at] if len(final.replica_disk) else None
    moves = Batch.of(MOVE, at // f, at % f, there[at], disk)
    rows = np.flatnonzero(start.leader != final.leader)
    slot = final.leader[rows]
    leads = Batch.of(LEAD, rows, slot, there[rows * f + slot])
    stays = here[rows * f + slot] == there[rows * f + slot]
    parts = [leads[stays], moves, leads[~stays]]
    if len(final.replica_disk):
        differ = (here == there) & (here >= 0) & (start.replica_disk != final.replica_disk)
        at = np.flatnonzero(differ)
        parts.append(Batch.of(MOVE_DISK, at // f, at % f, there[at], final.replica_disk[at]))
    return Batch.concatenate(parts)


def grouped(start: Placement, batch: Batch, label: Ints) -> Ints:
    """(C,) the group of each action, -1 if no other of its set moves the same way.

    Parameters
    ----------
    start
        Where the actions start.
    batch
        The actions to group.
    label : (P,) int
        The set that each partition belongs to.
    """
    p = batch.partition
    moves = (batch.kind == MOVE) & (batch.slot == start.leader[p])
    # a partition that also changes its leader does more than move
    moves &= ~np.isin(p, p[batch.kind == LEAD])
    n = start.snapshot.n_brokers
    way = (label[p] * n + start.source(batch)) * n + batch.target
    _, at, size = np.unique(np.where(moves, way, -1), return_inverse=True, return_counts=True)
    return np.where(moves & (size[at] > 1), at, -1)


def order(
    scorer: Scorer,
    batch: Batch,
    rules: Rules,
    group: Ints | None = None,
    parameters: PlanningParameters | None = None,
    known: Batch | None = None,
    progress: Callable[[int, int], None] | None = None,
    deadline: Deadline = NEVER,
    per_move: bool = False,
) -> Steps:
    """Order actions so that no step breaks a hard goal or exceeds a capacity.

    The scorer's placement is where the steps start, and afterwards where they end. Actions that
    find no room wait for others that make it. If none are left that do, a broker above a limit
    may be filled again up to what it held at the start; then the `known` steps, which lead near
    where the actions do, are taken instead; then replicas take detours to make room.
    Actions that cannot be done safely are left out. The actions of a `group`, see
    :func:`grouped`, are one unit; if that is not possible, each is done separately. `progress` is
    called with how many actions have their place, and how many there are. After the `deadline` no
    more detours or other orders are tried. Of the actions that are safe, those that cost nothing
    come first, and of the others those on the least content cells: with most benefit per byte,
    or with `per_move` per replica that moves.
    """
    parameters = parameters or PlanningParameters()
    way = _PartialOrder(scorer, rules, batch, group, parameters, deadline, per_move)
    way.progress = progress
    way.run()
    if len(way.batch) and parameters.refill:
        way.safety.refill = True
        way.run()
    if len(way.batch) and known is not None:
        way.follow(known)
    if len(way.batch):
        way.unlock()
    way.explore()
    return way.steps()


class _PartialOrder:
    """The steps taken so far, and the actions still to do."""

    def __init__(
        self,
        scorer: Scorer,
        rules: Rules,
        batch: Batch,
        group: Ints | None,
        parameters: PlanningParameters,
        deadline: Deadline,
        per_move: bool,
    ) -> None:
        self.scorer, self.rules, self.batch = scorer, rules, batch
        self.parameters, self.deadline, self.per_move = parameters, deadline, per_move
        self.group = np.full(len(batch), -1) if group is None else group
        self.placement = scorer.placement
        self.safety = Safety(scorer)
        hard = [any(scorer.goals[i].hard for i in tier.goals) for tier in scorer.tiers]
        self.hard_tiers = hard.index(False) if False in hard else len(hard)
        self.start, self.final = self.placement.copy(), self._final()
        self.home = self.start.replica_broker
        self.direct = float(movement_cost(self.placement, batch).sum())
        self.passes: list[Steps] = []
        # what takes back each pass
        self.undo: list[Batch] = []
        self.progress: Callable[[int, int], None] | None = None

    def run(self) -> None:
        """Run passes of safe actions until no action is left that is safe.

        Groups come first, each as a whole; of those that are never safe as a whole, each action
        is then taken separately.
        """
        if (self.group >= 0).any():
            self._run_groups()
        self.group[:] = -1
        patient = True
        while len(self.batch):
            done = self._pass(patient)
            self._drop(done)
            if not len(done) and not patient:
                break
            patient = len(done) > 0

    def _run_groups(self) -> None:
        """Run passes that take the first open action of every partition, groups as a whole."""
        idle = 0
        while len(self.batch) and idle <= self.placement.slots:
            ready = np.flatnonzero(~self._waiting(self.batch, patient=True))
            first = ready[first_of(self.batch.partition[ready])]
            done, series = self._one_by_one(first[self._whole(first)])
            if len(done):
                self._go(self.batch[done], self.group[done], series)
            idle = 0 if len(done) else idle + 1
            # try another action of each partition
            late = np.zeros(len(self.batch), np.bool_)
            late[first] = True
            rest = ~late
            late[done] = False
            self.batch = Batch.concatenate([self.batch[rest], self.batch[late]])
            self.group = np.concatenate([self.group[rest], self.group[late]])
            self._report(len(self.batch))

    def _report(self, left: int) -> None:
        if self.progress is not None:
            done = sum(len(steps.batch) for steps in self.passes)
            self.progress(done, done + left)

    def _pass(self, patient: bool) -> Ints:
        """Carry out what is safe of the most urgent action of each partition, and what follows.

        The most urgent part of these is done first. Then the next actions of its partitions take
        their place among the rest, and so do actions that have become safe, unless many wait.
        Returns the rows that were done.
        """
        partition, own = self.batch.partition, self.parameters
        rows, urgency = self._urgent(np.arange(len(partition)), patient)
        whole = len(rows) == len(partition)
        part = len(rows) if whole else max(own.least_ordered, len(rows) // own.ordered_parts)
        done, finished = np.zeros(len(partition), np.bool_), [rows[:0]]
        while len(rows):
            free = int(np.searchsorted(urgency, 0.0))
            size = max(free, part)
            now, rows, urgency = rows[:size], rows[size:], urgency[size:]
            now, series = self._in_turn(now)
            if not len(now):
                continue
            self._go(self.batch[now], series=series)
            done[now] = True
            finished.append(now)
            self._report(int(np.count_nonzero(~done)))
            inside = np.zeros(self.placement.snapshot.n_partitions, np.bool_)
            inside[partition[rows]] = True
            waiting = np.flatnonzero(~done & ~inside[partition])
            if len(waiting) > max(part // 2, 4 * own.least_ordered):
                inside[:] = False
                inside[partition[now]] = True
                waiting = waiting[inside[partition[waiting]]]
            if not len(waiting):
                continue
            follow, more = self._urgent(waiting, patient)
            at = np.searchsorted(urgency, more)
            rows, urgency = np.insert(rows, at, follow), np.insert(urgency, at, more)
        return np.concatenate(finished)

    def _urgent(self, rows: Ints, patient: bool) -> tuple[Ints, Floats]:
        """The most urgent action of each partition that is safe by itself; how urgent each is.

        The rows contain everything that is open of their partitions.
        """
        waits = self._waiting(self.batch[rows], patient)
        able = ~(waits & self._waiting(self.batch[rows], patient=False))
        rows, waits = rows[able], waits[able]
        safe = self.safety.safe(Transition(self.scorer.cluster, self.batch[rows]))
        rows, waits = rows[safe], waits[safe]
        order, urgency = _urgency(self.scorer, self.batch[rows], None, self.per_move)
        # a leader that serves hard goals waits only for a transfer that is more urgent
        able = ~waits[order] | (urgency < self.hard_tiers)
        order, urgency = order[able], urgency[able]
        best = first_of(self.batch.partition[rows[order]])
        return rows[order[best]], urgency[best]

    def _in_turn(self, rows: Ints) -> tuple[Ints, SequentialTransition]:
        """The rows that are safe one after the other, and their transition."""
        while True:
            unit = self._unit(rows)
            series = SequentialTransition(self.scorer.cluster, self.batch[rows], unit=unit)
            keep = self.safety.safe(series)
            if keep.all():
                return rows, series
            rows = rows[keep if unit is None else keep[unit]]

    def _whole(self, rows: Ints) -> Bools:
        """(C,) whether the rows contain everything left of the group of each row."""
        group, last = self.group, int(self.group.max(initial=-1)) + 1
        all_of_it = np.bincount(group + 1, minlength=last + 1)
        here = np.bincount(group[rows] + 1, minlength=last + 1)
        whole: Bools = (group[rows] < 0) | (here == all_of_it)[group[rows] + 1]
        return whole

    def _one_by_one(self, rows: Ints) -> tuple[Ints, SequentialTransition]:
        """Rows that are safe one after the other, most urgent first, and their transition."""
        cluster = self.scorer.cluster
        if (self.group[rows] >= 0).any():
            # keep the actions of a group adjacent
            alone = self.group.max() + 1 + np.arange(len(rows))
            near = np.where(self.group[rows] < 0, alone, self.group[rows])
            rows = rows[np.argsort(near, kind="stable")]
        unit = self._unit(rows)
        keep = self.safety.safe(Transition(cluster, self.batch[rows], unit=unit))
        rows = rows[keep if unit is None else keep[unit]]
        order, _ = _urgency(self.scorer, self.batch[rows], self._unit(rows), self.per_move)
        return self._in_turn(rows[order])

    def _unit(self, rows: Ints) -> Ints | None:
        """(C,) numbers of the groups in the order of their rows; None if all are single."""
        return _consecutive(self.group[rows])

    def _waiting(self, batch: Batch, patient: bool) -> Bools:
        """(C,) whether an action has to come after another of its partition, of these.

        A replica is not elected on a broker before it has moved there. A leader with a
        pending transfer moves after it, as a follower; without `patient` it may move before,
        but not to a broker that may not lead.
        """
        placement = self.placement
        at = batch.partition * placement.slots + batch.slot
        elects, moves = batch.kind == LEAD, batch.kind == MOVE
        coming = elects & np.isin(at, at[moves])
        resigns = np.zeros(placement.snapshot.n_partitions, np.bool_)
        resigns[batch.partition[elects]] = True
        leading = moves & (batch.slot == placement.leader[batch.partition])
        leading &= resigns[batch.partition]
        if not patient:
            leading &= ~self.scorer.cluster.leader_eligible[batch.target]
        waiting: Bools = coming | leading
        return waiting

    def _go(
        self, now: Batch, group: Ints | None = None, series: SequentialTransition | None = None
    ) -> None:
        """Carry out actions and record their effects; their transition if it is known."""
        scorer, placement = self.scorer, self.placement
        group = np.full(len(now), -1) if group is None else group
        unit = _consecutive(group)
        if series is None:
            series = SequentialTransition(scorer.cluster, now, unit=unit)
        diffs = [scorer.diff(i, series)[0] for i in range(len(scorer.goals))]
        if unit is not None:
            diffs = [diff[unit] for diff in diffs]
        elects, moves = now.kind == LEAD, now.kind == MOVE
        slot, leader = now.slot, placement.leader[now.partition]
        leading = slot == leader
        source, source_disk = placement.source(now), placement.source_disk(now)
        slot = np.where(elects, leader, slot)
        self.undo.append(replace(now, slot=slot, target=source, disk=source_disk))
        self.passes.append(
            Steps(
                batch=now,
                source=source,
                source_disk=source_disk,
                cost=movement_cost(placement, now),
                leads=elects | (moves & leading),
                diff=np.stack(diffs, 1) if diffs else np.zeros((len(now), 0)),
                group=group,
                left_out=0,
            )
        )
        scorer.commit(now, transition=series)

    def unlock(self) -> None:
        """Carry out blocked actions one after the other with detours that make room for them.

        An attempt that leaves no fewer actions is taken back. In the end, so are the attempts
        after the best one: each replica that is left on the way counts against them.
        """
        final, failed, won = self._final(), set[int](), False
        self._settle(final)
        best = self._rest(final), len(self.passes), self.batch
        futile = 0
        for _ in range(self.parameters.detour_rounds):
            if self.deadline.passed:
                break
            blocked = [key for key in self._blocked() if key not in failed]
            if not blocked and won:
                failed, won = set(), False
                blocked = self._blocked()
            if not blocked or futile > self.parameters.futile_rounds:
                break
            if self._attempt(blocked[0], final):
                won, futile = True, 0
                if (rest := self._rest(final)) <= best[0]:
                    best = rest, len(self.passes), self.batch
            else:
                failed.add(blocked[0])
                futile += 1
        self._back_to(*best[1:])

    def follow(self, known: Batch) -> None:
        """Take steps from the start that lead near where the actions do, and go on from there.

        Where it is safe, the most urgent come first until a partition moves again. They are taken
        back if no fewer actions are left then.
        """
        if any((done.group >= 0).any() for done in self.passes):
            return
        rest, mark = self._rest(self.final), self.scorer.mark()
        before = self.passes, self.undo, self.batch, self.group
        self.scorer.adopt(self.start, np.arange(self.placement.snapshot.n_partitions))
        self.passes, self.undo = [], []
        for part in _distinct(known):
            legal, passes = part[self.rules.legal(self.placement, part)], len(self.passes)
            self.batch, self.group = legal, np.full(len(legal), -1)
            self.run()
            if len(self.batch):
                self._back_to(passes, legal)
                now, series = self.safety.safe_in_turn(legal)
                if len(now):
                    self._go(now, series=series)
        self._settle(self.final)
        if self._rest(self.final) >= rest:
            self.passes, self.undo, self.batch, self.group = before
            self.scorer.restore(mark)

    def explore(self) -> None:
        """On small clusters: look for another order if actions are left, or detours cost something.

        It is taken if it leaves nothing, and costs less.
        """
        own, spent = self.parameters, sum(float(done.cost.sum()) for done in self.passes)
        s = self.placement.snapshot
        whole = not len(self.batch)
        if (
            s.n_replicas > own.explored_replicas
            or s.n_disks
            or any((done.group >= 0).any() for done in self.passes)
            or (whole and spent <= self.direct * (1 + EPSILON))
        ):
            return
        mark, passes, undo = self.scorer.mark(), self.passes, self.undo
        self.scorer.adopt(self.start, np.arange(s.n_partitions))
        self.safety.refill = own.refill
        most, steps = own.explored_orders, own.explored_steps
        found, there = find_order(self.safety, self.rules, self.final, most, steps, self.deadline)
        if there:
            self.passes, self.undo = [], []
            for action in found:
                self._go(action)
            cost = sum(float(done.cost.sum()) for done in self.passes)
            if not whole or cost < spent * (1 - EPSILON):
                self.batch, self.group = self.batch[:0], self.group[:0]
                return
        self.passes, self.undo = passes, undo
        self.scorer.restore(mark)

    def _final(self) -> Placement:
        """Where the open actions lead."""
        final, batch = self.placement.copy(), self.batch
        at = batch.partition * final.slots + batch.slot
        moves, elects = batch.kind == MOVE, batch.kind == LEAD
        final.replica_broker[at[moves]] = batch.target[moves]
        if len(final.replica_disk):
            final.replica_disk[at[~elects]] = batch.disk[~elects]
        final.leader[batch.partition[elects]] = batch.slot[elects]
        return final

    def _rest(self, final: Placement) -> int:
        """Open actions, and replicas that are neither where they started nor where they go."""
        now = self.placement.replica_broker
        away = (now != self.home) & (now != final.replica_broker)
        return len(self.batch) + int(away.sum())

    def _back_to(self, passes: int, batch: Batch) -> None:
        """Take back all passes after the first `passes`, when these actions were open."""
        while len(self.passes) > passes:
            self.passes.pop()
            self.scorer.commit(self.undo.pop())
        self.batch, self.group = batch, np.full(len(batch), -1)

    def _settle(self, final: Placement) -> None:
        """Carry out every single action to `final` that is safe."""
        self.batch = steps_between(self.placement, final)
        self.group, patient = np.full(len(self.batch), -1), True
        while len(self.batch):
            ready = np.flatnonzero(~self._waiting(self.batch, patient))
            safe = self.safety.safe(Transition(self.scorer.cluster, self.batch[ready]))
            turn = ready[safe]
            turn, series = self._one_by_one(turn[first_of(self.batch.partition[turn])])
            if len(turn):
                self._go(self.batch[turn], series=series)
                self._drop(turn)
            elif not patient:
                break
            patient = len(turn) > 0

    def _drop(self, rows: Ints) -> None:
        """Actions that are done."""
        kept = np.ones(len(self.batch), np.bool_)
        kept[rows] = False
        self.batch, self.group = self.batch[kept], self.group[kept]

    def _keys(self, batch: Batch) -> Ints:
        """(C,) a number for what each action does to which replica."""
        at = batch.partition * self.placement.slots + batch.slot
        return batch.kind.astype(np.int64) * len(self.placement.replica_broker) + at

    def _blocked(self) -> list[int]:
        """Keys of the actions whose turn it is: least shortage first, of equal ones the largest.

        What makes room for the largest of a cycle is the smaller ones.
        """
        batch = self.batch[~self._waiting(self.batch, patient=False)]
        lacks = self.safety.shortage(Transition(self.scorer.cluster, batch))
        keys: list[int] = self._keys(batch)[
            np.lexsort((-movement_cost(self.placement, batch), lacks))
        ].tolist()
        return keys

    def _attempt(self, key: int, final: Placement) -> bool:
        """Carry out a blocked action, and a few more, until fewer actions are left."""
        before, passes = self.batch, len(self.passes)
        tried: set[int] = set()
        for _ in range(self.parameters.detour_chain):
            tried.add(key)
            if not self._with_detours(key):
                break
            self._settle(final)
            if len(self.batch) < len(before):
                return True
            rest = [other for other in self._blocked() if other not in tried]
            if not rest:
                break
            key = rest[0]
        self._back_to(passes, before)
        return False

    def _with_detours(self, key: int) -> bool:
        """Make room for an action and carry it out; whether that is possible."""
        action = self.batch[self._keys(self.batch) == key]
        for _ in range(self.parameters.detours_per_round):
            if self.safety.safe(Transition(self.scorer.cluster, action)).all():
                self._go(action)
                return True
            way = best_detour(self.safety, self.rules, action, self.batch, self.parameters)
            if way is None:
                break
            self._go(way)
        return False

    def steps(self) -> Steps:
        """All steps taken."""
        none, width, p = np.empty(0, np.int64), len(self.scorer.goals), self.passes
        return Steps(
            batch=Batch.concatenate([self.batch[:0], *(x.batch for x in p)]),
            source=np.concatenate([none, *(x.source for x in p)]),
            source_disk=np.concatenate([none, *(x.source_disk for x in p)]),
            cost=np.concatenate([np.empty(0), *(x.cost for x in p)]),
            leads=np.concatenate([np.empty(0, np.bool_), *(x.leads for x in p)]),
            diff=np.concatenate([np.empty((0, width)), *(x.diff for x in p)]),
            group=_numbered(np.concatenate([none, *(x.group for x in p)])),
            left_out=len(self.batch),
            blocked=self._obstacle(),
        )

    def _obstacle(self) -> str:
        """What stops the open action that lacks least room; empty if there is none."""
        keys = self._keys(self.batch)
        for key in self._blocked()[:1] if len(self.batch) else ():
            return blocked_by(self.safety, self.batch[keys == key])
        return ""


def _distinct(batch: Batch) -> Iterator[Batch]:
    """Parts of a batch, in order, each of which has a partition at most once."""
    last = np.full(len(batch), -1)
    by = np.argsort(batch.partition, kind="stable")
    again = np.flatnonzero(batch.partition[by][1:] == batch.partition[by][:-1])
    last[by[again + 1]] = by[again]
    begin = 0
    for row in np.flatnonzero(last >= 0).tolist():
        if last[row] >= begin:
            yield batch[begin:row]
            begin = row
    yield batch[begin:]


def _consecutive(group: Ints) -> Ints | None:
    """(C,) numbers from 0 of runs of one group and of single actions; None if all are single."""
    if not (group >= 0).any():
        return None
    new = np.ones(len(group), np.int64)
    new[1:] = (group[1:] != group[:-1]) | (group[1:] < 0)
    runs: Ints = np.cumsum(new) - 1
    return runs


def _numbered(group: Ints) -> Ints:
    """(A,) groups numbered from 0 in order of appearance; groups of one count as none."""
    runs, numbers = _consecutive(group), np.full(len(group), -1)
    if runs is not None:
        several = (group >= 0) & (np.bincount(runs)[runs] > 1)
        numbers[several] = np.unique(runs[several], return_inverse=True)[1]
    return numbers


def _urgency(
    scorer: Scorer, batch: Batch, unit: Ints | None, per_move: bool
) -> tuple[Ints, Floats]:
    """Order of a batch, and a number for each row in this order that never falls.

    What helps and costs nothing comes first; it has the number -1. Every other action serves
    the first tier that it changes for the better: its number is the tier's place, and as a
    fraction the contentment of the worst cell that it touches at its turn, by halves. Among
    equals most benefit per byte, or per move, comes first. Actions that only make others possible
    come last. Where contentment is a cost that adds up, only the benefit counts.
    """
    transition = Transition(scorer.cluster, batch, unit=unit)
    copies = batch.kind != LEAD
    cost = scorer.parameters.action_overhead + copies if per_move else scorer.relative_cost(batch)
    own = np.arange(len(batch)) if unit is None else unit
    n, tiers = len(transition), len(scorer.tiers)
    cost = np.bincount(own, cost, n)
    benefit = [np.round(scorer.gain(tier, transition) / cost, 12) for tier in scorer.tiers]
    # the tier that each unit serves; those that harm a tier come after all others
    served = np.full(n, tiers)
    for k in reversed(range(tiers)):
        served = np.where(benefit[k] > 0, k, np.where(benefit[k] < 0, 2 * tiers - k, served))
    rank = _ranks([-x for x in benefit])
    rows, level = np.argsort(rank[own], kind="stable"), np.ones(n)
    for k, tier in enumerate(scorer.tiers):
        at = rows[served[own[rows]] == k]
        if len(at) and all(scorer.goals[i].aggregate == "min" for i in tier.goals):
            np.minimum.at(level, own[at], scorer.severity(tier, batch[at])[0])
    paid = (np.bincount(own, copies, n) > 0) | (served >= tiers)
    urgency = np.where(paid, served + level / 2, -1.0)
    place = _ranks([urgency, level, rank])
    order = np.argsort(place[own], kind="stable")
    return order, urgency[own[order]]


def _ranks(keys: Sequence[Floats | Ints | Bools]) -> Ints:
    """(n,) the place of each row, sorted by the first key, then the next, then by rows."""
    n = len(keys[0])
    place = np.empty(n, np.int64)
    place[np.lexsort([np.arange(n), *reversed(keys)])] = np.arange(n)
    return place
