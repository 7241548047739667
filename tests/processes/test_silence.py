"""Links on which nothing arrives any more although nobody has closed them.

A dead host, a cut cable, a stopped process: TCP itself says nothing for many minutes. Brokers and
clients notice by the silence, and go on where they were when the other side can be heard again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from namespaces import Network, may_make_namespaces
from overlay_processes import LIMITS, BrokerProcess, Overlay, free_port, until
from recorder import Recorder
from tcp_proxy import TcpProxy
from workload import publish_for_ever

from stentor.client import connect

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
        overlay.broker("b1", limits=SOON).start()
        async with TcpProxy(overlay["b1"].address) as cable, AsyncExitStack() as stack:
            overlay.broker("b2", [cable.address], limits=SOON).start()
            await overlay.linked()
            recorder = Recorder()
            loads = []
            for i, name in enumerate(["b1", "b2"]):
                address = overlay[name].address
                bus = await stack.enter_async_context(connect(address, name=f"client-{name}"))
                await stack.enter_async_context(recorder.subscribed(bus, name, "volume > 100"))
                load = publish_for_ever(recorder.publisher(bus), i)
                loads.append(load)
            recorder.quiescent()
            tasks = [asyncio.create_task(load) for load in loads]
            cable.stall()
            await asyncio.gather(lost(overlay["b1"], "b2"), lost(overlay["b2"], "b1"))
            await asyncio.sleep(SOON.timeout)  # b2 has dialed again, into the silence
            cable.release(forget=forget)
            await overlay.linked()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await recorder.settled()
            assert recorder.check().owed > 0

    asyncio.run(run())


def test_a_broker_that_hangs_is_given_up_and_taken_back(overlay: Overlay) -> None:
    """SIGSTOP: the kernel still answers for the process, which itself says nothing."""

    async def run() -> None:
        overlay.line(3, limits=SOON)
        await overlay.linked()
        recorder = Recorder()
        async with AsyncExitStack() as stack:
            tasks = []
            buses = []
            for i, name in enumerate(["b1", "b2", "b3"]):
                address = overlay[name].address
                bus = await stack.enter_async_context(connect(address, name=f"client-{name}"))
                buses.append(bus)
                await stack.enter_async_context(recorder.subscribed(bus, name, "volume > 100"))
                tasks.append(asyncio.create_task(publish_for_ever(recorder.publisher(bus), i)))
            recorder.quiescent()
            overlay["b2"].process.pause()
            await asyncio.gather(lost(overlay["b1"], "b2"), lost(overlay["b3"], "b2"))
            await until(lambda: buses[1].state == "reconnecting", "its client notices, too")
            overlay["b2"].process.resume()
            await overlay.linked()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await recorder.settled()
            assert recorder.check().owed > 0

    asyncio.run(run())


def test_a_client_that_cannot_be_heard_is_given_up_and_continues(overlay: Overlay) -> None:
    async def run() -> None:
        overlay.broker("b1", limits=SOON).start()
        broker = overlay["b1"]
        await overlay.linked()
        recorder = Recorder()
        async with TcpProxy(broker.address) as cable, AsyncExitStack() as stack:
            near = await stack.enter_async_context(connect(broker.address, name="near"))
            far = await stack.enter_async_context(connect(cable.address, name="far"))
            await stack.enter_async_context(recorder.subscribed(near, "near", "volume > 100"))
            await stack.enter_async_context(recorder.subscribed(far, "far", "volume > 100"))
            recorder.quiescent()
            tasks = [
                asyncio.create_task(publish_for_ever(recorder.publisher(bus), i))
                for i, bus in enumerate([near, far])
            ]

            async def gone() -> bool:
                return "far" not in {
                    client["name"] for client in (await broker.status())["clients"]
                }

            cable.stall()
            await until(lambda: far.state == "reconnecting", "the client notices")
            await until(gone, "the broker notices")
            cable.release(forget=True)
            await until(lambda: far.state == "connected", "the client is back")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await recorder.settled()
            assert recorder.check().owed > 0

    asyncio.run(run())


def test_a_partitioned_overlay_works_in_its_parts_and_grows_together(overlay: Overlay) -> None:
    """Three hosts; the last is cut off, packets to it vanish. Both sides go on by themselves."""

    async def run(network: Network | None) -> None:
        async with AsyncExitStack() as stack:
            if network is not None:
                # Clients come in by Unix sockets, which do not care about networks.
                for host, name in enumerate(["b1", "b2", "b3"]):
                    place = f"{network.address(host)}:{free_port()}"
                    overlay.broker(
                        name,
                        [overlay[f"b{host}"].settings.listen[1]] if host else [],
                        listen=(f"unix:{overlay.directory}/{name}.sock", place),
                        limits=SOON,
                        options={"namespace": network.file(host)},
                    ).start()
                cut, mend = lambda: network.cut_off(2), lambda: network.join(2)
            else:
                overlay.line(2, limits=SOON)
                cable = await stack.enter_async_context(TcpProxy(overlay["b2"].address))
                overlay.broker("b3", [cable.address], limits=SOON).start()
                cut, mend = cable.stall, lambda: cable.release(forget=True)
            await overlay.linked()
            recorder = Recorder()
            publishers = {}
            for name in ("b1", "b2", "b3"):
                address = overlay[name].address
                bus = await stack.enter_async_context(connect(address, name=f"client-{name}"))
                await stack.enter_async_context(recorder.subscribed(bus, name, ""))
                publishers[name] = recorder.publisher(bus)
            recorder.quiescent()

            async def publish(count: int) -> None:
                for publisher in publishers.values():
                    for i in range(count):
                        await publisher.publish({"i": i})

            await publish(10)
            await recorder.settled()
            cut()
            await publish(10)  # some of it may be lost on the way
            await asyncio.gather(lost(overlay["b2"], "b3"), lost(overlay["b3"], "b2"))
            await publish(10)
            for publisher in publishers.values():
                await publisher.flush()  # each part acknowledges what it has
            parts = {c.name: len(c.received) for c in recorder.components.values()}
            await until(
                lambda: [len(c.received) for c in recorder.components.values()] == [70, 70, 50],
                lambda: f"both parts serve their own clients; they were given {parts}",
            )
            mend()
            await overlay.linked()
            await publish(10)
            await recorder.settled()
            assert recorder.check().owed == 3 * 3 * 40

    if may_make_namespaces():
        with Network(3) as network:
            asyncio.run(run(network))
    else:
        asyncio.run(run(None))
