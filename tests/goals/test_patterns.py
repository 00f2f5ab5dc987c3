"""Patterns of topics: whole names, within a time limit, and one sentence for an invalid one."""

from __future__ import annotations

import signal
import threading

import pytest

from balancer import Balancer, Operation
from balancer.verification.operations import wrong_operation
from cluster_model import InputError, synthetic_snapshot
from goals import GoalError, load_goals
from goals.patterns import PatternError, PatternLimits, matching

SLOW, NAME = "(a+)+b", "a" * 200
FAST = PatternLimits(seconds=0.1)


def test_nested_repetition_ends_at_the_limit() -> None:
    with pytest.raises(PatternError, match=r"pattern '\(a\+\)\+b': not matched within 0.1 s"):
        matching(SLOW, [NAME], FAST)


def test_a_pattern_that_looks_ahead_is_matched_as_ever() -> None:
    assert matching(r"(?!__)\w+", ["a", "__b"], FAST).tolist() == [True, False]


def test_a_timer_that_runs_already_goes_on() -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    before_timer = signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        matching("a", ["a"], FAST)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
        signal.raise_signal(signal.SIGALRM)
        assert rung
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *before_timer)


# One repetition, of a group whose alternatives overlap, takes as long as nested ones.
@pytest.mark.parametrize(("slow", "name"), [(SLOW, NAME), (r"(\d|\d\d)*-dlq", "1" * 200)])
def test_the_limit_holds_in_a_thread_too(slow: str, name: str) -> None:
    raised: list[PatternError] = []
    found: list[bool] = []

    def match() -> None:
        try:
            matching(slow, [name], FAST)
        except PatternError as error:
            raised.append(error)
        found.extend(matching("(a+)+b", ["aab", "b", "\ud83d"]).tolist())

    thread = threading.Thread(target=match, daemon=True)
    thread.start()
    thread.join(60)
    assert "not matched within 0.1 s" in str(raised[0])
    assert found == [True, False, False]


def test_a_thread_matches_too() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.extend(matching("a", ["a", "b"]).tolist()))
    thread.start()
    thread.join()
    assert found == [True, False]


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 5000 + ")" * 5000])
def test_what_is_no_expression_is_one_sentence(pattern: str) -> None:
    snapshot = synthetic_snapshot(brokers=3, partitions=6, racks=3)
    with pytest.raises(InputError, match="a regular expression expected"):
        Balancer().propose(snapshot, Operation(excluded_topics=(pattern,)))
    with pytest.raises(GoalError, match="a regular expression expected"):
        load_goals({"goals": [{"goal": "MinTopicLeaders", "topics": pattern}]})
    (said,) = wrong_operation(snapshot, {"kind": "rebalance", "excluded_topics": [pattern]})
    assert "a regular expression expected" in said
