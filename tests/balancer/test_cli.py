"""The command line: every command, its exit codes, and a sentence for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from balancer_cases import QUICK
from command_line import invoke
from pydantic import BaseModel, Field, SecretStr
from typer.testing import Result

from balancer import Action, load_plan
from balancer.cli import main
from balancer.cli.options import byte_count, byte_rate
from balancer.cli.plugins import fields_of
from balancer.cli.terminal import CommandError
from balancer.composition.client import ClientPropertiesError, client_properties
from benchmarks.harness.plans import plan_by_hand
from cluster_model import Snapshot, load_snapshot, save_snapshot, synthetic_snapshot

SHORT = [f"--strategy-option={name}={QUICK[name]}" for name in QUICK if name != "strategy"]


def run(*args: object, code: int = 0) -> Result:
    """Run a command; it must end with the code, and never with a traceback."""
    result = invoke(args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def sentence(*args: object) -> str:
    """What is said about bad input: one line on stderr, nothing on stdout."""
    result = run(*args, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("counterpoise: ")
    return line.removeprefix("counterpoise: ")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with snapshots: `cluster.json` can be balanced, `full.json` cannot."""
    directory = tmp_path_factory.mktemp("cli")
    size: dict[str, Any] = {"brokers": 6, "partitions": 36, "racks": 3, "topics": 2}
    for name, more in {
        "cluster.json": {"utilization": 0.2},
        "full.json": {"utilization": 1.2},
        "disks.npz": {"utilization": 0.2, "disks_per_broker": 2},
        "dead.json": {"utilization": 0.2, "dead_brokers": 1},
        "new.json": {"utilization": 0.2, "new_brokers": 2},
    }.items():
        save_snapshot(synthetic_snapshot(**{**size, **more}), directory / name)
    moves = directory / "moves.json"
    plan = directory / "plan.json"
    run("propose", directory / "cluster.json", "-o", plan, "--reassignment-json", moves)
    (directory / "torn.json").write_text('{"schema_version": 1,')
    (directory / "list.json").write_text("[]")
    (directory / "future.json").write_text('{"schema_version": 99}')
    (directory / "empty.json").write_text('{"schema_version": 1, "brokers": [], "partitions": []}')
    (directory / "goals.yaml").write_text(
        "goals:\n  - {goal: ReplicaDistribution, threshold: 1.05}\n"
    )
    (directory / "unknown.yaml").write_text("goals: [Happiness]\n")
    (directory / "field.yaml").write_text("goals: [{goal: ReplicaCapacity, limits: 3}]\n")
    (directory / "torn.properties").write_text("security.protocol\n")
    (directory / "capacity.yaml").write_text("default: {cpu: much}\n")
    return directory


def snapshot_of(plan_file: Path) -> dict[str, Any]:
    return dict(load_plan(plan_file).model_dump())


def test_help_teaches_with_examples() -> None:
    assert "counterpoise demo" in run("--help").stdout
    for command in (
        ["demo"], ["propose"], ["explain"], ["verify"], ["execute"], ["run"],
        ["goals", "list"], ["goals", "show"], ["goals", "check"],
        ["snapshot", "kafka"], ["snapshot", "synthetic"],
    ):  # fmt: skip
        assert "Example: counterpoise " + " ".join(command) in run(*command, "--help").stdout


def test_propose_shows_what_changes_and_writes_every_file(files: Path, tmp_path: Path) -> None:
    plan, moves, leaders = (tmp_path / n for n in ("plan.json", "moves.json", "leaders.json"))
    page = tmp_path / "report.html"
    result = run(
        "propose", files / "cluster.json", "-o", plan,
        "--reassignment-json", moves, "--leader-election-json", leaders, "--report", page,
    )  # fmt: skip
    assert "replica moves" in result.stdout
    assert "All goals are met." in result.stdout
    assert "UsageDistribution[disk]" in result.stdout
    assert "kafka-reassign-partitions" in result.stderr
    document = load_plan(plan)
    assert document.actions
    assert json.loads(moves.read_text())["version"] == 1
    assert json.loads(leaders.read_text()).keys() == {"partitions"}
    assert "<html" in page.read_text()


