"""Mosquitto beside it: its own broker and tools, QoS 0, on the same cores.

The publisher gets its lines from a file and sends each as one message; the subscriber ends when it
has received them all. The broker may queue without bound, so that nothing is dropped, as nothing is
dropped on the other side.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from live.events import events
from live.processes import cores, processor_seconds

_TOPIC: Final = "quotes"
_CONFIGURATION: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
log_type error
log_type subscribe
log_dest stderr
"""


def installed() -> bool:
    """Whether there is one."""
    tools = ("mosquitto_pub", "mosquitto_sub")
    return _broker() is not None and all(map(shutil.which, tools))


def _broker() -> str | None:
    # Debian puts it where only administrators look.
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


def version() -> str:
    """As it says itself."""
    broker = _broker()
    assert broker is not None
    found = subprocess.run([broker, "-h"], capture_output=True, text=True, check=False).stdout
    return found.splitlines()[0].replace("mosquitto version", "Mosquitto").strip()


class Mosquitto:
    """A Mosquitto broker, and events to publish through it."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self._lines = folder / "lines"
        self._lines.write_text("".join(json.dumps(e) + "\n" for e in events(count)))
        with socket.socket() as probe:  # it cannot choose one that is free by itself
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        settings = folder / "mosquitto.conf"
        settings.write_text(_CONFIGURATION.format(port=self._port))
        broker = _broker()
        assert broker is not None
        self._log = folder / "mosquitto.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([broker, "-c", str(settings)], stderr=log)
        os.sched_setaffinity(self._process.pid, {cores().broker})
        self._await(self._listens)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", int(self._port))).close()
        except ConnectionRefusedError:
            return False
        return True

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Mosquitto does not work: {self._log.read_text()}")
            time.sleep(0.005)

    def run(self) -> tuple[float, float]:
        """Publish all events to one subscriber: seconds, and the broker's processor seconds."""
        where = ["-h", "127.0.0.1", "-p", self._port, "-t", _TOPIC]
        logged = self._log.stat().st_size
        subscriber = self._load(["mosquitto_sub", *where, "-C", str(self.count)])
        try:
            self._await(lambda: self._log.stat().st_size > logged)  # it has subscribed
            before = processor_seconds(self._process.pid)
            began = time.monotonic()
            with self._lines.open("rb") as lines:
                publisher = self._load(["mosquitto_pub", *where, "-l"], lines)
            subscriber.wait(60.0)
            seconds = time.monotonic() - began
            publisher.wait(10.0)
        except BaseException:
            subscriber.kill()
            raise
        return seconds, processor_seconds(self._process.pid) - before

    def _load(
        self, command: list[str], source: BinaryIO | int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdin=source, stdout=subprocess.DEVNULL)
        os.sched_setaffinity(process.pid, {cores().load})
        return process

    def __enter__(self) -> Mosquitto:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(10.0)
