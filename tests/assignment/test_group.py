"""The group's messages, its leader, and a member's state on disk; tests/kafka runs real groups."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balancer.assignment import (
    RUNNING,
    ApplicationState,
    AssignmentConfigs,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)
from balancer.assignment.document import StateDocument, build_state
from balancer.assignment.group.changelog import INPUT_KEY, Replay, input_value, state_key
from balancer.assignment.group.configs import GroupConfigs
from balancer.assignment.group.directory import StateDirectory
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.leader import Joined, Leader, MemberAssignment
from balancer.assignment.group.messages import MemberReport, MemberTasks
from balancer.assignment.group.processing import Record, State
from balancer.assignment.group.store import StateStore
from balancer.assignment.group.word_count import WordCount


def joined(member: str, owned: Sequence[int] = (), generation: int = 1, **report: Any) -> Joined:
    """A member with a process of its own name."""
    if owned:
        report.setdefault("running", tuple(f"0_{p}" for p in owned))
    data = MemberReport(process=f"process-{member}", **report).encode()
    return Joined(member, data, frozenset(owned), generation)


def assign(
    members: Sequence[Joined], ends: Mapping[int, int] | Sequence[int], **configs: Any
) -> dict[str, MemberAssignment]:
    return Leader(TaskAssignor(AssignmentConfigs(**configs)).assign).assign("a", members, ends)


def seen(members: Sequence[Joined], ends: Mapping[int, int] | Sequence[int]) -> ApplicationState:
    """The state that the assignor reads."""
    states: list[ApplicationState] = []

    def remember(state: ApplicationState) -> TaskAssignment:
        states.append(state)
        return TaskAssignor().assign(state)

    Leader(remember).assign("a", members, ends)
    return states[0]


def test_one_member_gets_every_partition() -> None:
    found = assign([joined("a")], dict.fromkeys(range(4), 0))
    assert found["a"].partitions == (0, 1, 2, 3)
    assert found["a"].tasks == MemberTasks()


def test_a_new_member_first_restores_and_its_leader_asks_again() -> None:
    ends = dict.fromkeys(range(4), 50_000)
    found = assign([joined("a", range(4)), joined("b")], ends)
    assert found["a"].partitions == (0, 1, 2, 3)
    assert found["b"].partitions == ()
    assert len(found["b"].tasks.warmup) == 2
    assert found["a"].tasks.probe_after_ms == 600_000
    assert found["b"].tasks.probe_after_ms is None


def test_a_partition_is_withheld_until_its_owner_has_given_it_up() -> None:
    ends = dict.fromkeys(range(4), 50_000)
    current = {f"0_{p}": 49_990 for p in range(4)}
    owner = joined("a", range(4), offsets=current)
    found = assign([owner, joined("b", offsets=current, standby=tuple(current))], ends)
    given_up = set(range(4)) - set(found["a"].partitions)
    assert len(given_up) == 2
    assert found["b"].partitions == ()
    assert set(found["b"].tasks.standby) == {f"0_{p}" for p in given_up}

    kept = found["a"].partitions
    follow_up = [joined("a", kept, 2, offsets=current), joined("b", offsets=current)]
    found = assign(follow_up, ends)
    assert found["a"].partitions == kept
    assert set(found["b"].partitions) == given_up


def test_a_task_that_is_about_to_run_is_not_moved_before_it_has() -> None:
    ends = dict.fromkeys(range(2), 50_000)
    current = {f"0_{p}": 49_990 for p in range(2)}
    # Both tasks have just been given to one member, and a rebalance follows at once.
    starting = joined("a", [0, 1], offsets=current, running=())
    other = joined("b", offsets=current, standby=("0_0", "0_1"))
    found = assign([starting, other], ends)
    assert (found["a"].partitions, found["b"].partitions) == ((0, 1), ())
    assert found["a"].tasks == MemberTasks(probe_after_ms=600_000)
    assert found["b"].tasks.standby == ("0_1",)

    running = joined("a", [0, 1], offsets=current)
    assert assign([running, other], ends)["a"].partitions == (0,)


def test_a_task_whose_owner_has_far_to_go_moves_to_who_has_its_state() -> None:
    ends = {0: 50_000}
    far = joined("a", [0], offsets={"0_0": 10}, running=())
    found = assign([far, joined("b", offsets={"0_0": 50_000})], ends)
    assert found["a"].partitions == ()
    assert found["b"].tasks.standby == ("0_0",)


def test_of_two_claims_that_of_the_later_generation_counts() -> None:
    ends = dict.fromkeys(range(2), 50_000)
    late, early = joined("a", [0, 1], 7), joined("b", [0, 1], 6, offsets={"0_0": 50_000})
    state = seen([early, late], ends)
    assert [state.instances[i] for i in state.previous_instance] == ["process-a"] * 2
    a, b = (state.instances.index(f"process-{m}") for m in "ab")
    assert state.lag_of(np.array([0, 0]), np.array([a, b])).tolist() == [RUNNING, 0]


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"version": 9, "process": "x"}',
        b'{"process": ""}',
        b'{"process": "x", "capacity": 0}',
        b'{"process": "x", "offsets": {"0_0": -1}}',
        b'{"process": "x", "offsets": {"zero": 1}}',
        b'{"process": "x", "active": [3]}',
        b'{"process": "x", "offsets": {"0_0": 5, "0_00": 7}}',
        b'{"process": "x", "standby": ["0_1", "0_01"]}',
        '{"process": "x", "offsets": {"0_0": 5, "\u0660_\u0660": 7}}'.encode(),
        b'{"process": "process-a"}',
        b'{"process": "' + b"x" * (1 << 22) + b'"}',
    ],
)
def test_a_malformed_report_costs_only_its_member_its_tasks(data: bytes | None) -> None:
    leader = Leader(TaskAssignor().assign)
    ends = dict.fromkeys(range(4), 100)
    # It owns a partition, which is withheld until it has given it up.
    found = leader.assign("a", [joined("a", [0, 1]), Joined("z", data, frozenset([2]), 1)], ends)
    assert leader.malformed == 1
    assert found["z"] == MemberAssignment()
    assert found["a"].partitions == (0, 1, 3)
    assert found["a"].tasks.standby == ("0_2",)


def test_a_report_that_makes_no_state_costs_only_its_member_its_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(document: StateDocument) -> ApplicationState:
        if any(i.tags.get("colour") == "impossible" for i in document.instances):
            raise OverflowError("an impossible colour")
        return build_state(document)

    monkeypatch.setattr("balancer.assignment.group.leader.build_state", refuse)
    leader = Leader(TaskAssignor().assign)
    z = joined("z", [2], tags={"colour": "impossible"})
    found = leader.assign("a", [joined("a", [0, 1]), z], dict.fromkeys(range(4), 100))
    assert leader.malformed == 1
    assert found["z"] == MemberAssignment()
    assert found["a"].partitions == (0, 1, 3)
    assert leader.assign("z", [z], {2: 100}) == {"z": MemberAssignment()}


def test_without_any_usable_report_nobody_gets_tasks() -> None:
    leader = Leader(TaskAssignor().assign)
    assert leader.assign("a", [Joined("a", b"?")], {0: 0}) == {"a": MemberAssignment()}


def test_tasks_of_another_application_are_passed_over() -> None:
    stray = joined(
        "a", [9], offsets={"0_9": 5, "3_0": 5, "0_0": 5}, running=("0_9",), standby=("0_9", "3_0")
    )
    state = seen([stray], {0: 10, 1: 10})
    assert state.lag.tolist() == [5]
    assert not len(state.previous_task)


def test_state_from_beyond_the_end_counts_as_none() -> None:
    assert seen([joined("a", offsets={"0_0": 11})], {0: 10}).lag.tolist() == [10]


def test_the_size_of_a_task_is_that_of_its_largest_copy() -> None:
    members = [
        joined("a", offsets={"0_0": 10}, state_bytes={"0_0": 300}),
        joined("b", offsets={"0_0": 5}, state_bytes={"0_0": 200, "0_9": 7}),
    ]
    found = seen(members, {0: 10, 1: 10}).state_bytes
    assert found[0] == 300
    assert np.isnan(found[1])


def test_goals_are_a_target_too() -> None:
    leader = Leader(TaskAssignor(target="stateful-tasks").assign)
    ends = dict.fromkeys(range(4), 50_000)
    current = {f"0_{p}": 50_000 for p in range(4)}
    members = [joined("a", range(4), offsets=current), joined("b", offsets=current)]
    found = leader.assign("a", members, ends)
    assert len(found["a"].partitions) == 2
    assert len(found["b"].tasks.standby) == 2


def test_who_left_while_another_led_is_not_waited_for() -> None:
    now = [0.0]
    configs = AssignmentConfigs(num_standby_replicas=1)
    leader = Leader(TaskAssignor(configs, target="stateful-tasks").assign, clock=lambda: now[0])
    ends = dict.fromkeys(range(4), 50_000)
    current = {f"0_{p}": 50_000 for p in range(4)}
    members = [joined("a", [0, 1], offsets=current), joined("b", [2, 3], offsets=current)]
    leader.assign("a", members, ends)
    leader.forget()
    now[0] = 7200.0
    found = leader.assign("a", [joined("a", range(4), offsets=current), joined("c")], ends)
    assert len(found["c"].tasks.standby) == 4


def test_a_member_that_is_away_is_waited_for() -> None:
    now = [0.0]
    configs = AssignmentConfigs(num_standby_replicas=1)
    assignor = TaskAssignor(configs, target="stateful-tasks")
    leader = Leader(assignor.assign, clock=lambda: now[0])
    ends = dict.fromkeys(range(4), 50_000)
    current = {f"0_{p}": 50_000 for p in range(4)}

    def member(name: str, owned: Sequence[int]) -> Joined:
        standby = tuple(f"0_{p}" for p in range(4) if p not in owned)
        return joined(name, owned, offsets=current, standby=standby)

    a, b, c = member("a", [0, 1]), member("b", [2, 3]), joined("c")
    leader.assign("a", [a, b], ends)
    now[0] = 10.0
    without = leader.assign("a", [a, c], ends)
    assert set(without["a"].partitions) == {0, 1, 2, 3}
    # A new member restores what it is to run, but no standbys.
    assert without["c"].tasks.standby == ()
    assert without["a"].tasks.probe_after_ms == 600_000
    # It is back with its state.
    now[0] = 100.0
    back = leader.assign("a", [member("a", range(4)), joined("b", offsets=current)], ends)
    assert len(back["b"].tasks.standby) == 4
    # Another time it stays away.
    leader.assign("a", [member("a", range(4)), c], ends)
    now[0] = 300.0
    later = leader.assign("a", [member("a", range(4)), c], ends)
    assert later["a"].tasks.probe_after_ms == 400_000
    now[0] = 700.0
    longer = leader.assign("a", [member("a", range(4)), c], ends)
    assert len(longer["c"].tasks.standby) == 4


def test_without_end_offsets_the_assignor_knows() -> None:
    assert not seen([joined("a")], [0, 1]).offsets_known
    assert seen([joined("a")], {0: 0, 1: 0}).offsets_known


def test_messages_survive_the_way_and_newer_fields() -> None:
    report = MemberReport(process="p", capacity=3, rack="r", offsets={"0_1": 7}, running=("0_1",))
    assert MemberReport.decode(report.encode()) == report
    newer = json.loads(report.encode()) | {"tomorrow": [1]}
    assert MemberReport.decode(json.dumps(newer).encode()) == report
    with pytest.raises(GroupError, match="version"):
        MemberTasks.decode(b'{"version": 2}')


def test_a_store_is_never_ahead_of_its_offsets(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "0_0")
    store.apply({b"a": b"1", b"b": b"2"}, 5, 3)
    with pytest.raises(sqlite3.Error):
        store.apply({b"a": b"9", b"c": object()}, 9, 9)  # type: ignore[dict-item]
    store.apply({b"b": None}, 6)
    store.close()
    again = StateStore(tmp_path / "0_0")
    assert dict(again.items()) == {b"a": b"1"}
    assert (again.position, again.input_offset) == (6, 3)
    again.clear()
    assert (dict(again.items()), again.position, again.input_offset) == ({}, 0, 0)


def test_a_store_that_is_not_cleared_to_the_end_keeps_everything(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "0_0")
    store.apply({b"a": b"1"}, 5, 3)
    other = sqlite3.connect(tmp_path / "0_0" / "state.sqlite")
    other.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON offsets BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    other.close()
    with pytest.raises(sqlite3.Error, match="full"):
        store.clear()
    store.close()
    again = StateStore(tmp_path / "0_0")
    assert (dict(again.items()), again.position, again.input_offset) == ({b"a": b"1"}, 5, 3)


def test_a_store_that_cannot_be_read_begins_anew(tmp_path: Path) -> None:
    StateStore(tmp_path / "0_0").close()
    (tmp_path / "0_0" / "state.sqlite").write_bytes(b"not a database" * 1000)
    store = StateStore(tmp_path / "0_0")
    assert (store.position, store.get(b"a")) == (0, None)


def test_a_changelog_replays_to_the_state_that_wrote_it(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "0_0")
    state = State(store)
    for offset, line in enumerate([b"to be or", b"not to be"]):
        WordCount().process(Record(None, line, 0, offset), state)
    state.delete(b"or")
    replay = Replay()
    replay.add((state_key(k), v) for k, v in state.changes.items())
    replay.add([(INPUT_KEY, input_value(2)), (None, b"?"), (b"other", b"?"), (INPUT_KEY, b"?")])
    assert replay.input_offset == 2
    store.apply(replay.changes, 9, replay.input_offset)
    assert dict(store.items()) == {b"to": b"2", b"be": b"2", b"not": b"1"}


def test_a_state_directory_has_one_user_and_keeps_its_name(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path / "state")
    with pytest.raises(GroupError, match="another process uses it"):
        StateDirectory(tmp_path / "state")
    first.close()
    second = StateDirectory(tmp_path / "state")
    assert second.process == first.process
    second.close()


def test_nothing_is_cleaned_up_between_a_report_and_its_assignment(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    old, used, fresh = (TaskId(0, p) for p in range(3))
    for task in (old, used, fresh):
        StateStore(directory.task_path(task)).close()
        if task != fresh:
            for file in [*directory.task_path(task).iterdir(), directory.task_path(task)]:
                os.utime(file, (0, 0))
    directory.report_begins(1)
    assert directory.clean([used], 60_000) == []
    # A second report came before the first was answered.
    directory.report_begins(2)
    directory.assignment_applied(1)
    assert directory.clean([used], 60_000) == []
    directory.assignment_applied(2)
    assert directory.clean([used], 60_000) == [old]
    assert directory.tasks() == [used, fresh]
    directory.close()


def test_a_member_needs_three_heartbeats_in_a_session(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "bootstrap_servers": "x:1",
        "application_id": "app",
        "input_topic": "words",
    }
    with pytest.raises(ValueError, match="at most a third"):
        GroupConfigs(
            **given, state_dir=tmp_path, session_timeout_ms=1000, heartbeat_interval_ms=400
        )
    configs = GroupConfigs(**given, state_dir=tmp_path)
    assert configs.changelog_topic == "app-words-changelog"
    assert configs.transactional_id(TaskId(0, 3)) == "app-0_3"
