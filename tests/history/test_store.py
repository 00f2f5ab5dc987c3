"""Directories are listed and emptied by Hadoop's file systems, or with DataFrames alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cluster_model.history.store import Store


@pytest.mark.parametrize("remote", [False, True], ids=["driver", "Spark Connect"])
def test_a_directory_is_listed_and_emptied(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    monkeypatch.setattr("cluster_model.history.store.is_remote", lambda _: remote)
    store = Store(spark, str(tmp_path))
    assert store.names("a") == []
    (tmp_path / "a" / "b").mkdir(parents=True)
    for file in ("a/y.txt", "a/b/x.txt"):
        (tmp_path / file).write_text("1")
    assert store.names() == ["a"]
    assert store.names("a") == ["b", "y.txt"]
    assert store.absolute("a").removeprefix("file:") == str(tmp_path / "a")
    store.delete("a")
    assert not {"x.txt", "y.txt"} & {path.name for path in tmp_path.rglob("*")}
