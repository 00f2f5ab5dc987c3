"""The jobs of the ALBIC paper's experiments, over generated streams.

The paper's input data is not available, so only the shapes are the paper's: operators, key groups
and patterns (seed 001, Sections 5.2 to 5.4). The costs are chosen so that shipping is half of a
job's load if nothing is local, as Real Job 2's load index of 50 % shows.
"""

from __future__ import annotations

from benchmarks.harness.stream_job import (
    Conditions,
    Operator,
    Pattern,
    SimulatedJob,
    Stream,
    fluctuating,
    make_job,
)

_ONE, _FULL = Pattern.ONE_TO_ONE, Pattern.FULL_PARTITIONING
_SOME, _MERGE = Pattern.PARTIAL_PARTITIONING, Pattern.PARTIAL_MERGE
# Weather is reported less often than aeroplanes depart, and results are stored less often
# than they change.
_WEATHER, _STORED = 0.25, 0.25


def wikipedia(nodes: int, key_groups: int, *, seed: int = 0) -> SimulatedJob:
    """Real Job 1: articles by place, the most edited of each minute, and of all."""
    operators = [Operator(n, key_groups) for n in ("geo-hash", "top-k", "global-top-k")]
    streams = [Stream(0, 1, _FULL), Stream(1, 2, _FULL, rate=0.5)]
    return make_job(operators, streams, nodes=nodes, shipped=0.2, seed=seed)


def edits(job: SimulatedJob, periods: int, *, seed: int = 0) -> Conditions:
    """Input of Real Job 1: even over places, as Section 5.2 says, and uneven over articles."""
    return fluctuating(job, periods, even=0, seed=seed)


def airline(nodes: int, key_groups: int, *, job: int, seed: int = 0) -> SimulatedJob:
    """Real Jobs 2, 3 and 4: delays by aeroplane, by route, and joined with the weather.

    Both operators of Real Job 2 are parallelised in the same way; Real Job 3 adds one by route that
    cannot be collocated with them; Real Job 4 adds the rain of each route, the efficiency in
    intervals of rain, and stores.
    """
    names = ["extract-delay", "sum-delay"]
    streams = [Stream(0, 1, _ONE)]
    if job >= 3:
        names.append("route-delay")
        streams.append(Stream(0, 2, _FULL))
    if job >= 4:
        names += ["weather-input", "rain-score", "join", "efficiency"]
        names += ["store-delay", "store-route", "store-efficiency"]
        streams += [
            Stream(3, 4, _ONE),
            Stream(4, 5, _SOME),
            Stream(2, 5, _ONE),
            Stream(5, 6, _FULL, rate=0.5),
            Stream(1, 7, _ONE, rate=_STORED),
            Stream(2, 8, _MERGE, rate=_STORED),
            Stream(6, 9, _ONE, rate=_STORED),
        ]
    operators = [
        Operator(name, key_groups, enters=_WEATHER if name == "weather-input" else 1.0)
        for name in names
    ]
    return make_job(operators, streams, nodes=nodes, seed=seed)


def synthetic(
    nodes: int, key_groups: int, operators: int, *, obtainable: float, seed: int = 0
) -> SimulatedJob:
    """A chain of operators of which a share of the key groups communicates one-to-one.

    The others send to each other evenly (seed 001, Section 5.3).
    """
    each = key_groups // operators
    chain = [Operator(f"operator-{i}", each) for i in range(operators)]
    streams: list[Stream] = []
    for i in range(operators - 1):
        if obtainable > 0:
            streams.append(Stream(i, i + 1, _ONE, part=(0.0, obtainable)))
        if obtainable < 1:
            streams.append(Stream(i, i + 1, _FULL, part=(obtainable, 1.0)))
    return make_job(chain, streams, nodes=nodes, load=50.0, shipped=0.0, seed=seed)
