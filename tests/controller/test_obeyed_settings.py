"""Every setting that changes while the controller runs has its effect, without a restart."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from controller_cases import UNBOUNDED, Ended, Progressed, Stage, even, heavier, skewed
from waiting import wait_for

from balancer.composition.controller import SettingsFollower
from balancer.composition.notifiers import Notifiers
from balancer.composition.source import KafkaSource
from balancer.controller import (
    ControllerError,
    Redactor,
    Settings,
    SettingsError,
    SettingsFile,
    in_thread,
)
from balancer.controller.settings import DetectorSettings
from balancer.controller.settings_file import differences
from balancer.execution import Executor, Limits
from balancer.planning.plan import Plan
from balancer.problem.budget import Budget
from cluster_model import Snapshot
from cluster_model.live import ClusterModel
from cluster_model.snapshot import Ints
from cluster_model.trust import TrustParameters

TIMEOUT = 30.0


@dataclass(frozen=True)
class Far:
    """How far an execution is."""

    total: int = 40
    completed: int = 11
    failed: int = 1
    cancelled: int = 0
    running: int = 5
    bytes_total: float = 10e9
    bytes_moved: float = 4e9
    seconds: float = 80.0
    seconds_left: float | None = 120.0
    waiting: int = 0
    waits_for: str = ""


class Holds:
    """An executor that ends when it is released, however often it is asked to stop."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.stops = 0
        self.progress: Progressed = None
        self.begun = threading.Event()
        self.recovers = False

    def execute(self, plan: object, *, progress: Progressed = None) -> Ended:
        self.progress = progress
        self.begun.set()
        assert self.release.wait(TIMEOUT)
        return Ended(state="stopped")

    def recover(self, *, progress: Progressed = None) -> Ended | None:
        return self.execute(None, progress=progress) if self.recovers else None

    def left(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> None:
        self.stops += 1


def _set(stage: Stage, **settings: Any) -> None:
    stage.controller.configure(Settings.model_validate({**UNBOUNDED, **settings}))


def _under_way(**settings: Any) -> tuple[Stage, Holds]:
    executor = Holds()
    stage = Stage(skewed(), settings, executor=executor, spawn=in_thread)
    stage.begin()
    assert executor.begun.wait(TIMEOUT)
    return stage, executor


def _execute() -> None:
    stage = Stage(skewed())
    _set(stage, execute=False)
    assert stage.rounds(1) == ["proposed"]
    _set(stage, execute=True, goal_violations={"cooldown": 0})
    assert stage.rounds(1) == ["executed"]
    stage, executor = _under_way()
    _set(stage, execute=False)
    assert executor.stops == 1
    assert stage.controller.step().kind == "stopping"
    assert "because the settings pause executions" in stage.reason
    executor.release.set()
    assert stage.controller.wait(TIMEOUT)
    assert stage.controller.step().kind != "executing"
    assert stage.controller.work is None
    # It goes on at once when it may again, without its cool-down.
    executor.begun.clear()
    executor.release.clear()
    _set(stage)
    stage.now += 61
    stage.begin()
    assert executor.begun.wait(TIMEOUT)
    executor.release.set()


def _interval() -> None:
    stage = Stage(even(), {"interval": 3600})
    thread = threading.Thread(target=stage.controller.run)
    thread.start()
    try:
        wait_for(lambda: stage.controller.metrics.rounds == 1)
        _set(stage, interval=0.01)
        wait_for(lambda: stage.controller.metrics.rounds > 5)
    finally:
        stage.controller.stop()
        thread.join(TIMEOUT)
    assert not thread.is_alive()


def _moved_cooldown() -> None:
    stage = Stage(skewed())
    stage.rounds(1)
    assert stage.controller.state()["partitions_cooling"]
    _set(stage, moved_cooldown=1)
    assert not stage.controller.state()["partitions_cooling"]


def _longest_moved_cooldown() -> None:
    stage = Stage(skewed(), {"longest_moved_cooldown": "1d"})
    stage.rounds(1)
    moved = stage.controller.state()["partitions_cooling"]
    # What has rested for that counts as never moved.
    cooldown = stage.controller._cooldown
    for _ in range(2):
        cooldown.moved(cooldown.cooling(0, 1, 1e9, 4), stage.now)
    stage.now += 7 * 3600
    assert stage.controller.state()["partitions_cooling"] == moved
    _set(stage, longest_moved_cooldown="6h")
    assert not stage.controller.state()["partitions_cooling"]


def _moved_cooldown_growth() -> None:
    stage = Stage(skewed(), {"longest_moved_cooldown": "7d"})
    stage.rounds(1)
    moved = stage.controller.state()["partitions_cooling"]
    cooldown = stage.controller._cooldown
    cooldown.moved(cooldown.cooling(0, 1, 1e9, 4), stage.now)
    stage.now += 12 * 3600
    assert stage.controller.state()["partitions_cooling"] == moved
    _set(stage, moved_cooldown_growth=1)
    assert not stage.controller.state()["partitions_cooling"]


def _changed_share() -> None:
    calm = {"goal_violations": {"cooldown": 0, "trivial": 1}, "settle": "10d"}
    stage = Stage(skewed(), {**calm, "changed_share": 0})
    stage.rounds(1)
    began = stage.controller._cooldown._changed_at
    _set(stage, changed_share=1, **calm)
    stage.model.cluster = _led_elsewhere(stage.model.cluster)
    stage.rounds(1)
    assert stage.controller._cooldown._changed_at == began
    _set(stage, changed_share=0, **calm)
    stage.model.cluster = _led_elsewhere(stage.model.cluster)
    stage.rounds(1)
    assert stage.controller._cooldown._changed_at > began


def _led_elsewhere(snapshot: Snapshot) -> Snapshot:
    """The same with other leaders."""
    return replace(snapshot, leader=(snapshot.leader + 1) % snapshot.replication_factor)


def _settle() -> None:
    calm = {"goal_violations": {"cooldown": 0}}
    stage = Stage(skewed(), {**calm, "settle": "10d"})
    stage.rounds(1)
    stage.model.cluster = heavier(stage.model.cluster, 1, 3.0)
    assert stage.rounds(1) == ["cooling"]
    _set(stage, settle=0, **calm)
    assert stage.rounds(1) == ["executed"]


def _max_moves() -> None:
    stage = Stage(skewed())
    _set(stage, max_moves=3)
    stage.rounds(1)
    assert stage.executor.plans[0].summary.replica_moves == 3


def _max_moves_per_broker() -> None:
    stage = Stage(skewed())
    _set(stage, max_moves_per_broker=2)
    stage.rounds(1)
    assert most_moves_of_one(stage.executor.plans[0], skewed().broker_ids) == 2


def _max_moves_per_rack() -> None:
    stage = Stage(skewed())
    _set(stage, max_moves_per_rack=3)
    stage.rounds(1)
    assert most_moves_of_one(stage.executor.plans[0], skewed().broker_rack) == 3


def most_moves_of_one(plan: Plan, group: Ints) -> int:
    """The most replicas that come to one group of brokers, or leave it."""
    moves = np.array(plan.rows.kind) == "move"
    ends = (plan.rows.source, plan.rows.target)
    return max(int(np.unique(group[end[moves]], return_counts=True)[1].max()) for end in ends)


def test_a_limit_per_broker_of_the_balancer_holds_too() -> None:
    stage = Stage(skewed())
    stage.balancer.budget = Budget(moves_per_broker=2)
    stage.rounds(1)
    assert most_moves_of_one(stage.executor.plans[0], skewed().broker_ids) == 2


def _max_bytes() -> None:
    stage = Stage(skewed())
    limit = skewed().leader_load[:, 3].max() * 3
    _set(stage, max_bytes=limit)
    stage.rounds(1)
    assert 0 < stage.executor.plans[0].summary.cost <= limit


def _max_seconds() -> None:
    stage = Stage(skewed())
    _set(stage, max_seconds=1e-9)
    stage.rounds(1)
    last = stage.controller.decisions[-1]
    assert last.plan is not None
    assert last.plan["exhausted"] == "seconds"


def _max_share_per_cycle() -> None:
    stage = Stage(skewed())
    _set(stage, max_share_per_cycle=0.05)
    stage.rounds(1)
    summary = stage.executor.plans[0].summary
    assert 0 < summary.cost <= 0.05 * summary.cost_total


def _stop_timeout() -> None:
    stage, executor = _under_way()
    _set(stage, execute=False)
    assert stage.controller.step().kind == "stopping"
    stage.now += 250
    assert stage.controller.step().kind == "executing"
    _set(stage, execute=False, stop_timeout=200)
    with pytest.raises(ControllerError, match=r"asked to stop 4\.2 min ago and has not ended"):
        stage.controller.step()
    executor.release.set()


def _silence_timeout() -> None:
    stage, executor = _under_way()
    stage.now += 500
    assert stage.controller.step().kind == "executing"
    assert executor.progress is not None
    executor.progress(Far())
    stage.now += 500
    assert stage.controller.step().kind == "executing"
    _set(stage, silence_timeout=400)
    assert stage.controller.step().kind == "stopping"
    assert "it has reported no progress for" in stage.reason
    executor.release.set()


def _recovery_timeout() -> None:
    executor = Holds()
    executor.recovers = True
    settings = {"dead_brokers": {"heal_after": 0}}
    stage = Stage(even(), settings, executor=executor, spawn=in_thread)
    stage.controller.step()
    assert executor.begun.wait(TIMEOUT)
    stage.model.with_states(dead=[3])
    stage.now += 300
    assert stage.controller.step().kind == "executing"
    _set(stage, recovery_timeout=100, **settings)
    assert stage.controller.step().kind == "stopping"
    assert "broker 3 has been dead" in stage.reason
    executor.release.set()


def _stop_within() -> None:
    stage, executor = _under_way(stop_within=3600)
    _set(stage, stop_within=0.3)
    assert not stage.controller.finish()
    assert stage.controller.decisions[-1].kind == "error"
    assert "it is left as it is" in stage.reason
    executor.release.set()
    assert stage.controller.finish()


def _progress_interval() -> None:
    stage, executor = _under_way()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("counterpoise.controller")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        assert executor.progress is not None
        for seconds in (30, 20, 20, 30, 30):
            stage.now += seconds
            executor.progress(Far())
        assert len(lines) == 2
        _set(stage, progress_interval=10)
        stage.now += 20
        executor.progress(Far())
        assert len(lines) == 3
    finally:
        log.removeHandler(handler)
        executor.release.set()
    said = "12 of 40 tasks, 4 GB of 10 GB, 1 failed, 50 MB/s, about 2 min left"
    assert lines[0] == f"executing (goal violations): {said}"


def _excluded_topics() -> None:
    stage = Stage(skewed())
    _set(stage, excluded_topics=[".*"])
    assert stage.rounds(1) == ["nothing_helps"]


def _decisions() -> None:
    stage = Stage(even())
    stage.rounds(5)
    _set(stage, decisions=2)
    assert len(stage.controller.decisions) == 2


def _approval() -> None:
    stage = Stage(skewed())
    _set(stage, approval={"mode": "manual"})
    assert stage.rounds(1) == ["proposed"]
    assert not stage.executor.plans
    _set(stage)
    assert "executed" in stage.rounds(40)


def _goal_violations() -> None:
    stage = Stage(skewed())
    _set(stage, goal_violations={"enabled": False})
    assert stage.rounds(1) == ["balanced"]
    assert "goal_violations is switched off" in stage.reason


def _dead_brokers() -> None:
    still = {"goal_violations": {"enabled": False}}
    stage = Stage(even(), still)
    stage.model.with_states(dead=[3])
    assert stage.rounds(1) == ["waiting"]
    _set(stage, dead_brokers={"enabled": False}, **still)
    assert set(stage.rounds(40)) == {"balanced"}
    _set(stage, **still)
    # A grace does not run while nobody looks.
    assert stage.rounds(1) == ["waiting"]
    _set(stage, dead_brokers={"heal_after": "1s"}, **still)
    assert stage.rounds(1) == ["executed"]


def _dead_disks() -> None:
    stage = Stage(even())
    _set(stage, dead_disks={"heal_after": "7m"})
    stage.rounds(1)
    assert stage.controller._detectors.settings_of("dead_disks").heal_after == 420  # type: ignore[attr-defined]


def _slow_brokers() -> None:
    stage = Stage(even(), {"slow_brokers": SLOW})
    for _ in range(12):
        _slow_round(stage, 10.0)
    for _ in range(5):
        _slow_round(stage, 9000.0)
    assert stage.controller.state()["demoted"] == [4]
    # Only telling moves no leaders, nor does it keep replicas away.
    _set(stage, slow_brokers={**SLOW, "act": False})
    stage.rounds(1)
    assert stage.controller.state()["demoted"] == []
    _set(stage, slow_brokers={**SLOW, "enabled": False})
    stage.rounds(1)
    assert stage.controller.state()["slow_scores"] == {}


SLOW = {"demote_score": 3, "min_bytes_in": 0}


def _slow_round(stage: Stage, flush: float) -> None:
    others = dict.fromkeys(range(1, 7), 10.0)
    stage.model.measured = {"log_flush_time_ms_p999": {**others, 4: flush}}
    stage.rounds(1)


def _stale_metrics() -> None:
    stage = Stage(skewed())
    stage.model.ages = dict.fromkeys(range(1, 7), 1000.0)
    assert stage.rounds(1) == ["waiting"]
    _set(stage, stale_metrics={"max_age": 2000})
    assert stage.rounds(1) == ["executed"]


def _missing_replicas() -> None:
    stage = Stage(even())
    _set(stage, missing_replicas={"topics": {".*": 4}, "rounds": 1})
    assert stage.rounds(1) == ["executed"]
    assert (stage.model.cluster.replication_factor == 4).all()


def _drained_brokers() -> None:
    stage = Stage(even())
    _set(stage, drained_brokers={"brokers": [2]})
    assert stage.rounds(1) == ["executed"]
    assert not (stage.model.cluster.replica_broker == 1).any()
    _set(stage, drained_brokers={"brokers": [2], "enabled": False}, settle=0, moved_cooldown=0)
    assert set(stage.rounds(2)) == {"executed", "balanced"}
    assert (stage.model.cluster.replica_broker == 1).any()


def _left_interval() -> None:
    stage = Stage(even())
    looks: list[float] = []

    def left() -> tuple[str, ...]:
        looks.append(stage.now)
        return ("a move",)

    stage.executor.left = left  # type: ignore[method-assign]
    stage.executor.found = Ended(state="failed")
    stage.rounds(40)
    first = [b - a for a, b in itertools.pairwise(looks)]
    assert max(first) == 600
    _set(stage, left_interval=120)
    stage.rounds(40)
    assert looks[-1] - looks[-2] == 120


def _added_detectors() -> None:
    stage = Stage(even(), {"detectors": {"dead_brokers_too": {}}})
    # One that is not installed is reported, and stops nothing.
    assert stage.rounds(1) == ["waiting"]
    assert "dead_brokers_too" in stage.reason
    _set(stage, detectors={"dead_brokers_too": {"enabled": False}})
    assert stage.rounds(1) == ["balanced"]


def _in_following() -> None:
    """Notifiers, model and execution: what `counterpoise run` takes over, tested below."""


OBEYED: dict[str, Callable[[], None]] = {
    "execute": _execute,
    "interval": _interval,
    "moved_cooldown": _moved_cooldown,
    "longest_moved_cooldown": _longest_moved_cooldown,
    "moved_cooldown_growth": _moved_cooldown_growth,
    "changed_share": _changed_share,
    "settle": _settle,
    "max_moves": _max_moves,
    "max_moves_per_broker": _max_moves_per_broker,
    "max_moves_per_rack": _max_moves_per_rack,
    "max_bytes": _max_bytes,
    "max_seconds": _max_seconds,
    "max_share_per_cycle": _max_share_per_cycle,
    "stop_timeout": _stop_timeout,
    "silence_timeout": _silence_timeout,
    "recovery_timeout": _recovery_timeout,
    "stop_within": _stop_within,
    "left_interval": _left_interval,
    "progress_interval": _progress_interval,
    "excluded_topics": _excluded_topics,
    "decisions": _decisions,
    "approval": _approval,
    "goal_violations": _goal_violations,
    "dead_brokers": _dead_brokers,
    "dead_disks": _dead_disks,
    "slow_brokers": _slow_brokers,
    "stale_metrics": _stale_metrics,
    "missing_replicas": _missing_replicas,
    "drained_brokers": _drained_brokers,
    "detectors": _added_detectors,
}
FOLLOWED = {"webhooks", "notifiers", "model", "execution"}


DETECTORS = [
    n for n in Settings.model_fields if isinstance(getattr(Settings(), n), DetectorSettings)
]


def test_no_setting_is_left_out() -> None:
    assert OBEYED.keys() | FOLLOWED | {*DETECTORS} == Settings.model_fields.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", OBEYED)
def test_a_setting_that_changes_is_obeyed(name: str) -> None:
    OBEYED[name]()


@pytest.mark.parametrize(
    ("said", "flag", "acts", "note"),
    [
        (None, False, False, None),
        (None, True, True, None),
        (True, True, True, None),
        (True, False, False, "--execute was not given; plans are only proposed"),
        (False, False, False, None),
        (False, True, False, "pauses executions; --execute does not override it"),
    ],
)
def test_the_more_careful_of_file_and_option_holds(
    tmp_path: Path, said: bool | None, flag: bool, acts: bool, note: str | None
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("" if said is None else f"execute: {str(said).lower()}\n")
    file = SettingsFile(path, flag)
    assert file.settings.execute is acts
    assert (file.note is None) == (note is None)
    assert (note or "") in (file.note or "")
    page = (Path(__file__).parents[2] / "docs" / "controller.md").read_text()
    row = {None: "nothing", True: "`execute: true`", False: "`execute: false`"}[said]
    (line,) = (text for text in page.splitlines() if text.startswith(f"| {row} |"))
    without, with_flag = (cell.strip() for cell in line.split("|")[2:4])
    assert (with_flag if flag else without).startswith("acts" if acts else "proposes")


def test_a_file_is_read_when_it_rests_and_what_is_wrong_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("max_moves: 5\n")
    file = SettingsFile(path, True)
    assert not file.changed()
    # Written in two steps: what is there in between is not taken for the end.
    path.write_text("")
    assert not file.changed()
    path.write_text("max_moves: 70\n")
    assert not file.changed()
    assert file.changed()
    assert file.settings.max_moves == 70
    path.write_text("max_moves: many\n")
    assert not file.changed()
    with pytest.raises(SettingsError, match="max_moves: 'many' found"):
        file.changed()
    assert not any(file.changed() for _ in range(5))
    assert file.settings.max_moves == 70
    path.unlink()
    assert not file.changed()
    with pytest.raises(SettingsError, match="No such file"):
        file.changed()
    assert not file.changed()


def _following(tmp_path: Path, text: str) -> tuple[SettingsFollower, Path]:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    file = SettingsFile(path, True)
    stage = Stage(even())
    executor = Executor("localhost:1", journal=tmp_path / "journal")
    opened = Notifiers({})
    opened.take(file.settings)
    return SettingsFollower(file, stage.controller, opened, executor, None), path


def _write(following: SettingsFollower, path: Path, text: str) -> None:
    path.write_text(text)
    following.look()
    following.look()


def test_limits_of_executions_and_webhooks_follow_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    following, path = _following(tmp_path, "max_moves: 3\n")
    _write(
        following,
        path,
        "max_moves: 4\nexecution: {throttle: 5.0e6}\n"
        "webhooks: [{url: 'http://127.0.0.1:9/hooks/sesame'}]\n",
    )
    assert "settings: read again; changed: max_moves, webhooks, execution" in caplog.text
    assert following.executor is not None
    assert following.executor._limits == Limits(throttle=5e6)
    assert following.controller.settings.max_moves == 4
    assert "sesame" not in following.opened.hide("http://127.0.0.1:9/hooks/sesame")
    _write(following, path, "execution: {throttle: 5.0e6}\n")
    # What was a secret stays one.
    assert "sesame" not in following.opened.hide("http://127.0.0.1:9/hooks/sesame")
    following.opened.close()


def test_what_cannot_be_used_leaves_everything_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    following, path = _following(tmp_path, "max_moves: 3\n")
    _write(following, path, "max_moves: 4\nexecution: {throttle: 3}\n")
    following.look()
    assert caplog.text.count("execution.throttle: 3 found") == 1
    assert "the previous settings stay in force" in caplog.text
    assert following.file.settings.max_moves == 3
    assert following.executor is not None
    assert following.executor._limits == Limits()
    # The same again once it is mended.
    _write(following, path, "max_moves: 5\n")
    assert following.controller.settings.max_moves == 5


def test_an_address_that_is_none_leaves_everything_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    following, path = _following(tmp_path, "max_moves: 3\n")
    _write(following, path, "max_moves: 4\nwebhooks: [{url: 'http://[sesame'}]\n")
    assert "the previous settings stay in force" in caplog.text
    assert "sesame" not in caplog.text
    assert following.controller.settings.max_moves is None
    _write(following, path, "max_moves: 5\n")
    assert following.controller.settings.max_moves == 5


def test_what_needs_a_restart_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    following, path = _following(tmp_path, "")
    _write(following, path, "model: {window: 1m}\n")
    assert "settings: model.window: needs a restart; until then the old value holds" in caplog.text


def test_a_broker_that_is_confirmed_needs_no_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    following, path = _following(tmp_path, "")
    following.live = ClusterModel(even())
    _write(following, path, "model: {believed: [7], set_aside_after: 1h}\n")
    assert following.live.trust == TrustParameters(believed=(7,), set_aside_after=3600.0)
    assert "needs a restart" not in caplog.text
    _write(following, path, "model: {believed: [7], refresh: 5}\n")
    assert following.live.trust == TrustParameters(believed=(7,))
    assert "settings: model.refresh: needs a restart" in caplog.text


def test_a_pause_by_file_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    following, path = _following(tmp_path, "")
    _write(following, path, "execute: false\n")
    assert "the settings file pauses executions; --execute does not override it" in caplog.text
    assert following.controller.settings.execute is False
    _write(following, path, "")
    assert following.controller.settings.execute is True


def test_a_paused_controller_gives_up_its_vote_and_takes_it_again() -> None:
    class Vote:
        def __init__(self) -> None:
            self.acting = True

        def resign(self) -> None:
            self.acting = False

        def rejoin(self) -> None:
            self.acting = True

    vote = Vote()
    stage = Stage(skewed(), vote=vote)
    _set(stage, execute=False)
    assert stage.rounds(1) == ["proposed"]
    assert not vote.acting
    _set(stage, goal_violations={"cooldown": 0})
    assert stage.rounds(1) == ["executed"]
    assert vote.acting


def test_a_controller_that_starts_paused_never_has_the_vote() -> None:
    class Vote:
        acting = False
        requested = True

        def resign(self) -> None:
            self.requested = False

        def rejoin(self) -> None:
            self.requested = True

    vote = Vote()
    stage = Stage(skewed(), {"execute": False}, vote=vote)
    assert not vote.requested
    _set(stage, execute=True)
    stage.rounds(1)
    assert vote.requested


def test_every_detector_takes_its_settings_at_once() -> None:
    stage = Stage(even())
    fresh = Settings.model_validate({n: {"cooldown": 7} for n in DETECTORS})
    stage.controller.configure(fresh)
    stage.rounds(1)
    detectors = stage.controller._detectors
    for name in DETECTORS:
        detector = detectors.goals if name == "goal_violations" else detectors._simple[name]
        assert detector.settings is getattr(fresh, name)
    assert differences(Settings(), fresh) == [f"{n}.cooldown" for n in DETECTORS]


def test_a_shorter_history_of_a_slow_broker_is_cut() -> None:
    stage = Stage(even(), {"slow_brokers": {**SLOW, "history": 50}})
    for _ in range(12):
        _slow_round(stage, 10.0)
    _set(stage, slow_brokers={**SLOW, "history": 3, "min_history": 10})
    for _ in range(6):
        _slow_round(stage, 9000.0)
    # Three normal rounds are too few to judge by.
    assert stage.controller.state()["slow_scores"] == {}


def test_secrets_of_new_webhooks_are_hidden_in_decisions() -> None:
    stage = Stage(even())
    reported: list[Any] = []
    stage.controller.notify(
        [lambda event: reported.append(event)], Redactor({}, ["https://chat.example/broker"])
    )
    stage.model.with_states(dead=[3])
    stage.rounds(16)
    assert reported
    assert not stage.events


def test_an_execution_that_hangs_ends_the_controller_so_that_another_can_act() -> None:
    stage, executor = _under_way(silence_timeout=60, stop_timeout=60, interval=0.01)
    stage.now += 61
    stage.controller.supervise()
    assert [d.kind for d in stage.controller.decisions][-1:] == ["stopping"]
    assert executor.stops == 1
    stage.now += 61
    with pytest.raises(ControllerError, match="this controller ends"):
        stage.controller.run()
    assert stage.controller.decisions[-1].kind == "error"
    executor.release.set()
    assert stage.controller.wait(TIMEOUT)


def test_what_was_planned_while_the_controller_ends_is_not_begun() -> None:
    stage = Stage(skewed())
    proposals = stage.controller._proposals
    propose = proposals.propose

    def slow(*arguments: Any) -> Any:
        plan = propose(*arguments)
        stage.controller.stop()
        return plan

    proposals.propose = slow  # type: ignore[method-assign,assignment]
    assert stage.rounds(1) == ["proposed"]
    assert "not started, because the controller is ending" in stage.reason


def test_a_search_in_progress_ends_with_the_controller() -> None:
    stage = Stage(skewed())
    proposals = stage.controller._proposals
    propose = proposals.propose

    def stopped(*arguments: Any) -> Any:
        stage.controller.stop()
        return propose(*arguments)

    proposals.propose = stopped  # type: ignore[method-assign,assignment]
    assert stage.rounds(1) == ["waiting"]
    assert "the search was stopped, because the controller is ending" in stage.reason
    assert not stage.executor.plans
    assert not stage.executor.plans


def test_settings_that_match_nothing_are_reported_once_and_stand_in_each_decision(
    caplog: pytest.LogCaptureFixture,
) -> None:
    typed = {
        "excluded_topics": ["tpoic-*"],
        "missing_replicas": {"topics": {"odrers.*": 3}},
        "drained_brokers": {"brokers": [77]},
        "model": {"believed": [78]},
    }
    sentences = [
        "excluded_topics: 'tpoic-*' matches none of the topics, where a regular expression like "
        "'tpoic-.*' is expected",
        "missing_replicas.topics: 'odrers.*' matches none of the topics",
        "drained_brokers.brokers: no broker 77 is in the cluster",
        "model.believed: no broker 78 is in the cluster",
    ]
    stage = Stage(even(), typed)
    with caplog.at_level("WARNING", "counterpoise.controller"):
        # They keep nothing from being judged.
        assert stage.rounds(3) == ["balanced"] * 3
    assert [r.getMessage() for r in caplog.records] == sentences
    for decision in stage.controller.decisions:
        found = [f for f in decision.findings if f.kind == "unmatched_settings"]
        assert [f.sentence for f in found] == sentences
    known = {
        "excluded_topics": [".*-0|topic.*"],
        "drained_brokers": {"brokers": [77], "enabled": False},
        "model": {"believed": [1]},
    }
    stage.controller.configure(Settings.model_validate({**UNBOUNDED, **known}))
    stage.rounds(1)
    assert "unmatched_settings" not in {f.kind for f in stage.controller.decisions[-1].findings}


def test_capacities_and_attributes_are_read_again_when_they_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    following, _ = _following(tmp_path, "")
    capacity, attributes = tmp_path / "capacity.yaml", tmp_path / "attributes.yaml"
    capacity.write_text("default: {cpu: 100}\n")
    attributes.write_text("brokers: {1: {zone: a}}\n")
    source = KafkaSource("k:1", capacity, {}, None, 1.0, lambda said: None, attributes=attributes)
    following.source = source
    assert (source.stated.of(1), source.described.brokers) == ({"cpu": 100.0}, {1: {"zone": "a"}})

    _write(following, capacity, "default: {cpu: 250}\n")
    assert source.stated.of(1) == {"cpu": 250.0}
    _write(following, attributes, "brokers: {1: {zone: blue}}\n")
    assert source.described.brokers == {1: {"zone": "blue"}}
    assert "capacities: read again" in caplog.text
    assert "attributes: read again" in caplog.text

    following.controller.step()
    for wrong, said in (
        ("default: {cpu: much}\n", "default.cpu: 'much' found"),
        ("default: {cpu: 300, network_in: 1e9}\n", "others need a restart"),
        ("brokers: {7: {cpu: 300}}\n", "broker 1 has no capacity for cpu"),
    ):
        _write(following, capacity, wrong)
        for _ in range(3):
            following.look()
        assert caplog.text.count(said) == 1, caplog.text
        assert source.stated.of(1) == {"cpu": 250.0}
    assert caplog.text.count("the previous capacities stay in force") == 3
    _write(following, attributes, "brokers: [\n")
    assert caplog.text.count("the previous attributes stay in force") == 1
    assert source.described.brokers == {1: {"zone": "blue"}}
