"""New grants, certificates and limits for brokers that run, as an operator gives them."""

from __future__ import annotations

import asyncio
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, Pair
from overlay_processes import LIMITS, BrokerProcess, Overlay, free_port, until

from stentor.broker.settings import Grant, TlsFiles
from stentor.client import Bus, connect
from stentor.errors import (
    AccessDenied,
    InvalidConfiguration,
    NotPermitted,
    Overloaded,
    StentorError,
    TlsError,
)

OPERATOR = Grant("operator", token="operator-token", operate=True)
ANN = Grant("ann", token="ann-token")
BOB = Grant("bob", token="bob-token")


@pytest.fixture
def guarded(overlay: Overlay) -> BrokerProcess:
    """A broker with three grants."""
    broker = overlay.broker("b1", grants=(OPERATOR, ANN, BOB))
    broker.start()
    overlay.operator_options = {"token": "operator-token"}
    return broker


def bus_of(broker: BrokerProcess, grant: Grant) -> Bus:
    return connect(broker.address, name=grant.name, token=grant.token, timeout=5.0)


async def reload(broker: BrokerProcess, **changes: Any) -> dict[str, Any]:
    broker.configure(**changes)
    return await broker.ask("reload", 30.0)  # type: ignore[no-any-return]


def test_a_grant_that_is_gone_closes_its_connections_and_no_others(
    guarded: BrokerProcess,
) -> None:
    async def main() -> None:
        await until(guarded.reachable, "it runs")
        async with (
            bus_of(guarded, ANN) as ann,
            bus_of(guarded, BOB) as bob,
            bob.subscribe("x > 0") as received,
        ):
            await ann.publish({"x": 1}, ack=True)
            assert (await received.get())["x"] == 1
            found = await reload(guarded, grants=(OPERATOR, BOB))
            assert found == {"changed": ["grants"], "restart": [], "closed": 1}
            await until(lambda: isinstance(ann.error, AccessDenied), "ann is told why")
            await bob.publish({"x": 3}, ack=True)
            assert (await received.get())["x"] == 3
        with pytest.raises(AccessDenied):
            async with bus_of(guarded, ANN):
                pass
        # The operator whose own grant goes is told first that it went well.
        found = await reload(guarded, grants=(replace(OPERATOR, token="another"), BOB))
        assert found["closed"] == 1
        with pytest.raises(AccessDenied):
            await guarded.status()

    asyncio.run(asyncio.wait_for(main(), 120.0))


def test_a_mistake_changes_nothing_and_is_told(guarded: BrokerProcess) -> None:
    async def main() -> None:
        await until(guarded.reachable, "it runs")
        good = guarded.file.read_text()
        for bad, said in (
            (good.replace("bob-token", "ann-token"), "the token is that of the grant"),
            (good.replace("[[grants]]", "[[grant]]"), "did you mean 'grants'"),
            (good + "\nlimits = 3\n", r"b1\.toml:\d+"),
            ("\x00", r"b1\.toml"),
        ):
            guarded.file.write_text(bad)
            with pytest.raises(InvalidConfiguration, match=said):
                await guarded.ask("reload", 30.0)
        guarded.file.unlink()
        with pytest.raises(StentorError, match=r"b1\.toml"):
            await guarded.ask("reload", 30.0)
        guarded.process.signal(signal.SIGHUP)
        await until(lambda: guarded.logged().count("was not reloaded") >= 6, "the log says so")
        async with bus_of(guarded, ANN) as ann:
            await ann.publish({"x": 1}, ack=True)
        # What needs a restart is told, and everything else is done.
        found = await reload(guarded, name="b9", limits=replace(LIMITS, clients=7))
        assert (found["changed"], found["restart"]) == (["limits"], ["name"])
        # The log is written beside the answer, by a thread of its own.
        await until(lambda: "only a restart changes name" in guarded.logged(), "the log says so")

    asyncio.run(asyncio.wait_for(main(), 120.0))


def test_a_narrower_grant_holds_for_whoever_is_connected(guarded: BrokerProcess) -> None:
    async def main() -> None:
        await until(guarded.reachable, "it runs")
        async with bus_of(guarded, ANN) as ann, bus_of(guarded, BOB) as bob:
            async with bob.subscribe("x > 0") as all_of_it, bob.subscribe("x > 10") as some:
                narrow = replace(BOB, subscribe=("x > 10",), publish=("x < 5",))
                guarded.configure(grants=(OPERATOR, ANN, narrow))
                guarded.process.signal(signal.SIGHUP)
                with pytest.raises(NotPermitted):
                    await all_of_it.get()
                with pytest.raises(NotPermitted):
                    await bob.publish({"x": 6}, ack=True)
                await ann.publish({"x": 11}, ack=True)
                assert (await some.get())["x"] == 11
            # Wider again, for the same connection.
            await reload(guarded, grants=(OPERATOR, ANN, BOB))
            await bob.publish({"x": 6}, ack=True)

    asyncio.run(asyncio.wait_for(main(), 120.0))


