"""Nothing of a connection stays in memory when it is over, without any search for garbage."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from stentor.broker import Broker, Settings
from stentor.broker.link_queue import LinkQueue
from stentor.broker.peers import Backlog, ConnectedClient, Dialing, Guest, Link
from stentor.broker.succession import Transfer
from stentor.node.session import Session
from stentor.protocol import messages as m
from stentor.protocol.handshake import Handshake
from stentor.scopes.entry import Component
from stentor.transport import Connection, connect

OF_A_CLIENT = (Guest, ConnectedClient, Backlog, Handshake, Session, Component)
OF_A_LINK = (Guest, Dialing, Link, Backlog, Handshake, LinkQueue, Transfer, Connection)


class Client:
    """Says Hello and what else it is told to say, and then goodbye, or not even that."""

    def __init__(self, *messages: Any, rude: bool = False) -> None:
        self._messages = messages
        self._rude = rude
        self.over = asyncio.Event()

    def opened(self, connection: Connection) -> None:
        connection.send(m.Hello(list(m.VERSIONS), "client", "ann"))

    def received(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            match message:
                case m.Welcome():
                    for each in self._messages or (m.Ask(1, "streams"),):
                        connection.send(each)
                case _ if self._rude:
                    connection.abort()
                case _:
                    connection.send(m.Goodbye())
                    connection.close()

    def writable_again(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, error: Exception | None) -> None:
        self.over.set()


def left(kinds: tuple[type, ...]) -> list[object]:
    """What there is of these."""
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30.0):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("rude", [False, True])
@pytest.mark.parametrize(
    "message",
    [
        m.Ask(1, "streams"),
        m.Ask(1, "offers"),  # is answered in steps
        m.Subscribe(1, "x > 3", 10),
        m.Subscribe(1, "x > ", 10),
        m.Subscribe(1, " or ".join(f"x = {i}" for i in range(200)), 10),  # is parsed beside
        m.Advertise(1, "x > 3"),
        m.Welcome(1, "no", "broker"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_of_clients(message: Any, rude: bool, uncollected: None) -> None:
    async def run() -> None:
        async with Broker(Settings(listen=("127.0.0.1:0",))) as broker:
            before = len(left(OF_A_CLIENT))
            client = Client(message, rude=rude)
            await connect(broker.address, client)
            await client.over.wait()
            await until(lambda: not broker.guests and not broker.core.sessions)
            await asyncio.sleep(0)
            assert len(left(OF_A_CLIENT)) == before

    asyncio.run(run())


def test_of_links(uncollected: None) -> None:
    async def run() -> None:
        async with Broker(Settings(listen=("127.0.0.1:0",), name="a")) as a:
            near = Settings(listen=("127.0.0.1:0",), name="b", neighbors=[a.address])
            async with Broker(near) as b:
                await until(lambda: a.links and b.links)
                before = len(left(OF_A_LINK))
                for _ in range(3):
                    for link in list(a.links.values()):
                        link.connection.abort()
                    del link
                    await until(lambda: not a.links and not b.links)
                    await until(lambda: a.links and b.links)
                assert len(left(OF_A_LINK)) == before

    asyncio.run(run())
