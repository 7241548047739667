"""NATS beside it: its server, at most once, on the same cores, with the same events.

Its own tools are not in Debian, so a publisher and a subscriber of a few lines take their place,
which do less than any client would: one sends a file of frames that were made beforehand, the other
counts bytes until all have come. The server may queue so much that it cuts nobody off for being
slow, as nothing is dropped on the other side.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from live.events import events
from live.processes import cores, processor_seconds

_SUBJECT: Final = b"quotes"
_CONFIGURATION: Final = """\
host: 127.0.0.1
port: {port}
max_pending: 2GB
write_deadline: "60s"
"""
_HELLO: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
_PUBLISH: Final = """
import socket, sys
_, port, path = sys.argv
s = socket.create_connection(("127.0.0.1", int(port)))
s.recv(65536)
s.sendall(%r)
with open(path, "rb") as frames:
    s.sendfile(frames)
s.sendall(b"PING\\r\\n")
while b"PONG" not in s.recv(65536):
    pass
"""
_SUBSCRIBE: Final = """
import socket, sys
_, port, size = sys.argv
s = socket.create_connection(("127.0.0.1", int(port)))
s.recv(65536)
s.sendall(%r + b"SUB quotes 1\\r\\nPING\\r\\n")
heard = b""
while b"PONG\\r\\n" not in heard:
    heard += s.recv(65536)
print("ready", flush=True)
left = int(size)
buffer = bytearray(1 << 18)
while left > 0:
    left -= s.recv_into(buffer)
"""


def installed() -> bool:
    """Whether there is one."""
    return _server() is not None


def _server() -> str | None:
    # Debian puts it where only administrators look.
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


def version() -> str:
    """As it says itself."""
    server = _server()
    assert server is not None
    found = subprocess.run([server, "-v"], capture_output=True, text=True, check=False)
    words = (found.stdout + found.stderr).split()
    return f"NATS {words[-1].lstrip('v')}"


class Nats:
    """A NATS server, and events to publish through it."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self._frames = folder / "frames"
        self._bytes = 0
        with self._frames.open("wb") as frames:
            for event in events(count):
                body = json.dumps(event).encode()
                frames.write(b"PUB %b %d\r\n%b\r\n" % (_SUBJECT, len(body), body))
                self._bytes += len(b"MSG %b 1 %d\r\n%b\r\n" % (_SUBJECT, len(body), body))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        settings = folder / "nats.conf"
        settings.write_text(_CONFIGURATION.format(port=self._port))
        server = _server()
        assert server is not None
        self._log = folder / "nats.log"
        # All threads have to stay on the core, also those that it starts later.
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {cores().broker})
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen([server, "-c", str(settings)], stderr=log)
        finally:
            os.sched_setaffinity(0, own)
        self._await_listening()

    def _await_listening(self) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(self._port))).close()
                return
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"NATS does not work: {self._log.read_text()}") from None
                time.sleep(0.005)

    def run(self) -> tuple[float, float]:
        """Publish all events to one subscriber: seconds, and the server's processor seconds."""
        subscriber = self._load(_SUBSCRIBE, str(self._bytes))
        try:
            assert subscriber.stdout is not None
            subscriber.stdout.readline()
            before = processor_seconds(self._process.pid)
            began = time.monotonic()
            publisher = self._load(_PUBLISH, str(self._frames))
            subscriber.wait(60.0)
            seconds = time.monotonic() - began
            publisher.wait(10.0)
        except BaseException:
            subscriber.kill()
            raise
        return seconds, processor_seconds(self._process.pid) - before

    def _load(self, script: str, argument: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-S", "-c", script % _HELLO, self._port, argument]
        process = subprocess.Popen(line, stdout=subprocess.PIPE)
        os.sched_setaffinity(process.pid, {cores().load})
        return process

    def __enter__(self) -> Nats:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(10.0)
