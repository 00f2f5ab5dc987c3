"""Scenario files, and ``tasks simulate``: what is read, what is printed, what is drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from command_line import invoke

from balancer.assignment import TaskAssignor
from balancer.assignment.document import StateDocument
from balancer.assignment.errors import TaskAssignmentError
from balancer.assignment.scenario import ChangeRecord, ScenarioDocument, load_scenario
from balancer.assignment.simulation import simulate
from balancer.report.tasks import simulation_svg

SCENARIO: dict[str, Any] = {
    "instances": [{"id": "a"}, {"id": "b"}, {"id": "c <new>", "restore_rate": 500}],
    "tasks": [
        {"id": "0_1", "end_offset": 40_000, "write_rate": 10},
        {"id": "0_0", "end_offset": 100_000},
        {"id": "1_0", "stateful": False},
    ],
    "restore_rate": 1_000,
    "session_timeout": "30s",
    "changes": [{"at": "10m", "join": "c <new>"}, {"at": "1h", "crash": ["a"]}],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path, SCENARIO)


def written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_a_scenario_is_read(path: Path) -> None:
    found = load_scenario(path)
    assert found.write_rate.tolist() == [0.0, 10.0, 0.0]
    assert found.restore_rate.tolist() == [1_000.0, 1_000.0, 500.0]
    assert found.session_timeout == 30.0
    assert [(c.at, c.kind, c.instance) for c in found.changes] == [
        (600.0, "join", 2),
        (3600.0, "crash", 0),
    ]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"changes": [{"at": 1, "join": "b"}, {"at": 2, "join": "b"}]}, "join of 'b' found, which is"),
    ({"changes": [{"at": 1, "leave": "b"}, {"at": 2, "crash": "b"}]}, "no member any more"),
    ({"changes": [{"at": 1, "leave": "z"}]}, "UNKNOWN_PROCESS_ID: .*leave of 'z' found, an inst"),
    ({"changes": [{"at": 2, "leave": "a"}, {"at": 1, "leave": "b"}]}, "the order of time expected"),
    ({"changes": [{"at": -1, "leave": "a"}]}, "changes.0.at: -1 found"),
    ({"changes": [{"at": "soon", "leave": "a"}]}, "changes.0.at: 'soon' found, seconds, or text"),
    ({"changes": [{"at": 1}]}, "one of join, leave and crash expected"),
    ({"changes": [{"at": 1, "leave": "a", "crash": "b"}]}, "one of join, leave and crash"),
    ({"changes": [{"at": 1, "leave": "a", "wiped": True}]}, "wiped without join"),
    ({"restore_rate": 0}, "restore_rate: 0 found"),
    ({"horizon": "long"}, "horizon: 'long' found"),
    ({"speed": 1}, "speed: 1 found, no field of this name"),
    (
        {"tasks": [{"id": "0_0", "stateful": False, "write_rate": 1}]},
        "task 0_0: write_rate 1 found, 0 expected",
    ),
    (
        {"instances": [{"id": "a", "lags": {"0_0": "unknown"}}], "changes": []},
        "lag 'unknown' found",
    ),
    (
        {
            "instances": [{"id": "a"}, {"id": "b", "active": ["0_0"]}],
            "changes": [{"at": 1, "join": "b"}],
        },
        "instance 'b': tasks found, though it is no member at the start",
    ),
]


@pytest.mark.parametrize(("changed", "sentence"), BAD, ids=[s for _, s in BAD])
def test_a_scenario_that_cannot_be_used_is_refused_in_one_sentence(
    changed: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {**SCENARIO, **changed})
    with pytest.raises(TaskAssignmentError, match=sentence) as raised:
        load_scenario(path)
    assert "\n" not in str(raised.value)
    assert f"scenario file {path}" in str(raised.value)
    result = invoke(["tasks", "simulate", path])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_list_is_no_scenario(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text("[]")
    with pytest.raises(TaskAssignmentError, match="list found, a mapping"):
        load_scenario(path)


def test_the_command_prints_causes_rebalances_and_the_worst_tasks(
    path: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "scenario.svg"
    words = ["tasks", "simulate", str(path), "--worst", "1", "--picture", str(picture)]
    result = invoke(words)
    assert result.exit_code == 0, result.output
    assert "2 changes of the membership" in result.output
    assert "crash not noticed yet: 30 task-seconds" in result.output
    assert re.search(r"0:10:00 +membership", result.output)
    assert re.search(r"1:00:30 +membership", result.output)
    # The one that has 100,000 records to restore.
    assert len(re.findall(r"(?m)^\d_\d ", result.output)) == 1
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_a_picture_shows_every_instance_and_escapes_its_name(path: Path) -> None:
    scenario = load_scenario(path)
    text = simulation_svg(simulate(scenario, TaskAssignor(scenario.configs)))
    ElementTree.fromstring(text)
    assert "c &lt;new&gt;" in text
    assert text == simulation_svg(simulate(scenario, TaskAssignor(scenario.configs)))
    # c is absent at first, a in the end.
    assert text.count('<rect class="gone"') == 3


def test_a_picture_of_nothing_is_drawn(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path, {"instances": [{"id": "a"}], "tasks": []}))
    ElementTree.fromstring(simulation_svg(simulate(scenario, TaskAssignor())))


def rows(header: str) -> list[list[str]]:
    """The rows of the guide's table whose first column has this header."""
    text = (Path(__file__).parents[2] / "docs" / "stateful-tasks.md").read_text(encoding="utf-8")
    table = text[text.index(f"| {header} |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]


def test_the_guide_lists_the_fields_of_scenarios_and_changes() -> None:
    own = [f for f in ScenarioDocument.model_fields if f not in StateDocument.model_fields]
    assert [name.strip("`") for name, *_ in rows("field of a scenario")] == own
    named = [n for row in rows("field of a change") for n in re.findall(r"`(\w+)`", row[0])]
    assert named == list(ChangeRecord.model_fields)


def test_the_defaults_are_those_of_the_guide() -> None:
    for name, default, _ in rows("field of a scenario"):
        given = ScenarioDocument.model_fields[name.strip("`")].default
        if default.endswith(("s", "min", "day")):
            unit = {"s": 1, "min": 60, "day": 86_400}[default.split()[1]]
            assert given == float(default.split()[0]) * unit
        else:
            assert default == {"None": "–", "()": "[]"}.get(
                str(given), f"{given:g}" if given else ""
            )
