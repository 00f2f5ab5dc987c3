"""Detectors of other packages: findings are acted on within all limits, failures stop nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from command_line import invoke
from controller_cases import Stage, even, skewed
from pydantic import BaseModel
from waiting import LIMIT

from balancer import Operation
from balancer.controller import Finding, Settings, View
from balancer.controller.plugins import DETECTORS
from balancer.controller.settings import SettingsError, as_settings
from cluster_model import save_snapshot
from metrics_reporter.documents import parse_json

NAME = "someones"


class Someones(BaseModel):
    """A detector whose answer each test decides."""

    answer: ClassVar[Callable[[View], Any]] = staticmethod(lambda view: [])

    secret: str = ""

    def look(self, view: View) -> Any:
        return type(self).answer(view)


class _Point:
    """An entry point of a package that is not installed."""

    name, value, dist = NAME, "someones:Someones", None

    def load(self) -> type[Any]:
        return Someones


class _Points(list[_Point]):
    names = (NAME,)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metrics_reporter.plugins.entry_points", lambda group: _Points([_Point()]))


def _answers(monkeypatch: pytest.MonkeyPatch, answer: Callable[[View], Any]) -> None:
    monkeypatch.setattr(Someones, "answer", staticmethod(answer))


def _stage(snapshot: Any = None, **detector: Any) -> Stage:
    """A stage with this detector, which acts at once."""
    settings = {"detectors": {NAME: {"grace": 0, "cooldown": 0, **detector}}}
    calm = {"goal_violations": {"enabled": False}}
    return Stage(even() if snapshot is None else snapshot, {**calm, **settings})


def _finding(**fields: Any) -> Finding:
    given = {"subject": "broker 3", "sentence": "broker 3 is noisy", **fields}
    return Finding(**given)


def _remove(*brokers: int) -> Operation:
    return Operation(kind="remove_brokers", brokers=brokers)


def test_its_finding_is_acted_on_after_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda view: [_finding(operation=_remove(3))])
    stage = _stage(grace=100)
    assert stage.rounds(3) == ["waiting", "waiting", "executed"]
    assert stage.executor.plans[0].operation["kind"] == "remove_brokers"
    assert 3 not in np.unique(stage.model.cluster.broker_ids[stage.model.cluster.replica_broker])
    found = stage.controller.decisions[-2].findings[0]
    assert (found.kind, found.state) == (NAME, "ripe")


def test_an_exclusion_of_the_settings_that_matches_nothing_stops_no_added_detector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _answers(monkeypatch, lambda view: [_finding(operation=_remove(3))])
    stage = _stage()
    settings = stage.controller.settings
    stage.controller.configure(settings.model_copy(update={"excluded_topics": ("tpoic-*",)}))
    assert stage.rounds(1) == ["executed"]


def test_what_is_only_reported_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda view: [_finding()])
    stage = _stage()
    assert stage.rounds(2) == ["reported", "reported"]
    assert stage.reason == "broker 3 is noisy"
    _answers(monkeypatch, lambda view: [_finding(operation=_remove(3))])
    reported = _stage(act=False)
    assert reported.rounds(1) == ["reported"]
    assert not reported.executor.plans


def test_its_plans_are_capped_and_cool_down(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda view: [_finding(operation=_remove(3))])
    stage = _stage(cooldown=3600)
    settings = stage.controller.settings
    stage.controller.configure(settings.model_copy(update={"max_share_per_cycle": 0.02}))
    assert stage.rounds(1) == ["executed"]
    summary = stage.executor.plans[0].summary
    assert 0 < summary.cost <= 0.02 * summary.cost_total
    assert stage.rounds(1) == ["executed"], "the rest follows without the cool-down"


def test_it_leaves_alone_what_moved_not_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda view: [_finding(operation=_remove(3))])
    stage = _stage(skewed())
    assert stage.rounds(1) == ["executed"]
    _answers(monkeypatch, lambda view: [_finding(operation=Operation(), subject="load")])
    moved = {f"{a.topic}-{a.partition}" for a in stage.executor.plans[0].actions}
    assert stage.rounds(1) == ["executed"]
    again = {f"{a.topic}-{a.partition}" for a in stage.executor.plans[1].actions}
    assert again
    assert not moved & again


def test_a_rebalance_must_be_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda view: [_finding(operation=Operation())])
    assert _stage().rounds(1) == ["nothing_helps"]
    costly = {"enabled": False, "min_gain": 10, "min_gain_per_share": 10}
    stage = Stage(
        skewed(rack_violations=0.0),
        {"goal_violations": costly, "detectors": {NAME: {"grace": 0}}},
    )
    assert stage.rounds(1) == ["insufficient_gain"]


@pytest.mark.parametrize("claims", [{"kind": "dead_brokers"}, {"since": -1e9}, {"added": False}])
def test_it_cannot_pass_for_a_built_in_one(
    monkeypatch: pytest.MonkeyPatch, claims: dict[str, Any]
) -> None:
    heal = Operation(kind="fix_offline_replicas")
    _answers(monkeypatch, lambda view: [_finding(operation=heal, **claims)])
    stage = _stage()
    stage.model.with_states(dead=[2])
    # Healing has a grace of its own, which no other detector cuts short.
    assert stage.rounds(3) == ["waiting"] * 3
    assert not stage.executor.plans


def test_unknown_loads_and_doubted_brokers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda view: [_finding(operation=_remove(3))])
    stage = _stage()
    stage.model.ages = {int(b): 0.0 if b != 5 else 1e6 for b in stage.model.cluster.broker_ids}
    assert stage.rounds(1) == ["executed"]
    assert stage.executor.plans[0].actions
    assert all(a.broker_to != 5 for a in stage.executor.plans[0].actions if hasattr(a, "broker_to"))
    stage = _stage()
    stage.model.known = 0.5
    assert stage.rounds(1) == ["waiting"]


def test_nothing_moves_while_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, lambda view: [_finding(subject="night", holds=True)])
    stage = Stage(skewed(), {"detectors": {NAME: {}}})
    assert stage.rounds(1) == ["waiting"]
    _answers(monkeypatch, lambda view: [])
    assert stage.rounds(1) == ["executed"]


def _raises(view: View) -> Any:
    raise RuntimeError("no way to look")


def _ends(view: View) -> Any:
    raise SystemExit(3)


def _fails_late(view: View) -> Iterator[Finding]:
    yield _finding()
    raise KeyError("late")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_raises, "it failed (RuntimeError: no way to look)"),
        (_ends, "it failed (SystemExit: 3)"),
        (_fails_late, "it failed (KeyError: 'late')"),
        (lambda view: None, "it failed (TypeError: 'NoneType' object is not iterable)"),
        (lambda view: ["hot"], "'hot' found, a Finding expected"),
        (lambda view: [_finding(subject="")], "a finding's subject: '' found, text expected"),
        (lambda view: [_finding(state="red")], "'broker 3': state 'red' found, one of ripe"),
        (
            lambda view: [_finding(operation="all")],
            "'broker 3': operation 'all' found, an Operation or None",
        ),
        (lambda view: [_finding()] * 2, "subject 'broker 3' found twice"),
        (
            lambda view: (_finding(subject=str(i)) for i in range(10**9)),
            "more than 1,000 findings found",
        ),
    ],
)
def test_a_failing_one_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[View], Any], said: str
) -> None:
    _answers(monkeypatch, answer)
    stage = Stage(skewed(), {"detectors": {NAME: {}}})
    assert stage.rounds(3) == ["executed", "waiting", "waiting"]
    assert f"{NAME} cannot be judged: {said}" in stage.reason
    assert stage.controller.state()["detectors_failing"] == [stage.reason]
    text = stage.controller.metrics.text()
    assert f'counterpoise_detector_failures_total{{detector="{NAME}"}} 3' in text


def test_a_hanging_one_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    looks: list[float] = []

    def hangs(view: View) -> list[Finding]:
        looks.append(view.now)
        free.wait(LIMIT)
        return []

    _answers(monkeypatch, hangs)
    stage = Stage(even(), {"detectors": {NAME: {"timeout": 0.05}}})
    assert stage.rounds(3) == ["waiting"] * 3
    assert len(looks) == 1
    assert stage.reason == "someones cannot be judged: the look it began 2 min ago has not ended"
    free.set()
    detector = stage.controller._detectors._added[NAME]
    assert detector._looking is not None
    detector._looking.join(30)
    assert stage.rounds(1) == ["balanced"]


def test_data_that_nobody_can_read_becomes_text(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"ripe": 3, "goals": 5, "broker": np.arange(3), "changed": np.arange(2)}
    _answers(monkeypatch, lambda view: [_finding(data=data, operation=_remove(3))])
    stage = _stage()
    assert stage.rounds(1) == ["executed"]
    assert stage.controller.decisions[-1].findings == ()
    assert stage.controller.metrics.violated_goals is None


def test_a_number_that_json_cannot_hold_is_null(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = {"skew": float("nan"), "by_broker": {1: np.float64("inf")}, "most": (2.0, -np.inf)}
    _answers(monkeypatch, lambda view: [_finding(data=data)])
    save_snapshot(even(), tmp_path / "cluster.json")
    (tmp_path / "settings.yaml").write_text(f"detectors: {{{NAME}: {{}}}}")
    words = ["detectors", "try", "cluster.json", "--settings", "settings.yaml", "--json"]
    monkeypatch.chdir(tmp_path)
    found = parse_json(invoke(words).stdout)["findings"]
    data_of = {f["kind"]: f["data"] for f in found}
    assert data_of[NAME] == {"skew": None, "by_broker": {"1": None}, "most": [2.0, None]}


@pytest.mark.parametrize(
    ("detectors", "said"),
    [
        ({"nobodys": {}}, "detectors: detector 'nobodys' found, one of dead_brokers,"),
        ({"dead_brokers": {}}, "dead_brokers found, which is built in (its settings are dead_"),
        (
            {NAME: {"options": {"secret": ["sesame"]}}},
            "detectors: detector someones, option secret: input should be a valid string",
        ),
        (
            {NAME: {"options": {"sesame": 3}}},
            "detectors: detector someones: an unknown option found, one of secret expected",
        ),
    ],
)
def test_wrong_settings_are_one_sentence_without_secrets(
    detectors: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        as_settings({"detectors": detectors})
    assert said in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_every_detector_with_settings_is_listed() -> None:
    stated = {n for n in Settings.model_fields if hasattr(getattr(Settings(), n), "cooldown")}
    assert stated <= DETECTORS.built_in.keys()
