"""Makes the p95 loads of a history with DuckDB; run by an interpreter that has it installed.

Stands alone: numpy, the standard library and ``duckdb`` only, none of ours.

    python duckdb_history_solve.py RECORDS PROBLEM.npz ANSWER.npz

RECORDS is a directory of Parquet. PROBLEM.npz holds ``topic``, ``partition``, ``broker`` and
``leads`` of each replica (N,), and the scalars ``window``, ``windows``, ``samples``, ``max_rate``,
``max_size`` and ``max_cpu``; ANSWER.npz gets ``topic``, ``partition`` and a column for each load
(P,), and ``seconds``, the processor seconds of this process.

The answer is that of ``History.of_records(...).snapshot(statistic="p95")`` for a placement that
never changes, equal brokers, and records that name partitions and cpu: not for sums of topics, or
ratios of cpu.
"""

import os
import re
import sys
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import duckdb  # type: ignore[import-not-found]  # not in our environment
import numpy as np

_PARTITIONS = """
CREATE TEMP TABLE partitions AS
SELECT topic, partition, count(*) FILTER (NOT leads) AS followers
FROM replicas GROUP BY topic, partition
"""
_BROKERS = "CREATE TEMP TABLE brokers AS SELECT DISTINCT broker FROM replicas"
# Records of partitions that are not rejected on their own account, and which of them are late.
_JUDGED = """
CREATE TEMP TABLE judged AS
WITH given AS (
    SELECT batch, source_partition, source_offset, arrived_ms, time_ms, broker, topic, partition,
        CASE WHEN NOT isnan(bytes_in) THEN bytes_in END AS bytes_in,
        CASE WHEN NOT isnan(bytes_out) THEN bytes_out END AS bytes_out,
        CASE WHEN NOT isnan(size) THEN size END AS size,
        time_ms - time_ms % $window AS start_ms
    FROM read_parquet($records) WHERE topic IS NOT NULL
), known AS (
    SELECT g.*, r.leads,
        (bytes_in IS NOT NULL OR bytes_out IS NOT NULL) AND r.leads AS rated
    FROM given g JOIN replicas r USING (topic, partition, broker)
    WHERE time_ms >= 0 AND time_ms <= arrived_ms + $window
        AND coalesce(bytes_in, bytes_out, size) IS NOT NULL
        AND coalesce(bytes_in BETWEEN 0 AND $max_rate, true)
        AND coalesce(bytes_out BETWEEN 0 AND $max_rate, true)
        AND coalesce(size BETWEEN 0 AND $max_size, true)
), arrivals AS (
    SELECT batch, max(max(start_ms) FILTER (rated)) OVER (ORDER BY batch) AS newest_ms
    FROM known GROUP BY batch
)
SELECT k.*, rated AND start_ms < newest_ms - $windows * $window AS late
FROM known k JOIN arrivals USING (batch)
"""
_SUMS = """
CREATE TEMP TABLE sums AS
WITH once AS (
    SELECT topic, partition, broker, start_ms,
        first(bytes_in ORDER BY batch, source_partition, source_offset)
            FILTER (bytes_in IS NOT NULL) AS bytes_in,
        first(bytes_out ORDER BY batch, source_partition, source_offset)
            FILTER (bytes_out IS NOT NULL) AS bytes_out
    FROM judged WHERE rated AND NOT coalesce(late, false)
    GROUP BY topic, partition, broker, start_ms, time_ms
)
SELECT topic, partition, broker, start_ms,
    coalesce(sum(bytes_in), 0) AS in_sum, count(bytes_in) AS in_count,
    coalesce(sum(bytes_out), 0) AS out_sum, count(bytes_out) AS out_count
FROM once GROUP BY topic, partition, broker, start_ms
"""
_SIZES = """
CREATE TEMP TABLE sizes AS
SELECT topic, partition, broker, start_ms, any_value(leads) AS leads,
    max(time_ms) AS time_ms,
    arg_max(size, (time_ms, -batch, -source_partition, -source_offset)) AS size
FROM judged WHERE size IS NOT NULL
GROUP BY topic, partition, broker, start_ms
"""
_RANGE = "SELECT min(start_ms), max(start_ms) FROM sums"
# A rate of a window without samples is the mean of both neighbours, if these have enough.
_WINDOWS = """
CREATE TEMP TABLE windows AS
WITH own AS (
    SELECT * FROM sums WHERE start_ms >= $first AND start_ms < $end
), gaps AS (
    SELECT topic, partition, broker, start_ms + $window AS start_ms,
        0.0 AS in_sum, 0 AS in_count, 0.0 AS out_sum, 0 AS out_count
    FROM (SELECT *, lead(start_ms) OVER along AS next_ms FROM own
          WINDOW along AS (PARTITION BY topic, partition ORDER BY start_ms))
    WHERE next_ms = start_ms + 2 * $window
), beside AS (
    SELECT *, lag(s) OVER along AS before, lead(s) OVER along AS after
    FROM (SELECT *, {'start_ms': start_ms, 'in_sum': in_sum, 'in_count': in_count,
                     'out_sum': out_sum, 'out_count': out_count} AS s
          FROM (SELECT * FROM own UNION ALL SELECT * FROM gaps))
    WINDOW along AS (PARTITION BY topic, partition ORDER BY start_ms)
), near AS (
    SELECT topic, partition, broker, start_ms, in_sum, in_count, out_sum, out_count,
        CASE WHEN before.start_ms = start_ms - $window THEN before END AS b,
        CASE WHEN after.start_ms = start_ms + $window THEN after END AS a
    FROM beside
), rates AS (
    SELECT topic, partition, broker, start_ms,
        CASE WHEN in_count > 0 THEN in_sum / in_count
             WHEN b.in_count >= $samples AND a.in_count >= $samples
             THEN (b.in_sum + a.in_sum) / (b.in_count + a.in_count) END AS bytes_in,
        CASE WHEN out_count > 0 THEN out_sum / out_count
             WHEN b.out_count >= $samples AND a.out_count >= $samples
             THEN (b.out_sum + a.out_sum) / (b.out_count + a.out_count) END AS bytes_out
    FROM near
)
SELECT r.*, p.followers, bytes_out + bytes_in * p.followers AS network_out
FROM rates r JOIN partitions p USING (topic, partition)
WHERE bytes_in IS NOT NULL OR bytes_out IS NOT NULL
"""
_TRAFFIC = """
CREATE TEMP TABLE traffic AS
WITH parts AS (
    SELECT broker, start_ms, coalesce(bytes_in, 0) AS leader_in,
        coalesce(bytes_out, 0) + coalesce(bytes_in, 0) * followers AS leader_out,
        0.0 AS follower_in
    FROM windows
    UNION ALL
    SELECT r.broker, start_ms, 0.0, 0.0, coalesce(bytes_in, 0)
    FROM windows JOIN replicas r USING (topic, partition) WHERE NOT r.leads
)
SELECT broker, start_ms, sum(leader_in) AS x0, sum(leader_out) AS x1, sum(follower_in) AS x2
FROM parts GROUP BY broker, start_ms
"""
_CPU = """
CREATE TEMP TABLE cpu AS
WITH known AS (
    SELECT r.*, time_ms - time_ms % $window AS start_ms
    FROM read_parquet($records) r JOIN brokers USING (broker)
    WHERE topic IS NULL AND time_ms >= 0 AND time_ms <= arrived_ms + $window
        AND cpu BETWEEN 0 AND $max_cpu
), arrivals AS (
    SELECT batch, max(max(start_ms)) OVER (ORDER BY batch) AS newest_ms FROM known GROUP BY batch
), once AS (
    SELECT broker, start_ms,
        first(cpu ORDER BY batch, source_partition, source_offset) AS cpu
    FROM known JOIN arrivals USING (batch)
    WHERE start_ms >= newest_ms - $windows * $window
    GROUP BY broker, start_ms, time_ms
)
SELECT broker, start_ms, sum(cpu) / count(*) AS y FROM once
WHERE start_ms >= $first AND start_ms < $end GROUP BY broker, start_ms
"""
_MOMENTS = """
SELECT sum(y), sum(x0), sum(x1), sum(x2), sum(x0 * y), sum(x1 * y), sum(x2 * y),
    sum(x0 * x0), sum(x0 * x1), sum(x0 * x2), sum(x1 * x1), sum(x1 * x2), sum(x2 * x2)
FROM traffic JOIN cpu USING (broker, start_ms)
"""
_LOADS = """
WITH of_windows AS (
    SELECT topic, partition, start_ms, max(size) FILTER (leads) AS leader,
        avg(size) FILTER (NOT leads) AS follower
    FROM sizes GROUP BY topic, partition, start_ms
), newest AS (
    SELECT topic, partition, max(size) FILTER (leads) AS leader,
        avg(size) FILTER (NOT leads) AS follower
    FROM (SELECT topic, partition, broker, any_value(leads) AS leads,
                 arg_max(size, time_ms) AS size
          FROM sizes WHERE start_ms < $end GROUP BY topic, partition, broker)
    GROUP BY topic, partition
)
SELECT w.topic, w.partition,
    quantile_cont($c0 * bytes_in + $c1 * network_out, 0.95) AS leader_cpu,
    quantile_cont(bytes_in, 0.95) AS network_in,
    quantile_cont(network_out, 0.95) AS network_out,
    greatest(quantile_cont(s.leader, 0.95), any_value(n.leader)) AS leader_disk,
    quantile_cont($c2 * bytes_in, 0.95) AS follower_cpu,
    greatest(quantile_cont(s.follower, 0.95), any_value(n.follower)) AS follower_disk
FROM windows w LEFT JOIN of_windows s USING (topic, partition, start_ms)
    LEFT JOIN newest n USING (topic, partition)
GROUP BY w.topic, w.partition
"""
# The usual weights of bytes, and how much they count beside what is measured.
_USUAL, _PRIOR = np.array([0.7, 0.15, 0.15]), 1e-6


