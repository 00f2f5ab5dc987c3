"""Capacities in the form that people write, with units."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_model.capacities import CapacityError, as_capacities, load_capacities


def test_bytes_and_rates_are_taken_with_their_unit(tmp_path: Path) -> None:
    file = tmp_path / "capacity.yaml"
    file.write_text(
        "default: {disk: 2TB, network_in: 100MB/s, cpu: 800}\nbrokers: {7: {disk: 4TiB}}\n"
    )
    found = load_capacities(file)
    assert found.of(1) == {"disk": 2e12, "network_in": 1e8, "cpu": 800.0}
    assert found.of(7)["disk"] == 4 * 2**40
    assert as_capacities({"disk": "1GB"}).of(0) == {"disk": 1e9}


@pytest.mark.parametrize(
    "text",
    ["disk: 2XB", "network_out: fast", "disk: 2TB/s", "cpu: 8GB", "disk: 2Tb"],
)
def test_a_wrong_unit_names_file_key_value_and_form(tmp_path: Path, text: str) -> None:
    file = tmp_path / "capacity.yaml"
    file.write_text(f"default: {{{text}}}\n")
    name, _, value = text.partition(": ")
    with pytest.raises(CapacityError) as error:
        load_capacities(file)
    assert str(error.value).startswith(f"capacity file {file}: default.{name}: '{value}' found, ")
    assert "of disk also like 2TB, of network like 100MB/s" in str(error.value)


@pytest.mark.parametrize("name", ["network-in", "Disk", "dsk", "CPU", "networkin", "net_out"])
@pytest.mark.parametrize("place", ["default", "brokers.7"])
def test_a_mistyped_resource_names_the_known_ones(tmp_path: Path, name: str, place: str) -> None:
    file = tmp_path / "capacity.yaml"
    own = f"{{cpu: 800, {name}: 1000}}"
    file.write_text(f"default: {own}\n" if place == "default" else f"brokers: {{7: {own}}}\n")
    with pytest.raises(CapacityError) as error:
        load_capacities(file)
    said = str(error.value)
    assert said.startswith(f"capacity file {file}: {place}: resource '{name}' found, ")
    assert said.endswith("known are cpu, network_in, network_out, disk")


def test_other_resources_are_taken() -> None:
    assert as_capacities({"gpu": 1.0, "mem": 2.0}).of(1) == {"gpu": 1.0, "mem": 2.0}
    assert as_capacities({"network_io": 1.0}, ["network_io"]).of(1) == {"network_io": 1.0}


@pytest.mark.parametrize("broker", ["7.0", "'7.0'", "true", "seven"])
def test_a_broker_is_a_whole_number(tmp_path: Path, broker: str) -> None:
    file = tmp_path / "capacity.yaml"
    file.write_text(f"brokers: {{{broker}: {{disk: 1000}}}}\n")
    with pytest.raises(CapacityError, match="found, a broker id expected"):
        load_capacities(file)
