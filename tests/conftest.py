"""Set-up of all tests: settings, markers, scheduling, what ends with a run, one Spark session."""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import reaper
from groups import group as kafka_group
from groups import place
from hypothesis import settings
from spark_directory import read_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

# What decides a change draws the same examples in each run; `make soak` draws others and more.
# How long an example takes says something of the machine, not of the code.
settings.register_profile("steady", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("roaming", deadline=None, max_examples=250, print_blob=True)
settings.load_profile("steady")

# Workers of pytest-xdist have one: commands would wrap what tests read.
os.environ.pop("COLUMNS", None)
os.environ["SPARK_CONF_DIR"] = str(HERE / "history" / "spark")
# where the process is that starts the Python workers of the session below
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (os.environ["SPARK_CONF_DIR"], os.environ.get("PYTHONPATH")))
)

# Tests that share what takes long to start, by the first beginning of their names that fits.
# Each group is run by one worker of pytest-xdist, and before the rest.
GROUPS = {
    "tests/history/": "spark",
    "tests/backtest/test_backtest.py": "spark",
    "tests/backtest/test_advice.py": "spark",
    "tests/benchmarks/test_history_benchmark.py": "spark",
    "tests/docs/test_docs.py::test_examples_run[history.md]": "spark",
}
ORDER = ("kafka-owned", "kafka-voted", "kafka", "spark", None)

# What a test needs follows from the fixtures that it uses, by itself or through others. A test
# that starts one of these in another process has the marker in its source.
MARKERS = {
    "start_kafka": "kafka",
    "kafka_cluster": "kafka",
    "spark": "spark",
    "browser": "browser",
}
# What tests of a module share: such a module is run by one worker.
_SHARED = re.compile(r"""scope="(module|package|session)"|@(lru_)?cache""")


def _watch() -> None:
    """Have a process end all that this one starts and leaves behind, however this one ends."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    variable = f"COUNTERPOISE_TEST_{(worker or 'run').upper()}"
    os.environ[variable] = uuid.uuid4().hex
    mark = f"{variable}={os.environ[variable]}"
    if worker is not None:
        reaper.start(mark, os.getpid())
        return
    # Temporary files of tests, and of the processes that they start.
    directory = tempfile.mkdtemp(prefix="cp-")
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    with_make = [os.getppid()] if "MAKELEVEL" in os.environ else []
    reaper.start(mark, os.getpid(), *with_make, remove=directory)


_watch()


@pytest.hookimpl(tryfirst=True)  # before pytest makes its own
def pytest_configure(config: pytest.Config) -> None:
    """Keep files of tests in the directory of the run, under short names."""
    if "PYTEST_XDIST_WORKER" not in os.environ and config.option.basetemp is None:
        config.option.basetemp = Path(tempfile.gettempdir()) / "files"


def _group(nodeid: str) -> str | None:
    path = nodeid.partition("::")[0]
    if path.startswith("tests/kafka/"):
        return kafka_group(Path(path).name)
    return next((GROUPS[start] for start in GROUPS if nodeid.startswith(start)), None)


@cache
def _shares(path: str) -> bool:
    file = HERE.parent / path
    return file.suffix != ".py" or bool(_SHARED.search(file.read_text(encoding="utf-8")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give workers groups, modules whose tests share something, and single tests.

    In the order of `pytest_collection_modifyitems`. In place of marks and ``--dist loadgroup``,
    which pytest-xdist 3.8 ignores without a word beside pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByNeed(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path, _, test = nodeid.partition("::")
            alone = path.startswith("tests/") and not _shares(path)
            return _group(nodeid) or (f"{path}::{test.partition('[')[0]}" if alone else path)

    config.option.loadscopereorder = False
    return ByNeed(config, log)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need; groups come first, then modules that take long.

    These are the modules with the most tests marked as slow. Of what is left at the end, when
    another worker may have nothing to do, every module is short.
    """
    for item in items:
        for fixture in MARKERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKERS[fixture])
    slow = Counter(item.path for item in items if _takes_long(item))
    items.sort(
        key=lambda item: (
            ORDER.index(_group(item.nodeid)),
            place(item.path.name),
            -slow[item.path],
        )
    )


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "spark", "browser"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Share one session among all tests: starting one takes longer than most tests."""
    from cluster_model.history.session import spark_session

    # Workers end after a minute without work, and their imports took longer than what they do.
    ready = {"spark.python.daemon.module": "ready_workers"}
    # Spark leaves a directory where it starts if it is killed; it reads files from where we are.
    with chdir(tempfile.gettempdir()):
        found = spark_session("local[2]", delta=True, config=ready)
    read_from(found, Path.cwd())
    yield found
    found.stop()
