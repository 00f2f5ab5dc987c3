"""A history prepared day by day, in any order and despite interruptions, is that of all at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from frames import records_frame
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from cluster_model import (
    BrokerRecord,
    InputError,
    PartitionRecord,
    Snapshot,
    SnapshotDocument,
    save_snapshot,
)
from cluster_model.build import build_snapshot
from cluster_model.history.archive import compact, expire, read_archive, replace_range, write_batch
from cluster_model.history.archive_days import archive_version
from cluster_model.history.changed_days import find_changes, metadata_digests
from cluster_model.history.days import DAY_MS, Reach, day_name
from cluster_model.history.delta import TableVersion
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.prepare import (
    Preparation,
    PrepareParameters,
    _chunks,
    prepare,
    prepare_archives,
)
from cluster_model.history.prepared import (
    PreparedArchive,
    PreparedCluster,
    check_removal,
    read_held,
    read_prepared,
)
from cluster_model.history.screening import MetadataTables
from cluster_model.history.store import Store
from metrics_reporter import Record
from metrics_reporter.metrics import bytes_to

pytestmark = pytest.mark.usefixtures("files_stay")

HOUR_MS = 3_600_000
FIRST, SEED = 20_000, 0
WINDOW, WINDOWS = 6 * HOUR_MS, 2


def snapshot(leader: int = 1) -> Snapshot:
    """Two brokers, and two topics of one partition whose leader is given."""
    partitions = (
        PartitionRecord(topic=name, partition=0, replicas=(1, 2), leader=leader) for name in "ab"
    )
    capacity = {"cpu": 100.0, "network_in": 1e9, "network_out": 1e9, "disk": 1e12}
    return build_snapshot(
        SnapshotDocument(
            resources=tuple(capacity),
            brokers=tuple(BrokerRecord(id=i, capacity=capacity) for i in (1, 2)),
            partitions=tuple(partitions),
        )
    )


def reports(rng: np.random.Generator, day: int, count: int) -> list[tuple[int, Record]]:
    """Times of arrival on a day, and records: late, repeated, of stray clocks, without rates."""
    found: list[tuple[int, Record]] = []
    for _ in range(count):
        if found and rng.random() < 0.1:
            found.append((found[-1][0] + int(rng.integers(HOUR_MS)), found[-1][1]))
            continue
        at = day * DAY_MS + int(rng.integers(DAY_MS))
        back = float(rng.choice([0, 1, 10, 30, 80], p=[0.6, 0.2, 0.1, 0.05, 0.05]))
        time = at - int(rng.uniform(-4, 1 + back) * HOUR_MS) // 600_000 * 600_000
        if rng.random() < 0.05:
            time = int(rng.choice([0, -1, 253_402_300_799_999, 2**63 - 1, DAY_MS * (day + 2)]))
        kind = rng.random()
        broker = int(rng.integers(1, 3))
        values = {"bytes_in": float(rng.uniform(0, 9)), bytes_to("b", 0): 1.0}
        if kind < 0.2:
            record = Record(time, broker, {"cpu": float(rng.uniform(0, 90))})
        elif kind < 0.3:
            record = Record(time, 1, {"bytes_in": float(rng.uniform(0, 9))}, "b")
        elif kind < 0.5:
            record = Record(time, broker, {"size": float(rng.uniform(0, 9))}, "a", 0)
        else:
            record = Record(
                time, broker, values | {"size": float(day)}, str(rng.choice([*"ab"])), 0
            )
        found.append((min(at, (day + 1) * DAY_MS - 1), record))
    return found


class Archive:
    """An archive that grows, and a history that is prepared from it.

    Parameters
    ----------
    spark
        The session.
    path
        Directory of both.
    """

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.batch = spark, path, 0
        self.log = MetadataLog.of(snapshot(), cluster="c")

    def add(
        self,
        reported: list[tuple[int, Record]],
        replaced: tuple[int, int] | None = None,
        to: str = "archive",
    ) -> None:
        """Append records, or put them in place of those of their source on days of a range."""
        arrived, records = zip(*reported, strict=True) if reported else ((), ())
        rows = records_frame(self.spark, [("c", 0, arrived, records)])
        none = {"problem": f.lit(None).cast("string"), "value": f.lit(None).cast("binary")}
        offset = f.col("source_offset") + 1000 * self.batch
        rows = rows.withColumns(none).withColumn("source_offset", offset)
        if replaced is None:
            write_batch(rows, str(self.path / to), self.batch)
            self.batch += 1
            return
        rows = rows.withColumn("source_partition", f.lit(7))
        ends = (day * DAY_MS for day in replaced)
        replace_range(rows, self.path / "archive", "c", 7, *ends)

    def prepare(self, names: Sequence[str] = ("archive",), **options: Any) -> Preparation:
        """Prepare what is new."""
        return prepare_archives(
            self.spark,
            [self.path / name for name in names],
            self.log,
            self.path / "prepared",
            **{"window_ms": WINDOW, "windows": WINDOWS} | options,
        )

    def changed(self) -> tuple[int, ...]:
        """The days that the next run prepares."""
        version = archive_version(self.spark, self.path / "archive")
        held = read_held(self.spark, Store(self.spark, str(self.path / "prepared")))
        assert version is not None
        assert held is not None
        sources, own = [(self.path / "archive", version)], held.state.clusters["c"]
        return find_changes(self.spark, sources, self.log, own, Reach.of(WINDOW, WINDOWS)).changed

    def prepared(self, place: str = "prepared") -> list[str]:
        """All rows of the tables, in order."""
        table = self.spark.read.format("delta").load(f"{self.path / place}/history")
        kept = table.where("kind NOT IN ('arrivals', 'state')").drop("state", "newest_ms", "phase")
        return sorted(map(str, kept.collect()))

    def whole(self) -> list[str]:
        """The rows for all records that the archive has, prepared at once."""
        self.counts = prepare(
            read_archive(self.spark, self.path / "archive"),
            MetadataTables.of(self.spark, [self.log]),
            self.path / "whole",
            window_ms=WINDOW,
            windows=WINDOWS,
        )["c"]
        return self.prepared("whole")


def test_any_steps_give_the_history_of_all_records(spark: SparkSession, tmp_path: Path) -> None:
    """A failure, a range of days, late and replaced data, other metadata, files merged, removal."""
    rng = np.random.default_rng(SEED)
    archive = Archive(spark, tmp_path)
    archive.add([r for day in (0, 1, 3, 4) for r in reports(rng, FIRST + day, 30)])
    archive.add(reports(rng, FIRST + 1, 20), (FIRST + 1, FIRST + 3))
    begun: list[int] = []

    def failing(phase: str, done: int, total: int) -> None:
        begun.append(total)
        if done:
            raise InputError("no space")

    # Of two transactions the second one fails.
    days = PrepareParameters(days_at_once=2)
    with pytest.raises(InputError, match="no space"):
        archive.prepare(report=failing, last_day=FIRST + 3, parameters=days)
    assert begun == [3, 3]
    assert archive.changed() == (FIRST + 3, FIRST + 4)
    opened = read_prepared(spark, tmp_path / "prepared").quarantine
    before = opened.count()

    # Late data, new days, and days that are replaced.
    archive.add([r for day in (1, 2, 5) for r in reports(rng, FIRST + day, 20)])
    archive.add(reports(rng, FIRST + 2, 20), (FIRST + 1, FIRST + 3))
    archive.log.append((FIRST + 2) * DAY_MS + 9 * HOUR_MS, snapshot(leader=2))
    assert compact(spark, tmp_path / "archive").files_before > 0
    done = archive.prepare()
    assert (done.days, done.pending) == (("2024-10-05", "2024-10-09"), 0)
    assert archive.prepared() == archive.whole()
    assert done.total == archive.counts
    assert opened.count() == before
    assert archive.prepare() == Preparation(None, {}, done.total, 0)
    archive.log.append((FIRST + 6) * DAY_MS, snapshot())
    assert archive.changed() == (FIRST + 5,)

    prepared = archive.prepared()
    expire(spark, tmp_path / "archive", before_ms=(FIRST + 2) * DAY_MS)
    archive.add(reports(rng, FIRST + 4, 10))
    assert archive.prepare().days == ("2024-10-08", "2024-10-09")

    def removed(rows: list[str]) -> list[str]:
        """Rows of removed days."""
        return [row for row in rows if row.partition("day='")[2] < day_name(FIRST + 2)]

    after = archive.prepared()
    assert removed(after) == removed(prepared)
    assert after != prepared


@pytest.mark.soak
def test_expired_days_stay_as_they_were_prepared(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever arrives for them, and if only one of two archives has lost them."""
    archive, both = Archive(spark, tmp_path), ("archive", "other")

    def add(*reported: tuple[int, int, int], to: str = "archive") -> None:
        """Add records of a day and an hour that arrived at a time."""
        broker = 1 + both.index(to)
        archive.add(
            [
                (at, Record((FIRST + day) * DAY_MS + h * HOUR_MS, broker, {"cpu": float(broker)}))
                for day, h, at in reported
            ],
            to=to,
        )

    def on(day: int, hour: int) -> int:
        return (FIRST + day) * DAY_MS + hour * HOUR_MS

    daily = [(day, 1, on(day, 2)) for day in range(4)]
    # The last one is of a clock ahead over midnight, so that it arrives on a day that expires.
    add(*daily, (2, 0, on(2, -1)))
    add(*daily, to="other")
    assert archive.prepare(both).total == {"added": 9}
    before = archive.prepared()
    expire(spark, tmp_path / "archive", before_ms=(FIRST + 1) * DAY_MS)
    expire(spark, tmp_path / "other", before_ms=(FIRST + 2) * DAY_MS)
    # Of a message without a time, late for days that have expired, and for the first that has not.
    add((0, 1, 0), (0, 3, on(0, 4)), (1, 3, on(1, 4)), (2, 23, on(3, 4)))
    done = archive.prepare(both[::-1])
    assert done.days == ("1970-01-01", day_name(FIRST + 3))
    after = archive.prepared()
    assert [row for row in after if "day='1970" not in row] == before
    assert archive.prepare(both) == Preparation(None, {}, done.total, 0)
    with pytest.raises(InputError, match=r"2 days without messages \(2024-10-04 to 2024-10-05\)"):
        archive.prepare(both, windows=WINDOWS + 1)
    assert archive.prepared() == after
    store = Store(spark, str(tmp_path / "prepared"))
    with pytest.raises(InputError, match="'c' found, which this run would remove for good"):
        check_removal(store, read_held(spark, store), ["another"], [])


