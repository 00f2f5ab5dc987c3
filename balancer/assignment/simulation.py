"""Simulates an application over time: who joins and leaves, what is restored, what stands still.

Nothing is stepped: between two events all rates are constant, so the time of the next event, and
all that happens until then, are exact. Where an instance or the brokers send less than the copies
could take, each copy gets the same share, and what a copy does not need goes to the others. An
instance restores its active tasks before it reads for standbys. A task writes to its changelog
while it is processed; an input that waits meanwhile is not simulated. Changelogs are compacted:
what a task writes replaces as much of what it wrote before, so no copy lacks more than the records
of the whole changelog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

import numpy as np

from balancer.assignment.errors import TaskAssignmentError
from balancer.assignment.result import TaskAssignment
from balancer.assignment.scenario import Change, ChangeKind, Scenario, members_at_start
from balancer.assignment.state import RUNNING, ApplicationState
from cluster_model.snapshot import Bools, Floats, Ints
from metrics_reporter.quantities import plural

# Records below which a difference is rounding; more where times and lags are less exact.
_ROUNDING = 1e-3
_LAST_DIGITS = 4.0
# Events at one time besides those of copies.
_MORE_EVENTS = 100


class Assignor(Protocol):
    """Assigns tasks: a :class:`~balancer.assignment.TaskAssignor`, or another to compare with."""

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed."""


class Status(IntEnum):
    """What a task is doing."""

    PROCESSING = 0
    """It runs."""
    CATCHING_UP = 1
    """Its instance restores the last records, no more than the acceptable lag."""
    RESTORING = 2
    """Its instance restores more than that."""
    HANDOVER = 3
    """It has been revoked, and its new owner has not started yet."""
    UNNOTICED = 4
    """An instance has crashed, and the others do not know yet: its own, or one that the rebalance
    which is to place the task waits for."""
    UNASSIGNED = 5
    """There is no instance for it."""


class Role(IntEnum):
    """What a copy is."""

    NONE = 0
    ACTIVE = 1
    STANDBY = 2
    WARMUP = 3


