"""Runs a command in a separate process; returns its output and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import launch
from benchmarks.registry import BenchmarkError


def run_apart(
    command: Sequence[str | Path], subject: str, *, seconds: float = 0.0, cwd: Path | None = None
) -> int:
    """Run a command and return the peak of its resident memory, in bytes.

    Parameters
    ----------
    command
        Program and arguments.
    subject
        Name of the subject, for messages.
    seconds
        Seconds after which it is killed; 0 for never.
    cwd
        Where to run it.

    Raises
    ------
    BenchmarkError
        If it fails or is killed, with the last line of its output.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        report_path = Path(scratch) / "report.json"
        launcher = [sys.executable, "-I", "-S", launch.__file__]
        said = Path(scratch) / "said"
        with said.open("wb") as out:
            subprocess.run(
                [*launcher, report_path, str(seconds), *command],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        words = said.read_text(errors="replace").strip().splitlines()
        # The message of a Java program says more than its stack trace.
        reported = [word for word in words if not word.lstrip().startswith(("at ", "... "))]
        last = reported[-1] if reported else "no output"
        if not report_path.exists():
            raise BenchmarkError(f"{subject} could not be started: {last}")
        report = json.loads(report_path.read_text())
    if report["killed"]:
        raise BenchmarkError(f"{subject} was stopped after {seconds:g} seconds")
    if report["returncode"] != 0:
        raise BenchmarkError(f"{subject} ended with code {report['returncode']}: {last}")
    return int(report["peak_bytes"])
