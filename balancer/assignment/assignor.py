"""The assignor: takes the state of an application, returns where its tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from balancer.assignment import loops
from balancer.assignment.client_tags import ClientTags
from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.draft import Draft
from balancer.assignment.errors import TaskAssignmentError
from balancer.assignment.fallback import keep_previous
from balancer.assignment.lags import Lags
from balancer.assignment.movements import move_actives, move_standbys
from balancer.assignment.racks import optimize_active, optimize_standbys
from balancer.assignment.refiner import refine
from balancer.assignment.result import TaskAssignment
from balancer.assignment.standbys import assign_standbys, level_standbys
from balancer.assignment.state import RUNNING, ApplicationState
from balancer.assignment.stateless import assign_stateless
from balancer.assignment.targets.goals import GoalTargets
from balancer.assignment.targets.kafka import in_turn
from balancer.assignment.targets.relief import ReliefParameters
from balancer.assignment.warmups import Warmups
from goals import Goal


class TaskAssignor:
    """Assigns tasks so that each keeps running where its state is.

    Parameters
    ----------
    configs
        Configuration under Kafka's names.
    target
        Where tasks are to run in the end: ``kafka`` for Kafka's own procedure; or goals, as
        :class:`balancer.Balancer` takes them, such as the profile ``stateful-tasks``.
    refined
        Whether the assignment for now is derived from the target by the refiner of KIP-1071 in
        place of KIP-441's movements.
    compiled
        Whether Kafka's own procedure runs as compiled code, with the same result. Needs numba,
        which takes about half a second to load, and some seconds to compile when first used.
    relief
        With the profile ``stateful-tasks`` as target: when its fullest instance is relieved.

    Raises
    ------
    TaskAssignmentError
        If numba is needed and missing.
    """

    def __init__(
        self,
        configs: AssignmentConfigs | None = None,
        target: Iterable[Goal] | str | Path | Mapping[str, Any] = "kafka",
        refined: bool = False,
        compiled: bool = False,
        relief: ReliefParameters | None = None,
    ) -> None:
        self.configs = configs or AssignmentConfigs()
        self.refined = refined
        self.compiled = compiled
        if compiled:
            loops.require_numba()
            _compile()
        self.goal_targets = None if target == "kafka" else GoalTargets(target, relief)

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed.

        Without end offsets tasks stay where they were, whatever the target.

        Raises
        ------
        TaskAssignmentError
            If there is no instance.
        """
        if state.n_instances == 0:
            raise TaskAssignmentError("no instance found, at least one expected")
        draft = Draft(state, self.configs, compiled=self.compiled)
        if not state.offsets_known:
            keep_previous(draft)
            return draft.finished(draft.active.copy(), movements=0, probing=True)
        if self.goal_targets is not None:
            found = self.goal_targets.assign(state, self.configs)
            if not self.refined:
                return found
            draft.place(np.arange(state.n_tasks), found.target)
            self._assign_standbys(draft)
            refined = refine(draft.finished(found.target, movements=0, probing=False))
            return replace(refined, unmet=found.unmet)
        stateful, stateless = np.flatnonzero(state.stateful), np.flatnonzero(~state.stateful)
        draft.place(stateful, in_turn(state))
        optimize_active(draft, stateful)
        target = draft.active.copy()
        self._assign_standbys(draft)
        movements = 0 if self.refined else self._move(draft)
        assign_stateless(draft)
        optimize_active(draft, stateless)
        target = np.where(state.stateful, target, draft.active)
        found = draft.finished(target, movements, probing=movements > 0)
        return refine(found) if self.refined else found

    def _assign_standbys(self, draft: Draft) -> None:
        if not self.configs.num_standby_replicas:
            return
        if self.configs.rack_aware_assignment_tags:
            tags = ClientTags(draft)
            tags.assign_standbys()
            level_standbys(draft, tags.same)
            optimize_standbys(draft, tags.may_move)
        else:
            assign_standbys(draft)
            level_standbys(draft)
            optimize_standbys(draft)

    def _move(self, draft: Draft) -> int:
        """KIP-441's movements: the number of copies that are not yet where they are to be."""
        lags = Lags(draft.state, self.configs)
        warmups = Warmups(
            draft.state, lags, self.configs.max_warmup_replicas, self.configs.max_warmup_bytes
        )
        return move_actives(draft, lags, warmups) + move_standbys(draft, lags, warmups)


@cache
def _compile() -> None:
    """Have the compiled loops ready, by a small assignment that uses them all."""
    state = ApplicationState(
        instances=("a", "b", "c", "d"),
        capacity=np.ones(4, np.int64),
        subtopology=np.zeros(2, np.int64),
        partition=np.arange(2),
        stateful=np.ones(2, np.bool_),
        end_offset=np.full(2, 100_000),
        lag_offset=np.array([0, 2, 4]),
        lag_instance=np.array([2, 3, 2, 3]),
        lag=np.array([RUNNING, 0, 0, RUNNING]),
    )
    draft = Draft(state, AssignmentConfigs(num_standby_replicas=1), compiled=True)
    draft.place(np.arange(2), in_turn(state))
    assign_standbys(draft)
    lags = Lags(state, draft.configs)
    warmups = Warmups(state, lags, 1)
    move_actives(draft, lags, warmups)
    move_standbys(draft, lags, warmups)
