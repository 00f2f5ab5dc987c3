"""Spreads the standbys of each task over the values of the instances' tags (KIP-708)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from balancer.assignment.draft import Draft
from balancer.assignment.hash_order import tasks_in_hash_order
from cluster_model.snapshot import Bools, Floats, Ints


class ClientTags:
    """The tags of instances, and what they allow.

    Parameters
    ----------
    draft
        The assignment so far. Its configuration names the tags over which standbys are spread.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        state = draft.state
        self._tags = [
            {key: value for key, values in state.tags.items() if (value := values[i]) is not None}
            for i in range(state.n_instances)
        ]
        self._with = {
            (key, value): np.array([v == value for v in values], np.bool_)
            for key, values in state.tags.items()
            for value in {*values} - {None}
        }
        self._distinct = {key: len({*values} - {None}) for key, values in state.tags.items()}

    def assign_standbys(self, tasks: Ints | None = None) -> None:
        """Put the standbys of each stateful task where no copy shares a value of a tag with it.

        Starts from the active task. Of the instances that share none, the one with the fewest
        copies per thread gets a standby. A tag no longer counts once its values are used up. What
        finds no such instance goes to those with the fewest copies.

        Parameters
        ----------
        tasks : (N,) int
            The stateful tasks in the order in which they are served; sorted unless given.
        """
        draft = self._draft
        copies = draft.configs.num_standby_replicas
        stateful = np.flatnonzero(draft.state.stateful) if tasks is None else tasks
        short: dict[int, int] = {}
        load = draft.load
        for t in stateful.tolist():
            free = np.ones(len(load), np.bool_)
            last = int(draft.active[t])
            free[[last, *draft.standbys[t]]] = False
            used: dict[tuple[str, str], Bools] = {}
            missing = copies
            while missing:
                self._use(last, copies - missing + 1, used)
                allowed = free.copy()
                for sharing in used.values():
                    allowed &= ~sharing
                if not allowed.any():
                    short[t] = missing
                    break
                last = self._place(t, allowed, load)
                free[last] = False
                missing -= 1
        for t in tasks_in_hash_order(draft.state, stateful) if short else ():
            free = np.ones(len(load), np.bool_)
            free[[draft.active[t], *draft.standbys[t]]] = False
            for _ in range(min(short.get(t, 0), int(free.sum()))):
                free[self._place(t, free, load)] = False

    def _place(self, task: int, allowed: Bools, load: Floats) -> int:
        """Put a standby on the allowed instance with the least load."""
        draft = self._draft
        chosen = int(np.where(allowed, load, np.inf).argmin())
        draft.standbys[task].append(chosen)
        draft.count[chosen] += 1
        load[chosen] = draft.count[chosen] / draft.state.capacity[chosen]
        return chosen

    def _use(
        self,
        instance: int,
        count: int,
        used: dict[tuple[str, str], Bools],
    ) -> None:
        """Count an instance's values as used by one of `count` copies."""
        for key, value in self._tags[instance].items():
            if key not in self._draft.configs.rack_aware_assignment_tags:
                continue
            if self._distinct[key] <= count:
                for other in [pair for pair in used if pair[0] == key]:
                    del used[other]
            else:
                used[key, value] = self._with[key, value]

    def same(self, source: int, destination: int) -> bool:
        """Whether a destination has all tags of a source: standbys may move there to level."""
        theirs = self._tags[destination]
        return all(theirs.get(key) == value for key, value in self._tags[source].items())

    def may_move(self, task: int, source: int, destination: int) -> bool:
        """Whether a task's copies keep as many different values if a standby moves."""
        copies = {int(self._draft.active[task]), *self._draft.standbys[task]}
        rest = self._values(copies - {source, destination})
        return len(rest | self._values([destination])) >= len(rest | self._values([source]))

    def _values(self, instances: Iterable[int]) -> set[tuple[str, str]]:
        return {pair for i in instances for pair in self._tags[i].items()}