@dataclass(frozen=True)
class Rebalance:
    """One rebalance.

    Parameters
    ----------
    at
        Seconds since the start.
    probing
        Whether it was only to look at the lags again.
    moved
        Active tasks with another owner than before, or with one again.
    cold
        New copies, of any role, that have records to restore.
    warmups
        Warm-ups in the assignment.
    movements
        Copies that are not yet where they are to be.
    followup
        Whether a probing rebalance will follow.
    """

    at: float
    probing: bool
    moved: int
    cold: int
    warmups: int
    movements: int
    followup: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation:
    """What happened: N moments between which all rates are constant, T tasks, I instances.

    Parameters
    ----------
    scenario
        What was simulated.
    rebalances
        All rebalances, in order.
    time : (N,) float
        Seconds of each moment; the last is the end.
    owner : (N, T) int
        Instance that each task's active copy is assigned to from then on, -1 for none.
    status : (N, T) int
        The :class:`Status` of each task from then on.
    member : (N, I) bool
        Whether the instance is up from then on.
    copies : (N, I, 4) int
        Number of copies in each :class:`Role` from then on; index 0 counts active tasks that do
        not process.
    lag, lag_after : (N, I) float
        Records that all copies of an instance are behind at that moment, and when the next one
        comes; in between it changes at a constant rate.
    seconds : (T, 6) float
        Seconds that each task was in each status.
    avoidable : (T,) float
        Seconds of them in which it was not processed for want of state, although a member had a
        copy within the acceptable lag, and no rebalance waited for a crash to be noticed.
    restored : (T,) float
        Records read by copies that were behind.
    followed : (T,) float
        Records read by copies that were not.
    written : (T,) float
        Records written to the changelog.
    settled
        Whether the application came to rest before the horizon.
    """

    scenario: Scenario
    rebalances: tuple[Rebalance, ...]
    time: Floats
    owner: Ints
    status: Ints
    member: Bools
    copies: Ints
    lag: Floats
    lag_after: Floats
    seconds: Floats
    avoidable: Floats
    restored: Floats
    followed: Floats
    written: Floats
    settled: bool

    @property
    def availability(self) -> Floats:
        """(T,) share of the time in which each task was processed."""
        total = self.seconds.sum(axis=1)
        shares: Floats = np.ones(len(total))
        np.divide(self.seconds[:, Status.PROCESSING], total, out=shares, where=total > 0)
        return shares

    @property
    def without_active(self) -> Floats:
        """(T,) seconds in which no instance within the acceptable lag was its owner."""
        beyond = [Status.RESTORING, Status.UNNOTICED, Status.UNASSIGNED]
        seconds: Floats = self.seconds[:, beyond].sum(axis=1)
        return seconds

    @property
    def rounds(self) -> int:
        """The most rebalances after one change of the membership, its own included."""
        longest = current = 0
        for rebalance in self.rebalances:
            current = current + 1 if rebalance.probing else 1
            longest = max(longest, current)
        return longest

    def imbalance(self, resource: str | None = None) -> Floats:
        """(N,) load of the fullest member over the mean, both in shares of the capacity.

        Parameters
        ----------
        resource
            A measured load; None counts tasks per thread.
        """
        s = self.scenario.state
        if resource is None:
            load, capacity = np.ones(s.n_tasks), s.capacity.astype(np.float64)
        else:
            r = s.resources.index(resource)
            load, capacity = s.load[:, r], s.capacity.astype(np.float64)
            if s.instance_capacity.size and np.isfinite(s.instance_capacity[:, r]).all():
                capacity = s.instance_capacity[:, r]
        found = np.ones(len(self.time))
        for n, (owner, member) in enumerate(zip(self.owner, self.member, strict=True)):
            run = owner >= 0
            if run.any() and member.any():
                on = np.bincount(owner[run], weights=load[run], minlength=s.n_instances)
                mean = on.sum() / capacity[member].sum()
                found[n] = (on / capacity)[member].max() / mean if mean > 0 else 1.0
        return found


