"""Shared by long-running commands: signals, logs, and errors without secrets."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from balancer.cli.terminal import CommandError
from cluster_model import InputError
from metrics_reporter.documents import printable
from metrics_reporter.errors import ReporterError


@contextmanager
def redacted(hide: Callable[[str], str]) -> Iterator[None]:
    """Hide secrets in errors about client properties that don't work."""
    try:
        yield
    except (InputError, ReporterError) as error:
        raise CommandError(hide(str(error))) from None


@contextmanager
def logged(log: logging.Logger, hide: Callable[[str], str]) -> Iterator[None]:
    """Send a logger's output to stderr, without secrets."""

    class Hiding(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(hide(super().format(record)))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Hiding("%(asctime)s %(levelname)s %(message)s"))
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def ended_by_signals(heard: Callable[[int], None]) -> Iterator[None]:
    """Call this with the number of each SIGTERM or Ctrl-C, instead of their default effect."""

    def hear(number: int, frame: FrameType | None) -> None:
        heard(number)

    before = {s: signal.signal(s, hear) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
