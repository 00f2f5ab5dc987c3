"""The controller: watches a cluster, detects problems, proposes and executes plans."""

import logging
from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
    from balancer.controller.added_detectors import DetectorPlugin
    from balancer.controller.controller import Controller, ControllerError
    from balancer.controller.decision import Decision
    from balancer.controller.election import Election
    from balancer.controller.endpoint import Endpoint
    from balancer.controller.execution_runner import at_once, in_thread
    from balancer.controller.feed import MeasuredCluster, PlainCluster
    from balancer.controller.finding import Finding, View
    from balancer.controller.notify import WebhookNotifier, log_notifier
    from balancer.controller.protocols import NotifierPlugin
    from balancer.controller.redact import Redactor
    from balancer.controller.settings import Settings, SettingsError, load_settings
    from balancer.controller.settings_file import SettingsFile
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "balancer.controller.added_detectors": ("DetectorPlugin",),
            "balancer.controller.controller": ("Controller", "ControllerError"),
            "balancer.controller.decision": ("Decision",),
            "balancer.controller.election": ("Election",),
            "balancer.controller.endpoint": ("Endpoint",),
            "balancer.controller.execution_runner": ("at_once", "in_thread"),
            "balancer.controller.feed": ("MeasuredCluster", "PlainCluster"),
            "balancer.controller.finding": ("Finding", "View"),
            "balancer.controller.notify": ("WebhookNotifier", "log_notifier"),
            "balancer.controller.protocols": ("NotifierPlugin",),
            "balancer.controller.redact": ("Redactor",),
            "balancer.controller.settings": ("Settings", "SettingsError", "load_settings"),
            "balancer.controller.settings_file": ("SettingsFile",),
        },
    )

# The embedding program decides where the log goes.
logging.getLogger("counterpoise").addHandler(logging.NullHandler())

__all__ = [
    "Controller",
    "ControllerError",
    "Decision",
    "DetectorPlugin",
    "Election",
    "Endpoint",
    "Finding",
    "MeasuredCluster",
    "NotifierPlugin",
    "PlainCluster",
    "Redactor",
    "Settings",
    "SettingsError",
    "SettingsFile",
    "View",
    "WebhookNotifier",
    "at_once",
    "in_thread",
    "load_settings",
    "log_notifier",
]
