"""Runs the brokers of an overlay as processes of this machine, and keeps them running.

Each broker is a process of its own, `python -m stentor broker --config FILE`, with a file that the
supervisor has written for it. One that dies is started again, soon the first time and after
longer and longer delays if it keeps dying; one that stayed up for a while is forgiven. Five deaths
in a row are reported as a crash loop, with the last words of the broker, and it is still tried now
and then. Two exit codes are final. 0: it was drained, or told to end, and stays down. 2: it does
not accept its configuration, and starting it again would change nothing.

Nobody is left behind. Each child has a pipe from the supervisor as its standard input, and ends in
good order when that is closed. The kernel closes it whatever happens to the supervisor, kill -9
included. Children are in sessions of their own, so that Ctrl-C at the terminal reaches the
supervisor alone, who then ends them in good order: SIGTERM to all, time to finish, SIGKILL for who
does not.

In the directory `run` are the configuration files, a lock so that an overlay runs once, and
`state.json`, which says which processes there are and where they listen. It is replaced as a whole
at every change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

from stentor.broker.config import to_toml, with_absolute_paths
from stentor.broker.config_keys import PREFIX
from stentor.broker.overlay import OverlaySettings
from stentor.broker.storage.directory import Lock
from stentor.errors import JournalUnavailable

STATE_FILE: Final = "state.json"
#: Exit code of a command that was used wrongly.
USAGE: Final = 2

#: Bytes of one line of output that are kept.
_MAX_LINE: Final = 64 * 1024
_LAST_WORDS: Final = 5

#: `waiting`: it died, and will be started again. `crashing`: the same, for the fifth time or more.
#: `failed`: it will not be started again.
ChildState: TypeAlias = Literal[
    "starting", "up", "waiting", "crashing", "failed", "stopping", "stopped"
]


@dataclass(frozen=True)
class Restarts:
    """When a broker that died is started again; all in seconds."""

    first: float = 0.2
    most: float = 30.0
    #: One that stayed up for so long is forgiven what was before.
    stable: float = 10.0
    #: Deaths in a row that make a crash loop.
    loop: int = 5

    def delay(self, deaths: int) -> float:
        """How long to wait after so many deaths in a row.

        >>> [Restarts().delay(deaths) for deaths in (1, 2, 3, 20)]
        [0.2, 0.4, 0.8, 30.0]
        """
        return min(self.most, self.first * 2.0 ** min(deaths - 1, 30))


class Observer(Protocol):
    """Who is told what happens."""

    def line(self, broker: str, text: str) -> None:
        """A line that a broker has printed."""

    def event(self, broker: str | None, text: str, *, bad: bool = False) -> None:
        """What the supervisor has to say, about one broker or about all."""


def default_command(config: Path) -> list[str]:
    """How a broker is started. -P: a file in the working directory must not pass for a module."""
    return [
        sys.executable,
        "-P",
        "-m",
        "stentor",
        "broker",
        "--config",
        str(config),
        "--supervised",
    ]


class Child:
    """One broker, and the process that it is at the moment."""

    def __init__(self, name: str, address: str, monitor: str | None, patience: float) -> None:
        self.name = name
        self.address = address
        self.monitor = monitor
        #: Seconds that it may take to end.
        self.patience = patience
        self.state: ChildState = "starting"
        self.pid: int | None = None
        #: On the wall clock, for people.
        self.since = time.time()
        self.restarts = 0
        self.last_exit: int | None = None
        self.last_words: deque[str] = deque(maxlen=_LAST_WORDS)
        self.process: asyncio.subprocess.Process | None = None

    def to_data(self) -> dict[str, Any]:
        """For the state file."""
        return {
            "name": self.name,
            "state": self.state,
            "pid": self.pid,
            "address": self.address,
            "monitor": self.monitor,
            "since": self.since,
            "restarts": self.restarts,
            "last_exit": self.last_exit,
        }


class Supervisor:
    """Keeps the brokers of an overlay running until it is told to stop."""

    def __init__(
        self,
        overlay: OverlaySettings,
        observer: Observer,
        *,
        restarts: Restarts | None = None,
        command: Callable[[Path], Sequence[str]] = default_command,
    ) -> None:
        self._overlay = overlay.with_ports()
        self._observer = observer
        self._restarts = restarts or Restarts()
        self._command = command
        self._stopping = asyncio.Event()
        self._killing = asyncio.Event()
        self._changed = asyncio.Event()
        self.children = {
            name: Child(
                name,
                self._overlay.address(name),
                settings.monitor,
                settings.limits.shutdown + 5.0,
            )
            for name, settings in self._overlay.brokers.items()
        }

    @property
    def overlay(self) -> OverlaySettings:
        """With the ports that were chosen."""
        return self._overlay

    def stop(self) -> None:
        """End all brokers in good order; asked twice, at once."""
        if self._stopping.is_set():
            self._killing.set()
        self._stopping.set()

    async def run(self) -> bool:
        """Until it is stopped, or no broker is left to be run. Whether all went well."""
        run = self._overlay.run
        try:
            run.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise JournalUnavailable(f"{run} cannot be made: {error.strerror}") from error
        lock = Lock(run)
        try:
            self._write_state()
            await self._keep_all()
        finally:
            with contextlib.suppress(OSError):
                (run / STATE_FILE).unlink()
            lock.release()
        return all(child.state != "failed" for child in self.children.values())

    async def changed(self) -> AsyncIterator[None]:
        """Something about the children is different."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    async def _keep_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for child in self.children.values():
                tasks.create_task(self._keep(child))

    async def _keep(self, child: Child) -> None:
        """One broker, through all its lives."""
        deaths = 0
        config = self._configure(child)
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._live(child, config)
            child.process, child.pid, child.last_exit = None, None, code
            if self._stopping.is_set():
                break
            if code == 0:
                # Somebody has drained it, or asked it to end: it is not for us to disagree.
                self._observer.event(child.name, "has ended in good order; it stays down")
                break
            if code == USAGE:
                self._now(child, "failed")
                self._observer.event(
                    child.name,
                    "does not accept its configuration; it is not started again",
                    bad=True,
                )
                return
            if time.monotonic() - began >= self._restarts.stable:
                deaths = 0
            deaths += 1
            delay = self._restarts.delay(deaths)
            self._report_death(child, code, deaths, delay)
            child.restarts += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
        self._now(child, "stopped")

    def _report_death(self, child: Child, code: int, deaths: int, delay: float) -> None:
        how = f"was ended by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
        self._now(child, "crashing" if deaths >= self._restarts.loop else "waiting")
        if deaths == self._restarts.loop:
            words = " | ".join(child.last_words) or "nothing"
            self._observer.event(
                child.name,
                f"is in a crash loop: it {how}, and died {deaths} times in a row; "
                f"its last words: {words}",
                bad=True,
            )
        self._observer.event(child.name, f"{how}; it is started again in {delay:g} s", bad=True)

    def _configure(self, child: Child) -> Path:
        """Write the configuration; it may hold tokens, so it is for the owner alone."""
        path = self._overlay.run / f"{child.name.replace(os.sep, '_')}.toml"
        settings = with_absolute_paths(self._overlay.settings(child.name))
        _replace(path, to_toml(settings, secrets=True))
        return path

    async def _live(self, child: Child, config: Path) -> int:
        """One life: start it, and pass on what it says until it ends."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        child.last_words.clear()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(config),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            child.last_words.append(f"cannot be started: {error.strerror}")
            return 1
        child.process, child.pid = process, process.pid
        self._now(child, "starting")
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(child, process.stdout, announces=True))
            tasks.create_task(self._listen(child, process.stderr, announces=False))
            ended = tasks.create_task(process.wait())
            tasks.create_task(self._end_when_stopping(child, process, ended))
        return ended.result()

    async def _listen(self, child: Child, stream: asyncio.StreamReader, *, announces: bool) -> None:
        async for text in _lines(stream):
            if announces and child.state == "starting":
                self._now(child, "up")  # it says where it listens when it does
            child.last_words.append(text)
            self._observer.line(child.name, text)

    async def _end_when_stopping(
        self, child: Child, process: asyncio.subprocess.Process, ended: asyncio.Task[int]
    ) -> None:
        if not await _first(self._stopping.wait(), ended):
            return
        self._now(child, "stopping")
        _send(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(child.patience):
                if not await _first(self._killing.wait(), ended):
                    return
        self._observer.event(child.name, "is killed: it did not end in time", bad=True)
        _send(process, signal.SIGKILL)

    # -- state

    def _now(self, child: Child, state: ChildState) -> None:
        child.state = state
        child.since = time.time()
        self._write_state()
        self._changed.set()

    def _write_state(self) -> None:
        state = {
            "version": 1,
            "pid": os.getpid(),
            "overlay": str(self._overlay.file),
            "brokers": [child.to_data() for child in self.children.values()],
        }
        try:
            _replace(self._overlay.run / STATE_FILE, json.dumps(state, indent=1) + "\n")
        except JournalUnavailable as error:
            # Brokers matter more than the record of them.
            self._observer.event(None, str(error), bad=True)


async def _first(event: Awaitable[Any], ended: asyncio.Task[int]) -> bool:
    """Whether the event comes before the end of the process."""
    waiting = asyncio.ensure_future(event)
    try:
        await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
        return not ended.done()
    finally:
        waiting.cancel()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of text, however long or odd; of a very long one only the beginning."""
    rest = b""
    while data := await stream.read(_MAX_LINE):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line[:_MAX_LINE].decode("utf-8", "replace").rstrip("\r")
        rest = rest[:_MAX_LINE]
    if rest:
        yield rest.decode("utf-8", "replace")


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _replace(path: Path, text: str) -> None:
    """Write a file for its owner alone, as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    try:
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be written: {error.strerror}") from error
