"""Tells the driver how many windows its executors have replayed and judged."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Called with the phase, how many of its windows are done, and how many there are.
Progress = Callable[[str, int, int], None]
_LARGEST = 1024
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Reporter:
    """Sends what is done to the driver; what is lost on the way is only not shown.

    Parameters
    ----------
    host, port
        Address of the driver's :func:`listening`; port 0 for none.
    token
        What messages must begin with.
    """

    host: str = ""
    port: int = 0
    token: str = ""

    def report(self, phase: str, part: int, done: int) -> None:
        """Say how much of a part of a phase is done."""
        if self.port:
            message = json.dumps([self.token, phase, part, done]).encode()
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                out.sendto(message, (self.host, self.port))


@contextmanager
def listening(
    spark: SparkSession, totals: dict[str, int], progress: Progress | None
) -> Iterator[Reporter]:
    """Receive what executors report, and pass the sums of the parts on.

    Parameters
    ----------
    spark
        The session; without a driver in this process (Spark Connect) nothing is received.
    totals
        Phase to the windows of all of its parts.
    progress
        Called in a thread; None for nobody.
    """
    host = _driver(spark) if progress is not None else None
    if host is None or progress is None:
        yield Reporter()
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inbox:
        try:
            inbox.bind((host, 0))
        except OSError:
            yield Reporter()
            return
        inbox.settimeout(_POLL_SECONDS)
        reporter = Reporter(host, inbox.getsockname()[1], secrets.token_hex(8))
        over = threading.Event()
        thread = threading.Thread(
            target=_receive, args=(inbox, reporter.token, totals, progress, over), daemon=True
        )
        thread.start()
        try:
            yield reporter
        finally:
            over.set()
            thread.join()


def _driver(spark: SparkSession) -> str | None:
    """The address at which executors reach the driver."""
    try:
        host = spark.sparkContext.getConf().get("spark.driver.host")
    except Exception:
        # Spark Connect has no context, and says so by errors of its own.
        return None
    return None if host is None else str(host)


def _receive(
    inbox: socket.socket,
    token: str,
    totals: dict[str, int],
    progress: Progress,
    over: threading.Event,
) -> None:
    done: dict[str, dict[int, int]] = {phase: {} for phase in totals}
    while not over.is_set():
        try:
            said = json.loads(inbox.recv(_LARGEST))
        except (OSError, ValueError):
            continue
        match said:
            case [str(given), str(phase), int(part), int(count)] if (
                secrets.compare_digest(given.encode(), token.encode()) and phase in done
            ):
                # a task that is run again counts once
                done[phase][part] = max(done[phase].get(part, 0), count)
                progress(phase, min(sum(done[phase].values()), totals[phase]), totals[phase])