def test_json_is_the_plan_and_nothing_else(files: Path) -> None:
    result = run("propose", files / "cluster.json", "--json")
    assert result.stdout == (files / "plan.json").read_text()
    assert result.stderr == ""


def test_unmet_goals_are_exit_code_1_and_proofs_stand_apart(files: Path) -> None:
    result = run("propose", files / "full.json", *SHORT, code=1)
    assert "Cannot be met by any placement" in result.stdout
    assert "ResourceCapacity[cpu] (hard)" in result.stdout
    assert "add " in result.stdout
    limited = run("propose", files / "cluster.json", "--max-moves", 1, *SHORT, code=1)
    assert "Not reached" in limited.stdout
    assert "Cannot be met" not in limited.stdout
    assert "the limit on moves was reached" in limited.stdout


@pytest.mark.parametrize(
    ("snapshot", "options", "holds"),
    [
        (
            "cluster.json",
            ["--remove-brokers", "3"],
            lambda p: sources(p) == {3} and 3 not in destinations(p),
        ),
        ("cluster.json", ["--demote-brokers", "2"], lambda p: kinds(p) == {"leadership"}),
        ("cluster.json", ["--destinations", "1,2"], lambda p: destinations(p) <= {1, 2}),
        ("cluster.json", ["--exclude-topics", ".*"], lambda p: not p["actions"]),
        ("cluster.json", ["--exclude-topics", "topic-0"], lambda p: topics(p) == {"topic-1"}),
        (
            "cluster.json",
            ["--exclude-brokers-for-replicas", "1,2"],
            lambda p: not destinations(p) & {1, 2},
        ),
        (
            "cluster.json",
            ["--exclude-brokers-for-leadership", "4"],
            lambda p: p["operation"]["excluded_brokers_for_leadership"] == [4],
        ),
        (
            "cluster.json",
            ["--replication-factor", "topic-1=2"],
            lambda p: kinds(p) >= {"remove"} and topics(p) == {"topic-1"},
        ),
        ("cluster.json", ["--operation", "rebalance", "--max-moves", "5"], lambda p: moves(p) <= 5),
        (
            "cluster.json",
            ["--max-bytes", "500GB"],
            lambda p: sum(a["cost"] for a in p["actions"]) <= 500e9,
        ),
        ("cluster.json", ["--max-seconds", "60", "--seed", "3"], lambda p: p["actions"]),
        (
            "cluster.json",
            ["--goals", "cruise-control"],
            lambda p: len(p["goals"]) > 15,
        ),
        ("dead.json", ["--fix-offline-replicas"], lambda p: len(sources(p)) == 1),
        ("dead.json", ["--operation", "fix-offline-replicas"], lambda p: len(sources(p)) == 1),
        ("disks.npz", [], lambda p: any(a["destination_disk"] for a in p["actions"])),
    ],
)  # fmt: skip
def test_operations_and_limits(
    files: Path,
    tmp_path: Path,
    snapshot: str,
    options: list[str],
    holds: Callable[[dict[str, Any]], bool],
) -> None:
    plan = tmp_path / "plan.json"
    result = invoke(["propose", files / snapshot, "-o", plan, *options, *SHORT])
    assert result.exit_code in (0, 1), result.output
    assert holds(snapshot_of(plan))


def test_new_brokers_are_filled(files: Path, tmp_path: Path) -> None:
    cluster = load_snapshot(files / "new.json")
    new = cluster.broker_ids[cluster.broker_state == 1].tolist()
    plan = tmp_path / "plan.json"
    added = ",".join(map(str, new))
    invoke(["propose", files / "new.json", "-o", plan, "--add-brokers", added, *SHORT])
    assert destinations(snapshot_of(plan)) == set(new)


