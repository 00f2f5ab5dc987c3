"""Every example of the README and the guides runs, and every table is true.

The conventions of a page: its blocks are run in order in one directory. A block after a
paragraph that ends with a file name and a colon is that file. A command of ours is run and
exits with 0, or with N where a comment says ``exits with N``; one that needs a running
Kafka or stream job is only parsed. A block of text after one that printed something is what it
printed, or parts of it, unless it is a command.
"""

from __future__ import annotations

import io
import re
import runpy
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from command_line import invoke
from pydantic import BaseModel
from spark_directory import read_from
from typer.main import get_command

from balancer import Action, PlanDocument
from balancer.cli.app import app
from balancer.cli.commands import LazyCommand
from balancer.planning import document
from balancer.problem.verdict import Verdict
from benchmarks.__main__ import app as benchmarks_app
from benchmarks.registry import find
from cluster_model import DEFAULT_RESOURCES
from cluster_model.capacities import load_capacities
from goals import Goal, available, load_goals, profiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# tests/kafka runs every command of these
_ON_A_REAL_CLUSTER = ("first-rebalance.md",)
_WITH_SPARK = ("history.md",)
_OF_STREAM_JOBS = (["snapshot", "flink"], ["snapshot", "kafka-streams"])
_NOT_OURS = (
    "pip", "curl", "kafka-acls", "kafka-reassign-partitions", "kafka-leader-election",
    "docker", "helm", "kubectl", "install", "python3", "systemctl",
)  # fmt: skip

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


class Block(NamedTuple):
    """A fenced block: the file it is called in the text before it, its language, its text."""

    name: str | None
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"(?ms)^```(\w*)\n(.*?)^```$", text):
        before = re.search(r"`([\w.-]+\.\w+)`[^`]*:\s*$", text[: found.start()])
        yield Block(before[1] if before else None, found[1], found[2])


def is_command(block: Block) -> bool:
    return block.text.startswith("counterpoise ")


def commands(block: Block) -> Iterator[tuple[list[str], int]]:
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            code = re.search(r"# .*\bexits with (\d)", line)
            yield words, int(code[1]) if code else 0


@cache
def command_line(app: Any) -> dict[str, Any]:
    """The commands of a group, those of its groups by both names, all loaded."""
    found: dict[str, Any] = {}
    for name, command in app.commands.items():
        group = getattr(command, "commands", None)
        found |= {f"{name} {n}": c for n, c in group.items()} if group else {name: command}
    return {n: c.load() if isinstance(c, LazyCommand) else c for n, c in found.items()}


def parse(app: Any, words: list[str]) -> dict[str, Any]:
    """Options and arguments of a command line that is not run."""
    known = command_line(app)
    long = 2 if " ".join(words[:2]) in known else 1
    name = " ".join(words[:long])
    params: dict[str, Any] = known[name].make_context(name, words[long:]).params
    return params


def is_parsed(words: list[str]) -> bool:
    """Whether a command of ours needs what runs elsewhere, so that it is only parsed."""
    return (
        "--bootstrap-server" in words
        or words[:2] in _OF_STREAM_JOBS
        or words[0] in ("server", "proposals")
    )


def run_counterpoise(words: list[str], code: int) -> str:
    if is_parsed(words):
        parse(app, words)
        return ""
    for file in Path.cwd().glob("*.py"):  # another page's module of the same name
        sys.modules.pop(file.stem, None)
    result = invoke(words)
    assert result.exit_code == code, f"{shlex.join(words)}\n{result.output}"
    assert "Traceback" not in result.output
    return str(result.output)


@contextmanager
def taking_part(spark: SparkSession, directory: Path) -> Iterator[None]:
    """Let a page use the session of all tests: from its own directory, and without an end."""
    before = read_from(spark, directory)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(spark), "stop", lambda session: None)
            yield
    finally:
        read_from(spark, before)


def run_make(words: list[str], _: int) -> str:
    targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert set(words) <= set(targets)
    return ""


def run_python(words: list[str], _: int) -> str:
    assert words[:2] == ["-m", "benchmarks"], words
    params = parse(get_command(benchmarks_app), words[2:])
    if "name" in params:
        find(params["name"], params["size"] or ())
    return ""


RUNNERS = {"counterpoise": run_counterpoise, "make": run_make, "python": run_python}


