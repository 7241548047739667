"""Links on which nothing arrives any more although nobody has closed them.

A dead host, a cut cable, a stopped process: TCP itself says nothing for many minutes. Brokers and
clients notice by the silence, and go on where they were when the other side can be heard again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from threading import Thread

import pytest
from attacks import DELAY
from namespaces import Network, may_make_namespaces
from overlay_processes import LIMITS, BrokerProcess, Overlay, free_port, until
from tcp_proxy import TcpProxy
from wire_client import WireClient
from witness import Run
from workload import clients, under_load

from stentor.client import connect
from stentor.protocol import messages as m

SOON = replace(LIMITS, timeout=0.9)


async def lost(broker: BrokerProcess, neighbor: str) -> None:
    """Until the broker knows that it cannot reach the other one."""

    async def noticed() -> bool:
        status = await broker.status()
        return neighbor not in {other["broker"] for other in status["brokers"]}

    await until(noticed, f"{broker.name} notices that {neighbor} is silent")


@pytest.mark.parametrize("forget", [False, True], ids=["late bytes", "lost bytes"])
def test_a_link_that_carries_nothing_is_noticed_and_healed(overlay: Overlay, forget: bool) -> None:
    async def run() -> None:
        b1 = overlay.broker("b1", limits=SOON)
        b1.start()
        async with TcpProxy(b1.address) as cable:
            b2 = overlay.broker("b2", [cable.address], limits=SOON)
            b2.start()
            await overlay.linked()
            seen = Run(overlay.directory)
            async with clients(seen, [b1, b2], "volume > 100") as publishers:
                seen.quiescent()
                async with under_load(publishers):
                    cable.stall()
                    await asyncio.gather(lost(b1, "b2"), lost(b2, "b1"))
                    # b2 dials again, into the silence, and must not wait there for ever.
                    dialed = cable.connections
                    await until(lambda: cable.connections > dialed + 1, "b2 dials, gives up, dials")
                    cable.release(forget=forget)
                    await overlay.linked()
                await seen.settled()
                assert seen.check().owed > 0

    asyncio.run(run())


def test_a_broker_that_hangs_is_given_up_and_taken_back(overlay: Overlay) -> None:
    """SIGSTOP: the kernel still answers for the process, which itself says nothing."""

    async def run() -> None:
        overlay.line(3, limits=SOON)
        await overlay.linked()
        seen = Run(overlay.directory)
        async with clients(seen, overlay.running, "volume > 100") as publishers:
            seen.quiescent()
            async with under_load(publishers):
                overlay["b2"].process.pause()
                await asyncio.gather(lost(overlay["b1"], "b2"), lost(overlay["b3"], "b2"))
                bus = publishers[1]
                await until(lambda: bus.state == "reconnecting", "its client notices, too")
                overlay["b2"].process.resume()
                await overlay.linked()
            await seen.settled()
            assert seen.check().owed > 0

    asyncio.run(run())


def test_nobody_waits_for_a_broker_that_hangs_beside_the_way(overlay: Overlay) -> None:
    """Its links are still up when all of this is done, and it misses nothing when it is back."""

    async def run() -> None:
        overlay.line(4, limits=replace(LIMITS, timeout=300.0))
        b1, _, _, hanging = overlay.running
        await overlay.linked()
        seen = Run(overlay.directory)
        async with clients(seen, overlay.running, "volume > 100") as publishers:
            seen.quiescent()
            hanging.process.pause()
            # A link is lost and made again: what the others publish must not wait.
            b1.restart()
            await until(lambda: b1.sees({"b2", "b3", "b4"}), "b1 reaches all others")
            for bus in publishers[:3]:
                await bus.publish({"volume": 1_000}, ack=True)

            def arrived() -> bool:
                seen.read()
                some = {name: c for name, c in seen.components.items() if c.received}
                return len(some) >= 3

            await until(arrived, "what is published elsewhere arrives meanwhile")
            async with (
                seen.connect(b1.address, name="late") as late,
                seen.subscribed(late, "volume > 50"),  # in force, meanwhile
            ):
                seen.quiescent()
                hanging.process.resume()
                await publishers[3].publish({"volume": 2_000}, ack=True)
                await seen.settled()
                assert seen.check().owed > 0

    asyncio.run(run())


class Mute:
    """A neighbor that answers pings, and nothing else: no probe comes back from it."""

    def __init__(self, address: str) -> None:
        self._wire = WireClient(address)
        stream = "mute#00000001"
        self._wire.hello("mute", "broker", stream=stream)
        self._wire.send(m.Streams([m.Origin(stream, "mute")], []))
        self.probes = 0
        Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        for message in self._wire.messages():
            self.probes += isinstance(message, m.Probe)
            if isinstance(message, m.Ping):
                self._wire.send(m.Pong())


def test_nobody_waits_for_a_neighbor_that_echoes_nothing(overlay: Overlay) -> None:
    """Nor does a link that is cut and made again make others wait for it."""

    async def run() -> None:
        b1, b2 = (overlay[name] for name in overlay.line(2))
        await overlay.linked()
        mute = await asyncio.to_thread(Mute, b1.address)
        await until(lambda: b1.sees({"b2", "mute"}), "b1 sees the neighbor that is mute")
        waits: list[float] = []
        async with (
            connect(b1.address) as here,
            connect(b2.address, delays=(0.02, 0.1), timeout=30.0) as there,
            here.subscribe("x >= 0") as numbers,
        ):
            for x in range(4):
                began = time.monotonic()
                async with here.subscribe(f"x = {x}") as late:
                    await there.publish({"x": x}, ack=True)
                    assert (await late.get(timeout=30.0))["x"] == x
                assert (await numbers.get(timeout=30.0))["x"] == x
                waits.append(time.monotonic() - began)
                if x == 1:
                    b2.restart()
                    await until(lambda: b1.sees({"b2", "mute"}), "b2 is back")
        assert mute.probes
        assert max(waits) < DELAY, waits

    asyncio.run(run())


def test_a_client_that_cannot_be_heard_is_given_up_and_continues(overlay: Overlay) -> None:
    async def run() -> None:
        broker = overlay.broker("b1", limits=SOON)
        broker.start()
        await overlay.linked()
        seen = Run(overlay.directory)
        async with (
            TcpProxy(broker.address) as cable,
            seen.connect(broker.address, name="near") as near,
            seen.connect(cable.address, name="far") as far,
            seen.subscribed(near, "volume > 100"),
            seen.subscribed(far, "volume > 100"),
        ):
            seen.quiescent()

            async def gone() -> bool:
                status = await broker.status()
                return "far" not in {client["name"] for client in status["clients"]}

            async with under_load([near, far]):
                cable.stall()
                await until(lambda: far.state == "reconnecting", "the client notices")
                await until(gone, "the broker notices")
                cable.release(forget=True)
                await until(lambda: far.state == "connected", "the client is back")
            await seen.settled()
            assert seen.check().owed > 0

    asyncio.run(run())


def test_a_partitioned_overlay_works_in_its_parts_and_grows_together(overlay: Overlay) -> None:
    """Three hosts; the last is cut off, packets to it vanish. Both sides go on by themselves."""

    async def run(network: Network | None) -> None:
        async with AsyncExitStack() as stack:
            cut: Callable[[], None]
            mend: Callable[[], None]
            if network is not None:
                # Clients come in by Unix sockets, which do not care about networks.
                for host, name in enumerate(["b1", "b2", "b3"]):
                    overlay.broker(
                        name,
                        [overlay[f"b{host}"].settings.listen[1]] if host else [],
                        listen=(
                            f"unix:{overlay.directory}/{name}.sock",
                            f"{network.address(host)}:{free_port()}",
                        ),
                        limits=SOON,
                        options={"namespace": network.file(host)},
                    ).start()
                cut, mend = (lambda: network.cut_off(2)), (lambda: network.join(2))
            else:
                overlay.line(2, limits=SOON)
                cable = await stack.enter_async_context(TcpProxy(overlay["b2"].address))
                overlay.broker("b3", [cable.address], limits=SOON).start()
                cut, mend = cable.stall, (lambda: cable.release(forget=True))
            await overlay.linked()
            seen = Run(overlay.directory)
            publishers = await stack.enter_async_context(clients(seen, overlay.running))
            seen.quiescent()

            async def publish() -> None:
                for publisher in publishers:
                    for i in range(10):
                        await publisher.publish({"i": i})

            def received() -> list[int]:
                seen.read()
                return [len(component.received) for component in seen.components.values()]

            await publish()
            await seen.settled()
            cut()
            await publish()  # it is lost on the way between the parts
            await asyncio.gather(lost(overlay["b2"], "b3"), lost(overlay["b3"], "b2"))
            await publish()
            for publisher in publishers:
                await publisher.flush()  # each part acknowledges what it has
            await until(
                lambda: received() == [70, 70, 50],
                lambda: f"both parts serve their own clients; they were given {received()}",
            )
            mend()
            await overlay.linked()
            await publish()
            await seen.settled()
            assert seen.check().owed == 3 * 3 * 40

    if may_make_namespaces():
        with Network(3) as network:
            asyncio.run(run(network))
    else:
        asyncio.run(run(None))
