"""Windows equal a recomputation from the list of all samples."""

import math
from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_model.errors import InputError
from cluster_model.last_value import LastValue
from cluster_model.windows import Extrapolation, RecordOutcome, Windows

WINDOW = 10
SAMPLES = st.tuples(
    st.integers(0, 2),
    st.integers(0, 12 * WINDOW),
    st.tuples(*[st.one_of(st.just(math.nan), st.floats(0, 1e6))] * 2),
)


class Naive:
    """The same by the book, over a dictionary."""

    def __init__(self, windows: int, min_samples: int) -> None:
        self.windows, self.min = windows, min_samples
        self.current: int | None = None
        self.seen: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)

    def add(self, entity: int, time_ms: int, values: tuple[float, ...]) -> RecordOutcome:
        number = time_ms // WINDOW
        self.current = number if self.current is None else max(self.current, number)
        if number < self.current - self.windows:
            return RecordOutcome.LATE
        given_ = {m: v for m, v in enumerate(values) if not math.isnan(v)}
        new = {m: v for m, v in given_.items() if time_ms not in self.seen[entity, m]}
        for m, v in new.items():
            self.seen[entity, m][time_ms] = v
        return RecordOutcome.DUPLICATE if given_ and not new else RecordOutcome.ADDED

    def samples(self, entity: int, number: int, metric: int) -> list[float]:
        return [v for t, v in self.seen[entity, metric].items() if t // WINDOW == number]

    def window(self, entity: int, number: int, metric: int, edge: bool) -> tuple[float, int]:
        own = self.samples(entity, number, metric)
        around = [self.samples(entity, n, metric) for n in (number - 1, number + 1)]
        if len(own) >= self.min:
            return float(np.mean(own)), Extrapolation.NONE
        if len(own) >= max(1, self.min // 2):
            return float(np.mean(own)), Extrapolation.AVG_AVAILABLE
        if not edge and all(len(a) >= self.min for a in around):
            return float(np.mean(own + around[0] + around[1])), Extrapolation.AVG_ADJACENT
        if own:
            return float(np.mean(own)), Extrapolation.FORCED_INSUFFICIENT
        return 0.0, Extrapolation.NO_VALID_EXTRAPOLATION


@given(st.lists(SAMPLES, max_size=80), st.integers(1, 5), st.integers(1, 5))
def test_windows_equal_a_naive_recomputation(
    samples: list[tuple[int, int, tuple[float, ...]]], windows: int, min_samples: int
) -> None:
    one = Windows(3, 2, window_ms=WINDOW, windows=windows, min_samples=min_samples)
    naive = Naive(windows, min_samples)
    outcomes = []
    for entity, time_ms, values in samples:
        outcomes.append(naive.add(entity, time_ms, values))
        assert one.add([entity], [time_ms], [values]).tolist() == [outcomes[-1]]
    assert one.counters["late"] == outcomes.count(RecordOutcome.LATE)
    assert one.counters["duplicate"] == outcomes.count(RecordOutcome.DUPLICATE)

    batch = Windows(3, 2, window_ms=WINDOW, windows=windows, min_samples=min_samples)
    entities, times, values = zip(*samples, strict=True) if samples else ((), (), ())
    batch.add(entities, times, np.array(values).reshape(-1, 2))

    for got in (one.aggregate(), batch.aggregate()):
        if naive.current is None:
            assert len(got.start_ms) == 0
            continue
        kept = range(naive.current - windows, naive.current)
        used = [n for n in kept if any(naive.samples(e, n, m) for e in range(3) for m in (0, 1))]
        numbers = list(range(used[0], naive.current)) if used else []
        assert got.start_ms.tolist() == [n * WINDOW for n in numbers]
        for w, n in enumerate(numbers):
            edge = w in (0, len(numbers) - 1)
            for e in range(3):
                for m in (0, 1):
                    value, kind = naive.window(e, n, m, edge)
                    assert got.kind[e, w, m] == kind
                    assert got.value[e, w, m] == pytest.approx(value, rel=1e-9)


def windows_of(counts: list[int], min_samples: int = 4, keep: int = 5) -> Windows:
    """One entity with so many samples in each window, all of value 1 + the window's number."""
    w = Windows(1, 1, window_ms=100, windows=keep, min_samples=min_samples)
    for number, count in enumerate(counts):
        for i in range(count):
            w.add([0], [number * 100 + i], [[number + 1.0]])
    return w


def test_kinds_of_extrapolation() -> None:
    got = windows_of([4, 1, 4, 2, 1, 1]).aggregate()
    assert [Extrapolation(k).name for k in got.kind[0, :, 0]] == [
        "NONE",
        "AVG_ADJACENT",
        "NONE",
        "AVG_AVAILABLE",
        "FORCED_INSUFFICIENT",
    ]
    assert got.value[0, :, 0].tolist() == [1.0, (4 * 1 + 2 + 4 * 3) / 9, 3.0, 4.0, 5.0]
    got = windows_of([4, 0, 4, 0, 0, 1]).aggregate()
    assert got.kind[0, 3, 0] == Extrapolation.NO_VALID_EXTRAPOLATION
    assert got.value[0, 1, 0] == 2.0
    assert got.mean[0, 0] == 2.0
    assert not got.valid()[0]


def test_validity_allows_so_many_extrapolations() -> None:
    got = windows_of([4, 2, 4, 2, 4, 1]).aggregate()
    assert got.valid(2)[0]
    assert not got.valid(1)[0]


def test_the_current_window_is_excluded() -> None:
    w = windows_of([4])
    assert len(w.aggregate().start_ms) == 0
    assert not w.aggregate().valid()[0]
    w.add([0], [100], [[9.0]])
    assert w.aggregate().mean.tolist() == [[1.0]]


def test_many_samples_in_a_window() -> None:
    w = Windows(1, 1, window_ms=1000, windows=1, min_samples=1)
    w.add(np.zeros(300, int), np.arange(300), np.arange(300.0)[:, None])
    w.add(np.zeros(300, int), np.arange(300), np.arange(300.0)[:, None])
    w.add([0], [1000], [[0.0]])
    assert w.aggregate().mean[0, 0] == 149.5
    assert w.counters == {"added": 301, "late": 0, "future": 0, "duplicate": 300}


def test_a_window_takes_so_many_samples_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster_model.windows.MOST_OFFSETS", 60)
    w = Windows(3, 1, window_ms=1000, windows=1, min_samples=1)
    outcome = w.add([1] * 12, np.arange(12), np.arange(12.0)[:, None])
    assert outcome.tolist() == [RecordOutcome.ADDED] * 10 + [RecordOutcome.SURPLUS] * 2
    assert w.add([1, 1], [3, 500], [[9.0], [9.0]]).tolist() == [
        RecordOutcome.DUPLICATE,
        RecordOutcome.SURPLUS,
    ]
    w.add([0], [1000], [[0.0]])
    assert w.aggregate().value[:, 0, 0].tolist() == [0.0, 4.5, 0.0]
    eager = Windows(1000, 1, window_ms=1000, windows=1, min_samples=6)
    eager.add([1] * 12, np.arange(12), np.ones((12, 1)))
    eager.add([0], [1000], [[0.0]])
    assert eager.aggregate().kind[1, 0, 0] == Extrapolation.NONE


def test_a_time_beyond_the_limit_does_not_move_the_windows() -> None:
    w = windows_of([4, 4])
    assert w.add([0, 0], [10**15, 250], [[1.0], [3.0]], not_after_ms=300).tolist() == [
        RecordOutcome.FUTURE,
        RecordOutcome.ADDED,
    ]
    assert w.aggregate().start_ms.tolist() == [0, 100]
    assert w.counters["future"] == 1


def test_reindexed_windows_keep_their_entities() -> None:
    w = Windows(3, 1, window_ms=100, windows=2, min_samples=1)
    w.add([0, 1, 2], [5, 6, 7], [[10.0], [20.0], [30.0]])
    w.add([0], [150], [[0.0]])
    other = w.reindexed([2, -1, 0, 0])
    mean = other.aggregate().mean[:, 0]
    assert mean[[0, 2, 3]].tolist() == [30.0, 10.0, 10.0]
    assert np.isnan(mean[1])
    assert other.add([0, 1], [7, 7], [[1.0], [1.0]]).tolist() == [
        RecordOutcome.DUPLICATE,
        RecordOutcome.ADDED,
    ]
    assert w.aggregate().mean[2, 0] == 30.0


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 39), st.floats(-9, 9)), max_size=40))
def test_largest_and_latest_values(samples: list[tuple[int, int, float]]) -> None:
    seen: dict[tuple[int, int], float] = {}
    for entity, time_ms, value in samples:
        seen.setdefault((entity, time_ms), value)
    kept: dict[str, Windows] = {}
    for aggregation in ("max", "latest"):
        kept[aggregation] = Windows(
            2, 1, window_ms=WINDOW, windows=4, min_samples=1, aggregation=aggregation
        )
        for part in (samples[:7], samples[7:], [(0, 40, 0.0)]):
            entities, times, values = zip(*part, strict=True) if part else ((), (), ())
            kept[aggregation].add(entities, times, np.reshape(values, (-1, 1)))
    for aggregation, w in kept.items():
        got = w.aggregate()
        for e in range(2):
            for i, start in enumerate(got.start_ms.tolist()):
                own = {t: v for (x, t), v in seen.items() if x == e and start <= t < start + WINDOW}
                if own:
                    expected = max(own.values()) if aggregation == "max" else own[max(own)]
                    assert got.value[e, i, 0] == expected
                else:
                    assert got.kind[e, i, 0] > Extrapolation.AVG_AVAILABLE


