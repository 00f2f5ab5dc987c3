"""Applications for tests of the assignment of tasks, in the notation of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from balancer.assignment import (
    ApplicationState,
    AssignmentConfigs,
    StateDocument,
    TaskAssignment,
    TaskAssignor,
    build_state,
)

# No end: Java's largest number.
ENDLESS = 2**63 - 1


def names(text: str) -> list[str]:
    """Tasks in short: ``00 11`` is ``0_0`` and ``1_1``."""
    return [f"{t[0]}_{t[1:]}" for t in text.split()]


def grid(subtopologies: int, partitions: int) -> str:
    return " ".join(f"{s}{p}" for s in range(subtopologies) for p in range(partitions))


def application(
    stateful: str,
    instances: Mapping[str, Mapping[str, object]],
    stateless: str = "",
    end_offset: int = ENDLESS,
) -> ApplicationState:
    """An application; ``lags`` of an instance is one for all its tasks, or by their short name.

    An instance without ``lags`` has no state.
    """
    records = []
    for id_, given in instances.items():
        fields = dict(given)
        lags = fields.pop("lags", {})
        if not isinstance(lags, Mapping):
            lags = dict.fromkeys(stateful.split(), lags)
        records.append({"id": id_, **fields, "lags": {names(t)[0]: lag for t, lag in lags.items()}})
    tasks = [{"id": t, "end_offset": end_offset} for t in names(stateful)]
    tasks += [{"id": t, "stateful": False} for t in names(stateless)]
    return build_state(StateDocument.model_validate({"instances": records, "tasks": tasks}))


def configs(lag: int, warmups: int, standbys: int, **others: object) -> AssignmentConfigs:
    """A configuration, in the order of the tables."""
    return AssignmentConfigs.model_validate(
        {
            "acceptable_recovery_lag": lag,
            "max_warmup_replicas": warmups,
            "num_standby_replicas": standbys,
            **others,
        }
    )


def shown(assignment: TaskAssignment) -> str:
    """An assignment in the notation of tables: ``P1 A{00} S{01}; P2 ...``, empty ones left out."""
    parts = []
    for id_, of in assignment.tasks_by_instance().items():
        standby = sorted(of["standby"] + of["warmup"])
        active = f" A{{{_short(of['active'])}}}" if of["active"] else ""
        others = f" S{{{_short(standby)}}}" if standby else ""
        if active or others:
            parts.append(f"{id_}{active}{others}")
    return "; ".join(parts)


def _short(tasks: Sequence[tuple[int, int]]) -> str:
    return ",".join(f"{s}{p}" for s, p in tasks)


def assigned(
    state: ApplicationState, lag: int, warmups: int, standbys: int, **others: object
) -> tuple[str, bool]:
    """The assignment as text, and whether a probing rebalance is needed."""
    found = TaskAssignor(configs(lag, warmups, standbys, **others)).assign(state)
    return shown(found), found.probing_rebalance
