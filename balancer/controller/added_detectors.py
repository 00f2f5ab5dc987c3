"""Runs a detector of another package: within a time limit, and without trusting its answer."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol, get_args

from balancer.controller.finding import Finding, FindingState, FirstSeen, View, span
from balancer.controller.plugins import DETECTORS, PluginError
from balancer.controller.settings import AddedDetector
from balancer.problem.operation import Operation
from metrics_reporter.documents import clipped, json_text, shown

log = logging.getLogger("counterpoise.controller")

# Maximum number of findings of one look: more would only flood the reader.
_MOST = 1000


class DetectorPlugin(Protocol):
    """What another package implements: a class that looks at the cluster and returns what is wrong.

    It may remember what it saw in earlier rounds. Whatever it raises is reported, and the round
    continues without it.
    """

    def look(self, view: View) -> Iterable[Finding]:
        """The current findings.

        Each needs a `subject`, the same from round to round and different from the others', and a
        `sentence`. With an `operation` that would fix it, and unless its `state` says otherwise,
        the controller acts on it once its grace period has passed, within the limits of all plans.
        """


class AddedDetectorRunner:
    """A detector of another package, as the controller sees it.

    A look runs in its own thread. If it takes too long, the round continues without it, and it
    is not asked again before that look has ended. Whatever it states, its findings have its own
    name, begin when they were first seen, and wait for their grace period: it gets no exception
    from limits, and not the grace period of dead brokers.

    Parameters
    ----------
    name
        Name of the detector.
    settings
        Its settings.

    Attributes
    ----------
    failures : int
        Looks without an answer since the start.
    """

    def __init__(self, name: str, settings: AddedDetector) -> None:
        self.settings = settings
        self.failures = 0
        self._name = name
        self._detector: Any = None
        self._seen = FirstSeen()
        self._looking: threading.Thread | None = None
        self._since = 0.0

    def look(self, view: View) -> list[Finding]:
        """The findings of the detector.

        Raises
        ------
        PluginError
            If there is no answer, or none that can be used.
        """
        try:
            found = self._answer(view)
        except PluginError:
            self.failures += 1
            raise
        since = self._seen.update([f.subject for f in found], view.now)
        return [self._dated(f, since[f.subject], view.now) for f in found]

    def _dated(self, finding: Finding, since: float, now: float) -> Finding:
        state, sentence = finding.state, finding.sentence
        if state == "ripe" and finding.operation is None:
            state = "notice"
        if state == "ripe" and now - since < self.settings.grace:
            state = "waiting"
            does = "acted on" if self.settings.act else "reported"
            sentence = f"{sentence}; it is {does} after {span(self.settings.grace)}"
        return replace(
            finding, kind=self._name, state=state, sentence=sentence, since=since, added=True
        )

    def _answer(self, view: View) -> list[Finding]:
        if self._looking is not None and self._looking.is_alive():
            raise PluginError(f"the look it began {span(view.now - self._since)} ago has not ended")
        answer: list[list[Finding] | BaseException] = []
        self._looking = threading.Thread(
            target=self._look, args=(view, answer), name=f"detector {self._name}", daemon=True
        )
        self._since = view.now
        self._looking.start()
        self._looking.join(self.settings.timeout)
        if not answer:
            raise PluginError(f"it has not answered within {span(self.settings.timeout)}")
        self._looking = None
        found = answer[0]
        if isinstance(found, PluginError):
            raise found
        if isinstance(found, BaseException):
            said = clipped(" ".join(str(found).split()))
            raise PluginError(f"it failed ({type(found).__name__}: {said})")
        return found

    def _look(self, view: View, answer: list[list[Finding] | BaseException]) -> None:
        try:
            if self._detector is None:
                self._detector = DETECTORS.make(self._name, self.settings.options, hide=True)
            answer.append(_checked(self._detector.look(view)))
        # Even an attempt to end the process is only a failed look.
        except BaseException as error:
            log.debug("detector %s", self._name, exc_info=True)
            answer.append(error)


def _checked(found: Any) -> list[Finding]:
    """The findings, if they are valid; with data that everything else can read.

    Raises
    ------
    PluginError
        Naming the first invalid one.
    """
    checked: dict[str, Finding] = {}
    for each in found:
        if not isinstance(each, Finding):
            raise PluginError(f"{shown(each)} found, a Finding expected")
        for field in ("subject", "sentence"):
            text = getattr(each, field)
            if not isinstance(text, str) or not text.strip():
                raise PluginError(f"a finding's {field}: {shown(text)} found, text expected")
        if each.state not in get_args(FindingState):
            known = ", ".join(get_args(FindingState))
            raise PluginError(
                f"{shown(each.subject)}: state {shown(each.state)} found, one of {known} expected"
            )
        if each.operation is not None and not isinstance(each.operation, Operation):
            raise PluginError(
                f"{shown(each.subject)}: operation {shown(each.operation)} found, an Operation "
                "or None expected"
            )
        if each.subject in checked:
            raise PluginError(
                f"subject {shown(each.subject)} found twice, a different one for each expected"
            )
        if len(checked) == _MOST:
            raise PluginError(f"more than {_MOST:,} findings found, fewer expected")
        checked[each.subject] = replace(
            each,
            sentence=clipped(" ".join(each.sentence.split())),
            data=json.loads(json_text(dict(each.data))),
            alert=bool(each.alert),
            holds=bool(each.holds),
        )
    return list(checked.values())
