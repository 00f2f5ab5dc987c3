"""Exchanges tasks between instances at least cost: the min-cost flow of KIP-925.

Among assignments that cost the same, which one Kafka ends with depends on the order in which its
cycle-cancelling finds negative cycles. This module finds them in the same order, but relaxes all
edges of one kind at once over arrays.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cluster_model.snapshot import Ints

# The cost of an edge that has no room: above any sum of costs, far from an overflow.
_FULL = 2**61


def exchange(cost: Ints, owner: Ints, groups: Sequence[int] | None = None) -> Ints:
    """Exchange tasks so that they cost least; each instance keeps its number of tasks.

    Parameters
    ----------
    cost : (T, I) int
        Cost of each task on each instance.
    owner : (T,) int
        Present instance of each task.
    groups
        Where each group of tasks begins, and at last the number of tasks: each instance then gets
        at most its share of every group, rounded up. None if groups do not matter.

    Returns
    -------
    (T,) int
        Instance of each task.
    """
    if not len(cost):
        return owner.copy()
    flow = _Flow(cost, owner) if groups is None else _SharedFlow(cost, owner, groups)
    while flow.cancel_cycle():
        pass
    return flow.owner


class _Flow:
    """A flow of one unit from each task to an instance.

    The nodes are numbered as in Kafka's graph: tasks, then *slots*, where the flow of a task goes
    first. Here a slot is an instance; in :class:`_SharedFlow` it is an instance's share of a group
    of tasks. All edges to the sink are full and stay so, as are those from the source.
    """

    def __init__(self, cost: Ints, owner: Ints, bounds: Sequence[int] | None = None) -> None:
        self.n = len(cost)
        self.m: int = cost.shape[1]
        self.cost = cost
        self.owner = owner.copy()
        self.bounds = list(bounds or (0, self.n))
        self.n_groups = len(self.bounds) - 1
        self.tasks = np.arange(self.n)
        self.group = np.repeat(np.arange(self.n_groups), np.diff(self.bounds))
        # Besides tasks and instances there are a source, a sink, and a root before all others.
        self.nodes = self.n + self.m + 3
        self.unused = cost.copy()
        self.unused[self.tasks, self.owner] = _FULL

    def cancel_cycle(self) -> bool:
        """Cancel the negative cycle that Kafka finds first; False if there is none."""
        n, m = self.n, self.m
        columns = np.arange(m)
        source = 0
        task = np.zeros(n, np.int64)
        slot = np.zeros((self.n_groups, m), np.int64)
        share = np.zeros(m, np.int64)
        self.before_slot = np.full((self.n_groups, m), -1)
        self.before_share = np.full(m, -1)
        for _ in range(self.nodes - 1):
            changed = False
            source = min(source, int(task.min()))
            for g, (first, last) in enumerate(pairwise(self.bounds)):
                reached = self.unused[first:last] + task[first:last, None]
                closest = reached.argmin(0)
                distance = reached[closest, columns]
                shorter = distance < slot[g]
                if shorter.any():
                    slot[g, shorter] = distance[shorter]
                    self.before_slot[g, shorter] = closest[shorter] + first
                    changed = True
            distance = slot[self.group, self.owner] - self.cost[self.tasks, self.owner]
            if (distance < task).any():
                np.minimum(task, distance, out=task)
                changed = True
            changed |= self._relax_shares(slot, share)
            if not changed:
                return False
        self._cancel(self._first_shorter(source, task, slot, share))
        return True

    def _relax_shares(self, slot: Ints, share: Ints) -> bool:
        """Relax the edges behind the slots; whether a distance became shorter."""
        return False

    def _first_shorter(self, source: int, task: Ints, slot: Ints, share: Ints) -> int:
        """The node that one more round reaches first on a shorter way.

        Of a task that shortens the way to the source it is that task, from which the source is
        reached.
        """
        to_slot = self.unused + task[:, None] < slot[self.group]
        found = np.flatnonzero((task < source) | to_slot.any(1))
        if len(found):
            t = int(found[0])
            if task[t] < source:
                return t
            g, i = int(self.group[t]), int(to_slot[t].argmax())
            self.before_slot[g, i] = t
            return self._slot(g, i)
        distance = slot[self.group, self.owner] - self.cost[self.tasks, self.owner]
        found = np.flatnonzero(distance < task)
        slots = self.group[found] * self.m + self.owner[found]
        return int(found[slots.argmin()])

    def _slot(self, group: int, instance: int) -> int:
        return self.n + group * self.m + instance

    def _before(self, node: int) -> int:
        """The node from which a node was reached last."""
        if node < self.n:
            return self._slot(int(self.group[node]), int(self.owner[node]))
        node -= self.n
        if node < self.n_groups * self.m:
            return int(self.before_slot.flat[node])
        return int(self.before_share[node - self.n_groups * self.m])

    def _cancel(self, node: int) -> None:
        seen = set()
        while node not in seen:
            seen.add(node)
            node = self._before(node)
        cycle = [node]
        while (node := self._before(node)) != cycle[0]:
            cycle.append(node)
        for end, start in pairwise([*cycle, cycle[0]]):
            self._send(start, end)

    def _send(self, start: int, end: int) -> None:
        """Send one unit over the edge from one node to another."""
        if start < self.n:
            was, now = self.owner[start], (end - self.n) % self.m
            self.unused[start, was] = self.cost[start, was]
            self.unused[start, now] = _FULL
            self.owner[start] = now


class _SharedFlow(_Flow):
    """A flow that goes through an instance's share of each group, then through the instance."""

    def __init__(self, cost: Ints, owner: Ints, groups: Sequence[int]) -> None:
        bounds = sorted({*groups})
        n, m = cost.shape
        count = np.bincount(owner, minlength=m).tolist()
        self.room = np.array(
            [[math.ceil(held / n * (last - first)) for held in count]
             for first, last in pairwise(bounds)]
        )  # fmt: skip
        super().__init__(cost, self._any(count, bounds), bounds)
        self.nodes = n + m * (self.n_groups + 1) + 3

    def _any(self, count: Sequence[int], bounds: Sequence[int]) -> Ints:
        """Owners within the shares, as Kafka's first flow has them: shortest ways first."""
        m, n_groups = len(count), len(bounds) - 1
        group = [g for g, (first, last) in enumerate(pairwise(bounds)) for _ in range(first, last)]
        room: list[list[int]] = self.room.tolist()
        left = list(count)
        owner = [-1] * len(group)
        members: list[list[list[int]]] = [[[] for _ in range(m)] for _ in range(n_groups)]
        self.used = np.zeros((n_groups, m), np.int64)
        n = len(group)
        waiting = list(range(n))
        while waiting:
            # Ways from unplaced tasks to an instance with room, breadth first.
            before: dict[int, int] = {}
            seen = [0] * n_groups
            queue = deque(waiting)
            visited = [False] * n
            for t in waiting:
                visited[t] = True
            end = -1
            while queue and end < 0:
                node = queue.popleft()
                if node < n:
                    g = group[node]
                    if seen[g] < m:
                        for s in range(n + g * m, n + g * m + m):
                            if s not in before and s != n + g * m + owner[node]:
                                before[s] = node
                                seen[g] += 1
                                queue.append(s)
                elif node < n + n_groups * m:
                    g, i = divmod(node - n, m)
                    for t in members[g][i]:
                        if not visited[t]:
                            visited[t] = True
                            before[t] = node
                            queue.append(t)
                    share = n + n_groups * m + i
                    if share not in before and len(members[g][i]) < room[g][i]:
                        before[share] = node
                        queue.append(share)
                else:
                    i = node - n - n_groups * m
                    for g in range(n_groups):
                        s = n + g * m + i
                        if members[g][i] and s not in before:
                            before[s] = node
                            seen[g] += 1
                            queue.append(s)
                    if left[i]:
                        end = node
            left[end - n - n_groups * m] -= 1
            node = end
            while node in before:
                start = before[node]
                if start < n:
                    g, i = divmod(node - n, m)
                    owner[start] = i
                    insort(members[g][i], start)
                elif node < n:
                    g, i = divmod(start - n, m)
                    del members[g][i][bisect_left(members[g][i], node)]
                node = start
            waiting.remove(node)
        np.add.at(self.used, (group, owner), 1)
        return np.array(owner, np.int64)

    def _relax_shares(self, slot: Ints, share: Ints) -> bool:
        reached = np.where(self.used < self.room, slot, _FULL)
        closest = reached.argmin(0)
        distance = reached[closest, np.arange(self.m)]
        onwards = distance < share
        share[onwards] = distance[onwards]
        self.before_share[onwards] = (
            self._slot(0, 0) + closest[onwards] * self.m + np.flatnonzero(onwards)
        )
        back = (self.used > 0) & (share < slot)
        g, i = np.nonzero(back)
        slot[g, i] = share[i]
        self.before_slot[g, i] = self._slot(self.n_groups, 0) + i
        return bool(onwards.any() or back.any())

    def _first_shorter(self, source: int, task: Ints, slot: Ints, share: Ints) -> int:
        to_slot = self.unused + task[:, None] < slot[self.group]
        distance = slot[self.group, self.owner] - self.cost[self.tasks, self.owner]
        to_task = distance < task
        g, i = np.nonzero((self.used < self.room) & (slot < share))
        if (task < source).any() or to_slot.any():
            return super()._first_shorter(source, task, slot, share)
        if len(g) and not (
            to_task.any()
            and (self.group * self.m + self.owner)[to_task].min() <= g[0] * self.m + i[0]
        ):
            self.before_share[i[0]] = self._slot(int(g[0]), int(i[0]))
            return self._slot(self.n_groups, int(i[0]))
        if to_task.any():
            return super()._first_shorter(source, task, slot, share)
        i, g = np.nonzero(((self.used > 0) & (share < slot)).T)
        self.before_slot[g[0], i[0]] = self._slot(self.n_groups, int(i[0]))
        return self._slot(int(g[0]), int(i[0]))

    def _send(self, start: int, end: int) -> None:
        shares = self._slot(self.n_groups, 0)
        super()._send(start, end)
        if start >= shares:
            self.used.flat[end - self.n] -= 1
        elif end >= shares:
            self.used.flat[start - self.n] += 1
