"""Compiles and starts the applications that the recorders record."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks.harness.brokers import real_kafka

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "samples"
AGENT = "jmx_prometheus_javaagent"
_OPENS = ("lang", "lang.reflect", "io", "net", "nio", "text", "time", "util", "util.concurrent")


@contextmanager
def running(
    name: str, directory: Path, *args: str, agents: Sequence[str] = ()
) -> Iterator[IO[str]]:
    """What an application prints, while it runs; it ends when its input does.

    Parameters
    ----------
    name
        Its class, in a file of that name beside this one. It needs a JDK and Maven.
    directory
        Where its classes and its log go.
    args
        Its arguments.
    agents
        Options of Java agents, in which ``{agent}`` is the JMX exporter.
    """
    kafka = real_kafka()
    jars = kafka.class_path(HERE / "pom.xml").split(os.pathsep)
    (agent,) = (jar for jar in jars if AGENT in Path(jar).name)
    path = os.pathsep.join([*(jar for jar in jars if jar != agent), str(directory)])
    if not (directory / f"{name}.class").exists():
        source = str(HERE / f"{name}.java")
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(directory), source], check=True)
    opens = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENS]
    with (directory / f"{name}.log").open("a") as log:
        process = subprocess.Popen(
            [
                *(kafka.java(), *kafka.JVM, "-Xmx512m", *opens),
                *(option.format(agent=agent) for option in agents),
                *("-cp", path, name, *args),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
