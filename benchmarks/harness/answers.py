"""A subject's answer: its final placement and the time it took."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.registry import BenchmarkError
from cluster_model.snapshot import Ints, Snapshot


@dataclass(frozen=True, eq=False)
class Answer:
    """A final placement of the replicas of a snapshot.

    Parameters
    ----------
    replica_broker : (N,) int
        Broker index of each replica; in any order within a partition.
    leader : (P,) int
        Position of the leader within the partition, -1 for none.
    seconds, setup_seconds
        Time of the solution, and of stating the problem if that is measured separately.
    finished
        False if a time limit ended the search.
    bytes_lower_bound
        Bytes that any placement that meets the goals must move; nan if unknown.
    """

    replica_broker: Ints
    leader: Ints
    seconds: float
    setup_seconds: float = 0.0
    finished: bool = True
    bytes_lower_bound: float = math.nan


def save_answer(answer: Answer, path: Path) -> None:
    """Write an answer as npz."""
    np.savez(path, **vars(answer))


def load_answer(path: Path, snapshot: Snapshot, subject: str) -> Answer:
    """Read an answer to the problem of `snapshot`.

    Without a ``leader`` in the file every replica has kept its role.

    Raises
    ------
    BenchmarkError
        For a missing file, field or replica.
    """
    try:
        with np.load(path) as data:
            values = {name: data[name] for name in data.files}
        answer = Answer(
            replica_broker=values["replica_broker"].astype(np.int64),
            leader=values.get("leader", snapshot.leader).astype(np.int64),
            seconds=float(values["seconds"]),
            setup_seconds=float(values.get("setup_seconds", 0.0)),
            finished=bool(values.get("finished", True)),
            bytes_lower_bound=float(values.get("bytes_lower_bound", math.nan)),
        )
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise BenchmarkError(f"the answer of {subject} cannot be read: {error}") from None
    return answer
