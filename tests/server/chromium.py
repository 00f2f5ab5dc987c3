"""Drives a headless Chromium over a pipe (DevTools protocol): no driver, no port, no package."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Chromium reads commands from descriptor 3 and writes answers to 4; a test may have both in use.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe"
)
# Long: a busy machine must not fail a test, and what does not happen fails it anyway.
_SECONDS = 180.0


class BrowserError(Exception):
    """What the browser, or a script in the page, says is wrong."""


def chromium_path() -> str:
    """Path of a Chromium.

    Raises
    ------
    BrowserError
        If there is none: a test that needs one fails, and is not skipped.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise BrowserError("no chromium found: install it with `apt-get install -y chromium`")
    return found


class Tab:
    """One page of a browser.

    Attributes
    ----------
    events : list of dict
        Everything that the browser reported: ``method`` and ``params``.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self.events: list[dict[str, Any]] = []
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._arrived = threading.Condition()
        self._results: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._ended = False
        self._session: str | None = None
        threading.Thread(target=self._read, daemon=True).start()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Performance", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._results or self._ended, _SECONDS)
            found = self._results.pop(number, None)
        if found is None:
            raise BrowserError(f"{method}: no answer")
        if "error" in found:
            raise BrowserError(f"{method}: {found['error']['message']}")
        result: dict[str, Any] = found["result"]
        return result

    def open(self, url: str) -> None:
        """Load a page and wait until its view is shown."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.body.dataset.ready === 'yes'")

    def show(self, place: str) -> None:
        """Change the part of the address after ``#``, and wait until that view is shown."""
        self.run(f"document.body.dataset.ready = 'no'; location.hash = {json.dumps(place)}")
        self.wait("document.body.dataset.ready === 'yes'")

    def run(self, script: str) -> Any:
        """The value of an expression, or of the promise that it makes."""
        done = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            problem = done["exceptionDetails"]
            said = problem.get("exception", {}).get("description", problem["text"])
            raise BrowserError(f"{script[:200]}: {said}")
        return done["result"].get("value")

    def wait(self, condition: str, seconds: float = _SECONDS) -> Any:
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self.run(condition)
            except BrowserError as error:
                # a navigation ends the page that was asked
                found, why = None, str(error)
            else:
                why = "still false"
            if found:
                return found
            if time.monotonic() > deadline:
                text = self.run("document.body.innerText")
                raise BrowserError(f"{condition}: {why}; the page says:\n{text[:3000]}")
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Press keys by name, such as ``Tab``; anything of one letter is typed."""
        for key in keys:
            codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, " ": 32}
            code = codes.get(key, ord(key[0].upper()))
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            kind = "keyDown" if text else "rawKeyDown"
            self.send(
                "Input.dispatchKeyEvent", type=kind, **common, **({"text": text} if text else {})
            )
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type text into what has the focus."""
        self.send("Input.insertText", text=text)

    def metrics(self) -> dict[str, float]:
        """Figures of the page's main thread, by name: ``TaskDuration`` in seconds."""
        found = self.send("Performance.getMetrics")["metrics"]
        return {m["name"]: m["value"] for m in found}

    def problems(self) -> list[str]:
        """Exceptions of scripts, and errors that the browser logged."""
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error":
                    found.append(f"{entry['text']} {entry.get('url', '')}")
        return found

    def received(self) -> dict[str, int]:
        """Bytes received by path of the address."""
        paths: dict[str, str] = {}
        found: dict[str, int] = {}
        for event in self.events:
            params = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                paths[params["requestId"]] = params["request"]["url"]
            elif event["method"] == "Network.dataReceived":
                path = paths.get(params["requestId"], "")
                found[path] = found.get(path, 0) + params["dataLength"]
        return found

    def close(self) -> None:
        """Close the pipe; the browser ends."""
        self._commands.close()

    def _read(self) -> None:
        rest = b""
        while part := self._answers.read(1 << 16):
            *messages, rest = (rest + part).split(b"\0")
            with self._arrived:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._results[message["id"]] = message
                    else:
                        self.events.append(message)
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()


@contextmanager
def tab(profile: Path, flags: Sequence[str] = ()) -> Iterator[Tab]:
    """A page of a browser of its own, for as long as the context is open."""
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in (theirs_in, theirs_out)]
    command = [sys.executable, "-c", _START, *map(str, high), chromium_path(), *_FLAGS.split()]
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", *flags],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    for number in (theirs_in, theirs_out, *high):
        os.close(number)
    found: Tab | None = None
    try:
        found = Tab(commands, answers)
        yield found
    finally:
        if found is not None:
            found.close()
        _end(process.wait, process.kill)


def _end(wait: Callable[..., Any], kill: Callable[[], None]) -> None:
    try:
        wait(5.0)
    except subprocess.TimeoutExpired:
        kill()
        wait()
