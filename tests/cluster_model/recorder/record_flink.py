"""Records what Flink's REST API answers about a real job, into ``samples/flink.json``.

    PYTHONPATH=. python tests/cluster_model/recorder/record_flink.py

Needs a JDK and Maven. The answers are those of a cluster with three task managers in one JVM
that runs ``ClickCounts.java``. Of the metrics, only those that the reader asks for are kept, and
what the job itself measures: the records from each sender, which the reader estimates.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stream_jobs import SAMPLES, running

from cluster_model.flink import BUSY, PROCESSOR_TIME, RECEIVED, SENT
from metrics_reporter.exposition import scrape

# Meters are over a minute.
MEASURED_SECONDS = 150
_KEPT = re.compile(rf"\d+\.({BUSY}|{SENT}|{RECEIVED}|numRecords(In|Out)|.*\.from_\w+)")
_AT_ONCE = 20


def answers(url: str, job: str) -> dict[str, Any]:
    """Answers by path: the job, its plan, vertices and metrics, and the task managers."""

    def ask(path: str) -> Any:
        return json.loads(scrape(f"{url}{path}"))

    found = {path: ask(path) for path in (f"/jobs/{job}", f"/jobs/{job}/plan", "/taskmanagers")}
    for manager in found["/taskmanagers"]["taskmanagers"]:
        path = f"/taskmanagers/{manager['id']}/metrics"
        found[path] = ask(f"{path}?get={PROCESSOR_TIME}")
    for vertex in found[f"/jobs/{job}"]["vertices"]:
        path = f"/jobs/{job}/vertices/{vertex['id']}"
        found[path] = ask(path)
        kept = [m["id"] for m in ask(f"{path}/metrics") if _KEPT.fullmatch(m["id"])]
        found[f"{path}/metrics"] = [
            metric
            for first in range(0, len(kept), _AT_ONCE)
            for metric in ask(
                f"{path}/metrics?get={','.join(map(quote, kept[first : first + _AT_ONCE]))}"
            )
        ]
    return found


def main() -> None:
    """Run the job, wait until its meters are full, and write the answers."""
    with tempfile.TemporaryDirectory() as scratch, running("ClickCounts", Path(scratch)) as out:
        url, job = out.readline().split()
        deployed = False
        while not deployed:
            time.sleep(1)
            vertices = json.loads(scrape(f"{url}/jobs/{job}"))["vertices"]
            deployed = all(vertex["status"] == "RUNNING" for vertex in vertices)
        time.sleep(MEASURED_SECONDS)
        record(url, job)


def record(url: str, job: str) -> None:
    """Write what Flink answers about a job."""
    # Flink fetches the metrics after it is asked, and again after ten seconds: the first answers
    # may be old, and those of the next seconds are of one moment.
    answers(url, job)
    time.sleep(3)
    version = json.loads(scrape(f"{url}/config"))["flink-version"]
    about = (
        f"Recorded from Flink {version} by tests/cluster_model/recorder/record_flink.py at "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC. Path to answer; of the metrics, those that "
        "the reader asks for, and what the job measures of its senders."
    )
    lines = {"about": about, **answers(url, job)}
    text = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in lines.items())
    (SAMPLES / "flink.json").write_text(f"{{\n{text}\n}}\n")
    print(f"{len(lines) - 1} answers about job {job} recorded", file=sys.stderr)


if __name__ == "__main__":
    main()
