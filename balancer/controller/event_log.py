"""Keeps, logs and sends decisions and findings, with secrets hidden."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from balancer.controller.decision import NOTIFIED_KINDS, Decision
from balancer.controller.finding import Finding
from balancer.controller.protocols import Notifier
from balancer.controller.redact import Redactor

log = logging.getLogger("counterpoise.controller")


class EventLog:
    """The last decisions, and where they are sent.

    Parameters
    ----------
    keep
        How many decisions to keep.
    notifiers
        Receive decisions that matter to people, and findings that are new, changed or over.
    redactor
        Hides secrets in everything that is kept, logged and sent.
    """

    def __init__(self, keep: int, notifiers: Iterable[Notifier], redactor: Redactor) -> None:
        self._notifiers = tuple(notifiers)
        self._hide = redactor
        self._lock = threading.Lock()
        self._decisions: deque[Decision] = deque(maxlen=keep)
        self._alerts: dict[tuple[str, str], Finding] = {}
        # Repeated decisions alternate, such as a cool-down and the attempt after it.
        self._logged: set[tuple[str, str | None]] = set()
        self._subjects: frozenset[tuple[str, str]] = frozenset()

    @property
    def notifiers(self) -> tuple[Notifier, ...]:
        """The receivers of events."""
        return self._notifiers

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Oldest first."""
        with self._lock:
            return tuple(self._decisions)

    def keep_last(self, keep: int) -> None:
        """Change how many decisions are kept."""
        with self._lock:
            self._decisions = deque(self._decisions, maxlen=keep)

    def notify(self, notifiers: Iterable[Notifier], redactor: Redactor) -> None:
        """Replace the receivers and the secrets to hide."""
        self._notifiers, self._hide = tuple(notifiers), redactor

    def decided(self, decision: Decision) -> Decision:
        """Keep a decision; log it if it differs from the last one; notify people of some kinds.

        Returns
        -------
        Decision
            Without secrets.
        """
        record = self._hide.data(decision.record())
        shown = {name: record[name] for name in ("reason", "facts", "plan", "outcome")}
        decision = replace(decision, **shown)
        with self._lock:
            last = self._decisions[-1] if self._decisions else None
            self._decisions.append(decision)
            again = last is not None and last.kind == decision.kind
            said_again = again and last is not None and last.reason == decision.reason
            notified = decision.kind in NOTIFIED_KINDS and not said_again
            level = logging.INFO if self._is_new(decision, notified) else logging.DEBUG
        log.log(level, "%s: %s", decision.kind, decision.reason)
        if notified:
            self._notify({"event": decision.kind, "text": decision.reason, **record})
        return decision

    def _is_new(self, decision: Decision, notified: bool) -> bool:
        """Whether it was not logged yet, for the same findings and since the last notification."""
        subjects = frozenset((f.kind, f.subject) for f in decision.findings)
        if notified or subjects != self._subjects:
            self._subjects = subjects
            self._logged.clear()
        quiet = (decision.kind, decision.cause)
        fresh = notified or (decision.kind not in NOTIFIED_KINDS and quiet not in self._logged)
        self._logged.add(quiet)
        return fresh

    def found(self, findings: Iterable[Finding], now: float, *, notify: bool) -> None:
        """Report findings that are new or have another state, and those that are over.

        If another controller reports (`notify` is False), nothing is sent and nothing counts as
        reported: findings that remain when this one starts to act may be new to everyone.
        """
        there = {(f.kind, f.subject): f for f in findings if f.alert}
        if not notify:
            self._alerts = {key: f for key, f in self._alerts.items() if key in there}
            return
        for key, finding in there.items():
            known = self._alerts.get(key)
            if known is None or _reported_of(known) != _reported_of(finding):
                self._event("finding", finding.sentence, finding, now)
        for key in self._alerts.keys() - there.keys():
            finding = self._alerts[key]
            said = f"{finding.kind.replace('_', ' ')}: {finding.subject} is no longer among them"
            self._event("over", said, finding, now)
        self._alerts = there

    def note(self, text: str) -> None:
        """Log a message that is not a decision."""
        log.info("%s", self._hide(text))

    def trace(self) -> None:
        """Log the exception being handled, for debugging."""
        log.debug("%s", self._hide(traceback.format_exc()))

    def hidden(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Data without secrets."""
        shown: dict[str, Any] = self._hide.data(data)
        return shown

    def _event(self, event: str, text: str, finding: Finding, now: float) -> None:
        shown = self.hidden(
            {"event": event, "time": now, "text": text, "finding": finding.record()}
        )
        log.warning("%s", shown["text"])
        self._notify(shown)

    def _notify(self, event: Mapping[str, Any]) -> None:
        for notifier in self._notifiers:
            try:
                notifier(event)
            except Exception:
                log.error("a notifier failed")
                self.trace()


def _reported_of(finding: Finding) -> tuple[Any, ...]:
    """The parts of a finding that are reported again when they change."""
    return finding.state, finding.data.get("changed")
