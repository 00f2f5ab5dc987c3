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
from contextlib import suppress
from types import FrameType

_PR_SET_PDEATHSIG = 1


def keep(seconds: float, command: list[str]) -> int:
    """Run a command until it ends, or until standard input does; returns its exit code.

    Parameters
    ----------
    seconds
        Between SIGTERM and SIGKILL.
    command
        The consumer, with its arguments.
    """
    ending, ended = threading.Event(), threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hear)
    # a group of its own, so that what the consumer starts ends with it
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_parent
    )

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        ending.set()

    def end() -> None:
        ending.wait()
        _tell_group(child.pid, signal.SIGTERM)
        if not ended.wait(seconds):
            _tell_group(child.pid, signal.SIGKILL)

    for work in (watch, end):
        threading.Thread(target=work, daemon=True).start()
    # The id stays that of the group until the process is waited for, so it cannot be another's.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ended.set()
    _tell_group(child.pid, signal.SIGKILL)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _tell_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(keep(float(sys.argv[1]), sys.argv[2:]))
