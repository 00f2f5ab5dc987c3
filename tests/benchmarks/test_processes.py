from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.harness.environments import PeerMissing, environment, find_python
from benchmarks.harness.processes import run_apart
from benchmarks.registry import BenchmarkError


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_peak_is_the_childs_own() -> None:
    # This process is far larger than an empty interpreter; the child must not inherit that.
    ballast = bytearray(b"x" * 200_000_000)
    small = run_apart(python("pass"), "small")
    large = run_apart(python("x = bytearray(b'x' * 80_000_000)"), "large")
    assert len(ballast) == 200_000_000
    assert small < 50_000_000
    assert large - small > 70_000_000


def test_a_failure_is_reported_by_the_last_thing_said() -> None:
    with pytest.raises(BenchmarkError, match="subject ended with code 1: ValueError: no good"):
        run_apart(python("raise ValueError('no good')"), "subject")


def test_a_subject_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(BenchmarkError, match=r"subject was stopped after 0\.2 seconds"):
        run_apart(python("import time; time.sleep(60)"), "subject", seconds=0.2)


def test_a_program_that_is_not_there_is_reported() -> None:
    with pytest.raises(BenchmarkError, match="subject could not be started"):
        run_apart(["/no/such/program"], "subject")


def test_the_running_python_is_found() -> None:
    version = sys.version_info[:2]
    assert find_python("peer", [(2, 1), version]) == (version, sys.executable)


def test_a_missing_python_is_reported_in_one_sentence() -> None:
    with pytest.raises(PeerMissing, match=r"peer needs one of Python 2\.1; none was found"):
        find_python("peer", [(2, 1)])


@pytest.mark.soak
def test_an_environment_that_is_ready_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reported: list[str] = []
    version = sys.version_info[:2]
    first = environment("peer", ["--help"], [version], reported.append)
    again = environment("peer", ["--help"], [version], reported.append)
    assert first == again
    assert first.is_relative_to(tmp_path)
    assert len(reported) == 1
