"""Snapshots on disk: JSON for people and small clusters, npz for a million replicas."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import ValidationError

from cluster_model.build import SnapshotDocument, build_snapshot, to_document
from cluster_model.errors import SnapshotError
from cluster_model.snapshot import Snapshot

SCHEMA_VERSION = 1


def save_snapshot(snapshot: Snapshot, path: str | Path) -> None:
    """Write a snapshot, atomically; the suffix (``.json`` or ``.npz``) chooses the format.

    Raises
    ------
    SnapshotError
        For any other suffix.
    """
    path = Path(path)
    if path.suffix == ".json":
        document = {"schema_version": SCHEMA_VERSION, **to_document(snapshot)}
        write_atomically(path, lambda f: f.write(json.dumps(document, indent=1).encode()))
    elif path.suffix == ".npz":
        arrays: dict[str, Any] = {
            f.name: np.asarray(getattr(snapshot, f.name)) for f in fields(snapshot)
        }
        for name, array in arrays.items():
            if array.size == 0 and isinstance(getattr(snapshot, name), tuple):
                arrays[name] = np.empty(0, np.str_)
        write_atomically(
            path, lambda f: np.savez_compressed(f, schema_version=SCHEMA_VERSION, **arrays)
        )
    else:
        raise SnapshotError(f"snapshot file {path}: suffix .json or .npz expected")


def load_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot written by :func:`save_snapshot`, or a JSON document written by hand.

    Raises
    ------
    SnapshotError
        For a missing or unreadable file, an unknown schema version, or content
        that contradicts itself, in one sentence that names the place.
    """
    path = Path(path)
    try:
        if path.suffix == ".json":
            return _load_json(path)
        if path.suffix == ".npz":
            return _load_npz(path)
    except OSError as error:
        raise SnapshotError(f"snapshot file {path}: {error.strerror or error}") from None
    except SnapshotError as error:
        raise SnapshotError(f"snapshot file {path}: {error}") from None
    raise SnapshotError(f"snapshot file {path}: suffix .json or .npz expected")


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Let `write` fill a temporary neighbour, then put it in the place of `path`.

    The file is its owner's only: what a cluster looks like is not everybody's business.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            write(f)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _load_json(path: Path) -> Snapshot:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise SnapshotError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise SnapshotError("a JSON object expected at the top")
    _check_version(document.pop("schema_version", None))
    return build_snapshot(_validated(document))


def _validated(document: dict[str, Any]) -> SnapshotDocument:
    try:
        return SnapshotDocument.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        found = "" if first["type"] == "missing" else f" ({first['input']!r} found)"
        raise SnapshotError(f"{place}: {first['msg']}{found}") from None


def _load_npz(path: Path) -> Snapshot:
    try:
        with np.load(path, allow_pickle=False) as data:
            _check_version(data["schema_version"].item() if "schema_version" in data else None)
            values = {f.name: data[f.name] for f in fields(Snapshot) if f.name in data}
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"not an npz archive: {error}") from None
    needed = {f.name for f in fields(Snapshot)} - values.keys()
    if needed:
        raise SnapshotError(f"field {min(needed)} is missing")
    return Snapshot(**values)


def _check_version(version: object) -> None:
    if version != SCHEMA_VERSION:
        raise SnapshotError(
            f"schema_version {version!r} found, {SCHEMA_VERSION} expected by this release"
        )
