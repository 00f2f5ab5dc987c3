"""A package adds one of each kind of extension; all are used from the command line."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from confluent_kafka import Producer
from typer.testing import Result

from cluster_model import Snapshot, load_snapshot, save_snapshot, synthetic_snapshot
from metrics_reporter import CPU, mock_cluster, read_records

PACKAGE = Path(__file__).parent / "example_package"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example package and a cluster of three racks are."""
    place = tmp_path_factory.mktemp("example")
    # Building writes into the source tree, so a copy is built.
    source = shutil.copytree(PACKAGE, place / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(place), str(source)],
        check=True,
    )
    snapshot = synthetic_snapshot(brokers=8, partitions=40, replication_factor=2, racks=4, seed=1)
    save_snapshot(snapshot, place / "cluster.json")
    save_snapshot(in_zones(snapshot), place / "zones.json")
    goal = "{goal: ZoneBandwidth, share: 0.5, hard: true}"
    (place / "zones.yaml").write_text(f"goals:\n  - {goal}\n  - {{goal: ReplicaDistribution}}\n")
    return place


def in_zones(snapshot: Snapshot) -> Snapshot:
    """Zone b has the brokers that receive most; half an uplink is just enough for either zone."""
    received = snapshot.broker_load()[:, snapshot.resource("network_in")]
    zone = np.where(received > np.median(received), "b", "a")
    uplink = np.full(8, 2.1 * received.sum() / 8)
    return replace(snapshot, broker_attributes={"zone": zone, "uplink": uplink})


def command(installed: Path, *words: str) -> Result:
    with contextlib.chdir(installed), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(installed)
        return invoke(words)


def test_both_are_listed_with_their_options(installed: Path) -> None:
    listed = command(installed, "strategies", "list").stdout
    assert "fewest-first" in listed
    assert "Even out the number of replicas, one move at a time." in listed
    assert "evacuate_rack" in command(installed, "operations", "list").stdout
    assert "Reports the cpu of one broker." in command(installed, "sources", "list").stdout
    shown = command(installed, "operations", "show", "evacuate_rack").stdout
    assert "rack" in shown
    assert "--operation evacuate_rack --option FIELD=VALUE" in shown
    assert "1000" in command(installed, "strategies", "show", "fewest-first").stdout


def test_its_goal_scores_zones(installed: Path) -> None:
    words = ["propose", "zones.json", "--goals", "zones.yaml", "-o", "zones-plan.json"]
    done = command(installed, *words)
    assert done.exit_code in (0, 1), done.stderr
    results = json.loads((installed / "zones-plan.json").read_text())["goal_results"]
    (zones,) = (r for r in results if r["goal"] == "ZoneBandwidth")
    assert (zones["unmet_cells_before"], zones["unmet_cells_after"]) == (1, 0)
    checked = command(installed, "verify", "zones.json", "zones-plan.json")
    # By the goal's own code, as it is not known to the check.
    assert "no fault in" in checked.stdout
    assert "ZoneBandwidth" in command(installed, "goals", "list").stdout


def test_what_a_zone_cannot_carry_is_explained(installed: Path) -> None:
    text = (installed / "zones.yaml").read_text().replace("0.5", "0.4")
    (installed / "tight.yaml").write_text(text)
    words = ["propose", "zones.json", "--goals", "tight.yaml", "-o", "tight-plan.json"]
    assert command(installed, *words).exit_code == 1
    plan = json.loads((installed / "tight-plan.json").read_text())
    reason = next(u["reason"] for u in plan["unmet"] if u["goal"] == "ZoneBandwidth")
    assert re.match("[12] zones? not content: ", reason)
    checked = command(installed, "verify", "zones.json", "tight-plan.json")
    assert "no fault in" in checked.stdout