def run_example(text: str) -> str:
    """Run the example in this process; a test function of it is called, as pytest would."""
    printed = io.StringIO()
    Path("example.py").write_text(text, encoding="utf-8")
    before = {*sys.modules}
    sys.path.insert(0, str(Path.cwd()))
    try:
        with warnings.catch_warnings(), redirect_stdout(printed):
            warnings.simplefilter("error")
            for name, value in runpy.run_path("example.py").items():
                if name.startswith("test_"):
                    value()
    finally:
        sys.path.pop(0)
        for file in Path.cwd().glob("*.py"):
            if file.stem not in before:
                sys.modules.pop(file.stem, None)
    Path("example.py").unlink()
    return printed.getvalue()


def not_printed(text: str, printed: str) -> list[str]:
    """Lines of a page that were not printed in this order, however long lines and bars are."""

    def plain(part: str) -> str:
        return " ".join(re.sub("[█▉▊▋▌▍▎▏░]+", "█", part).split())

    left, missing = plain(printed), []
    for line in filter(None, map(plain, text.splitlines())):
        _, found, after = left.partition(line)
        if found:
            left = after
        elif line.strip("…. "):
            missing.append(line)
    return missing


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.spark if page.name in _WITH_SPARK else ())
        for page in PAGES
        if page.name not in _ON_A_REAL_CLUSTER
    ],
    ids=lambda page: page.name,
)
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # Spark looks for files of all tests where it is started
    spark = request.getfixturevalue("spark") if page.name in _WITH_SPARK else None
    monkeypatch.chdir(tmp_path)
    with ExitStack() as ends:
        if spark is not None:
            ends.enter_context(taking_part(spark, tmp_path))
        printed = ""
        for block in blocks(page):
            if block.name:
                Path(block.name).write_text(block.text, encoding="utf-8")
            if block.language == "python":
                printed = run_example(block.text)
            elif block.language in ("sh", "console"):
                printed = ""
                for words, code in commands(block):
                    assert words[0] in RUNNERS or words[0] in _NOT_OURS, words
                    if words[0] in RUNNERS:
                        printed += RUNNERS[words[0]](words[1:], code)
            elif block.language in ("", "text") and printed and not is_command(block):
                assert not_printed(block.text, printed) == []
                printed = ""


@pages
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = page.parent / file if file else page
        assert found.is_file(), target
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", found.read_text(encoding="utf-8"))
            # As GitHub makes them: without punctuation.
            plain = (re.sub(r"[^\w -]", "", heading.lower()) for heading in headings)
            assert anchor in {heading.replace(" ", "-") for heading in plain}, target


def test_embedding_takes_five_lines() -> None:
    first = next(block for block in blocks(README) if block.language == "python")
    assert len([line for line in first.text.splitlines() if line]) <= 5
    assert "propose(" in first.text


def test_a_cluster_that_is_not_kafka_takes_forty_lines() -> None:
    page = ROOT / "docs" / "other-clusters.md"
    first = next(block for block in blocks(page) if block.language == "python")
    assert len([line for line in first.text.splitlines() if line]) <= 40


def test_a_goal_takes_ten_lines() -> None:
    goal = next(block for block in blocks(README) if block.name == "max_leaders.py")
    assert len([line for line in goal.text.splitlines() if line]) <= 10


def test_the_readme_or_a_page_it_links_to_names_every_command_and_profile() -> None:
    text = README.read_text(encoding="utf-8")
    linked = sorted(set(re.findall(r"\]\((docs/[\w-]+\.md)", text)))
    text += "".join((ROOT / link).read_text(encoding="utf-8") for link in linked)
    assert [name for name in command_line(app) if f"counterpoise {name}" not in text] == []
    assert "docs/goals.md" in linked
    assert {row[0] for row in rows("goals.md", "## Profiles")} == {f"`{n}`" for n in profiles()}


