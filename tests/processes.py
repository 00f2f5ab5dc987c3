"""Processes that end with the one that started them, however that ends.

A test run that is killed cannot clean up: the system does, as each process asks it to.
"""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    ChildProcess = subprocess.Popen
    run_child = subprocess.run
else:
    # Linux kills such a process when the *thread* that started it has ended: this one lasts. Where
    # there is no setpriv (util-linux), as on macOS, only fixtures end processes.
    _STARTER = ThreadPoolExecutor(1, "starts processes")
    _BOUND = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()

    class ChildProcess(subprocess.Popen):
        """`subprocess.Popen` of a list of words, killed when this process has ended."""

        def __init__(self, words, **options):
            start = super().__init__
            _STARTER.submit(start, [*_BOUND, *words], **options).result()

    def run_child(words, *, input=None, timeout=None, check=False, capture_output=False, **options):
        """`subprocess.run` of such a process."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
        if capture_output:
            options["stdout"] = options["stderr"] = subprocess.PIPE
        with ChildProcess(words, **options) as process:
            try:
                printed = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(words, process.returncode, *printed)
        if check:
            done.check_returncode()
        return done