def test_a_goals_file_is_a_profile_of_ones_own(files: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    run("propose", files / "cluster.json", "--goals", files / "goals.yaml", "-o", plan)
    assert [g.goal for g in load_plan(plan).goal_results][2:] == ["ReplicaDistribution"]


def sources(plan: dict[str, Any]) -> set[int]:
    return {a["source"] for a in plan["actions"] if a["kind"] == "move"}


def destinations(plan: dict[str, Any]) -> set[int]:
    return {a["destination"] for a in plan["actions"] if a["kind"] in ("move", "add")}


def kinds(plan: dict[str, Any]) -> set[str]:
    return {a["kind"] for a in plan["actions"]}


def topics(plan: dict[str, Any]) -> set[str]:
    return {a["topic"] for a in plan["actions"]}


def moves(plan: dict[str, Any]) -> int:
    return sum(a["kind"] == "move" for a in plan["actions"])


def test_explain_says_why(files: Path) -> None:
    plan = load_plan(files / "plan.json")
    whole = run("explain", files / "plan.json", "--top", 2).stdout
    assert "Actions that help most" in whole
    assert "× fair share" in whole
    first = plan.actions[0]
    name = f"{first.topic}-{first.partition}"
    one = run("explain", files / "plan.json", "--partition", name).stdout
    assert name in one
    for goal in first.helped:
        assert goal in one
    broker = run("explain", files / "plan.json", "--broker", first.source).stdout
    assert f"Broker {first.source}: " in broker
    assert "leave it" in broker


def test_explain_answers_why_a_partition_is_not_on_a_broker(tmp_path: Path) -> None:
    cluster, plan = tmp_path / "cluster.json", tmp_path / "plan.json"
    save_snapshot(synthetic_snapshot(brokers=6, partitions=60, racks=3, utilization=0.5), cluster)
    asked = ("--max-moves", 2, "--exclude-brokers-for-replicas", 5)
    run("propose", cluster, "-o", plan, *asked, *SHORT, code=1)
    document = load_plan(plan)
    s = load_snapshot(cluster)
    free = set(s.broker_ids.tolist()) - set(s.broker_ids[s.replica_broker[:3]].tolist())
    other = min(free - {5})
    question = ("explain", plan, "--snapshot", cluster, "--why-not", "topic-0-0")
    barred = run(*question, 5).stdout
    assert "5 is excluded from receiving replicas" in " ".join(barred.split())
    limited = " ".join(run(*question, other).stdout.split())
    assert "the limit of 2 moves is spent" in limited
    assert "0 moves left of the plan's limits." in limited
    assert f"to broker {other}, at the end of the plan: " in limited
    assert all(g.goal in limited for g in document.goal_results)
    assert limited.count("Or moving topic-0-0 from broker") == 2
    leads = s.broker_ids[s.replica_broker[s.leader[0]]]
    assert "leads topic-0-0 at the end" in run(*question, leads).stdout


def test_explain_says_that_the_replication_factor_was_asked_for(
    files: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "rf.json"
    run("propose", files / "cluster.json", "--replication-factor", "topic-.*=2", "-o", plan, code=1)
    removed = next(a for a in load_plan(plan).actions if a.kind == "remove" and not a.helped)
    name = f"{removed.topic}-{removed.partition}"
    said = run("explain", plan, "--partition", name, "--broker", removed.source).stdout
    assert "undoes a detour" not in said
    assert "the replication factor asked for" in " ".join(said.split())


def test_explain_says_what_comes_to_a_broker_leaves_it_and_stays(tmp_path: Path) -> None:
    actions = (
        Action(kind="move", topic="a", partition=0, source=1, destination=3, cost=7e9),
        Action(kind="move", topic="b", partition=0, source=3, destination=2, cost=5e9),
        Action(kind="move_disk", topic="c", partition=0, source=3, destination=3, cost=2e9),
    )
    plan = tmp_path / "plan.json"
    plan.write_text(plan_by_hand(*actions, cluster_id="x").model_dump_json())
    assert (
        "Broker 3: 7 GB are copied to it, 5 GB leave it, 2 GB are copied between its disks."
        in run("explain", plan, "--broker", 3).stdout
    )
    assert (
        "Broker 3: 0 B of b-0 are copied to it, 5 GB leave it."
        in run("explain", plan, "--broker", 3, "--partition", "b-0").stdout
    )


def test_verify_tells_a_sound_plan_from_another(files: Path, tmp_path: Path) -> None:
    assert "sound" in run("verify", files / "cluster.json", files / "plan.json").stdout
    document = json.loads((files / "plan.json").read_text())
    document["actions"] = document["actions"][1:]
    (tmp_path / "cut.json").write_text(json.dumps(document))
    cut = run("verify", files / "cluster.json", tmp_path / "cut.json", code=1)
    assert "fault" in cut.stdout


def test_goals_are_listed_and_shown() -> None:
    listed = run("goals", "list").stdout
    assert "RackAwareness" in listed
    assert "cruise-control" in listed
    assert "low_utilization" in run("goals", "show", "UsageDistribution").stdout
    assert "tier 0  hard" in run("goals", "show", "default").stdout


def test_a_goal_that_nothing_could_be_tested_of_does_not_conform() -> None:
    said = run("goals", "check", "UsageDistribution", "--field", "resource=dsk", code=1).stdout
    assert "no resource 'dsk'" in " ".join(said.split())
    assert "does not conform: 0 clusters" in said


def test_goals_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_goals.py").write_text(
        "from goals import Goal, at_most\n"
        "class FewLeaders(Goal):\n"
        "    'No broker leads more than `limit` partitions.'\n"
        "    limit: int = 9\n"
        "    def score(self, state):\n"
        "        return at_most(state.leader_count, self.limit)\n"
        "class Percent(FewLeaders):\n"
        "    'Another.'\n"
        "    def score(self, state):\n"
        "        return 100 * super().score(state)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert "conforms" in run("goals", "check", "ReplicaDistribution").stdout
    run("goals", "check", "ResourceCapacity", "--field", "resource=disk")
    run("goals", "check", "their_goals:FewLeaders", "--field", "limit=7")
    assert "broken" in run("goals", "check", "their_goals:Percent", code=1).stdout
    assert "field limit" in sentence(
        "goals", "check", "their_goals:FewLeaders", "--field", "limit=x"
    )
    assert "cannot be loaded" in sentence("goals", "check", "their_goals:Many")
    assert "subclass" in sentence("goals", "check", "json:dumps")


class Options(BaseModel):
    """Options of every type that a value may be read for."""

    name: str = ""
    pattern: Annotated[str, Field(pattern="[a-z]+")] = ""
    secret: SecretStr = SecretStr("")
    level: Literal["1", "2"] = "1"
    broker: int | str = 0
    rack: str | None = None
    share: float = 0
    on: bool = False
    ids: tuple[int, ...] = ()
    anything: Any = None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("name=12", "12"),
        ("name=1e3", "1e3"),
        ("name=true", "true"),
        ("name=null", "null"),
        ('name="12"', "12"),
        ("name=a: b", "a: b"),
        ("name=[x", "[x"),
        ("name=", ""),
        ("pattern=12", "12"),
        ("secret=12", "12"),
        ("level=2", "2"),
        ("broker=12", 12),
        ("broker=eu-1", "eu-1"),
        ("rack=12", "12"),
        ("rack=null", None),
        ("share=1e3", 1000.0),
        ("on=true", True),
        ("on=12", 12),
        ("ids=[1, 2]", [1, 2]),
        ("anything=12", 12),
        ("nobody=12", 12),
    ],
)
def test_a_value_is_read_as_the_type_of_its_field(given: str, expected: object) -> None:
    name = given.partition("=")[0]
    assert fields_of("--option", [given], Options) == {name: expected}


