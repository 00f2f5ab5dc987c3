"""Measuring the cpu of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics_reporter import ReporterError
from metrics_reporter.host import HostSource, cpu_times


def ticks(stat: Path, *fields: int) -> None:
    stat.write_text(f"cpu  {' '.join(map(str, fields))}\ncpu0 1 2 3 4 5\nintr 77\n")


def test_busy_is_all_that_is_not_idle(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    # Guests are part of user and must not count twice.
    ticks(stat, 100, 0, 50, 800, 50, 0, 0, 0, 90, 0)
    source = HostSource(3, stat=stat)
    reports = iter(source)
    ticks(stat, 130, 5, 60, 830, 60, 5, 5, 5, 120, 0)
    (record,) = next(reports)
    assert (record.broker, record.topic) == (3, None)
    assert record.metrics == {"cpu_ratio": pytest.approx(0.6)}
    # Nothing passed, or time went back as cores went: nothing to tell.
    assert next(reports) == []
    ticks(stat, 1, 0, 1, 1, 0, 0, 0, 0)
    assert next(reports) == []
    ticks(stat, 2, 0, 1, 4, 0, 0, 0, 0)
    assert next(reports)[0].metrics == {"cpu_ratio": 0.25}
    assert source.problems == {}


def test_a_file_that_fails_is_a_problem_and_not_the_end(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    ticks(stat, 1, 0, 0, 0, 0, 0, 0, 0)
    source = HostSource(3, stat=stat)
    reports = iter(source)
    stat.write_text("nonsense")
    assert next(reports) == []
    assert "those of Linux expected" in source.problems["host"]
    ticks(stat, 2, 0, 0, 1, 0, 0, 0, 0)
    assert len(next(reports)) == 1
    assert source.problems == {}


def test_this_machine_has_times(tmp_path: Path) -> None:
    busy, total = cpu_times(Path("/proc/stat"))
    assert 0 < busy <= total
    with pytest.raises(ReporterError, match="No such file"):
        HostSource(1, stat=tmp_path / "missing")
    with pytest.raises(ReporterError, match="-1 found"):
        HostSource(-1)
