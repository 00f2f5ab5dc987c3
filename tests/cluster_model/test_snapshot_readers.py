"""Snapshots read by other packages: chosen by suffix or scheme; any failure is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from cluster_model import Snapshot, SnapshotError, load_snapshot, save_snapshot, synthetic_snapshot


class Reader(BaseModel):
    """A reader whose answer each test decides."""

    answer: ClassVar[Callable[[str], Any]] = staticmethod(lambda source: None)

    size: int = 3

    def read(self, source: str) -> Any:
        return type(self).answer(source)


class _Point:
    def __init__(self, name: str) -> None:
        self.name, self.value, self.dist = name, "some:Reader", None

    def load(self) -> type[Any]:
        return Reader


class _Points(list[_Point]):
    names = ("rooms", "s3")


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = _Points([_Point("rooms"), _Point("s3")])
    monkeypatch.setattr("metrics_reporter.plugins.entry_points", lambda group: points)


def _answers(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], Any]) -> None:
    monkeypatch.setattr(Reader, "answer", staticmethod(answer))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.rooms", "a.rooms"),
        (Path("in/a.rooms"), "in/a.rooms"),
        ("s3://bucket/a.json", "s3://bucket/a.json"),
        (Path("s3://bucket/a.json"), "s3://bucket/a.json"),
    ],
)
def test_suffix_or_scheme_chooses(
    monkeypatch: pytest.MonkeyPatch, path: str | Path, source: str
) -> None:
    asked: list[str] = []
    cluster = synthetic_snapshot(brokers=3, partitions=6, racks=3)

    def answer(given: str) -> Snapshot:
        asked.append(given)
        return cluster

    _answers(monkeypatch, answer)
    assert load_snapshot(path) is cluster
    assert asked == [source]


def _raises(error: Exception) -> Callable[[str], Any]:
    def answer(source: str) -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (_raises(ValueError("no\nrooms")), {}, "reader rooms failed (ValueError: no rooms)"),
        (_raises(SnapshotError("row 3: -1 found")), {}, "snapshot a.rooms: row 3: -1 found"),
        (_raises(OSError(2, "No such file")), {}, "snapshot a.rooms: No such file"),
        (lambda source: 3, {}, "snapshot reader rooms returned int, a Snapshot expected"),
        (lambda source: 3, {"size": "x"}, "reader rooms, option size: 'x' found; input should be"),
        (lambda source: 3, {"sise": 3}, "reader rooms: option 'sise' found, one of size expected"),
    ],
)
def test_a_failure_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], Any], options: Any, said: str
) -> None:
    _answers(monkeypatch, answer)
    with pytest.raises(SnapshotError) as caught:
        load_snapshot("a.rooms", options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_of_our_own_take_no_options(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    save_snapshot(synthetic_snapshot(brokers=3, partitions=6, racks=3), path)
    with pytest.raises(SnapshotError, match="snapshot reader json: takes no options"):
        load_snapshot(path, {"size": 3})