def simulate(
    scenario: Scenario,
    assignor: Assignor,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Simulate a scenario; equal scenarios and assignors give equal results.

    Parameters
    ----------
    scenario
        The application and the changes of its membership.
    assignor
        Called at each rebalance with what the members would report.
    progress
        Called after each rebalance with the number of changes of the membership so far, and of
        rebalances.

    Raises
    ------
    TaskAssignmentError
        If the assignor returns something that is no assignment, asks for rebalances at
        intervals so short that time stands still, or for more than the scenario's
        `most_rebalances`.
    """
    return _Run(scenario, assignor, progress).result()


@dataclass
class _Moments:
    """What is recorded at each moment."""

    time: list[float] = field(default_factory=list)
    owner: list[Ints] = field(default_factory=list)
    status: list[Ints] = field(default_factory=list)
    member: list[Bools] = field(default_factory=list)
    copies: list[Ints] = field(default_factory=list)
    lag: list[Floats] = field(default_factory=list)
    lag_after: list[Floats] = field(default_factory=list)


class _Run:
    """The application at one moment; ``lag`` is NaN where there is no state."""

    def __init__(
        self,
        scenario: Scenario,
        assignor: Assignor,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        s = scenario.state
        self.scenario, self.assignor, self.state, self.progress = scenario, assignor, s, progress
        shape = (s.n_tasks, s.n_instances)
        self.now = 0.0
        self.logged: Bools = s.stateful & (s.end_offset > 0)
        self.end = s.end_offset.astype(np.float64)
        self.member = np.zeros(s.n_instances, np.bool_)
        self.member[members_at_start(scenario)] = True
        # Instances that have crashed, and when the others will know.
        self.unnoticed: dict[int, float] = {}
        self.owner = np.full(s.n_tasks, -1)
        self.starts = np.zeros(s.n_tasks)
        self.role = np.zeros(shape, np.int64)
        self.lag = np.full(shape, np.nan)
        self.deleted_at = np.full(shape, math.inf)
        # Instances that are away: since when, and the stateful tasks of which they had copies.
        self.absent: dict[int, tuple[float, Ints]] = {}
        self.changes = list(reversed(scenario.changes))
        # Whether the membership has changed since the last rebalance.
        self.due = False
        self.probe = math.inf
        self.moments = _Moments()
        self.rebalances: list[Rebalance] = []
        self.seconds = np.zeros((s.n_tasks, len(Status)))
        self.avoidable, self.restored, self.followed, self.written = np.zeros((4, s.n_tasks))

    def result(self) -> Simulation:
        """Run to the end."""
        self.due = self._begin()
        last = self.changes[0].at if self.changes else 0.0
        end = last + self.scenario.horizon
        settled = False
        # Events at one time: each copy can reach two levels, and a rebalance may follow.
        still, most = 0, 4 * self.role.size + _MORE_EVENTS
        while True:
            self.due = self._apply_changes() or self.due
            if not self.unnoticed and (self.due or self.probe <= self.now):
                self._rebalance(probing=not self.due)
                self.due = False
            status, rates = self._status(), self._rates()
            self._record(status)
            following = min(self._events(rates), default=math.inf)
            settled = following == math.inf
            if settled or self.now >= end:
                break
            until = min(following, end)
            still = 0 if until > self.now else still + 1
            if still > most:
                raise TaskAssignmentError(
                    f"{plural(still, 'event')} found at {self.now:.17g} s, a later one expected: "
                    "an interval is too short for that time"
                )
            self._advance(until, status, rates)
        m = self.moments
        return Simulation(
            scenario=self.scenario,
            rebalances=tuple(self.rebalances),
            time=np.array(m.time),
            owner=np.array(m.owner),
            status=np.array(m.status),
            member=np.array(m.member),
            copies=np.array(m.copies),
            lag=np.array(m.lag),
            lag_after=np.array([*m.lag_after, m.lag[-1]]),
            seconds=self.seconds,
            avoidable=self.avoidable,
            restored=self.restored,
            followed=self.followed,
            written=self.written,
            settled=settled,
        )

    def _begin(self) -> bool:
        """Place what is there at the start; returns whether a rebalance is due."""
        s = self.state
        task = np.repeat(np.arange(s.n_tasks), np.diff(s.lag_offset))
        self.lag[task, s.lag_instance] = np.where(s.lag == RUNNING, 0, s.lag)
        np.minimum(self.lag, self.end[:, None], out=self.lag)
        self.deleted_at[:, self.member] = self.scenario.state_cleanup_delay
        if len(s.previous_task):
            known = self.lag[s.previous_task, s.previous_instance]
            lacks = np.where(s.previous_active, 0.0, self.end[s.previous_task])
            self.lag[s.previous_task, s.previous_instance] = np.where(np.isnan(known), lacks, known)
            self.role[s.previous_task, s.previous_instance] = np.where(
                s.previous_active, Role.ACTIVE, Role.STANDBY
            )
            self.deleted_at[s.previous_task, s.previous_instance] = math.inf
            active = s.previous_task[s.previous_active]
            self.owner[active] = s.previous_instance[s.previous_active]
            return True
        if not self.member.any():
            return False
        empty = replace(self._reported(), end_offset=np.zeros(s.n_tasks, np.int64))
        assignment = self.assignor.assign(empty)
        self._take(assignment, self.member.nonzero()[0])
        self.lag[(self.role > 0) & self.logged[:, None]] = 0.0
        self._note(assignment, probing=False, moved=0, cold=0)
        return False

    def _apply_changes(self) -> bool:
        """The changes of the membership that are due; returns whether there are any."""
        known = [i for i, at in self.unnoticed.items() if at <= self.now]
        for i in known:
            del self.unnoticed[i]
        due = bool(known)
        while self.changes and self.changes[-1].at <= self.now:
            change = self.changes.pop()
            due = self._change(change) or due
        expired = (self.deleted_at <= self.now) & self.member
        self.lag[expired], self.deleted_at[expired] = np.nan, math.inf
        return due

    def _change(self, change: Change) -> bool:
        """One change; returns whether the others know at once."""
        i = change.instance
        if change.kind is ChangeKind.JOIN:
            self.member[i] = True
            self.absent.pop(i, None)
            # Who is back before its session times out has given up its tasks all the same.
            self.unnoticed.pop(i, None)
            self.owner[self.owner == i] = -1
            self.role[:, i] = Role.NONE
            if change.wiped:
                self.lag[:, i] = np.nan
            left = ~np.isnan(self.lag[:, i])
            self.deleted_at[left, i] = self.now + self.scenario.state_cleanup_delay
            return True
        self.member[i] = False
        had = (self.role[:, i] == Role.ACTIVE) | (self.role[:, i] == Role.STANDBY)
        self.absent[i] = self.now, (had & self.state.stateful).nonzero()[0]
        if change.kind is ChangeKind.CRASH:
            self.unnoticed[i] = self.now + self.scenario.session_timeout
            return False
        self.owner[self.owner == i] = -1
        self.role[:, i] = Role.NONE
        return True

    def _reported(self) -> ApplicationState:
        """What the members report when a rebalance starts."""
        s, members = self.state, self.member.nonzero()[0]
        held = ~np.isnan(self.lag[:, members]) & self.logged[:, None]
        task, column = held.nonzero()
        lag = np.ceil(self.lag[task, members[column]] - _ROUNDING).astype(np.int64)
        lag[self._processing()[task] & (self.owner[task] == members[column])] = RUNNING
        role = self.role[:, members]
        previous_task, previous = role.nonzero()
        absent = [
            (t, round((self.now - since) * 1000.0))
            for since, tasks in self.absent.values()
            for t in tasks.tolist()
        ]
        absent_task, absent_ms = np.array(absent, np.int64).reshape(-1, 2).T
        return replace(
            s,
            absent_task=absent_task,
            absent_ms=absent_ms,
            instances=tuple(s.instances[i] for i in members.tolist()),
            capacity=s.capacity[members],
            lag_offset=np.searchsorted(task, np.arange(s.n_tasks + 1)),
            lag_instance=column,
            lag=lag,
            previous_task=previous_task,
            previous_instance=previous,
            previous_active=role[previous_task, previous] == Role.ACTIVE,
            rack=s.rack[members] if len(s.rack) else s.rack,
            tags={k: tuple(v[i] for i in members.tolist()) for k, v in s.tags.items()},
            attributes={k: tuple(v[i] for i in members.tolist()) for k, v in s.attributes.items()},
            instance_capacity=s.instance_capacity[members]
            if s.instance_capacity.size
            else s.instance_capacity,
        )

    def _rebalance(self, *, probing: bool) -> None:
        """Ask the assignor, and do what it says."""
        self.probe = math.inf
        if not self.member.any():
            self.owner[:], self.role[:] = -1, Role.NONE
            return
        if len(self.rebalances) >= self.scenario.most_rebalances:
            raise TaskAssignmentError(
                f"{plural(len(self.rebalances), 'rebalance')} found within {self.now:g} s, no more "
                f"than most_rebalances ({self.scenario.most_rebalances}) expected: allow more, or "
                "state fewer changes, a longer probing interval or a shorter horizon"
            )
        state = self._reported()
        assignment = self.assignor.assign(state)
        before = self.owner.copy()
        cold = self._take(assignment, self.member.nonzero()[0])
        moved = int((before != self.owner).sum())
        self._note(assignment, probing=probing, moved=moved, cold=cold)
        if self.progress is not None:
            applied = len(self.scenario.changes) - len(self.changes)
            self.progress(applied, len(self.rebalances))

    def _note(self, assignment: TaskAssignment, *, probing: bool, moved: int, cold: int) -> None:
        followup = assignment.followup_rebalance_ms
        if followup is not None:
            self.probe = self.now + followup / 1000.0
        self.rebalances.append(
            Rebalance(
                at=self.now,
                probing=probing,
                moved=moved,
                cold=cold,
                warmups=int(assignment.warmup.sum()),
                movements=assignment.movements,
                followup=followup is not None,
            )
        )

    def _take(self, assignment: TaskAssignment, members: Ints) -> int:
        """Give copies up and take new ones; returns how many of these have to restore."""
        n_tasks, n = self.state.n_tasks, len(members)
        active, other = assignment.active, assignment.standby_instance
        placed = np.zeros((n_tasks, n), np.int64)
        if len(active) != n_tasks or not ((active >= 0) & (active < n)).all():
            raise TaskAssignmentError("an assignment found in which a task has no active copy")
        placed[assignment.standby_task, other] = np.where(
            assignment.warmup, Role.WARMUP, Role.STANDBY
        )
        if placed[np.arange(n_tasks), active].any():
            raise TaskAssignmentError("an assignment found with two copies on one instance")
        placed[np.arange(n_tasks), active] = Role.ACTIVE
        role = np.zeros_like(self.role)
        role[:, members] = placed
        new, gone = (role > 0) & (self.role == 0), (role == 0) & (self.role > 0)
        logged = self.logged[:, None]
        missing = new & logged & np.isnan(self.lag)
        self.lag[missing] = np.broadcast_to(self.end[:, None], role.shape)[missing]
        self.deleted_at[new] = math.inf
        self.deleted_at[gone] = self.now + self.scenario.state_cleanup_delay
        owner = members[active]
        revoked = (owner != self.owner) & (self.owner >= 0) & self.member[self.owner]
        self.starts[owner != self.owner] = self.now
        self.starts[revoked] = self.now + self.scenario.handover
        self.role, self.owner = role, owner
        return int((new & logged & (self.lag > _ROUNDING)).sum())

    def _processing(self) -> Bools:
        """(T,) whether each task is processed."""
        at = np.arange(self.state.n_tasks), self.owner
        up = (self.owner >= 0) & self.member[self.owner] & (self.starts <= self.now)
        current = ~self.logged | (self.lag[at] <= 0)
        processing: Bools = up & current
        return processing

    def _status(self) -> Ints:
        """(T,) the status of each task."""
        lag = self.lag[np.arange(self.state.n_tasks), self.owner]
        acceptable = self.scenario.configs.acceptable_recovery_lag
        has = self.owner >= 0
        status: Ints = np.select(
            [
                ~has & (not self.unnoticed or not self.member.any()),
                ~has | ~self.member[self.owner],
                self.starts > self.now,
                ~self.logged | (lag <= 0),
                lag <= acceptable + _ROUNDING,
            ],
            [
                Status.UNASSIGNED,
                Status.UNNOTICED,
                Status.HANDOVER,
                Status.PROCESSING,
                Status.CATCHING_UP,
            ],
            Status.RESTORING,
        )
        return status

    def _rates(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Task, instance, records/s read, and change of the lag, of each copy that reads."""
        task, instance = ((self.role > 0) & self.member & self.logged[:, None]).nonzero()
        lag, active = self.lag[task, instance], self.role[task, instance] == Role.ACTIVE
        write = np.where(self._processing(), self.scenario.write_rate, 0.0)[task]
        demand = np.where(lag > 0, math.inf, write)
        demand[active & (lag <= 0)] = 0.0
        restores = np.zeros(self.state.n_instances, np.bool_)
        restores[instance[active & (lag > 0)]] = True
        demand[~active & restores[instance]] = 0.0
        for i in np.unique(instance).tolist():
            of = instance == i
            demand[of] = _shared(demand[of], float(self.scenario.restore_rate[i]))
        read = _shared(demand, self.scenario.broker_restore_rate)
        grows = np.where(active, 0.0, write) - read
        grows[(lag <= 0) & (grows <= 0)] = 0.0
        return task, instance, read, grows

    def _events(self, rates: tuple[Ints, Ints, Floats, Floats]) -> Iterator[float]:
        """When something will happen next."""
        task, instance, _, grows = rates
        if self.changes:
            yield self.changes[-1].at
        yield from self.unnoticed.values()
        if self.probe < math.inf and not self.unnoticed:
            yield max(self.probe, self.now)
        if (waiting := self.starts[self.starts > self.now]).size:
            yield float(waiting.min())
        lag, acceptable = self.lag[task, instance], self.scenario.configs.acceptable_recovery_lag
        falls = grows < 0
        for level in (0.0, float(acceptable)):
            above = falls & (lag > level + (_ROUNDING if level else 0.0))
            if above.any():
                yield self.now + float(((lag[above] - level) / -grows[above]).min())
        expires = self.deleted_at[:, self.member]
        # State that is deleted matters only if there is a rebalance afterwards.
        if (self.changes or self.unnoticed or self.probe < math.inf) and np.isfinite(expires).any():
            yield max(float(expires.min()), self.now)

    def _advance(
        self, until: float, status: Ints, rates: tuple[Ints, Ints, Floats, Floats]
    ) -> None:
        """Let time pass; nothing happens before `until`."""
        task, instance, read, grows = rates
        step = until - self.now
        every = np.arange(self.state.n_tasks)
        self.seconds[every, status] += step
        acceptable = self.scenario.configs.acceptable_recovery_lag
        copies = self.lag[:, self.member] <= acceptable + _ROUNDING
        if not self.due:
            self.avoidable[(status == Status.RESTORING) & copies.any(axis=1)] += step
        processing = self._processing()
        written = np.where(processing, self.scenario.write_rate, 0.0) * step
        behind = self.lag[task, instance] > 0
        np.add.at(self.restored, task[behind], read[behind] * step)
        np.add.at(self.followed, task[~behind], read[~behind] * step)
        reads = np.zeros(self.lag.shape, np.bool_)
        reads[task, instance] = True
        idle = ~reads & ~np.isnan(self.lag)
        self.lag[idle] += np.broadcast_to(written[:, None], self.lag.shape)[idle]
        np.minimum(self.lag, self.end[:, None], out=self.lag)
        lag = self.lag[task, instance] + grows * step
        # Copies that fall to a level reach it, even if the time cannot be stated as exactly.
        rounding = -grows * np.spacing(until) + np.spacing(self.end[task])
        rounding = np.maximum(_ROUNDING, _LAST_DIGITS * rounding)
        falls = grows < 0
        lag[falls & (np.abs(lag - acceptable) <= rounding)] = acceptable
        lag[falls & (lag <= rounding)] = 0.0
        self.lag[task, instance] = np.minimum(lag, self.end[task])
        self.written += written
        self.now = until
        self.moments.lag_after.append(self._behind())

    def _record(self, status: Ints) -> None:
        """Keep this moment."""
        s, m = self.state, self.moments
        copies = np.stack([(self.role == role).sum(axis=0) for role in Role], axis=1)
        stands = (status != Status.PROCESSING) & (self.owner >= 0)
        copies[:, 0] = np.bincount(self.owner[stands], minlength=s.n_instances)
        m.time.append(self.now)
        m.owner.append(self.owner.copy())
        m.status.append(status)
        m.member.append(self.member.copy())
        m.copies.append(copies)
        m.lag.append(self._behind())

    def _behind(self) -> Floats:
        """(I,) records that the copies of each instance are behind."""
        held = (self.role > 0) & ~np.isnan(self.lag)
        behind: Floats = np.where(held, self.lag, 0.0).sum(axis=0)
        return behind


def _shared(demand: Floats, capacity: float) -> Floats:
    """What each gets of a capacity: all it demands, or the same as the others that lack some."""
    if not demand.size or demand.sum() <= capacity:
        return demand
    rising = np.sort(demand)
    before = np.concatenate([[0.0], np.cumsum(rising[:-1])])
    level = (capacity - before) / np.arange(len(rising), 0, -1)
    # The first that cannot have all it demands, if all after it get as much as it does.
    short = rising > level
    found: Floats = np.minimum(demand, level[int(short.argmax())]) if short.any() else demand
    return found
