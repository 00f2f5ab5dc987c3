"""Derives the capacity of log directories from sizes, shared file systems and other data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cluster_model.build import DiskRecord

Sharing = Literal["shared", "separate"]
LogDir = Mapping[str, Any]


class FileSystem(NamedTuple):
    """Log directories on one file system, and its free bytes."""

    paths: tuple[str, ...]
    usable: float


@dataclass(frozen=True)
class Room:
    """The capacity of a broker's log directories for Kafka's data.

    Parameters
    ----------
    disks
        One for each directory; those on one file system share its capacity in
        proportion to the bytes they hold.
    capacity
        Bytes of replicas plus free bytes, over all directories, where the free bytes
        of a shared file system count once; None if Kafka does not report it.
    shared
        Directories that are assumed to share a file system with others.
    """

    disks: tuple[DiskRecord, ...]
    capacity: float | None
    shared: tuple[str, ...]


def room_of(
    log_dirs: Sequence[LogDir],
    own: Collection[tuple[str, int]],
    sharing: Sharing | None = None,
    stated: float | None = None,
) -> Room:
    """Compute the capacity of a broker's log directories.

    Data other than the broker's replicas, such as leftovers of deleted topics or files of
    other programs, is no capacity: a directory's capacity is its replicas plus free bytes.

    Parameters
    ----------
    log_dirs
        The broker's DescribeLogDirs answer for all it holds.
    own
        Topic and number of the partitions that it has replicas of.
    sharing
        Whether its directories share file systems, if known; see
        :func:`file_systems`.
    stated
        The broker's capacity in bytes, which directories of unknown size divide equally.
    """
    part = (stated or 0.0) / max(1, len(log_dirs))
    held = {d["log_dir"]: _bytes(d, own) for d in log_dirs}
    room = {d["log_dir"]: _room(d, held[d["log_dir"]]) for d in log_dirs}
    disks = tuple(
        DiskRecord(
            path=d["log_dir"],
            # An offline directory reports no size, and no longer holds anything.
            capacity=_known(room[d["log_dir"]], part) if _alive(d) else 0.0,
            alive=_alive(d),
            cordoned=bool(d.get("is_cordoned", False)),
        )
        for d in log_dirs
    )
    living = [d for d in log_dirs if _alive(d)]
    if any(room[d["log_dir"]] is None for d in living):
        return Room(disks, None, ())
    systems = file_systems(living, sharing)
    once = {path for system in systems for path in system.paths}
    capacity = sum(system.usable + sum(held[path] for path in system.paths) for system in systems)
    capacity += sum(_known(room[d["log_dir"]], 0.0) for d in living if d["log_dir"] not in once)
    together = [system for system in systems if len(system.paths) > 1]
    closed = {disk.path for disk in disks if disk.cordoned}
    open_ = [system for system in together if not closed & {*system.paths}]
    parts = {path: part for system in open_ for path, part in _parts(system, held)}
    return Room(
        tuple(
            disk.model_copy(update={"capacity": parts.get(disk.path, disk.capacity)})
            for disk in disks
        ),
        float(capacity),
        tuple(path for system in together for path in system.paths),
    )


def file_systems(
    log_dirs: Sequence[LogDir], sharing: Sharing | None = None, *, tolerance: int = 64 * 2**20
) -> list[FileSystem]:
    """The file systems of a broker's log directories, of those that report their free bytes.

    Kafka does not report which directories share one. Those of equal size and equal free
    bytes are assumed to. If they do not, the capacity is underestimated, never overestimated,
    and only until they fill up differently. Each directory is measured separately, so
    writes between two measurements make a small difference. Such directories count as
    separate only if together they hold more than is used on either.

    Parameters
    ----------
    sharing
        ``shared``: directories of equal size share a file system; ``separate``: none do;
        None: find out.
    tolerance
        Difference in free bytes that directories on one file system may show.
    """
    reported = [d for d in log_dirs if _alive(d) and _usable(d) >= 0]
    reported.sort(key=lambda d: (d.get("total_bytes", -1), _usable(d), d["log_dir"]))
    groups: list[list[LogDir]] = []
    for d in reported:
        if (
            groups
            and sharing != "separate"
            and _share_a_file_system([*groups[-1], d], sharing, tolerance)
        ):
            groups[-1].append(d)
        else:
            groups.append([d])
    return [
        FileSystem(tuple(d["log_dir"] for d in g), float(min(_usable(d) for d in g)))
        for g in groups
    ]


def _share_a_file_system(group: Sequence[LogDir], sharing: Sharing | None, tolerance: int) -> bool:
    """Whether directories, sorted by free bytes, appear to share a file system."""
    if len({d.get("total_bytes", -1) for d in group}) > 1:
        return False
    least, most = _usable(group[0]), _usable(group[-1])
    if sharing == "shared" or least == most:
        return True
    used = group[0].get("total_bytes", -1) - least
    return most - least <= tolerance and used >= sum(_bytes(d, None) for d in group)


def _parts(
    system: FileSystem, held: Mapping[str, float], tolerance: int = 64 * 2**20
) -> Iterator[tuple[str, float]]:
    """The capacity of each directory of a shared file system: free bytes count once.

    They share it in proportion to the bytes they hold, so that moving replicas between
    them gains nothing. If they hold about the same, they may be separate disks that only
    look alike so far: then all get an equal part, and fill up equally.
    """
    there = [held[path] for path in system.paths]
    total = sum(there)
    alike = max(there) - min(there) <= tolerance
    for path in system.paths:
        part = 1 / len(there) if alike else held[path] / total
        yield path, part * (system.usable + total)


def _bytes(log_dir: LogDir, own: Collection[tuple[str, int]] | None) -> float:
    """Bytes of these partitions in a directory, including copies in progress."""
    return float(
        sum(
            p["partition_size"]
            for topic in log_dir["topics"]
            for p in topic["partitions"]
            if own is None or (topic["name"], p["partition_index"]) in own
        )
    )


def _room(log_dir: LogDir, held: float) -> float | None:
    usable, total = _usable(log_dir), float(log_dir.get("total_bytes", -1))
    if usable >= 0:
        return held + usable
    return total if total >= 0 else None


def _known(room: float | None, otherwise: float) -> float:
    return otherwise if room is None else room


def _usable(log_dir: LogDir) -> float:
    return float(log_dir.get("usable_bytes", -1))


def _alive(log_dir: LogDir) -> bool:
    return bool(log_dir["error_code"] == 0)