def test_values_between_neighbours_are_the_mean_of_windows() -> None:
    w = Windows(1, 1, window_ms=100, windows=3, min_samples=4, aggregation="max")
    for time_ms, value in ((0, 1.0), (1, 5.0), (2, 2.0), (3, 3.0), (100, 7.0)):
        w.add([0], [time_ms], [[value]])
    for i in range(4):
        w.add([0], [200 + i], [[9.0]])
    w.add([0], [300], [[0.0]])
    got = w.aggregate()
    assert got.kind[0, 1, 0] == Extrapolation.AVG_ADJACENT
    assert got.value[0, :, 0].tolist() == [5.0, (5 + 7 + 9) / 3, 9.0]


def test_one_value_of_many_windows() -> None:
    got = windows_of([4, 4, 0, 0, 4, 1], min_samples=1).aggregate()
    assert got.over("mean")[0, 0] == got.mean[0, 0] == (1 + 2 + 5) / 3
    assert got.over("max")[0, 0] == 5.0
    assert got.over("latest")[0, 0] == 5.0
    assert got.last(4).over("mean")[0, 0] == (2 + 5) / 2
    assert got.last(0).over("max").tolist() == [[pytest.approx(math.nan, nan_ok=True)]]
    both = Windows(2, 2, window_ms=100, windows=2, min_samples=1)
    both.add([0, 0, 1], [0, 100, 0], [[1.0, math.nan], [2.0, 5.0], [math.nan, 3.0]])
    both.add([0], [200], [[0.0, 0.0]])
    latest = both.aggregate().over("latest")
    assert latest[0].tolist() == [2.0, 5.0]
    assert np.isnan(latest[1, 0])
    assert latest[1, 1] == 3.0
    assert both.aggregate().of(slice(1, 2)).over("max").tolist() == [[5.0], [3.0]]


