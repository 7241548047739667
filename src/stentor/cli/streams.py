"""Standard input and output in an event loop.

Reading a terminal or a pipe, and writing to a pipe that nobody empties, may block for any time, and
an event loop that is blocked does not answer its broker's pings. So a thread does it. The thread is
a daemon: one that waits for input that never comes does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Bytes that are read at once.
CHUNK: Final = 256 * 1024


class Worker:
    """Runs functions that block, one after the other, for the event loop that awaits them."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name="stentor-streams", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._jobs.get()()

    async def do(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raises."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def job() -> None:
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, error)

        self._jobs.put(job)
        return await done


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however long that takes."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def watch_reader(descriptor: int, gone: Callable[[], None]) -> None:
    """Call `gone`, in the event loop, when nobody reads from the other end any more.

    Without this, a command whose output is piped into `head` would only notice at its next line.
    """
    loop = asyncio.get_running_loop()

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # errors and hang-ups are always told
        poll.poll()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(gone)

    threading.Thread(target=watch, name="stentor-reader", daemon=True).start()
