from __future__ import annotations

import pytest

from cluster_model import synthetic_snapshot
from cluster_model.columns import Column
from cluster_model.placement import Placement
from goals import State

TEXTS = {
    "load.disk": Column("load", "disk"),
    "leader_load.network_in": Column("load", "network_in", "leader"),
    "former_load.disk": Column("former_load", "disk"),
    "potential_load.a.b": Column("load", "a.b", "potential"),
    "replica_count": Column("count"),
    "leader_count": Column("count", role="leader"),
    "traffic.1.5": Column("traffic", factor=1.5),
    "local_traffic.0.0": Column("local_traffic", factor=0.0),
    "capacity.cpu": Column("capacity", "cpu"),
    "broker": Column("broker"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_stands_for_its_column_and_back(text: str) -> None:
    assert Column.of(text) == TEXTS[text]
    assert str(TEXTS[text]) == text
    assert Column.of(TEXTS[text]) is TEXTS[text]


def test_only_sums_have_contributions_of_replicas() -> None:
    sums = {text for text, column in TEXTS.items() if column.is_sum}
    assert sums == TEXTS.keys() - {"capacity.cpu", "broker"}
    placement = Placement(synthetic_snapshot(brokers=3))
    with pytest.raises(ValueError, match=r"capacity\.cpu is not a sum over replicas"):
        placement.contribution("capacity.cpu")


def test_parts_are_columns_of_their_own() -> None:
    part = TEXTS["load.disk"]._replace(part=2)
    assert str(part) == "load.disk#2"
    assert part != TEXTS["load.disk"]


def test_a_state_is_read_by_column_and_by_text() -> None:
    state = State.of(load={"disk": [1.0, 2.0]}, replica_count=[3, 4])
    for read in ("load.disk", TEXTS["load.disk"]):
        assert state.column(read).tolist() == [1.0, 2.0]
    assert state.replica_count.tolist() == [3, 4]
    assert state.sums((Column("load", "disk"), Column("count"))).shape == (2, 2)
    with pytest.raises(AttributeError, match=r"no leader_count; it has load\.disk, replica_count"):
        _ = state.leader_count
