"""A real Prometheus for tests: Debian's package, unpacked into a cache and not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``.

    If the machine has none, Debian's package is fetched and unpacked, since installing it would
    start a service.
    """
    if found := shutil.which(name):
        return found
    cache = Path(os.environ.get("COUNTERPOISE_CACHE") or "~/.cache/counterpoise").expanduser()
    unpacked = cache / "prometheus"
    if not unpacked.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            subprocess.run(["apt-get", "download", "-qq", "prometheus"], check=True, cwd=scratch)
            (package,) = Path(scratch).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", package, Path(scratch) / "prometheus"], check=True)
            (Path(scratch) / "prometheus").rename(unpacked)
    return str(unpacked / "usr" / "bin" / name)


class Prometheus:
    """A running Prometheus.

    Parameters
    ----------
    address
        Where it answers.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str) -> Any:
        """The data of an answer of its API."""
        with urlopen(f"{self._address}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        """The series that an expression has now."""
        found: list[Any] = self.get(f"query?query={quote(expression)}")["result"]
        return found


@contextmanager
def prometheus(configuration: Path, port: int) -> Iterator[Prometheus]:
    """Run Prometheus with a configuration until the end."""
    folder = configuration.parent
    address = f"127.0.0.1:{port}"
    command = [program("prometheus"), f"--config.file={configuration}"]
    command += [f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address={address}"]
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    try:
        end = time.monotonic() + 60
        while True:
            assert process.poll() is None, log.read_text()
            try:
                with urlopen(f"http://{address}/-/ready", timeout=5):
                    break
            except OSError:
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(30)