def test_measurements_supersede_guesses() -> None:
    w = Windows(1, 2, window_ms=100, windows=2, min_samples=1)
    guess = {"estimated": True}
    assert w.add([0], [10], [[1.0, 1.0]], **guess).tolist() == [RecordOutcome.ADDED]
    assert w.add([0], [10], [[1.0, 1.0]], **guess).tolist() == [RecordOutcome.DUPLICATE]
    assert w.add([0], [10], [[8.0, math.nan]]).tolist() == [RecordOutcome.ADDED]
    assert w.add([0], [20], [[1.0, 3.0]], **guess).tolist() == [RecordOutcome.ADDED]
    assert w.add([0], [30], [[1.0, math.nan]], **guess).tolist() == [RecordOutcome.SUPERSEDED]
    assert w.estimated().tolist() == [False]
    w.add([0], [100], [[8.0, 8.0]])
    assert w.aggregate().value.tolist() == [[[8.0, 2.0]]]
    assert w.estimated().tolist() == [True]
    assert w.reindexed([-1, 0]).estimated().tolist() == [False, True]
    w.add([0], [300], [[8.0, 8.0]])
    assert w.estimated().tolist() == [False]


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 29), st.floats(0, 9)), min_size=1, max_size=30
    ),
    st.randoms(use_true_random=False),
)
def test_guesses_and_measurements_in_any_order(
    samples: list[tuple[bool, int, float]], random: Random
) -> None:
    samples = list({(g, t): (g, t, v) for g, t, v in samples}.values())
    found = []
    for _ in range(2):
        w = Windows(1, 1, window_ms=WINDOW, windows=3, min_samples=1)
        for guess, time_ms, value in samples:
            w.add([0], [time_ms], [[value]], estimated=guess)
        w.add([0], [30], [[0.0]])
        found.append(w.aggregate())
        random.shuffle(samples)
    assert found[0].kind.tolist() == found[1].kind.tolist()
    np.testing.assert_allclose(found[0].value, found[1].value)


