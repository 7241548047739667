"""A client that does exactly what a test says, byte by byte: it reads only when told to."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar

from stentor.protocol import messages as m
from stentor.protocol.frames import FrameReader, frame

M = TypeVar("M")


class WireClient:
    """A connection to a broker with nothing behind it. All calls block."""

    def __init__(self, address: str, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60.0)
        host, _, port = address.rpartition(":")
        self.socket.connect((host, int(port)))
        self._reader = FrameReader()
        self._found: list[Any] = []

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, *messages: Any) -> None:
        self.socket.sendall(b"".join(frame(message) for message in messages))

    def hello(self, name: str, role: str = "client", **fields: Any) -> m.Welcome:
        self.send(m.Hello(list(m.VERSIONS), role, name, **fields))
        return self.expect(m.Welcome)

    def messages(self, seconds: float = 60.0) -> Iterator[Any]:
        """What comes, until the other side closes or nothing has come for so long."""
        self.socket.settimeout(seconds)
        while True:
            while self._found:
                yield self._found.pop(0)
            try:
                data = self.socket.recv(2**20)
            except (TimeoutError, ConnectionError):
                return
            if not data:
                return
            self._found += self._reader.feed(data)

    def expect(self, kind: type[M], seconds: float = 60.0) -> M:
        """The next message of a kind; others are passed over."""
        deadline = time.monotonic() + seconds
        for message in self.messages(seconds):
            if isinstance(message, kind):
                return message
            if time.monotonic() > deadline:
                break
        raise AssertionError(f"no {kind.__name__} came")
