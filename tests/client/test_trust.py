"""Where a client lets itself be sent, whatever brokers say, and what it shows there."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedBroker, Session, World, looped, until

import stentor
from stentor.client.trust import MOST_NAMED, Trust
from stentor.client.uplink import MAX_HURRIES
from stentor.errors import InvalidConfiguration, RedirectRefused, StentorError
from stentor.protocol import messages as m
from stentor.transport import Address, Connection, serve
from stentor.transport.tls import server_context

FAST: Any = {"delays": (0.001, 0.01)}

HOSTS = ["127.0.0.1", "[::1]", "localhost", "10.0.0.1", "b1.example", "b2.example", "B1.Example."]
NOWHERE = ["0.0.0.0", "[::]", ""]

hosts = st.sampled_from(HOSTS + NOWHERE)
ports = st.sampled_from([0, 7411, 7412])
networks = st.builds(
    lambda scheme, host, port: Address.parse(f"{scheme}{host}:{port}"),
    st.sampled_from(["", "tls://"]),
    hosts,
    ports,
)
sockets = st.sampled_from(["unix:/run/a/1", "unix:/run/a/2", "unix:/run/b/3", "inproc:x"])
addresses = networks | sockets.map(Address.parse)
listed = st.lists(addresses, min_size=1, max_size=3)


def follows(trust: Trust, address: Address, via: Address) -> bool:
    good, why = trust.followed([str(address)], via)
    assert bool(good) is not bool(why)
    return bool(good)


class TestRules:
    @given(listed, addresses, addresses, st.booleans(), st.booleans())
    def test_nothing_is_followed_that_is_weaker_or_of_a_stranger(
        self, known: list[Address], named: Address, via: Address, token: bool, own: bool
    ) -> None:
        trust = Trust(known, token=token, own_authority=own)
        if named in known:
            assert follows(trust, named, via)
            return
        if not follows(trust, named, via):
            return
        assert named.port or named.kind in ("unix", "inproc")
        assert not named.is_wildcard
        guarded = token or any(each.kind != "tcp" for each in known)
        if named.kind == "tcp":
            assert all(each.kind == "tcp" for each in known)
        if named.kind == "inproc":
            assert via.kind == "inproc"
        if named.kind == "unix" or named.is_loopback:
            assert via.kind in ("unix", "inproc") or via.is_loopback or via.is_wildcard
        if guarded and named.kind in ("tcp", "tls") and not (named.kind == "tls" and own):
            same = {each.host.lower().rstrip(".") for each in known}
            assert named.host.lower().rstrip(".") in same
        if guarded and named.kind == "unix":
            assert str(Path(named.path).parent) in {str(Path(e.path).parent) for e in known}

    @given(listed, addresses, addresses, st.booleans(), st.booleans())
    def test_what_is_trusted_by_address_is_followed(
        self, known: list[Address], named: Address, via: Address, token: bool, own: bool
    ) -> None:
        entry = str(named)
        if " " in entry or not (named.host or named.path):
            return
        trust = Trust(known, token=token, own_authority=own, trust=[entry])
        assert follows(trust, named, via)

    @pytest.mark.parametrize(
        ("entry", "named", "good"),
        [
            ("b2.example", "b2.example:7411", True),
            ("*.example", "B2.EXAMPLE:7411", True),
            ("*.example", "b2.example.evil:7411", False),
            ("example", "b2.example:7411", False),
            ("::1", "[0:0::1]:7411", True),
            ("[2001:db8::7]", "[2001:DB8:0::7]:7412", True),
            ("[2001:db8::7]:7411", "[2001:db8::7]:7411", True),
            ("[2001:db8::7]:7411", "[2001:db8::7]:7412", False),
            ("b2.example:7411", "b2.example:7412", False),
            ("*", "10.9.8.7:1", True),
        ],
    )
    def test_hosts_that_are_trusted(self, entry: str, named: str, good: bool) -> None:
        via = Address.parse("127.0.0.1:7411")
        trust = Trust([via], token=True, trust=[entry])
        assert follows(trust, Address.parse(named), via) is good

    def test_a_trusted_host_does_not_make_plain_tcp_good_enough(self) -> None:
        via = Address.parse("tls://b1.example")
        trust = Trust([via], own_authority=True, trust=["*"])
        assert follows(trust, Address.parse("tls://b2.example"), via)
        assert not follows(trust, Address.parse("b2.example"), via)

    def test_a_thousand_addresses_are_not_looked_at(self) -> None:
        via = Address.parse("127.0.0.1:7411")
        named = [f"10.0.{i // 250}.{i % 250 + 1}:7411" for i in range(1_000)]
        assert len(Trust([via]).followed(named, via)[0]) == MOST_NAMED

    @pytest.mark.parametrize("entry", ["", " ", "a b", "http://x", 7, None])
    def test_what_is_no_host_is_named(self, entry: Any) -> None:
        with pytest.raises((InvalidConfiguration, StentorError), match=r"trust|supported"):
            stentor.connect("127.0.0.1:7411", trust=[entry])


class Trap:
    """Somebody who says nothing and remembers what it was shown."""

    def __init__(self) -> None:
        self.hellos: list[m.Hello] = []

    def opened(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection, messages: list[Any]) -> None:
        self.hellos += messages

    def writable_again(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, error: Exception | None) -> None:
        pass


@asynccontextmanager
async def trap(address: str = "127.0.0.1:0", **options: Any) -> AsyncIterator[tuple[Trap, str]]:
    found = Trap()
    listener = await serve(address, lambda: found, **options)
    try:
        yield found, str(listener.address)
    finally:
        await listener.close()


def sends_on(*instead: str) -> dict[type, Any]:
    """Subscriptions are sent elsewhere."""

    def answer(session: Session, message: m.Subscribe) -> None:
        text = "the group lives elsewhere"
        session.send(m.Ended(message.number, "STN-615", text, list(instead)))

    return {m.Subscribe: answer}


def is_subscribe(message: object) -> bool:
    return isinstance(message, m.Subscribe)


class TestTokens:
    @looped
    async def test_a_group_elsewhere_does_not_get_the_token(self, tmp_path: Path) -> None:
        """By a socket that others cannot open: plain TCP, and sockets elsewhere, are refused."""
        own = f"unix:{tmp_path}/broker"
        (tmp_path / "evil").mkdir(exist_ok=True)
        async with (
            trap() as (plain, port),
            trap(f"unix:{tmp_path}/evil/socket") as (socket, path),
            World().broker(address=own, token="secret", answers=sends_on(port, path)) as broker,
            stentor.connect(broker, token="secret", **FAST) as bus,
        ):
            with pytest.raises(RedirectRefused, match="plain TCP"):
                await bus.subscribe("true", group="g")
            # The client stays where it is, and everything else goes on.
            await bus.publish({"x": 1}, ack=True)
            assert bus.state == "connected"
        assert plain.hellos == socket.hellos == []

    @looped
    async def test_a_broker_that_leaves_does_not_pass_the_token_on(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = World()
        async with (
            trap("[::1]:0") as (evil, port),
            world.broker(address="127.0.0.1:0", token="secret") as broker,
        ):
            place = str(broker._listener.address)
            async with stentor.connect(place, token="secret", **FAST) as bus:
                before = bus._local.link.connections
                broker.send(m.Goodbye("drained", [port, "10.9.8.7:1"]))
                await until(lambda: bus._local.link.connections > before)
                await bus.publish({"x": 1}, ack=True)
        assert evil.hellos == []
        assert "STN-620" in caplog.text

    @looped
    async def test_certificates_of_another_authority_or_host_do_not_help(
        self, tmp_path: Path
    ) -> None:
        ours, theirs = Authority(tmp_path), Authority(tmp_path, "Another CA")
        good = ours.broker("b1")
        for shown in (theirs.broker("evil"), ours.server("evil.example")):
            evil_tls = server_context(shown.certificate, shown.key)
            good_tls = server_context(good.certificate, good.key)
            async with trap("tls://127.0.0.1:0", tls=evil_tls) as (evil, port):
                answers = sends_on(port, port.removeprefix("tls://"))
                world = World()
                broker = ScriptedBroker(world, token="secret", answers=answers)
                make = functools.partial(Session, broker)
                listener = await serve("tls://127.0.0.1:0", make, tls=good_tls)
                try:
                    async with stentor.connect(
                        str(listener.address),
                        token="secret",
                        tls={"ca": ours.certificate},
                        **FAST,
                    ) as bus:
                        subscribing = asyncio.ensure_future(bus.subscribe("true", group="g").open())
                        # It tries, is not convinced, and asks again where the group is.
                        await until(lambda w=world: sum(map(is_subscribe, w.heard)) >= 3)
                        await bus.publish({"x": 1}, ack=True)
                        subscribing.cancel()
                finally:
                    await listener.close()
            assert evil.hellos == []

    @looped
    async def test_a_circle_of_goodbyes_is_gone_around_with_patience(self) -> None:
        world = World()
        one, two = ScriptedBroker(world), ScriptedBroker(world)
        welcomes = 0

        def leave(other: ScriptedBroker) -> Any:
            def on_hello(session: Session, message: m.Hello) -> None:
                nonlocal welcomes
                welcomes += 1
                session.send(m.Goodbye("not here", [other.address]))

            return on_hello

        await one.start()
        await two.start()
        async with stentor.connect(one, delays=(3600, 3600)) as bus:
            link = bus._local.link
            one.answers = {m.Hello: leave(two)}
            two.answers = {m.Hello: leave(one)}
            one.send(m.Goodbye("not here", [two.address]))
            await until(lambda: link._hurries > MAX_HURRIES)
            # A few rounds at once, with both brokers in each; the next one is an hour away.
            assert not link._hurry
            assert welcomes <= 2 * MAX_HURRIES
            assert bus.state == "reconnecting"
        await one.stop()
        await two.stop()
