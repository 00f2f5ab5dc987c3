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
# Name, description and schema of the tables of archives and prepared histories.
STORED = (
    ("messages", "of an archive: a message of a metrics topic, or a record.", schema.DECODED),
    ("cells", "of a prepared history: samples of a partition in a window.", schema.PARTITION_SUMS),
    ("broker_cells", "of a prepared history: samples of a broker in a window.", schema.BROKER_SUMS),
    ("sizes", "of a prepared history: sizes of replicas.", schema.SIZES),
    ("traffic", "of a prepared history: traffic between partitions.", schema.TRAFFIC),
    ("further", "of a prepared history: further resources.", schema.FURTHER_SUMS),
    ("quarantine", "of a prepared history: what does not count.", schema.QUARANTINE),
)


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
        "These are read by the commands. Their rows are by `cluster` and `day` (UTC), in",
        "directories of these names. Times that end with `_ms` are ms since 1970 (UTC), rates B/s,",
        "sizes B; a `_sum` is that of as many samples as its `_count`, and a `_guess` tells",
        "whether they are shares of a whole topic's.",
        "",
    ]
    for name, purpose, of in STORED:
        columns = ", ".join(f"`{field.name}` {_kind(field)}" for field in of)
        lines += [f"`{name}`, {purpose} {columns}", ""]
    return "\n".join(lines)


def _kind(field: t.StructField) -> str:
    return field.dataType.simpleString()


def test_the_columns_are_those_of_the_code() -> None:
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
