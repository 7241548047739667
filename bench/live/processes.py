"""Processes of their own, each bound to one core, and what the system says about them.

The first core is for brokers, whosever they are; the second for all who publish, subscribe and keep
them busy. Time on the processor is taken from the system, so it includes what the kernel does for
the process, such as sending and receiving.

A `Worker` is a process that does what it is asked: it holds an object and runs that object's
coroutines, one after the other, in an event loop. `ask` waits for the answer; `begin` and `answer`
are its two halves, for work that goes on in two workers at the same time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import uvloop

#: Seconds after which a worker that does not answer is given up.
PATIENCE: Final = 120.0

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Cores(NamedTuple):
    """Where everything runs."""

    broker: int
    load: int


def cores() -> Cores:
    """The first and the last core that this process may use; the same one if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[0], allowed[-1])


def processor_seconds(pid: int) -> float:
    """Time on the processor so far, all threads and the kernel's part included.

    As the scheduler counts it, in nanoseconds: `stat` has hundredths of a second, and in one of
    these a fast broker passes on ten thousand events and more.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def descriptors(pid: int) -> int:
    """Open files and sockets."""
    return len(os.listdir(f"/proc/{pid}/fd"))


class WorkerFailed(Exception):
    """What went wrong in a worker: its traceback."""


class Worker:
    """A process bound to a core that holds an object and runs its coroutines."""

    def __init__(self, make: Callable[[], Any], core: int) -> None:
        fresh = multiprocessing.get_context("spawn")
        self._pipe, theirs = fresh.Pipe()
        self._process = fresh.Process(target=_run, args=(theirs, make, core), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, name: str, *arguments: Any, **options: Any) -> None:
        """Have the worker call one of its object's methods."""
        self._pipe.send((name, arguments, options))

    def answer(self) -> Any:
        """What the method returned."""
        if not self._pipe.poll(PATIENCE):
            raise WorkerFailed(f"no answer within {PATIENCE:g} seconds")
        done, answer = self._pipe.recv()
        if not done:
            raise WorkerFailed(answer)
        return answer

    def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.begin(name, *arguments, **options)
        return self.answer()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pipe.close()  # the worker ends when it hears nothing more
        self._process.join(10.0 if error is None else 1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _run(pipe: Connection, make: Callable[[], Any], core: int) -> None:
    os.sched_setaffinity(0, {core})
    uvloop.run(_serve(pipe, make))


async def _serve(pipe: Connection, make: Callable[[], Any]) -> None:
    worker = make()
    asked = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), asked.set)
    while True:
        await asked.wait()
        asked.clear()
        try:
            name, arguments, options = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, await getattr(worker, name)(*arguments, **options)
        except Exception:
            answer = False, traceback.format_exc()
        pipe.send(answer)
