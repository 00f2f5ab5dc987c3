"""The fuzzer: every reader withstands a sample of mutants; a failure is reported with its seed."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from balancer.execution.journal import read_journal
from benchmarks import fuzz as module
from benchmarks.fuzz import Part
from benchmarks.harness.readers import Reader, ReaderError, all_readers
from benchmarks.registry import BenchmarkError, Options, Row
from cluster_model import InputError

READERS = all_readers()
QUIET = Options(log=lambda sentence: None)


@pytest.mark.parametrize("name", sorted(READERS))
def test_sound_documents_are_taken(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    for seed in reader.seeds:
        path = tmp_path / f"sound{reader.suffix}"
        path.write_bytes(seed)
        assert reader.read(path) in (0, reader.name == "prometheus text")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(READERS))
def test_no_mutant_does_harm(name: str) -> None:
    tally = module.read_mutants(READERS[name], 1, Part(name, 0, 150), lambda at: None)
    counts = {what: n for (_, what), n in tally.counts.items()}
    assert tally.failures == []
    assert counts["taken"] + counts["refused"] == counts["given"] == tally.inputs == 150
    assert counts["taken"] > 0


def test_mutants_are_the_same_again() -> None:
    again = all_readers()
    for name, reader in READERS.items():
        assert [reader.mutant(3, i) for i in range(4)] == [
            again[name].mutant(3, i) for i in range(4)
        ]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (InputError("x" * 10_000), "10000 characters in a sentence"),
        (InputError(""), "0 characters"),
        (RuntimeWarning("overflow"), "RuntimeWarning: overflow"),
        (ReaderError("lost"), "ReaderError: lost"),
    ],
)
def test_failures_are_reported_with_their_seed(fault: Exception, said: str) -> None:
    def fail(path: Path) -> int:
        raise fault

    reader = Reader("broken one", ".txt", (b"a",), fail)
    tally = module.read_mutants(reader, 7, Part("broken one", 4, 6), lambda at: None)
    assert tally.counts["broken one", "failed"] == len(tally.failures) == 2
    assert tally.failures[0].startswith("reader 'broken one', seed 7, input 4: ")
    assert said in tally.failures[0]
    command = "python -m benchmarks run fuzz --seed 7 --subject 'broken one:4'"
    assert tally.failures[0].endswith(f" ({command})")


def test_a_hang_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(path: Path) -> int:
        while True:
            pass

    monkeypatch.setattr(module, "_LONGEST", 0.2)
    slow = Reader("slow", ".txt", (b"a",), hang)
    tally = module.read_mutants(slow, 0, Part("slow", 0, 1), lambda at: None)
    assert len(tally.failures) == 1
    assert "reader 'slow', seed 0, input 0: HangError: not done in 0.2 s" in tally.failures[0]


@pytest.mark.slow
def test_all_inputs_are_counted_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    two = {name: READERS[name] for name in ("capacity", "plan")}
    monkeypatch.setattr(module, "all_readers", lambda: two)
    monkeypatch.setattr(module, "_BLOCKS", {"S": 2})
    monkeypatch.setattr(module, "_BLOCK", 200)
    monkeypatch.setattr(module, "_DOCUMENTS", {"S": 45})
    monkeypatch.setattr(module, "_PART", {"documents": 20, "blocks": 1})
    first, again = (
        {(row.subject, row.metric): row.value for row in module.fuzz(["S"], QUIET)}
        for _ in range(2)
    )
    del first["all", "seconds"], again["all", "seconds"]
    assert first == again
    assert first["all", "given"] == 2 * 45 + 400
    assert first["plan", "given"] == first["plan", "taken"] + first["plan", "refused"] == 45
    for subject in ("messages of any format", "messages of automq"):
        outcomes = ("taken", "refused", "skipped")
        assert sum(first[subject, what] for what in outcomes) == first[subject, "given"] == 400
    assert first["archive rows", "taken"] == first["messages of any format", "taken"]


@pytest.mark.parametrize("kind", ["dies", "is stuck"])
def test_a_reader_that_no_alarm_reaches_is_one_failure(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    capacity = READERS["capacity"]
    deadly = capacity.mutant(0, 7)

    def read(path: Path) -> int:
        if path.read_bytes() == deadly:
            if kind == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            time.sleep(600)
        return capacity.read(path)

    monkeypatch.setattr(module, "all_readers", lambda: {"capacity": replace(capacity, read=read)})
    monkeypatch.setattr(module, "_DOCUMENTS", {"S": 30})
    monkeypatch.setattr(module, "_SILENCE", 10.0)
    rows: list[Row] = []
    said = "ended with code -9" if kind == "dies" else "not done in 10 s"
    with pytest.raises(BenchmarkError, match=rf"input 7: .*{said}.* --subject capacity:7\)$"):
        rows.extend(module.fuzz(["S"], replace(QUIET, subjects=("capacity",))))
    counts = {row.metric: row.value for row in rows if row.subject == "capacity"}
    assert counts["given"] == 30
    assert counts["failed"] == 1
    assert counts["taken"] + counts["refused"] == 29


def test_a_failure_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> int:
        raise KeyError("x")

    capacity = replace(READERS["capacity"], read=fail)
    monkeypatch.setattr(module, "all_readers", lambda: {"capacity": capacity})
    monkeypatch.setattr(module, "_BLOCKS", {"S": 1})
    monkeypatch.setattr(module, "_DOCUMENTS", {"S": 2})
    with pytest.raises(BenchmarkError, match="reader 'capacity', seed 0, input 0: KeyError"):
        list(module.fuzz(["S"], QUIET))
    reported: list[str] = []
    alone = Options(subjects=("capacity:1",), log=reported.append)
    with pytest.raises(BenchmarkError, match="input 1: KeyError"):
        list(module.fuzz(["S"], alone))
    assert "Traceback" in reported[0]
    with pytest.raises(BenchmarkError, match="no subject 'capacty:1'; there are messages, cap"):
        list(module.fuzz(["S"], Options(subjects=("capacty:1",))))


BEGIN = '{"record":"begin","version":1,"cluster":"c"}\n'
TASK = (
    '{"record":"task","id":0,"phase":"move","topic":"a","partition":0,"origin":[0],"target":[1]}\n'
)


@pytest.mark.parametrize(
    "line",
    [
        "null",
        "[1]",
        '{"record":["state"]}',
        '{"record":"state","task":0,"state":"lost"}',
        '{"record":"state","task":1,"state":"dead"}',
        '{"record":"state","task":true,"state":"dead"}',
        '{"record":"state","task":0.0,"state":"dead"}',
        '{"record":"state","task":[0],"state":"dead"}',
        '{"record":"state","task":0,"state":"dead","note":5}',
        '{"record":"state","task":0,"task":0,"state":"dead"}',
        TASK.strip(),
        TASK.strip().replace('"id":0', '"id":9223372036854775808'),
        TASK.strip().replace('"id":0', '"id":1,"after":7'),
        '{"record":"throttles","left":{}}',
        '{"record":"throttles","left":[{"kind":1}]}',
        '{"record":"stop","rollback":"no"}',
        '{"record":"end","state":"nearly"}',
        '{"record":"end"}',
        BEGIN.strip(),
        "\0" * 40,
        '{"record":' + "[" * 5000 + "]" * 5000 + "}",
        '{"record":"target","topic":"a","partition":0,"origin":[],"target":[1]}',
    ],
)
def test_a_journal_line_that_makes_no_sense_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal"
    path.write_text(BEGIN + TASK)
    assert read_journal(path) is not None
    path.write_text(f'{BEGIN}{TASK}{line}\n{{"record":"adopted"}}\n')
    with pytest.raises(InputError, match=r"journal .*, line 3: "):
        read_journal(path)
