"""Checks before each batch whether what its tasks copy fits on the disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from balancer.execution.cluster import HeldReplica, Key
from balancer.execution.outcome import Waiting
from balancer.execution.task_status import Judgement
from balancer.execution.tasks import Task
from cluster_model.log_dirs import FileSystem
from metrics_reporter.quantities import amounts

Free = Callable[[Sequence[int]], Mapping[int, Sequence[FileSystem]]]


class DiskSpace:
    """Holds back tasks that do not fit, and gives them up after a while.

    A task waits because other moves may make room for it: Kafka deletes files some time
    after a replica has left.

    Parameters
    ----------
    free
        Gives the file systems of brokers with their free bytes; everything fits on a broker
        that is missing from the result.
    timeout
        Seconds after which a task that has never fitted is given up.
    """

    def __init__(self, free: Free, timeout: float) -> None:
        self._free, self._timeout = free, timeout
        self._since: dict[int, float] = {}
        self._lacks: dict[int, str] = {}

    @property
    def waiting(self) -> Waiting:
        """The tasks that did not fit at the last check."""
        first = next(iter(self._lacks.values()), "")
        return Waiting(len(self._lacks), first and f"room: {first}")

    def keep(self, tasks: Iterable[int]) -> None:
        """Keep waiting only for these tasks (ids): others were given up for other reasons."""
        open_ = {*tasks}
        self._lacks = {i: why for i, why in self._lacks.items() if i in open_}

    def last(self, tasks: Sequence[Task]) -> list[Task]:
        """The same tasks, with those that did not fit before last, so that they block no others."""
        return sorted(tasks, key=lambda task: task.id in self._since)

    def fitting(
        self,
        tasks: Sequence[Task],
        running: Sequence[Task],
        held: Mapping[tuple[Key, int], HeldReplica],
        now: float,
    ) -> tuple[list[Task], list[tuple[Task, Judgement]]]:
        """The tasks that fit, in order and together, and those to give up.

        Parameters
        ----------
        tasks
            The tasks to start, in order.
        running
            The tasks in progress, which still need the room that they have not filled.
        held
            Replicas on disk, as far as known.
        now
            Seconds, on the clock that the timeout is measured by.
        """
        brokers = sorted({broker for task in tasks for broker, _, _ in _copies(task)})
        if not brokers:
            return list(tasks), []
        left = {
            broker: [_Space(system.paths, system.usable) for system in systems]
            for broker, systems in self._free(brokers).items()
        }
        for task in running:
            for broker, path, size in _copies(task):
                place = _place(left.get(broker, []), path)
                if place is not None:
                    place.free -= max(0.0, size - _copied(task, broker, held))
        fit: list[Task] = []
        given_up: list[tuple[Task, Judgement]] = []
        for task in tasks:
            lacking = ""
            places = []
            for broker, path, size in _copies(task):
                place = _place(left.get(broker, []), path)
                if place is None:
                    continue
                places.append((place, size))
                if size > place.free:
                    where = f"broker {broker}" if path is None else f"{path} of broker {broker}"
                    needed, free = amounts(size, max(0.0, place.free))
                    lacking = f"{needed} do not fit on {where}, which has {free} free"
            if not lacking:
                for place, size in places:
                    place.free -= size
                self._since.pop(task.id, None)
                self._lacks.pop(task.id, None)
                fit.append(task)
                continue
            self._lacks[task.id] = lacking
            if now - self._since.setdefault(task.id, now) > self._timeout:
                del self._lacks[task.id]
                given_up.append((task, Judgement("cancelled", lacking)))
        return fit, given_up


def _copies(task: Task) -> Iterator[tuple[int, str | None, float]]:
    """Broker, directory (if one is chosen) and bytes of each copy that a task makes."""
    if task.phase == "log_dir" and task.broker is not None:
        yield task.broker, task.target_dir, task.bytes
    elif task.phase == "move":
        for broker in task.added:
            yield broker, task.dirs.get(broker), task.bytes / len(task.added)


def _copied(task: Task, broker: int, held: Mapping[tuple[Key, int], HeldReplica]) -> float:
    there = held.get((task.key, broker))
    if there is None:
        return 0.0
    return there.future_size if task.phase == "log_dir" else there.size


@dataclass
class _Space:
    """The space left on a file system while a batch is assembled."""

    paths: tuple[str, ...]
    free: float


def _place(spaces: Sequence[_Space], path: str | None) -> _Space | None:
    """The file system of a directory, or the one with the most room."""
    if path is None:
        return max(spaces, key=lambda space: space.free, default=None)
    return next((space for space in spaces if path in space.paths), None)
