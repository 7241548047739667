"""Runs the asynchronous part of a command, and ends it when a signal says so.

The first SIGINT or SIGTERM cancels the command, which may tidy up; a second one ends the process at
once. The exit code then says which signal it was.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from click.exceptions import Exit

from stentor.cli.exits import INTERRUPTED, TERMINATED
from stentor.transport.event_loop import new_event_loop

T = TypeVar("T")

_EXIT_CODES: Final = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


def run(command: Callable[[], Awaitable[T]], *, fast: bool = True) -> T:
    """The command's result; `Exit` with the signal's code if one came."""
    with asyncio.Runner(loop_factory=new_event_loop if fast else None) as runner:
        return runner.run(_interruptible(command))


async def _interruptible(command: Callable[[], Awaitable[T]]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    received: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        received.append(number)
        for each in _EXIT_CODES:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        task.cancel()

    with suppress(NotImplementedError):  # on Windows Ctrl-C cancels by itself
        for number in _EXIT_CODES:
            loop.add_signal_handler(number, interrupt, number)
    try:
        return await command()
    except asyncio.CancelledError:
        if not received:
            raise
        raise Exit(_EXIT_CODES[received[0]]) from None
    finally:
        if not received:
            with suppress(NotImplementedError):
                for number in _EXIT_CODES:
                    loop.remove_signal_handler(number)
