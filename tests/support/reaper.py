"""Ends what a test run leaves behind: waits until the run has ended, however that happens.

    python reaper.py VARIABLE=VALUE [--remove DIRECTORY] PID [PID]

It waits for the end of the first of these processes, which it ends too, then kills all that have
this variable in their environment, with their descendants, and removes the directory.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_PAUSE = 0.1
# Seconds after which a process that cannot be killed is left alone.
_LIMIT = 60.0


def start(mark: str, *watched: int, remove: str | None = None) -> None:
    """Start one; where the system has no means for it, only fixtures end what they start."""
    if not hasattr(os, "pidfd_open"):
        return
    command = [sys.executable, "-IS", __file__, mark, *map(str, watched)]
    command += [] if remove is None else ["--remove", remove]
    silent = subprocess.DEVNULL
    subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent, start_new_session=True)


def _end_together(watched: Sequence[int]) -> None:
    """Wait until one of these processes has ended, then kill the first."""
    running: dict[int, int] = {}
    for pid in watched:
        with suppress(ProcessLookupError):
            running[pid] = os.pidfd_open(pid)
    if len(running) == len(watched):
        poll = select.poll()
        for file in running.values():
            poll.register(file, select.POLLIN)
        poll.poll()
    if watched[0] in running:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(running[watched[0]], signal.SIGKILL)


def _left(mark: bytes) -> set[int]:
    """Processes with this in their environment, and their descendants."""
    parents, found = {}, set[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            id_ = int(process.name)
            parents[id_] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(id_)
    while more := {child for child, of in parents.items() if of in found} - found:
        found |= more
    return found - {os.getpid()}


def main() -> None:
    """Wait, then kill and remove."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mark")
    parser.add_argument("watched", type=int, nargs="+")
    parser.add_argument("--remove", type=Path)
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _end_together(given.watched)
    deadline = time.monotonic() + _LIMIT
    while (left := _left(given.mark.encode())) and time.monotonic() < deadline:
        for id_ in left:
            with suppress(ProcessLookupError):
                os.kill(id_, signal.SIGKILL)
        time.sleep(_PAUSE)
    if given.remove is not None:
        shutil.rmtree(given.remove, ignore_errors=True)


if __name__ == "__main__":
    main()
