"""Runs consumers as processes of this machine, restarts those that crash, and ends them all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.replicas import keeper
from balancer.autoscaling.replicas.protocols import Count
from metrics_reporter.documents import shown

# Environment variable with the name of a consumer.
NAME_VARIABLE = "COUNTERPOISE_CONSUMER"
_STANDARD_ERROR = 2
# Seconds in which killed processes are gone.
_REST_SECONDS = 2.0


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
    """One consumer: its keeper, or the time at which it starts again.

    `mark` is what its keeper and all that it has started have in their environment.
    """

    process: subprocess.Popen[bytes] | None = None
    mark: str = ""
    started: float = 0.0
    crashes: int = 0
    again: float = 0.0


class LocalProcesses:
    """Processes of one command, each with its name in ``COUNTERPOISE_CONSUMER``.

    They end with :meth:`close`, and also when this process is killed: each is run by a small
    program, its keeper, that notices. On Linux what they have started ends with them, also in
    sessions of its own, unless it has dropped the environment that it was started with; elsewhere
    only what is still in the process group of the consumer. What they write to standard output
    goes to this process's standard error.

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
        self._leaving: list[_Consumer] = []
        self._problem = ""
        self._changed = threading.Condition()
        self._closed = False
        self._supervisor = threading.Thread(target=self._supervise, name="consumers", daemon=True)
        self._supervisor.start()

    def count(self) -> Count:
        """Consumers asked for, and those that run."""
        with self._changed:
            requested = len(self._consumers)
            ready = sum(_runs(c.process) for c in self._consumers.values())
            leaving = sum(_runs(c.process) for c in self._leaving)
            settled = ready == requested and not leaving
            problem = self._problem if ready < requested else ""
            return Count(requested, ready, ready + leaving, settled, problem)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the consumers that were asked for."""
        with self._changed:
            return tuple(self._consumers)

    def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
        """Start consumers, or end those named and then the youngest.

        One that cannot be started is tried again like one that crashes; :meth:`count` reports it.
        """
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
                self._consumers[name] = _Consumer()
                self._start(name, self._consumers[name])
            named = [n for n in leaving if n in self._consumers]
            others = [n for n in reversed(self._consumers) if n not in named]
            for name in [*named, *others][: len(self._consumers) - consumers]:
                self._end(self._consumers.pop(name))
            self._changed.notify_all()

    def stand_down(self) -> bool:
        """End all consumers, without waiting for that; whether there are any."""
        with self._changed:
            found = bool(self._consumers)
            while self._consumers:
                self._end(self._consumers.popitem()[1])
            self._changed.notify_all()
        return found

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
        for consumer in self._leaving:
            if (process := consumer.process) is None:
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
            _end_rest(consumer)
        self._leaving.clear()

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, consumer: _Consumer) -> None:
        words = [sys.executable, "-I", keeper.__file__, str(self._settings.stop_seconds)]
        consumer.started, consumer.mark = time.monotonic(), uuid.uuid4().hex
        try:
            consumer.process = subprocess.Popen(
                [*words, *self._command],
                stdin=subprocess.PIPE,
                # that of this process is for what it prints itself
                stdout=_STANDARD_ERROR,
                env={**os.environ, NAME_VARIABLE: name, keeper.MARK_VARIABLE: consumer.mark},
                # Ctrl-C in a terminal is for the controller
                start_new_session=True,
            )
        except OSError as error:
            # no memory, no processes, no files left: others may give some back
            self._problem = f"{name} cannot be started: {error.strerror or error}"
            self._wait(consumer)

    def _wait(self, consumer: _Consumer) -> None:
        """Have a consumer that has crashed wait until it starts again."""
        s, now = self._settings, time.monotonic()
        steady = now - consumer.started >= s.steady_seconds
        consumer.crashes = 0 if steady else consumer.crashes + 1
        pause = s.restart_seconds * 2.0 ** min(consumer.crashes, 30)
        consumer.again = now + min(pause, s.longest_restart_seconds)
        consumer.process = None

    def _end(self, consumer: _Consumer) -> None:
        if consumer.process is not None:
            _let_go(consumer.process)
            self._leaving.append(consumer)

    def _supervise(self) -> None:
        """Start again what crashed; look twice a second while anything runs."""
        with self._changed:
            while not self._closed:
                for name, consumer in self._consumers.items():
                    process = consumer.process
                    if process is not None and process.poll() is not None:
                        _let_go(process)
                        code = process.returncode
                        self._problem = f"{name} has ended with exit code {code}"
                        _end_rest(consumer)
                        self._wait(consumer)
                    elif process is None and time.monotonic() >= consumer.again:
                        self._start(name, consumer)
                for consumer in [c for c in self._leaving if not _runs(c.process)]:
                    _end_rest(consumer)
                    self._leaving.remove(consumer)
                self._changed.wait(0.5 if self._consumers or self._leaving else None)


def _runs(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is None


def _end_rest(consumer: _Consumer) -> None:
    """Kill what a keeper has left behind: nothing, unless it was killed itself."""
    deadline = time.monotonic() + _REST_SECONDS
    while (rest := keeper.marked(consumer.mark)) and time.monotonic() < deadline:
        for process in rest:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe that keeps a consumer running."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
