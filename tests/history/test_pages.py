"""Saved pages of exporters, and the past of a Prometheus server, are read as records."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from prometheus_stand_in import StandIn, cluster, served
from pyspark.sql import SparkSession

from cluster_model.history.archive import read_archive
from cluster_model.history.errors import HistoryError
from cluster_model.history.exposition import PageOptions, load_pages, read_pages

T = 1_700_006_400
DAY = 86_400
HEAD = "# HELP kafka_server_brokertopicmetrics_bytesin_total Bytes\n"
NAME = "kafka_server_brokertopicmetrics_bytesin_total"


def page(total: float, *, start: float = 5.0, at: str = "", broker: int | None = None) -> str:
    """A page of the JMX exporter: a broker that leads two partitions of a topic."""
    own = "" if broker is None else f'broker="{broker}"'
    of = f",{own}" if own else ""
    none = f"{{{own}}}" if own else ""
    lines = [
        f"{NAME}{none} {total}{at}",
        f'{NAME}{{topic="a"{of}}} {total}{at}',
        f"process_start_time_seconds{none} {start}{at}",
    ]
    for p in range(2):
        labels = f'topic="a",partition="{p}"{of}'
        lines.append(f"kafka_log_log_size{{{labels}}} {1000.0 + p}{at}")
        lines.append(f"kafka_log_log_logendoffset{{{labels}}} {total * (1 + 2 * p) / 4}{at}")
        lines.append(f"kafka_cluster_partition_replicascount{{{labels}}} 1.0{at}")
    return "\n".join(lines) + "\n"


def options(**fields: Any) -> PageOptions:
    return PageOptions.model_validate({"broker": {"path": r"kafka-(\d+)/"}} | fields)


def test_a_page_in_each_file(spark: SparkSession, tmp_path: Path) -> None:
    by_path = options(time={"path": r"/(\d+)\.prom"})
    for broker in (1, 2):
        (tmp_path / f"kafka-{broker}").mkdir()
    first = tmp_path / "kafka-1"
    (first / f"{T}.prom").write_text(HEAD + page(1000.0) + "nonsense line here\n")
    (first / f"{T + 60}.prom.gz").write_bytes(gzip.compress(page(7000.0).encode()))
    # restarted, and ahead of where it was
    (first / f"{T + 120}.prom").write_text(page(8000.0, start=6.0))
    # two pages in one file
    (first / f"{T + 180}.prom").write_text(page(9000.0) + page(9500.0))
    (tmp_path / "kafka-2" / "never.prom").write_text("up 1\n")
    found = read_pages(spark, [str(tmp_path)], by_path, cluster="c").collect()
    said = {
        (r.broker, r.time_ms // 1000 - T, r.topic, r.partition): (r.bytes_in, r["size"])
        for r in found
        if r.problem is None
    }
    sizes = {(1, s, "a", p): (None, 1000.0 + p) for s in (0, 60, 120) for p in (0, 1)}
    rates = {(1, 60, "a", 0): (25.0, 1000.0), (1, 60, "a", 1): (75.0, 1001.0)}
    out = {(1, 60, "a", -1): (None, None)}
    assert said == sizes | rates | out | {(1, 60, None, -1): (100.0, None)}
    assert sorted(bytes(r.value).decode() for r in found if r.problem) == [
        "a page of 18 samples with 9 series", "nonsense line here", "up 1"
    ]  # fmt: skip
    assert len({r.source_offset for r in found}) == len(found)


def test_a_rate_that_a_page_calls_a_gauge_is_taken_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = "kafka_server_brokertopicmetrics_bytesin_per_sec"
    (tmp_path / "kafka-1").mkdir()
    for minute, rate in enumerate((3e6, 2.9e6)):
        page = f'# TYPE {name} gauge\n{name}{{topic="a"}} {rate}\n'
        (tmp_path / "kafka-1" / f"{T + 60 * minute}.prom").write_text(page)
    (tmp_path / "kafka-1" / "never.prom").write_text(f"# TYPE {name} gauge\n")
    found = read_pages(spark, [str(tmp_path)], options(time={"path": r"/(\d+)\.prom"})).collect()
    assert sorted((r.time_ms // 1000 - T, r.bytes_in) for r in found) == [(0, 3e6), (60, 2.9e6)]


def test_lines_with_their_times_and_brokers(spark: SparkSession, tmp_path: Path) -> None:
    text = "".join(
        page(1000.0 + 6000 * n, at=f" {T + 60 * n}.000", broker=b) for n in range(3) for b in (4, 5)
    )
    (tmp_path / "dump.txt").write_text(f"{text}# EOF\nup 1\n")
    by_line = options(broker="broker", time={"unit": "s"})
    found = read_pages(spark, [str(tmp_path / "dump.txt")], by_line).collect()
    rates = {
        (r.broker, r.time_ms // 1000 - T, r.partition): r.bytes_in
        for r in found
        if r.bytes_in is not None and r.topic == "a"
    }
    expected = {0: 25.0, 1: 75.0}
    assert rates == {(b, s, p): expected[p] for b in (4, 5) for s in (60, 120) for p in (0, 1)}
    assert [bytes(r.value) for r in found if r.problem] == [b"up 1"]


def test_mistakes_about_pages_are_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "pages.yaml"
    for text, problem in (
        ("time: {path: x}", "broker: none found"),
        ("broker: {path: 'kafka-'}", "one group expected"),
        ("broker: a\ntime: {path: '('}", "a regular expression expected"),
        ("broker: a\ntime: {unit: h}", "time.unit: 'h' found"),
    ):
        path.write_text(text)
        with pytest.raises(HistoryError, match=problem) as error:
            load_pages(path)
        assert "\n" not in str(error.value)
    with pytest.raises(HistoryError, match=r"pages .*/nothing: no such file"):
        read_pages(spark, [str(tmp_path / "nothing")], options())


def run(*words: str | Path, code: int = 0) -> str:
    done = invoke(["history", *words])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_a_prometheus_server_is_imported_by_day(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "queries.json").write_text(
        json.dumps({"broker": {"label": "instance", "pattern": r"kafka-(\d+):7071"}, "retries": 0})
    )
    midnight = T // DAY * DAY + DAY
    first, end = midnight - 600, midnight + 600
    archive = tmp_path / "archive"
    columns = ("--map", tmp_path / "queries.json", "--json")

    def imported(there: StandIn, begin: int, until: int, code: int = 0) -> str:
        times: list[str] = []
        for name, at in (("--from", begin), ("--to", until)):
            times += [name, datetime.fromtimestamp(at, UTC).isoformat()]
        return run("import", there.url, archive, *columns, *times, code=code)

    with served(cluster(first, end)) as there:
        once = json.loads(imported(there, first, end))
        records = 2 * 20 * 4
        assert once == {
            "archive": str(archive),
            "days": 2,
            "records": records,
            "malformed": 0,
            "contradiction": None,
        }
        # Replaced, not added.
        assert json.loads(imported(there, first + 300, end))["records"] == records * 3 / 4
        assert read_archive(spark, archive).count() == records
        # Without an answer everything stays.
        there.failures = [403]
        assert "HTTP status 403 found" in imported(there, first, end, 2)
        (tmp_path / "queries.json").write_text('{"broker": "job"}')
        assert "no records found" in imported(there, first, end, 2)
        assert "series with job='kafka', which names no broker" in imported(there, first, end, 2)
        assert "a time after" in imported(there, end, first, 2)
        assert "a time that has passed" in imported(there, first, 10**11, 2)
    # Nor does a day without records replace one with them.
    found = read_archive(spark, archive).where("problem is null and topic is null")
    times = [r.time_ms // 1000 for r in found.orderBy("time_ms", "broker").collect()]
    assert times == [at for at in range(first, end, 60) for _ in range(2)]
    assert read_archive(spark, archive).count() == records
