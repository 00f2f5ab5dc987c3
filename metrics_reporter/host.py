"""Measures the cpu of the machine, for a reporter that runs next to its broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from metrics_reporter.errors import ReporterError
from metrics_reporter.metrics import CPU_RATIO
from metrics_reporter.records import Record
from metrics_reporter.source_plugins import Connection

# user, nice, system, idle, iowait, irq, softirq, steal; guests count as user already.
_FIELDS = 8
_IDLE = (3, 4)


class HostOptions(BaseModel):
    """The source ``host``: the cpu of the machine that the command runs on.

    Parameters
    ----------
    broker
        Id of the broker on this machine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: ClassVar[str] = "Measure the cpu of a broker's machine, next to the broker."

    broker: int

    def open(self, connection: Connection) -> HostSource:
        """The source itself."""
        return HostSource(self.broker)


class HostSource:
    """The cpu use of a broker's machine, as a share of all its cores.

    Everything that runs on the machine counts, as it does against the broker's capacity.
    The first report covers the time since the source was created.

    Parameters
    ----------
    broker
        Id of the broker on this machine.
    stat
        Linux' file of cpu times.

    Attributes
    ----------
    problems
        Current problems; empty if there are none.

    Raises
    ------
    ReporterError
        For an invalid id, or a machine without such a file.
    """

    def __init__(self, broker: int, *, stat: Path = Path("/proc/stat")) -> None:
        if not 0 <= broker < 2**31:
            raise ReporterError(f"host source, broker: {broker} found, 0 to 2147483647 expected")
        self.problems: dict[str, str] = {}
        self._broker = broker
        self._stat = stat
        self._before = cpu_times(stat)

    def __iter__(self) -> Iterator[list[Record]]:
        while True:
            yield self._report()

    def _report(self) -> list[Record]:
        try:
            now = cpu_times(self._stat)
        except ReporterError as error:
            self.problems["host"] = str(error)
            return []
        self.problems.clear()
        busy, total = (b - a for a, b in zip(self._before, now, strict=True))
        self._before = now
        # Times may fall when cores are added or removed.
        if total <= 0 or not 0 <= busy <= total:
            return []
        return [Record(int(1000 * time.time()), self._broker, {CPU_RATIO: busy / total})]


def cpu_times(stat: Path) -> tuple[float, float]:
    """Busy time and total time of the cores, in ticks since the machine started.

    Raises
    ------
    ReporterError
        If the file is missing or not in Linux' format.
    """
    try:
        first = stat.read_text(encoding="ascii").split("\n", 1)[0].split()
        name, *fields = first
        ticks = [float(field) for field in fields[:_FIELDS]]
        if name != "cpu" or len(ticks) <= max(_IDLE):
            raise ValueError
    except OSError as error:
        raise ReporterError(f"cpu of the host: {stat}: {error.strerror or error}") from None
    except ValueError:
        raise ReporterError(
            f"cpu of the host: {stat}: no cpu times found, those of Linux expected"
        ) from None
    return sum(ticks) - sum(ticks[i] for i in _IDLE), sum(ticks)
