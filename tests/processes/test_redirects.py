"""Brokers that listen at every interface, and clients that are sent from one to another."""

from __future__ import annotations

import asyncio

import pytest
from namespaces import Network, may_make_namespaces
from overlay_processes import Overlay, free_port, until
from witness import Follower

from stentor.client import connect
from stentor.model import decode
from stentor.semantics.lines import IN_FORCE, Line


class Reader:
    """A client process in the network of a host."""

    def __init__(self, overlay: Overlay, network: Network, host: int, name: str, port: int) -> None:
        self._recording = overlay.directory / f"{name}.jsonl"
        self._process = overlay.nursery.start(
            "reader",
            log=overlay.directory / f"{name}.log",
            namespace=network.file(host),
            addresses=[f"{network.address(host)}:{port}"],
            name=name,
            filter="i >= 0",
            group="g" if name.startswith("member") else None,
            record=str(self._recording),
        )

    def _lines(self) -> list[Line]:
        return Follower(self._recording).new()

    @property
    def subscribed(self) -> bool:
        return any(line.step == IN_FORCE for line in self._lines())

    @property
    def got(self) -> list[int]:
        return [decode(line.body)["i"] for line in self._lines() if line.op == "notify"]


@pytest.mark.parametrize("listen", ["0.0.0.0", ""])
def test_clients_find_brokers_that_listen_everywhere(overlay: Overlay, listen: str) -> None:
    """A group across hosts, and the clients of a broker that is removed."""
    if not may_make_namespaces():
        pytest.skip("needs network namespaces")

    async def run(network: Network) -> None:
        port = free_port()
        for host, name in enumerate(["b1", "b2"]):
            overlay.broker(
                name,
                [f"{network.address(0)}:{port}"] if host else [],
                listen=(f"unix:{overlay.directory}/{name}.sock", f"{listen}:{port}"),
                options={"namespace": network.file(host)},
            ).start()
        await overlay.linked()
        for host, name in enumerate(["b1", "b2"]):
            told = (await overlay[name].status())["advertised"]
            assert told[0] == f"{network.address(host)}:{port}"
        readers: list[Reader] = []
        for host, name in ((0, "member1"), (1, "member2"), (1, "alone")):
            readers.append(Reader(overlay, network, host, name, port))
            await until(lambda: readers[-1].subscribed, overlay.tail)
        one, two, alone = readers
        async with connect(overlay["b1"].address) as bus:
            await bus.publish_many(({"i": i} for i in range(20)), ack=True)
            await until(lambda: sorted(one.got + two.got) == list(range(20)), overlay.tail)
            assert one.got
            assert two.got
            await until(lambda: alone.got == list(range(20)), overlay.tail)
            await overlay["b2"].ask("drain", 60.0)
            await bus.publish_many(({"i": i} for i in range(20, 40)), ack=True)
            await until(lambda: alone.got == list(range(40)), overlay.tail)
            await until(lambda: sorted(one.got + two.got) == list(range(40)), overlay.tail)

    with Network(2) as network:
        asyncio.run(run(network))
