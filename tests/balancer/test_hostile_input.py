"""Hostile input on the command line: always exit code 2 and one sentence."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from waiting import LIMIT

from balancer import Balancer, load_plan
from balancer.report import html_report
from cluster_model import BrokerState, save_snapshot, synthetic_snapshot
from metrics_reporter.documents import DocumentLimits, printable

DEEP = "[" * 5000 + "]" * 5000
BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


def npz(**changes: Any) -> bytes:
    """A sound archive of a snapshot, but for some arrays; None leaves one out."""
    folder = Path(os.environ["HOSTILE"])
    with np.load(folder / "sound.npz") as data:
        arrays = {**data, **changes}
    out = io.BytesIO()
    np.savez_compressed(out, **{k: v for k, v in arrays.items() if v is not None})
    return out.getvalue()


def zip_bomb() -> bytes:
    """An archive that says, in a few hundred bytes, that it holds 64 GiB of zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("schema_version", "broker_ids"):
            archive.writestr(f"{name}.npy", b"\0" * 1000)
    data = bytearray(out.getvalue())
    at = 0
    while (at := data.find(b"PK\1\2", at)) >= 0:
        data[at + 24 : at + 28] = struct.pack("<I", 2**32 - 2)
        at += 1
    return bytes(data)


def header_bomb(field: str = "broker_ids", kind: str = "<i8", values: int = 10**15) -> bytes:
    """An archive with an array that says in its header that it has so many values."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": kind, "fortran_order": False, "shape": (values,)}
    )
    sound = io.BytesIO(npz(**{field: None}))
    with zipfile.ZipFile(sound, "a") as archive:
        archive.writestr(f"{field}.npy", out.getvalue() + b"\0" * 64)
    return sound.getvalue()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a sound file of each kind, and many broken ones."""
    folder = tmp_path_factory.mktemp("hostile")
    snapshot = synthetic_snapshot(brokers=4, partitions=20, racks=2, topics=2, utilization=0.2)
    for name in ("sound.json", "sound.npz"):
        save_snapshot(snapshot, folder / name)
    Balancer().propose(snapshot).save(folder / "plan.json")
    os.environ["HOSTILE"] = str(folder)
    sound = json.loads((folder / "sound.json").read_text())
    plan = json.loads((folder / "plan.json").read_text())

    def changed(document: Any, *path: Any, to: Any) -> str:
        copy = json.loads(json.dumps(document))
        inner = copy
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = to
        return json.dumps(copy)

    whole = (folder / "sound.npz").read_bytes()
    flipped = bytearray(whole)
    for at in range(200, len(flipped), 97):
        flipped[at] ^= 0x10
    broken: dict[str, str | bytes] = {
        "deep.json": DEEP,
        "deepobject.json": '{"a":' * 5000 + "1" + "}" * 5000,
        "twice.json": '{"schema_version": 1, "schema_version": 1}',
        "nul.json": b"\0" * 100,
        "utf16.json": "{}".encode("utf-16"),
        "infinite.json": '{"schema_version": 1e999}',
        "nan.json": '{"schema_version": NaN}',
        "true.json": '{"schema_version": true}',
        "digits.json": "1" * 10_000,
        "bigid.json": changed(sound, "brokers", 0, "id", to=2**63),
        "floatid.json": changed(sound, "brokers", 0, "id", to=1.0),
        "boolid.json": changed(sound, "brokers", 0, "id", to=True),
        "negativeid.json": changed(sound, "brokers", 0, "id", to=-1),
        "longname.json": changed(sound, "brokers", 0, "capacity", to={"x" * 5000: 1}),
        "partition.json": changed(sound, "partitions", 0, "partition", to=1e3),
        "cut.npz": whole[: len(whole) // 2],
        "tiny.npz": whole[:3],
        "flipped.npz": bytes(flipped),
        "text.npz": "hello",
        "zip.npz": zip_bomb(),
        "header.npz": header_bomb(),
        "missing.npz": npz(broker_ids=None),
        "floats.npz": npz(broker_ids=np.array([0.5, 1.5, 2.5, 3.5])),
        "unsigned.npz": npz(broker_ids=np.array([0, 1, 2, 2**63], np.uint64)),
        "scalar.npz": npz(broker_ids=np.array(3)),
        "nans.npz": npz(capacity=np.full((4, 4), np.nan)),
        "offsets.npz": npz(replica_offset=np.r_[0, np.full(19, 2**62), 60]),
        "version.npz": npz(schema_version=np.array([1, 1])),
        "names.npz": npz(topics=np.array([1, 2])),
        "objects.npz": npz(topics=np.array([{}, {}], object)),
        "kind.json": changed(plan, "operation", to={}),
        "kindnumber.json": changed(plan, "operation", "kind", to=3),
        "nogoals.json": changed(plan, "goals", to=5),
        "deepplan.json": changed(plan, "operation", "kind", to="@").replace('"@"', DEEP),
        "infiniteplan.json": changed(plan, "actions", to="@").replace('"@"', "1e999"),
        "bool.json": changed(plan, "schema_version", to=True),
        "action.json": changed(plan, "actions", to=[{"kind": "move", "partition": 2**70}]),
        "int.yaml": "goals: [!!int x]",
        "date.yaml": "goals: 2001-99-99",
        "bomb.yaml": BOMB,
        "recursive.yaml": "goals: &a [*a]",
        "deep.yaml": DEEP,
        "python.yaml": "goals: !!python/object/apply:os.system [true]",
        "twice.yaml": "goals: []\ngoals: []\n",
        "truth.yaml": "goals: [{goal: ReplicaDistribution, threshold: true}]",
        "long.yaml": f"goals: [{'x' * 100_000}]",
        "key.yaml": "? [a, b]\n: c\n",
        "bad.toml": "goals = 2001-99-99\n",
        "deep.toml": "goals = " + DEEP,
        "dots.toml": ".".join("a" * 5000) + " = 1\n",
        "inf.toml": "goals = inf\n",
        "binary.toml": b"\xff\xfe",
        "capacity.yaml": "default: {cpu: yes}",
        "capacitybool.yaml": "default: {cpu: true}",
        "capacitytwice.yaml": "brokers: {1: {cpu: 1}, '1': {cpu: 2}}",
        "capacityinf.yaml": "default: {cpu: .inf}",
        "settings.yaml": "interval: true",
        "settingsmoves.yaml": "max_moves: 1.5",
        "webhook.yaml": "webhooks: [{url: 'hooks.example/T0/SECRET'}]",
        "torn.properties": "-----BEGIN PRIVATE KEY-----\nSECRET\n",
        "twice.properties": "a=1\na=2\n",
        "exporters.yaml": "endpoints: {1: 'http://u:SECRET@h:x/'}",
        "record.journal": '{"record": "state", "task": 0, "state": "dead"}\n',
        "deep.journal": '{"record":' + DEEP + "}\n",
        "nul.journal": b"\0" * 500 + b"\n",
    }
    for name, content in broken.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode(
            "utf-8", "surrogatepass"))  # fmt: skip
    (folder / "directory.json").mkdir()
    return folder