def test_an_expired_day_is_known_by_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a message of it was archived again before anything was prepared."""
    module = "cluster_model.history.changed_days"
    monkeypatch.setattr(f"{module}.changed_days", lambda *_: {FIRST, FIRST + 1})
    monkeypatch.setattr(f"{module}.archived_days", lambda *_: {FIRST})
    log, reach = MetadataLog.of(snapshot(), cluster="c"), Reach.of(WINDOW, WINDOWS)
    days = range(FIRST, FIRST + 3)
    held = PreparedArchive(identity="a", version=0, days=frozenset(days))
    own = PreparedCluster(archives=(held,), days=metadata_digests(log, days, reach))
    spark: Any = None
    found = find_changes(spark, [("archive", TableVersion("a", 2))], log, own, reach)
    assert found.changed == ()
    assert found.known.expired == {FIRST, FIRST + 1}


@pytest.mark.soak
def test_of_two_runs_at_once_the_first_to_finish_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(spark, tmp_path)
    archive.add([(FIRST * DAY_MS, Record(FIRST * DAY_MS, n, {"cpu": 1.0})) for n in (1, 2)])
    # of a run that was killed
    (tmp_path / "prepared" / f"judged-{0:032x}").mkdir(parents=True)

    def overtaken(*arguments: Any) -> Any:
        found = find_changes(*arguments)
        patched.undo()
        archive.prepare()
        return found

    with monkeypatch.context() as patched:
        patched.setattr("cluster_model.history.prepare.find_changes", overtaken)
        with pytest.raises(InputError, match="another run of 'counterpoise history prepare'"):
            archive.prepare()
    assert len(archive.prepared()) == 2
    assert [place.name for place in (tmp_path / "prepared").iterdir()] == ["history"]
    save_snapshot(snapshot(), tmp_path / "cluster.json")
    names = [str(tmp_path / name) for name in ("archive", "cluster.json", "prepared")]
    words = ["history", "prepare", names[0], "--metadata", names[1], "-o", names[2]]
    words += ["--cluster", "c", "--windows", str(WINDOWS)]
    said = invoke([*words, "--window", str(WINDOW // 1000)])
    assert (said.exit_code, said.stdout) == (0, "nothing new: 2 records prepared before\n")
    (said, refused) = (
        invoke([*words, "--window", *window])
        for window in (["43200"], ["21600", "--from", "2024-10-04"])
    )
    assert (said.exit_code, refused.exit_code) == (0, 2), said.output
    assert "everything is prepared again" in said.stderr
    assert "2 records judged for arrivals of 2024-10-04" in " ".join(said.stdout.split())
    assert read_prepared(spark, tmp_path / "prepared").window_ms == 43_200_000
    assert "all of which this run replaces; no range of days expected" in refused.stderr
    said = invoke([*words, "--window", "86399", "--from", "2024-10-04"])
    assert (said.exit_code, said.stderr.count("\n")) == (2, 1)
    assert "windows that divide a day and archives without plain Parquet expected" in said.stderr


def test_days_after_a_gap_are_prepared_in_another_transaction() -> None:
    assert [*_chunks([1, 2, 3, 4, 6], 3)] == [[1, 2, 3], [4], [6]]


def test_only_days_near_a_change_of_the_metadata_have_another_digest() -> None:
    reach, days = Reach(before=1, after=1), range(FIRST, FIRST + 6)
    log = MetadataLog(cluster="c")
    log.append(0, snapshot())
    before = metadata_digests(log, days, reach)
    assert before == metadata_digests(MetadataLog.of(snapshot(), cluster="c"), days, reach)
    log.append((FIRST + 3) * DAY_MS, snapshot(leader=2))
    after = metadata_digests(log, days, reach)
    # The day before may have records of a time after the change.
    assert [day - FIRST for day in days if after[day] != before[day]] == [2, 3, 4, 5]
    log.append((FIRST + 5) * DAY_MS, snapshot())
    later = metadata_digests(log, days, reach)
    assert [day - FIRST for day in days if later[day] != after[day]] == [4, 5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "x"], "--from: 'x' found, a day like 2025-03-01 expected"),
        (["--to", "2025-03-01T12:00"], "--to: '2025-03-01T12:00' found, a day like"),
        (["--from", "2025-03-02", "--to", "2025-03-01"], "2025-03-02 (--from) or a later day"),
        (["--from", "2025-03-02", "--format", "json"], "with --format json, an archive expected"),
    ],
)
def test_a_range_of_days_that_is_none_is_one_sentence(words: list[str], said: str) -> None:
    done = invoke(["history", "prepare", "a", "--metadata", "m", "-o", "o", *words])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
