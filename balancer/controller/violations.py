"""Detects unmet goals, and whether they are worth moving data for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from balancer.controller.balance import evenness
from balancer.controller.finding import Finding, FirstSeen, Streak, View, listed, span
from balancer.controller.lost_partitions import partition_names
from balancer.controller.settings import GoalViolations
from balancer.planning.figures import balancedness
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from balancer.problem.tiers import with_availability
from balancer.search.scorer import Scorer, unscorable
from goals import Goal, applicable, inapplicable

# Seconds in which loads may become known, as after a start, before goals that need none are put
# right without them: what moves for these would move again.
_PATIENCE = 1800.0
# Rounding differences between equal windows.
_NO_NOISE = 1e-6


class GoalViolationDetector:
    """Measures how far each goal is from being met, and for how long.

    Parameters
    ----------
    settings
        See :class:`GoalViolations`.
    goals
        The goals, as given to the balancer.
    strict
        Whether a goal that does not apply to the snapshot is an error; else it is left out.

    Attributes
    ----------
    balancedness : float or None
        For the last snapshot, see :class:`balancer.planning.document.Summary`; None while loads
        are not known.
    evenness : dict
        For the last snapshot, see :func:`evenness`.
    broken : frozenset of str
        Names of the partitions that break a hard goal by themselves, such as rack awareness.
    """

    def __init__(
        self, settings: GoalViolations, goals: Iterable[Goal], *, strict: bool = False
    ) -> None:
        self.settings = settings
        self._strict = strict
        self.balancedness: float | None = None
        self.evenness: dict[str, Any] = {}
        self.broken: frozenset[str] = frozenset()
        self._goals = list(goals)
        self._unknown_since: float | None = None
        self._streak = Streak()
        self._seen = FirstSeen()

    def look(self, view: View, operation: Operation | None = None) -> list[Finding]:
        """One finding for all unmet goals; none if all are met.

        While loads are not known, only hard goals that need none are judged, and put right once
        loads have been unknown for half an hour: what moves for another one, or as long as a
        start takes, would move again.

        Parameters
        ----------
        view
            The cluster.
        operation
            The rebalance that would follow: its permissions change fair shares.
        """
        operation = operation or Operation()
        requested = self.settings
        known = view.incomplete is None
        if known:
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = view.now
        judged = [g for g in self._goals if g.hard or known]
        lacking = inapplicable(judged, view.snapshot).values() if self._strict and known else ()
        if lacking:
            since = self._seen.update([*lacking], view.now)
            self.balancedness, self.evenness = None, {}
            sentence = f"{next(iter(lacking))}; nothing is rebalanced until this is fixed"
            return [
                Finding(
                    kind="goal_violations",
                    subject="goals",
                    sentence=sentence,
                    state="waiting",
                    since=min(since.values()),
                )
            ]
        cluster = resolve(view.snapshot, operation).cluster
        fitting = with_availability(applicable(judged, view.snapshot, strict=False))
        failing = {} if known else unscorable(cluster, fitting)
        goals = [g.prepared(cluster) for g in fitting if g.name not in failing]
        scorer = Scorer(cluster, goals)
        self.balancedness, self.evenness = None, {}
        if known:
            met = [scorer.met(i) for i in range(len(goals))]
            self.balancedness = balancedness([g.hard for g in goals], met)
            self.evenness = evenness(cluster, view.distrust.brokers)
        self.broken = _broken(goals, scorer)
        short = shortfalls(goals, scorer)
        for v, goal in ((v, g) for v in short for g in goals if g.name == v["goal"]):
            v["noise"] = requested.noise_factor * _noise(goal, view.noise)
        counted = [v for v in short if v["shortfall"] > requested.trivial + v["noise"]]
        rounds = self._streak.update([v["goal"] for v in counted])
        since = self._seen.update([v["goal"] for v in short], view.now)
        if not short:
            return []
        ripe = [
            v
            for v in counted
            if v["shortfall"] > requested.margin + v["noise"]
            or rounds[v["goal"]] >= requested.rounds
        ]
        worst = max(ripe or counted or short, key=lambda v: float(v["shortfall"]))
        names = [v["goal"] for v in ripe or counted or short]
        said = f"{listed(names)} not met, worst {worst['goal']} at {worst['where']}"
        state, why = "ripe", f"{_percent(worst['shortfall'])} short of content"
        if not ripe and counted:
            state = "waiting"
            why = (
                f"{_percent(worst['shortfall'])} short of content, for {rounds[worst['goal']]} of "
                f"{requested.rounds} rounds"
            )
        elif not ripe:
            state = "notice"
            why = (
                f"{_percent(worst['shortfall'])} short of content, which is too little to move "
                f"data for (at most {_percent(requested.trivial + worst['noise'])}"
                + (f", {_percent(worst['noise'])} of it for noise)" if worst["noise"] else ")")
            )
        if state == "ripe" and self._unknown_since is not None:
            left = self._unknown_since + _PATIENCE - view.now
            if left > 0:
                state = "waiting"
                why += f"; it waits for loads for {span(left)}: {view.incomplete}"
        if any(v["hard"] for v in ripe):
            # A hard goal outweighs that a partition moved recently.
            operation = operation.model_copy(update={"excluded_partitions": ()})
        return [
            Finding(
                kind="goal_violations",
                subject="goals",
                sentence=f"{said}: {why}",
                state=state,  # type: ignore[arg-type]
                since=min(since.values()),
                operation=operation,
                alert=False,
                data={
                    "ripe": [v["goal"] for v in ripe],
                    "goals": short,
                    "evenness": self.evenness,
                },
            )
        ]


def shortfalls(goals: Sequence[Goal], scorer: Scorer) -> list[dict[str, Any]]:
    """Goals not met: name, cells not content, how much the worst lacks, and where it is.

    Availability goals are left out: other detectors handle dead and leaderless replicas.
    """
    found = []
    for goal, scores in zip(goals, scorer.scores, strict=True):
        if goal.availability or (scores >= 1).all():
            continue
        cell = int(np.argmin(scores))
        found.append(
            {
                "goal": goal.name,
                "hard": goal.hard,
                "cells": int((scores < 1).sum()),
                "shortfall": float(1 - scores[cell]),
                "where": goal.scope.label(scorer.placement.snapshot, cell),
            }
        )
    return found


def _broken(goals: Sequence[Goal], scorer: Scorer) -> frozenset[str]:
    s = scorer.placement.snapshot
    broken = np.zeros(s.n_partitions, np.bool_)
    for goal, scores in zip(goals, scorer.scores, strict=True):
        if goal.hard and goal.scope.of_partitions and not goal.availability:
            broken |= scores < 1
    return frozenset(partition_names(s, broken))


def _noise(goal: Goal, noise: Mapping[str, float]) -> float:
    """Effect of noise on contentment: about the same as on the load, for all goal curves."""
    reads = {getattr(goal, "resource", None), *goal.requires}
    error = max((noise[resource] for resource in noise if resource in reads), default=0.0)
    return error if error > _NO_NOISE else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
