"""Passes decisions, proposals and progress on to clients that follow them (server-sent events)."""

from __future__ import annotations

import asyncio
import secrets
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

from balancer.server.errors import RequestError
from metrics_reporter.documents import json_text

# Events that a slow client may be behind before it is cut off.
_BEHIND = 100
_HEARTBEAT_SECONDS = 15.0


class Events:
    """Sends each event to every client that follows.

    Parameters
    ----------
    most, most_of_one
        Streams at once, of all clients and of one.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._lock = threading.Lock()
        # Weak: a stream whose client leaves before it starts is dropped without being closed.
        self._followers: weakref.WeakKeyDictionary[
            asyncio.Queue[str | None], tuple[asyncio.AbstractEventLoop, str]
        ] = weakref.WeakKeyDictionary()
        self._number = 0
        # Another process numbers its events from the start: an earlier id means nothing to it.
        self._run = secrets.token_hex(4)
        self._last: deque[str] = deque(maxlen=_BEHIND)

    def publish(self, kind: str, data: Any) -> None:
        """Send an event; from any thread, and at once."""
        with self._lock:
            self._number += 1
            number = f"{self._run}-{self._number}"
            text = f"id: {number}\nevent: {kind}\ndata: {json_text(data)}\n\n"
            self._last.append(text)
            followers = list(self._followers.items())
        for queue, (loop, _) in followers:
            try:
                loop.call_soon_threadsafe(_put, queue, text)
            except RuntimeError:
                # its server has ended
                self._forget(queue)

    @property
    def followers(self) -> int:
        """How many clients follow."""
        return len(self._followers)

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            followers = list(self._followers.items())
        for queue, (loop, _) in followers:
            try:
                loop.call_soon_threadsafe(_put, queue, None)
            except RuntimeError:
                self._forget(queue)

    async def follow(
        self, first: Callable[[], Any], after: str | None = None, client: str = ""
    ) -> AsyncIterator[str]:
        """The events from now on, as text, after one with the present state.

        Parameters
        ----------
        first
            The present state.
        after
            Id of the last event that the client has, if it comes back: what it has missed takes
            the place of the state, unless that is no longer kept.
        client
            Who follows.

        Raises
        ------
        RequestError
            If too many clients follow already, or this one has too many streams.
        """
        queue: asyncio.Queue[str | None] = asyncio.Queue(_BEHIND)
        with self._lock:
            clients = [of for _, of in self._followers.values()]
            if len(clients) >= self._most:
                raise RequestError(f"{self._most} clients follow already", 503)
            if clients.count(client) >= self._most_of_one:
                raise RequestError(
                    f"{self._most_of_one} streams of this client are open already: close one", 429
                )
            missed = self._missed(after)
            self._followers[queue] = asyncio.get_running_loop(), client
        return self._stream(queue, first, missed)

    def _missed(self, after: str | None) -> list[str] | None:
        """The events after one; None if they are not all known."""
        run, _, number = (after or "").rpartition("-")
        if run != self._run or not (number.isascii() and number.isdigit() and len(number) < 20):
            return None
        missed = self._number - int(number)
        if not 0 <= missed <= len(self._last):
            return None
        return list(self._last)[len(self._last) - missed :]

    async def _stream(
        self,
        queue: asyncio.Queue[str | None],
        first: Callable[[], Any],
        missed: list[str] | None,
    ) -> AsyncIterator[str]:
        try:
            if missed is None:
                state = await run_in_threadpool(first)
                yield f"event: state\ndata: {json_text(state)}\n\n"
            for old in missed or ():
                yield old
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), _HEARTBEAT_SECONDS)
                except TimeoutError:
                    text = ": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self._forget(queue)

    def _forget(self, queue: asyncio.Queue[str | None]) -> None:
        with self._lock:
            self._followers.pop(queue, None)


def _put(queue: asyncio.Queue[str | None], text: str | None) -> None:
    if queue.full():
        # A client that does not read: it may come back and start with the present state.
        while not queue.empty():
            queue.get_nowait()
        text = None
    queue.put_nowait(text)
