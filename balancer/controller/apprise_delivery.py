"""Delivers notifications through Apprise, in a process of its own.

:mod:`balancer.controller.apprise_notifier` starts it. Only a process can be ended whatever a
service does. Standard input has one line of JSON with the addresses and limits, which is answered
with the numbers of unknown addresses, and then a line for each event, which is answered with
whether all addresses accepted it, and with what Apprise said. Imports nothing of this project,
since it runs without its search path.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from contextlib import suppress
from typing import Any

# What a service answers is text of a few lines.
_LONGEST_REMARK = 500


class _Said(logging.Handler):
    """Keeps what Apprise logs: the reasons of failures."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.remarks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            self.remarks.append(" ".join(record.getMessage().split())[:_LONGEST_REMARK])


def main() -> None:
    """Open the addresses, and deliver events until standard input ends."""
    asked = json.loads(sys.stdin.readline())
    _limit_memory(asked["memory"])
    # The default effect of the signal ends this process, however Apprise or a service hangs.
    signal.setitimer(signal.ITIMER_REAL, asked["start"])
    from apprise import Apprise, AppriseAsset

    said = _Said()
    logger = logging.getLogger("apprise")
    logger.addHandler(said)
    logger.propagate = False
    # A redirect could reach what only this machine reaches; `?redirect=yes` allows it.
    asset = AppriseAsset(app_id="Counterpoise", app_desc="", http_redirects=False)
    receivers = Apprise(asset=asset)
    unknown = [i for i, url in enumerate(asked["urls"], start=1) if not _added(receivers, url)]
    signal.setitimer(signal.ITIMER_REAL, 0)
    _answer({"unknown": unknown})
    for line in sys.stdin:
        said.remarks.clear()
        signal.setitimer(signal.ITIMER_REAL, asked["seconds"])
        try:
            # As text: what people and other programs named is no HTML or Markdown.
            sent = bool(receivers.notify(**json.loads(line), body_format="text"))
        except Exception as error:
            sent = False
            said.remarks.append(type(error).__name__)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _answer({"sent": sent, "said": list(dict.fromkeys(said.remarks))})


def _added(receivers: Any, url: str) -> bool:
    try:
        return bool(receivers.add(url))
    except Exception:
        return False


def _limit_memory(most: int) -> None:
    """Limit the address space, so that a service cannot fill the memory by its answers."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _answer(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
