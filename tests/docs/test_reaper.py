"""Whatever ends a test run, its processes and temporary files go with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

SUPPORT = Path(__file__).parents[1] / "support"
# Starts a process that leaves its session and loses its parent, and waits.
RUN = """
import os, signal, subprocess, sys
sys.path[:0] = [sys.argv[1]]
import reaper
# A run that a shell has put in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["MARK"] = sys.argv[2]
reaper.start(f"MARK={sys.argv[2]}", os.getpid(), os.getppid(), remove=sys.argv[2])
subprocess.run(["setsid", "sh", "-c", "sleep 1000 & echo $!"])
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, "exit", "make"])
def test_nothing_outlives_a_run(ends: signal.Signals | str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    command = [sys.executable, "-c", RUN, str(SUPPORT), str(files)]
    if ends == "make":  # a parent, which does not pass on that it was killed
        command = [sys.executable, "-c", f"import subprocess; subprocess.run({command})"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        pids = [int(run.stdout.readline()) for _ in range(2)]
        assert not any(map(gone, pids))
        if ends == "exit":
            run.stdin.close()
        else:
            run.send_signal(signal.SIGKILL if isinstance(ends, str) else ends)
        wait_for(lambda: all(map(gone, pids)) and not files.exists())
