"""Runs one consumer, and ends it when its starter goes away, however that happens.

A program of its own, which reads nothing of this package: ``keeper.py SECONDS COMMAND...``. Its
standard input is a pipe that nobody writes to; it ends with the process that holds the other end,
also when that one is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

# Environment variable by which everything that a consumer starts is found, whatever its session.
MARK_VARIABLE = "COUNTERPOISE_KEEPER"
_PR_SET_PDEATHSIG = 1
# Seconds between looks for processes that are still to end.
_PAUSE = 0.1


def keep(seconds: float, command: list[str]) -> int:
    """Run a command until it ends, or until standard input does; returns its exit code.

    All that the consumer has started ends with it: by SIGTERM at once, by SIGKILL afterwards.

    Parameters
    ----------
    seconds
        Between SIGTERM and SIGKILL.
    command
        The consumer, with its arguments.
    """
    ending, ended = threading.Event(), threading.Event()
    mark = os.environ.get(MARK_VARIABLE, "")

    def hear(number: int, frame: FrameType | None) -> None:
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hear)
    # a group of its own, so that what the consumer starts ends with it; the only thread so far,
    # which lasts as long as this process, is the parent whose end the kernel watches
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(_end_with, os.getpid()),
    )

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        ending.set()

    def others() -> list[int]:
        return [p for p in marked(mark) if p not in (os.getpid(), child.pid)]

    def send(number: signal.Signals) -> None:
        apart = [p for p in others() if _group(p) != child.pid]
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        for process in apart:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def end() -> None:
        ending.wait()
        send(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        ended.wait(seconds)
        while others() and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        send(signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    ender = threading.Thread(target=end, daemon=True)
    ender.start()
    # The id stays that of the group until the process is waited for, so it cannot be another's.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ended.set()
    ending.set()
    ender.join()
    code = child.wait()
    return code if code >= 0 else 128 - code


def marked(mark: str) -> list[int]:
    """Ids of the processes with a mark in their environment, where /proc shows it."""
    entry = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/environ") if mark else ():
        # another user's process, or one that has just ended
        with suppress(OSError):
            if entry in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
    return found


def _group(process: int) -> int:
    """The group of a process; -1 if it has ended."""
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return -1


def _end_with(parent: int) -> None:
    """Have the kernel end this process with its parent, also one that has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(keep(float(sys.argv[1]), sys.argv[2:]))
