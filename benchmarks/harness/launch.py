"""Runs one command as the only child of a small process and records its time and memory.

Stands alone, so that the process stays small: a child's peak memory as the kernel
reports it begins at the size of the process that started it.

    python launch.py REPORT.json SECONDS COMMAND...

REPORT.json gets ``returncode``, ``peak_bytes`` and ``killed``. The command is
killed with its descendants after SECONDS (0: never).
"""

import json
import os
import signal
import subprocess
import sys
import threading


def main(report_path: str, seconds: str, *command: str) -> None:
    """Run `command` and write the report."""
    child = subprocess.Popen(command, start_new_session=True)
    killed = threading.Event()

    def kill() -> None:
        killed.set()
        os.killpg(child.pid, signal.SIGKILL)

    def pass_on(number: int, _frame: object) -> None:
        os.killpg(child.pid, signal.SIGKILL)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    timer = threading.Timer(float(seconds), kill)
    timer.daemon = True
    if float(seconds) > 0:
        timer.start()
    _, status, usage = os.wait4(child.pid, 0)
    timer.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024
    report = {
        "returncode": child.returncode,
        "peak_bytes": usage.ru_maxrss * unit,
        "killed": killed.is_set(),
    }
    with open(report_path, "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
