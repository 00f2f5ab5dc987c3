"""The controller: watches a cluster, detects problems, proposes and executes plans."""

import logging

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
