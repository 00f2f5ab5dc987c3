"""The leader's part of a rebalance: reports of members in, the tasks of each member out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from balancer.assignment.document import InstanceRecord, StateDocument, TaskRecord, build_state
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.messages import MemberReport, MemberTasks
from balancer.assignment.result import TaskAssignment
from balancer.assignment.state import RUNNING, ApplicationState, TaskId
from metrics_reporter.quantities import plural

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Joined:
    """A member of a rebalance, as it arrived: its user data is not yet checked."""

    member: str
    user_data: bytes | None
    owned: frozenset[int] = frozenset()
    generation: int = -1


@dataclass(frozen=True)
class MemberAssignment:
    """The partitions that a member processes, and its other tasks."""

    partitions: tuple[int, ...] = ()
    tasks: MemberTasks = field(default_factory=MemberTasks)


class Leader:
    """Turns reports into the state of the application, and its assignment into messages.

    A member whose report cannot be read gets no tasks, and the others' go on.

    Parameters
    ----------
    assign
        The assignor.
    probing_rebalance_interval_ms
        Replaces the interval of the assignment; None leaves it.
    clock
        Seconds, to know how long members have been away.

    Attributes
    ----------
    malformed : int
        Reports so far that could not be read.
    """

    def __init__(
        self,
        assign: Callable[[ApplicationState], TaskAssignment],
        probing_rebalance_interval_ms: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assign = assign
        self._interval_ms = probing_rebalance_interval_ms
        self._clock = clock
        # The copies that each process was last assigned, and since when those that have left are
        # away; as long as no other member leads. A new leader has other copies made at once.
        self._copies: dict[str, tuple[str, ...]] = {}
        self._away: dict[str, float] = {}
        self.malformed = 0

    def assign(
        self,
        leader: str,
        joined: Sequence[Joined],
        end_offsets: Mapping[int, int] | Collection[int],
    ) -> dict[str, MemberAssignment]:
        """Assign the tasks of all partitions.

        Parameters
        ----------
        leader
            The member that this is: it asks for the next rebalance.
        joined
            All members.
        end_offsets
            End of the changelog of each partition; only the partitions if it is unknown.
        """
        members, reports = self._reports(joined)
        found = {j.member: MemberAssignment() for j in joined}
        if not members:
            return found
        owner = _owners(joined, set(end_offsets))
        absent = self._absent({report.process for report in reports}, end_offsets)
        try:
            state = _state(members, reports, owner, end_offsets, absent)
        except Exception:
            usable = [
                (m, r)
                for m, r in zip(members, reports, strict=True)
                if self._usable(m, r, owner, end_offsets)
            ]
            if not usable:
                return found
            members, reports = [m for m, _ in usable], [r for _, r in usable]
            state = _state(members, reports, owner, end_offsets, absent)
        assignment = self._assign(state)
        by_process = assignment.tasks_by_instance()
        self._remember(assignment)
        starting = _starting(state, assignment, members, reports, owner)
        moves = starting - {
            t.partition
            for member, report in zip(members, reports, strict=True)
            for t in by_process[report.process]["active"]
            if owner.get(t.partition) == member
        }
        interval = self._interval_ms or assignment.configs.probing_rebalance_interval_ms
        waits = [] if assignment.followup_ms is None else [assignment.followup_ms]
        if moves or (assignment.probing_rebalance and (assignment.movements or not waits)):
            waits.append(interval)
        probe_after = min(waits, default=None)
        for member, report in zip(members, reports, strict=True):
            tasks = by_process[report.process]
            mine = {p for p in starting if owner[p] == member}
            active = {t.partition for t in tasks["active"]}
            # A partition goes to its new owner once the old one has given it up (KIP-429). The
            # new one keeps its copy current until then.
            withheld = {p for p in active if owner.get(p, member) != member}
            standby = {t.partition for t in tasks["standby"]} | withheld
            warmup = {t.partition for t in tasks["warmup"]}
            found[member] = MemberAssignment(
                partitions=tuple(sorted(active - withheld | mine)),
                tasks=MemberTasks(
                    standby=_names(standby - mine),
                    warmup=_names(warmup - mine),
                    probe_after_ms=probe_after if member == leader else None,
                ),
            )
        if probe_after is not None and leader not in members:
            # The leader's own report was not usable.
            first = found[members[0]]
            tasks_ = first.tasks.model_copy(update={"probe_after_ms": probe_after})
            found[members[0]] = MemberAssignment(first.partitions, tasks_)
        return found

    def forget(self) -> None:
        """Others have assigned since: who has which copies, and since when one is away."""
        self._copies, self._away = {}, {}

    def _absent(
        self, present: Collection[str], partitions: Collection[int]
    ) -> list[InstanceRecord]:
        """The processes that have left since they were assigned copies, and how long ago."""
        now = self._clock()
        for process in present:
            self._away.pop(process, None)
        return [
            InstanceRecord(
                id=process,
                standby=tuple(name for name in names if _partition(name) in partitions),
                absent_ms=round((now - self._away.setdefault(process, now)) * 1000),
            )
            for process, names in self._copies.items()
            if process not in present
        ]

    def _remember(self, assignment: TaskAssignment) -> None:
        """Keep who has which copies, and forget who has been away for too long."""
        longest = self._clock() - assignment.configs.standby_recovery_delay_ms / 1000
        for process in [p for p, since in self._away.items() if since <= longest]:
            del self._away[process], self._copies[process]
        for process, tasks in assignment.tasks_by_instance().items():
            self._copies[process] = tuple(map(str, (*tasks["active"], *tasks["standby"])))

    def _reports(self, joined: Sequence[Joined]) -> tuple[list[str], list[MemberReport]]:
        """The members whose reports can be used, and the reports."""
        members: list[str] = []
        reports: list[MemberReport] = []
        for j in sorted(joined, key=lambda j: j.member):
            try:
                report = MemberReport.decode(j.user_data)
                if report.process in {r.process for r in reports}:
                    raise GroupError(f"process {report.process!r} found twice, once expected")
            except GroupError as error:
                self._refuse(j.member, error)
                continue
            members.append(j.member)
            reports.append(report)
        return members, reports

    def _usable(
        self,
        member: str,
        report: MemberReport,
        owner: Mapping[int, str],
        end_offsets: Mapping[int, int] | Collection[int],
    ) -> bool:
        """Whether a report describes a possible state; one that does not is refused."""
        try:
            _state([member], [report], owner, end_offsets, ())
        except Exception as error:
            self._refuse(member, error)
            return False
        return True

    def _refuse(self, member: str, error: Exception) -> None:
        self.malformed += 1
        log.warning("member %s gets no tasks: %s", member, error)


def _owners(joined: Sequence[Joined], partitions: Collection[int]) -> dict[int, str]:
    """The member that owns each partition; of several claims the latest generation's counts."""
    owner: dict[int, tuple[int, str]] = {}
    for j in sorted(joined, key=lambda j: (j.generation, j.member)):
        for p in j.owned:
            if p in partitions:
                owner[p] = (j.generation, j.member)
    return {p: member for p, (_, member) in owner.items()}


