"""Runs calls of Kafka's client in threads that a process does not wait for when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background(Executor):
    """Starts a thread for each call.

    A call of the client may not return although its time is over. In a pool it would occupy a
    thread that others need, and Python would wait for it at the end of the process.
    """

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function in a thread of its own."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, daemon=True).start()
        return future
