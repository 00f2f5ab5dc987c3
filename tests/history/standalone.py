"""A standalone cluster of Spark for tests: a master and two workers, each a process on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pyspark

_HOME = Path(pyspark.__file__).parent
# For a JVM in a hurry, as in spark/spark-defaults.conf.
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def spark_process(log: Path, ready: str, *words: str) -> Iterator[str]:
    """A process of Spark; yields what the pattern finds in its output once it is there."""
    own = {
        "SPARK_HOME": str(_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
    }
    # Executors have our packages only by what is sent to them.
    rest = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with log.open("w") as out:
        started = subprocess.Popen(
            [str(_HOME / "bin" / words[0]), *words[1:]],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=rest | own,
            cwd=log.parent,
        )
    try:
        deadline = time.monotonic() + 120
        while (found := re.search(ready, log.read_text())) is None:
            assert started.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        yield found[1]
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


class Standalone(NamedTuple):
    """A master with two workers.

    Parameters
    ----------
    address
        Of the master, as for ``--master``.
    work
        Where the workers keep what executors print, by application.
    """

    address: str
    work: Path

    @contextmanager
    def executor_killed_when(self, moment: Callable[[], bool]) -> Iterator[None]:
        """Kill -9 one executor as soon as a moment has come; at the end it must have been."""
        killed: list[int] = []
        ended: list[bool] = []

        def kill() -> None:
            while not killed and not ended:
                time.sleep(0.02)
                if moment():
                    killed.extend(self._executors()[:1])
                    for pid in killed:
                        os.kill(pid, signal.SIGKILL)

        killing = Thread(target=kill, daemon=True)
        killing.start()
        try:
            yield
        finally:
            ended.append(True)
            killing.join()
        assert killed, "no executor was killed"

    def _executors(self) -> list[int]:
        """Process ids of the executors of this cluster that run."""
        applications = {path.name.encode() for path in self.work.iterdir()}
        found = []
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = command.read_bytes().split(b"\0")
                if b"--executor-id" in words and applications & {*words}:
                    found.append(int(command.parent.name))
        return sorted(found)


@contextmanager
def standalone(at: Path) -> Iterator[Standalone]:
    """Start a master and two workers with one core and 1 GiB each, which log below a directory."""
    here, web = ("--host", "127.0.0.1"), ("--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    own = ("spark-class", f"{deploy}.master.Master", *here, "--port", "0", *web)
    ready = r"Starting Spark master at (spark://\S+)"
    with spark_process(at / "master.log", ready, *own) as address:
        words = ["spark-class", f"{deploy}.worker.Worker", address, *here, *web]
        words += ["--cores", "1", "--memory", "1g", "--work-dir", str(at / "work")]
        joined = r"(Successfully registered with master)"
        with (
            spark_process(at / "one.log", joined, *words),
            spark_process(at / "two.log", joined, *words),
        ):
            yield Standalone(address, at / "work")