def _starting(
    state: ApplicationState,
    assignment: TaskAssignment,
    members: Sequence[str],
    reports: Sequence[MemberReport],
    owner: Mapping[int, str],
) -> set[int]:
    """Partitions whose owner is about to process them: its state is almost complete.

    They stay for now. A rebalance that follows another at once would otherwise hand them on before
    a single record was processed.
    """
    acceptable = assignment.configs.acceptable_recovery_lag
    end = dict(zip(state.partition.tolist(), state.end_offset.tolist(), strict=True))
    found = set()
    for member, report in zip(members, reports, strict=True):
        for p in (p for p, m in owner.items() if m == member):
            name = str(TaskId(0, p))
            behind = end[p] - report.offsets.get(name, 0)
            if name not in report.running and 0 <= behind <= acceptable:
                found.add(p)
    return found


def _names(partitions: Collection[int]) -> tuple[str, ...]:
    """The tasks of partitions, sorted."""
    return tuple(str(TaskId(0, p)) for p in sorted(partitions))


def _state(
    members: Sequence[str],
    reports: Sequence[MemberReport],
    owner: Mapping[int, str],
    end_offsets: Mapping[int, int] | Collection[int],
    absent: Sequence[InstanceRecord],
) -> ApplicationState:
    """The state of the application as the assignor reads it."""
    ends = end_offsets if isinstance(end_offsets, Mapping) else dict.fromkeys(end_offsets, 0)
    instances = [*absent]
    unknown = 0
    for member, report in zip(members, reports, strict=True):
        active = tuple(str(TaskId(0, p)) for p in sorted(ends) if owner.get(p) == member)
        known = {name for name in report.offsets if _partition(name) in ends}
        unknown += len(report.offsets) - len(known)
        lags = {name: _lag(report.offsets[name], ends[_partition(name)]) for name in known}
        lags |= {name: RUNNING for name in report.running if name in active}
        standby = {s for s in report.standby if _partition(s) in ends and s not in active}
        instances.append(
            InstanceRecord(
                id=report.process,
                capacity=report.capacity,
                rack=report.rack,
                tags=report.tags,
                active=active,
                standby=tuple(sorted(standby)),
                lags=lags,
            )
        )
    if unknown:
        log.info("%s of no task of this application found in reports", plural(unknown, "offset"))
    # The largest copy is closest to what a new one restores.
    size: dict[int, int] = {}
    for report in reports:
        for name, found in report.state_bytes.items():
            size[_partition(name)] = max(found, size.get(_partition(name), 0))
    return build_state(
        StateDocument(
            instances=tuple(instances),
            tasks=tuple(
                TaskRecord(id=str(TaskId(0, p)), end_offset=ends[p], state_bytes=size.get(p))
                for p in sorted(ends)
            ),
            offsets_known=isinstance(end_offsets, Mapping),
        )
    )


def _partition(name: str) -> int:
    """The partition of a task of the only subtopology, -1 for any other task."""
    task = TaskId.parse(name)
    return task.partition if task.subtopology == 0 else -1


def _lag(offset: int, end: int) -> int:
    """Records that state lacks; state from beyond the end is of another changelog."""
    return end - offset if offset <= end else end
