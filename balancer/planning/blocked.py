"""Names what stops an action that was left out: the limit in its way, and what it would carry."""

from __future__ import annotations

import numpy as np

from balancer.planning.further_actions import display_name
from balancer.search.safety import Safety
from balancer.search.transition import Transition
from cluster_model.placement import Batch
from goals.capacity import Ceiling
from goals.infeasibility import partition_name, quantities


def blocked_by(safety: Safety, action: Batch) -> str:
    """What makes one action unsafe, as a sentence; empty if it is safe."""
    scorer = safety.scorer
    s = scorer.placement.snapshot
    transition = Transition(scorer.cluster, action)
    found: list[str] = []
    # the lowest of all limits on one column of a cell
    lowest: dict[tuple[str, str], tuple[float, str]] = {}
    for i, goal in enumerate(scorer.goals):
        if not goal.hard or not (worse := safety.worsened(i, transition)[:, 0]).any():
            continue
        if not isinstance(goal, Ceiling):
            found.append(f"{display_name(goal.name)} would be worse")
            continue
        cells = transition.cells(goal.scope)[:, 0]
        least = safety.least(i, cells)
        carried = transition.after_state(goal.scope).column(goal.column)[:, 0]
        allowed = carried * transition.scored[i][1][:, 0] / least
        for k in np.flatnonzero(worse).tolist():
            there = goal.scope.label(s, int(cells[k]))
            most, then = quantities(goal.column, float(allowed[k]), float(carried[k]))
            text = f"{there} would carry {then}, and {display_name(goal.name)} allows {most}"
            known = lowest.get((there, str(goal.column)))
            if known is None or allowed[k] < known[0]:
                lowest[there, str(goal.column)] = float(allowed[k]), text
    found += [text for _, text in lowest.values()]
    if not found:
        return ""
    ids, source = s.broker_ids, int(scorer.placement.source(action)[0])
    way = f"broker {ids[source]} to {ids[int(action.target[0])]}"
    name = partition_name(scorer.cluster, int(action.partition[0]))
    return f"{name}, {way}: {'; '.join(found)}"
