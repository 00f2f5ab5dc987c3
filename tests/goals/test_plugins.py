from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import goals
from goals import GoalError, available, load_goals
from goals.testing import assert_conforms

HERE = Path(__file__).parent
PACKAGE = HERE / "example_package"
GUIDE = Path(goals.__file__).parents[1] / "docs" / "writing-a-goal.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("example")
    # building writes into the source tree, so a copy is built
    source = shutil.copytree(PACKAGE, place / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    target = place / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)],
        check=True,
    )
    sys.path.insert(0, str(target))
    yield target
    sys.path.remove(str(target))
    sys.modules.pop("max_leaders", None)


def test_an_installed_goal_is_found_configured_and_conforms(installed: Path) -> None:
    assert "MaxLeaders" in available()
    goal: Any
    (goal,) = load_goals({"goals": [{"goal": "MaxLeaders", "limit": 5, "hard": True}]})
    assert type(goal).__module__ == "max_leaders"
    assert (goal.limit, goal.hard, goal.tier) == (5, True, 0)
    assert_conforms(goal)


def test_the_guide_shows_the_example_package() -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks[0] == ("python", (PACKAGE / "max_leaders.py").read_text(encoding="utf-8"))
    assert len([line for line in blocks[0][1].splitlines() if line]) <= 10
    (entry,) = [text for kind, text in blocks if kind == "toml"]
    assert entry in (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))
    monkeypatch.syspath_prepend(str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "from_the_guide.py").write_text("\n\n".join(blocks), encoding="utf-8")
    guide = import_module("from_the_guide")
    guide.test_conforms()
    assert_conforms(guide.MaxLeadersBySize())
    # a module from a place that is gone must not be found again
    for name in ("from_the_guide", "max_leaders"):
        monkeypatch.delitem(sys.modules, name)


def _package(place: Path, name: str, points: str, code: str) -> None:
    """What pip leaves behind of a package with one module."""
    module = name.replace("-", "_")
    (place / f"{module}.py").write_text(code)
    info = place / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[counterpoise.goals]\n{points}\n")


@pytest.mark.parametrize(
    ("points", "code", "said"),
    [
        (
            "Odd = odd_goals:Odd",
            "import nothing_like_it",
            "cannot be loaded from odd_goals:Odd (ModuleNotFoundError",
        ),
        ("Odd = odd_goals:Odd", "", "cannot be loaded from odd_goals:Odd (AttributeError"),
        ("Odd = odd_goals:Odd", "Odd = 3", "odd_goals:Odd is 3, a subclass of goals.Goal expected"),
        ("RackAwareness = odd_goals:Odd", "Odd = 3", "a name that is not built in expected"),
    ],
)
def test_a_broken_package_is_named_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: str, code: str, said: str
) -> None:
    _package(tmp_path, "odd-goals", points, code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_goals", raising=False)
    with pytest.raises(GoalError) as error:
        available()
    assert "package odd-goals: " in str(error.value)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_broken_package_does_not_disturb_other_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(tmp_path, "odd-goals", "Odd = odd_goals:Odd", "import nothing_like_it")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_goals("default")
    with pytest.raises(GoalError, match="package odd-goals"):
        load_goals({"goals": ["Odd"]})
