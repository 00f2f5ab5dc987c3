"""A real Prometheus has the same records as its stand-in (``apt-get install prometheus``)."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_stand_in import StandIn, cluster, served
from real_kafka import held_ports

from metrics_reporter.prometheus_query import PrometheusServer, QueryOptions

PROGRAMS = ("prometheus", "promtool")
# An even hour, at which a block of Prometheus' data begins.
T = 1_700_006_400
OPTIONS = QueryOptions.model_validate(
    {"broker": {"label": "instance", "pattern": r"kafka-(\d+):7071"}, "selector": {"job": "kafka"}}
)


def _openmetrics(of: StandIn) -> str:
    """The samples as text that ``promtool`` takes; of one name together, by time."""
    lines: dict[str, list[tuple[float, str]]] = {}
    for labels, samples in of.series.items():
        named = dict(labels)
        name = named.pop("__name__")
        inside = ",".join(f'{k}="{v}"' for k, v in named.items())
        for at, value in samples:
            lines.setdefault(name, []).append((at, f"{name}{{{inside}}} {value} {at:.3f}"))
    text = [line for name in sorted(lines) for _, line in sorted(lines[name])]
    return "\n".join([*text, "# EOF", ""])


@pytest.mark.slow
def test_a_real_prometheus_has_the_same_records(tmp_path: Path) -> None:
    assert all(map(shutil.which, PROGRAMS)), "no prometheus on the PATH: tests/setup.sh installs it"
    there = cluster(T, T + 3600)
    (tmp_path / "dump.txt").write_text(_openmetrics(there))
    (tmp_path / "prometheus.yml").write_text("global: {scrape_interval: 30s}\n")
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "dump.txt", "data"]
    subprocess.run(blocks, cwd=tmp_path, check=True, capture_output=True)
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command.append("--storage.tsdb.retention.time=100y")
    with (
        held_ports(1) as (port,),
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url)
            server = PrometheusServer(url, OPTIONS)
            queries = server.queries(T, T + 3600)
            series, found = server.series(queries, T), server.read(queries, T, T + 3600)
        finally:
            process.terminate()
    with served(there):
        other = PrometheusServer(there.url, OPTIONS)
        assert other.queries(T, T + 3600) == queries
        assert other.series(queries, T) == series
        expected = other.read(queries, T, T + 3600)
    assert (found.unnamed, found.malformed) == (set(), 0)
    assert len(found.records) == len(expected.records) == 60 * 2 * 4
    for ours, theirs in zip(found.records, expected.records, strict=True):
        assert ours._replace(metrics={}) == theirs._replace(metrics={})
        assert ours.metrics == pytest.approx(theirs.metrics)


def _wait(url: str) -> None:
    """Until the server answers, a minute at most."""
    for _ in range(120):
        try:
            with urlopen(f"{url}/-/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (URLError, OSError):
            pass
        time.sleep(0.5)
    raise AssertionError(f"{url} does not answer")
