"""``counterpoise run``: what is said of wrong options, without a Kafka."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from balancer.cli import app
from balancer.cli.run import _limits
from balancer.controller import Settings
from balancer.execution import Limits


def _run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["run", "--timeout", "1", *arguments])
    return done.exit_code, done.stderr.strip()


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_wrong_options_are_told_in_one_sentence(tmp_path: Path, nobody: str) -> None:
    wrong = tmp_path / "settings.yaml"
    wrong.write_text("dead_brokers: {heal_after: never}\n")
    limits = tmp_path / "limits.yaml"
    limits.write_text("execution: {throttle: 3}\n")
    for arguments, said in (
        (["--settings", str(wrong)], "dead_brokers.heal_after: 'never' found"),
        (["--settings", str(tmp_path / "none.yaml")], "No such file"),
        (["--goals", "nonsense"], "nonsense"),
        (["--listen", "9464"], "HOST:PORT expected"),
        (["--capacity", str(tmp_path / "none.yaml")], "none.yaml"),
        (["--execute", "--settings", str(limits)], "limit throttle: 3 found"),
        ([], "Kafka at"),
        (["--metrics-topic", "metrics"], "Kafka at"),
        (["--execute", "--journal", str(tmp_path / "journal")], "Kafka at"),
    ):
        code, told = _run("--bootstrap-server", nobody, *arguments)
        assert code == 2, told
        assert said in told
        assert told.startswith("counterpoise: ")
        assert "\n" not in told


def test_what_a_window_tells_counts_once_unless_set_otherwise() -> None:
    assert _limits(Settings()) == Limits()
    one = Settings.model_validate({"model": {"window": "1m"}})
    assert _limits(one).slow_interval == 60
    other = one.model_copy(update={"execution": {"slow_interval": 5, "produce_local_ms": None}})
    assert (_limits(other).slow_interval, _limits(other).produce_local_ms) == (5, None)


def test_the_limits_of_the_guide_are_the_limits() -> None:
    page = (Path(__file__).parents[2] / "docs" / "controller.md").read_text()
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \| (\d+) \|", page))
    rows |= dict(re.findall(r"`(\w+)`(?: seconds)? \((\d+)\)", page))
    assert {"produce_local_ms", "slow_brokers", "adaptive_interval"} <= rows.keys()
    assert {name: float(value) for name, value in rows.items()} == {
        name: getattr(Limits(), name) for name in rows
    }
    assert Limits().resume_within == 3600
