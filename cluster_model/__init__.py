"""Models the cluster as arrays: snapshots, their sources and their files."""

from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "cluster_model.build": (
                "BrokerRecord",
                "DiskRecord",
                "PartitionRecord",
                "SnapshotDocument",
                "TrafficRecord",
                "build_snapshot",
            ),
            "cluster_model.errors": ("InputError", "SnapshotError"),
            "cluster_model.files": ("load_snapshot", "save_snapshot"),
            "cluster_model.snapshot": ("DEFAULT_RESOURCES", "BrokerState", "Snapshot"),
            "cluster_model.snapshot_readers": ("SnapshotReader",),
            "cluster_model.synthetic": ("synthetic_snapshot",),
        },
    )

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
