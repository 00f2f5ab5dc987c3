"""A running controller on a cluster that executes at once, and a client of its server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from balancer import Balancer
from balancer.approval import Approvals, ProposalStore, changes_since
from balancer.controller import Controller, Settings
from balancer.execution import ChangedClusterError
from balancer.execution.steering import Steering
from balancer.planning.document import PlanDocument
from balancer.server import Server, ServerSettings, Service
from balancer.server.audit import AuditLog
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.trust import Distrust