def test_a_cluster_without_the_attributes_of_its_goal_is_one_sentence(installed: Path) -> None:
    done = command(installed, "propose", "cluster.json", "--goals", "zones.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "ZoneBandwidth: the snapshot has no broker attribute 'zone'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_its_goal_conforms(installed: Path) -> None:
    words = ["goals", "check", "zone_bandwidth:ZoneBandwidth"]
    done = command(installed, *words)
    assert done.exit_code == 0, done.stdout + done.stderr


def test_its_strategy_makes_plans_that_pass_their_check(installed: Path) -> None:
    words = ["propose", "cluster.json", "--strategy", "fewest-first", "-o", "evened.json"]
    done = command(installed, *words, "--strategy-option", "steps=7")
    assert done.exit_code in (0, 1), done.stderr
    plan = json.loads((installed / "evened.json").read_text())
    assert 0 < plan["summary"]["replica_moves"] <= 7
    assert command(installed, "verify", "cluster.json", "evened.json").exit_code == 0
    wrong = command(installed, *words, "--strategy-option", "steps=-1")
    assert wrong.exit_code == 2
    assert wrong.stderr == (
        "counterpoise: strategy fewest-first, option steps: -1 found; input should be greater "
        "than or equal to 0\n"
    )


def test_its_operation_is_asked_for_by_name(installed: Path) -> None:
    rack = load_snapshot(installed / "cluster.json").racks[0]
    words = ["propose", "cluster.json", "--operation", "evacuate-rack", "-o", "evacuated.json"]
    done = command(installed, *words, "--option", f"rack={rack}")
    assert done.stdout.lstrip().startswith(f"Rack {rack} is empty."), done.stderr
    plan = json.loads((installed / "evacuated.json").read_text())
    assert plan["operation"] == {"kind": "evacuate_rack", "options": {"rack": rack}}
    assert plan["verdict"] == {
        "fulfilled": True, "remaining": 0, "sentence": f"rack {rack} is empty",
    }  # fmt: skip
    # The checker replays the steps, and says that it does not know what was asked.
    checked = command(installed, "verify", "cluster.json", "evacuated.json")
    assert checked.exit_code == 1
    assert "'evacuate_rack' is not known to the check" in " ".join(checked.stdout.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "operation evacuate_rack, option rack: none found, a value expected"),
        (["--option", "rack=nowhere"], "rack 'nowhere' found, one of "),
        # A number is text where the option is text.
        (["--option", "rack=12"], "rack '12' found, one of "),
        (["--option", "rack"], "--option: 'rack' found, FIELD=VALUE expected"),
        (
            ["--option", "rack=a", "--option", "row=3"],
            "operation evacuate_rack: option 'row' found, one of rack expected",
        ),
        (
            ["--brokers", "1", "--option", "rack=a"],
            "operation evacuate_rack: takes no brokers, [1] given",
        ),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence(
    installed: Path, options: list[str], said: str
) -> None:
    done = command(installed, "propose", "cluster.json", "--operation", "evacuate_rack", *options)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_its_source_reports_to_the_metrics_topic(installed: Path) -> None:
    with mock_cluster() as bootstrap:
        words = ["report-metrics", "--bootstrap-server", bootstrap, "--metrics-topic", "metrics"]
        words += ["--source", "steady", "--interval", "0.1", "--once"]
        # The mocked broker creates a topic when it is asked about it.
        Producer({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics("metrics", 10)
        done = command(installed, *words, "--source-option", "broker=4")
        assert done.exit_code == 0, done.stderr
        assert done.stdout == "2 records sent to metrics\n"
        records = list(read_records(bootstrap, "metrics"))
    assert [(r.broker, r.metrics) for r in records] == 2 * [(4, {CPU: 50.0})]
    wrong = command(installed, *words, "--source-option", "broker=four")
    assert wrong.exit_code == 2
    assert "source steady, option broker: 'four' found; input should be" in wrong.stderr
    missing = command(installed, *words)
    assert "source steady, option broker: none found, a value expected" in missing.stderr


def test_its_notifier_delivers_an_event(installed: Path) -> None:
    assert "Append every event to a file" in command(installed, "notifiers", "list").stdout
    shown = command(installed, "notifiers", "show", "file").stdout
    assert "notifiers: [{name: file, options: {FIELD: VALUE}}]" in shown
    done = command(installed, "notifiers", "test", "file", "--option", "path=events.jsonl")
    assert (done.exit_code, done.stdout) == (0, "file: delivered\n"), done.stderr
    (event,) = map(json.loads, (installed / "events.jsonl").read_text().splitlines())
    assert event["event"] == "test"
    there = command(installed, "notifiers", "test", "file", "--option", "path=nowhere/events")
    assert (there.exit_code, there.stdout) == (1, "file: not delivered\n")
    assert "file: an event was not delivered (FileNotFoundError)" in there.stderr
    wrong = command(installed, "notifiers", "test", "file", "--option", "file=events")
    assert wrong.exit_code == 2
    assert wrong.stderr == (
        "counterpoise: options: notifiers.0: notifier file: an unknown option found, one of path "
        "expected\n"
    )


def test_its_detector_finds_what_its_operation_mends(installed: Path) -> None:
    assert "rack_maintenance" in command(installed, "detectors", "list").stdout
    rack = load_snapshot(installed / "cluster.json").racks[0]
    settings = installed / "settings.yaml"
    asked = f"rack_maintenance: {{grace: %s, options: {{rack: {rack}}}}}"
    whole = "max_share_per_cycle: 1\ngoal_violations: {enabled: false}\n"
    settings.write_text(f"{whole}detectors: {{{asked % '1h'}}}\n")
    words = ["detectors", "try", "cluster.json", "--settings", "settings.yaml", "--json"]
    waiting = json.loads(command(installed, *words).stdout)
    assert waiting["kind"] == "waiting"
    assert waiting["findings"][0]["state"] == "waiting"
    assert "; it is acted on after 1 h" in waiting["reason"]
    settings.write_text(f"{whole}detectors: {{{asked % '0'}}}\n")
    done = command(installed, *words)
    assert done.exit_code == 1, done.stderr
    proposed = json.loads(done.stdout)
    assert (proposed["kind"], proposed["cause"]) == ("proposed", "rack_maintenance")
    assert proposed["plan"]["operation"]["kind"] == "evacuate_rack"
    settings.write_text("detectors: {rack_maintenance: {}}")
    wrong = command(installed, *words)
    assert wrong.exit_code == 2
    assert wrong.stderr == (
        "counterpoise: settings file settings.yaml: detectors: detector rack_maintenance, option "
        "rack: none found, a value expected\n"
    )


def test_its_reader_reads_a_table(installed: Path) -> None:
    assert "Read a table with the columns" in command(installed, "readers", "list").stdout
    shown = command(installed, "readers", "show", "rooms").stdout
    assert "counterpoise propose FILE.rooms --snapshot-option FIELD=VALUE" in shown
    table = "room,server,players\n" + "".join(f"{n},{1 + (n > 2)},10\n" for n in range(12))
    (installed / "today.rooms").write_text(table)
    (installed / "even.yaml").write_text("goals: [{goal: UsageDistribution, resource: players}]\n")
    words = ["propose", "today.rooms", "--goals", "even.yaml", "-o", "rooms.json"]
    option = ["--snapshot-option", "capacity=100"]
    done = command(installed, *words, *option)
    assert done.exit_code == 0, done.stderr
    assert json.loads((installed / "rooms.json").read_text())["summary"]["replica_moves"] == 3
    assert command(installed, "verify", "today.rooms", "rooms.json", *option).exit_code == 0
    for wrong, said in (
        ([], "snapshot reader rooms, option capacity: none found, a value expected"),
        (["--snapshot-option", "size=3"], "snapshot reader rooms: option 'size' found, one of"),
    ):
        failed = command(installed, *words, *wrong)
        assert failed.exit_code == 2
        assert said in failed.stderr
    (installed / "broken.rooms").write_text("room,server\n1,x\n")
    failed = command(installed, "propose", "broken.rooms", *option)
    assert failed.stderr == (
        "counterpoise: snapshot broken.rooms: snapshot reader rooms failed (ValueError: invalid "
        "literal for int() with base 10: 'x')\n"
    )
    failed = command(installed, "propose", "today.csv")
    assert failed.stderr == (
        "counterpoise: snapshot file today.csv: suffix .json or .npz expected (or one of the "
        "installed readers rooms)\n"
    )


def test_the_guide_shows_the_package() -> None:
    guide = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    shown = re.findall(r"(?ms)^```(?:python|toml)\n(.*?)^```", guide)
    files = (
        "pyproject.toml",
        "zone_bandwidth.py",
        "fewest_first.py",
        "evacuate_rack.py",
        "steady_source.py",
        "file_notifier.py",
        "rack_maintenance.py",
        "rooms_reader.py",
    )
    package = [(PACKAGE / name).read_text(encoding="utf-8") for name in files]
    # Other blocks are scripts, which the tests of the documentation run.
    assert [block for block in shown if block in package] == package
    assert {file.name for file in PACKAGE.glob("*.*")} == {*files}