def costs(moments: Any) -> Any:
    """Costs of bytes, at least 0 each, with the least squared error."""
    y, x, xy = moments[0], moments[1:4], moments[4:7]
    xx = np.zeros((3, 3))
    xx[np.triu_indices(3)] = moments[7:]
    xx = xx + np.triu(xx, 1).T
    scale = np.sqrt(np.diag(xx))
    seen = scale > 0
    unit = np.where(seen, scale, 1.0)
    prior = np.where(seen, _PRIOR, 1.0)
    a = xx / np.outer(unit, unit) + np.diag(prior)
    b = xy / unit + prior * _USUAL * (y / float(_USUAL @ x)) * unit
    best, least = np.zeros(3), 0.0
    for size in range(1, 4):
        for some in map(list, combinations(range(3), size)):
            c = np.zeros(3)
            c[some] = np.linalg.solve(a[np.ix_(some, some)], b[some])
            objective = float(c @ a @ c / 2 - b @ c)
            if (c >= 0).all() and objective < least:
                best, least = c, objective
    return best / unit


def run(db: Any, query: str, options: Mapping[str, Any]) -> Any:
    """Run a query with those of the options that it names."""
    named = {name: value for name, value in options.items() if re.search(rf"\${name}\b", query)}
    return db.execute(query, named)


def main(records: str, problem: str, answer: str) -> None:
    with np.load(problem) as stated:
        given = dict(stated)
    options: dict[str, Any] = {name: x.item() for name, x in given.items() if not x.ndim}
    options["records"] = f"{records}/*.parquet"
    db = duckdb.connect()
    db.register("stated", {name: x for name, x in given.items() if x.ndim})
    db.execute("CREATE TEMP TABLE replicas AS SELECT * FROM stated")
    db.execute(_PARTITIONS)
    db.execute(_BROKERS)
    for query in (_JUDGED, _SUMS, _SIZES):
        run(db, query, options)
    options["first"], options["end"] = db.execute(_RANGE).fetchone()
    for query in (_WINDOWS, _TRAFFIC, _CPU):
        run(db, query, options)
    cost = costs(np.array(db.execute(_MOMENTS).fetchone(), np.float64))
    options |= {f"c{i}": float(value) for i, value in enumerate(cost)}
    found: dict[str, Any] = {
        name: np.asarray(x) for name, x in run(db, _LOADS, options).fetchnumpy().items()
    }
    found["topic"] = found["topic"].astype(str)
    np.savez(answer, seconds=sum(os.times()[:4]), **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
