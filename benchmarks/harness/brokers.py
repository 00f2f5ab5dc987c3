"""Loads the tests' real Kafka for benchmarks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from benchmarks.registry import BenchmarkError


def real_kafka() -> ModuleType:
    """The module ``tests/kafka/real_kafka.py``, which is in no package.

    Raises
    ------
    BenchmarkError
        If the tests are not next to the benchmarks.
    """
    name = "real_kafka"
    if name in sys.modules:
        return sys.modules[name]
    path = Path(__file__).parents[2] / "tests" / "kafka" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise BenchmarkError(f"{path} not found: run the benchmarks in a checkout with its tests")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