def test_a_value_that_cannot_be_read_is_a_sentence() -> None:
    with pytest.raises(CommandError, match=r"--option share: '\[x' found, a value expected"):
        fields_of("--option", ["share=[x"], Options)
    with pytest.raises(CommandError, match="--option: 'share' is given twice"):
        fields_of("--option", ["share=1", "share=2"], Options)
    with pytest.raises(CommandError, match=r"--option name: '\[x' found, a value expected"):
        fields_of("--option", ["name=[x"], None)


@pytest.mark.parametrize("name", ["cluster.json", "cluster.npz"])
def test_clusters_are_invented(tmp_path: Path, name: str) -> None:
    said = run(
        "snapshot", "synthetic", "--brokers", 4, "--partitions", 40, "--racks", 2,
        "--replication-factor", 2, "-o", tmp_path / name,
    ).stdout  # fmt: skip
    assert "4 brokers" in said
    found: Snapshot = load_snapshot(tmp_path / name)
    assert (found.n_brokers, found.n_partitions, found.n_replicas) == (4, 40, 80)


def test_the_demo_makes_everything_it_says(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    said = run("demo", "--output", tmp_path / "demo").stdout
    for stage in ("Cluster", "Metrics", "Snapshot", "Plan", "Report"):
        assert any(line.startswith(stage) for line in said.splitlines())
    assert "All goals are met." in said
    names = {
        "snapshot.json",
        "plan.json",
        "reassignment.json",
        "leader-election.json",
        "report.html",
    }
    assert {p.name for p in (tmp_path / "demo").iterdir()} == names
    run("verify", tmp_path / "demo" / "snapshot.json", tmp_path / "demo" / "plan.json")


BAD_INPUT: list[tuple[str, str]] = [
    ("propose", "neither of them given"),
    ("propose {cluster} --bootstrap-server localhost:1", "both of them given"),
    ("propose {cluster} --capacity {dir}/capacity.yaml", "--capacity goes with --bootstrap-server"),
    ("propose {dir}/none.json", "none.json: No such file"),
    ("propose {dir}/cluster.csv", "suffix .json or .npz expected"),
    ("propose {dir}/torn.json", "torn.json: not JSON"),
    ("propose {dir}/list.json", "list.json: a JSON object expected"),
    ("propose {dir}/future.json", "schema_version 99 found"),
    ("propose {dir}/empty.json", "empty.json: "),
    ("propose {dir}", "suffix .json or .npz expected"),
    ("propose {cluster} --goals happiness", "'happiness' found, a file or a profile"),
    ("propose {cluster} --goals {dir}/unknown.yaml", "goal 'Happiness' found"),
    ("propose {cluster} --goals {dir}/field.yaml", "ReplicaCapacity, field limits"),
    ("propose {cluster} --goals {dir}/torn.json", "torn.json: not JSON"),
    ("propose {cluster} --remove-brokers 77", "no broker 77"),
    ("propose {cluster} --remove-brokers two", "no broker 'two' in the snapshot"),
    ("propose {cluster} --remove-brokers 1,,2", "--remove-brokers: '1,,2' found"),
    ("propose {cluster} --destinations x", "no broker 'x' in the snapshot"),
    ("propose {cluster} --remove-brokers 1 --add-brokers 2", "one operation at a time"),
    ("propose {cluster} --operation dance", "'dance' found, one of add_brokers"),
    ("propose {cluster} --operation remove_brokers", "at least one broker expected"),
    ("propose {cluster} --replication-factor 3", "TOPIC=NUMBER"),
    ("propose {cluster} --replication-factor topic-1=9", "replication factor 9"),
    ("propose {cluster} --replication-factor topic-1=0", "replication factor of 'topic-1': 0"),
    ("propose {cluster} --replication-factor nope=2", "'nope' matches none"),
    ("propose {cluster} --exclude-topics (", "topic pattern '('"),
    ("propose {cluster} --max-bytes 10XB", "--max-bytes: '10XB' found"),
    ("propose {cluster} --max-moves=-1", "--max-moves: -1 found"),
    ("propose {cluster} --max-seconds 0", "--max-seconds: 0.0 found"),
    ("propose {cluster} -o {dir}/none/plan.json", "plan.json cannot be written"),
    ("propose --bootstrap-server {dead} --timeout 1", "did not answer"),
    ("propose --bootstrap-server localhost:port", "'localhost:port' found, host:port expected"),
    ("propose --bootstrap-server {dead} --capacity {dir}/capacity.yaml", "'much' found"),
    ("propose --bootstrap-server {dead} --capacity {dir}/none.yaml", "none.yaml: No such file"),
    ("propose --bootstrap-server {dead} --command-config {dir}/none", "none: No such file"),
    ("propose --bootstrap-server {dead} --command-config {dir}/torn.properties", "name=value"),
    ("explain {dir}/none.json", "none.json: No such file"),
    ("explain {dir}/torn.json", "torn.json: not JSON"),
    ("explain {cluster}", "cluster.json: "),
    ("explain {dir}/plan.json --partition orders", "TOPIC-NUMBER"),
    ("explain {dir}/plan.json --why-not t-0", "Option '--why-not' requires 2 arguments"),
    ("explain {dir}/plan.json --why-not t-0 1", "--why-not: needs the snapshot that the plan"),
    ("explain {dir}/plan.json --why-not t 1 --snapshot {cluster}", "--why-not: 't' found, TOP"),
    ("explain {dir}/plan.json --why-not t-0 x --snapshot {cluster}", "--why-not: broker x found"),
    ("explain {dir}/plan.json --why-not t-0 1 --snapshot {cluster}", "partition 't-0' found, one"),
    ("explain {dir}/plan.json --why-not t-0 1 --snapshot {dir}/none.json", "none.json: No such"),
    ("explain {dir}/plan.json --why-not t-0 1 --snapshot {dir}/disks.npz", "another snapshot:"),
    ("explain {dir}/plan.json --snapshot {cluster}", "--snapshot: goes with --why-not PARTITION"),
    ("explain {dir}/plan.json --broker=-1", "--broker: -1 found"),
    ("explain {dir}/plan.json --broker 77", "--broker: 77 found, which the plan does not name; it"),
    ("explain {dir}/plan.json --partition nope-7", "'nope-7' found, which the plan does not name"),
    ("explain {dir}/plan.json --partition topic-1-9999", "which the plan does not name"),
    ("propose {cluster} --destinations 77", "no broker 77"),
    ("propose {cluster} --exclude-brokers-for-replicas 77", "no broker 77"),
    ("propose {cluster} --exclude-brokers-for-leadership 77", "no broker 77"),
    ("propose {cluster} --demote-brokers 77", "no broker 77"),
    ("propose {dir}/plan.json", "plan.json: a plan found, a snapshot expected"),
    ("explain {cluster}", "cluster.json: a snapshot found, a plan expected"),
    ("explain {dir}/disks.npz", "a zip archive (as of a snapshot in npz) found, text expected"),
    ("verify {dir}/plan.json {cluster}", "plan.json: a plan found, a snapshot expected"),
    ("propose {cluster} --goals {cluster}", "cluster.json: a snapshot found, a goals"),
    ("propose {cluster} --goals {dir}/plan.json", "plan.json: a plan found, a goals"),
    ("propose {cluster} --goals {dir}/capacity.yaml", "a capacity file found, a goals"),
    ("propose --bootstrap-server h:1 --capacity {dir}/goals.yaml", "a goals file found"),
    ("run --bootstrap-server h:1 --settings {dir}/plan.json", "a plan found, a settings file"),
    ("run --bootstrap-server h:1 --settings {dir}/capacity.yaml", "a capacity file found, a"),
    ("execute --bootstrap-server h:1 {cluster}", "a snapshot found, a plan expected"),
    ("execute --bootstrap-server h:1 {dir}/moves.json", "kafka-reassign-partitions found"),
    ("propose --bootstrap-server {dir}:99999", "found, host:port expected, with a port from 1 to"),
    *((f"{command} --bootstrap-server {server}", f"'{server.split(',')[-1]}' found, host:port exp")
      for server in ("h:99999", "h:0", ":9092", "h:", "h:9092,g:x")
      for command in ("propose", "snapshot kafka -o {dir}/s.json", "execute {dir}/plan.json",
                      "run", "report-metrics --metrics-topic m --source admin",
                      "history archive a --metrics-topic m")),
    ("propose --bootstrap-server ,", "bootstrap servers: none found, host:port expected"),
    ("verify {dir}/none.json {dir}/plan.json", "none.json: No such file"),
    ("verify {cluster} {dir}/none.json", "none.json: No such file"),
    ("goals show Happiness", "goal 'Happiness' found"),
    ("goals check Happiness", "goal 'Happiness' found"),
    ("goals check ResourceCapacity", "field resource: none found"),
    ("goals check ReplicaCapacity --field limit", "--field: 'limit' found"),
    ("goals check no_such_module:Goal", "cannot be loaded"),
    ("snapshot synthetic --brokers 0 -o {dir}/s.json", "brokers: 0 found"),
    ("snapshot synthetic -o {dir}/s.csv", "suffix .json or .npz expected"),
    ("snapshot synthetic -o {dir}/none/s.json", "s.json cannot be written"),
    ("snapshot kafka --bootstrap-server {dead} -o {dir}/s.json --timeout 1", "did not answer"),
    ("demo -o {cluster}", "cluster.json cannot be written"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "said"), BAD_INPUT, ids=[c for c, _ in BAD_INPUT])
def test_bad_input_is_one_sentence(files: Path, command: str, said: str) -> None:
    if "{dead}" in command:
        pytest.importorskip("kafka")
    words = {"dir": files, "cluster": files / "cluster.json", "dead": "127.0.0.1:1"}
    assert said in sentence(*(word.format(**words) for word in command.split()))


@pytest.mark.parametrize("command", [["dance"], ["propose", "--no-such-option"], ["verify", "one"]])
def test_usage_errors_are_exit_code_2(command: list[str]) -> None:
    run(*command, code=2)


def test_the_console_script_exits_with_the_code(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["counterpoise", "explain", str(files / "torn.json")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("counterpoise: plan file ")


def test_no_client_is_loaded_to_start() -> None:
    loaded = (
        "import sys, balancer.cli; print(sorted({'kafka', 'confluent_kafka'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "value"),
    [("10GB", 1e10), ("1.5 kB", 1500), ("2TiB", 2 * 1024**4), ("7", 7), ("1e9", 1e9), ("5g", 5e9)],
)
def test_byte_counts(text: str, value: float) -> None:
    assert byte_count("--max-bytes", text) == value


@pytest.mark.parametrize("text", ["50Mb", "1 Gb", "2Tib", "50Mb/s"])
def test_what_reads_as_bits_is_refused(text: str) -> None:
    for unit in (byte_count, byte_rate):
        with pytest.raises(CommandError, match=r"--size: .* capital B, expected: Mb reads as bits"):
            unit("--size", text)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "ten", "1ZB", "1,5GB", "10i"])
def test_no_byte_counts(text: str) -> None:
    with pytest.raises(CommandError, match="--max-bytes"):
        byte_count("--max-bytes", text)


def test_client_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a comment\n! another\n\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism : SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '    username="ann" \\\n    password="a\\"b=c";\n'
        "ssl.truststore.type=PEM\n"
        "ssl.truststore.location=/etc/ca.pem\n"
    )
    assert client_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a"b=c',
        "ssl.ca.location": "/etc/ca.pem",
    }
    path.write_text("sasl.jaas.config=Login required;\n")
    with pytest.raises(ClientPropertiesError, match="username"):
        client_properties(path)


@pytest.mark.parametrize("name", ["\ufeff\ufeffretries", "r\\u00e9tries", "r\u00e9tries", "=x"])
def test_what_is_no_name_of_a_property_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"{name}=7\n", encoding="utf-8")
    with pytest.raises(ClientPropertiesError, match="entry 1: name=value expected"):
        client_properties(path)
