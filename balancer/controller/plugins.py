"""Finds notifiers and detectors by name, built in or from other packages.

Another package adds its own as an entry point of the group ``counterpoise.notifiers`` (a class
with a method ``send``) or ``counterpoise.detectors`` (a class with a method ``look``). Options
are the fields of a pydantic model.
"""

from __future__ import annotations

from typing import Any

from cluster_model.errors import InputError
from metrics_reporter.plugins import Plugins


class PluginError(InputError):
    """A notifier or detector that does not exist, or not with these options."""


NOTIFIERS: Plugins[type[Any]] = Plugins(
    group="counterpoise.notifiers",
    noun="notifier",
    built_in={
        "log": "balancer.controller.notify:LogNotifier",
        "webhook": "balancer.controller.settings:Webhook",
        "apprise": "balancer.controller.apprise_notifier:AppriseNotifier",
    },
    accepts=lambda found: isinstance(found, type) and callable(getattr(found, "send", None)),
    expected="a class with a method send",
    error=PluginError,
)

# The built-in ones have their own section in the settings.
DETECTORS: Plugins[type[Any]] = Plugins(
    group="counterpoise.detectors",
    noun="detector",
    built_in={
        "dead_brokers": "balancer.controller.detect:DeadBrokerDetector",
        "dead_disks": "balancer.controller.detect:DeadDiskDetector",
        "missing_replicas": "balancer.controller.detect:MissingReplicasDetector",
        "drained_brokers": "balancer.controller.detect:DrainedBrokerDetector",
        "slow_brokers": "balancer.controller.slow_brokers:SlowBrokerDetector",
        "stale_metrics": "balancer.controller.detect:StaleMetricsDetector",
        "distrusted_reporters": "balancer.controller.detect:DistrustedReporterDetector",
        "goal_violations": "balancer.controller.violations:GoalViolationDetector",
        # Without settings: they always look.
        "lost_partitions": "balancer.controller.lost_partitions:LostPartitionDetector",
        "unmatched_settings": "balancer.controller.unmatched_settings:UnmatchedSettingDetector",
    },
    accepts=lambda found: isinstance(found, type) and callable(getattr(found, "look", None)),
    expected="a class with a method look",
    error=PluginError,
)