def test_aggregations_are_named() -> None:
    with pytest.raises(InputError, match="aggregation: 'median' found, one of mean, max, latest"):
        Windows(1, 1, aggregation="median")  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.floats(0, 9)), max_size=30))
def test_newest_is_the_same_in_any_batches(rows: list[tuple[int, int, float]]) -> None:
    best: dict[int, tuple[int, float]] = {}
    for entity, time_ms, value in rows:
        if entity not in best or time_ms > best[entity][0]:
            best[entity] = (time_ms, value)
    for size in (1, 7, 30):
        newest = LastValue(3)
        for i in range(0, len(rows), size):
            part = np.array(rows[i : i + size])
            newest.add(part[:, 0].astype(int), part[:, 1].astype(int), part[:, 2])
        assert {e: v for e, v in enumerate(newest.value) if not np.isnan(v)} == {
            e: v for e, (_, v) in best.items()
        }


@pytest.mark.parametrize("argument", ["window_ms", "windows", "min_samples"])
def test_arguments_are_named(argument: str) -> None:
    none: dict[str, Any] = {argument: 0}
    with pytest.raises(InputError, match=f"windows, {argument}: 0 found"):
        Windows(1, 1, **none)


@pytest.mark.parametrize(
    ("entity", "time_ms", "values", "says"),
    [
        ([1], [0], [[0.0]], "entities 1 to 1 found, 0 to 0"),
        ([-1], [0], [[0.0]], "entities -1"),
        ([0], [0, 1], [[0.0]], r"times of shape \(2,\)"),
        ([0], [0], [[0.0, 1.0]], r"values of shape \(1, 2\)"),
        ([0], [0], [[math.inf]], "infinite"),
    ],
)
def test_samples_that_do_not_fit(
    entity: list[int], time_ms: list[int], values: list[list[float]], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        Windows(1, 1).add(entity, time_ms, values)
