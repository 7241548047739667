"""A stretch of network that can be interrupted without anybody being told.

A `TcpProxy` listens on a port and passes bytes on to another. While it is *stalled* it takes part
in TCP as before, and passes nothing on: connections stay open, new ones are accepted, and nothing
arrives. That is how the other side looks when a cable is cut, a firewall has forgotten a
connection, or the process at the end hangs. When it is *released*, what was stalled either arrives
late or, if `forget` is set, never: then only new connections work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class TcpProxy:
    """Listens at `address` in the loop that it was opened in."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._passing = asyncio.Event()
        self._passing.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.connections = 0

    async def __aenter__(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        for writer in self._writers:
            writer.close()

    async def cut(self) -> None:
        """End all connections, and let no other be made."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()

    def stall(self) -> None:
        """Pass nothing on any more."""
        self._passing.clear()

    def release(self, *, forget: bool = False) -> None:
        """Pass on again, but not on the connections there are if these are to be forgotten."""
        if forget:
            self._forgotten |= self._writers
        self._passing.set()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._start(self._connect(reader, writer))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._pipes.add(task)
        task.add_done_callback(self._pipes.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self._passing.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers.add(far_writer)
        self._start(self._pipe(reader, far_writer))
        self._start(self._pipe(far_reader, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._passing.wait()
                if writer in self._forgotten:
                    await asyncio.get_running_loop().create_future()  # it leads nowhere for ever
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        await self._passing.wait()
        if writer not in self._forgotten:
            writer.close()
            self._writers.discard(writer)