@cache
def words_of(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", command_line(app))
def test_every_option_is_documented_where_its_command_is(name: str) -> None:
    about = " ".join(text for text in map(words_of, PAGES) if f"counterpoise {name}" in text)
    options = [p for p in command_line(app)[name].params if p.param_type_name == "option"]
    for spellings in (s for p in options for s in (p.opts, p.secondary_opts) if s):
        assert any(re.search(rf"(?<![\w-]){s}(?![\w-])", about) for s in spellings), spellings


def test_the_guide_names_every_operation_and_limit() -> None:
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    propose = command_line(app)["propose"]
    said = set(text.replace("`", " ").split())
    unnamed = {p.name for p in propose.params if said.isdisjoint(p.opts)}
    assert unnamed <= {"kind", "seed", "timeout"}


def test_the_guide_states_capacities_as_they_are_read(tmp_path: Path) -> None:
    (stated,) = (b for b in blocks(ROOT / "docs" / "operating.md") if b.name == "capacities.yaml")
    (tmp_path / "capacities.yaml").write_text(stated.text, encoding="utf-8")
    capacities = load_capacities(tmp_path / "capacities.yaml")
    assert set(capacities.of(0)) < set(DEFAULT_RESOURCES)
    assert capacities.of(0) != capacities.of(7)


# --- tables


def rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its first two lines."""
    text = "\n" + (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = re.search(r"(?m)(?:^\|.*\n)+", text[text.index(f"\n{heading}\n") :])
    assert table is not None
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pages
def test_every_row_of_a_table_has_as_many_cells_as_its_header(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    for table in re.findall(r"(?m)(?:^[ ]*\|.*\n?)+", text):
        lines = table.splitlines()
        # Pipes that are escaped or in backticks are text.
        plain = (re.sub(r"`[^`]*`|\\\|", "", line).strip() for line in lines)
        cells = [line.removeprefix("|").removesuffix("|").count("|") + 1 for line in plain]
        wrong = [line for line, n in zip(lines, cells, strict=True) if n != cells[0]]
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "record",
    [
        PlanDocument,
        document.Identity,
        document.Summary,
        document.ColumnResult,
        document.Spread,
        document.GoalResult,
        document.RelaxedLimit,
        document.Unmet,
        document.Sizing,
        Verdict,
        Action,
    ],
)
def test_the_plan_is_reported_field_by_field(record: type[BaseModel]) -> None:
    reported = [row[0].strip("`") for row in rows("plan.md", f"## {record.__name__}")]
    assert reported == list(record.model_fields)


def test_the_example_of_an_action_is_one() -> None:
    (example,) = (b for b in blocks(ROOT / "docs" / "plan.md") if b.language == "json")
    action = Action.model_validate_json(example.text)
    assert set(action.model_dump()) == set(action.model_fields_set)


def as_reported(goal: Goal) -> str:
    """Fields of a goal's own and their defaults, as the table has them."""
    reported = []
    for name in type(goal).model_fields:
        value = getattr(goal, name)
        if type(goal).model_fields[name].is_required():
            reported.append(f"`{name}` required")
        elif isinstance(value, bool):
            reported.append(f"`{name}` {'yes' if value else 'no'}")
        elif isinstance(value, int | float):
            reported.append(f"`{name}` {value:,.10g}")
        elif value and isinstance(value, str):
            reported.append(f"`{name}` `{value}`")
        else:
            assert not value
            reported.append(f"`{name}` none")
    common = [f"`{name}`" for name in Goal.model_fields]
    return ", ".join(entry for entry in reported if entry.split()[0] not in common)


def test_the_table_of_goals_is_that_of_the_registry() -> None:
    table = rows("goals.md", "# Goals")
    built_in = {n: g for n, g in available().items() if g.__module__.startswith("goals.")}
    assert [row[0] for row in table] == [f"`{name}`" for name in built_in]
    for (_, scope, kind, reads, fields, source), (name, goal) in zip(
        table, built_in.items(), strict=True
    ):
        given = {
            "resource": "disk",
            "attribute": "zone",
            "by": "tenant",
            "above": 0.5,
            "other": "cpu",
            "ratio": 1,
        }
        fields_of = goal.model_fields
        required = {f: given[f] for f in given if f in fields_of and fields_of[f].is_required()}
        (one,) = load_goals({"goals": [{"goal": name, **required}]})
        assert scope == goal.scope.name.replace("_", " in "), name
        assert kind == ("hard" if one.hard else "soft"), name
        assert re.sub(r" \(.*?\)", "", fields) == as_reported(one), name
        assert all(word in reads for word in goal.requires), name
        assert source, name
