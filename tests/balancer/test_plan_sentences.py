"""What a plan says in numbers keeps the grammar of docs/plan.md, on random small clusters."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from balancer_cases import OPERATIONS, QUICK, long
from rich.console import Console

from balancer import Balancer, Budget, Operation, Plan
from balancer.cli.tables import report
from balancer.controller.decision import plan_sentence
from balancer.report.words import verdict
from benchmarks.small import small_cluster
from cluster_model import InputError

# clusters of one test, and tests that are part of every run
SIZE, ALWAYS = 5, 2
NOUNS = (
    "allowed single action|leadership transfer|replica move|new replica|topic placement|"
    "action|broker|cell|disk|goal|host|move|partition|rack|replica|leadership|other"
)
NUMBER = r"(?<![\w.,-])([\d,]*\d(?:\.\d+)?)"


def plans(seed: int) -> Iterator[Plan]:
    """Plans for a random small cluster with a dead broker at times, limits, and other units."""
    rng = np.random.default_rng([seed, 22])
    snapshot = small_cluster(rng)
    if rng.random() < 0.3:
        # without a resource disk, each copy costs 1
        names = tuple("memory" if r == "disk" else r for r in snapshot.resources)
        snapshot = replace(snapshot, resources=names)
    moves, cost = int(rng.integers(0, 4)), float(rng.integers(1, 4))
    budget = (Budget(), Budget(moves=moves), Budget(cost=cost))[seed % 3]
    profile = ("default", "autobalancer", "cruise-control")[seed % 4 % 3]
    operation = Operation(**OPERATIONS[int(rng.integers(len(OPERATIONS)))])
    try:
        yield Balancer(profile, budget=budget, strategy=QUICK).propose(snapshot, operation)
    except InputError:
        # for instance a broker to add that is dead
        return


def sentences(plan: Plan) -> list[str]:
    """Everything that reports of a plan say, without their tables."""
    out = io.StringIO()
    Console(file=out, width=10_000, color_system=None).print(report(plan))
    printed = [line.strip() for line in out.getvalue().splitlines() if "  " not in line.strip()]
    reasons = [f"{u.reason}. {u.remedy}" for u in plan.unmet]
    return [*filter(None, printed), *reasons, verdict(plan), plan_sentence(plan)]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def agree_in_number(text: str) -> None:
    """1 has the singular, and so have its verb and pronoun; other counts have the plural.

    Of "1 of 4 goals stays unmet", the noun is that of the whole, and the verb that of the part.
    """
    for count, noun, ending in re.findall(rf"{NUMBER} ({NOUNS})(s?)\b", text):
        assert (ending == "") == (number(count) == 1), (count, noun, text)
        assert number(count) > 0 or f"the limit of {count} {noun}" in text, text
        assert number(count) == int(number(count)), text
    verbs = r"(has|have|stays|stay|holds|hold)\b"
    for count, verb in re.findall(rf"{NUMBER}(?: of [\d,]+)? (?:{NOUNS})s? {verbs}", text):
        assert verb.endswith("s") == (number(count) == 1), text
    for count, which in re.findall(
        rf"{NUMBER} others? would help, and only rules forbid (it|them)", text
    ):
        assert (which == "it") == (count == "1"), text


def parts_are_within_wholes(text: str) -> None:
    """Of "X of Y", X is no more than Y."""
    for part, whole in re.findall(rf"{NUMBER} of {NUMBER}\b", text):
        assert number(part) <= number(whole), text


def helpful_actions_add_up(text: str) -> None:
    """What stops the actions that would help stops each of them, and none twice as a part."""
    pattern = (
        rf"{NUMBER}(?: of [\d,]+)? (?:allowed single actions?(?: examined)?|others?) would help, "
        r"and (.*?)(?=; \d+ others? would help|$)"
    )
    for found in re.finditer(pattern, text):
        helpful, said = number(found[1]), found[2]
        assert helpful >= 1, text
        stops = [number(n) for n in re.findall(rf"{NUMBER} by ", said.split("; the best")[0])]
        assert all(1 <= n <= helpful for n in stops), text
        for alone in re.findall(rf"{NUMBER} of them alone", said):
            assert 1 <= number(alone) <= helpful, text
        free = re.match(rf"nothing stops (?:{NUMBER} of them|it|them)", said)
        if free is None:
            assert "others by" in said or sum(stops) >= helpful, text
            continue
        count = number(free[1]) if free[1] else helpful
        assert count < helpful or not free[1], text
        assert ("what stops the rest" in said) == (count < helpful), text
    assert not re.search(r"(no allowed single action helps|none helps)[^;]*nothing stops", text)


def series_rise(text: str) -> None:
    """The points of a series of shares come in order, each with more than the one before."""
    for series in re.findall(r"improvement of its goals: (.*)", text):
        points = re.findall(rf"{NUMBER} % after {NUMBER} %", series)
        for one, two in pairwise(points):
            assert number(one[0]) < number(two[0]), text
            assert number(one[1]) < number(two[1]), text


def comparisons_are_true(text: str) -> None:
    """Of two amounts that are compared, both have one unit, and the larger one is larger."""
    unit = r"( [kMGTPE]?B(?:/s)?| %| replicas?| \w+)?"
    for much, one, little, two in (
        *re.findall(rf"is {NUMBER}{unit}, more than the largest limit, {NUMBER}{unit}", text),
        *re.findall(rf"costs {NUMBER}{unit}, more than the {NUMBER}{unit} left", text),
        *re.findall(rf": {NUMBER}{unit} needed, {NUMBER}{unit} within limits", text),
        *re.findall(rf"would carry {NUMBER}{unit}, and \S+ allows {NUMBER}{unit}", text),
    ):
        assert one.removesuffix("s") == two.removesuffix("s"), text
        assert number(much) > number(little), text


def nothing_is_no_amount(text: str) -> None:
    """What costs nothing has no amount, and no sentence begins where it was."""
    assert not re.match(r"[ ,;]", text), text
    assert not re.search(r"(?<![\d.,])0 (B|replicas)\b", text), text


def bounds_are_no_more_than_costs(text: str) -> None:
    """A bound is at most the cost in the same unit; whole where what is counted is."""
    unit = r"( [kMGTPE]?B| \w+)"
    for cost, one, bound, two in re.findall(
        rf"(?:copies|costs) {NUMBER}{unit}.*; no plan .* less than {NUMBER}{unit}", text
    ):
        assert one != two or number(bound) <= number(cost), text
        assert one.endswith("B") or "." not in cost + bound, text


def checked(text: str) -> None:
    """Every rule for a single sentence."""
    agree_in_number(text)
    parts_are_within_wholes(text)
    helpful_actions_add_up(text)
    series_rise(text)
    comparisons_are_true(text)
    bounds_are_no_more_than_costs(text)
    nothing_is_no_amount(text)


@pytest.mark.parametrize("part", [*range(ALWAYS), *long(*range(ALWAYS, 500 // SIZE))])
def test_sentences_keep_their_grammar(part: int) -> None:
    for seed in range(SIZE * part, SIZE * (part + 1)):
        for plan in plans(seed):
            assert plan.summary.cost_bound <= plan.summary.cost * (1 + 1e-9)
            for text in sentences(plan):
                checked(text)


@pytest.mark.parametrize(
    "wrong",
    [
        "no allowed single action helps: 360 of 948 would help, and nothing stops 138 of them",
        "of the improvement of its goals: 46.8 % after 1 %, 46.8 % after 2 % of the bytes",
        "costs 1 replicas",
        "no plan meeting these goals costs less than 0.126 replicas",
        "1 other would help, and only rules forbid them: 1 by excluded topics",
        "2 allowed single actions would help, and all are stopped: 1 by RackAwareness (hard)",
        "load (disk) of a single replica is 2 GB, more than the largest limit, 2 GB",
        "3 of 2 goals stay unmet",
        "1 goal stay unmet",
        "0 goals stay unmet",
        "costs 2 GB; no plan meeting these goals costs less than 2.1 GB",
        "costs 3 replicas; no plan meeting these goals costs less than 3.5 replicas",
        ", 0 B, balancedness 54 to 54",
    ],
)
def test_the_checks_find_what_is_wrong(wrong: str) -> None:
    with pytest.raises(AssertionError):
        checked(wrong)
