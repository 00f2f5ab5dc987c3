"""Models the cluster as arrays: snapshots, their sources and their files."""

from cluster_model.build import (
    BrokerRecord,
    DiskRecord,
    PartitionRecord,
    SnapshotDocument,
    TrafficRecord,
    build_snapshot,
)
from cluster_model.errors import InputError, SnapshotError
from cluster_model.files import load_snapshot, save_snapshot
from cluster_model.snapshot import DEFAULT_RESOURCES, BrokerState, Snapshot
from cluster_model.snapshot_readers import SnapshotReader
from cluster_model.synthetic import synthetic_snapshot

__all__ = [
    "DEFAULT_RESOURCES",
    "BrokerRecord",
    "BrokerState",
    "DiskRecord",
    "InputError",
    "PartitionRecord",
    "Snapshot",
    "SnapshotDocument",
    "SnapshotError",
    "SnapshotReader",
    "TrafficRecord",
    "build_snapshot",
    "load_snapshot",
    "save_snapshot",
    "synthetic_snapshot",
]
