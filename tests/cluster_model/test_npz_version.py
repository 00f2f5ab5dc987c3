"""The version in an npz snapshot may be of any type; only a whole number is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cluster_model import InputError, load_snapshot, save_snapshot, synthetic_snapshot


@pytest.mark.parametrize("version", [np.array("1"), np.array(["1", "2"]), np.array([1]), 1.5])
def test_a_version_of_another_type_is_reported_in_a_sentence(
    tmp_path: Path, version: object
) -> None:
    path = tmp_path / "s.npz"
    save_snapshot(synthetic_snapshot(brokers=4, partitions=8, racks=2, topics=2), path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "schema_version": np.asarray(version)})
    with pytest.raises(InputError, match=r"schema_version .* found, 1 expected"):
        load_snapshot(path)