def test_limits_hold_for_sessions_that_stand(guarded: BrokerProcess) -> None:
    async def main() -> None:
        await until(guarded.reachable, "it runs")
        async with bus_of(guarded, ANN) as ann, ann.subscribe("x > 1") as first:
            found = await reload(guarded, limits=replace(LIMITS, subscriptions_per_client=1))
            assert found["closed"] == 0
            with pytest.raises(Overloaded):
                async with ann.subscribe("x > 2"):
                    pass
            # A smaller window was promised to nobody: whoever has a larger one comes again.
            found = await reload(guarded, limits=replace(LIMITS, window=5, queue=10))
            assert found["closed"] >= 1
            for x in range(50):
                await ann.publish({"x": x + 2})
            assert [(await first.get())["x"] for _ in range(50)] == list(range(2, 52))
            async with ann.subscribe("x > 2"):
                pass

    asyncio.run(asyncio.wait_for(main(), 120.0))


def copied(pair: Pair, to: Pair) -> None:
    shutil.copy(pair.certificate, to.certificate)
    shutil.copy(pair.key, to.key)


def test_certificates_are_renewed_under_load_and_bad_ones_refused(
    overlay: Overlay, tmp_path: Path
) -> None:
    old, new = Authority(tmp_path, "Old CA"), Authority(tmp_path, "New CA")
    shown = Pair(tmp_path / "shown.pem", tmp_path / "shown.key")
    copied(old.server(), shown)
    broker = overlay.broker(
        "b1",
        listen=(f"tls://127.0.0.1:{free_port()}",),
        tls=TlsFiles(shown.certificate, shown.key),
    )
    broker.start()
    overlay.operator_options = {"tls": {"ca": old.certificate}}

    async def main() -> None:
        await until(broker.reachable, "it runs")
        async with connect(broker.address, tls={"ca": old.certificate}) as bus:
            await bus.publish({"x": 1}, ack=True)
            # Expired, or without its key: the old one stays in force.
            copied(old.server(expired=True), shown)
            with pytest.raises(TlsError, match="has expired"):
                await broker.ask("reload", 30.0)
            shutil.copy(new.server().certificate, shown.certificate)
            with pytest.raises(TlsError, match="does not belong to"):
                await broker.ask("reload", 30.0)
            copied(new.server(), shown)
            assert (await broker.ask("reload", 30.0))["changed"] == ["tls"]
            await bus.publish({"x": 2}, ack=True)  # a connection that stands
            with pytest.raises(TlsError, match="not trusted"):
                await broker.status()
            overlay.operator_options = {"tls": {"ca": new.certificate}}
            assert (await broker.status())["journal"]["head"] == 2

    asyncio.run(asyncio.wait_for(main(), 120.0))


def test_a_neighbor_that_may_no_longer_link_is_cut_off_and_comes_back(overlay: Overlay) -> None:
    east = Grant("east", token="east-token", broker=True)
    overlay.operator_options = {"token": "operator-token"}
    b1 = overlay.broker("b1", grants=(OPERATOR, ANN, east))
    b2 = overlay.broker("b2", ["b1"], grants=(OPERATOR, ANN), token="east-token")
    b1.start()
    b2.start()

    async def main() -> None:
        await until(lambda: b1.sees(["b2"]), "they are linked")
        async with (
            bus_of(b1, ANN) as ann,
            connect(b2.address, name="reader", token="ann-token") as reader,
            reader.subscribe("x > 0", durable="desk") as received,
        ):
            await ann.publish({"x": 1}, ack=True)
            assert (await received.get())["x"] == 1
            assert (await reload(b1, grants=(OPERATOR, ANN)))["closed"] == 1
            await until(lambda: b1.sees([]), "the link is gone")
            await ann.publish({"x": 2}, ack=True)
            # Another token on both sides, and it is made again; nothing is lost.
            east_anew = replace(east, token="east-token-2")
            await reload(b1, grants=(OPERATOR, ANN, east_anew))
            await reload(b2, token="east-token-2")
            await until(lambda: b1.sees(["b2"]), "they are linked again")
            assert (await received.get())["x"] == 2

    asyncio.run(asyncio.wait_for(main(), 120.0))


def test_who_somebody_is_among_scopes_is_asked_again(guarded: BrokerProcess) -> None:
    async def main() -> None:
        await until(guarded.reachable, "it runs")
        async with bus_of(guarded, ANN) as ann, bus_of(guarded, BOB):
            known = replace(ANN, attributes=("tenant=acme",))
            assert (await reload(guarded, grants=(OPERATOR, known, BOB)))["closed"] == 1
            await ann.publish({"x": 1}, ack=True)  # by a connection of its own accord

    asyncio.run(asyncio.wait_for(main(), 120.0))
