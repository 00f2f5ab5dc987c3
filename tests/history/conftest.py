"""Fixtures that the modules of this folder share, besides the Spark session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def files_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete no old files of archives, which takes Spark eight jobs and which others test."""
    monkeypatch.setattr("cluster_model.history.archive.vacuum", lambda *_: None)


@pytest.fixture(scope="module", autouse=True)
def cleared() -> Iterator[None]:
    """Leave nothing in Spark's cache, which every later query would be compared with."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.catalog.clearCache()
