"""The page on the history's data has its files, fields and columns as the code has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

pytest.importorskip("pyspark")
from pyspark.sql import types as t

from balancer.backtest.tables import tables
from cluster_model.history import schema
from cluster_model.history.columns import ColumnMapping, MetricSource, factor_of
from cluster_model.history.exposition import PageOptions
from cluster_model.history.prepared import KINDS
from cluster_model.history.tables import BROKER_LOADS, FORECAST_ERRORS, FORECASTS, REPLICA_LOADS
from metrics_reporter.documents import parse_yaml
from metrics_reporter.metrics import METRIC_TABLE
from metrics_reporter.prometheus_query import QueryOptions

PAGE = Path(__file__).parents[2] / "docs" / "history-data.md"
TEXT = PAGE.read_text(encoding="utf-8")
OUTPUTS = (REPLICA_LOADS, BROKER_LOADS, FORECASTS, FORECAST_ERRORS, *tables())
MODELS: dict[str, type[BaseModel]] = {
    "columns.yaml": ColumnMapping,
    "queries.yaml": QueryOptions,
    "pages.yaml": PageOptions,
}
# Name, description and schema of the table of archives, and of kinds of rows of prepared histories.
ARCHIVED = ("messages", "of an archive: a message of a metrics topic, or a record.", schema.DECODED)
PREPARED = (
    ("cells", "samples of a partition in a window.", schema.PARTITION_SUMS),
    ("broker_cells", "samples of a broker in a window.", schema.BROKER_SUMS),
    ("sizes", "sizes of replicas.", schema.SIZES),
    ("traffic", "traffic between partitions.", schema.TRAFFIC),
    ("further", "further resources.", schema.FURTHER_SUMS),
    ("quarantine", "what does not count.", schema.QUARANTINE),
    ("arrivals", "newest windows by arrival.", schema.ARRIVALS),
)

OF_ARCHIVES = """\
These tables of Delta Lake are read by the commands. Times that end with `_ms` are ms
since 1970 (UTC), rates B/s, sizes B; a `_sum` is that of as many samples as its `_count`,
and a `_guess` tells whether they are shares of a whole topic's. An archive has the table
`messages`, by `cluster` and `day` of arrival (UTC).
"""
OF_PREPARED = """\
A prepared history has the table `history`, by `kind`, `cluster` and `day` (UTC). Its
columns are those of all kinds; the others of a row are null. `day` is that of the window's
start, of arrivals that of the arrival, in quarantine that of the record, or, if it is too
far from its arrival, that of the arrival. The one row of kind `state` has no cluster and no
day; its column `state` string states in JSON what is prepared, from which versions of
archives, and by which parameters.
"""


def written() -> str:
    """The last part of the page."""
    lines: list[str] = []
    for table in OUTPUTS:
        lines += [f"### `{table.name}`", "", table.purpose, "", "| column | type | meaning |"]
        lines.append("| --- | --- | --- |")
        for field in table.schema:
            lines.append(f"| `{field.name}` | {_kind(field)} | {field.metadata['comment']} |")
        lines.append("")
    lines += [
        "### Archives and prepared histories",
        "",
        OF_ARCHIVES,
        *_paragraph(ARCHIVED),
        OF_PREPARED,
    ]
    for kind in PREPARED:
        lines += _paragraph(kind)
    return "\n".join(lines)


def _paragraph(stored: tuple[str, str, t.StructType]) -> list[str]:
    name, purpose, of = stored
    columns = ", ".join(f"`{field.name}` {_kind(field)}" for field in of)
    return [f"`{name}`, {purpose} {columns}", ""]


def _kind(field: t.StructField) -> str:
    return field.dataType.simpleString()


def test_the_columns_are_those_of_the_code() -> None:
    assert {name: of for name, _, of in PREPARED} == KINDS
    assert TEXT[TEXT.index("### `replica_loads`") :] == written()


def test_the_metrics_are_those_of_the_code() -> None:
    for metric in METRIC_TABLE:
        assert f"| `{metric.name}` | {metric.unit} | {', '.join(metric.scopes)} |\n" in TEXT


def test_the_files_are_valid() -> None:
    files = re.findall(r"```yaml\n# ([\w.]+)(.*?)```", TEXT, re.DOTALL)
    assert {name for name, _ in files} == MODELS.keys()
    for name, text in files:
        MODELS[name].model_validate(parse_yaml(text.partition("\n")[2]))


def test_the_fields_are_those_of_the_code() -> None:
    def fields(header: str) -> list[list[str]]:
        table = TEXT[TEXT.index(f"| {header} |") :].partition("\n\n")[0].splitlines()[2:]
        return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]

    named = [n for row in fields("field of a columns file") for n in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(ColumnMapping.model_fields)
    defaults: dict[str, Any] = {}
    for names, values, _ in fields("field of a query file"):
        found = re.findall(r"`(\w+)`", names)
        defaults |= dict(zip(found, values.split(", "), strict=True))
    assert defaults.keys() == QueryOptions.model_fields.keys()
    stated = {name: parse_yaml(text) for name, text in defaults.items() if name != "broker"}
    assert QueryOptions(broker="b", **stated) == QueryOptions(broker="b")  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["B", "kB", "TB", "KiB", "TiB", "bit", "Tbit"])
def test_the_units_are_known(unit: str) -> None:
    assert factor_of("size", MetricSource(unit=unit)) > 0
    for per in ("s", "min", "h"):
        assert factor_of("bytes_in", MetricSource(unit=f"{unit}/{per}")) > 0
