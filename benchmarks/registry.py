"""Registers benchmarks; defines the options they receive and the rows they return.

A new benchmark is a new module of this package with one function::

    @benchmark("balance", sizes=("S", "M"))
    def balance(sizes: Sequence[str], options: Options) -> Iterator[Row]:
        \"\"\"One line that the list shows.\"\"\"
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cluster_model import InputError


class BenchmarkError(InputError):
    """A benchmark cannot be run, or a subject failed in it."""


class Row(NamedTuple):
    """One measured value."""

    benchmark: str
    size: str
    subject: str
    metric: str
    value: float
    unit: str


def _print(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Options:
    """Options that the command line passes to every benchmark.

    Parameters
    ----------
    subjects
        Names of the subjects to measure; empty for all.
    peer_timeout
        Seconds of search that a peer may take.
    peer_python
        An interpreter that already has the peer installed; None creates one.
    seed
        Seed of synthetic inputs.
    rounds
        Number of rounds of a benchmark that has rounds; None for the default of its size.
    pictures
        Folder for a benchmark's pictures; None to draw nothing.
    log
        Called with sentences on the progress.
    """

    subjects: tuple[str, ...] = ()
    peer_timeout: float = 600.0
    peer_python: Path | None = None
    seed: int = 0
    rounds: int | None = None
    pictures: Path | None = None
    log: Callable[[str], None] = _print


Run = Callable[[Sequence[str], Options], Iterator[Row]]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its name, its sizes from small to large, and its function."""

    name: str
    sizes: tuple[str, ...]
    run: Run

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (self.run.__doc__ or "").strip().split("\n")[0]


_known: dict[str, Benchmark] = {}


def benchmark(name: str, *, sizes: Sequence[str]) -> Callable[[Run], Run]:
    """Register the decorated function under `name`."""

    def register(run: Run) -> Run:
        _known[name] = Benchmark(name, tuple(sizes), run)
        return run

    return register


def all_benchmarks() -> dict[str, Benchmark]:
    """Every benchmark of this package by name; imports its modules to find them."""
    package = importlib.import_module("benchmarks")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg and module.name != "__main__":
            importlib.import_module(f"benchmarks.{module.name}")
    return dict(sorted(_known.items()))


def find(name: str, sizes: Sequence[str]) -> Benchmark:
    """The benchmark called `name`, which knows all of `sizes`.

    Raises
    ------
    BenchmarkError
        For an unknown name or size, with the known ones.
    """
    known = all_benchmarks()
    if name not in known:
        raise BenchmarkError(f"no benchmark {name!r}; there are {', '.join(known)}")
    for size in sizes:
        if size not in known[name].sizes:
            raise BenchmarkError(
                f"benchmark {name} has no size {size!r}; it has {', '.join(known[name].sizes)}"
            )
    return known[name]
