"""Runs consumers as processes of this machine, restarts those that crash, and ends them all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.replicas import keeper
from balancer.autoscaling.replicas.protocols import Count
from metrics_reporter.documents import shown

# Environment variable that tells a consumer its name.
NAME_VARIABLE = "COUNTERPOISE_CONSUMER"


@dataclass(frozen=True)
class ProcessSettings:
    """Tunable numbers of local processes.

    Parameters
    ----------
    stop_seconds
        Between SIGTERM and SIGKILL.
    restart_seconds, longest_restart_seconds
        Until a consumer that crashed starts again; doubled with every crash, up to the longest.
    steady_seconds
        A consumer that ran as long is restarted after the shortest time again.
    """

    stop_seconds: float = 10.0
    restart_seconds: float = 0.5
    longest_restart_seconds: float = 60.0
    steady_seconds: float = 60.0


@dataclass
class _Consumer:
    """One consumer: its keeper, or the time at which it starts again."""

    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    crashes: int = 0
    again: float = 0.0


class LocalProcesses:
    """Processes of one command, each with its name in ``COUNTERPOISE_CONSUMER``.

    They end with :meth:`close`, and also when this process is killed: each is run by a small
    program that notices.

    Parameters
    ----------
    command
        What a consumer runs, with its arguments.
    settings
        Tunable numbers.
    prefix
        Names are the prefix and a number from 0; a number is used again.

    Raises
    ------
    AutoscalingError
        If there is no such command.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: ProcessSettings | None = None,
        prefix: str = "consumer",
    ) -> None:
        if not command or shutil.which(command[0]) is None:
            raise AutoscalingError(
                f"command: {shown(command[0] if command else '')} found, a program expected"
            )
        self.name = f"local processes of {os.path.basename(command[0])}"
        self._command, self._prefix = list(command), prefix
        self._settings = settings or ProcessSettings()
        self._consumers: dict[str, _Consumer] = {}
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._supervisor = threading.Thread(target=self._supervise, name="consumers", daemon=True)
        self._supervisor.start()

    def count(self) -> Count:
        """Consumers asked for, and those that run."""
        with self._changed:
            requested = len(self._consumers)
            ready = sum(_runs(c.process) for c in self._consumers.values())
            leaving = sum(_runs(p) for p in self._leaving)
            return Count(requested, ready, ready + leaving, ready == requested and not leaving)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the consumers that were asked for."""
        with self._changed:
            return tuple(self._consumers)

    def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
        """Start consumers, or end those named and then the youngest."""
        if consumers < 0:
            raise AutoscalingError(f"{consumers} consumers found, at least 0 expected")
        with self._changed:
            if self._closed:
                raise AutoscalingError(f"{self.name}: closed")
            if len(self._consumers) != seen.requested:
                raise AutoscalingError(
                    f"{self.name}: someone else changed it from {seen.requested} to "
                    f"{len(self._consumers)} consumers, one writer expected"
                )
            while len(self._consumers) < consumers:
                numbers = range(len(self._consumers) + 1)
                free = (f"{self._prefix}-{n}" for n in numbers)
                name = next(n for n in free if n not in self._consumers)
                self._consumers[name] = self._start(name, _Consumer())
            named = [n for n in leaving if n in self._consumers]
            others = [n for n in reversed(self._consumers) if n not in named]
            for name in [*named, *others][: len(self._consumers) - consumers]:
                self._end(self._consumers.pop(name))
            self._changed.notify_all()

    def close(self) -> None:
        """End all consumers, and wait until they have ended."""
        with self._changed:
            self._closed = True
            while self._consumers:
                self._end(self._consumers.popitem()[1])
            self._changed.notify_all()
        self._supervisor.join()
        # a keeper kills after that time, and needs a moment to start and to end
        deadline = time.monotonic() + self._settings.stop_seconds + 5.0
        for process in self._leaving:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
        self._leaving.clear()

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, consumer: _Consumer) -> _Consumer:
        words = [sys.executable, "-I", keeper.__file__, str(self._settings.stop_seconds)]
        consumer.process = subprocess.Popen(
            [*words, *self._command],
            stdin=subprocess.PIPE,
            env={**os.environ, NAME_VARIABLE: name},
            # Ctrl-C in a terminal is for the controller
            start_new_session=True,
        )
        consumer.started = time.monotonic()
        return consumer

    def _end(self, consumer: _Consumer) -> None:
        if consumer.process is not None:
            _let_go(consumer.process)
            self._leaving.append(consumer.process)

    def _supervise(self) -> None:
        """Start again what crashed; look twice a second while anything runs."""
        s = self._settings
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for name, consumer in self._consumers.items():
                    process = consumer.process
                    if process is not None and process.poll() is not None:
                        _let_go(process)
                        steady = now - consumer.started >= s.steady_seconds
                        consumer.crashes = 0 if steady else consumer.crashes + 1
                        wait = s.restart_seconds * 2.0 ** min(consumer.crashes, 30)
                        consumer.again = now + min(wait, s.longest_restart_seconds)
                        consumer.process = None
                    elif process is None and now >= consumer.again:
                        self._start(name, consumer)
                self._leaving = [p for p in self._leaving if p.poll() is None]
                self._changed.wait(0.5 if self._consumers or self._leaving else None)


def _runs(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is None


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe that keeps a consumer running."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