SNAPSHOTS = [
    "deep.json", "deepobject.json", "twice.json", "nul.json", "utf16.json", "infinite.json",
    "nan.json", "true.json", "digits.json", "bigid.json", "floatid.json", "boolid.json",
    "negativeid.json", "longname.json", "partition.json", "cut.npz", "tiny.npz", "flipped.npz",
    "text.npz", "zip.npz", "header.npz", "missing.npz", "floats.npz", "unsigned.npz",
    "scalar.npz", "nans.npz", "offsets.npz", "version.npz", "names.npz", "objects.npz",
    "directory.json", "absent.json", "plan.json", "bomb.yaml",
]  # fmt: skip
PLANS = [
    "kind.json", "kindnumber.json", "nogoals.json", "deepplan.json", "infiniteplan.json",
    "bool.json", "action.json", "deep.json", "nul.json", "directory.json", "absent.json",
    "sound.json",
]  # fmt: skip
GOALS = [
    "int.yaml", "date.yaml", "bomb.yaml", "recursive.yaml", "deep.yaml", "python.yaml",
    "twice.yaml", "truth.yaml", "long.yaml", "key.yaml", "bad.toml", "deep.toml", "dots.toml",
    "inf.toml", "binary.toml", "directory.json", "nonesuch", "x" * 5000, "",
]  # fmt: skip
NUMBERS = ["nan", "inf", "-inf", "1e400", "-1", "x", "", "1e300"]
KAFKA = "--bootstrap-server localhost:1"
CASES = [
    *(f"propose {name}" for name in SNAPSHOTS),
    *(f"explain {name}" for name in PLANS),
    *(f"verify sound.json {name}" for name in PLANS),
    *(f"execute {KAFKA} {name}" for name in PLANS),
    *(["propose", "sound.json", "--goals", name] for name in GOALS),
    *(["propose", "sound.json", "--timeout", n] for n in NUMBERS),
    *(["propose", "sound.json", "--max-seconds", n] for n in NUMBERS[:-1]),
    *(["propose", "sound.json", "--max-bytes", n] for n in NUMBERS[:-1]),
    *(["propose", "sound.json", option, "-1"] for option in ("--seed", "--max-moves")),
    *(["propose", "sound.json", "--seed", n] for n in ("1.5", str(2**64), "1e3")),
    *(["propose", "sound.json", "--remove-brokers", n] for n in ("-1", "1.5", "²", str(2**70))),
    *(["execute", *KAFKA.split(), "plan.json", "--task-timeout", n] for n in NUMBERS),
    *(["run", *KAFKA.split(), "--session", n] for n in NUMBERS),
    *(["report-metrics", *KAFKA.split(), "--topic", "m", "--source", "admin", "--interval", n]
      for n in NUMBERS),
    *(["history", "archive", "a", *KAFKA.split(), "--topic", "m", "--every", n] for n in NUMBERS),
    *(["snapshot", "synthetic", "-o", "new.npz", "--skew", n] for n in ("nan", "inf", "-1")),
    *(["snapshot", "synthetic", "-o", "new.npz", "--seed", n] for n in ("-1", str(2**64))),
    *(f"snapshot synthetic -o {name}" for name in ("directory.json", "no/such.json", "x.txt")),
    *(f"run {KAFKA} --settings {name}" for name in ("settings.yaml", "settingsmoves.yaml",
      "webhook.yaml", "bomb.yaml", "directory.json", "absent.yaml")),
    *(f"snapshot kafka -o new.json {KAFKA} --capacity {name}" for name in ("capacity.yaml",
      "capacitybool.yaml", "capacitytwice.yaml", "capacityinf.yaml", "bomb.yaml")),
    *(f"snapshot kafka -o new.json {KAFKA} --command-config {name}" for name in (
      "torn.properties", "twice.properties", "binary.toml", "directory.json")),
    *(f"execute {KAFKA} --recover --journal {name}" for name in ("record.journal",
      "deep.journal", "nul.journal", "directory.json")),
    f"report-metrics {KAFKA} --topic m --source prometheus --exporters exporters.yaml",
    f"report-metrics {KAFKA} --topic m --source prometheus --endpoint 1=http://u:SECRET@h/",
    *(f"run {KAFKA} --listen {address}" for address in ("9464", "::1:9464", "a:99999")),
    "goals show Nonesuch",
    "goals check ReplicaCapacity --field limit=!!int",
    "goals check nonesuch:Goal",
    "goals check ReplicaCapacity --seed -1",
    "history backtest nowhere --metadata absent --from yesterday",
    "nonesuch", "--nonesuch", "propose --nonesuch", "snapshot nonesuch", "verify sound.json",
    "propose sound.json -o directory.json", "propose sound.json -o no/such/plan.json",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", CASES, ids=lambda c: (c if isinstance(c, str) else " ".join(c))[:60]
)
def test_one_sentence_and_exit_code_2(
    files: Path, monkeypatch: pytest.MonkeyPatch, case: str | list[str]
) -> None:
    monkeypatch.chdir(files)
    words = case.split() if isinstance(case, str) else case
    result = invoke(words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("counterpoise: ")
    assert line.isprintable()
    assert len(line) < 1500
    assert "failed unexpectedly" not in line
    assert "Traceback" not in line
    assert "SECRET" not in line


def test_an_error_nobody_thought_of_is_one_sentence(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: object) -> None:
        raise ZeroDivisionError("a\nb\x1b[31m")

    monkeypatch.setattr("balancer.load_plan", fail)
    result = invoke(["explain", "plan.json"])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("counterpoise: explain failed unexpectedly (ZeroDivisionError: a b")
    assert "--debug" in line
    assert "\x1b" not in line
    result = invoke(["--debug", "explain", "plan.json"])
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("error", [MemoryError(), RecursionError(), AssertionError()])
def test_so_are_those_that_a_machine_raises(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(path: object) -> None:
        raise error

    monkeypatch.setattr("balancer.load_plan", fail)
    result = invoke(["explain", "plan.json"])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("balancer.load_plan", fail)
    result = invoke(["explain", "plan.json"])
    assert (result.exit_code, result.stderr) == (130, "counterpoise: interrupted\n")


def test_the_version_is_reported() -> None:
    result = invoke(["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("counterpoise ")


COMMAND = [sys.executable, "-c", "from balancer.cli import main; main()"]


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_news(files: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "propose", str(files / "sound.json"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(120) != -signal.SIGPIPE


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/dev/stdout", "link"])
def test_a_plan_goes_through_what_it_is_written_to(
    files: Path, tmp_path: Path, target: str
) -> None:
    if target == "link":
        (tmp_path / "link").symlink_to(tmp_path / "found")
        (tmp_path / "found").touch(0o644)
        invoke(["propose", files / "sound.json", "-o", tmp_path / "link"])
        assert (tmp_path / "link").is_symlink()
        assert stat.S_IMODE((tmp_path / "found").stat().st_mode) == 0o644
        text = (tmp_path / "found").read_text()
    else:
        done = subprocess.run(
            [*COMMAND, "propose", str(files / "sound.json"), "-o", target],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        text = done.stdout[: done.stdout.rindex("\n}") + 2]
    assert json.loads(text[text.index("{") :])["schema_version"] == 2


def test_names_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    names = ["[/]", "[red]", "\x1b[31mred\x1b]0;title\x07", "a\rb", "\u202eab"]
    found = synthetic_snapshot(
        brokers=6, partitions=60, replication_factor=2, racks=6, topics=6, disks_per_broker=2
    )
    found = replace(
        found,
        topics=tuple(sorted([*names, "other"])),
        racks=tuple(sorted([*names, "rack"])),
        disk_path=tuple(f"{names[i % 5]}{i}" for i in range(found.n_disks)),
    )
    save_snapshot(found, tmp_path / "s.json")
    plan = tmp_path / "plan.json"

    def shown(*words: object) -> str:
        result = invoke(words)
        assert result.exit_code in (0, 1), (result.output, result.exception)
        assert printable(result.output) == result.output
        assert result.output.replace("\n", "").isprintable()
        return result.output

    shown("propose", tmp_path / "s.json", "-o", plan, "--report", tmp_path / "r.html")
    explained = shown("explain", plan, "--top", "1000")
    assert all(name in explained for name in names if name.isprintable())
    shown("explain", plan, "--broker", "1")
    for name in names:
        moved = next(a for a in load_plan(plan).actions if a.topic == name)
        shown("explain", plan, "--partition", f"{name}-{moved.partition}")
    shown("verify", tmp_path / "s.json", plan)
    page = (tmp_path / "r.html").read_text()
    assert printable(page) == page.replace("\t", "\ufffd")
    data = json.loads(re.findall('id="data">(.*?)</script>', page)[0])
    for text in (*data["racks"], *(a[2] for a in data["actions"])):
        assert printable(text) == text


@pytest.mark.parametrize("alive", [0, 1])
def test_a_report_of_a_cluster_of_which_little_is_left(alive: int) -> None:
    found = synthetic_snapshot(brokers=4, partitions=20, racks=2, topics=2, utilization=0.2)
    state = np.full(4, BrokerState.DEAD)
    state[:alive] = BrokerState.ALIVE
    plan = Balancer().propose(replace(found, broker_state=state))
    assert "</html>" in html_report(plan)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "cluster.json"], "--output: cluster.json found, which SNAPSHOT names too"),
        (["-o", "link.json"], "--output: link.json found, which SNAPSHOT names too"),
        (["-o", "a", "--report", "a"], "--report: a found, which --output names too"),
        (["--goals", "g.yaml", "--report", "g.yaml"], "g.yaml found, which --goals names too"),
    ],
)
def test_nothing_is_written_over_what_is_read_or_written(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = (files / "sound.json").read_bytes()
    Path("cluster.json").write_bytes(before)
    Path("link.json").symlink_to("cluster.json")
    Path("g.yaml").write_text("profile: default\n")
    names = {*os.listdir()}
    done = invoke(["propose", "cluster.json", *options])
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert Path("cluster.json").read_bytes() == before
    assert {*os.listdir()} == names


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("execute plan.json --bootstrap-server h:1 --journal plan.json", "which PLAN names too"),
        ("execute --recover --bootstrap-server h:1 --command-config c --journal c",
         "c found, which --command-config names too"),
        ("run --bootstrap-server h:1 --settings c --journal c", "which --settings names too"),
        ("run --bootstrap-server h:1 --capacity c --journal link", "which --capacity names too"),
        ("demo -o both", "both/plan.json found, which --output, snapshot.json names too"),
        ("history snapshot dir --metadata plan.json -o plan.json", "which --metadata names too"),
        ("history snapshot dir --metadata c -o x.csv", "suffix .json or .npz expected"),
        ("history backtest dir --metadata plan.json --picture plan.json", "--metadata names too"),
        ("history backtest dir --metadata m --configurations c --output c",
         "which --configurations names too"),
        ("history backtest dir --metadata m --goals c --output link", "which --goals c names too"),
        ("history backtest dir --metadata m --judge-by c --output c", "--judge-by names too"),
        ("history backtest dir --metadata m --output x --picture x", "which --output names too"),
        ("history prepare dir --metadata m -o dir", "which RECORDS dir names too"),
        ("history prepare dir/in --metadata m -o dir", "dir found, which holds RECORDS dir/in"),
        ("history prepare r --metadata dir/in -o dir", "dir found, which holds --metadata"),
        ("history archive dir --bootstrap-server h:1 --metrics-topic m --metadata dir",
         "dir found, which ARCHIVE names too"),
    ],
)  # fmt: skip
def test_no_command_writes_over_what_it_reads_or_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text("{}")
    Path("c").write_text("a=1\n")
    Path("link").symlink_to("c")
    Path("dir").mkdir()
    Path("dir/in").mkdir()
    Path("both").mkdir()
    Path("both/plan.json").symlink_to("snapshot.json")
    before = {*tmp_path.rglob("*")}
    done = invoke(command.split())
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert {*tmp_path.rglob("*")} == before


def test_a_pipe_that_nobody_reads_is_one_sentence(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster_model.files.LIMITS", DocumentLimits(reader_seconds=0.2))
    os.mkfifo(tmp_path / "pipe")
    for command in (["snapshot", "synthetic", "-o", "pipe.json"], ["propose", "sound.json", "-o"]):
        target = tmp_path / "pipe"
        if command[0] == "snapshot":
            command, target = command[:-1], tmp_path / "pipe.json"
            os.mkfifo(target)
        else:
            command[1] = str(files / "sound.json")
        done = invoke([*command, target])
        assert done.exit_code == 2
        assert "cannot be written: no process reads from this pipe" in done.stderr


def test_a_pipe_waits_for_its_reader(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe.json", tmp_path / "found.json"
    os.mkfifo(pipe)
    with found.open("wb") as file, subprocess.Popen(["cat", str(pipe)], stdout=file) as reader:
        done = invoke(["snapshot", "synthetic", "-o", pipe])
        assert reader.wait(LIMIT) == 0
    assert done.exit_code == 0, done.output
    assert json.loads(found.read_text())["schema_version"] == 1


def test_an_archive_is_refused_by_the_sizes_that_it_states(files: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.npz"
    many.write_bytes(header_bomb("topics", "<U1", 1 << 25))
    done = invoke(["propose", many])
    assert done.exit_code == 2
    assert "field topics: 128 MiB of text found, at most 64 MiB expected" in done.stderr
    done = invoke(["propose", files / "zip.npz"])
    assert done.exit_code == 2
    assert "MiB of arrays found, at most 512 MiB expected" in done.stderr


@pytest.mark.parametrize("target", ["/dev/stdout", "cluster"])
def test_a_snapshot_without_a_suffix_is_refused_before_kafka_is_asked(target: str) -> None:
    command = ["snapshot", "kafka", "--bootstrap-server", "localhost:1", "-o", target]
    done = invoke(command)
    assert done.exit_code == 2
    assert "suffix .json or .npz expected" in done.output
